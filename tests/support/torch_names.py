"""Functions that have PyTorch's names at the top level: one table, run on PyTorch once to record and on hybridml in
every test, as `torch_cases`. ``python -m tests.support.torch_names`` (needs PyTorch) writes the recorded values anew.

A case is a program over the namespace of either library; arguments are by position, or named alike in both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .torch_cases import FunctionCase, ModuleCase, keep, record_modules, store, torch_inputs
from .torch_layers import layers

RECORDED = Path(__file__).with_name("torch_names.npz")

PLACES = np.asarray([2, 0, 2])
SAMPLES2 = np.asarray([[[0.2, 0.7], [0.9, 0.4], [0.5, 0.1]]], np.float32)
SAMPLES3 = np.asarray([[[0.2, 0.7, 0.35], [0.9, 0.4, 0.6]]], np.float32)
DISTINCT = (np.random.default_rng(7).permutation(3 * 7 * 9).reshape(1, 3, 7, 9) / 50).astype(np.float32)
VOLUME = (np.random.default_rng(8).permutation(2 * 5 * 6 * 7).reshape(1, 2, 5, 6, 7) / 50).astype(np.float32)
POSITIVE = np.asarray([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]], np.float32)
GENERAL = np.asarray([[0.1, 2.0, 0.5], [3.0, -1.0, 0.2], [0.7, 0.4, 2.0]], np.float32)
LABELS = np.asarray([1, 0, 4, 2])


def case(run: Any, **inputs: Any) -> FunctionCase:
    return FunctionCase(run, inputs)


FUNCTIONS: dict[str, FunctionCase] = {
    "addbmm": case(lambda m, t: m.addbmm(t.d, t.a, t.b, beta=0.5, alpha=2), a=(4, 2, 3), b=(4, 3, 5), d=(2, 5)),
    "block_diag": case(lambda m, t: m.block_diag(t.a, t.b, t.d), a=(2, 3), b=(2,), d=()),
    "cartesian_prod": case(lambda m, t: m.cartesian_prod(t.a, t.b, t.d), a=(2,), b=(3,), d=(2,)),
    "combinations": case(lambda m, t: m.combinations(t.a, 3), a=(5,)),
    "combinations replaced": case(lambda m, t: m.combinations(t.a, 2, True), a=(3,)),
    "cholesky_inverse": case(lambda m, t: m.cholesky_inverse(m.linalg.cholesky(t.x)), x=POSITIVE),
    "cholesky_solve": case(lambda m, t: m.cholesky_solve(t.b, m.linalg.cholesky(t.x)), x=POSITIVE, b=(3, 2)),
    "cholesky_solve upper": case(
        lambda m, t: m.cholesky_solve(t.b, m.linalg.cholesky(t.x, upper=True), True), x=POSITIVE, b=(3, 2)
    ),
    "cumulative_trapezoid": case(lambda m, t: m.cumulative_trapezoid(t.z, t.x), z=(2, 5), x=(5,)),
    "trapz": case(lambda m, t: m.trapz(t.z), z=(2, 5)),
    "diag_embed": case(lambda m, t: m.diag_embed(t.x, 1), x=(2, 3)),
    "diag_embed front": case(lambda m, t: m.diag_embed(t.x, -2, 0, 2), x=(2, 3)),
    "diagonal_scatter": case(lambda m, t: m.diagonal_scatter(t.x, t.z, 1), x=(3, 4), z=(3,)),
    "diagonal_scatter batch": case(lambda m, t: m.diagonal_scatter(t.x, t.z, -1, 0, 2), x=(3, 2, 4), z=(2, 2)),
    "dist": case(lambda m, t: m.dist(t.x, t.z, 3), x=(3, 4), z=(4,)),
    "frac": case(lambda m, t: m.frac(t.x * 3), x=(7,)),
    "histc": case(lambda m, t: m.histc(t.x.detach(), 5, -1, 1), x=(40,)),
    "histc own": case(lambda m, t: m.histc(t.x.detach(), 4), x=(40,)),
    **{
        f"index_reduce {how}": case(
            lambda m, t, how=how: t.x.index_reduce(1, t.i, t.z, how), x=(2, 4), z=(2, 3), i=PLACES
        )
        for how in ("prod", "mean", "amax", "amin")
    },
    "index_reduce alone": case(
        lambda m, t: t.x.index_reduce(0, t.i, t.z, "mean", include_self=False), x=(4, 2), z=(3, 2), i=PLACES
    ),
    "lerp": case(lambda m, t: m.lerp(t.x, t.z, 0.3), x=(2, 3), z=(2, 3)),
    "lerp tensor": case(lambda m, t: m.lerp(t.x, t.z, t.w), x=(2, 3), z=(2, 3), w=(2, 3)),
    "logspace": case(lambda m, t: m.logspace(-1, 2, 5) + t.x * 0, x=(5,)),
    "lu_unpack": case(lambda m, t: m.lu_unpack(*m.linalg.lu_factor(t.x))[1], x=GENERAL),
    "lu_factor": case(lambda m, t: m.linalg.lu_factor(t.x)[0], x=GENERAL),
    "lu_factor wide": case(lambda m, t: m.linalg.lu_factor(t.x)[0], x=(2, 2, 4)),
    "lu_factor pivots": case(lambda m, t: m.linalg.lu_factor(t.x.detach())[1], x=(2, 5, 5)),
    **{
        f"lu_solve {left} {adjoint}": case(
            lambda m, t, left=left, adjoint=adjoint: m.linalg.lu_solve(
                *m.linalg.lu_factor(t.x), t.b, left=left, adjoint=adjoint
            ),
            x=GENERAL,
            b=(3, 3),
        )
        for left in (True, False)
        for adjoint in (False, True)
    },
    "pinverse": case(lambda m, t: m.pinverse(t.x), x=(3, 2)),
    "put": case(lambda m, t: t.x.clone().put_(t.i, t.z), x=(2, 3), z=(3,), i=np.asarray([5, 0, 2])),
    "put added": case(lambda m, t: t.x.clone().put_(t.i, t.z, True), x=(2, 3), z=(3,), i=PLACES),
    "renorm": case(lambda m, t: m.renorm(t.x, 2, 0, 1.5), x=(4, 3)),
    "renorm columns": case(lambda m, t: m.renorm(t.x, 1, 1, 2.0), x=(4, 3, 2)),
    "select_scatter": case(lambda m, t: m.select_scatter(t.x, t.z, 1, -1), x=(2, 3, 2), z=(2, 2)),
    "slice_scatter": case(lambda m, t: m.slice_scatter(t.x, t.z, 1, 1, 6, 2), x=(2, 6), z=(2, 3)),
    "std_mean": case(lambda m, t: m.std_mean(t.x, 1)[0], x=(3, 4)),
    "var_mean": case(lambda m, t: sum(m.var_mean(t.x, (0, 2))), x=(3, 4, 2)),
    "triangular_solve": case(lambda m, t: m.triangular_solve(t.b, t.x, False, True)[0], x=GENERAL, b=(3, 2)),
    "unflatten": case(lambda m, t: m.unflatten(t.x, 1, (-1, 2)), x=(2, 6)),
    "unfold": case(lambda m, t: t.x.unfold(1, 3, 2), x=(2, 8)),
    "mH": case(lambda m, t: t.x.mH, x=(2, 3)),
    "bartlett_window": case(lambda m, t: m.bartlett_window(7) + t.x * 0, x=()),
    "kaiser_window": case(lambda m, t: m.kaiser_window(7, False, 3.0) + t.x * 0, x=()),
    **{
        f"window {name} {sym}": case(
            lambda m, t, name=name, more=more, sym=sym: getattr(m.signal.windows, name)(9, sym=sym, **more) + t.x * 0,
            x=(),
        )
        for name, more in {
            "bartlett": {},
            "blackman": {},
            "cosine": {},
            "exponential": {"tau": 2.0},
            "gaussian": {"std": 1.5},
            "general_cosine": {"a": [0.4, 0.3, 0.3]},
            "general_hamming": {"alpha": 0.6},
            "hamming": {},
            "hann": {},
            "kaiser": {"beta": 5.0},
            "nuttall": {},
        }.items()
        for sym in (True, False)
    },
    "linear_cross_entropy": case(
        lambda m, t: m.nn.functional.linear_cross_entropy(t.x, t.w, t.y, linear_bias=t.b, label_smoothing=0.1),
        x=(4, 3),
        w=(5, 3),
        b=(5,),
        y=LABELS,
    ),
    "linear_cross_entropy ignored": case(
        lambda m, t: m.nn.functional.linear_cross_entropy(t.x, t.w, t.y, ignore_index=4, reduction="sum"),
        x=(4, 3),
        w=(5, 3),
        y=LABELS,
    ),
    "fractional_max_pool2d": case(
        lambda m, t: m.nn.functional.fractional_max_pool2d(t.x, (2, 3), (4, 5), _random_samples=t.p),
        x=DISTINCT,
        p=SAMPLES2,
    ),
    "fractional_max_pool2d ratio": case(
        lambda m, t: m.nn.functional.fractional_max_pool2d(
            t.x, 2, output_ratio=(0.6, 0.6), return_indices=True, _random_samples=t.p
        )[1],
        x=DISTINCT,
        p=SAMPLES2,
    ),
    "fractional_max_pool3d": case(
        lambda m, t: m.nn.functional.fractional_max_pool3d(t.x, 2, (3, 4, 5), _random_samples=t.p),
        x=VOLUME,
        p=SAMPLES3,
    ),
    "upsample": case(lambda m, t: m.nn.functional.interpolate(t.x, scale_factor=2), x=(1, 2, 3)),
    "multi_head_attention_forward": case(
        lambda m, t: m.nn.functional.multi_head_attention_forward(
            t.q, t.k, t.k, 4, 2, t.w * 0.5, t.b, t.e, t.e, True, 0.0, t.o, None, attn_mask=t.m
        )[0],
        q=(3, 2, 4),
        k=(5, 2, 4),
        w=(12, 4),
        b=(12,),
        e=(1, 1, 4),
        o=(4, 4),
        m=np.triu(np.ones((3, 5), bool), 3),
    ),
    "multi_head_attention_forward separate": case(
        lambda m, t: m.nn.functional.multi_head_attention_forward(
            t.q,
            t.k,
            t.v,
            4,
            2,
            None,
            None,
            None,
            None,
            False,
            0.0,
            t.o,
            t.g,
            use_separate_proj_weight=True,
            q_proj_weight=t.a,
            k_proj_weight=t.b,
            v_proj_weight=t.d,
            average_attn_weights=False,
        )[1],
        q=(3, 4),
        k=(5, 3),
        v=(5, 2),
        o=(4, 4),
        g=(4,),
        a=(4, 4),
        b=(4, 3),
        d=(4, 2),
    ),
}

# Programs of complex numbers, without gradients.


def complex_numbers(*shape: int) -> np.ndarray:
    real, imag = np.random.default_rng(len(shape)).normal(size=(2, *shape))
    return (real + 1j * imag).astype(np.complex64)


C, K = complex_numbers(2, 4), complex_numbers(4, 2, 3)
COMPLEX: dict[str, FunctionCase] = {
    "complex": case(lambda m, t: m.complex(t.x.real, t.x.imag), x=C),
    "polar": case(lambda m, t: m.polar(m.abs(t.x), m.angle(t.x)), x=C),
    "sigmoid": case(lambda m, t: m.sigmoid(t.x), x=C),
    "silu": case(lambda m, t: m.nn.functional.silu(t.x), x=C),
    "logaddexp": case(lambda m, t: m.logaddexp(t.x[0], t.x[1]), x=C),
    "logcumsumexp": case(lambda m, t: m.logcumsumexp(t.x, 1), x=C),
    "sinc": case(lambda m, t: m.sinc(t.x), x=C),
    "normalize": case(lambda m, t: m.nn.functional.normalize(t.x), x=C),
    "mH": case(lambda m, t: t.x.mH, x=C),
    "lerp": case(lambda m, t: m.lerp(t.x[0], t.x[1], 0.7), x=C),
    "conv1d": case(lambda m, t: m.nn.functional.conv1d(t.x[None], t.k, padding=1), x=C, k=K),
    "conv1d groups": case(
        lambda m, t: m.nn.functional.conv1d(t.x[None], t.k[:, :1], groups=2, dilation=2), x=C, k=K[:, :, :2]
    ),
    "conv_transpose1d": case(lambda m, t: m.nn.functional.conv_transpose1d(t.k[None, :, 0], t.k, stride=2), x=C, k=K),
    "hfft2": case(lambda m, t: m.fft.hfft2(t.x), x=C),
    "hfftn": case(lambda m, t: m.fft.hfftn(t.k, norm="ortho"), k=K),
    "ihfft2": case(lambda m, t: m.fft.ihfft2(t.x.real), x=C),
    "ihfftn": case(lambda m, t: m.fft.ihfftn(t.k.real, norm="forward"), k=K),
}

MODULES: dict[str, ModuleCase] = {
    "RNN": ModuleCase(lambda nn: nn.RNN(3, 4, 2), {"x": (5, 2, 3)}, lambda m, t: m(t.x)[0]),
    "RNN relu": ModuleCase(
        lambda nn: nn.RNN(3, 4, 1, "relu", bidirectional=True, batch_first=True), {"x": (2, 5, 3), "h": (2, 2, 4)},
        lambda m, t: m(t.x, t.h)[0],
    ),
    "RNN state": ModuleCase(lambda nn: nn.RNN(3, 4, bias=False), {"x": (5, 3)}, lambda m, t: m(t.x)[1]),
    **layers("RNNCell", {"m": (2, 3), "h": (2, 4)}, 3, 4),
    "RNNCell relu": ModuleCase(lambda nn: nn.RNNCell(3, 4, nonlinearity="relu"), {"x": (3,)}),
}  # fmt: skip


def record() -> None:
    """Run every case on PyTorch."""
    import torch

    values: dict[str, np.ndarray] = {}
    keys: dict[str, Any] = {}
    for kind, table in (("F", FUNCTIONS), ("C", COMPLEX)):
        for name, entry in table.items():
            t = torch_inputs(name, entry.inputs)
            keep(values, f"{kind} {name}", entry.run(torch, t).resolve_conj(), vars(t))
    record_modules(MODULES, values, keys)
    store(RECORDED, values, {"torch": torch.__version__, "keys": keys})
    print(f"{len(values)} values of PyTorch {torch.__version__}, {RECORDED.stat().st_size} bytes")


if __name__ == "__main__":
    record()
