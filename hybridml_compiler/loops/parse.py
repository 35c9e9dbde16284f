"""The text of a kernel read back: a tokenizer and a recursive descent over the grammar of `text.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ArgumentError
from ..record import record
from ..sizes.dims import Size, same, symbol
from ..sizes.values import parse as parse_size
from .builder import LoopBuilder
from .complex_parts import PARTS
from .ir import INFIX, LOOP_KINDS, Buffer, Expr, For, Kernel, LoopKind, Reduce, Scan, Stmt, Store, extent
from .scalar import ISA, result_dtype
from .transcendental import TABLE

_SYMBOL = {symbol: (op, level) for op, (symbol, level) in INFIX.items()}
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<number>0x[0-9a-f]+ | -?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf\b|nan\b))
      | (?P<word>[A-Za-z_]\w*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<symbol>[<>=!]=|[-+*/%<>=(){}\[\],:])""",
    re.VERBOSE,
)


_HINT = 64


@record
class _Token:
    kind: str
    text: str
    at: int


def parse_kernel(text: str) -> Kernel:
    """Inverse of `print_kernel`. Expressions are built as they are written, without simplification.

    `ArgumentError` names the line, what was expected there, and what was found. `verify_kernel` has the rules that a
    kernel which can be read may still break.
    """
    return _Parser(text).kernel()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[_Token] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error(_Token("", text[at], at), "a kernel")
            if found.lastgroup != "space":
                self.tokens.append(_Token(str(found.lastgroup), found.group(), at))
            at = found.end()
        self.tokens.append(_Token("end", "the end of the text", len(text)))
        self.at = 0
        self.s = LoopBuilder()
        self.buffers: dict[str, Buffer] = {}
        self.names: list[dict[str, Expr]] = []
        self.symbols: dict[str, Size] = {}
        self.loop: dict[str, Expr] = {}  # variables of the reduction just before

    # ---- tokens

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def next(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def reads(self, text: str) -> bool:
        """Step over `text` if it comes next."""
        if self.token.text != text or self.token.kind not in ("word", "symbol"):
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.reads(text):
            raise self.error(self.token, repr(text))

    def take(self, kind: str, what: str) -> str:
        if self.token.kind != kind:
            raise self.error(self.token, what)
        return self.next().text

    def count(self) -> Size:
        token = self.token
        if self.reads("{"):
            return self.size()
        with suppress(ValueError):
            return int(self.take("number", "a count"))
        raise self.error(token, "a count")

    def size(self) -> Size:
        """The size between braces; a symbol has no size to hint at here."""
        start = self.token.at
        while not self.reads("}"):
            token = self.next()
            if token.kind == "word":
                self.symbols.setdefault(token.text, symbol(token.text, _HINT))
            elif token.kind == "end":
                raise self.error(token, "'}'")
        return parse_size(self.text[start : self.tokens[self.at - 1].at], self.symbols)

    def error(self, token: _Token, expected: str) -> ArgumentError:
        line = self.text.count("\n", 0, token.at) + 1
        column = token.at - (self.text.rfind("\n", 0, token.at) + 1) + 1
        shown = self.text.split("\n")[line - 1].strip()[:120]
        where = f"parse_kernel: line {line}, column {column}"
        return ArgumentError(f"{where}: expected {expected}, got {token.text!r}\n  {shown}")

    # ---- statements

    def kernel(self) -> Kernel:
        self.expect("kernel")
        self.expect("(")
        while not self.reads(")"):
            if self.buffers:
                self.expect(",")
            self.buffer()
        facts: dict[str, Any] = {}
        while (token := self.token).text in ("lanes", "granule", "cost"):
            self.next()
            facts[token.text] = float(self.take("number", "a number")) if token.text == "cost" else self.count()
        facts["chained"] = self.reads("chained")
        self.expect("{")
        body = self.body()
        if self.token.kind != "end":
            raise self.error(self.token, "the end of the text")
        return Kernel(tuple(self.buffers.values()), body, **facts)

    def buffer(self) -> None:
        token = self.token
        name = self.take("word", "the name of a buffer")
        if name in self.buffers:
            raise self.error(token, "a name that is not yet taken")
        self.expect(":")
        dtype = self.dtype()
        self.expect("[")
        size = self.count()
        self.expect("]")
        role: Any = self.next().text if self.token.text in ("out", "inout", "scratch") else "in"
        self.buffers[name] = Buffer(name, dtype, size, role)

    def dtype(self) -> np.dtype:
        token = self.token
        name = self.take("word", "a dtype such as f32")
        try:
            return dtypes.from_short(name)
        except KeyError:
            raise self.error(token, "a dtype such as f32") from None

    def body(self, names: dict[str, Expr] | None = None) -> tuple[Stmt, ...]:
        """Items up to the closing brace."""
        self.names.append(names or {})
        body: list[Stmt] = []
        self.loop = {}
        while not self.reads("}"):
            stmt = self.item()
            if stmt is not None:
                body.append(stmt)
                self.loop = self.loop if isinstance(stmt, Reduce) else {}
        self.names.pop()
        return tuple(body)

    def item(self) -> Stmt | None:
        """A statement; None for the definition of a name."""
        if self.reads("for"):
            name, var = self.variable()
            kind = self.kind()
            self.expect("{")
            return For(var, self.body({name: var}), kind)
        if self.reads("scan"):
            return self.scan()
        if self.token.text in self.buffers:
            return self.store()
        token = self.token
        name = self.take("word", "a statement")
        self.expect("=")
        value: Expr
        if self.reads("reduce"):
            stmt = self.reduce()
            value = stmt.result
        else:
            stmt, value = None, self.expr()
        if any(name in names for names in self.names):
            raise self.error(token, "a name that is not yet defined")
        self.names[-1][name] = value
        return stmt

    def variable(self, shared: Mapping[str, Expr] | None = None) -> tuple[str, Expr]:
        """A new variable, or the one of that name and extent in `shared`."""
        token = self.token
        name = self.take("word", "a variable")
        if any(name in names for names in self.names):
            raise self.error(token, "a name that is not yet defined")
        self.expect("<")
        size = self.count()
        known = (shared or {}).get(name)
        return name, known if known is not None and same(extent(known), size) else self.s.var("i", size)

    def kind(self) -> LoopKind:
        return next((kind for kind in LOOP_KINDS if kind != "serial" and self.reads(kind)), "serial")

    def reduce(self) -> Reduce:
        op = self.take("word", "add, mul, min, max, and, or, argmin or argmax")
        self.expect("over")
        names = dict([self.variable(self.loop)])
        while self.reads(","):
            names |= dict([self.variable(self.loop)])
        self.loop = names
        kind = self.kind()
        variables = tuple(names.values())
        self.names.append(names)
        if self.reads("of"):
            value = self.expr()
        else:
            (value,) = self.yielded(1)
        self.names.pop()
        return Reduce(self.s.reduction_result(op, value, variables), op, variables, value, kind)

    def yielded(self, most: int) -> list[Expr]:
        """The values after `yield` in a block of names."""
        self.expect("{")
        while not self.reads("yield"):
            token = self.token
            if self.item() is not None:
                raise self.error(token, "the definition of a name, or 'yield'")
        values = [self.expr()]
        while len(values) < most and self.reads(","):
            values.append(self.expr())
        self.expect("}")
        return values

    def while_(self) -> Expr:
        """The loop of scalars whose `while(` has been read."""
        starts: dict[str, Expr] = {}
        go = self.expr()
        while self.reads(","):
            self.start(starts)
        self.expect(")")
        carries = len(starts)
        if self.reads("with"):
            self.expect("(")
            self.start(starts)
            while self.reads(","):
                self.start(starts)
            self.expect(")")
        params = {name: self.s.param(k, value.dtype) for k, (name, value) in enumerate(starts.items())}
        outer, self.names = self.names, [dict(params)]
        results = self.yielded(1 + carries)
        self.names = outer
        return self.s.loop_of(self.s.region([*params.values()], results), (go, *starts.values()))

    def start(self, starts: dict[str, Expr]) -> None:
        """A parameter of a loop, and its first value."""
        token = self.token
        name = self.take("word", "the name of a parameter")
        if name in starts:
            raise self.error(token, "a name that is not yet defined")
        self.expect("=")
        starts[name] = self.expr()

    def scan(self) -> Scan:
        op = self.take("word", "add, mul, min, max, and or or")
        self.expect("over")
        name, var = self.variable()
        reverse, kind = self.reads("reverse"), self.kind()
        self.expect("{")
        token = self.token
        body = self.body({name: var})
        if len(body) != 1 or not isinstance(body[0], Store):
            raise self.error(token, "one store")
        return Scan(body[0].buffer, body[0].index, op, var, body[0].value, reverse, kind)

    def store(self) -> Store:
        buffer = self.buffers[self.next().text]
        self.expect("[")
        index = self.expr()
        self.expect("]")
        self.expect("=")
        return Store(buffer, index, self.expr())

    # ---- expressions

    def expr(self, level: int = 1) -> Expr:
        """Left to right over operators that bind at least as tightly as `level`; comparisons do not chain."""
        left = self.term()
        while self.token.text in _SYMBOL and _SYMBOL[self.token.text][1] >= level:
            op, own = _SYMBOL[self.next().text]
            left = self.s.emit(op, left, self.expr(own + 1))
            level = max(level, 2) if own == 1 else level
        return left

    def term(self) -> Expr:
        token = self.next()
        if token.kind == "number":
            dtype = self.dtype() if self.reads(":") else dtypes.int64
            return self.s.const(self.value(token, dtype), dtype)
        if token.text == "{":
            return self.s.const(self.size(), dtypes.int64)
        if token.text in ("true", "false"):
            return self.s.const(token.text == "true", dtypes.bool_)
        if token.text == "(":
            inner = self.expr()
            self.expect(")")
            return inner
        if token.kind != "word":
            raise self.error(token, "an expression")
        if token.text in self.buffers:
            self.expect("[")
            args = self.where()
            self.expect("]")
            return self.s.load_of(self.buffers[token.text], args)
        if self.reads("("):
            return self.call(token)
        found = next((names[token.text] for names in reversed(self.names) if token.text in names), None)
        if found is None:
            raise self.error(token, "a name that is defined above")
        return found

    def where(self) -> tuple[Expr, ...]:
        value = self.expr()
        return (value, self.expr()) if self.reads("if") else (value,)

    def call(self, token: _Token) -> Expr:
        """The call whose name and `(` have been read."""
        if token.text == "while":
            return self.while_()
        args: tuple[Expr, ...] = self.where() if token.text == "index" else (self.expr(),)
        if token.text == "index":
            self.expect(",")
            size = self.count()
            self.expect(",")
            result = self.s.index_of(args, size, json.loads(self.take("string", "a string")))
        elif token.text in ("cast", "bitcast", "table"):
            self.expect(",")
            dtype, values = self.dtype(), []
            while token.text == "table" and self.reads(","):
                values.append(self.value(self.next(), dtype))
            result = self.s.emit(token.text, *args, dtype=dtype, attr=tuple(values) if token.text == "table" else None)
        elif token.text == "carry":
            self.expect(",")
            where, number = self.token, self.count()
            if args[0].op != "while" or not 0 <= number < args[0].attr.carries:
                raise self.error(where, "the number of a carry")
            result = self.s.emit("carry", *args, dtype=args[0].args[1 + number].dtype, attr=number)
        else:
            while self.reads(","):
                args += (self.expr(),)
            row = ISA.get(token.text)
            if (row is None and token.text not in TABLE) or token.text == "const":
                raise self.error(token, "an instruction, or a transcendental function")
            if row is not None and row.arity != len(args):
                raise self.error(token, f"{row.arity} operands for {row.name}")
            if token.text in PARTS:
                made = result_dtype(token.text, tuple(a.dtype for a in args))
                result = self.s.emit(token.text, *args, dtype=made)
            else:
                result = self.s.emit(token.text, *args)
        self.expect(")")
        return result

    def value(self, token: _Token, dtype: np.dtype) -> Any:
        with suppress(ValueError, OverflowError):
            if token.text.startswith("0x"):
                return np.array(int(token.text, 16), f"u{dtype.itemsize}").view(dtype)[()].item()
            if token.kind == "number" and dtype.kind != "b":
                return np.asarray(token.text).astype(dtype)[()].item()
        raise self.error(token, f"a number of {dtypes.short(dtype)}")
