"""GPUs with PyTorch's names of `torch.cuda`: what there is, streams, events, and memory.

    device = "cuda" if hm.cuda.is_available() else "cpu"

Functions take a device by number, name or `hm.device`; without one it is that of `set_device`, or else the first GPU.
Where there is none that is the simulated one, "cuda:sim", which has all of this but the speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from hybridml_compiler.errors import DeviceError, OutOfMemoryError
from hybridml_compiler.targets import registry

from .core.spellings import advise
from .core.tensor import Device

__all__ = [
    "Event", "OutOfMemoryError", "Stream", "current_device", "current_stream", "default_stream", "device",
    "device_count", "empty_cache", "get_device_capability", "get_device_name", "get_device_properties", "is_available",
    "is_built", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_reserved", "memory_stats", "memory_summary", "reset_peak_memory_stats", "set_device",
    "set_per_process_memory_fraction", "stream", "synchronize",
]  # fmt: skip

_SIMULATED = "cuda:sim"
_current: ContextVar[str | None] = ContextVar("the device of hm.cuda", default=None)


advise(globals())


# ---- devices


def is_available() -> bool:
    """Whether there is a GPU that "cuda" stands for, and all that it takes to use it.

    `hm.doctor()` says what is missing where there is not.

    >>> import hybridml as hm
    >>> isinstance(hm.cuda.is_available(), bool)
    True
    """
    return device_count() > 0


def is_built() -> bool:
    """Whether this installation could use a GPU: True.

    >>> import hybridml as hm
    >>> hm.cuda.is_built()
    True
    """
    return True


def device_count() -> int:
    """Number of GPUs: 0 where something is missing that it takes to use them.

    >>> import hybridml as hm
    >>> (hm.cuda.device_count() > 0) == hm.cuda.is_available()
    True
    """
    from hybridml_compiler.targets.cuda.availability import device_count

    return device_count()


def current_device() -> int | str:
    """The number of the GPU that functions here use without one; "cuda:sim" where it is the simulated one.

    >>> import hybridml as hm
    >>> with hm.cuda.device("cuda:sim"):
    ...     hm.cuda.current_device()
    'cuda:sim'
    """
    found = Device(_name(None))
    return found.type if found.index is None else found.index


def set_device(device: Any) -> None:
    """Makes a device that which functions here use without one, for this thread. Tensors are made where they were.

    >>> import hybridml as hm
    >>> hm.cuda.set_device(hm.cuda.current_device())
    """
    _current.set(_name(device))


@contextmanager
def device(device: Any) -> Iterator[None]:
    """A context in which functions here use this device.

    >>> import hybridml as hm
    >>> with hm.cuda.device("cuda:sim"):
    ...     hm.cuda.get_device_name()
    'simulated GPU'
    """
    token = _current.set(_name(device))
    try:
        yield
    finally:
        _current.reset(token)


class Properties(NamedTuple):
    """A GPU, by PyTorch's names."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Any = None) -> Properties:
    """Name, architecture, memory and multiprocessors of a GPU.

    >>> import hybridml as hm
    >>> hm.cuda.get_device_properties("cuda:sim").name
    'simulated GPU'
    """
    found = _device(device).driver.properties
    major, minor = divmod(found.capability, 10)
    return Properties(found.name, major, minor, found.memory, found.multiprocessors)


