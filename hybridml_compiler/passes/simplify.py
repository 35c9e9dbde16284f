"""Algebra: `x * 1 -> x`, `-(-x) -> x`, `x / 4 -> x * 0.25`, one row a rule.

Every rule holds bit for bit in IEEE arithmetic and in wrapping integers; only the sign and payload of a nan, which
IEEE leaves open, may differ. So `x + 0.0` stays (it turns -0.0 into 0.0), `x * 0.0` stays (nan, inf, -x), and nothing
is reassociated. Arithmetic of complex numbers is left alone: a product is made of several, so `z * -1` has a nan where
`-z` has none. A generated test evaluates both sides of each sample on random and edge values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce

import numpy as np

from ..dtypes import canonical
from ..graph.ir import Graph, Node, constant
from ..graph.rewrite import CONSTANT, Rule, Rules, make, rewrite
from .canonical_views import VIEW_RULES
from .concatenations import CONCAT_RULES
from .patterns import both_ways, filled, is_op, is_value, like, op_name, sample, scalar, splat
from .updates import UPDATE_RULES

# ---------------------------------------------------------------- constants that do nothing, or all

_NUMBER = ("full", CONSTANT)  # operands that may be one number everywhere


def _neutral(name: str, op: str, number: float, dtype: str, *, both: bool = True, kinds: str = "biuf") -> Rule:
    """`op(x, number) -> x`, and `op(number, x) -> x` when the operation commutes."""

    def match(node: Node) -> Node | None:
        if node.dtype.kind not in kinds:
            return None
        for x, c in both_ways(node) if both else [(node.inputs[0], node.inputs[1])]:
            if is_value(c, number):
                return like(x, node)
        return None

    def samples() -> Iterator[Node]:
        x, c = sample(dtype), scalar(number, dtype)
        yield make(op, x, c)
        yield make(op, sample(dtype, 4), make("full", shape=(2, 1), value=number, dtype=c.dtype))
        if both:
            yield make(op, c, x)

    return Rule(name, (op,), match, samples, _NUMBER)


def _absorbing(name: str, op: str, number: float, dtypes: str) -> Rule:
    """`op(x, number) -> number`; not for floats, where a nan in x would be lost."""

    def match(node: Node) -> Node | None:
        fits = node.dtype.kind not in "fc" and any(is_value(c, number) for c in node.inputs)
        return filled(number, node) if fits else None

    return Rule(name, (op,), match, lambda: [make(op, sample(d), scalar(number, d)) for d in dtypes.split()], _NUMBER)


NEUTRAL_RULES = (
    _neutral("x * 1 -> x", "multiply", 1, "f4"),
    _neutral("x / 1 -> x", "divide", 1, "f8", both=False),
    _neutral("x // 1 -> x for integers", "floor_divide", 1, "i4", both=False, kinds="iu"),
    _neutral("x + -0.0 -> x", "add", -0.0, "f4"),
    _neutral("x - 0 -> x", "subtract", 0.0, "f4", both=False),
    _neutral("x & true -> x", "logical_and", True, "bool"),
    _neutral("x | false -> x", "logical_or", False, "bool"),
    _neutral("x | 0 -> x", "bitwise_or", 0, "i4"),
    _neutral("x ^ 0 -> x", "bitwise_xor", 0, "u1"),
    _neutral("x & -1 -> x", "bitwise_and", -1, "i4"),
    _neutral("x << 0 -> x", "bitwise_left_shift", 0, "i4", both=False),
    _neutral("x >> 0 -> x", "bitwise_right_shift", 0, "i4", both=False),
    _absorbing("x * 0 -> 0 for integers", "multiply", 0, "i4 u1 bool"),
    _absorbing("x & 0 -> 0", "bitwise_and", 0, "i4 bool"),
    _absorbing("x & false -> false", "logical_and", False, "bool"),
    _absorbing("x | true -> true", "logical_or", True, "bool"),
)

# ---------------------------------------------------------------- an operation and itself


def _involution(op: str, dtype: str) -> Rule:
    def match(node: Node) -> Node | None:
        (inner,) = node.inputs
        return inner.inputs[0] if is_op(inner, op) else None

    return Rule(f"{op}({op}(x)) -> x", (op,), match, lambda: [make(op, make(op, sample(dtype)))])


def _idempotent(op: str, among: tuple[str, ...]) -> Rule:
    def match(node: Node) -> Node | None:
        (inner,) = node.inputs
        return inner if is_op(inner, *among) else None

    return Rule(f"{op}(y) -> y, y = {' or '.join(among)}", (op,), match, lambda: [
        make(op, make(other, sample(dtype))) for other in among for dtype in ("f4", "i4")
    ])  # fmt: skip


def _same_operands(op: str, dtype: str) -> Rule:
    def match(node: Node) -> Node | None:
        return node.inputs[0] if node.inputs[0] is node.inputs[1] else None

    def samples() -> list[Node]:
        x = sample(dtype)
        return [make(op, x, x)]

    return Rule(f"{op}(x, x) -> x", (op,), match, samples)


_ROUNDINGS = ("floor", "ceil", "trunc", "round")

SELF_RULES = (
    *(_involution(op, dtype) for op, dtype in (("negative", "f4"), ("logical_not", "bool"), ("bitwise_invert", "i4"))),
    *(_idempotent(op, _ROUNDINGS) for op in _ROUNDINGS),
    *(_idempotent(op, (op,)) for op in ("abs", "sign")),
    *(_same_operands(op, dtype) for op in ("minimum", "maximum") for dtype in ("f4",)),
    *(_same_operands(op, "bool") for op in ("logical_and", "logical_or", "bitwise_and", "bitwise_or")),
)

# ---------------------------------------------------------------- signs


def _times_minus_one(node: Node) -> Node | None:
    if node.dtype.kind == "c":
        return None
    return next((like(make("negative", x), node) for x, c in both_ways(node) if is_value(c, -1)), None)


def _add_negative(node: Node) -> Node | None:
    return next((make("subtract", x, y.inputs[0]) for x, y in both_ways(node) if is_op(y, "negative")), None)


def _subtract_negative(node: Node) -> Node | None:
    x, y = node.inputs
    return make("add", x, y.inputs[0]) if is_op(y, "negative") else None


def _both_negative(node: Node) -> Node | None:
    x, y = node.inputs
    if node.dtype.kind == "c" or not (is_op(x, "negative") and is_op(y, "negative")):
        return None
    return make(op_name(node), x.inputs[0], y.inputs[0])


def _even_function(node: Node) -> Node | None:
    (x,) = node.inputs
    fits = is_op(x, "negative", "abs") and not is_op(node, op_name(x)) and x.inputs[0].dtype.kind != "c"
    return make(op_name(node), x.inputs[0]) if fits else None


def _divide_by_power_of_two(node: Node) -> Node | None:
    """Exact: 1 / c has no rounding, and x / c and x * (1 / c) round the same number. The product is 4 times faster."""
    x, c = node.inputs
    number = splat(c)
    if number is None or node.dtype.kind == "c":
        return None
    mantissa, exponent = np.frexp(number)
    info = np.finfo(node.dtype)
    if abs(mantissa) != 0.5 or not info.minexp <= 1 - exponent < info.maxexp:  # the inverse is a normal number
        return None
    inverse = np.ldexp(2 * mantissa, 1 - exponent)
    return like(make("multiply", x, scalar(inverse, node.dtype.str)), node)


def _negated(*ops: str, dtype: str = "f4") -> Callable[[], list[Node]]:
    return lambda: [make(op, make("negative", sample(dtype)), make("negative", sample(dtype))) for op in ops]


SIGN_RULES = (
    Rule("x * -1 -> -x", ("multiply",), _times_minus_one, lambda: [
        make("multiply", sample(d), scalar(-1, d)) for d in ("f4", "i4")
    ], _NUMBER),
    Rule("(-x) * (-y) -> x * y, and /", ("multiply", "divide"), _both_negative, _negated("multiply", "divide"),
         ("negative",)),
    Rule("x + (-y) -> x - y", ("add",), _add_negative, lambda: [
        make("add", sample(d), make("negative", sample(d))) for d in ("f4", "i1")
    ], ("negative",)),
    Rule("x - (-y) -> x + y", ("subtract",), _subtract_negative, lambda: [
        make("subtract", sample(d), make("negative", sample(d))) for d in ("f4", "u1")
    ], ("negative",)),
    Rule("f(-x) -> f(x), f(|x|) -> f(x) for even f", ("abs", "square"), _even_function, lambda: [
        make("abs", make("negative", sample("f4"))), make("square", make("negative", sample("i1"))),
        make("square", make("abs", sample("f4"))), make("square", make("abs", sample("i1"))),
    ]),
    Rule("x / 2**k -> x * 2**-k", ("divide",), _divide_by_power_of_two, lambda: [
        make("divide", sample(d), scalar(c, d)) for d in ("f4", "f8") for c in (4.0, -0.125, 2.0**126)
    ], _NUMBER),
)  # fmt: skip

# ---------------------------------------------------------------- choices and casts

_OPPOSITE = {"equal": "not_equal", "not_equal": "equal"}  # not `less`: its opposite differs for nan


def _constant_condition(node: Node) -> Node | None:
    condition, x, y = node.inputs
    chosen = splat(condition)
    return None if chosen is None else like(x if chosen else y, node)


def _same_branches(node: Node) -> Node | None:
    _, x, y = node.inputs
    return like(x, node) if x is y else None


def _answered(node: Node) -> Node | None:
    """A branch that asks what the condition has answered."""
    condition, x, y = node.inputs
    if node.dtype.kind != "b" or condition.shape != node.shape:
        return None
    first, second = _answer(condition, x), _answer(condition, y)
    if first is None and second is None:
        return None
    x = x if first is None else scalar(first, "?")
    y = y if second is None else scalar(not second, "?")
    return make("where", condition, x, y)


def _answer(condition: Node, question: Node) -> bool | None:
    """Whether a question is the condition, or its opposite; None of another one."""
    if question is condition:
        return True
    for a, b in ((condition, question), (question, condition)):
        if is_op(a, "logical_not") and a.inputs[0] is b:
            return False
    opposite = op_name(question) == _OPPOSITE.get(op_name(condition)) and question.inputs == condition.inputs
    return False if opposite else None


def _negated_condition(node: Node) -> Node | None:
    condition, x, y = node.inputs
    return make("where", condition.inputs[0], y, x) if is_op(condition, "logical_not") else None


def _not_equal(node: Node) -> Node | None:
    (x,) = node.inputs
    return make(_OPPOSITE[op_name(x)], *x.inputs) if is_op(x, *_OPPOSITE) else None


def _unchanged(node: Node) -> Node | None:
    """Operations that are the identity on this dtype."""
    (x,) = node.inputs
    identity = {
        "positive": True,
        "astype": x.dtype is node.dtype,
        "abs": x.dtype.kind == "u",
        **dict.fromkeys(_ROUNDINGS, x.dtype.kind not in "fc"),
    }
    return x if identity[op_name(node)] else None


def _cast_of_cast(node: Node) -> Node | None:
    """A cast through a dtype that holds every value of the first is as if direct. Not from float to integer: for values
    that do not fit, the hardware's answer depends on the width it starts from."""
    (inner,) = node.inputs
    if not is_op(inner, "astype"):
        return None
    (x,) = inner.inputs
    if not _holds(inner.dtype, x.dtype) or (x.dtype.kind == "f" and node.dtype.kind in "iu"):
        return None
    return make("astype", x, dtype=node.dtype)


