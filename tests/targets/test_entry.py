"""The entry: what it checks, what the step gets, what comes back, and that nothing leaks; native and portable alike."""

from __future__ import annotations

import contextvars
import ctypes
import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hybridml_compiler.targets.cpu.python_entry import object_layout
from hybridml_compiler.targets.cpu.python_entry.entry import build_entry
from hybridml_compiler.targets.cpu.python_entry.places import (
    ABSENT,
    CellHolds,
    DictSize,
    EntryHolds,
    FunctionHolds,
    KeysHold,
    ListHolds,
)
from hybridml_compiler.targets.cpu.python_entry.portable import portable_entry
from hybridml_compiler.targets.cpu.python_entry.spec import (
    ARENA_ALIGNMENT,
    ArraySpec,
    Constant,
    EntrySpec,
    FloatCell,
    Returned,
    arena,
    call_step,
)

F4, F8, I8 = np.dtype("f4"), np.dtype("f8"), np.dtype("i8")
STEP = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p))
Build = Callable[[EntrySpec], Callable[..., Any]]


class Tensor:
    __slots__ = ("__weakref__", "_array", "_node", "_version")


def tensor(data: object, dtype: object = "f4") -> Tensor:
    made = Tensor()
    made._array, made._node, made._version = np.array(data, dtype), None, 0
    return made


@pytest.fixture(params=[build_entry, portable_entry], ids=["native", "portable"])
def build(request: pytest.FixtureRequest) -> Build:
    result: Build = request.param
    return result


