"""Calling a sample: for arrays, for tensors, traced, and its derivative beside a difference quotient."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.interop.numpy import table, ufuncs
from hybridml.tracing.specialize.errors import TraceWarning

from .numpy_samples import SAMPLES, Sample, ufunc_sample
from .overridable import OVERRIDABLE_FUNCTIONS, OVERRIDABLE_UFUNCS

# Older versions of NumPy let others implement less: before 2.4 not np.polynomial.
OVERRIDABLE = {table.public(f) for f in OVERRIDABLE_FUNCTIONS}
CALLED = [s for s in SAMPLES if table.target_of(s.func) is not None and table.public(s.func) in OVERRIDABLE]
CALLED += [ufunc_sample(u) for u in OVERRIDABLE_UFUNCS if ufuncs.target_of(u) is not None]


def leaves(x: Any) -> Iterator[Any]:
    """The arrays of arguments or of a result, in order."""
    if isinstance(x, tuple | list):
        for part in x:
            yield from leaves(part)
    elif isinstance(x, dict):
        yield from leaves(list(x.values()))
    elif isinstance(x, np.ndarray | np.generic | hm.Tensor):
        yield x


def with_leaves(x: Any, new: Iterator[Any]) -> Any:
    """The same arguments with other arrays."""
    if isinstance(x, tuple | list):
        return type(x)([with_leaves(part, new) for part in x])
    if isinstance(x, dict):
        return {name: with_leaves(part, new) for name, part in x.items()}
    return next(new) if isinstance(x, np.ndarray) else x


def program(sample: Sample) -> Callable[..., Any]:
    """The call as a function of its arrays."""

    def run(*arrays: Any) -> Any:
        args, kwargs = with_leaves([sample.args, sample.kwargs], iter(arrays))
        result = sample.func(*args, **kwargs)
        if sample.written:
            assert result is None
            result = args[0]
        return result

    return run


def arrays_of(sample: Sample) -> list[np.ndarray]:
    return [x.copy() for x in leaves([sample.args, sample.kwargs]) if isinstance(x, np.ndarray)]


def determined(sample: Sample, result: Any) -> Any:
    return result if sample.take is None else sample.take(result)


def assert_same(sample: Sample, found: Any, expected: Any) -> None:
    if not isinstance(expected, np.ndarray | np.generic | tuple | list):
        if isinstance(found, hm.Tensor):
            found = found.item()
        assert type(found) is type(expected) and found == expected
        return
    if isinstance(expected, np.ndarray | np.generic) and expected.dtype.kind == "U":  # strings are arrays
        np.testing.assert_array_equal(found, expected)
        return
    assert all(isinstance(x, hm.Tensor) for x in leaves(found))
    if sample.take is not None:
        found, expected = sample.take(to_numpy(found)), sample.take(expected)
    got, wanted = list(leaves(found)), list(leaves(expected))
    assert len(got) == len(wanted) and (wanted or found == expected)
    for a, b in zip(map(to_numpy, got), map(np.asarray, wanted), strict=True):
        assert a.shape == b.shape and KINDS.get(a.dtype.kind) == KINDS.get(b.dtype.kind)
        np.testing.assert_allclose(a, b, rtol=sample.rtol, atol=1e-11)


KINDS = {"i": "integer", "u": "integer", "f": "float", "c": "complex", "b": "bool"}


def to_numpy(x: Any) -> Any:
    if isinstance(x, hm.Tensor):
        return x.detach().numpy()
    return [to_numpy(part) for part in x] if isinstance(x, tuple | list) else x


def check_call(sample: Sample, backend: str = "llvm") -> None:
    """A sample gives for tensors what it gives for arrays, eagerly and traced."""
    run = program(sample)
    expected = run(*arrays_of(sample))
    assert_same(sample, run(*map(hm.tensor, arrays_of(sample))), expected)
    strings = isinstance(expected, np.ndarray | np.generic) and expected.dtype.kind == "U"
    with pytest.warns(TraceWarning, match="ndarray") if strings else nullcontext():  # no tensor: made eagerly, and said
        traced = hm.trace(run, backend=backend)(*map(hm.tensor, arrays_of(sample)))
    assert_same(sample, traced, expected)


def projection(sample: Sample, result: Any) -> Any:
    """One number of the float results that is sensitive to each of their elements."""
    total: Any = 0.0
    for k, x in enumerate(leaves(determined(sample, result))):
        if x.dtype.kind in "fc":
            weights = np.cos(np.arange(np.size(np.empty(x.shape))) + k).reshape(x.shape)
            total = total + np.sum(np.real(x) * weights)
            total = total + np.sum(np.imag(x) * (weights + 0.5)) if x.dtype.kind == "c" else total
    return total


def has_derivative(sample: Sample) -> bool:
    inputs, result = arrays_of(sample), program(sample)(*arrays_of(sample))
    outputs = [x for x in leaves(determined(sample, result)) if not isinstance(x, hm.Tensor)]
    return sample.grad and all(any(x.dtype.kind in "fc" for x in xs) for xs in (inputs, outputs))


Ways = dict[int, np.ndarray]


def along(sample: Sample) -> tuple[list[np.ndarray], Ways, Callable[..., Any]]:
    """A sample's arrays, a random way for each that is of floats (by its place), and the projection as a function of
    those.
    """
    run, arrays = program(sample), arrays_of(sample)
    rng = np.random.default_rng(1)
    ways = {k: _way(rng, x) for k, x in enumerate(arrays) if x.dtype.kind in "fc"}

    def loss(*given: Any) -> Any:
        tensors = [hm.asarray(x.copy()) for x in arrays]
        for k, t in zip(ways, given, strict=True):
            tensors[k] = t * 1.0 if sample.written else t
        return projection(sample, run(*tensors))

    return arrays, ways, loss


def _way(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    real = rng.standard_normal(x.shape)
    return real + 1j * rng.standard_normal(x.shape) if x.dtype.kind == "c" else real


def check_slope(sample: Sample) -> None:
    """The gradient of a sample is the slope of NumPy's function along a random way, and its own gradient (of what has
    real arguments) the slope of it.
    """
    arrays, ways, loss = along(sample)
    places = tuple(range(len(ways)))

    def moved(distance: float) -> list[np.ndarray]:
        return [x + distance * ways[k] if k in ways else x.copy() for k, x in enumerate(arrays)]

    def slope(*given: Any) -> Any:
        grads = hm.grad(loss, argnums=places)(*given)
        return sum((hm.real(hm.conj(g) * hm.asarray(w))).sum() for g, w in zip(grads, ways.values(), strict=True))

    def at(distance: float) -> float:
        return float(slope(*(hm.tensor(moved(distance)[k]) for k in ways)))

    ends = [float(projection(sample, program(sample)(*moved(step)))) for step in (1e-6, -1e-6)]
    assert at(0.0) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=2e-5, abs=2e-6)
    if all(arrays[k].dtype.kind == "f" for k in ways):
        seconds = hm.grad(slope, argnums=places)(*(hm.tensor(arrays[k]) for k in ways))
        second = sum((g.numpy() * w).sum() for g, w in zip(seconds, ways.values(), strict=True))
        assert second == pytest.approx((at(1e-5) - at(-1e-5)) / 2e-5, rel=1e-4, abs=1e-4)


def check_traced_gradient(sample: Sample) -> None:
    """A traced gradient is the eager one."""
    arrays, ways, loss = along(sample)
    gradient = hm.grad(loss, argnums=tuple(range(len(ways))))
    eager, traced = (run(*(hm.tensor(arrays[k]) for k in ways)) for run in (gradient, hm.trace(gradient)))
    for a, b in zip(eager, traced, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-8, atol=1e-9)


# Parameters that NumPy has deprecated, and 2.4 does not have: what runs in the place of a function refuses them.
DEPRECATED = {
    np.corrcoef: {"bias", "ddof"},
    np.reshape: {"newshape"},
    **{f: {"interpolation"} for f in (np.percentile, np.quantile, np.nanpercentile, np.nanquantile)},
}


def not_taken(func: Callable[..., Any]) -> list[str]:
    """Parameters of a NumPy function which what runs in its place does not take."""
    target, signature = table.target_of(func), table._signature(table.public(func))
    if target is None or signature is None:
        return []
    missing = []
    for name, p in signature.parameters.items():
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and name not in DEPRECATED.get(table.public(func), ()):
            try:
                table._arguments(table.public(func), target, *_call_with(signature, name))
            except hm.ArgumentError:
                missing.append(name)
    return missing


def _call_with(signature: inspect.Signature, name: str) -> tuple[int, tuple[str, ...]]:
    """A call that gives a parameter, and those before it that must be given: how many by place, and which by name."""
    found = list(signature.parameters.values())
    needed = [
        p for p in found if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD
    ]
    place = list(signature.parameters).index(name)
    by_place = [p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in found]
    count = max(place + 1 if by_place[place] else 0, sum(p.kind is not p.KEYWORD_ONLY for p in needed))
    by_name = {p.name: None for p in needed if p.kind is p.KEYWORD_ONLY} | ({} if by_place[place] else {name: None})
    return count, tuple(by_name)
