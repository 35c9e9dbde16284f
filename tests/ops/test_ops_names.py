"""Properties of an operation are columns of its row: no other file asks for an operation by name to decide one."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

import pytest

from hybridml_compiler.ops.table import OPS

ROOT = Path(__file__).parent.parent.parent

# Files that match particular operations, with the reason. A rewrite is about the operations that its pattern names.
ABOUT_AN_OP = {
    "hybridml_compiler/passes/*.py": "rewrite rules match patterns of particular operations",
    "hybridml_compiler/graph/rewrite.py": "rules are found by the operation that they match",
    "hybridml_compiler/schedule/checks.py": "finds the `index` nodes that graph/checks.py makes",
    "hybridml_compiler/schedule/lowering/concat.py": "the kernel of concatenations",
    "hybridml_compiler/loops/*.py": "the operations of the loop IR are no rows but strings",
    "hybridml/tracing/capture/numbers/whole_numbers.py": "the arithmetic of Python's numbers, as quotients of sizes",
    "hybridml/tracing/capture/number_bounds.py": "the arithmetic of Python's numbers, by its bounds",
    "hybridml/tracing/capture/loops/ways.py": "matches the updates and conditions of branches, which are joined",
    "hybridml/tracing/capture/loops/taken.py": "the rows that raise, each with operands for which it does not",
    "hybridml/tracing/run/random_draws.py": "reads back the additions that capture makes to count draws",
}


# Decisions about one row that are left in files about other things, with the reason.
HONEST = {
    ("hybridml_compiler/schedule/fusion/fuse.py", "node.op is after"): "gives an operand on, and eager code has none",
    ("hybridml_compiler/hoist.py", "node.op.name not in CALLED"): "rows that Python calls again where they fail",
    (
        "hybridml/core/codegen.py",
        "op.name in REDUCED",
    ): "rows for which native_methods.py has calls that reduce all axes",
    ("hybridml/tracing/rolling/ways/one_sided.py", "node.op.name == _OF_VALUES.get(compares)"): "an operator's row",
    ("hybridml_compiler/schedule/control.py", "end.op is OPS['add']"): "the end of one step is its number and one",
    ("hybridml/tracing/capture/loops/cotangent_sums.py", "node.op.name == 'add'"): "what a history adds up is a sum",
    ("hybridml/tracing/capture/loops/cotangent_sums.py", "value.op.name == 'add'"): "what a history adds up is a sum",
    ("hybridml/tracing/capture/loops/cotangent_sums.py", "new.op.name != 'add'"): "what a history adds up is a sum",
    ("hybridml/tracing/capture/loops/cotangent_sums.py", "node.op.name == 'full'"): "zeros are where such a sum begins",
    ("hybridml/tracing/rolling/number_types.py", "reader.op is OPS['scatter_set']"): "stores at indices, as updates do",
    ("hybridml/tracing/capture/loops/data_sizes.py", "node.op is OPS['full']"): "a size is such a row of it",
    (
        "hybridml_compiler/graph/facts.py",
        "indices.op.name == 'index'",
    ): "the row that checks indices, and does nothing else",
    ("hybridml_compiler/graph/independence.py", "node.op.name == 'slice'"): "the row that reads a window",
    ("hybridml/tracing/staging/graphs.py", "control[node.op]"): "loops and branches, each with its own rule",
    ("hybridml/core/proxies/scalar.py", "UFUNCS[op]"): "an operator of Python's",
    ("hybridml/core/dispatch.py", "op is _pow"): "a fixed power is not lifted: each is a program of its own",
    ("hybridml/core/dispatch.py", "op is _astype"): "promotion is done by casts, so a cast is not promoted",
    (
        "hybridml/core/dispatch.py",
        "op is not _astype",
    ): "narrow floats compute by way of casts, which are none themselves",
    ("hybridml/core/dispatch.py", "checked[op]"): "a cache for each row, made with its function",
    ("hybridml/core/codegen.py", "checked[op]"): "makes that cache",
    ("hybridml/core/dispatch.py", "libraries.get(op)"): "native calls of each row, made with its function",
    ("hybridml/core/codegen.py", "libraries[op]"): "makes them",
    ("hybridml/core/precision/autocast.py", "op.name in WIDE"): "PyTorch's lists of rows and of library functions",
    ("hybridml/core/batching/rules.py", "_RULES.get(op)"): "rows whose batches are not those of their kind",
    ("hybridml/core/forward/rules.py", "_RULES.get(op)"): "rows whose tangents are not those of their kind",
    ("hybridml/tracing/capture/tracer.py", "op is _full"): "the row by which a size becomes a number of the program",
    ("hybridml/tracing/capture/tracer.py", "op is _pow"): "a fixed power is a literal of the program",
    ("hybridml/tracing/capture/numbers/results.py", "op is _python_power"): "Python's own power gives a Python number",
    ("hybridml/tracing/capture/numbers/results.py", "op is _astype"): "a cast is how a Python number becomes a tensor",
    ("hybridml/tracing/capture/numbers/perhaps.py", "op is not OPS['pow']"): "a power of numbers is another row",
    ("hybridml_compiler/graph/facts.py", "node.op is astype"): "`is_cast`, which others ask instead",
    ("hybridml_compiler/graph/facts.py", "node.op is after"): "`moved`, which others ask instead",
    ("hybridml_compiler/schedule/kernel_cost.py", "_WEIGHT.get(expr.op, 1)"): "an operation of the loop IR, a string",
    ("hybridml_compiler/targets/cpu/kernels/loop_columns.py", "COMBINE[part.op]"): "the same",
    ("hybridml_compiler/targets/cuda/emit/values.py", "INFIX[expr.op]"): "the same",
    (
        "hybridml_compiler/schedule/fusion/fuse.py",
        "reading[0].op.name == 'reshape'",
    ): "the movement that keeps the order of elements",
    ("hybridml_compiler/schedule/fusion/fuse.py", "reader.op.name == 'permute_dims'"): "the one that has another order",
    ("hybridml_compiler/targets/cuda/emit/narrow.py", "SHORTER[source.op]"): "the same",
    ("hybridml_compiler/targets/cuda/scatter/form.py", "_ATOMIC.get(value.op, '')"): "the same",
    ("hybridml_compiler/targets/cuda/contraction/attention_mask.py", "_SIGNS[condition.op]"): "the same",
    (
        "hybridml_compiler/targets/cuda/libraries/cupy_rows.py",
        "ROWS.get(node.op.name)",
    ): "CuPy's functions, by row",
    ("hybridml_compiler/eager/large.py", "op is _astype"): "a cast between narrow floats computes nothing in float32",
}


class _Reader:
    """What the names of one scope stand for: rows of the op table (as `OPS["add"]`), and names of rows.

    `rows`: names that stand for a fixed row. Found by spelling: of what a call returns nothing is known.
    """

    def __init__(self, nodes: Iterable[ast.AST], rows: Set[str]) -> None:
        self.fixed, self.rows, self.names = set(rows), set(rows), set[str]()
        for node in nodes:
            match node:
                case ast.arg(arg=name, annotation=ast.Name(id="Op")):
                    self.rows.add(name)
                case ast.ImportFrom(module=str(module), names=imported) if "ops" in module.split("."):
                    self._found({alias.asname or alias.name for alias in imported if alias.name in OPS})
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._assigned(target, value)
                case ast.AnnAssign(target=target, value=ast.AST() as value):
                    self._assigned(target, value)
                case ast.NamedExpr(target=target, value=value):
                    self._assigned(target, value)

    def _found(self, rows: set[str]) -> None:
        self.fixed |= rows
        self.rows |= rows

    def _assigned(self, target: ast.AST, value: ast.AST) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, other in zip(target.elts, value.elts, strict=False):
                self._assigned(one, other)
        elif isinstance(target, ast.Name):
            if self.is_fixed(value):
                self._found({target.id})
            if self.is_row(value):
                self.rows.add(target.id)
            if self.is_name(value):
                self.names.add(target.id)

    def is_fixed(self, node: ast.AST) -> bool:
        """Whether an expression is one certain row, or a display of some."""
        match node:
            case ast.Subscript(value=ast.Name(id="OPS"), slice=ast.Constant()):
                return True
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return any(map(self.is_fixed, parts))
            case ast.Name(id=name):
                return name in self.fixed
        return False

    def is_row(self, node: ast.AST) -> bool:
        """Whether an expression is a row."""
        match node:
            case ast.Attribute(attr="op"):
                return True
            case ast.Name(id=name):
                return name in self.rows
        return self.is_fixed(node)

    def is_name(self, node: ast.AST) -> bool:
        """Whether an expression is the name of a row: `node.op.name`, `op_name(x)`, or a variable with such a value."""
        match node:
            case ast.Attribute(value=ast.Name(id="op" | "row"), attr="name"):
                return True
            case ast.Attribute(value=row, attr="name"):
                return self.is_row(row)
            case ast.Call(func=ast.Name(id="op_name")):
                return True
            case ast.Name(id=name):
                return name in self.names
        return False

    def decides(self, node: ast.AST) -> bool:
        match node:
            case ast.Compare(left=left, comparators=others):
                asked = [left, *others]
                nothing = any(isinstance(part, ast.Constant) and part.value is None for part in asked)
                return any(map(self.is_name, asked)) or (not nothing and any(map(self.is_fixed, asked)))
            case ast.Subscript(slice=key) | ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]):
                return self.is_name(key) or self.is_row(key)
            case ast.Dict(keys=keys):
                return any(key is not None and self.is_fixed(key) for key in keys)
            case ast.Match(subject=subject):
                return self.is_name(subject)
            case ast.Call(func=ast.Name(id="is_op")):
                return True
        return False


def _scopes(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Functions, methods, and statements outside of them."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _scopes(node.body)
        else:
            yield node


@functools.cache  # two tests read every file
def decisions(source: str) -> set[tuple[int, str]]:
    """Lines and texts of what compares a row or its name with certain ones, or looks something up by it."""
    scopes = list(_scopes(ast.parse(source).body))
    functions = [[*ast.walk(node)] for node in scopes if isinstance(node, ast.FunctionDef)]
    top = [node for scope in scopes if not isinstance(scope, ast.FunctionDef) for node in ast.walk(scope)]
    rows = _Reader(top, set()).fixed
    return {
        (node.lineno, ast.unparse(node))
        for nodes in [top, *functions]
        for reader in [_Reader(nodes, rows)]
        for node in nodes
        if isinstance(node, ast.expr | ast.Match) and reader.decides(node)
    }


def test_no_file_decides_by_the_name_of_an_op() -> None:
    files = [path for package in ("hybridml", "hybridml_compiler") for path in (ROOT / package).rglob("*.py")]
    allowed = {path for pattern in ABOUT_AN_OP for path in ROOT.glob(pattern)} | set(
        (ROOT / "hybridml_compiler/ops").glob("*.py")
    )
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in files
        if path not in allowed
        for line, text in sorted(decisions(path.read_text()))
        if (str(path.relative_to(ROOT)), text) not in HONEST
    ]
    assert not wrong, f"add a column to the op table (ops/op.py) and read that: {wrong}"


def test_files_about_an_op_are_there_and_need_to_be() -> None:
    unused = [pattern for pattern in ABOUT_AN_OP if not any(decisions(path.read_text()) for path in ROOT.glob(pattern))]
    assert not unused, f"take these out of ABOUT_AN_OP: {unused}"
    texts = {file: {text for _, text in decisions((ROOT / file).read_text())} for file, _ in HONEST}
    gone = [(file, text) for file, text in HONEST if text not in texts[file]]
    assert not gone, f"take these out of HONEST: {gone}"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("def f(node): return node.op.name == 'reshape'", True),
        ("def f(node): return node.op.name in VIEWS", True),
        ("def f(node):\n    kind, name = node.kind, node.op.name\n    return name in VIEWS", True),
        ("def f(op): return COSTS[op.name]", True),
        ("def f(op): return COSTS.get(op.name, 0)", True),
        ("def f(node): return is_op(node, 'reshape')", True),
        ("def f(op): return op is OPS['reshape']", True),
        ("_reshape, _add = OPS['reshape'], OPS['add']\ndef f(node): return node.op is _reshape", True),
        ("from ..ops.elementwise import astype as _astype\ndef f(op): return op is not _astype", True),
        ("_VIEWS = (OPS['reshape'], OPS['slice'])\ndef f(op): return op in _VIEWS", True),
        ("COSTS = {OPS['add']: 1.0}", True),
        ("def f(node): return COSTS[node.op]", True),
        ("def f(some: Op): return COSTS[some]", True),
        ("def f(node):\n    o = node.op\n    return COSTS.get(o)", True),
        ("def f(node):\n    o = node.op\n    return o.name == 'reshape'", True),
        ("def f(node): return (o := node.op) and o.name == 'reshape'", True),
        ("def f(x):\n    row = OPS['add']\n    return x if row is None else row.fn(x, 1)", False),
        ("def f(op: str): return COMBINE[op]", False),
        ("def f(node, other): return node.op is other.op", False),
        ("def f(op): return f'{op.name}: bad'", False),
        ("def f(op): return op.is_view", False),
        ("def f(name): return name in VIEWS", False),
    ],
)
def test_the_reader_sees_decisions(line: str, wrong: bool) -> None:
    assert bool(decisions(line)) == wrong
