"""What a traced function does to Python: done by each call, or said with its line and eager."""

from __future__ import annotations

import collections
import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn

LAST: Any = None
HISTORY: list[Any] = []


class Log:
    def __init__(self) -> None:
        self.losses: list[float] = []
        self.last: Any = None
        self.steps = 0
        self.table: dict[str, Any] = {}


def runs(make: Callable[[Any], tuple[Any, Callable[[], Any]]], style: Any, calls: int = 6) -> list[Any]:
    """Results of some calls, and after each what the function has left behind."""
    fn, state = make(style)
    found = []
    for k in range(calls):
        found.append((fn(hm.tensor([1.0, float(k)])).tolist(), plain(state())))
    return found


def plain(value: Any) -> Any:
    if isinstance(value, hm.Tensor):
        return value.tolist()
    if isinstance(value, list | tuple | collections.deque):
        return [plain(v) for v in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def appended() -> Any:
    def make(style: Any) -> Any:
        losses: list[Any] = []

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            losses.append(1)
            loss = (x * x).sum()
            losses.append(loss.item())
            losses.extend([x, loss, {"n": 1}])
            return loss

        return f, lambda: losses

    return make


def assigned() -> Any:
    def make(style: Any) -> Any:
        last: Any = None

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            nonlocal last
            last = (x + 1, "seen")
            return x * 2

        return f, lambda: last

    return make


def attributes() -> Any:
    def make(style: Any) -> Any:
        log = Log()

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            log.last = x.sum()
            log.losses.append(log_of(x))
            return x * 2

        def log_of(x: hm.Tensor) -> Any:
            return {"mean": x.mean().item()}

        return f, lambda: (log.last, log.losses)

    return make


def globals_() -> Any:
    def make(style: Any) -> Any:
        HISTORY.clear()

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            global LAST
            LAST = x[0] + 1
            HISTORY.append(x.max().item())
            return x * 2

        return f, lambda: (LAST, HISTORY)

    return make


def module() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def forward(self, x: hm.Tensor) -> hm.Tensor:
            self.seen.append(x.sum())
            return x * 2

    def make(style: Any) -> Any:
        net = Net()
        return style(net), lambda: net.seen

    return make


def in_branches() -> Any:
    def make(style: Any) -> Any:
        small: list[float] = []
        large: list[float] = []

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            if x.sum() > 3:
                large.append(x.sum().item())
            else:
                small.append(x.sum().item())
            return x

        return f, lambda: (small, large)

    return make


def what_was_not_there() -> Any:
    def make(style: Any) -> Any:
        globals().pop("LATEST", None)
        log = Log()

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            global LATEST
            LATEST = x * 3
            log.latest = x * 2
            return x

        return f, lambda: (log.latest, LATEST)

    return make


@pytest.mark.parametrize("make", [appended, assigned, attributes, globals_, module, in_branches, what_was_not_there])
def test_each_call_repeats_what_the_code_does_not_read(make: Any, trace: Any) -> None:
    assert runs(make(), trace) == runs(make(), lambda fn: fn)


def counter() -> Any:
    def make(style: Any) -> Any:
        log = Log()

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            log.steps += 1
            return x * sum(range(log.steps))

        return f, lambda: log.steps

    return make, "log.steps += 1"


def state_of_a_cell() -> Any:
    def make(style: Any) -> Any:
        hidden = hm.zeros((2,))

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            nonlocal hidden
            hidden = hidden * 0.5 + x
            return hidden + 1

        return f, lambda: hidden

    return make, "hidden = hidden * 0.5 + x"


def other_changes() -> Any:
    def make(style: Any) -> Any:
        log, queue, kinds = Log(), collections.deque([1.0, 2.0], maxlen=2), {"a"}

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            queue.append(x.sum())
            log.table["x"] = x + 1
            log.table[str(len(log.table))] = 1
            kinds.add("b")
            return x * len(queue)

        return f, lambda: (queue, log.table, sorted(kinds))

    return make, "queue.append(x.sum())"


def a_list_that_is_read() -> Any:
    def make(style: Any) -> Any:
        seen = [0.0]

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            seen.append(seen[-1] + 1.0)
            return x * seen[-1]

        return f, lambda: seen

    return make, "seen.append(seen[-1] + 1.0)"


def an_attribute_that_was_not_there() -> Any:
    def make(style: Any) -> Any:
        log = Log()

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            log.rounds = getattr(log, "rounds", 0) + 1
            return x * log.rounds

        return f, lambda: log.rounds

    return make, 'log.rounds = getattr(log, "rounds", 0) + 1'


def an_array() -> Any:
    def make(style: Any) -> Any:
        counts, large = np.zeros(3), np.zeros((1000, 300))

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            counts[0] += 1
            large[:, 0] += 1
            return x * 2

        return f, lambda: (counts.tolist(), large.sum())

    return make, "counts[0] += 1"


def an_attribute_of_the_function() -> Any:
    def make(style: Any) -> Any:
        def f(x: hm.Tensor) -> hm.Tensor:
            f.rounds = getattr(f, "rounds", 0) + 1  # type: ignore[attr-defined]
            return x * f.rounds  # type: ignore[attr-defined]

        return style(f), lambda: f.rounds  # type: ignore[attr-defined]

    return make, 'f.rounds = getattr(f, "rounds", 0) + 1'


def a_long_dict() -> Any:
    def make(style: Any) -> Any:
        table: dict[Any, Any] = dict.fromkeys(range(150), 1)

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            table[3] = table[3] + 1
            table["sum"] = x.sum()
            return x * table[3]

        return f, lambda: table

    return make, "table[3] = table[3] + 1"


def bases_of_a_class() -> Any:
    def make(style: Any) -> Any:
        class Twice:
            factor = 2

        class Thrice:
            factor = 3

        class Other:
            pass

        class Model(Twice, Other):
            pass

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            y = x * Model.factor
            Model.__bases__ = (Thrice, Other)
            return y

        return f, lambda: Model.factor

    return make, "Model.__bases__ = (Thrice, Other)"


class Slotted:
    __slots__ = ("factor",)


def an_attribute_in_a_slot_that_goes() -> Any:
    def make(style: Any) -> Any:
        slotted, there = Slotted(), 2.0
        slotted.factor = 3.0

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            nonlocal there
            try:
                y = x * there * slotted.factor
                del slotted.factor, there
            except (AttributeError, NameError):
                return x
            return y

        return f, lambda: hasattr(slotted, "factor")

    return make, "del slotted.factor, there"


@pytest.mark.parametrize(
    "case",
    [
        counter, other_changes, a_list_that_is_read, an_attribute_that_was_not_there, an_array,
        an_attribute_of_the_function, a_long_dict, bases_of_a_class, an_attribute_in_a_slot_that_goes,
    ],
)  # fmt: skip
def test_what_cannot_be_repeated_is_said_once_and_eager(case: Any, trace: Any) -> None:
    make, line = case()
    expected = runs(make, lambda fn: fn)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert runs(make, trace) == expected
    assert [w.category.__name__ for w in found] == ["TraceWarning"] and found[0].filename == __file__
    assert line in str(found[0].message) and "run eagerly" in str(found[0].message)


@pytest.mark.parametrize("case", [counter, state_of_a_cell, a_list_that_is_read])
def test_strict_traces_change_nothing(case: Any) -> None:
    make, line = case()
    f, state = make(lambda fn: hm.trace(fn, strict=True))
    before, w = plain(state()), hm.tensor([1.0, 2.0])
    with pytest.raises(hm.TraceError, match="strict=True") as found:
        f(w)
    assert line in str(found.value) and plain(state()) == before and f.cache_info().entries == 0


def test_effects_before_an_error(trace: Any) -> None:
    def run(style: Any) -> Any:
        seen: list[Any] = []

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            seen.append(x * 2)
            if x.sum() > 2:
                raise ValueError("too large")
            seen.append("end")
            return x

        for v in (1.0, 3.0, 1.0, 5.0):
            try:
                f(hm.tensor([v]))
            except ValueError:
                seen.append("error")
        return plain(seen)

    assert run(trace) == run(lambda fn: fn)


def test_logging_a_loss_compiles_once(trace: Any) -> None:
    make = appended()
    f, _ = make(trace)
    for k in range(20):
        f(hm.tensor([1.0, float(k)]))
    assert (f.cache_info().compiles, f.cache_info().hits) == (1, 19)


@dataclasses.dataclass
class State:
    h: Any
    steps: int = 0


@pytest.mark.parametrize("fails", [False, True])
def test_containers_among_the_arguments(fails: bool, trace: Any) -> None:
    """What a function changes in them is changed, in every call; the warning names the argument."""
    other: Any = collections.deque()

    def step(x: hm.Tensor, state: State, seen: list[Any], options: dict[str, Any]) -> hm.Tensor:
        other.append(len(other))
        state.h = state.h * 0.5 + x
        state.steps += 1
        seen.append(options.pop("scale", 1.0))
        if fails:
            raise ValueError("stop")
        return state.h * seen[-1]

    def run(style: Any) -> Any:
        other.clear()
        f, found = style(step), list[Any]()
        states, seen = [State(hm.zeros((2,))), State(hm.ones((2,)))], list[Any]()
        for k in (0, 0, 1, 0):
            options = {"scale": 2.0 + k}
            try:
                result = f(hm.tensor([1.0, float(k)]), states[k], seen, options).tolist()
            except ValueError as error:
                result = str(error)
            found.append((result, plain([s.h for s in states]), [s.steps for s in states], list(seen), options))
        return found, list(other)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert run(trace) == run(lambda fn: fn)
    assert "step changes what its argument state contains" in str(said[0].message) and len(said) == 1
    with pytest.raises(hm.TraceError, match="argument seen contains"):
        hm.trace(lambda x, seen: seen.append(x), strict=True)(hm.ones((2,)), [])


def test_a_call_that_runs_eagerly_after_all_changes_things_once() -> None:
    def run(style: Any) -> Any:
        queue, kinds = collections.deque([0]), {0}

        def f(a: hm.Tensor, b: hm.Tensor) -> hm.Tensor:
            queue.append(len(queue))
            kinds.add(len(kinds))
            a += 1
            return a + b

        g, x = style(f), hm.ones((5,))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [g(x[:3], x[2:]).tolist() for _ in range(3)], list(queue), kinds

    assert run(hm.trace) == run(lambda fn: fn)


def test_a_dataclass_keeps_what_is_no_field() -> None:
    @dataclasses.dataclass
    class Batch:
        x: hm.Tensor

        def __post_init__(self) -> None:
            self.scale, self.doubled = 3.0, self.x * 2

    @hm.trace
    def f(batch: Batch) -> hm.Tensor:
        return batch.x * batch.scale + batch.doubled

    assert f(Batch(hm.tensor([1.0, 2.0]))).tolist() == [5, 10]
    assert f(Batch(hm.tensor([2.0, 2.0]))).tolist() == [10, 10] and f.cache_info().compiles == 1


def test_a_defaultdict_keeps_its_factory(trace: Any) -> None:
    f = trace(lambda x, table: x * (table["a"] + len(table)))
    table: Any = collections.defaultdict(lambda: 2.0, b=1.0)
    with pytest.warns(UserWarning, match="argument table contains"):
        assert f(hm.tensor([1.0]), table).item() == 4.0
    assert sorted(table) == ["a", "b"] and f(hm.tensor([1.0]), table).item() == 4.0


@pytest.mark.parametrize("before", [False, True])
def test_an_array_that_numpy_writes_and_the_program_reads(before: bool, trace: Any) -> None:
    def run(style: Any) -> Any:
        table = np.zeros((2, 3))
        row = table[1]

        def f(x: hm.Tensor) -> hm.Tensor:
            if before:
                row[:] += 1
            y = x + table[1]
            row[:] += 1
            return y

        g = style(f)
        return [g(hm.ones((3,))).tolist() for _ in range(3)], table.tolist()

    expected = run(lambda fn: fn)
    with pytest.warns(UserWarning, match="which it computes with: such calls run eagerly"):
        assert run(trace) == expected
