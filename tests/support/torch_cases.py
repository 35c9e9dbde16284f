"""What the library is compared with PyTorch on: one table, run on PyTorch once to record and on hybridml in every test.

A case is a program over a namespace (`torch.nn.functional` and so on, or ours) that is legal in both, because names and
arguments are the same. ``python -m tests.support.torch_cases`` (needs PyTorch) writes the recorded values anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

RECORDED = Path(__file__).with_name("torch_values.npz")

Inputs = dict[str, np.ndarray]


class FunctionCase(NamedTuple):
    run: Callable[[Any, Any], Any]  # (functional namespace, inputs by attribute) -> tensor
    inputs: dict[str, Any]  # name -> shape of normal numbers, or an array


class ModuleCase(NamedTuple):
    make: Callable[[Any], Any]  # nn namespace -> module
    inputs: dict[str, Any]
    call: Callable[[Any, Any], Any] = lambda module, t: module(t.x)
    train: bool = True


class OptimizerCase(NamedTuple):
    make: Callable[[Any, Any], Any]  # (optim namespace, parameters) -> optimizer


class ScheduleCase(NamedTuple):
    make: Callable[[Any, Any], Any]  # (lr_scheduler namespace, optimizer) -> scheduler
    lr: float = 0.5


def rng(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def arrays(name: str, inputs: dict[str, Any]) -> Inputs:
    """The inputs of a case: float32 normal numbers where a shape is given."""
    generator = rng(name)
    return {
        key: generator.normal(size=value).astype(np.float32) if isinstance(value, tuple) else np.asarray(value)
        for key, value in inputs.items()
    }


EDGES = np.asarray([-90.0, -20.0, -6.5, -1.0, -0.25, 0.25, 0.5, 2.9, 3.1, 5.9, 6.5, 30.0, 95.0], np.float32)
LABELS = np.asarray([1, 0, 4, 2])
IGNORED = np.asarray([1, -100, 4, 2])
PIXELS = np.asarray([[[0, 2], [1, 1]], [[2, -100], [0, 1]]])
PROBABILITIES = np.asarray([[0.9, 0.2, 0.5], [0.01, 0.6, 0.999]], np.float32)
BITS = np.asarray([[1.0, 0.0, 1.0], [0.0, 0.3, 1.0]], np.float32)
MASK = np.asarray([[True, False, True], [True, True, True], [True, True, False], [False, True, True]])
SHARES = np.asarray([[0.2, 0.3, 0.5], [0.0, 0.25, 0.75]], np.float32)
# Distinct values: where a window has no ties, the gradient of its maximum is the same in every framework.
IMAGE = (rng("image").permutation(2 * 4 * 9 * 8).reshape(2, 4, 9, 8) / 100 - 2).astype(np.float32)

FUNCTIONS: dict[str, FunctionCase] = {
    **{
        name: FunctionCase(lambda F, t, name=name: getattr(F, name)(t.x), {"x": EDGES})
        for name in ("relu", "relu6", "leaky_relu", "elu", "gelu", "silu", "softplus", "logsigmoid", "sigmoid", "tanh")
    },
    "leaky_relu slope": FunctionCase(lambda F, t: F.leaky_relu(t.x, 0.3), {"x": EDGES}),
    "elu alpha": FunctionCase(lambda F, t: F.elu(t.x, 0.7), {"x": EDGES}),
    "gelu tanh": FunctionCase(lambda F, t: F.gelu(t.x, approximate="tanh"), {"x": EDGES}),
    "softplus beta": FunctionCase(lambda F, t: F.softplus(t.x, 2, 10), {"x": EDGES}),
    "softmax": FunctionCase(lambda F, t: F.softmax(t.x * 30, -1), {"x": (4, 7)}),
    "softmax 0": FunctionCase(lambda F, t: F.softmax(t.x, 0), {"x": (4, 2, 3)}),
    "log_softmax": FunctionCase(lambda F, t: F.log_softmax(t.x * 30, 1), {"x": (4, 7)}),
    "linear": FunctionCase(lambda F, t: F.linear(t.x, t.w, t.b), {"x": (2, 3, 5), "w": (4, 5), "b": (4,)}),
    "linear no bias": FunctionCase(lambda F, t: F.linear(t.x, t.w), {"x": (5,), "w": (4, 5)}),
    "embedding": FunctionCase(lambda F, t: F.embedding(t.i, t.w), {"i": [[0, 3, 3], [1, 0, 2]], "w": (4, 5)}),
    "embedding padding": FunctionCase(
        lambda F, t: F.embedding(t.i, t.w, padding_idx=-1), {"i": [0, 3, 3, 1], "w": (4, 5)}
    ),
    "conv2d": FunctionCase(lambda F, t: F.conv2d(t.x, t.w, t.b), {"x": IMAGE, "w": (3, 4, 3, 2), "b": (3,)}),
    "conv2d stride": FunctionCase(lambda F, t: F.conv2d(t.x, t.w, None, 2, (1, 0)), {"x": IMAGE, "w": (3, 4, 3, 3)}),
    "conv2d dilation": FunctionCase(
        lambda F, t: F.conv2d(t.x, t.w, t.b, stride=(2, 1), padding=2, dilation=(2, 3)),
        {"x": IMAGE, "w": (3, 4, 3, 2), "b": (3,)},
    ),
    "conv2d groups": FunctionCase(
        lambda F, t: F.conv2d(t.x, t.w, t.b, padding=1, groups=2), {"x": IMAGE, "w": (6, 2, 3, 3), "b": (6,)}
    ),
    "conv2d depthwise": FunctionCase(lambda F, t: F.conv2d(t.x, t.w, groups=4), {"x": IMAGE, "w": (4, 1, 2, 2)}),
    "conv2d same": FunctionCase(
        lambda F, t: F.conv2d(t.x, t.w, padding="same", dilation=(1, 2)), {"x": IMAGE, "w": (2, 4, 3, 2)}
    ),
    "conv2d single": FunctionCase(
        lambda F, t: F.conv2d(t.x, t.w, padding="valid"), {"x": (2, 5, 5), "w": (3, 2, 3, 3)}
    ),
    "conv2d strided groups": FunctionCase(
        lambda F, t: F.conv2d(t.x, t.w, t.b, (2, 3), (1, 2), groups=2), {"x": IMAGE, "w": (4, 2, 3, 4), "b": (4,)}
    ),
    "conv2d 1x1": FunctionCase(lambda F, t: F.conv2d(t.x, t.w, stride=2), {"x": IMAGE, "w": (6, 4, 1, 1)}),
    "conv1d": FunctionCase(
        lambda F, t: F.conv1d(t.x, t.w, t.b, 2, 1, 2, 2), {"x": (2, 4, 11), "w": (6, 2, 3), "b": (6,)}
    ),
    "conv1d same": FunctionCase(lambda F, t: F.conv1d(t.x, t.w, padding="same"), {"x": (4, 7), "w": (3, 4, 4)}),
    "conv_transpose2d": FunctionCase(
        lambda F, t: F.conv_transpose2d(t.x, t.w, t.b, 2, 1, 1), {"x": IMAGE, "w": (4, 3, 3, 3), "b": (3,)}
    ),
    "conv_transpose2d groups": FunctionCase(
        lambda F, t: F.conv_transpose2d(t.x, t.w, None, (1, 3), (0, 2), (0, 1), 2, (2, 1)),
        {"x": IMAGE, "w": (4, 3, 2, 4)},
    ),
    "max_pool2d": FunctionCase(lambda F, t: F.max_pool2d(t.x, 2), {"x": IMAGE}),
    "max_pool2d overlap": FunctionCase(lambda F, t: F.max_pool2d(t.x, 3, 2, 1), {"x": IMAGE}),
    "max_pool2d dilation": FunctionCase(lambda F, t: F.max_pool2d(t.x, (2, 3), 1, 1, (2, 1)), {"x": IMAGE}),
    "max_pool2d ceil": FunctionCase(lambda F, t: F.max_pool2d(t.x, 2, ceil_mode=True), {"x": IMAGE}),
    "avg_pool2d": FunctionCase(lambda F, t: F.avg_pool2d(t.x, (2, 3)), {"x": IMAGE}),
    "avg_pool2d padding": FunctionCase(lambda F, t: F.avg_pool2d(t.x, 3, 2, 1), {"x": IMAGE}),
    "avg_pool2d inner": FunctionCase(lambda F, t: F.avg_pool2d(t.x, 3, 2, 1, count_include_pad=False), {"x": IMAGE}),
    "avg_pool2d ceil": FunctionCase(lambda F, t: F.avg_pool2d(t.x, 3, 2, 1, True), {"x": IMAGE}),
    "avg_pool2d ceil inner": FunctionCase(lambda F, t: F.avg_pool2d(t.x, (2, 3), 2, 1, True, False), {"x": IMAGE}),
    "adaptive_avg_pool2d": FunctionCase(lambda F, t: F.adaptive_avg_pool2d(t.x, (3, 3)), {"x": IMAGE}),
    "adaptive_avg_pool2d 1": FunctionCase(lambda F, t: F.adaptive_avg_pool2d(t.x, 1), {"x": IMAGE}),
    "batch_norm": FunctionCase(
        lambda F, t: F.batch_norm(t.x, None, None, t.w, t.b, training=True), {"x": (4, 3, 2), "w": (3,), "b": (3,)}
    ),
    "batch_norm eval": FunctionCase(
        lambda F, t: F.batch_norm(t.x, t.m, t.var, t.w, t.b),
        {"x": (4, 3), "m": (3,), "var": np.asarray([0.5, 1, 2], np.float32), "w": (3,), "b": (3,)},
    ),
    "layer_norm": FunctionCase(
        lambda F, t: F.layer_norm(t.x, (3, 5), t.w, t.b), {"x": (2, 3, 5), "w": (3, 5), "b": (3, 5)}
    ),
    "layer_norm plain": FunctionCase(lambda F, t: F.layer_norm(t.x, (5,), eps=0.1), {"x": (2, 3, 5)}),
    "rms_norm": FunctionCase(lambda F, t: F.rms_norm(t.x, (5,), t.w), {"x": (2, 3, 5), "w": (5,)}),
    "group_norm": FunctionCase(lambda F, t: F.group_norm(t.x, 2, t.w, t.b), {"x": (2, 4, 3), "w": (4,), "b": (4,)}),
    "attention": FunctionCase(
        lambda F, t: F.scaled_dot_product_attention(t.q, t.k, t.v), {"q": (2, 4, 6), "k": (2, 3, 6), "v": (2, 3, 5)}
    ),
    "attention causal": FunctionCase(
        lambda F, t: F.scaled_dot_product_attention(t.q, t.k, t.v, is_causal=True, scale=0.3),
        {"q": (2, 2, 4, 6), "k": (2, 2, 4, 6), "v": (2, 2, 4, 6)},
    ),
    "attention bool": FunctionCase(
        lambda F, t: F.scaled_dot_product_attention(t.q, t.k, t.v, t.m),
        {"q": (2, 4, 6), "k": (2, 3, 6), "v": (2, 3, 5), "m": MASK},
    ),
    "attention added": FunctionCase(
        lambda F, t: F.scaled_dot_product_attention(t.q, t.k, t.v, attn_mask=t.m),
        {"q": (2, 4, 6), "k": (2, 3, 6), "v": (2, 3, 5), "m": (4, 3)},
    ),
    **{
        f"cross_entropy {reduction} {number}": FunctionCase(
            lambda F, t, reduction=reduction, options=options: F.cross_entropy(
                t.x * 5, t.y, reduction=reduction, **options
            ),
            {"x": (4, 5), "y": labels},
        )
        for reduction in ("mean", "sum", "none")
        for number, (labels, options) in enumerate(
            [(LABELS, {}), (IGNORED, {}), (LABELS, {"label_smoothing": 0.1}), (IGNORED, {"label_smoothing": 0.2})]
        )
    },
    "cross_entropy weight": FunctionCase(
        lambda F, t: F.cross_entropy(t.x, t.y, t.c, label_smoothing=0.1),
        {"x": (4, 5), "y": IGNORED, "c": np.asarray([0.5, 1, 2, 3, 0.1], np.float32)},
    ),
    "cross_entropy pixels": FunctionCase(lambda F, t: F.cross_entropy(t.x, t.y), {"x": (2, 3, 2, 2), "y": PIXELS}),
    "cross_entropy probabilities": FunctionCase(
        lambda F, t: F.cross_entropy(t.x, t.y, label_smoothing=0.1), {"x": (2, 3), "y": SHARES}
    ),
    "cross_entropy one": FunctionCase(lambda F, t: F.cross_entropy(t.x, t.y), {"x": (5,), "y": 3}),
    "nll_loss": FunctionCase(lambda F, t: F.nll_loss(t.x, t.y, t.c), {"x": (4, 5), "y": IGNORED, "c": (5,)}),
    **{
        f"{name} {reduction}": FunctionCase(
            lambda F, t, name=name, reduction=reduction: getattr(F, name)(t.x, t.y, reduction=reduction),
            {"x": (3, 4), "y": (3, 4)},
        )
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
        for reduction in ("mean", "sum", "none")
    },
    "smooth_l1_loss beta": FunctionCase(lambda F, t: F.smooth_l1_loss(t.x, t.y, beta=0.3), {"x": (3, 4), "y": (3, 4)}),
    "huber_loss delta": FunctionCase(lambda F, t: F.huber_loss(t.x, t.y, delta=0.3), {"x": (3, 4), "y": (3, 4)}),
    "binary_cross_entropy": FunctionCase(
        lambda F, t: F.binary_cross_entropy(t.x, t.y), {"x": PROBABILITIES, "y": BITS}
    ),
    "binary_cross_entropy_with_logits": FunctionCase(
        lambda F, t: F.binary_cross_entropy_with_logits(t.x * 40, t.y), {"x": (2, 3), "y": BITS}
    ),
    "binary_cross_entropy_with_logits weights": FunctionCase(
        lambda F, t: F.binary_cross_entropy_with_logits(t.x, t.y, t.c, pos_weight=t.p),
        {"x": (2, 3), "y": BITS, "c": (3,), "p": np.asarray([1.0, 2.0, 0.5], np.float32)},
    ),
    "kl_div": FunctionCase(lambda F, t: F.kl_div(t.x, t.y, reduction="batchmean"), {"x": (2, 3), "y": SHARES}),
    "kl_div log": FunctionCase(
        lambda F, t: F.kl_div(t.x, t.y, reduction="sum", log_target=True), {"x": (2, 3), "y": (2, 3)}
    ),
}

ENCODER = {"d_model": 8, "nhead": 2, "dim_feedforward": 12, "dropout": 0.0}
# Of a target class only the input is differentiated: the derivative by a hard target is not part of the interface.
CONSTANT = {"y", "m", "i", "p", "c", "var"}


def states(output: Any, final: Any, steps: int = 0) -> Any:
    """One tensor of all that a recurrent layer gives; axis `steps` of its output counts the steps."""
    found = output.sum(steps)
    for k, parts in enumerate(final if isinstance(final, tuple) else (final,), 2):
        for j, part in enumerate(parts, 1):
            found = found + (part * (k * j)).sum()
    return found


MODULES: dict[str, ModuleCase] = {
    "Linear": ModuleCase(lambda nn: nn.Linear(5, 4), {"x": (3, 5)}),
    "Linear no bias": ModuleCase(lambda nn: nn.Linear(5, 4, bias=False), {"x": (3, 5)}),
    "Embedding": ModuleCase(lambda nn: nn.Embedding(5, 3), {"x": [[1, 2], [4, 1]]}),
    "Conv2d": ModuleCase(lambda nn: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), {"x": IMAGE}),
    "BatchNorm1d": ModuleCase(lambda nn: nn.BatchNorm1d(3), {"x": (6, 3)}),
    "BatchNorm2d": ModuleCase(lambda nn: nn.BatchNorm2d(4, momentum=0.3), {"x": IMAGE}),
    "BatchNorm2d average": ModuleCase(lambda nn: nn.BatchNorm2d(4, momentum=None), {"x": IMAGE}),
    "BatchNorm2d eval": ModuleCase(lambda nn: nn.BatchNorm2d(4), {"x": IMAGE}, train=False),
    "BatchNorm2d plain": ModuleCase(
        lambda nn: nn.BatchNorm2d(4, affine=False, track_running_stats=False), {"x": IMAGE}, train=False
    ),
    "LayerNorm": ModuleCase(lambda nn: nn.LayerNorm(5), {"x": (2, 3, 5)}),
    "LayerNorm no bias": ModuleCase(lambda nn: nn.LayerNorm((3, 5), bias=False), {"x": (2, 3, 5)}),
    "RMSNorm": ModuleCase(lambda nn: nn.RMSNorm(5), {"x": (2, 3, 5)}),
    "GroupNorm": ModuleCase(lambda nn: nn.GroupNorm(2, 4), {"x": IMAGE}),
    "Sequential": ModuleCase(
        lambda nn: nn.Sequential(
            nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 2)
        ),
        {"x": IMAGE},
    ),
    "activations": ModuleCase(
        lambda nn: nn.Sequential(
            nn.ReLU(),
            nn.GELU("tanh"),
            nn.SiLU(),
            nn.LeakyReLU(0.2),
            nn.ELU(),
            nn.Sigmoid(),
            nn.Tanh(),
            nn.Softplus(),
            nn.ReLU6(),
            nn.LogSoftmax(-1),
            nn.Softmax(dim=0),
            nn.Dropout(0.0),
            nn.Identity(),
        ),
        {"x": (3, 5)},
    ),
    "Conv1d": ModuleCase(lambda nn: nn.Conv1d(4, 6, 3, padding="same", groups=2), {"x": (2, 4, 9)}),
    "ConvTranspose2d": ModuleCase(lambda nn: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), {"x": IMAGE}),
    "pools": ModuleCase(
        lambda nn: nn.Sequential(nn.AvgPool2d(2, 1), nn.MaxPool2d(3, 1, 1), nn.AdaptiveAvgPool2d((None, 2))),
        {"x": IMAGE},
    ),
    "LSTM": ModuleCase(lambda nn: nn.LSTM(3, 5), {"x": (4, 2, 3)}, lambda m, t: states(*m(t.x))),
    "LSTM from": ModuleCase(
        lambda nn: nn.LSTM(3, 5, bias=False, batch_first=True),
        {"x": (2, 4, 3), "h": (1, 2, 5), "c": (1, 2, 5)},
        lambda m, t: states(*m(t.x, (t.h, t.c)), steps=1),
    ),
    "LSTM deep": ModuleCase(
        lambda nn: nn.LSTM(3, 4, 2, bidirectional=True), {"x": (5, 2, 3)}, lambda m, t: states(*m(t.x))
    ),
    "LSTM single": ModuleCase(lambda nn: nn.LSTM(3, 5), {"x": (4, 3)}, lambda m, t: states(*m(t.x))),
    "LSTMCell": ModuleCase(
        lambda nn: nn.LSTMCell(3, 5),
        {"x": (2, 3), "h": (2, 5), "c": (2, 5)},
        lambda m, t: m(t.x, m(t.x, (t.h, t.c)))[1] + m(t.x)[0],
    ),
    "GRU": ModuleCase(lambda nn: nn.GRU(3, 5), {"x": (4, 2, 3)}, lambda m, t: states(*m(t.x))),
    "GRU from": ModuleCase(
        lambda nn: nn.GRU(3, 5, bias=False), {"x": (4, 2, 3), "h": (1, 2, 5)}, lambda m, t: states(*m(t.x, t.h))
    ),
    "GRU deep": ModuleCase(
        lambda nn: nn.GRU(3, 4, 2, batch_first=True, bidirectional=True),
        {"x": (2, 5, 3)},
        lambda m, t: states(*m(t.x), steps=1),
    ),
    "GRUCell": ModuleCase(
        lambda nn: nn.GRUCell(3, 5), {"x": (2, 3), "h": (2, 5)}, lambda m, t: m(t.x, m(t.x, t.h)) + m(t.x[0])
    ),
    "MultiheadAttention": ModuleCase(
        lambda nn: nn.MultiheadAttention(8, 2), {"x": (5, 3, 8)}, lambda m, t: m(t.x, t.x, t.x)[0]
    ),
    "MultiheadAttention weights": ModuleCase(
        lambda nn: nn.MultiheadAttention(8, 2, bias=False, batch_first=True),
        {"x": (3, 5, 8), "z": (3, 4, 8)},
        lambda m, t: m(t.x, t.z, t.z * 2)[1],
    ),
    "MultiheadAttention masks": ModuleCase(
        lambda nn: nn.MultiheadAttention(8, 2, batch_first=True),
        {"x": (2, 4, 8), "m": np.triu(np.ones((4, 4), bool), 1), "p": np.asarray([[False] * 4, [False] * 3 + [True]])},
        lambda m, t: m(t.x, t.x, t.x, key_padding_mask=t.p, need_weights=False, attn_mask=t.m)[0],
    ),
    "MultiheadAttention single": ModuleCase(
        lambda nn: nn.MultiheadAttention(8, 2),
        {"x": (5, 8)},
        lambda m, t: m(t.x, t.x, t.x, average_attn_weights=False)[1],
    ),
    "TransformerEncoderLayer": ModuleCase(lambda nn: nn.TransformerEncoderLayer(**ENCODER), {"x": (4, 3, 8)}),
    "TransformerEncoderLayer first": ModuleCase(
        lambda nn: nn.TransformerEncoderLayer(**ENCODER, activation="gelu", batch_first=True, norm_first=True),
        {"x": (3, 4, 8), "m": np.triu(np.ones((4, 4), bool), 1)},
        lambda m, t: m(t.x, src_mask=t.m, is_causal=True),
    ),
    "TransformerEncoderLayer no bias": ModuleCase(
        lambda nn: nn.TransformerEncoderLayer(**ENCODER, bias=False), {"x": (4, 3, 8)}
    ),
    "CrossEntropyLoss": ModuleCase(
        lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1), {"x": (4, 5), "y": LABELS}, lambda m, t: m(t.x, t.y)
    ),
    **{
        name: ModuleCase(
            lambda nn, name=name: getattr(nn, name)(), {"x": PROBABILITIES, "y": BITS}, lambda m, t: m(t.x, t.y)
        )
        for name in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss")
    },
    "NLLLoss": ModuleCase(lambda nn: nn.NLLLoss(), {"x": (4, 5), "y": LABELS}, lambda m, t: m(t.x, t.y)),
    "KLDivLoss": ModuleCase(
        lambda nn: nn.KLDivLoss(reduction="batchmean"), {"x": (2, 3), "y": SHARES}, lambda m, t: m(t.x, t.y)
    ),
}

OPTIMIZERS: dict[str, OptimizerCase] = {
    "SGD": OptimizerCase(lambda optim, p: optim.SGD(p, lr=0.1)),
    "SGD momentum": OptimizerCase(lambda optim, p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01)),
    "SGD dampening": OptimizerCase(lambda optim, p: optim.SGD(p, 0.1, 0.9, 0.3)),
    "SGD nesterov": OptimizerCase(lambda optim, p: optim.SGD(p, 0.1, 0.8, nesterov=True, maximize=True)),
    "Adam": OptimizerCase(lambda optim, p: optim.Adam(p)),
    "Adam settings": OptimizerCase(lambda optim, p: optim.Adam(p, 0.1, (0.8, 0.95), 1e-4, 0.05, amsgrad=True)),
    "AdamW": OptimizerCase(lambda optim, p: optim.AdamW(p, lr=0.05)),
    "AdamW settings": OptimizerCase(
        lambda optim, p: optim.AdamW(p, 0.1, weight_decay=0.3, amsgrad=True, maximize=True)
    ),
    "RMSprop": OptimizerCase(lambda optim, p: optim.RMSprop(p)),
    "RMSprop settings": OptimizerCase(
        lambda optim, p: optim.RMSprop(p, 0.02, 0.9, 1e-5, 0.1, momentum=0.5, centered=True)
    ),
    "groups": OptimizerCase(lambda optim, p: optim.AdamW([{"params": p[:1], "lr": 0.2}, {"params": p[1:]}], lr=0.01)),
}
SHAPES = ((3, 4), (4,), ())
STEPS = 6
SKIPPED = {2: 1}  # at step 2 parameter 1 has no gradient: its own step count must not move

SCHEDULES: dict[str, ScheduleCase] = {
    "StepLR": ScheduleCase(lambda s, o: s.StepLR(o, 3, gamma=0.5)),
    "MultiStepLR": ScheduleCase(lambda s, o: s.MultiStepLR(o, [2, 5], gamma=0.3)),
    "ExponentialLR": ScheduleCase(lambda s, o: s.ExponentialLR(o, 0.9)),
    "CosineAnnealingLR": ScheduleCase(lambda s, o: s.CosineAnnealingLR(o, 8, 0.05)),
    "LinearLR": ScheduleCase(lambda s, o: s.LinearLR(o, 0.25, total_iters=4)),
    "LambdaLR": ScheduleCase(lambda s, o: s.LambdaLR(o, lambda epoch: 1 / (1 + epoch))),
    "OneCycleLR": ScheduleCase(lambda s, o: s.OneCycleLR(o, max_lr=0.8, total_steps=10)),
}
EPOCHS = 9


def cotangent(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return rng(name + " cotangent").normal(size=shape).astype(np.float32)


def state(name: str, keys: dict[str, tuple[int, ...]]) -> Inputs:
    """Values for a module's state: small normal numbers, variances positive, counters 0."""
    generator = rng(name + " state")
    found = {}
    for key, shape in keys.items():
        values = generator.normal(size=shape).astype(np.float32)
        found[key] = (
            np.zeros((), np.int64) if key.endswith("tracked") else np.abs(values) if "var" in key else values * 0.5
        )
    return found


