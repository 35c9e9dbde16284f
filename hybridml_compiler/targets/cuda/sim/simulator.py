"""Launches of PTX on NumPy: the threads of some blocks run side by side, the least advanced ones first.

Threads that part at a branch meet again where it ends. Barriers are real: a block goes on when all of its threads have
arrived at the same one. What a GPU would do wrongly in silence is an error here (memory.py, races.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....errors import CompileError
from . import tensor as _  # noqa: F401 - its instructions are in the table
from .instructions import Semantics, semantics_of
from .memory import GlobalMemory, SimulatorError
from .ptx import Entry, Instruction, parse_ptx
from .threads import Lanes, Sizes, Threads

_AT_ONCE = 1 << 14  # threads that run side by side
_BRANCH, _RETURN, _BARRIER = "bra", ("ret", "exit"), ("bar", "barrier")
_FAR = np.iinfo(np.int64).max
_MOST_SHARED = 48 << 10  # bytes of the variables of a block


class Simulator:
    """The kernels of a PTX module. CompileError for an instruction that is not simulated.

    >>> ptx = '''
    ... .visible .entry twice(.param .u64 twice_param_0) {
    ...     .reg .b32 %r<4>; .reg .f32 %f<3>; .reg .b64 %rd<5>;
    ...     ld.param.u64 %rd1, [twice_param_0];
    ...     mov.u32 %r1, %tid.x;
    ...     mul.wide.u32 %rd2, %r1, 4;
    ...     add.s64 %rd3, %rd1, %rd2;
    ...     ld.global.f32 %f1, [%rd3];
    ...     add.f32 %f2, %f1, %f1;
    ...     st.global.f32 [%rd3], %f2;
    ...     ret;
    ... }'''
    >>> x = np.arange(3, dtype=np.float32)
    >>> Simulator(ptx).launch("twice", grid=1, block=3, arguments=[x])
    >>> x
    array([0., 2., 4.], dtype=float32)
    """

    def __init__(self, ptx: str, *, races: bool = True) -> None:
        """`races`: check that nothing depends on which thread is first."""
        self.module, self.races = parse_ptx(ptx), races
        self._semantics = {
            name: [None if _is_control(i) else semantics_of(i) for i in entry.code]
            for name, entry in self.module.entries.items()
        }

    def launch(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[np.ndarray | np.generic | int],
    ) -> None:
        """Runs a kernel in so many blocks of so many threads; arrays are its buffers, which it writes to. CompileError
        for arguments of another number or width than it takes, Python's numbers having 64 bits, and for more shared
        memory than a block has."""
        entry = self.module.entries[name]
        if entry.shared_bytes > _MOST_SHARED:
            raise CompileError(
                f"cuda:sim: {name} has {entry.shared_bytes} bytes of shared memory, {_MOST_SHARED} is most"
            )
        if len(arguments) != len(entry.parameters):
            raise CompileError(f"cuda:sim: {name} takes {len(entry.parameters)} arguments, got {len(arguments)}")
        for k, ((parameter, dtype), a) in enumerate(zip(entry.parameters, arguments, strict=True)):
            width = 8 if isinstance(a, np.ndarray | int) else a.itemsize
            if width != dtype.itemsize:
                raise CompileError(
                    f"cuda:sim: argument {k} of {name}, {parameter}, has {8 * dtype.itemsize} bits, got {8 * width}; "
                    "pass numpy.int32(n) and the like for what is not 64 bits wide"
                )
        buffers = [a for a in arguments if isinstance(a, np.ndarray)]
        memory = GlobalMemory(buffers, self.module.constants, self.races)
        addresses = iter(memory.buffers)
        parameters = {
            parameter: np.array(next(addresses) if isinstance(a, np.ndarray) else a).astype(dtype)
            for (parameter, dtype), a in zip(entry.parameters, arguments, strict=True)
        }
        grids, sizes = _along(grid), _along(block)
        count, at_once = math.prod(grids), max(1, _AT_ONCE // math.prod(sizes))
        with np.errstate(all="ignore"):
            for first in range(0, count, at_once):
                blocks = range(first, min(count, first + at_once))
                threads = Threads(entry, parameters, memory, grids, sizes, blocks, self.races)
                _Run(entry, self._semantics[name], threads).run()


def _along(sizes: int | Sequence[int]) -> Sizes:
    """Sizes along x, y and z."""
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    x, y, z = (*map(int, given), 1, 1)[:3]
    return x, y, z


def _is_control(instruction: Instruction) -> bool:
    return instruction.name in (_BRANCH, *_RETURN, *_BARRIER)


class _Run:
    """The threads of some blocks, on their way through a kernel."""

    def __init__(self, entry: Entry, semantics: Sequence[Semantics | None], threads: Threads) -> None:
        self.entry, self.code, self.semantics, self.threads = entry, entry.code, semantics, threads
        self.at = np.zeros(threads.count, np.int64)  # the instruction that each thread is at
        self.waits = np.zeros(threads.count, np.bool_)
        self.held = np.zeros(threads.count, np.bool_)  # at an instruction that the other lanes of a warp come to

    def run(self) -> None:
        end = len(self.code)
        while True:
            ready = np.where(self.waits, _FAR, self.at)
            here = int(np.where(self.held, _FAR, ready).min())
            stuck = here >= end and bool(self.held.any())  # nobody else comes
            if stuck:
                here = int(ready[self.held].min())
            if here < end:
                lanes = np.nonzero(ready == here)[0]
                others = ready[ready > here]
                self.held[lanes] = False
                self.straight(here, lanes, int(others.min()) if others.size else _FAR, stuck)
            elif self.waits.any():
                self.release()
            else:
                return

    def straight(self, here: int, group: np.ndarray, stop: int, stuck: bool) -> None:
        """Runs a group of threads up to a jump, to where others are, or to where it has to wait for them."""
        threads = self.threads
        lanes: Lanes = group if group.size < threads.count else slice(None)
        while True:
            instruction, execute = self.code[here], self.semantics[here]
            if "sync" in instruction.parts and not stuck and execute is not None and self.is_apart(group):
                self.at[lanes], self.held[lanes] = here, True
                return
            some, number = lanes, group.size
            if instruction.predicate:
                holds = threads.holds(instruction.predicate, instruction.negated, lanes)
                if not holds.all():
                    some = group[holds]
                    number = some.size
            if execute is None:
                self.at[lanes] = here + 1
                self.jump(instruction, some)
                return
            if number:
                execute(threads, instruction, some)
            here += 1
            if here >= stop or here >= len(self.code):
                self.at[lanes] = here
                return

    def is_apart(self, group: np.ndarray) -> bool:
        """Whether other lanes of these threads' warps are on their way elsewhere."""
        threads = self.threads
        if group.size == threads.count:
            return False
        others = ~self.waits & (self.at < len(self.code))
        others[group] = False
        return bool(np.isin(threads.warp[others], threads.warp[group]).any())

    def jump(self, instruction: Instruction, lanes: Lanes) -> None:
        if instruction.name == _BRANCH:
            self.at[lanes] = self.entry.labels[instruction.operands[0]]
        elif instruction.name in _RETURN:
            self.at[lanes] = len(self.code)
        else:
            self.waits[lanes] = True

    def release(self) -> None:
        """Lets the blocks go on that wait at a barrier: with all of their threads, at the same one."""
        threads = self.threads
        waits, at = (x.reshape(-1, threads.per_block) for x in (self.waits, self.at))
        waiting = waits.any(1)
        missing = waiting & ~waits.all(1)
        if missing.any():
            block = int(missing.argmax())
            raise SimulatorError(
                f"cuda:sim: {waits[block].sum()} of {threads.per_block} threads of a block wait at a barrier "
                "that the others never reach"
            )
        if (at[waiting] != at[waiting][:, :1]).any():
            raise SimulatorError("cuda:sim: threads of a block wait at different barriers")
        threads.clock[self.waits] += 1
        self.waits[:] = False
