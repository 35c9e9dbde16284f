"""Pruning: weights of which some elements are masked out, by size, by norm or at random.

The parameter `weight` becomes ``weight_orig``, which is trained, and the buffer ``weight_mask``; ``module.weight`` is
their product, computed where it is read.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, TypeVar

from hybridml_compiler.errors import ArgumentError, AxisError, ShapeError

from ... import arrays as xp
from ... import linalg, random
from ...core.context import no_grad, placed
from ...core.tensor import Tensor
from ..module import Module
from .computed import Rule, outside_of_traces, rule_of, set_rule, tensor_of
from .gradients import parameters_to_vector

M = TypeVar("M", bound=Module)
Amount = int | float  # of elements or channels: a number, or a part of them


class _Pruned(Rule):
    """Rule of a weight that a method has masked."""

    kind = "prune"
    suffixes = ("_orig", "_mask")

    def __init__(self, method: BasePruningMethod) -> None:
        self.method = method

    def read(self, module: Module, name: str) -> Tensor:
        return self.method.apply_mask(module)

    def add(self, module: Module, method: BasePruningMethod, scores: Tensor | None) -> PruningContainer:
        """Prunes on top; the mask stays the same tensor."""
        name = str(method._tensor_name)
        found = PruningContainer(
            *(self.method if isinstance(self.method, PruningContainer) else (self.method,)), method
        )
        mask: Tensor = getattr(module, f"{name}_mask")
        mask.copy_(found._masked(getattr(module, name), mask.clone(), scores))
        self.method = found
        return found


class BasePruningMethod(ABC):
    """Base class of pruning methods: subclasses write ``compute_mask(t, default_mask)`` and say their ``PRUNING_TYPE``.

    That is "unstructured" (the method sees the elements that are left, as a vector), "structured" (the channels that
    are left, of its axis `dim`) or "global" (all).

    >>> class Negative(BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...
    ...     def compute_mask(self, t, default_mask):
    ...         return default_mask * (t >= 0)
    >>> layer = hm.nn.Linear(3, 2)
    >>> method = Negative.apply(layer, "weight")
    >>> bool((layer.weight >= 0).all())
    True
    """

    PRUNING_TYPE: ClassVar[Literal["unstructured", "structured", "global"]]
    _tensor_name: str | None = None

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask, of the shape of the scores `t`: 0 where pruned. `default_mask` is the one before."""

    def apply_mask(self, module: Module) -> Tensor:
        """The product of the mask of a module and its original weight."""
        original: Tensor = getattr(module, f"{self._tensor_name}_orig")
        return getattr(module, f"{self._tensor_name}_mask").astype(original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prunes a parameter, on top of what has pruned it before; returns the method, or a container of all.

        `args` and `kwargs` go to the constructor; `importance_scores` stand for the weight where a mask is computed.
        """
        outside_of_traces("prune")
        method = cls(*args, **kwargs)
        method._tensor_name = name
        rule = rule_of(module, name)
        if isinstance(rule, _Pruned):
            return rule.add(module, method, importance_scores)
        original = tensor_of(module, name, "prune")
        mask = method._masked(original, xp.ones_like(original.detach()), importance_scores)
        delattr(module, name)
        module.register_parameter(f"{name}_orig", original)
        module.register_buffer(f"{name}_mask", mask)
        set_rule(module, name, _Pruned(method))
        return method

    def _masked(self, weight: Tensor, before: Tensor, scores: Tensor | None) -> Tensor:
        """The mask of a weight, or of other scores."""
        if scores is not None and scores.shape != weight.shape:
            raise ShapeError(f"prune: importance_scores have the weight's shape {weight.shape}, got {scores.shape}")
        with no_grad():
            return self.compute_mask((weight if scores is None else scores).detach(), default_mask=before)

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """The tensor `t` with the elements at 0 that the method prunes; no module changes."""
        before = xp.ones_like(t.detach()) if default_mask is None else default_mask
        return t * self._masked(t, before, importance_scores)

    def remove(self, module: Module) -> None:
        """Makes the pruned weight an ordinary parameter, of its present value and the same object as the original."""
        name = str(self._tensor_name)
        original: Tensor = tensor_of(module, f"{name}_orig", "prune.remove")
        with no_grad():
            original.copy_(self.apply_mask(module))
        set_rule(module, name, None)
        delattr(module, f"{name}_orig")
        delattr(module, f"{name}_mask")
        module.register_parameter(name, original)


class PruningContainer(BasePruningMethod):
    """Pruning methods of one weight, in their order; its mask is that of the last one over what the others have left.

    Raises TypeError for what is no method, ArgumentError for methods of another weight.

    >>> layer = l1_unstructured(hm.nn.Linear(4, 4), "weight", 0.5)
    >>> len(L1Unstructured.apply(layer, "weight", 0.5))
    2
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if args:
            self._tensor_name = getattr(args[0], "_tensor_name", None)
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"PruningContainer: takes pruning methods, got {type(method).__name__}")
        if method._tensor_name != self._tensor_name:
            raise ArgumentError(f"PruningContainer: is of {self._tensor_name!r}, the method of {method._tensor_name!r}")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method = self._pruning_methods[-1]
        part: Any = (slice(None),) * t.ndim
        if method.PRUNING_TYPE == "unstructured":
            part = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            axis = _channels(t, method.dim)  # type: ignore[attr-defined]
            left = default_mask.sum(axis=tuple(k for k in range(t.ndim) if k != axis)) != 0
            part = (*part[:axis], left)
        elif method.PRUNING_TYPE != "global":
            raise ArgumentError(
                f"prune: PRUNING_TYPE is structured, unstructured or global, got {method.PRUNING_TYPE!r}"
            )
        found = default_mask.astype(t.dtype).clone()
        found[part] = method.compute_mask(t[part], default_mask=default_mask[part]).astype(t.dtype)
        return found


class Identity(BasePruningMethod):
    """Pruning method that prunes nothing: the mask is of ones.

    >>> layer = hm.nn.Linear(2, 2)
    >>> method = Identity.apply(layer, "weight")
    >>> layer.weight_mask.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _OfElements(BasePruningMethod):
    """Methods that prune a number of elements, or a part of them: those of the lowest scores."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Amount) -> None:
        self.amount = _amount(amount)

    @placed
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.size)
        mask = default_mask.reshape((-1,)).clone()
        mask[xp.topk(self._of(t).reshape((-1,)), count, largest=False).indices] = 0
        return mask.reshape(default_mask.shape)

    @abstractmethod
    def _of(self, t: Tensor) -> Tensor: ...


