"""Interrupts (Ctrl-C) at random moments: none is lost, and afterwards the same functions give the right answers.

They arrive while a function is traced, compiled, run, differentiated, while NumPy computes in the middle of a program,
and in a save, some of them twice. Afterwards nothing is held: locks, replaced builtins, a trace that has not ended,
turns of threads; and no entry of the cache is damaged. `PyThreadState_SetAsyncExc` is no part of it: while a thread
starts another one, CPython 3.11 gives that one the exception, and the first waits for it for ever.
"""

from __future__ import annotations

import builtins
import copy
import faulthandler
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hybridml as hm
from hybridml import nn
from hybridml_compiler.runtime import cache, host_callback, uninterrupted
from hybridml_compiler.runtime.cache import ObjectCache

from .case import NOWHERE, cases

PATIENCE = 60.0
Work = Callable[[], Any]


def run(seconds: float, seed: int) -> tuple[int, list[str]]:
    """Number of interrupted calls, and those that lost the interrupt or left something wrong."""
    done, found = 0, []
    with tempfile.TemporaryDirectory(prefix="hybridml-fuzz-") as base:
        for number in cases(seconds, seed):
            done += 1
            faulthandler.dump_traceback_later(3 * PATIENCE, exit=True)
            r = random.Random(number)
            at = Path(base, str(number))
            at.mkdir()
            cache._default = ObjectCache(at)
            subject = r.choice(SUBJECTS)
            try:
                wrong = attacked(r, at, subject)
            except (Exception, KeyboardInterrupt):
                wrong = traceback.format_exc()[-3000:]
            if wrong is not None:
                found.append(f"--seconds 0 --seed {number} (times differ from run to run): {subject.__name__}: {wrong}")
            cache._default = NOWHERE
            shutil.rmtree(at, ignore_errors=True)
            if found and "hangs in" in found[-1]:
                break  # it has what others would wait for
    faulthandler.cancel_dump_traceback_later()
    return done, found


# ---- What is interrupted: a work to be done some times, and what is wrong afterwards, if anything is.


def fresh(r: random.Random, at: Path) -> tuple[Work, Work]:
    """Trace and compile a new function."""
    scale, x = r.random(), hm.arange(9.0)
    functions = []

    def work() -> None:
        def f(x: Any) -> Any:
            y = hm.tanh(x * scale + len(functions))
            return (y.reshape(3, 3) @ y.reshape(3, 3)).sum(0) + scale

        functions.append(hm.trace(f))
        functions[-1](x)

    return work, lambda: [same(f(x), f.__wrapped__(x)) for f in functions]


def several(r: random.Random, at: Path) -> tuple[Work, Work]:
    """Call one function with sizes, branches and Python values that change."""
    limit = [0.5]

    @hm.trace
    def f(x: Any, n: int) -> Any:
        y = hm.cumsum(x * n, 0) + limit[0]
        if y.sum() > 20:
            y = hm.sort(y * 2)
        return y, len(x)

    def work() -> None:
        for _ in range(3):
            limit[0] = r.random()
            f(hm.arange(float(r.randrange(1, 9))), r.randrange(4))

    def check() -> None:
        for size in range(1, 9):
            x = hm.arange(float(size))
            (got, n), (want, m) = f(x, 2), f.__wrapped__(x, 2)
            same(got, want)
            assert n == m == size

    return work, check


def running(r: random.Random, at: Path) -> tuple[Work, Work]:
    """Call a compiled function on some threads."""
    f, x = hm.trace(lambda x: hm.exp(x) * 2 + hm.sin(x)), hm.tensor(np.linspace(0, 1, 300_000, dtype=np.float32))
    for _ in range(3):
        f(x)

    def work() -> None:
        for _ in range(20):
            f(x)

    return work, lambda: same(f(x), f.__wrapped__(x))


def hosted(r: random.Random, at: Path) -> tuple[Work, Work]:
    """Call a program that NumPy computes a part of."""
    f = hm.trace(lambda x: hm.linalg.svdvals(x * 2) + hm.linalg.det(x))
    x = hm.tensor(np.random.default_rng(0).normal(size=(40, 40)))
    for _ in range(r.randrange(3)):
        f(x)

    def work() -> None:
        for _ in range(5):
            f(x)

    return work, lambda: same(f(x), f.__wrapped__(x))


