"""Write the pages and stubs that come from tables of the code (``make docs``), or say what is old (``--check``)."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from docs import gpu_rows, house, spelling_page
from docs.stubs import namespace, tensor_methods
from hybridml import functional, nn
from hybridml_compiler.config import FLAGS, Flag
from hybridml_compiler.ops.computed import Refused
from hybridml_compiler.ops.op import REQUIRED
from hybridml_compiler.ops.table import OPS

DOCS = Path(__file__).parent
HEADER = """\
# Operations

Generated from the operation table by `make docs`; do not edit. [Adding an op](adding_an_op.md) says how to write a row.

The largest errors found are in units of the last place (ulp) of the exact result: 0.5 is an exactly rounded result,
and rows that are exact do not round. Those with a mark (Σ) are in ulp of the largest term, or of the sum of all terms
without signs, where terms cancel; sums and products are of 1,000. float32 is compared with float64 at 20,000 points of
each of up to four intervals, float64 with mpmath at 400 (with longer floats where there are many terms).
`make accuracy` measures them, `tests/support/accuracy.py` says where, and a test measures some points again. float16
and bfloat16 are float32 rounded once more; complex numbers have the
steps of their parts (`loops/complex_parts.py`), or are NumPy's.
"""

INTERNAL = (
    "Internal rows\n\nThey are nodes of graphs and serve the gradients and functions of others; `hm` has no such names."
)


CONFIGURATION = """\
# Configuration

Generated from `hybridml_compiler/config.py` by `make docs`; do not edit. The environment is read when a setting is
needed; a value that a variable does not take is reported once and ignored. A program sets the same for a block, or for
all that follows:

```python
import hybridml as hm

@hm.trace
def f(x):
    return hm.exp(x * 2) + 1

x = hm.ones((1000,))
with hm.config(fusion=False, num_threads=1):  # here, in this thread or task; blocks nest
    f(x)
    assert f.stats.kernels == 3
f(x)
assert f.stats.kernels == 1 and hm.config().fusion
hm.config.update(gradient_memory=256)  # from now on, in all threads
print(hm.config())  # what holds now, and whether a block, the program or the environment has decided
```

The innermost block decides, then `update`, then the environment. What was before holds again after a block, however it
ends. Settings with **process** below are those of the whole process, in a block as long as it lasts.

On settings with **programs** the code of traced functions depends. A function has programs of its own for each of
their values, in memory and on disk, and keeps those that it has: the first call in a block compiles, later ones take as
long as calls elsewhere. In a block `f.stats`, `f.explain`, `f.graph`, `f.lower` and the like look at the programs of
the block. Eager code, and functions of the library that run compiled by themselves (`softmax`, steps of optimizers
outside of a trace), follow the environment alone in these.

From `fusion` on they are parts of the compiler, all on, that you switch off to learn what they are worth. Memory and
kernels are then others, and results the same: to the bit on the CPU without `memory_plan`, `recompute` and `in_place`;
rounded otherwise, where sums are added up in another order, without `layout`, `own_products`, `own_convolutions`, and
in some programs without `fusion`. The counterpart of capturing a step as a whole is eager code itself (`hm.eager()`).

| setting | variable | takes | default | | meaning |
|---|---|---|---|---|---|
"""


LAYERS = """\
# Layers

Generated from the docstrings of `hm.nn.functional` and `hm.nn` by `make docs`; do not edit. Names, arguments, defaults,
state-dict keys and results are PyTorch's, with data in (n, channels, ...); the tests compare values and gradients with
recorded ones of PyTorch. Functions are composites in plain code over [operations](ops.md): they trace, fuse and
differentiate to any order, and large arguments run compiled in eager code too. Arguments after PyTorch's
deprecated `size_average` and `reduce` are by keyword; `inplace` has no effect. Errors are the same in both styles.

