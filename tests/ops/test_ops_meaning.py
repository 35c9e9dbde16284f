"""What the table's generated tests cannot know: choices that a row's sentence promises, and published test vectors."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml_compiler.ops import random as philox_rows
from hybridml_compiler.ops.table import OPS

# Known answers of Random123 1.14 (kat_vectors, philox4x32 10): counter, key, words.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]) -> None:
    got = philox_rows.philox(tuple(map(np.uint64, counter)), tuple(map(np.uint64, key)))
    assert tuple(map(int, got)) == words


def test_random_bits_are_words_of_blocks() -> None:
    bits = OPS["random_bits"]
    state = np.array([0, 0], np.uint64)
    first = bits.on_arrays(state, shape=(8,))
    assert tuple(map(int, first[:4])) == KNOWN_ANSWERS[0][2]
    np.testing.assert_array_equal(first[4:], bits.on_arrays(np.array([0, 1], np.uint64), shape=(4,)))
    np.testing.assert_array_equal(first.reshape(2, 4)[:, :3].ravel()[:3], bits.on_arrays(state, shape=(3,)))


def test_integer_division_by_zero_is_zero() -> None:
    x, zero = np.array([5, -5, 0]), np.zeros(3, int)
    with np.errstate(all="ignore"):
        assert OPS["floor_divide"].on_arrays(x, zero).tolist() == [0, 0, 0]
        assert OPS["remainder"].on_arrays(x, zero).tolist() == [0, 0, 0]


def test_integer_powers_are_exact_or_cut() -> None:
    x, y = np.array([2, -3, -1, -1, 1, 0, 7]), np.array([-1, 3, -3, -2, -9, -2, 3])
    assert OPS["pow"].on_arrays(x, y).tolist() == [0, -27, -1, 1, 1, 0, 343]


def test_arange_does_not_build_up_error() -> None:
    got = OPS["arange"].on_arrays(start=0.0, stop=1000.0, step=0.1, dtype="float64")
    np.testing.assert_array_equal(got, np.arange(10000) * 0.1)


def test_windows_and_fold_are_adjoint() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 9, 7))
    params = {"size": (3, 2), "stride": (2, 3), "dilation": (2, 1)}
    w = OPS["windows"].on_arrays(x, **params)
    y = rng.normal(size=w.shape)
    back = OPS["fold_windows"].on_arrays(y, shape=(9, 7), stride=(2, 3), dilation=(2, 1))
    np.testing.assert_allclose((w * y).sum(), (x * back).sum())


def test_slice_reaches_position_zero_backwards() -> None:
    got = OPS["slice"].on_arrays(np.arange(5), starts=(4,), stops=(-1,), steps=(-2,))
    assert got.tolist() == [4, 2, 0]


def test_scatter_adds_every_update_of_a_slot() -> None:
    got = OPS["scatter_add"].on_arrays(np.zeros(3), np.array([1, 1, -2]), np.array([1.0, 2.0, 4.0]), axis=0)
    assert got.tolist() == [0, 7, 0]
