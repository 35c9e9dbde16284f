"""Training steps as users of PyTorch and JAX write them, with all that stands around the tensors: counters, logs,
clocks, schedules, containers. Traced, each does what it does eagerly, from few programs."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import math
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn

STEPS = 9


class Program:
    """A model with its optimizer, and the state that `step` keeps beside them."""

    programs = 1  # that its steps may need
    silent = True  # all of them stay compiled

    def __init__(self) -> None:
        hm.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = hm.optim.Adam(self.model.parameters(), lr=0.01)
        self.count, self.seen = 0, []  # type: int, list[Any]
        self.setup()

    def setup(self) -> None:
        """Makes what a program has beside the model."""

    def step(self, x: hm.Tensor, y: hm.Tensor) -> Any:
        return self.train(x, y)

    def train(self, x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss

    def loss(self, x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        return hm.functional.mse_loss(self.model(x), y)

    def state(self) -> Any:
        """The Python state of the program afterwards, beside parameters and results."""
        return self.count, self.seen


class Counter(Program):
    def step(self, x: Any, y: Any) -> Any:
        self.count += 1
        return self.train(x, y) / self.count


class Accumulation(Program):
    """Every fourth step updates; the first one finds no gradients."""

    programs = 3

    def step(self, x: Any, y: Any) -> Any:
        self.count += 1
        loss = self.loss(x, y) / 4
        loss.backward()
        if self.count % 4 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss


class LogsEveryThird(Program):
    programs = 2

    def step(self, x: Any, y: Any) -> Any:
        loss = self.train(x, y)
        self.count += 1
        if self.count % 3 == 0:
            self.seen.append(loss.item())
        return loss


class Phases(Program):
    """Comparisons of a count, and of what is computed from it."""

    programs = 4

    def step(self, x: Any, y: Any) -> Any:
        self.count += 1
        scale = 0.5 if self.count <= 3 else 1.0
        if not (self.count - 1) // 5 and -self.count != -2:
            scale *= 2
        return self.train(x * scale, y)


class WarmUp(Program):
    programs = 2

    def step(self, x: Any, y: Any) -> Any:
        self.count += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 0.01 * min(1.0, self.count / 5)
        return self.train(x, y)


class Schedule(Program):
    def setup(self) -> None:
        self.schedule = hm.optim.StepLR(self.optimizer, 2, 0.5)

    def step(self, x: Any, y: Any) -> Any:
        loss = self.train(x, y)
        self.schedule.step()
        return loss


class Average(Program):
    """A moving average of the weights."""

    def setup(self) -> None:
        self.average = [p.detach().clone() for p in self.model.parameters()]

    def step(self, x: Any, y: Any) -> Any:
        loss = self.train(x, y)
        with hm.no_grad():
            for average, p in zip(self.average, self.model.parameters(), strict=True):
                average.mul_(0.9).add_(0.1 * p)
        return loss

    def state(self) -> Any:
        return [average.tolist() for average in self.average]


class Clocks(Program):
    def setup(self) -> None:
        self.last, self.rate = time.perf_counter(), 0.0

    def step(self, x: Any, y: Any) -> Any:
        start = time.time()
        loss = self.train(x, y)
        now = time.perf_counter()
        self.rate = len(x) / (now - self.last)
        self.last = now
        self.seen.append(time.time() - start)
        return loss

    def state(self) -> Any:
        return self.rate > 0, [0 <= took < 3600 for took in self.seen]


class Prints(Program):
    def step(self, x: Any, y: Any) -> Any:
        loss = self.train(x, y)
        self.count += 1
        print("step", self.count, "loss", loss.item())
        return loss


class Running(Program):
    """Floats that are updated: a mean, and the best loss so far."""

    def setup(self) -> None:
        self.mean, self.best = 0.0, float("inf")

    def step(self, x: Any, y: Any) -> Any:
        loss = self.train(x, y)
        self.mean = 0.9 * self.mean + 0.1 * loss.item()
        self.best = min(self.best, loss.item())
        return loss

    def state(self) -> Any:
        return self.mean, self.best


class Batch(NamedTuple):
    x: Any
    y: Any


class Named(Program):
    def step(self, x: Any, y: Any) -> Any:
        batch = Batch(x, y)
        return Batch(self.train(batch.x, batch.y), batch.y.mean())


@dataclasses.dataclass
class Report:
    loss: Any
    size: int


class Dataclass(Program):
    def step(self, x: Any, y: Any) -> Any:
        return dataclasses.astuple(Report(self.train(x, y).item(), len(x)))


class Keywords(Program):
    def step(self, x: Any, y: Any) -> Any:
        return {"loss": self.inner(**{"inputs": x, "targets": y})}

    def inner(self, **batch: Any) -> Any:
        return self.train(batch["inputs"], batch["targets"])


class Returns(Program):
    def step(self, x: Any, y: Any) -> Any:
        if x.shape[0] == 0:
            return None
        if self.model is None:
            return x.sum()
        return self.train(x, y)


class Tries(Program):
    def setup(self) -> None:
        self.targets: dict[str, Any] = {}

    def step(self, x: Any, y: Any) -> Any:
        try:
            return self.train(x, self.targets["missing"])
        except KeyError:
            return self.train(x, y)


class Generates(Program):
    def step(self, x: Any, y: Any) -> Any:
        def losses() -> Iterator[Any]:
            for i in range(0, 8, 2):
                yield self.loss(x[i : i + 2], y[i : i + 2])

        self.optimizer.zero_grad()
        loss = sum(losses(), hm.tensor(0.0))
        loss.backward()
        self.optimizer.step()
        return loss


class Layers(Program):
    def loss(self, x: Any, y: Any) -> Any:
        for i, (layer, scale) in enumerate(zip(self.model, [1.0, 2.0, 0.5], strict=True)):
            x = layer(x) * scale if i != 1 else layer(x)
        return (x - y).square().mean()


class Clips(Program):
    def step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss, norm


class Closure(Program):
    def setup(self) -> None:
        model, optimizer, total = self.model, self.optimizer, 0

        def step(x: Any, y: Any) -> Any:
            nonlocal total
            total += 1
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss, total

        self.step = step  # type: ignore[method-assign]


class Counts(Program):
    """Right predictions among all."""

    programs = 3

    def setup(self) -> None:
        self.right, self.total = 0, 0

    def step(self, x: Any, y: Any) -> Any:
        self.right += ((self.model(x) > 0) == (y > 0)).sum().item()
        self.total += y.shape[0]
        return self.train(x, y)

    def state(self) -> Any:
        return self.right, self.total


class Formats(Program):
    def step(self, x: Any, y: Any) -> Any:
        loss = self.train(x, y)
        self.count += 1
        print(f"loss {loss.item():.2f}")
        self.seen.append(f"step {self.count}: {loss:.1f}")
        return loss


class Switches(Program):
    programs = 2  # before the first call it was training

    def step(self, x: Any, y: Any) -> Any:
        self.model.train()
        try:
            return self.train(x, y)
        finally:
            self.model.eval()


class Window(Program):
    def setup(self) -> None:
        self.last: collections.deque[float] = collections.deque(maxlen=3)

    def step(self, x: Any, y: Any) -> Any:
        loss = self.train(x, y)
        self.last.append(loss.item())
        return loss

    def state(self) -> Any:
        return list(self.last)


class Totals(Program):
    programs = 2  # the first call adds keys

    def setup(self) -> None:
        self.totals = collections.Counter[str]()
        self.log: dict[str, Any] = {"n": 0, "losses": []}
        self.history = collections.defaultdict[str, list[Any]](list)

    def step(self, x: Any, y: Any) -> Any:
        loss = self.train(x, y)
        self.totals["steps"] += 1
        self.log["n"] += 1
        self.log["losses"].append(loss.item())
        self.log.setdefault("tensors", []).append(loss.detach())
        for name in ("a", "b"):
            self.history[name].append(loss.item())
        self.history["c"] += [loss.item(), len(x)]
        return loss

    def state(self) -> Any:
        return dict(self.totals), self.log, dict(self.history)


class Metrics(Program):
    """Entries that every step assigns, from a helper."""

    def setup(self) -> None:
        self.metrics: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []

    def record(self, **values: Any) -> None:
        self.metrics.update(values)
        for name, value in values.items():
            self.metrics[f"last {name}"] = value
        self.rows.append({**values, "text": f"{values['loss']:.2f}"})

    def step(self, x: Any, y: Any) -> Any:
        loss = self.train(x, y)
        self.record(loss=loss.item(), size=len(x))
        return loss

    def state(self) -> Any:
        return self.metrics, self.rows


class Cosine(Program):
    """A schedule by hand."""

    programs = 3  # warm-up, then cosine

    def step(self, x: Any, y: Any) -> Any:
        self.count += 1
        rate = 0.01 * min(self.count**-0.5, self.count * 4**-1.5)
        rate *= 0.5 * (1 + math.cos(math.pi * self.count / 100)) * math.exp(-abs(self.count - 5) / 10)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        epoch, batch = divmod(self.count, 4)
        self.seen.append(round(math.exp(self.train(x, y).item()), 3))
        return epoch + batch / 4, math.log(self.count, 2), math.sqrt(self.count), round(rate, 5)


class Inherited(Program):
    """A counter that starts in the class."""

    programs = 2
    steps = 0

    def step(self, x: Any, y: Any) -> Any:
        self.steps += 1
        return self.train(x, y) / self.steps

    def state(self) -> Any:
        return self.steps


class Best(Program):
    """The best weights so far, and whether the last step gave them."""

    programs = 6

    def setup(self) -> None:
        self.best, self.weights, self.improved = float("inf"), {}, None  # type: float, dict[str, Any], bool | None

    def step(self, x: Any, y: Any) -> Any:
        loss = self.train(x, y)
        self.improved = False
        if loss.item() < self.best:
            self.best, self.improved = loss.item(), True
            self.weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        return loss

    def state(self) -> Any:
        return self.best, self.weights, self.improved


def close(got: Any, want: Any) -> None:
    for a, b in zip(hm.tree_leaves(got), hm.tree_leaves(want), strict=True):
        if isinstance(b, float | hm.Tensor | np.ndarray):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-6)
        else:
            assert a == b


@pytest.mark.parametrize("program", Program.__subclasses__(), ids=lambda program: str(program.__name__))
def test_steps_do_what_they_do_eagerly(program: type[Program]) -> None:
    rng = np.random.default_rng(0)
    x, y = (hm.tensor(rng.normal(size=(8, n)).astype(np.float32)) for n in (4, 1))
    found = []
    for traced in (False, True):
        made, out = program(), io.StringIO()
        step: Any = hm.trace(made.step) if traced else made.step
        with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(out):
            warnings.simplefilter("always")
            results = [hm.tree_map(lambda t: t.detach() if isinstance(t, hm.Tensor) else t, step(x, y))
                       for _ in range(STEPS)]  # fmt: skip
        parameters = [p.detach().numpy().copy() for p in made.model.parameters()]
        found.append((results, parameters, made.state(), made.count))
        printed = len(out.getvalue().split())
        assert printed == STEPS * {Prints: 4, Formats: 2}.get(program, 0)
        if traced and program.silent:
            assert not warned, [str(warning.message) for warning in warned]
            assert step.cache_info().compiles <= program.programs
    close(found[1], found[0])
