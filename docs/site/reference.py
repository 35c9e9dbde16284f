"""The reference: an entry for every public name, with its call, its docstring and its example, from the live objects.

Rows of the operation table and the layers of a family have no source text, so the objects are asked and not the files.
A name is described once, at home; where it is offered too, a table leads there.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
import re
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hybridml as hm
from docs.generate import call, cell
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

ROOT = Path(__file__).parents[2]

# Pages of the face, and which names stand there: kinds of rows, and beginnings of the module that a function is from.
# A name is on the first page that takes it.
FACE = {
    "arrays": ("Making arrays", (
        "arrays.creation", "arrays.data_types", "arrays.inspection", "arrays.shape_dtype", "interop.numpy", "number",
        "dtype", "core.tensor",
    )),
    "elementwise": ("Element by element", (
        "row:elementwise", "arrays.elementwise", "interop.pytorch.functions", "row:opaque:exact",
    )),
    "reductions": ("Sums, statistics and scans", ("row:reduction", "row:scan", "arrays.reducing", "arrays.numerical")),
    "shapes": ("Shapes", ("row:movement", "arrays.shaping")),
    "indexing": ("Indexing and scattering", ("row:gather", "row:scatter", "arrays.indexing")),
    "order": ("Order and sets", ("arrays.searching",)),
    "products": ("Products and matrices", ("row:contraction", "arrays.contracting", "row:opaque", "linalg")),
    "derivatives": ("Derivatives and functions of functions", (
        "transforms", "core.context", "core.pytree", "interop.pytorch.hardware",
    )),
    "tracing": ("Tracing and control flow", (
        "tracing", "control_flow", "extend", "inspect", "profiler", "compiler.config", "compiler.targets", "amp",
    )),
    "more": ("Names of modules at the top", (
        "functional", "special", "random", "io", "polynomials", "arrays.spectral", "distributed", "compiler.errors",
    )),
}  # fmt: skip

# Pages of modules: the modules that stand on each. Their names are described there, unless the face has them at home.
MODULES = {
    "nn": ("Layers", ("nn", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "nn.utils.parametrizations",
                      "nn.utils.prune", "nn.quantized")),
    "functional": ("Functions of layers", ("functional",)),
    "optim": ("Optimizers", ("optim", "optim.lr_scheduler", "optim.swa_utils")),
    "data": ("Data", ("data", "data.transforms")),
    "training": ("Training", ("training", "metrics")),
    "distributed": ("Many processes", ("distributed", "distributed.servers")),
    "models": ("Models", ("models",)),
    "linalg": ("Linear algebra", ("linalg",)),
    "random": ("Random numbers", ("random",)),
    "distributions": ("Distributions", ("distributions", "distributions.transforms", "distributions.constraints",
                                        "distributions.constraint_registry")),
    "fft": ("Fourier transforms and signals", ("fft", "signal", "signal.windows")),
    "special": ("Special functions", ("special",)),
    "autograd": ("Autograd and transforms by module", ("autograd", "func")),
    "devices": ("GPUs and mixed precision", ("cuda", "amp")),
    "io": ("Files, tests and errors", ("io", "testing", "errors", "utils", "utils.data", "utils.checkpoint")),
}  # fmt: skip
# Names of the face that are described with their modules.
AT_HOME_IN_MODULES = ("functional", "linalg", "special", "random", "io", "distributed", "compiler.errors")
CONSTANTS = {
    "e": "Euler's number.", "pi": "The number π.", "inf": "Infinity, a float.", "nan": "Not a number, a float.",
    "newaxis": "A new axis of length 1 in an index: None.", "__version__": "The version of hybridml.",
    "__array_api_version__": "The version of the array API standard whose names these are.",
}  # fmt: skip
DTYPES = {
    "bool": "Truth values.", "float16": "Half precision, computed in float32 and rounded.",
    "bfloat16": "Eight bits of fraction and float32's range, computed in float32 and rounded.",
    "float32": "Single precision, the default.", "float64": "Double precision.",
    "complex64": "Two float32.", "complex128": "Two float64.",
}  # fmt: skip
OTHERS = {
    tuple: "Shapes are tuples; this is PyTorch's name of their type.",
    np.ndindex: "NumPy's iterator over the indices of a shape.",
    np.dtype: "The type of data types, which is NumPy's.",
}
NAMELESS = re.compile(r"=<(?:[^<>]|<\w+>)*>")  # a default that is a function, a class or an object
WIDE = 88  # characters of code that a page shows without scrolling
EXAMPLE = re.compile(r"(?:^>>>.*\n?(?:^(?!>>>)\S.*\n?|^[ \t].*\n?)*)+", re.MULTILINE)
CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
FROM_ROW = re.compile(r"\s*^A row of (\S+)\.$", re.MULTILINE)


class Entry(NamedTuple):
    """A thing that is described, at its home."""

    path: str  # `hm.nn.Linear`: as users write it, and the anchor on the page
    value: Any
    others: tuple[str, ...] = ()  # other names of it on the same page


class Section(NamedTuple):
    """A part of a page: what it describes, and which of its names are described elsewhere."""

    title: str
    about: str
    entries: list[Entry]
    elsewhere: list[tuple[str, str]]  # (path here, path at home)


def public_names(module: Any) -> list[str]:
    """Names that a module offers, without the modules in it."""
    if module is hm:
        names = dir(hm)
    else:
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        names = list(getattr(module, "__all__", [name for name in own if name[0] != "_"]))
        names += [name for name in getattr(module, "_ARCHITECTURES", ()) if name not in names]
    return [name for name in names if not inspect.ismodule(getattr(module, name))]


def module_of(path: str) -> Any:
    """The module `hybridml.PATH`."""
    return pkgutil.resolve_name(f"hybridml:{path}")


@functools.cache
def _rows() -> dict[int, Op]:
    return {id(op.fn): op for op in OPS.values()}


def _is_at_home_in(begin: str, origin: str) -> bool:
    return origin == begin or origin.startswith((f"{begin}.", f"{begin}:"))


def origin_of(name: str, value: Any) -> str:
    """Where a name of the face is from: `row:elementwise:analytic`, `arrays.creation`, `dtype`, `number`."""
    row = _rows().get(id(value))
    if row is not None:
        file = FROM_ROW.search(inspect.getdoc(value) or "")
        return f"row:{row.kind}:{Path(file[1]).stem if file else ''}"
    if isinstance(value, np.dtype):
        return "dtype"
    if name in CONSTANTS or (inspect.isclass(value) and value in OTHERS):
        return "number"
    module = str(getattr(value, "__module__", ""))
    if module.startswith("hybridml_compiler."):
        return "compiler" + module.removeprefix("hybridml_compiler")
    return "core.tensor" if module == "hybridml" else module.removeprefix("hybridml.")


def face_page(name: str) -> str:
    """The page on which a name of the face stands."""
    origin = origin_of(name, getattr(hm, name))
    pages = [page for page, (_, begins) in FACE.items() if any(_is_at_home_in(begin, origin) for begin in begins)]
    if not pages:
        raise LookupError(f"hm.{name} is on no page of docs/site/reference.py: it is from {origin!r}")
    return pages[0]


def _key(value: Any) -> int | str:
    return str(value) if isinstance(value, (str, float, type(None))) else id(value)


def sections() -> dict[str, list[Section]]:
    """The sections of every page."""
    homes: dict[int | str, str] = {}
    found: dict[str, list[Section]] = {page: [] for page in (*FACE, *MODULES)}
    face = {name: getattr(hm, name) for name in public_names(hm)}
    of_page: dict[str, list[str]] = {page: [] for page in FACE}
    for name in face:
        of_page[face_page(name)].append(name)

    def section(title: str, about: str, prefix: str, values: dict[str, Any], stays: bool = True) -> Section:
        entries: dict[int | str, Entry] = {}
        elsewhere = []
        for name, value in values.items():
            key, path = _key(value), f"{prefix}.{name}"
            if key in entries:
                entries[key] = entries[key]._replace(others=(*entries[key].others, path))
            elif key in homes:
                elsewhere.append((path, homes[key]))
            else:
                homes[key] = path
                entries[key] = Entry(path, value)
        return Section(title, about, list(entries.values()), elsewhere)

    def own_first(names: list[str]) -> list[str]:
        """A thing is described by its own name, `acos` before `arccos`."""
        return sorted(names, key=lambda name: _own_name(face[name], name) != name)

    for page, (title, _) in FACE.items():
        origins = {name: origin_of(name, face[name]) for name in of_page[page]}
        away = {n for n, o in origins.items() if any(_is_at_home_in(b, o) for b in AT_HOME_IN_MODULES)}
        values = {name: face[name] for name in own_first(of_page[page]) if name not in away}
        found[page].append(section(title, "", "hm", dict(sorted(values.items(), key=lambda i: _order(face, i[0])))))
    for page, (_, modules) in MODULES.items():
        for path in modules:
            module = module_of(path)
            values = {name: getattr(module, name) for name in sorted(public_names(module), key=str.lower)}
            found[page].append(section(f"hm.{path}", inspect.getdoc(module) or "", f"hm.{path}", values))
    for page in FACE:  # names whose home is a module
        there = {entry.path for entry in found[page][0].entries}
        there |= {other for entry in found[page][0].entries for other in entry.others}
        for name in of_page[page]:
            if f"hm.{name}" not in there:
                key = _key(face[name])
                if key in homes:
                    found[page][0].elsewhere.append((f"hm.{name}", homes[key]))
                else:
                    homes[key] = f"hm.{name}"
                    found[page][0].entries.append(Entry(f"hm.{name}", face[name]))
    return found


def _own_name(value: Any, name: str) -> str:
    """The name that something calls itself; a constant has none."""
    own = value.name if isinstance(value, np.dtype) else getattr(value, "__name__", name)
    return own if isinstance(own, str) else name


def _order(face: dict[str, Any], name: str) -> tuple[int | str, ...]:
    """Entries by their own names, and other names behind their own."""
    own = _own_name(face[name], name)
    own = own if own in face and face[own] is face[name] else name
    return own.lower(), int(own != name), name


def markdown(text: str) -> str:
    """A docstring as Markdown: its examples in fences, its signs of Markdown that are none escaped."""
    parts, end = [], 0
    for example in EXAMPLE.finditer(text):
        parts += [_prose(text[end : example.start()]), f"```pycon\n{example[0].rstrip()}\n```"]
        end = example.end()
    return "\n\n".join(filter(None, [*parts, _prose(text[end:])]))


def _prose(text: str) -> str:
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", text.strip("\n").rstrip()) if part)


def _paragraph(text: str) -> str:
    """A paragraph; one whose lines are set in is code, one with some set in is a list of arguments."""
    lines = text.strip("\n").split("\n")
    inside = [line.startswith("    ") for line in lines]
    if all(inside):
        return text
    if any(inside):
        items = re.sub(r"\n {4,}", " ", "\n".join(lines)).split("\n")
        return "\n".join(f"- {_escaped(item)}" for item in items)
    return _escaped("\n".join(lines))


def _escaped(text: str) -> str:
    def plain(piece: str) -> str:
        return re.sub(r"([*_\[\]])", r"\\\1", piece).replace("<", "&lt;")

    return "".join(part if k % 2 else plain(part) for k, part in enumerate(CODE.split(text)))


def _call(path: str, value: Any) -> str:
    try:
        return NAMELESS.sub("=...", call(path, value))
    except (TypeError, ValueError):
        return path


def _method_call(path: str, value: Any) -> str:
    """The call of a method, without the tensor that it is called on, which rows name by their first operand."""
    value = _handed_on_to(path.rpartition(".")[2], value)
    text = _call(path, value)
    first = next(iter(inspect.signature(value).parameters), "") if text != path else ""
    return re.sub(rf"\({first}(?:, (?:/, )?|(?=\)))", "(", text, count=1)


def _handed_on_to(name: str, value: Any) -> Any:
    """The function that a method hands all its arguments on to, if it does and that is found by its name."""
    kinds = [p.kind for p in inspect.signature(value).parameters.values()]
    if kinds[1:2] != [inspect.Parameter.VAR_POSITIONAL]:
        return value
    spaces = (hm.Tensor, hm) if name.endswith("_") else (hm, hm.linalg, hm.functional, hm.special)
    found = (getattr(space, name.rstrip("_"), None) for space in spaces)
    return next(filter(callable, found), value)


def _code(text: str) -> str:
    """A call in a block of code; a long one in lines."""
    if len(text) > WIDE and text.endswith(")"):
        name, _, inside = text[:-1].partition("(")
        text = f"{name}(\n{textwrap.fill(inside, WIDE, initial_indent='    ', subsequent_indent='    ')}\n)"
    return f"```python\n{text}\n```\n"


def _about(path: str, value: Any) -> str:
    """The text of an entry."""
    name = path.rpartition(".")[2]
    if isinstance(value, np.dtype):
        text = DTYPES.get(
            value.name, f"{'Unsigned integers' if value.kind == 'u' else 'Integers'} of {value.itemsize * 8} bits."
        )
        return f"The data type {value.name}. {text}"
    if name in CONSTANTS:
        return CONSTANTS[name]
    if inspect.isclass(value) and value in OTHERS:
        return OTHERS[value]
    return inspect.getdoc(value) or ""


def _source(value: Any) -> str:
    """The file that something is defined in, from the root of the repository."""
    try:
        file = Path(inspect.getsourcefile(inspect.unwrap(value)) or "")
        return file.resolve().relative_to(ROOT).as_posix()
    except (TypeError, ValueError, OSError):
        return ""


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class with a docstring, those of its hidden bases among them."""
    hidden = [base for base in cls.__mro__[1:] if base.__module__.startswith("hybridml") and base.__name__[0] == "_"]
    seen = set()
    for base in (cls, *hidden):
        for name, value in vars(base).items():
            member = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            kinds = types.FunctionType, types.MethodDescriptorType, property, functools.cached_property
            if name[0] != "_" and name not in seen and isinstance(member, kinds) and inspect.getdoc(member):
                seen.add(name)
                yield name, member


