"""L-BFGS (Liu and Nocedal 1989) with a line search for the strong Wolfe conditions (Nocedal and Wright 2006)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.context import current_interpreter, enable_grad, no_grad
from ..core.tensor import Tensor
from ..nn.parameter import commit
from .checks import complaint
from .optimizer import Optimizer
from .parts import held_as, parts

DECREASE, CURVATURE = 1e-4, 0.9  # constants of the conditions


class LBFGS(Optimizer):
    """L-BFGS: steps along the gradient times an inverse Hessian of the last steps (Liu and Nocedal 1989).

    The Hessian is of `history_size` steps. ``step(closure)`` runs up to `max_iter` iterations and `max_eval` calls of
    `closure`, which computes the gradients and returns the loss; it returns the first loss. With `line_search_fn`
    "strong_wolfe" the length of a step is searched for, else it is `lr`. It ends early where no gradient is above
    `tolerance_grad`, or loss or parameters change by less than `tolerance_change`. How often the closure is called
    depends on its values: trace the closure, not the step. Raises ArgumentError for parameter groups, another search
    or a negative rate.

    >>> w = hm.tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = LBFGS([w], line_search_fn="strong_wolfe")
    >>> @hm.trace
    ... def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - 1) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item()
    13.0
    >>> [round(x, 5) for x in w.tolist()]
    [1.0, 1.0]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        wrong = complaint("lr", lr, {})
        if wrong is not None:
            raise ArgumentError(f"LBFGS: {wrong}")
        if line_search_fn not in (None, "strong_wolfe"):
            raise ArgumentError(f"LBFGS: only 'strong_wolfe' is supported, got {line_search_fn!r}")
        limits = {"max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval}
        tolerances = {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change}
        search = {"history_size": history_size, "line_search_fn": line_search_fn, "maximize": maximize}
        super().__init__(params, {"lr": lr, **limits, **tolerances, **search})
        if len(self.param_groups) != 1:
            raise ArgumentError("LBFGS doesn't support per-parameter options (parameter groups)")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Runs iterations until one of the limits or tolerances; returns the first loss of `closure`."""
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        if current_interpreter() is not None:
            from ..tracing.specialize.errors import Untraceable

            raise Untraceable("L-BFGS decides by values how often it calls its closure: trace the closure")
        group, state = self.param_groups[0], self.state[self.param_groups[0]["params"][0]]
        lr, search = float(group["lr"]), group["line_search_fn"]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        with no_grad():
            first, here = self._evaluated(closure)
            evaluations, iterations = 1, 0
            state["func_evals"] += 1
            if largest(here.gradient) <= group["tolerance_grad"]:
                return first
            while iterations < group["max_iter"]:
                iterations += 1
                state["n_iter"] += 1
                d = state["d"] = self._direction(state, here.gradient, group["history_size"])
                state["prev_flat_grad"], state["prev_loss"] = here.gradient, here.loss
                start = min(1.0, 1.0 / float(xp.abs(here.gradient).sum())) if state["n_iter"] == 1 else 1.0
                t, slope, start_at = start * lr, dot(here.gradient, d), self._values()
                state["t"] = t
                if slope > -group["tolerance_change"]:
                    break
                before, calls = here.loss, 0

                def at(t: float, d: Tensor = d, start_at: list[Tensor] = start_at) -> Point:
                    self._move(start_at, t, d)
                    found = self._evaluated(closure)[1]
                    return found._replace(t=t, slope=dot(found.gradient, d))

                if search is not None:
                    left = group["max_eval"] - evaluations
                    origin = here._replace(t=0.0, slope=slope)
                    here, calls = strong_wolfe(at, origin, t, largest(d), group["tolerance_change"], left)
                    state["t"] = t = float(here.t)
                    self._move(start_at, t, d)
                elif iterations < group["max_iter"]:  # after the last step nothing would use the gradient
                    here, calls = at(t), 1
                else:
                    self._move(start_at, t, d)
                evaluations += calls
                state["func_evals"] += calls
                if (
                    iterations == group["max_iter"]
                    or evaluations >= group["max_eval"]
                    or largest(here.gradient) <= group["tolerance_grad"]
                    or largest(d) * abs(t) <= group["tolerance_change"]
                    or abs(here.loss - before) < group["tolerance_change"]
                ):
                    break
        return first

    def _evaluated(self, closure: Callable[[], Any]) -> tuple[Any, Point]:
        with enable_grad():
            loss = closure()
        flat = []
        for p in self.param_groups[0]["params"]:
            g = xp.zeros_like(parts(p)) if p.grad is None else parts(p.grad)
            flat.append(g.reshape(-1))
        gradient = xp.concat(flat)  # a copy, also of one: the next call may write into p.grad
        sign = -1 if self.param_groups[0]["maximize"] else 1
        return loss, Point(0.0, sign * float(loss), -gradient if sign < 0 else gradient, 0.0)

    def _values(self) -> list[Tensor]:
        return [parts(p).clone() for p in self.param_groups[0]["params"]]

    def _move(self, start: list[Tensor], t: float, d: Tensor) -> None:
        """Sets the parameters to `t` times the direction from where the search started."""
        writes, at = [], 0
        for p, value in zip(self.param_groups[0]["params"], start, strict=True):
            size = math.prod(value.shape)
            new = value + d[at : at + size].reshape(value.shape) * float(t)
            writes.append((p, held_as(new, p.dtype)))
            at += size
        commit(writes)

    def _direction(self, state: dict[str, Any], gradient: Tensor, history_size: int) -> Tensor:
        """The gradient times the inverse Hessian, downhill; the last step joins the history."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -gradient
        y, s = gradient - state["prev_flat_grad"], state["d"] * float(state["t"])
        ys = xp.vecdot(y, s)
        ys_value = float(ys)
        history = state["old_dirs"], state["old_stps"], state["ro"]
        if ys_value > 1e-10:
            for kept, new in zip(history, (y, s, 1 / ys), strict=True):
                if len(kept) == history_size:
                    kept.pop(0)
                kept.append(new)
            state["H_diag"] = ys_value / float(xp.vecdot(y, y))
        q, weights = -gradient, []
        for y, s, ro in zip(*map(reversed, history), strict=True):
            weights.append(xp.vecdot(s, q) * ro)
            q = q - y * weights[-1]
        q = q * float(state["H_diag"])
        for y, s, ro, weight in zip(*history, reversed(weights), strict=True):
            q = q + s * (weight - xp.vecdot(y, q) * ro)
        return q


class Point(NamedTuple):
    """A point on the line of a search: how far, its loss, gradient and slope along the line."""

    t: float
    loss: float
    gradient: Tensor
    slope: float


def strong_wolfe(
    at: Callable[[float], Point], start: Point, t: float, size: float, tolerance: float, limit: int
) -> tuple[Point, int]:
    """A point that satisfies the strong Wolfe conditions, or the best of `limit` points, and their number.

    `at` evaluates a point; `size` is the largest change along the line for t = 1, below whose `tolerance` no bracket is
    divided further. Nocedal and Wright 2006, algorithms 3.5 and 3.6, in PyTorch's form.
    """

    def rises(point: Point) -> bool:
        return point.loss > start.loss + DECREASE * point.t * start.slope

    def flat(point: Point) -> bool:
        return abs(point.slope) <= -CURVATURE * start.slope

    before, here, calls = start, at(t), 1
    while True:
        if calls > limit:
            bracket = [start, here]
            break
        if rises(here) or (calls > 2 and here.loss >= before.loss):
            bracket = [before, here]
            break
        if flat(here):
            return here, calls
        if here.slope >= 0:
            bracket = [before, here]
            break
        nearest, farthest = here.t + 0.01 * (here.t - before.t), here.t * 10
        before, here = here, at(cubic(before, here, nearest, farthest))
        calls += 1

    low, stuck = int(bracket[0].loss > bracket[1].loss), False  # which of them has the lower loss
    while calls <= limit and abs(bracket[1].t - bracket[0].t) * size >= tolerance:
        least, most = sorted(point.t for point in bracket)
        t = cubic(bracket[0], bracket[1], least, most)
        # Near an end of the bracket for the second time, or at it: a tenth of the bracket away from there.
        edge = 0.1 * (most - least)
        near = min(most - t, t - least) < edge
        if near and (stuck or t >= most or t <= least):
            t, near = most - edge if abs(t - most) < abs(t - least) else least + edge, False
        stuck = near
        here = at(t)
        calls += 1
        if rises(here) or here.loss >= bracket[low].loss:
            bracket[1 - low] = here
            low = int(bracket[0].loss > bracket[1].loss)
            continue
        if flat(here):
            return here, calls
        if here.slope * (bracket[1 - low].t - bracket[low].t) >= 0:
            bracket[1 - low] = bracket[low]
        bracket[low] = here
    return bracket[low], calls


def cubic(one: Point, other: Point, least: float, most: float) -> float:
    """The least point, within bounds, of the cubic through two points and their slopes; their middle without one."""
    if one.t > other.t:
        one, other = other, one
    d1 = one.slope + other.slope - 3 * (one.loss - other.loss) / (one.t - other.t)
    square = d1 * d1 - one.slope * other.slope
    d2 = square**0.5 if square > 0 else 0.0
    scale = other.slope - one.slope + 2 * d2
    if not square >= 0 or scale == 0:
        return (least + most) / 2
    found = other.t - (other.t - one.t) * ((other.slope + d2 - d1) / scale)
    return min(max(found, least), most)


def largest(x: Tensor) -> float:
    """The largest size of an element."""
    return float(xp.abs(x).max())


def dot(x: Tensor, y: Tensor) -> Any:
    """The sum of the products of two vectors, a number of their dtype.

    In float32 a search must not ask for a decrease that is below the digits of the loss, so its sums are float32's.
    """
    return x.dtype.type(float(xp.vecdot(x, y)))
