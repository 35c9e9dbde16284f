"""The device functions of a kernel: instructions that C has no operator for, transcendental functions, and reductions
over the threads of a block. Each is written once for a dtype, in front of what calls it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .... import dtypes
from ....loops.complex_parts import BY_PARTS
from ....loops.division import float_divmod, int_divmod
from ....loops.ir import Expr
from ....loops.regions import instruction
from ....loops.scalar import COMBINE
from ....loops.transcendental import TABLE
from .narrow import HELPERS as _CONVERSIONS
from .scalars import C, CBuilder, call
from .types import c_type, literal

WARP = 32
_INDENT = "  "
_NAME = re.compile(r"\bt\d+\b")
_DEFINITION = re.compile(r"\s*const [\w ]+ (t\d+) = ")
_HELPERS = {
    # An index into a table. Both sides of a choice are computed, so that it may be out of range where it is not used.
    "clamp": """\
static __device__ __forceinline__ long long clamp(long long index, long long size) {
  return index < 0 ? 0 : index < size ? index : size - 1;
}
""",
    # A checked index: wrapped, and reported where it is out of range and counts; element 0 is read in its place.
    "checked": """\
static __device__ __forceinline__ long long checked(long long index, bool counts, long long size, long long* status) {
  if (index < 0) index += size;
  if (index >= 0 && index < size) return index;
  if (counts) atomicExch((unsigned long long*)status, 1ULL);
  return 0;
}
""",
    **{
        # The extreme of all numbers, or nan: one instruction, where an order of zeros takes three.
        f"{op}_or_nan": f"""\
