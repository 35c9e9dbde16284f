"""Random programs as Python text: control flow, views, updates in place, random numbers, modules, gradients.

`write(choose)` gives the text of a module; `choose(options)` picks one of them, so that a seeded generator or
hypothesis can drive it. Values are small whole numbers in float32, on which every operation here is exact: results
must be equal to the last bit whatever the order of a sum, and no branch goes another way for a rounding error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Choose = Callable[[Sequence[Any]], Any]
Shape = tuple[int, ...]
SHAPES: tuple[Shape, ...] = ((), (4,), (3, 4), (3,), (3, 1), (2, 3, 4))
HEAD = """
import numpy as np
import hybridml as hm

SCALE = 2.0
COUNT = 2
RATE = 2


class Layer(hm.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = hm.nn.Parameter(hm.tensor([1.0, -2.0, 3.0, 0.0]))
        self.register_buffer("seen", hm.zeros((4,)))
        self.step = 1.0

    def forward(self, t):
        self.seen += self.step
        return (t * self.w + self.seen) % 8


class Box:
    pass


layer = Layer()
box = Box()
box.bias = 1.0
box.size = 2
state = hm.tensor([0.0, 1.0, 2.0, 3.0])
table = hm.arange(12.0).reshape(3, 4)


def whole(t):
    return hm.floor(t * 8)


def scaled(t):
    return (t * SCALE + box.bias * RATE) % 16


def twice(t):
    return scaled(scaled(t)) - RATE

"""


class Writer:
    """One program. `names` maps the variables in scope to their shapes."""

    def __init__(self, choose: Choose) -> None:
        self.choose, self.lines, self.depth = choose, [HEAD], 1
        self.names: dict[str, Shape] = {}
        self.made = 0
        self.loops = 0
        self.nested = 0

    def text(self) -> str:
        self.lines.append("def program(x, y, a, n):")
        self.say("global state, table")
        self.names = {"x": (4,), "y": (3, 4)}
        for _ in range(self.choose((2, 3, 4, 6, 8))):
            self.statement()
        kept = [name for name in self.names if self.choose((True, True, False))] or ["x"]
        self.say(f"return {', '.join(kept)},")
        return "\n".join(self.lines) + "\n"

    def say(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self, shape: Shape) -> str:
        """A variable of the shape; one is made if there is none."""
        fitting = [name for name, its in self.names.items() if its == shape]
        if fitting:
            return str(self.choose(fitting))
        size = 1
        for n in shape:
            size *= n
        return self.let(f"hm.arange({float(size)}).reshape({shape})", shape)

    def let(self, expression: str, shape: Shape) -> str:
        self.made += 1
        name = f"v{self.made}"
        self.say(f"{name} = {expression}")
        self.names[name] = shape
        return name

    # -- expressions

    def expression(self, shape: Shape, depth: int = 2) -> str:
        """Text of an expression with this shape."""
        kinds = ("name", "binary", "unary", "where", "number", "random", "reduce", "index", "layer")
        kind = self.choose(kinds) if depth else "name"
        inner = depth - 1
        if kind == "binary":
            op = self.choose(("+", "-", "*"))
            return f"(({self.expression(shape, inner)} {op} {self.name(shape)}) % 16)"
        if kind == "unary":
            f = self.choose(
                (
                    "scaled({})",
                    "twice({})",
                    "abs({})",
                    "hm.maximum({}, 2.0)",
                    "(-{})",
                    "hm.clip({}, -3.0, 5.0)",
                    "({} // 2)",
                )
            )
            return str(f.format(self.expression(shape, inner)))
        if kind == "where":
            condition = f"{self.name(shape)} > {self.choose((0.0, 2.0, 5.0))}"
            return f"hm.where({condition}, {self.expression(shape, inner)}, {self.name(shape)})"
        if kind == "number":
            number = self.choose(
                (
                    "a",
                    "SCALE",
                    "n",
                    "box.bias",
                    "COUNT",
                    "float(n)",
                    "a * SCALE",
                    "RATE",
                    "box.size",
                    "(n * RATE - 1)",
                    "(RATE + box.size)",
                    "(n - a)",
                )
            )
            return f"(({self.name(shape)} * {number}) % 16)"
        if kind == "random":
            return f"({self.name(shape)} + whole(hm.random.uniform({shape})))"
        if kind == "layer" and shape == (4,):
            return f"layer({self.expression(shape, inner)})"
        if kind == "reduce":
            return self.reduced(shape)
        if kind == "index":
            return self.indexed(shape)
        return self.name(shape)

    def reduced(self, shape: Shape) -> str:
        if shape == ():
            source = self.name(self.choose(((4,), (3, 4), (3,))))
            return f"({source}.{self.choose(('sum()', 'max()', 'min()'))} % 16)"
        if shape == (4,):
            return f"({self.name((3, 4))}.{self.choose(('sum(axis=0)', 'max(axis=0)'))} % 16)"
        if shape == (3,):
            return f"(({self.name((3, 4))} @ {self.name((4,))}) % 16)"
        if shape == (3, 1):
            return f"({self.name((3, 4))}.sum(axis=1, keepdims=True) % 16)"
        return self.name(shape)

    def indexed(self, shape: Shape) -> str:
        if shape == ():
            return f"{self.name((4,))}[{self.choose((0, -1, 2, 'n'))}]"
        if shape == (4,):
            return str(
                self.choose((f"{self.name((3, 4))}[{self.choose((0, 1, -1))}]", f"{self.name((4,))}[::-1]",
                             f"{self.name((4,))}[[2, 0, 0, 3]]", f"hm.cumulative_sum({self.name((4,))})",
                             f"hm.sort({self.name((4,))})", f"hm.cummax({self.name((4,))}).values",
                             f"hm.segment_sum({self.name((4,))}, hm.tensor([3, 0, 3, 1]), 4)",
                             f"hm.einsum('ij,ij->j', {self.name((3, 4))}, {self.name((3, 4))}) % 16",
                             f"{self.name((3, 4))}[[2, 0, -1, 2], [0, 3, 3, 1]]", self.replaced((4,))))
            )  # fmt: skip
        if shape == (3, 4):
            return str(
                self.choose((f"{self.name((2, 3, 4))}[1]", f"{self.name((3, 4))}[::-1]", "table * 1",
                             f"{self.name((3, 4))}[:, [1, 0, 0, -1]]", self.replaced((3, 4)),
                             f"hm.sort({self.name((3, 4))}, axis=0)", f"hm.diff({self.name((3, 4))}, prepend=1)",
                             f"hm.scatter({self.name((3, 4))}, 1, hm.tensor([[2], [0]]), {self.name((3, 4))})"))
            )  # fmt: skip
        if shape == (3,):
            return str(
                self.choose((f"{self.name((3, 4))}[:, {self.choose((0, 3))}]", f"{self.name((4,))}[1:]",
                             f"{self.name((2, 3, 4))}[1, :, [2]][0]", f"{self.name((3, 4))}.diagonal()",
                             f"hm.top_k({self.name((4,))}, 3).values"))
            )  # fmt: skip
        if shape == (3, 1):
            return f"{self.name((3,))}[:, None]"
        return f"hm.stack([{self.name((3, 4))}, {self.name((3, 4))}])"

    def replaced(self, shape: Shape) -> str:
        """A functional update."""
        keys = ["[0, 0], 1", "..., [2, -1]", "2"]
        if shape == (4,):
            keys = ["0", "1:", "[0, 0, 2]", f"{self.name(shape)} > 3"]
        how = self.choose(("set", "add", "multiply", "max", "min", "subtract"))
        return f"({self.name(shape)}.at[{self.choose(keys)}].{how}({self.choose((2.0, 'a', 3))}) % 16)"

    # -- statements

    def statement(self) -> None:
        kinds = ["let", "let", "view", "write", "update", "state", "if", "for", "gradient", "backward", "again"]
        if self.nested < 2:
            kinds += ["while", "return", "raise", "mask"]
        getattr(self, f"s_{self.choose(kinds)}")()

    def s_let(self) -> None:
        shape = self.choose(SHAPES)
        self.let(self.expression(shape), shape)

    def s_again(self) -> None:
        name = self.choose(sorted(self.names))
        self.say(f"{name} = {self.expression(self.names[name])}")

    def s_view(self) -> None:
        views: list[tuple[str, Shape]] = [
            (f"{self.name((3, 4))}[{self.choose((0, -1))}]", (4,)),
            (f"{self.name((3, 4))}[:, 1]", (3,)),
            (f"{self.name((4,))}[::-1]", (4,)),
            (f"{self.name((4,))}[1:]", (3,)),
            (f"{self.name((2, 3, 4))}[{self.choose((0, 1))}]", (3, 4)),
            (f"{self.name((3,))}[:, None]", (3, 1)),
            (f"{self.name((3, 4))}.T.T", (3, 4)),
            (f"hm.flip({self.name((4,))}, axis=0)[1:]", (3,)),
            (f"{self.name((3, 4))}.reshape(-1)[4:8]", (4,)),
            (f"({self.name((3, 4))}.T + 1).reshape(4, 3).T", (3, 4)),
            (f"{self.name((4,))}.reshape(2, 2).T.reshape(4)", (4,)),
            (f"{self.name((4,))}.detach()", (4,)),
        ]
        self.let(*self.choose(views))

    def s_write(self) -> None:
        shape, keys = self.choose(
            (
                ((4,), ("0", "1:3", "::2", "-1", "...", "[0, 2]", "[1, 1, -1]")),
                ((3, 4), ("0", "1:, ::2", "..., 0", ":, None, 1", "-1, -1", "[2, 0]", "[2, 0], [1, 3]", "..., [0, 3]")),
                ((3,), ("n", "::-1")),
            )
        )
        name, key = self.name(shape), self.choose(keys)
        self.say(f"{name}[{key}] {self.choose(('=', '+=', '*='))} {self.choose((3.0, -1.0, 'a', 2))}")

    def s_mask(self) -> None:
        name = self.name((4,))
        limit = self.choose((0.0, 1.0, 3.0))
        if self.choose((True, False)):
            self.say(f"{name}[{name} > {limit}] {self.choose(('=', '=', '-='))} 1.0")
        else:
            self.let(f"{name}[{name} > {limit}].sum()", ())

    def s_update(self) -> None:
        shape = self.choose(((4,), (3, 4), (3,)))
        name = self.name(shape)
        self.say(f"{name} += {self.expression(shape, 1)}")
        self.say(f"{name} %= 16")

    def s_state(self) -> None:
        line = self.choose(
            (
                "state += {0}",
                "table[1] = {0}",
                "state[1:] = {0}[:3]",
                "state *= 2",
                "layer.seen[0] = a",
            )
        )
        self.say(line.format(self.name((4,))))
        self.say("state %= 16")

    def s_gradient(self) -> None:
        name = self.name((4,))
        inner = self.choose(("(t * t * {0}).sum()", "(t * layer.w * {0}).sum()", "hm.maximum(t, {0}).sum()"))
        self.let(f"hm.grad(lambda t: {inner.format(self.name((4,)))})({name}) % 16", (4,))

    def s_backward(self) -> None:
        self.say("layer.w.grad = None")
        self.say(f"(layer({self.name((4,))}) * {self.name((4,))}).sum().backward()")
        self.let("layer.w.grad % 16", (4,))
        if self.choose((True, False)):
            self.say("with hm.no_grad():")
            self.say("    layer.w -= layer.w.grad % 4")

    def s_if(self) -> None:
        condition = self.choose(
            (
                "{0}.sum() > 8",
                "{0}[0] < 2",
                "n > 1",
                "a > 1.5",
                "COUNT == 2",
                "RATE > 2",
                "bool(({0} > 3).any())",
                "int({0}[1]) % 2",
            )
        ).format(self.name((4,)))
        self.say(f"if {condition}:")
        self.block()
        if self.choose((True, False)):
            self.say("else:")
            self.block()

    def s_for(self) -> None:
        self.loops += 1
        index = f"i{self.loops}"
        count = self.choose(("n", "3", "COUNT", "box.size % 3", "int(y[0, 1]) % 3"))
        self.say(f"for {index} in range({count}):")
        self.block(f"x = (x + {index}) % 16")

    def s_while(self) -> None:
        self.loops += 1
        count, name = f"i{self.loops}", self.name((4,))
        self.say(f"{count} = 0")
        self.say(f"while {name}.sum() < {self.choose((10, 30))} and {count} < 3:")
        self.block(f"{count} += 1", f"{name} = {name} + 2")

    def s_return(self) -> None:
        self.say(f"if {self.name((4,))}.max() > {self.choose((14, 12))}:")
        self.say(f"    return {self.name((4,))} * 1,")

    def s_raise(self) -> None:
        self.say(f"if {self.name((4,))}.sum() > {self.choose((40, 50))}:")
        self.say("    raise ValueError('too large')")

    def block(self, *first: str) -> None:
        """Statements of a body; what they define does not outlive it, and what was there keeps its shape."""
        outside = dict(self.names)
        self.depth += 1
        self.nested += 1
        for line in first:
            self.say(line)
        for _ in range(self.choose((1, 2))):
            self.statement()
        self.depth -= 1
        self.nested -= 1
        self.names = outside


def write(choose: Choose) -> str:
    """The text of a random program."""
    return Writer(choose).text()
