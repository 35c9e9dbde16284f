"""The collector of garbage rests while something is compiled, and is left as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from hybridml.tracing.specialize import gc_pause


@pytest.fixture
def nothing_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process as users have it: the session of tests freezes its heap."""
    monkeypatch.setattr(gc_pause, "_others_freeze", False)
    gc.unfreeze()
    yield
    gc.freeze()


def test_objects_made_are_old_afterwards(nothing_frozen: None) -> None:
    with gc_pause.collector_paused():
        assert not gc.isenabled()
        made = [[k] for k in range(10)]
        assert any(made is found for found in gc.get_objects(0))
    assert gc.isenabled() and gc.get_freeze_count() == 0
    assert any(made is found for found in gc.get_objects(2))


def test_objects_that_others_have_frozen_stay_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_pause, "_others_freeze", False)
    gc.freeze()
    before = gc.get_freeze_count()
    with gc_pause.collector_paused():
        pass
    assert gc.get_freeze_count() > before // 2 > 0  # other threads may have let go of some


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with gc_pause.collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
