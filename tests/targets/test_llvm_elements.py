"""Loops over single elements, as code in place: bits, indices, branches and ways out are those of bodies that are
called, and of eager code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.targets.cpu.llvm.control import fits, kernel
from hybridml_compiler.targets.cpu.runtime.llvm_library import PASSES
from tests.support.random_graphs import same_bits
from tests.support.random_loops import M, N, program_of


def _values(n: int = 40, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n)


def packed(v: Any, at: Any) -> Any:
    out, count = np.zeros(v.shape[0]), 0
    for i in range(v.shape[0]):
        if v[at[i]] > 0:
            out[count] = v[at[i]]
            count += 1
        else:
            out[-1 - count] += v[i]
    return out, count


def neighbours(v: Any, at: Any) -> Any:
    for i in range(1, v.shape[0]):
        if v[i] > v[i - 1]:
            v[i] = v[i - 1]
            v[at[i]] = v[i] + 0.5
    return v


def insertion(v: Any, at: Any) -> Any:
    for i in range(1, v.shape[0]):
        x, j = v[i], i - 1
        while j >= 0 and v[j] > x:
            v[j + 1] = v[j]
            j -= 1
        v[j + 1] = x
    return v


def again(v: Any, at: Any) -> Any:
    for i in range(v.shape[0]):
        k = at[i]
        x = v[i] if v[i] > 0 else v[k]
        for j in range(20):
            v[k] = x  # also where it is what was there: a step before has changed it
            v[at[j]] += 1.0
    return v


def windows(v: Any, at: Any) -> Any:
    out, last = np.zeros(v.shape[0]), v[:3] * 0
    for i in range(7, v.shape[0]):
        w = v[i - 7 : i]
        out[i] = w.sum() + w.max() * at[i] * 0.01
        v[i - 7 : i] -= 0.01 * out[i] * w
        out[i - 3 : i] += v[i - 5 : i - 2]
    return out, last


def segments(v: Any, at: Any) -> Any:
    sums, least = np.zeros(v.shape[0]), np.zeros(v.shape[0])
    for i in range(v.shape[0]):
        first = at[i] % 30
        sums[i] = v[first : first + at[i] % 11].sum()
        least[i] = v[first : first + 3].min()
        v[first : at[i] % 37] *= 0.5
    return sums, least


def triangles(v: Any, at: Any) -> Any:
    a = np.zeros((v.shape[0], v.shape[0]))
    for i in range(v.shape[0]):
        a[i, : i + 1] = v[: i + 1] - v[i]
        for j in range(i):
            a[i, j:i] += a[j, j:i] * 0.5
            v[j] += a[i, : j + 1].sum()
    return a, v


PROGRAMS = [packed, neighbours, insertion, again]


@pytest.mark.parametrize("program", PROGRAMS)
def test_they_compute_what_eager_code_does(program: Callable[..., Any]) -> None:
    traced = hm.trace(program)
    for seed in range(3):
        v, at = _values(seed=seed), np.random.default_rng(seed).integers(-40, 40, 40)
        arrays = [hm.tensor(v.copy()) for _ in range(2)]
        expected, found = (fn(a, hm.tensor(at)) for fn, a in zip((program, traced), arrays, strict=True))
        for a, b in zip(_flat(expected), _flat(found), strict=True):
            assert same_bits(a, b)
        assert same_bits(*map(np.asarray, arrays))
    assert traced.cache_info().compiles == 1


@pytest.mark.parametrize("program", [windows, segments, triangles])
def test_kernels_of_vectors_are_those_that_are_called(
    program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit; eager sums of other places in memory are in another order."""
    in_place, called = hm.trace(program), hm.trace(program)
    for seed in range(3):
        v, at = _values(seed=seed), np.random.default_rng(seed).integers(-40, 40, 40)
        arrays = [hm.tensor(v.copy()) for _ in range(3)]
        found = [
            [*_flat(fn(a, hm.tensor(at))), np.asarray(a)] for fn, a in zip((in_place, program), arrays, strict=False)
        ]
        with monkeypatch.context() as patched:
            for module in (fits, kernel):
                patched.setattr(module, "is_of_elements", lambda _: False)
            found.append([*_flat(called(arrays[2], hm.tensor(at))), np.asarray(arrays[2])])
        for a, eager, b in zip(*found, strict=True):
            assert same_bits(a, b)
            assert np.allclose(a, eager, rtol=1e-12, atol=1e-12)


