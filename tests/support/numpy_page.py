"""docs/numpy.md: the count and the tables. ``python -m tests.support.numpy_page`` calls every function, says how
many are supported, and writes the page.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from hybridml.interop.numpy import table, ufuncs

from .numpy_calls import CALLED, check_call, check_slope, has_derivative
from .overridable import OVERRIDABLE_FUNCTIONS, OVERRIDABLE_UFUNCS

PAGE = Path(__file__).parent.parent.parent / "docs" / "numpy.md"
CALLED_ELSEWHERE = {"np.fromfile", "np.save", "np.savetxt", "np.savez", "np.savez_compressed"}  # with files
MARK = "<!-- from here on written by tests/support/numpy_page.py -->\n"
COUNT = """\
{ufuncs} ufuncs and {functions} functions, {all} in all, are what NumPy {numpy} lets other types implement
(`numpy.testing.overrides`; `np.ones` and its kin twice, for `like=`). {run} of them run on tensors, eagerly and traced;
the other {refused} work on strings, dates and records alone, which tensors do not hold, and say so (of those on
strings, the ones that take numbers too run).
`python -m tests.support.numpy_page` calls each of them ({calls} calls, beside NumPy's result, and where there is
a derivative NumPy's slope, and the slope of that), as the tests do, counts, and writes this.
"""


def written_with() -> str:
    """The NumPy that the page is of: "2.4"."""
    found = re.search(r"are what NumPy (\d+\.\d+) lets", PAGE.read_text("utf-8"))
    assert found is not None
    return found[1]


def listed() -> set[str]:
    """The functions that the page says to run on tensors, by namespace."""
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", PAGE.read_text("utf-8").partition(MARK)[2], re.MULTILINE)
    return {f"{space}.{name}" for space, found in rows for name in found.split(", ")}


def not_called() -> set[str]:
    """Functions with a row that no sample calls."""
    called = {table.public(s.func) for s in CALLED}
    return {table.name_of(f) for f in OVERRIDABLE_FUNCTIONS if table.target_of(f) and table.public(f) not in called}


def refused() -> list[tuple[str, str]]:
    """Functions without a row, and what they say."""
    found = [(table.name_of(f), table.refusal(f)) for f in OVERRIDABLE_FUNCTIONS if table.target_of(f) is None]
    return found + [(f"np.{u.__name__}", ufuncs.refusal(u)) for u in OVERRIDABLE_UFUNCS if not ufuncs.target_of(u)]


def names() -> dict[str, list[str]]:
    """The functions with a row, by namespace."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for f in OVERRIDABLE_FUNCTIONS:
        if table.target_of(f) is not None:
            space, _, name = table.name_of(f).rpartition(".")
            found[space].add(name)
    found["ufuncs"] = {u.__name__ for u in OVERRIDABLE_UFUNCS if ufuncs.target_of(u) is not None}
    return {space: sorted(found[space]) for space in sorted(found)}


def page() -> str:
    """The page: its own text up to the mark, and the tables."""
    all_of = len(OVERRIDABLE_FUNCTIONS) + len(OVERRIDABLE_UFUNCS)
    without = refused()
    text = COUNT.format(
        numpy=np.__version__.rpartition(".")[0],
        ufuncs=len(OVERRIDABLE_UFUNCS),
        functions=len(OVERRIDABLE_FUNCTIONS),
        all=all_of,
        run=all_of - len(without),
        refused=len(without),
        calls=len(CALLED),
    )
    lines = [
        textwrap.fill(text, 130, break_on_hyphens=False),
        "",
        "| namespace | run on tensors |",
        "|---|---|",
        *(f"| `{space}` | {', '.join(found)} |" for space, found in names().items()),
        "",
        "| refused | |",
        "|---|---|",
    ]
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for name, why in without:
        reasons[why].append(name.rpartition(".")[2] if "recfunctions" in name else name)
    lines += [f"| {', '.join(sorted(found))} | {why} |" for why, found in sorted(reasons.items())]
    return PAGE.read_text("utf-8").partition(MARK)[0] + MARK + "\n" + "\n".join(lines) + "\n"


def main() -> None:
    failed: dict[Any, str] = {}
    slopes = 0
    for sample in CALLED:
        try:
            check_call(sample)
            if has_derivative(sample):
                check_slope(sample)
                slopes += 1
        except Exception as error:
            failed[sample.func] = textwrap.shorten(f"{type(error).__name__}: {error}", 100)
    for func, why in failed.items():
        print(f"{table.name_of(func)}: {why}")
    all_of = [*OVERRIDABLE_FUNCTIONS, *OVERRIDABLE_UFUNCS]
    supported = len(all_of) - len(refused()) - sum(table.public(f) in failed for f in all_of)
    print(f"{supported} of {len(all_of)}: {len(CALLED)} calls as for arrays, eager and traced; {slopes} derivatives")
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
