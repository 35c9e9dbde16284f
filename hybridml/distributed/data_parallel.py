"""`DataParallel`: a module that every process of a group trains on its own part of the batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from hashlib import blake2b
from typing import Any

from hybridml_compiler.errors import ArgumentError, GradientError, TraceError

from ..arrays.creation import asarray
from ..core.context import current_interpreter
from ..core.tensor import Tensor
from ..nn.module import Module
from .buckets import BUCKET_MIB, copy_from
from .functions import all_reduce
from .groups import Group, default
from .placements import placements
from .reducer import Reducer


class DataParallel(Module):
    """A module whose gradients are averages over the processes of a group, as PyTorch's DistributedDataParallel has.

    module: is called with what this is called with; its parameters and buffers become those of rank 0 at once.
    group: the processes; all of the job by default.
    bucket_mb: MiB of gradients that travel together, while the backward goes on.
    broadcast_buffers: whether all processes take rank 0's buffers before each call in training.
    find_unused_parameters: whether parameters to which no gradient comes count as zero; GradientError without.

    A loss that is the mean over its part of a batch, of equal parts, then has the gradients of the mean over the whole
    batch. The bits are the same in every run with the same number of processes. What is averaged is what `backward`
    leaves in `.grad`, which is dense: `hm.grad` and `autograd.grad` return the gradients of this process, and
    `backward(create_graph=True)` is a GradientError. Parameters may be frozen and unfrozen in all processes alike, if
    they required a gradient when this was made. Raises CollectiveError for models that differ, ArgumentError for what
    is no module.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     model = dist.DataParallel(hm.nn.Linear(2, 1))
    ...     model(hm.full((1, 2), 1.0 + dist.get_rank())).sum().backward()
    ...     return model.module.weight.grad.tolist()
    >>> dist.run_threads(2, step)
    [[[1.5, 1.5]], [[1.5, 1.5]]]
    """

    def __init__(
        self,
        module: Module,
        group: Group | None = None,
        *,
        bucket_mb: float = BUCKET_MIB,
        broadcast_buffers: bool = True,
        find_unused_parameters: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(module, Module):
            raise ArgumentError(f"DataParallel: module must be a Module, got {type(module).__name__}")
        if not bucket_mb > 0:
            raise ArgumentError(f"DataParallel: bucket_mb must be above 0, got {bucket_mb}")
        self.module, self.group = module, default(group)
        for name, placement in placements(module).items():
            if placement.group is self.group:
                raise ArgumentError(
                    f"DataParallel: the processes of {self.group!r} have parts of {name}, which it would make equal; "
                    "leave it out, or give DataParallel a group whose processes have the same part"
                )
        self.bucket_mb, self.broadcast_buffers = bucket_mb, broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self._of_all, self._joining = group is None, False
        if self.group.size > 1:
            self.group.meet("DataParallel", None, _digest(module), lambda transport: None)
            copy_from(0, self._state(), self.group)
        self._reducer = self._made_reducer()

    def _made_reducer(self) -> Reducer | None:
        if self.group.size == 1:
            return None
        return Reducer(self.module.named_parameters(), self.group, self.bucket_mb, self.find_unused_parameters)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reducer": None}  # a copy has its own

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reducer = self._made_reducer()

    def _state(self) -> list[Tensor]:
        return [*self.module.parameters(), *self.module.buffers()]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        if self._reducer is None:
            if self._of_all and default().size > 1:
                raise ArgumentError(
                    "DataParallel: it was made where this process was alone, and now is one of "
                    f"{default().size}; make it inside of the function that run_threads runs"
                )
        elif not self._reducer.paused:
            self._attach(self._reducer)
            self._take_buffers(self._last_active(True) if self._joining else 0)
        return self.module(*args, **kwargs)

    def _attach(self, reducer: Reducer) -> None:
        """Lets the reducer have the gradients of leaves that are new."""
        reducer.attach()
        known = {id(p) for p in reducer.tensors}
        for name, p in self.module.named_parameters():
            if p.requires_grad and id(p) not in known:
                raise GradientError(
                    f"DataParallel: {name} requires a gradient, and did not or was another tensor when this was made: "
                    "make it again, in all processes"
                )

    def _take_buffers(self, src: int) -> None:
        if self.training and self.broadcast_buffers:
            copy_from(src, list(self.module.buffers()), self.group)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Lets gradients add up in this process alone; the first backward behind the block averages the sums.

        >>> import hybridml as hm
        >>> from hybridml import distributed as dist
        >>> model = dist.DataParallel(hm.nn.Linear(2, 1))
        >>> with model.no_sync():
        ...     model(hm.ones((1, 2))).sum().backward()
        """
        with nullcontext() if self._reducer is None else self._reducer.pause():
            yield

    @contextmanager
    def join(self) -> Iterator[None]:
        """Lets processes have different numbers of steps: who is done takes part with zeros until all are.

        At the end all take the parameters and buffers of a process that has made the most steps. Averages are over all
        processes of the group, as they are with PyTorch's join. Each call of the module is to be followed by one
        backward into gradients that were dropped before. It is for eager steps: a traced one does not ask the others.

        >>> import hybridml as hm
        >>> from hybridml import distributed as dist
        >>> def train():
        ...     model = dist.DataParallel(hm.nn.Linear(2, 1))
        ...     with model.join():
        ...         for _ in range(1 + dist.get_rank()):
        ...             model.zero_grad()
        ...             model(hm.ones((1, 2))).sum().backward()
        ...     return model.module.weight.grad.tolist()
        >>> dist.run_threads(2, train)
        [[[1.0, 1.0]], [[0.5, 0.5]]]
        """
        if self._reducer is None:
            yield
            return
        self._joining = True
        last = self.group.rank  # of those that had another step, when there was one
        try:
            yield
            while (active := self._last_active(False)) >= 0:
                last = active
                self._take_buffers(active)
                self._reducer.join_with_zeros()
            copy_from(int(all_reduce(asarray(last), "max", self.group)), self._state(), self.group)
        finally:
            self._joining = False

    def _last_active(self, here: bool) -> int:
        """The last rank that has another step; -1 where none has."""
        if current_interpreter() is not None:
            raise TraceError("DataParallel.join: a traced step does not ask the other processes; run it eagerly")
        return int(all_reduce(asarray(self.group.rank if here else -1), "max", self.group))


def _digest(module: Module) -> str:
    """A text that differs where parameters or buffers do: their names, shapes, dtypes, and whether they are trained."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    told = [f"{name} {tuple(t.shape)} {t.dtype} {t.requires_grad}" for name, t in tensors]
    digest = blake2b("|".join(told).encode(), digest_size=4).hexdigest()
    return f"{len(told)} tensors of {sum(t.numel() for _, t in tensors)} elements, with names and shapes {digest}"
