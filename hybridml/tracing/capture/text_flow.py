"""The ways of a string that was just made: whether it is only kept, printed or returned, so that nothing looks at it.

That is read in the bytecode: the instructions of one statement are followed with the kinds of values that they have on
the stack. What is not known here (a jump, a method, an unusual instruction) is taken for somebody who looks.
"""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ..bytecode import instructions, running
from ..python_state.recorded import Recorder, items_of

OnlyKept = Callable[[CodeType, str], bool]  # whether code does nothing with what has a name but to put something there
_FARTHEST = 400  # instructions that one statement may have before the text
# In formats of `format` and of `%`: texts that are padded, or looked at.
_CONVERTED, _PADDED = re.compile(r"![rsa]"), re.compile(r"%-?\d|%[^s%]")
_APPENDS = ("append", "appendleft")
_LEVELS = ("debug", "info", "warning", "error", "critical")
_CALLED = ("print", "str", "repr", "format")


class _Item(NamedTuple):
    """A value on the stack: a "const", the "global", "fast", "deref" variable or "attr" of a name (of the item `of`),
    the "item" of one under a `key`, "text" (it, or a container of it), "other"."""

    kind: str
    name: object = None
    of: _Item | None = None
    key: _Item | None = None


_KINDS = {"CONST": "const", "SMALL_INT": "const", "FAST": "fast", "DEREF": "deref"}  # of what is loaded, by its opcode
_TEXT, _HELD, _OTHER = _Item("text"), _Item("held"), _Item("other")  # held: a container that is followed by now


class _Short(Exception):
    """The stack has less than an instruction takes: the statement begins earlier."""


class _Unknown(Exception):
    """Somebody may look at the text."""


def is_told(frame: FrameType, root: CodeType | None, only_kept: OnlyKept, formats: bool) -> bool:
    """Whether the string that the present instruction of a frame makes is only kept, printed, or returned by `root`.
    `formats`: a number is formatted; otherwise it is converted to a string."""
    code = frame.f_code
    found = list(instructions(code))
    at = running(found, frame.f_lasti)
    if at is None or "locals" in code.co_names or any(_is_users(frame.f_globals.get(name)) for name in _CALLED):
        return False
    returns = code is root and all(f.f_code is not root for f in _behind(frame))
    return _Flow(found, returns, partial(only_kept, code), formats, partial(_value, frame)).follows(at)


def _is_logger(value: object) -> bool:
    """Whether a value is a logger, or the module of them: they hand on what they are told."""
    logging = sys.modules.get("logging")
    if logging is None:
        return False
    return value is logging or type(value) in (logging.Logger, logging.RootLogger, logging.LoggerAdapter)


def _value(frame: FrameType, item: _Item | None) -> Any:
    """The value of a variable, of an attribute that an object itself has, or of an item of a container; None for any
    other."""
    if item is None or item.kind not in ("const", "fast", "deref", "global", "attr", "item"):
        return None
    if item.kind == "const":
        return item.name
    if item.kind == "item":
        of, key = _value(frame, item.of), _value(frame, item.key)
        of = of._container if issubclass(type(of), Recorder) else of
        return next((value for k, value in items_of(of) if type(k) is type(key) and k == key), None)
    if item.kind == "attr":
        return getattr(_value(frame, item.of), "__dict__", {}).get(item.name)
    return (frame.f_globals if item.kind == "global" else frame.f_locals).get(str(item.name))


def _is_users(value: object) -> bool:
    """Whether a global variable hides a builtin function; a trace has its own `print` there."""
    return value is not None and getattr(value, "__module__", "").partition(".")[0] != "hybridml"


def _behind(frame: FrameType) -> Iterator[FrameType]:
    at = frame.f_back
    while at is not None:
        yield at
        at = at.f_back


