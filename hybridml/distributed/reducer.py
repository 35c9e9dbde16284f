"""Averages of gradients over the processes of a group, in buckets that are begun while the backward goes on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.donation import donated
from hybridml_compiler.errors import GradientError
from hybridml_compiler.ops.table import OPS

from ..arrays.creation import zeros
from ..core.autodiff.reductions import Reduction
from ..core.autodiff.tape import own
from ..core.tensor import Tensor
from .buckets import buckets
from .functions import call
from .groups import Group


class Reducer(Reduction):
    """The gradients of parameters as averages over a group.

    Buckets are begun in one order in all processes: the reverse of that of the parameters, in which gradients come;
    those of a model behind those of models that were made later.
    """

    def __init__(self, named: Iterable[tuple[str, Tensor]], group: Group, bucket_mb: float, find_unused: bool) -> None:
        self.group, self.find_unused, self.number = group, find_unused, next(group.models)
        self.order = group.name, -self.number
        self.buckets = buckets([(n, p) for n, p in named if p.requires_grad][::-1], bucket_mb)
        self.places = [(b, k) for b, bucket in enumerate(self.buckets) for k in range(len(bucket.tensors))]
        self.labels = [
            f"bucket {k} of DataParallel {self.number}: gradients of {', '.join(bucket.names[:2])}"
            + ", ..." * (len(bucket.names) > 2)
            for k, bucket in enumerate(self.buckets)
        ]
        super().__init__([p for bucket in self.buckets for p in bucket.tensors])

    def begin(self) -> Averages:
        return Averages(self)

    def join_with_zeros(self) -> None:
        """Takes part in a backward of the others with zeros."""
        averages = Averages(self)
        for bucket in self.buckets:
            averages.begin(zeros(bucket.shape, dtype=bucket.tensors[0].dtype))
        averages.received()


class Averages:
    """The averages of one backward."""

    def __init__(self, reducer: Reducer) -> None:
        self.reducer = reducer
        self.parts: list[dict[int, Tensor]] = [{} for _ in reducer.buckets]
        self.begun: list[tuple[Tensor, Tensor]] = []  # of buckets: their gradients after each other, and the token

    def take(self, number: int, gradient: Tensor) -> None:
        bucket, k = self.reducer.places[number]
        self.parts[bucket][k] = gradient

    def begin_full(self) -> bool:
        for bucket, parts in list(zip(self.reducer.buckets, self.parts, strict=True))[len(self.begun) :]:
            if len(parts) < len(bucket.tensors):
                return False
            whole = bucket.together([parts.pop(k) for k in range(len(parts))])
            self.begin(own(whole))
        return True

    def begin(self, flat: Tensor) -> None:
        """Begins the sum of the next bucket, in float32 at least, so that it does not overflow where its mean does not.
        Nobody else has the memory of `flat`."""
        flat = _cast(flat, _summed(flat.dtype))
        label = self.reducer.labels[len(self.begun)]
        self.begun.append((flat, call(self.reducer.group, "all_reduce_start", flat, label=label)))

    def finish(self) -> list[tuple[Tensor, Tensor]]:
        """Begins what is left, waits for all, and returns the averages."""
        begun = len(self.begun)
        missing = []
        for bucket, parts in list(zip(self.reducer.buckets, self.parts, strict=True))[begun:]:
            for k, (name, p) in enumerate(zip(bucket.names, bucket.tensors, strict=True)):
                if k not in parts:
                    parts[k] = zeros(p.shape, dtype=p.dtype) if p.grad is None else p.grad
                    missing += [name] if p.requires_grad else []  # or it was frozen since
        if missing and not self.reducer.find_unused:
            raise GradientError(
                f"DataParallel: no gradient came to {', '.join(missing[:5])}{', ...' * (len(missing) > 5)}, for which "
                "the other processes wait: use it in the loss, call requires_grad_(False) on it, or give DataParallel "
                "find_unused_parameters=True, with which it counts as zero"
            )
        self.begin_full()
        return [(p, g) for p, g in self.received() if p.requires_grad]

    def received(self) -> list[tuple[Tensor, Tensor]]:
        """The averages, once all buckets are there."""
        found: list[tuple[Tensor, Tensor]] = []
        for bucket, (flat, token) in zip(self.reducer.buckets, self.begun, strict=True):
            whole = _awaited(self.reducer.group, flat, token)
            whole /= self.reducer.group.size  # here, as it is in a cache
            parts = bucket.cut(_cast(whole, bucket.tensors[0].dtype))
            found += zip(bucket.tensors, parts, strict=True)
        return found

    def abandon(self) -> None:
        for _, token in self.begun:
            self.reducer.group.forget(token)


def _summed(dtype: Any) -> Any:
    return dtypes.float32 if dtypes.is_narrow(dtype) else dtype


def _cast(x: Tensor, dtype: Any) -> Tensor:
    return x if x.dtype is dtype else x.astype(dtype)


def _awaited(group: Group, flat: Tensor, token: Tensor) -> Tensor:
    """The sum that was begun, in the same memory."""
    is_real = type(flat._array) is np.ndarray
    with donated(flat._array) if is_real else nullcontext():
        found: Tensor = OPS["all_reduce_wait"].fn(flat, token, group=group.name)
    return found
