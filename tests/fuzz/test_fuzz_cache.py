"""The fuzzers of caches and interrupts run, and find planted defects."""

from __future__ import annotations

import time

import pytest

from hybridml_compiler.runtime import cache, folder
from tests.fuzz import cache as caches
from tests.fuzz import interrupts


@pytest.fixture(autouse=True)
def own_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_default", None)


def test_damaged_caches_are_mended() -> None:
    done, found = caches.run(0.3, 20_000)
    assert done > 0 and not found, found


@pytest.mark.parametrize(
    ("place", "name", "planted", "words"),
    [
        (cache, "_digest", lambda name, data: bytes(cache.DIGEST), "gave"),
        (folder.Folder, "remove", lambda self, name: False, "left after clear"),
        (folder.Folder, "close", lambda self: None, "handles are left open"),
    ],
)
def test_planted_defects_are_found(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, planted: object, words: str
) -> None:
    monkeypatch.setattr(place, name, planted)
    monkeypatch.setattr(caches, "ATTACKS", (caches.damaged_entries,))
    found = [text for seed in range(12) for text in caches.run(0, seed)[1]]
    assert any(words in text for text in found), found


def busy() -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        pass


def test_an_interrupt_comes_out_or_is_called_lost() -> None:
    def deaf() -> None:
        try:
            busy()
        except KeyboardInterrupt:
            pass

    def wrong() -> None:
        try:
            busy()
        finally:
            raise ValueError("instead")

    assert interrupts.interrupted(busy, 0.01, 0) is None
    assert interrupts.interrupted(lambda: None, 1.0, 0) is None
    assert "lost" in (interrupts.interrupted(deaf, 0.01, 0) or "")
    assert "became another error" in (interrupts.interrupted(wrong, 0.01, 0) or "")


def test_an_interrupted_save_leaves_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "SUBJECTS", (interrupts.saving,))
    assert interrupts.run(0, 5) == (1, [])
