"""One self-contained HTML page of training runs: curves and bars as inline SVG, no script, nothing from outside."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from html import escape

import hybridml as hm

from .training import TOLERANCE, Agreement, Run, allowed

COLOURS = {"eager": "#d9822b", "traced": "#2b6cb0"}

CSS = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #66758a; --line: #d5dce6; --back: #ffffff;
  --good: #2f855a; --bad: #c53030 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9f0; --soft: #95a3b6; --line: #364152; --back: #141a22;
    --good: #68d391; --bad: #fc8181 }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto;
  max-width: 80rem; padding: 0 1rem }
h1 { font-size: 1.7rem; margin-bottom: .2rem } h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem }
p.lead { color: var(--soft); margin-top: 0; max-width: 62rem }
.wide { margin-bottom: .8rem }
.pair { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start }
.pair svg { flex: 1 1 24rem; max-width: 100% }
svg text { fill: var(--soft); font-size: 12px } svg .axis { stroke: var(--line) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
th { color: var(--soft); font-weight: 500; white-space: normal; vertical-align: bottom }
.good { color: var(--good) } .bad { color: var(--bad); font-weight: 600 }
pre { background: color-mix(in srgb, var(--soft) 12%, transparent); padding: .8rem 1rem; overflow-x: auto;
  border-radius: 6px }
"""


def page(pairs: Sequence[tuple[Run, Run, Agreement]], seconds: float) -> str:
    """The report on (eager, traced, agreement) of each example."""
    good = all(agreement.within for *_, agreement in pairs)
    verdict = "The loss curves agree within the numerics contract" if good else "THE LOSS CURVES PART"
    sections = "\n".join(_section(*pair) for pair in pairs)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>hybridml: eager and traced, side by side</title><style>{CSS}</style></head><body>
