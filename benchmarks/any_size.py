"""Sequences and arrays of many lengths, each met once an epoch: what a program for any size is worth.

    python -m benchmarks.any_size                       hybridml in this interpreter, peers if they are here
    python -m benchmarks.any_size --peers PYTHON        peers in another one
    python -m benchmarks.any_size --json FILE

`lstm` is a training step of an `LSTMCell`, called in a Python loop over the steps of a sequence, with Adam, on batches
of 8 sequences; JAX's is `lax.scan` under `jit`, torch's the same Python, also under `torch.compile`. `filter` is a loop
over the elements of a NumPy array. An epoch has each of 24 lengths once, from 20 to 480. Every candidate runs in
processes of its own with empty caches, in turns; shown are medians and extremes over rounds of the seconds of the
first epoch, which compiles, and of the third.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

LENGTHS = [20 * k for k in range(1, 25)]
BATCH, INPUTS, WIDTH, EPOCHS = 8, 32, 64, 3
CANDIDATES = {
    "lstm": ("hybridml eager", "hybridml traced", "torch", "torch.compile", "jax"),
    "filter": ("python", "hybridml traced", "numba"),
}
_OURS = ("hybridml eager", "hybridml traced", "python")


def _batches() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    lengths = rng.permutation(LENGTHS)
    return [(rng.standard_normal((n, BATCH, INPUTS), np.float32), rng.integers(0, 10, BATCH)) for n in lengths]


def _lstm(who: str) -> Callable[[Any, Any], Any]:
    if who == "jax":
        return _lstm_in_jax()
    fm: Any = import_module("torch" if who.startswith("torch") else "hybridml")
    if who.startswith("torch"):
        fm.set_num_threads(2)
    cell, head = fm.nn.LSTMCell(INPUTS, WIDTH), fm.nn.Linear(WIDTH, 10)
    optimizer = fm.optim.Adam([*cell.parameters(), *head.parameters()], 1e-3)

    def loss_of(x: Any, y: Any) -> Any:
        h = c = fm.zeros((x.shape[1], WIDTH))
        for t in range(x.shape[0]):
            h, c = cell(x[t], (h, c))
        return fm.nn.functional.cross_entropy(head(h), y)

    compute = fm.compile(loss_of) if who == "torch.compile" else loss_of

    def train(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = compute(x, y)
        loss.backward()
        optimizer.step()
        return loss

    step = fm.trace(train) if who == "hybridml traced" else train
    return lambda x, y: step(fm.from_numpy(x), fm.from_numpy(y)).item()


def _lstm_in_jax() -> Callable[[Any, Any], Any]:
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(1)
    shapes = {"wi": (INPUTS, 4 * WIDTH), "wh": (WIDTH, 4 * WIDTH), "b": (4 * WIDTH,), "o": (WIDTH, 10), "c": (10,)}
    weights = {name: jnp.asarray(rng.uniform(-0.1, 0.1, shape), jnp.float32) for name, shape in shapes.items()}
    moments = {name: (jnp.zeros_like(w), jnp.zeros_like(w)) for name, w in weights.items()}

    def loss_of(w: Any, x: Any, y: Any) -> Any:
        def cell(state: Any, given: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(given @ w["wi"] + h @ w["wh"] + w["b"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((x.shape[1], WIDTH))
        (h, _), _ = jax.lax.scan(cell, (zeros, zeros), x)
        scores = jax.nn.log_softmax(h @ w["o"] + w["c"])
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    @jax.jit
    def step(state: Any, x: Any, y: Any) -> Any:
        w, held, count = state
        loss, grads = jax.value_and_grad(loss_of)(w, x, y)
        new, kept = {}, {}
        for name, g in grads.items():
            m, v = 0.9 * held[name][0] + 0.1 * g, 0.999 * held[name][1] + 0.001 * g * g
            root = jnp.sqrt(v / (1 - 0.999**count)) + 1e-8
            new[name], kept[name] = w[name] - 1e-3 * m / (1 - 0.9**count) / root, (m, v)
        return loss, (new, kept, count + 1)

    state = [(weights, moments, 1.0)]

    def call(x: Any, y: Any) -> float:
        loss, state[0] = step(state[0], x, y)
        return float(loss)

    return call


def _filtered(x: Any) -> Any:
    y = np.zeros(len(x))
    level = 0.0
    for i in range(len(x)):
        level = 0.9 * level + 0.1 * x[i]
        y[i] = level
    return y


def _filter(who: str) -> Callable[[Any], Any]:
    if who == "numba":
        import numba

        return numba.njit(_filtered)  # type: ignore[no-any-return]
    if who == "python":
        return _filtered
    import hybridml as hm

    return hm.trace(_filtered)


def measured(workload: str, who: str) -> dict[str, float]:
    """Seconds of the first epoch and of the last one, of one candidate in this process."""
    if workload == "lstm":
        call: Callable[..., Any] = _lstm(who)
        given: Sequence[Any] = _batches()
    else:
        call, rng = _filter(who), np.random.default_rng(0)
        given = [(rng.random(50 * n),) for n in rng.permutation(LENGTHS)]
    seconds = []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for args in given:
            call(*args)
        seconds.append(time.perf_counter() - start)
    return {"first": seconds[0], "last": seconds[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="the interpreter that has the peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds that one run may take")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(*options.one)))
        return
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for workload, candidates in CANDIDATES.items():
        results = found[workload] = {who: [] for who in candidates}
        for who in [*candidates] * options.rounds:
            python = sys.executable if who in _OURS else options.peers
            with TemporaryDirectory() as cache:
                places = {"HYBRIDML_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache, "NUMBA_CACHE_DIR": cache}
                command = [python, "-m", "benchmarks.any_size", "--one", workload, who]
                try:
                    run = subprocess.run(
                        command, capture_output=True, text=True, check=False, timeout=options.patience,
                        env={**os.environ, **places},
                    )  # fmt: skip
                except subprocess.TimeoutExpired:
                    continue
            if run.returncode == 0:
                results[who].append(json.loads(run.stdout.splitlines()[-1]))
    for workload, results in found.items():
        print(f"{workload:24}{'first epoch':>32}{'third epoch':>32}")
        for who, runs in results.items():
            cells = [_cell([run[key] for run in runs]) for key in ("first", "last")] if runs else ["-", "-"]
            print(f"{who:24}" + "".join(f"{cell:>32}" for cell in cells))
    if options.json:
        words = " ".join(
            ["python -m benchmarks.any_size", f"--rounds {options.rounds} --patience {options.patience:g}"]
        )
        options.json.write_text(json.dumps({"command": words, "results": found}, indent=1) + "\n")


def _cell(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.3g} s ({min(seconds):.3g} to {max(seconds):.3g})"


if __name__ == "__main__":
    main()
