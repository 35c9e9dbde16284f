"""Forms in which a tensor is shown: `repr`, and a small table for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from html import escape
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler import dtypes

from ..core.autodiff.tape import Node, is_node, pull_name
from ..core.context import current_interpreter
from ..core.proxies.base import NumberProxy
from ..core.tensor import Tensor

_FEWEST, _MOST = 16, 200_000  # values of a histogram
_LARGEST = 8e307  # beyond it the distance of two is infinite
_BINS = 32


class Function(str):
    """The name of what computed a tensor: `<multiply>`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def history(t: Tensor) -> Function | None:
    """The function that a tensor is a result of; None for one without history."""
    node = t._node
    return Function(_name(node)) if is_node(node) else None


def _history(t: Tensor) -> str:
    return f", grad_fn={found}" if (found := history(t)) else ""


def _name(node: Node) -> str:
    """`<multiply>` from the name of the node's pull function."""
    parts = pull_name(node).split("_")
    name = "_".join(p for p in parts[1:] if not p.isdigit()) if parts[0] == "pull" else ""
    return f"<{name}>" if name else "<function>"


def _option(name: str, ours: int, numpys: int) -> int:
    """NumPy's print option where it was set; `ours` in place of its default value."""
    options: Mapping[str, Any] = np.get_printoptions()
    found: int = options[name]
    return ours if found == numpys else found


def text(t: Tensor) -> str:
    """`Tensor([1., 2.], requires_grad=True)`; the dtype is left out where a literal would have it."""
    leaf = ", requires_grad=True" if t._node is not None and not is_node(t._node) else ""
    tape = f"{_history(t)}{leaf})"
    array, interp = t._array, current_interpreter() or type(t).home
    if interp is not None:
        told = NumberProxy.text_of(t, partial(_told, tape), False)
        if told is not None:
            return told
        known = interp.read(t, "text", "repr()")
        array = array if known is None else known
    if type(array) is not np.ndarray:
        if type(t).home is not None:
            return f"Tensor(..., shape={t.shape}, dtype={t.dtype.name}, device={t.device.type!r}{tape}"
        return f"Tensor(traced, shape={t.shape}, dtype={t.dtype.name})"
    precision, threshold = _option("precision", 4, 8), _option("threshold", 200, 1000)
    body = np.array2string(
        array, separator=", ", prefix="Tensor(", precision=precision, floatmode="maxprec_equal", threshold=threshold
    )
    shown = (dtypes.default_float(), dtypes.int64, dtypes.bool_)
    dtype = "" if t.dtype in shown and t.numel() else f", dtype={t.dtype.name}"
    shape = f", shape={t.shape}" if array.size > threshold or not array.size else ""
    device = f", device={t.device.type!r}" if type(t).home is not None else ""
    return f"Tensor({body}{shape}{dtype}{device}{tape}"


def _told(tape: str, t: Tensor) -> str:
    """The text of a tensor without history, with what is said of the history."""
    return text(t)[:-1] + tape


def html(t: Tensor) -> str:
    """Shape, dtype, device, a few statistics, a histogram and the values, for notebooks; of a scalar its one line."""
    from .reports import render  # imported with the first page

    home = type(t).home
    array = t._array if home is None else home.read(t, "text", "repr()")
    rows = [("shape", " × ".join(map(str, t.shape))), ("dtype", t.dtype.name), ("device", str(t.device))]
    if t._node is not None:
        rows.append(("requires grad", "yes"))
    if not t.shape:
        return f"<code>{escape(text(t))}</code>"
    if type(array) is not np.ndarray:
        return render("tensor.html.jinja", rows=rows, bars=(), body="no values" if home else "traced value")
    bars: list[Bar] = []
    if array.size and array.dtype.kind not in "bc":
        with np.errstate(all="ignore"):
            wide = array.astype(np.float64)
            rows += [(name, f"{getattr(wide, name)():.6g}") for name in ("min", "max", "mean", "std")]
            bad = int(array.size - np.count_nonzero(np.isfinite(wide)))
        if bad:
            rows.append(("not finite", str(bad)))
        bars = _histogram(wide)
    return render("tensor.html.jinja", rows=rows, bars=bars, body=np.array2string(array, precision=4, threshold=60))


class Bar(NamedTuple):
    """A bin of a histogram: its number, its edges as text, how many values are in it."""

    number: int
    low: str
    high: str
    values: int


def _histogram(array: np.ndarray) -> list[Bar]:
    """Bins of the finite values; none where there are too few. In a large array every k-th value counts, so that
    showing it takes milliseconds."""
    if array.size < _FEWEST:
        return []
    values = array.reshape(-1)[:: max(1, array.size // _MOST)]
    values = values[np.isfinite(values)]
    if values.size < _FEWEST or not np.abs(values).max() < _LARGEST:
        return []
    counts, edges = np.histogram(values, min(_BINS, 2 + values.size // 4))
    labels = [f"{edge:.4g}" for edge in edges]
    return [Bar(k, labels[k], labels[k + 1], count) for k, count in enumerate(counts.tolist())]


Tensor.__repr__ = text  # type: ignore[method-assign, assignment]
Tensor._repr_html_ = html  # type: ignore[attr-defined]
