"""The examples in small: both styles train to the same numbers, and the report says so (or that they do not)."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from hybridml_examples import char_lm, demo, digits
from hybridml_examples.char_lm import write
from hybridml_examples.report import page
from hybridml_examples.training import Run, allowed, compare, ulps
from tests.support.markup import whole_page


def made(style: str, losses: list[float]) -> Run:
    return Run("made up", style, losses, [0.5] + [0.001] * (len(losses) - 1), {"accuracy": "1"})


def test_the_text_is_long_and_survives_encoding() -> None:
    assert len(char_lm.text()) > 200_000 and set(char_lm.text()) <= set(char_lm.ALPHABET)
    assert "".join(char_lm.ALPHABET[code] for code in char_lm.encode("for x in y:\n")) == "for x in y:\n"


def test_the_demo_trains_alike_in_both_styles_and_writes_one_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Run] = []
    monkeypatch.setattr(demo, "print_summary", made.extend)
    monkeypatch.setattr(char_lm, "CONTEXT", 8)  # the sample has programs for 4 to 8 characters, and not for 4 to 64
    monkeypatch.setattr(char_lm, "write", lambda model, start, length: write(model, start, 10))
    output = tmp_path / "build" / "demo.html"
    assert demo.main(["--epochs", "1", "--steps", "8", "--output", str(output)]) == 0
    assert f"report: {output}" in capsys.readouterr().out
    check_page(output.read_text(encoding="utf-8"), charts=9)
    *of_digits, characters, traced = made
    assert all(compare(*pair).within for pair in zip(made[::2], made[1::2], strict=True))
    for run in of_digits:
        assert len(run.losses) == digits.TRAINING // digits.BATCH and run.losses[-1] < 0.85 * run.losses[0]
        assert float(run.notes["test accuracy"]) > 0.7
    assert all(a.notes == b.notes for a, b in zip(of_digits[::2], of_digits[1::2], strict=True))
    assert characters.losses[-1] < characters.losses[0] - 0.5
    assert traced.notes["sample"].startswith("\nThe ") and len(traced.notes["sample"]) == 15


def check_page(text: str, charts: int) -> None:
    """A page with this many charts and no script, and nothing that a browser would fetch."""
    found = whole_page(text)
    assert not found.all("script") and len(found.all("svg")) == charts
    assert not re.search(r"url\(|@import|https?:", text)


def test_curves_that_part_fail_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [made("eager", [2.0, 1.5, 1.0]), made("traced", [2.0, 1.5, 1.0001])]
    monkeypatch.setattr(digits, "runs", lambda *a: runs)
    monkeypatch.setattr(char_lm, "runs", lambda *a: [])
    assert demo.main(["--output", str(tmp_path / "demo.html")]) == 1
    assert "THE CURVES PART: step 2" in capsys.readouterr().out
    assert "THE LOSS CURVES PART" in (tmp_path / "demo.html").read_text(encoding="utf-8")


def test_the_rule() -> None:
    assert [allowed(t) for t in (0, 1, 9)] == pytest.approx([1e-6, 4e-6, 1e-4])
    equal = compare(made("eager", [2.0, 1.0]), made("traced", [2.0, 1.0]))
    assert equal.within and (equal.first, equal.largest, equal.largest_ulp) == (0, 0, 0)
    near = compare(made("eager", [1.0, 1.0]), made("traced", [1.0, 1 + 2**-22]))
    assert near.within and near.largest_ulp == 2 and near.worst_step == 1
    for losses in ([1.0 + 3e-6, 1.0], [1.0, math.nan], [math.inf, 1.0], [1.0], []):
        assert not compare(made("eager", [1.0, 1.0]), made("traced", losses)).within


def test_units_in_the_last_place() -> None:
    assert ulps(1.0, 1 + 2**-23) == 1 and ulps(-1.0, 1.0) == 2 * 0x3F800000 and ulps(0.0, -0.0) == 0


def test_the_page_shows_what_the_runs_say() -> None:
    eager, traced = made("eager", [2.0, 1.5, 1.0]), made("traced", [2.0, 1.5, 1.0])
    text = page([(eager, traced, compare(eager, traced))], 12.0)
    check_page(text, charts=3)
    assert "made up" in text and ">agree</span>" in text and "1.00 ms" in text and "500.00 ms" in text