def _methods(cls: type) -> str:
    rows = []
    for name, member in sorted(_members(cls)):
        if getattr(member, "__name__", name) != name:
            continue  # the function that a layer is of
        shown = _call(name, member) if callable(member) else name
        rows.append(f"| `{shown.replace('|', chr(92) + '|')}` | {_escaped(cell(inspect.getdoc(member) or ''))} |")
    return "\n".join(["\n| method | |", "|---|---|", *rows, ""]) if rows else ""


def _entry(entry: Entry) -> str:
    value = entry.value
    doc = _about(entry.path, value)
    row = FROM_ROW.search(doc)
    source = row[1] if row else _source(value)
    named = "__" not in entry.path  # Markdown takes the underscores of such an attribute for emphasis
    heading = f"### `{entry.path}`" + (f" {{ #{entry.path} }}\n" if named else "\n")
    parts = [heading, "".join(f'<a id="{other}"></a>' for other in (*entry.others, *([] if named else [entry.path])))]
    if (
        callable(value)
        and not isinstance(value, np.dtype)
        and not (inspect.isclass(value) and issubclass(value, Exception))
    ):
        parts.append(_code(_call(entry.path, value)))
    if entry.others:
        parts.append(f"Also {', '.join(f'`{other}`' for other in entry.others)}.\n")
    parts.append(markdown(FROM_ROW.sub("", doc)) + "\n")
    if inspect.isclass(value) and value is not hm.Tensor and value not in OTHERS:
        parts.append(_methods(value))
    if source:
        parts.append(f"[{source}](repository:{source}){{ .source }}\n")
    return "\n".join(filter(None, parts))


