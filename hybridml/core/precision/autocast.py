"""The interpreter behind `autocast`: products in a narrow float, what is sensitive in float32, the rest as it comes.

It hands everything else to the level below, whose tensors are its own. Which operations are of which kind is PyTorch's
choice (its page "Automatic Mixed Precision package").
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

from .. import context
from ..eager import active_interpreter
from ..forward.interpreter import Forward
from ..interpreter import Level, Reading, below, interpret, interpreter_stack
from ..nested import Nesting
from ..tensor import Tensor

# Rows and functions of the library that compute in the narrow float; float64 stays what it is.
NARROW = frozenset((
    "matmul", "convolution", "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "scaled_dot_product_attention",
))  # fmt: skip
# Those that compute in float32, and give that.
WIDE = frozenset((
    "pow", "acos", "asin", "cosh", "sinh", "tan", "exp", "expm1", "log", "log10", "log1p", "log2", "erfinv",
    "reciprocal", "rsqrt", "prod", "sum", "mean", "var", "cumulative_sum", "cumulative_prod", "logaddexp", "softmax",
    "log_softmax", "softplus", "layer_norm", "group_norm", "rms_norm", "normalize", "cross_entropy", "nll_loss",
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy_with_logits",
    "poisson_nll_loss", "cosine_similarity", "cdist", "pairwise_distance", "ctc_loss",
))  # fmt: skip
# Functions of the library without products: one call below, whose result has the dtype of the first argument.
_AS_GIVEN = frozenset((
    "relu", "relu6", "gelu", "silu", "elu", "leaky_relu", "sigmoid", "hardtanh", "hardswish", "mish", "dropout",
    "batch_norm", "instance_norm", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "_embedding", "one_hot", "pad", "interpolate",
))  # fmt: skip

_astype = OPS["astype"]


class Autocast:
    """The interpreter of one `autocast` (see core/interpreter.py for the members). `dtype`: the narrow float."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype

    def lift(self, value: Tensor | np.ndarray) -> Tensor:
        return below(self, lambda: active_interpreter(value).lift(value))

    def constant(self, t: Tensor, weak: bool = False) -> Tensor:
        return below(self, lambda: context.constant(t, weak))

    def apply(self, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """The results, with the history that they get below: dispatch does not record them again."""
        if op.results:
            params = {name: value for name, value in params.items() if name != "result"}
        cast = self._cast_of(op.name)

        def run() -> Any:
            tensors = [cast(t) for t in operands]
            return op.fn(tensors, **params) if op.variadic else op.fn(*tensors, **params)

        found = below(self, run)
        return found if op.results else (found,)

    def widened(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operands of a row, in float32 where it computes in that: rows round to what they are given."""
        return (
            tuple([self._cast_of(op.name)(a) if isinstance(a, Tensor) else a for a in args])
            if op.name in WIDE
            else args
        )

    def call(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function of the library; NotImplemented where its operations are looked at one by one."""
        if name not in NARROW and name not in WIDE and name not in _AS_GIVEN:
            return NotImplemented
        cast = self._cast_of(name)

        def run() -> Any:
            given = [cast(a) if isinstance(a, Tensor) else a for a in args]
            found = fn(*given, **{k: cast(a) if isinstance(a, Tensor) else a for k, a in kwargs.items()})
            kept = given[0].dtype if name in _AS_GIVEN and given and isinstance(given[0], Tensor) else None
            return _astype.fn(found, kept) if kept is not None and dtypes.is_narrow(kept) else found

        return below(self, run)

    def _cast_of(self, name: str) -> Callable[[Tensor], Tensor]:
        if name in NARROW:
            return lambda t: _astype.fn(t, self.dtype) if t.dtype is dtypes.float32 or dtypes.is_narrow(t.dtype) else t
        if name in WIDE:
            return lambda t: _astype.fn(t, dtypes.float32) if dtypes.is_narrow(t.dtype) else t
        return lambda t: t

    def read(self, t: Tensor, how: Reading, what: str) -> Any:
        return below(self, lambda: active_interpreter(t).read(t, how, what))

    def write(self, t: Tensor, value: Tensor) -> None:
        below(self, lambda: active_interpreter(t).write(t, value))

    def layout(self, t: Tensor) -> np.ndarray:
        return below(self, lambda: active_interpreter(t).layout(t))

    def trust(self, t: Tensor) -> None:
        below(self, lambda: active_interpreter(t).trust(t))

    def watch(self, tensors: Iterable[Tensor]) -> Callable[[], list[tuple[Tensor, Tensor]]]:
        given = list(tensors)
        return below(self, lambda: active_interpreter(*given).watch(given))


def autocast_around() -> Autocast | None:
    """The `autocast` on top of the stack, or with nothing but transforms of functions above it; None elsewhere."""
    level = interpreter_stack()
    while level is not None and isinstance(level.interpreter, Nesting):
        level = level.beneath
    return level.interpreter if level is not None and type(level.interpreter) is Autocast else None


def forward_around() -> tuple[Forward | None, np.dtype | None]:
    """The forward mode on top of the stack, and the narrow float of an `autocast` inside of it."""
    level = interpreter_stack()
    narrow = None
    if level is not None and type(level.interpreter) is Autocast:
        narrow, level = level.interpreter.dtype, level.beneath
    found: Any = None if level is None else level.interpreter
    return (found, narrow) if type(found) is Forward else (None, None)


def autocast_alone() -> np.dtype | None:
    """The narrow float of the `autocast` in force, where nothing else interprets; None elsewhere."""
    level = interpreter_stack()
    if level is None or level.beneath is not None or type(level.interpreter) is not Autocast:
        return None
    return level.interpreter.dtype


def with_autocast(level: Level | None, dtype: np.dtype | None) -> Level | None:
    """A stack with this narrow float in place of another on its top; None: without."""
    if level is not None and type(level.interpreter) is Autocast:
        level = level.beneath
    return level if dtype is None else Level(Autocast(dtype), level)


def under_autocast(fn: Callable[..., Any], dtype: np.dtype) -> Callable[..., Any]:
    """The function with this narrow float in force while it runs."""

    @functools.wraps(fn)
    def casting(*args: Any, **kwargs: Any) -> Any:
        return interpret(Autocast(dtype), lambda: fn(*args, **kwargs))

    return casting
