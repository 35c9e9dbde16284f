"""Styles of layers that processes compute together: which part of the parameters each has, and what moves.

The layer's own `forward` computes with the parts. Source: Megatron-LM (Shoeybi et al., 2019); names are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from ... import functional as F
from ...arrays.creation import arange
from ...arrays.indexing.selecting import where
from ...core.tensor import Tensor
from ...nn.linear import Embedding, EmbeddingBag
from ...nn.module import Module
from ...nn.utils.replaced import replaced
from ..groups import Group
from ..transport import is_whole
from .redistribute import Axis, Placed, Replicate, Shard, added, cut, once, used, whole

Forward = Callable[..., Any]
_WHOLE, _LAST = Replicate(), Shard(-1)


class ParallelStyle:
    """Base of the styles of `parallelize_module`: says how the processes of a group compute a layer together.

    >>> from hybridml import distributed as dist
    >>> isinstance(dist.ColwiseParallel(), dist.ParallelStyle)
    True
    """

    def layouts(self, module: Module, size: int) -> dict[str, Axis]:
        """The layouts of the layer's parameters that are cut, by their names."""
        raise NotImplementedError

    def forward(self, module: Module, group: Group, inner: Forward, *args: Any, **kwargs: Any) -> Any:
        """Returns the layer's result, which its own `forward` computes with parts."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ColwiseParallel(ParallelStyle):
    """Each process has an equal part of the layer's outputs: of the features of a linear layer or an embedding.

    input_layouts: `Replicate()`, an input that all processes have, or `Shard(dim)`, whose parts are gathered before.
    output_layouts: `Shard(-1)`, the part of the features that this process has, or `Replicate()`, all of them.
    packed: how many equal matrices the weight has after each other along its outputs; each of them is cut. It is 3 for
    queries, keys and values in one, of which each process then has those of its heads.

    Raises ArgumentError for other layouts.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     layer = dist.parallelize_module(hm.nn.Linear(4, 6), None, dist.ColwiseParallel())
    ...     return layer.weight.shape, layer(hm.ones((2, 4))).shape
    >>> dist.run_threads(2, step)
    [((3, 4), (2, 3)), ((3, 4), (2, 3))]
    """

    input_layouts: Placed = _WHOLE
    output_layouts: Placed = _LAST
    packed: int = 1

    def __post_init__(self) -> None:
        _check_layout("ColwiseParallel: input_layouts", self.input_layouts, (Replicate, Shard))
        _check_layout("ColwiseParallel: output_layouts", self.output_layouts, (Replicate, _LAST))
        if not is_whole(self.packed) or self.packed < 1:
            raise ArgumentError(f"ColwiseParallel: packed is a number of matrices, got {self.packed!r}")

    def layouts(self, module: Module, size: int) -> dict[str, Axis]:
        axes = {"weight": _output_axis("ColwiseParallel", module)}
        if vars(module).get("bias") is not None:
            axes["bias"] = 0
        return {name: axis_of("ColwiseParallel", module, name, axis, size, self.packed) for name, axis in axes.items()}

    def forward(self, module: Module, group: Group, inner: Forward, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        part: Tensor = inner(used(input, self.input_layouts, group), *args, **kwargs)
        return part if self.output_layouts == _LAST else whole(part, -1, self.packed, group)


@dataclass(frozen=True, kw_only=True)
class RowwiseParallel(ParallelStyle):
    """Each process has an equal part of the layer's inputs, and what they make of them is added up.

    It has a part of the input features of a linear layer, whose bias is added once and is whole in all processes; or a
    part of the rows of an `Embedding`: of the vocabulary.

    input_layouts: `Shard(-1)`, the part of the features that this process has, as `ColwiseParallel` leaves them, or
    `Replicate()`, all of them. That of an embedding is whole.
    output_layouts: `Replicate()`, or `Shard(dim)`: this process's part of an axis of the sum.

    Raises ArgumentError for other layouts.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     mlp = hm.nn.Sequential(hm.nn.Linear(4, 6), hm.nn.ReLU(), hm.nn.Linear(6, 4))
    ...     dist.parallelize_module(mlp, None, {"0": dist.ColwiseParallel(), "2": dist.RowwiseParallel()})
    ...     return mlp[2].weight.shape, mlp(hm.ones((2, 4))).shape
    >>> dist.run_threads(2, step)
    [((4, 3), (2, 4)), ((4, 3), (2, 4))]
    """

    input_layouts: Placed | None = None
    output_layouts: Placed = _WHOLE

    def __post_init__(self) -> None:
        _check_layout("RowwiseParallel: input_layouts", self.input_layouts, (None, Replicate, _LAST))
        _check_layout("RowwiseParallel: output_layouts", self.output_layouts, (Replicate, Shard))

    def layouts(self, module: Module, size: int) -> dict[str, Axis]:
        axis = 1 - _output_axis("RowwiseParallel", module)
        if isinstance(module, Embedding):
            if isinstance(module, EmbeddingBag) or module.sparse:
                raise ArgumentError(f"RowwiseParallel: {module!r} cannot be cut into rows; use ColwiseParallel()")
            if self.input_layouts == _LAST:
                raise ArgumentError("RowwiseParallel: the input of an Embedding is Replicate(), got Shard(-1)")
        return {"weight": axis_of("RowwiseParallel", module, "weight", axis, size)}

    def forward(self, module: Module, group: Group, inner: Forward, input: Tensor) -> Tensor:
        if isinstance(module, Embedding):
            return added(_own_rows(module, group, input), self.output_layouts, group)
        part = cut(input, -1, group) if isinstance(self.input_layouts, Replicate) else input
        with summed_bias(module, group):
            term: Tensor = inner(part)
        return added(term, self.output_layouts, group)


def summed_bias(module: Module, group: Group) -> AbstractContextManager[None]:
    """Lets one process add the bias, while a layer computes terms of a sum."""
    bias = vars(module).get("bias")
    return replaced([] if bias is None else [((module, "bias"), once(bias, group))])


def _own_rows(module: Embedding, group: Group, input: Tensor) -> Tensor:
    """The rows of the table that this process has, and zeros for others."""
    rows, first = module.weight.shape[0], module.weight.shape[0] * group.rank
    numbers = arange(rows * group.size)[:, None]
    row = F.embedding(input, numbers)[..., 0] - first  # refuses what the whole table does not have
    is_here = (row >= 0) & (row < rows)
    padding = None if module.padding_idx is None else module.padding_idx % len(numbers) - first
    padding = padding if padding is not None and 0 <= padding < rows else None
    return where(is_here[..., None], F.embedding(where(is_here, row, 0), module.weight, padding), 0)


@dataclass(frozen=True)
class SequenceParallel(ParallelStyle):
    """Each process computes a layer on its part of the sequence, with the whole parameters: a norm, or dropout.

    It stands between a layer with ``output_layouts=Shard(1)`` and one with ``input_layouts=Shard(1)``. The gradients of
    the layer's parameters are sums over the processes. Source: Korthikanti et al. 2022.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> plan = {
    ...     "0": dist.RowwiseParallel(output_layouts=dist.Shard(1)),
    ...     "1": dist.SequenceParallel(),
    ...     "2": dist.ColwiseParallel(input_layouts=dist.Shard(1), output_layouts=dist.Replicate()),
    ... }
    >>> def step():
    ...     model = hm.nn.Sequential(hm.nn.Embedding(10, 4), hm.nn.LayerNorm(4), hm.nn.Linear(4, 10))
    ...     return dist.parallelize_module(model, None, plan)(hm.ones((2, 6), dtype="int64")).shape
    >>> dist.run_threads(2, step)
    [(2, 6, 10), (2, 6, 10)]
    """

    def layouts(self, module: Module, size: int) -> dict[str, Axis]:
        return {}

    def forward(self, module: Module, group: Group, inner: Forward, input: Tensor) -> Tensor:
        with replaced(((module, name), used(p, _WHOLE, group)) for name, p in module._own("parameter")):
            found: Tensor = inner(input)
        return found


def _check_layout(name: str, given: object, allowed: tuple[object, ...]) -> None:
    if given not in allowed and type(given) not in allowed:
        texts = [f"{one.__name__}(dim)" if one is Shard else str(one) for one in allowed]
        raise ArgumentError(f"{name} is {' or '.join(texts)}, got {given!r}")


def _output_axis(style: str, module: Module) -> int:
    found = getattr(type(module), "output_axis", None)
    if found is None:
        raise ArgumentError(
            f"{style}: {type(module).__name__} does not say which axis of its weight its outputs have; name its Linear "
            "and Embedding layers, or give its class an output_axis"
        )
    return int(found)


def axis_of(style: str, module: Module, name: str, axis: int, size: int, packed: int = 1) -> Axis:
    """The layout of a layer's parameter. Raises ArgumentError where there is none, ShapeError where it is not equal."""
    if name not in dict(module.named_parameters()):
        raise ArgumentError(f"{style}: {type(module).__name__} has no parameter {name!r}, which is to be cut")
    shape = tuple(module.get_parameter(name).shape)
    if shape[axis] % (packed * size):
        packs = f"{packed} matrices of " * (packed > 1)
        raise ShapeError(
            f"{style}: axis {axis} of {name} {shape} of this {type(module).__name__} does not divide into {packs}"
            f"{size} equal parts, one for each process"
        )
    return Axis(shape, axis, size, packed)
