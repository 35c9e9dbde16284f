"""`hybridml.compare`: what it measures, that it leaves no trace, and how it shows itself. No assertion is on a time."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import optim
from hybridml.inspect.comparison import Comparison, Difference, Style, duration, said, size
from hybridml_compiler.runtime import cache
from hybridml_compiler.runtime.cache import ObjectCache
from tests.support.cuda import needs_nvrtc
from tests.support.markup import balanced

ROOT = Path(__file__).parent.parent.parent
X = hm.asarray(np.linspace(-2, 2, 4096, dtype=np.float32))


def chain(x: hm.Tensor) -> hm.Tensor:
    return hm.exp(x * 0.5) + x


def comparison(**changes: Any) -> Comparison:
    """A comparison with given numbers, for what is derived from them."""
    eager = Style("eager", 2.0, 1.0, 0.9, 1.1, kernels=3, bytes=96, peak_bytes=64)
    traced = Style("traced", 40.0, 0.5, 0.4, 0.6, kernels=1, bytes=32, peak_bytes=16, stages_ms={"trace": 1.0})
    equal = Difference(1, 0.0, 0.0, 0)
    values: dict[str, Any] = {"name": "f", "eager": eager, "traced": traced, "results": equal, "state": equal}
    return Comparison(**{**values, "kernels": (), "compiles": 1, "not_restored": (), "repeats": 2, **changes})


def test_elementwise_chain_is_one_kernel_and_bit_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_default", ObjectCache(tmp_path))  # where no other test has left the program
    found = hm.compare(chain, X, repeats=2)
    assert (found.eager.kernels, found.traced.kernels) == (3, 1)
    assert found.traced.bytes == 2 * X.nbytes
    assert found.eager.bytes == (2 + 2 + 3) * X.nbytes + 4  # x * 0.5, exp, exp + x; and the scalar
    assert found.eager.peak_bytes >= 2 * X.nbytes
    assert found.traced.peak_bytes >= X.nbytes
    assert found.results == Difference(1, 0.0, 0.0, 0)
    assert found.state.count == 0
    assert found.compiles == 1
    assert [kernel.kind for kernel in found.kernels] == ["loop"]
    assert "hm.exp(x * 0.5) + x" in found.kernels[0].lines[0]
    assert set(found.traced.stages_ms) >= {"trace", "passes", "codegen"}


@pytest.mark.parametrize("make", [lambda: chain, lambda: hm.trace(chain), lambda: hm.trace(chain, backend="interpret")])
def test_plain_and_traced_functions(make: Any) -> None:
    fn = make()
    found = hm.compare(fn, X, repeats=2)
    assert found.name == "chain"
    assert found.results.ulp == 0
    if fn is not chain:
        assert fn.cache_info().compiles == 0, "the traced function that was given is not touched"


def test_modules() -> None:
    model = hm.nn.Linear(4, 2)
    x = hm.ones((3, 4))
    assert hm.compare(model, x, repeats=2).results.count == 1
    assert "forward" not in vars(model)
    traced = hm.trace(model)
    before = traced.forward
    assert hm.compare(traced, x, repeats=2).name == "Linear"
    assert traced.forward is before


def test_importing_its_modules_does_not_hide_the_function() -> None:
    program = (
        "import hybridml.inspect.side_by_side, hybridml.inspect.comparison, hybridml as hm; assert callable(hm.compare)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_keyword_arguments_and_containers() -> None:
    def both(x: hm.Tensor, *, scale: float) -> dict[str, Any]:
        return {"value": x * scale, "rest": ((x + 3).sum(), 3)}

    found = hm.compare(both, X, repeats=2, scale=2.0)
    assert found.results.count == 3
    assert found.results.relative < 1e-6


def test_a_training_step_is_compared_from_one_start_and_leaves_no_trace() -> None:
    hm.manual_seed(3)
    model = hm.nn.Sequential(
        hm.nn.Linear(8, 16, bias=False),  # in front of a norm its gradient is the rounding of zero
        hm.nn.BatchNorm1d(16), hm.nn.Dropout(0.5), hm.nn.Linear(16, 3),
    )  # fmt: skip
    optimizer = hm.optim.Adam(model.parameters(), lr=0.05)

    def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = hm.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def everything() -> list[np.ndarray]:
        tensors = [*model.state_dict().values(), *(t for s in optimizer.state.values() for t in s.values())]
        return [t.detach().numpy().copy() for t in (*tensors, hm.random.default_generator.state)]

    x, y = hm.random.normal((32, 8)), hm.asarray(np.arange(32) % 3)
    before = everything()
    found = hm.compare(step, x, y, repeats=2)
    assert all(np.array_equal(a, b) for a, b in zip(before, everything(), strict=True))
    assert all(p.grad is None for p in model.parameters())
    assert found.results.relative < 1e-5
    assert found.state.count > 3 * len(list(model.parameters())), (
        "parameters, moments, gradients, statistics, generator"
    )
    assert found.state.relative < 1e-4
    assert found.not_restored == ()
    # And it can still be trained, in either style.
    assert np.isfinite(step(x, y).item()) and np.isfinite(hm.trace(step)(x, y).item())


def test_an_error_leaves_no_trace() -> None:
    t = hm.zeros((3,))

    def fails() -> None:
        t.add_(1.0) if hasattr(t, "add_") else t.copy_(t + 1.0)
        raise ValueError("as asked")

    with pytest.raises(ValueError, match="as asked"):
        hm.compare(fails, repeats=2)
    assert t.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("fn", "repeats", "message"), [(chain, 1, "repeats must be"), (3, 2, "takes a function")])
def test_bad_arguments(fn: Any, repeats: int, message: str) -> None:
    with pytest.raises(hm.ArgumentError, match=message):
        hm.compare(fn, X, repeats=repeats)


# ---- what is derived, and how it is shown


def test_break_even() -> None:
    assert comparison().compile_ms == 39.5
    assert comparison().break_even == math.ceil(39.5 / 0.5)
    slow = Style("traced", 40.0, 1.5, 1.4, 1.6, kernels=1, bytes=32, peak_bytes=16)
    never = comparison(traced=slow)
    assert never.break_even is None
    assert "never pays" in repr(never) and "slower" in repr(never)
    noisy = Style("traced", 40.0, 0.9, 0.5, 1.6, kernels=1, bytes=32, peak_bytes=16)
    assert "cannot be told apart" in repr(comparison(traced=noisy))


def test_remarks_name_what_is_unusual() -> None:
    text = repr(comparison(compiles=2, not_restored=("captured3",), state=Difference(2, 1e-6, 1e-7, 5, "f.w")))
    assert "2 programs were compiled" in text
    assert "captured3" in text
    assert "5 ulp of it (in f.w)" in text


def test_repr_is_a_table() -> None:
    lines = repr(comparison()).splitlines()
    assert lines[0].split() == ["f", "eager", "traced"]
    assert any(line.startswith("first call") and "2.00 ms" in line and "40.0 ms" in line for line in lines)
    assert "results: 1 array, bit-equal" in lines


def test_html_is_well_formed_and_escaped() -> None:
    page = hm.compare(lambda x: x < 1, X, repeats=2)._repr_html_()
    balanced(page)
    assert "x &lt; 1" in page


def test_json() -> None:
    found = hm.compare(chain, X, repeats=2)
    data = json.loads(found.to_json())
    assert data["schema"] == 2
    assert data["traced"]["kernels"] == 1
    assert data["break_even"] == found.break_even
    assert data["results"] == {"count": 1, "absolute": 0.0, "relative": 0.0, "ulp": 0, "where": "", "largest": 0.0}
    assert json.loads(comparison(results=Difference(1, math.inf, math.inf, sys.maxsize, "r")).to_json())["results"]


@pytest.mark.parametrize(
    ("ms", "text"), [(1500, "1.50 s"), (12.34, "12.3 ms"), (0.5, "500 us"), (0.00123, "1.23 us"), (1e-5, "10.0 ns")]
)
def test_duration(ms: float, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (2048, "2.00 KiB"), (3 << 29, "1.50 GiB")])
def test_size(count: int, text: str) -> None:
    assert size(count) == text


# ---- distances


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distance_counts_representable_numbers(dtype: Any) -> None:
    from hybridml.inspect.side_by_side import distance

    one = np.ones(3, dtype)
    after = one.copy()
    after[1] = np.nextafter(dtype(1), dtype(2))
    assert distance(one, after)[2] == 1
    tiny = np.finfo(dtype).smallest_subnormal
    assert distance(np.array([tiny], dtype), np.array([-tiny], dtype)) == (2 * float(tiny), 2.0, 2)
    largest = np.finfo(dtype).max
    assert distance(np.array([largest], dtype), np.array([-largest], dtype))[2] >= 2**25 - 2


def test_noise_around_zero_is_measured_by_the_largest_element() -> None:
    from hybridml.inspect.side_by_side import distance

    a, b = np.float32([1.0, 1e-9, 0.0]), np.float32([1.0, -2e-9, 1e-30])
    assert distance(a, b)[2] == 1
    assert distance(a[1:], b[1:])[2] > 1 << 16
    text = repr(comparison(state=Difference(1, 3e-9, 1.5, 1 << 25, "bias.grad")))
    assert "differ by at most 3e-09" in text and "ulp" not in text
    assert "ulp" not in repr(comparison(state=Difference(1, math.inf, math.inf, sys.maxsize, "bias.grad")))


def test_arrays_that_are_noise_are_measured_by_the_others_of_their_name() -> None:
    from hybridml.inspect.side_by_side import difference

    weight, other = np.float32([0.5, 0.25]), np.float32([0.5, 0.25 + 2**-20])
    noise = {"m.0.bias.grad": np.float32([1e-9, -3e-9])}, {"m.0.bias.grad": np.float32([-2e-9, 4e-9])}
    alone = difference(*noise)
    assert (alone.where, alone.ulp > 1 << 16) == ("m.0.bias.grad", True) and "ulp" not in said(alone)
    found = difference({"m.0.weight.grad": weight, **noise[0]}, {"m.0.weight.grad": other, **noise[1]})
    assert found.where == "m.0.weight.grad"
    assert (found.absolute, found.relative, found.ulp, found.largest) == (2**-20, 2**-19, 32, 0.5)
    assert "9.5e-07, which is 1.9e-06 of the largest element (0.5), 32 ulp of it (in m.0.weight.grad)" in said(found)
    only = difference({"m.0.weight.grad": weight, **noise[0]}, {"m.0.weight.grad": weight, **noise[1]})
    assert (only.where, only.ulp, only.largest) == ("m.0.bias.grad", 1, 0.5)  # still not bit-equal
    apart = difference({"m.0.weight": weight, **noise[0]}, {"m.0.weight": other, **noise[1]})
    assert apart.where == "m.0.bias.grad"  # weights say nothing about gradients


def test_distance_of_complex_numbers_is_that_of_their_parts() -> None:
    from hybridml.inspect.side_by_side import distance

    a = np.complex64([1 + 1j, 2j])
    assert distance(a, a) == (0.0, 0.0, 0)
    assert distance(a, a + np.complex64(0.5j))[:2] == (0.5, 0.2)


def test_a_program_from_the_cache_is_told_with_what_compiling_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_default", ObjectCache(tmp_path))
    cold, warm = (hm.compare(chain, X, repeats=2) for _ in range(2))
    assert (cold.cached, cold.cold_ms) == ("", cold.traced.first_ms)
    assert warm.cached == "the whole program" and "cache: the whole program came from" in repr(warm)
    assert "first call, empty cache" in repr(warm) and "codegen" not in warm.traced.stages_ms
    assert cache.info().directory is not None
    text = repr(comparison(cached="the whole program", cold_ms=400.0))
    assert comparison(cached="1 of 2 kernels", cold_ms=400.0).compile_ms == 399.5 and "400 ms" in text


def test_a_function_that_prints_is_called_a_few_times_and_heard_once(capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def says(x: hm.Tensor) -> hm.Tensor:
        calls.append(1)
        print("called")
        return x * 2

    found = hm.compare(says, X, repeats=3)
    assert found.prints and "it prints" in repr(found)
    assert capsys.readouterr().out == "called\n"
    assert len(calls) < 60
    assert not hm.compare(chain, X, repeats=2).prints


def test_distance_of_special_values() -> None:
    from hybridml.inspect.side_by_side import distance

    a = np.array([np.nan, np.inf, 0.0, -1.0])
    assert distance(a, np.array([np.nan, np.inf, -0.0, -1.0])) == (0.0, 0.0, 0)
    assert distance(a, np.array([np.nan, -np.inf, 0.0, -1.0]))[0] == math.inf
    assert distance(a, np.array([0.0, np.inf, 0.0, -1.0]))[0] == math.inf
    assert distance(a, None)[2] == sys.maxsize
    assert distance(a, a.astype(np.float32))[0] == math.inf
    assert distance(a, a[:2])[0] == math.inf
    assert distance(np.zeros(0), np.zeros(0)) == (0.0, 0.0, 0)


def test_distance_of_integers_and_bools() -> None:
    from hybridml.inspect.side_by_side import distance

    assert distance(np.array([2, 250], np.uint8), np.array([2, 0], np.uint8)) == (250.0, 1.0, 250)
    assert distance(np.array([True, False]), np.array([True, True])) == (1.0, 1.0, 1)


def test_what_eager_runs_compiled_counts_as_its_kernels() -> None:
    """A large composite, and an optimizer's step, whose capture is not an operation of the call."""
    x = hm.ones((256, 256))
    found = hm.compare(lambda: hm.functional.softmax(x), repeats=2)
    assert (found.eager.kernels, found.eager.bytes) == (found.traced.kernels, found.traced.bytes) == (1, 2 * x.nbytes)

    model = hm.nn.Linear(128, 128)
    optimizer = hm.optim.Adam(model.parameters())
    assert optimizer._size >= optim.optimizer.UPDATE

    def step() -> hm.Tensor:
        optimizer.zero_grad()
        loss = (model(x[:, :128]) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    found = hm.compare(step, repeats=2)
    assert found.results.relative < 1e-5 and found.eager.kernels < 40


@needs_nvrtc
def test_devices_are_compared_from_one_start_and_leave_no_trace(tmp_path: Path) -> None:
    hm.manual_seed(0)
    model = hm.nn.Sequential(hm.nn.Linear(4, 8), hm.nn.Dropout(0.3), hm.nn.Linear(8, 2))
    optimizer = hm.optim.Adam(model.parameters(), 0.01)
    x = hm.randn(6, 4)

    def step(x: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    before = [p.detach().numpy().copy() for p in model.parameters()]
    state = hm.random.default_generator.get_state().numpy()
    found = hm.compare(step, x, devices=["cpu", "cuda:sim"], repeats=2)
    assert found.devices == ("cpu", "cuda:sim") and found["cuda:sim"].eager.kernels > found["cuda:sim"].traced.kernels
    assert all(c.results.ulp == 0 for c in found.comparisons)
    assert found.results[0].ulp == 0 and found.results[1].count > 8
    assert found.results[1].relative < 1e-5  # 0 where the process has compiled no sums in another order
    for p, was in zip(model.parameters(), before, strict=True):
        assert p.device == "cpu" and p.grad is None
        np.testing.assert_array_equal(p.detach().numpy(), was)
    assert x.device == "cpu" and type(x) is hm.Tensor
    np.testing.assert_array_equal(hm.random.default_generator.get_state().numpy(), state)
    text = str(found)
    assert "cuda:sim traced" in text and "cuda:sim beside cpu: " in text and len({*map(len, found.rows)}) == 1
    found.save_html(tmp_path / "devices.html")
    assert "cuda:sim beside cpu" in (tmp_path / "devices.html").read_text()


def test_devices_must_be_there() -> None:
    with pytest.raises(hm.ArgumentError, match="devices must name one at least"):
        hm.compare(lambda x: x + 1, hm.ones(2), devices=[])
    with pytest.raises(hm.ArgumentError, match="'mps' is not available"):
        hm.compare(lambda x: x + 1, hm.ones(2), devices=["cpu", "mps"])
