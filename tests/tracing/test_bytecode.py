"""Instructions as all versions of Python have them."""

from __future__ import annotations

import dis
import sys
from typing import Any

from hybridml.tracing.bytecode import instructions, is_updated, running


def pairs(x: Any, y: Any) -> Any:
    a, b = x, y
    c = b
    return a, c, b


def test_each_instruction_names_one_variable() -> None:
    found = [(i.opname.split("_")[0], i.argval) for i in instructions(pairs.__code__) if "_FAST" in i.opname]
    assert sorted(name for what, name in found if what == "STORE") == ["a", "b", "c"]
    assert [name for what, name in found if what == "LOAD"] == ["x", "y", "b", "a", "c", "b"]
    assert [i for i in instructions(pairs.__code__) if isinstance(i.argval, tuple)] == []


def test_stack_effects_are_kept() -> None:
    def effect(found: Any) -> int:
        return sum(dis.stack_effect(i.opcode, i.arg) for i in found if "_FAST" in i.opname)

    assert effect(instructions(pairs.__code__)) == effect(dis.get_instructions(pairs.__code__)) == 3


class Reads:
    """A sequence that notes at which instruction the code is that reads an item of it."""

    def __init__(self) -> None:
        self.places: list[tuple[Any, int]] = []

    def __getitem__(self, key: Any) -> int:
        frame = sys._getframe(1)
        self.places.append((frame.f_code, frame.f_lasti))
        return 1

    def __setitem__(self, key: Any, value: Any) -> None: ...


def updates(a: Reads) -> int:
    a[0] += 1
    return a[0] + 1


def test_items_are_known_after_python_has_specialized_the_code() -> None:
    for _ in range(50):  # up to 3.12 the offset of a read is then that of its last cache
        updates(reads := Reads())
        assert [is_updated(*place) for place in reads.places] == [True, False]
        for code, offset in reads.places:
            found = list(dis.get_instructions(code))
            at = running(found, offset)
            assert at is not None and found[at].opname in ("BINARY_SUBSCR", "BINARY_OP")
    assert running(found, -2) is None
