"""Convolutions that a library computes on the CUDA target: all forms and gradients, and which are left to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import dtypes
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.kernels.convolution import Convolution, Strided
from hybridml_compiler.targets.cuda.contraction import library_convolution as library
from hybridml_compiler.targets.cuda.driver import Convolve, Images
from hybridml_compiler.targets.cuda.libraries.cudnn import Cudnn
from tests.support.closeness import assert_close
from tests.support.cuda import needs_nvrtc, planned_anew
from tests.support.examples import every
from tests.support.fake_cudnn import FakeDnn
from tests.support.fake_cupy import fake_cupy
from tests.support.gpus import Gpu, array, gpu, there

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("own_devices")]
__all__ = ["there"]
BF16 = dtypes.canonical("bfloat16")
FORMS: dict[str, dict[str, Any]] = {
    "same": {"padding": 1},
    "narrow images": {"padding": 1, "dtype": hm.bfloat16},
    "narrow, bias": {"padding": 1, "dtype": hm.bfloat16, "bias": True},
    "halves": {"padding": 1, "dtype": hm.float16},
    "doubles": {"padding": 1, "dtype": hm.float64},
    "stride": {"padding": 1, "stride": 2},
    "narrow, stride": {"padding": 1, "stride": 2, "dtype": hm.bfloat16},
    "stride and remainder": {"kernel": 4, "padding": 2, "stride": 3},
    "dilation": {"dilation": 2, "stride": 2, "padding": 2},
    "groups": {"groups": 2, "channels": 8, "padding": 1},
    "groups, strides": {"groups": 2, "channels": 8, "stride": (2, 1), "kernel": 2},
    "one channel": {"channels": 1, "padding": 2, "kernel": 5},
    "channels last": {"padding": 1, "last": True},
    "narrow, channels last": {"padding": 1, "last": True, "dtype": hm.bfloat16},
}


@pytest.fixture(autouse=True)
def all_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    planned_anew(monkeypatch)
    monkeypatch.setattr(library, "_LIBRARY_FLOPS", 0)
    monkeypatch.setattr(cost, "WHOLE_PRODUCT", 0)  # narrow operands are read as they are, however few


def program(form: dict[str, Any]) -> tuple[Any, list[Any]]:
    """A function that gives a convolution and its gradients, and its operands."""
    options = {
        "dtype": hm.float32,
        "kernel": 3,
        "channels": 4,
        "last": False,
        "groups": 1,
        "bias": False,
        **form,
    }
    dtype, kernel, channels, last = map(options.pop, ("dtype", "kernel", "channels", "last"))
    bias = options.pop("bias")
    groups = options["groups"]

    def convolved(x: Any, w: Any) -> Any:
        if last:
            return hm.functional.conv2d(x.permute((0, 3, 1, 2)), w, **options).permute((0, 2, 3, 1))
        y = hm.functional.conv2d(x, w, w[:, 0, 0, 0] if bias else None, **options)
        return hm.functional.relu(y) if bias else y

    def run(x: Any, w: Any, g: Any) -> Any:
        y, pullback = hm.vjp(convolved, x, w)
        return y, *pullback(y * g)

    image = (2, 7, 6, channels * groups) if last else (2, channels * groups, 7, 6)
    shapes = image, (8 * groups, channels, kernel, kernel), (1,)
    return run, [(array(*shape, seed=k) * 0.5).to(dtype) for k, shape in enumerate(shapes)]


@pytest.mark.parametrize("name", every(2, FORMS))
def test_forms(name: str, there: Gpu) -> None:
    """Forward and both gradients, launch by launch and in graphs."""
    run, operands = program(FORMS[name])
    expected, traced = run(*operands), hm.trace(run)
    for _ in range(3):
        found = traced(*(x.to(there.name) for x in operands))
        for a, b in zip(found, expected, strict=True):
            narrow = b.dtype in (hm.bfloat16, hm.float16)
            assert_close(a.cpu().float() if narrow else a.cpu(), b.float() if narrow else b, rtol=2e-2 * narrow or None)
    assert there.dnn is None or there.dnn.calls


def calls(there: Gpu, form: dict[str, Any], **settings: str) -> tuple[list[Convolve], list[int]]:
    """The calls of the library, and the engines that ran them."""
    run, operands = program(form)
    there.dnn.calls, there.dnn.engines = [], []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        hm.trace(run)(*(x.to(there.name) for x in operands))
    return there.dnn.calls, there.dnn.engines


def test_precision_and_order_of_sums_decide_the_engine() -> None:
    """The first that rounds nothing and adds in a fixed order; see fake_cudnn.py."""
    there = gpu("cupy")
    assert set(calls(there, FORMS["same"])[1]) == {4}
    assert set(calls(there, FORMS["same"], HYBRIDML_TF32="1")[1]) == {1}
    assert set(calls(there, FORMS["narrow images"])[1]) == {1}
    assert set(calls(there, FORMS["doubles"])[1]) == {1}


def test_gradients_of_weights_are_the_librarys_where_tensor_cores_are() -> None:
    """The library rounds what it writes: it has no engine that reads bfloat16 and writes float32."""
    there = gpu("cupy")
    assert not any(call.weights for call in calls(there, FORMS["same"])[0])
    assert any(call.weights for call in calls(there, FORMS["same"], HYBRIDML_TF32="1")[0])
    narrow = calls(there, FORMS["narrow images"])[0]
    assert [call.weights for call in narrow].count(True) == 1 and len(narrow) >= 2
    narrow += calls(there, FORMS["narrow, bias"])[0]
    assert all(images.dtype is BF16 for call in narrow for images in call.memories)


def test_channels_are_last_where_tensor_cores_are() -> None:
    """Between convolutions; in float32 the library's engines would copy images to the other order and back."""
    there = gpu("cupy")
    x, w = array(2, 8, 7, 6).to(there.name), array(8, 8, 3, 3).to(there.name)

    def between(dtype: Any) -> int:
        """The stride of the channels of what the second convolution reads."""
        there.dnn.calls = []
        f = hm.trace(lambda x, w: hm.functional.conv2d(hm.relu(hm.functional.conv2d(x, w)), w))
        f(x.to(dtype), w.to(dtype))
        first, second = there.dnn.calls
        assert first.y.shape == second.x.shape
        return int(second.x.strides[1])

    assert between(hm.float32) == 5 * 4 and between(hm.bfloat16) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYBRIDML_TF32", "1")
        assert between(hm.float32) == 1


