"""Everything public has a docstring, which says in plain words what it does; `test_docs` runs the examples."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hybridml as hm
from hybridml.interop import method_examples
from hybridml_compiler.ops.examples import EXAMPLES
from hybridml_compiler.ops.table import OPS

PACKAGES = ("functional", "linalg", "nn", "optim", "data", "distributions", "metrics", "random", "training")


@pytest.mark.parametrize("package", PACKAGES)
def test_everything_public_is_described(package: str) -> None:
    module = importlib.import_module(f"hybridml.{package}")
    assert module.__all__ == sorted(module.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    for name in module.__all__:
        assert inspect.getdoc(getattr(module, name)), f"hybridml.{package}.{name} has no docstring"


# --- what a docstring says -------------------------------------------------------------------------------------------

DESCRIBED = (
    *PACKAGES, "nn.init", "nn.quantized", "nn.utils", "nn.utils.parametrizations", "nn.utils.parametrize",
    "nn.utils.prune", "nn.utils.rnn",
)  # fmt: skip
# First words of a fragment: "Of a slot." names no value, "Bytes per slot." does.
FRAGMENTS = ("Are", "As", "Does", "Has", "How", "Is", "Of", "See", "That", "Those", "What", "Where", "Which")
SHAPE = re.compile(r"(?<!\w)\((\.\.\.|\w+,)")  # (...), (n, c), (k,): not the arguments of a call
WITHOUT_SHAPES = (
    hm.nn.Module,
    hm.nn.ModuleDict,
    hm.nn.ModuleList,
    hm.nn.ParameterDict,
    hm.nn.ParameterList,
    hm.nn.Sequential,
)


def _public(package: str) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(f"hybridml.{package}")
    for name in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
        value = getattr(module, name)
        if inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, Exception)):
            if hasattr(module, "__all__") or value.__module__ == module.__name__:
                yield name, value


def _takes_tensors(value: Any) -> bool:
    """Whether a public name is a layer or a function of `functional`, whose shapes must be told."""
    if inspect.isclass(value):
        return issubclass(value, hm.nn.Module) and value not in WITHOUT_SHAPES
    return str(value.__module__).startswith("hybridml.functional.")


def _lacks(value: Any) -> list[str]:
    doc = inspect.getdoc(value) or ""
    first, text = doc.partition("\n")[0], doc.partition(">>>")[0]
    faults = {
        f"a first line of 25 characters: {first!r}": len(first) < 25,
        f"a first line that names what it returns or does: {first!r}": first.split(" ")[0] in FRAGMENTS,
        "an example": ">>>" not in doc,
        "the shapes of its arguments and result": _takes_tensors(value) and not SHAPE.search(text),
    }
    return [fault for fault, found in faults.items() if found]


@pytest.mark.parametrize("package", DESCRIBED)
def test_docstrings_say_what_it_does_with_an_example(package: str) -> None:
    assert {name: faults for name, value in _public(package) if (faults := _lacks(value))} == {}


def test_a_fragment_is_found() -> None:
    def bad(x: int) -> int:
        """Of a slot."""
        return x

    class Layer(hm.nn.Module):
        """Layer that says nothing about its input, f(x, y).

        >>> 1
        1
        """

    assert len(_lacks(bad)) == 3
    assert _lacks(Layer) == ["the shapes of its arguments and result"]


# --- examples of rows and methods; `test_site` looks for those of all public names ------------------------------------


def _public_rows() -> dict[str, Any]:
    """Functions of rows that users meet: of the namespace, or methods."""
    met = {id(value) for space in (vars(hm), vars(hm.Tensor)) for value in space.values()}
    return {op.name: op.fn for op in OPS.values() if id(op.fn) in met}


def _attributes() -> dict[str, Any]:
    """Public methods and properties of tensors."""
    kinds = (types.FunctionType, types.MethodDescriptorType, property)  # native ones, as `clone` in time
    return {name: v for name, v in vars(hm.Tensor).items() if name[0] != "_" and isinstance(v, kinds)}


def test_rows_and_their_examples_go_together() -> None:
    assert _public_rows().keys() == EXAMPLES.keys()


def test_every_method_has_an_example() -> None:
    found = _attributes()
    assert len(found) > 300 and [name for name, value in found.items() if ">>>" not in value.__doc__] == []
    assert method_examples.EXAMPLES.keys() <= found.keys()


# `test_docs` finds the examples of a file; these stand in docstrings that are put together.
@pytest.mark.parametrize("described", [_public_rows, lambda: {k: _attributes()[k] for k in method_examples.EXAMPLES}])
def test_examples_of_tables_give_what_they_say(described: Callable[[], dict[str, Any]]) -> None:
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    report: list[str] = []
    for name, value in described().items():
        runner.run(parser.get_doctest(value.__doc__, {}, name, None, None), out=report.append)
    assert not runner.failures and runner.tries >= 2 * len(described()), "".join(report)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_members_of_a_family_have_its_docstring_in_their_words(dims: int) -> None:
    layer = getattr(hm.nn, f"MaxPool{dims}d")
    assert f">>> MaxPool{dims}d(2)" in layer.__doc__ and "{" not in layer.__doc__
    assert layer.function is getattr(hm.nn.functional, f"max_pool{dims}d")


def test_a_subclass_of_a_member_keeps_its_own_docstring() -> None:
    class Described(hm.nn.MaxPool2d):
        """Pooling of mine."""

    class Bare(hm.nn.MaxPool2d):
        pass

    assert (Described.__doc__, Bare.__doc__) == ("Pooling of mine.", None)
    assert Described.dims == 2 and Described(2)(hm.ones((1, 1, 4, 4))).shape == (1, 1, 2, 2)


def _first_lines(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line number, first line) of each docstring, of private functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (doc := ast.get_docstring(node)):
            yield node.body[0].lineno, doc.partition("\n")[0]


def _is_fragment(line: str) -> bool:
    return len(line) < 20 or "?" in line or line.split(" ")[0] in FRAGMENTS


@pytest.mark.parametrize("package", ["hybridml", "hybridml_compiler"])
def test_first_lines_are_plain(package: str) -> None:
    root = Path(__file__).resolve().parents[1] / package
    found = [
        f"{path.relative_to(root)}:{number}: {line}"
        for path in sorted(root.rglob("*.py"))
        for number, line in _first_lines(ast.parse(path.read_text("utf-8")))
        if _is_fragment(line)
    ]
    assert root.is_dir() and not found, "\n".join(found)


def test_a_fragment_or_question_is_found() -> None:
    lines = "Of a slot, by number.", "Does it move elements?", "Reads the sizes, or not?", "Too short."
    assert all(map(_is_fragment, lines))
    assert list(_first_lines(ast.parse('def f():\n    """Of a slot.\n\n    More."""'))) == [(2, "Of a slot.")]
