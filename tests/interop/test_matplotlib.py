"""Tensors as arguments of matplotlib's functions, numbers among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm

pyplot = pytest.importorskip("matplotlib.pyplot")
pyplot.switch_backend("Agg")
X, Y, S, M = hm.linspace(0, 1, 10), hm.linspace(1, 2, 10), hm.tensor(0.5), hm.ones((4, 5))
CALLS: dict[str, Callable[[Any], Any]] = {
    "annotate": lambda a: a.annotate("here", (S, S)),
    "axhline": lambda a: a.axhline(S),
    "axvspan": lambda a: a.axvspan(S, S + 1),
    "bar": lambda a: a.bar(X, Y),
    "barh": lambda a: a.barh(X, Y, height=S),
    "boxplot": lambda a: a.boxplot([X, Y]),
    "contour": lambda a: a.contour(hm.arange(20.0).reshape(4, 5)),
    "errorbar": lambda a: a.errorbar(X, Y, yerr=Y),
    "fill_between": lambda a: a.fill_between(X, Y, S),
    "hist": lambda a: a.hist(Y, bins=X),
    "hist2d": lambda a: a.hist2d(X, Y),
    "imshow": lambda a: a.imshow(M, vmin=S, vmax=S + 1),
    "pcolormesh": lambda a: a.pcolormesh(M),
    "pie": lambda a: a.pie(Y),
    "plot": lambda a: a.plot(X, Y, linewidth=S),
    "quiver": lambda a: a.quiver(X, Y, X, Y),
    "scatter": lambda a: a.scatter(X, Y, c=Y, s=Y * 10),
    "set_xlim": lambda a: a.set_xlim(S - 1, S),
    "set_xticks": lambda a: a.set_xticks(X),
    "stem": lambda a: a.stem(X, Y),
    "step": lambda a: a.step(X, Y),
    "text": lambda a: a.text(S, S, f"{S:.2f}"),
    "violinplot": lambda a: a.violinplot(Y),
    "vlines": lambda a: a.vlines(X, 0, Y),
}


@pytest.mark.parametrize("name", CALLS)
def test_tensors_are_plotted(name: str) -> None:
    figure, axes = pyplot.subplots(figsize=(1, 1), dpi=50)
    try:
        CALLS[name](axes)
        figure.canvas.draw()
    finally:
        pyplot.close(figure)


def test_a_number_cannot_be_iterated_over() -> None:
    with pytest.raises(TypeError, match="iteration over a 0-dimensional tensor"):
        iter(S)
