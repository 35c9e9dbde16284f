"""The machine (see targets/run_plan.py) whose memory is a GPU's: plans become calls of its driver.

Operations without a kernel are the library's, where their operands are (cupy_rows.py). What it has not, and loop nests
that cannot be emitted, the host computes: operands are copied down, results up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import config
from ...graph.ir import Graph
from ...loops.ir import Kernel, KernelSpec
from ...schedule.control import Choice, Loop
from ...schedule.host_call import HostCall
from ...schedule.kernels.gemm import Matrix, Product
from ..numpy_call import typed
from . import user_kernels
from .code import Clear, CudaRegion, Multiply
from .device import CudaDevice
from .driver import ALIGNMENT, Convolve, Gemm, Operand, Pointer, Stream
from .fallback import Interpreted
from .libraries.cupy_rows import reason

if TYPE_CHECKING:
    from ..kernel_target import KernelCode


class DeviceMachine:
    """Runs launches on a stream; `home` is that on which they are done, where another one records them. `status` is the
    word that checked kernels set where an index is out of range."""

    def __init__(self, code: KernelCode, device: CudaDevice, stream: Stream) -> None:
        self.code, self.device, self.driver, self.stream = code, device, device.driver, stream
        self.home = stream
        self.status: Pointer | None = None

    def begin(self, checked: bool) -> None:
        """Begins with a call of a plan."""
        if checked:
            self.status = self.status or self.new(8)
            self.zero(self.status, 8)

    @property
    def failed(self) -> bool:
        """Whether an index was out of range, once the launches have ended."""
        return self.status is not None and bool(self.read(self.status, 8).any())

    def memory(self, array: np.ndarray) -> Pointer:
        found = constant_of(self.code, self.device, array)
        if found.block.stream is not self.home:
            found.block.users |= {self.home}  # which may read it yet when the program is dropped
        return found

    def new(self, nbytes: int) -> Pointer:
        return self.device.pool.take(nbytes, self.home).pointer

    def done(self, memories: Sequence[Pointer]) -> None:
        """Gives new memory back, which the launches that follow may be given."""

    def copy(self, target: Pointer, source: Pointer, nbytes: int) -> None:
        if nbytes:
            self.driver.copy(target, source, nbytes, self.stream)

    def zero(self, target: Pointer, nbytes: int) -> None:
        if nbytes:
            self.driver.zero(target, nbytes, self.stream)

    def read(self, memory: Pointer, nbytes: int) -> np.ndarray:
        return self.driver.read(memory[:nbytes], self.stream)

    def nest(self, kernel: Kernel, memories: Sequence[Pointer], lo: int, hi: int) -> bool:
        if lo >= hi:
            return True
        code, operands = self.code.of(kernel), kernel.operands
        sizes = [int(buffer.nbytes) for buffer in operands]
        given = [memory[:size] for memory, size in zip(memories, sizes, strict=False)]
        if isinstance(code, Interpreted):

            def interpret(data: Sequence[np.ndarray]) -> bool:
                buffers = [typed(m, b.dtype, int(b.size)) for m, b in zip(data, operands, strict=True)]
                return code.run(buffers, lo, hi)

            return self.on_host(interpret, given, sizes, kernel.written(len(operands)))
        if isinstance(code, CudaRegion):
            self._region(code, given)
        else:
            self._launch(code, given, lo, hi)
        return True

    def loaded(self, source: str, entry: str) -> Any:
        """The function of a user's source."""
        kept: dict[tuple[str, str, bool], Any] = self.device.__dict__.setdefault("user_kernels", {})
        known = source, entry, config.field("fast_math")
        if known not in kept:
            kept[known] = self.driver.load(source, entry)
        return kept[known]

    def _launch(self, code: Any, given: Sequence[Pointer], lo: int, hi: int) -> None:
        """Launches a kernel for iterations lo to hi; that for any address, where an operand begins at an odd one."""
        source = code.source
        if source.alignment > 1 and any((p.block.address + p.offset) % source.alignment for p in given):
            code = code.anywhere()
            source = code.source
        status: list[Pointer | int] = [self._status] if source.checked else []
        grid = source.grid(hi - lo, self.driver.most_blocks)
        self.driver.launch(code.function, grid, source.block, [*given, *status, lo, hi], self.stream)

    @property
    def _status(self) -> Pointer:
        assert self.status is not None, "a checked kernel in a plan that is not"
        return self.status

    def call(self, spec: KernelSpec, memories: Sequence[Pointer], part: int, parts: int) -> bool:
        code = self.code.of(spec)
        if code is None:
            return False
        if not isinstance(code, CudaRegion):
            self._call(code, memories, part, parts)
            return True
        if parts > 1 and any(isinstance(step, Multiply) for step, _ in code.parts):
            return False  # a part of the library's product, and of the loop nest after it
        self._region(code, memories)
        return True

    def _region(self, code: CudaRegion, memories: Sequence[Pointer]) -> None:
        """Runs launches one after the other."""
        scratch = [self.new(nbytes) for nbytes in code.scratch]
        memories = [*memories, *scratch]
        for step, numbers in code.parts:
            given = [memories[k] for k in numbers]
            match step:
                case Convolve():
                    self._convolve(step, given)
                case Multiply():
                    self._multiply(gemms(step.call, result=step.dtype), given)
                case Clear():
                    self.zero(given[0], step.nbytes)
                case _:
                    self._call(step, given, 0, 1)
        self.done(scratch)

    def _convolve(self, call: Convolve, memories: Sequence[Pointer]) -> None:
        nbytes = self.driver.convolution_bytes(call)
        assert nbytes is not None, f"{call} was possible when its program was made"
        odd = [(p.block.address + p.offset) % ALIGNMENT != 0 for p in memories]
        given = [self.new(p.nbytes) if is_odd else p for p, is_odd in zip(memories, odd, strict=True)]
        for new, old in zip(given[:2], memories, strict=False):
            if new is not old:
                self.copy(new, old, old.nbytes)
        a, b, out = given
        workspace = self.new(nbytes)
        self.driver.convolve(call, a, b, out, workspace, self.stream)
        if odd[2]:
            self.copy(memories[2], given[2], given[2].nbytes)
        self.done([workspace, *(p for p, is_odd in zip(given, odd, strict=True) if is_odd)])

    def _call(self, code: Any, memories: Sequence[Pointer], part: int, parts: int) -> None:
        source = code.source
        given = [memory[: int(x.nbytes)] for memory, x in zip(memories, source.operands, strict=False)]
        lo, hi = source.total * part // parts, source.total * (part + 1) // parts
        if lo < hi:
            self._launch(code, given, lo, hi)

    def product(self, call: Product, memories: Sequence[Pointer], part: int, parts: int) -> None:
        self._multiply(gemms(call, part, parts), memories)

    def _multiply(self, calls: Sequence[Gemm], memories: Sequence[Pointer]) -> None:
        left, right, out = memories
        for gemm in calls:
            self.driver.gemm(gemm, left, right, out, self.stream, self.home)

    def operation(self, graph: Graph, memories: Sequence[Pointer]) -> bool:
        if user_kernels.has_kernel(graph):
            user_kernels.launch(self, graph, memories)
            return True
        return not reason(graph, self.driver.lacks) and self.driver.operation(graph, memories, self.stream, self.new)

    def on_host(
        self,
        compute: Callable[[Sequence[np.ndarray]], bool],
        memories: Sequence[Pointer],
        sizes: Sequence[int],
        written: Sequence[bool],
    ) -> bool:
        data = [self.read(memory, size).copy() for memory, size in zip(memories, sizes, strict=False)]
        if not compute(data):
            return False
        for memory, found, changed in zip(memories, data, written, strict=False):
            if changed and found.size:
                self.driver.write(memory[: found.size], found, self.stream)
        return True