static __device__ __forceinline__ float {op}_or_nan(float x, float y) {{
  float found;
  asm("{op}.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
  return found;
}}
"""
        for op in ("min", "max")
    },
} | _CONVERSIONS


class Writer(CBuilder):
    """A builder that writes the body of a function: every value is a line, with a name of its own."""

    def __init__(self, functions: DeviceFunctions) -> None:
        super().__init__(functions, self._line)
        self.lines: list[str] = []
        self.indent = _INDENT
        self._count = 0

    def finish(self, result: C) -> list[str]:
        """The lines that the result needs, and its return."""
        kept, used = [f"{_INDENT}return {result};"], set(_NAME.findall(result.text))
        for line in reversed(self.lines):
            defined = _DEFINITION.match(line)
            if defined is None or defined[1] in used:
                kept.append(line)
                used.update(_NAME.findall(line))
        return kept[::-1]

    def _name(self) -> str:
        self._count += 1
        return f"t{self._count - 1}"

    def _line(self, value: C) -> C:
        named = C(self._name(), value.dtype)
        self.lines.append(f"{self.indent}const {c_type(value.dtype)} {named} = {value};")
        return named

    def rarely(self, cond: C, slow: Callable[[], C], fast: C) -> C:
        """select(cond, slow(), fast), as a branch: the threads of a warp that need it take it together."""
        named, outer = C(self._name(), fast.dtype), self.indent
        self.lines += [f"{outer}{c_type(fast.dtype)} {named} = {fast};", f"{outer}if ({cond}) {{"]
        self.indent += _INDENT
        self.lines.append(f"{self.indent}{named} = {slow()};")
        self.indent = outer
        self.lines.append(f"{outer}}}")
        return named

    def while_(self, go: C, carries: Sequence[C], given: Sequence[C], body: Callable[..., Sequence[C]]) -> list[C]:
        """The carries after a loop: variables that each step assigns to, when all of its values are known."""
        outer, variables = self.indent, [C(self._name(), x.dtype) for x in (go, *carries)]
        for name, start in zip(variables, (go, *carries), strict=True):
            self.lines.append(f"{outer}{c_type(name.dtype)} {name} = {start};")
        flag, *now = variables
        self.lines.append(f"{outer}while ({flag}) {{")
        self.indent += _INDENT
        after = [self._line(x) if x in now else x for x in body(*now, *given)]
        self.lines += [f"{self.indent}{name} = {x};" for name, x in zip(variables, after, strict=True)]
        self.indent = outer
        self.lines.append(f"{outer}}}")
        return now


class DeviceFunctions:
    """The functions and tables that a kernel has asked for, in an order in which each knows those that it calls."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def text(self) -> str:
        return "".join(f"{text}\n" for text in self._texts.values())

    def table(self, values: Sequence[Any], dtype: np.dtype) -> str:
        numbers = ", ".join(literal(value, dtype) for value in values)
        name = f"table_{hashlib.blake2b(f'{dtype}{numbers}'.encode(), digest_size=4).hexdigest()}"
        self._texts.setdefault(
            name, f"static __device__ const {c_type(dtype)} {name}[{len(values)}] = {{{numbers}}};\n"
        )
        return name

    def function(self, name: str, dtype: np.dtype, arity: int) -> str:
        """The name of an instruction or of a transcendental function as a device function."""
        full = f"{name.rstrip('_')}_{dtypes.short(dtype)}"
        if full not in self._texts:
            self._write(full, name, dtype, arity)
        return full

    def _write(self, full: str, name: str, dtype: np.dtype, arity: int) -> None:
        writer = Writer(self)
        args = [C(letter, dtype) for letter in "xyz"[:arity]]
        result = _BODIES[name](writer, *args) if name in _BODIES else TABLE[name](writer, *args)
        parameters = ", ".join(f"{c_type(dtype)} {arg}" for arg in args)
        head = f"static __device__ __forceinline__ {c_type(dtype)} {full}({parameters}) {{"
        self._texts[full] = "\n".join([head, *writer.finish(result), "}", ""])

    def loop(self, expr: Expr) -> str:
        """The name of a `while` as a device function. It returns its carries, in a `struct` of that name."""
        writer, args = Writer(self), [C(f"x{k}", x.dtype) for k, x in enumerate(expr.args)]
        carries = instruction(writer, expr, args)
        lines = writer.finish(C(f"{{{', '.join(map(str, carries))}}}", expr.dtype))
        parameters = ", ".join(f"{c_type(x.dtype)} {x}" for x in args)
        fields = " ".join(f"{c_type(x.dtype)} c{k};" for k, x in enumerate(carries))
        name = f"loop_{hashlib.blake2b(' '.join([parameters, *lines]).encode(), digest_size=4).hexdigest()}"
        head = f"static __device__ __forceinline__ {name}_carries {name}({parameters}) {{"
        self._texts.setdefault(name, "\n".join([f"struct {name}_carries {{ {fields} }};", head, *lines, "}", ""]))
        return name

    def vector(self, dtype: np.dtype, lanes: int) -> str:
        """The name of the type of so many neighbours in memory, which are loaded and stored at once."""
        name = f"{dtypes.short(dtype)}x{lanes}"
        text = f"struct __align__({lanes * dtype.itemsize}) {name} {{\n  {c_type(dtype)} lane[{lanes}];\n}};\n"
        self._texts.setdefault(name, text)
        return name

    def store(self, dtype: np.dtype, lanes: int) -> str:
        """The name of the function that stores a vector at once. It is written as one instruction where that has 16
        bytes: a copy of its struct becomes several, wherever the compiler does not see what else may be stored."""
        kind, size = self.vector(dtype, lanes), dtype.itemsize
        name, letter = f"store_{kind}", {2: "h", 4: "r", 8: "l"}.get(size, "")
        letter = {(4, "f"): "f", (8, "f"): "d"}.get((size, dtype.kind), letter)
        values = [f"value.lane[{k}]" for k in range(lanes)]
        words, body = values, list[str]()
        if size == 2:
            words, letter = [f"word{k}" for k in range(lanes // 2)], "r"
            for word, low, high in zip(words, values[::2], values[1::2], strict=True):
                body.append(f"unsigned int {word};")
                body.append(f'asm("mov.b32 %0, {{%1, %2}};" : "=r"({word}) : "h"({low}), "h"({high}));')
        if lanes * size == 16 and size > 1 and dtype.kind != "c":
            form = {"f": "v4.f32", "d": "v2.f64", "r": "v4.u32", "l": "v2.u64"}[letter]
            places = ", ".join(f"%{k + 1}" for k in range(len(words)))
            given = ", ".join(['"l"(to)', *(f'"{letter}"({word})' for word in words)])
            body.append(f'asm volatile("st.global.{form} [%0], {{{places}}};" :: {given} : "memory");')
        else:
            body = [f"*({kind}*)to = value;"]
        head = f"static __device__ __forceinline__ void {name}({c_type(dtype)}* to, const {kind}& value) {{"
        self._texts.setdefault(name, "\n".join([head, *(f"  {line}" for line in body), "}", ""]))
        return name

    def helper(self, name: str) -> str:
        """The name of a function that is written here as it stands."""
        self._texts.setdefault(name, _HELPERS[name])
        return name

    def block_reduction(self, op: str, dtype: np.dtype) -> str:
        """The name of the function that combines a value of each thread of a block, for all of them: by halves in the
        lanes of a warp, then by halves of the warps. The tree depends on the size of the block alone."""
        full = f"block_{op}_{dtypes.short(dtype)}"
        if full not in self._texts:
            kind, combine = c_type(dtype), combination(CBuilder(self), op, dtype)
            below = _lane("down", "value", dtype, "step")  # of the lane so many places below
            combined = combine(C("value", dtype), C("below", dtype))
            self._texts[full] = (
                f"static __device__ __forceinline__ {kind} {full}({kind} value) {{\n"
                f"  __shared__ {kind} parts[{WARP}];\n"
                f"  const int warps = blockDim.x / {WARP};\n"
                f"  for (int step = {WARP // 2}; step > 0; step /= 2) {{\n"
                f"    const {kind} below = {below};  // in all lanes, whatever && and ?: need\n"
                f"    value = {combined};\n"
                "  }\n"
                f"  if (threadIdx.x % {WARP} == 0) parts[threadIdx.x / {WARP}] = value;\n"
                "  __syncthreads();\n"
                "  value = parts[threadIdx.x & (warps - 1)];  // as many as a power of two\n"
                "  for (int step = warps / 2; step > 0; step /= 2) {\n"
                f"    const {kind} below = {below};\n"
                f"    value = {combined};\n"
                "  }\n"
                f"  value = {_lane('idx', 'value', dtype, '0')};\n"
                "  __syncthreads();  // the parts are free for the next reduction\n"
                "  return value;\n"
                "}\n"
            )
        return full

    def block_scan(self, op: str, dtype: np.dtype) -> str:
        """The name of the function that gives each thread of a block the combination of the total before, and of the
        values of the threads below; the total then has those of all."""
        full = f"scan_{op}_{dtypes.short(dtype)}"
        if full not in self._texts:
            kind, combine = c_type(dtype), combination(CBuilder(self), op, dtype)
            value, part, before = (C(name, dtype) for name in ("value", "parts[each]", "before"))
            self._texts[full] = (
                f"static __device__ __forceinline__ {kind} {full}({kind} value, {kind}& total) {{\n"
                f"  __shared__ {kind} parts[{WARP}];\n"
                f"  const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};\n"
                f"  for (int step = 1; step < {WARP}; step *= 2) {{\n"
                f"    const {kind} other = {_lane('up', 'value', dtype, 'step')};\n"
                f"    if (lane >= step) value = {combine(C('other', dtype), value)};\n"
                "  }\n"
                f"  if (lane == {WARP - 1}) parts[warp] = value;\n"
                "  __syncthreads();\n"
                f"  {kind} before = total;\n"
                f"  for (int each = 0; each < blockDim.x / {WARP}; ++each) {{\n"
                f"    if (each < warp) before = {combine(before, part)};\n"
                f"    total = {combine(C('total', dtype), part)};\n"
                "  }\n"
                f"  const {kind} other = {_lane('up', 'value', dtype, '1')};\n"
                f"  if (lane > 0) before = {combine(before, C('other', dtype))};\n"
                "  __syncthreads();  // the parts are free for the next turn\n"
                "  return before;\n"
                "}\n"
            )
        return full

    def block_position(self, op: str, dtype: np.dtype) -> str:
        """The name of the function that gives all threads of a block the first position of the extreme, from the best
        value of each and its position."""
        full = f"block_{op}_{dtypes.short(dtype)}"
        if full not in self._texts:
            kind = c_type(dtype)
            equal = "value == best" + " || (value != value && best != best)" * (dtype.kind == "f")
            take = f"if ({better(op, dtype, 'value', 'best')} || (({equal}) && place < at)) best = value, at = place;"
            self._texts[full] = (
                f"static __device__ __forceinline__ long long {full}({kind} best, long long at) {{\n"
                f"  __shared__ {kind} parts[{WARP}];\n"
                f"  __shared__ long long places[{WARP}];\n"
                f"  for (int step = {WARP // 2}; step > 0; step /= 2) {{\n"
                f"    const {kind} value = {_lane('down', 'best', dtype, 'step')};\n"
                f"    const long long place = {_lane('down', 'at', dtypes.int64, 'step')};\n"
                f"    {take}\n"
                "  }\n"
                f"  const int own = threadIdx.x / {WARP};\n"
                f"  if (threadIdx.x % {WARP} == 0) parts[own] = best, places[own] = at;\n"
                "  __syncthreads();\n"
                "  best = parts[0], at = places[0];\n"
                f"  for (int warp = 1; warp < blockDim.x / {WARP}; ++warp) {{\n"
                f"    const {kind} value = parts[warp];\n"
                "    const long long place = places[warp];\n"
                f"    {take}\n"
                "  }\n"
                "  __syncthreads();  // the parts are free for the next reduction\n"
                "  return at;\n"
                "}\n"
            )
        return full


def combination(s: CBuilder, op: str, dtype: np.dtype) -> Callable[[C, C], C]:
    """The function of two values that a reduction or a scan repeats."""
    if dtype.kind == "c":
        return lambda a, b: BY_PARTS[op](s, a, b)
    if op in ("min", "max") and dtype is dtypes.float32:
        return lambda a, b: C(call(s.functions.helper(f"{op}_or_nan"), a, b), dtype)
    made: Callable[[C, C], C] = getattr(s, COMBINE[op])
    return made


def better(op: str, dtype: np.dtype, value: str, best: str) -> str:
    """The condition that a value takes the place of the best before it: greater or less, or the first nan."""
    wins = f"{value} {'>' if op == 'argmax' else '<'} {best}"
    return f"({wins} || {value} != {value}) && {best} == {best}" if dtype.kind == "f" else wins


def _lane(where: str, value: str, dtype: np.dtype, distance: str) -> str:
    """The value of the lane that is so many places down or up the warp, or of a lane by its number."""
    name = f"__shfl_{where}_sync".replace("_idx", "")
    if dtype.kind == "c":
        parts = ", ".join(_lane(where, f"{value}.{part}", dtypes.real_of(dtype), distance) for part in "xy")
        return f"make_{c_type(dtype)}({parts})"
    if dtype.itemsize >= 4:
        return f"{name}(0xffffffffu, {value}, {distance})"
    return f"({c_type(dtype)}){name}(0xffffffffu, (int){value}, {distance})"


# ---- instructions as functions, over a builder


def _extreme(wins: str) -> Callable[[Writer, C, C], C]:
    """x if it wins or is nan, else y."""

    def body(s: Writer, x: C, y: C) -> C:
        better = getattr(s, wins)(x, y)
        return s.select(better if x.dtype.kind != "f" else s.or_(better, s.ne(x, x)), x, y)

    return body


def _shift(symbol: str) -> Callable[[Writer, C, C], C]:
    """The shift, of which an amount that is negative or too wide is defined."""

    def body(s: Writer, x: C, y: C) -> C:
        width, kind = 8 * x.dtype.itemsize, c_type(x.dtype)
        inside = f"y >= 0 && y < {width}" if x.dtype.kind == "i" else f"y < {width}"
        beyond = "x < 0 ? -1 : 0" if symbol == ">>" and x.dtype.kind == "i" else "0"
        value = "x" if symbol == ">>" else f"({c_type(np.dtype(f'u{x.dtype.itemsize}'))})x"
        return C(f"{inside} ? ({kind})({value} {symbol} y) : ({kind})({beyond})", x.dtype, 1)

    return body


def _ldexp(s: Writer, x: C, y: C) -> C:
    from ....loops.notation import Value
    from ....loops.transcendental.exp import in_two_factors

    made: C = in_two_factors(Value(s, x), Value(s, y)).raw
    return made


def _exp(s: Writer, x: C) -> C:
    """The same result as on the CPU, which takes a choice and not an underflow where that is 0."""
    from ....loops.notation import Value, at_least, at_most, polynomial
    from ....loops.transcendental.exp import EXP, EXP_RANGE, power_of_two, reduce

    value = Value(s, x)
    low, high = EXP_RANGE[x.dtype]
    _, rest, shifted = reduce(at_least(at_most(value, high), low), 2 * value.format.bias)
    half = shifted >> 1
    p = polynomial(rest, EXP[x.dtype]) * power_of_two(half, x.dtype)
    made: C = (p * power_of_two(shifted - half, x.dtype)).raw
    return made


# erf(x) / x in x^2 on |x| <= 2.203125; beyond, no bfloat16 is nearer to it than 1.0. It has the other one's bits for
# all bfloat16 numbers: the intervals that round to them are constraints of a linear program (the idea of RLIBM, J. Lim
# and S. Nagarakatte, 2021).
_ERF_OF_BF16 = (1.1283791065216064, -0.37612831592559814, 0.11290726810693741, -0.026632016524672508,
                0.004750687163323164, -0.0005538156256079674, 2.9909773729741573e-05)  # fmt: skip


def _erf_of_bf16(s: Writer, x: C) -> C:
    from ....loops.notation import Value, at_most, polynomial

    value = Value(s, x)
    size = at_most(abs(value), 2.203125)
    made: C = (size * polynomial(size * size, _ERF_OF_BF16)).copysign(value).raw
    return made


def _floordiv(s: Writer, x: C, y: C) -> C:
    return (_float_divmod if x.dtype.kind == "f" else _int_divmod)(s, x, y)[0]


def _mod(s: Writer, x: C, y: C) -> C:
    return (_float_divmod if x.dtype.kind == "f" else _int_divmod)(s, x, y)[1]


def _int_divmod(s: Writer, x: C, y: C) -> tuple[C, C]:
    kind = c_type(x.dtype)

    def machines(symbol: str) -> Callable[[C, C], C]:
        return lambda x, by: s.keep(C(f"({kind})({x} {symbol} {by})", x.dtype))

    made: tuple[C, C] = int_divmod(s, x, y, machines("/"), machines("%"))
    return made


def _float_divmod(s: Writer, x: C, y: C) -> tuple[C, C]:
    r = s.keep(C(call("fmodf" if x.dtype is dtypes.float32 else "fmod", x, y), x.dtype))
    made: tuple[C, C] = float_divmod(s, x, y, r)
    return made


_BODIES: dict[str, Callable[..., C]] = {
    "minimum": _extreme("lt"),
    "maximum": _extreme("gt"),
    "shl": _shift("<<"),
    "shr": _shift(">>"),
    "ldexp": _ldexp,
    "exp": _exp,
    "erf_of_bf16": _erf_of_bf16,
    "floordiv": _floordiv,
    "mod": _mod,
}
