"""Queue: elements that threads hand to each other, with a limit on their number, in eager and in traced code.

Calls are rows with effects (hybridml_compiler/ops/queues.py): a program that calls a queue has it in its graph, and
waits for other threads where the function does. The queue itself, and what its rows do, are in `stored.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DeviceError, DTypeError, HybridmlError, OutOfRangeError, ShapeError

from ..arrays.creation import asarray
from ..arrays.data_types import get_default_dtype
from ..core.autodiff.replay import runs_again
from ..core.batching.interpreter import Batching
from ..core.interpreter import interpreter_stack
from ..core.nested import top_nesting
from ..core.proxies.base import concrete_value
from ..core.shared.calls import calls_of_thread
from ..core.tensor import Tensor
from .stored import Part, Stored

Element = Tensor | tuple[Tensor, ...]


class Queue:
    """A queue of up to `capacity` elements, first in, first out, which threads fill and empty.

    An element is a tensor, or a tuple of tensors where `shapes` is a list. All elements have the same shapes and
    dtypes, by which traced functions know what comes out. `enqueue` waits while the queue is full, `dequeue` while it
    is empty; who has waited longest is first. A loop over the queue ends when it is closed and empty. Gradients do not
    go through a queue. A queue belongs to its process: a forked child has a copy.

    capacity: the most elements in it. shapes: the shape of an element, a tuple, or a list of those of its parts.
    dtypes: that of the element, or a list of those of the parts; by default the default dtype. name: what programs and
    errors call it, by default "queue" and a number. Raises ArgumentError for a capacity below 1, or lists of different
    lengths.

    >>> import threading
    >>> queue = Queue(2, [(3,), ()], ["float32", "int64"])
    >>> def produce():
    ...     for label in range(4):
    ...         queue.enqueue((hm.full((3,), float(label)), label))
    ...     queue.close()
    >>> threading.Thread(target=produce).start()
    >>> @hm.trace
    ... def consume():
    ...     x, label = queue.dequeue()
    ...     return x.sum() * label
    >>> [consume().item() for _ in range(2)]
    [0.0, 3.0]
    >>> [label.item() for _, label in queue]
    [2, 3]
    """

    digested = ()  # a trace does not look inside: what other threads change there is no affair of a program

    def __init__(self, capacity: int, shapes: Any, dtypes: Any = None, *, name: str | None = None) -> None:
        if type(capacity) is not int or capacity < 1:
            raise ArgumentError(f"Queue: capacity must be an integer from 1 on, got {capacity!r}")
        self.capacity, self._is_tuple = capacity, isinstance(shapes, list)
        self._stored = Stored(capacity, _parts(shapes, dtypes, self._is_tuple), name)
        self.name = self._stored.name

    def __repr__(self) -> str:
        parts = ", ".join(map(str, self._stored.parts))
        of = f"({parts})" if self._is_tuple else parts
        state = ", closed" if self._stored.is_closed else ""
        return f"Queue({self.name!r}, {len(self._stored.elements)} of {self.capacity} elements {of}{state})"

    def __deepcopy__(self, memo: object) -> Queue:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            f"Queue: {self.name!r} is of the threads of this process, and another one has none of them; give it a "
            "multiprocessing.Queue, or tensors in shared memory (Tensor.share_memory_)"
        )

    # -- putting in

    def enqueue(self, element: Any, timeout: float | None = None) -> None:
        """Puts a copy of an element behind the others, once there is room.

        element: a tensor, array or number, or a sequence of them where elements have several parts; arrays and numbers
        of the same kind are cast, where that loses no integers. timeout: the most seconds to wait. Raises ShapeError or
        DTypeError for an element of another type, CancelledError for a closed queue, TimeoutError, and ArgumentError
        inside of vmap and checkpoint.

        >>> queue = Queue(1, (2,))
        >>> queue.enqueue([1.0, 2.0])
        >>> queue.enqueue([3.0, 4.0], timeout=0.01)
        Traceback (most recent call last):
            ...
        TimeoutError: enqueue: no room within timeout=0.01 s: ... has 1 of 1 elements...
        """
        self._enqueue("enqueue", element, timeout, many=False)

    def enqueue_many(self, elements: Any, timeout: float | None = None) -> None:
        """Puts in the rows of tensors as elements, once there is room for all of them.

        elements: as `enqueue` takes one, with one more axis in front, of the same length in all parts. Raises
        ArgumentError for more than the capacity, and what `enqueue` does: none is put in then.

        >>> queue = Queue(4, (2,))
        >>> queue.enqueue_many(hm.arange(6.0).reshape(3, 2))
        >>> queue.dequeue().tolist(), queue.size().item()
        ([0.0, 1.0], 2)
        """
        self._enqueue("enqueue_many", elements, timeout, many=True)

    def _enqueue(self, name: str, element: Any, timeout: float | None, many: bool) -> None:
        stored = self._stored
        given = list(element) if self._is_tuple and isinstance(element, list | tuple) else [element]
        if len(given) != len(stored.parts):
            raise ShapeError(f"{name}: an element of {self!r} has {len(stored.parts)} parts, got {len(given)}")
        timeout = _seconds(name, timeout)
        parts = [_part(name, value, part, many) for value, part in zip(given, stored.parts, strict=True)]
        if many:
            _check_count(name, parts, self)
        for k, part in enumerate(parts):
            self._call(name, "enqueue", part, part=k, last=k + 1 == len(parts), many=many, timeout=timeout)

    # -- taking out

    def dequeue(self, timeout: float | None = None) -> Any:
        """The first element, which it takes out, once there is one.

        timeout: the most seconds to wait. Raises OutOfRangeError where the queue is closed and empty, TimeoutError, and
        ArgumentError inside of vmap and checkpoint.

        >>> queue = Queue(4, [(2,), ()])
        >>> queue.enqueue(([1.0, 2.0], 3.0))
        >>> x, y = queue.dequeue()
        >>> x.tolist(), y.item()
        ([1.0, 2.0], 3.0)
        """
        return self._dequeue("dequeue", None, timeout)

    def dequeue_many(self, count: int, timeout: float | None = None) -> Any:
        """The first `count` elements, stacked along a new first axis, once there are so many.

        Raises OutOfRangeError where the queue is closed and has fewer, which it keeps, ArgumentError for a count that
        is no integer from 1 to the capacity, and what `dequeue` does.

        >>> queue = Queue(4, ())
        >>> queue.enqueue_many([1.0, 2.0, 3.0])
        >>> queue.dequeue_many(2).tolist()
        [1.0, 2.0]
        """
        count = concrete_value(count)
        if type(count) is not int or not 1 <= count <= self.capacity:
            raise ArgumentError(
                f"dequeue_many: count must be an integer from 1 to the capacity, {self.capacity}, got {count!r}"
            )
        return self._dequeue("dequeue_many", count, timeout)

    def _dequeue(self, name: str, count: int | None, timeout: float | None) -> Any:
        token = self._call(name, "dequeue", count=count, timeout=_seconds(name, timeout))
        lead = () if count is None else (count,)
        parts = tuple(
            calls_of_thread().read("dequeued", token, queue=self.name, part=k, shape=(*lead, *p.shape), dtype=p.dtype)
            for k, p in enumerate(self._stored.parts)
        )
        return parts if self._is_tuple else parts[0]

    def __iter__(self) -> Iterator[Any]:
        """The elements, each taken out, until the queue is closed and empty. Outside of traced functions, whose loops
        have an end that is known; they run eagerly with it."""
        if interpreter_stack() is not None:
            raise HybridmlError(
                f"Queue: a loop over {self.name!r} ends when another thread closes it; trace the function that "
                "calls dequeue() once, and loop around it"
            )
        return self._elements()

    def _elements(self) -> Iterator[Any]:
        while True:
            try:
                element = self.dequeue()
            except OutOfRangeError:
                return
            yield element

    # -- the rest

    def size(self) -> Tensor:
        """The number of elements in the queue now, a tensor of an integer.

        >>> queue = Queue(4, ())
        >>> queue.enqueue(1.0)
        >>> queue.size().item()
        1
        """
        found: Tensor = self._call("size", "queue_size")
        return found

    def close(self, cancel_pending_enqueues: bool = False) -> None:
        """Closes the queue: it takes no more elements, and is at its end when it is empty.

        Calls of `enqueue` that wait still put their elements in, unless they are cancelled: then they raise
        CancelledError.

        >>> queue = Queue(4, ())
        >>> queue.enqueue_many([1.0, 2.0])
        >>> queue.close()
        >>> [x.item() for x in queue]
        [1.0, 2.0]
        """
        self._call("close", "close_queue", cancel=bool(concrete_value(cancel_pending_enqueues)))

    def _call(self, name: str, row: str, *operands: Tensor, **params: Any) -> Any:
        if type(top_nesting()) is Batching:
            raise ArgumentError(f"{name}: not inside of vmap; call the queue outside")
        if runs_again.get():
            raise ArgumentError(f"{name}: not inside of hm.checkpoint, which runs twice; call the queue outside")
        return calls_of_thread().call(row, *operands, queue=self.name, **params)


def _parts(shapes: Any, kinds: Any, is_tuple: bool) -> list[Part]:
    shapes = shapes if is_tuple else [shapes]
    kinds = kinds if isinstance(kinds, list | tuple) else [kinds] * len(shapes)
    if not shapes or len(kinds) != len(shapes):
        raise ArgumentError(f"Queue: needs a dtype for each shape, got {len(shapes)} shapes and {len(kinds)} dtypes")
    found = []
    for shape, kind in zip(shapes, kinds, strict=True):
        if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
            raise ArgumentError(f"Queue: a shape is a tuple of integers from 0 on, or a list of such, got {shape!r}")
        found.append(Part(shape, get_default_dtype() if kind is None else dtypes.canonical(kind)))
    return found


def _part(name: str, value: Any, part: Part, many: bool) -> Tensor:
    """A part of an element as a tensor of its type."""
    x = value if isinstance(value, Tensor) else asarray(value)
    if x.device.type != "cpu":
        raise DeviceError(f"{name}: queues hold arrays of the CPU, got one on {x.device.type!r}; use x.to('cpu')")
    if x.shape[1 if many else 0 :] != part.shape or (many and not x.shape):
        wanted = f"rows of {part}" if many else str(part)
        raise ShapeError(f"{name}: the queue takes {wanted}, got shape {tuple(x.shape)}")
    if x.dtype != part.dtype:
        is_cast = np.can_cast(x.dtype, part.dtype, "same_kind") or (x.dtype.kind in "iu" and part.dtype.kind in "iu")
        if x is value or not is_cast:
            raise DTypeError(f"{name}: the queue takes {part}, got {x.dtype}; use astype")
        given, x = np.asarray(value), x.astype(part.dtype)
        if given.dtype.kind in "iu" and not (given.astype(part.dtype) == given).all():
            raise DTypeError(f"{name}: the queue takes {part}, which has no place for some of these numbers")
    return x


def _check_count(name: str, parts: Sequence[Tensor], queue: Queue) -> None:
    counts = {len(part) for part in parts}
    if len(counts) != 1:
        raise ShapeError(f"{name}: the parts have {' and '.join(map(str, sorted(counts)))} rows; give all as many")
    if max(counts) > queue.capacity:
        raise ArgumentError(f"{name}: {max(counts)} elements do not fit into {queue!r}; put in fewer at a time")


def _seconds(name: str, timeout: float | None) -> float | None:
    timeout = concrete_value(timeout)
    if timeout is not None and (type(timeout) not in (int, float) or not timeout >= 0):
        raise ArgumentError(f"{name}: timeout is a number of seconds from 0 on, or None, got {timeout!r}")
    return timeout
