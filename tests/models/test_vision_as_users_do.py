"""The image architectures as users treat them: summaries, modes, files, other precisions, images with channels last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import models
from tests.models.record_vision import NAMES

# Billions of multiply-adds of one image that torchvision's documentation has, normalisation left out.
MULTIPLY_ADDS = {
    "alexnet": 0.714, "vgg16": 15.47, "vgg19": 19.632, "inception_v3": 5.713, "resnet18": 1.814, "resnet50": 4.089,
    "mobilenet_v2": 0.301, "vit_b_16": 17.564,
}  # fmt: skip


def small(name: str, dtype: Any = hm.float32) -> tuple[hm.nn.Module, list[hm.Tensor]]:
    hm.manual_seed(0)
    batch = [hm.asarray(a) for a in models.example_batch(name, 4, tiny=True)]
    return models.get_model(name, tiny=True).to(dtype), [a.to(dtype) if a.dtype == hm.float32 else a for a in batch]


def first(outputs: Any) -> np.ndarray:
    return (outputs[0] if isinstance(outputs, tuple) else outputs).detach().numpy()


@pytest.mark.parametrize("name", NAMES)
def test_summaries_of_published_sizes(name: str) -> None:
    row = models.architecture(name)
    with hm.device("meta"):
        inputs = [hm.ones(a.shape, dtype=a.dtype) for a in models.example_batch(name, 1)[: row.inputs]]
        found = hm.summary(models.get_model(name).eval(), *inputs)
    assert found.parameters == row.parameters
    if name in MULTIPLY_ADDS:
        assert found.flops / 2e9 == pytest.approx(MULTIPLY_ADDS[name], rel=0.07)


@pytest.mark.parametrize("name", ["alexnet", "mobilenet_v1", "unet", "vae"])
def test_a_traced_model_follows_its_mode(name: str) -> None:
    """Dropout draws what it draws eagerly, and running statistics move alike."""
    model, batch = small(name)
    inputs, traced = batch[: models.architecture(name).inputs], hm.trace(model)
    for training in (True, False, True):
        model.train(training)
        state = {key: value.clone() for key, value in model.state_dict().items()}
        found = []
        for run in (model, traced):
            model.load_state_dict(state)
            hm.manual_seed(1)
            found.append({"": first(run(*inputs)), **{k: v.numpy().copy() for k, v in model.state_dict().items()}})
        for key, expected in found[0].items():
            np.testing.assert_allclose(found[1][key], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16", "dcgan"])
def test_files_of_weights(name: str, tmp_path: Path) -> None:
    saved, loaded = models.get_model(name, tiny=True), models.get_model(name, tiny=True)
    hm.save(saved.state_dict(), tmp_path / "weights")
    loaded.load_state_dict(hm.load(tmp_path / "weights"))
    for key, value in saved.state_dict().items():
        np.testing.assert_array_equal(loaded.state_dict()[key].numpy(), value.numpy())


@pytest.mark.parametrize("name", ["unet"])
def test_mixed_precision_steps(name: str) -> None:
    def step(*batch: hm.Tensor) -> hm.Tensor:
        model.zero_grad()
        with hm.autocast("cpu", dtype=hm.bfloat16):
            loss = models.loss_of(name)(model, *batch)
        loss.backward()
        return loss

    model, batch = small(name)
    found = []
    for run in (step, hm.trace(step)):
        hm.manual_seed(1)
        found.append([run(*batch).item(), *(p.grad.numpy().copy() for p in model.parameters())])
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-2, atol=2e-2 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["alexnet", "unet"])
def test_images_with_channels_last_in_memory(name: str) -> None:
    model, (images, labels) = small(name, hm.float64)
    last = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    losses = []
    for run, x in (
        (models.loss_of(name), images),
        (models.loss_of(name), last),
        (hm.trace(models.loss_of(name)), last),
    ):
        hm.manual_seed(1)
        losses.append(run(model, x, labels).item())
    assert losses[1:] == pytest.approx(losses[:1] * 2, rel=1e-12)
