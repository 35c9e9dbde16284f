"""Modules that are a function of `hybridml.functional` with its options held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ..core.tensor import Tensor
from .module import Module


class Held(Module):
    """Calls `function` with what `forward` gets, and with the options that the module was made with, its attributes.

    An option that is a tensor is a buffer.
    """

    function: ClassVar[Callable[..., Any]]
    _options: tuple[str, ...]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = ()
        self._hold(**options)

    def _hold(self, **options: Any) -> None:
        self._options += tuple(options)
        for name, value in options.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *inputs: Any) -> Any:
        return type(self).function(*inputs, **{name: getattr(self, name) for name in self._options})

    def extra_repr(self) -> str:
        shown = {name: getattr(self, name) for name in self._options}
        given = {name: value for name, value in shown.items() if value is not None and not isinstance(value, Tensor)}
        return ", ".join(f"{name}={value!r}" for name, value in given.items())
