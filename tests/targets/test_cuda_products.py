"""Matrix products in generated CUDA kernels: every tile and layout against exact sums, epilogues, registers."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.targets.cuda import nvrtc, target
from hybridml_compiler.targets.cuda.code import CudaKernel, Multiply, RegionSource
from hybridml_compiler.targets.cuda.contraction.contraction import contraction_of
from hybridml_compiler.targets.cuda.contraction.kernel import CallSource
from hybridml_compiler.targets.cuda.contraction.library import is_left_to_library, product_steps
from hybridml_compiler.targets.cuda.contraction.tiles import Tile, tile_for
from tests.support.closeness import assert_close
from tests.support.cuda import SIM, check_registers, compiled, left_to_library, needs_nvrtc, planned_anew, sources
from tests.support.cuda_calls import CallCase, ConvolutionCase, ProductCase
from tests.support.examples import every

BF16, F16 = "bfloat16 bfloat16", "float16 float16"
THREADS, WARPS = Tile(128, 128, 16, 16, 16), Tile(128, 128, 32, 2, 4, "bf16")
CASES: dict[str, CallCase] = {
    "small": ProductCase(m=5, n=3, k=2),
    "edges": ProductCase(m=40, n=33, k=50),
    "whole tiles": ProductCase(m=32, n=32, k=64),
    "a turned": ProductCase(m=20, n=36, k=50, turned="a"),
    "b turned": ProductCase(m=40, n=33, k=50, turned="b"),
    "both turned, batches": ProductCase(m=40, n=20, k=20, turned="ab", batch=(2, 3)),
    "rows apart": ProductCase(m=20, n=33, k=35, apart=3),
    "a row": ProductCase(m=1, n=70, k=40),
    "large tile": ProductCase(m=100, n=130, k=40, turned="a", tile=THREADS),
    "middle tile": ProductCase(m=70, n=60, k=33, tile=Tile(64, 64, 16, 16, 16)),
    "slices": ProductCase(m=70, n=60, k=150, tile=Tile(64, 64, 32, 8, 8, slices=4)),
    "slices, both turned": ProductCase(m=40, n=36, k=140, turned="ab", tile=Tile(32, 32, 64, 8, 8, slices=8)),
    "slices of whole numbers": ProductCase(
        m=33, n=20, k=90, dtype="int32", stored="int8 uint8", tile=Tile(32, 32, 64, 8, 8, slices=8)
    ),
    "32x32": ProductCase(m=50, n=60, k=20, turned="b", tile=Tile(32, 32, 16, 8, 8)),
    "float64": ProductCase(m=70, n=65, k=30, dtype="float64", tile=Tile(64, 64, 16, 16, 16)),
    "float64 turned": ProductCase(m=10, n=20, k=30, dtype="float64", turned="ab"),
    "bytes": ProductCase(m=20, n=30, k=40, dtype="int32", stored="int8 uint8"),
    "one narrow": ProductCase(m=10, n=47, k=79, stored="float32 bfloat16"),
    "halves beside float32": ProductCase(m=10, n=17, k=20, stored="float16 float32"),
    "bf16": ProductCase(m=72, n=48, k=80, stored=BF16, batch=(2,)),
    "bf16, a turned": ProductCase(m=72, n=48, k=80, stored=BF16, turned="a"),
    "bf16, b turned": ProductCase(m=72, n=48, k=80, stored=BF16, turned="b"),
    "bf16, both turned": ProductCase(m=72, n=48, k=80, stored=BF16, turned="ab"),
    "bf16, odd": ProductCase(m=37, n=47, k=79, stored=BF16, turned="b"),
    "bf16, large tile": ProductCase(m=136, n=72, k=96, stored=BF16, tile=WARPS),
    "bf16, 64x64": ProductCase(m=71, n=48, k=56, stored=BF16, turned="ab", tile=Tile(64, 64, 32, 2, 2, "bf16")),
    "f16": ProductCase(m=40, n=40, k=64, stored=F16),
    "f16, rows apart": ProductCase(m=40, n=40, k=64, stored=F16, turned="b", apart=8),
    "tf32": ProductCase(m=71, n=48, k=80, tf32=True),
    "tf32, a turned": ProductCase(m=72, n=47, k=79, tf32=True, turned="a"),
    "tf32, both turned": ProductCase(m=64, n=44, k=20, tf32=True, turned="ab"),
    "images": ConvolutionCase(images=(2, 9, 11), channels=(1, 5, 7), kernel=(3, 3), padding=(1, 1)),
    "apart": ConvolutionCase(images=(2, 15, 16), channels=(1, 8, 12), kernel=(3, 2), stride=(2, 1), dilation=(2, 2)),
    "groups": ConvolutionCase(images=(1, 8, 8), channels=(2, 16, 16), kernel=(3, 3), padding=(1, 0)),
    "channels first": ConvolutionCase(images=(3, 7, 6), channels=(2, 8, 9), kernel=(2, 3), padding=(1, 2), first=True),
    "images of bf16": ConvolutionCase(
        images=(2, 8, 8), channels=(1, 16, 24), kernel=(3, 3), padding=(1, 1), stored=BF16
    ),
    "images of tf32": ConvolutionCase(images=(2, 8, 8), channels=(1, 8, 24), kernel=(3, 3), tf32=True),
    "reversed weights": ConvolutionCase(images=(2, 7, 8), channels=(1, 5, 7), kernel=(3, 2), turned=True),
    "images inside": ConvolutionCase(
        images=(20, 9, 7), channels=(1, 3, 20), kernel=(7, 6), padding=(1, 1), inner=True, dilation=(1, 1)
    ),
    "parts": ProductCase(m=40, n=33, k=350, tile=Tile(32, 32, 16, 8, 8, parts=3)),
    "parts of a row": ProductCase(m=1, n=20, k=3000),
    "parts, batches, doubles": ProductCase(
        m=9, n=10, k=100, batch=(3,), dtype="float64", tile=Tile(16, 16, 16, 8, 8, parts=4)
    ),
    "parts of bf16": ProductCase(
        m=40, n=40, k=200, stored=BF16, turned="a", tile=Tile(32, 32, 32, 2, 2, "bf16", parts=3)
    ),
    "parts of groups, channels first": ConvolutionCase(
        images=(3, 7, 6),
        channels=(2, 8, 9),
        kernel=(5, 6),
        padding=(1, 2),
        first=True,
        tile=Tile(16, 16, 16, 8, 8, parts=5),
    ),
    "parts, images inside": ConvolutionCase(
        images=(12, 9, 7), channels=(1, 6, 20), kernel=(7, 6), inner=True, tile=Tile(32, 32, 16, 8, 8, parts=4)
    ),
    "tf32, large tile": ProductCase(m=136, n=72, k=40, tf32=True, turned="b", tile=Tile(128, 128, 16, 2, 4, "tf32")),
}


@needs_nvrtc
@pytest.mark.parametrize("name", every(2, CASES))
def test_products(name: str) -> None:
    """Within the rounding of each sum, and compiled for one of the architectures without a spill."""
    case = CASES[name]
    source = case.source
    assert case.error(source.text) <= case.bound
    check_registers(source.text, source.block, list(CASES).index(name))


@needs_nvrtc
@pytest.mark.parametrize(
    "case", [ProductCase(m=100, n=70, k=20), ProductCase(m=70, n=100, k=64, stored=BF16, batch=(2,))]
)
def test_blocks_take_turns(case: ProductCase) -> None:
    source = case.source
    assert source.total > 3
    assert case.error(source.text, blocks=3) <= case.bound


@pytest.mark.parametrize(
    ("case", "instruction"),
    [
        (ProductCase(m=64, n=64, k=64, stored=BF16), "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        (ProductCase(m=64, n=64, k=64, stored=F16), "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        (ProductCase(m=64, n=64, k=64, tf32=True), "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
        (ProductCase(m=64, n=64, k=64), "fmaf("),
        (ProductCase(m=64, n=64, k=64, stored="float32 bfloat16"), "fmaf("),
        (ProductCase(m=64, n=64, k=64, dtype="float64", tf32=True), "fma("),
    ],
)
def test_who_multiplies(case: ProductCase, instruction: str) -> None:
    assert instruction in case.source.text


def test_copies_are_as_wide_as_alignment_allows() -> None:
    def copies(case: ProductCase) -> list[str]:
        return re.findall(r"^ *copy_(\d+)", case.source.text, re.MULTILINE)

    assert copies(ProductCase(m=64, n=64, k=64, stored=BF16)) == ["16", "16"]
    assert copies(ProductCase(m=64, n=64, k=60, stored=BF16)) == ["8", "16"]  # rows of a are 120 bytes
    assert copies(ProductCase(m=64, n=64, k=61, stored=BF16)) == ["16"]
    assert copies(ProductCase(m=64, n=64, k=64, turned="a")) == ["16", "16"]
    assert copies(ProductCase(m=64, n=64, k=64)) == ["4", "16"]  # a is transposed on its way
    assert copies(ProductCase(m=64, n=64, k=64, turned="a", apart=1)) == ["4", "4"]


@needs_nvrtc
def test_threads_read_sixteen_bytes_of_shared_memory() -> None:
    """Four of sixteen loads for 8x8 products are left in each of two steps, and in the one before them."""
    source = ProductCase(m=4096, n=4096, k=512).source
    ptx = nvrtc.compile(source.text, "ptx").code.decode()
    assert ptx.count("fma.rn.f32") == 2 * 64 and ptx.count("ld.shared.v4.f32") == 3 * 4


@pytest.mark.parametrize(
    ("case", "tile"),
    [
        (ProductCase(m=4096, n=4096, k=64), (128, 128)),
        (ProductCase(m=512, n=512, k=512), (32, 32)),
        (ProductCase(m=8, n=8, k=8), (16, 16)),
        (ProductCase(m=4096, n=4096, k=64, dtype="float64"), (64, 64)),
        (ProductCase(m=2048, n=2048, k=64, stored=BF16), (128, 128)),
        (ProductCase(m=8, n=4096, k=64, stored=BF16), (16, 64)),
        (ProductCase(m=32, n=32, k=64, stored=BF16), (32, 32)),
    ],
)
def test_tiles_follow_shapes(case: ProductCase, tile: tuple[int, int]) -> None:
    found = tile_for(contraction_of(case.call))
    assert (found.rows, found.columns) == tile


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        (ProductCase(m=576, n=64, k=1 << 16), 56),  # nine tiles
        (ProductCase(m=1, n=96, k=1 << 14), 64),
        (ProductCase(m=10, n=2048, k=1 << 12), 16),
        (ProductCase(m=10, n=10, k=1000), 3),  # of 21 steps each
        (ProductCase(m=10, n=10, k=500), 1),
        (ProductCase(m=4096, n=4096, k=1 << 14), 1),
        (ProductCase(m=64, n=64, k=1 << 16, stored=BF16), 128),
    ],
)
def test_long_sums_are_divided_where_tiles_are_few(case: ProductCase, parts: int) -> None:
    """Into parts of as many steps each, so that the last one has some."""
    form = contraction_of(case.call)
    tile = tile_for(form)
    assert tile.parts == parts
    steps = -(-form.k // tile.depth)
    assert (tile.parts - 1) * -(-steps // tile.parts) < steps


def test_a_product_is_a_librarys_where_that_is_faster_by_more_than_a_launch() -> None:
    large, small = ProductCase(m=2048, n=2048, k=2048).call, ProductCase(m=64, n=64, k=64).call
    assert is_left_to_library(large) and not is_left_to_library(small)
    flat = ProductCase(m=4096, n=4096, k=64).call  # whose result would be written once more
    assert [is_left_to_library(Fused(call)) for call in (large, small, flat)] == [True, False, False]


NARROW = (hm.bfloat16, hm.float16)


@needs_nvrtc
@pytest.mark.parametrize("dtype", [hm.float32, *NARROW])
def test_what_follows_a_product_of_the_library(dtype: np.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, a loop nest on the result as it is rounded, and one that reads it both rounded and not."""
    planned_anew(monkeypatch)
    left_to_library(monkeypatch, always=True)
    found: list[RegionSource] = []
    monkeypatch.setattr(target, "product_steps", lambda spec, wide: found.append(product_steps(spec)) or found[-1])
    rng = np.random.default_rng(0)
    x, y, b = (hm.tensor(rng.standard_normal(s, "f4")).to(dtype) for s in ((48, 32), (32, 96), (96,)))
    programs: list[tuple[Any, bool, bool]] = [
        (lambda x, y, b: x @ y, True, False),
        (lambda x, y, b: hm.functional.gelu(x @ y + b), True, True),
        (lambda x, y, b: hm.relu(x.float() @ y.float() + 1), dtype is hm.float32, True),
    ]
    for program, is_narrow, goes_on in programs:
        run, found[:] = hm.trace(program), []
        expected = program(x, y, b)
        for _ in range(3):
            assert_close(run(*(t.to(SIM) for t in (x, y, b))).cpu().float(), expected.float())
        ((product, _), *more) = found[0].parts
        assert isinstance(product, Multiply) and product.dtype is (dtype if is_narrow else np.dtype("f4"))
        assert bool(more) == goes_on