def sets_status(spec: KernelSpec) -> bool:
    """Whether a launch sets the status word: kernels with index checks do. Operations say at once that they failed."""
    if isinstance(spec, Loop | Choice):
        return any(sets_status(launch.spec) for plan in spec.plans for launch in plan.launches)
    return spec.checked and not isinstance(spec, HostCall)


def constant_of(code: KernelCode, device: CudaDevice, array: np.ndarray) -> Pointer:
    """The memory of a constant of a program, which is copied once."""
    kept: dict[int, tuple[np.ndarray, Pointer]] = code.__dict__.setdefault("constants", {})
    if id(array) not in kept:
        block = device.pool.take(array.nbytes, device.default_stream)
        device.driver.write(block.pointer, np.ascontiguousarray(array), device.default_stream)
        device.driver.synchronize(device.default_stream)  # other streams may be the next to read it
        kept[id(array)] = array, block.pointer
    return kept[id(array)][1]


# ---- products


def gemms(call: Product, part: int = 0, parts: int = 1, result: np.dtype | None = None) -> list[Gemm]:
    """A product, or one of so many parts of its matrices, as calls of the library: one for matrices that are even steps
    apart, which most are. `result`: the dtype in which it is stored, if that is another one."""
    kinds = (result or call.dtype, *(call.stored or (call.dtype, call.dtype)))
    if parts > 1:
        share = range(call.matrices * part // parts, call.matrices * (part + 1) // parts)
        return [_gemm(call, kinds, at, 1, (0, 0)) for at in share]
    if not call.batch:
        return [_gemm(call, kinds, 0, 1, (0, 0))]
    *outer, count = call.batch
    while outer and all(
        x.batch[len(outer) - 1] == x.batch[len(outer)] * call.batch[len(outer)] for x in (call.a, call.b)
    ):
        count *= outer.pop()
    steps = call.a.batch[-1], call.b.batch[-1]
    return [_gemm(call, kinds, first, count, steps) for first in range(0, call.matrices, count)]


def _gemm(call: Product, kinds: Sequence[np.dtype], first: int, count: int, steps: tuple[int, int]) -> Gemm:
    """The call for `count` matrices from number `first` on; `kinds`: dtypes of the result, and of both operands."""
    where = np.unravel_index(first, call.batch) if call.batch else ()

    def operand(matrix: Matrix, dtype: np.dtype, step: int) -> Operand:
        offset = matrix.offset + sum(int(i) * s for i, s in zip(where, matrix.batch, strict=True))
        return Operand(dtype, offset, step, matrix.leading, matrix.transposed)

    result, a, b = kinds
    left, right = operand(call.a, a, steps[0]), operand(call.b, b, steps[1])
    return Gemm(call.dtype, result, count, call.m, call.n, call.k, left, right, first * call.m * call.n)
