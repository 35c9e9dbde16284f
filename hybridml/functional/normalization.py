"""Normalisation: batch, layer, group, instance, root mean square and local response."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from ..core.context import no_grad
from ..core.library import compiled
from ..core.precision.composites import in_float32
from ..core.tensor import Tensor
from .arguments import real_numbers


@compiled
@in_float32
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises each channel of (n, c, ...) over all other axes (Ioffe and Szegedy 2015).

    In training the batch's own statistics count, and the running ones move towards them in place by `momentum` (the
    variance as its unbiased estimate); otherwise the running ones count. Statistics, weight and bias are (c,). Raises
    ShapeError for fewer than two axes or one value per channel in training, ArgumentError for missing statistics,
    DTypeError for complex numbers.

    >>> batch_norm(hm.asarray([[0.0], [2.0]]), None, None, training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    if input.ndim < 2:
        raise ShapeError(f"batch_norm: input must be (n, c, ...), got shape {input.shape}")
    real_numbers("batch_norm", input)
    axes = (0, *range(2, input.ndim))
    per_channel = (1, input.shape[1], *(1,) * (input.ndim - 2))
    if training:
        count = input.numel() // max(input.shape[1], 1)
        if count <= 1:
            raise ShapeError(f"batch_norm: needs more than one value a channel in training, got shape {input.shape}")
        mean = input.mean(axis=axes, keepdims=True)
        centred = input - mean
        variance = (centred * centred).mean(axis=axes, keepdims=True)
        with no_grad():
            if running_mean is not None:
                move_running(running_mean, mean.reshape((-1,)), momentum)
            if running_var is not None:
                move_running(running_var, variance.reshape((-1,)) * (count / (count - 1)), momentum)
    else:
        if running_mean is None or running_var is None:
            raise ArgumentError("batch_norm: running_mean and running_var are needed unless training=True")
        centred = input - running_mean.reshape(per_channel)
        variance = running_var.reshape(per_channel)
    scale = xp.rsqrt(variance + eps)
    if weight is not None:
        scale = scale * weight.reshape(per_channel)
    result = centred * scale
    return result if bias is None else result + bias.reshape(per_channel)


def move_running(running: Tensor, batch: Tensor, momentum: float | Tensor) -> None:
    """Moves a running statistic towards that of a batch, in place."""
    running.copy_(running * (1 - momentum) + xp.astype(batch, running.dtype) * momentum)


@compiled
@in_float32
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises (..., *normalized_shape) over these last axes, then scales and shifts elementwise (Ba et al. 2016).

    Raises ShapeError where the last axes are not `normalized_shape`, DTypeError for complex numbers.

    >>> layer_norm(hm.asarray([[0.0, 2.0]]), (2,), eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    real_numbers("layer_norm", input)
    axes = _trailing("layer_norm", input, normalized_shape)
    centred = input - input.mean(axis=axes, keepdims=True)
    variance = (centred * centred).mean(axis=axes, keepdims=True)
    return _affine(centred * xp.rsqrt(variance + eps), weight, bias)


@compiled
@in_float32
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divides (..., *normalized_shape) by the root of the mean square over these last axes (Zhang and Sennrich 2019).

    `eps=None` takes the machine epsilon of the input's dtype, float32 for narrower ones, as PyTorch. Raises ShapeError
    where the last axes are not `normalized_shape`, DTypeError for complex numbers.

    >>> rms_norm(hm.asarray([[3.0, 3.0]]), (2,), eps=0.0).tolist()
    [[1.0, 1.0]]
    """
    real_numbers("rms_norm", input)
    axes = _trailing("rms_norm", input, normalized_shape)
    if eps is None:
        eps = float(xp.finfo(input.dtype).eps)
    square = (input * input).mean(axis=axes, keepdims=True)
    return _affine(input * xp.rsqrt(square + eps), weight, None)


