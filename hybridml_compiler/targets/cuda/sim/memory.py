"""Memory of the simulated device: global buffers, a block's shared and a thread's local memory.

An access is checked for bounds, alignment, reads of what nobody has written, and races (races.py): those of atomic
updates, which are by no thread in particular, are none. Global addresses are
of the simulator's own: a buffer is the upper 32 bits, so that no address of one is in another. The last bits are those
of the memory that it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ....errors import CompileError
from ....record import record
from .races import Races, ThreadIds

_BUFFER_BITS = 32
_ALIGN = 16
_WORD = np.dtype("u4")  # copies are of so many of them


class SimulatorError(CompileError):
    """A kernel that does what a GPU must not be asked to do."""


@record(eq=False)
class Access:
    """An instruction that loads or stores, and the threads that execute it: of an atomic update none in particular."""

    text: str
    ids: ThreadIds | None


class Region:
    """Memory of equal parts, one for each owner: a buffer is one part, shared memory one for each block."""

    def __init__(self, what: str, data: np.ndarray, size: int, *, written: bool, races: bool, constant: bool) -> None:
        self.what, self.data, self.size, self.constant = what, data, size, constant
        self.stride = data.size if size == data.size else -(-size // _ALIGN) * _ALIGN
        self.written = None if written else np.zeros(data.size, np.bool_)
        self.races = Races(data.size) if races and not constant else None
        self.start = 0  # bytes from a multiple of 16 to its beginning
        self.coming: np.ndarray | None = None  # bytes that a copy is on its way to, once there has been one

    @staticmethod
    def of_owners(what: str, size: int, owners: int, *, races: bool) -> Region:
        """New memory, which nobody has written."""
        stride = -(-size // _ALIGN) * _ALIGN
        data = np.full(stride * owners, 0xFF, np.uint8)
        found = Region(what, data, size, written=False, races=races, constant=False)
        found.stride = stride
        return found

    def load(self, offset: np.ndarray, owner: np.ndarray | int, dtype: np.dtype, access: Access) -> np.ndarray:
        at = self._place(offset, owner, dtype, access.text)
        self._arrived(at, "reads", access.text)
        if self.written is not None and not self.written[at].all():
            raise SimulatorError(f"cuda:sim: {access.text}: reads {self.what} that nothing has written")
        ids = access.ids
        if self.races is not None and ids is not None:
            self._report(self.races.read(at, ids), at, ids, access.text)
        found: np.ndarray = self._view(dtype)[at // dtype.itemsize]
        return found

    def store(
        self,
        offset: np.ndarray,
        owner: np.ndarray | int,
        dtype: np.dtype,
        value: np.ndarray,
        access: Access,
    ) -> None:
        if self.constant:
            raise SimulatorError(f"cuda:sim: {access.text}: stores to {self.what}, which is constant")
        at = self._place(offset, owner, dtype, access.text)
        self._arrived(at, "stores to", access.text)
        ids = access.ids
        if self.races is not None and ids is not None:
            self._report(self.races.write(at, ids), at, ids, access.text)
        if self.written is not None:
            self.written[(at[:, None] + np.arange(dtype.itemsize)).reshape(-1)] = True
        self._view(dtype)[at // dtype.itemsize] = value

    def expect(self, offset: np.ndarray, owner: np.ndarray, words: np.ndarray, access: Access) -> np.ndarray:
        """Starts copies of so many words each, one for a thread; the bytes that they write."""
        at = np.stack([self._place(offset + 4 * k, owner, _WORD, access.text) for k in range(words.shape[1])], -1)
        every = at[..., None] + np.arange(_WORD.itemsize)
        self._arrived(every.reshape(-1), "copies to", access.text)
        self._view(_WORD)[at // _WORD.itemsize] = words
        bytes_of = every.reshape(len(every), -1)
        self._copied(bytes_of, access)
        if self.coming is None:
            self.coming = np.zeros(self.data.size, np.bool_)
        self.coming[bytes_of] = True
        return bytes_of

    def arrive(self, at: np.ndarray, access: Access) -> None:
        """Ends copies to these bytes, a row for each thread, which has waited for them."""
        assert self.coming is not None
        self.coming[at] = False
        if self.written is not None:
            self.written[at] = True
        self._copied(at, access)

    def _copied(self, at: np.ndarray, access: Access) -> None:
        """Notes that the threads write these bytes: when a copy is started, and when it is known to have ended."""
        if self.races is not None and access.ids is not None:
            ids = access.ids.repeated(at.shape[1])
            self._report(self.races.write(at.reshape(-1), ids), at, ids, access.text)

    def _arrived(self, at: np.ndarray, what: str, text: str) -> None:
        if self.coming is not None and self.coming[at].any():
            raise SimulatorError(f"cuda:sim: {text}: {what} {self.what} that an asynchronous copy is on its way to")

    def _view(self, dtype: np.dtype) -> np.ndarray:
        return self.data[: self.data.size // dtype.itemsize * dtype.itemsize].view(dtype)

    def _place(self, offset: np.ndarray, owner: np.ndarray | int, dtype: np.dtype, text: str) -> np.ndarray:
        outside = (offset < 0) | (offset + dtype.itemsize > self.size)
        if outside.any():
            first = int(offset[outside][0])
            raise SimulatorError(f"cuda:sim: {text}: byte {first} of {self.what}, which has {self.size}")
        if ((offset | self.start) % dtype.itemsize).any():
            raise SimulatorError(f"cuda:sim: {text}: an address in {self.what} is no multiple of {dtype.itemsize}")
        return np.asarray(offset + np.asarray(owner) * self.stride)

    def _report(self, wrong: str, at: np.ndarray, ids: ThreadIds, text: str) -> None:
        if wrong:
            first, last = int(ids.thread.min()), int(ids.thread.max())
            raise SimulatorError(
                f"cuda:sim: {text}: a race in {self.what} around byte {int(at.min())}: {wrong}, without a barrier "
                f"between them (threads {first} to {last})"
            )


class GlobalMemory:
    """The buffers of a launch, and the constants of its module. A buffer that is another one (a result in the place of
    an operand) has its address, so that races between the two are seen."""

    def __init__(self, buffers: Sequence[np.ndarray], constants: Mapping[str, bytes], races: bool) -> None:
        self.regions: list[Region] = []
        known: dict[tuple[int, int], int] = {}
        self.buffers: list[int] = []  # their addresses
        for number, buffer in enumerate(buffers):
            place = buffer.__array_interface__["data"][0], buffer.nbytes
            if place not in known:
                known[place] = self._add(f"buffer {number}", buffer.view(np.uint8), races=races, constant=False)
            self.buffers.append(known[place])
        self.addresses = {
            name: self._add(name, np.frombuffer(data, np.uint8), races=False, constant=True)
            for name, data in constants.items()
        }

    def _add(self, what: str, data: np.ndarray, *, races: bool, constant: bool) -> int:
        """The address of new memory."""
        region = Region(what, data, data.size, written=True, races=races, constant=constant)
        region.start = int(data.__array_interface__["data"][0]) % _ALIGN
        self.regions.append(region)
        return (len(self.regions) << _BUFFER_BITS) + region.start

    def load(self, address: np.ndarray, dtype: np.dtype, access: Access) -> np.ndarray:
        out = np.empty(address.size, dtype)
        for region, part, offset, some in self._parts(address, access):
            out[part] = region.load(offset, 0, dtype, some)
        return out

    def store(self, address: np.ndarray, dtype: np.dtype, value: np.ndarray, access: Access) -> None:
        for region, part, offset, some in self._parts(address, access):
            region.store(offset, 0, dtype, value[part], some)

    def _parts(
        self, address: np.ndarray, access: Access
    ) -> list[tuple[Region, slice | np.ndarray, np.ndarray, Access]]:
        """(buffer, which of the accesses are in it, their offsets, their threads)."""
        numbers, offset = (address >> _BUFFER_BITS) - 1, address & ((1 << _BUFFER_BITS) - 1)
        different = [int(numbers[0])] if (numbers == numbers[0]).all() else np.unique(numbers).tolist()
        if min(different) < 0 or max(different) >= len(self.regions):
            raise SimulatorError(f"cuda:sim: {access.text}: an address that is in no buffer")
        if len(different) == 1:
            region = self.regions[different[0]]
            return [(region, slice(None), offset - region.start, access)]
        found: list[tuple[Region, slice | np.ndarray, np.ndarray, Access]] = []
        for number in different:
            part = numbers == number
            ids = access.ids and access.ids.select(part)
            some = Access(access.text, ids)
            region = self.regions[number]
            found.append((region, part, offset[part] - region.start, some))
        return found
