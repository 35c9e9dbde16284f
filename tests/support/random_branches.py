"""Random programs of a loop whose steps branch as data says, as source text: `if`s one after the other and in each
other, flags, ways out, updates in place of arrays from before the loop and of the step."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import hybridml as hm

N = 24  # elements of `x`


class Branches:
    """Makes `def program(x)`."""

    def __init__(self, seed: int) -> None:
        self.random, self.lines = random.Random(seed), list[str]()
        self.depth, self.is_inner = 0, False
        self.arrays, self.jumps, self.returns, self.lists = (self.random.random() < p for p in (0.6, 0.5, 0.4, 0.3))

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def source(self) -> str:
        self.lines = [
            "def program(x):",
            "    s, t, v, k, m, i = 0.25, -0.5, 0.1, 0, 0, 0",
            "    a, b, out = False, True, []",
            f"    w = {'np.zeros(len(x))' if self.arrays else 'x * 0.5'}",
            f"    y, q, p = x[0:1] * 2.0, x[1:2], {self.pick('np.zeros(2)', 'x[:2] * 1.0')}",
        ]
        if self.random.random() < 0.75:
            self.lines.append("    for i in range(1, len(x)):")
        else:
            going = self.pick("not (a and s > 2) and i < len(x) - 1", "i < len(x) - 1", "not a and i < len(x) - 1")
            self.lines += [f"    while {going}:", "        i += 1"]
        of_step = "p = np.zeros(2)", "y = x[i : i + 1] + 1.0"
        self.lines += ["        " + line for line in of_step if self.random.random() < 0.4]
        self.lines.append("        v = float(x[i])")
        for _ in range(self.random.randint(2, 6)):
            self.statement("        ")
        self.lines += [f"        {name} = max(min({name}, 4.0), -4.0)" for name in "st"]
        last = self.pick("a, b, w, i", "a, b, w, i, y, p, q, x", "a is True, b, w", "1 if a else 2, b, w, y")
        self.lines.append(f"    return s, t, k, m, {last}" + ", out" * self.lists)
        return "\n".join(self.lines)

    def number(self) -> str:
        of_array = "w[i - 1] * 1.0" if self.arrays else "float(w[i - 1])"
        return self.pick("s", "t", "v", "0.5", "float(x[i])", "float(x[i - 1])", "k * 0.25", "-0.3", of_array)

    def condition(self) -> str:
        x, y = self.number(), self.number()
        return self.pick(
            f"{x} > {y}", f"{x} < 0.2", "a", "not b", "a and not b", f"a or {x} > 0.1", "a != b", "m % 2 == 0",
            f"k > {self.random.randrange(4)}", f"x[i] > {self.pick('0.0', '0.4', '-0.4')}",
            f"x[i] * x[i - 1] > 0 and {x} < 1", f"i > {self.random.randrange(5)}",
        )  # fmt: skip

    def block(self, indent: str) -> None:
        for _ in range(self.random.randint(1, 2)):
            self.statement(indent)

    def statement(self, indent: str) -> None:
        chance = self.random.random()
        if self.depth < 3 and chance < 0.42:
            self.depth += 1
            self.lines.append(f"{indent}if {self.condition()}:")
            self.block(indent + "    ")
            while self.random.random() < 0.3:
                self.lines.append(f"{indent}elif {self.condition()}:")
                self.block(indent + "    ")
            if self.random.random() < 0.4:
                self.lines.append(f"{indent}else:")
                self.block(indent + "    ")
            self.depth -= 1
        elif chance < 0.46 and self.depth and self.jumps:
            ways = "continue", "break", "return s, t, k, m, a, b, w, i" if self.returns else "break"
            self.lines.append(indent + ("continue" if self.is_inner else self.pick(*ways)))
        elif chance < 0.49 and not self.is_inner and self.depth < 2:
            self.is_inner, self.depth = True, self.depth + 1
            self.lines.append(f"{indent}for j in {self.pick('range(2)', 'range(i)', 'range(3)')}:")
            self.lines.append(f"{indent}    s = s * 0.5 + float(x[j])")
            self.block(indent + "    ")
            self.is_inner, self.depth = False, self.depth - 1
        else:
            self.lines.append(indent + self.assignment())

    def assignment(self) -> str:
        x, y = self.number(), self.number()
        grows = "out.append(s)" if self.lists and not self.depth else "s *= 0.75"
        row = "x[i : i + 1] * s" if self.arrays else "w[i : i + 1] * 1.0"  # y is a tensor
        return self.pick(
            f"s = {x} * 0.5 + {y}", f"s += {x}", f"t = {x} - 0.25 * {y}", f"v = {x} + 0.1", "s, t = t, s",
            f"s = max(s, {x})", "s = min(s, 3.0)", f"t = s if {self.condition()} else {x}",
            f"k += {self.random.randrange(1, 3)}", "k = 0", "k = m", "m = i", "m += 1",
            "a = True", "a = False", "b = True", "b = not a", f"b = {x} > 0.3", "a = b",
            f"w[i] = {x}", f"w[i] += {x}", "w[i - 1] *= 0.5", "w[:i] = w[:i] * 0.5", "w[i] = float(y.sum())",
            f"y = {row}", "y = x[i - 1 : i] * 0.5", "y += 1.0", "y *= 0.5", "y = q", "q = x[i - 1 : i]",
            "p[0] += s", "p[1] = t", "p *= 0.5", grows,
        )  # fmt: skip


def branching_program(seed: int) -> tuple[str, Callable[[Any], Any]]:
    """(source, function) of the program with this seed."""
    source, name = Branches(seed).source(), f"<branches {seed}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    space: dict[str, Any] = {"np": np, "hm": hm}
    exec(compile(source, name, "exec"), space)
    return source, space["program"]