def tensor_page() -> str:
    """The methods of tensors, each with its example."""
    parts = [
        "# Methods of tensors\n",
        "Operators are those of NumPy and PyTorch: `x + y`, `x @ y`, `x[i]`, `x == y`.\n",
    ]
    for name, member in sorted(_members(hm.Tensor)):
        doc = inspect.getdoc(member) or ""
        parts.append(f"### `Tensor.{name}` {{ #hm.Tensor.{name} }}\n")
        if callable(member):
            parts.append(_code(_method_call(f"x.{name}", member)))
        parts.append(markdown(FROM_ROW.sub("", doc)) + "\n")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Every page of the reference as Markdown, by its path on the site."""
    found = sections()
    homes = homes_of(found)
    texts = {"reference/tensor.md": tensor_page()}
    for page, parts in found.items():
        title = FACE[page][0] if page in FACE else MODULES[page][0]
        text = [f"# {title}\n"]
        for part in parts:
            if page in MODULES:
                text.append(f"## `{part.title}` {{ #{part.title} }}\n\n{markdown(_without_files(part.about))}\n")
            text += map(_entry, part.entries)
            if part.elsewhere:
                text.append("**Described elsewhere**\n\n| name | described as |\n|---|---|")
                text += (
                    f'| <a id="{path}"></a>`{path}` | [`{home}`]({homes[home]}) |' for path, home in part.elsewhere
                )
                text.append("")
        texts[f"reference/{page}.md"] = "\n".join(text)
    texts["reference/index.md"] = _index(found)
    return texts


def homes_of(found: dict[str, list[Section]]) -> dict[str, str]:
    """Public path -> where it is described: `nn.md#hm.nn.Linear`, in the folder `reference`."""
    names = {f"hm.Tensor.{name}": "tensor" for name, _ in _members(hm.Tensor)}
    for page, parts in found.items():
        for part in parts:
            if page in MODULES:
                names.setdefault(part.title, page)
            for entry in part.entries:
                names |= dict.fromkeys((entry.path, *entry.others), page)
            names |= {path: page for path, _ in part.elsewhere}
    homes = {name: f"{page}.md#{name}" for name, page in names.items()}
    same = {name: home for name, home in homes.items() if name.startswith("hm.functional")}
    return homes | {name.replace("hm.", "hm.nn.", 1): home for name, home in same.items()}


def _without_files(about: str) -> str:
    """The docstring of a package without its list of files."""
    return re.sub(r"\n\n(?:^\w+\.py  .*\n?(?:^ {4,}.*\n?)*|^\w+/ +.*\n?)+", "\n", about, flags=re.MULTILINE)


def _index(found: dict[str, list[Section]]) -> str:
    """The page that leads to the others."""
    parts = [
        "# Reference\n",
        "Every public name, as `hm.` of `import hybridml as hm`; the search finds each. Examples are run.\n",
        "| page | names |\n|---|---|\n| [Methods of tensors](tensor.md) | `x.sum()`, `x.reshape()`, `x.backward()` … |",
    ]
    for page, sections in found.items():
        title = FACE[page][0] if page in FACE else MODULES[page][0]
        modules = ", ".join(f"`{part.title}`" for part in sections) if page in MODULES else ""
        some = ", ".join(
            f"`{entry.path}`" for entry in sections[0].entries[:: max(1, len(sections[0].entries) // 5)][:5]
        )
        parts.append(f"| [{title}]({page}.md) | {f'{modules}: ' if modules else ''}{some} … |")
    return "\n".join(parts) + "\n"
