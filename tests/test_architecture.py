"""The house's arrows: who may import whom, read from the source with ``ast``, and what ``import hybridml`` may load."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import pytest

ROOT = Path(__file__).parent.parent
FRONT, COMPILER = "hybridml", "hybridml_compiler"

# The compiler's rooms in the order of the data's way through them, each with the rooms that it may use.
BASE = (
    "locks", "in_force", "once", "time_limit", "record", "walk", "weak", "errors", "donation", "hooks", "config",
    "compile_policy", "dtypes", "sizes", "aval",
)  # fmt: skip
ARROWS: dict[str, tuple[str, ...]] = {
    "locks": (),
    "in_force": ("locks",),
    "once": ("locks",),
    "time_limit": (),
    "record": (),
    "walk": (),
    "weak": ("locks",),
    "errors": (),
    "donation": (),
    "hooks": ("record",),
    "config": ("record", "errors"),
    "compile_policy": ("config",),
    "dtypes": ("errors", "config"),
    "sizes": ("record", "errors", "hooks", "weak"),
    "aval": ("record", "errors", "config", "dtypes", "sizes"),
    "ops": BASE,  # a row lowers to an abstract scalar builder: it knows no IR
    "graph": (*BASE, "ops"),
    "passes": (*BASE, "ops", "graph"),
    "loops": BASE,  # a loop nest can be built, printed and run without any op or graph
    "schedule": (*BASE, "ops", "graph", "loops"),
    "placement": (*BASE, "ops", "graph", "loops", "schedule"),  # a graph becomes programs of one device each
    "runtime": BASE,
    "targets": (*BASE, "ops", "graph", "loops", "schedule", "placement", "runtime"),  # a plan becomes code
}
ARROWS["hoist"] = (*BASE, "ops", "graph", "schedule")  # asked by capture: what a loop computes before its first step
ARROWS["pipeline"] = tuple(ARROWS)
ARROWS["eager"] = tuple(ARROWS)  # kernels of one call: graphs of one node, or a small pipeline of their own
ARROWS["__init__"] = tuple(ARROWS)

# The front end's rooms, likewise: from what every operation goes through to the face.
_BASIC = ("core", "arrays", "autograd", "display")
_TRACED = (*_BASIC, "tracing", "control_flow", "transforms")
_LIBRARY = (*_TRACED, "linalg", "random")
FRONT_ARROWS: dict[str, tuple[str, ...]] = {
    "core": (),
    "arrays": ("core",),
    "autograd": ("core",),
    "display": ("core",),
    "tracing": ("core",),
    "control_flow": ("core", "arrays", "tracing"),
    "transforms": ("core", "arrays", "autograd"),
    "extend": ("core", "arrays", "tracing", "control_flow", "transforms"),
    "cuda": ("core",),
    "fft": ("core", "arrays"),
    "signal": ("core", "arrays"),
    "linalg": ("core", "arrays", "control_flow"),
    "polynomials": ("core", "arrays", "linalg"),
    "random": _TRACED,
    "functional": _LIBRARY,
    "special": (*_LIBRARY, "functional"),
    "distributions": (*_LIBRARY, "functional", "special"),
    "nn": (*_LIBRARY, "functional"),
    "optim": (*_LIBRARY, "nn"),
    "metrics": (*_LIBRARY, "functional", "nn"),
    "func": (*_LIBRARY, "nn"),
    "amp": (*_BASIC, "optim"),
    "data": (*_BASIC, "random"),
    "utils": ("data", "transforms"),  # what stands there in PyTorch
    "io": ("core", "nn"),
    "training": (*_LIBRARY, "io", "metrics", "nn", "optim"),
    "run": (),
    "interop": (*_BASIC, "linalg", "random"),
    "inspect": (*_TRACED, "random", "cuda"),
    "profiler": (*_TRACED, "amp", "inspect"),
    "distributed": (*_LIBRARY, "data", "functional", "io", "nn", "optim", "profiler"),
}
FRONT_ARROWS["__init__"] = tuple(FRONT_ARROWS)
FRONT_ARROWS["models"] = ("__init__", "nn")  # code as users write it
FRONT_ARROWS["testing"] = tuple(FRONT_ARROWS)
FRONT_ARROWS["__main__"] = tuple(FRONT_ARROWS)

# Imports against the order that stay, all deferred, with the reason.
DOORS = {
    ("hybridml.tracing.introspection", "inspect"): "a traced function explains itself: loaded when it is asked to",
    ("hybridml.tracing.introspection", "profiler"): "and shows its program as a page",
    ("hybridml.inspect.side_by_side", "profiler"): "a comparison explains its times where it is asked to",
    ("hybridml.interop.numpy.table", "__init__"): "functions of NumPy are looked up by their names in the face",
}

# Loaded when first needed: `import hybridml` takes NumPy alone.
LATE = (
    "PIL", "cupy", "einops", "jinja2", "llvmlite", "matplotlib", "mpi4py", "networkx", "numba", "pyarrow", "ray",
    "rich", "safetensors", "scipy", "sklearn", "tqdm",
)  # fmt: skip


class Arrow(NamedTuple):
    source: str  # dotted module
    target: str  # dotted module, or a name in one
    place: str  # file:line


def modules(root: Path, package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((root / package).rglob("*.py")):
        yield ".".join(path.relative_to(root).with_suffix("").parts), path


@cache
@functools.cache
def arrows(root: Path, package: str) -> list[Arrow]:
    """Every import in a package: at module level, in a function, for type checking, or by `import_module("...")`."""
    found = []
    for module, path in modules(root, package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if not isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
                continue
            for target in targets(node, module.split(".")[:-1]):
                found.append(Arrow(module, target, f"{path.relative_to(root)}:{node.lineno}"))
    return found


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
    package, part, *_ = [*module.split("."), "__init__"]
    return part if part in (FRONT_ARROWS if package == FRONT else ARROWS) else "__init__"


def is_wrong(arrow: Arrow) -> bool:
    source, target = arrow.source.split(".")[0], arrow.target.split(".")[0]
    if target not in (FRONT, COMPILER):
        return False
    if source != target:
        return source == COMPILER
    if (arrow.source, room(arrow.target)) in DOORS or room(arrow.source) == room(arrow.target):
        return False
    return room(arrow.target) not in (FRONT_ARROWS if source == FRONT else ARROWS)[room(arrow.source)]


def upward(root: Path = ROOT) -> list[str]:
    """The arrows that the two packages must not have, each as a line to read."""
    found = (arrow for package in (FRONT, COMPILER) for arrow in arrows(root, package))
    return [f"{a.place}: {a.source} imports {a.target}" for a in found if is_wrong(a)]


def test_arrows_follow_the_data() -> None:
    wrong = upward()
    assert not wrong, "imports against the data's way (see ARROWS in this file):\n" + "\n".join(wrong)


def test_every_room_has_a_row() -> None:
    for package, rows in ((COMPILER, ARROWS), (FRONT, FRONT_ARROWS)):
        found = {path.stem for path in (ROOT / package).iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
        assert found == rows.keys(), f"rows without a room, or rooms without a row: {sorted(found ^ rows.keys())}"


@pytest.mark.parametrize("rows", [ARROWS, FRONT_ARROWS], ids=[COMPILER, FRONT])
def test_the_rows_make_no_circle(rows: dict[str, tuple[str, ...]]) -> None:
    seen: set[str] = set()
    for name, allowed in rows.items():
        assert name == "__init__" or set(allowed) - {name} <= seen, f"{name} may import {set(allowed) - seen}"
        seen.add(name)


def test_every_door_is_used_and_deferred() -> None:
    found = {(a.source, room(a.target)): a.place for a in arrows(ROOT, FRONT) if (a.source, room(a.target)) in DOORS}
    assert found.keys() == DOORS.keys(), f"doors that nobody uses: {DOORS.keys() - found.keys()}"
    for place in found.values():
        path, _, line = place.partition(":")
        assert (ROOT / path).read_text().splitlines()[int(line) - 1].startswith("    "), f"{place}: import it late"


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
        ("pipeline.py", "from .targets.cpu.llvm import emit", False),
        ("targets/cpu/llvm/emit.py", "from ...loops.ir import Loop\nfrom ..numba_kernels import sort", False),
    ],
)
def test_the_reader_sees_each_form_of_import(tmp_path: Path, path: str, line: str, wrong: bool) -> None:
    file = tmp_path / COMPILER / path
    file.parent.mkdir(parents=True)
    file.write_text(line + "\n")
    assert bool(upward(tmp_path)) == wrong


@pytest.mark.parametrize(
    ("path", "line", "wrong"),
    [
        ("core/dispatch.py", "from ..arrays import creation", True),
        ("functional/basics.py", "import hybridml as hm", True),
        ("nn/linear.py", "def f():\n    from ..optim import SGD", True),
        ("tracing/function.py", "def f():\n    from ..inspect import audits", True),
        ("tracing/introspection.py", "def f():\n    from ..inspect import audits", False),
        (
            "optim/sgd.py",
            "from .. import arrays as xp\nfrom ..nn import Module\nimport hybridml_compiler",
            False,
        ),
    ],
)
def test_the_front_end_has_an_order_too(tmp_path: Path, path: str, line: str, wrong: bool) -> None:
    file = tmp_path / FRONT / path
    file.parent.mkdir(parents=True)
    file.write_text(line + "\n")
    assert bool(upward(tmp_path)) == wrong


def test_cached_kernels_go_out_of_date_with_all_that_emits_them() -> None:
    """An emitter that imports a module whose edit is not seen would be handed what the module's former self made."""
    from hybridml_compiler.targets.cpu.llvm.modules import EMITTERS

    files = {name.removesuffix(".__init__"): path for name, path in modules(ROOT, COMPILER)}
    seen = {path for name, path in files.items() if any(fnmatchcase(name, f"{COMPILER}.{at}") for at in EMITTERS)}
    used = {
        files.get(target) or files[target.rpartition(".")[0]]
        for source, target, _ in arrows(ROOT, COMPILER)
        if room(source) == "targets" and room(target) in ("loops", "schedule", "dtypes") and "." in target
    }
    assert not used - seen, f"add to EMITTERS: {sorted(str(path) for path in used - seen)}"


