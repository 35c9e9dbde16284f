"""Every row of the operation table on the simulated CUDA device, and its kernels compiled for real ones."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cuda.code import CudaKernel
from tests.support.cases import case
from tests.support.closeness import assert_close
from tests.support.cuda import SIM, check_registers, compiled, needs_nvrtc, same_bits
from tests.support.on_devices import results

pytestmark = needs_nvrtc
# Rows whose result is a rounding away: the threads of a block add up in another order than the lanes of a CPU.
REORDERED = {"reduction", "contraction", "convolution"}


PARTS = 8  # of the table, for processes to share


def _run(op: Op, most: int) -> set[str]:
    """Compares the row's first samples with the CPU's results: "bit-equal", or "close" where sums are reordered."""
    found = set()
    samples = itertools.islice(op.samples(np.random.default_rng(0)), most if op.inputs else 0)
    for k, sample in enumerate(samples):
        with case(f"{op.name}, sample {k}"):
            here, there = (results(op, sample, device, grad=False) for device in ("cpu", SIM))
            for a, b in zip(here, there, strict=True):
                if not same_bits(a, b):
                    assert op.kind in REORDERED, f"{op.name} is not bit-equal: {b} in place of {a}"
                    assert_close(b, a)
                    found.add("close")
    return found or {"bit-equal"}


def _by_path() -> list[Op]:
    """All rows but elementwise ones, and of these one for each number of operands, kinds of dtypes and cost: they
    differ in the instructions of one expression."""
    paths = {op.name if op.kind != "elementwise" else (len(op.inputs), op.accepts, op.cost): op for op in OPS.values()}
    return [*paths.values()]


SLOW = [pytest.param(6, part, marks=pytest.mark.slow) for part in range(PARTS)]


@pytest.mark.parametrize(("most", "part"), [(1, None), *SLOW])
def test_every_row(most: int, part: int | None) -> None:
    """Bit-equal, but for sums. All that is a loop nest has a kernel, which compiles for each architecture without a
    spill. Without `--slow`: a row of each path, and one kernel in eight, for one architecture in turns."""
    tally: Counter[str] = Counter()
    texts: dict[str, int] = {}  # of kernels, and threads of their blocks
    for op in _by_path() if part is None else [*OPS.values()][part::PARTS]:
        with compiled() as made:
            tally.update(_run(op, most))
        assert all(isinstance(code, CudaKernel) for code in made), f"{op.name}: {[code.text[:60] for code in made]}"
        texts.update({code.text: code.source.block for code in made})
    assert tally["bit-equal"] > 3 * tally["close"]
    assert len(texts) > 20
    for k, (text, threads) in enumerate([*texts.items()][:: 8 if part is None else 1]):
        check_registers(text, threads, k, blocks=2)