def get_device_name(device: Any = None) -> str:
    """Name of a GPU, as its maker calls it.

    >>> import hybridml as hm
    >>> hm.cuda.get_device_name("cuda:sim")
    'simulated GPU'
    """
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The architecture of a GPU: (9, 0) for sm_90.

    >>> import hybridml as hm
    >>> len(hm.cuda.get_device_capability("cuda:sim"))
    2
    """
    return get_device_properties(device)[1:3]


def synchronize(device: Any = None) -> None:
    """Waits until a GPU has done all that it was asked for.

    >>> import hybridml as hm
    >>> y = hm.ones(3, device="cuda:sim") + 1
    >>> hm.cuda.synchronize("cuda:sim")
    >>> y.tolist()
    [2.0, 2.0, 2.0]
    """
    _device(device).synchronize()


def manual_seed(seed: int) -> None:
    """Accepts a seed and ignores it: a GPU's numbers are those of the CPU's generator (`hm.manual_seed`).

    >>> import hybridml as hm
    >>> hm.cuda.manual_seed(0)
    """


manual_seed_all = manual_seed


# ---- streams and events


class Stream:
    """A queue of work, beside those of other streams. Work for a stream is that inside of `with hm.cuda.stream(s)`.

    A tensor that another stream has made is waited for, and its memory is not used again before all streams that use
    it have come so far: there is no need of `record_stream`. `priority` is PyTorch's and says nothing here.

    >>> import hybridml as hm
    >>> s = hm.cuda.Stream("cuda:sim")
    >>> with hm.cuda.stream(s):
    ...     y = hm.ones(3, device="cuda:sim") * 2
    >>> s.synchronize()
    >>> s.query()
    True
    """

    def __init__(self, device: Any = None, priority: int = 0, *, _stream: Any = None) -> None:
        self._device = _device(device)
        self._stream = _stream or self._device.driver.stream()
        self.device, self.priority = Device(self._device.name), priority

    @property
    def cuda_stream(self) -> int:
        """CUDA's number of the stream, which other libraries take: `torch.cuda.ExternalStream(s.cuda_stream)`."""
        return int(self._stream.ptr)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._stream is self._stream

    def __hash__(self) -> int:
        return id(self._stream)

    def __repr__(self) -> str:
        return f"<hm.cuda.Stream on {self.device}>"

    def synchronize(self) -> None:
        """Waits until all that the stream was asked for is done."""
        self._device.synchronize(self._stream)

    def query(self) -> bool:
        """Whether all that the stream was asked for is done."""
        return bool(self._device.driver.is_done(self._stream))

    def record_event(self, event: Event | None = None) -> Event:
        """Puts an event, a new one unless it is given, behind all that the stream was asked for."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Lets what the stream is asked for from now on wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Lets what the stream is asked for from now on wait for all that another one was asked for."""
        self.wait_event(stream.record_event())


class Event:
    """A mark in a stream; two that were made with `enable_timing=True` tell the time between them.

    >>> import hybridml as hm
    >>> with hm.cuda.device("cuda:sim"):
    ...     start, end = hm.cuda.Event(enable_timing=True), hm.cuda.Event(enable_timing=True)
    ...     start.record()
    ...     end.record()
    ...     end.synchronize()
    >>> start.elapsed_time(end) >= 0
    True
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._timed = enable_timing
        self._event: Any = None
        self._device: Any = None

    def record(self, stream: Stream | None = None) -> None:
        """Puts the mark behind all that a stream, by default the current one, was asked for."""
        stream = stream or current_stream()
        if self._event is None:
            self._device, self._event = stream._device, stream._device.driver.event(self._timed)
        self._device.driver.record(self._event, stream._stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Lets a stream wait for the mark."""
        if self._event is not None:
            self._device.driver.wait((stream or current_stream())._stream, self._event)

    def query(self) -> bool:
        """Whether all before the mark is done."""
        return self._event is None or bool(self._device.driver.is_done(self._event))

    def synchronize(self) -> None:
        """Waits until all before the mark is done."""
        if self._event is not None:
            self._device.synchronize(self._event)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to another. DeviceError unless both are recorded and timed."""
        if not (self._timed and end_event._timed and self._event is not None and end_event._event is not None):
            raise DeviceError("Event.elapsed_time: make both with enable_timing=True, and record them first")
        return float(self._device.driver.elapsed(self._event, end_event._event))


def current_stream(device: Any = None) -> Stream:
    """The stream that work of this thread goes to.

    >>> import hybridml as hm
    >>> s = hm.cuda.Stream("cuda:sim")
    >>> with hm.cuda.stream(s):
    ...     hm.cuda.current_stream("cuda:sim") == s
    True
    """
    return Stream(device, _stream=_device(device).stream)


def default_stream(device: Any = None) -> Stream:
    """The stream of all that names none.

    >>> import hybridml as hm
    >>> hm.cuda.current_stream("cuda:sim") == hm.cuda.default_stream("cuda:sim")
    True
    """
    return Stream(device, _stream=_device(device).default_stream)


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """A context whose work goes to a stream; of None to that which it goes to anyway.

    >>> import hybridml as hm
    >>> s = hm.cuda.Stream("cuda:sim")
    >>> with hm.cuda.stream(s):
    ...     y = hm.ones(2, device="cuda:sim") + 1
    >>> hm.cuda.current_stream("cuda:sim").wait_stream(s)
    >>> y.tolist()
    [2.0, 2.0]
    """
    if stream is None:
        yield
        return
    with stream._device.using(stream._stream):
        yield


# ---- memory


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes and numbers of blocks in use, now and at most, and bytes that are kept for reuse, by PyTorch's names.

    >>> import hybridml as hm
    >>> x = hm.zeros(1000, device="cuda:sim")
    >>> hm.cuda.memory_stats("cuda:sim")["allocated_bytes.all.current"] >= 4000
    True
    """
    pool = _device(device).pool
    found = {}
    for name, ours in (("allocated_bytes",) * 2, ("reserved_bytes",) * 2, ("allocation", "allocations")):
        found[f"{name}.all.current"], found[f"{name}.all.peak"] = pool.counts[ours], pool.peaks[ours]
    return {**found, **{name: pool.counts[name] for name in ("num_alloc_retries", "num_ooms")}}


