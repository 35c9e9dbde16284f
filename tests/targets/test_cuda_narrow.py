"""bfloat16 and float16 on the simulated CUDA device: conversions are the hardware's, with the bits of the CPU's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.targets.cuda import nvrtc
from tests.support.cuda import SIM, needs_nvrtc, same_bits, sources

pytestmark = needs_nvrtc
RNG = np.random.default_rng(0)
NARROW = {"bfloat16": hm.bfloat16, "float16": hm.float16}


def floats(count: int) -> np.ndarray:
    """Numbers of all sizes, those in the middle of two narrow ones, and what lies beside these."""
    bits = RNG.integers(0, 1 << 32, count, np.uint64).astype(np.uint32)
    middle = (bits[: count // 4] & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    near = RNG.standard_normal(count // 4).astype("f4").view("u4") & np.uint32(0xFFFFE000) | np.uint32(0x1000)
    parts = [bits, middle, middle + np.uint32(1), middle - np.uint32(1), near, near + np.uint32(1)]
    return np.concatenate(parts).view("f4")


def on_both(function: Callable[..., Any], *given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tensors = [hm.tensor(x) for x in given]
    return hm.trace(function)(*(x.to(SIM) for x in tensors)).cpu().numpy(), function(*tensors).numpy()


@pytest.mark.parametrize("name", NARROW)
def test_roundings_have_the_bits_of_the_cpu(name: str) -> None:
    found, expected = on_both(lambda x: x.astype(NARROW[name]).astype(hm.float32), floats(4000))
    assert same_bits(found, expected)


@pytest.mark.parametrize("name", NARROW)
def test_all_numbers_are_widened(name: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    found, expected = on_both(lambda x: x.astype(hm.float32), bits.view(NARROW[name]))
    assert same_bits(found, expected)


def chain(x: hm.Tensor) -> hm.Tensor:
    return hm.functional.gelu(x * 1.5 + 1)


@pytest.mark.parametrize("name", NARROW)
def test_a_chain_rounds_where_the_cpu_does(name: str) -> None:
    x = RNG.standard_normal(3000).astype("f4")
    found, expected = on_both(lambda x: chain(x.astype(NARROW[name])).astype(hm.float32), x)
    assert same_bits(found, expected)


def test_shorter_functions_have_the_bits_of_the_others() -> None:
    """For every bfloat16 number; where more than it is asked for there is no shorter one."""
    x = np.arange(1 << 16, dtype=np.uint16).view(hm.bfloat16)
    found, expected = on_both(lambda x: hm.erf(x).astype(hm.float32), x)
    assert same_bits(found, expected)
    (short,) = sources(hm.erf, x)
    (long,) = sources(lambda x: hm.erf(x.astype(hm.float32)), x)
    assert "erf_of_bf16" in short.text and "erf_f32" not in short.text
    assert "erf_f32" in long.text and "erf_of_bf16" not in long.text


def test_conversions_are_instructions() -> None:
    """A rounding that is widened at once is one."""
    x = np.zeros(1 << 17, np.float32)
    (source,) = sources(lambda x: chain(x.astype(hm.bfloat16)), x)
    text = source.text.split('extern "C"')[1]
    assert "as_bf16(" in text and ">> 16" not in text and "32767" not in text
    assert text.count("to_bf16(") == 1 and "bf16x4" in text
    ptx = nvrtc.compile(source.text, "ptx").code.decode()
    assert {"cvt.rn.bf16.f32", "cvt.rn.bf16x2.f32"} == set(re.findall(r"cvt\.rn\.bf16[.\w]*", ptx, re.ASCII))


def test_what_is_rounded_and_used_twice_is_rounded_once() -> None:
    def function(x: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
        y = (x * 1.5).astype(hm.bfloat16)
        return y, y.astype(hm.float32) + 1

    (source,) = sources(function, np.zeros(1 << 17, np.float32))
    text = source.text.split('extern "C"')[1]
    assert text.count("to_bf16(") == 1 and text.count("from_bf16(") == 1 and "as_bf16(" not in text


def test_quotients_by_what_a_row_shares_have_the_bits_of_divisions() -> None:
    """They are products with its reciprocal: of divisors of all mantissas, subnormal and large, zero and infinite."""
    mantissas, exponents = np.arange(0, 128, 9), np.array([0, 1, 2, 126, 127, 253, 254, 255])
    divisors = (exponents[:, None] << 7 | mantissas).reshape(-1, 1).astype(np.uint16)
    some = RNG.integers(0, 1 << 16, (divisors.size, 255)).astype(np.uint16)
    bits = np.concatenate([divisors, some], 1)

    found, expected = on_both(lambda x: (x / x[:, :1]).astype(hm.float32), bits.view(hm.bfloat16))
    assert same_bits(found, expected)


def test_such_quotients_take_no_division_of_each_element() -> None:
    x = np.zeros((4, 1024), np.float32)
    (source,) = sources(lambda x: hm.softmax(x.astype(hm.bfloat16), -1), x)
    loops = source.text.split('extern "C"')[1].split("#pragma unroll")
    assert [part.count(" / ") for part in loops if " / " in part] == [1]
    assert "1.0f / " in source.text
