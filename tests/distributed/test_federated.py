"""Federated averaging: a mean of models by the clients' numbers of examples."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.distributed import servers
from hybridml.distributed.servers.workers import Crew
from hybridml_compiler.errors import ArgumentError
from tests.support.workers import Loss, adam, alone, loss_of, net, same, sgd, weights

STYLES = pytest.mark.parametrize("traced", [False, True])


def federate(loss: Loss, **options: Any) -> tuple[Any, list[servers.Round]]:
    model = net()
    given = {"examples": [4] * 5, "rounds": 6, "engine": "threads", **options}
    return model, servers.federated(model, loss, given.pop("optimizer", sgd), **given)


@STYLES
def test_one_client_with_all_data_trains_as_one_process(traced: bool) -> None:
    loss = loss_of(traced)
    assert same(federate(loss, examples=[7], rounds=10)[0], alone(loss, sgd, 10))
    assert same(federate(loss, examples=[7], rounds=1, local_steps=10, optimizer=adam)[0], alone(loss, adam, 10))


def test_models_are_weighted_by_examples() -> None:
    """A step of SGD each, and the mean of the models is a step by the mean of the gradients."""
    loss, examples = loss_of(False), [1, 5, 2]
    model, rounds = federate(loss, examples=examples, rounds=4)
    for other in (
        alone(lambda m, s, _: sum(n * loss(m, s, c) for c, n in enumerate(examples)) / 8, sgd, 4),
        federate(loss, examples=examples, rounds=4, workers=1)[0],
    ):
        for got, wanted in zip(weights(model), weights(other), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
    first = net()
    wanted = sum(n * float(loss(first, 0, c)) for c, n in enumerate(examples)) / 8
    np.testing.assert_allclose(rounds[0].loss, wanted, rtol=1e-5)
    assert rounds[0].bytes_moved == 2 * 3 * sum(array.nbytes for array in weights(model))


def test_clients_are_drawn_by_the_seed() -> None:
    loss = loss_of(True)
    drawn = {seed: [r.clients for r in federate(loss, fraction=0.4, seed=seed, rounds=20)[1]] for seed in (0, 1)}
    assert drawn[0] == [r.clients for r in federate(loss, fraction=0.4, rounds=20, workers=3)[1]] != drawn[1]
    assert all(len(set(clients)) == 2 for clients in drawn[0])
    assert set(itertools.chain(*drawn[0])) == set(range(5))
    assert {len(r.clients) for r in federate(loss, fraction=0.01)[1]} == {1}


def test_statistics_are_averaged_and_counters_are_not() -> None:
    model = hm.nn.Sequential(hm.nn.Linear(5, 8), hm.nn.BatchNorm1d(8), hm.nn.Linear(8, 3))
    one = hm.nn.Sequential(hm.nn.Linear(5, 8), hm.nn.BatchNorm1d(8), hm.nn.Linear(8, 3))
    one.load_state_dict(model.state_dict())
    loss = loss_of(False)
    servers.federated(model, loss, sgd, examples=[1, 3], rounds=1, engine="threads")
    means = []
    for client in range(2):
        fresh = hm.nn.Sequential(hm.nn.Linear(5, 8), hm.nn.BatchNorm1d(8), hm.nn.Linear(8, 3))
        fresh.load_state_dict(one.state_dict())
        loss(fresh, 0, client)
        means.append(fresh[1].running_mean.numpy())
    np.testing.assert_allclose(model[1].running_mean.numpy(), (means[0] + 3 * means[1]) / 4, rtol=1e-5, atol=1e-7)
    assert int(model[1].num_batches_tracked) == 1


def test_a_client_whose_worker_dies_trains_again(monkeypatch: pytest.MonkeyPatch) -> None:
    submit, loss, kills = Crew.submit, loss_of(False), [3, 8]

    def killing(crew: Any, rank: int, step: int, *rest: Any) -> None:
        kills[:] = [k - 1 for k in kills]
        if 0 in kills:
            crew.workers[rank].kill()
        submit(crew, rank, step, *rest)

    wanted, _ = federate(loss)
    monkeypatch.setattr(Crew, "submit", killing)
    assert same(federate(loss)[0], wanted) and max(kills) < 0
    kills[:] = [1, 2, 3]
    with pytest.raises(servers.ActorError, match=r"worker \d has died; .* max_restarts=1"):
        federate(loss, max_restarts=1)


@pytest.mark.parametrize(
    "options", [{"examples": []}, {"examples": [1, 0]}, {"rounds": 0}, {"local_steps": 0}, {"fraction": 0.0}]
)
def test_rounds_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"federated: {next(iter(options))} must be"):
        federate(loss_of(False), **options)
