"""Nodes of the tape: made by one builder, read by name."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import hybridml as hm
from hybridml.core.autodiff import tape
from hybridml.core.autodiff.tape import (
    Leaf,
    freed,
    is_freed,
    is_node,
    kept_by,
    make_node,
    node_source,
    parents_of,
    stamp_of,
)

SOURCES = Path(hm.__file__).parent


class Cube(hm.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


STEPS = {
    "one input": lambda x, y: hm.exp(x),
    "two inputs": lambda x, y: x * y,
    "three inputs": lambda x, y: hm.where(x > 0, x, y),
    "cast": lambda x, y: hm.sum(x, axis=0, dtype="float64"),
    "scalar": lambda x, y: x * 2.0,
    "list": lambda x, y: hm.concat([x, y]),
    "key": lambda x, y: x[1:],
    "several results": lambda x, y: hm.linalg.qr(x)[0],
    "function": lambda x, y: Cube.apply(x),
    "checkpoint": lambda x, y: hm.checkpoint(lambda x: x * y, x),
    "program": lambda x, y: hm.trace(lambda x, y: x * y + 1)(x, y),
    "in place": lambda x, y: x.clone().copy_(y),
}


@pytest.mark.parametrize("step", STEPS)
def test_parents_are_the_histories_that_a_step_leads_to(step: str) -> None:
    x, y = (hm.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True) for _ in range(2))
    node = STEPS[step](x, y)._node
    found, pending = [], [node]
    while pending:
        history = pending.pop()
        if is_node(history):
            pending += parents_of(history)
        else:
            assert isinstance(history, Leaf)
            found.append(history)
    both = {"two inputs", "three inputs", "list", "checkpoint", "program"}
    expected = {id(y._node)} if step == "in place" else {id(t._node) for t in ((x, y) if step in both else (x,))}
    assert {id(leaf) for leaf in found} == expected


def test_the_text_of_generated_functions_builds_what_the_builder_builds() -> None:
    x, pull = Leaf((2,), hm.float32), print
    env = {"_clock": tape.clock, "pull": pull, "shape": (2,), "x": x, "a": "kept", "b": 3}
    made, written = make_node(pull, (2,), [x], "kept", 3), eval(node_source("pull", "shape", ["x"], ["a", "b"]), env)
    assert written[1:] == made[1:] and stamp_of(written) == stamp_of(made) + 1
    assert parents_of(written) == [x] and kept_by(written) == ["kept", 3]
    env["_node"] = written
    assert eval(tape.parent_source(0), env) is x and eval(tape.kept_source(1, 1), env) == 3


def test_a_backward_frees_a_node_and_its_parents() -> None:
    x = hm.tensor([1.0], requires_grad=True)
    y = x * x
    assert not is_freed(y._node) and parents_of(y._node) == [x._node, x._node]
    y.backward()
    assert is_freed(y._node) and parents_of(y._node) == [] and is_freed(freed((1,)))


def test_only_the_tape_knows_where_things_are_in_a_node() -> None:
    """No subscript of a `node` by a number or a slice elsewhere in the package."""
    found = []
    for path in SOURCES.rglob("*.py"):
        if path == Path(tape.__file__):
            continue
        text = path.read_text(encoding="utf-8")
        if not re.search(r"\b(_?node|joint)\s*\[", text):  # a parse takes a hundred times as long
            continue
        for at in ast.walk(ast.parse(text)):
            if not isinstance(at, ast.Subscript) or not isinstance(at.value, ast.Name | ast.Attribute):
                continue
            name = at.value.id if isinstance(at.value, ast.Name) else at.value.attr
            index = at.slice.operand if isinstance(at.slice, ast.UnaryOp) else at.slice
            if name in ("node", "_node", "joint") and isinstance(index, ast.Constant | ast.Slice):
                found.append(f"{path.relative_to(SOURCES)}:{at.lineno}")
    assert not found, f"read nodes by the functions of core/autodiff/tape.py: {found}"
