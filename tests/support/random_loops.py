"""Random programs of loops that read and write slices of arrays, as source text."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

N, M = 20, 7  # sizes of `a`, an N x M array; `v` has N elements, `w` M


class Programs:
    """Makes `def program(a, v, w)` of random statements, all of which are in bounds. With `ends`, there are loops that
    data ends, loops over arrays, and lists that grow, not of `range` alone. With `ints` it is `def program(a, v, w, p,
    q)` of N ints below N, and of N + 1 in order: ranges end where they say, and they are places in the others."""

    def __init__(self, seed: int, ends: bool = False, ints: bool = False) -> None:
        self.random, self.ends, self.ints = random.Random(seed), ends, ints
        self.lines: list[str] = []

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def source(self) -> str:
        self.lines = [
            "def program(a, v, w):" if not self.ints else "def program(a, v, w, p, q):",
            "    s = 0.25",
            *(["    n, out = 0, []"] * self.ends),
        ]
        for _ in range(self.random.randint(1, 2)):
            self.statements("    ", [], 1)
            self.loop("    ", [])
        self.lines.append("    return a, v, w, s" + ", n, out" * self.ends)
        return "\n".join(self.lines)

    def loop(self, indent: str, around: list[str]) -> None:
        name = "ijk"[len(around)]
        if around and self.random.random() < 0.5:
            outer = around[-1]
            bounds = self.pick(f"1, {outer}", f"{outer}, {N - 1}", f"{outer} + 1, {N}")
        else:
            bounds = self.pick(f"1, {N - 1}", f"2, {N}", f"{N - 2}, 0, -1", f"1, {N - 1}")
        if self.ints and self.random.random() < 0.5:
            at = self.random.choice(around) if around else self.pick("0", "3", "7")
            bounds = self.pick(
                f"q[{at}], q[{at} + 1]", f"q[{at} + 1] - 1, q[{at}] - 1, -1", f"p[{at}]", f"1, q[{at}]",
                f"p[{at}], {N}", f"{N - 1}, p[{at}], -1", f"q[0], q[{at} + 1]",
            )  # fmt: skip
        inside = indent + "    "
        own = [*around, name]
        head = [f"for {name} in range({bounds}):"]
        if self.ends and self.random.random() < 0.6:
            t = f"t{len(around)}"
            head, first = self.random.choice(
                [
                    ([f"for {name}, x in enumerate(a[1:], 1):"], f"w += x * {self.number(around)}"),
                    ([f"for {name}, x, y in zip(range(1, 19), v[1:], v):"], f"s = x - y * {self.number(around)}"),
                    (
                        [f"{t} = v[0] * 0", f"while {t} < {self.random.randrange(24)}:"],
                        f"{t} = {t} + 1",
                    ),
                    ([f"for {name} in reversed(range({bounds})):"], f"n += {self.random.randrange(3)}"),
                ]
            )
            own = around if "while" in head[-1] else own
            self.lines += [indent + line for line in head] + [inside + first]
        else:
            self.lines += [indent + line for line in head]
        for _ in range(self.random.randint(1, 3)):
            if len(own) < 3 and self.random.random() < 0.25:
                self.loop(inside, own)
            elif self.random.random() < 0.2:
                question = self.pick(f"v[{self.place(own)}] > 0.5", f"{name} > 1", f"a[{self.place(own)}, 0] < v[0]")
                self.lines.append(f"{inside}if {question}:")
                self.statements(inside + "    ", own, 1)
                if self.random.random() < 0.5:
                    self.lines.append(f"{inside}else:")
                    self.statements(inside + "    ", own, 1)
            else:
                self.statements(inside, own, 1)
            if self.ends:
                self.end_or_item(inside, own)

    def end_or_item(self, inside: str, own: list[str]) -> None:
        chance = self.random.random()
        if chance < 0.2:
            question = f"{self.number(own)} > {self.number(own)} + 0.25"
            before, way = self.pick("", "", "not "), self.pick("break", "break", "continue")
            self.lines += [
                f"{inside}if {before}({question}):",
                f"{inside}    {way}",
            ]
        elif chance < 0.3:
            self.lines.append(f"{inside}n += 1")
        elif chance < 0.38:
            lines = f"y = {self.row(own)} * 0.5", f"y += {self.row(own)}", f"a[{self.place(own)}] = y"
            self.lines += [inside + line for line in lines]
        elif chance < 0.4 and len(own) < 2:
            self.lines.append(f"{inside}out.append({self.row(own)} * {self.number(own)})")

    def place(self, own: list[str]) -> str:
        """A row of `a`, or an element of `v`."""
        if not own or self.random.random() < 0.15:
            return self.pick("0", "3", "-1")
        name = self.random.choice(own)
        if self.ints and self.random.random() < 0.4:
            return self.pick(f"p[{name}]", f"p[{name}]", f"p[p[{name}]]", f"p[{name}] - {N}", f"q[{name}] - 1")
        # Numbers of steps are 1 to N - 1: neighbours above wrap, which Python's negative numbers do.
        return self.pick(name, name, f"{name} - 1", f"{name} - {N - 1}")

    def row(self, own: list[str]) -> str:
        """An array of M elements."""
        return self.pick(f"a[{self.place(own)}]", f"a[{self.place(own)}, :]", "w", f"(w * v[{self.place(own)}])")

    def number(self, own: list[str]) -> str:
        numbers = ["0.5", "s", f"v[{self.place(own)}]", f"a[{self.place(own)}, {self.random.randrange(M)}]"]
        return self.random.choice(numbers + [f"{name} * 0.125" for name in own])

    def statements(self, indent: str, own: list[str], count: int) -> None:
        for _ in range(count):
            self.lines.append(indent + self.statement(own))

    def statement(self, own: list[str]) -> str:
        op = self.pick("=", "=", "+=", "*=")
        kind = self.random.randrange(8)
        if kind == 0:
            return f"v[{self.place(own)}] {op} {self.number(own)} - 0.5 * {self.number(own)}"
        if kind == 1:
            return f"a[{self.place(own)}] {op} {self.row(own)} * {self.number(own)}"
        if kind == 2:
            return f"a[{self.place(own)}, 1:-1] {op} {self.row(own)}[:-2] + 0.25 * {self.row(own)}[2:]"
        if kind == 3:
            return f"v[1:-1] {op} 0.5 * v[:-2] + {self.number(own)} * v[2:]"
        if kind == 4:
            return f"a[1:-1, 1:] {op} 0.5 * a[2:, :-1] - a[:-2, 1:]"
        if kind == 5:
            return f"w {self.pick('+=', '*=')} 0.5 * {self.row(own)}"
        if kind == 6 and own:
            name = self.random.choice(own)
            return self.pick(
                f"v[:{name}] {op} 0.5 * v[:{name}] - {self.number(own)}",
                f"v[{name}:] {op} a[{name}:, 2] * 0.5",
                f"a[:{name}, 3] {op} v[:{name}] * {self.number(own)}",
                f"v[:{name}] = v[{N} - {name}:] * 0.75",
            )
        return f"s = {self.number(own)} * 0.5 + {self.number(own)}"


def program_of(seed: int, ends: bool = False, ints: bool = False) -> tuple[str, Callable[..., Any]]:
    """(source, function) of the program with this seed."""
    source = Programs(seed, ends, ints).source()
    space: dict[str, Any] = {}
    exec(compile(source, f"<program {seed}>", "exec"), space)
    return source, space["program"]
