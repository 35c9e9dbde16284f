"""Tensors are freed by native code as CPython frees objects of other classes: at once, with what they hold."""

from __future__ import annotations

import functools
import gc
import operator
import sys
import threading
import weakref

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.tensor import Tensor

pytestmark = pytest.mark.usefixtures("native")


def test_what_a_tensor_holds_is_freed_with_it() -> None:
    gone: list[str] = []
    x = hm.ones(4)
    parent, array, view = weakref.ref(x), weakref.ref(x._array), x[1:3]
    weakref.finalize(view, gone.append, "view")
    del x
    assert parent() is not None
    gone.clear()
    del view
    assert parent() is None and array() is None and "view" in gone


def test_weak_references_of_views_are_those_of_their_own() -> None:
    x, known = hm.ones(4), weakref.WeakKeyDictionary[Tensor, int]()
    for k in range(20):
        view = x[k % 4]
        assert view not in known
        known[view] = k
        assert known[view] == k and len(known) == 1 and weakref.ref(view)() is view
        del view
        assert not known


def test_references_are_counted() -> None:
    x, dtype = hm.asarray(np.arange(4.0)), np.dtype("f8")
    counted = (Tensor, dtype, x._array, None, x)
    for function in (lambda: x[1], lambda: x[1] * x[2], lambda: x[1:], lambda: x[1] < 3, lambda: x[hm.tensor(2)]):
        for _ in range(3):
            function()
        before = [sys.getrefcount(value) for value in counted]
        for _ in range(1000):
            function()
        after = [sys.getrefcount(value) for value in counted]
        assert all(abs(new - old) < 100 for new, old in zip(after, before, strict=True)), (before, after)


def test_views_of_views_are_freed_without_deep_calls() -> None:
    x = hm.ones(3)
    for _ in range(300_000):
        x = x[:]
    del x
    a = hm.ones(3, requires_grad=True)
    y = a * 1.0
    for _ in range(20_000):
        y = y * 1.0
    del y
    gc.collect()


def _second(w: Tensor, g: Tensor) -> Tensor:
    return g


def test_cycles_are_collected() -> None:
    w = hm.ones(3, requires_grad=True)
    view, alive = w.detach()[1:], [weakref.ref(w), weakref.ref(w._array)]
    w.register_hook(functools.partial(operator.mul, w.detach()))
    w.register_hook(functools.partial(_second, w))
    (w * view.sum()).sum().backward()
    assert w.grad is not None
    del w, view
    gc.collect()
    assert [r() for r in alive] == [None, None]


def test_finalizers_of_the_class_and_of_those_that_derive_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, kept = [], []

    class Own(Tensor):
        __slots__ = ("held",)

        def __del__(self) -> None:
            gone.append("own")

    class Open(Tensor):
        pass

    for cls in (Own, Open):
        own = cls()
        own._array, own._node, own._version = np.ones(3), None, 0
        own.held = weakref.ref(own._array)  # type: ignore[attr-defined]
        array, alive = own.held, weakref.ref(own)  # type: ignore[attr-defined]
        del own
        assert alive() is None and array() is None
    assert gone == ["own"]
    monkeypatch.setattr(Tensor, "__del__", lambda self: kept.append(self), raising=False)
    x = hm.ones(3)
    y = x[1] * 2.0
    assert y.tolist() == 2.0
    del y, x
    assert [t.tolist() for t in kept if t.shape == ()]  # which were brought to life again
    monkeypatch.undo()
    kept.clear()
    assert (hm.ones(3)[0] + 1.0).tolist() == 2.0


def test_each_tensor_is_finalized(monkeypatch: pytest.MonkeyPatch) -> None:
    x, gone = hm.tensor([1.0, 2.0]), []
    monkeypatch.setattr(Tensor, "__del__", lambda self: gone.append(self.tolist()), raising=False)
    for k in range(5):
        x + float(k)  # the last one's memory, perhaps
    monkeypatch.undo()
    assert gone == [[1.0 + k, 2.0 + k] for k in range(5)]


def test_threads_make_and_free_tensors() -> None:
    x, wrong = hm.asarray(np.arange(64.0)), []

    def work(k: int) -> None:
        for _ in range(3000):
            held = [x[k] * x[j] for j in range(8)]
            if [t.tolist() for t in held] != [float(k * j) for j in range(8)]:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_arrays_of_numbers_outlive_their_tensors() -> None:
    x = hm.asarray(np.arange(8.0))
    arrays = [(x[k] * 2.0).numpy() for k in range(8)] + [(x[k]).numpy() for k in range(8)]
    views = [memoryview((x[k] + 1.0).numpy()) for k in range(8)]
    for _ in range(200):
        _ = x[1] * x[2]
    assert [float(a) for a in arrays] == [2.0 * k for k in range(8)] + [float(k) for k in range(8)]
    assert [view.tolist() for view in views] == [k + 1.0 for k in range(8)]
