"""The cost model: the only file of the scheduler with numbers in it, each with where it comes from.

Units: nanoseconds on one core for one element, measured on AVX-512 machines (Cascade Lake 2.8 GHz, Zen 4 3.7 GHz); they
decide between alternatives, they do not predict.
"""

from __future__ import annotations

from ..graph.ir import Node

# A vector instruction on 16 float32 lanes retires about every 0.3 ns: 0.02 ns an element.
_SIMPLE = 0.02
# Polynomials of 12-25 instructions with a division or a table (measured through the loop emitter: 0.25-0.6 ns).
_TRANSCENDENTAL = 0.4
_COST: dict[str, float] = {
    **dict.fromkeys(("divide", "sqrt", "rsqrt", "reciprocal", "remainder", "floor_divide"), 0.1),
    **dict.fromkeys(
        "exp expm1 exp2 log log1p log2 log10 sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc "
        "sigmoid pow hypot".split(),
        _TRANSCENDENTAL,
    ),
    "random_bits": 4.0,  # ten Philox rounds of 64-bit multiplications for one 32-bit word
    "take": 0.3,  # gathered loads
    "take_along_axis": 0.5,
}
# Reading or writing a byte: 40 GB/s in cache, 21 GB/s from memory; an intermediate is somewhere in between.
_BYTE = 0.03
# Handing a kernel to the pool costs about 0.3 us hot and up to 3 us on a busy machine; it must buy more than that.
PARALLEL_THRESHOLD_NS = 8_000.0
# One multiply-add of a float32 matrix product on one core: 100-140 GF/s.
FLOP_NS = 0.01
# An inlined expression longer than this compiles slowly and spills registers.
MAX_INLINE_NODES = 96


def element_cost(node: Node) -> float:
    """Computing one element of a node from its operands."""
    if node.op is None:
        return 0.0
    return _COST.get(node.op.name, 0.0 if node.op.kind == "movement" else _SIMPLE)


def memory_cost(nbytes: float) -> float:
    return nbytes * _BYTE


def is_expensive(node: Node) -> bool:
    """Worth keeping rather than computing again for every element of a larger result."""
    return element_cost(node) >= 0.1
