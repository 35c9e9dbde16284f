"""The native half of sanitize.py: the functions that checked code calls."""

from __future__ import annotations

from typing import Any

from ..llvm.native import KINDS, Literal, NativeBuilder, Record, native
from ..llvm.native import text as module_text
from ..spec import host_spec
from ..structs import words

# The record's state is 0 for none, 1 while it is written, 2; then texts of kernel and buffer.
RECORD = words("state", "*kernel", "*buffer", "offset", "size", "wanted")
BOUNDS = words("low", "high", "*text")
TRUE = Literal(KINDS["i1"], "true")


@native("i1", "ptr", BOUNDS, "i64", "ptr")
def hml_within(c: NativeBuilder, p: Any, bounds: Record, wanted: Any, kernel: Any) -> None:
    """Whether so many bytes are inside of the bounds: none are, and there may be no bounds. If not, that is written
    down."""
    c.ret_if((bounds.pointer == 0) | c.icmp_signed("<=", wanted, 0), TRUE)
    first, low, high = c.word(p), bounds["low"], bounds["high"]
    c.ret_if((first >= low) & (first + wanted <= high), TRUE)
    violation = c.symbol("hml_violation").struct(RECORD)
    with c.if_then(violation.at("state").replace(0, 1, "acquire")):
        violation["kernel"], violation["buffer"] = kernel, bounds["text"]
        violation["offset"], violation["size"], violation["wanted"] = first - low, high - low, wanted
        violation.at("state").store(2, "release")
    c.ret("false")


@native("ptr", "ptr", BOUNDS, "i64", "ptr")
def hml_inside(c: NativeBuilder, p: Any, bounds: Record, wanted: Any, kernel: Any) -> None:
    """The pointer, or one to memory that is nobody's."""
    c.ret(c.select(hml_within(c, p, bounds, wanted, kernel), p, c.symbol("hml_nowhere")))


@native("i1", "ptr", BOUNDS, "i64", "i64", "ptr")
def hml_within_masked(c: NativeBuilder, p: Any, bounds: Record, on: Any, each: Any, kernel: Any) -> None:
    """The same of the lanes of a vector that are on, a bit each: from the first to the last of them."""
    c.ret_if(on == 0, TRUE)
    first, left = (c.extern("i64", f"llvm.{what}.i64", on, TRUE) for what in ("cttz", "ctlz"))
    c.ret(hml_within(c, p + first * each, bounds, (64 - left - first) * each, kernel))


@native("i64", "ptr", "i64", BOUNDS, "i64", "i64", "ptr")
def hml_within_lanes(
    c: NativeBuilder, addresses: Any, lanes: Any, bounds: Record, on: Any, each: Any, kernel: Any
) -> None:
    """The lanes that are on, a bit each, but for those whose address is outside."""
    kept, bit = c.variable(0), c.variable(1)
    with c.each(lanes) as k:
        with c.if_then(on & bit.value != 0):
            with c.if_then(hml_within(c, addresses.item(k, "ptr"), bounds, each, kernel)):
                kept.value |= bit.value
        bit.value <<= 1
    c.ret(kept.value)


@native("void", BOUNDS, BOUNDS, "ptr", "i64", "ptr")
def hml_narrow(c: NativeBuilder, bounds: Record, outer: Record, p: Any, size: Any, text: Any) -> None:
    """Sets bounds of what is inside of others and begins at the pointer."""
    first = c.word(p)
    low, high = c.variable(first), c.variable(first + size)
    with c.if_then(outer.pointer != 0):
        low.value, high.value = c.greatest(first, outer["low"]), c.least(high.value, outer["high"])
    bounds["low"], bounds["high"], bounds["text"] = low.value, high.value, text


@native("i64")
def hml_violated(c: NativeBuilder) -> None:
    c.ret(c.symbol("hml_violation").load(order="acquire"))


FUNCTIONS = (hml_inside, hml_within, hml_within_masked, hml_within_lanes, hml_narrow, hml_violated)


def text() -> str:
    """LLVM IR of the module."""
    return module_text("sanitize", host_spec(), *FUNCTIONS)