def floats(address: int, count: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def spec(step: Callable[[Any], int], args: tuple[Any, ...], outputs: tuple[Any, ...], **more: Any) -> EntrySpec:
    native = STEP(step)
    address = ctypes.cast(native, ctypes.c_void_p).value
    assert address is not None
    given: dict[str, Any] = {
        "tensor_type": Tensor,
        "array_slot": "_array",
        "slot_defaults": {"_node": None, "_version": 0},
        "require_none_slots": ("_node",),
        "fallback": lambda *a, **k: ("fallback", a, k),
        "on_status": lambda status, *a: ("status", status, a),
    }
    return EntrySpec(step=address, args=args, outputs=outputs, keep=(native,), **{**given, **more})


def plus_one(count: int = 4) -> Callable[[Any], int]:
    def step(table: Any) -> int:
        floats(table[1], count)[:] = floats(table[0], count) + 1
        return 0

    return step


VEC = ArraySpec(F4, (4,))


def missed(result: object) -> bool:
    return isinstance(result, tuple) and result[0] == "fallback"


def test_structs_are_measured() -> None:
    measured = object_layout.measured()
    assert measured is not None
    array = np.zeros((2, 3))
    assert ctypes.c_void_p.from_address(id(array) + measured.array.offset("data")).value == array.ctypes.data
    slots = object_layout.slot_offsets(Tensor)
    assert slots is not None and set(slots) == {"_array", "_node", "_version"}


def test_structs_of_a_free_threaded_python_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version", "3.14.0 free-threading build (main, Oct 7 2025) [Clang]")
    assert object_layout.measured.__wrapped__() is None


def test_classes_that_native_code_cannot_make() -> None:
    class WithDict: ...

    class WithInit:
        __slots__ = ("_array",)

        def __init__(self, array: object) -> None:
            self._array = array

    class Derived(Tensor):
        __slots__ = ()

    assert [object_layout.slot_offsets(cls) for cls in (WithInit, Derived)] == [None, None]
    assert not object_layout.slot_offsets(WithDict)


def test_one_output(build: Build) -> None:
    call = build(spec(plus_one(), (VEC,), (VEC,)))
    for _ in range(3):
        y = call(tensor([1, 2, 3, 4]))
        assert type(y) is Tensor and y._node is None and y._version == 0
        assert y._array.dtype is F4 and y._array.tolist() == [2, 3, 4, 5]
        assert y._array.flags.owndata and y._array.flags.writeable


def test_several_outputs_and_none(build: Build) -> None:
    def step(table: Any) -> int:
        floats(table[0], 2)[:] = 1, 2
        ctypes.c_int64.from_address(table[1]).value = 7
        return 0

    pair = build(spec(step, (), (ArraySpec(F4, (2, 1)), ArraySpec(I8, ()))))()
    assert isinstance(pair, tuple) and [type(t) for t in pair] == [Tensor, Tensor]
    assert pair[0]._array.tolist() == [[1], [2]] and pair[1]._array.shape == () and int(pair[1]._array) == 7
    assert build(spec(lambda table: 0, (), ()))() is None


def test_empty_arrays(build: Build) -> None:
    empty = ArraySpec(F4, (0, 3))
    result = build(spec(lambda table: 0, (empty,), (empty,)))(tensor(np.zeros((0, 3))))
    assert result._array.shape == (0, 3)


def test_the_table_is_arguments_captured_outputs_arena(build: Build) -> None:
    seen: list[tuple[float, list[float], list[float]]] = []
    state = [tensor([10, 20]), tensor([5])]

    def step(table: Any) -> int:
        scale = ctypes.c_double.from_address(table[1]).value
        floats(table[4], 2)[:] = floats(table[0], 2) * scale + floats(table[2], 2) + floats(table[3], 1)
        assert table[5] % ARENA_ALIGNMENT == 0
        ctypes.memset(table[5], 1, 1000)
        seen.append((scale, floats(table[2], 2).tolist(), floats(table[3], 1).tolist()))
        return 0

    two = ArraySpec(F4, (2,))
    call = build(spec(step, (two, Constant(None), FloatCell()), (two,), captured=state, arena=arena(1000)))
    assert call(tensor([1, 2]), None, 0.5)._array.tolist() == [15.5, 26]
    assert call(tensor([1, 2]), None, -2.0)._array.tolist() == [13, 21]
    state[0]._array[0] = 0
    assert call(tensor([1, 2]), None, 0.0)._array.tolist() == [5, 25]
    assert [s[0] for s in seen] == [0.5, -2, 0]


def test_guards_on_arguments(build: Build) -> None:
    call = build(spec(plus_one(), (VEC,), (VEC,)))
    good = tensor([1, 2, 3, 4])
    assert not missed(call(good))

    class Sub(Tensor):
        __slots__ = ()

    class Array(np.ndarray): ...

    sub = Sub()
    sub._array, sub._node = good._array, None
    recorded = tensor([1, 2, 3, 4])
    recorded._node = object()
    unset = Tensor()
    exotic = tensor([1, 2, 3, 4])
    exotic._array = exotic._array.view(Array)
    strided = tensor(0)
    strided._array = np.zeros(8, F4)[::2]
    unaligned = tensor(0)
    unaligned._array = np.zeros(17, np.uint8)[1:].view(F4)
    swapped = tensor(0)
    swapped._array = np.zeros(4, ">f4")
    bad = [sub, recorded, unset, exotic, strided, unaligned, swapped, 3.0, None, good._array]
    bad += [tensor([1, 2, 3]), tensor([[1, 2, 3, 4]]), tensor([1, 2, 3, 4], "f8")]
    for argument in bad:
        assert call(argument) == ("fallback", (argument,), {})
    assert call() == ("fallback", (), {})
    assert call(good, good) == ("fallback", (good, good), {})
    assert call(x=good) == ("fallback", (), {"x": good})
    assert call(good, y=1) == ("fallback", (good,), {"y": 1})
    assert call(good)._array.tolist() == [2, 3, 4, 5]


def test_guards_on_constants_and_floats(build: Build) -> None:
    call = build(spec(lambda table: 0, (Constant(True), Constant("mean"), FloatCell()), ()))
    assert call(True, "mean", 1.0) is None
    for args in ((False, "mean", 1.0), (1, "mean", 1.0), (True, "sum", 1.0), (True, "mean", 1)):
        assert missed(call(*args))
    assert missed(call(True, "mean", np.float64(1)))


def test_guards_on_tuples(build: Build) -> None:
    big = int("1000")
    call = build(spec(lambda table: 0, (Constant((3, big)), Constant(())), ()))
    assert call((3, big), ()) is None
    for shape in ((3,), (3, big, 1), (big, 3), (3, 1001), [3, big], None, (True, big), ((3, big),)):
        assert missed(call(shape, ()))
    assert missed(call((3, big), (1,)))


def test_guards_on_numbers(build: Build) -> None:
    call = build(spec(lambda table: 0, (Constant(0.0), Constant(float("inf")), FloatCell()), ()))
    assert call(float("0"), float("1e400"), 2.0) is None
    for args in ((-0.0, float("inf"), 2.0), (0, float("inf"), 2.0), (0.0, 1.0, 2.0), (0.0, None, 2.0)):
        assert missed(call(*args))


def test_guard_on_captured_arrays(build: Build) -> None:
    state = [tensor([k]) for k in range(50)]
    call = build(spec(lambda table: 0, (), (), captured=state))
    assert call() is None
    old = state[31]._array
    state[31]._array = old.copy()
    assert missed(call())
    state[31]._array = old
    assert call() is None
    del state[0]._array
    assert missed(call())


def test_guard_on_epochs(build: Build) -> None:
    epochs = tuple((ctypes.c_int64(k), ctypes.c_int64(k)) for k in (3, 5))
    call = build(spec(lambda table: 0, (), (), epochs=epochs))
    assert call() is None
    epochs[1][0].value += 1
    assert missed(call())
    epochs[1][1].value += 1
    assert call() is None


def test_guard_on_places(build: Build) -> None:
    items: list[object] = [object() for _ in range(9)]
    first, spare, table, keyed = items[0], object(), {"a": 1.5}, {"c": 1, (1, 2): 2, 0.5: 3}
    cell = types.CellType(first)
    places = (
        CellHolds(cell, first), ListHolds(items, tuple(items)), DictSize(table, 1),
        EntryHolds(table, "a", table["a"]), EntryHolds(table, "b", ABSENT),
        KeysHold(keyed, tuple(keyed)), KeysHold({}, ()),
    )  # fmt: skip
    call = build(spec(lambda table: 0, (), (), places=places))
    assert call() is None

    def changed(change: Callable[[], object], back: Callable[[], object]) -> bool:
        change()
        found = missed(call())
        back()
        return found and call() is None

    def empty() -> None:
        del cell.cell_contents

    assert changed(lambda: setattr(cell, "cell_contents", spare), lambda: setattr(cell, "cell_contents", first))
    assert changed(empty, lambda: setattr(cell, "cell_contents", first))
    assert changed(lambda: items.append(first), items.pop)
    assert changed(lambda: items.reverse(), items.reverse)
    assert changed(lambda: items.__setitem__(8, spare), lambda: items.__setitem__(8, places[1].items[8]))
    assert changed(items.clear, lambda: items.extend(places[1].items))
    value = table["a"]
    assert changed(lambda: table.__setitem__("a", 2.5), lambda: table.__setitem__("a", value))
    assert changed(lambda: table.__setitem__("b", 2.5), lambda: table.pop("b"))
    assert changed(lambda: table.__setitem__("c", 2.5), lambda: table.pop("c"))
    assert changed(lambda: keyed.__setitem__("d", 4), keyed.popitem)
    keys = places[5].keys
    assert changed(keyed.popitem, lambda: keyed.__setitem__(keys[-1], 3))
    again = [(key, keyed[key]) for key in keys]
    assert changed(lambda: keyed.update(c=keyed.pop("c")), lambda: (keyed.clear(), keyed.update(again)))


def test_guard_on_functions(build: Build) -> None:
    def f(a: int = 1, *, b: int = 2) -> None: ...

    def g(a: int) -> None: ...

    parts = [(fn, part) for fn in (f, g) for part in object_layout.FUNCTION_PARTS]
    places = tuple(FunctionHolds(fn, part, getattr(fn, part)) for fn, part in parts)
    call = build(spec(lambda table: 0, (), (), places=places))
    for (fn, part), place in zip(parts, places, strict=True):
        assert call() is None and place.holds()
        setattr(fn, part, {"__code__": test_guard_on_places.__code__, "__defaults__": (5,)}.get(part, {"b": 3}))
        assert missed(call()) and not place.holds()
        setattr(fn, part, place.value)
    assert call() is None


def test_keys_that_cannot_be_compared_are_no_error(build: Build) -> None:
    class Odd:
        def __hash__(self) -> int:
            return hash("b")

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

    table: dict[Any, Any] = {}
    call = build(spec(lambda table: 0, (), (), places=(EntryHolds(table, "b", ABSENT),)))
    assert call() is None
    table[Odd()] = 1
    assert missed(call())


def test_guard_on_context_variables(build: Build) -> None:
    unset: contextvars.ContextVar[object] = contextvars.ContextVar("unset")
    default: contextvars.ContextVar[object] = contextvars.ContextVar("default", default=False)
    call = build(spec(lambda table: 0, (), (), contexts=((unset, None), (default, False))))
    assert call() is None
    for variable, value in ((unset, object()), (default, True)):
        token = variable.set(value)
        assert missed(call())
        variable.reset(token)
        assert call() is None
    unset.set(None)
    assert call() is None


def test_status_reaches_the_callback_with_the_arguments(build: Build) -> None:
    x = tensor([1, 2, 3, 4])
    call = build(spec(lambda table: 9, (VEC,), (VEC,)))
    assert call(x) == ("status", 9, (x,))

    def explain(status: int, *args: object) -> object:
        raise ZeroDivisionError(f"status {status}")

    raising = build(spec(lambda table: -4, (VEC,), (VEC,), on_status=explain))
    with pytest.raises(ZeroDivisionError, match="status -4"):
        raising(x)


def test_fallback_may_raise_and_chain(build: Build) -> None:
    first = build(spec(plus_one(), (VEC,), (VEC,)))
    pair = ArraySpec(F4, (2,))
    second = build(spec(plus_one(2), (pair,), (pair,), fallback=first))
    assert second(tensor([1, 2]))._array.tolist() == [2, 3]
    assert second(tensor([1, 2, 3, 4]))._array.tolist() == [2, 3, 4, 5]

    def refuse(*args: object) -> object:
        raise KeyError("retrace")

    with pytest.raises(KeyError, match="retrace"):
        build(spec(plus_one(), (VEC,), (VEC,), fallback=refuse))(1)


@pytest.mark.parametrize("release", [True, False])
def test_a_second_caller_and_a_nested_call_go_to_the_fallback(build: Build, release: bool) -> None:
    inside, leave = threading.Event(), threading.Event()
    calls: list[Any] = []

    def step(table: Any) -> int:
        calls.append(call())  # nested
        inside.set()
        leave.wait(10)
        return 0

    call = build(spec(step, (), (), release_gil=release))
    worker = threading.Thread(target=lambda: calls.append(call()))
    worker.start()
    inside.wait(10)
    assert missed(call())
    leave.set()
    worker.join()
    assert missed(calls[0]) and calls[1] is None


def test_unknown_slots_are_an_error() -> None:
    with pytest.raises(ValueError, match="Tensor has no slot nope"):
        build_entry(spec(lambda table: 0, (), (), slot_defaults={"nope": 1}))


def test_a_type_that_native_code_cannot_make_gets_the_portable_entry() -> None:
    class Derived(Tensor):
        __slots__ = ()

    call = build_entry(spec(plus_one(), (VEC,), (VEC,), tensor_type=Derived))
    x = Derived()
    x._array, x._node = np.zeros(4, F4), None
    y = call(x)
    assert type(y) is Derived and y._array.tolist() == [1, 1, 1, 1]
    assert missed(call(tensor([1, 2, 3, 4])))


BIG = ArraySpec(F4, (1 << 14,))


def fill(table: Any) -> int:
    floats(table[0], BIG.shape[0])[:] = 1
    return 0


@pytest.mark.usefixtures("small_heap")
def test_a_dropped_entry_lets_go_of_everything(build: Build) -> None:
    def use() -> tuple[weakref.ref[Tensor], weakref.ref[Any]]:
        def fallback(*args: object) -> object:  # a cycle: entry -> fallback -> entry
            return call, args

        state = tensor([1])
        step = plus_one()
        call = build(spec(step, (VEC,), (VEC,), captured=(state,), fallback=fallback))
        call(1)
        return weakref.ref(state), weakref.ref(step)

    references = use()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_no_call_leaks() -> None:
    call = build_entry(spec(plus_one(), (VEC,), (VEC, VEC), on_status=lambda *a: None))
    failing = build_entry(spec(lambda table: 1, (VEC,), (VEC, BIG), on_status=lambda *a: None))
    x, default = tensor([1, 2, 3, 4]), object()
    counted = build_entry(spec(plus_one(), (VEC,), (VEC,), slot_defaults={"_node": None, "_version": default}))
    before = [sys.getrefcount(o) for o in (F4, x, x._array, default, Tensor)]
    for _ in range(200):
        call(x), failing(x), counted(x), call(1), call(x, x), call(k=1)
    after = [sys.getrefcount(o) for o in (F4, x, x._array, default, Tensor)]
    assert after == before


def test_call_step_through_ctypes() -> None:
    x, y = np.arange(4, dtype=F4), np.zeros(4, F4)
    step = STEP(plus_one())
    assert call_step(ctypes.cast(step, ctypes.c_void_p).value or 0, [x.ctypes.data, y.ctypes.data]) == 0
    assert y.tolist() == [1, 2, 3, 4]
    nothing = STEP(lambda table: 6)
    assert call_step(ctypes.cast(nothing, ctypes.c_void_p).value or 0, []) == 6


def test_without_measured_structs_the_portable_entry_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_layout, "measured", lambda: None)
    call = build_entry(spec(plus_one(), (VEC,), (VEC,)))
    assert not isinstance(call, type(len))
    assert call(tensor([1, 2, 3, 4]))._array.tolist() == [2, 3, 4, 5]


