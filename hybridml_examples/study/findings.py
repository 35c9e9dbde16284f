"""Sentences about a record: each rule is a function of it, and writes nothing where it has no figures.

Two candidates whose quartiles overlap are said to be alike, whatever their medians.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .candidates import EAGER, TRACED
from .figures import DEVICES, Record, against, against_best, duration, exponent, growths, mean, timed

BUSY = 0.5  # programs that run or wait, of the minute before
KINDS = {"step": "training", "infer": "inference"}


class Finding(NamedTuple):
    """A sentence, and whether it speaks for hybridml ("good"), against it ("bad"), or for neither ("")."""

    text: str
    tone: str = ""


def _on(device: str) -> str:
    return "" if device == "cpu" else " on the GPU"


def _named(device: str, name: str) -> str:
    return name if device == "cpu" else f"{name} {device}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def busy(record: Record) -> Iterator[Finding]:
    """Whether something else had the processor, which makes steps of threads that spin a hundred times slower."""
    if record["load"] > BUSY and record["networks"]:
        text = f"The machine was busy (load {record['load']:.1f} at the start): measure again when nothing else runs. "
        yield Finding(text + "PyTorch's threads spin, so that its times say little here.", "bad")


def traced_beside_best_peer(record: Record) -> Iterator[Finding]:
    """Traced beside the fastest peer of each network, in training and in inference."""
    for device in DEVICES:
        for kind, what in KINDS.items():
            pairs = against_best(record, kind, _named(device, TRACED))
            if not pairs:
                continue
            ahead = [p for p in pairs if p.clear and p.ratio > 1]
            behind = [p for p in pairs if p.clear and p.ratio < 1]
            alike = len(pairs) - len(ahead) - len(behind)
            times = f"{mean(p.ratio for p in pairs):.2f} times as fast as the best other library"
            text = f"In {what}{_on(device)}, hybridml traced is {times} (geometric mean of {len(pairs)}): "
            text += f"ahead on {len(ahead)}, behind on {len(behind)}"
            text += f", alike within the quartiles on {alike}." if alike else "."
            yield Finding(text, "bad" if behind else "good")


def where_it_loses(record: Record) -> Iterator[Finding]:
    """The networks on which a peer is clearly faster than traced, with the peer's name."""
    for device in DEVICES:
        for kind, what in KINDS.items():
            pairs = [p for p in against_best(record, kind, _named(device, TRACED)) if p.clear and p.ratio < 1]
            if pairs:
                lost = _listed([f"{p.network} ({p.other}, {1 / p.ratio:.2f} times as fast)" for p in pairs])
                yield Finding(f"In {what}{_on(device)} another library is faster on {lost}.", "bad")


def capturing(record: Record) -> Iterator[Finding]:
    """The worth of tracing: both styles of hybridml, which are one program."""
    for device in DEVICES:
        for kind, what in KINDS.items():
            if pairs := against(record, _named(device, TRACED), _named(device, EAGER), kind):
                low, high = (rule(pairs, key=lambda p: p.ratio) for rule in (min, max))
                text = f"Tracing makes {what}{_on(device)} {mean(p.ratio for p in pairs):.2f} times as fast as eager"
                if len(pairs) > 1:
                    text += f": {low.ratio:.2f} times on {low.network}, {high.ratio:.2f} on {high.network}"
                yield Finding(text + ".", "bad" if low.clear and low.ratio < 1 else "good")


def eager_beside_eager(record: Record) -> Iterator[Finding]:
    """Both libraries line by line."""
    for device in DEVICES:
        pairs = against(record, _named(device, EAGER), _named(device, "torch"))
        if not pairs:
            continue
        slow = [p for p in pairs if p.ratio < 0.9 and p.clear]
        text = f"Eager training{_on(device)} is {mean(p.ratio for p in pairs):.2f} times as fast as PyTorch's eager"
        if slow:
            text += f"; more than 10 % slower on {_listed([f'{p.network} ({p.ratio:.2f})' for p in slow])}"
        yield Finding(text + ".", "bad" if slow else "good")


def first_steps(record: Record) -> Iterator[Finding]:
    """What the first step takes with empty caches and with filled ones, and after how many steps it has paid."""
    for device in DEVICES:
        traced, eager = _named(device, TRACED), _named(device, EAGER)
        rows = {n: e for n, e in record["networks"].items() if timed(e, traced, "step")}
        cold = {name: entry["candidates"][traced].get("cold", 0.0) for name, entry in rows.items()}
        if not any(cold.values()):
            continue
        slowest = max(cold, key=lambda name: cold[name])
        again = rows[slowest]["candidates"][traced].get("warm", 0.0)
        text = f"The longest first step of a traced program{_on(device)}, which compiles it, takes "
        text += f"{duration(cold[slowest])} ({slowest})"
        yield Finding(text + (f", and {duration(again)} when its compiled code is on disk." if again else "."))
        compiled = _named(device, "torch.compile")
        both = [(cold[n], e["candidates"][compiled]["cold"]) for n, e in rows.items() if timed(e, compiled, "step")]
        if both:
            ratio = mean(theirs / ours for ours, theirs in both)
            text = f"First steps of torch.compile{_on(device)} take {ratio:.2f} times as long as those of traced ones."
            yield Finding(text, "good" if ratio > 1 else "bad")
        needed = {name: _break_even(entry, traced, eager) for name, entry in rows.items()}
        paid = {name: steps for name, steps in needed.items() if steps is not None}
        if paid:
            most = max(paid, key=lambda name: paid[name])
            steps = f"{paid[most]:,} step{'s' if paid[most] > 1 else ''}"
            text = f"Compiling has paid, beside running eagerly, after {steps} or fewer"
            yield Finding(f"{text} on each network that tracing makes faster (most: {most}).")


