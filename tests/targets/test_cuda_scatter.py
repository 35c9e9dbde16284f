"""Updates at indices on a GPU: the bits of the loop nest on the CPU, whatever atomic updates did first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import OutOfBoundsError
from hybridml_compiler.loops.text import parse_kernel
from hybridml_compiler.targets.cuda.scatter import launches as scatters
from hybridml_compiler.targets.cuda.scatter.form import scatter_of, scattered
from hybridml_compiler.targets.cuda.sim.memory import SimulatorError
from tests.support.closeness import same_bits
from tests.support.cuda import check_registers, compiled, gpu, needs_nvrtc, planned_anew

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("own_devices")]
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests change what programs are made of."""
    planned_anew(monkeypatch)


def at(size: int, *shape: int) -> np.ndarray:
    """Indices, some of them from the end."""
    return RNG.integers(-size, size, shape)


def values(*shape: int, dtype: str = "f4") -> np.ndarray:
    """Numbers whose sum depends on the order."""
    return (RNG.standard_normal(shape) * 10.0 ** RNG.integers(0, 2 if dtype[0] == "i" else 6, shape)).astype(dtype)


def put(x: Any, rows: Any, columns: Any, updates: Any) -> Any:
    y = x * 2
    y[rows, columns] = updates
    return y


def gradient(of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *at: hm.grad(lambda x: (of(x, *at) ** 2).sum())(x)


def into(name: str, axis: int = 0) -> Callable[..., Any]:
    return lambda x, i, u: getattr(hm, name)(x * 2, i, u + 1, axis=axis)


LAUNCHES = 6  # of a scatter with short rows, and the one before it that copies
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], int]] = {
    "rows": (into("scatter_add"), (values(9, 16), at(9, 60), values(60, 16)), LAUNCHES),
    "odd rows": (into("scatter_add"), (values(9, 7), at(9, 60), values(60, 7)), LAUNCHES),
    "one row": (into("scatter_add"), (values(3, 8), np.full(70, -2), values(70, 8)), LAUNCHES),
    "numbers": (into("scatter_add"), (values(9), at(9, 60), values(60)), LAUNCHES),
    "columns": (into("scatter_add", 1), (values(4, 9), at(9, 60), values(4, 60)), LAUNCHES),
    "a middle axis": (into("scatter_add", 1), (values(2, 9, 4), at(9, 5, 12), values(2, 5, 12, 4)), LAUNCHES),
    "doubles": (into("scatter_add"), (values(9, 4, dtype="f8"), at(9, 60), values(60, 4, dtype="f8")), LAUNCHES),
    "complex": (into("scatter_add"), (values(9, 3, dtype="c8"), at(9, 60), values(60, 3, dtype="c8")), LAUNCHES),
    "bytes": (into("scatter_add"), (values(9, 3, dtype="i1"), at(9, 60), values(60, 3, dtype="i1")), LAUNCHES),
    "products": (into("scatter_mul"), (values(9, 4), at(9, 30), values(30, 4)), LAUNCHES),
    "greatest": (into("scatter_max"), (values(9, 4), at(9, 60), values(60, 4)), LAUNCHES),
    "least": (into("scatter_min"), (values(9, 4), at(9, 60), values(60, 4)), LAUNCHES),
    "last": (into("scatter_set"), (values(9, 8), at(9, 60), values(60, 8)), 3),
    "last of columns": (into("scatter_set", 1), (values(8, 9), at(9, 60), values(8, 60)), 3),
    "whole numbers": (into("scatter_add"), (values(9, 3, dtype="i8"), at(9, 60), values(60, 3, dtype="i8")), 2),
    "greatest whole": (into("scatter_max"), (values(9, 3, dtype="i4"), at(9, 60), values(60, 3, dtype="i4")), 2),
    "counts": (lambda i: hm.bincount(i, minlength=5), (abs(at(5, 200)),), 4),
    "few": (into("scatter_add"), (values(9, 64), at(9, 5), values(5, 64)), 2),
    "elements": (put, (values(9, 16), at(9, 60), at(16, 60), values(60)), 4),
    "of an embedding": (gradient(lambda x, i: hm.take(x, i, axis=0)), (values(9, 8), at(9, 60)), 7),
    "along an axis": (gradient(lambda x, i: hm.take_along_axis(x, i, axis=1)), (values(4, 20), at(20, 4, 30)), 7),
    "of elements": (gradient(lambda x, i, k: x[i, k]), (values(9, 8), at(9, 60), at(8, 60)), 8),
}  # fmt: skip


def run(function: Callable[..., Any], *arrays: np.ndarray) -> tuple[np.ndarray, int]:
    """The result of a traced function on a new simulated GPU, and the launches of its second call."""
    driver = gpu()
    traced, given = hm.trace(function), [hm.tensor(a).to(driver.name) for a in arrays]
    traced(*given)
    before = driver.launches
    return traced(*given).cpu().numpy(), driver.launches - before