```python
import hybridml as hm
from hybridml import nn

encoder = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, padding_mode="reflect"), nn.GroupNorm(4, 16), nn.Mish())
decoder = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(16, 3, 1), nn.Hardsigmoid())


@hm.trace
def loss(images):
    small = nn.functional.max_pool2d(encoder(images), 2)
    return nn.functional.huber_loss(decoder(small), images)


loss(hm.random.uniform((2, 3, 16, 16))).backward()
```

`hm.pad` has NumPy's modes and order of axes, `hm.nn.functional.pad` PyTorch's.
"""

COMPUTED_WEIGHTS = """\

A parameter can be a function of others. `parametrize` puts a module on it, `parametrizations` are the known ones, and
`prune` masks elements out. Such an attribute is computed where it is read, in both styles; what is trained are its
originals, under PyTorch's keys of the state dict. The layer's class stays, and it can be copied, pickled and saved.

```python
class Positive(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x)

    def right_inverse(self, weight):                  # the original of a weight, to begin with and to assign
        return hm.log(hm.expm1(weight))


mixer = nn.Linear(4, 4)
mixer.weight = nn.Parameter(hm.full((4, 4), 0.25))
nn.utils.parametrize.register_parametrization(mixer, "weight", Positive())
rotation = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4, bias=False))
last = nn.utils.prune.l1_unstructured(nn.Linear(4, 1), "weight", amount=0.5)
model = nn.Sequential(mixer, rotation, last)
optimizer = hm.optim.Adam(model.parameters(), lr=0.1)


@hm.trace
def step(x, y):
    optimizer.zero_grad()
    error = nn.functional.mse_loss(model(x), y)
    error.backward()
    optimizer.step()
    return error


x = hm.random.normal((32, 4))
first, *_, end = [step(x, x.sum(dim=1, keepdim=True)).item() for _ in range(30)]
assert end < first and bool((mixer.weight > 0).all()) and int((last.weight == 0).sum()) == 2
assert hm.allclose(rotation.weight @ rotation.weight.T, hm.eye(4), atol=1e-5)
print([name for name in model.state_dict() if name[0] == "2"])
nn.utils.parametrize.remove_parametrizations(mixer, "weight")     # a parameter again, of the present value
```

`parametrize.cached()` computes each such weight once in a block, as for the cell of a recurrent network; it goes inside
of a traced function. Registering, removing and pruning are done outside, and a traced function is traced again then.
"""


class Row(Protocol):
    """What a page needs of a row of ``hybridml_compiler.ops.table.OPS``."""

    name: str
    kind: str
    public: bool
    doc: str
    inputs: Sequence[str]
    params: Mapping[str, Any]  # name -> default
    vjp: Sequence[Any]  # one rule an input, None where there is no gradient


def signature(row: Row) -> str:
    """``sum(x, *, axis=None, keepdims=False)``; a parameter without a default stands by its name alone."""
    params = [
        name if default is REQUIRED else f"{name}={default!r}"
        for name, default in row.params.items()
        if name != "result"  # which of several a node of a graph stands for; users get all
    ]
    return f"{row.name}({', '.join([*row.inputs, *(['*', *params] if params else [])])})"


def gradient(row: Row) -> str:
    """Which inputs have a gradient rule: all ("yes"), none ("no"), or their names."""
    named = [
        f"`{name}`"
        for name, rule in zip(row.inputs, row.vjp, strict=False)
        if rule is not None and not isinstance(rule, Refused)
    ]
    if not named:
        return "no"
    return "yes" if len(named) == len(row.inputs) else ", ".join(named)


def cell(text: str) -> str:
    """A docstring's first paragraph as one table cell."""
    return " ".join(text.strip().split("\n\n")[0].split()).replace("|", "\\|")


def error(found: Mapping[str, Any] | None, dtype: str) -> str:
    """The largest error of a row as a cell."""
    if found is None or dtype not in found:
        return ""
    value = found[dtype]
    return "exact" if value == 0 else f"{value:g}{' Σ' if found.get('terms') else ''}"


