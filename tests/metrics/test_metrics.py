"""Metrics of a batch beside scikit-learn's, of many batches beside those of one, in both styles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import metrics

rng = np.random.default_rng(0)
TARGET = rng.integers(0, 4, 300)
SCORES = rng.normal(size=(300, 4)) + 1.5 * np.eye(4)[TARGET]
BINARY = rng.integers(0, 2, 300)
CHANCES = np.round(np.clip(0.3 * BINARY + rng.random(300) * 0.7, 0, 1), 2)  # with ties

MODULES: list[tuple[metrics.Metric, Any, Any]] = [
    (metrics.Accuracy(), SCORES, TARGET),
    (metrics.Accuracy(top_k=2), SCORES, TARGET),
    (metrics.Accuracy(), CHANCES, BINARY),
    (metrics.ConfusionMatrix(4), SCORES, TARGET),
    (metrics.Precision(4), SCORES, TARGET),
    (metrics.Recall(4, average="none"), SCORES, TARGET),
    (metrics.F1Score(), CHANCES, BINARY),
    (metrics.AUROC(bins=200), CHANCES, BINARY),
    (metrics.Perplexity(ignore_index=0), SCORES, TARGET),
    (metrics.Mean(), CHANCES, None),
]


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "none"])
@pytest.mark.parametrize("name", ["precision", "recall", "f1_score"])
def test_shares_are_those_of_scikit_learn(name: str, average: str) -> None:
    sk = pytest.importorskip("sklearn.metrics")
    reference = getattr(sk, name if name == "f1_score" else f"{name}_score")
    how = None if average == "none" else average
    for scores, target in ((SCORES, TARGET), (SCORES * [1, 1, 1, 0] - [0, 0, 0, 99], TARGET % 3)):
        found = getattr(metrics, name)(hm.tensor(scores), hm.tensor(target), average)
        labels = range(4) if average == "none" else None
        wanted = reference(target, scores.argmax(1), average=how, zero_division=0, labels=labels)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)
    found = getattr(metrics, name)(hm.tensor(CHANCES), hm.tensor(BINARY))
    assert found.item() == pytest.approx(reference(BINARY, CHANCES > 0.5))


def test_others_are_those_of_scikit_learn() -> None:
    sk = pytest.importorskip("sklearn.metrics")
    scores, target, chances, binary = map(hm.tensor, (SCORES, TARGET, CHANCES, BINARY))
    assert metrics.accuracy(scores, target).item() == pytest.approx(sk.accuracy_score(TARGET, SCORES.argmax(1)))
    wanted = sk.top_k_accuracy_score(TARGET, SCORES, k=2)
    assert metrics.accuracy(scores, target, top_k=2).item() == pytest.approx(wanted)
    assert metrics.confusion_matrix(scores, target).tolist() == sk.confusion_matrix(TARGET, SCORES.argmax(1)).tolist()
    assert metrics.auroc(chances, binary).item() == pytest.approx(sk.roc_auc_score(BINARY, CHANCES), rel=1e-6)
    soft = hm.softmax(scores, axis=1)
    wanted = sk.roc_auc_score(TARGET, soft.numpy(), multi_class="ovr")
    assert metrics.auroc(soft, target).item() == pytest.approx(wanted, rel=1e-6)
    wanted = np.exp(sk.log_loss(TARGET, soft.numpy()))
    assert metrics.perplexity(scores, target).item() == pytest.approx(wanted, rel=1e-6)


def _batches(values: Any) -> Any:
    return [None if values is None else hm.tensor(values[k : k + 100]) for k in range(0, 300, 100)]


@pytest.mark.parametrize(("metric", "preds", "target"), MODULES, ids=lambda x: getattr(type(x), "__name__", "x"))
def test_many_batches_are_one(metric: metrics.Metric, preds: Any, target: Any) -> None:
    def args(x: Any, y: Any) -> Any:
        return (x,) if y is None else (x, y)

    metric.reset()
    whole = metric(*args(hm.tensor(preds), None if target is None else hm.tensor(target)))
    results = []
    for update in (metric.update, hm.trace(metric.update)):
        metric.reset()
        for x, y in zip(_batches(preds), _batches(target), strict=True):
            assert update(*args(x, y)) is None
        results.append(metric.compute().numpy())
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], whole.numpy(), rtol=1e-6)
    assert not metric.state_dict() and not any(p.requires_grad for p in metric.parameters())


def test_a_traced_step_gives_the_batch_and_adds_it() -> None:
    metric = metrics.Accuracy()
    step = hm.trace(lambda x, y: metric(x, y))
    for x, y in zip(_batches(SCORES), _batches(TARGET), strict=True):
        assert step(x, y).item() == pytest.approx(metrics.accuracy(x, y).item())
    assert metric.compute().item() == pytest.approx(float((SCORES.argmax(1) == TARGET).mean()))
    assert step.cache_info().compiles == 1


def test_the_auroc_of_bins_is_near_the_exact_one() -> None:
    exact = metrics.auroc(hm.tensor(CHANCES), hm.tensor(BINARY)).item()
    assert metrics.AUROC(bins=1000)(hm.tensor(CHANCES), hm.tensor(BINARY)).item() == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("traced", [False, True])
def test_narrow_scores_are_counted_as_wide_ones(dtype: str, traced: bool) -> None:
    scores = hm.tensor(np.tile(SCORES * 20, (40, 1))).astype(dtype)  # the sum of their losses overflows
    target, chances, binary = hm.tensor(np.tile(TARGET, 40)), hm.tensor(CHANCES).astype(dtype), hm.tensor(BINARY)
    cases: list[tuple[Any, hm.Tensor, hm.Tensor]] = [
        (metrics.perplexity, scores, target),
        (lambda x, y: metrics.Perplexity()(x, y), scores, target),
        (metrics.auroc, chances, binary),
        (lambda x, y: metrics.AUROC(100_000)(x, y), chances, binary),
    ]
    for fn, x, y in cases:
        expected = fn(x.astype("float32"), y).item()
        assert (hm.trace(fn) if traced else fn)(x, y).item() == pytest.approx(expected, rel=1e-5)


def test_gradients_do_not_grow_with_batches() -> None:
    mean = metrics.Mean()
    w = hm.ones((2,), requires_grad=True)
    loss = mean((w * w).sum())
    assert loss.requires_grad and not mean.compute().requires_grad


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    ("fn", "error", "words"),
    [
        (lambda: metrics.accuracy(hm.zeros((3, 2)), hm.zeros((4,), dtype="int64")), hm.ShapeError, "got"),
        (lambda: metrics.accuracy(hm.zeros((3,)), hm.zeros((3,))), hm.DTypeError, "use astype"),
        (lambda: metrics.accuracy(hm.zeros((2, 2)), hm.tensor([0, 1]), top_k=3), hm.ArgumentError, "top_k=3"),
        (lambda: metrics.f1_score(hm.tensor([1]), hm.tensor([1])), hm.ArgumentError, "num_classes"),
        (lambda: metrics.recall(hm.zeros((3, 4)), hm.tensor([1, 2, 3]), "mean"), hm.ArgumentError, "'mean'"),
        (lambda: metrics.recall(hm.zeros((3, 4)), hm.tensor([1, 2, 3]), "binary"), hm.ArgumentError, "2 classes"),
        (lambda: metrics.auroc(hm.zeros((3,)), hm.tensor([1, 0])), hm.ShapeError, "auroc"),
        (lambda: metrics.perplexity(hm.zeros((3, 5)), hm.tensor([1, 0])), hm.ShapeError, "perplexity"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(fn: Any, error: Any, words: str, traced: bool) -> None:
    with pytest.raises(error, match=words):
        (hm.trace(fn) if traced else fn)()
