"""`print` and loggers in a traced function: every call says the same, with its own values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hybridml_compiler.errors import user_location

from ...core import pytree
from ...core.tensor import Tensor
from ..capture.tracer import Tracer
from ..specialize.errors import refused
from .builtin_patches import say
from .mutations import PLAIN, Mutation

if TYPE_CHECKING:
    import logging


class Output:
    """Output of a trace, in its order, as effects that calls repeat (`said`). `knows`: whether an object was there
    before the trace."""

    def __init__(self, tracer: Tracer, knows: Callable[[Any], bool]) -> None:
        self.said: list[Mutation] = []
        self.loggers: dict[int, logging.Logger] = {}  # that say something, by id
        self._tracer, self._knows, self._stdout = tracer, knows, sys.stdout

    def print(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Notes a call of `print`, to a file that was there before."""
        kwargs = kwargs.copy()
        file = kwargs.pop("file", None)
        named = not self._knows(file)
        stream = next((name for name in ("stdout", "stderr") if getattr(sys, name) is file and named), "")
        can = sys.stdout is self._stdout and set(kwargs) <= {"sep", "end", "flush"}

        def again(given: Any) -> None:
            say(*given[0], **given[1], file=getattr(sys, stream) if stream else file)

        self._note("print", (args, kwargs), again, can and (file is None or bool(stream) or self._knows(file)))

    def log(
        self, logger: logging.Logger, level: int, message: Any, args: Any, exc_info: Any = None, extra: Any = None,
        stack_info: bool = False, stacklevel: int = 1,
    ) -> None:  # fmt: skip
        """Notes a message of a logger: a record of the line that the trace has come to is made by each call."""
        self.loggers[id(logger)] = logger
        path, line, function, stack = logger.findCaller(stack_info, stacklevel + 2)

        def again(given: Any) -> None:
            message, args, extra = given
            made = logger.makeRecord(logger.name, level, path, line, message, args, None, function, extra, stack)
            logger.handle(made)

        self._note("log", (message, args, extra), again, not exc_info)

    def _note(self, what: str, value: Any, again: Callable[[Any], None], can: bool) -> None:
        tracer, where = self._tracer, user_location()
        leaves: list[Any] = []
        structure = pytree.flatten(value, leaves)
        plain = all(isinstance(leaf, (*PLAIN, Tensor)) and not _has_history(leaf) for leaf in leaves)
        if tracer.strict or tracer.frames or not (can and plain):
            how = "" if tracer.strict else " in a way that its compiled calls cannot"
            raise refused(tracer, f"{what}s{how} ({where})")
        values = [tracer.wrap(tracer.lift(v)._array) if issubclass(type(v), Tensor) else v for v in leaves]
        self.said.append(Mutation(what, where, pytree.unflatten(structure, values), again, None, True))


def _has_history(leaf: Any) -> bool:
    return issubclass(type(leaf), Tensor) and leaf._node is not None
