"""Programs of a GPU on disk: what is found runs as what was made, in the same process and in others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import pipeline
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.text import parse_graph
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.runtime import cache
from hybridml_compiler.targets.cuda import stored
from hybridml_compiler.targets.cuda.contraction import library_convolution
from tests.support.cuda import needs_nvrtc

pytestmark = needs_nvrtc
SIMULATED = "cuda:sim"


def x() -> hm.Tensor:
    return hm.asarray(np.linspace(-1, 1, 400, dtype="f4").reshape(20, 20)).to(SIMULATED)


def trained(t: hm.Tensor) -> Any:
    w = (t * 0.1).detach().requires_grad_()
    loss = (hm.functional.gelu(t @ w) ** 2).mean()
    loss.backward()
    return loss, w.grad


def looped(t: hm.Tensor) -> Any:
    total, ys = hm.scan(lambda c, row: (c + row, c * row), t[0], t)
    return hm.cond(total.sum() > 0, lambda a: a + 1, lambda a: a - 1, total), ys


def counted(t: hm.Tensor) -> Any:
    return hm.while_loop(lambda a: (a < 30).all(), lambda a: a * 2 + 1, t + 2)


def by_numpy(t: hm.Tensor) -> Any:
    return hm.sort(t, axis=0), hm.linalg.qr(t + 3 * hm.eye(20, device=SIMULATED))[1]


def narrow(t: hm.Tensor) -> Any:
    return (t.to(hm.bfloat16) @ t.to(hm.bfloat16)).to(hm.float32), t.to(hm.float64) @ t.to(hm.float64)


def several(t: hm.Tensor) -> Any:
    q = hm.concatenate([t, t[:12]]).reshape(1, 2, 16, 20)
    image = hm.concatenate([t, t], axis=1).reshape(1, 2, 20, 20)
    return (
        hm.functional.scaled_dot_product_attention(q, q, q),
        hm.functional.conv2d(image, image[:, :, :3, :3]),
        hm.take(t, hm.asarray([3, 1, 2], device=SIMULATED), axis=0),
        hm.functional.softmax(t, -1) + hm.asarray(np.arange(20, dtype="f4"), device=SIMULATED),
        hm.rand(20, 20, device=SIMULATED),
    )


def scattered(t: hm.Tensor) -> Any:
    rows = hm.asarray(np.arange(40) % 7, device=SIMULATED)
    return hm.grad(lambda x: (hm.take(x, rows, axis=0) ** 2).sum())(t), hm.bincount(rows, minlength=7)


def by_library(t: hm.Tensor) -> Any:
    """A convolution whose weights are reversed, and then copied for the library; and a long sum in parts."""
    image, weights = t.reshape(1, 4, 10, 10), t[:1, :18].reshape(1, 2, 3, 3)
    long = hm.concatenate([t.reshape(1, 400)] * 3, axis=1)
    y = hm.functional.conv2d(image, hm.concatenate([weights, weights], axis=1).flip((2, 3)))
    return y, hm.relu(long @ long.mT)


@pytest.mark.parametrize("program", [trained, looped, counted, by_numpy, narrow, several, scattered, by_library])
def test_a_program_that_is_found_is_the_one_that_was_made(
    program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_convolution, "_LIBRARY_FLOPS", 0)

    def run() -> tuple[Any, list[Any]]:
        hm.manual_seed(0)
        f = hm.trace(program, dynamic=False)
        found = [[a.cpu().tolist() for a in hm.tree_leaves(f(x()))] for _ in range(3)]
        return f, found

    _, made = run()

    def planned(*_: Any, **__: Any) -> Any:
        raise AssertionError("a program that is on disk is planned again")

    with monkeypatch.context() as patch:
        patch.setattr("hybridml_compiler.schedule.plan.make_plan", planned)
        f, found = run()
    assert found == made and "the whole program was in the cache" in str(f.explain())
    assert "__global__" in f.llvm  # for whoever looks


@pytest.mark.usefixtures("source_lines")
def test_an_index_out_of_range_has_its_line() -> None:
    def program(t: hm.Tensor, at: hm.Tensor) -> hm.Tensor:
        return hm.take(t, at, axis=0)  # here

    for _ in range(2):
        f = hm.trace(program)
        good, bad = (hm.asarray([1, n], device=SIMULATED) for n in (2, 20))
        assert f(x(), good).shape == (2, 20)
        with pytest.raises(IndexError, match="index 20 is out of range") as error:
            f(x(), bad).tolist()
        assert "# here" in str(error.value)


def entries(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The programs that are kept from here on, by their keys."""
    found: dict[str, bytes] = {}

    def put(name: str, data: bytes) -> None:
        found[name] = data
        before(name, data)

    before = cache.put
    monkeypatch.setattr(stored.cache, "put", put)
    return found


GRAPH = """graph f(%0: f32[37]@cuda:sim) {
  %1 = tanh(%0) : f32[37]@cuda:sim
  %2 = const 0.625 : f32[]@cuda:sim
  %3 = multiply(%1, %2) : f32[37]@cuda:sim
  return %3
}"""


@pytest.mark.parametrize("damaged", [b"", b"no pickle", b"\x80\x05K\x07."])
def test_what_cannot_be_read_is_made_again(damaged: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = entries(monkeypatch)
    monkeypatch.setattr(stored.cache, "get", lambda name: damaged if name in kept else None)
    for _ in range(2):
        executable = pipeline.compile(parse_graph(GRAPH))
        assert "kernels were in the cache" in executable.stats.reused and kept


@pytest.mark.parametrize(("largest", "times"), [(400, 1), (399, 0)])
def test_large_constants_are_not_kept(largest: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = entries(monkeypatch)
    monkeypatch.setattr(stored, "LARGEST", largest)
    given = ir.input_node(Aval((100,), np.dtype("f4"), device=SIMULATED))
    numbers = ir.constant(np.random.default_rng(largest).random(100, "f4"), device=SIMULATED)
    pipeline.compile(ir.Graph((given,), (ir.apply(OPS["add"], [given, numbers]),), "large"))
    assert sum(data.startswith(b"\x80") for data in kept.values()) == times


SCRIPT = """
import sys, hybridml as hm
hm.manual_seed(0)
with hm.device("cuda:sim"):
    net = hm.nn.Sequential(hm.nn.Linear(8, 16), hm.nn.LayerNorm(16), hm.nn.GELU(), hm.nn.Linear(16, 2))
    optimizer = hm.optim.AdamW(net.parameters(), lr=0.01)
    x = hm.randn(6, 8)

    @hm.trace
    def step(x):
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    print([step(x).item() for _ in range(3)])
    print("planned" if "hybridml_compiler.schedule.fusion.fuse" in sys.modules else "found")
"""


def test_other_processes_find_it(tmp_path: Any) -> None:
    def run(seed: str) -> list[str]:
        environment = {
            "PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": ":".join(sys.path), "HYBRIDML_CACHE_DIR": str(tmp_path)
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment, timeout=300
        )
        return done.stdout.splitlines()

    (losses, how), (again, then) = run("1"), run("2")
    assert losses == again and (how, then) == ("planned", "found")
