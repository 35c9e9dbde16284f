"""`hybridml.checkpoint` where PyTorch's programs look for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..transforms.checkpoint import checkpoint as _checkpoint

__all__ = ["checkpoint"]


def checkpoint(
    function: Callable[..., Any], /, *args: Any, use_reentrant: bool | None = None, preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """`hm.checkpoint(function, *args, **kwargs)`, which needs neither of PyTorch's options: random numbers are kept.

    >>> import hybridml as hm
    >>> x = hm.tensor([0.5], requires_grad=True)
    >>> checkpoint(hm.exp, x, use_reentrant=False).backward()
    >>> bool(x.grad == hm.exp(x.detach()))
    True
    """
    return _checkpoint(function, *args, **kwargs)
