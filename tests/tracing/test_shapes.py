"""`eval_shape` and `fn.lower`: programs of shapes and dtypes alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn

Struct = hm.ShapeDtypeStruct


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm1d(20), nn.Linear(20, 4))


def test_the_type_of_a_result_has_its_container() -> None:
    found = hm.eval_shape(lambda x: {"a": x.sum(1), "b": (x > 0, 3)}, Struct((4, 5), hm.float64))
    assert found == {"a": Struct((4,), "float64"), "b": (Struct((4, 5), "bool"), 3)}
    assert str(found["a"]) == "ShapeDtypeStruct(shape=(4,), dtype=float64)"


@pytest.mark.parametrize("wrap", [lambda fn: fn, hm.trace])
def test_a_module_and_its_gradient(wrap: Any) -> None:
    model = wrap(network())
    x = Struct((32, 10), hm.float32)
    assert hm.eval_shape(model, x) == Struct((32, 4), "float32")
    pulled = hm.eval_shape(hm.grad(lambda x: model(x).sum()), x)
    assert pulled == x


def test_nothing_is_computed_drawn_or_changed() -> None:
    model = network()
    hm.manual_seed(3)
    expected = hm.rand(2).tolist()
    hm.manual_seed(3)
    before = [t.detach().numpy().copy() for t in model.state_dict().values()]
    calls = []

    def fn(x: hm.Tensor) -> hm.Tensor:
        calls.append(x.shape)
        return model(x)

    hm.eval_shape(fn, Struct((8, 10), hm.float32))
    huge = Struct((1 << 18, 1 << 18), hm.float32)  # 256 GiB
    assert hm.eval_shape(lambda x: x @ x.T + 1, huge) == huge
    assert hm.rand(2).tolist() == expected
    for now, then in zip(model.state_dict().values(), before, strict=True):
        assert np.array_equal(now.detach().numpy(), then)


def test_a_value_that_python_asks_for_is_an_error() -> None:
    def fn(x: hm.Tensor) -> hm.Tensor:
        return x if x.sum() > 0 else -x

    for call in (lambda x: hm.eval_shape(fn, x), lambda x: hm.trace(fn).lower(x)):
        with pytest.raises(hm.TraceError, match=r"bool\(\) needs the value of a tensor"):
            call(Struct((3,), hm.float32))
    known = hm.trace(fn)
    known(hm.ones(3))
    with pytest.raises(hm.TraceError, match="lower: bool"):
        known.lower(Struct((3,), hm.float32)).compile()
    assert known(hm.ones(3)).tolist() == [1, 1, 1]


def test_errors_of_shapes_are_those_of_a_call() -> None:
    with pytest.raises(hm.ShapeError, match="matmul"):
        hm.eval_shape(lambda x: x @ x, Struct((2, 3), hm.float32))


def test_a_program_is_compiled_for_types_and_run_by_the_call() -> None:
    step = hm.trace(lambda x: hm.exp(x * 2).sum(0))
    lowered = step.lower(Struct((64, 16), hm.float32))
    assert lowered.out_info == Struct((16,), "float32")
    assert "exp(" in lowered.as_text() and not step.cache_info().compiles
    compiled = lowered.compile()
    cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
    assert cost["kernels"] == 1 and cost["flops"] >= 3 * 64 * 16 and cost["bytes accessed"] >= 64 * 16 * 4
    assert (memory.argument_size_in_bytes, memory.output_size_in_bytes) == (4096, 64)
    x = hm.randn(64, 16)
    assert np.array_equal(compiled(x).numpy(), step(x).numpy())
    assert step.cache_info().compiles == 1


def test_memory_is_that_of_the_plan_by_line() -> None:
    model, optimizer = network(), None
    optimizer = hm.optim.SGD(model.parameters(), lr=0.1)

    @hm.trace
    def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    found = step.lower(Struct((512, 10), hm.float32), Struct((512,), hm.int64)).compile().memory_analysis()
    assert found.peak_bytes >= found.temp_size_in_bytes >= 0.9 * 512 * 20 * 4
    assert sum(found.lines.values()) == found.alive_bytes <= found.temp_size_in_bytes + found.output_size_in_bytes
    assert all("test_shapes.py" in line for line in found.lines)
    assert "in between" in str(found)
    before = model.state_dict()["0.weight"].detach().numpy().copy()
    step(hm.randn(512, 10), hm.randint(0, 4, (512,)))
    assert step.cache_info().compiles == 1
    assert not np.array_equal(before, model.state_dict()["0.weight"].detach().numpy())


def test_memory_of_a_program_of_two_devices() -> None:
    def fn(x: hm.Tensor) -> hm.Tensor:
        h = hm.exp(x) * 2
        return hm.sin(h.to("reference")).cpu() + h

    found = hm.trace(fn).lower(Struct((20, 20), hm.float32)).compile().memory_analysis()
    assert (found.argument_size_in_bytes, found.output_size_in_bytes) == (1600, 1600)
    assert found.temp_size_in_bytes >= 1600 and all("test_shapes.py" in line for line in found.lines)


def test_shapes_inside_a_trace() -> None:
    layer = nn.Linear(3, 2)

    @hm.trace
    def padded(x: hm.Tensor) -> hm.Tensor:
        return layer(x) + hm.zeros(hm.eval_shape(layer, x).shape)

    x = hm.ones((4, 3))
    assert np.array_equal(padded(x).detach().numpy(), layer(x).detach().numpy())
    assert hm.vmap(lambda x: hm.zeros(hm.eval_shape(hm.sum, x).shape) + x[0])(x).tolist() == [1.0] * 4


def test_programs_have_the_name_of_the_function() -> None:
    def doubled(x: hm.Tensor) -> hm.Tensor:
        return x * 2

    assert hm.trace(doubled).lower(Struct((3,), hm.float32)).as_text().startswith("graph doubled(")
