"""`config`: settings of the compiler, for a block or for the rest of the program; what they are now."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Self

from hybridml_compiler import config as table
from hybridml_compiler.errors import ArgumentError

from ..core.context import call_var, switches, way

_FLAGS = {flag.field: flag for flag in table.FLAGS}


class config:
    """Context manager: settings of the compiler inside of the block; shown, the settings of now.

    The settings and their environment variables are those of docs/configuration.md. A block holds for this thread or
    task, and inside of another one it adds to it; what was before holds again after it, however it ends. `num_threads`
    is the whole process's, as long as the block lasts. `update` changes settings for the rest of the program. A traced
    function has programs of its own for each value of a setting on which they depend, and keeps those that it has.
    Eager code, and functions of the library that run compiled by themselves (`softmax`), stay as they are in a block.
    No setting changes a result by more than rounding.

    Raises ArgumentError for a name or a value that is none.

    >>> import hybridml as hm
    >>> f = hm.trace(lambda x: (x * 2 + 1).sum())
    >>> with hm.config(fusion=False):
    ...     y = f(hm.ones((4,)))
    ...     kernels = f.stats.kernels
    >>> kernels, hm.config().fusion
    (3, True)
    """

    def __init__(self, **settings: Any) -> None:
        for name, value in settings.items():
            _check(name, value)
        self._given = settings
        self._outer: list[tuple[Any, Any, dict[str, Any]]] = []  # what to go back to, innermost last

    def __enter__(self) -> Self:
        here, call = table.here(), call_var.get()
        of_process = {name: table.changed(name) for name in self._given if _FLAGS[name].scope == "process"}
        self._outer.append((here, call, of_process))
        made = {**here, **{name: value for name, value in self._given.items() if name not in of_process}}
        try:
            for name in of_process:
                table.change(name, self._given[name])
            table.set_here(made)
            call_var.set(way(None if call is None else call.stance, table.deciding_of(made)))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        here, call, of_process = self._outer.pop()
        call_var.set(call)
        table.set_here(here)
        for name, value in of_process.items():
            table.change(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _FLAGS:
            raise AttributeError(f"config: {_unknown(name)}")
        return table.field(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_FLAGS]

    def __repr__(self) -> str:
        given = {name: (getattr(self, name), table.source(name)) for name in _FLAGS}
        width = max(map(len, given))
        return "\n".join(f"{name:{width}}  {value!r:8}  {source}" for name, (value, source) in given.items())

    @staticmethod
    def update(name: str | None = None, value: Any = None, /, **settings: Any) -> None:
        """Changes settings for the rest of the program, in all threads; blocks around go on to decide their own.

        One may be given as JAX has it, `update("fusion", False)`. Raises ArgumentError as a block does.

        >>> import hybridml as hm
        >>> hm.config.update(gradient_memory=512)
        >>> hm.config().gradient_memory
        512
        >>> hm.config.update(gradient_memory=256)
        """
        given = settings if name is None else {name: value, **settings}
        for name, value in given.items():
            _check(name, value)
        for name, value in given.items():
            table.change(name, value)
        if any(_FLAGS[name].decides for name in given):
            switches.value += 1


def _check(name: str, value: Any) -> None:
    """Raises ArgumentError for a name or a value that is none."""
    if name not in _FLAGS:
        raise ArgumentError(f"config: {_unknown(name)}")
    flag = _FLAGS[name]
    if flag.scope == "start":
        raise ArgumentError(f"config: {name} is read once; set {flag.variable} before the program starts")
    kind = int if flag.default is None else type(flag.default)
    try:
        if type(value) is kind:
            flag.read(str(value))
            return
    except ValueError:
        pass
    takes = "True or False" if kind is bool else flag.takes
    raise ArgumentError(f"config: {name} is {takes}, got {value!r}")


def _unknown(name: str) -> str:
    if name == "jax_enable_x64":
        return f"there is no setting {name!r}; write hm.set_default_dtype(hm.float64)"
    near = get_close_matches(name, _FLAGS, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no setting {name!r}{meant} They are {', '.join(_FLAGS)}".replace("' They", "'. They")
