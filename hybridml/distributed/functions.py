"""Collectives on tensors: functions of each process's tensor, with gradients, in both styles.

A gradient is that of the sum of the losses of all processes: what a process makes of a result may depend on the tensors
of all, so that the gradient of `all_reduce` is `all_reduce` of the gradients, as in PyTorch's `torch.distributed.nn`.
"""

from __future__ import annotations

from typing import Any

from hybridml_compiler.errors import ArgumentError, DeviceError, GradientError

from ..arrays.creation import asarray, zeros, zeros_like
from ..arrays.shaping.manipulation import concat
from ..core.autodiff.function import Function
from ..core.batching.interpreter import Batching
from ..core.context import grad_is_off
from ..core.nested import top_nesting
from ..core.tensor import Tensor
from .groups import Group, default
from .transport import MOST_TAG, is_whole

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "recv", "reduce_scatter", "send",
]  # fmt: skip


def call(group: Group, name: str, *operands: Tensor, **params: Any) -> Any:
    """Runs a row of ops/collectives.py behind the group's last collective; its result, or the token of one without."""
    return group.calls.call(name, *operands, group=group.name, **params)


def _given(name: str, x: Any) -> Tensor:
    """The tensor that is given, or that of a NumPy array or a number."""
    x = x if isinstance(x, Tensor) else asarray(x)
    if x.device.type != "cpu":
        raise DeviceError(f"{name}: groups move arrays of the CPU, and x is on {x.device.type!r}; use x.to('cpu')")
    return x


def _between_two(name: str) -> None:
    if type(top_nesting()) is Batching:
        raise ArgumentError(f"{name}: not inside of vmap; exchange the whole batch outside")


def _check_rank(name: str, argument: str, rank: int, group: Group, other: bool = False) -> None:
    if not is_whole(rank) or not 0 <= rank < group.size:
        raise ArgumentError(f"{name}: {argument} must be a rank of {group!r}, 0 to {group.size - 1}, got {rank!r}")
    if other and rank == group.rank:
        raise ArgumentError(f"{name}: {argument} must be the rank of another process, and {rank} is this one's")


def _check_tag(name: str, tag: int) -> None:
    if not is_whole(tag) or not 0 <= tag < MOST_TAG:
        raise ArgumentError(f"{name}: tag must be an integer from 0 to {MOST_TAG - 1}, got {tag!r}")


_LINEAR = ("sum", "mean")  # reductions whose gradient needs no operand


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, op: str, group: Group) -> Tensor:
        ctx.op, ctx.group = op, group
        found: Tensor = call(group, "all_reduce", x, reduce=op)
        if op not in _LINEAR:
            ctx.save_for_backward(x, found)
        return found

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        if ctx.op in _LINEAR:
            return all_reduce(g, ctx.op, ctx.group), None, None
        whole = all_reduce(g, group=ctx.group)
        x, found = ctx.saved_tensors
        if ctx.op == "prod":  # by the product of the others: x may be zero
            ranks, rank = all_gather(x.reshape((1, *x.shape)), ctx.group), ctx.group.rank
            return whole * concat([ranks[:rank], ranks[rank + 1 :]]).prod(axis=0).conj(), None, None
        chosen = (x == found).astype(g.dtype)  # processes that share the extremum share the gradient
        return whole * chosen / all_reduce(chosen, group=ctx.group), None, None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, src: int, group: Group) -> Tensor:
        ctx.src, ctx.group = src, group
        found: Tensor = call(group, "broadcast_from", x, root=src)
        return found

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        whole = all_reduce(g, group=ctx.group)
        if ctx.group.rank != ctx.src:  # zeros that depend on it: a gradient of this one is a sum over all as well
            whole = zeros_like(whole) + whole.reshape(-1)[:0].sum()
        return whole, None, None


_TRANSPOSED = {"all_gather": "reduce_scatter", "reduce_scatter": "all_gather", "all_to_all": "all_to_all"}


