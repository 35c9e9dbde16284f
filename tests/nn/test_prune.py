"""Pruned weights: masks by formula, on top of one another, over several layers, and their errors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.nn.utils import prune

W = np.random.default_rng(0).permutation(24).reshape(4, 6).astype("f4") - 11.5


def layer() -> nn.Linear:
    made = nn.Linear(6, 4)
    made.weight.data = hm.tensor(W)
    return made


def smallest(scores: np.ndarray, count: int) -> np.ndarray:
    mask = np.ones(scores.size, "f4")
    mask[np.argsort(scores.ravel(), kind="stable")[:count]] = 0
    return mask.reshape(scores.shape)


def mask_of(module: nn.Module) -> np.ndarray:
    np.testing.assert_array_equal(module.weight.detach(), (module.weight_orig * module.weight_mask).detach())
    return module.weight_mask.numpy().copy()


def test_names_and_what_stays_the_same_object() -> None:
    pruned = layer()
    weight = pruned.weight
    assert prune.l1_unstructured(pruned, "weight", 0.25) is pruned and prune.is_pruned(nn.Sequential(pruned))
    assert list(pruned.state_dict()) == ["bias", "weight_orig", "weight_mask"]
    assert pruned.weight_orig is weight and type(pruned) is nn.Linear
    assert not isinstance(pruned.weight, nn.Parameter) and pruned.weight.requires_grad
    pruned(hm.ones((1, 6))).sum().backward()
    np.testing.assert_array_equal(weight.grad, mask_of(pruned))
    mask = pruned.weight_mask
    prune.identity(pruned, "weight")
    assert pruned.weight_mask is mask
    expected = pruned.weight.detach().numpy()
    prune.remove(pruned, "weight")
    assert pruned.weight is weight and list(pruned.state_dict()) == ["bias", "weight"] and not prune.is_pruned(pruned)
    np.testing.assert_array_equal(weight.detach(), expected)


@pytest.mark.parametrize("amount", [0, 0.25, 6, 1.0])
def test_elements_of_smallest_modulus_or_score(amount: Any) -> None:
    count = amount if isinstance(amount, int) else round(amount * 24)
    np.testing.assert_array_equal(mask_of(prune.l1_unstructured(layer(), "weight", amount)), smallest(abs(W), count))
    scores = np.arange(24.0).reshape(4, 6)
    pruned = prune.l1_unstructured(layer(), "weight", amount, importance_scores=hm.tensor(scores))
    np.testing.assert_array_equal(mask_of(pruned), smallest(scores, count))


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("n", [1, 2, float("inf"), "fro"])
def test_channels_of_smallest_norm(n: Any, dim: int) -> None:
    norms = np.linalg.norm(W, 2 if n == "fro" else n, axis=1 - dim % 2)
    kept = smallest(norms, 2)
    expected = np.ones_like(W) * (kept[:, None] if dim == 0 else kept)
    np.testing.assert_array_equal(mask_of(prune.ln_structured(layer(), "weight", 2, n, dim)), expected)


def test_channels_that_are_matrices() -> None:
    conv = prune.ln_structured(nn.Conv2d(2, 4, 3), "weight", 1, "fro", 0)
    norms = np.linalg.norm(conv.weight_orig.detach().numpy().reshape(4, -1), axis=1)
    np.testing.assert_array_equal(mask_of(conv).min((1, 2, 3)), smallest(norms, 1))
    x = np.stack([np.eye(2), [[1.3, 0.7], [0.7, 0.4]]]).astype("f4")  # the second has the greater Frobenius norm
    np.testing.assert_array_equal(prune.LnStructured(1, "nuc", 0).prune(hm.tensor(x)), x * [[[1]], [[0]]])


def test_random_masks_have_their_number() -> None:
    hm.manual_seed(0)
    masks = [mask_of(prune.random_unstructured(layer(), "weight", 0.5)) for _ in range(2)]
    assert [m.sum() for m in masks] == [12, 12] and (masks[0] != masks[1]).any()
    assert sorted(mask_of(prune.random_structured(layer(), "weight", 3, dim=0)).sum(1)) == [0, 0, 0, 6]


def test_methods_on_top_see_what_is_left() -> None:
    pruned = prune.l1_unstructured(layer(), "weight", 0.5)
    first = mask_of(pruned)
    twin = copy.deepcopy(pruned)
    container = prune.L1Unstructured.apply(pruned, "weight", 0.5)
    assert isinstance(container, prune.PruningContainer) and len(container) == 2
    assert isinstance(container[0], prune.L1Unstructured) and [*container][1].amount == 0.5
    np.testing.assert_array_equal(mask_of(pruned), smallest(abs(W), 18))
    np.testing.assert_array_equal(mask_of(twin), first)  # a copy is pruned by itself
    for _ in range(2):
        prune.ln_structured(pruned, "weight", 1, 1, 0)
    left = abs(W * smallest(abs(W), 18)).sum(1)
    expected = smallest(abs(W), 18) * smallest(np.where(left > 0, left, np.inf), 2)[:, None]
    np.testing.assert_array_equal(mask_of(pruned), expected)
    prune.custom_from_mask(pruned, "weight", hm.tensor([0, 1, 1, 1, 1, 1]))
    np.testing.assert_array_equal(mask_of(pruned), expected * (np.arange(6) > 0))


def test_several_layers_as_one_vector() -> None:
    hm.manual_seed(0)
    model = nn.Sequential(layer(), nn.Linear(4, 2))
    pairs = [(model[0], "weight"), (model[1], "weight"), (model[1], "bias")]
    weights = np.concatenate([getattr(m, n).detach().numpy().ravel() for m, n in pairs])
    for amount, left in ((0.5, 17), (7, 10)):
        prune.global_unstructured(iter(pairs), pruning_method=prune.L1Unstructured, amount=amount)
        masks = np.concatenate([getattr(m, f"{n}_mask").numpy().ravel() for m, n in pairs])
        np.testing.assert_array_equal(masks, smallest(abs(weights), 34 - left))
    prune.global_unstructured(
        pairs[:1], prune.L1Unstructured, importance_scores={pairs[0]: hm.tensor(1 / abs(W))}, amount=1
    )
    assert model[0].weight_mask.numpy()[abs(W) == 11.5].min() == 0


def test_methods_of_users() -> None:
    class Checkered(prune.BasePruningMethod):
        PRUNING_TYPE = "global"

        def compute_mask(self, t: hm.Tensor, default_mask: hm.Tensor) -> hm.Tensor:
            return default_mask * hm.tensor(np.indices(t.shape).sum(0) % 2)

    pruned = layer()
    assert isinstance(Checkered.apply(pruned, "weight"), Checkered)
    np.testing.assert_array_equal(mask_of(pruned), np.indices(W.shape).sum(0) % 2)
    traced = hm.trace(lambda x: pruned(x))
    np.testing.assert_allclose(traced(hm.ones((1, 6))).detach(), pruned(hm.ones((1, 6))).detach(), 1e-6)
    np.testing.assert_array_equal(Checkered().prune(hm.ones((1, 3))), [[0, 1, 0]])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda a: prune.l1_unstructured(a, "weight", "a"), TypeError, "an int or a float, got 'a'"),
        (lambda a: prune.l1_unstructured(a, "weight", 1.5), ValueError, "a float from 0 to 1"),
        (lambda a: prune.l1_unstructured(a, "weight", -1), ValueError, "a count from 0 on"),
        (lambda a: prune.l1_unstructured(a, "weight", 25), ValueError, "more than there are to prune, 24"),
        (lambda a: prune.l1_unstructured(a, "kernel", 1), ValueError, "no parameter 'kernel'; it has"),
        (lambda a: prune.l1_unstructured(a, "weight", 1, hm.ones(2)), ValueError, "importance_scores have"),
        (lambda a: prune.ln_structured(a, "bias", 1, 2, 0), ValueError, "two axes or more"),
        (lambda a: prune.ln_structured(a, "weight", 1, 2, 2), IndexError, "axis 2"),
        (lambda a: prune.ln_structured(nn.Conv2d(2, 4, 3), "weight", 1, "nuc", 0), ValueError, "slices that are"),
        (lambda a: prune.global_unstructured([(a, "weight"), (nn.BatchNorm1d(1), "running_var")], prune.Identity),
         ValueError, "no parameter 'running_var'"),
        (lambda a: prune.custom_from_mask(a, "weight", hm.ones((2, 4, 6))), ValueError, "does not fit"),
        (lambda a: prune.remove(a, "weight"), ValueError, "is not pruned"),
        (lambda a: prune.global_unstructured([(a, "weight")], prune.LnStructured, amount=1, n=1), TypeError, "is not"),
        (lambda a: prune.global_unstructured(3, prune.L1Unstructured, amount=1), TypeError, "an iterable"),
        (lambda a: prune.PruningContainer(a), TypeError, "takes pruning methods"),
    ],
)  # fmt: skip
def test_errors_leave_the_layer_as_it_is(call: Any, error: type[Exception], text: str) -> None:
    made = layer()
    with pytest.raises(error, match=text):
        call(made)
    assert list(made.state_dict()) == ["weight", "bias"] and np.array_equal(made.weight.detach(), W)


def test_a_pruned_weight_is_not_assigned() -> None:
    pruned = prune.identity(layer(), "weight")
    with pytest.raises(AttributeError, match="write into weight_orig and weight_mask, or remove the prune first"):
        pruned.weight = nn.Parameter(hm.tensor(W))
    with pytest.raises(ValueError, match="no parameter or buffer 'weight'; it has"):
        nn.utils.parametrizations.weight_norm(pruned)
    nn.utils.parametrizations.weight_norm(pruned, "weight_orig")
    np.testing.assert_allclose(pruned.weight.detach(), W, 1e-6)
    with pytest.raises(ValueError, match="is of 'weight', the method of 'bias'"):
        prune.Identity.apply(pruned, "weight"), prune.Identity.apply(pruned, "bias")
        prune.PruningContainer(*(pruned._computed[n].method for n in ("weight", "bias")))