def _holds(wide: np.dtype, narrow: np.dtype) -> bool:
    """True if every value of `narrow` is one of `wide` (NumPy calls int64 -> float64 safe, but it rounds)."""
    if narrow.kind in "iu" and wide.kind == "f":
        return 8 * narrow.itemsize <= np.finfo(wide).nmant + 1
    return np.can_cast(narrow, wide, "safe")


def _cast_after_moves(node: Node) -> Node | None:
    """A narrowing cast of a product or convolution that is moved: first the cast, which the product can do itself."""
    moves, x = [], node.inputs[0]
    while is_op(x, "permute_dims", "reshape"):
        moves.append(x)
        (x,) = x.inputs
    if not moves or x.kind not in ("contraction", "convolution") or node.dtype.itemsize >= x.dtype.itemsize:
        return None
    return reduce(lambda y, move: make(op_name(move), y, **move.params), moves[::-1], make("astype", x, **node.params))


def _where_samples() -> list[Node]:
    x, y = sample(), sample()
    return [make("where", scalar(True, "?"), x, y), make("where", make("full", shape=(3, 1), value=False), x, y)]


def _same_branch_samples() -> list[Node]:
    x = sample("f4", 4)
    return [make("where", sample("bool"), x, x)]


def _answered_samples() -> list[Node]:
    c, x = sample("bool", 4), sample("bool", 4)
    same, other = (make(op, sample("f4", 4), sample("f4", 4)) for op in ("equal", "not_equal"))
    opposite = make("equal", *other.inputs)
    pairs = [
        (c, c, x),
        (c, x, c),
        (c, x, make("logical_not", c)),
        (other, opposite, x),
        (same, x, make("not_equal", *same.inputs)),
    ]
    return [make("where", *pair) for pair in pairs]