def test_llvmlite_is_for_the_runtime() -> None:
    """Code is emitted as text (llvm/ir.py): what is compiled in another process needs no LLVM in this one."""
    allowed = {
        f"{COMPILER}.{name}"
        for name in (
            "targets.cpu.spec",
            "targets.cpu.runtime.llvm_library",
            "targets.cpu.runtime.linking.loader",
            "eager.large",
        )
    }
    found = {a.source for p in (FRONT, COMPILER) for a in arrows(ROOT, p) if a.target.split(".")[0] == "llvmlite"}
    assert found <= allowed, f"{sorted(found - allowed)}: use hybridml_compiler.targets.cpu.llvm.ir"


def test_plans_and_emitters_are_given_their_cpu() -> None:
    """A process compiles for other CPUs than its own: nothing that decides about code asks which one it has."""
    of_process = {"host_spec", "llvm_version", "cores", "jit", "threads"}
    folder = ROOT / COMPILER / "targets/cpu"
    deciding = [*folder.glob("llvm/**/*.py"), *folder.glob("kernels/*.py"), folder / "capabilities.py"]
    assert len(deciding) > 40
    for path in deciding:
        nodes = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
        assert not {alias.name for node in nodes for alias in node.names} & of_process, f"{path}: take a CpuSpec"


def test_import_loads_numpy_alone() -> None:
    program = f"import sys, hybridml; print(*sorted(set({LATE}) & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [], f"`import hybridml` loads {run.stdout.strip()}: import them where they are used"


@pytest.mark.parametrize("package", [FRONT, COMPILER])
def test_no_modules_make_a_circle(package: str) -> None:
    names = {name.removesuffix(".__init__") for name, _ in modules(ROOT, package)}
    graph = nx.DiGraph()
    for source, target, _ in arrows(ROOT, package):
        source = source.removesuffix(".__init__")
        if (source, room(target)) in DOORS:
            continue
        while target and target not in names:
            target = target.rpartition(".")[0]
        if target not in ("", source):
            graph.add_edge(source, target)
    circles = [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert not circles, f"modules that import each other: {circles}"
