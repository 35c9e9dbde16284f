"""Linked images: variables, tables of addresses and constants find each other wherever the image is loaded."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial

import pytest

from hybridml_compiler.errors import CompileError
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import elf, image, loader
from hybridml_compiler.targets.cpu.runtime.linking.image import Image
from hybridml_compiler.targets.cpu.spec import host_spec

pytestmark = pytest.mark.skipif(not image.SUPPORTED, reason="LLVM links on this machine")

COUNTER = """
@count = global i64 5
@zeros = internal global [1000 x i64] zeroinitializer
define i64 @next(i64 %by) {
  %old = load i64, ptr @count
  %new = add i64 %old, %by
  store i64 %new, ptr @count
  %p = getelementptr i64, ptr @zeros, i64 999
  store i64 %old, ptr %p
  ret i64 %new }"""
TABLE = """
declare i64 @next(i64)
declare i64 @far(i64)
@count = external global i64
@functions = internal constant [2 x ptr] [ptr @next, ptr @far]
@numbers = private unnamed_addr constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]
define i64 @pick(i64 %k) {
  %place = getelementptr ptr, ptr @functions, i64 %k
  %f = load ptr, ptr %place
  %a = call i64 %f(i64 10)
  %b = load i64, ptr @count
  %number = getelementptr double, ptr @numbers, i64 %k
  %x = load double, ptr %number
  %y = fmul double %x, 2.0
  %c = fptosi double %y to i64
  %d = mul i64 %b, 1000
  %e = add i64 %a, %d
  %r = add i64 %e, %c
  ret i64 %r }"""


def linked(exports: Sequence[str] = ("pick", "next")) -> Image:
    found = image.link([jit.compile_ir(COUNTER), jit.compile_ir(TABLE)], exports)
    assert found is not None
    return found


def call(address: int, argument: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(argument))


def test_tables_variables_and_constants_after_a_round_trip() -> None:
    far = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x * 7)
    loaded = Image.unpack(linked().pack())
    assert loaded == linked()
    library = loader.load_image(loaded, {"far": loader.address_of(far)}, keep=[far])
    assert call(library.address("pick"), 0) == 15 + 15 * 1000 + 3
    assert call(library.address("pick"), 1) == 70 + 15 * 1000 + 5
    assert call(library.address("next"), 1) == 16


def test_every_load_has_variables_of_its_own() -> None:
    one, other = (loader.load_image(linked(["next"]), {"far": 1}) for _ in range(2))
    assert [call(one.address("next"), 1), call(one.address("next"), 1), call(other.address("next"), 1)] == [6, 7, 6]


def test_a_missing_import_is_named() -> None:
    with pytest.raises(CompileError, match="nothing defines far"):
        loader.load_image(linked())


def test_a_missing_export_is_named() -> None:
    with pytest.raises(CompileError, match="the export nothing"):
        image.link([jit.compile_ir(COUNTER)], ["nothing"])


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1], lambda raw: b"", lambda raw: b"junk" * 9], ids=["short", "empty", "junk"]
)
def test_damaged_bytes_are_an_error(damage: object) -> None:
    assert callable(damage)
    with pytest.raises(ValueError, match=r".*"):
        Image.unpack(damage(linked().pack()))


def test_what_is_not_understood_is_left_to_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf, "THROUGH_GOT", ())
    objects = [jit.compile_ir(COUNTER), jit.compile_ir(TABLE)]
    assert image.link(objects, ["pick"]) is None
    far = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x * 7)
    library = loader.load(objects, {"far": loader.address_of(far)}, ["pick"], keep=[far])
    assert call(library.address("pick"), 1) == 70 + 5 * 1000 + 5


CALLS = """
declare i64 @far(i64)
declare i64 @{other}(i64)

@{name}.numbers = internal constant [3 x i64] [i64 {number}, i64 5, i64 7], align 64

define internal i64 @{name}_helper(i64 %x) noinline {{
  %p = getelementptr i64, ptr @{name}.numbers, i64 %x
  %y = load i64, ptr %p
  ret i64 %y
}}

define i64 @{name}(i64 %x) {{
  %zero = icmp sle i64 %x, 0
  br i1 %zero, label %end, label %more
more:
  %less = sub i64 %x, 1
  %others = call i64 @{other}(i64 %less)
  %own = call i64 @{name}_helper(i64 0)
  %both = add i64 %others, %own
  ret i64 %both
end:
  %distant = call i64 @far(i64 %x)
  ret i64 %distant
}}
"""


def test_modules_compiled_together_are_objects_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two functions that call each other, from one call of LLVM: each object defines one of them."""
    names = ("ping", "pong")
    texts = [CALLS.format(name="ping", other="pong", number=100), CALLS.format(name="pong", other="ping", number=1)]
    sources = [jit.Source(text, partial(str, text), 1, name) for text, name in zip(texts, names, strict=True)]
    monkeypatch.setattr(jit, "_most_threads", lambda: 1)  # nothing begins before all is known
    calls = []
    compiled = jit._compiled
    monkeypatch.setattr(jit, "_compiled", lambda *args: calls.append(args) or compiled(*args))
    monkeypatch.setattr(jit.cache, "get", lambda name: None)
    monkeypatch.setattr(jit.cache, "put", lambda name, data: None)
    objects = jit.compile_sources(sources)
    assert len(calls) == 1 and len(objects) == 2
    far = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x + 1000)
    imports = {"far": loader.address_of(far)}
    for ping in (loader.load(objects, imports, ["ping"]), loader._load(objects, imports, ["ping"], ())):
        assert call(ping.address("ping"), 4) == 1000 + 2 * 100 + 2 * 1
    alone = jit._compiled([texts[1]], 1, host_spec())  # as another process may have made it
    assert call(loader.load([objects[0], alone], imports, ["ping"]).address("ping"), 3) == 1000 + 2 * 100 + 1
    with pytest.raises(CompileError, match="nothing defines pong"):
        loader.load(objects[:1], imports, ["ping"])
    monkeypatch.setattr(elf, "THROUGH_GOT", ())
    monkeypatch.setattr(elf, "CALL", -1)
    assert len(jit.compile_sources(sources)) == 2  # each alone, where it has what only LLVM links


def test_a_module_that_defines_more_than_its_symbol_is_compiled_alone() -> None:
    more = """
define i64 @{0}_more(i64 %x) {{
  ret i64 %x
}}

define i64 @{0}(i64 %x) {{
  %y = call i64 @{0}_more(i64 %x)
  ret i64 %y
}}"""
    texts = [more.format(name) for name in ("one", "two")]
    jobs = [
        jit._Job(name, jit.Source(text, partial(str, text), 1, name))
        for name, text in zip(("one", "two"), texts, strict=True)
    ]
    both = jit._compile_together(jobs)
    assert call(loader.load(both, {}, ["one", "two"]).address("two"), 7) == 7


def test_an_error_in_one_of_several_modules_is_told() -> None:
    good, bad = CALLS.format(name="ping", other="pong", number=1), "define i32 @f(i64 %x) { ret i32 %x }"
    with pytest.raises(CompileError, match="LLVM"):
        jit.compile_sources([jit.Source(text, partial(str, text), 1, "k") for text in (good, bad)])
