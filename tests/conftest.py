"""Shared by every test: an own compile cache, golden files, both backends, and the switch for slow tests."""

from __future__ import annotations

import difflib
import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hybridml_compiler import compile_policy, config, errors
from tests.support import examples

GOLDEN = Path(__file__).parent / "golden"

# Here, as the files of folders, which are imported next, import the package: tests of 20 calls see both sides of it.
compile_policy.WORTH, compile_policy.WORTH_TRACER = 16, 16

# A deadline is a timing assertion; CI draws the same examples every time so that a failure there can be repeated.
settings.register_profile("hybridml", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("hybridml")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hybridml")
    group.addoption("--slow", action="store_true", help="also run the tests marked slow")
    group.addoption("--vectors", type=int, metavar="BITS", help="compile as for a machine without wider vectors")
    group.addoption("--update-golden", action="store_true", help="run the golden tests alone and rewrite their files")


def pytest_configure(config: pytest.Config) -> None:
    """Before any test module is imported: nothing of the user's settings or cache reaches the tests, or is touched."""
    if not hasattr(config, "workerinput"):  # workers take that of their session
        folder = in_memory(1 << 30)
        cache = tempfile.TemporaryDirectory(prefix="hybridml-tests-", dir=folder, ignore_cleanup_errors=True)
        config.add_cleanup(cache.cleanup)
        os.environ["HYBRIDML_CACHE_DIR"] = cache.name
        # A hundred tests start processes, and each would compile 500 files again: half of an import.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
    os.environ["MPLBACKEND"] = "Agg"
    examples.all_of_them = config.getoption("--slow")
    os.environ.pop("HYBRIDML_DEBUG", None)
    if bits := config.getoption("--vectors"):
        from tests.support.cpus import hold_to

        hold_to(bits)


def in_memory(free: int) -> str | None:
    """A folder in memory with so many bytes free, or None: a write to a disk takes 30 times as long."""
    folder = "/dev/shm"
    usable = os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
    return folder if usable and shutil.disk_usage(folder).free >= free else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def wanted(item: pytest.Item) -> bool:
        if config.getoption("--update-golden"):
            return "golden" in getattr(item, "fixturenames", ())
        return config.getoption("--slow") or item.get_closest_marker("slow") is None

    deselected = [item for item in items if not wanted(item)]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if wanted(item)]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collections of garbage look at what tests make, and not at a million objects of modules and test items, which are
    no garbage while they are made, either."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()  # after which Python expects as many objects that stay, and looks at all of them less often
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def as_long_as_it_takes() -> None:
    """Compiles without a limit of time, which a busy machine would exceed; tests of the limit have their own."""
    from hybridml.tracing.specialize import eager_calls

    eager_calls.MOST_SECONDS = eager_calls.COSTLY_SECONDS = float("inf")


@pytest.fixture(scope="session", autouse=True)
def messages_alone() -> Iterator[None]:
    """Errors that show the place of the user's line alone: its source, in a test, often has the words of `match=`."""

    def alone(self: errors.HybridmlError) -> str:
        return re.sub(r"(\n  at \S+:\d+): .*", r"\1", super(errors.HybridmlError, self).__str__())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(errors.HybridmlError, "__str__", alone)
        yield


@pytest.fixture
def source_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors as users see them, with the source of the line."""
    monkeypatch.delattr(errors.HybridmlError, "__str__")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with ``tests/golden/<name>.txt``: ``golden("gelu_chain", fn.ir)``.

    ``--update-golden`` writes the file instead. A missing file fails, so that a new golden test is never empty.
    """
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        assert re.fullmatch(r"[\w-]+", name), f"golden name {name!r}: use letters, digits, '_' and '-' only"
        path = GOLDEN / f"{name}.txt"
        text = text.rstrip("\n") + "\n"
        if update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"{path.name} does not exist: run `make golden` and read what it wrote", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            diff = difflib.unified_diff(expected.splitlines(), text.splitlines(), path.name, "got", lineterm="")
            pytest.fail(
                "\n".join([*diff, "", "If the change is meant: `make golden`, and read the diff."]), pytrace=False
            )

    return check


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Eager code whose programs do not depend on how many of other shapes there are."""
    import hybridml as hm
    from hybridml_compiler import config

    monkeypatch.setattr(config, "_changed", {})
    hm.use_deterministic()
    yield
    hm.use_deterministic(False)


@pytest.fixture(params=["llvm", "interpret"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def trace(backend: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`hm.trace`, once compiled and once interpreted."""
    import hybridml as hm
    from hybridml.tracing.run import native_call

    monkeypatch.setattr(native_call, "TIMED_CALLS", 1)  # the third call of a kind goes straight to the native entry
    return hm.trace(backend=backend)


@pytest.fixture(autouse=True, scope="module")
def own_settings() -> Iterator[None]:
    """Settings that a test changes for the rest of the program are as before in the next file."""
    before = dict(config._changed)
    yield
    for name in before.keys() ^ config._changed.keys():
        config.change(name, before.get(name))


@pytest.fixture(autouse=True, scope="module")
def own_products() -> None:
    """Eager code compiles 256 products per process and leaves further ones, of other bits, to NumPy."""
    if "hybridml_compiler.targets.cpu.eager.products" in sys.modules:
        from hybridml_compiler.targets.cpu.eager import products

        products._known.clear()


@pytest.fixture
def own_devices() -> Iterator[None]:
    """Devices that the test registers are gone after it."""
    from hybridml.core.context import homes
    from hybridml_compiler.targets.registry import _DEVICES

    before: list[tuple[dict[str, Any], dict[str, Any]]] = [(table, dict(table)) for table in (homes, _DEVICES)]
    yield
    for table, was in before:
        table.clear()
        table.update(was)


@pytest.fixture
def small_heap() -> None:
    """Collections of garbage and searches for referrers look at what the test makes, and not at what others left."""
    gc.collect()
    gc.freeze()