def ops_page(table: Mapping[str, Row], accuracy: Mapping[str, Mapping[str, Any]]) -> str:
    sections: defaultdict[str, list[Row]] = defaultdict(list)
    for row in sorted(table.values(), key=lambda row: not row.public):
        sections[str(row.kind) if row.public else INTERNAL].append(row)
    kinds = {row.kind for row in table.values()}
    parts = [HEADER, f"{len(table)} rows of {len(kinds)} kinds; fusion looks at the kind, never at the name."]
    for title, rows in sections.items():
        parts += [f"\n## {title}\n", "| operation | meaning | gradient | float32 | float64 |", "|---|---|---|---|---|"]
        for row in sorted(rows, key=lambda row: row.name):
            errors = " | ".join(error(accuracy.get(row.name), dtype) for dtype in ("float32", "float64"))
            parts.append(f"| `{signature(row)}` | {cell(row.doc)} | {gradient(row)} | {errors} |")
    return "\n".join(parts) + "\n"


def _kind(flag: Flag) -> str:
    return {"process": "process", "start": "environment alone"}.get(flag.scope, "programs" if flag.decides else "")


def configuration_page() -> str:
    rows = (f"| `{f.field}` | `{f.variable}` | {f.takes} | {f.shown} | {_kind(f)} | {cell(f.meaning)} |" for f in FLAGS)
    return CONFIGURATION + "\n".join(rows) + "\n"


def call(name: str, function: Any) -> str:
    """``f(x, size=None)``: the names of a signature and their defaults."""
    parts = []
    found = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    for k, p in enumerate(found):
        if p.kind is p.KEYWORD_ONLY and (k == 0 or found[k - 1].kind not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)):
            parts.append("*")
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(star + p.name if p.default is p.empty else f"{p.name}={p.default!r}")
    return f"{name}({', '.join(parts)})"


def layers_page() -> str:
    """Every function of `functional` and every module of `nn`, by the file that it stands in."""
    parts = [LAYERS]
    for title, package in (("Functions", functional), ("Modules", nn)):
        files: defaultdict[str, list[tuple[str, Any]]] = defaultdict(list)
        for name in package.__all__:
            member = getattr(package, name)
            if not inspect.ismodule(member):
                files[member.__module__].append((name, member))
        parts.append(f"\n## {title}")
        for file in sorted(files):
            about = inspect.getdoc(sys.modules[file]) or ""
            parts += [f"\n{cell(about)}\n", "| name | meaning |", "|---|---|"]
            parts += [f"| `{call(*row)}` | {cell(inspect.getdoc(row[1]) or '')} |" for row in files[file]]
    parts += ["\n## `hm.nn.utils`", COMPUTED_WEIGHTS, "| name | meaning |", "|---|---|"]
    found = {name: getattr(nn.utils, name) for name in nn.utils.__all__}
    utils = [row for row in found.items() if not inspect.ismodule(row[1])]
    for file, module in found.items():
        if inspect.ismodule(module):
            utils += [(f"{file}.{name}", getattr(module, name)) for name in module.__all__]
    parts += [f"| `{call(*row)}` | {cell(inspect.getdoc(row[1]) or '')} |" for row in utils]
    return "\n".join(parts) + "\n"


def pages() -> dict[Path, str]:
    """Every generated page and type stub, by its path."""
    accuracy = json.loads((DOCS / "accuracy.json").read_text("utf-8"))
    return {
        DOCS / "ops.md": ops_page(OPS, accuracy),
        DOCS / "configuration.md": configuration_page(),
        DOCS / "layers.md": layers_page(),
        DOCS / "your_name_here.md": spelling_page.page(),
        DOCS / "notes/gpu_rows.md": gpu_rows.page(),
        **house.pages(),
        DOCS.parent / "hybridml/__init__.pyi": namespace(),
        DOCS.parent / "hybridml/core/tensor_methods.pyi": tensor_methods(),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
    check = parser.parse_args(arguments).check
    stale = [(path, text) for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
    for path, text in stale:
        if not check:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(DOCS.parent)}: {'out of date, run `make docs`' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