def _cast_samples() -> list[Node]:
    chains = (("i1", "i4", "f4"), ("f4", "f8", "f4"), ("u1", "f4", "i8"), ("i4", "f8", "f4"), ("f4", "f8", "bool"))
    return [
        make("astype", make("astype", sample(first), dtype=np.dtype(second)), dtype=np.dtype(third))
        for first, second, third in (*chains, ("bool", "u1", "f8"), ("i1", "i2", "u4"), ("i1", "i8", "i1"))
    ]


CHOICE_RULES = (
    Rule("where(constant, x, y) -> x or y", ("where",), _constant_condition, _where_samples),
    Rule("where(c, x, x) -> x", ("where",), _same_branches, _same_branch_samples),
    Rule("where(c, c, x) -> where(c, True, x)", ("where",), _answered, _answered_samples),
    Rule("where(not c, x, y) -> where(c, y, x)", ("where",), _negated_condition, lambda: [
        make("where", make("logical_not", sample("bool")), sample(), sample("f4", 1, 4))
    ]),
    Rule("not (x == y) -> x != y", ("logical_not",), _not_equal, lambda: [
        make("logical_not", make(op, sample(), sample())) for op in _OPPOSITE
    ]),
    Rule("identity on this dtype -> x", ("positive", "astype", "abs", *_ROUNDINGS), _unchanged, lambda: [
        make("positive", sample()), make("abs", sample("u1")), make("astype", sample(), dtype=np.dtype("f4")),
        *(make(op, sample("i4")) for op in _ROUNDINGS),
    ]),
    Rule("cast(cast(x)) -> cast(x) where the first loses nothing", ("astype",), _cast_of_cast, _cast_samples),
    Rule("cast(move(product)) -> move(cast(product))", ("astype",), _cast_after_moves, lambda: [
        make("astype", make("permute_dims", make("matmul", sample("f4", 3, 4), sample("f4", 4, 2)), axes=axes), dtype=t)
        for axes, t in (((1, 0), np.dtype("f2")), ((1, 0), canonical("bfloat16")))
    ]),
)  # fmt: skip