def test_small_convolutions_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_LIBRARY_FLOPS", 1 << 40)
    assert calls(gpu("cupy"), FORMS["same"])[0] == []


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of ours, with their epilogues."""
    there = gpu("cupy")
    driver = there.device.driver
    monkeypatch.setattr(driver, "libraries", "")
    monkeypatch.setattr(driver, "convolution_bytes", lambda call: None)
    run, operands = program(FORMS["same"])
    for a, b in zip(hm.trace(run)(*(x.to(there.name) for x in operands)), run(*operands), strict=True):
        assert_close(a.cpu(), b)
    assert there.dnn.calls == []


def test_operands_anywhere() -> None:
    """Rows of an array begin at odd addresses: the library is given copies."""
    there = gpu("cupy")
    xs, w = array(3, 1, 3, 5, 5), array(4, 3, 3, 3)
    f = hm.trace(lambda xs, w: hm.scan(lambda c, x: (c, hm.functional.conv2d(x, w)), hm.zeros((1,)), xs)[1])
    assert_close(f(xs.to(there.name), w.to(there.name)).cpu(), f(xs, w))
    assert there.dnn.calls


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (1, 3, 7, 7), (2, 1, 7, 7), (2, 3, 9, 9)])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1)])
def test_gradients_of_weights_are_known_by_their_images(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    """Whatever has the larger kernel."""
    n, c, h, w = shape
    sizes = dict(enumerate(shape))
    memory = [int(np.prod([sizes[k] for k in order[order.index(axis) + 1 :]])) for axis in range(4)]
    image, channel, y, x = memory
    out, kernel = (h - 2, w - 2), (3, 3)
    forward = Strided(0, (image, y, x, 0, channel)), Strided(0, (9, 3, 0, 1, 1))
    exchanged = Strided(0, (channel, y, x, 0, image)), forward[1]
    one, none, f32 = (1, 1), (0, 0), dtypes.float32
    call = Convolution(f32, n, (h, w), out, kernel, 1, c, 4, one, one, none, *forward)
    gradient = Convolution(f32, c, (h, w), kernel, out, 1, n, 4, one, one, none, *exchanged)
    assert not library.is_of_weights(call) and library.is_of_weights(gradient)


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ((8, 1, 8, 3, 1, 1), (8, 1, 1)),
        ((8, 1, 4, 3, 2, 1), (8, 1, 1)),  # the last row of zeros is not read
        ((9, 0, 4, 2, 2, 1), (9, 0, 0)),
        ((9, -2, 5, 3, 1, 1), (7, 0, 0)),
        ((9, 0, 3, 3, 1, 1), (5, 0, 0)),  # what no position reaches is cut
        ((5, 2, 5, 2, 1, 1), (4, 2, 0)),
        ((5, 0, 6, 3, 1, 1), (5, 0, 3)),
    ],
)
def test_an_axis_has_as_many_positions_as_the_result(axis: tuple[int, ...], expected: tuple[int, ...]) -> None:
    found = library._fit(*axis)
    assert found == expected
    (size, before, after), (_, _, out, kernel, stride, dilation) = found, axis
    assert (size + before + after - (kernel - 1) * dilation - 1) // stride + 1 == out


def test_images_that_a_library_has_no_form_of() -> None:
    call = Convolution(
        dtypes.float32, 2, (8, 8), (8, 8), (3, 3), 2, 4, 4, (1, 1), (1, 1), (1, 1),
        Strided(0, (512, 64, 8, 4, 1)), Strided(0, (96, 32, 16, 4, 1)),
    )  # fmt: skip
    assert library.library_convolution(call) is not None
    turned = Strided(0, (512, 64, 8, 1, 2))  # groups inside of channels
    assert library.library_convolution(Convolution(*[getattr(call, n) for n in FIELDS[:11]], turned, call.w)) is None
    integers = Convolution(dtypes.int32, *[getattr(call, n) for n in FIELDS[1:11]], call.a, call.w)
    assert library.library_convolution(integers) is None


FIELDS = (
    "dtype", "batch", "size", "out_size", "kernel", "groups", "channels", "features", "stride", "dilation", "padding",
)  # fmt: skip


def test_what_the_library_refuses_has_no_plan() -> None:
    """Operands of one dtype and a result of another, and descriptions that are wrong."""
    runtime = fake_cupy().cuda.runtime
    found = Cudnn(FakeDnn(runtime))

    def images(dtype: np.dtype, *shape: int) -> Images:
        return Images(dtype, 0, shape, (shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1))

    f32 = dtypes.float32
    good = Convolve(
        f32,
        images(BF16, 1, 2, 4, 4),
        images(BF16, 3, 2, 3, 3),
        images(BF16, 1, 3, 2, 2),
        (1, 1),
        (1, 1),
        (0, 0),
        (0, 0),
    )
    mixed = Convolve(f32, good.x, good.w, images(f32, 1, 3, 2, 2), (1, 1), (1, 1), (0, 0), (0, 0))
    assert found.nbytes(good) == 1000 and found.nbytes(mixed) is None
