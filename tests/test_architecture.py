"""The house's arrows: who may import whom, read from the source with ``ast``, and what ``import hybridml`` may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import pytest

ROOT = Path(__file__).parent.parent
FRONT, COMPILER = "hybridml", "hybridml_compiler"

# The compiler's rooms in the order of the data's way through them, each with the rooms that it may use.
BASE = ("locks", "in_force", "once", "weak", "errors", "hooks", "config", "dtypes", "sizes", "aval")
ARROWS: dict[str, tuple[str, ...]] = {
    "locks": (),
    "in_force": ("locks",),
    "once": ("locks",),
    "weak": ("locks",),
    "errors": (),
    "hooks": (),
    "config": ("errors",),
    "dtypes": ("errors", "config"),
    "sizes": ("errors", "hooks"),
    "aval": ("errors", "config", "dtypes", "sizes"),
    "ops": BASE,  # a row lowers to an abstract scalar builder: it knows no IR
    "graph": (*BASE, "ops"),
    "passes": (*BASE, "ops", "graph"),
    "loops": BASE,  # a loop nest can be built, printed and run without any op or graph
    "schedule": (*BASE, "ops", "graph", "loops"),
    "runtime": BASE,
    "backends": (*BASE, "loops", "schedule", "runtime"),  # a plan becomes code that calls the runtime's symbols
}
ARROWS["hoist"] = (*BASE, "ops", "graph", "schedule")  # asked by capture: what a loop computes before its first step
ARROWS["pipeline"] = tuple(ARROWS)
ARROWS["eager"] = tuple(ARROWS)  # kernels of one call: graphs of one node, or a small pipeline of their own
ARROWS["__init__"] = tuple(ARROWS)

# Loaded when first needed: `import hybridml` takes NumPy alone.
LATE = (
    "cupy", "einops", "jinja2", "llvmlite", "matplotlib", "networkx", "numba", "rich", "safetensors", "scipy",
    "sklearn", "tqdm",
)  # fmt: skip


class Arrow(NamedTuple):
    source: str  # dotted module
    target: str  # dotted module, or a name in one
    place: str  # file:line


def modules(root: Path, package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((root / package).rglob("*.py")):
        yield ".".join(path.relative_to(root).with_suffix("").parts), path


def arrows(root: Path, package: str) -> Iterator[Arrow]:
    """Every import in a package: at module level, in a function, for type checking, or by `import_module("...")`."""
    for module, path in modules(root, package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if not isinstance(node, ast.stmt | ast.expr):
                continue
            for target in targets(node, module.split(".")[:-1]):
                yield Arrow(module, target, f"{path.relative_to(root)}:{node.lineno}")


def targets(node: ast.AST, package: list[str]) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=name, names=names, level=level):
            above = package[: len(package) - level + 1] if level else []
            return [".".join([*above, *([name] if name else []), alias.name]) for alias in names]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [".".join([*package, name.lstrip(".")]) if name.startswith(".") else name]
    return []


def room(module: str) -> str:
    """`hybridml_compiler.graph.ir` is in `graph`; the package's own names are in `__init__`."""
    part = [*module.split("."), "__init__"][1]
    return part if part in ARROWS else "__init__"


def upward(root: Path = ROOT) -> list[str]:
    """The arrows that the two packages must not have, each as a line to read."""
    return [
        f"{arrow.place}: {arrow.source} imports {arrow.target}"
        for arrow in arrows(root, COMPILER)
        if arrow.target.split(".")[0] == FRONT
        or (
            arrow.target.split(".")[0] == COMPILER
            and room(arrow.target) != room(arrow.source)
            and room(arrow.target) not in ARROWS[room(arrow.source)]
        )
    ]


def test_arrows_follow_the_data() -> None:
    wrong = upward()
    assert not wrong, "imports against the data's way (see ARROWS in this file):\n" + "\n".join(wrong)


