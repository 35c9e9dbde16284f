"""Random programs of lines that update numbers, and of lines that read at positions, beside their eager runs."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import hybridml as hm

UPDATES = """
box.n += 1|box.n -= 2|box.n = box.n * 2|box.n = -box.n|box.n //= 2|box.n = abs(box.n)|box.n, box.m = box.m, box.n
box.m = box.n|box.t += x.sum().item()|box.t = box.t * 0.5|box.t /= 2|box.t = max(box.t, x.sum().item())
box.t = float(box.n)|box.t += box.n|box.n = int(box.t)|box.n = round(box.t)|box.n += x.shape[0]
kept = box.n; box.n = 5; y = y * kept|box.flag = box.n > 2|box.text = f"{box.n}"|box.pair = (box.n, box.t)
y = y + box.pair[0]|box.x = x * box.n; y = y + box.x.sum()|box.bump()|log["a"] += 1|log["b"] = x.mean().item()
log["a"] = box.n|box.n = log["a"] + 1|log["new"] = box.t|y = y + log["a"]|y = y + len(dict(log))
y = y + log.get("a", 0)|seen.append(box.n)|seen.append(box.t)|local += 1; y = y * local|local = local + box.n
slotted.n += 1; y = y + slotted.n|if x.sum() > 0: box.n += 1|if box.n > 3: y = y + 1|if log["a"] == 3: box.n = 0
y = y * box.n|y = y + box.t|for k in range(2): box.n += k|y = y * (box.n and 2)
"""
POSITIONS = """
y = y + x[n].sum()|y = y + x[:n].sum(0)|y = y * x[n - 1]|x[n] = 1.0|x[:n] = x[:n] * 2|y = y + n|y = y * (n + m)
y = y + x[n:m].sum(0)|y = y + x[m]|y = y + hm.arange(n).sum()|y = y + hm.zeros((n, 8)).sum(0)|if n > 4: y = y - 1
if n == m: y = y * 3|for k in range(min(n, 3)): y = y + x[k]|y = y + x[n:].sum(0)|y = y + x[-n].sum()
z = x[: n + 1]; y = y + (z @ z.T).sum()|y = y + hm.concat([x[:n], x[:m]], 0).sum(0)|y = y + x[n % 4]
y = y + x[n // 2]|seen.append(n)|y = y + table.get(n, 0.5)|y = y + (n in (3, 4))|y = y + x[:, : n % 8 + 1].sum()
y = y + len(x[:n])|y = y + hm.roll(x, n, 0)[0]|y = y + float(n)|y = y + max(n, m)
"""
MAKE = """
class Slotted:
    __slots__ = ("n",)
class Box:
    def __init__(self):
        self.n, self.m, self.t, self.text, self.flag, self.pair, self.x = 0, 3, 0.5, "", False, (1, 2.0), None
    def bump(self):
        self.n += 3
def make():
    box, slotted, log, seen, local, table = Box(), Slotted(), {{"a": 0, "b": 0.0}}, [], 0, {{3: 1.0, 5: 2.0}}
    slotted.n = 0
    def f(x, n=0, m=0):
        nonlocal local
        y = x[0] * 1.0
{body}
        return y, {returned}
    return f, lambda: (vars(box), slotted.n, log, seen, local)
"""


def plain(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return [plain(part) for part in found]
    if isinstance(found, dict):
        return [(key, plain(value)) for key, value in found.items()]
    return (
        np.round(found.numpy().astype("f8"), 2).tolist() if isinstance(found, hm.Tensor) else (type(found), repr(found))
    )


def run(source: str, style: Callable[[Any], Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Results or errors of calls, each with the state that it leaves."""
    names: dict[str, Any] = {"hm": hm, "__name__": "program"}
    exec(compile(source, "<program>", "exec"), names)
    fn, state = names["make"]()
    call, results = style(fn), []
    for values, *places in calls:
        x = hm.tensor(values)
        try:
            found = plain(call(x, *places))
        except Exception as error:
            found = type(error), str(error).splitlines()[0]
        results.append((found, plain(x), plain(state())))
    return results


@pytest.mark.parametrize("seed", range(40))
def test_updates(seed: int, trace: Any) -> None:
    rng = random.Random(seed)
    lines = rng.choices(UPDATES.strip().replace("\n", "|").split("|"), k=rng.randint(2, 6))
    calls = [([[rng.choice([-1.0, 2.0, 0.5]), rng.choice([1.0, -3.0])]],) for _ in range(6)]
    check(lines, "box.n", calls, trace)


@pytest.mark.parametrize("seed", range(40))
def test_positions(seed: int, trace: Any) -> None:
    rng = random.Random(seed)
    lines = rng.choices(POSITIONS.strip().replace("\n", "|").split("|"), k=rng.randint(1, 4))
    places: Sequence[int] = rng.choice([range(16), range(3, 12), [3, 4, 5, -1, 16, 6], [5, 5, 6, 7]])
    values = np.random.default_rng(0).integers(-3, 4, (16, 8)).astype("f4")
    calls = [(values, rng.choice(places), rng.choice(places)) for _ in range(9)]
    check(lines, rng.choice(["n", "n + 1", "x[:n]", "(n, m)", "n * 2.0", "{n: 1}"]), calls, trace)


def check(lines: Sequence[str], returned: str, calls: Sequence[tuple[Any, ...]], trace: Any) -> None:
    source = MAKE.format(body="\n".join(f"        {line}" for line in lines), returned=returned)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for found, expected in zip(run(source, trace, calls), run(source, lambda f: f, calls), strict=True):
            assert found == expected, lines
