"""Numbers in attributes are inputs of a traced program from their second value on."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import hybridml as hm


@dataclass
class Settings:
    scale: float = 2.0
    count: int = 2


class Slots:
    __slots__ = ("scale",)


class Scaled(hm.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.w = hm.nn.Parameter(hm.tensor([1.0, 3.0]))

    def forward(self, x: hm.Tensor) -> hm.Tensor:
        return x * self.w * self.scale


@pytest.fixture
def x() -> hm.Tensor:
    return hm.tensor([1.0, 2.0])


def test_attributes_of_objects(trace: Any, x: hm.Tensor) -> None:
    settings = Settings()

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        return x * settings.scale + 1 / settings.scale

    for value in (2.0, 3.0, 0.5, 0.5, 3.0, 7.0):
        settings.scale = value
        for _ in range(3):
            assert f(x).tolist() == (x * value + 1 / value).tolist()
        assert settings == Settings(value) and type(settings) is Settings
    assert f.cache_info().compiles == 2
    settings.scale = 0.0
    with pytest.raises(ZeroDivisionError):
        f(x)
    settings.scale = 4  # type: ignore[assignment]
    assert f(x).tolist() == [4.25, 8.25]


def test_attributes_of_modules(trace: Any, x: hm.Tensor) -> None:
    model = Scaled()

    @trace
    def step(x: hm.Tensor) -> hm.Tensor:
        model.w.grad = None
        loss = model(x).sum()
        loss.backward()
        return loss

    call = trace(Scaled())
    for value in (2.0, 3.0, 0.5, 4.0):
        model.scale = call.scale = value
        assert step(x).item() == 7 * value and call(x).tolist() == [value, 6 * value]
        assert model.w.grad is not None and model.w.grad.tolist() == [value, 2 * value]
    assert step.cache_info().compiles == 2 and call.forward.cache_info().compiles == 2


def test_two_objects_of_a_class(trace: Any, x: hm.Tensor) -> None:
    one, other = Settings(2.0), Settings(3.0)
    f = trace(lambda x: x * one.scale - x * other.scale)
    for k in range(4):
        one.scale, other.scale = 2.0 + k, 3.0 * k
        assert f(x).tolist() == (x * one.scale - x * other.scale).tolist()
    assert f.cache_info().compiles == 2


def test_ints_at_their_second_value(trace: Any, x: hm.Tensor) -> None:
    settings = Settings()
    f = trace(lambda x: x * settings.count)
    for value in (2, 3, 4, 5, -1, 0, 2):
        settings.count = value
        assert f(x).tolist() == (x * value).tolist()
    assert f.cache_info().compiles == 2


def test_an_object_that_is_replaced(trace: Any, x: hm.Tensor) -> None:
    settings = Settings()
    f = trace(lambda x: x * settings.scale)
    for value in (2.0, 3.0):
        settings = Settings(value)
        for _ in range(3):
            assert f(x).tolist() == (x * value).tolist()


def test_values_that_steer(trace: Any, x: hm.Tensor) -> None:
    settings = Settings()
    f = trace(lambda x: x * settings.scale if settings.scale > 2.5 else x**settings.count)
    for scale, count in ((2.0, 2), (3.0, 2), (2.0, 3), (2.0, 2), (4.0, 5), (2.0, 5)):
        settings.scale, settings.count = scale, count
        assert f(x).tolist() == (x * scale if scale > 2.5 else x**count).tolist()


def test_what_reads_past_the_class_is_guarded(trace: Any, x: hm.Tensor) -> None:
    settings, slots = Settings(), Slots()
    programs: list[Any] = [
        lambda x: x * copy.copy(settings).scale + settings.scale,
        lambda x: x * vars(settings)["scale"] + settings.scale,
        lambda x: x * settings.scale + settings.scale if type(settings) is Settings else x,
        lambda x: x * slots.scale + slots.scale,
        lambda x: x * settings.scale + slots.scale,
    ]
    for program in programs:
        f = trace(program)
        for value in (2.0, 3.0, 2.0, 4.0):
            settings.scale = slots.scale = value
            assert f(x).tolist() == (x * value + value).tolist()


def test_classes_may_have_accessors_of_their_own(trace: Any, x: hm.Tensor) -> None:
    class Cached(Settings):
        subclasses = 0

        def __init_subclass__(cls) -> None:
            Cached.subclasses += 1

        @property
        def doubled(self) -> float:
            return self.scale * 2

        def __getattr__(self, name: str) -> float:
            if name.startswith("__"):
                raise AttributeError(name)
            return 10.0

    class Plain(Settings):
        @property
        def doubled(self) -> float:
            return self.scale * 2

    for settings in (Cached(), Plain()):
        f = trace(lambda x, s=settings: x * s.doubled)
        for value in (2.0, 3.0, 2.0):
            settings.scale = value
            assert f(x).tolist() == (x * 2 * value).tolist()
    assert Cached.subclasses == 0


def test_an_attribute_that_the_function_assigns(trace: Any, x: hm.Tensor) -> None:
    settings = Settings(1.0)

    def program(x: hm.Tensor) -> hm.Tensor:
        settings.scale = settings.scale + 1
        return x * settings.scale

    f = trace(program)
    assert [f(x).tolist() for _ in range(3)] == [[2.0, 4.0], [3.0, 6.0], [4.0, 8.0]]
    assert f.cache_info().compiles == 1


def test_errors_leave_the_class_alone(trace: Any, x: hm.Tensor) -> None:
    settings = Settings()

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        if settings.scale * x.sum() > 10:
            raise ValueError("too large")
        return x * settings.scale

    for value in (2.0, 5.0, 3.0, 6.0):
        settings.scale = value
        if value * 3 > 10:
            with pytest.raises(ValueError, match="too large"):
                f(x)
        else:
            assert f(x).tolist() == (x * value).tolist()
        assert type(settings) is Settings


def test_other_threads_read_the_attribute_itself(trace: Any, x: hm.Tensor) -> None:
    settings = Settings()
    entered, left, seen = threading.Event(), threading.Event(), []

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        y = x * settings.scale
        if settings.scale == 2.0:
            return y
        entered.set()
        left.wait(10)
        return y

    def look() -> None:
        entered.wait(10)
        seen.extend([settings.scale, settings.__dict__["scale"], settings.__class__, isinstance(settings, Settings)])
        left.set()

    thread = threading.Thread(target=look)
    thread.start()
    f(x)
    settings.scale = 3.0
    f(x)
    thread.join()
    assert seen == [3.0, 3.0, Settings, True] and type(settings) is Settings


def test_threads_trace_with_one_object(trace: Any, x: hm.Tensor) -> None:
    settings, wrong = Settings(2.0), []
    start = threading.Barrier(4)

    def work(k: int) -> None:
        f = trace(lambda x: x * settings.scale + k)
        f(x)
        if start.wait() == 0:
            settings.scale = 3.0
        start.wait()
        for _ in range(5):
            if f(x).tolist() != [3.0 + k, 6.0 + k]:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and type(settings) is Settings
