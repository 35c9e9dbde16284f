"""`trace(placement=...)`: programs compute on the devices of least cost what eager code computes where its operands
are."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.tracing.function import TracedFunction
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.placement.performance import Performance
from hybridml_compiler.targets import registry
from hybridml_compiler.targets.performance import ASSUMED
from hybridml_compiler.targets.registry import machine_devices, performance_of

HERE, THERE, OTHER = "cpu", "cuda:sim", "cuda:sim:1"
DEVICES = [HERE, THERE, OTHER]


def speed(operations: float, latency: float = 1e-9) -> Performance:
    return Performance({4: operations}, {4: operations}, operations, 1e-9, latency, 1e15)


@pytest.fixture
def assumed() -> Iterator[dict[str, Performance]]:
    """The table, with a CPU of medium speed and without what a test puts into it."""
    before = dict(ASSUMED)
    ASSUMED[HERE] = Performance({4: 1e9}, {4: 1e9}, 1e9, 1e-9)
    yield ASSUMED
    ASSUMED.clear()
    ASSUMED.update(before)


def executable(f: Any) -> Any:
    return f._shown().program.executable


def devices(f: Any) -> set[str]:
    """The devices that compute something of the last call."""
    return set(executable(f).where.values())


def x() -> hm.Tensor:
    return hm.asarray(np.arange(400, dtype="f4").reshape(20, 20)) / 400 - 0.3


# ---- programs, with any placement


def elementwise(t: hm.Tensor) -> Any:
    a = hm.exp(t) * 2
    return hm.sin(a) - 1, a.to(THERE) + 1, t


def drawn(t: hm.Tensor) -> Any:
    return nn.functional.dropout(t, 0.5) * hm.rand(20, 20), hm.arange(20.0) + t


def looped(t: hm.Tensor) -> Any:
    total, ys = hm.scan(lambda c, row: (c + row * c, c * 2), t[0], t.sin())
    return hm.cond(total.sum() > 0, lambda a: a + 1, lambda a: a - 1, total), ys


def by_numpy(t: hm.Tensor) -> Any:
    q, r = hm.linalg.qr(t + 3 * hm.eye(20))
    return q @ r, hm.sort(t.flatten())


def updated(t: hm.Tensor) -> Any:
    t = t.clone()
    t += 1
    t[0] = t[1] * 2
    return t, t.sum(0)


PROGRAMS = [elementwise, drawn, looped, by_numpy, updated]


@pytest.mark.parametrize("program", PROGRAMS)
def test_any_placement_computes_what_eager_code_does(program: Any, assumed: dict[str, Performance]) -> None:
    draw = random.Random(program.__name__)
    seen: set[str] = set()
    for _ in range(3):
        for device in DEVICES:
            assumed[device] = speed(10 ** draw.uniform(8, 10), 0 if device == HERE else 10 ** draw.uniform(-9, -6))
        traced = hm.trace(program, placement=DEVICES)
        for _ in range(2):
            hm.manual_seed(0)
            eager = hm.tree_leaves(program(x()))
            hm.manual_seed(0)
            found = hm.tree_leaves(traced(x()))
            assert [a.device for a in found] == [a.device for a in eager]
            for a, b in zip(found, eager, strict=True):
                np.testing.assert_allclose(a.cpu().numpy(), b.cpu().numpy(), rtol=1e-5, atol=1e-5)
        seen |= devices(traced)
        assert traced.cache_info().compiles == 1
    assert seen - {HERE}


def test_a_model_learns_where_it_is_fastest(assumed: dict[str, Performance]) -> None:
    assumed[THERE] = speed(1e13)

    def trained(style: Any) -> Any:
        hm.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 4))
        optimizer = hm.optim.AdamW(model.parameters(), lr=0.005)

        def step(t: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()
            loss = (model(t) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = style(step)
        return run, [run(x()).item() for _ in range(3)], [p.detach() for p in model.parameters()]

    run, losses, weights = trained(lambda step: hm.trace(step, placement=[HERE, THERE]))
    _, expected, others = trained(lambda step: step)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for a, b in zip(weights, others, strict=True):
        assert a.device == HERE
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)
    assert THERE in devices(run) and run.cache_info().compiles == 1


def test_gradients_of_a_placed_call_are_placed(assumed: dict[str, Performance]) -> None:
    assumed[THERE] = speed(1e13)
    f = hm.trace(lambda t: hm.tanh(t @ t), placement=[HERE, THERE])
    t = x().requires_grad_()
    f(t).sum().backward()
    grad = t.grad
    assert grad is not None and grad.device == HERE
    expected = x().requires_grad_()
    hm.tanh(expected @ expected).sum().backward()
    assert expected.grad is not None
    np.testing.assert_allclose(grad.numpy(), expected.grad.numpy(), rtol=1e-4, atol=1e-5)
    backward = next(iter(f._shown().program._vjps.values())).program.executable
    assert set(backward.where.values()) == {THERE}


def test_a_value_that_python_asks_for(assumed: dict[str, Performance]) -> None:
    assumed[THERE] = speed(1e13)
    f = hm.trace(lambda t: hm.exp(t) if (t @ t).sum() > 0 else t - 1, placement=[HERE, THERE])
    for t in (x(), -x() * 0 - 1):
        np.testing.assert_allclose(f(t).numpy(), (hm.exp(t) if (t @ t).sum() > 0 else t - 1).numpy(), rtol=1e-6)
    assert devices(f) == {THERE}


# ---- the option


def test_unless_it_is_asked_for_operations_stay_where_their_operands_are(assumed: dict[str, Performance]) -> None:
    assumed[THERE] = speed(1e15)
    f = hm.trace(lambda t: t @ t)
    f(x())
    assert executable(f).choice is None and "by cost" not in str(f.explain()) and "# on" not in f.ir


def test_auto_is_the_machine_and_where_values_are(
    assumed: dict[str, Performance], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine_devices()[0] == HERE
    monkeypatch.setattr(registry, "machine_devices", lambda: (HERE,))
    assumed[THERE] = speed(1e13)
    f = hm.trace(lambda t: t @ t, placement="auto")
    f(x())
    assert devices(f) == {HERE}
    assert f(x().to(THERE)).device == THERE and devices(f) == {THERE}
    monkeypatch.setattr(registry, "machine_devices", lambda: (HERE, THERE))
    g = hm.trace(lambda t: t @ t, placement="auto")
    assert g(x()).device == HERE and devices(g) == {THERE}


def test_another_size_is_another_placement(assumed: dict[str, Performance]) -> None:
    assumed[THERE] = speed(1e13, 1e-5)
    f = hm.trace(lambda t: t @ t, placement=[HERE, THERE])
    for size, device in ((4, HERE), (200, THERE), (5, HERE)):
        assert f(hm.ones((size, size))).shape == (size, size) and devices(f) == {device}
    assert f.cache_info().compiles == 3


def test_a_program_that_stays_is_as_without(assumed: dict[str, Performance]) -> None:
    """Its memory is written over, and native code calls it."""
    assumed[THERE] = speed(1e3)
    state = hm.zeros(8)

    def step(t: hm.Tensor) -> hm.Tensor:
        state.add_(t)
        return state * 2

    f = hm.trace(step, placement=[HERE, THERE])
    address = state.numpy().ctypes.data
    for _ in range(3):
        f(hm.ones(8))
    assert state.tolist() == [3] * 8 and state.numpy().ctypes.data == address
    assert f._last is not None and f._last.fast is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"placement": "cuda"}, r"must be 'auto' or a list of devices, got 'cuda'; \['cuda'\] is a list of one"),
        ({"placement": []}, "must name a device at least"),
        ({"placement": ["gpu"]}, "device 'gpu' is not available"),
        ({"placement": "auto", "backend": "interpret"}, "placement needs the compiler"),
    ],
)
def test_what_placement_does_not_take(options: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        hm.trace(lambda t: t, **options)


def test_copies_of_a_traced_function_are_placed_like_it(assumed: dict[str, Performance]) -> None:
    f: Any = hm.trace(nn.functional.relu, placement=[hm.device(THERE), THERE])
    assert f._backend.among == (THERE,)
    again = TracedFunction(*f.__reduce__()[1])
    assert again._backend == pickle.loads(pickle.dumps(f._backend)) == f._backend
    assumed[THERE] = speed(1e3)
    with hm.autocast("cpu", dtype=hm.bfloat16):
        assert f(x()).device == HERE
    (twin,) = f.twins.values()
    assert devices(twin) == {THERE}


def test_what_has_no_values_stays(assumed: dict[str, Performance]) -> None:
    f = hm.trace(lambda t: t @ t, placement=[HERE, THERE])
    assert f(hm.ones((4, 4), device="meta")).device == "meta" and executable(f).choice is None


def test_a_method_and_a_module(assumed: dict[str, Performance]) -> None:
    assumed[THERE] = speed(1e13)
    model: Any = hm.trace(nn.Linear(20, 4), placement=[HERE, THERE])
    assert model(x()).device == HERE and devices(model.forward) == {THERE}


# ---- what is said about it


def test_why_each_part_is_where_it_is(assumed: dict[str, Performance]) -> None:
    assumed[THERE] = speed(1e13)
    f = hm.trace(lambda t: (t @ t).tanh(), placement=[HERE, THERE])
    f(x())
    report = str(f.explain())
    (section,) = [t.columns[0].cells for t in f.explain().tables if t.caption.startswith("placement by cost")]
    assert section[0].startswith("all on cuda:sim: estimated ") and section[1].startswith("all on cpu: ")
    assert any(row.startswith("<lambda>.1 on cuda:sim: 2 operations, estimated ") for row in section)
    assert "; on cpu " in report and ", and the whole program " in report
    (line,) = [line for line in f.ir.splitlines() if line.startswith("# on cuda:sim")]
    assert "2 operations" in line and "on cpu " in line
    assert f.graph.outputs[0].device == THERE and f.graph.inputs[0].device == HERE
    assert " on cuda:sim<" in f.graph.draw().svg
    assert f.graph.to_networkx().nodes["%1"]["device"] == THERE
    assert hm.explain(f, x()).placement == f.explain().placement


def test_why_all_of_it_stays(assumed: dict[str, Performance]) -> None:
    assumed[THERE] = speed(1e3)
    f = hm.trace(lambda t: (t @ t).tanh(), placement=[HERE, THERE])
    f(x())
    assert "placement by cost (estimated)\n  all on cpu: estimated " in str(f.explain())
    assert f.ir.splitlines()[-1].startswith("# on cpu: 2 operations, estimated ")


def test_a_loop_is_computed_by_one_device(assumed: dict[str, Performance]) -> None:
    def program(t: hm.Tensor) -> Any:
        return hm.scan(lambda c, r: (c + ((r.to(THERE) * 2).cpu().to("reference") * 2).cpu(), r), t[0], t)

    assumed[THERE] = speed(1e13)
    f = hm.trace(program, placement=[HERE, THERE])
    for a, b in zip(f(x()), program(x()), strict=True):
        assert a.device == b.device == HERE and a.tolist() == b.tolist()
    assert devices(f) == {THERE}


def test_speeds_that_are_assumed_are_those_of_the_device(assumed: dict[str, Performance]) -> None:
    before = performance_of(THERE)
    assumed[THERE] = speed(1.0)
    assert performance_of(THERE).elements == {4: 1.0} != before.elements


SCRIPT = """
import hybridml as hm
devices = ["cpu", "cuda:sim", "reference"]
f = hm.trace(lambda t: ((t @ t).tanh() @ t.softmax(-1), t.sin().sum(0)), placement=devices)
from hybridml_compiler.targets.performance import ASSUMED
from hybridml_compiler.placement.performance import Performance
for k, name in enumerate(devices):
    ASSUMED[name] = Performance({4: 1e9}, {4: 1e9}, 1e9, 1e-6, 1e-7 * (k > 0), 1e11)
f(hm.ones((16, 16)))
print([node.device for node in f.graph])
"""


def test_the_choice_is_the_same_in_every_process() -> None:
    def said(seed: str) -> str:
        environment = {"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": ":".join(sys.path)}
        return subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment, timeout=120
        ).stdout

    first = said("1")
    assert first == said("2") and "cpu" in first