# ---------------------------------------------------------------- reductions of one element, and of all


def _reduce_one(node: Node) -> Node | None:
    (x,) = node.inputs
    if x.dtype is not node.dtype or x.dtype.kind == "c" or any(x.shape[k] != 1 for k in node.params["axis"]):
        return None
    value = make("reshape", x, shape=node.shape)
    # A sum starts at 0.0, so that of -0.0 alone is 0.0.
    signed = node.dtype.kind == "f" and is_op(node, "sum", "mean")
    return make("add", value, scalar(0.0, node.dtype.str)) if signed else value


def _reduce_all(node: Node) -> Node | None:
    """x.T.sum() of 1024 x 1024 read columns, which took 920 us instead of 45."""
    (x,) = node.inputs
    if not is_op(x, "permute_dims", "flip") or len(node.params["axis"]) != len(x.shape):
        return None
    return make(op_name(node), x.inputs[0], **node.params)


def _sum_of_sums(node: Node) -> Node | None:
    """Integers add up to the same in any order."""
    (inner,) = node.inputs
    exact = node.dtype is inner.dtype and inner.dtype.kind in "iu" and is_op(inner, "sum")
    if not exact or node.params["keepdims"] or inner.params["keepdims"]:
        return None
    (x,), its = inner.inputs, inner.params["axis"]
    left = [k for k in range(len(x.shape)) if k not in its]
    every = {*its, *(left[k] for k in node.params["axis"])}
    return make("sum", x, axis=tuple(sorted(every)), dtype=node.dtype, keepdims=False)


