"""`fully_shard`: a module whose parameters are spread over the processes, and whole only while it computes.

The gather of the parts is differentiable: its gradient gives each process the mean of its part alone. So there is
nothing of its own for the backward, and a traced step has both as operations. Source: ZeRO (Rajbhandari et al., SC
2020), stages 2 and 3, by gathers that are part of the program as in SimpleFSDP (Zhang et al., 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from hybridml_compiler.errors import ArgumentError

from ..arrays.shaping.manipulation import concat
from ..core.autodiff.function import Function
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..nn.module import Module
from ..nn.utils.computed import outside_of_traces
from ..nn.utils.replaced import Place, forward_of, replaced
from ..transforms.checkpoint import checkpoint, recomputed_in
from .buckets import copy_from
from .functions import exchanged, scattered_mean
from .groups import Group, default
from .placements import Flat, Layout, is_part, make_part

M = TypeVar("M", bound=Module)
Places = Sequence[Place]  # where one parameter is


class _Gather(Function):
    """The parts of all processes; its gradient is the mean of the processes' gradients of this one's part."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Group, label: str) -> Tensor:
        ctx.group, ctx.label = group, label
        return exchanged(part, "all_gather", group, label)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return scattered_mean(g, ctx.group, ctx.label), None, None


def gathered(parts: Sequence[Tensor], layouts: Sequence[Layout], group: Group, label: str) -> list[Tensor]:
    """Whole tensors of their parts, those of a dtype moved together."""
    found: list[Tensor] = list(parts)
    for dtype in dict.fromkeys(part.dtype for part in parts):
        numbers = [k for k, part in enumerate(parts) if part.dtype is dtype]
        flat = concat([parts[k].reshape(-1) for k in numbers])
        whole, at = _Gather.apply(flat, group, label).reshape((group.size, flat.numel())), 0
        for k in numbers:
            count = parts[k].numel()
            found[k] = layouts[k].joined(whole[:, at : at + count].reshape((group.size, *parts[k].shape)))
            at += count
    return found