@compiled
@in_float32
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalises (n, c, ...) over each of `num_groups` groups of channels (Wu and He 2018); weight and bias are (c,).

    Raises ShapeError where `num_groups` does not divide the channels, DTypeError for complex numbers.

    >>> group_norm(hm.asarray([[0.0, 2.0, 5.0, 7.0]]), 2, eps=0.0).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ShapeError(
            f"group_norm: input must be (n, c, ...), c divisible by num_groups={num_groups}, got {input.shape}"
        )
    real_numbers("group_norm", input)
    channels, axes = input.shape[1], tuple(range(2, input.ndim))
    grouped = (input.shape[0], num_groups, channels // num_groups)

    # Statistics are numbers per channel, and loops over the input regular in any order of memory: 4 x 16 x 96 x 96 with
    # its gradient takes 1.1 ms, 3.7 in the shape of groups; with channels last 2.3 and 8.2.
    def mean(x: Tensor) -> Tensor:
        of_groups = x.mean(axis=axes).reshape(grouped).mean(axis=-1, keepdims=True)
        return xp.broadcast_to(of_groups, grouped).reshape((input.shape[0], channels, *(1,) * len(axes)))

    centred = input - mean(input)
    scale = xp.rsqrt(mean(centred * centred) + eps)
    weight, bias = _per_channel(input, weight, bias)
    return _affine(centred, scale if weight is None else scale * weight, bias)


@compiled
@in_float32
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises each channel of each element of (n, c, ...) over its own positions (Ulyanov et al. 2016).

    Running statistics (c,), if given, move in place towards the mean over the batch; they count instead of the input's
    own with ``use_input_stats=False``. Raises ShapeError for an input without positions or with one value per channel,
    ArgumentError for missing statistics, DTypeError for complex numbers.

    >>> instance_norm(hm.asarray([[[0.0, 2.0], [5.0, 7.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0], [-1.0, 1.0]]]
    """
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ArgumentError("instance_norm: running_mean and running_var are needed unless use_input_stats=True")
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.ndim < 3:
        raise ShapeError(f"instance_norm: input must be (n, c, ...) with positions, got shape {input.shape}")
    real_numbers("instance_norm", input)
    count = math.prod(input.shape[2:])
    if count <= 1:
        raise ShapeError(f"instance_norm: needs more than one value a channel, got shape {input.shape}")
    axes = tuple(range(2, input.ndim))
    mean = input.mean(axis=axes, keepdims=True)
    centred = input - mean
    variance = (centred * centred).mean(axis=axes, keepdims=True)
    with no_grad():
        if running_mean is not None:
            move_running(running_mean, mean.mean(axis=0).reshape((-1,)), momentum)
        if running_var is not None:
            move_running(running_var, variance.mean(axis=0).reshape((-1,)) * (count / (count - 1)), momentum)
    return _affine(centred * xp.rsqrt(variance + eps), *_per_channel(input, weight, bias))


@compiled
@in_float32
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Divides (n, c, ...) by ``(k + alpha * mean of squares)^beta``, the mean over `size` neighbouring channels.

    Channels that do not exist count as zeros. Source: Krizhevsky et al. 2012. Raises ShapeError for an input without
    positions or a `size` below 1, DTypeError for complex numbers.

    >>> local_response_norm(hm.asarray([[[2.0], [2.0]]]), 2, alpha=1.0, beta=1.0, k=2.0).tolist()
    [[[0.5], [0.3333333432674408]]]
    """
    if input.ndim < 3 or size < 1:
        raise ShapeError(
            f"local_response_norm: input must be (n, c, ...) with positions and size 1 or more, got {input.shape} and "
            f"{size}"
        )
    real_numbers("local_response_norm", input)
    around = ((0, 0), (size // 2, (size - 1) // 2), *((0, 0),) * (input.ndim - 2))
    squares = xp.windows(xp.pad(input * input, around), size=(size,), axes=(1,)).mean(axis=-1)
    return input / (squares * alpha + k) ** beta


def _per_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    shape = (x.shape[1], *(1,) * (x.ndim - 2))
    return None if weight is None else weight.reshape(shape), None if bias is None else bias.reshape(shape)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    scaled = x if weight is None else x * weight
    return scaled if bias is None else scaled + bias


def _trailing(what: str, input: Tensor, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    wanted = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not wanted or input.shape[-len(wanted) :] != wanted:
        raise ShapeError(f"{what}: normalized_shape={wanted} must be the last axes of the input, got {input.shape}")
    return tuple(range(-len(wanted), 0))


__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]
