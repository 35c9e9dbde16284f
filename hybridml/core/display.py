"""How a tensor shows itself: `repr`, and a small table for notebooks."""

from __future__ import annotations

import html as _html
from typing import Any

import numpy as np

from hybridml_compiler import dtypes

from .context import current_interpreter
from .tensor import Tensor

_FEWEST, _MOST = 16, 200_000  # values of a histogram
_LARGEST = 8e307  # beyond it the distance of two is infinite
_BINS, _WIDTH = 32, 260


def _history(t: Tensor) -> str:
    node = t._node
    if node is None:
        return ""
    return "" if type(node) is not list else f", grad_fn={_name(node)}"


def _name(node: list[Any]) -> str:
    """`<multiply>` from the name of the node's pull function."""
    pull = getattr(node[1], "pull", node[1])
    parts = getattr(pull, "__name__", "").split("_")
    name = "_".join(p for p in parts[1:] if not p.isdigit()) if parts[0] == "pull" else ""
    return f"<{name}>" if name else "<function>"


def text(t: Tensor) -> str:
    """`Tensor([1., 2.], requires_grad=True)`; the dtype is left out where a literal would have it."""
    array, interp = t._array, current_interpreter()
    if interp is not None and isinstance(t, interp.cls) and interp.ask is not None and not interp.frames:
        array = interp.values(t, "repr()")
    if type(array) is not np.ndarray:
        return f"Tensor(traced, shape={t.shape}, dtype={t.dtype.name})"
    body = np.array2string(
        array, separator=", ", prefix="Tensor(", precision=4, floatmode="maxprec_equal", threshold=200
    )
    shown = (dtypes.default_float(), dtypes.int64, dtypes.bool_)
    dtype = "" if t.dtype in shown and t.size else f", dtype={t.dtype.name}"
    shape = f", shape={t.shape}" if array.size > 200 or not array.size else ""
    leaf = ", requires_grad=True" if t._node is not None and type(t._node) is not list else ""
    return f"Tensor({body}{shape}{dtype}{_history(t)}{leaf})"


def html(t: Tensor) -> str:
    """Shape, dtype, device, a few statistics, a histogram and the values."""
    array = t._array
    rows: list[tuple[str, str]] = [
        ("shape", " × ".join(map(str, t.shape)) or "scalar"), ("dtype", t.dtype.name), ("device", str(t.device)),
    ]  # fmt: skip
    if t._node is not None:
        rows.append(("requires grad", "yes"))
    if type(array) is np.ndarray and array.size and array.dtype.kind not in "bc":
        with np.errstate(all="ignore"):
            wide = array.astype(np.float64)
            rows += [(name, f"{getattr(wide, name)():.6g}") for name in ("min", "max", "mean", "std")]
            bad = int(array.size - np.count_nonzero(np.isfinite(wide)))
        if bad:
            rows.append(("not finite", str(bad)))
    cells = "".join(
        f"<tr><th style='text-align:left'>{_html.escape(k)}</th><td style='text-align:left'>{_html.escape(v)}</td></tr>"
        for k, v in rows
    )
    body = _html.escape(
        np.array2string(array, precision=4, threshold=60) if type(array) is np.ndarray else "traced value"
    )
    table = f"<div><b>Tensor</b><table>{cells}</table></div>{_histogram(array)}"
    return f"<div><div style='display:flex;gap:2em;align-items:end'>{table}</div><pre>{body}</pre></div>"


def _histogram(array: Any) -> str:
    """How the finite values spread, as SVG: of the first bin's lower edge to the last one's upper. Of a large array
    every k-th value counts, so that looking at it stays a matter of milliseconds."""
    if type(array) is not np.ndarray or array.size < _FEWEST or array.dtype.kind in "bc":
        return ""
    values = array.reshape(-1)[:: max(1, array.size // _MOST)].astype(np.float64)
    values = values[np.isfinite(values)]
    if values.size < _FEWEST or not np.abs(values).max() < _LARGEST:
        return ""
    counts, edges = np.histogram(values, min(_BINS, 2 + values.size // 4))
    wide = _WIDTH / len(counts)
    bars = "".join(
        f"<rect x='{k * wide:.1f}' y='{60 - height:.1f}' width='{max(wide - 1, 1):.1f}' height='{height:.1f}' "
        f"fill='#2b6cb0'><title>{edges[k]:.4g} to {edges[k + 1]:.4g}: {count}</title></rect>"
        for k, (count, height) in enumerate(zip(counts, 58 * counts / counts.max(), strict=True))
        if count
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='76' font-size='10' font-family='sans-serif'>"
        f"{bars}<line x1='0' x2='{_WIDTH}' y1='60.5' y2='60.5' stroke='#a0aec0'/>"
        f"<text x='0' y='73' fill='#718096'>{edges[0]:.4g}</text>"
        f"<text x='{_WIDTH}' y='73' fill='#718096' text-anchor='end'>{edges[-1]:.4g}</text></svg>"
    )


Tensor.__repr__ = text  # type: ignore[method-assign, assignment]
Tensor._repr_html_ = html  # type: ignore[attr-defined]
