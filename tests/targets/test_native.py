"""Native code in the shape of C: what runs is what Python would compute."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from hybridml_compiler.targets.cpu.llvm.native import Native, native, text
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import host_spec
from hybridml_compiler.targets.cpu.structs import words

PAIR = words("key", "value", "*next")


@native("i64", "i64")
def hml_collatz(c: Any, n: Any) -> None:
    x, turns = c.variable(n), c.variable(0)
    with c.loop():
        c.break_if(x.value == 1)
        turns.value += 1
        with c.if_then(x.value % 2 == 0):
            x.value >>= 1
            c.next()
        x.value = x.value * 3 + 1
    c.ret(turns.value)


@native("i64", "i64", "i64")
def hml_pairs(c: Any, n: Any, stop: Any) -> None:
    """Counts i < j below n, until there are `stop` of them, and twice those with an even i."""
    count, done = c.variable(0), c.label()
    with c.each(n) as i, c.each(n) as j:
        c.unless(count.value < stop, done)
        more = c.variable(1)
        with c.if_then(i % 2 == 0):
            more.value = 2
        with c.if_then(i < j):
            count.value += more.value
    c.place(done)
    c.ret(count.value)


@native("i64", PAIR)
def chain(c: Any, pair: Any) -> None:
    total, pair_now = c.variable(0), c.variable(pair)
    with c.loop():
        c.break_if(pair_now.value == 0)
        now = pair_now.value.struct(PAIR)
        total.value += now["value"]
        now["key"] = total.value
        pair_now.value = now["next"]
    c.ret(total.value)


@native("i64", PAIR, "i64")
def hml_twice(c: Any, pair: Any, count: Any) -> None:
    with c.rows(pair.pointer, count, PAIR) as row:
        row["value"] = row["value"] * 2
    c.ret(chain(c, pair))


@native("i64", "ptr", "i64")
def hml_claim(c: Any, word: Any, old: Any) -> None:
    won = word.replace(old, old + 1, "acquire")
    c.ret(c.select(won, word.update("add", 10, "seq_cst"), word.load(order="acquire") + 1000))


def run(function: Native, *args: int) -> int:
    name = function.name
    library = loader.load([jit.compile_ir(text("tests", host_spec(), function))], exports=[name])
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))(library.address(name))(*args))


@pytest.mark.parametrize(("n", "turns"), [(1, 0), (2, 1), (6, 8), (27, 111)])
def test_variables_meet_where_jumps_do(n: int, turns: int) -> None:
    assert run(hml_collatz, n) == turns


def test_a_label_is_reached_from_inner_loops() -> None:
    assert run(hml_pairs, 5, 1000) == 2 * (4 + 2) + 3 + 1
    assert run(hml_pairs, 5, 3) == 4


def test_fields_are_loaded_and_set() -> None:
    table = np.zeros((3, 3), np.int64)
    table[:, 1] = [1, 2, 3]
    table[:2, 2] = table.ctypes.data + 24 * np.arange(1, 3)
    assert run(hml_twice, table.ctypes.data, 3) == 12
    assert table[:, 0].tolist() == [2, 6, 12]


def test_a_word_is_exchanged_once() -> None:
    word = np.array([5], np.int64)
    assert (run(hml_claim, word.ctypes.data, 5), word[0]) == (6, 16)
    assert (run(hml_claim, word.ctypes.data, 5), word[0]) == (1026, 26)


def test_a_value_is_no_condition_of_pythons() -> None:
    @native("i64", "i64")
    def wrong(c: Any, x: Any) -> None:
        c.ret(1 if x == 2 else 0)

    with pytest.raises(TypeError, match="if_then"):
        text("wrong", host_spec(), wrong)
