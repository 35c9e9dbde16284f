"""Bytes of all processes, in the first one, and bytes of the first one, in all."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..groups import Group
from ..transport import OWN_TAG, Transport


def gathered(group: Group, mine: bytes) -> list[bytes]:
    """The words of all processes, in rank 0; none in the others."""
    if group.rank:
        group.unseen(partial(_send, word=mine, peer=0))
        return []
    return [mine, *(group.unseen(partial(_received, peer=rank)) for rank in range(1, group.size))]


def told(group: Group, word: bytes) -> bytes:
    """The word of rank 0, in all processes."""
    if group.rank:
        return group.unseen(partial(_received, peer=0))
    for rank in range(1, group.size):
        group.unseen(partial(_send, word=word, peer=rank))
    return word


def _send(transport: Transport, word: bytes, peer: int) -> None:
    transport.send(np.asarray([len(word)]), peer, OWN_TAG)
    transport.send(np.frombuffer(word, np.uint8), peer, OWN_TAG)


def _received(transport: Transport, peer: int) -> bytes:
    length = np.zeros(1, np.int64)
    transport.receive(length, peer, OWN_TAG)
    word = np.empty(int(length[0]), np.uint8)
    transport.receive(word, peer, OWN_TAG)
    return word.tobytes()
