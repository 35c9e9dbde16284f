"""What eight threads do at once to one library: each scenario checks every number that comes back.

`python -m tests.stress.scenarios SECONDS NAME...` runs them one after the other, each for so long and for one round at
least. A process that dies or hangs is seen by whoever has started it (`test_stress.py`, `run.py`).
"""

from __future__ import annotations

import faulthandler
import os
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numpy as np

import hybridml as hm
from hybridml import nn
from hybridml.functional import conv2d, dropout, softmax

THREADS = 8


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """Results of `work(k)` in eight threads that start together; their first error is raised."""
    start = threading.Barrier(THREADS)

    def run(k: int) -> Any:
        start.wait()
        return work(k)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def same(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-4, atol=1e-5)


def fresh(variant: int) -> Callable[[hm.Tensor], hm.Tensor]:
    """A function whose program no one has compiled: `variant` is a constant in it."""
    space: dict[str, Any] = {"hm": hm}
    exec(f"def f(x): return (hm.tanh(x) * {variant % 97 + 2} + hm.sin(x + {variant})).sum(axis=0)", space)
    found: Callable[[hm.Tensor], hm.Tensor] = space["f"]
    return found


def first_calls(round: int) -> None:
    """Functions that nobody has called: large results, products, convolutions."""
    rng = np.random.default_rng(round)
    large, square = hm.tensor(np.ones(1_100_000, "f")), hm.asarray(rng.standard_normal((96, 96), np.float32))
    images, filters = hm.ones((1, 4, 24, 24)), hm.ones((8, 4, 3, 3))
    wanted = [
        (large, lambda x: hm.tanh(x) * 2 + 1), (square, lambda x: hm.exp(x @ x * 0.01) + x),
        (images, lambda x: conv2d(x, filters, padding=1)), (square, lambda x: (x * 2).sort(axis=1)),
    ]  # fmt: skip
    functions = [(hm.trace(f), x, f(x).numpy()) for x, f in wanted]

    def work(k: int) -> None:
        for step in range(8):
            f, x, value = functions[(k * step) % len(functions) if step > 2 else 0]
            same(f(x).numpy(), value)

    at_once(work)


def retraces(round: int) -> None:
    """One function with shapes, dtypes and Python values that are new to it, and branches on values."""

    def eager(x: hm.Tensor, n: int, scale: float) -> hm.Tensor:
        y = x * scale + n
        return y.sum() if y.mean() > 3 else (y * y).sum()

    traced = hm.trace(eager)

    def work(k: int) -> None:
        rng = np.random.default_rng((round, k))
        for _ in range(8):
            x = hm.asarray(rng.standard_normal(int(rng.integers(1, 6))).astype(rng.choice(["f4", "f8"])))
            n, scale = int(rng.integers(0, 7)), float(rng.random())
            same(traced(x, n, scale).numpy(), eager(x, n, scale).numpy())

    at_once(work)


def eager_operations(round: int) -> None:
    """Operations on tensors that all threads read."""
    x = hm.asarray(np.random.default_rng(round).standard_normal((12, 12), np.float32))
    operations: list[Callable[[], hm.Tensor]] = [
        lambda: x + x * 2, lambda: x @ x, lambda: softmax(x, -1), lambda: x[3:, ::2].sum(0),
        lambda: hm.linalg.inv(x), lambda: hm.fft.fft(x).real, lambda: hm.einsum("ij,jk->ki", x, x), lambda: x.sort(),
        lambda: hm.grad(lambda y: (hm.sin(y) * y).sum())(x), lambda: hm.where(x > 0, x, -x).cumulative_sum(axis=0),
    ]  # fmt: skip
    wanted = [run().numpy() for run in operations]

    def work(k: int) -> None:
        for step in range(40):
            at = (k + step) % len(operations)
            np.testing.assert_array_equal(operations[at]().numpy(), wanted[at])

    at_once(work)


