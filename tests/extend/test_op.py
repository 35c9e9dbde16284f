"""`hm.op`: operations of a user's own, in both styles."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.testing import Sample, check_op
from hybridml_compiler.graph.text import parse_graph, print_graph
from hybridml_compiler.loops.scalar import NumpyBuilder


def drawn(*shapes: tuple[int, ...]) -> Any:
    return lambda rng: [Sample(tuple(rng.standard_normal(shape) for shape in shapes))]


@hm.op(
    infer=lambda x: hm.ShapeDtypeStruct(x.shape[:-1], x.dtype),
    vjp=lambda g, x: hm.expand_dims(g, axis=-1) * hm.sign(x),
    vmap="expand_dims",
    samples=drawn((3, 4)),
)
def row_norm(x: np.ndarray) -> np.ndarray:
    return np.abs(x).sum(-1)


@hm.op(
    infer=lambda x, *, k: (
        hm.ShapeDtypeStruct((*x.shape[:-1], k), x.dtype),
        hm.ShapeDtypeStruct((*x.shape[:-1], k), "int64"),
    ),
    results=("values", "indices"),
    vmap="sequential",
    samples=lambda rng: [Sample((rng.standard_normal((3, 4)),), {"k": 3}, grad=False)],
)
def largest(x: np.ndarray, *, k: int = 2) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-x, -1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order


@hm.op(
    lower=lambda s, x, y, *, slope: s.select(s.gt(x, y), x, s.mul(s.const(slope, s.dtype(x)), y)),
    vjp=(lambda g, x, y: g * (x > y), lambda g, x, y, slope: g * (x <= y) * slope),
    accepts="float",
    samples=lambda rng: [Sample((rng.standard_normal((3, 4)), rng.standard_normal(4)), {"slope": 0.5})],
)
def leaky_max(x: np.ndarray, y: np.ndarray, *, slope: float = 0.25) -> np.ndarray:
    return np.where(x > y, x, x.dtype.type(slope) * y)


@hm.op(
    infer=lambda x, y, *, by: (x, hm.ShapeDtypeStruct(x.shape[:-1], "int64"), x),
    jvp=(
        lambda t, x, y, by: (by * t * y, None, hm.exp(x) * t),
        lambda t, x, by: (by * x * t, None, None),
    ),
    results=("product", "places", "exponential"),
    vmap="sequential",
    samples=lambda rng: [Sample((rng.standard_normal((3, 4)), rng.standard_normal((3, 4))), {"by": 2.0}, grad=False)],
)
def several(x: np.ndarray, y: np.ndarray, *, by: float = 3.0) -> Any:
    return x.dtype.type(by) * x * y, x.argmax(-1), np.exp(x)


@hm.op(
    lower=lambda s, x, y, *, by: s.mul(s.const(by, s.dtype(x)), s.mul(x, y)),
    jvp=(lambda t, y, by: by * t * y, lambda t, x, by: by * t * x),
    accepts="float",
    samples=lambda rng: [Sample((rng.standard_normal((3, 4)), rng.standard_normal(4)), {"by": 0.5})],
)
def scaled_product(x: np.ndarray, y: np.ndarray, *, by: float = 3.0) -> np.ndarray:
    return x.dtype.type(by) * (x * y)


@hm.op(
    infer=lambda x: hm.ShapeDtypeStruct(x.shape[:-1], x.dtype),
    jvp=lambda t, x, x_shape, out: (hm.sign(x) * t).sum(-1) + 0 * out * x_shape[-1],
    vmap="expand_dims",
    samples=drawn((3, 4)),
)
def pushed_norm(x: np.ndarray) -> np.ndarray:
    return np.abs(x).sum(-1)


@pytest.mark.parametrize("op", [row_norm, largest, leaky_max, several, scaled_product, pushed_norm])
def test_checks_of_the_table(op: Any) -> None:
    assert check_op(op) == 1


def test_an_operation_is_one_node_and_its_text_parses() -> None:
    fn = hm.trace(lambda x: row_norm(x * 2) + 1)
    x = hm.ones((3, 4))
    assert fn(x).tolist() == [9.0, 9.0, 9.0]
    assert "row_norm@" in fn.ir
    assert print_graph(parse_graph(fn.ir)) == fn.ir


def test_an_elementwise_operation_fuses() -> None:
    fn = hm.trace(lambda x, y: hm.exp(leaky_max(x * 2, y)) + 1)
    x, y = hm.linspace(-1, 1, 64), hm.linspace(1, -1, 64)
    assert np.array_equal(fn(x, y).numpy(), (hm.exp(leaky_max(x * 2, y)) + 1).numpy())
    assert fn.stats.kernels == 1


def test_a_large_array_is_computed_by_a_kernel_with_the_bits_of_the_function() -> None:
    x, y = hm.randn(300, 300), hm.randn(300, 300)
    assert np.array_equal(
        leaky_max(x, y).numpy(), np.where(x.numpy() > y.numpy(), x.numpy(), y.numpy() * np.float32(0.25))
    )


@pytest.mark.parametrize("device", ["reference", "cuda:sim"])
def test_other_devices(device: str) -> None:
    if device == "cuda:sim":
        pytest.importorskip("nvidia")
    x = hm.tensor([[3.0, -1.0], [0.5, 2.0]])
    assert row_norm(x.to(device)).cpu().tolist() == [4.0, 2.5]
    assert leaky_max(x.to(device), hm.zeros(2, device=device)).cpu().tolist() == leaky_max(x, hm.zeros(2)).tolist()


def test_it_raises_its_own_error_in_both_styles_and_where_nobody_reads_it() -> None:
    @hm.op(infer=lambda x: x)
    def positive_only(x: np.ndarray) -> np.ndarray:
        if (x < 0).any():
            raise ValueError("a negative number")
        return x

    def unread(x: hm.Tensor) -> hm.Tensor:
        positive_only(x)
        return x * 2

    for fn in (positive_only, hm.trace(positive_only), unread, hm.trace(unread)):
        fn(hm.ones(3))
        with pytest.raises(ValueError, match="a negative number"):
            fn(-hm.ones(3))


def test_the_operands_are_safe_and_results_have_memory_of_their_own() -> None:
    @hm.op(infer=lambda x: x)
    def writes(x: np.ndarray) -> np.ndarray:
        x[0] = 5
        return x

    @hm.op(infer=lambda x: x)
    def same(x: np.ndarray) -> np.ndarray:
        return x

    with pytest.raises(ValueError, match="read-only"):
        writes(hm.ones(3))
    x = hm.ones(3)
    y = same(x)
    y += 1
    assert x.tolist() == [1, 1, 1] and y.tolist() == [2, 2, 2]


def test_results_that_are_not_what_infer_says() -> None:
    @hm.op(infer=lambda x: hm.ShapeDtypeStruct((2,), x.dtype))
    def short(x: np.ndarray) -> np.ndarray:
        return x

    @hm.op(infer=lambda x: x)
    def wide(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float64)

    for style in (lambda fn: fn, hm.trace):
        with pytest.raises(hm.ShapeError, match=r"short returned shape \(3,\), and infer says \(2,\)"):
            style(short)(hm.ones(3))
        with pytest.raises(hm.DTypeError, match="wide returned float64, and infer says float32"):
            style(wide)(hm.ones(3))


def one(x: np.ndarray) -> np.ndarray:
    return x


def test_a_function_may_have_the_name_of_a_row() -> None:
    def gcd(a: Any, b: Any) -> Any:
        return a * 100 + b

    for made in (hm.kernel(gcd), hm.op(infer=lambda a, b: a)(gcd)):
        fn, x = hm.trace(lambda x, made=made: made(x, hm.gcd(x, 4))), hm.tensor([6, 8])
        assert fn(x).tolist() == [602, 804]
        assert sorted(node.op for node in fn.graph if node.inputs) == ["gcd", "own_gcd"]


@pytest.mark.parametrize(
    "columns, said",
    [
        ({}, "needs infer="),
        ({"infer": lambda x: x, "name": "exp"}, "'exp' is an operation of the table"),
        ({"infer": lambda x: x, "name": "a b"}, "an identifier"),
        ({"infer": lambda x: x, "vjp": (lambda g: g, None)}, "has 2 rules"),
        ({"infer": lambda x: x, "vjp": lambda g, y: g}, "by name of out, x"),
        ({"infer": lambda x: x, "jvp": (lambda t: t, None)}, "and jvp= has 2 rules; .* None for one without a tangent"),
        ({"infer": lambda x: x, "jvp": lambda g, x: g}, "is a function of t, and by name of out, x"),
        ({"infer": lambda x: x, "vmap": "loop"}, "sequential, expand_dims, broadcast_all"),
    ],
)
def test_columns_that_do_not_fit(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(hm.ArgumentError, match=said):
        hm.op(one, **columns)


def test_a_tensor_that_is_called_as_a_tangent_is() -> None:
    with pytest.raises(hm.ArgumentError, match="rules of jvp= have another meaning for t; rename the argument"):
        hm.op(lambda t: t, infer=lambda t: t, jvp=lambda t: t, name="timed")
    timed = hm.op(lambda t: t + 1, infer=lambda t: t, vjp=lambda g: g, vmap="expand_dims", name="timed")
    assert check_op(timed, [Sample((np.ones(2),))]) == 1


def test_signatures_that_are_not_tensors_and_keywords() -> None:
    with pytest.raises(hm.ArgumentError, match="parameters keywords after a"):
        hm.op(lambda x, k=2: x, infer=lambda x, k: x, name="defaulted")
    with pytest.raises(hm.ArgumentError, match="parameter k is a number"):
        hm.op(lambda x, *, k=1: x, infer=lambda x, *, k: x, name="of_object")(hm.ones(2), k=object())


def test_a_function_that_is_written_anew_is_another_operation() -> None:
    def made(text: str) -> Any:
        space: dict[str, Any] = {"__name__": __name__}
        exec(f"def again(x):\n    return x {text}", space)
        return hm.op(space["again"], infer=lambda x: x)

    first, second = made("* 2"), made("* 3")
    assert hm.trace(first)(hm.ones(2)).tolist() == [2, 2]
    assert hm.trace(second)(hm.ones(2)).tolist() == [3, 3]
    assert hm.trace(lambda x: first(x) + second(x))(hm.ones(2)).tolist() == [5, 5]


def test_vmap_by_a_rule() -> None:
    seen = []

    def rule(axis_size: int, in_batched: list[bool], x: hm.Tensor) -> tuple[hm.Tensor, bool]:
        seen.append((axis_size, in_batched))
        return centred(x), True

    @hm.op(infer=lambda x: x, vmap=rule)
    def centred(x: np.ndarray) -> np.ndarray:
        return x - x.mean(-1, keepdims=True, dtype=x.dtype)

    x = hm.tensor([[1.0, 3.0], [0.0, 4.0]])
    assert hm.vmap(centred)(x).tolist() == [[-1, 1], [-2, 2]]
    assert seen == [(2, [True])]


def test_without_a_rule_vmap_says_that_it_loops() -> None:
    plain = hm.op(lambda x: x * 2, infer=lambda x: x, name="plain")
    with pytest.warns(UserWarning, match="plain has no rule for batches"):
        assert hm.vmap(plain)(hm.ones((2, 3))).tolist() == [[2, 2, 2], [2, 2, 2]]


def test_native_code_by_its_address() -> None:
    numba = pytest.importorskip("numba")
    types = numba.types

    @numba.cfunc(types.int64(types.CPointer(types.CPointer(types.float32)), types.CPointer(types.int64)))
    def halved(arrays: Any, sizes: Any) -> int:
        if sizes[0] > 8:
            return 1
        for i in range(sizes[0]):
            arrays[1][i] = arrays[0][i] / 2
        return 0

    @hm.op(infer=lambda x: x, native=lambda signature: halved.address if signature[0][0][1] == 1 else None)
    def half(x: np.ndarray) -> np.ndarray:
        if x.size > 8:
            raise ValueError("too many")
        return x / 3  # another result, so that it shows who has computed it

    fn = hm.trace(lambda x: half(x) + 1)
    assert half(hm.ones(3)).tolist() == [0.5] * 3 and fn(hm.ones(3)).tolist() == [1.5] * 3
    assert "hml_native_" in fn.llvm
    assert fn(hm.ones((1, 1))).tolist() == [[np.float32(1) / 3 + 1]]
    for refused in (half, fn):
        with pytest.raises(ValueError, match="too many"):
            refused(hm.ones(9))


ROOT = Path(__file__).parents[2]
_PROGRAM = """
import numpy as np, hybridml as hm
FACTOR = {factor}
@hm.op(infer=lambda x: x)
def scaled(x):
    return x * np.float32({factor})