class RandomUnstructured(_OfElements):
    """Pruning method of elements at random; `amount` is their number, or the part of them as a float from 0 to 1.

    Raises TypeError for an amount that is no number, ArgumentError for one out of range.

    >>> layer = hm.nn.Linear(4, 4)
    >>> method = RandomUnstructured.apply(layer, "weight", 0.5)
    >>> layer.weight_mask.sum().item()
    8.0
    """

    def _of(self, t: Tensor) -> Tensor:
        return random.uniform(t.shape)


class L1Unstructured(_OfElements):
    """Pruning method of the elements of smallest modulus; `amount` is their number, or the part of them (0 to 1).

    Raises TypeError for an amount that is no number, ArgumentError for one out of range.

    >>> L1Unstructured(2).prune(hm.tensor([0.5, -3.0, 1.0])).tolist()
    [0.0, -3.0, 0.0]
    """

    def _of(self, t: Tensor) -> Tensor:
        return xp.abs(t)


class _OfChannels(BasePruningMethod):
    """Methods that prune a number of slices of an axis, or a part of them: those of the lowest scores."""

    PRUNING_TYPE = "structured"
    dim: int

    @placed
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        axis = _channels(t, self.dim)
        channels = t.shape[axis]
        count = _count(self.amount, channels)
        kept = xp.ones(channels, dtype=default_mask.dtype)
        kept[xp.topk(self._of(t, axis), count, largest=False).indices] = 0
        return default_mask * kept.reshape([-1 if k == axis else 1 for k in range(t.ndim)])

    amount: Amount

    @abstractmethod
    def _of(self, t: Tensor, axis: int) -> Tensor: ...


