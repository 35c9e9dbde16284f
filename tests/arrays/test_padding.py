"""`hm.pad` is `numpy.pad`: every mode, option and way to write widths; gradients and traces of what it makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm

MODES: list[tuple[str, dict[str, Any]]] = [
    ("constant", {}),
    ("constant", {"constant_values": 3}),
    ("constant", {"constant_values": (1, 2)}),
    ("edge", {}),
    ("reflect", {}),
    ("reflect", {"reflect_type": "odd"}),
    ("symmetric", {}),
    ("symmetric", {"reflect_type": "odd"}),
    ("wrap", {}),
    ("linear_ramp", {}),
    ("linear_ramp", {"end_values": (3, -2)}),
    ("maximum", {}),
    ("maximum", {"stat_length": 50}),
    ("minimum", {"stat_length": 2}),
    ("mean", {}),
    ("median", {}),
    ("median", {"stat_length": (2, 1)}),
    ("mean", {"stat_length": (1, 2)}),
]
SHAPES = [(5,), (1,), (3, 4), (2, 1, 3)]


def widths(ndim: int) -> list[tuple[Any, Any]]:
    """Widths, and how NumPy has them: it takes dicts since 2.4."""
    none = ((0, 0),) * (ndim - 1)
    both = [2, 7, 0, (1, 3), ((1, 2),) * ndim, ((0, 5),)]
    return [*((w, w) for w in both), ({0: (1, 2)}, ((1, 2), *none)), ({-1: 3}, (*none, (3, 3)))]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize(("mode", "options"), MODES)
def test_values_are_numpys(mode: str, options: dict[str, Any], dtype: str) -> None:
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        x = (rng.normal(size=shape) * 5).astype(dtype)
        for width, numpys in widths(len(shape)):
            expected = np.pad(x, numpys, mode, **options)  # type: ignore[call-overload]
            got = hm.pad(hm.asarray(x), width, mode, **options).numpy()
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6, strict=True)


@pytest.mark.parametrize(("mode", "options"), MODES)
def test_traced_is_eager_and_gradients_are_differences(mode: str, options: dict[str, Any]) -> None:
    def padded(x: hm.Tensor) -> hm.Tensor:
        return hm.pad(x, ((1, 2), (4, 3)), mode, **options)

    x = np.random.default_rng(1).normal(size=(3, 4))
    out = padded(hm.asarray(x)).numpy()
    np.testing.assert_allclose(hm.trace(padded)(hm.asarray(x)).numpy(), out, rtol=1e-14)
    weight = np.random.default_rng(2).normal(size=out.shape)
    gradient = hm.grad(lambda t: (padded(t) * hm.asarray(weight)).sum())(hm.asarray(x)).numpy()
    for k in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[k] = 1e-6
        up, down = (padded(hm.asarray(x + s)).numpy() for s in (step, -step))
        assert gradient[k] == pytest.approx(((up - down) * weight).sum() / 2e-6, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("style", [lambda f: f, hm.trace])
@pytest.mark.parametrize(
    ("width", "mode", "options", "error", "words"),
    [
        (1, "mirror", {}, ValueError, "mode must be one of"),
        (1, "edge", {"constant_values": 1}, ValueError, "mode 'edge' takes no options, got ['constant_values']"),
        (-1, "edge", {}, ValueError, "must not be negative"),
        (1.5, "edge", {}, ValueError, "must be of integers"),
        (((1, 1),) * 3, "edge", {}, ValueError, "a pair for each of 2 axes"),
        ((1, 2, 3), "edge", {}, ValueError, "(before, after)"),
        ({2: 1}, "edge", {}, ValueError, "names axis 2 of 2"),
        (1, "mean", {"stat_length": 0}, ValueError, "stat_length must be 1 or more"),
        (1, "reflect", {"reflect_type": "both"}, ValueError, "'even' or 'odd'"),
    ],
)
def test_errors(style: Any, width: Any, mode: str, options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        style(lambda x: hm.pad(x, width, mode, **options))(hm.ones((2, 3)))
    assert words in str(caught.value)


def test_what_has_no_elements_and_what_cannot_be_computed() -> None:
    with pytest.raises(ValueError, match="axis 1 is empty"):
        hm.pad(hm.ones((2, 0)), 1, "edge")
    assert hm.pad(hm.ones((2, 0)), ((0, 0), (1, 0))).shape == (2, 1)
    assert hm.pad(hm.ones((2, 3)), 1, "empty").shape == (4, 5)
    with pytest.raises(TypeError, match="bool tensor"):
        hm.pad(hm.asarray([True, False]), 1, "mean")
    assert hm.pad([True, False], 2, "reflect").tolist() == [True, False, True, False, True, False]


@pytest.mark.parametrize("style", [lambda f: f, hm.trace])
def test_stencils_read_what_is_there(style: Any) -> None:
    """A part that an index is never in is lowered for its dtype alone: its load, without a mask, is no other's."""
    image = np.arange(64.0).reshape(8, 8)

    def blurred(x: Any, padded: Any) -> Any:
        return sum((1.0 + i + 3 * j) * padded[i : i + 8, j : j + 8] for i in range(3) for j in range(3)) + x[:, ::-1]

    found = style(lambda x: blurred(x, hm.pad(x, 1, "edge")))(hm.asarray(image))
    np.testing.assert_allclose(found, blurred(image, np.pad(image, 1, "edge")), rtol=1e-14)
