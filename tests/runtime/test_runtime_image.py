"""Linked images: variables, tables of addresses and constants find each other wherever the image is loaded."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pytest

from hybridml_compiler.errors import CompileError
from hybridml_compiler.runtime import image, jit
from hybridml_compiler.runtime.image import Image

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
    found = image.link([jit.compile_ir(COUNTER, passes=False), jit.compile_ir(TABLE, passes=False)], exports)
    assert found is not None
    return found


def call(address: int, argument: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(argument))


def test_tables_variables_and_constants_after_a_round_trip() -> None:
    far = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x * 7)
    loaded = Image.unpack(linked().pack())
    assert loaded == linked()
    library = jit.load_image(loaded, {"far": jit.address_of(far)}, keep=[far])
    assert call(library.address("pick"), 0) == 15 + 15 * 1000 + 3
    assert call(library.address("pick"), 1) == 70 + 15 * 1000 + 5
    assert call(library.address("next"), 1) == 16


def test_every_load_has_variables_of_its_own() -> None:
    one, other = (jit.load_image(linked(["next"]), {"far": 1}) for _ in range(2))
    assert [call(one.address("next"), 1), call(one.address("next"), 1), call(other.address("next"), 1)] == [6, 7, 6]


def test_a_missing_import_is_named() -> None:
    with pytest.raises(CompileError, match="nothing defines far"):
        jit.load_image(linked())


def test_a_missing_export_is_named() -> None:
    with pytest.raises(CompileError, match="the export nothing"):
        image.link([jit.compile_ir(COUNTER, passes=False)], ["nothing"])


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: b"", lambda raw: b"junk" * 9], ids=str)
def test_damaged_bytes_are_an_error(damage: object) -> None:
    assert callable(damage)
    with pytest.raises(ValueError, match=r".*"):
        Image.unpack(damage(linked().pack()))


def test_what_is_not_understood_is_left_to_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "_THROUGH_GOT", ())
    objects = [jit.compile_ir(COUNTER, passes=False), jit.compile_ir(TABLE, passes=False)]
    assert image.link(objects, ["pick"]) is None
    far = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x * 7)
    library = jit.load(objects, {"far": jit.address_of(far)}, ["pick"], keep=[far])
    assert call(library.address("pick"), 1) == 70 + 5 * 1000 + 5
