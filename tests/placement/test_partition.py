"""Programs over several devices: each computes what is on it, and they send values to each other."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml_compiler.errors import CompileError, DeviceError
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.graph.text import parse_graph, print_graph
from hybridml_compiler.graph.verify import verify
from hybridml_compiler.pipeline import compile
from hybridml_compiler.placement.by_operands import placement
from hybridml_compiler.placement.partition import place, split
from hybridml_compiler.targets.cuda.executable import CudaExecutable
from hybridml_compiler.targets.device import download, upload
from hybridml_compiler.targets.partitioned import PartitionedExecutable
from hybridml_compiler.targets.registry import find_device

HERE, THERE, SIMULATED = "cpu", "reference", "cuda:sim"


def x() -> hm.Tensor:
    return hm.asarray(np.arange(400, dtype="f4").reshape(20, 20)) / 400 - 0.3


def executable(f: Any) -> Any:
    return f._shown().program.executable


def devices(f: Any) -> list[str]:
    """The device of each program of the last call, in order, without those that only receive and send."""
    found = executable(f)
    assert isinstance(found, PartitionedExecutable)
    return [part.device for part, exe in found.programs.items() if exe is not None]


# -- programs, with the devices of their parts


def there_and_back(t: hm.Tensor) -> Any:
    a = hm.exp(t) * 2
    b = hm.sin(a.to(THERE)) - 1
    return b.cpu() * t + a, b


def three(t: hm.Tensor) -> Any:
    a = (t * t).to(THERE) + 0.5
    b = hm.tanh(a.to(SIMULATED))
    return (b.cpu() + t, b.to(THERE) * a)


def blocks(t: hm.Tensor) -> Any:
    """Parts of a function by the default device."""
    with hm.device(THERE):
        mask = hm.rand(20, 20) > 0.5
        a = hm.where(mask, t.to(THERE), hm.zeros(20, 20))
    with hm.device(SIMULATED):
        b = hm.arange(400.0).reshape(20, 20) * a.to(SIMULATED)
    return t + 1, a, b


def a_loop(t: hm.Tensor) -> Any:
    """Steps that move values are computed by one device, what is around them where it is."""
    total, ys = hm.scan(lambda c, row: ((c.to(THERE) * row.to(THERE)).cpu() + row, row.to(THERE)), t[0], t.sin())
    return total.cumsum(0), ys.to(SIMULATED) * 2


def results_of_one_operation(t: hm.Tensor) -> Any:
    q, r = hm.linalg.qr((t + 3 * hm.eye(20)).to(THERE))
    return q.cpu() + t, r.to(SIMULATED) * 2


def an_input_as_it_came(t: hm.Tensor) -> Any:
    return t, t, t.to(THERE), (t + 1).to(THERE).cpu(), hm.ones(20, 20).to(THERE), t.to(SIMULATED) * t.to(SIMULATED)


PROGRAMS = {
    there_and_back: [HERE, THERE, HERE],
    three: [HERE, THERE, SIMULATED, THERE, HERE],
    blocks: [THERE, HERE, SIMULATED],
    a_loop: [HERE, THERE, SIMULATED, HERE],
    results_of_one_operation: [HERE, THERE, SIMULATED, HERE],
    an_input_as_it_came: [SIMULATED, THERE, HERE],
}
EXACT = [there_and_back, three, blocks, an_input_as_it_came]  # elementwise, which has the same bits on all devices


@pytest.mark.parametrize("program", PROGRAMS)
def test_values_are_those_of_eager_code(program: Callable[..., Any]) -> None:
    traced, t = hm.trace(program), x()
    for _ in range(2):
        hm.manual_seed(0)
        eager = hm.tree_leaves(program(t))
        hm.manual_seed(0)
        found = hm.tree_leaves(traced(t))
        assert [a.device for a in found] == [a.device for a in eager]
        for a, b in zip(found, eager, strict=True):
            if program in EXACT:
                assert a.tolist() == b.tolist()
            np.testing.assert_allclose(a.cpu().numpy(), b.cpu().numpy(), rtol=1e-5, atol=1e-5)
    assert devices(traced) == PROGRAMS[program] and traced.cache_info().compiles == 1


@pytest.mark.parametrize("program", [there_and_back, three, blocks, a_loop])
def test_gradients_cross_devices(program: Callable[..., Any]) -> None:
    def gradients(f: Callable[..., Any]) -> Any:
        hm.manual_seed(0)
        t = x().detach().requires_grad_()
        losses = [(out**2).sum().cpu() for out in hm.tree_leaves(f(t))]
        (first,) = hm.autograd.grad(sum(losses[1:], losses[0]), t)
        return first

    inside = hm.trace(lambda: gradients(program))
    eager, outside = gradients(program), gradients(hm.trace(program))
    for found in (outside, inside()):
        assert found.device == "cpu"
        np.testing.assert_allclose(found.numpy(), eager.numpy(), rtol=1e-5, atol=1e-5)
    assert len(set(devices(inside))) > 1


def test_a_model_on_two_devices_learns() -> None:
    def trained(style: Callable[..., Any]) -> Any:
        hm.manual_seed(0)
        with hm.device(THERE):
            first = nn.Linear(20, 16)
        with hm.device(SIMULATED):
            second = nn.Linear(16, 4)
        optimizer = hm.optim.AdamW([*first.parameters(), *second.parameters()], lr=0.005)

        def step(t: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()
            loss = (second(hm.tanh(first(t.to(THERE))).to(SIMULATED)) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = style(step)
        losses = [run(x()).item() for _ in range(4)]
        return run, losses, [p.detach().cpu().numpy() for p in (*first.parameters(), *second.parameters())]

    _, losses, weights = trained(lambda step: step)
    run, found, others = trained(hm.trace)
    assert found[3] < found[0] and run.cache_info().compiles == 1 and set(devices(run)) >= {THERE, SIMULATED}
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    for a, b in zip(others, weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_updates_in_place_where_the_tensors_are() -> None:
    def program(t: hm.Tensor, other: hm.Tensor) -> hm.Tensor:
        t += 1
        other *= t.to(THERE)
        t[0] = other[0].cpu()
        return other.to(SIMULATED) + 1

    traced = hm.trace(program)
    eager, compiled = (x(), x().to(THERE)), (x(), x().to(THERE))
    for _ in range(3):
        assert traced(*compiled).tolist() == program(*eager).tolist()
        assert [t.tolist() for t in compiled] == [t.tolist() for t in eager]
    assert traced.cache_info().compiles == 1


# -- what is computed where


def test_what_is_made_of_a_few_numbers_is_computed_where_it_is_read() -> None:
    """Random bits and step counts: a device that has all else computes the whole program."""
    f = hm.trace(lambda t, count: (nn.functional.dropout(t, 0.5) * (count + 1).to(THERE), count + 1, hm.rand(20, 20)))
    f(x().to(THERE), hm.zeros(1))
    assert not isinstance(executable(f), PartitionedExecutable)
    g = hm.trace(lambda t, s: (nn.functional.dropout(t.to(THERE), 0.5), t.exp()))
    g(x(), 1.0)
    assert devices(g) == [THERE, HERE] and "random_bits" in print_graph([*executable(g).programs][1].graph)


def test_random_numbers_for_another_device_are_drawn_there() -> None:
    f = _called(lambda t: (t.exp(), hm.rand(20, 20).to(THERE)), x())
    assert sorted(devices(f)) == [HERE, THERE]
    assert "random_bits" in "".join(print_graph(p.graph) for p in executable(f).programs if p.device == THERE)


def test_programs_of_one_device_are_as_they_were() -> None:
    assert all(not isinstance(executable(f), PartitionedExecutable) for f in [_called(lambda t: t.exp(), x())])
    f = _called(lambda t: t * 2, x().to(THERE))
    assert not isinstance(executable(f), PartitionedExecutable) and "recv" not in f.ir


def _called(fn: Callable[..., Any], *args: Any) -> Any:
    f = hm.trace(fn)
    f(*args)
    return f


def test_work_of_the_cpu_on_a_tensor_of_a_device_is_the_cpus() -> None:
    f = _called(lambda t: hm.sort(t.cpu().exp()), x().to(THERE))
    assert devices(f) == [HERE]


# -- texts and pictures


def test_send_and_recv_are_seen() -> None:
    f = _called(there_and_back, x())
    texts = [print_graph(part.graph) for part in executable(f).programs]
    assert all(text in f.ir for text in texts)
    assert 'send(%3) {device="reference"} : f32[20,20]' in texts[0] and 'recv(%0) {device="reference"}' in texts[1]
    for text in (*texts, executable(f).ir):
        assert print_graph(parse_graph(text)) == text
    ops = [node.op for node in f.graph.optimized]
    assert ops.count("send") == ops.count("recv") == 2
    report = str(f.explain())
    assert report.index("from cpu to reference") < report.index("from reference to cpu")
    assert "recv" in f.graph.optimized.draw()._repr_svg_() and "from cpu to reference" in f.show().html
    assert f.stats.kernels == 3 and "there_and_back.1 on reference" in f.llvm


def test_values_of_any_device_can_be_fetched() -> None:
    f = _called(there_and_back, x())
    name = next(node.name for node in f.graph if node.op == "sin")
    found = f.run(x(), fetch=name)
    assert found.device == THERE and found.tolist() == hm.sin((hm.exp(x()) * 2).to(THERE)).tolist()
    assert "equal" in str(hm.compare(f, x()))


def placed(text: str) -> tuple[Graph, list[Any]]:
    graph = parse_graph(text)
    found = place(graph, placement(graph))
    verify(found, "placement")
    return found, split(found)


def test_a_value_is_sent_once_to_each_device() -> None:
    graph, parts = placed("""
        graph f(%0: f32[99], %1: f32[99]@reference, %2: f32[99]@cuda:sim) {
          %3 = exp(%0) : f32[99]
          %4 = transfer(%3) {device="reference"} : f32[99]@reference
          %5 = add(%1, %4) : f32[99]@reference
          %6 = multiply(%5, %4) : f32[99]@reference
          %7 = transfer(%3) {device="cuda:sim"} : f32[99]@cuda:sim
          %8 = add(%2, %7) : f32[99]@cuda:sim
          %9 = transfer(%6) {device="cuda:sim"} : f32[99]@cuda:sim
          %10 = multiply(%9, %7) : f32[99]@cuda:sim
          return %6, %8, %10
        }""")
    names = [node.op.name for node in graph.nodes() if node.op is not None]
    assert names.count("send") == names.count("recv") == 3 and "transfer" not in names
    assert [part.device for part in parts] == [HERE, SIMULATED, THERE, SIMULATED]


@pytest.mark.usefixtures("source_lines")
def test_checks_are_owed_by_the_device_that_has_them() -> None:
    def program(t: hm.Tensor, indices: hm.Tensor) -> hm.Tensor:
        hm.take(t.exp().to(THERE), indices.to(THERE), axis=0)  # nobody reads it
        return t + 1

    f = hm.trace(program)
    f(x(), hm.asarray([1, 2]))
    assert set(devices(f)) == {HERE, THERE}
    with pytest.raises(IndexError, match="index 20 is out of range") as traced:
        f(x(), hm.asarray([1, 20]))
    assert "nobody reads it" in str(traced.value)


def test_several_devices_in_a_loop_are_an_error() -> None:
    def program(t: hm.Tensor) -> Any:
        return hm.scan(lambda c, r: (c + r.cpu().to(SIMULATED).cpu(), r), t[0], t.to(THERE))

    with pytest.raises(DeviceError, match=r"loop has values on several devices \(cuda:sim, reference\)"):
        hm.trace(program, strict=True)(x())


def test_operations_do_not_mix_devices() -> None:
    with pytest.raises(DeviceError, match="on 'reference' and on 'cuda:sim'"):
        hm.trace(lambda t: t.to(THERE) + t.to(SIMULATED))(x())


def test_sizes_are_fixed() -> None:
    f = hm.trace(lambda t: t.exp().to(THERE).sin().cpu() * t, dynamic=True)
    for n in (70, 80, 90):
        t = hm.arange(float(n)) / n
        assert f(t).tolist() == (t.exp().to(THERE).sin().cpu() * t).tolist()


def test_the_compiler_takes_arrays_where_they_are() -> None:
    graph = parse_graph("""
        graph f(%0: f32[99], %1: f32[99]@reference) {
          %2 = exp(%0) : f32[99]
          %3 = transfer(%2) {device="reference"} : f32[99]@reference
          %4 = add(%1, %3) : f32[99]@reference
          return %0, %4, %0
        }""")
    here, device = np.arange(99, dtype="f4") / 99, find_device(THERE)
    first, there, again = compile(graph)([here, upload(device, here)])
    np.testing.assert_array_equal(download(there), np.asarray(hm.exp(hm.asarray(here))) + here)
    assert first is not here and first is not again and (first == again).all()


def test_values_are_let_go_when_nobody_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    f = hm.trace(lambda t: t.exp().to(THERE).sin().to(SIMULATED).tanh().cpu() + 1)
    f(x())
    device: Any = find_device(THERE)
    made: list[Any] = []
    allocate = device.allocate

    def noted(nbytes: int) -> Any:
        made.append(allocate(nbytes))
        return made[-1]

    monkeypatch.setattr(device, "allocate", noted)
    f(x())
    assert len(made) == 2 and all(getrefcount(memory) == 3 for memory in made)  # by the list, the name, the call


def test_what_a_gpu_is_sent_is_copied_beside_what_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    f = hm.trace(lambda t: (t.to(SIMULATED) * 2).tanh().cpu().exp().to(SIMULATED) + 1)
    f(x())
    device: Any = find_device(SIMULATED)
    copied, computed = [], []
    write, run = device.driver.write, CudaExecutable.run

    def noted(target: Any, data: np.ndarray, stream: Any) -> None:
        copied.append(stream)
        write(target, data, stream)

    def launched(self: Any, arrays: Any) -> Any:
        computed.append(device.stream)
        return run(self, arrays)

    monkeypatch.setattr(device.driver, "write", noted)
    monkeypatch.setattr(CudaExecutable, "run", launched)
    out = f(x())
    assert len(copied) == len(computed) == 2 and not set(copied) & set(computed)
    assert out.tolist() == ((x() * 2).tanh().exp() + 1).tolist()


def test_symbols_have_no_partition() -> None:
    graph = parse_graph("""
        graph f[n=99](%0: f32[n]) {
          %1 = transfer(%0) {device="reference"} : f32[n]@reference
          %2 = transfer(%0) {device="cuda:sim"} : f32[n]@cuda:sim
          return %1, %2
        }""")
    with pytest.raises(CompileError, match="programs of several devices have fixed sizes"):
        compile(graph)