_REDUCTIONS = ("sum", "prod", "max", "min", "mean", "any", "all")

REDUCTION_RULES = (
    Rule("reduction over axes of size 1 -> reshape", _REDUCTIONS, _reduce_one, lambda: [
        make(op, sample("bool" if op in ("any", "all") else dtype, 3, 1, 4), axis=1, keepdims=dtype == "f4")
        for op in _REDUCTIONS for dtype in ("f4", "f8", "i8") if (op, dtype) != ("mean", "i8")
    ]),
    Rule("sum(sum(x)) -> sum(x) of integers", ("sum",), _sum_of_sums, lambda: [
        make("sum", make("sum", sample("i8", 3, 4, 5), axis=axis), axis=other) for axis, other in ((1, 0), ((0, 2), 0))
    ], ("sum",)),
    Rule("reduction over all axes of a permutation -> of its operand", _REDUCTIONS, _reduce_all, lambda: [
        make(op, make(view, sample("bool" if op in ("any", "all") else "i8", 3, 4), **order), keepdims=keepdims)
        for op in _REDUCTIONS if op != "mean"
        for view, order, keepdims in (("permute_dims", {"axes": (1, 0)}, False), ("flip", {"axis": 1}, True))
    ]),
)  # fmt: skip

# ---------------------------------------------------------------- scatter


def _scatter_of_one(node: Node) -> Node | None:
    """One element per row, added to zeros: a comparison of positions, which fuses with its readers (the gradient of a
    cross entropy). The index is still checked: it is looked up in the positions."""
    base, indices, updates = node.inputs
    axis = node.params["axis"]
    one = tuple(1 if k == axis else n for k, n in enumerate(node.shape))
    if not is_value(base, 0) or indices.shape != one or not node.aval.size:
        return None
    positions = make("arange", start=0, stop=node.shape[axis], step=1, dtype=np.dtype("i8"))
    column = tuple(n if k == axis else 1 for k, n in enumerate(node.shape))
    here = make("equal", make("take", positions, indices, axis=0), make("reshape", positions, shape=column))
    zero = constant(np.zeros((), node.dtype))
    return make("where", here, make("add", updates, zero), zero)


def _scatter_samples() -> Iterator[Node]:
    for dtype in ("f4", "i8"):
        base = make("full", shape=(3, 4), value=0, dtype=np.dtype(dtype))
        for axis, indices in ((1, [[0], [3], [-1]]), (0, [[2, 0, -3, 1]])):
            at = constant(np.array(indices))
            yield make("scatter_along_axis_add", base, at, sample(dtype, *at.shape), axis=axis)


SCATTER_RULES = (
    Rule("scatter of one element a row -> where", ("scatter_along_axis_add",), _scatter_of_one, _scatter_samples),
)

SIMPLIFY_RULES = (*NEUTRAL_RULES, *SELF_RULES, *SIGN_RULES, *CHOICE_RULES, *REDUCTION_RULES, *SCATTER_RULES)
# With the views, as those meet where the nodes between them go. One walk for all: each that changes a node near the
# inputs makes all nodes after it anew.
_TABLE = Rules((*SIMPLIFY_RULES, *CONCAT_RULES, *UPDATE_RULES, *VIEW_RULES), lasting=True)


def simplify(graph: Graph) -> Graph:
    """Apply the rules of this file until none fits."""
    return rewrite(graph, _TABLE)