def _flat(results: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("program", [packed, windows])
def test_a_step_calls_nothing(program: Callable[..., Any]) -> None:
    v, at = _values(), np.arange(40)
    traced = hm.trace(program)
    traced(hm.tensor(v), hm.tensor(at))
    (loop,) = [text for text in traced.llvm.split("; ----") if "\nhead." in text]
    called = re.findall(r"call \S.*? @([\w.]+)\(", loop[loop.index("\nhead.") :])
    assert all(name == "memcpy" or name.startswith("llvm.") for name in called)
    assert "alloca ptr" not in loop


def test_what_binds_a_size_is_no_loop() -> None:
    traced = hm.trace(segments)
    traced(hm.tensor(_values()), hm.tensor(np.arange(40)))
    (loop,) = [text for text in traced.llvm.split("; ----") if "\nhead." in text]
    assert loop.count("\nhead.") == 1


@pytest.mark.parametrize("bad", [40, -41, 1 << 62, -(1 << 63)])
@pytest.mark.parametrize("place", [0, 17, 39])
def test_an_index_out_of_range_is_found(bad: int, place: int) -> None:
    traced = hm.trace(packed)
    at = np.arange(40) % 7 - 3
    traced(hm.tensor(_values()), hm.tensor(at))
    at[place] = bad
    for fn in (packed, traced):
        with pytest.raises(IndexError):
            fn(hm.tensor(_values()), hm.tensor(at))
    at[place] = 3
    for a, b in zip(*(_flat(fn(hm.tensor(_values()), hm.tensor(at))) for fn in (packed, traced)), strict=True):
        assert same_bits(a, b)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "complex128", "bool", "int8"])
def test_steps_with_branches_of_their_own(dtype: str, reverse: bool) -> None:
    """Carries of each type; a branch, an output that is a carry, and one that nobody reads."""
    xs = hm.tensor((10 * _values(20)).astype(dtype))

    def program(xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            last, other = carry
            big = abs(x) > abs(last) if dtype != "bool" else x & ~last
            last = hm.cond(big, lambda a, b: a, lambda a, b: b, x, other)
            return (last, x), (last, last == x, x)

        (last, _), (kept, same, _) = hm.scan(step, (xs[0], xs[1]), xs, reverse=reverse)
        return last, kept, same

    traced = hm.trace(program)
    for a, b in zip(_flat(program(xs)), _flat(traced(xs)), strict=True):
        assert same_bits(a, b)
    assert "\nchosen." in traced.llvm


def test_a_loop_that_data_ends_in_one_of_so_many_steps() -> None:
    def program(a: Any, most: int) -> Any:
        def collatz(state: Any) -> Any:
            n, steps = state
            return hm.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

        def step(total: Any, n: Any) -> Any:
            _, steps = hm.while_loop(lambda s: s[0] > 1, collatz, (n, hm.zeros((), dtype="int64")), max_steps=most)
            return total + steps, steps

        return hm.scan(step, hm.zeros((), dtype="int64"), a)

    a = hm.tensor(np.arange(1, 30))
    for most in (5, 200):
        for x, y in zip(_flat(program(a, most)), _flat(hm.trace(program)(a, most)), strict=True):
            assert same_bits(x, y)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ints", [False, True])
def test_random_loops_are_those_of_called_bodies(ints: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source, program = program_of(seed, ints=ints)
    rng = np.random.default_rng(seed)
    given = [rng.standard_normal(shape) for shape in ((N, M), (N,), (M,))]
    if ints:
        given += [rng.integers(0, N, N), np.sort(rng.integers(0, N, N + 1))]
    found = []
    for nanoseconds, in_place in ((0.0, True), (np.inf, True), (0.0, False)):  # with LLVM's passes, without, and called
        monkeypatch.setattr(kernel, "_PASSES_NS", nanoseconds)
        if not in_place:
            for module in (fits, kernel):
                monkeypatch.setattr(module, "is_of_elements", lambda _: False)
        tensors = [hm.tensor(a.copy()) for a in given]
        results = hm.trace(program)(*tensors)
        leaves = [x for r in results for x in (r if isinstance(r, list) else [r])]
        found.append([*map(np.asarray, (*leaves, *tensors))])
    for a, *others in zip(*found, strict=True):
        assert all(same_bits(a, b) for b in others), source


def test_long_loops_go_through_passes() -> None:
    def product(a: Any, b: Any) -> Any:
        c = np.zeros((40, 40))
        for i in range(40):
            for j in range(40):
                for k in range(40):
                    c[i, j] += a[i, k] * b[k, j]
        return c

    a, b = _values(1600).reshape(40, 40), _values(1600, 1).reshape(40, 40)
    traced = hm.trace(product)
    assert same_bits(np.asarray(product(a, b)), np.asarray(traced(hm.tensor(a), hm.tensor(b))))
    assert PASSES in traced.llvm
