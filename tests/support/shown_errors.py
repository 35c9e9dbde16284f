"""Programs that fail, each with words that its error must have, and what runs them where errors are shown."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
MOST_LINES = 9  # the line of the call, that of the program, and the message with the user's line
OURS = re.compile(r"/hybridml(_compiler)?/|<(dispatch|record) ")  # the file of a frame
SETUP = """\
import hybridml as hm
from hybridml import nn

def ones(*shape):
    return hm.ones(shape)

x = ones(3, 4)
"""
# The program of a case is a function of `x`, of shape (3, 4), which `style` runs: `hm.trace`, or as it is.
CALL = """\
def program(x):
{body}

style(program)(x)
"""


class Case(NamedTuple):
    name: str
    body: str
    asked: str  # words of what was asked
    got: str  # and of what was found, or of the way out


# fmt: off
CASES = [
    # shapes
    Case("reshape", "return x.reshape(4, 5)", "(4, 5)", "f32[3,4]"),
    Case("add", "return x + ones(7)", "f32[3,4]", "f32[7]"),
    Case("add in place", "x += ones(7)", "f32[3,4]", "f32[7]"),
    Case("matmul", "return x @ x", "matmul", "f32[3,4]"),
    Case("concat", "return hm.concat([x, ones(2, 2)])", "concat", "f32[2,2]"),
    Case("stack", "return hm.stack([x, ones(2)])", "stack", "(2,)"),
    Case("broadcast_to", "return hm.broadcast_to(x, (5, 5))", "(5, 5)", "f32[3,4]"),
    Case("sum", "return x.sum(axis=5)", "sum", "axis 5"),
    Case("split", "return hm.split(x, [1, 1, 9])", "split", "3"),
    Case("einsum", "return hm.einsum('ij,jk->ik', x, ones(7, 2))", "einsum", "7"),
    Case("len", "return len(hm.tensor(1.0))", "len()", "0-dimensional"),
    Case("nested lists", "return hm.tensor([[1, 2], [3]])", "asarray", "regular"),
    # indices
    Case("index", "return x[5]", "index: 5", "f32[3,4]"),
    Case("index of a word", "return x[0, 'a']", "'a'", "f32[3,4]"),
    Case("index array", "return x[hm.tensor([7])]", "index 7", "size 3"),
    Case("assignment", "x[7] = 1.0", "7", "f32[3,4]"),
    # dtypes
    Case("dtype", "return hm.zeros(3, dtype='nope')", "'nope'", "float32"),
    Case("shift", "return x << 1", "integers", "f32[3,4]"),
    Case("foreign operand", "return hm.add(x, {})", "add", "dict"),
    # gradients
    Case("backward without history", "(x * 2).backward()", "backward()", "no history"),
    Case("backward of no scalar", "(x.requires_grad_() * 2).backward()", "backward()", "(3, 4)"),
    Case("numpy", "return hm.ones(3, requires_grad=True).numpy()", "numpy()", "detach()"),
    # layers, their constructors, optimizers
    Case("Linear", "return nn.Linear('a', 3)", "shape", "'a'"),
    Case("Conv2d", "return nn.Conv2d(3, 8, 3, groups=2)", "groups=2", "in_channels=3"),
    Case("layer", "return nn.Linear(7, 2)(x)", "f32[3,4]", "7"),
    Case("loss", "return nn.CrossEntropyLoss()(x, ones(2))", "class indices", "f32[2]"),
    Case("SGD", "return hm.optim.SGD([x], lr=-1)", "lr", "-1"),
    # arguments and names
    Case("keyword of a function", "return hm.randn(3, bogus=1)", "randn()", "'bogus'"),
    Case("argument of a layer", "return nn.Linear(4, 2)(x, x)", "forward()", "3 were given"),
    Case("name", "return hm.foo", "hybridml", "'foo'"),
    Case("attribute", "return x.foo", "Tensor", "'foo'"),
    # the user's own
    Case("raise", "raise ValueError(f'mine: {x.shape}')", "mine", "(3, 4)"),
    Case("raise with a value", "if x.sum() > 0: raise KeyError('positive')", "KeyError", "positive"),
]
# fmt: on


def source(case: Case, style: str) -> str:
    """The lines of a program that fails."""
    return f"style = {style}\n" + CALL.format(body=textwrap.indent(case.body, "    "))


def wrong_in(shown: str, case: Case) -> str:
    """The faults of an error as it is shown to the user; an empty text where it has none."""
    message = "\n".join(shown.splitlines()[-3:])
    found = {
        "a frame of ours": OURS.search(shown),
        "another error in its context": "another exception" in shown or "direct cause" in shown,
        f"more than {MOST_LINES} lines": len(shown.splitlines()) > MOST_LINES,
        "no line of the program": case.body.strip() not in shown,
        f"not {case.asked!r} in its message": case.asked not in message,
        f"not {case.got!r} in its message": case.got not in message,
    }
    wrong = [what for what, is_so in found.items() if is_so]
    return f"{case.name}: {', '.join(wrong)}\n{shown}" if wrong else ""