@needs_nvrtc
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_and_their_gradients_are_kernels_of_products(stride: int) -> None:
    """Forward, with bias and activation, and by images and weights."""
    rng = np.random.default_rng(0)
    shapes = ((2, 4, 9, 8), (6, 4, 3, 3), (6,))

    def program(x: hm.Tensor, w: hm.Tensor, b: hm.Tensor) -> Any:
        y = hm.functional.relu(hm.functional.conv2d(x, w, b, stride=stride, padding=1))
        return (y, *hm.autograd.grad([y], [x, w, b], [hm.ones_like(y)]))

    given = [(rng.standard_normal(shape) * 0.5).astype("f4") for shape in shapes]
    found, expected = (
        hm.trace(program)(*(hm.tensor(x).to(device).requires_grad_() for x in given)) for device in (SIM, "cpu")
    )
    for a, b in zip(found, expected, strict=True):
        assert_close(a.detach().cpu(), b.detach())
    with compiled() as made:
        hm.trace(lambda *x: program(*x)[:3])(*(hm.tensor(x).to(SIM).requires_grad_() for x in given))
    # Strides make several convolutions of the gradient of images.
    assert sum(isinstance(code.source, CallSource) for code in made) >= 3


def programs() -> dict[str, Any]:
    """Programs whose product has an epilogue, and their operands."""
    rng = np.random.default_rng(0)

    def some(*shape: int) -> Any:
        return hm.tensor((rng.standard_normal(shape) * 0.5).astype("f4"))

    f = hm.functional
    return {
        "bias, activation": (lambda x, w, b: f.gelu(x @ w + b), some(3, 10, 20), some(20, 33), some(33)),
        "residual": (lambda x, w, r: r + x @ w.mT, some(20, 24), some(40, 24), some(20, 40)),
        "two results": (lambda x, w: (x @ w, hm.exp(x @ w)), some(12, 24), some(24, 8)),
        "mask of a batch": (lambda x, y, m: hm.where(m > 0, x @ y.mT, -1), some(2, 9, 8), some(2, 7, 8), some(9, 7)),
        "a column": (lambda x, w, b: f.relu(x @ w + b), some(30, 20), some(20, 1), some(1)),
        "doubles": (lambda x, w: (x @ w) * 2 - 1, some(9, 5).astype("float64"), some(5, 17).astype("float64")),
    }