def gradients(round: int) -> None:
    """Gradients that meet in one leaf, eager, traced inside and traced outside."""
    w = hm.ones((3,), requires_grad=True)
    large = hm.ones((100_000,), requires_grad=True)
    product = hm.trace(lambda w, x: (w * x).sum())

    def traced_step(x: hm.Tensor) -> None:
        (w * x).sum().backward()

    inside, x, many = hm.trace(traced_step), hm.tensor([1.0, 2.0, 3.0]), 30

    def work(k: int) -> None:
        for _ in range(many):
            (w * x).sum().backward()
            inside(x)
            product(w, x).backward()
        for _ in range(3):
            (large * 2.0).sum().backward()

    at_once(work)
    assert w.grad is not None and large.grad is not None
    assert w.grad.tolist() == (np.array([1.0, 2.0, 3.0]) * 3 * many * THREADS).tolist(), w.grad
    assert float(large.grad.min()) == float(large.grad.max()) == 6.0 * THREADS


def random_numbers(round: int) -> None:
    """Numbers of one generator: nobody draws what another has drawn."""
    hm.manual_seed(round)
    x = hm.ones((256,))

    def asked() -> hm.Tensor:
        r = hm.rand((4,))
        return r + 1 if r[0] > 0.5 else r - 1

    draws: list[Callable[[], hm.Tensor]] = [
        lambda: hm.rand((4,)), lambda: dropout(x, 0.5), lambda: hm.rand((40_000,)), lambda: hm.random.bits((6,)),
        lambda: hm.random.gamma(2.0, shape=(4,)), hm.trace(lambda: hm.rand((5,))), hm.trace(asked),
        hm.trace(lambda: dropout(x, 0.25)),
    ]  # fmt: skip
    drawn = at_once(lambda k: [(at, draws[at]().numpy().tobytes()) for _ in range(12) for at in range(len(draws))])
    everything = [value for values in drawn for value in values]
    assert len(set(everything)) == len(everything), "numbers were drawn twice"


def checkpoints(round: int) -> None:
    """Functions that draw are computed again with the numbers of their first run, while others draw."""
    hm.manual_seed(round)
    loop, program = hm.trace(lambda x: x * hm.random.gamma(0.7, shape=(6,))), hm.trace(lambda x: dropout(x, 0.4))

    def part(x: hm.Tensor) -> hm.Tensor:
        return dropout(x, 0.5) * hm.rand((6,)) + program(x) + loop(x)

    def work(k: int) -> None:
        for _ in range(10):
            x = hm.ones((6,), requires_grad=True)
            y = hm.checkpoint(part, x)
            hm.rand((3,))
            (g,) = hm.autograd.grad(y.sum(), x)
            assert g is not None
            same(g.numpy(), y.detach().numpy())

    at_once(work)


