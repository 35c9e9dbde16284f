"""Instructions as all versions of Python have them."""

from __future__ import annotations

import dis
from typing import Any

from hybridml.tracing.bytecode import instructions


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