def _break_even(entry: Record, traced: str, eager: str) -> int | None:
    """Steps after which the first steps and all others have taken as long in both styles; None where they never do."""
    a, b = timed(entry, traced, "step"), timed(entry, eager, "step")
    if a is None or b is None or b["median"] <= a["median"]:
        return None
    extra: float = entry["candidates"][traced]["cold"] - entry["candidates"][eager]["cold"]
    saved: float = b["median"] - a["median"]
    return max(1, math.ceil(extra / saved))


def memory(record: Record) -> Iterator[Finding]:
    """What a training step takes beside PyTorch's."""
    for device in DEVICES:
        key = "memory" if device == "cpu" else "device_memory"
        ours, theirs = _named(device, TRACED), _named(device, "torch")
        rows = [(name, entry["candidates"]) for name, entry in record["networks"].items()]
        shares = {
            name: found[ours][key] / found[theirs][key]
            for name, found in rows
            if found.get(ours, {}).get(key) and found.get(theirs, {}).get(key)
        }
        if not shares:
            continue
        more = {name: share for name, share in shares.items() if share > 1}
        text = f"Training steps traced{_on(device)} take {mean(shares.values()):.2f} times the memory of PyTorch eager"
        if more:
            text += f", and more of it on {_listed([f'{name} ({share:.2f})' for name, share in more.items()])}"
        yield Finding(text + ".", "bad" if more else "good")


def real_data(record: Record) -> Iterator[Finding]:
    """Who is first at the target of each task."""
    for task in record["tasks"].values():
        reached = {who: entry["seconds"] for who, entry in task["candidates"].items() if entry.get("reached")}
        if len(reached) < 2:
            continue
        first, *_, last = sorted(reached, key=lambda who: reached[who])
        title, steps = task["title"], {found["steps"] for found in task["candidates"].values() if found.get("reached")}
        text = f"{title}: {first} is first at a loss of {task['target']:g}, after {duration(reached[first])}"
        yield Finding(f"{text} of training; {last} is last, after {duration(reached[last])}.")
        if max(steps) > min(steps):
            yield Finding(f"{title}: by rounding alone the number of steps is between {min(steps)} and {max(steps)}.")


def growth(record: Record) -> Iterator[Finding]:
    """How times grow along each axis, and whether the order of candidates changes."""
    for (network, axis), rows in growths(record).items():
        ends = rows[0], rows[-1]
        both = [who for who in ends[0]["median"] if all(who in row["median"] for row in rows)]
        if len(rows) < 2 or TRACED not in both:
            continue
        values = [row["value"] for row in rows]
        if axis == "threads":
            gains = {who: ends[0]["median"][who] / ends[1]["median"][who] for who in both}
            said = _listed([f"{who} {gain:.2f} times" for who, gain in gains.items()])
            yield Finding(f"{network}: {values[-1]} threads in place of {values[0]} make steps faster: {said}.")
            continue
        powers = {who: exponent(values, [row["median"][who] for row in rows]) for who in both}
        said = _listed([f"{power:.2f} ({who})" for who, power in powers.items()])
        yield Finding(f"{network}: the time of a step grows with the power of {axis} {said}.")
        fastest = [min(both, key=lambda who: row["median"][who]) for row in ends]
        if fastest[0] != fastest[1]:
            yield Finding(
                f"{network}: {fastest[0]} is fastest at {axis} {values[0]}, {fastest[1]} at {values[-1]}.",
                "bad" if fastest[0] == TRACED else "",
            )


def not_measured(record: Record) -> Iterator[Finding]:
    """What has no figures, and why."""
    for network, entry in record["networks"].items():
        for who, found in entry["candidates"].items():
            if found.get("note"):
                yield Finding(f"{network}, {who}: {found['note']}.")
            elif found.get("late_note"):
                yield Finding(f"{network}, {who}, warm: {found['late_note']}.")
    for title, task in record["tasks"].items():
        for who, found in task["candidates"].items():
            if found.get("note"):
                yield Finding(f"{title}, {who}: {found['note']}.")
    for left in record["left_out"]:
        yield Finding(f"Left out: {left}.")


RULES: tuple[Callable[[Record], Iterator[Finding]], ...] = (
    busy,
    traced_beside_best_peer, where_it_loses, capturing, eager_beside_eager, first_steps, memory, real_data, growth,
)  # fmt: skip


def findings(record: Record) -> list[Finding]:
    """All that the rules say."""
    return [found for rule in RULES for found in rule(record)]
