"""Programs in which a traced function may come to differ from the function itself (see `trust.py`).

Each takes a framework and `trace`, either the framework's own or one that gives the function back as it is, and returns
what its user would see: results, the number of side effects, the name of an exception.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from .frameworks import Framework, Function, NotAvailable

Program = Callable[[Framework, Callable[[Function], Function]], Any]


@dataclass(frozen=True)
class Row:
    """`code`: the program in a line. `counts`: what is asked is how often it compiles, not whether it differs."""

    code: str
    run: Program
    counts: bool = False


SCALE = 2.0


def append_in_body(f: Framework, trace: Any) -> Any:
    seen: list[int] = []

    def step(x: Any) -> Any:
        seen.append(1)
        return x + 1

    step = trace(step)
    for _ in range(3):
        step(f.tensor([1.0]))
    return len(seen)


def global_number(f: Framework, trace: Any) -> Any:
    global SCALE

    def scaled(x: Any) -> Any:
        return x * SCALE

    scaled, results = trace(scaled), []
    try:
        for value in (2.0, 5.0):
            SCALE = value
            results.append(f.read(scaled(f.tensor([1.0]))))
    finally:
        SCALE = 2.0
    return results


def closure_number(f: Framework, trace: Any) -> Any:
    scale = 2.0

    def scaled(x: Any) -> Any:
        return x * scale

    scaled, results = trace(scaled), []
    for value in (2.0, 5.0):
        scale = value
        results.append(f.read(scaled(f.tensor([1.0]))))
    return results


def attribute(f: Framework, trace: Any) -> Any:
    settings = SimpleNamespace(scale=2.0)

    def scaled(x: Any) -> Any:
        return x * settings.scale

    scaled, results = trace(scaled), []
    for settings.scale in (2.0, 5.0):
        results.append(f.read(scaled(f.tensor([1.0]))))
    return results


def list_item(f: Framework, trace: Any) -> Any:
    scales = [2.0]

    def scaled(x: Any) -> Any:
        return x * scales[0]

    scaled, results = trace(scaled), []
    for scales[0] in (2.0, 5.0):
        results.append(f.read(scaled(f.tensor([1.0]))))
    return results


def _branch(total: Function) -> Function:
    def f(x: Any) -> Any:
        if total(x) > 0:
            return x * 2
        return x - 1

    return f


def branch_on_data(f: Framework, trace: Any) -> Any:
    step = trace(_branch(f.sum))
    return [f.read(step(f.tensor(v))) for v in ([1.0, 2.0], [-1.0, -2.0], [3.0, 1.0])]


def branch_without_source(f: Framework, trace: Any) -> Any:
    names: dict[str, Any] = {"total": f.sum}
    exec("def step(x):\n    if total(x) > 0:\n        return x * 2\n    return x - 1\n", names)
    step = trace(names["step"])
    return [f.read(step(f.tensor(v))) for v in ([1.0, 2.0], [-1.0, -2.0])]


def while_on_data(f: Framework, trace: Any) -> Any:
    total = f.sum

    def halve(x: Any) -> Any:
        while total(x) > 1:
            x = x / 2
        return x

    halve = trace(halve)
    return [f.read(halve(f.tensor(v))) for v in ([8.0], [3.0], [0.5])]


def number_of_tensor(f: Framework, trace: Any) -> Any:
    total = f.sum

    def scaled(x: Any) -> Any:
        return x * float(total(x))

    scaled = trace(scaled)
    return [f.read(scaled(f.tensor(v))) for v in ([1.0, 2.0], [3.0, 4.0])]


def numpy_function(f: Framework, trace: Any) -> Any:
    return np.round(f.read(trace(lambda x: np.sin(x) * 2)(f.tensor([0.5]))), 6).tolist()


def write_to_argument(f: Framework, trace: Any) -> Any:
    def write(x: Any) -> None:
        x[0] = 5.0

    x = f.tensor([1.0, 2.0])
    trace(write)(x)
    return f.read(x)


def write_to_view(f: Framework, trace: Any) -> Any:
    def write(x: Any) -> Any:
        view = x[1:]
        view += 10.0
        return x * 1

    x = f.tensor([1.0, 2.0, 3.0])
    return [f.read(trace(write)(x)), f.read(x)]


def same_argument_twice(f: Framework, trace: Any) -> Any:
    def write(x: Any, y: Any) -> Any:
        x += 1.0
        return y * 2

    write = trace(write)
    a, b = f.tensor([1.0]), f.tensor([1.0])
    return [f.read(write(a, b)), f.read(write(a, a))]


def raise_halfway(f: Framework, trace: Any) -> Any:
    total = f.sum

    def check(x: Any) -> Any:
        x[0] = 7.0
        if total(x) > 10:
            raise ValueError("too large")
        return x * 1

    check, results = trace(check), []
    for values in ([1.0, 2.0], [1.0, 20.0]):
        x = f.tensor(values)
        try:
            results.append(f.read(check(x)))
        except ValueError as error:
            results.append(f"ValueError: {error}")
        results.append(f.read(x))
    return results


def index_out_of_range(f: Framework, trace: Any) -> Any:
    try:
        return f.read(trace(lambda x: x[10])(f.tensor([1.0, 1.0, 1.0])))
    except IndexError:
        return "IndexError"


def select_by_mask(f: Framework, trace: Any) -> Any:
    positive = trace(lambda x: x[x > 0] * 2)
    return [f.read(positive(f.tensor(v))) for v in ([1.0, -1.0, 2.0], [-1.0, -2.0, 3.0])]


def print_in_body(f: Framework, trace: Any) -> Any:
    def step(x: Any) -> Any:
        print("hello")
        return x + 1

    step, said = trace(step), io.StringIO()
    with contextlib.redirect_stdout(said):
        for _ in range(3):
            step(f.tensor([1.0]))
    return said.getvalue().count("hello")


def item_for_a_log(f: Framework, trace: Any) -> Any:
    total, losses = f.sum, []

    def step(x: Any) -> Any:
        loss = total(x * x)
        losses.append(float(loss))
        return x - 0.1 * x

    step, x = trace(step), f.tensor([1.0, 2.0])
    for _ in range(3):
        x = step(x)
    return [round(loss, 4) for loss in losses]


def divide_by_zero(f: Framework, trace: Any) -> Any:
    return str(f.read(trace(lambda x: 1 / x)(f.tensor([0.0, 4.0]))))


def second_derivative(f: Framework, trace: Any) -> Any:
    total = f.sum
    cube = trace(lambda x: total(x * x * x))
    first = f.grad(cube)
    return f.read(f.grad(lambda x: total(first(x)))(f.tensor([1.0, 2.0])))


def same_random_numbers(f: Framework, trace: Any) -> Any:
    draw = f.random

    def noise(x: Any) -> Any:
        return x + draw(4)

    f.seed(7)
    return np.asarray(f.read(trace(noise)(f.tensor([0.0] * 4)))).tolist()


def lengths(f: Framework, trace: Any) -> Any:
    step = trace(lambda x: x * 2 + 1)
    results = [f.read(step(f.tensor([1.0] * n))) for n in (5, 6, 7, 8, 9)]
    return _count(f, step) if _traced(f, trace) else results


def floats(f: Framework, trace: Any) -> Any:
    step = trace(lambda x, a: x * a)
    results = [f.read(step(f.tensor([1.0]), a)) for a in (0.1, 0.2, 0.3, 0.4, 0.5)]
    return _count(f, step) if _traced(f, trace) else results


def global_number_compiles(f: Framework, trace: Any) -> Any:
    global SCALE

    def scaled(x: Any) -> Any:
        return x * SCALE

    scaled = trace(scaled)
    try:
        for value in (2.0, 3.0, 4.0, 5.0, 6.0):
            SCALE = value
            scaled(f.tensor([1.0]))
    finally:
        SCALE = 2.0
    return _count(f, scaled) if _traced(f, trace) else 0


def attribute_compiles(f: Framework, trace: Any) -> Any:
    class Settings:
        scale = 2.0

    settings = Settings()
    step = trace(lambda x: x * settings.scale)
    results = []
    for value in (2.0, 3.0, 4.0, 5.0, 6.0):
        settings.scale = value
        results.append(f.read(step(f.tensor([1.0]))))
    return _count(f, step) if _traced(f, trace) else results


def helper_compiles(f: Framework, trace: Any) -> Any:
    global SCALE

    step, results = trace(lambda x: _scaled(x) + 1), []
    try:
        for value in (2.0, 3.0, 4.0, 5.0, 6.0):
            SCALE = value
            results.append(f.read(step(f.tensor([1.0]))))
    finally:
        SCALE = 2.0
    return _count(f, step) if _traced(f, trace) else results


def _scaled(x: Any) -> Any:
    return x * SCALE


def integers(f: Framework, trace: Any) -> Any:
    step = trace(lambda x, n: x * n)
    results = [f.read(step(f.tensor([1.0]), n)) for n in (2, 3, 4, 5, 6)]
    return _count(f, step) if _traced(f, trace) else results


def losses_compiles(f: Framework, trace: Any) -> Any:
    total = f.sum

    def step(x: Any) -> Any:
        return x * 0.5, float(total(x))

    step = trace(step)
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        step(f.tensor([value]))
    return _count(f, step) if _traced(f, trace) else 0


def _traced(f: Framework, trace: Any) -> bool:
    return bool(trace == f.trace)


def _count(f: Framework, traced: Function) -> int:
    return f.compiles(traced)


ROWS: dict[str, Row] = {
    "append": Row("`L.append(1)` in the body, 3 calls: `len(L)`", append_in_body),
    "global": Row("a global float rebound from 2 to 5", global_number),
    "closure": Row("a variable of the enclosing function rebound", closure_number),
    "attribute": Row("an attribute `settings.scale` rebound", attribute),
    "list": Row("an item of a list replaced", list_item),
    "branch": Row("`if x.sum() > 0:`", branch_on_data),
    "exec": Row("the same in a function made by `exec`", branch_without_source),
    "while": Row("`while x.sum() > 1:`", while_on_data),
    "float": Row("`x * float(x.sum())`", number_of_tensor),
    "numpy": Row("`np.sin(x)`", numpy_function),
    "write": Row("`x[0] = 5` on an argument, seen by the caller", write_to_argument),
    "view": Row("`v = x[1:]; v += 10`, seen in `x`", write_to_view),
    "alias": Row("`f(a, a)` where `f` updates its first argument", same_argument_twice),
    "raise": Row("`raise` after an update, on a value of the data", raise_halfway),
    "mask": Row("`x[x > 0]`", select_by_mask),
    "print": Row("`print` in the body, 3 calls: lines printed", print_in_body),
    "log": Row("`losses.append(float(loss))` in a step", item_for_a_log),
    "zero": Row("`1 / x` of zero", divide_by_zero),
    "index": Row("`x[10]` of 3 elements", index_out_of_range),
    "second": Row("gradient of the gradient of the traced function", second_derivative),
    "random": Row("the same seed, eager and traced", same_random_numbers),
    "lengths": Row("programs compiled for 5 lengths", lengths, counts=True),
    "floats": Row("programs compiled for 5 Python floats as an argument", floats, counts=True),
    "integers": Row("programs compiled for 5 Python integers as an argument", integers, counts=True),
    "losses": Row("programs compiled for 5 values of `float(x.sum())` that is returned", losses_compiles, counts=True),
    "globals": Row("programs compiled for 5 values of a global float", global_number_compiles, counts=True),
    "helpers": Row(
        "programs compiled for 5 values of a global float that a helper reads", helper_compiles, counts=True
    ),
    "attributes": Row("programs compiled for 5 values of an attribute", attribute_compiles, counts=True),
}


def observe(f: Framework, row: Row) -> str:
    """What the table says of one program in one framework."""
    try:
        eager = row.run(f, lambda fn: fn)
    except NotAvailable:
        return "–"
    except Exception as error:
        return f"no such program: eager raises {type(error).__name__}"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            traced = row.run(f, f.trace)
        except NotAvailable:
            return "–"
        except Exception as error:
            return f"{type(error).__name__}"
    if row.counts:
        return str(traced)
    told = any(not issubclass(w.category, DeprecationWarning | FutureWarning) for w in said)
    if traced == eager:
        return "same" + (", with a warning" if told else "")
    return f"**{_short(traced)}**, eager {_short(eager)}" + (", with a warning" if told else ", silent")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    return str(value)