class RandomStructured(_OfChannels):
    """Pruning method of slices of axis `dim` at random; `amount` is their number, or the part of them (0 to 1).

    Raises TypeError for an amount that is no number, ArgumentError for one out of range and for vectors, AxisError for
    an axis that is not there.

    >>> layer = hm.nn.Linear(4, 4)
    >>> method = RandomStructured.apply(layer, "weight", 1, dim=0)
    >>> sorted(layer.weight_mask.sum(axis=1).tolist())
    [0.0, 4.0, 4.0, 4.0]
    """

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        self.amount, self.dim = _amount(amount), dim

    def _of(self, t: Tensor, axis: int) -> Tensor:
        return random.uniform((t.shape[axis],))


class LnStructured(_OfChannels):
    """Pruning method of the slices of axis `dim` whose norm of order `n` is smallest; `amount` as `RandomStructured`.

    `n`: a number, infinity, "fro" or "nuc", the latter for slices that are matrices. Errors as `RandomStructured`.

    >>> LnStructured(1, n=2, dim=0).prune(hm.tensor([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """

    def __init__(self, amount: Amount, n: float | str, dim: int = -1) -> None:
        self.amount, self.n, self.dim = _amount(amount), n, dim

    def _of(self, t: Tensor, axis: int) -> Tensor:
        rows = xp.moveaxis(t, axis, 0)
        if self.n == "nuc":
            if t.ndim != 3:
                raise ArgumentError(f"prune: n='nuc' is of slices that are matrices, got a tensor of shape {t.shape}")
            return linalg.matrix_norm(rows, ord="nuc")
        order = 2 if self.n == "fro" else self.n
        return linalg.vector_norm(rows, axis=tuple(range(1, t.ndim)), ord=order)  # type: ignore[arg-type]