@hm.kernel(kind="array", infer=lambda x: x)
def reversed_rows(x):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[x.shape[0] - 1 - i] = x[i]
    return out
@hm.kernel
def shifted(x):
    return x + FACTOR
fn = hm.trace(lambda x: shifted(reversed_rows(scaled(x) + 1)))
x = hm.arange(3, dtype=hm.float32)
print(fn(x).tolist(), "the whole program was in the cache" in str(hm.explain(fn, x)))
"""


def test_programs_are_kept_by_the_code_of_the_user(tmp_path: Path) -> None:
    pytest.importorskip("numba")

    def run(*factors: int) -> list[str]:
        """The lines that programs print, one after the other in one process."""
        for factor in factors:
            (tmp_path / f"program{factor}.py").write_text(_PROGRAM.format(factor=factor))
        code = f"import runpy\nfor factor in {factors}: runpy.run_path(f'{tmp_path}/program{{factor}}.py')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        assert not done.returncode, done.stderr
        return done.stdout.splitlines()

    assert run(2) == ["[7.0, 5.0, 3.0] False"]
    assert run(2, 3) == ["[7.0, 5.0, 3.0] True", "[10.0, 7.0, 4.0] False"]


def test_lower_is_written_for_any_builder() -> None:
    s, x = NumpyBuilder(), np.array([1.0, -1.0], np.float32)
    row = leaky_max.__globals__["_op"]
    load = type("Load", (), {"shape": (2,), "dtype": x.dtype, "__call__": lambda self, i: x})()
    assert np.array_equal(row.lower(s, (0,), load, load, slope=0.5), x * np.float32(0.5))


def test_results_have_memory_of_their_own() -> None:
    @hm.op(infer=lambda x: (x, x), results=("a", "b"))
    def twice(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = x + 1
        return y, y

    for style in (lambda fn: fn, hm.trace):
        a, b = style(twice)(hm.zeros(2))
        a += 10
        assert a.tolist() == [11.0, 11.0] and b.tolist() == [1.0, 1.0]


def test_without_a_rule_a_gradient_is_an_error() -> None:
    unruled = hm.op(infer=lambda x: x, vmap="expand_dims", name="unruled")(lambda x: x * 2)
    constant = hm.op(infer=lambda x: x, vjp=(None,), name="unmoved")(lambda x: np.sign(x))
    x = hm.tensor([1.0, 2.0])
    for style in (lambda fn: fn, hm.trace):
        with pytest.raises(hm.GradientError, match=r"unruled has no gradient; give vjp="):
            style(hm.grad(lambda x: (unruled(x) * x).sum()))(x)
        assert style(hm.grad(lambda x: (constant(x) * x).sum()))(x).tolist() == [1.0, 1.0]
    assert unruled(x).tolist() == [2.0, 4.0] and check_op(unruled, [Sample((np.ones(3),))]) == 1


def test_rules_of_tangents_serve_both_modes() -> None:
    x, y, t = hm.tensor([[1.0, -2.0]]), hm.tensor([[3.0, 5.0]]), hm.tensor([[1.0, 10.0]])
    for style in (lambda fn: fn, hm.trace):
        (product, _, grown), moved = style(lambda x, y, t: hm.jvp(several, (x, y), (t, 2 * t)))(x, y, t)
        assert moved[0].tolist() == (3 * (t * y + x * 2 * t)).tolist() and product.tolist() == [[9.0, -30.0]]
        assert moved[1].tolist() == [0]
        np.testing.assert_allclose(moved[2].numpy(), (grown * t).numpy(), rtol=1e-6)  # hm.exp has other bits
        alone = style(lambda y, t: hm.jvp(lambda y: several(x, y), (y,), (t,))[1])(y, t)  # zeros of the third result
        assert alone[0].tolist() == (3 * x * t).tolist() and alone[2].tolist() == [[0.0, 0.0]]

        def total(x: Any, y: Any) -> Any:
            product, _, grown = several(x, y)
            return (product * t).sum() + grown.sum()

        first = style(hm.grad(total, argnums=(0, 1)))(x, y)
        np.testing.assert_allclose(first[0].numpy(), (3 * t * y + hm.exp(x)).numpy(), rtol=1e-6)
        np.testing.assert_allclose(first[1].numpy(), (3 * t * x).numpy(), rtol=1e-6)
        mixed = style(hm.jacfwd(hm.grad(lambda x: total(x, y))))(x)
        np.testing.assert_allclose(mixed.numpy().reshape(2, 2), np.diag(np.exp(x.numpy()[0])), rtol=1e-6)


def test_a_gradient_that_is_not_the_function_s_holds_in_forward_mode_too() -> None:
    """A row of the table whose rule keeps nothing is linear, and its own derivative; one of a user may be anything."""
    rounded = hm.op(infer=lambda x: x, vjp=lambda g: g, name="rounded")(lambda x: np.round(x))
    shifted = hm.op(infer=lambda x, y: x, vjp=(lambda g, y: g * y, lambda g, x: g * x), name="shifted")(
        lambda x, y: x * y + 1
    )
    x, t = hm.tensor([0.4, 2.6]), hm.tensor([0.25, 1.75])
    for style in (lambda fn: fn, hm.trace):
        assert style(lambda x, t: hm.jvp(rounded, (x,), (t,))[1])(x, t).tolist() == t.tolist()
        product = style(lambda x, t: hm.jvp(shifted, (x, x), (t, 2 * t))[1])(x, t)
        np.testing.assert_allclose(product.numpy(), (3 * x * t).numpy(), rtol=1e-6)


def test_rules_of_both_modes_are_compared() -> None:
    def product(ahead: float) -> Any:
        columns = {"vjp": lambda g, x: 2 * g * x, "jvp": lambda t, x: ahead * t * x}
        return hm.op(infer=lambda x: x, vmap="expand_dims", name="squared", samples=drawn((3,)), **columns)(
            lambda x: x * x
        )

    assert check_op(product(2.0)) == 1
    with pytest.raises(AssertionError, match="squared, sample 0: the derivative along tangents is"):
        check_op(product(3.0))
    x = hm.ones(2)
    assert hm.jvp(product(3.0), (x,), (x,))[1].tolist() == [3.0, 3.0]  # as given
    assert hm.grad(lambda x: product(3.0)(x).sum())(x).tolist() == [2.0, 2.0]


def test_native_code_lives_as_long_as_its_address() -> None:
    """A cell of a notebook that is run again makes the same operation, and programs have the address of the first."""

    def cell() -> Any:
        def native(signature: Any) -> int | None:
            return None

        op = hm.op(infer=lambda x: x, native=native, name="run_again")(lambda x: x * 2)
        assert hm.trace(lambda x: op(x) + 1)(hm.ones(2)).tolist() == [3.0, 3.0]
        return weakref.ref(native)

    first = cell()
    cell()
    gc.collect()
    assert first() is not None


def test_a_rule_of_tangents_that_is_not_linear_has_no_gradient() -> None:
    cube = hm.op(lambda x: x**3, name="cube", infer=lambda x: x, jvp=lambda t, x: t * t * x)
    product = hm.custom_jvp(lambda x, y: x * y)
    product.defjvp(lambda primals, tangents: (primals[0] * primals[1], tangents[0] * tangents[1]))
    x = hm.ones(2)
    for _ in range(2):
        for trace in (lambda f: f, hm.trace):
            with pytest.raises(hm.GradientError, match=r"hm\.op: cube: the rule is not linear in the tangents"):
                trace(hm.grad(lambda x: cube(x).sum()))(x)
            with pytest.raises(
                hm.GradientError, match=r"custom_jvp: .*lambda.*: the rule is not linear in the tangents"
            ):
                trace(hm.grad(lambda x, y: product(x, y).sum(), argnums=(0, 1)))(x, x)
    assert hm.jvp(cube, (x,), (x * 2,))[1].tolist() == [4.0, 4.0]


@pytest.mark.parametrize("order", [1, 2])
def test_a_rule_of_tangents_is_looked_at_once(order: int) -> None:
    rules = (lambda t, y: t * y + 0, lambda t, x: x * t)
    scaled = hm.op(lambda x, y: x * y, name="scaled", infer=lambda x, y: x, jvp=rules)
    x, y = hm.tensor([1.0, 2.0], requires_grad=True), hm.tensor([3.0, 4.0], requires_grad=True)
    for _ in range(2):
        (found,) = hm.autograd.grad((scaled(x, y) * y).sum(), [x], create_graph=order > 1)
        assert found.tolist() == [9.0, 16.0] and found.requires_grad == (order > 1)
        if order > 1:
            assert hm.autograd.grad(found.sum(), [y])[0].tolist() == [6.0, 8.0]
