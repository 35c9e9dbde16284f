"""Averages of weights: of all models and exponential ones, in both styles, with buffers and batch normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.optim import swa_utils


def net() -> nn.Module:
    hm.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def mean_of_all(mean: Any, x: Any, n: int) -> Any:
    return mean + (x - mean) / (n + 1)


def exponential(mean: Any, x: Any, n: int) -> Any:
    return 0.75 * mean + 0.25 * x


AVERAGES: dict[str, tuple[dict[str, Any], Callable[[Any, Any, int], Any]]] = {
    "all": ({}, mean_of_all),
    "all of lists": ({"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()}, mean_of_all),
    "exponential": ({"avg_fn": swa_utils.get_ema_avg_fn(0.75)}, exponential),
    "of lists": ({"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.75), "use_buffers": True}, exponential),
    "own": ({"avg_fn": lambda mean, x, n: mean + x * n}, lambda mean, x, n: mean + x * n),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_are_those_of_the_formula_in_both_styles(name: str) -> None:
    options, formula = AVERAGES[name]
    found = []
    for style in (lambda fn: fn, hm.trace):
        model = net()
        average = swa_utils.AveragedModel(model, **options)

        @style
        def step(model: Any = model, average: Any = average) -> None:
            with hm.no_grad():
                for p in model.parameters():
                    p.mul_(1.5)
            model(hm.ones((4, 2)))
            average.update_parameters(model)

        expected = None
        for n in range(4):
            step()
            value = np.array(model[0].weight.detach())
            expected = value if expected is None else formula(expected, value, n)
        np.testing.assert_allclose(np.array(average.module[0].weight.detach()), expected, rtol=1e-5)
        assert average.n_averaged.item() == 4
        found.append({key: np.array(value) for key, value in average.state_dict().items()})
    assert set(found[0]) == {"n_averaged", *(f"module.{key}" for key in net().state_dict())}
    for key, value in found[0].items():
        assert value.tobytes() == found[1][key].tobytes(), key
    mean = found[0]["module.1.running_mean"]
    assert np.array_equal(mean, np.array(model[1].running_mean)) == (not options.get("use_buffers"))


def test_a_step_with_an_exponential_average_is_one_traced_function() -> None:
    found = []
    for style in (lambda fn: fn, hm.trace):
        model = net()
        average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
        optimizer = hm.optim.SGD(model.parameters(), lr=0.1)

        @style
        def step(x: hm.Tensor, model: Any = model, average: Any = average, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            return loss.detach()

        x = hm.tensor(np.random.default_rng(0).standard_normal((4, 2)), dtype=hm.float32)
        for _ in range(4):
            step(x)
        found.append(np.array(average(x).detach()))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_statistics_of_batches_are_their_means() -> None:
    model = net()
    model[1].momentum = 0.3
    model.eval()
    rng = np.random.default_rng(0)
    batches = [hm.tensor(rng.standard_normal((4, 2)), dtype=hm.float32) for _ in range(3)]
    swa_utils.update_bn([(x, None) for x in batches], model)
    means = [np.array(model[0](x).detach()).mean(0) for x in batches]
    np.testing.assert_allclose(np.array(model[1].running_mean), np.mean(means, 0), rtol=1e-5, atol=1e-6)
    assert model[1].momentum == 0.3 and not model.training
    with pytest.raises(hm.ShapeError):
        swa_utils.update_bn([hm.ones((4, 5))], model)
    assert model[1].momentum == 0.3 and not model.training


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: swa_utils.get_ema_avg_fn(1.5), "Invalid decay value 1.5 provided"),
        (lambda: swa_utils.get_ema_multi_avg_fn(-1), "Invalid decay value -1 provided"),
        (
            lambda: swa_utils.AveragedModel(net(), avg_fn=max, multi_avg_fn=max),
            "Only one of avg_fn and multi_avg_fn should be provided",
        ),
    ],
)
def test_errors_are_in_pytorchs_words(make: Any, words: str) -> None:
    with pytest.raises(hm.ArgumentError) as caught:
        make()
    assert words in str(caught.value)
