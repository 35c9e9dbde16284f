"""Processes that share parameters: none of what they write to different ones is lost."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.distributed import servers
from hybridml_compiler.errors import ArgumentError

X = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)


def momentum(params: Any) -> Any:
    return hm.optim.SGD(params, lr=0.05, momentum=0.9)


def towers() -> Any:
    """Two networks, of which each process trains one."""
    hm.manual_seed(0)
    return hm.nn.ModuleList([hm.nn.Sequential(hm.nn.Linear(4, 3), hm.nn.Tanh(), hm.nn.Linear(3, 1)) for _ in range(2)])


def loss_of(traced: bool) -> Any:
    def program(tower: Any, x: Any) -> Any:
        return ((tower(x) - x.sum(1, keepdims=True)) ** 2).mean()

    run = hm.trace(program) if traced else program
    return lambda model, step, rank: run(model[rank], hm.asarray(X[4 * (step % 16) : 4 * (step % 16) + 4]))


@pytest.mark.parametrize("traced", [False, True])
def test_processes_with_parameters_of_their_own_train_as_if_alone(traced: bool) -> None:
    model, wanted, loss = towers(), towers(), loss_of(traced)
    kept = model[0][0].weight.detach()
    loss(model, 0, 0).backward()  # a program that knows where the parameters were
    losses = servers.hogwild(model, loss, momentum, processes=2, steps=40)
    for rank in range(2):
        optimizer = momentum(wanted[rank].parameters())
        for step in range(40):
            optimizer.zero_grad()
            found = loss(wanted, step, rank)
            found.backward()
            optimizer.step()
            assert losses[rank][step] == float(found)
    for got, expected in zip(model.parameters(), wanted.parameters(), strict=True):
        np.testing.assert_array_equal(got.detach().numpy(), expected.detach().numpy())
    np.testing.assert_array_equal(kept.numpy(), model[0][0].weight.detach().numpy())  # written where it was
    assert float(loss(model, 0, 0)) == float(loss(wanted, 0, 0))


def test_processes_see_what_the_others_write() -> None:
    """Each process waits for a number that the other one writes, and could not end without it."""
    model = hm.nn.ParameterList([hm.nn.Parameter(hm.zeros((1,))) for _ in range(2)])

    def loss(model: Any, step: int, rank: int) -> Any:
        end = time.monotonic() + 20
        while float(model[1 - rank]) < step - 1:
            assert time.monotonic() < end
        return -model[rank].sum()

    servers.hogwild(model, loss, lambda params: hm.optim.SGD(params, lr=1.0), processes=2, steps=20)
    assert [float(p) for p in model] == [20.0, 20.0]


@pytest.mark.parametrize("traced", [False, True])
def test_parameters_that_all_write_are_trained(traced: bool) -> None:
    """Least squares that have a solution: every update leads towards it, whichever of them are lost."""

    def program(model: Any, x: Any) -> Any:
        return ((model(x) - x.sum(1, keepdims=True)) ** 2).mean()

    model, run = hm.nn.Linear(4, 1), hm.trace(program) if traced else program
    before = float(program(model, hm.asarray(X)))

    def loss(model: Any, step: int, rank: int) -> Any:
        k = 4 * ((2 * step + rank) % 16)
        return run(model, hm.asarray(X[k : k + 4]))

    servers.hogwild(model, loss, lambda params: hm.optim.SGD(params, lr=0.05), processes=2, steps=100)
    assert float(program(model, hm.asarray(X))) < before / 20


def test_a_process_that_fails_is_named() -> None:
    def dies(model: Any, step: int, rank: int) -> Any:
        os._exit(9) if rank == 1 else time.sleep(0)
        return model[0](hm.asarray(X)).sum()

    def waits(model: Any, step: int, rank: int) -> Any:
        time.sleep(20 if rank == 0 else 0)

    def raises(model: Any, step: int, rank: int) -> Any:
        raise LookupError("mine")

    for loss, text in ((dies, "worker 1 has died"), (waits, r"worker 0 has not answered within 0\.3 s")):
        with pytest.raises(servers.ActorError, match=text):
            servers.hogwild(towers(), loss, momentum, processes=2, steps=2, timeout=0.3 if loss is waits else 30)
    with pytest.raises(LookupError, match="mine"):
        servers.hogwild(towers(), raises, momentum, processes=2, steps=2)
    with pytest.raises(ArgumentError, match="hogwild: processes must be 1 or more, got 0"):
        servers.hogwild(towers(), raises, momentum, processes=0, steps=2)
