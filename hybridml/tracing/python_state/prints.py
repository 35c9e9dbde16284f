"""`print` in a traced function: every call prints, with its own values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hybridml_compiler.errors import user_location

from ...core import pytree
from ...core.tensor import Tensor
from ..capture.tracer import Tracer
from ..specialize.errors import refused
from .builtin_patches import say
from .mutations import PLAIN, Mutation


def note_print(
    tracer: Tracer, printed: list[Mutation], stdout: Any, knows: Callable[[Any], bool], args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:  # fmt: skip
    """The `print` of a trace: every call prints, in this order, its own values, to a file that was there before."""
    kwargs = kwargs.copy()
    file = kwargs.pop("file", None)
    stream = next((name for name in ("stdout", "stderr") if getattr(sys, name) is file and not knows(file)), "")
    leaves: list[Any] = []
    structure = pytree.flatten((args, kwargs), leaves)
    where = user_location()
    plain = all(isinstance(leaf, (*PLAIN, Tensor)) for leaf in leaves) and set(kwargs) <= {"sep", "end", "flush"}
    if (
        tracer.strict
        or tracer.frames
        or sys.stdout is not stdout
        or not plain
        or not (file is None or stream or knows(file))
        or any(_has_history(leaf) for leaf in leaves)
    ):
        what = "prints" if tracer.strict else "prints in a way that its compiled calls cannot"
        raise refused(tracer, f"{what} ({where})")
    values = [tracer.wrap(tracer.lift(v)._array) if issubclass(type(v), Tensor) else v for v in leaves]
    value = pytree.unflatten(structure, values)

    def again(given: Any) -> None:
        say(*given[0], **given[1], file=getattr(sys, stream) if stream else file)

    printed.append(Mutation("print", where, value, again, None, True))


def _has_history(leaf: Any) -> bool:
    return issubclass(type(leaf), Tensor) and leaf._node is not None