def _trained(seed: int, traced: bool) -> list[Any]:
    rng = np.random.default_rng(seed)
    weight = nn.Parameter(hm.asarray(rng.standard_normal((6, 3), np.float32)))
    optimizer = hm.optim.Adam([weight], lr=0.05)

    def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = ((x @ weight - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run = hm.trace(step) if traced else step
    for _ in range(6):
        run(hm.asarray(rng.standard_normal((5, 6), np.float32)), hm.ones((5, 3)))
    return weight.tolist()


def optimizers(round: int) -> None:
    """A model and an optimizer in each thread, all made and traced at the same time."""
    wanted = [_trained(seed, traced=False) for seed in range(THREADS)]
    for k, got in enumerate(at_once(lambda k: _trained(k, traced=bool((k + round) % 2)))):
        same(got, wanted[k])


def saves_and_loads(round: int) -> None:
    """One file that all threads write and read: what is read is what somebody has written, whole."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        hm.save({"w": hm.full((5000,), 0.0), "k": hm.tensor(0)}, path)

        def work(k: int) -> None:
            for _ in range(4):
                hm.save({"w": hm.full((5000,), float(k)), "k": hm.tensor(k)}, path)
                found = hm.load(path)
                assert (found["w"] == float(found["k"])).all()

        at_once(work)
        assert [p.name for p in path.parent.iterdir()] == ["checkpoint"]


def settings(round: int) -> None:
    """The number of threads changes while programs run; modes of one thread are none of another's business."""
    x = hm.ones((300_000,))
    f = hm.trace(lambda x: (hm.exp(x) * 2).sum())
    wanted, before = float(f(x)), hm.get_num_threads()

    def work(k: int) -> None:
        for step in range(12):
            if k == 0:
                hm.set_num_threads(1 + step % 3)
            elif k % 2:
                with hm.no_grad():
                    assert not hm.is_grad_enabled()
                    same(f(x).numpy(), wanted)
            else:
                assert hm.is_grad_enabled()
                same(f(x).numpy(), wanted)

    try:
        at_once(work)
    finally:
        hm.set_num_threads(before)


def forks(round: int) -> None:
    """Children that compile, draw and take gradients, forked while other threads do."""
    if not hasattr(os, "fork"):
        return
    over, children, x = threading.Event(), [], hm.ones((7, 5))
    shared = hm.trace(fresh(round))

    def compile_on(k: int) -> None:
        w = hm.ones((5,), requires_grad=True)
        for step in range(10_000):
            if over.is_set():
                return
            hm.trace(fresh(1000 * round + 100 * k + step))(x)
            shared(hm.ones((k + 2, step % 9 + 2)))
            (w * hm.rand((5,))).sum().backward()

    with tempfile.TemporaryFile("w+") as said, ThreadPoolExecutor(3) as pool:
        working = [pool.submit(compile_on, k) for k in range(3)]
        try:
            for k in range(4):
                time.sleep(0.02)
                with warnings.catch_warnings():  # Python 3.12 says that this may deadlock, which is what is looked at
                    warnings.simplefilter("ignore", DeprecationWarning)
                    pid = os.fork()
                if not pid:
                    _child(shared, fresh(-1000 * round - k), said)
                children.append(pid)
            for pid in children:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                assert code == 0, f"a forked child ended with {code}: {_head(said)}"
        finally:
            over.set()
        for work in working:
            work.result()


def _head(said: IO[str]) -> str:
    """The text of a child, cut so that a log has room for it: a hang begins with the inner frames, an error ends so."""
    said.seek(0)
    text = said.read()
    return text if len(text) < 4000 else f"{text[:2000]}\n...\n{text[-2000:]}"


def _child(shared: Callable[..., Any], new: Callable[..., Any], said: IO[str]) -> None:
    """What a forked child does; it is killed where it hangs."""
    faulthandler.dump_traceback_later(30, exit=True, file=said)
    try:
        x = hm.ones((7, 5))
        w = hm.ones((5,), requires_grad=True)
        for traced, eager in ((hm.trace(new), new), (shared, getattr(shared, "__wrapped__", shared))):
            for _ in range(3):
                same(traced(x).numpy(), eager(x).numpy())
        hm.rand((40_000,))
        (w * 2.0).sum().backward()
        assert w.grad is not None and w.grad.tolist() == [2.0] * 5
    except BaseException:
        traceback.print_exc(file=said)
        said.flush()
        os._exit(1)
    os._exit(0)


SCENARIOS: dict[str, Callable[[int], None]] = {
    scenario.__name__: scenario
    for scenario in (
        first_calls, retraces, eager_operations, gradients, random_numbers, checkpoints, optimizers, saves_and_loads,
        settings, forks,
    )
}  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    faulthandler.enable()
    warnings.filterwarnings("ignore", "hybridml: .*", RuntimeWarning)  # of functions that have come to run eagerly
    seconds, names = float(arguments[0]), arguments[1:]
    for name in names or SCENARIOS:
        end, round = time.monotonic() + seconds, os.getpid()
        while True:
            SCENARIOS[name](round)
            round += 1
            if time.monotonic() >= end:
                break
        print(name, "held for", round - os.getpid(), "rounds", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