def test_every_room_has_a_row() -> None:
    found = {path.stem for path in (ROOT / COMPILER).iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    assert found <= ARROWS.keys(), f"give these a row in ARROWS: {sorted(found - ARROWS.keys())}"


def test_the_rows_make_no_circle() -> None:
    seen: set[str] = set()
    for name, allowed in list(ARROWS.items())[:-1]:
        assert set(allowed) - {name} <= seen, f"{name} may import {set(allowed) - seen}, which stand after it"
        seen.add(name)


@pytest.mark.parametrize(
    ("path", "line", "wrong"),
    [
        ("ops/table.py", "from ..graph import ir", True),
        ("ops/table.py", "from ..graph.ir import Node", True),
        ("ops/table.py", "from .. import graph", True),
        ("ops/table.py", "def f():\n    import hybridml_compiler.loops.ir", True),
        ("ops/table.py", "import importlib\nimportlib.import_module('hybridml_compiler.loops')", True),
        ("ops/table.py", "from hybridml_compiler import compile", True),
        ("loops/lower.py", "from ..ops.op import Op", True),
        ("errors.py", "import hybridml", True),
        ("pipeline.py", "def f():\n    from hybridml.tensor import Tensor", True),
        ("ops/table.py", "from .op import Op\nfrom ..aval import Aval\nimport numpy", False),
        ("pipeline.py", "from .backends.llvm import emit", False),
        ("backends/llvm/emit.py", "from ...loops.ir import Loop\nfrom ..numba_kernels import sort", False),
    ],
)
def test_the_reader_sees_each_form_of_import(tmp_path: Path, path: str, line: str, wrong: bool) -> None:
    file = tmp_path / COMPILER / path
    file.parent.mkdir(parents=True)
    file.write_text(line + "\n")
    assert bool(upward(tmp_path)) == wrong


def test_cached_kernels_go_out_of_date_with_all_that_emits_them() -> None:
    """An emitter that imports a module whose edit is not seen would be handed what the module's former self made."""
    from hybridml_compiler.backends.llvm.modules import EMITTERS

    files = dict(modules(ROOT, COMPILER))
    seen = {path for name, path in files.items() if any(fnmatchcase(name, f"{COMPILER}.{at}") for at in EMITTERS)}
    used = {
        files.get(target) or files[target.rpartition(".")[0]]
        for source, target, _ in arrows(ROOT, COMPILER)
        if room(source) == "backends" and room(target) in ("loops", "schedule", "dtypes") and "." in target
    }
    assert not used - seen, f"add to EMITTERS: {sorted(str(path) for path in used - seen)}"


def test_llvmlite_is_for_the_runtime() -> None:
    """Code is emitted as text (backends/llvm/ir.py): what is compiled in another process needs no LLVM in this one."""
    allowed = {"hybridml_compiler.runtime.host", "hybridml_compiler.runtime.jit", "hybridml_compiler.eager.large"}
    found = {a.source for p in (FRONT, COMPILER) for a in arrows(ROOT, p) if a.target.split(".")[0] == "llvmlite"}
    assert found <= allowed, f"{sorted(found - allowed)}: use hybridml_compiler.backends.llvm.ir"


def test_import_loads_numpy_alone() -> None:
    program = f"import sys, hybridml; print(*sorted(set({LATE}) & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [], f"`import hybridml` loads {run.stdout.strip()}: import them where they are used"


def test_no_modules_of_the_compiler_make_a_circle() -> None:
    files = {name.removesuffix(".__init__"): path for name, path in modules(ROOT, COMPILER)}
    graph = nx.DiGraph()
    for source, target, _ in arrows(ROOT, COMPILER):
        while target and target not in files:
            target = target.rpartition(".")[0]
        graph.add_edge(source.removesuffix(".__init__"), target or "elsewhere")
    circles = [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1]
    assert not circles, f"modules that import each other (deferred and for type checking counts): {circles}"
