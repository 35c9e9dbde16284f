"""The sentences of a report: one for each factor, and advice, each from a rule with its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...display.reports import duration
from .parts import AFTER, ALLOCATION, BEFORE, BETWEEN, CALLS, DISPATCH, PYTHON, WAITING
from .report import Factor, Speed


class Worth(NamedTuple):
    """Sentences about a factor, by whether what stands in its place is slower, faster or the same."""

    slower: str
    faster: str
    same: str


_SWITCH = Worth(
    "{title}: worth {ratio:.2f} times the speed; without it a call takes {other_ms} in place of {base_ms}.",
    "{title}: costs time here; without it a call takes {other_ms} in place of {base_ms}.",
    "{title}: worth nothing here; without it a call takes {other_ms}, within the spread of {base_ms}.",
)
_UNCLEAR = (
    "{title}: not clear here; a call takes {base_ms}, {other} {other_ms}, and {lower:.2f} to {upper:.2f} times as long "
    "in half of the turns: measure it on a machine with nothing else to do, or with more repeats."
)
WORTH: Mapping[str, Worth] = {
    "capture": Worth(
        "whole-step capture: worth {ratio:.2f} times the speed, before anything is optimized; an eager call takes "
        "{other_ms}, the same operations in one program {base_ms}.",
        "whole-step capture: costs time by itself; an eager call takes {other_ms}, the same operations in one program "
        "{base_ms}.",
        "whole-step capture: worth nothing by itself; an eager call takes {other_ms}, the same operations in one "
        "program {base_ms}.",
    ),
    "threads": Worth(
        "threads: worth {ratio:.2f} times the speed; with {other} a call takes {other_ms} in place of {base_ms}.",
        "threads: cost time here; with {other} a call takes {other_ms} in place of {base_ms}.",
        "threads: worth nothing here; with {other} a call takes {other_ms}, within the spread of {base_ms}.",
    ),
    "batch": Worth(
        "batch: large enough; in {other} the samples of a call take {other_ms}, more than the {base_ms} of now.",
        "batch: a larger one is faster; in {other} the samples of a call take {other_ms} in place of {base_ms}.",
        "batch: large enough; in {other} the samples of a call take {other_ms}, within the spread of {base_ms}.",
    ),
    "dtype": Worth(
        "dtype: float32 is right here; with {other} a call takes {other_ms} in place of {base_ms}.",
        "dtype: with {other} a call takes {other_ms} in place of {base_ms}.",
        "dtype: worth nothing here; with {other} a call takes {other_ms}, within the spread of {base_ms}.",
    ),
    "recomputation": Worth(
        "recomputation: {other} costs time: a call takes {other_ms} in place of {base_ms}.",
        "recomputation: {other} saves time as well: a call takes {other_ms} in place of {base_ms}.",
        "recomputation: {other} costs nothing: a call takes {other_ms}, within the spread of {base_ms}.",
    ),
}


def sentence(factor: Factor) -> str:
    """The sentence of a factor."""
    if factor.missing:
        return f"{factor.title}: not measured, as {factor.missing}."
    if factor.identical:
        return f"{factor.title}: worth nothing here; the program is the same without it."
    worth = WORTH.get(factor.name.partition("=")[0], _SWITCH)
    text: str = _UNCLEAR if factor.verdict == "unclear" else getattr(worth, factor.verdict)
    return text.format(
        title=factor.title, other=factor.other, ratio=factor.ratio, base_ms=duration(factor.base_ms),
        other_ms=duration(factor.other_ms), lower=factor.lower, upper=factor.upper,
    )  # fmt: skip


def compiling(found: Speed) -> str:
    """The sentence of compiling."""
    if found.break_even is None:
        return f"compiling: takes {duration(found.compile_ms)}, which does not pay: a traced call is not faster."
    return (
        f"compiling: takes {duration(found.compile_ms)} with an empty cache, and pays after {found.break_even:,.0f} "
        "call(s)."
    )


class Rule(NamedTuple):
    """Advice where something holds of a program."""

    holds: Callable[[Speed], bool]
    advice: Callable[[Speed], str]


def percent(part: float) -> str:
    """Text of a part of a whole: `60 %`."""
    return f"{100 * part:.0f} %"


def _verdict(found: Speed, name: str) -> str:
    return next((one.verdict for one in found.factors if one.name == name), "missing")


def _fewer_threads(found: Speed) -> str:
    """The number of threads with which a call is fastest; empty where that is all of them."""
    faster = [one for one in found.factors if one.name.startswith("threads=") and one.verdict == "faster"]
    return min(faster, key=lambda one: one.ratio).name.removeprefix("threads=") if faster else ""


def _reached(found: Speed) -> float:
    """The rate of products as a part of that of a large one."""
    return min(found.traced.product_gflops / found.machine.gflops, 1.0)


def _guards(found: Speed) -> float:
    return found.traced.share(BEFORE, AFTER)


RULES = (
    Rule(
        lambda s: s.eager.overhead >= 0.3 and s.speedup > 1.1,
        lambda s: f"An eager call takes {duration(s.eager.median_ms)}, of which {percent(s.eager.overhead)} is Python "
        f"and calls: trace the whole step, which takes {duration(s.traced.median_ms)}.",
    ),
    Rule(
        lambda s: s.speedup <= 1,
        lambda s: f"The traced call is no faster ({duration(s.traced.median_ms)}, eager "
        f"{duration(s.eager.median_ms)}): run it eagerly, or ask hm.explain what keeps it from being one program.",
    ),
    Rule(
        lambda s: s.traced.products >= 0.7 and _reached(s) >= 0.75,
        lambda s: f"{percent(s.traced.products)} of the time is in products that run at {percent(_reached(s))} of the "
        "rate of a large one here: only a narrower dtype, a smaller model or other hardware makes it faster.",
    ),
    Rule(
        lambda s: s.traced.products >= 0.4 and 0 < _reached(s) < 0.5,
        lambda s: f"{percent(s.traced.products)} of the time is in products that run at {percent(_reached(s))} of the "
        "rate of a large one here: they are small or thin; a larger batch, or fewer and wider layers, feed them.",
    ),
    Rule(
        lambda s: s.traced.memory >= 0.4,
        lambda s: f"Up to {percent(s.traced.memory)} of the time is waiting for memory: fewer bytes make it faster (a "
        "narrower dtype, a smaller batch that stays in the cache, fewer intermediate values).",
    ),
    Rule(
        lambda s: _guards(s) >= 0.3,
        lambda s: f"{percent(_guards(s))} of a traced call is its guards, arguments and results: do more in one call "
        "(several steps in hm.scan or a loop, or a larger batch).",
    ),
    Rule(
        lambda s: s.traced.share(PYTHON, DISPATCH, CALLS) >= 0.2,
        lambda s: f"{percent(s.traced.share(PYTHON, DISPATCH, CALLS))} of the traced call is Python all the same: "
        "hm.explain says what runs eagerly, and why.",
    ),
    Rule(
        lambda s: s.traced.share(BETWEEN) >= 0.2,
        lambda s: f"{percent(s.traced.share(BETWEEN))} of the traced call is between its kernels: many are tiny, or "
        "Python asks for values on the way (hm.explain lists them).",
    ),
    Rule(
        lambda s: s.traced.share(WAITING) >= 0.15,
        lambda s: f"Threads wait for {percent(s.traced.share(WAITING))} of the traced call: its kernels are too short "
        "to be shared evenly, or other programs have the cores.",
    ),
    Rule(
        lambda s: s.traced.share(ALLOCATION) >= 0.1,
        lambda s: f"New memory takes {percent(s.traced.share(ALLOCATION))} of the traced call: let go of results "
        "before the next call, so that theirs is used again.",
    ),
    Rule(
        lambda s: bool(_fewer_threads(s)),
        lambda s: f"Fewer threads are faster: hm.set_num_threads({_fewer_threads(s)}).",
    ),
    Rule(
        lambda s: _verdict(s, "batch") == "faster" and s["batch"].ratio < 0.9,
        lambda s: f"With {s['batch'].other} a sample takes {percent(1 - s['batch'].ratio)} less.",
    ),
    Rule(
        lambda s: _verdict(s, "dtype") == "faster",
        lambda s: f"{s['dtype'].other} take {percent(1 - s['dtype'].ratio)} less time: hm.autocast, where the loss "
        "allows it.",
    ),
    Rule(
        lambda s: s.break_even is not None and s.break_even > 1000,
        lambda s: f"Compiling pays after {s.break_even or 0:,.0f} calls: keep the cache (HYBRIDML_CACHE_DIR), or run "
        "few calls eagerly.",
    ),
)  # fmt: skip


def advice(found: Speed) -> tuple[str, ...]:
    """The advice of all rules that hold of a program."""
    said = tuple(rule.advice(found) for rule in RULES if rule.holds(found))
    return said or ("Nothing stands out: no single part or factor decides about the time of a call.",)
