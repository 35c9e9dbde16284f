"""`hm.config`: settings of a block, of its thread and task, and of the program; programs for each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hybridml as hm
from hybridml.core.context import switches
from hybridml.tracing.run import native_call
from hybridml_compiler import config, pipeline
from hybridml_compiler.graph.ir import Graph, graph_of
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.runtime import cache
from tests.support.cases import case

X = hm.ones((6, 4))


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(config, "_changed", {})  # other tests may have left the usual values there
    yield
    assert not config._changed and not config.here()


@pytest.fixture
def f(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function whose calls go to native code soon; two kernels as usual, one for each of 5 operations without
    fusion."""
    monkeypatch.setattr(native_call, "TIMED_CALLS", 1)
    return hm.trace(lambda x: ((x * 2 + 1).cumsum(0) - x).exp())


def kernels(f: Any) -> int:
    for _ in range(4):
        f(X)
    found: int = f.stats.kernels
    return found


def test_a_block_has_programs_of_its_own_which_are_kept(f: Any) -> None:
    usual = kernels(f)
    assert usual < 5
    with hm.config(fusion=False):
        assert kernels(f) == 5
        with hm.config(fusion=True):
            assert kernels(f) == usual
        with hm.config(memory_plan=False):
            assert kernels(f) == 5
    assert kernels(f) == usual and f.cache_info().compiles == 1
    with hm.config(fusion=False):
        twin = f.last_path
        kernels(f)
        assert f.last_path is twin
        assert f.explain().kernels == f.explain(X).kernels and len(f.explain().kernels) == 5
        assert len(hm.explain(f, X).kernels) == 5
    assert len(f.explain(X).kernels) == usual


def test_a_profile_has_the_launches_of_the_block(f: Any) -> None:
    kernels(f)
    with hm.config(fusion=False):
        kernels(f)
        with hm.profile() as profile:
            f(X)
    kinds = [event.kind for event in profile.events]
    assert kinds.count("call") == 1 and kinds.count("launch") == 5


def test_calls_in_a_block_are_native(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels(f)
    assert f._direct is not None
    with hm.config(fusion=False):
        kernels(f)
        (twin,) = {t for t in f.twins.values() if t is not f}
        assert twin._direct is not None and twin._direct(X) is not hm.core.library.MISS
        assert f._direct(X) is hm.core.library.MISS
    assert f._direct(X) is not hm.core.library.MISS and twin._direct(X) is hm.core.library.MISS
    with hm.config(num_threads=1, debug=0):  # no program depends on these
        assert f._direct(X) is not hm.core.library.MISS


def test_a_block_is_of_its_thread_and_task(f: Any) -> None:
    usual = kernels(f)
    found = []

    def look() -> None:
        found.append((kernels(f), hm.config().fusion))

    async def task(fusion: bool) -> None:
        with hm.config(fusion=fusion):
            await asyncio.sleep(0)
            look()

    async def both() -> None:
        await asyncio.gather(task(True), task(False))

    with hm.config(fusion=False):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    asyncio.run(both())
    assert found == [(usual, True), (usual, True), (5, False)]


def test_what_was_before_holds_after_an_error_and_a_block_may_be_used_again(f: Any) -> None:
    block = hm.config(fusion=False, verify=False, num_threads=1)
    before = hm.get_num_threads()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), block, hm.config(num_threads=2):
            assert (hm.config().fusion, hm.config().verify, hm.get_num_threads()) == (False, False, 2)
            1 / 0  # noqa: B018
        assert (hm.config().fusion, hm.config().verify, hm.get_num_threads()) == (True, True, before)
    with block, block:
        assert not hm.config().fusion
    assert hm.config().fusion


def test_settings_of_the_program(f: Any) -> None:
    usual = kernels(f)
    hm.config.update(fusion=False, num_threads=1)
    try:
        assert kernels(f) == 5 and hm.get_num_threads() == 1
        with hm.config(fusion=True):
            assert kernels(f) == usual
        assert config.source("fusion") == "program"
        hm.config.update("fusion", False)
        with pytest.raises(hm.ArgumentError, match="'jax_enable_x64'; write hm"):
            hm.config.update("jax_enable_x64", True)
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(kernels(f)))
        thread.start()
        thread.join()
        assert found == [5]
        hm.config.update(fusion=True)
        assert kernels(f) == usual and f.cache_info().compiles == 1
    finally:
        for name in ("fusion", "num_threads"):
            config.change(name, None)
        switches.value += 1
    assert kernels(f) == usual


def test_a_change_of_the_program_does_not_reach_programs_of_blocks_that_decide_otherwise(f: Any) -> None:
    """A block that asks for the usual value is one of its own, for the usual value may change meanwhile."""
    usual = kernels(f)
    try:
        with hm.config(fusion=True):
            hm.config.update(fusion=False)
            assert kernels(f) == usual
        assert kernels(f) == 5
        with hm.config(fusion=True):
            hm.config.update(fusion=True)
            assert kernels(f) == usual
    finally:
        config.change("fusion", None)
        switches.value += 1