<h1>One program, two execution styles</h1>
<p class="lead">Each model is trained twice from one seed: line by line (eager), and with <code>@hybridml.trace</code>
on the whole training step (traced). <span class="{"good" if good else "bad"}">{verdict}.</span></p>
<div class="wide">{_table(pairs)}</div>
<p class="lead">The rule: the first losses differ by at most {TOLERANCE:.0e} of their value, those of step t (counted
from 0) by at most {TOLERANCE:.0e} &times; (1 + t)<sup>2</sup>. Elementwise results are bit-equal in both styles; sums
and matrix products may be added up in another order, and training amplifies the last bit. A unit in the last place
(ulp) of a float32 is 2<sup>-23</sup> of its leading digit.</p>
{sections}
<p class="lead">hybridml {escape(str(getattr(hm, "__version__", "")))}, Python {platform.python_version()},
{escape(platform.machine())}; all runs together took {seconds:.0f} s.</p>
</body></html>
"""


def _table(pairs: Sequence[tuple[Run, Run, Agreement]]) -> str:
    names = ["example", "curves", "steps", "eager step", "traced step", "speed-up", "traced first step"]
    names += ["first loss differs by", "largest difference", "in ulp", "share of the allowed"]
    rows = []
    for eager, traced, agreement in pairs:
        word, kind = ("agree", "good") if agreement.within else ("part", "bad")
        cells = [
            escape(eager.name),
            f'<span class="{kind}">{word}</span>',
            str(len(eager.losses)),
            _time(eager.steady),
            _time(traced.steady),
            f"{eager.steady / traced.steady:.1f} &times;",
            _time(traced.first),
            f"{agreement.first:.1e}",
            f"{agreement.largest:.1e}",
            str(agreement.largest_ulp),
            f"{100 * agreement.worst_share:.2g} % (step {agreement.worst_step})",
        ]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _section(eager: Run, traced: Run, agreement: Agreement) -> str:
    notes = ""
    for key, here in eager.notes.items():
        there = traced.notes[key]
        if "\n" in here:
            notes += f"<p class='lead'>{escape(key)} of the traced model:</p><pre>{escape(there.strip())}</pre>"
        else:
            notes += f"<p class='lead'>{escape(key)}: eager {escape(here)}, traced {escape(there)}</p>"
    return (
        f"<h2>{escape(eager.name)}</h2><div class='pair'>{curves([eager, traced])}{differences(eager, traced)}"
        f"{bars([eager, traced])}</div>{notes}"
    )


# --- charts

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460, 250, 52, 30, 26


def curves(runs: Sequence[Run]) -> str:
    """Loss against step, one line a run: the first is drawn wide, so that equal curves show as a two-coloured line."""
    top = max(max(run.losses) for run in runs) * 1.05
    last = max(len(run.losses) for run in runs) - 1
    lines = ""
    for k, run in enumerate(runs):
        points = " ".join(f"{_x(t, last):.1f},{_y(loss / top):.1f}" for t, loss in enumerate(run.losses))
        width, dash = ((5, ""), (1.6, ""))[min(k, 1)]
        lines += f'<polyline points="{points}" fill="none" stroke="{COLOURS[run.style]}" stroke-width="{width}"{dash}/>'
    ticks = "".join(_tick(share, f"{share * top:.2f}") for share in (0, 0.25, 0.5, 0.75, 1))
    return _chart("loss at each step", ticks + lines + _steps(last) + _legend([run.style for run in runs]))


def differences(eager: Run, traced: Run) -> str:
    """Relative difference of the two losses against step on a logarithmic scale, under the line of what is allowed."""
    low, high = -9.0, 0.0
    last = len(eager.losses) - 1

    def height(value: float) -> float:
        return min(max((math.log10(max(value, 1e-30)) - low) / (high - low), 0), 1)

    pairs = zip(eager.losses, traced.losses, strict=False)
    found = [abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in pairs]
    limit = " ".join(f"{_x(t, last):.1f},{_y(height(allowed(t))):.1f}" for t in range(last + 1))
    dots = "".join(
        f'<circle cx="{_x(t, last):.1f}" cy="{_y(height(d)):.1f}" r="1.8" fill="{COLOURS["traced"]}"/>'
        for t, d in enumerate(found)
    )
    ticks = "".join(_tick((power - low) / (high - low), f"1e{power:.0f}") for power in range(-9, 1, 3))
    line = f'<polyline points="{limit}" fill="none" stroke="var(--bad)" stroke-dasharray="4 3"/>'
    note = f'<text x="{LEFT + 6}" y="{TOP + 10}">dashed: what is allowed; bottom line: equal bit by bit</text>'
    return _chart("relative difference of the losses at each step", ticks + line + dots + note + _steps(last))


def bars(runs: Sequence[Run]) -> str:
    """Median time of a step and of the first step, one bar a run, each pair on its own scale."""
    rows = ""
    y = TOP + 14
    steady, first = [run.steady for run in runs], [run.first for run in runs]
    for title, times in (("one step", steady), ("first step (traced: compiles)", first)):
        rows += f'<text x="0" y="{y}">{title}</text>'
        for run, seconds in zip(runs, times, strict=True):
            y += 24
            width = max(1.0, 300 * seconds / max(times))
            rows += (
                f'<text x="0" y="{y}">{run.style}</text><rect x="{LEFT}" y="{y - 12}" width="{width:.1f}" height="15" '
                f'rx="2" fill="{COLOURS[run.style]}"/><text x="{LEFT + width + 6:.1f}" y="{y}">{_time(seconds)}</text>'
            )
        y += 34
    return _chart("time", rows, y - 10)


def _chart(title: str, content: str, height: int = HEIGHT) -> str:
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return (
        f'<svg {size} role="img" aria-label="{escape(title)}">'
        f'<text x="0" y="12" style="font-weight:600">{escape(title)}</text>{content}</svg>'
    )


def _x(step: int, last: int) -> float:
    return LEFT + (WIDTH - LEFT - 8) * step / max(last, 1)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share


def _tick(share: float, label: str) -> str:
    y = _y(share)
    return (
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _steps(last: int) -> str:
    return "".join(
        f'<text x="{_x(step, last):.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{step}</text>'
        for step, anchor in ((0, "start"), (last // 2, "middle"), (last, "end"))
    )


def _legend(styles: Sequence[str]) -> str:
    marks = ""
    for k, style in enumerate(styles):
        x = WIDTH - 150 + 75 * k
        marks += f'<rect x="{x}" y="3" width="12" height="10" fill="{COLOURS[style]}"/>'
        marks += f'<text x="{x + 17}" y="12">{style}</text>'
    return marks


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.2f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.0f} us"
