"""The architectures: parameters of the published sizes, both styles of the small ones, names that PyTorch has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hybridml as hm
from hybridml import models

FOLDER = Path(models.__file__).parent
NAMES = models.list_models()


@pytest.mark.parametrize("name", NAMES)
def test_published_sizes_have_their_parameters(name: str) -> None:
    with hm.device("meta"):
        model = models.get_model(name)
    assert sum(p.numel() for p in model.parameters()) == models.architecture(name).parameters


@pytest.mark.parametrize("name", NAMES)
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
        return [run(*batch).item() for _ in range(3)]

    eager = losses(traced=False)
    assert eager[2] != eager[0]
    assert losses(traced=True) == pytest.approx(eager, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_arrays_of_a_batch_are_what_the_model_takes(name: str) -> None:
    row = models.architecture(name)
    batch = models.example_batch(name, 4, tiny=True)
    with hm.device("meta"):
        models.get_model(name, tiny=True)(*(hm.ones(a.shape, dtype=a.dtype) for a in batch[: row.inputs]))
    assert [len(array) for array in batch] == [4] * len(batch)


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