class CustomFromMask(BasePruningMethod):
    """Pruning method with a mask that is given.

    >>> CustomFromMask(hm.tensor([1, 0])).prune(hm.tensor([3.0, 4.0])).tolist()
    [3.0, 0.0]
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = xp.asarray(mask)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        found = default_mask * self.mask.astype(default_mask.dtype)
        if found.shape != default_mask.shape:
            raise ShapeError(f"prune: a mask of shape {self.mask.shape} does not fit a weight of {default_mask.shape}")
        return found


def _amount(amount: Any) -> Amount:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"prune: amount must be an int or a float, got {amount!r}")
    found = int(amount) if isinstance(amount, numbers.Integral) else float(amount)
    if found < 0 or (isinstance(found, float) and not found <= 1):
        raise ArgumentError(f"prune: amount is a float from 0 to 1 or a count from 0 on, got {amount}")
    return found


def _count(amount: Amount, size: int) -> int:
    """The number of elements or channels to prune, of so many."""
    count = amount if isinstance(amount, int) else round(amount * size)
    if count > size:
        raise ArgumentError(f"prune: amount={amount} is more than there are to prune, {size}")
    return count


def _channels(t: Tensor, dim: int) -> int:
    """The axis of the channels, from 0."""
    if t.ndim < 2:
        raise ArgumentError(f"prune: channels are of tensors of two axes or more, got a tensor of shape {t.shape}")
    if not -t.ndim <= dim < t.ndim:
        raise AxisError(f"prune: axis {dim} is out of range for a tensor of shape {t.shape}")
    return dim % t.ndim


def identity(module: M, name: str) -> M:
    """Gives a parameter the tensors of pruning, with a mask of ones; returns the module.

    >>> list(identity(hm.nn.Linear(2, 2), "weight").state_dict())
    ['bias', 'weight_orig', 'weight_mask']
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: Amount) -> M:
    """Prunes elements of a parameter at random, as `RandomUnstructured`; returns the module.

    >>> random_unstructured(hm.nn.Linear(4, 4), "weight", amount=3).weight_mask.sum().item()
    13.0
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: M, name: str, amount: Amount, importance_scores: Tensor | None = None) -> M:
    """Prunes the elements of a parameter of smallest modulus (of `importance_scores`, if given); returns the module.

    >>> l1_unstructured(hm.nn.Linear(4, 4), "weight", amount=0.25).weight_mask.sum().item()
    12.0
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: Amount, dim: int) -> M:
    """Prunes slices of axis `dim` of a parameter at random, as `RandomStructured`; returns the module.

    >>> random_structured(hm.nn.Linear(4, 4), "weight", amount=2, dim=1).weight_mask.sum().item()
    8.0
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: M, name: str, amount: Amount, n: float | str, dim: int, importance_scores: Tensor | None = None
) -> M:
    """Prunes the slices of axis `dim` of a parameter with the smallest norms of order `n`; returns the module.

    >>> ln_structured(hm.nn.Conv2d(2, 4, 3), "weight", amount=0.5, n=2, dim=0).weight_mask[:, 0, 0, 0].sum().item()
    2.0
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Any,
    pruning_method: type[BasePruningMethod],
    importance_scores: Mapping[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prunes several parameters as if they were one vector, by an unstructured method; `kwargs` are its arguments.

    `parameters`: pairs (module, name); `importance_scores` by such a pair. Raises TypeError for a structured method.

    >>> first, second = hm.nn.Linear(4, 4), hm.nn.Linear(4, 1)
    >>> global_unstructured([(first, "weight"), (second, "weight")], L1Unstructured, amount=10)
    >>> (first.weight_mask.sum() + second.weight_mask.sum()).item()
    10.0
    """
    if not isinstance(parameters, Iterable) or not isinstance(importance_scores or {}, Mapping):
        raise TypeError(
            "global_unstructured: takes an iterable of pairs (module, name), and importance_scores as a dict"
        )
    pairs, given = list(parameters), importance_scores or {}
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(f"global_unstructured: takes unstructured methods, {pruning_method.__name__} is not")
    for module, name in pairs:  # before any is pruned
        if not isinstance(rule_of(module, name), _Pruned):
            tensor_of(module, name, "global_unstructured")
    with no_grad():
        weights = [getattr(module, name) for module, name in pairs]
        scores = [given.get(pair, weight) for weight, pair in zip(weights, pairs, strict=True)]
        before = [
            getattr(module, f"{name}_mask", xp.ones_like(w)) for w, (module, name) in zip(weights, pairs, strict=True)
        ]
        mask = PruningContainer(method).compute_mask(parameters_to_vector(scores), parameters_to_vector(before))
    start = 0
    for weight, (module, name) in zip(weights, pairs, strict=True):
        custom_from_mask(module, name, mask[start : start + weight.size].reshape(weight.shape))
        start += weight.size


def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prunes the elements of a parameter where `mask`, of its shape, is 0; returns the module.

    >>> custom_from_mask(hm.nn.Linear(2, 3), "bias", mask=hm.tensor([0, 1, 0])).bias_mask.tolist()
    [0.0, 1.0, 0.0]
    """
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: M, name: str) -> M:
    """Makes a pruned parameter an ordinary one, in which the pruned elements are 0; returns the module.

    Raises ArgumentError where it is not pruned.

    >>> list(remove(l1_unstructured(hm.nn.Linear(2, 2), "weight", 2), "weight").state_dict())
    ['bias', 'weight']
    """
    rule = rule_of(module, name)
    if not isinstance(rule, _Pruned):
        raise ArgumentError(f"prune.remove: {name!r} of this {type(module).__name__} is not pruned")
    rule.method.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of a module, or of one below it, is pruned.

    >>> is_pruned(hm.nn.Sequential(l1_unstructured(hm.nn.Linear(2, 2), "bias", 1)))
    True
    """
    return any(
        isinstance(rule, _Pruned) for each in module.modules() for rule in vars(each).get("_computed", {}).values()
    )


__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned",
    "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]  # fmt: skip
