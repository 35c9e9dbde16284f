"""Relatives of Adam: Adamax (Kingma and Ba 2014), NAdam (Dozat 2016), RAdam (Liu et al.) and LAMB (You et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, ClassVar

from .. import arrays as xp
from ..core.tensor import Tensor
from .adam import Moments
from .formulas import adamax_norm, along, moving_mean, nadam_step, over_root, radam_step
from .group import ParameterGroup
from .per_parameter import New, PerParameter


class Adamax(PerParameter):
    """Adamax: steps along the mean of the gradients over the largest of them so far (Kingma and Ba 2014).

    `betas` are the weights of the mean and of the largest gradient; other arguments and errors are those of `Adam`.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Adamax([w], lr=0.5).step()
    >>> round(w.item(), 6)
    0.5
    """

    numbers = ("lr", "betas", "eps", "weight_decay")
    tensors = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        capturable: bool = False,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        beta1, beta2 = group["betas"]
        step_size = group["lr"] / (1 - beta1**steps)
        return {"step_size": step_size, "rest": 1 - beta1, "beta2": beta2, "eps": group["eps"]}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        mean = moving_mean.here(state["exp_avg"], g, s.rest)
        norm = adamax_norm.here(state["exp_inf"], g, s.beta2, s.eps)
        return along.here(value, mean, norm, s.step_size), {"exp_avg": mean, "exp_inf": norm}


class NAdam(Moments):
    """NAdam: Adam with Nesterov's momentum, which looks one step ahead (Dozat 2016).

    The momentum grows by a schedule of `momentum_decay`; with `decoupled_weight_decay` the decay shrinks the parameter
    as in `AdamW`. Other arguments and errors are those of `Adam`.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> NAdam([w], lr=0.5).step()
    >>> round(w.item(), 3)
    0.472
    """

    numbers = (*Moments.numbers, "momentum_decay")
    per_parameter: ClassVar[dict[str, float]] = {"mu_product": 1.0}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        own = {"momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, {**settings, **own})

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        lr = group["lr"]
        mu, product = _momentum(group, steps), self.advanced(group, steps)["mu_product"]
        ahead = _momentum(group, steps + 1)
        return {
            **super().coefficients(group, steps),
            "of_g": lr * (1 - mu) / (1 - product),
            "of_mean": lr * ahead / (1 - product * ahead),
            "correction": 1 - group["betas"][1] ** steps,
        }

    def advanced(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        return {"mu_product": group.vectors["mu_product"] * _momentum(group, steps)}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        mean, square, new = self.moments(s, g, state)
        return nadam_step.here(value, g, mean, square, s.of_g, s.of_mean, s.correction, s.eps), new


def _momentum(group: ParameterGroup, steps: Tensor) -> Tensor:
    return group["betas"][0] * (1 - 0.5 * 0.96 ** (steps * group["momentum_decay"]))


class RAdam(Moments):
    """RAdam: Adam whose rate is rectified while few gradients make its mean square uncertain (Liu et al. 2019).

    In the first steps it goes along the mean alone. With `decoupled_weight_decay` the decay shrinks the parameter as
    in `AdamW`; other arguments and errors are those of `Adam`.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> RAdam([w], lr=0.25).step()
    >>> round(w.item(), 6)
    0.5
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**settings, "decoupled_weight_decay": decoupled_weight_decay})

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        beta1, beta2 = group["betas"]
        longest = 2 / (1 - beta2) - 1  # of the mean of squares, in gradients
        length = longest - 2 * steps * beta2**steps / (1 - beta2**steps)
        square = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        rectified = xp.sqrt((1 - beta2**steps) * xp.maximum(square, 0.0))
        return {
            **super().coefficients(group, steps),
            "step_size": group["lr"] / (1 - beta1**steps),
            "rectified": xp.where(length > 5, rectified, 0.0),  # 0 where the mean square is too uncertain
        }

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        mean, square, new = self.moments(s, g, state)
        return radam_step.here(value, mean, square, s.step_size, s.rectified, s.eps), new


class LAMB(Moments):
    """LAMB: Adam's direction, scaled to the norm of its parameter (You et al. 2019).

    ``weight_decay * p`` is added to the direction; where the norm of parameter or direction is 0 the scale is 1.
    Arguments and errors are those of `Adam`.

    >>> w = hm.tensor([3.0, 4.0], requires_grad=True)
    >>> w.sum().backward()
    >>> LAMB([w], lr=0.1, weight_decay=0).step()
    >>> [round(x, 4) for x in w.tolist()]
    [2.6464, 3.6464]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        maximize: bool = False,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        beta1, beta2 = group["betas"]
        own = {"lr": group["lr"], "of_mean": 1 / (1 - beta1**steps), "of_square": 1 / (1 - beta2**steps)}
        return {**super().coefficients(group, steps), **own}

    def decayed(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return value, g  # the decay is part of the direction

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        mean, square, new = self.moments(s, g, state)
        direction = over_root.here(mean * s.of_mean, square * s.of_square, s.eps)
        if group.uses("weight_decay"):
            direction = direction + value * s.weight_decay
        length, step = (xp.sqrt((x * x).sum()) for x in (value, direction))
        both = xp.logical_and(length > 0, step > 0)
        trust = xp.where(both, length / xp.where(both, step, 1.0), 1.0)
        return value - direction * (s.lr * trust), new
