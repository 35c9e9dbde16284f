"""What steps of loops compute of slices and elements of NumPy arrays of floats has NumPy's types and values."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.examples import every
from tests.support.loops import flat

N = 24
_HEAD = """a = np.zeros((24, 6), {dtype}); a[:] = y; v = np.zeros(24, {dtype}); v[:] = x
w = np.zeros(24); t = np.zeros(6); s, n, best, lo, hi, out = 0.0, 0, -1, 0, 23, []; h = np.zeros(24, int)"""
# Statements of a step of number `i`, and whether the loop is one of the program.
CASES = [
    "v[i] = np.argmin(a[i]) / 3", "v[i] = (a[i] > 0.5).sum() * 0.1", "t = t + 0.1 * a[i]", "s = s + np.sum(a[i])",
    "s = s + (a[i, 0] > 0.5) * 0.1", "s += (a[i] > 0.5).mean()", "n += np.argmax(a[i])", "t += a[i] > 0.5",
    "v[i] = a[i][a[i] > 0.5].sum()", "w[i] = (a[i] * np.argmin(a[i])).sum() / 7", "a[i] = np.argsort(a[i]) * 0.1",
    "w[i] = np.where(a[i] > 0.5, 1, 0).mean() + np.sqrt(np.where(a[i] > 0.5, 3, 2)).sum()",
    "s += np.count_nonzero(a[i] - a[i - 1] > 0) / 3", "out.append(a[i].sum())", "out.append(np.argmin(a[i]) / 3)",
    "out.append(a[i] * 2)", "u = a[i] * 2; out.append((i, u.sum(), u.argmax()))",
    "t = np.maximum(t, a[i]); t -= t.mean()",
    "n += np.any(a[i] > 0.9) + 2", "q = a[i][::-1]; q[0] = 0.5; w[i] = q.sum() + np.dot(a[i], a[i - 1]) / 3",
    "row = a[i]; row[row > 0.5] = 0.25; n += (row == 0.25).sum()",
    "w[i] = np.sign(a[i] - 0.5).astype(int).max() / 3",
    "w[i] = v[i] * np.float64(0.1) + (v[i] > 0.5) / 3", "row = a[i]; e = row[1]; e += 1; s += e",
    "a[i].sort(); w[i] = a[i][2]", "out.append(a[i, 0].astype(np.float32)); out.append(v[i].max())",
    "out.append(np.dot(a[i], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))", "out.append(np.interp(v[i], [0, 1.0], [2, 2.1]))",
    "w[i] = np.average(a[i], weights=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6])",
]  # fmt: skip


def program_of(lines: str, dtype: str = "float") -> Callable[..., Any]:
    found: dict[str, Any] = {"np": np, "hm": hm}
    head = _HEAD.format(dtype=dtype).replace("\n", "; ").split("; ")
    body = "\n".join(f"    {line}" for line in [*head, *lines.split("\n")])
    exec(f"def program(x, y, p, q):\n{body}\n    return a, v, w, t, s, n, best, lo, hi, h, out, x", found)
    program: Callable[..., Any] = found["program"]
    return program


def check(program: Callable[..., Any], source: str = "") -> Any:
    """The traced function, after three calls that gave what eager ones give, of the same types."""
    traced = hm.trace(program)
    for seed in range(3):
        results = []
        for fn in (program, traced):
            r = np.random.default_rng(seed)
            x, y, p, q = r.random(N), r.random((N, 6)), r.integers(0, N, N), r.random(N) > 0.5
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TraceWarning)
                results.append(flat(fn(*map(hm.tensor, (x, y, p, q)))))
        for expected, found in zip(*results, strict=True):
            assert type(expected) is type(found), source
            one, other = np.asarray(expected), np.asarray(found)
            assert one.dtype == other.dtype, source
            rtol = 1e-5 if "float32" in source else 1e-12  # sums of several have another order
            np.testing.assert_allclose(1.0 * other, 1.0 * one, rtol=rtol, atol=rtol / 10, err_msg=source)
    return traced


@pytest.mark.parametrize("dtype", ["float", "np.float32"])
@pytest.mark.parametrize("step", CASES)
def test_a_step(step: str, dtype: str) -> None:
    lines = "\n    ".join(["for i in range(1, 23):", *step.split("; ")])
    traced = check(program_of(lines, dtype), f"{dtype}: {lines}")
    assert dtype != "float" or (" loop(" in traced.ir and traced.cache_info().compiles == 1)


# Loops of which some were wrong.
NESTS = """
for i in range(1, 24):
    for j in range(i, 23):
        best = i; lo = 3; hi = j; x[j] *= 0.5
    w[i] = best + lo * hi

for i in range(1, 24):
    for j in range(i, 23):
        if x[j] > 0.5: break
        best = i; lo = j
    w[i] = best + lo

for i in range(1, 22):
    for j in range(0 if x[i] > 0.5 else 3, 6):
        s = s * 0.5 + y[j, 1]
    if s > 4.0: break

