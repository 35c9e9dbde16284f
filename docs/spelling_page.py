"""The page of spellings: what programs for PyTorch, NumPy and JAX may keep as they write it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping

import hybridml as hm
from hybridml.core.spellings import OF_FUNCTION, OTHER_NAMES, pytorchs
from hybridml.interop.pytorch.functions import SAME, names
from hybridml.interop.pytorch.hints import HINTS, OF_MODULE, OF_TENSOR

HEADER = """\
# Your name here

Generated from the tables of spellings by `make docs`; do not edit. The names of hybridml are those of the array API
standard, PyTorch's for layers, optimizers and data, and JAX's for transforms. Programs that were written for one of
them may keep what they write:

```python
import hybridml as torch                     # the only line that changes
from hybridml import nn
from hybridml.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.randn(64, 10, device=device)
values, indices = x.max(dim=1)
x.sum(dim=0, keepdim=True).size()
```

## Parameters

A function that has the parameter takes the other names of it, too, as keywords; both at once are a TypeError.
"""
MANNERS = """\

`requires_grad=` is taken by every function that makes a tensor, sizes one by one by `zeros`, `ones`, `empty`, `rand`
and `randn`.

## PyTorch's manner

These return what PyTorch's functions return when they are called by its words, `dim=` or `keepdim=` (`add` and
`subtract`: `alpha=`), and NumPy's when they are called by `axis=`, or by position alone: `x.max(axis=1)` and `x.max(1)`
are the values, `x.max(dim=1)` and `x.max(1, keepdim=True)` the values and their indices; `x.std(dim=0)` divides by
n - 1, `x.std(axis=0)`, `x.std(0)` and `x.std()` by n. **So write `dim=` where PyTorch's program has
`_, found = x.max(1)`.**
"""
FUNCTIONS = """\

`x.size` is the number of elements, `x.size()` the shape. `x.repeat(2)` repeats each element, as in NumPy,
`x.repeat(2, 3)` the whole tensor, as in PyTorch.

## Functions and constants by other names

`hm.compile` and `hm.jit` are `hm.trace`. Methods of tensors have these names where PyTorch has the method.
"""
MISSING = """\

## Names that are not here

The error says what to write instead; for other names it says those that are nearest.
"""


def _table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    body = "\n".join(f"| {first} | {second} |" for first, second in rows)
    return f"| {head[0]} | {head[1]} |\n|---|---|\n{body}\n"


def _code(found: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in found)


def _ours(value: object) -> str:
    """The name under which a value is listed first."""
    return next((n for n in hm.__all__ if n not in SAME and getattr(hm, n) is value), getattr(value, "__name__", ""))


def _hints(owner: str, table: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((f"`{owner}.{name}`", text.replace("|", "\\|")) for name, text in table.items())


def page() -> str:
    """The page as Markdown."""
    by_function = [
        (f"`{own}` of `{name}`", _code(other for other, mine in table.items() if mine == own))
        for name, table in OF_FUNCTION.items()
        for own in dict.fromkeys(table.values())
    ]
    same = [(f"`{name}`", f"`{_ours(value)}`") for name, value in sorted(SAME.items())]
    own = [
        (f"`{name}`", " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split()))
        for name, value in sorted(names.items())
        if name not in SAME
    ]
    by_name = [(f"`{own}`", _code(others)) for own, others in OTHER_NAMES.items()]
    of_module = [row for owner, table in OF_MODULE.items() for row in _hints(owner.replace("hybridml", "hm"), table)]
    return "".join([
        HEADER, "\n", _table(("parameter", "other names"), by_name + by_function),
        MANNERS, "\n", _code(sorted(pytorchs)), "\n", FUNCTIONS, "\n", _table(("name", "is"), same), "\n",
        _table(("name", "meaning"), own), MISSING, "\n",
        _table(("name", "instead"), [*_hints("hm", HINTS), *_hints("tensor", OF_TENSOR), *of_module]),
    ])  # fmt: skip
