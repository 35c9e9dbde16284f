"""Snapshot: what a function can reach is put back, whatever it did."""

from __future__ import annotations

import functools
import random
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.inspect.snapshot import Snapshot

counter = 0
weights = hm.zeros((2,))


class Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = [1]


class Layer:
    def __init__(self) -> None:
        self.scale = hm.ones((2,))
        self.calls = 0
        self.nested = {"list": [1, 2], "set": {1}, "slots": Slotted()}

    def run(self) -> None:
        uses_global()
        self.scale.copy_(self.scale * 2)
        self.calls += 1
        self.nested["list"].append(3)
        self.nested["set"].add(2)
        self.nested["slots"].value = 7
        self.nested["new"] = 1
        self.extra = 5


def uses_global() -> None:
    global counter
    counter += 1
    weights.copy_(weights + 1)


def test_objects_reached_through_a_method() -> None:
    layer = Layer()
    snapshot = Snapshot(fn=layer.run)
    for _ in range(2):
        layer.run()
        snapshot.restore()
        assert layer.scale.tolist() == [1.0, 1.0]
        assert weights.tolist() == [0.0, 0.0]
        assert (layer.calls, counter) == (0, 0)
        assert not hasattr(layer, "extra")
        nested = layer.nested
        assert (nested["list"], nested["set"], nested["slots"].value) == ([1, 2], {1}, [1])
        assert "new" not in nested


def test_closures_partials_and_decorated_functions() -> None:
    t, count = hm.zeros((1,)), 0

    @hm.no_grad()
    def fn(items: list[int]) -> None:
        nonlocal count
        count += 1
        items.append(count)
        t.copy_(t + 1)

    items: list[int] = []
    snapshot = Snapshot(fn=functools.partial(hm.trace(fn), items))
    fn(items)
    snapshot.restore()
    assert (count, items, t.tolist()) == (0, [], [0.0])


def test_gradients_histories_and_versions() -> None:
    a, b = (hm.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    (b * 3).sum().backward()
    loss = (a * a).sum()
    old = b.grad
    snapshot = Snapshot(tensors=[a, b])
    with hm.no_grad():
        a.copy_(a * 5)
    (b * 3).sum().backward()
    (a * 2).sum().backward()
    a.requires_grad_(False)
    snapshot.restore()
    assert a.grad is None and a.requires_grad
    assert b.grad is old and b.grad is not None and b.grad.tolist() == [3.0, 3.0]
    loss.backward()  # its values are what they were: nothing is stale
    assert a.grad is not None and a.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: hm.random.uniform((3,)).tolist(),
        lambda g: hm.random.uniform((3,), generator=g["ours"]).tolist(),
        lambda g: g["numpy"].standard_normal(3).tolist(),
        lambda g: g["python"].random(),
    ],
)
def test_random_generators(draw: Any) -> None:
    generators = {"ours": hm.Generator(1), "numpy": np.random.default_rng(1), "python": random.Random(1)}
    snapshot = Snapshot(generators=generators)
    first = draw(generators)
    snapshot.restore()
    assert draw(generators) == first


def test_arrays_and_other_dictionaries() -> None:
    array, ordered = np.zeros(3), OrderedDict(a=1, b=2)
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    snapshot = Snapshot(array=array, ordered=ordered, frozen=frozen)
    array += 1
    ordered.move_to_end("a")
    ordered["c"] = 3
    snapshot.restore()
    assert array.tolist() == [0, 0, 0]
    assert list(ordered.items()) == [("a", 1), ("b", 2)]


def test_state_names_what_it_found() -> None:
    model = hm.nn.Linear(2, 1)
    state = Snapshot(model=model).state()
    assert {"model.weight", "model.bias"} <= set(state)
    model(hm.ones((1, 2))).sum().backward()
    assert "model.weight.grad" in Snapshot(model=model).state()


def test_parameters_go_by_the_module_whatever_is_reached_first() -> None:
    model = hm.nn.Sequential(hm.nn.Sequential(hm.nn.Linear(2, 1)))
    adam = hm.optim.Adam(model.parameters())
    loose = [hm.ones((2,))]
    model(hm.ones((1, 2))).sum().backward()
    adam.step()
    state = Snapshot(adam=adam, every=list(model.parameters()), loose=loose, model=model).state()
    (weight,) = [name for name in state if name.startswith("model") and name.endswith(".weight")]
    assert {f"{weight}.grad", "loose.0"} <= set(state)
    assert not [name for name in state if name.startswith("every") or ".params." in name]


def test_a_circle_of_objects_ends() -> None:
    circle: list[Any] = []
    circle.append(circle)
    Snapshot(circle=circle).restore()
    assert circle[0] is circle
