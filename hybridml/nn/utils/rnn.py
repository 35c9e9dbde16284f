"""Sequences of several lengths in one tensor: padded to one length, or packed without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler.errors import ArgumentError, ShapeError

from ... import arrays as xp
from ...core.tensor import Tensor


class PackedSequence(NamedTuple):
    """Sequences step after step, without padding: `data` (sum of lengths, ...), and how many go on in each step.

    The recurrent layers take one in place of a padded tensor, and return one: no step of padding counts. Sequences lie
    from long to short; `sorted_indices` says which is where, None where they came so, `unsorted_indices` the way back.
    Made by `pack_padded_sequence` and `pack_sequence`.

    >>> pack_sequence([hm.tensor([1.0, 2.0, 3.0]), hm.tensor([4.0])]).data.tolist()
    [1.0, 4.0, 2.0, 3.0]
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """One tensor (longest, n, ...) of sequences (length, ...), with `batch_first` (n, longest, ...).

    padding_side: "right" or "left". Raises ArgumentError for no sequences or another side, ShapeError where other axes
    differ.

    >>> pad_sequence([hm.tensor([1, 2]), hm.tensor([3])], batch_first=True).tolist()
    [[1, 2], [3, 0]]
    """
    if not len(sequences) or padding_side not in ("left", "right"):
        raise ArgumentError(
            f'pad_sequence: takes sequences, and padding_side "left" or "right", got {len(sequences)} of them and '
            f"{padding_side!r}"
        )
    if len({x.shape[1:] for x in sequences}) > 1:
        raise ShapeError(f"pad_sequence: only the first axes may differ, got {[x.shape for x in sequences]}")
    longest = max(x.shape[0] for x in sequences)
    rows = []
    for x in sequences:
        gap = xp.full((longest - x.shape[0], *x.shape[1:]), padding_value, dtype=x.dtype)
        rows.append(xp.concat([x, gap] if padding_side == "right" else [gap, x]))
    return xp.stack(rows, axis=0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences (length, ...) of a tensor of `pad_sequence`.

    >>> [x.tolist() for x in unpad_sequence(hm.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)]
    [[1, 2], [3]]
    """
    rows = padded_sequences if batch_first else xp.swapaxes(padded_sequences, 0, 1)
    return [rows[k, :n] for k, n in enumerate(_lengths(lengths, rows.shape[0], rows.shape[1], "unpad_sequence"))]


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences (length, ...) of a packed one, in the order that they came in.

    >>> [x.tolist() for x in unpack_sequence(pack_sequence([hm.tensor([1]), hm.tensor([2, 3])], enforce_sorted=False))]
    [[1], [2, 3]]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs sequences that are padded on the right: `input` (steps, n, ...), with `batch_first` (n, steps, ...).

    lengths: n integers from 1 to the number of steps (ArgumentError for others), from long to short unless
    `enforce_sorted` is False. They are read: a traced function has a program for each list of lengths, and runs eagerly
    where these differ in most calls. Padded sequences and a loss that leaves padding out are one program.

    >>> packed = pack_padded_sequence(hm.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 3, 2], [2, 1])
    """
    rows = xp.swapaxes(input, 0, 1) if batch_first else input
    sizes = np.array(_lengths(lengths, rows.shape[1], rows.shape[0], "pack_padded_sequence"))
    order = None
    if enforce_sorted and (np.diff(sizes) > 0).any():
        raise ArgumentError(
            f"pack_padded_sequence: lengths are to fall, got {sizes.tolist()}; sort the batch, or pass "
            "enforce_sorted=False"
        )
    if not enforce_sorted:
        order = np.argsort(-sizes, kind="stable")
        sizes = sizes[order]
    steps, places = _places(sizes)
    columns = places if order is None else order[places]
    return PackedSequence(
        rows[xp.asarray(steps), xp.asarray(columns)],
        xp.asarray((sizes[None] > np.arange(sizes[0])[:, None]).sum(axis=1)),
        None if order is None else xp.asarray(order),
        None if order is None else xp.asarray(np.argsort(order)),
    )


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences (length, ...), from long to short unless `enforce_sorted` is False.

    >>> pack_sequence([hm.tensor([1]), hm.tensor([2, 3])], enforce_sorted=False).sorted_indices.tolist()
    [1, 0]
    """
    return pack_padded_sequence(pad_sequence(sequences), [x.shape[0] for x in sequences], False, enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The padded tensor (steps, n, ...), with `batch_first` (n, steps, ...), and the lengths (n,), in the first order.

    total_length: of the padded axis, at least the longest sequence (ArgumentError).

    >>> padded, lengths = pad_packed_sequence(pack_sequence([hm.tensor([1, 2]), hm.tensor([3])]), batch_first=True)
    >>> padded.tolist(), lengths.tolist()
    ([[1, 2], [3, 0]], [2, 1])
    """
    sizes = lengths_of(sequence)
    total = sizes[0] if total_length is None else total_length
    if total < sizes[0]:
        raise ArgumentError(f"pad_packed_sequence: total_length={total} is less than the longest, {sizes[0]}")
    padded = unpacked(sequence, int(total), padding_value)
    lengths = xp.asarray(sizes)
    if sequence.unsorted_indices is not None:
        padded, lengths = padded[:, sequence.unsorted_indices], lengths[sequence.unsorted_indices]
    return (xp.swapaxes(padded, 0, 1) if batch_first else padded), lengths


def lengths_of(sequence: PackedSequence) -> np.ndarray:
    """The lengths of the sequences, from long to short."""
    going = np.asarray(sequence.batch_sizes.tolist())
    return np.asarray((going[:, None] > np.arange(going[0])).sum(axis=0))


def unpacked(sequence: PackedSequence, total: int, padding_value: float = 0.0) -> Tensor:
    """The padded tensor (total, n, ...), from long to short."""
    sizes, data = lengths_of(sequence), sequence.data
    steps, places = _places(sizes)
    at = np.full((total, len(sizes)), len(steps))  # behind all data: the padding
    at[steps, places] = np.arange(len(steps))
    with_padding = xp.concat([data, xp.full((1, *data.shape[1:]), padding_value, dtype=data.dtype)])
    return with_padding[xp.asarray(at)]


def packed_like(padded: Tensor, sequence: PackedSequence) -> PackedSequence:
    """A padded tensor (steps, n, ...), from long to short, packed as another sequence is."""
    steps, places = _places(lengths_of(sequence))
    return sequence._replace(data=padded[xp.asarray(steps), xp.asarray(places)])


def _places(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step and sequence of each packed row."""
    steps, places = np.nonzero(sizes[None] > np.arange(sizes.max())[:, None])
    return steps, places


def _lengths(lengths: Any, count: int, steps: int, name: str) -> list[int]:
    found = [int(n) for n in (lengths.tolist() if hasattr(lengths, "tolist") else lengths)]
    if len(found) != count or not all(1 <= n <= steps for n in found):
        raise ArgumentError(f"{name}: takes {count} lengths from 1 to {steps}, got {found}")
    return found


__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpack_sequence",
    "unpad_sequence",
]  # fmt: skip
