"""Where a text goes, as it is read in the bytecode of this Python."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from hybridml.tracing.capture import text_flow

TOLD = [
    'print(f"a {x:.3f} {self.n}", y[0], end="")',
    'print(str(x), "n " + str(self.n))',
    'print(f"{y[0]:d} {x:>{self.n}}")',
    'self.log.append(f"{x}")',
    'self.text = "a" + str(x) + "b"',
    'return y, {"a": f"{x!s} {x:.2f}", "b": [f"{x}"]}',
    'line = f"{x}"\nprint(line)\nself.log.append({"line": line})\nreturn line',
    't = ""\nfor i in range(2):\n    t += f"{i}: {x}"\nreturn t',
    'r = []\nr.append(f"{x}")\nr2 = {"a": 1}\nr2["z"] = f"{x}"\nreturn r, r2',
    'return [*y, f"{x}"], {**{"a": y}, "b": f"{x}"}',
    'return "{:.2f} {}".format(x, 1)',
    'return "{:.1f}% of {}".format(x, 1)',
    'return "%s!" % x',
    't = f"{x}"\nreturn f"{t} {t}"',
    'with open("/dev/null", "w") as file:\n    print(f"{x}", file=file)',
    'try:\n    print(f"{x}", self.n)\nexcept ValueError:\n    pass',
    'if self.n == 1: print(f"{x}")\nelse: print("b")',
    'a, b = f"{x}", 1\nprint(a)',
    'logging.info(f"{x}", self.n)\nself.logger.warning(f"{x}")',
]
SEEN = [
    'self.info(f"{x}")',
    '(lambda print: lambda: print(f"{x}"))(print)()',
    'self.other.append(f"{x}")',
    'self.note(f"{x}")',
    'line = f"{x}"\nreturn len(line)',
    'return f"{x}".upper()',
    'return "{!s:>5} {}".format(x, 1)',
    'return "%5s!" % x',
    'return "%.2f" % x',
    'return {1: "{} "}[1].format(x)',
    't = f"{x}"\nreturn f"{t:>5}"',
    'return f"{x!s:>5}"',
    'return {f"{x}": 1}',
    't = f"{x}"\nreturn (lambda: t)()',
    'return x if f"{x}" == "a" else 1',
    't = f"{x}"\nif t: pass',
    'return [f"{x}" for _ in y]',
    'print(f"{x}" if self.n else "")',
    'assert f"{x}" != "z"',
    't = f"{x}"\nreturn t, locals()',
]


class Number:
    told: bool | None = None

    def _ask(self, formats: bool) -> str:
        frame = sys._getframe(2)
        self.told = text_flow.is_told(frame, frame.f_code, lambda code, name: name in ("log", "text"), formats)
        return "1"

    def __format__(self, spec: str) -> str:
        return self._ask(True)

    def __str__(self) -> str:
        return self._ask(False)

    def __float__(self) -> float:
        self.told = False
        return 1.0


class Box:
    n = 1

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.other: list[Any] = []

        self.logger = logging.getLogger("test")

    def note(self, text: str) -> None:
        pass

    info = note


@pytest.mark.parametrize(("body", "told"), [*((body, True) for body in TOLD), *((body, False) for body in SEEN)])
def test_where_a_text_goes(body: str, told: bool) -> None:
    """In calls that Python has not specialised, and in those that it has."""
    space: dict[str, Any] = {"logging": logging}
    exec("def f(self, x, y):\n" + "".join(f"    {line}\n" for line in body.split("\n")), space)
    for _ in range(30):
        number = Number()
        space["f"](Box(), number, [1, 2])
        assert number.told is told