class _Flow:
    """The ways of a string through one code object."""

    def __init__(
        self, found: list[dis.Instruction], returns: bool, only_kept: Callable[[str], bool], formats: bool,
        value: Callable[[_Item | None], Any],
    ) -> None:  # fmt: skip
        self.found, self.returns, self.only_kept, self.formats = found, returns, only_kept, formats
        self.value = value
        self.locals: set[object] = set()  # variables that hold it

    def follows(self, at: int) -> bool:
        """Whether all ways of what the instruction `at` pushes are known."""
        for start in range(at, max(at - _FARTHEST, -1), -1):
            i = self.found[start]
            if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs:
                return False
            try:
                return self._runs(start, at)
            except _Short:
                if i.is_jump_target:
                    return False
        return False

    def _runs(self, start: int, at: int) -> bool:
        stack: list[_Item] = []
        try:
            for k in range(start, len(self.found)):
                self._step(self.found[k], stack, k == at)
                if k >= at and _TEXT not in stack:
                    return True
        except _Unknown:
            return False
        return False

    def _step(self, i: dis.Instruction, stack: list[_Item], makes: bool) -> None:
        """Applies an instruction to the stack; it pushes the text if it `makes` it."""
        step = _STEPS.get(i.opname)
        if step is None:
            raise _Unknown
        taken = partial(_taken, stack)
        pushed = step(self, i, taken, makes)
        stack += [_TEXT] if makes else pushed

    # -- instructions: each takes values off the stack, and returns those that it pushes

    def _nothing(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        return []

    def _load(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        kind = next((kind for part, kind in _KINDS.items() if part in i.opname), "global")
        if kind == "fast" and i.argval in self.locals and not makes:
            return [_TEXT]
        item = _Item(kind, i.argval)
        return [item, _OTHER] if i.opname == "LOAD_GLOBAL" and i.arg is not None and i.arg & 1 else [item]

    def _attribute(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        (of,) = take(1)
        if of is _TEXT and i.argval not in _APPENDS:
            raise _Unknown
        is_method = i.opname == "LOAD_METHOD" or dis.stack_effect(i.opcode, i.arg) == 1
        item = _Item("attr", i.argval, _HELD if of is _TEXT else of)
        return [item, _OTHER] if is_method else [item]

    def _push(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        return [_OTHER]

    def _pop(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        take(1)
        return []

    def _copy(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        items = take(i.arg or 0)
        return [*items, items[0]]

    def _swap(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        first, *between, last = take(i.arg or 0)
        return [last, *between, first]

    def _format(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        """Formats a value. One that is a text by then stays it where nothing pads it."""
        padded = i.opname == "FORMAT_WITH_SPEC" or (i.opname == "FORMAT_VALUE" and (i.arg or 0) & 4 != 0)
        value, *spec = take(2 if padded else 1)
        if _TEXT in spec or (padded and (value is _TEXT or (makes and not self.formats))):
            raise _Unknown
        return [value if value is _TEXT else _OTHER]

    def _build(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        items = take(_HOLDS[i.opname](i.arg or 0))
        if i.opname == "BUILD_MAP" and _TEXT in items[::2]:  # a key is looked at
            raise _Unknown
        return [_TEXT if _TEXT in items else _OTHER]

    def _extend(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        """Puts the top value into a container that is being built, `[*x, y]` or `{**x, "y": y}`."""
        first, *between, item = take((i.arg or 0) + 1)
        return [item if item is _TEXT else first, *between]

    def _binary(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        left, right = take(2)
        if makes:
            if i.argrepr != "%" or left.kind != "const" or _PADDED.search(str(left.name)):
                raise _Unknown
        elif _TEXT in (left, right) and (i.opname != "BINARY_OP" or i.argrepr not in ("+", "+=")):
            raise _Unknown
        is_item = i.opname == "BINARY_SUBSCR" or i.argrepr == "[]"
        return [_TEXT if _TEXT in (left, right) else _Item("item", None, left, right) if is_item else _OTHER]

    def _store(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        (value,) = take(1)
        if value is _TEXT:
            if i.opname == "STORE_FAST":
                self._held(i.argval)
            elif not self.only_kept(i.argval):
                raise _Unknown
        return []

    def _store_attribute(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        value, _ = take(2)
        if value is _TEXT and not self.only_kept(i.argval):
            raise _Unknown
        return []

    def _store_item(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        value, container, key = take(3)
        if key is _TEXT:
            raise _Unknown
        if value is _TEXT:
            self._put_into(container)
        return []

    def _return(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        if take(1)[0] is _TEXT and not self.returns:
            raise _Unknown
        return []

    def _call(self, i: dis.Instruction, take: _Take, makes: bool) -> list[_Item]:
        items = take((i.arg or 0) + (3 if i.opname == "CALL_KW" else 2))
        callee = next((item for item in items[:2] if item.kind in ("global", "attr")), _OTHER)
        is_global, name, of = callee.kind == "global", callee.name, callee.of
        if makes:
            of_const = of is not None and of.kind == "const" and not _CONVERTED.search(str(of.name))
            if not (name in _CALLED[1:] if is_global else name == "format" and of_const):
                raise _Unknown
        elif _TEXT in items and not is_global and name in _APPENDS and of is not None:
            self._put_into(of)
        elif (
            _TEXT in items
            and not (is_global and name == "print")
            and not (name in _LEVELS and _is_logger(self.value(of)))
        ):
            raise _Unknown
        return [_OTHER]

    # -- what holds the text

    def _put_into(self, container: _Item) -> None:
        """Follows a container into which the text is put: by the loads of a local one, by the name of any other."""
        if container is _TEXT or container is _HELD or issubclass(type(self.value(container)), Recorder):
            return
        if container.kind == "fast":
            self._held(container.name)
        elif container.kind not in ("attr", "global", "deref") or not self.only_kept(str(container.name)):
            raise _Unknown

    def _held(self, name: object) -> None:
        """Follows a local variable from all its loads."""
        if name in self.locals:
            return
        self.locals.add(name)
        for k, i in enumerate(self.found):
            if i.argval == name and i.opname.startswith("LOAD_") and "FAST" in i.opname and not self.follows(k):
                raise _Unknown


_Take = Callable[[int], list[_Item]]


def _taken(stack: list[_Item], count: int) -> list[_Item]:
    if count > len(stack):
        raise _Short
    items = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    return items


# Containers -> items that they take off the stack, for their argument.
_HOLDS: dict[str, Callable[[int], int]] = {
    "BUILD_STRING": lambda n: n,
    "BUILD_TUPLE": lambda n: n,
    "BUILD_LIST": lambda n: n,
    "BUILD_MAP": lambda n: 2 * n,
    "BUILD_CONST_KEY_MAP": lambda n: n + 1,
}
_Step = Callable[[_Flow, dis.Instruction, _Take, bool], list[_Item]]
_STEPS: dict[str, _Step] = {
    name: step
    for step, names in {
        _Flow._nothing: "NOP PRECALL KW_NAMES RESUME EXTENDED_ARG CACHE",
        _Flow._load: "LOAD_GLOBAL LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_CHECK LOAD_DEREF LOAD_NAME LOAD_CONST "
        "LOAD_SMALL_INT",
        _Flow._attribute: "LOAD_ATTR LOAD_METHOD",
        _Flow._push: "PUSH_NULL",
        _Flow._pop: "POP_TOP",
        _Flow._copy: "COPY",
        _Flow._swap: "SWAP",
        _Flow._format: "FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE",
        _Flow._build: " ".join(_HOLDS),
        _Flow._extend: "LIST_APPEND LIST_EXTEND DICT_UPDATE",
        _Flow._binary: "BINARY_OP BINARY_SUBSCR",
        _Flow._store: "STORE_FAST STORE_DEREF STORE_GLOBAL STORE_NAME",
        _Flow._store_attribute: "STORE_ATTR",
        _Flow._store_item: "STORE_SUBSCR",
        _Flow._return: "RETURN_VALUE",
        _Flow._call: "CALL CALL_KW",
    }.items()
    for name in names.split()
}
