"""Likelihoods of counts, of normal variables, and of sequences whose alignment is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError

from .. import arrays as xp
from ..control_flow import scan
from ..core.context import placed
from ..core.library import compiled, compiled_for_all_sizes
from ..core.tensor import Tensor
from .losses import reduce, same_shape

_NEVER = -1e30  # the logarithm of 0, of which sums and differences are finite


@compiled
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """``exp(input) - target input``, minus the log-likelihood of Poisson counts; shapes must be equal.

    With ``log_input=False`` `input` is the rate: ``input - target log(input + eps)``. `full` adds Stirling's formula
    for ``log(target!)`` where the target is above 1. Shapes: input and target (...) alike -> (), or (...) with
    ``reduction="none"``. Raises ShapeError where they differ, ArgumentError for another `reduction`.

    >>> poisson_nll_loss(hm.asarray([0.0]), hm.asarray([3.0])).item()
    1.0
    """
    same_shape("poisson_nll_loss", input, target)
    loss = xp.exp(input) - target * input if log_input else input - target * xp.log(input + eps)
    if full:
        many = target > 1
        safe = xp.where(many, target, 1)
        stirling = safe * xp.log(safe) - safe + 0.5 * xp.log(2 * math.pi * safe)
        loss = loss + xp.where(many, stirling, 0)
    return reduce(loss, reduction)


@compiled
@placed
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """``(log var + (input - target)^2 / var) / 2`` of normal variables with variances `var`, held at `eps`.

    `var` is a number, shaped as input, as input but for a last axis of 1, or without the last axis. `full` adds the
    constant ``log(2 pi) / 2``. As in PyTorch the gradient does not see that `var` was held. Raises ShapeError for a
    `var` of another shape, ArgumentError for a negative number. Shapes (...) -> (), or (...) with
    ``reduction="none"``.

    >>> gaussian_nll_loss(hm.asarray([1.0]), hm.asarray([3.0]), hm.asarray([1.0])).item()
    2.0
    """
    if not isinstance(var, Tensor):
        if var < 0:
            raise ArgumentError(f"gaussian_nll_loss: var must not be negative, got {var}")
        given = xp.full(input.shape, var, dtype=input.dtype)
    else:
        given = var[..., None] if var.shape == input.shape[:-1] != input.shape else var
    if given.shape not in (input.shape, (*input.shape[:-1], 1)):
        raise ShapeError(
            f"gaussian_nll_loss: var must be shaped as input {input.shape}, with a last axis of 1 or without it, got "
            f"{given.shape}"
        )
    held = given + (xp.maximum(given, eps) - given).detach()
    difference = input - target
    loss = (xp.log(held) + difference * difference / held) * 0.5
    return reduce(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@compiled_for_all_sizes
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log-likelihood of label sequences over all alignments with blanks (Graves et al. 2006).

    log_probs (t, n, c) or (t, c) are log-probabilities of `input_lengths` (n,) steps; targets (n, s), or (sum of
    lengths,), hold `target_lengths` (n,) labels that are not `blank`. "mean" divides each loss by its length first. A
    target that no alignment of the steps gives costs infinity, or 0 with `zero_infinity`; its gradient is 0. Raises
    ShapeError for other shapes, DTypeError for targets that are not integers, ArgumentError for a `blank` that is no
    class.

    >>> log_p = hm.log(hm.full((2, 1, 2), 0.5))
    >>> round(ctc_loss(log_p, hm.asarray([[1]]), [2], [1]).item(), 4)  # of 4 alignments, 3 spell it
    0.2877
    """
    single = log_probs.ndim == 2
    if log_probs.ndim not in (2, 3) or targets.ndim not in (1, 2):
        raise ShapeError(
            f"ctc_loss: log_probs must be (t, n, c) or (t, c), targets (n, s) or (sum of lengths,), got "
            f"{log_probs.shape} and {targets.shape}"
        )
    if not xp.isdtype(targets.dtype, "integral"):
        raise DTypeError(f"ctc_loss: targets must be integers, got {targets.dtype.name}; use .astype(hm.int64)")
    if not 0 <= blank < log_probs.shape[-1]:
        raise ArgumentError(f"ctc_loss: blank={blank} is not one of {log_probs.shape[-1]} classes")
    steps = xp.asarray(input_lengths, dtype=xp.int64).reshape((-1,))
    lengths = xp.asarray(target_lengths, dtype=xp.int64).reshape((-1,))
    log_p = log_probs[:, None] if single else log_probs
    if log_p.dtype.itemsize < 4:  # whose range does not hold the logarithm of "never"
        log_p = log_p.astype(xp.float32)
    n = log_p.shape[1]
    if steps.shape != (n,) or lengths.shape != (n,):
        raise ShapeError(f"ctc_loss: {n} sequences have {steps.shape} input lengths and {lengths.shape} target lengths")
    labels = targets[None] if single and targets.ndim == 1 else _rows(targets, lengths)
    loss = -_log_likelihood(log_p, xp.astype(labels, xp.int64), steps, lengths, blank)
    loss = xp.where(loss > -_NEVER / 2, 0 if zero_infinity else xp.inf, loss)
    if reduction == "mean":
        loss = loss / xp.astype(xp.maximum(lengths, 1), loss.dtype)
    return xp.astype(reduce(loss[0] if single else loss, reduction), log_probs.dtype, copy=False)


