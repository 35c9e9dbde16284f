"""Operations on large arrays run compiled kernels; they mean what NumPy's small-array path means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
import hybridml.nn.functional as F
from hybridml_compiler.compile_policy import OPERATION as LARGE
from hybridml_compiler.eager.large import compute
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from tests.support.closeness import assert_close
from tests.support.rows import joined

RNG = np.random.default_rng(0)

ELEMENTWISE = [op for op in OPS.values() if op.kind == "elementwise" and not op.variadic]


def enlarged(op: Op, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray] | None:
    """A sample's operands repeated until they are large; a second operand of one element stays one."""
    if any(a.size == 0 for a in arrays):
        return None
    size = 64 * (LARGE // 64 + 1)
    return [
        a.reshape(()) if k and a.size == 1 else np.tile(a.reshape(-1), -(-size // a.size))[:size].reshape(-1, 64)
        for k, a in enumerate(arrays)
    ]


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_elementwise_rows_have_the_same_bits(op: Op) -> None:
    tried = 0
    for sample in joined(op, op.samples(np.random.default_rng(0))):
        arrays = enlarged(op, sample.args)
        if arrays is None or tried == 6:
            continue
        params = op.with_defaults(sample.params)
        with np.errstate(all="ignore"):
            expected = np.asarray(op.run(arrays, params))
            got = compute(op, arrays, params)
        assert got.dtype == expected.dtype and got.shape == expected.shape
        np.testing.assert_array_equal(got, expected)
        tried += 1
    assert tried


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "argmax", "any", "all", "var", "cumulative_sum"])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_agree_with_numpy(name: str, axis: int) -> None:
    a = np.random.default_rng(1).uniform(0.9, 1.1, (513, 257))
    expected = getattr(np, {"cumulative_sum": "cumsum"}.get(name, name))(a, axis=axis)
    got = getattr(hm, name)(hm.asarray(a), axis=axis).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-11)


def test_operands_that_lie_apart_are_numpys_business() -> None:
    a = np.random.default_rng(2).standard_normal((600, 300)).astype(np.float32)
    x = hm.asarray(a).T
    np.testing.assert_array_equal((x + x).numpy(), a.T + a.T)


def test_a_large_operand_of_a_row_by_row_sum_broadcasts() -> None:
    a = np.random.default_rng(3).standard_normal((600, 300)).astype(np.float32)
    b = np.arange(300, dtype=np.float32)
    np.testing.assert_array_equal((hm.asarray(a) + hm.asarray(b)).numpy(), a + b)


def test_division_by_zero_is_a_value() -> None:
    x = hm.ones(LARGE) / hm.zeros(LARGE)
    assert bool(hm.isinf(x).all())
    with pytest.raises(Exception, match="do not broadcast"):
        hm.ones(LARGE) + hm.ones(LARGE + 1)


@pytest.mark.parametrize("name", ["multiply", "maximum", "less", "divide", "logical_and"])
def test_large_bfloat16_is_computed_in_float32(name: str) -> None:
    """Of one shape, broadcast, and not large: the same bits."""
    rng = np.random.default_rng(0)
    row, *whole = (hm.asarray(rng.standard_normal(shape), dtype=hm.bfloat16) for shape in (300, (256, 300), (256, 300)))
    f = getattr(hm, name)
    for x, y in (whole, (whole[0], row)):
        got = f(x, y)
        small = [f(x[k : k + 32], y[k : k + 32] if y is not row else y).numpy() for k in range(0, 256, 32)]
        assert got.dtype == (hm.bfloat16 if name in ("multiply", "maximum", "divide") else hm.bool)
        np.testing.assert_array_equal(got.numpy(), np.concatenate(small))


def test_operands_in_another_order_of_memory_are_computed_in_it() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((8, 40, 30, 16)).astype("f4").transpose(0, 3, 1, 2) for _ in range(2))
    x, y, dense = hm.asarray(a), hm.asarray(b), hm.asarray(np.ascontiguousarray(b))
    for found, expected in ((hm.relu(x), np.where(a <= 0, 0, a)), (x * y, a * b), (x * 2.0, a * 2), (x + dense, a + b)):
        assert found.numpy().tobytes() == np.asarray(expected, "f4").tobytes()
    assert all(t.numpy().strides == a.strides for t in (hm.relu(x), x * y, x * 2.0))


def test_a_number_as_an_index_takes_an_axis_away() -> None:
    x = hm.asarray(np.arange(1 << 17, dtype="f4").reshape(512, 256))
    for index in (hm.tensor(3), hm.broadcast_to(hm.tensor(3), (2,))):
        assert hm.take(x, index, axis=0).shape == (*index.shape, 256)
    for dtype in (hm.bool, hm.uint8, hm.int64, hm.float16, hm.bfloat16, hm.complex64):
        found = hm.ones((512, 256), dtype=dtype)
        assert found.dtype is dtype and found.shape == (512, 256) and hm.astype(found, hm.bool).all()


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float32", "bfloat16", "complex64"])
def test_large_tensors_are_written_in_place(dtype: str) -> None:
    x = hm.ones(2 * LARGE, dtype=getattr(hm, dtype))
    part = x[:2]
    if dtype != "bool":
        x += x
        x += hm.ones(2 * LARGE, dtype=x.dtype)
        assert part.astype(hm.complex64).tolist() == [3, 3]
    x[:] = hm.zeros(2 * LARGE, dtype=x.dtype)
    assert not x.numpy().astype("c8").any() and part.astype(hm.complex64).tolist() == [0, 0]


