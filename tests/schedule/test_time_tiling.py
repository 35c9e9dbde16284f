"""Loops over stencils in tiles of rows and steps: the bits of eager steps, and which loops are such."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.loops.text import parse_kernel
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.fusion import row_footprints
from hybridml_compiler.schedule.fusion.row_footprints import Footprint, Rows, farthest
from hybridml_compiler.schedule.launch import BufferRef, Copy, Launch
from tests.support.examples import every

COPY = Launch(Copy(8), ())


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiles of a few rows, of arrays of any size, whose launches threads share."""
    monkeypatch.setenv("HYBRIDML_CACHE_DIR", "off")
    monkeypatch.setattr(cost, "time_bytes", lambda cores: 0)
    monkeypatch.setattr(cost, "TIME_MOST_STEPS", 4)
    monkeypatch.setattr(cost, "TIME_TILE_BYTES", 1 << 10)
    monkeypatch.setattr(cost, "PARALLEL_THRESHOLD_NS", 0.0)
    monkeypatch.setattr(row_footprints, "_LEAST_ROW", 1)
    threads = hm.get_num_threads()
    yield
    hm.set_num_threads(threads)


def made(lines: str, arguments: str, returned: str = "", before: str = "pass") -> Callable[..., Any]:
    body = "\n".join(f"        {line}" for line in lines.strip().splitlines())
    head = f"def f(steps, {arguments}):\n    {before}\n    for t in range(steps):\n"
    source = f"{head}{body}\n    return {returned or 'u'}\n"
    names: dict[str, Any] = {"np": np}
    exec(source, names)
    found: Callable[..., Any] = names["f"]
    return found


def check(f: Callable[..., Any], steps: int, arrays: list[np.ndarray], threads: int = 2) -> str:
    """What `explain` says, once the traced function has given the bits of NumPy, twice."""
    hm.set_num_threads(threads)
    traced = hm.trace(f)
    plain, given = [x.copy() for x in arrays], [hm.tensor(x) for x in arrays]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            expected, found = f(steps, *plain), traced(steps, *given)
            pairs = zip([*plain, *_all(expected)], [*given, *_all(found)], strict=True)
            assert all(np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True) for x, y in pairs)
    return str(traced.explain())


def _all(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


def arrays(seed: int, *shapes: tuple[int, ...], dtype: str = "float64") -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.random(shape).astype(dtype) for shape in shapes]