@placed
def _rows(targets: Tensor, lengths: Tensor) -> Tensor:
    """Targets one after the other as (n, longest)."""
    if targets.ndim == 2:
        return targets
    longest = int(lengths.max()) if lengths.size else 0
    starts = xp.cumulative_sum(lengths, axis=0) - lengths
    place = xp.arange(longest)
    index = xp.where(place < lengths[:, None], starts[:, None] + place, 0)
    return xp.take(targets, index, axis=0) if longest else xp.zeros((lengths.shape[0], 0), dtype=xp.int64)


@placed
def _log_likelihood(log_p: Tensor, labels: Tensor, steps: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """The forward variables over blank, label, blank, ..., blank: at each step one stays, moves on by one place, or by
    two over a blank between different labels."""
    n, s = labels.shape
    count, places = log_p.shape[0], 2 * s + 1
    inside = xp.arange(s) < lengths[:, None]
    labels = xp.where(inside, labels, blank)
    blanks = xp.full((n, s), blank, dtype=xp.int64)
    path = xp.concat([xp.stack([blanks, labels], axis=2).reshape((n, 2 * s)), blanks[:, :1]], axis=1)
    if s == 0:
        path = xp.full((n, 1), blank, dtype=xp.int64)
    emitted = xp.take_along_axis(log_p, xp.broadcast_to(path, (count, n, places)), axis=2)
    emitted = xp.maximum(emitted, _NEVER)
    never = xp.full((n, 2), _NEVER, dtype=log_p.dtype)
    place = xp.arange(places)
    two_back = xp.concat([xp.full((n, 2), blank, dtype=xp.int64), path[:, : places - 2]], axis=1)[:, :places]
    skips = (place % 2 == 1) & (path != two_back)
    start = xp.where(place < 2, emitted[0], _NEVER)

    def step(before: Tensor, at: Any) -> Any:
        emission, time = at
        one = xp.concat([never[:, :1], before], axis=1)[:, :places]
        two = xp.where(skips, xp.concat([never, before], axis=1)[:, :places], _NEVER)
        highest = xp.maximum(xp.maximum(before, one), two).detach()
        total = xp.exp(before - highest) + xp.exp(one - highest) + xp.exp(two - highest)
        after = xp.maximum(highest + xp.log(total) + emission, _NEVER)
        return xp.where((time < steps)[:, None], after, before), None

    last, _ = scan(step, start, (emitted[1:], xp.arange(1, count)))
    end = xp.take_along_axis(last, (2 * lengths)[:, None], axis=1)[:, 0]
    label = xp.take_along_axis(last, xp.maximum(2 * lengths - 1, 0)[:, None], axis=1)[:, 0]
    label = xp.where(lengths > 0, label, _NEVER)
    highest = xp.maximum(end, label).detach()
    return highest + xp.log(xp.exp(end - highest) + xp.exp(label - highest))


__all__ = ["ctc_loss", "gaussian_nll_loss", "poisson_nll_loss"]
