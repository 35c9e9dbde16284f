"""The architectures: both styles of the small sizes, names that PyTorch has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hybridml as hm
from hybridml import models

FOLDER = Path(models.__file__).parent
NAMES = models.list_models()
# Inception takes no images below 299 x 299; the others have relatives of the same layers.
COSTLY = ("inception_v3", "resnet18", "vgg19", "mobilenet_v1")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in COSTLY else n for n in NAMES])
def test_small_sizes_train_alike_in_both_styles(name: str) -> None:
    batch = [hm.asarray(a) for a in models.example_batch(name, 4, tiny=True)]
    # In float32 three steps of a small ResNet-50 are 9 % apart: normalisation of few numbers makes much of rounding.
    batch = [a.to(hm.float64) if a.dtype == hm.float32 else a for a in batch]
    loss_of = models.loss_of(name)

    def losses(traced: bool) -> list[float]:
        hm.manual_seed(0)
        model = models.get_model(name, tiny=True).to(hm.float64)
        optimizer = hm.optim.SGD(model.parameters(), lr=0.01)

        def step(*batch: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, *batch)
            loss.backward()
            optimizer.step()
            return loss

        run = hm.trace(step) if traced else step
        return [run(*batch).item() for _ in range(2)]  # the second is of weights that moved

    eager = losses(traced=False)
    assert eager[1] != eager[0]
    assert losses(traced=True) == pytest.approx(eager, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_a_batch_have_a_row_for_each_sample(name: str) -> None:
    assert {len(array) for array in models.example_batch(name, 4, tiny=True)} == {4}


def test_unknown_names_are_told_with_those_that_there_are() -> None:
    with pytest.raises(hm.ArgumentError, match=r"there is no 'resnet19'; there are .*resnet18"):
        models.get_model("resnet19")
    with pytest.raises(AttributeError, match="resnet19"):
        models.resnet19  # noqa: B018


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_files_import_nothing_but_names_of_the_face(path: Path) -> None:
    """With the library's name replaced they are PyTorch code: `hybridml_examples.in_torch`."""
    if path.stem in ("__init__", "registry", "batches"):
        return
    allowed = {"__future__", "collections", "collections.abc", "itertools", "math", "typing", "hybridml", "hybridml.nn"}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported <= allowed