@needs_nvrtc
@pytest.mark.parametrize("name", programs())
def test_epilogues(name: str) -> None:
    """One launch each, whose text names the user's line and keeps nothing of the sums in memory."""
    function, *operands = programs()[name]
    traced = hm.trace(function)
    with compiled() as made:
        found = traced(*(x.to(SIM) for x in operands))
    expected = function(*operands)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, expected)), strict=True):
        assert_close(a.cpu(), b)
    assert all(isinstance(code, CudaKernel) and isinstance(code.source, CallSource) for code in made) and len(made) == 1
    assert traced.llvm.count("__global__") == 1 and "// test_cuda_products.py:" in traced.llvm


class Decoder(hm.nn.Module):
    """A block of a GPT between an embedding and its logits."""

    def __init__(self) -> None:
        super().__init__()
        nn, width = hm.nn, 32
        self.tokens, self.places = nn.Embedding(65, width), nn.Parameter(hm.zeros((16, width)))
        self.first, self.second, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, 65, bias=False)

    def forward(self, tokens: hm.Tensor) -> hm.Tensor:
        x = self.tokens(tokens) + self.places
        n, t, width = x.shape
        q, k, v = self.qkv(self.first(x)).reshape((n, t, 3, 4, width // 4)).permute((2, 0, 3, 1, 4))
        heads = hm.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.permute((0, 2, 1, 3)).reshape((n, t, width)))
        return self.head(self.last(x + self.down(hm.functional.gelu(self.up(self.second(x))))))


@pytest.mark.slow  # 20 s
@needs_nvrtc
def test_the_training_step_of_a_gpt() -> None:
    """Losses are the CPU's within the rounding of sums. All kernels are generated and compile without a spill, each for
    one of the architectures."""
    rng = np.random.default_rng(0)
    x, labels = (hm.tensor(rng.integers(0, 65, (2, 16))) for _ in range(2))

    def losses(device: str) -> list[float]:
        hm.random.seed(0)
        model = Decoder().to(device)
        optimizer = hm.optim.AdamW(model.parameters(), 1e-2)

        @hm.trace
        def step(x: hm.Tensor, labels: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()
            loss = hm.functional.cross_entropy(model(x).reshape((-1, 65)), labels.reshape((-1,)))
            loss.backward()
            optimizer.step()
            return loss

        return [float(step(x.to(device), labels.to(device))) for _ in range(3)]

    with compiled() as made:
        found = losses(SIM)
    np.testing.assert_allclose(found, losses("cpu"), rtol=1e-5)
    assert found[2] < found[0] and all(isinstance(code, CudaKernel) for code in made)
    texts = {code.text: code.source for code in made}
    assert sum(isinstance(source, CallSource) for source in texts.values()) > 10
    for k, (text, source) in enumerate(texts.items()):
        check_registers(text, source.block, k)


def narrow_programs() -> dict[str, tuple[Any, list[tuple[int, ...]]]]:
    """Programs with one product or convolution each, and the shapes of their operands."""
    f = hm.functional
    return {
        "bias, activation": (lambda x, w, b: f.relu(x @ w + b), [(40, 48), (48, 24), (24,)]),
        "a vector": (lambda x, w: x @ w, [(40, 48), (48,)]),
        "a row": (lambda x, w: x @ w, [(48,), (48, 40)]),
        "a batch": (lambda x, y: x @ y.mT, [(3, 40, 48), (3, 20, 48)]),
        "heads": (lambda x, w: x.reshape((2, 8, 4, 16)).permute((0, 2, 1, 3)) @ w, [(2, 8, 64), (16, 24)]),
        "images": (lambda x, w: f.conv2d(x, w, padding=1), [(2, 16, 9, 8), (24, 16, 3, 3)]),
        "pixels": (lambda x, w: f.conv2d(x, w), [(2, 16, 9, 8), (24, 16, 1, 1)]),
    }


@needs_nvrtc
@pytest.mark.parametrize(("name", "dtype"), every(3, product(narrow_programs(), ["bfloat16", "float16"])))
def test_narrow_operands_go_to_tensor_cores(name: str, dtype: str) -> None:
    """Narrow operands are read as they are stored, by one kernel; the result is rounded once, as the CPU's."""
    function, shapes = narrow_programs()[name]
    bits = {"bfloat16": 8, "float16": 11}[dtype]
    rng = np.random.default_rng(0)
    operands = [hm.tensor(rng.standard_normal(shape).astype("f4")).astype(dtype) for shape in shapes]
    program = hm.trace(function)
    with compiled() as made:
        found = program(*(t.to(SIM) for t in operands))
    instruction = "f32.f16.f16.f32" if dtype == "float16" else "f32.bf16.bf16.f32"
    assert len(made) == 1 and instruction in made[0].text
    a, e = (t.astype("float32").numpy() for t in (found.cpu(), program(*operands)))
    # Two roundings, which float32 sums in another order may push over a midpoint.
    np.testing.assert_allclose(a, e, rtol=2.0 * 2.0**-bits, atol=2.0**-bits)
    check_registers(made[0].text, made[0].source.block, len(name))


@needs_nvrtc
def test_gradients_of_float16_have_no_wide_operands() -> None:
    """All three products of a layer's step read what is stored."""
    x, w = (hm.tensor(np.random.default_rng(k).standard_normal((32, 32)).astype("f2")) for k in range(2))

    def program(x: hm.Tensor, w: hm.Tensor) -> Any:
        y = x @ w
        return hm.autograd.grad([y], [x, w], [y * 2])

    with compiled() as made:
        found = hm.trace(program)(*(t.to(SIM).requires_grad_() for t in (x, w)))
    expected = program(*(t.requires_grad_() for t in (x, w)))
    assert [code.text.count("f32.f16.f16.f32") for code in made if isinstance(code.source, CallSource)] == [1, 1, 1]
    for a, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.cpu().astype("f4").numpy(), e.astype("f4").numpy(), rtol=2.0**-9, atol=2.0**-9)


def test_float16_widens_first_on_the_cpu() -> None:
    """Its products have no words of float16."""
    x = hm.tensor(np.random.default_rng(0).standard_normal((128, 128)).astype("f2"))
    traced = hm.trace(lambda x: x @ x)
    expected = (x.numpy().astype("f4") @ x.numpy().astype("f4")).astype("f2")
    np.testing.assert_allclose(traced(x).numpy(), expected, rtol=2.0**-9, atol=2.0**-9)
    assert "of f16" not in str(traced.explain())


@needs_nvrtc
def test_tf32_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [np.random.default_rng(k).standard_normal(s).astype("f4") for k, s in enumerate(((20, 24), (24, 8)))]
    (plain,) = sources(lambda x, w: hm.tanh(x @ w), *arrays)
    monkeypatch.setenv("HYBRIDML_TF32", "1")
    (fast,) = sources(lambda x, w: hm.tanh(x @ w) + 0, *arrays)
    assert "tf32" in fast.text and "tf32" not in plain.text