def test_memory_that_overlaps_is_read_before_it_is_written() -> None:
    x = hm.arange(2 * LARGE, dtype=hm.float32)
    x[1:] = x[:-1]
    np.testing.assert_array_equal(x.numpy()[1:], np.arange(2 * LARGE - 1))
    square = hm.arange(1 << 16).reshape(256, 256)
    wanted = square.numpy() + square.numpy().T
    square += square.T
    np.testing.assert_array_equal(square.numpy(), wanted)
    x = hm.arange(2 * LARGE)
    y = x[LARGE // 2 : -LARGE // 2]
    y += x[:LARGE]
    np.testing.assert_array_equal(y.numpy(), np.arange(LARGE) * 2 + LARGE // 2)


def test_small_operands_that_broadcast_to_a_large_result_are_computed_on_all_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, row = hm.asarray(np.random.default_rng(0).standard_normal((300, 1, 3))), hm.ones((300, 3), dtype=hm.float64)
    monkeypatch.setitem(OPS["subtract"].fn.__globals__, "_grown", {})
    called: list[Op] = []
    monkeypatch.setitem(
        OPS["subtract"].fn.__globals__, "_compute", lambda op, *rest: called.append(op) or compute(op, *rest)
    )
    for _ in range(2):
        np.testing.assert_array_equal(hm.subtract(x, row).numpy(), x.numpy() - row.numpy())
    assert called == [OPS["subtract"]]  # from the second call on
    np.testing.assert_array_equal(hm.subtract(x[:2], row).numpy(), x.numpy()[:2] - row.numpy())
    with pytest.raises(hm.ShapeError, match="broadcast"):
        hm.subtract(x[:, :, :2], row)


CHANNELS_LAST = RNG.standard_normal((2, 64, 32, 17)).astype(np.float32).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("shape", [(17, 1, 1), (2, 1, 1, 1), (32,), (), (1, 17, 64, 32), (2, 17, 64, 32)])
def test_a_result_lies_as_the_large_operand_whatever_broadcasts_to_it(shape: tuple[int, ...]) -> None:
    x, y = CHANNELS_LAST, RNG.standard_normal(shape).astype(np.float32)
    for a, b in ((x, y), (y, x)):
        np.testing.assert_array_equal(hm.subtract(hm.asarray(a), hm.asarray(b)).numpy(), a - b, strict=True)
    if y.size < 100:
        assert (hm.asarray(x) + hm.asarray(y)).numpy().strides == (x + y).strides
    expected = np.where(x > 0, y, x)
    np.testing.assert_array_equal(hm.where(hm.asarray(x) > 0, hm.asarray(y), hm.asarray(x)).numpy(), expected)


@pytest.mark.parametrize("axis", [None, 1, (2, 0)])
@pytest.mark.parametrize("name", ["max", "sum"])
def test_reductions_of_what_lies_in_another_order(name: str, axis: Any) -> None:
    got = getattr(hm, name)(hm.asarray(CHANNELS_LAST), axis=axis, keepdims=axis is not None)
    expected = getattr(np, name)(CHANNELS_LAST.astype("f8"), axis=axis, keepdims=axis is not None).astype("f4")
    assert_close(got.numpy(), expected, name, terms=100.0)


@pytest.mark.parametrize("dtype", ["bool", "float32", "bfloat16", "complex64"])
def test_movements_of_large_tensors(dtype: str) -> None:
    x = hm.asarray(RNG.standard_normal((300, 256)) > 0).astype(dtype)
    array = x.astype("complex64").numpy()
    for got, expected in [
        (hm.tril(x, k=3), np.tril(array, 3)),
        (hm.triu(x.T), np.triu(array.T)),
        (hm.concat([x, x[:20], x], axis=0), np.concatenate([array, array[:20], array])),
        (hm.stack([x, x], axis=-1), np.stack([array, array], -1)),
        (F.pad(x, (1, 2)), np.pad(array, ((0, 0), (1, 2)))),
    ]:
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got.astype("complex64").numpy(), expected)


def test_gradient_of_a_view_of_everything() -> None:
    x = hm.zeros((3, 4), requires_grad=True)
    weights = hm.arange(12.0).reshape((3, 1, 4))
    (x[:, None] * weights).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.arange(12.0).reshape(3, 4))
    (got,) = hm.autograd.grad((x[::-1, None] * weights).sum(), [x])
    np.testing.assert_array_equal(got.numpy(), np.arange(12.0).reshape(3, 4)[::-1])


CREATED: dict[str, tuple[Any, ...]] = {
    "arange": (3, 3 + 7 * LARGE, 7),
    "linspace": (-1, 2, LARGE + 3),
    "eye": (300, 301, -2),
}


@pytest.mark.parametrize("name", CREATED)
def test_created_arrays_keep_their_bits_when_a_kernel_makes_them(name: str) -> None:
    made = [OPS[name].fn(*CREATED[name]) for _ in range(20)]
    first, later = made[0], made[-1]
    assert later.dtype is first.dtype and np.array_equal(later.numpy(), first.numpy())


@pytest.mark.parametrize(("axis", "shape"), [(0, (3,)), (1, (2, 2)), (0, ())])
def test_long_rows_are_added_one_after_the_other(axis: int, shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal((400, 300)).astype(np.float32)
    index = RNG.integers(-3, 3, shape)
    rows = RNG.standard_normal((*x.shape[:axis], *shape, *x.shape[axis + 1 :])).astype(np.float32)
    expected = x.copy()
    np.add.at(expected, (*(slice(None),) * axis, index), rows)
    got = OPS["scatter_add"].fn(hm.asarray(x), hm.asarray(index), hm.asarray(rows), axis)
    assert np.array_equal(got.numpy(), expected)