class _Moving(Function):
    """A row that moves parts between processes: the gradients go the other way, by another such row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str, group: Group, label: str) -> Tensor:
        ctx.name, ctx.group, ctx.label = name, group, label
        found: Tensor = call(group, name, x, size=group.size, label=label)
        return found

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return exchanged(g, _TRANSPOSED[ctx.name], ctx.group, ctx.label), None, None, None


class _ScatteredMean(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, label: str) -> Tensor:
        ctx.group, ctx.label = group, label
        found: Tensor = call(group, "reduce_scatter", x, size=group.size, reduce="mean", label=label)
        return found

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return exchanged(g / ctx.group.size, "all_gather", ctx.group, ctx.label), None, None


def exchanged(x: Tensor, name: str, group: Group, label: str = "") -> Tensor:
    """The result of a row that moves parts between processes, all of which must give the label."""
    found: Tensor = _Moving.apply(x, name, group, label)
    return found


def scattered_mean(x: Tensor, group: Group, label: str = "") -> Tensor:
    """This process's part of the mean over the processes, all of which must give the label."""
    found: Tensor = _ScatteredMean.apply(x, group, label)
    return found


class _Last(Function):
    @staticmethod
    def forward(ctx: Any, name: str, g: Tensor) -> Tensor:
        ctx.name = name
        return g.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        raise GradientError(
            f"{ctx.name}: its gradient has no gradient: the process at the other end might not wait for it; use "
            "broadcast or all_to_all for second derivatives"
        )


def _last(name: str, g: Tensor) -> Tensor:
    """The gradient `g`; where it is recorded, a gradient of it is an error."""
    return g if grad_is_off() else _Last.apply(name, g.requires_grad_())