def lending() -> tuple[Callable[..., Tensor], np.ndarray, list[np.ndarray]]:
    """An entry, the loans that it reads, and the holder of the array that is to be lent."""
    lent = np.empty(1, object)
    return build_entry(spec(fill, (), (BIG,), lent=lent)), lent, [np.zeros(BIG.shape, F4)]  # type: ignore[return-value]


def test_a_lent_output_is_used_again_although_one_other_holds_it() -> None:
    call, lent, holder = lending()

    def taken() -> bool:
        lent[0] = holder[0]
        result = call()
        assert lent[0] is None
        return id(result._array) == id(holder[0])

    assert call()._array.all() and not holder[0].any()
    assert taken() and holder[0].all()
    view = holder[0][1:]
    assert not taken()  # two others
    del view
    known = weakref.ref(holder[0])
    assert not taken()
    del known
    assert taken()


def test_loans_do_not_leak() -> None:
    call, lent, holder = lending()
    view = holder[0][1:]

    def references() -> int:
        for _ in range(100):
            lent[0] = holder[0]
            call()
        return sys.getrefcount(holder[0])

    refused = references()
    assert references() == refused
    del view
    taken = references()
    assert references() == taken == refused - 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda a: setattr(a, "shape", (2, -1)),
        lambda a: setattr(a, "dtype", np.dtype("i4")),
        lambda a: a.setflags(write=False),
    ],
    ids=["shape", "dtype", "read-only"],
)
@pytest.mark.filterwarnings("ignore:Setting the (shape|dtype):DeprecationWarning")
def test_a_lent_output_changed_in_place_is_not_used_again(spoil: Callable[[np.ndarray], None]) -> None:
    call, lent, holder = lending()
    spoil(holder[0])
    lent[0] = holder[0]
    array = call()._array
    assert array is not holder[0] and array.shape == BIG.shape and array.dtype is F4 and array.flags.writeable


def test_results_of_every_kind(build: Build) -> None:
    def step(table: Any) -> int:
        floats(table[1], 4)[:] = 7
        for k, (kind, value) in enumerate([(ctypes.c_double, 5.0), (ctypes.c_double, -2.0), (ctypes.c_bool, True)]):
            kind.from_address(table[2 + k]).value = value
        return 0

    kinds = [("bool", 3), ("argument", 0), ("int", 1), ("output", 0), ("object", "text"), ("float", 2)]
    outputs = (VEC, ArraySpec(F8, ()), ArraySpec(F8, ()), ArraySpec(np.dtype("?"), ()))
    call = build(spec(step, (VEC,), outputs, results=[Returned(*kind) for kind in kinds], is_tuple=True))
    x = tensor([1, 2, 3, 4])
    flag, same, number, made, *others = call(x)
    assert flag is True and same is x and (number, type(number)) == (5, int) and made._array.tolist() == [7] * 4
    assert others == ["text", -2.0] and type(others[1]) is float
    one = build(spec(plus_one(), (VEC,), outputs[:1], results=[Returned("output", 0)], is_tuple=True))
    assert isinstance(one(x), tuple)
