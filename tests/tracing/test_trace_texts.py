"""Texts of numbers that come with the call: filled in by each call, and known to whoever looks at one."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm

Step = Callable[..., Any]
STEPS: dict[str, tuple[Step, bool]] = {}  # name -> the method of a user's class, whether one program does all calls


def step(compiled: bool) -> Callable[[Step], Step]:
    def add(fn: Step) -> Step:
        STEPS[fn.__name__] = fn, compiled
        return fn

    return add


class Box:
    def __init__(self) -> None:
        self.n, self.text = 0, ""
        self.lines: list[Any] = []

    def note(self, text: str) -> None:
        self.lines.append(text.upper())


@step(True)
def printed(self: Any, x: hm.Tensor) -> Any:
    self.n += 1
    print(f"step {self.n:03d} loss {x.sum().item():.4f}", x.shape[0], sep=" | ", end="!\n")
    print("mean", str(x.mean().item()), "n " + str(self.n))
    return x * self.n


@step(True)
def kept(self: Any, x: hm.Tensor) -> Any:
    self.lines.append(f"{x.sum():.3f}")
    self.lines.append(["{:>9.2f} of {}".format(x.sum().item(), self.n), "%s!" % x[0].item()])  # noqa: UP031, UP032
    self.text = f"{x.sum().item()!r} {x.sum().item()!s} {[x[0].item(), 1]}"
    return x * 1


@step(True)
def returned(self: Any, x: hm.Tensor) -> Any:
    return {"loss": f"{x.sum().item():.2e}", "all": (repr(x[0].item()), format(x[1].item(), ".1f"))}


@step(True)
def variables(self: Any, x: hm.Tensor) -> Any:
    line = f"loss {x.sum().item():.3f}"
    row = {"line": line, "n": 1}
    row["more"] = f"{line}, {x.mean().item():+.1f}"
    found = []
    for i in range(2):
        found.append(f"{i}: {x[i].item():.2f}")
    total = ""
    for i in range(2):
        total += f"{x[i].item():.0f};"
    print(line)
    self.lines.append(row)
    return found, total


@step(True)
def a_specification_that_no_float_takes(self: Any, x: hm.Tensor) -> Any:
    try:
        return f"{x.sum().item():d}"
    except ValueError as error:
        return str(error)


@step(True)
def of_tensors(self: Any, x: hm.Tensor) -> Any:
    w = hm.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = (w * x).sum()
    self.lines.append(f"loss {y}, {y.detach()}, {w}")
    z = x * 2
    before = str(z)
    z += 1
    print(f"{z!r} was {before}, {x.sum()}, {z.astype(hm.int32)}")
    return z, f"{z}"


@step(True)
def rounded(self: Any, x: hm.Tensor) -> Any:
    loss = round(x.sum().item(), 2)
    self.lines.append(loss)
    print("loss", round(x.mean().item(), 3), f"{loss:.1f}")
    return loss, -loss, abs(loss) + 1, 2 * loss, loss / 4, x[0].item() * loss, isinstance(loss, float)


@step(False)
def the_length(self: Any, x: hm.Tensor) -> Any:
    return len(f"{x.sum().item()}")


@step(False)
def a_comparison(self: Any, x: hm.Tensor) -> Any:
    text = f"{x.sum().item():.1f}"
    return "low" if "1.5" in text or text == "2.5" else text


@step(False)
def a_method(self: Any, x: hm.Tensor) -> Any:
    return f"{x.sum().item():.1e}".upper(), ", ".join([f"{x[0].item()}", "b"])


@step(False)
def padded(self: Any, x: hm.Tensor) -> Any:
    text = f"{x.sum().item():.1f}"
    return f"{text:>12}|{x.sum().item()!s:>8}|" + "%8s" % x[0].item()  # noqa: UP031


@step(False)
def another_function(self: Any, x: hm.Tensor) -> Any:
    self.note(f"loss {x.sum().item():.2f}")
    return x * 1


@step(False)
def a_key(self: Any, x: hm.Tensor) -> Any:
    return {f"{x.sum().item():.2f}": 1}


@step(False)
def read_in_a_container(self: Any, x: hm.Tensor) -> Any:
    row = {"line": f"{x.sum().item():.2f}"}
    return row, len(row["line"])


@step(False)
def read_in_an_attribute(self: Any, x: hm.Tensor) -> Any:
    self.text = f"{x.sum().item():.2f}"
    return x * len(self.text)


@step(False)
def in_a_closure(self: Any, x: hm.Tensor) -> Any:
    text = f"{x.sum().item():.2f}"
    return len((lambda: text)())


@step(False)
def of_a_round_before(self: Any, x: hm.Tensor) -> Any:
    text = ""
    for i in range(3):
        if text:
            self.n = len(text)
        text = f"{i}: {x[i].item():.2f}"
    return x * 1


@step(False)
def rounded_and_used(self: Any, x: hm.Tensor) -> Any:
    loss = round(x.sum().item(), 1)
    return x * loss, loss > 3, int(loss), divmod(loss, 2), 1 / (loss + 9)


def plain(found: Any) -> Any:
    return hm.tree_map(lambda leaf: leaf.tolist() if isinstance(leaf, hm.Tensor) else leaf, found)


def run(method: Step, style: Callable[[Any], Any]) -> tuple[Any, Any, list[str]]:
    box, out, found = type("Net", (Box,), {"step": method})(), io.StringIO(), []
    call = style(box.step)
    with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(out):
        warnings.simplefilter("always")
        for k in range(10):
            found.append((plain(call(hm.tensor([1.0, 0.5, k]))), plain(vars(box))))
    return (str(found), out.getvalue()), call, [str(warning.message) for warning in warned]


@pytest.mark.parametrize("name", STEPS)
def test_texts(name: str, trace: Any) -> None:
    method, compiled = STEPS[name]
    expected = run(method, lambda fn: fn)[0]
    found, traced, warned = run(method, trace)
    assert found == expected
    assert (traced.cache_info().compiles == 1 and not warned) is compiled
    if not compiled:
        assert any("run eagerly" in text for text in warned)


def test_what_looks_at_a_text_is_told_what_to_write(trace: Any) -> None:
    f = trace(lambda x: len(f"{x.sum().item()}"))
    with pytest.warns(UserWarning, match="where an f-string is only printed, kept or returned"):
        for k in range(12):
            f(hm.tensor([k + 0.5]))


def test_an_error_leaves_the_lines_before_it(trace: Any) -> None:
    lines: list[str] = []

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        lines.append(f"{x.item():.1f}")
        if x > 2:
            raise ValueError(f"too large: {x.item():.1f}")
        lines.append("done")
        return x * 2

    for k in range(5):
        with pytest.raises(ValueError, match=f"too large: {k}.0") if k > 2 else contextlib.nullcontext():
            f(hm.tensor(float(k)))
    assert lines == ["0.0", "done", "1.0", "done", "2.0", "done", "3.0", "4.0"]


def test_texts_of_durations(trace: Any, capsys: pytest.CaptureFixture[str]) -> None:
    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        start = time.perf_counter()
        y = x * 2
        took = time.perf_counter() - start
        print(f"{y.item():.1f} in {took:.3f} s")
        return y

    for k in range(4):
        f(hm.tensor(float(k)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["0.0", "2.0", "4.0", "6.0"] and f.cache_info().compiles == 1
    assert all(0 <= float(line.split()[2]) < 60 for line in lines)


def test_private_characters_of_a_user_are_no_texts(trace: Any) -> None:
    mark = chr(0x100000)
    f = trace(lambda x: (mark, f"{mark}{x.item():.1f}{mark}"))
    for k in range(3):
        assert f(hm.tensor(float(k))) == (mark, f"{mark}{k}.0{mark}")
    assert f.cache_info().compiles == 1