def gradients(name: str) -> list[list[np.ndarray | None]]:
    """A gradient a parameter and step; None where the parameter had none."""
    generator = rng(name + " gradients")
    drawn = [[generator.normal(size=shape).astype(np.float32) for shape in SHAPES] for _ in range(STEPS)]
    return [[None if SKIPPED.get(t) == k else g for k, g in enumerate(row)] for t, row in enumerate(drawn)]


def store(path: Path, values: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
    """One array a dtype and an index as JSON: hundreds of zip entries would be mostly overhead."""
    index: dict[str, Any] = {}
    joined: dict[str, list[np.ndarray]] = {}
    for name, value in values.items():
        kind = value.dtype.name
        parts = joined.setdefault(kind, [])
        index[name] = [kind, sum(part.size for part in parts), list(value.shape)]
        parts.append(value.ravel())
    arrays: dict[str, Any] = {kind: np.concatenate(parts) for kind, parts in joined.items()}
    np.savez_compressed(path, index=np.asarray(json.dumps({**notes, "values": index})), **arrays)


class Recorded(dict[str, Any]):
    """Recorded values by name; of a case that is not there it says how it is recorded."""

    def __missing__(self, name: str) -> Any:
        raise LookupError(
            f"{name!r} is not recorded yet: run the module of its case (`python -m tests...`) with PyTorch"
        )


def recorded(path: Path = RECORDED) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(PyTorch's values by name, the state-dict keys of each module and optimizer)."""
    with np.load(path) as file:
        notes = json.loads(str(file["index"]))
        joined = {kind: file[kind] for kind in file.files if kind != "index"}
    index = notes["values"].items()
    values = {name: joined[kind][at : at + math.prod(shape)].reshape(shape) for name, (kind, at, shape) in index}
    return Recorded(values), Recorded(notes["keys"])


def torch_inputs(name: str, inputs: dict[str, Any], kind: str = "float32") -> Any:
    import torch

    floats = getattr(torch, kind)
    found = {key: torch.tensor(array) for key, array in arrays(name, inputs).items()}
    found = {key: tensor.to(floats) if tensor.is_floating_point() else tensor for key, tensor in found.items()}
    for key, tensor in found.items():
        tensor.requires_grad_(tensor.is_floating_point() and key not in CONSTANT)
    return SimpleNamespace(**found)


def keep(values: dict[str, np.ndarray], name: str, out: Any, tensors: dict[str, Any]) -> None:
    import torch

    values[f"{name}|out"] = single(out.detach().numpy())
    if out.requires_grad:
        (out * torch.tensor(cotangent(name, tuple(out.shape)))).sum().backward()
    for key, tensor in tensors.items():
        if tensor.grad is not None:
            values[f"{name}|grad {key}"] = single(tensor.grad.numpy())


def single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def record_functions(cases: dict[str, FunctionCase], values: dict[str, np.ndarray]) -> None:
    """Run them on PyTorch."""
    import torch

    for name, case in cases.items():
        t = torch_inputs(name, case.inputs)
        keep(values, f"F {name}", case.run(torch.nn.functional, t), vars(t))


def record_modules(cases: dict[str, ModuleCase], values: dict[str, np.ndarray], keys: dict[str, Any]) -> None:
    """Run them on PyTorch, with a state that `state` draws; `keys` gets the shapes of their state dicts.

    In float64: gradients of a Transformer in float32 are as far from these as our own may be.
    """
    import torch

    for name, case in cases.items():
        t, module = torch_inputs(name, case.inputs, "float64"), case.make(torch.nn).train(case.train).double()
        shapes = {key: tuple(tensor.shape) for key, tensor in module.state_dict().items()}
        keys[name] = shapes
        module.load_state_dict({key: torch.tensor(array) for key, array in state(name, shapes).items()})
        keep(values, f"M {name}", case.call(module, t), {**vars(t), **dict(module.named_parameters())})
        for key, buffer in module.named_buffers():
            values[f"M {name}|after {key}"] = single(buffer.numpy())


def record() -> None:
    """Run every case on PyTorch."""
    import torch

    values: dict[str, np.ndarray] = {}
    keys: dict[str, Any] = {}
    record_functions(FUNCTIONS, values)
    record_modules(MODULES, values, keys)
    for name, optimizer_case in OPTIMIZERS.items():
        params = [torch.tensor(array, requires_grad=True) for array in start(name)]
        optimizer = optimizer_case.make(torch.optim, params)
        for row in gradients(name):
            for parameter, gradient in zip(params, row, strict=True):
                parameter.grad = None if gradient is None else torch.tensor(gradient)
            optimizer.step()
        for k, parameter in enumerate(params):
            values[f"O {name}|{k}"] = parameter.detach().numpy()
        keys[f"O {name}"] = {str(k): sorted(v) for k, v in optimizer.state_dict()["state"].items()}
    for name, schedule_case in SCHEDULES.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=schedule_case.lr)
        scheduler = schedule_case.make(torch.optim.lr_scheduler, optimizer)
        rates = [optimizer.param_groups[0]["lr"]]
        for _ in range(EPOCHS):
            optimizer.step()
            scheduler.step()
            rates.append(optimizer.param_groups[0]["lr"])
        values[f"S {name}"] = np.asarray(rates)
    store(RECORDED, values, {"torch": torch.__version__, "keys": keys})
    print(f"{len(values)} values of PyTorch {torch.__version__}, {RECORDED.stat().st_size} bytes")


def start(name: str) -> list[np.ndarray]:
    generator = rng(name + " start")
    return [generator.normal(size=shape).astype(np.float32) for shape in SHAPES]


if __name__ == "__main__":
    record()