class ShardedForward:
    """The forward of a module with whole parameters in the places of its parts."""

    def __init__(self, module: Module, group: Group, places: Sequence[Places], layouts: Sequence[Layout]) -> None:
        self.module, self.group, self.places, self.layouts = module, group, places, layouts
        self.inner = forward_of(module)
        self.reshard, self.is_whole = True, False
        self.label = f"{type(module).__name__}, module {next(group.models)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.reshard:
            return self._run(*args, **kwargs)
        outer = recomputed_in.set(())  # what it is called in is not needed for it
        try:
            return checkpoint(_Recomputed(self._run, self.module), *args, **kwargs)
        finally:
            recomputed_in.reset(outer)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        with self.whole():
            return self.inner(*args, **kwargs)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A block in which the parameters are whole."""
        if self.is_whole:
            yield
            return
        parts = [vars(owner)[name] for (owner, name), *_ in self.places]
        wholes = zip(self.places, gathered(parts, self.layouts, self.group, self.label), strict=True)
        self.is_whole = True
        outer = recomputed_in.set((*recomputed_in.get(), self.whole))
        try:
            with replaced((place, whole) for places, whole in wholes for place in places):
                yield
        finally:
            recomputed_in.reset(outer)
            self.is_whole = False


class _Recomputed:
    """A forward that moves buffers when it is called first, and copies of what they were then when it is called again,
    for the backward."""

    def __init__(self, run: Callable[..., Any], module: Module) -> None:
        self.run = run
        self.__name__ = f"{type(module).__name__}.forward under fully_shard (reshard_after_forward=False takes others)"
        self.places = [(owner, name) for owner in module.modules() for name, _ in owner._own("buffer", "transient")]
        self.before: list[Tensor] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        is_first = not self.before
        with no_grad():
            copies = [t.clone() for t in self.before or (vars(owner)[name] for owner, name in self.places)]
        if is_first:
            self.before = copies
            return self.run(*args, **kwargs)
        with replaced(zip(self.places, copies, strict=True)):
            return self.run(*args, **kwargs)


def fully_shard(module: M, group: Group | None = None, *, reshard_after_forward: bool | None = None) -> M:
    """Spreads the parameters of a module over the processes, each of which trains its part; returns the module.

    While the module's `forward` runs its parameters are whole; before and after, each is this process's part, of one
    axis: an optimizer that is made now has the state of the parts alone. `backward` leaves the mean of the processes'
    gradients of the part in ``.grad``. The parameters become those of rank 0 before. Call it on the blocks of a model
    and then on the model, which takes the parameters that are left: each block's are gathered together.

    group: the processes; all of the job by default.
    reshard_after_forward: whether nothing that is whole is kept for the backward, in which the module's `forward` is
    then computed again (`hm.checkpoint`: its result is a tensor or a tuple of tensors) with parameters that are
    gathered again, and buffers as they were. By default so for a module without such modules in it. ZeRO's stage 3;
    False is stage 2.

    Other methods than `forward` find parts, but for in a block of `summon_full_params`. Optimizers that look at more
    than one element (Muon, norms of layers) see a part of one axis. Raises ArgumentError for what is no module, that is
    sharded already, or shares a parameter with one that is.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     layer = dist.fully_shard(hm.nn.Linear(4, 2, bias=False))
    ...     layer(hm.full((1, 4), 1.0 + dist.get_rank())).sum().backward()
    ...     return layer.weight.shape, layer.weight.grad.tolist()
    >>> dist.run_threads(2, step)
    [((4,), [1.5, 1.5, 1.5, 1.5]), ((4,), [1.5, 1.5, 1.5, 1.5])]
    """
    outside_of_traces("fully_shard")
    if not isinstance(module, Module):
        raise ArgumentError(f"fully_shard: module must be a Module, got {type(module).__name__}")
    group = default(group)
    if group.size == 1:
        return module
    if type(module).forward is Module.forward:
        raise ArgumentError(
            f"fully_shard: {type(module).__name__} has no forward, for which its parameters would be whole; shard what "
            "is in it, or the module around it"
        )
    if isinstance(vars(module).get("forward"), ShardedForward):
        raise ArgumentError(f"fully_shard: this {type(module).__name__} is sharded already")
    found = _unplaced(module, group)
    copy_from(0, [*(vars(owner)[name] for (owner, name), *_ in found), *module.buffers()], group)
    layouts = []
    for places in found:
        parameter = vars(places[0][0])[places[0][1]]
        layouts.append(Flat(tuple(parameter.shape), parameter.numel(), group.size))
        make_part(places, layouts[-1], group)
    forward = ShardedForward(module, group, found, layouts)
    has_blocks = any(isinstance(vars(m).get("forward"), ShardedForward) for m in module.modules())
    forward.reshard = not has_blocks if reshard_after_forward is None else reshard_after_forward
    object.__setattr__(module, "forward", forward)
    return module


@contextmanager
def summon_full_params(module: Module) -> Iterator[None]:
    """A block in which all parameters of a module are whole, for what is not its `forward`: a method that generates.

    They are for reading, and have no history: what is written to them is lost. All processes must enter it. The name
    is PyTorch's.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     layer = dist.fully_shard(hm.nn.Linear(3, 2))
    ...     with dist.summon_full_params(layer):
    ...         return layer.weight.shape
    >>> dist.run_threads(2, step)
    [(2, 3), (2, 3)]
    """
    with ExitStack() as blocks:
        with no_grad():
            for owner in module.modules():
                forward = vars(owner).get("forward")
                if isinstance(forward, ShardedForward):
                    blocks.enter_context(forward.whole())
        yield


def _unplaced(module: Module, group: Group) -> list[Places]:
    """The places of each parameter that is whole, those that share one together."""
    whole: dict[int, list[tuple[Module, str]]] = {}
    units = [forward for m in module.modules() if isinstance(forward := vars(m).get("forward"), ShardedForward)]
    blocks = {(id(owner), name) for unit in units for places in unit.places for owner, name in places}
    for owner in module.modules():
        known = vars(owner).get("_placements", {})
        for name, parameter in owner._own("parameter"):
            if name in known and known[name].group is not group:
                raise ArgumentError(
                    f"fully_shard: {name} of {type(owner).__name__} is a part already, over {known[name].group!r}: its "
                    f"gradients would not be averaged over {group!r}; use DataParallel over that"
                )
            if name in known and (id(owner), name) not in blocks:
                raise ArgumentError(
                    f"fully_shard: {name} of {type(owner).__name__} is a part for a module around this one; shard "
                    "blocks first, and then what they are in"
                )
            if name in known:
                continue
            if is_part(parameter):
                raise _shared(owner, name)
            whole.setdefault(id(parameter), []).append((owner, name))
    return list(whole.values())


def _shared(owner: Module, name: str) -> ArgumentError:
    return ArgumentError(
        f"fully_shard: {name} of {type(owner).__name__} is shared with a module that is sharded on its own; shard one "
        "that has both"
    )
