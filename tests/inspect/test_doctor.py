"""`hm.doctor`: it names what is there, and what is not."""

from __future__ import annotations

import sysconfig

import pytest

import hybridml as hm
from hybridml_compiler.targets.cpu.python_entry import object_layout
from hybridml_compiler.targets.cpu.runtime import blas


def test_it_says_what_there_is() -> None:
    found = hm.doctor()
    names = [what for what, _, _ in found.findings]
    assert {"Python", "NumPy", "LLVM", "CPU", "threads", "object cache", "a traced program"} <= set(names)
    assert all(name in repr(found) for name in names)


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "find", lambda: None)
    monkeypatch.setattr(object_layout, "measured", lambda: None)
    monkeypatch.setitem(sysconfig.get_config_vars(), "Py_GIL_DISABLED", 1)
    found = hm.doctor()
    assert not found.ok
    wrong = {what: said for what, fine, said in found.findings if not fine}
    assert "hybridml alone" in wrong["BLAS"]
    assert "portable" in wrong["native entry"]
    assert "free-threaded: not supported" in wrong["Python"]


def test_an_error_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no such library")

    monkeypatch.setattr(blas, "find", broken)
    assert ("blas", False, "OSError: no such library") in hm.doctor().findings
