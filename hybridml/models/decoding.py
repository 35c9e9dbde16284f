"""Searches for a translation, token by token: the most likely one each time, or the best of several kept side by side.

Both call `step(written, t, state)`, with the tokens so far (rows, length + 1), of which t is the last one, and what a
decoder keeps, (k, rows, ...). It returns logits (rows, vocab_size) of the next tokens and the new state. After `end`
comes padding, 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import hybridml as hm
from hybridml import Tensor, nn
from hybridml.nn import functional as F

Step = Callable[[Tensor, int, Tensor], tuple[Tensor, Tensor]]


def greedy(step: Step, state: Tensor, starts: Tensor, length: int, end: int) -> Tensor:
    """The most likely token each time: starts (n,) -> translations (n, length)."""
    written = starts.new_zeros((starts.shape[0], length + 1))
    written[:, 0] = starts
    going = hm.ones_like(starts)
    for t in range(length):
        logits, state = step(written, t, state)
        token = logits.argmax(-1) * going
        written[:, t + 1] = token
        going = going * (token != end)
        if not going.any():
            break
    return written[:, 1:]


def beam(step: Step, state: Tensor, starts: Tensor, length: int, end: int, width: int, alpha: float) -> Tensor:
    """The best of `width` translations kept side by side: starts (n,) -> (n, length).

    The step sees `width` rows for each start, side by side. The logarithm of the likelihood of a translation of l
    tokens is divided by ((5 + l) / 6)**alpha, as in Wu et al. 2016, but for its penalty of what was not attended to.
    """
    n = starts.shape[0]
    written = starts.new_zeros((n * width, length + 1))
    written[:, 0] = starts.repeat_interleave(width)
    firsts = hm.arange(n, device=starts.device)[:, None] * width
    going = hm.ones_like(written[:, 0])
    counts = hm.zeros_like(going)
    scores = hm.full((n, width), -math.inf, device=starts.device)
    scores[:, 0] = 0.0  # the others are copies of the first one
    for t in range(length):
        logits, state = step(written, t, state)
        steps = F.log_softmax(logits.float(), -1)
        padding = hm.arange(steps.shape[1], device=starts.device) == 0
        ended = hm.where(padding, 0.0, -math.inf)
        totals = scores.reshape(-1, 1) + hm.where(going[:, None] > 0, steps, ended)
        vocab_size = totals.shape[1]
        scores, places = hm.topk(totals.reshape(n, -1), width)
        order = (firsts + places // vocab_size).reshape(-1)
        token = (places % vocab_size).reshape(-1)
        state = state[:, order]
        written = written[order]
        written[:, t + 1] = token
        counts = counts[order] + going[order]
        going = going[order] * (token != end)
        if not going.any():
            break
    best = (scores / ((5.0 + counts.reshape(n, width)) / 6.0) ** alpha).argmax(1)
    return written[firsts[:, 0] + best, 1:]


class Translator(nn.Module):
    """A model that translates token by token, by the step and the first state that its `searched` gives."""

    def searched(self, source: Tensor, lengths: Tensor, copies: int) -> tuple[Any, Tensor]:
        """The step of the searches and its first state, with `copies` rows for each source (n, s)."""
        raise NotImplementedError

    @hm.no_grad()
    def greedy(self, source: Tensor, lengths: Tensor, length: int, start: int = 1, end: int = 2) -> Tensor:
        """Translations (n, length) of source (n, s) by the most likely token each time. Call `eval()` before."""
        return greedy(*self.searched(source, lengths, 1), hm.full_like(source[:, 0], start), length, end)

    @hm.no_grad()
    def beam(
        self,
        source: Tensor,
        lengths: Tensor,
        length: int,
        start: int = 1,
        end: int = 2,
        width: int = 4,
        alpha: float = 0.6,
    ) -> Tensor:
        """Translations (n, length) of source (n, s), each the best of `width`. Call `eval()` before."""
        starts = hm.full_like(source[:, 0], start)
        return beam(*self.searched(source, lengths, width), starts, length, end, width, alpha)