class _Send(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dst: int, tag: int, group: Group) -> Tensor:
        ctx.route, ctx.like = (dst, tag, group), (x.shape, x.dtype)
        call(group, "send_to", x, peer=dst, tag=tag)
        return zeros((), dtype=x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (dst, tag, group), (shape, dtype) = ctx.route, ctx.like
        found: Tensor = call(group, "receive_from", shape=shape, dtype=dtype, peer=dst, tag=tag)
        return _last("send", found), None, None, None


class _Receive(Function):
    @staticmethod
    def forward(ctx: Any, like: Tensor, src: int, tag: int, group: Group) -> Tensor:
        ctx.route = src, tag, group
        found: Tensor = call(group, "receive_from", shape=like.shape, dtype=like.dtype, peer=src, tag=tag)
        return found

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        src, tag, group = ctx.route
        call(group, "send_to", g, peer=src, tag=tag)
        return _last("recv", zeros_like(g)), None, None, None


def all_reduce(x: Tensor, op: str = "sum", group: Group | None = None) -> Tensor:
    """The sum of the processes' tensors, in each of them.

    x: a tensor of the same shape and dtype in all processes of the group. op: "sum", "mean" (of floats), "prod", "max"
    or "min". group: that of all processes by default. Raises CollectiveError where processes call something else, or do
    not come within the group's timeout.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, lambda: dist.all_reduce(hm.tensor([1.0, 2.0])).tolist())
    [[2.0, 4.0], [2.0, 4.0]]
    """
    x = _given("all_reduce", x)
    found: Tensor = _AllReduce.apply(x, op, default(group))
    return found


def broadcast(x: Tensor, src: int = 0, group: Group | None = None) -> Tensor:
    """The tensor of process `src`, in each process.

    x: a tensor of the same shape and dtype in all processes; its values count in `src` alone. Raises ArgumentError for
    a rank that the group does not have, CollectiveError as `all_reduce`.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, lambda: dist.broadcast(hm.tensor([1.0]) + dist.get_rank(), src=1).tolist())
    [[2.0], [2.0]]
    """
    x = _given("broadcast", x)
    group = default(group)
    _check_rank("broadcast", "src", src, group)
    found: Tensor = _Broadcast.apply(x, src, group)
    return found


def all_gather(x: Tensor, group: Group | None = None) -> Tensor:
    """The processes' tensors after each other along the first axis, in each of them.

    Shapes (n, ...) -> (size * n, ...). Raises ShapeError for a tensor without axes, CollectiveError as `all_reduce`.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, lambda: dist.all_gather(hm.tensor([1.0]) * dist.get_rank()).tolist())
    [[0.0, 1.0], [0.0, 1.0]]
    """
    return exchanged(_given("all_gather", x), "all_gather", default(group))


def reduce_scatter(x: Tensor, op: str = "sum", group: Group | None = None) -> Tensor:
    """This process's part of the sum of the processes' tensors, along the first axis.

    Shapes (size * n, ...) -> (n, ...). op: "sum", or "mean" (of floats). Raises ArgumentError for others, ShapeError
    for a first axis that has no equal parts, CollectiveError as `all_reduce`.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, lambda: dist.reduce_scatter(hm.tensor([1.0, 2.0])).tolist())
    [[2.0], [4.0]]
    """
    x, group = _given("reduce_scatter", x), default(group)
    if op not in _LINEAR:
        raise ArgumentError(f"reduce_scatter: op is 'sum' or 'mean', got {op!r}")
    return scattered_mean(x, group) if op == "mean" else exchanged(x, "reduce_scatter", group)


def all_to_all(x: Tensor, group: Group | None = None) -> Tensor:
    """The parts that the processes have for this one: part r of a tensor, along the first axis, goes to process r.

    Shapes (size * n, ...) -> the same shape. Raises ShapeError for a first axis that has no equal parts,
    CollectiveError as `all_reduce`.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, lambda: dist.all_to_all(hm.tensor([0.0, 1.0]) + 10 * dist.get_rank()).tolist())
    [[0.0, 10.0], [1.0, 11.0]]
    """
    x = _given("all_to_all", x)
    return exchanged(x, "all_to_all", default(group))


def send(x: Tensor, dst: int, tag: int = 0, group: Group | None = None) -> Tensor:
    """Gives the tensor to process `dst`, which calls `recv`; returns a zero that carries the gradient.

    The gradient of x comes back from the process that has received it: add the zero to the loss of this process, so
    that its backward waits for it. tag: tells apart what is on its way between the same two processes. It is a copy
    that is sent: `send` does not wait for `dst`. Raises ArgumentError for a rank that is this process or not in the
    group.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     if dist.get_rank() == 0:
    ...         return dist.send(hm.tensor([1.0, 2.0]), 1).item()
    ...     return dist.recv(hm.zeros((2,)), 0).tolist()
    >>> dist.run_threads(2, step)
    [0.0, [1.0, 2.0]]
    """
    x = _given("send", x)
    _between_two("send")
    group = default(group)
    _check_rank("send", "dst", dst, group, other=True)
    _check_tag("send", tag)
    found: Tensor = _Send.apply(x, dst, tag, group)
    return found


def recv(like: Tensor, src: int, tag: int = 0, group: Group | None = None) -> Tensor:
    """The tensor that process `src` sends, of the shape and dtype of `like`; see `send`, which has the example.

    Where `like` requires a gradient, so does the result, and its backward gives the gradient to the sender. Raises
    ArgumentError for a rank that is this process or not in the group, CollectiveError for a tensor of another shape or
    dtype, or none in time.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def swap():
    ...     dist.send(hm.tensor([dist.get_rank()]), 1 - dist.get_rank())
    ...     return dist.recv(hm.tensor([0]), 1 - dist.get_rank()).item()
    >>> dist.run_threads(2, swap)
    [1, 0]
    """
    like = _given("recv", like)
    _between_two("recv")
    group = default(group)
    _check_rank("recv", "src", src, group, other=True)
    _check_tag("recv", tag)
    found: Tensor = _Receive.apply(like, src, tag, group)
    return found


def barrier(group: Group | None = None) -> None:
    """Waits until all processes of the group have come here.

    Raises CollectiveError where they call something else, or do not come in time.

    >>> from hybridml import distributed as dist
    >>> dist.run_threads(2, dist.barrier)
    [None, None]
    """
    call(default(group), "barrier")
