"""Random programs of loops whose variables are numbers of Python's, and become tensors or scalars of NumPy's, as source
text."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import hybridml as hm

N = 18  # elements of `x`


class Numbers:
    """Makes `def program(x)` of loops that assign `a`, `b` and `n`, which begin as numbers, under questions about data.
    `h` and `q` are arrays of NumPy's, of floats and of ints below N."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def source(self) -> str:
        self.lines = [
            "def program(x):",
            f"    a, b = {self.pick('0.0', '1.5', '-np.inf', '2', 'float(x[0])')}, {self.pick('0.25', '0', 'x[1]')}",
            f"    n = {self.pick('0', '3')}",
            "    h, q, out = np.zeros(N), np.arange(N), hm.zeros(N, dtype='float64')",
            *(["    h[:] = x"] * (self.random.random() < 0.7)),
        ]
        for _ in range(self.random.randint(1, 2)):
            self.loop("    ", [])
        self.lines.append("    return a, b, n, h, q, out")
        return "\n".join(self.lines)

    def loop(self, indent: str, around: list[str]) -> None:
        name = "ij"[len(around)]
        own, inside = [*around, name], indent + "    "
        ranges = ["range(N)", "range(1, N)", *([f"range({around[-1]})"] if around else [])]
        data = "range((x > 0.5).sum())" if not around else "range((x[:i] > 0.5).sum())"
        self.lines.append(f"{indent}for {name} in {self.pick(*ranges, data)}:")
        if self.random.random() < 0.3:
            self.lines.append(f"{inside}{self.assigned(own)}")
        for _ in range(self.random.randint(1, 3)):
            if len(own) < 2 and self.random.random() < 0.3:
                if self.random.random() < 0.5:
                    self.lines.append(f"{inside}{self.pick('a', 'b')} = {self.pick('0.0', '0.5')}")
                self.loop(inside, own)
            elif self.random.random() < 0.7:
                self.lines += [f"{inside}if {self.question(own)}:", f"{inside}    {self.assigned(own)}"]
                if self.random.random() < 0.3:
                    self.lines += [f"{inside}else:", f"{inside}    {self.assigned(own)}"]
            else:
                self.lines.append(f"{inside}{self.stored(own)}")
        if self.random.random() < 0.15:
            self.lines += [f"{inside}if {self.question(own)}:", f"{inside}    break"]

    def element(self, own: list[str]) -> str:
        name = self.random.choice(own)
        return self.pick(f"x[{name}]", f"x[{name}]", f"h[{name}]", f"x[{name}] * 0.5", f"abs(x[{name}])")

    def number(self, own: list[str]) -> str:
        return self.pick("a", "b", self.element(own), self.element(own), "0.5", f"{self.random.choice(own)} * 0.1")

    def question(self, own: list[str]) -> str:
        return self.pick(
            f"{self.element(own)} > {self.pick('a', 'b', '0.5', '0.8')}", f"{self.pick('a', 'b')} < {self.number(own)}",
            f"x[{own[-1]}] > 0.3", f"q[n] > {own[-1]}",
        )  # fmt: skip

    def assigned(self, own: list[str]) -> str:
        name = self.pick("a", "b")
        return self.pick(
            f"{name} = {self.element(own)}", f"{name} = {self.number(own)} + {self.number(own)}",
            f"{name} += {self.element(own)}", f"{name} = max({name}, {self.element(own)})",
            f"{name} = {name} * {self.number(own)}", f"{name} = {self.number(own)} / ({name} + 3.0)",
            f"n = q[{self.pick('n', own[-1])}]", f"n = {own[-1]}", f"{name} = -{name}",
            f"{name} = {self.pick('0.0', '1.0')}",
        )  # fmt: skip

    def stored(self, own: list[str]) -> str:
        name = own[-1]
        return self.pick(
            f"out[{name}] = {self.pick('a', 'b')}", f"h[{name}] = {self.number(own)}", f"q[{name}] = n",
            f"out[{name}] = {self.number(own)} * {self.number(own)}", f"x[{name}] = {self.number(own)} * 0.5",
            f"out[{name}] += x[n]", f"q[n] = {name}",
        )  # fmt: skip


def program_of(seed: int) -> tuple[str, Callable[..., Any]]:
    """(source, function) of the program with this seed."""
    source = Numbers(seed).source()
    space: dict[str, Any] = {"np": np, "hm": hm, "N": N}
    exec(compile(source, f"<numbers {seed}>", "exec"), space)
    return source, space["program"]
