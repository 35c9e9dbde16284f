"""Histories in a function that is captured as a graph: where they come in, and where they end.

A graph does not tell `x.detach()` from `x`, and nothing of `no_grad` or of gradients that a user has written. So each
operation is looked at while the function runs: an operand that has no history, though it is made of one that has, or
that has one here and none there, says that a derivative of the graph would be another one than that of the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.op import Op

from ...core.autodiff.tape import is_node, is_recorded, stamp_of
from ...core.context import grad_is_off
from ...core.tensor import Tensor


class Histories:
    """Record of what operations have read since the stamp `since`. `entered`: histories from outside. `free`: results
    of loops that depend on nothing that is recorded."""

    def __init__(self, since: int, free: set[ir.Node]) -> None:
        self.since, self.free = since, free
        self.entered: dict[ir.Node, Any] = {}
        self.recorded: set[ir.Node] = set()
        self.bare: set[ir.Node] = set()
        self.are_cut = False

    def see(self, op: Op, tensors: Sequence[Tensor]) -> None:
        """Takes note of what an operation reads."""
        for t in tensors:
            if t._node is not None:
                self.are_cut = self.are_cut or grad_is_off()
                self._record(t)
            elif op.kind != "control":  # whose operands are values alone
                self.see_bare(t._array)

    def _record(self, t: Tensor) -> None:
        node, history = t._array, t._node
        self.recorded.add(node)
        self.are_cut = self.are_cut or node in self.bare
        made = stamp_of(history) if is_node(history) else getattr(history, "stamp", 0)  # of leaves that transforms make
        if made <= self.since:  # or a mark, which has no time
            known = self.entered.setdefault(node, history)
            self.are_cut = self.are_cut or (known is not history and is_recorded(history))

    def see_bare(self, node: ir.Node) -> None:
        """Takes note of a value that is read without history."""
        if node in self.bare or not dtypes.is_inexact(node.dtype):
            return
        self.bare.add(node)
        self.are_cut = self.are_cut or node in self.recorded or (node not in self.free and self._would_be(node))

    def _would_be(self, node: ir.Node) -> bool:
        """Whether operations of recorded tensors make such a value a recorded one."""
        if node.op is None:
            return False
        if node.kind == "control":
            return True
        rules = node.op.vjp * len(node.inputs) if node.op.variadic else node.op.vjp
        return any(rule is not None and n in self.recorded for n, rule in zip(node.inputs, rules, strict=True))
