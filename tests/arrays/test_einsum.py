"""`einsum` beside NumPy: every form of subscripts, orders of products, both styles, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm

SHAPES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 2, "i": 3, "j": 4, "k": 2, "l": 3, "z": 1}
EXPRESSIONS = [
    "i->i", "i->", "ij->ji", "ij->j", "ij", "ji", "ii", "ii->i", "iij->ij", "iji->ij", "iii->i", "iijj->ij", "iijj",
    "ij,jk->ik", "ij,jk->ki", "ij,jk", "ij,kj->ik", "ji,jk->ik", "ij,j->i", "j,ij->i", "i,i->", "i,i->i", "i,j->ij",
    "i,j->ji", "ij,ij->", "ij,ij->ij", "ij,ij->i", "ij,ji->", "abc,acd->abd", "abc,acd->bad", "abc,abc->ab",
    "abc,bcd->ad", "abcd,bde->ace", "abij,abkj->abik", "ab,cd->abcd", ",->", ",i->i", "ij,->ij", "ii,ij->j",
    "ij,jk,kl->il", "ij,jk,kl,l->i", "ab,bc,cd,de,e->a", "i,i,i->i", "ij,ij,ij->j", "ab,ac,ad->bcd", "a,b,c->",
    "ab,bc,ca->", "ijk,ijl,i->kl", "iz,zj->ij", "abc,abd,ab,c,d,d->ab", "ab,bc,cd,da,ac,bd->", "ij -> j i", "ba,b",
]  # fmt: skip


def operands(text: str, dtype: Any = np.float64) -> list[np.ndarray]:
    rng = np.random.default_rng(len(text))
    terms = text.replace(" ", "").split("->")[0].split(",")
    return [rng.integers(-4, 5, tuple(SHAPES[k] for k in term)).astype(dtype) for term in terms]


def both(fn: Any, *arrays: np.ndarray) -> np.ndarray:
    """The eager result, which the traced one equals: these operands are small integers, so sums are exact."""
    tensors = [hm.asarray(a) for a in arrays]
    eager, traced = fn(*tensors), hm.trace(fn, backend="interpret")(*tensors)
    assert eager.shape == traced.shape and eager.dtype is traced.dtype
    np.testing.assert_array_equal(np.asarray(eager), np.asarray(traced))
    return np.asarray(eager)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_is_numpys(text: str) -> None:
    arrays = operands(text)
    found = both(lambda *xs: hm.einsum(text, *xs), *arrays)
    expected = np.einsum(text, *arrays)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["f4", "i4", "i8", "u1", "?"])
def test_dtypes(dtype: str) -> None:
    for text in ("ij,jk->ik", "ij,ij->i", "ij->j", "i,j->ij", "ij,jk,kl"):
        arrays = operands(text, dtype)
        found, expected = both(lambda *xs, text=text: hm.einsum(text, *xs), *arrays), np.einsum(text, *arrays)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    mixed = hm.einsum("i,i->", hm.asarray(np.ones(3, "f4")), hm.asarray(np.ones(3, "f8")))
    assert mixed.dtype is hm.float64
    assert hm.einsum(",i->i", 2.0, hm.ones(3)).dtype is hm.float32


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("...ij,...jk", [(2, 3, 4), (2, 4, 2)]),
        ("i...,i->...", [(3, 4, 2), (3,)]),
        ("...,...->...", [(3, 1), (4,)]),
        ("...", [(3, 4)]),
        ("...i->i...", [(2, 3, 4)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("i...j,...j->...i", [(2, 5, 3), (5, 3)]),
        ("...a,...a->...", [(3,), (3,)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),
        ("ij,ij->ij", [(1, 4), (3, 1)]),
        ("ij,jk->ik", [(2, 0), (0, 4)]),
        ("ij->", [(0, 4)]),
        ("ij,j->i", [(0, 4), (4,)]),
    ],
)
def test_ellipsis_and_broadcasting(text: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, shape).astype("f8") for shape in shapes]
    np.testing.assert_array_equal(both(lambda *xs: hm.einsum(text, *xs), *arrays), np.einsum(text, *arrays))


def test_list_form() -> None:
    x, y = operands("ij,jk")
    for args in ((x, [0, 1], y, [1, 2], [0, 2]), (x, [5, 1], y, [1, 2]), (x, [..., 0], [0, ...]), (x, [1, 0])):
        tensors = [hm.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
        np.testing.assert_array_equal(np.asarray(hm.einsum(*tensors)), np.einsum(*args))


@pytest.mark.parametrize("optimize", [True, False, "greedy", "optimal", ["einsum_path", (0, 2), (0, 1)], [(0, 1, 2)]])
def test_orders_agree(optimize: Any) -> None:
    text = "ab,bc,cd->ad"
    arrays = operands(text)
    found = hm.einsum(text, *map(hm.asarray, arrays), optimize=optimize)
    np.testing.assert_array_equal(np.asarray(found), np.einsum(text, *arrays))


def test_the_order_is_the_cheapest() -> None:
    shapes = {"a": 100, "b": 2, "c": 100, "d": 2, "e": 100}
    text = "ab,bc,cd,de"
    arrays = [np.ones(tuple(shapes[k] for k in term), "f4") for term in text.split(",")]
    path, report = hm.einsum_path(text, *arrays)
    assert path[:2] == ["einsum_path", (1, 2)] and "20800," in report
    many = ",".join(f"{a}{b}" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    long = [np.ones((2, 2), "f4")] * 8
    np.testing.assert_array_equal(np.asarray(hm.einsum(many, *long)), np.full((2, 2), 128))


@pytest.mark.parametrize("text", ["ij,jk->ik", "iji->j", "i,i->", "abc,acd,a->bd", "...i,i...->...", "ij->ji"])
def test_gradients(text: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    shapes = [tuple(SHAPES.get(k, 2) for k in term.replace("...", "e")) for term in text.split("->")[0].split(",")]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    numbers = tuple(range(len(arrays)))

    def loss(*xs: Any) -> Any:
        return (hm.einsum(text, *xs) ** 3).sum()

    def curved(*xs: Any) -> Any:
        return sum((g**2).sum() for g in hm.grad(loss, argnums=numbers)(*xs))

    tensors = [hm.tensor(a) for a in arrays]
    ours = hm.grad(curved, argnums=numbers)(*tensors)
    traced = hm.trace(hm.grad(curved, argnums=numbers), backend="interpret")(*tensors)
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    first = torch.autograd.grad((torch.einsum(text, *theirs) ** 3).sum(), theirs, create_graph=True)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), theirs)
    for a, b, c in zip(ours, second, traced, strict=True):
        np.testing.assert_allclose(np.asarray(a), b.numpy(), rtol=1e-10)
        np.testing.assert_allclose(np.asarray(c), np.asarray(a), rtol=1e-10)


def test_compiled() -> None:
    rng = np.random.default_rng(0)
    q, k = (hm.asarray(rng.standard_normal((2, 5, 3, 8), np.float32)) for _ in range(2))

    @hm.trace
    def scores(q: hm.Tensor, k: hm.Tensor) -> hm.Tensor:
        return hm.einsum("bqhd,bkhd->bhqk", q, k) * 0.5

    np.testing.assert_allclose(np.asarray(scores(q, k)), np.einsum("bqhd,bkhd->bhqk", q, k) * 0.5, rtol=1e-5, atol=1e-6)
    assert scores.stats.kernels == 1


@pytest.mark.parametrize(
    ("args", "error", "match"),
    [
        (("ij,jk", (2, 3)), hm.ArgumentError, "is for 2 operands, and 1 were given"),
        (("i", (2, 3)), hm.ArgumentError, "operand 0 has 2 axes, and its subscripts are for 1"),
        (("i1", (2, 3)), hm.ArgumentError, "'1' in 'i1'"),
        (("ij->k", (2, 3)), hm.ArgumentError, "the result has 'k', which no operand has"),
        (("ij->ii", (2, 3)), hm.ArgumentError, "the result has 'i' twice"),
        (("...j->j", (2, 3)), hm.ArgumentError, "lacks the 1 axes of '...'"),
        (("ij,jk", (2, 3), (4, 5)), hm.ShapeError, "operand 1 has size 4 for 'j', and one before it 3"),
        (("ii", (2, 3)), hm.ShapeError, "has 'i' at axes of sizes 2 and 3"),
    ],
)
def test_errors(args: Any, error: type[Exception], match: str) -> None:
    text, *shapes = args

    def program(*xs: Any) -> Any:
        return hm.einsum(text, *xs)

    tensors = [hm.ones(shape) for shape in shapes]
    with pytest.raises(error, match=match.replace(".", r"\.")):
        program(*tensors)
    with pytest.raises(error, match=match.replace(".", r"\.")):
        hm.trace(program, backend="interpret")(*tensors)
    with pytest.raises(hm.ArgumentError, match="optimize is"):
        hm.einsum("i,i,i", hm.ones(2), hm.ones(2), hm.ones(2), optimize="best")
