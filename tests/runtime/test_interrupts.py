"""Ctrl-C and deadlines end compiled calls that would go on for hours, and leave all state as before the call."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.runtime import host_callback
from tests.support.examples import every

ROOT = Path(__file__).parent.parent.parent
HOURS = 10**13  # steps of a loop
SETUP = """
import signal
import numpy as np
import hybridml as hm
from hybridml import nn
from tests.support.counting import counting

signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite that runs in the background has it ignored

def loop(x, n):
    return hm.fori_loop(0, n, lambda i, x: hm.tanh(x) * 1.0001, x)

def nested(x, n):
    return hm.fori_loop(0, n, lambda i, x: hm.fori_loop(0, n, lambda i, x: hm.tanh(x) * 1.0001, x) + 1, x)

def endless(x, n):
    return hm.while_loop(lambda c: c[1] < n, lambda c: (hm.tanh(c[0]), c[1] + 1), (x, hm.tensor(0)))[0]

def chosen(x, n):
    return hm.cond(x.sum() > 0, lambda x: loop(x, n), lambda x: x, x)

hm.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
optimizer = hm.optim.Adam(model.parameters(), lr=0.1)
total = hm.zeros((4,))

def training(x, n, loop=loop):
    optimizer.zero_grad()
    loss = (model(x.reshape(-1, 4)) ** 2).sum()
    loss.backward()
    optimizer.step()
    total.add_(hm.random.normal((4,)))
    return loss + loop(total, n).sum()

def training_with_kernel(x, n):
    return training(x, n, counting)

def state():
    parts = hm.tree_leaves((model.state_dict(), optimizer.state_dict(), total, hm.random.default_generator.get_state()))
    return [np.array(part) for part in parts]
"""
LOOPS = ["loop", "nested", "endless", "chosen", "training"]
INTERRUPTED = """
import faulthandler
faulthandler.dump_traceback_later(200, exit=True)  # where nobody is left to end it
f, x = hm.trace({name}) if {traced} else {name}, hm.ones(({size},))
f(x, hm.tensor(2)); f(x, hm.tensor(3)); f(x, hm.tensor(4))
before = state()
try:
    print("ready", flush=True)
    f(x, hm.tensor({steps}))
    print("finished")
except KeyboardInterrupt:
    print("interrupted")
print(all(np.array_equal(a, b) for a, b in zip(before, state(), strict=True)))
hm.manual_seed(1)
kept = [p.detach().numpy().copy() for p in model.parameters()]
print(np.isfinite(f(x, hm.tensor(5)).detach().numpy()).all(), "training" not in "{name}" or any(
    (p.detach().numpy() != k).any() for p, k in zip(model.parameters(), kept)))
"""


@pytest.mark.parametrize(("size", "name"), every(2, product([12, 400_000], LOOPS)))
def test_ctrl_c_ends_native_loops(name: str, size: int) -> None:
    check_interrupted(name, size)


@pytest.mark.parametrize(
    ("name", "size", "traced"),
    [
        ("counting", 400_000, True),
        ("training_with_kernel", 12, True),
        ("counting", 12, False),
        ("counting", 3000, False),
    ],
)
def test_ctrl_c_ends_loops_of_kernels(name: str, size: int, traced: bool) -> None:
    check_interrupted(name, size, traced)


def check_interrupted(name: str, size: int, traced: bool = True) -> None:
    program = SETUP + INTERRUPTED.format(name=name, size=size, steps=HOURS, traced=traced)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            assert run.stdout.readline() == "ready\n", run.communicate(timeout=60)
            time.sleep(0.5)  # into the native call
            os.kill(run.pid, signal.SIGINT)
            said, errors = run.communicate(timeout=120)
        finally:
            run.kill()
    assert said.split() == ["interrupted", "True", "True", "True"], said + errors


HANDLER = """
seen = []
def handler(*a):
    try:
        with hm.deadline(0.02):
            f(x, hm.tensor({steps}))
    except TimeoutError:
        seen.append("deadline")

f, x = hm.trace(loop), hm.ones((400,))
f(x, hm.tensor(2)); f(x, hm.tensor(3)); f(x, hm.tensor(4))
signal.signal(signal.SIGALRM, handler)
try:
    with hm.deadline(60):
        while not seen:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            f(x, hm.tensor(2_000_000))
            f(x, hm.tensor(5))
    print("finished", *seen)
except BaseException as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no timers that send signals")
def test_a_stopped_call_in_a_handler_stops_no_other() -> None:
    """The handler runs in the midst of a native call, and its own call is stopped by a deadline."""
    program = SETUP + HANDLER.format(steps=HOURS)
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.stdout.split() == ["finished", "deadline"], run.stdout + run.stderr


