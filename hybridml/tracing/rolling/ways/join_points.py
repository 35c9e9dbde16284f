"""Places where ways of a step come together again, by the instructions of a loop: the first one between statements to
which all ways lead from another one (an immediate postdominator, Aho et al., "Compilers", 2006, section 9.6).

    s = 2.0 if v > hi else -1.0     both ways of the question are at `STORE_FAST s`, with other values on the stack:
    if s > t:                       they join at the next instruction, which begins a statement
        n += 1
    t = v                           and those of `s > t` where this begins
"""

from __future__ import annotations

import dis
from collections.abc import Iterable
from functools import lru_cache
from types import CodeType

from ..code_loops import NOTHING, Flow, flow_of

# Instructions of which Python does not tell.
_SILENT = ("END_FOR", "POP_ITER", "NOT_TAKEN", "CACHE", "EXTENDED_ARG", "RESUME", "PRECALL")


class JoinPoints:
    """Places in a loop that begins at the instruction `head`. `ends`: instructions with which a step ends."""

    def __init__(self, flow: Flow, head: int, ends: Iterable[int]) -> None:
        self.flow, self.inside, self.ends = flow, sorted(flow.loops[head]), frozenset(ends)
        self.nodes = flow.loops[head]
        self.around = [nodes for h, nodes in flow.loops.items() if h != head and h in self.nodes
                       and flow.found[h].opname == "FOR_ITER"]  # fmt: skip
        self.depth = self._depths(head)
        self.later = self._postdominators()
        self.between = [k for k in self.inside if self._is_between(k)]
        self.known: dict[int, int | None] = {}

    def _following(self, k: int) -> list[int]:
        return [n for n in self.flow.following[k] if n in self.nodes] if k not in self.ends else []

    def _postdominators(self) -> dict[int, int]:
        """The instructions that every way from one leads to, as bits."""
        every = sum(1 << k for k in self.inside)
        found = dict.fromkeys(self.inside, every)
        changed = True
        while changed:
            changed = False
            for k in reversed(self.inside):
                following = self._following(k)
                common = every if following else 0
                for n in following:
                    common &= found[n]
                now = common | 1 << k
                if now != found[k]:
                    found[k], changed = now, True
        return found

    def _depths(self, head: int) -> dict[int, int]:
        """The number of items on the stack at each instruction, more than where the loop begins."""
        found, pending, flow = {head: 0}, [head], self.flow
        while pending:
            k = pending.pop()
            i = flow.found[k]
            arg = i.arg if i.opcode >= dis.HAVE_ARGUMENT else None
            for n in flow.following[k]:
                if n in self.nodes and n not in found:
                    found[n] = found[k] + dis.stack_effect(i.opcode, arg, jump=n != k + 1)
                    pending.append(n)
        return found

    def _is_between(self, k: int) -> bool:
        """Whether nothing is on the stack but iterators of loops, and Python tells of it."""
        loops = sum(k in nodes for nodes in self.around)
        return (
            self.depth.get(k) == loops and self.flow.offset(k) is not None and self.flow.found[k].opname not in _SILENT
        )

    def _has_iterators_of(self, k: int, at: int) -> bool:
        """Whether no iterator is on the stack at an instruction that may be another one on each way from `at`."""
        return all(at in nodes for nodes in self.around if k in nodes)

    def after(self, offset: int) -> int | None:
        """The offset of the place where ways join that part at an instruction; None where they do not in a step."""
        if offset not in self.known:
            at = self.flow.running(offset)
            bits = self.later.get(at, 0)
            found = [k for k in self.between if bits >> k & 1 and k != at and self._has_iterators_of(k, at)]
            nearest = max(found, key=lambda k: self.later[k].bit_count(), default=None)
            self.known[offset] = None if nearest is None else self.flow.offset(nearest)
        return self.known[offset]

    def compares(self, offset: int) -> str:
        """The relation that an instruction compares by, if it does."""
        i = self.flow.found[self.flow.running(offset)]
        return str(i.argval) if i.opname == "COMPARE_OP" else ""

    def leaves(self, offset: int) -> bool | None:
        """The truth of what a conditional jump asks with which it leads to the place where its ways join, and does
        nothing on the way; None where neither does."""
        at, join = self.flow.question(offset), self.after(offset)
        if at is None or join is None:
            return None
        jumps = "IF_TRUE" in self.flow.found[at].opname
        for truth, k in ((jumps, self.flow.jump(at)), (not jumps, at + 1)):
            while k != self.flow.at[join] and self.flow.found[k].opname in (*NOTHING, "JUMP_BACKWARD"):
                (k,) = self.flow.following[k]
            if k == self.flow.at[join]:
                return truth
        return None


@lru_cache(maxsize=256)
def join_points(code: CodeType, head: int, ends: frozenset[int]) -> JoinPoints:
    """The places of a loop, by its offset and those of instructions with which a step ends."""
    flow = flow_of(code)
    return JoinPoints(flow, flow.at[head], [flow.at[offset] for offset in ends])
