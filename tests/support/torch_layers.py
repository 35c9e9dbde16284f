"""More of what `torch_cases` compares with PyTorch: layers over windows, resampling, norms, activations and losses.

``python -m tests.support.torch_layers`` (needs PyTorch) writes the recorded values anew.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .torch_cases import (
    BITS,
    EDGES,
    LABELS,
    FunctionCase,
    ModuleCase,
    record_functions,
    record_modules,
    rng,
    store,
)

RECORDED = Path(__file__).with_name("torch_layers.npz")

ACTIVATIONS = "celu hardshrink hardsigmoid hardswish hardtanh mish rrelu selu softshrink softsign tanhshrink"
SEQUENCE = (rng("sequence").permutation(2 * 4 * 11).reshape(2, 4, 11) / 20 - 2).astype(np.float32)
IMAGE = (rng("picture").permutation(4 * 7 * 6).reshape(1, 4, 7, 6) / 40 - 2).astype(np.float32)
VOLUME = (rng("volume").permutation(4 * 4 * 5 * 4).reshape(1, 4, 4, 5, 4) / 80 - 2).astype(np.float32)
BY_RANK = {1: SEQUENCE, 2: IMAGE, 3: VOLUME}
# Away from the middles between pixels, where rounding decides which one is nearest.
POINTS = rng("points").uniform(-1.3, 1.3, (1, 3, 4, 2)).astype(np.float32)
POINTS_3D = rng("points 3d").uniform(-1.3, 1.3, (1, 2, 3, 2, 3)).astype(np.float32)
SIGNS = np.asarray([1.0, -1.0, 1.0, -1.0], np.float32)
COUNTS = np.asarray([[0.0, 1.0, 3.0], [2.0, 7.0, 1.0]], np.float32)
LISTS = np.asarray([[2, 0, -1, 1, 3], [4, -1, -1, 0, 0], [-1, 0, 0, 0, 0], [0, 1, 2, 3, 4]])
VARIANCES = np.asarray([[0.5, 0.3, 2.0], [0.1, 3.0, 1.0]], np.float32)

PADDED = np.asarray([[False, False, True], [False, True, False]])
CAUSAL = np.triu(np.ones((4, 4), bool), 1)


def calls(name: str, inputs: dict[str, Any], *options: dict[str, Any]) -> dict[str, FunctionCase]:
    """A case for each set of options, the inputs as positional arguments."""
    return {
        f"{name} {', '.join(f'{k}={v}' for k, v in chosen.items())}".strip(): FunctionCase(
            lambda F, t, chosen=chosen: getattr(F, name)(*(getattr(t, key) for key in inputs), **chosen), inputs
        )
        for chosen in options
    }


def of_ranks(make: Callable[[int, np.ndarray], dict[str, FunctionCase]]) -> dict[str, FunctionCase]:
    return {name: case for rank, x in BY_RANK.items() for name, case in make(rank, x).items()}


def convolutions(rank: int, x: np.ndarray) -> dict[str, FunctionCase]:
    kernel, ones = (3, 2, 3)[:rank], (1,) * (rank - 1)
    return {
        **calls(
            f"conv{rank}d",
            {"x": x, "w": (6, 2, *kernel), "b": (6,)},
            {"groups": 2, "padding": "same"},
            {"groups": 2, "stride": (2, *ones), "padding": 1, "dilation": (1, *ones)},
            {"groups": 2, "stride": 2, "padding": (2, *ones), "dilation": 2},
        ),
        **calls(f"conv{rank}d", {"x": x[0], "w": (3, 4, *kernel)}, {"padding": "valid"}, {"stride": (3,)}),
        **calls(
            f"conv_transpose{rank}d",
            {"x": x, "w": (4, 3, *kernel), "b": (6,)},
            {"groups": 2, "stride": 2, "padding": 1, "output_padding": 1},
            {"groups": 2, "stride": (3, *ones), "output_padding": (2, *(0,) * (rank - 1)), "dilation": 2},
        ),
        **calls(f"conv_transpose{rank}d", {"x": x[0], "w": (4, 3, *kernel)}, {}, {"padding": (1, *ones)}),
    }


def pools(rank: int, x: np.ndarray) -> dict[str, FunctionCase]:
    kernel = (2, 3, 2)[:rank]
    found = {
        **calls(
            f"max_pool{rank}d",
            {"x": x},
            {"kernel_size": 3, "stride": 2, "padding": 1},
            {"kernel_size": kernel, "ceil_mode": True},
            {"kernel_size": 2, "stride": 1, "dilation": 2, "padding": 1},
        ),
        **calls(
            f"avg_pool{rank}d",
            {"x": x},
            {"kernel_size": kernel},
            {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
            {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
            *([{"kernel_size": 2, "divisor_override": 3}] if rank > 1 else []),
        ),
        **calls(
            f"lp_pool{rank}d",
            {"x": x},
            {"norm_type": 2, "kernel_size": kernel if rank > 1 else 2},
        ),
        **calls(
            f"lp_pool{rank}d",
            {"x": np.abs(x)},
            {"norm_type": 3.0, "kernel_size": 2, "stride": 1, "ceil_mode": True},
        ),
        **calls(f"adaptive_avg_pool{rank}d", {"x": x}, {"output_size": 3}, {"output_size": 1}),
        **calls(f"adaptive_max_pool{rank}d", {"x": x}, {"output_size": 3}, {"output_size": 2}),
    }
    for number, chosen in enumerate([{"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 2, "dilation": 2}]):
        found[f"max_pool{rank}d indices {number}"] = FunctionCase(
            lambda F, t, chosen=chosen: getattr(F, f"max_pool{rank}d")(t.x, **chosen, return_indices=True)[1], {"x": x}
        )
    found[f"adaptive_max_pool{rank}d indices"] = FunctionCase(
        lambda F, t: getattr(F, f"adaptive_max_pool{rank}d")(t.x, 3, return_indices=True)[1], {"x": x}
    )
    found[f"max_unpool{rank}d"] = FunctionCase(
        lambda F, t: getattr(F, f"max_unpool{rank}d")(
            *getattr(F, f"max_pool{rank}d")(t.x, 2, return_indices=True), 2, output_size=x.shape[2:]
        ),
        {"x": x},
    )
    found[f"max_unpool{rank}d single"] = FunctionCase(
        lambda F, t: getattr(F, f"max_unpool{rank}d")(
            *getattr(F, f"max_pool{rank}d")(t.x, 3, 3, 1, return_indices=True), 3, 3, 1, x.shape
        ),
        {"x": x[0]},
    )
    return found


def resized(rank: int, x: np.ndarray) -> dict[str, FunctionCase]:
    smooth = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}[rank]
    sizes: list[dict[str, Any]] = [{"size": (7, 13, 3)[:rank]}, {"scale_factor": 1.7}, {"scale_factor": 0.6}]
    return calls(
        "interpolate",
        {"x": x},
        *({**size, "mode": mode} for size in sizes for mode in ("nearest", "nearest-exact", "area", *smooth)),
        *({**size, "mode": mode, "align_corners": True} for size in sizes for mode in smooth),
        {"scale_factor": 1.3, "mode": smooth[0], "recompute_scale_factor": True},
        {"scale_factor": (1.6, 1.1, 1.1)[:rank], "mode": smooth[0]},
        *([{"scale_factor": (1.6, 1.1), "mode": "nearest"}] if rank == 2 else []),
    )


def padded(rank: int, x: np.ndarray) -> dict[str, FunctionCase]:
    widths = (1, 2, 0, 3, 2, 1)[: 2 * rank]
    return {
        f"pad {mode} {rank}": FunctionCase(lambda F, t, mode=mode: F.pad(t.x, widths, mode), {"x": x})
        for mode in ("constant", "reflect", "replicate", "circular")
    }


FUNCTIONS: dict[str, FunctionCase] = {
    **of_ranks(convolutions),
    **of_ranks(pools),
    **of_ranks(resized),
    **of_ranks(padded),
    **calls(
        "unfold", {"x": IMAGE}, {"kernel_size": (2, 3)}, {"kernel_size": 3, "dilation": 2, "padding": 1, "stride": 2}
    ),
    **calls(
        "fold",
        {"x": (2, 12, 12)},
        {"output_size": (5, 4), "kernel_size": 2},
        {"output_size": (5, 7), "kernel_size": (2, 3), "padding": (0, 1), "stride": (1, 3), "dilation": (1, 1)},
    ),
    "adaptive_avg_pool3d None": FunctionCase(lambda F, t: F.adaptive_avg_pool3d(t.x, (None, 2, 3)), {"x": VOLUME}),
    **calls(
        "interpolate",
        {"x": (2, 3, 9, 14)},
        *(
            {"size": (4, 6), "mode": mode, "antialias": True, "align_corners": aligned}
            for mode in ("bilinear", "bicubic")
            for aligned in (False, True)
        ),
        {"scale_factor": (2.0, 0.5), "mode": "bilinear", "antialias": True},
    ),
    # PyTorch copies an axis that keeps its size, but its gradients do not know.
    **calls("interpolate", {"m": (1, 2, 9, 6)}, {"scale_factor": (1.1, 0.5), "mode": "bilinear", "antialias": True}),
    **calls(
        "grid_sample",
        {"x": IMAGE, "g": POINTS},
        *(
            {"mode": mode, "padding_mode": padding, "align_corners": aligned}
            for mode in ("bilinear", "nearest", "bicubic")
            for padding in ("zeros", "border", "reflection")
            for aligned in (False, True)
        ),
    ),
    **calls(
        "grid_sample",
        {"x": VOLUME, "g": POINTS_3D},
        {"align_corners": False},
        {"mode": "nearest", "padding_mode": "border", "align_corners": True},
        {"padding_mode": "reflection", "align_corners": False},
    ),
    **calls("affine_grid", {"x": (2, 2, 3)}, {"size": (2, 3, 4, 5), "align_corners": False}),
    **calls("affine_grid", {"x": (2, 3, 4)}, {"size": (2, 3, 4, 1, 5), "align_corners": True}),
    **calls("pixel_shuffle", {"x": (2, 8, 3, 4)}, {"upscale_factor": 2}),
    **calls("pixel_unshuffle", {"x": (2, 2, 6, 4)}, {"downscale_factor": 2}),
    **calls("channel_shuffle", {"x": (2, 6, 3)}, {"groups": 3}),
    "pad crop": FunctionCase(lambda F, t: F.pad(t.x, (-1, 2, 1, -2), value=1.5), {"x": IMAGE}),
    "pad circular all": FunctionCase(lambda F, t: F.pad(t.x, (11, 4), "circular"), {"x": SEQUENCE}),
    **calls("instance_norm", {"x": IMAGE}, {}, {"eps": 0.1}),
    "instance_norm affine": FunctionCase(
        lambda F, t: F.instance_norm(t.x, None, None, t.w, t.b), {"x": SEQUENCE, "w": (4,), "b": (4,)}
    ),
    **calls("local_response_norm", {"x": IMAGE}, {"size": 2}, {"size": 3, "alpha": 0.3, "beta": 0.6, "k": 1.5}),
    **calls("normalize", {"x": (3, 4, 2)}, {}, {"p": 1.0, "dim": -1}, {"p": 3.0, "dim": 0}, {"p": np.inf, "dim": 1}),
    **calls("cosine_similarity", {"x": (3, 4), "z": (3, 4)}, {}, {"dim": 0}),
    **calls("cosine_similarity", {"m": (3, 1, 4), "p": (5, 4)}, {"dim": -1, "eps": 2.0}),
    **calls("pairwise_distance", {"x": (3, 4), "z": (3, 4)}, {}, {"p": 1.0, "keepdim": True}, {"p": 3.0, "eps": 0.1}),
    **{
        f"cdist {p}": FunctionCase(
            lambda F, t, p=p: (getattr(F, "cdist", None) or importlib.import_module("torch").cdist)(t.x, t.z, p),
            {"x": (2, 4, 3), "z": (2, 5, 3)},
        )
        for p in (2.0, 1.0, 3.0)
    },
    **calls("pdist", {"x": (4, 3)}, {}, {"p": 1.0}, {"p": 2.5}, {"p": float("inf")}),
    **{name: FunctionCase(lambda F, t, name=name: getattr(F, name)(t.x), {"x": EDGES}) for name in ACTIVATIONS.split()},
    "celu alpha": FunctionCase(lambda F, t: F.celu(t.x, 1.3), {"x": EDGES}),
    "hardtanh bounds": FunctionCase(lambda F, t: F.hardtanh(t.x, -0.3, 6.0), {"x": EDGES}),
    "threshold": FunctionCase(lambda F, t: F.threshold(t.x, 0.3, 5.0), {"x": EDGES}),
    **{
        f"{name} weight {reduction}": FunctionCase(
            lambda F, t, name=name, reduction=reduction: getattr(F, name)(t.x, t.z, weight=t.c, reduction=reduction),
            {"x": (2, 3), "z": (2, 3), "c": COUNTS},
        )
        for name in ("mse_loss", "l1_loss", "huber_loss")
        for reduction in ("mean", "none")
    },
    **calls("glu", {"x": (3, 4, 2)}, {}, {"dim": 1}),
    **calls("softmin", {"x": (3, 4)}, {"dim": 0}, {"dim": -1}),
    **calls("prelu", {"x": (3, 4, 2), "w": (4,)}, {}),
    **calls("prelu", {"x": (3, 4, 2), "w": (1,)}, {}),
    **calls("bilinear", {"x": (3, 2, 4), "z": (3, 2, 5), "w": (6, 4, 5), "b": (6,)}, {}),
    **{
        f"embedding_bag {mode} {number}": FunctionCase(
            lambda F, t, mode=mode, options=options: F.embedding_bag(
                t.i, t.w, **({"offsets": t.y} if hasattr(t, "y") else {}), mode=mode, **options
            ),
            inputs,
        )
        for mode in ("mean", "sum", "max")
        for number, (inputs, options) in enumerate[tuple[dict[str, Any], dict[str, Any]]](
            [
                ({"i": [[0, 3], [1, 0], [2, 2]], "w": (4, 5)}, {}),
                ({"i": [[0, 3, 0], [3, 3, 3]], "w": (4, 5)}, {"padding_idx": -1}),
                ({"i": [0, 3, 1, 2, 2], "y": [0, 2, 2, 3], "w": (4, 5)}, {}),
                ({"i": [0, 3, 1, 2, 2], "y": [0, 2, 5], "w": (4, 5)}, {"include_last_offset": True, "padding_idx": 2}),
            ]
        )
    },
    "embedding_bag weights": FunctionCase(
        lambda F, t: F.embedding_bag(t.i, t.w, t.y, mode="sum", per_sample_weights=t.s),
        {"i": [0, 3, 1, 2, 2], "y": [0, 2, 5], "w": (4, 5), "s": (5,)},
    ),
    **{
        name: case
        for reduction in ("mean", "sum", "none")
        for name, case in {
            **calls("margin_ranking_loss", {"x": (4,), "z": (4,), "y": SIGNS}, {"margin": 0.3, "reduction": reduction}),
            **calls("hinge_embedding_loss", {"x": (4,), "y": SIGNS}, {"margin": 0.7, "reduction": reduction}),
            **calls("soft_margin_loss", {"x": (4,), "y": SIGNS}, {"reduction": reduction}),
            **calls(
                "cosine_embedding_loss", {"x": (4, 3), "z": (4, 3), "y": SIGNS}, {"margin": 0.2, "reduction": reduction}
            ),
            **calls(
                "triplet_margin_loss",
                {"x": (4, 3), "z": (4, 3), "v": (4, 3)},
                {"reduction": reduction},
                {"margin": 0.5, "p": 1.0, "swap": True, "reduction": reduction},
            ),
            **calls("multi_margin_loss", {"x": (4, 5), "y": LABELS}, {"reduction": reduction}),
            **calls("multilabel_margin_loss", {"x": (4, 5), "y": LISTS}, {"reduction": reduction}),
            **calls("multilabel_soft_margin_loss", {"x": (2, 3), "y": BITS}, {"reduction": reduction}),
            **calls(
                "poisson_nll_loss",
                {"x": np.abs(COUNTS - 1.5), "y": COUNTS},
                {"reduction": reduction},
                {"log_input": False, "full": True, "reduction": reduction},
            ),
            **calls(
                "gaussian_nll_loss",
                {"x": (2, 3), "z": (2, 3), "v": VARIANCES},
                {"reduction": reduction},
                {"full": True, "eps": 0.2, "reduction": reduction},
            ),
            f"ctc_loss {reduction}": FunctionCase(
                lambda F, t, reduction=reduction: F.ctc_loss(
                    F.log_softmax(t.x, -1), t.y, (6, 5, 3), (3, 0, 2), reduction=reduction
                ),
                {"x": (6, 3, 5), "y": [[1, 2, 2], [4, 4, 4], [3, 1, 0]]},
            ),
        }.items()
    },
    "multi_margin_loss weight": FunctionCase(
        lambda F, t: F.multi_margin_loss(t.x, t.y, 2, 0.7, t.c), {"x": (4, 5), "y": LABELS, "c": (5,)}
    ),
    "multilabel_soft_margin_loss weight": FunctionCase(
        lambda F, t: F.multilabel_soft_margin_loss(t.x, t.y, t.c), {"x": (2, 3), "y": BITS, "c": (3,)}
    ),
    "gaussian_nll_loss one variance": FunctionCase(
        lambda F, t: F.gaussian_nll_loss(t.x, t.z, t.v), {"x": (2, 3), "z": (2, 3), "v": np.ones(2, np.float32) / 3}
    ),
    "ctc_loss joined": FunctionCase(
        lambda F, t: F.ctc_loss(F.log_softmax(t.x, -1), t.y, [5, 5], [3, 1], blank=4, reduction="sum"),
        {"x": (5, 2, 5), "y": [1, 0, 0, 3]},
    ),
    "ctc_loss single": FunctionCase(
        lambda F, t: F.ctc_loss(F.log_softmax(t.x, -1), t.y, (5,), (2,)), {"x": (5, 4), "y": [1, 1]}
    ),
    "ctc_loss impossible": FunctionCase(
        lambda F, t: F.ctc_loss(F.log_softmax(t.x, -1), t.y, (2, 2), (2, 2), zero_infinity=True),
        {"x": (2, 2, 4), "y": [[1, 1], [1, 2]]},
    ),
}


def layers(names: str, inputs: dict[str, Any], *arguments: Any, **options: Any) -> dict[str, ModuleCase]:
    """A case for each module of `names`, made of the same arguments and called with the inputs in order."""
    return {
        f"{name} {', '.join(map(str, (*arguments, *options.items())))}".strip(): ModuleCase(
            lambda nn, name=name: getattr(nn, name)(*arguments, **options),
            inputs,
            lambda module, t: module(*(getattr(t, key) for key in inputs)),
        )
        for name in names.split()
    }


def layers_of(rank: int) -> dict[str, ModuleCase]:
    inputs, widths = {"m": BY_RANK[rank]}, tuple(range(2 * rank))
    found = {
        **{
            name: case
            for mode in ("reflect", "replicate", "circular")
            for name, case in layers(f"Conv{rank}d", inputs, 4, 6, 3, padding=2, groups=2, padding_mode=mode).items()
        },
        **layers(f"Conv{rank}d", inputs, 4, 2, 4, padding="same", padding_mode="reflect"),
        **layers(f"ConvTranspose{rank}d", inputs, 4, 6, 3, 2, 1, 1, 2, False),
        **layers(f"MaxPool{rank}d AvgPool{rank}d", inputs, 2, 1),
        **layers(f"LPPool{rank}d", inputs, 2, 2),
        **layers(f"AdaptiveAvgPool{rank}d AdaptiveMaxPool{rank}d", inputs, 2),
        **layers(f"ReflectionPad{rank}d ReplicationPad{rank}d CircularPad{rank}d ZeroPad{rank}d", inputs, 1),
        **layers(f"ReplicationPad{rank}d", inputs, widths),
        **layers(f"ConstantPad{rank}d", inputs, widths, 1.5),
        **layers(f"BatchNorm{rank}d InstanceNorm{rank}d", inputs, 4),
        **layers(f"InstanceNorm{rank}d", inputs, 4, affine=True, track_running_stats=True),
        **layers(f"Dropout{rank}d", inputs, 0.0),
    }
    found[f"ConvTranspose{rank}d output_size"] = ModuleCase(
        lambda nn: getattr(nn, f"ConvTranspose{rank}d")(4, 3, 2, 3),
        inputs,
        lambda m, t: m(t.m, output_size=[3 * n - 1 + k for k, n in enumerate(t.m.shape[2:])]),
    )
    found[f"MaxUnpool{rank}d"] = ModuleCase(
        lambda nn: nn.ModuleList(
            [getattr(nn, f"MaxPool{rank}d")(2, return_indices=True), getattr(nn, f"MaxUnpool{rank}d")(2)]
        ),
        inputs,
        lambda m, t: m[1](*m[0](t.m), t.m.shape),
    )
    return found


MODULES: dict[str, ModuleCase] = {
    **{name: case for rank in BY_RANK for name, case in layers_of(rank).items()},
    "InstanceNorm2d eval": ModuleCase(
        lambda nn: nn.InstanceNorm2d(4, track_running_stats=True), {"x": IMAGE}, train=False
    ),
    **layers("InstanceNorm1d", {"m": (4, 5)}, 4, affine=True),
    **{
        f"{layer} {how} {train} {options}": ModuleCase(
            lambda nn, how=how, layer=layer, arguments=arguments, options=options: getattr(nn.utils, how)(
                getattr(nn, layer)(*arguments), **options
            ),
            {"x": x},
            train=train,
        )
        for layer, arguments, x in (
            ("Linear", (5, 4), (3, 5)),
            ("Conv2d", (4, 3, 2), IMAGE),
            ("ConvTranspose2d", (4, 3, 2), IMAGE),
        )
        for how, train, options in (
            ("weight_norm", True, {}),
            ("weight_norm", True, {"dim": None}),
            ("spectral_norm", True, {}),
            ("spectral_norm", False, {"n_power_iterations": 2}),
        )
    },
    **{
        f"MultiheadAttention {options}": ModuleCase(
            lambda nn, options=options: nn.MultiheadAttention(8, 2, batch_first=True, **options),
            {
                "x": (2, 4, 8),
                "z": (2, 3, options.get("kdim", 8)),
                "v": (2, 3, options.get("vdim", 8)),
                "p": PADDED,
                "m": CAUSAL[:, :3],
            },
            lambda m, t: m(t.x, t.z, t.v, key_padding_mask=t.p, attn_mask=t.m)[0],
        )
        for options in ({"kdim": 5, "vdim": 6}, {"add_bias_kv": True, "add_zero_attn": True})
    },
    **{
        f"TransformerDecoderLayer {first}": ModuleCase(
            lambda nn, first=first: nn.TransformerDecoderLayer(
                8, 2, 12, 0.0, "gelu" if first else "relu", norm_first=first, batch_first=first
            ),
            {"x": (4, 3, 8), "z": memory, "m": CAUSAL[:n, :n]},
            lambda m, t: m(t.x, t.z, tgt_mask=t.m, tgt_is_causal=True),
        )
        for first, memory, n in ((False, (5, 3, 8), 4), (True, (4, 5, 8), 3))
    },
    "TransformerEncoder": ModuleCase(
        lambda nn: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), 2, nn.LayerNorm(8), enable_nested_tensor=False
        ),
        {"x": (2, 4, 8), "p": np.asarray([[False] * 4, [False] * 3 + [True]])},
        lambda m, t: m(t.x, src_key_padding_mask=t.p),
    ),
    "Transformer": ModuleCase(
        lambda nn: nn.Transformer(8, 2, 1, 2, 12, 0.0, bias=False),
        {"x": (5, 2, 8), "z": (4, 2, 8), "m": CAUSAL},
        lambda m, t: m(t.x, t.z, tgt_mask=t.m),
    ),
    **layers("BatchNorm2d InstanceNorm2d GroupNorm", {"m": IMAGE}, 4, 4, affine=True, bias=False),
    **layers("LocalResponseNorm", {"m": IMAGE}, 3, alpha=0.2),
    **layers("ReLU ReLU6 SiLU Mish SELU CELU Hardsigmoid Hardswish LogSigmoid Softsign Tanhshrink", {"m": EDGES}),
    **layers("Hardtanh Hardshrink Softshrink", {"m": EDGES}),
    **layers("LeakyReLU ELU", {"m": EDGES}, 0.3),
    **layers("Threshold", {"m": EDGES}, 0.4, 3.0),
    **layers("GLU", {"m": (3, 4)}),
    **layers("Softmin", {"m": (3, 4)}, dim=-1),
    **layers("Softmax2d", {"m": IMAGE}),
    **layers("PReLU", {"m": IMAGE}, 4),
    "RReLU": ModuleCase(lambda nn: nn.RReLU(0.1, 0.5), {"x": EDGES}, train=False),
    **layers("AlphaDropout FeatureAlphaDropout", {"m": (3, 4)}, 0.0),
    **layers("Bilinear", {"m": (3, 4), "p": (3, 2)}, 4, 2, 5),
    **layers("EmbeddingBag", {"y": [[0, 1], [2, 2]]}, 4, 3, mode="sum"),
    **layers("EmbeddingBag", {"y": [0, 1, 3, 2], "i": [0, 3]}, 4, 3, mode="max", padding_idx=3),
    **layers("Unfold", {"m": IMAGE}, 2),
    **layers("Fold", {"m": (2, 12, 12)}, (5, 4), 2),
    **layers("Upsample UpsamplingNearest2d UpsamplingBilinear2d", {"m": IMAGE}, scale_factor=2),
    **layers("PixelShuffle", {"m": (1, 8, 2, 3)}, 2),
    **layers("PixelUnshuffle", {"m": (1, 2, 2, 4)}, 2),
    **layers("ChannelShuffle", {"m": (2, 6, 2)}, 2),
    **layers("CosineSimilarity PairwiseDistance", {"m": (3, 4), "p": (3, 4)}),
    **layers("Unflatten", {"m": (3, 4, 2)}, 1, (2, 2)),
    **layers("MarginRankingLoss", {"m": (4,), "p": (4,), "y": SIGNS}, 0.2),
    **layers("HingeEmbeddingLoss SoftMarginLoss", {"m": (4,), "y": SIGNS}),
    **layers("CosineEmbeddingLoss", {"m": (4, 3), "p": (4, 3), "y": SIGNS}, 0.2),
    **layers("MultiMarginLoss", {"m": (4, 5), "y": LABELS}, 2, 0.6),
    **layers("MultiLabelMarginLoss", {"m": (4, 5), "y": LISTS}),
    **layers("MultiLabelSoftMarginLoss", {"m": (2, 3), "y": BITS}),
    **layers("TripletMarginLoss TripletMarginWithDistanceLoss", {"m": (4, 3), "p": (4, 3), "c": (4, 3)}, swap=True),
    **layers("PoissonNLLLoss", {"m": (2, 3), "y": COUNTS}, full=True),
    **layers("GaussianNLLLoss", {"m": (2, 3), "p": (2, 3), "v": VARIANCES}),
    "CTCLoss": ModuleCase(
        lambda nn: nn.CTCLoss(), {"m": (6, 2, 5), "y": [[1, 2, 2], [4, 4, 4]]}, lambda m, t: m(t.m, t.y, (6, 5), (3, 1))
    ),
}


def record() -> None:
    """Run every case on PyTorch."""
    import torch

    values: dict[str, np.ndarray] = {}
    keys: dict[str, Any] = {}
    record_functions(FUNCTIONS, values)
    record_modules(MODULES, values, keys)
    store(RECORDED, values, {"torch": torch.__version__, "keys": keys})
    print(f"{len(values)} values of PyTorch {torch.__version__}, {RECORDED.stat().st_size} bytes")


if __name__ == "__main__":
    record()
