"""Memory of large results: on a cache line, owned by the array, and nobody else's arrays are made that way."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy._core.multiarray import get_handler_name

import hybridml as hm
from hybridml_compiler.targets.cpu.runtime import allocation, block_cache, jit
from hybridml_compiler.targets.cpu.runtime.allocation import LARGE, empty

F4, U1 = np.dtype("f4"), np.dtype("u1")
linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere arrays are NumPy's")
USUAL = get_handler_name()
OURS = "hybridml" if sys.platform == "linux" else USUAL


def is_ours(array: np.ndarray) -> bool:
    aligned = array.ctypes.data % 64 == 0 or sys.platform != "linux"
    return get_handler_name(array) == OURS and array.flags.owndata and aligned


@pytest.mark.parametrize("shape", [(LARGE // 4,), (1025, 1031), (3, 700, 800)])
def test_large_arrays_are_on_a_line_and_small_ones_are_numpys(shape: tuple[int, ...]) -> None:
    arrays = [empty(shape, F4) for _ in range(3)]
    assert all(is_ours(array) and array.shape == shape for array in arrays)
    for k, array in enumerate(arrays):
        array[...] = k
    assert [float(array.min()) for array in arrays] == [float(array.max()) for array in arrays] == [0, 1, 2]
    assert get_handler_name(empty((8,), F4)) == get_handler_name(np.empty(LARGE)) == get_handler_name() == USUAL


def test_an_array_may_grow_and_shrink() -> None:
    array = empty((LARGE // 4,), F4)
    array[:] = np.arange(array.size)
    array.resize(2 * LARGE // 4)
    array.resize(1000)
    assert np.array_equal(array, np.arange(1000))


def test_results_of_traced_and_of_eager_calls() -> None:
    x = hm.ones((1024, 1025))
    traced = hm.trace(lambda x: x + 1)
    for _ in range(4):  # of the first call, of the entry, and used again by it
        y = traced(x).numpy()
        assert is_ours(y.base) and (y == 2).all()  # `numpy()` is a view
    del y
    assert is_ours(hm.functional.softmax(x, -1).numpy().base)
    assert get_handler_name() == USUAL


@linux
def test_results_of_numpys_kernels_that_are_large() -> None:
    x, y = hm.ones((170, 180)), hm.ones((170, 181), dtype="float64")
    for large in (y[:, 1:] - y[:, :-1], y[:, 1:] * y[:, :1], -y, y < 2.0 * y):
        assert get_handler_name(large._array) == (OURS if large._array.nbytes >= LARGE else USUAL)
    assert get_handler_name((x - x)._array) == USUAL and get_handler_name() == USUAL
    with pytest.raises(hm.ShapeError):
        y - y[1:]
    row = hm.ones(70000, dtype="float64")
    assert (y[0, :1] + row).shape == (70000,)  # from now on results are looked at
    assert get_handler_name((y[:, 1:] + y[:, :-1])._array) == OURS and get_handler_name() == USUAL


@linux
def page(array: np.ndarray) -> int:
    return array.ctypes.data // 4096


def test_memory_is_used_again() -> None:
    odd = 12_345_678  # bytes; nothing else in this process has made an array of about that
    array = empty((odd,), U1)
    place = page(array)
    view = array[1:]
    del array
    beside = empty((odd,), U1)
    assert page(beside) != place  # somebody looks at the first
    del view
    assert page(empty((odd,), U1)) == place
    assert page(empty((odd - 1000,), U1)) == place
    assert page(empty((odd // 2,), U1)) != place  # half of it would be lost


def test_arrays_that_are_read_together_begin_at_other_places_of_their_pages() -> None:
    places = [empty((1 << 20,), U1).ctypes.data % 4096 for _ in range(6)]
    assert min(abs(a - b) for a in places for b in places if a != b) >= 512
    assert len(set(places)) == 6


KEEPS = """
import sys
import numpy as np
from hybridml_compiler.targets.cpu.runtime import block_cache
block_cache.MOST_BYTES = most = int(sys.argv[1])  # an eighth of it, which takes an eighth of the time
from hybridml_compiler.targets.cpu.runtime.allocation import empty
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
del (arrays := [empty((most // 16,), np.dtype("u1"))])[:]
before = resident()
for size in (most // 25, most // 170, most + (8 << 20)):
    arrays = [empty((size,), np.dtype("u1")) for _ in range(1 + (most + (4 << 20)) // size)]
    for array in arrays:
        array[::4096] = 1
    del arrays, array
    print(resident() - before)
"""


@linux
def test_no_more_than_a_limit_is_kept() -> None:
    most = block_cache.MOST_BYTES // 8
    environment = {**os.environ, "HYBRIDML_CACHE_DIR": "off"}  # which has code with the usual limit
    command = [sys.executable, "-c", KEEPS, str(most)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    kept = [int(line) for line in done.stdout.split()]
    assert max(kept) < most + (2 << 20) and min(kept) > most // 16


def test_threads_do_not_get_each_others_memory() -> None:
    def work(seed: int) -> bool:
        draw, held = random.Random(seed), []
        for k in range(300):
            array = empty((draw.choice((LARGE, LARGE + 64, 2 * LARGE)),), U1)
            array.fill((seed * 31 + k) % 251)
            held.append(((seed * 31 + k) % 251, array))
            if len(held) > 4:
                value, array = held.pop(draw.randrange(4))
                if array[0] != value or array[-1] != value or (array[:: LARGE // 64] != value).any():
                    return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_no_memory_is_an_error_and_leaves_the_handler() -> None:
    with pytest.raises(MemoryError):
        empty((1 << 58,), np.dtype("u1"))
    assert get_handler_name() == USUAL


def test_code_for_large_results_is_compiled_beside_others() -> None:
    """What a program announces is what making the results then finds in the cache."""
    assert allocation.source([]) is None and allocation.source([16, LARGE - 1]) is None
    source = allocation.source([16, LARGE])
    assert (source is None) == (sys.platform != "linux")
    if source is not None:
        (made,) = jit.compile_sources([source])
        assert jit.compile_source(source) == made
