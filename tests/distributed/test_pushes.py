"""Gradients of some rows and compressed ones: sharded tables train as dense ones, and nothing of a gradient is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed import servers
from hybridml.distributed.servers.compression import ErrorFeedback
from hybridml.distributed.servers.gradients import bytes_of
from hybridml_compiler.errors import ArgumentError, DTypeError, OutOfBoundsError, TraceError
from tests.support.workers import RNG, Killing, Loss, loss_of, same, sgd, together, weights

STYLES = pytest.mark.parametrize("traced", [False, True])


class Bag(hm.nn.Module):
    """The class of the sum of some rows of a table."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        hm.manual_seed(1)
        self.table, self.head = table, hm.nn.Linear(4, 2)


WORDS = RNG.integers(0, 40, (20, 6, 3))


def loss_of_bag(traced: bool) -> Loss:
    def program(model: Any, vectors: Any, y: Any) -> Any:
        return hm.functional.cross_entropy(model.head(vectors.sum(1)), y)

    run = hm.trace(program) if traced else program

    def loss(model: Any, step: int, rank: int) -> Any:
        words = WORDS[(step + 7 * rank) % 20]
        return run(model, model.table(hm.asarray(words)), hm.asarray(words.sum(1) % 2))

    return loss


def all_rows(table: Any) -> np.ndarray:
    return np.asarray(table(hm.arange(40)).detach().numpy())


@STYLES
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("optimizer", [sgd, lambda params: hm.optim.Adagrad(params, lr=0.2)])
def test_a_sharded_table_trains_as_a_dense_one(traced: bool, shards: int, optimizer: Any) -> None:
    sharded, dense, loss = Bag(servers.ShardedEmbedding(40, 4)), Bag(hm.nn.Embedding(40, 4)), loss_of_bag(traced)
    with servers.ParameterServer(sharded, optimizer, shards=shards, engine="threads") as server:
        with hm.no_grad():
            dense.table.weight.copy_(hm.asarray(all_rows(sharded.table)))
        training = servers.train(server, loss, workers=1, steps=20)
        updates = optimizer(list(dense.parameters()))
        for step in range(20):
            updates.zero_grad()
            found = loss(dense, step, 0)
            found.backward()
            updates.step()
            np.testing.assert_allclose(training.losses[step], float(found), rtol=1e-5)
        np.testing.assert_allclose(all_rows(sharded.table), dense.table.weight.detach().numpy(), rtol=1e-4, atol=1e-6)
    head = sum(p.nbytes for p in dense.head.parameters())
    rows = sum(len(np.unique(words)) for words in WORDS)
    assert training.bytes_pulled == 20 * head + rows * 4 * 4
    assert training.bytes_pushed == 20 * head + rows * (4 * 4 + 8)


