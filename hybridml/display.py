"""How a tensor shows itself: `repr`, and a small table for notebooks."""

from __future__ import annotations

import html as _html
from typing import Any

import numpy as np

from hybridml_compiler import dtypes

from .tensor import Tensor


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
    array = t._array
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
    """Shape, dtype, device, a few statistics and the values."""
    array = t._array
    rows: list[tuple[str, str]] = [
        ("shape", " × ".join(map(str, t.shape)) or "scalar"), ("dtype", t.dtype.name), ("device", str(t.device)),
    ]  # fmt: skip
    if t._node is not None:
        rows.append(("requires grad", "yes"))
    if type(array) is np.ndarray and array.size and array.dtype.kind != "b":
        with np.errstate(all="ignore"):
            wide = array.astype(np.float64)
            rows += [("min", f"{array.min():.6g}"), ("max", f"{array.max():.6g}"), ("mean", f"{wide.mean():.6g}")]
            rows += [("std", f"{wide.std():.6g}")]
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
    return f"<div><b>Tensor</b><table>{cells}</table><pre>{body}</pre></div>"
