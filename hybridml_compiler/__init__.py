"""hybridml_compiler: a graph in, a callable out. It knows operations, types and graphs, nothing of Tensor or autograd.

    ops/        the operation table: one row an op (infer, eager, lower, vjp, samples)
      |
    graph/      tensor-level IR: immutable hash-consed nodes, text, verifier, interpreter
      |
    passes/     graph -> graph: fold, simplify, canonicalise views, dead code
      |
    schedule/   graph -> kernels: fusion with reasons, memory plan
      |
    loops/      kernel -> loop nest over scalar expressions: text, verifier, interpreter, transcendental polynomials
      |
    targets/    kernels and memory plan -> running code, a folder per target

`pipeline.py` is the only file that orders these stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .hooks import hooks
from .ops import random
from .sizes import steps
from .targets.cpu.eager import products

if TYPE_CHECKING:
    from .ops.fourier import AxisTransform


def _evaluate(name: str, *arrays: np.ndarray) -> np.ndarray:
    """Eager transcendentals: rows know no loops, so the two meet here. The compiler is loaded at the first use."""
    try:
        from .targets.cpu.eager.elementary import transcendental

        found = transcendental(name, *arrays)
    except ImportError:  # no llvmlite on this platform: the same polynomials through NumPy
        from .loops.evaluate import transcendental

        found = transcendental(name, *arrays)
    hooks.transcendental = transcendental
    return found


def _bits(state: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Eager random bits, the same way."""
    try:
        from .targets.cpu.eager.elementary import bits

        found = bits(state, shape)
    except ImportError:
        hooks.random_bits = random.numpy_bits
        return random.numpy_bits(state, shape)
    hooks.random_bits = bits
    return found


def _fourier(x: np.ndarray, transforms: Sequence[AxisTransform]) -> np.ndarray | None:
    """Fourier transforms, the same way."""
    try:
        from .targets.cpu.eager.fourier import transformed

        found = transformed(x, transforms)
    except ImportError:
        hooks.fourier = lambda *_: None
        return None
    hooks.fourier = transformed
    return found


def _routine(*call: Any) -> Any:
    """Eager factorisations, the same way; without a compiler they are NumPy's."""
    from .targets.cpu.eager import routines

    hooks.routine = routines.run
    return routines.run(*call)


hooks.transcendental, hooks.random_bits, hooks.matmul = _evaluate, _bits, products.matmul
hooks.fourier, hooks.routine = _fourier, _routine
hooks.without_steps, hooks.undecided = steps.without_steps, steps.undecided