_EXAMPLE = """

>>> import hybridml as hm
>>> x = hm.zeros(1000, device="cuda:sim")
>>> hm.cuda.{}("cuda:sim") >= 4000
True
"""


def _statistic(name: str, doc: str) -> Callable[..., int]:
    def read(device: Any = None) -> int:
        return memory_stats(device)[name]

    read.__doc__ = doc + _EXAMPLE
    return read


memory_allocated = _statistic("allocated_bytes.all.current", "Bytes of a GPU's memory that tensors have.")
max_memory_allocated = _statistic("allocated_bytes.all.peak", "The most bytes that tensors have had.")
memory_reserved = _statistic("reserved_bytes.all.current", "Bytes that the pool has, in use or kept for reuse.")
max_memory_reserved = _statistic("reserved_bytes.all.peak", "The most bytes that the pool has had.")
for _name_, _function in list(globals().items()):
    if getattr(_function, "__name__", "") == "read":
        _function.__name__ = _function.__qualname__ = _name_
        _function.__doc__ = str(_function.__doc__).format(_name_)


def memory_summary(device: Any = None) -> str:
    """Text of the memory in use, and of the lines of the program whose tensors have most of it.

    >>> import hybridml as hm
    >>> "in use" in hm.cuda.memory_summary("cuda:sim")
    True
    """
    return str(_device(device).pool.summary())


def reset_peak_memory_stats(device: Any = None) -> None:
    """Lets the peaks begin again with what is in use now.

    >>> import hybridml as hm
    >>> hm.cuda.reset_peak_memory_stats("cuda:sim")
    >>> hm.cuda.max_memory_allocated("cuda:sim") == hm.cuda.memory_allocated("cuda:sim")
    True
    """
    _device(device).pool.reset_peaks()


def empty_cache() -> None:
    """Gives the memory back that is kept for reuse.

    >>> import hybridml as hm
    >>> with hm.cuda.device("cuda:sim"):
    ...     hm.cuda.empty_cache()
    ...     hm.cuda.memory_reserved() >= hm.cuda.memory_allocated()
    True
    """
    _device(None).pool.empty_cache()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(bytes that are left for tensors, bytes that there are for them).

    >>> import hybridml as hm
    >>> free, total = hm.cuda.mem_get_info("cuda:sim")
    >>> 0 <= free <= total
    True
    """
    pool = _device(device).pool
    return pool.limit - pool.counts["allocated_bytes"], pool.limit


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Lets tensors have no more than this part of a GPU's memory: beyond it is an OutOfMemoryError.

    >>> import hybridml as hm
    >>> hm.cuda.set_per_process_memory_fraction(1.0, "cuda:sim")
    >>> hm.cuda.mem_get_info("cuda:sim")[1] == hm.cuda.get_device_properties("cuda:sim").total_memory
    True
    """
    if not 0 <= fraction <= 1:
        raise DeviceError(f"set_per_process_memory_fraction: takes a number from 0 to 1, got {fraction}")
    found = _device(device)
    found.pool.limit = int(fraction * found.driver.properties.memory)


# ---- devices by what users write


def _name(device: Any) -> str:
    if device is None:
        return _current.get() or ("cuda" if device_count() else _SIMULATED)
    name = Device(f"cuda:{device}" if isinstance(device, int) else device).type
    if name.partition(":")[0] != "cuda":
        raise DeviceError(f'hm.cuda: {name!r} is no GPU; say a number, "cuda" or {_SIMULATED!r}')
    return name


def _device(device: Any) -> Any:
    return registry.find_device(_name(device))