FIVE = "{0}[1:-1, 1:-1] + {0}[1:-1, :-2] + {0}[1:-1, 2:] + {0}[2:, 1:-1] + {0}[:-2, 1:-1]"
LAPLACE = "{0}[:-2, 1:-1] + {0}[1:-1, :-2] - 4 * {0}[1:-1, 1:-1] + {0}[1:-1, 2:] + {0}[2:, 1:-1]"
TILED = {
    "two buffers": f"""
v[1:-1, 1:-1] = 0.2 * ({FIVE.format("u")})
u[1:-1, 1:-1] = 0.2 * ({FIVE.format("v")})""",
    "in place": f"u[1:-1, 1:-1] = 0.2 * ({FIVE.format('u')})",
    "far rows": "v[3:-2] = 0.5 * (u[:-5] + u[5:])\nu[2:-2] = v[2:-2] * 0.9",
    "boundaries": f"""
u[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.1 * ({LAPLACE.format("u")})
u[0] = u[1]; u[-1] = u[-2]; u[:, 0] = u[:, 1]; u[:, -1] = 0.5""",
    "boundaries first": f"""
u[-1] = 1.0; u[0] = 2.0; v[:, 0] = 3.0
v[1:-1, 1:-1] = 0.2 * ({FIVE.format("u")})
u[1:-1, 1:-1] = v[1:-1, 1:-1]""",
    "two fields": f"""
lu, lv = {LAPLACE.format("u")}, {LAPLACE.format("v")}
a, b = u[1:-1, 1:-1], v[1:-1, 1:-1]
r = a * b * b
a += 0.16 * lu - r + 0.06 * (1 - a)
b += 0.08 * lv + r - 0.122 * b""",
    "three fields": """
u[0, :] = s[t]
u[1:, :] -= 0.5 * (w[1:, :] - w[:-1, :])
v[:, 1:] -= 0.5 * (w[:, 1:] - w[:, :-1])
w[:-1, :-1] -= 0.7 * (v[:-1, 1:] - v[:-1, :-1] + u[1:, :-1] - u[:-1, :-1])""",
    "numbers of the step": f"v[1:-1, 1:-1] = (t % 3) * 0.1 * ({FIVE.format('u')})\nu[:] = v * 0.9 + t * 0.01",
    "new arrays": f"n = u.copy()\nn[1:-1, 1:-1] += 0.1 * ({LAPLACE.format('u')})\nu = n",
    "two steps back": f"n = 2 * u - v\nn[1:-1, 1:-1] += 0.1 * ({LAPLACE.format('u')})\nn[0] = 0.0\nv = u\nu = n",
    "up and down": "v[1:] = u[:-1] * 0.5 + s[t]\nu[:-1] = v[1:] * 0.5 + w[:-1]",
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", TILED)
def test_tiled(name: str, threads: int) -> None:
    """Loops that run in tiles have the bits of steps one after the other, whatever rows and steps are left over."""
    f = made(TILED[name], "u, v, w, s", "u, v")
    for number, (rows, columns, steps) in enumerate([(183, 7, 39), (140, 33, 33), (297, 5, 50)]):
        size = (rows + threads, columns)
        text = check(f, steps, arrays(number, size, size, size, (50,)), threads)
        assert "in tiles of" in text, text


def test_of_cubes() -> None:
    """Rows are planes, whose lines threads share where there are few planes."""
    f = made(
        "v[1:-1, 1:-1, 1:-1] = 0.3 * (u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] - u[1:-1, 2:, :-2])\n"
        "u[1:-1, 1:-1, 1:-1] = v[1:-1, 1:-1, 1:-1] * 0.9 + v[:-2, 2:, 1:-1] * 0.1",
        "u, v",
    )
    assert "in tiles of" in check(f, 33, arrays(0, (40, 13, 70), (40, 13, 70)))


@pytest.mark.parametrize("dtype", ["float32", "int32", "complex128"])
def test_of_vectors(dtype: str) -> None:
    """Rows are parts of a vector, whole vectors of it or not."""
    f = made("v[1:-1] = u[:-2] - u[2:]\nu[1:-1] = v[1:-1] + v[2:]", "u, v")
    for size in (640, 1003):
        assert "in tiles of" in check(f, 35, arrays(size, (size,), (size,), dtype=dtype))


def test_with_checked_accesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every access is checked, the same plan runs step by step."""
    monkeypatch.setenv("HYBRIDML_SANITIZE", "1")
    check(made(TILED["boundaries"], "u, v"), 41, arrays(0, (171, 8), (171, 8)))


def test_reads_and_results_of_each_step() -> None:
    """Rows of arrays that steps read, and those that they give."""
    f = made("u[1:-1] = u[:-2] * 0.5 + u[2:] * 0.25 + s[t]\nw[t] = u[3, 2]", "u, s, w", "u, w")
    check(f, 44, arrays(0, (50, 9), (44, 9), (44,)))


NOT_TILED = {
    "rows that go round": "v[:] = 0.5 * (np.roll(u, 1, 0) + np.roll(u, -1, 0))\nu[:] = v * 0.9",
    "rows in reverse": "v[:] = 0.5 * u[::-1]\nu[:] = v * 0.9",
    "sums": "v[1:-1] = 0.5 * (u[2:] + u[:-2])\nu[:] = v / abs(v).max()",
    "columns as rows": "v[:, :] = 0.5 * u.T\nu[:, :] = v * 0.9",
    "the last row by the first": "v[1:-1] = 0.5 * (u[2:] + u[:-2])\nu[:] = v * 0.9\nu[0] = u[-1]\nu[-1] = u[1]",
}


@pytest.mark.parametrize("name", NOT_TILED)
def test_not_tiled(name: str) -> None:
    """Where a step needs rows of the one before that are far away, steps run one after the other."""
    size = (43, 43)
    assert "in tiles of" not in check(made(NOT_TILED[name], "u, v"), 39, arrays(1, size, size))


def test_an_index_that_is_out_of_range_leaves_the_arrays() -> None:
    """An error in a tile is the error of its step: the arrays are as eager steps leave them."""
    f = made("v[1:-1] = 0.5 * (u[2:] + u[:-2]) + s[k[t]]\nu[1:-1] = v[1:-1]", "u, v, s, k")
    u, v, s = arrays(0, (50, 9), (50, 9), (4,))
    k = np.array([0, 1, 3, 2, 9, 1, 0, 2])
    traced, given = hm.trace(f), [hm.tensor(x) for x in (u, v, s, k % 4)]
    traced(8, *given)
    given, plain = [hm.tensor(x) for x in (u, v, s, k)], [u.copy(), v.copy(), s, k]
    with pytest.raises(IndexError):
        f(8, *plain)
    with pytest.raises(IndexError):
        traced(8, *given)
    assert all(np.array_equal(x, y.numpy()) for x, y in zip(plain, given, strict=True))


def random_program(seed: int) -> tuple[str, list[str]]:
    """Lines over arrays of one shape that read and write shifted parts, in place or not."""
    r = random.Random(seed)
    names = ["u", "v", "w"][: r.randint(1, 3)]

    def part(low: int, high: int, shift: int) -> str:
        return f"{low + shift}:n - {high - shift}"

    def stencil() -> str:
        a, b, c, d = (r.randint(1, 2) for _ in range(4))
        terms = [
            f"{r.choice(names)}[{part(a, b, r.randint(-a, b))}, {part(c, d, r.randint(-c, d)).replace('n', 'm')}]"
            for _ in range(r.randint(1, 4))
        ]
        scale = r.choice([f"{r.random():.17f}", "0.25", "(0.1 * (t % 4))"])
        written = f"{r.choice(names)}[{part(a, b, 0)}, {part(c, d, 0).replace('n', 'm')}]"
        return f"{written} {r.choice(['=', '=', '+='])} {scale} * ({r.choice([' + ', ' - ']).join(terms)})"

    def edge() -> str:
        x, y = r.choice(names), r.choice(names)
        return r.choice([
            f"{x}[0] = {y}[1]", f"{x}[-1] = {y}[-2] * 0.5", f"{x}[:, 0] = {y}[:, 1]", f"{x}[:, -1] = {r.random():.3f}",
            f"{x}[0] = {r.random():.17f}", f"{x}[-1] = t", f"{x}[2] = s[t]", f"{x}[1:4, 2] = {y}[2:5, 1]",
        ])  # fmt: skip

    def whole() -> str:
        x, y = r.choice(names), r.choice(names)
        return r.choice([
            f"{x} *= 0.75", f"{x} = {x} * 0.5 + {y} * 0.25", f"{x}[:] = {y}", f"{x} = {y}.copy()",
            f"{x}[1:] = {y}[:-1]",
        ])  # fmt: skip

    lines = ["n, m = u.shape"]
    for _ in range(r.randint(1, 5)):
        lines += r.choices([stencil, edge, whole], [5, 2, 1])[0]().splitlines()
    return "\n".join(lines), names


@pytest.mark.parametrize("seed", every(2, range(60)))
def test_random_programs(seed: int) -> None:
    """Whatever a step is, in tiles or not, results have the bits of NumPy's."""
    lines, names = random_program(seed)
    r = random.Random(seed)
    shape = r.randint(7, 60), r.randint(6, 40)
    f = made(lines, ", ".join(["u", *names[1:], "s"]), ", ".join(names))
    check(f, r.randint(30, 49), arrays(seed, *[shape] * len(names), (50,)), r.randint(1, 2))


@pytest.mark.parametrize("seed", every(3, range(30)))
def test_arrays_that_trade_places(seed: int) -> None:
    """Arrays that the function has made trade places after each step, in tiles or not."""
    lines, names = random_program(seed)
    r = random.Random(seed)
    names = ["u", "v", "w"] if "w" in names else ["u", "v"]
    turned = ", ".join([*names[1:], names[0]])
    turns = f"{', '.join(names)} = {turned}"
    trade = r.choice([turns, "u, v = v, u", "h = u; u = v; v = h", "u, v = v, u * 0.9 + 0.1"])
    before = "; ".join(f"{name} = {name} * 1.0" for name in names)
    f = made(f"{lines}\n{trade}", ", ".join([*names, "s"]), ", ".join(names), before)
    shape = r.randint(60, 200), r.randint(6, 14)
    text = check(f, r.randint(30, 49), arrays(seed, *[shape] * len(names), (50,)), r.randint(1, 2))
    assert seed not in (0, 3) or "in tiles of" in text  # two that are


def test_some_random_programs_are_tiled() -> None:
    """The programs above are of the kind that runs in tiles, and of the other."""
    found = []
    for seed in range(100, 110):
        lines, names = random_program(seed)
        f = made(lines, ", ".join(["u", *names[1:], "s"]), ", ".join(names))
        found.append("in tiles of" in check(f, 40, arrays(seed, *[(157, 11)] * len(names), (50,))))
    assert 2 <= sum(found) < len(found)


def test_distances() -> None:
    """The distance of rows is that of the farthest two that share a byte."""
    rng = random.Random(0)
    for _ in range(300):
        own = []
        for _ in range(2):
            pitch, low, count = rng.choice([0, 3, 4, 7]), rng.randint(0, 30), rng.randint(1, 9)
            count = count if pitch else 1
            own.append(Rows(COPY, 1, count, (Footprint(("carry", 0), pitch, low, low + rng.randint(1, 9), True),)))
        meeting = [
            i - j
            for i in range(own[0].count)
            for j in range(own[1].count)
            if max(_low(own[0], i), _low(own[1], j)) < min(_high(own[0], i), _high(own[1], j))
        ]
        assert farthest(own[0], own[1], lambda one, other: one == other) == max(meeting, default=None)


def _low(rows: Rows, row: int) -> int:
    return rows.footprints[0].low + row * rows.footprints[0].pitch


def _high(rows: Rows, row: int) -> int:
    return rows.footprints[0].high + row * rows.footprints[0].pitch


def test_footprints() -> None:
    """Rows of a kernel touch what its indices tell, and all of a buffer where they do not tell."""
    kernel = parse_kernel("""kernel(b0: f64[400], b1: f64[9], b2: f64[400] out) lanes 1 {
      for i0 < 90 parallel {
        for i1 < 7 {
          t0 = (floordiv(i0, 9) * 10 + mod(i0, 9)) * 4 + i1
          b2[t0 + 4] = b0[t0] + b0[t0 + 5]
        }
      }
    }""")
    places = [BufferRef("input", 0, 16), BufferRef("input", 1), BufferRef("input", 2)]
    (rows,) = row_footprints.rows_of([Launch(kernel, tuple(places))], lambda place: (place.base, place.number)) or []
    assert (rows.unit, rows.count) == (9, 10)
    a, _, c = rows.footprints
    assert (a.pitch, a.low, a.high) == (320, 16, 16 + 8 * (8 * 4 + 6 + 5 + 1))
    assert (c.pitch, c.low, c.high, c.written) == (320, 32, 32 + 8 * (8 * 4 + 6 + 1), True)