def test_other_ways_to_change_a_setting_are_seen() -> None:
    hm.use_deterministic()
    try:
        assert hm.config().deterministic
        with hm.config(deterministic=False):
            assert not hm.is_deterministic()
        assert hm.is_deterministic()
    finally:
        config.change("deterministic", None)
    before = hm.get_num_threads()
    hm.set_num_threads(2)
    assert hm.config().num_threads == 2
    config.change("num_threads", None)
    assert hm.get_num_threads() == before


def test_stances_and_settings_hold_together(f: Any) -> None:
    kernels(f)
    with hm.config(fusion=False), hm.stance("fail_on_retrace"):
        assert kernels(f) == 5  # the first trace is none that is made again
        with pytest.raises(hm.TraceError, match="fail_on_retrace"):
            f(hm.ones((2, 2, 2)))
    with hm.eager(), hm.config(fusion=False):
        compiles = f.cache_info().compiles
        f(hm.ones((3, 3, 3)))
        assert f.cache_info().compiles == compiles == 1 or compiles == 2


def test_autocast_and_settings_hold_together() -> None:
    w = hm.ones((4, 4))
    f = hm.trace(lambda x: hm.relu(x @ w) + 1)
    with hm.autocast(dtype=hm.bfloat16):
        usual = f(X)
        with hm.config(fusion=False):
            found = f(X)
    assert usual.dtype == found.dtype == hm.bfloat16 and hm.equal(usual, found).all()


def test_gradients_of_a_call_in_a_block_are_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    compile = pipeline.compile

    def spy(*args: Any, **kwargs: Any) -> Any:
        given.append(args[7] if len(args) > 7 else kwargs.get("settings", ()))
        return compile(*args, **kwargs)

    monkeypatch.setattr(pipeline, "compile", spy)
    x = hm.randn(5, 7, requires_grad=True)
    f = hm.trace(lambda x: hm.tanh(x * 3).sum(0))
    with hm.config(fusion=False):
        y = f(x)
        hm.nn.functional.layer_norm(hm.ones((9, 11)), (11,))  # of the library: as usual
    y.sum().backward()
    assert given.count((("fusion", False),)) == 2 and () in given
    usual = x.grad.clone()
    x.grad = None
    f(x).sum().backward()
    assert hm.equal(x.grad, usual).all()


def test_the_environment_decides_where_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDML_FUSION", "0")
    assert not hm.config().fusion and config.source("fusion") == "environment"
    f = hm.trace(lambda x: (x * 2 + 1).exp())
    assert kernels(f) == 3
    with hm.config(fusion=True):
        assert kernels(f) == 1


def test_no_program_of_one_setting_is_found_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_default", cache.ObjectCache(tmp_path))
    (x,) = graph_of([hm.ones((64, 48)).numpy()])
    graph = Graph((x,), (make("exp", make("cumulative_sum", make("multiply", x, x), axis=0)),))
    choices: list[config.Settings] = [(), *(((name, False),) for name in config.SWITCHES), (("sanitize", True),)]
    keys = set()
    for again in (False, True):
        for settings in choices:
            found = pipeline.compile(graph, settings=settings)
            with config.scoped(config.compiling(settings)), case(f"{settings} {again}"):
                keys.add(pipeline._key(found.stages))
                assert ("codegen" not in found.stats.milliseconds) == again
                assert found.stats.kernels == len(found.launches)
                assert (found.stats.kernels == 3) == (settings == (("fusion", False),))
    assert len(keys) == len(choices)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fuson": False}, r"there is no setting 'fuson'; did you mean 'fusion'\? They are debug, "),
        ({"zzz": False}, "there is no setting 'zzz'. They are debug, "),
        ({"fusion": 0}, "fusion is True or False, got 0"),
        ({"debug": True}, "debug is a whole number from 0 to 5, got True"),
        ({"debug": 6}, "debug is a whole number from 0 to 5, got 6"),
        ({"num_threads": 0}, "num_threads is a whole number from 1 to 512, got 0"),
        ({"traceback": "none"}, "traceback is user or full, got 'none'"),
        ({"cache_dir": "off"}, "cache_dir is read once; set HYBRIDML_CACHE_DIR before the program starts"),
    ],
)
def test_what_is_no_setting_is_refused(settings: dict[str, Any], message: str) -> None:
    for take in (hm.config, hm.config.update):
        with pytest.raises(hm.ArgumentError, match=message):
            take(memory_plan=False, **settings)
    assert hm.config().memory_plan
    with pytest.raises(AttributeError, match="there is no setting 'fussion'; did you mean 'fusion'"):
        _ = hm.config().fussion


def test_what_holds_now_is_shown() -> None:
    with hm.config(fusion=False):
        lines = repr(hm.config()).splitlines()
    assert [line.split()[0] for line in lines] == [flag.field for flag in config.FLAGS]
    assert "fusion            False     block" in lines and "layout            True      default" in lines
    assert {"fusion", "num_threads"} < {*dir(hm.config())}