@pytest.mark.parametrize(("crowd", "most"), [(256, 2048), (3, 5)])
@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_the_cpu(name: str, crowd: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows that threads walk along, and with rows that have blocks, which look for the updates of some."""
    function, arrays, launches = CASES[name]
    monkeypatch.setattr(scatters, "CROWD", crowd)
    monkeypatch.setattr(scatters, "LONG", most)
    found, counted = run(function, *arrays)
    assert same_bits(found, hm.trace(function)(*map(hm.tensor, arrays)).numpy())
    more = 0 if crowd == 256 or launches < LAUNCHES else 1 if name == "complex" else 2
    assert counted == launches + more


BUGS = {  # a text of the launches, and one that has a bug
    "members[start + k] < i": "members[start + k] > i",
    "length > CROWD) crowded": "length > 9 * CROWD) crowded",
    "place += __popc(all);": "",
    "other < warp; ++other) place +=": "other < warp; ++other) place -=",
    "i == first ? lengths[i] : 0": "lengths[first]",
    "atomicAdd(counters, end)": "atomicAdd(counters, 1)",
}


@pytest.mark.parametrize("text", BUGS)
def test_a_planted_bug_is_caught(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, arrays, _ = CASES["rows"]
    changed = 0
    monkeypatch.setattr(scatters, "CROWD", 5)
    monkeypatch.setattr(scatters, "LONG", 5)
    for name in ("_PLACES", "_MEMBERS", "_RANKS", "_SEARCHES"):
        before = getattr(scatters, name)
        changed += text in before
        monkeypatch.setattr(scatters, name, before.replace(text, BUGS[text]))
    assert changed == 1
    rows = np.concatenate([np.arange(9).repeat(3), np.full(40, 2)])
    expected = hm.trace(function)(*map(hm.tensor, (arrays[0], rows, values(67, 16)))).numpy()
    try:
        found, _ = run(function, arrays[0], rows, values(67, 16))
    except SimulatorError:
        return
    assert not same_bits(found, expected)


def test_calls_count_anew() -> None:
    """A recorded call that is repeated begins with counters that are zero, and an index out of range is an error."""
    driver, add = gpu(), hm.trace(lambda x, i, u: hm.scatter_add(x, i, u, axis=0))
    x, u = values(9, 4), values(40, 4)
    for k in range(3):
        indices = np.roll(np.arange(40) % 9, k)
        found = add(*(hm.tensor(a).to(driver.name) for a in (x, indices, u)))
        assert same_bits(found.cpu().numpy(), hm.scatter_add(*map(hm.tensor, (x, indices, u)), axis=0).numpy())
    with pytest.raises(OutOfBoundsError, match="index 9 is out of range"):
        add(*(hm.tensor(a).to(driver.name) for a in (x, np.full(40, 9), u))).cpu()


@pytest.mark.parametrize("name", ["rows", "odd rows", "doubles", "greatest", "complex"])
def test_registers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No launch spills, those of crowds included."""
    monkeypatch.setattr(scatters, "CROWD", 9)
    (function, arrays, _), driver = CASES[name], gpu()
    with compiled() as made:
        hm.trace(function)(*(hm.tensor(a).to(driver.name) for a in arrays))
    assert len(made) >= LAUNCHES
    for k, kernel in enumerate(made[-2:]):
        check_registers(kernel.text, kernel.source.block, k + len(name), blocks=2)


FORMS = {  # what is no scatter, or has no rows that are apart
    "for i0 < 40 { b0[i0] = b0[i0] + b2[i0] }": "its positions are known",
    'for i0 < 40 { b0[index(b1[i0], 99, "")] = b0[i0] }': "it reads what others may have written",
    'for i0 < 40 { for i1 < 2 { t0 = index(b1[i0], 40, "") + i1 b0[t0] = b0[t0] + b2[i0] } }': "rows overlap",
    'for i0 < 40 { for i1 < 2 { t0 = index(b1[i0], 40, "") * 2 - i1 + 2 b0[t0] = b0[t0] + b2[i0] } }': "backwards",
}


@pytest.mark.parametrize("body", FORMS)
def test_what_is_no_scatter(body: str) -> None:
    kernel = parse_kernel(f"kernel(b0: f32[99] inout, b1: i64[40], b2: f32[40]) {{ {body} }}")
    assert scatter_of(kernel) is None, FORMS[body]


def test_rows_along_two_axes() -> None:
    """Positions with a part of the update's own number and one of an index: rows of five, two apart."""
    kernel = parse_kernel(
        """kernel(b0: f32[600] inout, b1: i64[40], b2: f32[40]) { for i0 < 8 { for i1 < 2 { for i2 < 5 { for i3 < 5 {
        t0 = i0 * 70 + index(b1[i0 * 5 + i2], 7, "") * 10 + i1 + i3 * 2 + 30
        b0[t0] = b0[t0] + b2[i0 * 5 + i2] } } } } }"""
    )
    found = scattered(kernel)
    assert found is not None and (found.count, found.rows, found.width, found.step) == (40, 56, 10, 10)