def test_workers_share_a_table_as_one_process_would(killing: Killing, tmp_path: Path) -> None:
    """The mean of two workers' gradients, some of them of the same rows, and through the death of a shard."""
    killing({5: "shard 0"})
    sharded, dense, loss = Bag(servers.ShardedEmbedding(40, 4)), Bag(hm.nn.Embedding(40, 4)), loss_of_bag(False)
    with servers.ParameterServer(sharded, sgd, shards=2, engine="threads") as server:
        with hm.no_grad():
            dense.table.weight.copy_(hm.asarray(all_rows(sharded.table)))
        manager = dist.CheckpointManager(tmp_path, save_interval_steps=3)
        assert servers.train(server, loss, workers=2, steps=12, checkpoints=manager).restarts == 1
        updates = sgd(list(dense.parameters()))
        for step in range(12):
            updates.zero_grad()
            ((loss(dense, step, 0) + loss(dense, step, 1)) / 2).backward()
            updates.step()
        np.testing.assert_allclose(all_rows(sharded.table), dense.table.weight.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_the_values_of_a_table_do_not_depend_on_its_shards() -> None:
    table = servers.ShardedEmbedding(10_000, 2, seed=3).table
    whole = table.part(0, 1)
    for shards in (2, 7):
        for k in range(shards):
            np.testing.assert_array_equal(table.part(k, shards), whole[k::shards])
    assert not np.array_equal(whole, servers.ShardedEmbedding(10_000, 2, seed=4).table.part(0, 1))


def test_look_ups_that_cannot_be_are_refused() -> None:
    table = servers.ShardedEmbedding(40, 4)
    with pytest.raises(ArgumentError, match="on no server"):
        table(hm.arange(3))
    with servers.ParameterServer(table, sgd, shards=2, engine="threads"):
        with pytest.raises(OutOfBoundsError, match="rows 7 to 40 were asked for, of 40"):
            table(hm.asarray([7, 40]))
        with pytest.raises(DTypeError, match="of integers, got float32"):
            table(hm.ones((2,)))
        with pytest.raises(TraceError, match="before the traced function"):
            hm.trace(lambda rows: table(rows).sum())(hm.arange(3))
        assert table(hm.asarray(np.empty((0, 2), np.int64))).shape == (0, 2, 4)


# -- compression


@pytest.mark.parametrize("compression", [servers.TopK(0.1), servers.OneBit()])
def test_what_is_sent_and_what_is_left_are_the_gradients(compression: Any) -> None:
    feedback = ErrorFeedback(compression)
    wanted, sent = np.zeros((7, 13)), np.zeros((7, 13))
    for _ in range(20):
        gradient = RNG.integers(-1000, 1000, (7, 13)).astype(np.float64)
        before = feedback.residuals.get("w", 0)
        got = feedback("w", gradient).decode()
        np.testing.assert_allclose(got + feedback.residuals["w"], gradient + before, rtol=0, atol=1e-9)
        wanted, sent = wanted + gradient, sent + got
    np.testing.assert_allclose(sent + feedback.residuals["w"], wanted, rtol=0, atol=1e-8)


def test_the_largest_elements_are_sent_as_they_are() -> None:
    gradient = RNG.standard_normal((6, 50)).astype(np.float32)
    sent = servers.TopK(0.1).encode(gradient)
    got = sent.decode()
    assert np.count_nonzero(got) == 30 and sent.nbytes == 30 * (4 + 4) and got.dtype == np.float32
    assert np.abs(gradient[got == 0]).max() <= np.abs(got[got != 0]).min()
    np.testing.assert_array_equal(got[got != 0], gradient[got != 0])
    assert np.count_nonzero(servers.TopK(0.001).encode(gradient).decode()) == 1
    assert servers.TopK(0.5).encode(np.ones((), np.float32)).decode().shape == ()


def test_one_bit_has_the_means_of_both_signs() -> None:
    gradient = RNG.standard_normal((6, 50)).astype(np.float32)
    sent = servers.OneBit().encode(gradient)
    got = sent.decode()
    assert sent.nbytes == 38 + 8 and got.dtype == np.float32
    for sign in (gradient >= 0, gradient < 0):
        np.testing.assert_allclose(got[sign], gradient[sign].mean(), rtol=1e-6)
    np.testing.assert_array_equal(servers.OneBit().encode(np.ones(5)).decode(), np.ones(5))


def test_all_elements_train_as_without_compression() -> None:
    loss = loss_of(True)
    assert same(together(loss, compression=servers.TopK(1.0))[0], together(loss)[0])


@pytest.mark.parametrize("compression", [servers.TopK(0.1), servers.OneBit()])
def test_compressed_gradients_train_in_fewer_bytes(compression: Any) -> None:
    options = {"optimizer": sgd, "steps": 150}
    model, training = together(loss_of(True), compression=compression, **options)
    whole = 150 * 2 * bytes_of([dict(enumerate(weights(model)))])
    assert training.bytes_pushed < whole / 3 and training.bytes_pulled == whole
    plain = together(loss_of(True), **options)[1]
    assert np.mean(training.losses[-10:]) < 2 * np.mean(plain.losses[-10:]) + 0.02 < training.losses[0] / 2


def test_fractions_are_parts() -> None:
    for fraction in (0.0, 1.5):
        with pytest.raises(ArgumentError, match="TopK: fraction must be above 0 and at most 1"):
            servers.TopK(fraction)