STEP = """
import signal, time
import numpy as np
import hybridml as hm

hm.manual_seed(0)
net, count = hm.nn.Linear(2000, 2000), {"steps": 0}
optimizer = hm.optim.Adam(net.parameters(), lr=1e-3)

@hm.trace
def step(x):
    count["steps"] += 1
    optimizer.zero_grad()
    loss = (net(hm.nn.functional.dropout(x, 0.5)) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss

def state():
    drawn = hm.random.default_generator.get_state()
    return count["steps"], drawn.numpy().copy(), net.weight.detach().numpy().copy()

def handler(*a):
    raise KeyboardInterrupt

x = hm.randn(4, 2000)
for _ in range(4):
    step(x)
whole = 1e9
for _ in range(10):
    start = time.perf_counter()
    step(x)
    whole = min(whole, time.perf_counter() - start)
signal.signal(signal.SIGALRM, handler)
interrupted = torn = 0
for k in range(30):
    before = state()
    try:
        signal.setitimer(signal.ITIMER_REAL, whole * (0.25 + k / 120))  # into the native call
        step(x)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    moved = {bool(np.any(old != new)) for old, new in zip(before, state(), strict=True)}
    torn += len(moved) > 1
print(interrupted > 0, torn)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no timers that send signals")
def test_what_a_step_has_begun_to_change_it_changes_whole() -> None:
    """Weights, the generator and Python's count move together, wherever in native code an interrupt comes."""
    run = subprocess.run([sys.executable, "-c", STEP], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.stdout.split() == ["True", "0"], run.stdout + run.stderr


# In a process of its own: warnings of the client are its own, while warnings here are errors.
CLIENT = """
import sys, time
from jupyter_client.manager import start_new_kernel

def run(code):
    sent, texts = kc.execute(code), []
    while True:
        message = kc.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") != sent:
            continue
        if message["msg_type"] == "stream":
            texts.append(message["content"]["text"])
            if "ready" in texts[-1]:
                time.sleep(0.5)
                km.interrupt_kernel()
        if message["msg_type"] == "error":
            texts.append(message["content"]["ename"])
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return "".join(texts)

km, kc = start_new_kernel(kernel_name="python3")
try:
    print([run(cell) for cell in sys.argv[1:]])
finally:
    kc.stop_channels()
    km.shutdown_kernel(now=True)
"""


def test_a_notebook_is_interrupted(tmp_path: Path) -> None:
    call = "before = state()\nprint('ready', flush=True)\nf(x, hm.tensor({steps}))"
    cells = [
        SETUP + "f, x = hm.trace(training), hm.ones((12,))\nfor n in 2, 3, 4: f(x, hm.tensor(n))",
        call.format(steps=HOURS),
        "print(all(np.array_equal(a, b) for a, b in zip(before, state(), strict=True)))",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", CLIENT, *cells], env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.stdout == "['', 'ready\\nKeyboardInterrupt', 'True\\n']\n", run.stdout + run.stderr[-4000:]


def test_an_error_before_the_first_line_of_a_callback_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt that has come while native code ran is such an error; ctypes gives it to a hook, in each Python's
    way."""

    class Stopped(BaseException):
        pass

    def look() -> None:
        raise Stopped

    others: list[object] = []
    monkeypatch.setattr(host_callback, "CALLBACKS", (look,))
    monkeypatch.setattr(sys, "unraisablehook", partial(host_callback._catch, others=others.append))
    ctypes.CFUNCTYPE(None)(look)()
    with pytest.raises(Stopped):
        host_callback.reraise()
    assert not others


def test_a_large_launch_is_stopped_between_its_ranges() -> None:
    class Stopped(Exception):
        pass

    looks = []

    def look() -> None:
        looks.append(1)
        raise Stopped

    def f(x: hm.Tensor) -> hm.Tensor:
        for _ in range(30):
            x = hm.tan(x + 1)
        return x

    traced, x = hm.trace(f, dynamic=False), hm.ones((1 << 24,))
    for threads in (2, 1):
        before = hm.get_num_threads()
        hm.set_num_threads(threads)
        token = host_callback.deadline_var.set(look)
        try:
            with pytest.raises(Stopped):
                traced(x)
        finally:
            host_callback.deadline_var.reset(token)
            hm.set_num_threads(before)
    assert len(looks) == 2  # a stopped call asks no second time


def test_deadlines() -> None:
    loop = hm.trace(lambda x, n: hm.fori_loop(0, n, lambda i, x: hm.tanh(x) * 1.0001, x))
    x = hm.ones((3,))
    want = loop(x, 5)
    with hm.deadline(0.05), pytest.raises(TimeoutError, match=r"the deadline of 0.05 s has passed\n.*loop\(x, HOURS\)"):
        loop(x, HOURS)
    with hm.deadline(0.01), pytest.raises(hm.DeadlineError, match=r"0.01 s has passed\n.*test_interrupts.py"):
        while True:
            x = x + 1
    with hm.deadline(0.01), pytest.raises(hm.DeadlineError):
        while True:
            loop(x, 5)
    np.testing.assert_array_equal(loop(hm.ones((3,)), 5), want)
    with hm.deadline(1e6):
        np.testing.assert_array_equal(loop(hm.ones((3,)), 5), want)


def test_the_first_of_several_deadlines_ends_the_block() -> None:
    x = hm.ones((3,))
    with hm.deadline(0.01), hm.deadline(1e6), pytest.raises(hm.DeadlineError, match=r"of 0.01 s"):
        while True:
            x = x + 1
    with hm.deadline(1e6), pytest.raises(hm.DeadlineError, match=r"of 0 s"), hm.deadline(0):
        x + 1
    with hm.deadline(0), hm.debug_nans(), pytest.raises(hm.DeadlineError):  # what is looked for adds up
        x + 1
    with hm.debug_nans(), hm.deadline(1e6), pytest.raises(FloatingPointError, match="log made nan"):
        hm.log(-x)
    assert hm.log(-x).shape == (3,)

    @hm.deadline(0)
    def f() -> hm.Tensor:
        return hm.ones((3,)) + 1

    with pytest.raises(hm.DeadlineError):
        f()


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", None, True])
def test_a_deadline_is_a_number_of_seconds(seconds: object) -> None:
    with pytest.raises(hm.ArgumentError, match=r"deadline: needs a number of seconds from 0 on, got"):
        hm.deadline(seconds)  # type: ignore[arg-type]
