"""Properties of an operation are columns of its row: no other file asks for an operation by name to decide one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

# Files that match particular operations, with the reason. A rewrite is about the operations that its pattern names.
ABOUT_AN_OP = {
    "hybridml_compiler/passes/*.py": "rewrite rules match patterns of particular operations",
    "hybridml_compiler/graph/rewrite.py": "rules are found by the operation that they match",
    "hybridml_compiler/schedule/checks.py": "finds the `index` nodes that graph/checks.py makes",
    "hybridml_compiler/schedule/lowering/concat.py": "the kernel of concatenations",
    "hybridml/tracing/run/random_draws.py": "reads back the additions that capture makes to count draws",
}


def _is_name(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is the name of a row: `node.op.name`, `op_name(x)`, or a variable with such a value."""
    match node:
        case ast.Attribute(value=ast.Attribute(attr="op") | ast.Name(id="op" | "row"), attr="name"):
            return True
        case ast.Call(func=ast.Name(id="op_name")):
            return True
        case ast.Name(id=name):
            return name in names
    return False


def _variables(function: ast.AST) -> set[str]:
    """Variables of a function that hold the name of a row."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                pairs = zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]
                found |= {to.id for to, value in pairs if isinstance(to, ast.Name) and _is_name(value, found)}
    return found


def decisions(source: str) -> Iterator[int]:
    """Lines that compare the name of a row, or look something up by it."""
    tree = ast.parse(source)
    for function in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
        names = _variables(function)
        for node in ast.walk(function):
            match node:
                case ast.Compare(left=left, comparators=others):
                    asked = [left, *others]
                case ast.Subscript(slice=key) | ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]):
                    asked = [key]
                case ast.Match(subject=subject):
                    asked = [subject]
                case ast.Call(func=ast.Name(id="is_op")):
                    yield node.lineno
                    continue
                case _:
                    continue
            if any(_is_name(part, names) for part in asked):
                yield node.lineno


def test_no_file_decides_by_the_name_of_an_op() -> None:
    files = [path for package in ("hybridml", "hybridml_compiler") for path in (ROOT / package).rglob("*.py")]
    allowed = {path for pattern in ABOUT_AN_OP for path in ROOT.glob(pattern)} | set(
        (ROOT / "hybridml_compiler/ops").glob("*.py")
    )
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        if path not in allowed
        for line in sorted(set(decisions(path.read_text())))
    ]
    assert not wrong, f"add a column to the op table (ops/op.py) and read that: {wrong}"


def test_files_about_an_op_are_there_and_need_to_be() -> None:
    unused = [
        pattern for pattern in ABOUT_AN_OP if not any(any(decisions(path.read_text())) for path in ROOT.glob(pattern))
    ]
    assert not unused, f"take these out of ABOUT_AN_OP: {unused}"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("def f(node): return node.op.name == 'reshape'", True),
        ("def f(node): return node.op.name in VIEWS", True),
        ("def f(node):\n    kind, name = node.kind, node.op.name\n    return name in VIEWS", True),
        ("def f(op): return COSTS[op.name]", True),
        ("def f(op): return COSTS.get(op.name, 0)", True),
        ("def f(node): return is_op(node, 'reshape')", True),
        ("def f(op): return f'{op.name}: bad'", False),
        ("def f(op): return op.is_view", False),
        ("def f(name): return name in VIEWS", False),
    ],
)
def test_the_reader_sees_decisions(line: str, wrong: bool) -> None:
    assert any(decisions(line)) == wrong
