"""The protocol of what moves arrays between the processes of a group, and the errors of calls that do not match.

A transport is blocking and works on contiguous arrays. Its calls come from one thread at a time, in the order
of the program (see `order.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from hybridml_compiler.errors import CollectiveError

TIMEOUT = 300.0  # seconds that a collective waits for the other processes
MOST_TAG = 16_000  # the tags of `send` are below
OWN_TAG = MOST_TAG  # of messages that are nobody's `send`
PROGRAM_TAG = MOST_TAG + 10  # of messages within programs that processes compute together
REDUCTIONS: Mapping[str, Callable[..., Any]] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


class Call(NamedTuple):
    """A call of a collective as a process makes it; those of all processes must be equal."""

    name: str
    number: int  # of the collectives of this group before it
    shape: tuple[int, ...]
    dtype: str  # empty where no array is moved
    detail: str  # the reduction, or the root

    def __str__(self) -> str:
        inside = [f"{self.dtype}[{','.join(map(str, self.shape))}]"] if self.dtype else []
        return f"{self.name}({', '.join([*inside, *([self.detail] if self.detail else [])])}), collective {self.number}"


class Transport(Protocol):
    """Moves arrays between `size` processes, of which this one is number `rank`.

    Each call of a collective is met by all processes of the group: `meet` says that they have come with equal calls,
    and raises CollectiveError otherwise. The method that follows may rely on it. No method waits longer than `timeout`.
    """

    rank: int
    size: int
    timeout: float

    @property
    def overlaps(self) -> bool:
        """Whether what is moved in a thread beside the program does not disturb its compute."""

    def waiting(self) -> AbstractContextManager[None]:
        """The block in which a program waits for other processes."""

    def meet(self, call: Call) -> None:
        """Waits for all processes, and compares what they ask for."""

    def all_reduce(self, out: np.ndarray, array: np.ndarray, reduce: str) -> None:
        """Writes the reduction over the processes into `out`, which may be the array itself."""

    def broadcast(self, array: np.ndarray, root: int) -> None:
        """Leaves the array of process `root` in those of all."""

    def all_gather(self, out: np.ndarray, array: np.ndarray) -> None:
        """Writes the arrays of all processes into `out`, one after the other."""

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, reduce: str) -> None:
        """Writes this process's part of the reduction into `out`."""

    def all_to_all(self, out: np.ndarray, array: np.ndarray) -> None:
        """Writes the parts that the processes have for this one into `out`."""

    def send(self, array: np.ndarray, peer: int, tag: int, of: str = "") -> None:
        """Gives the array to a process. `of`: what it is part of, which the receiver knows."""

    def receive(self, array: np.ndarray, peer: int, tag: int, of: str = "") -> None:
        """Fills the array with what a process has sent, which has its shape and dtype and is part of the same."""

    def split(self, color: int, key: int) -> Transport:
        """The transport among the processes with this color, in the order of their keys."""


def differing(calls: Sequence[Call | None], rank: int, timeout: float) -> CollectiveError:
    """The error of processes that ask for different things, or of which some have not come (None)."""
    mine = calls[rank]
    others = {r: call for r, call in enumerate(calls) if call is not None and call != mine}
    missing = ", ".join(str(r) for r, call in enumerate(calls) if call is None)
    text = f"rank {rank} of {len(calls)} has called {mine}"
    if others:
        text += "; " + "; ".join(f"rank {r} has called {call}" for r, call in others.items())
        text += ". All ranks must call the same collectives in the same order, with equal shapes and dtypes"
    if missing:
        text += f"; rank{'s' * (', ' in missing)} {missing} did not come within {timeout:g} s"
        text += ": see what they were doing, or give distributed.init a longer timeout"
    if not others and not missing:
        text += (
            f"; not all ranks came within {timeout:g} s: see what they were doing, or give distributed.init a longer "
        )
        text += "timeout"
    return CollectiveError(text)


def not_received(
    rank: int, size: int, array: np.ndarray, peer: int, tag: int, of: str, timeout: float
) -> CollectiveError:
    """The error of an array that has not come in time."""
    return CollectiveError(
        f"rank {rank} of {size} waits for {described(array)} from rank {peer} ({of or f'tag {tag}'}), which did not "
        f"come within {timeout:g} s"
    )


def unlike(
    rank: int, array: np.ndarray, peer: int, tag: int, of: str, sent: tuple[tuple[int, ...], str, str]
) -> CollectiveError:
    """The error of an array that has come, and is not the one that was waited for."""
    shape, dtype, other = sent
    told = f"{dtype}[{','.join(map(str, shape))}]{f' ({other})' if other else ''}"
    return CollectiveError(
        f"rank {rank} waits for {described(array)} from rank {peer} ({of or f'tag {tag}'}), which has sent {told}"
    )


def is_whole(value: Any) -> bool:
    """Whether a value is an integer, Python's or NumPy's."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def described(array: np.ndarray) -> str:
    """Dtype and shape of an array, as text."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"
