"""Mixed precision by the names of torch.amp: `autocast` and `GradScaler`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError

from .arrays.creation import full, tensor, zeros
from .core import ops
from .core.autodiff.sparse import SparseGradient
from .core.context import no_grad
from .core.interpreter import Level, interpreter_stack, interpreter_var
from .core.precision.autocast import with_autocast
from .core.tensor import Tensor
from .optim.optimizer import Optimizer

__all__ = ["GradScaler", "autocast"]


class autocast:
    """Context manager or decorator: products, convolutions and attention inside compute in a narrow float.

    Parameters stay float32. Sensitive operations (softmax, losses, norms, sums, exponentials) compute in float32, all
    others in what they are given; a float64 stays one. Gradients come back in the dtype of their tensor: `backward`
    goes outside of the block. dtype: bfloat16 or float16; a first argument "cpu" or "cuda" is PyTorch's. A traced
    function that is called inside is another program for each dtype.

    >>> import hybridml as hm
    >>> layer = hm.nn.Linear(4, 2)
    >>> with hm.autocast(dtype=hm.bfloat16):
    ...     y = layer(hm.ones((3, 4)))
    >>> y.dtype.name, layer.weight.dtype.name, hm.softmax(y, -1).dtype.name
    ('bfloat16', 'float32', 'bfloat16')
    """

    def __init__(
        self, device_type: Any = None, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        given = dtype
        if device_type is not None and not isinstance(device_type, str):  # `autocast(hm.bfloat16)`
            device_type, given = None, device_type
        default = dtypes.float16 if device_type == "cuda" else None
        self.dtype = dtypes.canonical(given) if given is not None else default or dtypes.canonical("bfloat16")
        if not dtypes.is_narrow(self.dtype):
            raise DTypeError(f"autocast: dtype is bfloat16 or float16, got {self.dtype.name}")
        self.enabled = enabled
        self._outer: list[Level | None] = []

    def __enter__(self) -> autocast:
        self._outer.append(interpreter_stack())
        interpreter_var.set(with_autocast(interpreter_stack(), self.dtype if self.enabled else None))
        return self

    def __exit__(self, *exc: object) -> None:
        interpreter_var.set(self._outer.pop())

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with autocast(dtype=self.dtype, enabled=self.enabled):
                return fn(*args, **kwargs)

        return wrapper


class GradScaler:
    """Scales a loss, so that gradients in float16 do not vanish, and adapts the scale: it halves where a gradient is
    infinite or nan, whose step is skipped, and doubles after `growth_interval` steps without.

    Methods and `state_dict` are those of torch.amp.GradScaler; they work inside of traced functions. Source:
    Micikevicius et al., "Mixed precision training" (2018).

    >>> import hybridml as hm
    >>> w = hm.ones(2, requires_grad=True)
    >>> optimizer, scaler = hm.optim.SGD([w], lr=0.1), hm.amp.GradScaler(init_scale=8.0)
    >>> scaler.scale((w * w).sum()).backward()
    >>> w.grad.tolist()
    [16.0, 16.0]
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> [round(v, 3) for v in w.tolist()]
    [0.8, 0.8]
    """

    def __init__(
        self,
        device: Any = None,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if growth_factor <= 1 or not 0 < backoff_factor < 1:
            raise ArgumentError(
                "GradScaler: growth_factor is above 1 and backoff_factor between 0 and 1, got "
                f"{growth_factor} and {backoff_factor}"
            )
        self._growth, self._backoff, self._interval, self._enabled = (
            growth_factor, backoff_factor, growth_interval, enabled
        )  # fmt: skip
        self._scale, self._good = tensor(float(init_scale), dtype=dtypes.float32), zeros((), dtype=dtypes.int32)
        self._found = full((), False, dtype=dtypes.bool_)  # a gradient of this step that is not finite
        self._unscaled: set[int] = set()  # optimizers whose gradients are, in this step

    def scale(self, outputs: Any) -> Any:
        """Outputs times the scale; a tensor, or a list or tuple of them."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, list | tuple):
            return type(outputs)(self.scale(o) for o in outputs)
        return outputs * self._scale.astype(outputs.dtype)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients of an optimizer by the scale, as for clipping; `step` does it otherwise."""
        if not self._enabled:
            return
        if id(optimizer) in self._unscaled:
            raise ArgumentError("GradScaler: unscale_ has been called for this optimizer since the last update()")
        self._unscaled.add(id(optimizer))
        with no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.mul_((1.0 / self._scale).astype(p.grad.dtype))
                        grad = p.grad._values() if type(p.grad) is SparseGradient else p.grad
                        self._found |= ops.logical_not(ops.all(ops.isfinite(grad)))

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step()`, unless a gradient is infinite or nan."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        return None if self._found else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapts the scale, at the end of each step."""
        self._unscaled.clear()
        if not self._enabled:
            return
        with no_grad():
            if new_scale is not None:
                self._scale.copy_(new_scale)
            else:
                good = ops.where(self._found, 0, self._good + 1)
                grows = good >= self._interval
                factor = ops.where(self._found, self._backoff, ops.where(grows, self._growth, 1.0))
                self._scale.copy_(self._scale * factor.astype(dtypes.float32))
                self._good.copy_(ops.where(grows, 0, good).astype(dtypes.int32))
            self._found.copy_(ops.logical_and(self._found, False))

    def get_scale(self) -> float:
        """The scale as a number."""
        return float(self._scale) if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale and what it adapts by, as PyTorch's has it."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth, "backoff_factor": self._backoff,
            "growth_interval": self._interval, "_growth_tracker": int(self._good),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state of `state_dict`."""
        if not self._enabled:
            return
        missing = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"} - state.keys()
        if missing:
            raise ArgumentError(f"GradScaler: the state lacks {', '.join(sorted(missing))}")
        self._scale.copy_(state["scale"])
        self._good.copy_(state["_growth_tracker"])
        self._growth, self._backoff = state["growth_factor"], state["backoff_factor"]
        self._interval = state["growth_interval"]
