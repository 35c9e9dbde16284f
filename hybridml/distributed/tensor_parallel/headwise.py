"""`HeadwiseParallel`: the style of `nn.MultiheadAttention`, whose heads processes compute together."""

from __future__ import annotations

from dataclasses import dataclass

from hybridml_compiler.errors import ArgumentError

from ...core.tensor import Tensor
from ...nn.attention import MultiheadAttention
from ...nn.module import Module
from ..groups import Group
from .redistribute import Axis, Replicate, added, cut, used, whole
from .styles import Forward, ParallelStyle, axis_of, summed_bias

# Parameters of the layer: the axis along which its heads are, and how many matrices it has after each other there.
_HEADS = {
    "in_proj_weight": (0, 3),
    "in_proj_bias": (0, 3),
    "q_proj_weight": (0, 1),
    "k_proj_weight": (0, 1),
    "v_proj_weight": (0, 1),
    "bias_k": (2, 1),
    "bias_v": (2, 1),
    "out_proj.weight": (1, 1),
}


@dataclass(frozen=True)
class HeadwiseParallel(ParallelStyle):
    """Each process has an equal part of the heads of a `MultiheadAttention`, and what they find is added up.

    Sequences, masks and results are whole in all processes, weights of attention too. Raises ArgumentError for other
    layers and for numbers of heads that do not divide.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> plan = {
    ...     "self_attn": dist.HeadwiseParallel(), "linear1": dist.ColwiseParallel(), "linear2": dist.RowwiseParallel(),
    ... }
    >>> def step():
    ...     layer = dist.parallelize_module(hm.nn.TransformerEncoderLayer(8, 4, 16), None, plan)
    ...     return layer.self_attn.in_proj_weight.shape, layer(hm.ones((5, 3, 8))).shape
    >>> dist.run_threads(2, step)
    [((12, 8), (5, 3, 8)), ((12, 8), (5, 3, 8))]
    """

    def layouts(self, module: Module, size: int) -> dict[str, Axis]:
        if not isinstance(module, MultiheadAttention):
            raise ArgumentError(f"HeadwiseParallel: it is for MultiheadAttention, got {type(module).__name__}")
        if module.num_heads % size:
            raise ArgumentError(
                f"HeadwiseParallel: {module.num_heads} heads do not divide into {size} parts, one for each process"
            )
        has = dict(module.named_parameters())
        return {
            name: axis_of("HeadwiseParallel", module, name, axis, size, packed)
            for name, (axis, packed) in _HEADS.items()
            if name in has
        }

    def forward(
        self,
        module: Module,
        group: Group,
        inner: Forward,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        assert isinstance(module, MultiheadAttention)
        same = {id(x): used(x, Replicate(), group) for x in (query, key, value)}  # one product for self-attention
        mask = None if attn_mask is None else _mask_of_heads(attn_mask, module.num_heads, group)
        with summed_bias(module.out_proj, group):
            term, shares = inner(
                *(same[id(x)] for x in (query, key, value)), key_padding_mask, need_weights, mask, average_attn_weights,
                is_causal,
            )  # fmt: skip
        if shares is not None and average_attn_weights:
            shares = added(shares, Replicate(), group) / group.size
        elif shares is not None:
            shares = whole(shares, -3, 1, group)
        return added(term, Replicate(), group), shares


def _mask_of_heads(mask: Tensor, heads: int, group: Group) -> Tensor:
    """A mask of all heads (l, s) as it is; of one for each head (n * heads, l, s) those of this process's."""
    if mask.ndim == 2:
        return used(mask, Replicate(), group)
    part = cut(mask.reshape((-1, heads, *mask.shape[1:])), 1, group)
    return part.reshape((-1, *mask.shape[1:]))
