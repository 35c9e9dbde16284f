"""Every kind of callable can be traced, from any thread, and copied as it could be before."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.entry import Entry


class Layer(hm.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = hm.nn.Parameter(hm.tensor([1.0, 2.0]))

    def forward(self, x: hm.Tensor) -> hm.Tensor:
        return x * self.weight if x.sum() > 0 else x - self.weight


class Calls:
    gain = 2.0

    @hm.trace
    def method(self, x: hm.Tensor) -> hm.Tensor:
        return x * self.gain

    @classmethod
    @hm.trace
    def of_class(cls, x: hm.Tensor) -> hm.Tensor:
        return x * cls.gain

    @staticmethod
    @hm.trace
    def static(x: hm.Tensor) -> hm.Tensor:
        return x * 4

    @property
    @hm.trace
    def value(self) -> hm.Tensor:
        return hm.ones((2,)) * self.gain


class Other(Calls):
    gain = 3.0


def test_methods_of_all_kinds() -> None:
    x, a, b = hm.ones((2,)), Calls(), Other()
    for _ in range(3):
        assert a.method(x).tolist() == [2, 2] and b.method(x).tolist() == [3, 3]
        assert Calls.of_class(x).tolist() == [2, 2] and Other.of_class(x).tolist() == [3, 3]
        assert a.static(x).tolist() == [4, 4] and Calls.static(x).tolist() == [4, 4]
        assert a.value.tolist() == [2, 2] and b.value.tolist() == [3, 3]
    a.gain = 5.0
    assert a.method(x).tolist() == [5, 5] and a.value.tolist() == [5, 5] and b.method(x).tolist() == [3, 3]


def scaled(x: hm.Tensor, by: float, *, more: float = 0.0) -> hm.Tensor:
    return x * by + more


def test_partial(trace: Any) -> None:
    x = hm.ones((2,))
    f, g = trace(functools.partial(scaled, by=3.0)), functools.partial(trace(scaled), x, more=1.0)
    for _ in range(3):
        assert f(x).tolist() == [3, 3] and f(x, more=2.0).tolist() == [5, 5] and g(2.0).tolist() == [3, 3]
        assert g(4.0).tolist() == [5, 5]


def test_copies_and_pickles() -> None:
    x, net = hm.ones((2,)), hm.trace(Layer())
    expected = net(x).tolist()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(twin) is Layer and list(twin.state_dict()) == ["weight"]
        assert twin(x).tolist() == expected
        with hm.no_grad():
            twin.weight.mul_(10)
        assert twin(x).tolist() == [10, 20] and net(x).tolist() == expected
        assert twin.forward.cache_info().compiles and twin.forward is not net.forward
    f = hm.trace(scaled, strict=True)
    for twin in (copy.copy(f), copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        assert twin(x, 2.0).tolist() == [2, 2] and twin.cache_info().compiles == 1 and twin.__name__ == "scaled"


def test_async_functions(trace: Any) -> None:
    log: list[str] = []

    async def inner(x: hm.Tensor) -> hm.Tensor:
        return x * 2

    @trace
    async def step(x: hm.Tensor) -> hm.Tensor:
        y = await inner(x)
        return y + 1 if y.sum() > 0 else y

    async def both(x: hm.Tensor) -> list[Any]:
        found = await asyncio.gather(step(x), step(-x), step(x))
        log.append("done")
        return [y.tolist() for y in found]

    for _ in range(2):
        assert asyncio.run(both(hm.ones((2,)))) == [[3, 3], [-2, -2], [3, 3]]
    assert step.cache_info().compiles == 2

    @trace
    async def waits(x: hm.Tensor) -> hm.Tensor:
        await asyncio.sleep(0.001)
        return x

    with pytest.raises(hm.TraceError, match="waits for something"):
        asyncio.run(waits(hm.ones((2,))))


def test_generator_functions_are_refused() -> None:
    def numbers(x: hm.Tensor) -> Any:
        yield x

    async def later(x: hm.Tensor) -> Any:
        yield x

    for fn in (numbers, later):
        with pytest.raises(hm.ArgumentError, match="trace the function that computes one of them"):
            hm.trace(fn)
    f = hm.trace(lambda x: list(numbers(x * 2)))  # inside a traced function they are Python
    assert f(hm.ones((1,)))[0].tolist() == [2]
    with pytest.raises(hm.TraceError, match="returns a generator"):
        hm.trace(lambda x: numbers(x))(hm.ones((1,)))


def test_recursion_and_calls_of_each_other(trace: Any) -> None:
    @trace
    def even(x: hm.Tensor, n: int) -> hm.Tensor:
        return x if n == 0 else odd(x + 1, n - 1)

    @trace
    def odd(x: hm.Tensor, n: int) -> hm.Tensor:
        return x * 0 if n == 0 else even(x * 2, n - 1)

    for _ in range(2):
        assert even(hm.ones((1,)), 4).item() == 10 and odd(hm.ones((1,)), 3).item() == 8 - 2

    @trace
    def halve(x: hm.Tensor) -> hm.Tensor:
        return x if x.sum() < 1 else halve(x / 2)

    for v in (5.0, 0.5, 3.0, 5.0):
        assert halve(hm.tensor([v])).item() == pytest.approx(v / 2 ** max(0, int(np.floor(np.log2(v))) + 1))


def test_a_traced_function_that_calls_itself_on_values(trace: Any) -> None:
    @trace
    def f(x: hm.Tensor, deep: bool) -> hm.Tensor:
        return f(x, False) * int(f(x, False).sum()) if deep else x + 1

    assert f(hm.ones((1,)), True).item() == 4 and f(hm.ones((1,)), False).item() == 2


def together(work: Callable[[int], None], threads: int = 8) -> None:
    """`work(k)` in many threads that start at once; the first error is raised."""
    errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    barrier = threading.Barrier(threads)

    def run(k: int) -> None:
        try:
            barrier.wait()
            work(k)
        except BaseException as error:
            errors.put(error)

    started = [threading.Thread(target=run, args=(k,)) for k in range(threads)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    if not errors.empty():
        raise errors.get()


def test_threads_that_trace_and_call_at_once(trace: Any) -> None:
    w = hm.tensor([2.0, 3.0])

    def program(x: hm.Tensor, n: int) -> Any:
        y = x * w
        for _ in range(n):
            y = y + 1
        if y.sum() > 20:
            return y * 2, "large", int(x.shape[0])
        return y - 1, "small", float(n)

    f = trace(program)

    def work(k: int) -> None:
        for round in range(30):
            n, size = round % 3, 1 + (k + round) % 2
            x = hm.full((size, 2), float((k + round) % 7))
            got, expected = f(x, n), program(x, n)
            assert got[0].tolist() == expected[0].tolist() and got[1:] == expected[1:]

    together(work)
    assert f.cache_info().compiles <= 12 and f.cache_info().compiles + f.cache_info().hits == 240


def test_a_path_that_another_thread_traces_meanwhile_is_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    f = hm.trace(lambda x: x * 2 if x.sum() > 0 else x - 1)
    f(hm.ones(1))
    find, others = Entry.find, [threading.Thread(target=lambda: f.resolve((hm.tensor([-2.0]),), {}))]

    def found(entry: Entry, leaves: Any) -> Any:
        out = find(entry, leaves)
        if out[0] is None and others:  # once: the other thread looks as well
            other = others.pop()
            other.start()
            other.join()
        return out

    monkeypatch.setattr(Entry, "find", found)
    assert f(hm.tensor([-1.0])).item() == -2 and f.cache_info().compiles == 2


def test_threads_with_traces_of_their_own(trace: Any) -> None:
    def work(k: int) -> None:
        f = trace(lambda x: x * k if x.sum() > 0 else x - k)
        for v in (1.0, -1.0, 2.0, -2.0):
            assert f(hm.tensor([v])).item() == (v * k if v > 0 else v - k)
            assert (hm.tensor([v]) + k).item() == v + k  # eager code beside

    together(work)


@pytest.mark.usefixtures("small_heap")
def test_what_holds_a_leak_is_named() -> None:
    store: queue.SimpleQueue[hm.Tensor] = queue.SimpleQueue()

    @hm.trace
    def encode(x: hm.Tensor) -> hm.Tensor:
        y = x * 2
        store.put(y)
        return y + 1

    encode(hm.ones((1,)))
    model = Layer()
    object.__setattr__(model, "cache", {"last": [store.get()]})
    with pytest.raises(hm.TraceError) as found:
        model.cache["last"][0] + 1
    message = str(found.value)
    assert "while encode was traced" in message and "y = x * 2" in message
    assert "item 0 of a list, which is key 'last' of a dict, which is attribute 'cache' of a Layer" in message
