"""What threads and forked children share: values made once, locks, changes in force, tables of weak references."""

from __future__ import annotations

import doctest
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hybridml_compiler import in_force, locks, once, weak

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork")


def in_child(check: Callable[[], bool]) -> bool:
    """Whether a check is true in a forked child, which is killed where it hangs."""
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        os._exit(not check())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def free(lock: Any) -> bool:
    return bool(lock.acquire(blocking=False))


@pytest.fixture
def held_elsewhere() -> Iterator[Callable[[Any], None]]:
    """Has another thread enter what it is given, and stay there until the test is over."""
    done, threads = threading.Event(), []

    def hold(what: Any) -> None:
        inside = threading.Event()

        def stay() -> None:
            with what:
                inside.set()
                done.wait(20)

        threads.append(threading.Thread(target=stay))
        threads[-1].start()
        assert inside.wait(20)

    yield hold
    done.set()
    for thread in threads:
        thread.join(20)


@pytest.mark.parametrize("module", [once, weak, in_force], ids=lambda m: m.__name__)
def test_examples_run(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def all_at_once(function: Callable[[], Any]) -> list[Any]:
    start = threading.Barrier(8)

    def call(_: int) -> Any:
        start.wait(20)
        return function()

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(call, range(8)))


def test_once_makes_one_value_in_many_threads() -> None:
    made: list[object] = []

    @once.once
    def value() -> object:
        time.sleep(0.01)
        made.append(object())
        return made[-1]

    assert {id(found) for found in all_at_once(value)} == {id(made[0])} and len(made) == 1


def test_once_is_tried_again_after_an_error() -> None:
    calls: list[int] = []

    @once.once
    def value(k: int) -> int:
        calls.append(k)
        return 1 // k if len(calls) > 1 else 1 // 0

    with pytest.raises(ZeroDivisionError):
        value(1)
    assert value(1) == value(1) == 1 and calls == [1, 1]


def test_lazy_makes_one_value_for_each_object() -> None:
    class C:
        made = 0

        @once.lazy
        def value(self) -> object:
            """Text."""
            time.sleep(0.01)
            self.made += 1
            return object()

    one, other = C(), C()
    assert len({id(found) for found in all_at_once(lambda: one.value)}) == 1
    assert one.made == 1 and one.value is not other.value
    assert list(vars(one)) == ["made", "value"], "no lock stays in the object"
    assert C.value.__doc__ == "Text."


def test_lazy_values_of_two_objects_are_made_at_the_same_time() -> None:
    class C:
        @once.lazy
        def value(self) -> int:
            return both.wait(20)

    both = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda c: c.value, [C(), C()])) == [0, 1]


@fork
def test_locks_are_free_in_a_child(held_elsewhere: Callable[[Any], None]) -> None:
    of_others, mine, again = locks.lock(), locks.rlock(), locks.rlock()
    held_elsewhere(of_others)
    held_elsewhere(again)
    assert not free(of_others) and not free(again)
    with mine:

        def check() -> bool:
            mine.release()  # the forking thread still has it
            mine.acquire()
            return free(of_others) and free(again)

        assert in_child(check)


@fork
def test_values_that_another_thread_is_making_are_made_in_the_child() -> None:
    parent, making, done = os.getpid(), threading.Event(), threading.Event()

    def slow() -> int:
        if os.getpid() == parent:
            making.set()
            done.wait(20)
        return os.getpid()

    value = once.once(slow)
    thread = threading.Thread(target=value)
    thread.start()
    assert making.wait(20)
    assert in_child(lambda: value() == os.getpid())
    done.set()
    thread.join(20)
    assert value() == parent


@fork
def test_a_child_takes_back_what_other_threads_have_changed(held_elsewhere: Callable[[Any], None]) -> None:
    state = {"mine": 0, "theirs": 0}

    def change(name: str) -> Callable[[], object]:
        state[name] += 1
        return lambda: state.update({name: state[name] - 1})

    changes = in_force.Changes()
    held_elsewhere(changes.hold({"theirs": lambda: change("theirs")}))
    with changes.hold({"mine": lambda: change("mine"), "theirs": lambda: change("theirs")}):
        assert in_child(lambda: state == {"mine": 1, "theirs": 1})
    assert in_child(lambda: state == {"mine": 0, "theirs": 0})
    assert state == {"mine": 0, "theirs": 1}


def test_weak_values_are_one_for_a_key_and_die() -> None:
    class C:
        pass

    table: weak.WeakValues[int, C] = weak.WeakValues()
    kept = table.add(-1, C())
    assert table.add(-1, C()) is kept is table.get(-1)
    for k in range(5000):
        table.add(k, C())
    assert table.get(0) is None and table.get(-1) is kept
    assert len(table._references) < 3000, "dead entries are dropped"


def test_an_object_that_comes_while_dead_ones_are_dropped_stays() -> None:
    """A generator may get the address, and so the key, of one that has died."""

    class C:
        pass

    class Key:
        def __hash__(self) -> int:
            if dropping:  # another thread comes in between
                dropping.clear()
                other.start()
                other.join(0.1)
            return -1

    table: weak.WeakValues[Any, C] = weak.WeakValues()
    kept: list[C] = []
    dropping: list[bool] = []
    key = Key()
    other = threading.Thread(target=lambda: kept.append(table.add(key, C())))
    for k in (key, *range(1, weak._FEW)):
        table.add(k, C())
    dropping.append(True)
    table.add(weak._FEW, C())
    other.join(20)
    assert table.get(key) is kept[0]


def python_code_run_by(action: Callable[[], Any]) -> list[str]:
    """The names of the Python functions that an action enters."""
    seen: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: seen.append(frame.f_code.co_name) if event == "call" else None)
    try:
        action()
    finally:
        sys.setprofile(before)
    return [name for name in seen if name != action.__name__]


def test_no_python_code_runs_when_what_is_weakly_held_dies() -> None:
    """A Ctrl-C is raised at the first instruction of such code, and lost."""

    class C:
        pass

    members: weak.WeakMembers[C] = weak.WeakMembers()
    table: weak.WeakValues[int, C] = weak.WeakValues()
    held = [table.add(0, C())]
    members.add(held[0])
    assert python_code_run_by(held.clear) == []
    assert list(members) == [] and table.get(0) is None


@pytest.mark.usefixtures("small_heap")
def test_no_python_code_runs_when_an_entry_dies(constant_entry: list[Any]) -> None:
    gc.collect()
    assert python_code_run_by(constant_entry.clear) == []


@pytest.fixture
def constant_entry() -> list[Any]:
    """A native entry."""
    import hybridml as hm

    f = hm.trace(lambda x: x * 2)
    x = hm.ones((8,))
    for _ in range(4):
        f(x)
    held = [f._last.fast]  # type: ignore[union-attr]
    f.clear()
    return held


@pytest.mark.parametrize("at", range(4))
def test_a_change_is_taken_back_whenever_an_interrupt_comes(at: int) -> None:
    changes, state, left = in_force.Changes(), ["usual"], [at]

    def moment() -> None:
        left[0] -= 1
        if left[0] == -1:
            raise KeyboardInterrupt

    def undo() -> None:
        moment()
        state[0] = "usual"
        moment()

    def make() -> Callable[[], None]:
        moment()
        state[0] = "changed"
        return undo

    with pytest.raises(KeyboardInterrupt), changes.hold({"k": make}):
        assert state == ["changed"]
        moment()
    assert state == ["usual"]
    left[0] = 9
    with changes.hold({"k": make}):
        assert state == ["changed"]
    assert state == ["usual"]
