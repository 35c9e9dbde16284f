"""Modules that are a function of `hybridml.functional` with its options held, and families over one to three axes."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar

from ..core.tensor import Tensor
from ..functional.arguments import LAYOUTS
from .module import Module


class FunctionModule(Module):
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

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        return type(self).function(*inputs, **named, **{name: getattr(self, name) for name in self._options})

    def extra_repr(self) -> str:
        shown = {name: getattr(self, name) for name in self._options}
        given = {name: value for name, value in shown.items() if value is not None and not isinstance(value, Tensor)}
        return ", ".join(f"{name}={value!r}" for name, value in given.items())


class Spatial(Module):
    """Base class of families of layers over one, two and three spatial axes, each written once.

    A family is a class with a docstring and its `functions` of 1, 2 and 3 axes, if it has any. Its members are classes
    with ``dims=``, which get the family's docstring in the words for so many axes:

        class _MaxPool(Spatial, FunctionModule):
            \"\"\"Largest value of each window: {layout} -> (..., {out}).\"\"\"
            functions = (F.max_pool1d, F.max_pool2d, F.max_pool3d)

        class MaxPool2d(_MaxPool, dims=2): ...
    """

    dims: int
    functions: ClassVar[tuple[Callable[..., Any], ...]] = ()
    function: ClassVar[Callable[..., Any]]
    _text: ClassVar[str | None] = None

    def __init_subclass__(cls, dims: int = 0, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not dims:
            if not hasattr(cls, "dims"):  # a family, and no subclass of a member
                cls._text, cls.__doc__ = cls.__doc__, None
            return
        cls.dims = dims
        if cls.functions:
            cls.function = staticmethod(cls.functions[dims - 1])
        if cls.__doc__ is None and cls._text is not None:
            cls.__doc__ = cls._text.format_map(_words(dims))


def own_init(cls: Any) -> None:
    """Gives a class that has the `__init__` of a private base a copy with its own name.

    Python's errors about arguments have that name: "MaxPool2d.__init__() missing ...", where the user has not heard of
    `_MaxPool`.
    """
    inherited = cls.__init__
    if isinstance(inherited, FunctionType) and inherited.__qualname__.startswith("_"):
        code, scope, defaults = inherited.__code__, inherited.__globals__, inherited.__defaults__
        init = FunctionType(code, scope, "__init__", defaults, inherited.__closure__)
        vars(init).update(vars(inherited))
        init.__kwdefaults__, init.__annotations__ = inherited.__kwdefaults__, inherited.__annotations__
        init.__doc__, init.__qualname__ = inherited.__doc__, f"{cls.__qualname__}.__init__"
        cls.__init__ = init


class _Repeated:
    """Format field `{times[8]}`: a number once per axis, "8, 8"."""

    def __init__(self, dims: int) -> None:
        self._dims = dims

    def __getitem__(self, number: int) -> str:
        return ", ".join([str(number)] * self._dims)


def _words(dims: int) -> dict[str, Any]:
    """Words of a docstring about so many axes, by their field."""
    names = ("d", "h", "w")[-dims:] if dims > 1 else ("l",)
    return {
        "dims": dims,
        "sides": 2 * dims,
        "layout": LAYOUTS[dims],
        "axes": ", ".join(names),
        "out": ", ".join(f"{name}'" for name in names),
        "kernel": ", ".join(f"k{name}" for name in names) if dims > 1 else "k",
        "last": f"last {dims} axes" if dims > 1 else "last axis",
        "times": _Repeated(dims),
    }