i = 1
while i < 22 and s < 4.0:
    for j in range(max(0, i - 9) % 6, 6):
        s = s * 0.5 + y[j, 1]
    i += 1

for i in range(1, 22):
    lo, hi = hi, lo
    if x[i] > 0.6:
        m = best; best = n % 24; n = m
    else:
        h[int(x[i] * 10)] += n

for i in range(22, 0, -1):
    out.append(np.abs(v[i:]) + 1)

for i in range(1, 23):
    a[i].partition(2); out.append(max(x[i], v[23 - i]))

while lo < 20:
    while lo < 20 and (x[lo] < 0.5 or x[lo] > 0.9): lo += 1
    n += 1; lo += 1

for i in range(1, 23):
    j = 0
    if x[i] > 0.5:
        while x[(i + j) % 24] > 0.3: j += 1
    w[i] = j""".strip().split("\n\n")


@pytest.mark.parametrize("lines", NESTS)
def test_nests(lines: str) -> None:
    check(program_of(lines))


# -- random programs

_PARTS = ["a[i]", "a[i - 1]", "a[i][::-1]", "a[i, 1:5]", "a[p[i]]", "v[:i]", "v[i:]", "v[i - 1:i + 1]"]
_FORMS = """{} * 2; np.abs({}); ({} > 0.5); ({}) * v[i]; ({}) / 3; np.cumsum({}); np.sort({}); ({}).astype(np.float32)
({}).astype(int); ({}) + 1; ({}).copy(); ({}) * n; np.maximum({}, 0.25); np.argsort({}); np.round({}, 1); ({})[::-1]
np.float64(0.1) * ({}); np.diff({}); np.add({}, 1); ({}) ** 2; ({}) - np.mean({}); np.floor({}); np.concatenate([{}])"""
_SUMS = """({}).sum(); np.argmin({}); ({}).max(); ({}).mean(); np.any({}); np.count_nonzero({}); ({})[0]; len({})
np.max({}) > 0.5; float(({})[0]); np.sum({}) / 3; np.sum({} > 0.5) * 0.1; np.linalg.norm({}); ({}).min() * 0.1"""
_STEPS = """v[i] = {}; s = s * 0.5 + {}; n = n + int({}); out.append({}); a[i] = {}; w[i] += {}; t[1:3] = {}; best = i
lo, hi = hi, lo; n += 1; h[n % 24] += 1; lo = (lo * 3 + i) % 24; hi = p[lo]; t = t * 0.5 + a[i]; x[i] *= 0.5"""
_INNER = "best = j; s = s * 0.5 + y[j, 1]; n += 1; lo = i; a[i, j] = a[i - 1, j] * 0.5; v[j] += 0.125; w[i] += a[j, 2]"
_ASKED = "x[i] > 0.5; q[i]; i > 9; i % 3 == 0; s > 1.5; n % 2 == 1; a[i].sum() > 3; np.argmin(a[i]) == 2; x[p[i]] < 0.4"
_RANGES = ["i % 6, 6", "0 if x[i] > 0.5 else 3, 6", "max(0, i - 9) % 6, 6", "1, n % 6", "1, 6"]


def random_lines(seed: int) -> str:
    r = random.Random(seed)

    def pick(text: str) -> str:
        return r.choice(text.replace("\n", "; ").split("; "))

    def value() -> str:
        found = r.choice(_PARTS)
        for _ in range(r.randint(0, 2)):
            found = pick(_FORMS).replace("{}", found)
        return pick(_SUMS).replace("{}", found)

    def statement(depth: int) -> list[str]:
        kind = r.random()
        if depth > 1 or kind < 0.55:
            return [pick(_STEPS).replace("{}", value())]
        if kind < 0.7:
            inner = [f"    {pick(_INNER)}" for _ in range(r.randint(1, 2))]
            return [f"for j in range({r.choice(_RANGES)}):", *inner]
        body = statement(depth + 1) + ([] if kind < 0.95 else ["break"])
        other = ["else:", *(f"    {line}" for line in statement(depth + 1))] if 0.8 < kind < 0.9 else []
        return [f"if {pick(_ASKED)}:", *(f"    {line}" for line in body), *other]

    steps = [f"    {line}" for _ in range(r.randint(1, 3)) for line in statement(0)]
    if r.random() < 0.7:
        return "\n".join([f"for i in range({r.choice(['1, 23', '2, 20', '22, 0, -1'])}):", *steps])
    return "\n".join(["i = 1", f"while i < 22{r.choice(['', ' and s < 4.0'])}:", *steps, "    i += 1"])


@pytest.mark.parametrize("seed", every(4, range(80)))
def test_random_programs(seed: int) -> None:
    lines = random_lines(seed)
    dtype = random.Random(seed).choice(["float", "float", "np.float32"])
    with np.errstate(all="ignore"):
        check(program_of(lines, dtype), f"{dtype}: {lines}")