def training(r: random.Random, at: Path) -> tuple[Work, Work]:
    """Take training steps, traced: a step that was interrupted has been taken or not."""
    hm.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = hm.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = hm.ones((4, 8)), hm.zeros((4, 1))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    traced = hm.trace(step)
    for _ in range(r.randrange(3)):
        traced(x, y)

    def work() -> None:
        for _ in range(4):
            traced(x, y)

    def check() -> None:
        optimizer.zero_grad()  # the first step of all may have ended between its gradients
        states = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        results = []
        for each in (traced, step):
            model.load_state_dict(copy.deepcopy(states[0]))
            optimizer.load_state_dict(copy.deepcopy(states[1]))
            hm.manual_seed(1)
            each(x, y)
            results.append([parameter.detach().numpy().copy() for parameter in model.parameters()])
        for got, want in zip(*results, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)

    return work, check


def looping(r: random.Random, at: Path) -> tuple[Work, Work]:
    """Call a program with a long loop that updates what it has captured: all of it, or none of it."""
    first, last = hm.zeros((4,)), hm.zeros((4,))

    def step(x: Any, n: Any) -> Any:
        first.add_(1)
        y = hm.fori_loop(0, n, lambda i, y: hm.tanh(y) * 1.0001, x)
        last.add_(1)
        return y

    traced, x = hm.trace(step), hm.ones((r.choice((4, 1000, 300_000)),))
    for _ in range(r.randrange(3)):
        traced(x, hm.tensor(3))

    def work() -> None:
        for _ in range(3):
            traced(x, hm.tensor(3_000_000 // x.size))

    def check() -> None:
        np.testing.assert_array_equal(first, last)
        got, taken = traced(x, hm.tensor(5)), first.numpy().copy()
        same(got, step(x, hm.tensor(5)))
        np.testing.assert_array_equal(first, taken + 1)

    return work, check


def eager(r: random.Random, at: Path) -> tuple[Work, Work]:
    """Differentiate eagerly, with compiled kernels of the library."""
    w = hm.tensor(np.ones((64, 64), np.float32), requires_grad=True)

    def work() -> None:
        for _ in range(5):
            w.grad = None
            (hm.functional.softmax(w @ w, -1) * hm.functional.gelu(w)).sum().backward()

    def check() -> None:
        w.grad = None
        (w * w).sum().backward()
        np.testing.assert_array_equal(w.grad.numpy(), np.full((64, 64), 2, np.float32))

    return work, check


def saving(r: random.Random, at: Path) -> tuple[Work, Work]:
    """Save: the file has one state or the other, and nothing is left beside it."""
    folder = at / "checkpoints"
    folder.mkdir()
    path, size = folder / "c.safetensors", r.choice((1, 1000, 1_000_000))
    begun, saved = 0, 0

    def save() -> None:
        nonlocal begun, saved
        begun += 1
        hm.save({"w": np.full(size, begun, np.float32), "step": begun}, path)
        saved = begun

    def work() -> None:
        for _ in range(4):
            save()

    def check() -> None:
        loaded = hm.load(path)
        assert saved <= loaded["step"] <= begun, (saved, loaded["step"], begun)
        assert (loaded["w"].numpy() == loaded["step"]).all()
        save()
        assert os.listdir(folder) == [path.name], os.listdir(folder)

    save()

    return work, check


SUBJECTS = (fresh, fresh, several, several, running, hosted, training, looping, eager, saving)


def same(got: Any, want: Any) -> None:
    """Equal to what the contract of sums allows."""
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-6)


# ---- The interrupt.


def attacked(r: random.Random, at: Path, subject: Callable[[random.Random, Path], tuple[Work, Work]]) -> str | None:
    """Interrupt a work; what is wrong with that or afterwards."""
    work, check = subject(r, at)
    before = surroundings()
    unraised: list[str] = []
    host_callback.symbols()  # has a hook of its own, which raises again what comes to a callback before its first line
    hook = sys.unraisablehook

    def watch(args: Any) -> None:
        if args.object in host_callback.CALLBACKS:
            hook(args)
        else:
            unraised.append(f"{args.exc_value!r} in {args.object!r}")

    sys.unraisablehook = watch
    try:
        start = time.perf_counter()
        for _ in range(r.randrange(1, 4)):
            # The first one meets what is done once; later ones are about as long as the one before.
            spent = max(time.perf_counter() - start, 1e-3) if r.random() < 0.7 else 0.3 * r.random()
            start = time.perf_counter()
            wrong = interrupted(work, spent * r.random(), again=r.choice((0, 0, 1e-5, 1e-4, 1e-3)))
            if wrong is not None:
                return "\n".join([wrong, *unraised])
            if compiling():
                return f"hangs in {stack(threading.current_thread())}"
    finally:
        sys.unraisablehook = hook
    if any("KeyboardInterrupt" in each for each in unraised):
        return f"lost in {unraised}"
    changed = [name for name, value in surroundings().items() if before[name] is not value and before[name] != value]
    if changed:
        return f"left changed: {changed}"
    wrong = in_time(check)
    return damaged(at) if wrong is None else f"afterwards: {wrong}"


def compiling() -> bool:
    """Whether threads still compile after a while: an interrupt does not wait for what it has left to others."""
    end = time.monotonic() + PATIENCE
    gc.collect()  # those that wait for work end with the compilation that they belong to
    while found := bool(uninterrupted.running()):
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return found


def surroundings() -> dict[str, Any]:
    """What a trace or a compilation replaces for a while."""
    found = {f"builtins.{name}": value for name, value in vars(builtins).items() if name != "_"}
    found |= {f"{module.__name__}.{name}": value for module in (np, time, os) for name, value in vars(module).items()
              if callable(value)}  # fmt: skip
    found |= {"turns": sys.getswitchinterval(), "tracing": type(hm.ones(1) + 1), "value": (hm.ones(1) + 1).tolist()}
    return found | {"gradients": hm.is_grad_enabled(), "collector": gc.isenabled()}


def interrupted(work: Work, after: float, again: float) -> str | None:
    """The work, interrupted by a signal; `again`: by another so much later, which may meet what the first one ends."""
    arrived: list[str] = []

    over = False

    def handler(number: int, frame: Any) -> None:
        if len(arrived) < 2 and not over:
            arrived.append("".join(traceback.format_stack(frame)[-12:]))
            if len(arrived) == 1:
                signal.setitimer(signal.ITIMER_REAL, again)
            raise KeyboardInterrupt

    def alarmed() -> str | None:
        try:
            signal.setitimer(signal.ITIMER_REAL, max(after, 1e-6))
            work()
            return f"lost; it arrived at\n{arrived[0]}" if arrived else None
        except Exception:
            return f"became another error: {traceback.format_exc()[-3000:]}\nthe interrupts arrived at\n{arrived}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def once_more() -> str | None:
        try:
            return alarmed()
        except KeyboardInterrupt:
            return None

    usual = signal.signal(signal.SIGALRM, handler)
    try:
        return once_more()
    except KeyboardInterrupt:  # the second one, after the work: there is no third
        return None
    finally:
        over = True  # no call, so that no alarm comes before it
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)


def stack(thread: threading.Thread) -> str:
    """Where a thread is, and then where others are."""
    frames = sys._current_frames()
    first = frames.pop(thread.ident or 0, None)
    return "\n".join("".join(traceback.format_stack(frame)[-10:]) for frame in (first, *frames.values()))


def in_time(check: Work) -> str | None:
    """What a check says, in a thread of its own: nothing that it needs may be held by this one."""
    said: list[str] = []

    def target() -> None:
        try:
            check()
        except BaseException:
            said.append(traceback.format_exc()[-3000:])

    for _ in range(2):  # once more: what the first time has mended is sound
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        if thread.is_alive():
            return f"hangs in {stack(thread)}"
    check()
    return said[0] if said else None


def damaged(at: Path) -> str | None:
    """Entries of the cache that are not whole."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for path in (at / "objects").rglob("*"):
            if path.is_file() and path.suffix != ".tmp":  # what an interrupted writer may leave for an hour
                ObjectCache(at).get(path.name)
    return f"the cache: {[str(each.message) for each in caught]}" if caught else None
