"""Networks of images: functions of weights, options of the architecture and inputs; their losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .layers import Pair, Weights, attention, cross_entropy

_VGG = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}


def max_pool(x: jax.Array, size: int, stride: int, padding: int = 0) -> jax.Array:
    edges = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, size, size), (1, 1, stride, stride), edges)


def mean_pool(x: jax.Array, size: int) -> jax.Array:
    """Adaptive mean pooling to (size, size), whose windows are those of PyTorch."""

    def weights(n: int) -> jax.Array:
        rows = [(k * n // size, -(-(k + 1) * n // size)) for k in range(size)]
        return jnp.array([[(a <= j < b) / (b - a) for j in range(n)] for a, b in rows], x.dtype)

    if x.shape[2:] == (size, size):
        return x
    return jnp.einsum("nchw,ph,qw->ncpq", x, weights(x.shape[2]), weights(x.shape[3]))


def _window_mean(x: jax.Array, size: int, stride: int, padding: int = 0) -> jax.Array:
    edges = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1, size, size), (1, 1, stride, stride), edges) / size**2


def resnet(layers: tuple[int, ...], bottleneck: bool, w: Weights, options: dict[str, Any], x: jax.Array) -> jax.Array:
    relu = jax.nn.relu

    def block(name: str, x: jax.Array, stride: int) -> jax.Array:
        shapes = ((1, 1), (3, stride), (1, 1)) if bottleneck else ((3, stride), (3, 1))
        y = x
        for k, (size, step) in enumerate(shapes, 1):
            y = w.batch_norm(f"{name}.bn{k}", w.conv(f"{name}.conv{k}", y, step, size // 2))
            y = relu(y) if k < len(shapes) else y
        if f"{name}.downsample.0.weight" in w:
            x = w.batch_norm(f"{name}.downsample.1", w.conv(f"{name}.downsample.0", x, stride))
        return relu(y + x)

    x = max_pool(relu(w.batch_norm("bn1", w.conv("conv1", x, 2, 3))), 3, 2, 1)
    for stage, count in enumerate(layers, 1):
        for k in range(count):
            x = block(f"layer{stage}.{k}", x, 2 if stage > 1 and k == 0 else 1)
    return w.linear("fc", x.mean((2, 3)))


def _classifier(w: Weights, x: jax.Array, places: tuple[int, ...]) -> jax.Array:
    for place in places[:-1]:
        x = jax.nn.relu(w.linear(f"classifier.{place}", x))
    return w.linear(f"classifier.{places[-1]}", x)


def alexnet(w: Weights, options: dict[str, Any], x: jax.Array) -> jax.Array:
    x = max_pool(jax.nn.relu(w.conv("features.0", x, 4, 2)), 3, 2)
    x = max_pool(jax.nn.relu(w.conv("features.3", x, 1, 2)), 3, 2)
    for place in (6, 8, 10):
        x = jax.nn.relu(w.conv(f"features.{place}", x, 1, 1))
    x = mean_pool(max_pool(x, 3, 2), 6)
    return _classifier(w, x.reshape(x.shape[0], -1), (1, 4, 6))


def vgg(layers: tuple[int, ...], w: Weights, options: dict[str, Any], x: jax.Array) -> jax.Array:
    place = 0
    for count in layers:
        for _ in range(count):
            x = jax.nn.relu(w.conv(f"features.{place}", x, 1, 1))
            place += 2
        x = max_pool(x, 2, 2)
        place += 1
    x = mean_pool(x, 7)
    return _classifier(w, x.reshape(x.shape[0], -1), (0, 3, 6))


def mobilenet_v2(w: Weights, options: dict[str, Any], x: jax.Array) -> jax.Array:
    def unit(name: str, x: jax.Array, stride: int) -> jax.Array:
        size = w[f"{name}.0.weight"].shape[-1]
        groups = x.shape[1] if w[f"{name}.0.weight"].shape[1] == 1 else 1
        return jnp.clip(w.batch_norm(f"{name}.1", w.conv(f"{name}.0", x, stride, size // 2, groups)), 0, 6)

    stages = ((1, 1, 1), (6, 2, 2), (6, 3, 2), (6, 4, 2), (6, 3, 1), (6, 3, 2), (6, 1, 1))  # expansion, blocks, stride
    x, at = unit("features.0", x, 2), 1
    for expansion, count, stride in stages:
        for k in range(count):
            name, y = f"features.{at}.conv", x
            wide = int(expansion != 1)
            if wide:
                y = unit(f"{name}.0", y, 1)
            y = unit(f"{name}.{wide}", y, stride if k == 0 else 1)
            y = w.batch_norm(f"{name}.{wide + 2}", w.conv(f"{name}.{wide + 1}", y))
            x = x + y if y.shape == x.shape and (k > 0 or stride == 1) else y
            at += 1
    return w.linear("classifier.1", unit(f"features.{at}", x, 1).mean((2, 3)))


def inception_v3(w: Weights, options: dict[str, Any], x: jax.Array) -> Any:
    def unit(name: str, x: jax.Array, stride: int = 1, padding: int | Pair = 0) -> jax.Array:
        return jax.nn.relu(w.batch_norm(f"{name}.bn", w.conv(f"{name}.conv", x, stride, padding), 1e-3))

    def chain(name: str, x: jax.Array, *parts: tuple[str, int, int | Pair]) -> jax.Array:
        for part, stride, padding in parts:
            x = unit(f"{name}.{part}", x, stride, padding)
        return x

    def joined(*parts: jax.Array) -> jax.Array:
        return jnp.concatenate(parts, 1)

    def pooled(name: str, x: jax.Array) -> jax.Array:
        return unit(f"{name}.branch_pool", _window_mean(x, 3, 1, 1))

    row, column = (0, 3), (3, 0)
    x = unit("Conv2d_2b_3x3", unit("Conv2d_2a_3x3", unit("Conv2d_1a_3x3", x, 2)), 1, 1)
    x = max_pool(unit("Conv2d_4a_3x3", unit("Conv2d_3b_1x1", max_pool(x, 3, 2))), 3, 2)
    double = (("branch3x3dbl_1", 1, 0), ("branch3x3dbl_2", 1, 1))
    for name in ("Mixed_5b", "Mixed_5c", "Mixed_5d"):
        five = chain(name, x, ("branch5x5_1", 1, 0), ("branch5x5_2", 1, 2))
        x = joined(
            unit(f"{name}.branch1x1", x), five, chain(name, x, *double, ("branch3x3dbl_3", 1, 1)), pooled(name, x)
        )
    three = unit("Mixed_6a.branch3x3", x, 2)
    x = joined(three, chain("Mixed_6a", x, *double, ("branch3x3dbl_3", 2, 0)), max_pool(x, 3, 2))
    for name in ("Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"):
        seven = chain(name, x, ("branch7x7_1", 1, 0), ("branch7x7_2", 1, row), ("branch7x7_3", 1, column))
        turns = zip(range(1, 6), (0, column, row, column, row), strict=True)
        twice = chain(name, x, *((f"branch7x7dbl_{k}", 1, padding) for k, padding in turns))
        x = joined(unit(f"{name}.branch1x1", x), seven, twice, pooled(name, x))
    aux = None
    if w.training and "AuxLogits.fc.weight" in w:
        y = unit("AuxLogits.conv1", unit("AuxLogits.conv0", _window_mean(x, 5, 3)))
        aux = w.linear("AuxLogits.fc", y.mean((2, 3)))
    three = chain("Mixed_7a", x, ("branch3x3_1", 1, 0), ("branch3x3_2", 2, 0))
    seven = chain(
        "Mixed_7a", x, ("branch7x7x3_1", 1, 0), ("branch7x7x3_2", 1, row), ("branch7x7x3_3", 1, column),
        ("branch7x7x3_4", 2, 0),
    )  # fmt: skip
    x = joined(three, seven, max_pool(x, 3, 2))
    for name in ("Mixed_7b", "Mixed_7c"):
        starts = {"branch3x3_2": unit(f"{name}.branch3x3_1", x), "branch3x3dbl_3": chain(name, x, *double)}
        ends = [
            unit(f"{name}.{start}{side}", y, 1, padding)
            for start, y in starts.items() for side, padding in (("a", (0, 1)), ("b", (1, 0)))
        ]  # fmt: skip
        x = joined(unit(f"{name}.branch1x1", x), *ends, pooled(name, x))
    logits = w.linear("fc", x.mean((2, 3)))
    return logits if aux is None else (logits, aux)


def vit_b_16(w: Weights, options: dict[str, Any], x: jax.Array) -> jax.Array:
    n, heads = x.shape[0], options.get("num_heads", 12)
    patches = w.conv("conv_proj", x, w["conv_proj.weight"].shape[-1])
    x = patches.reshape(n, patches.shape[1], -1).swapaxes(1, 2)
    token = jnp.broadcast_to(w["class_token"], (n, 1, x.shape[2]))
    x = jnp.concatenate([token, x], 1) + w["encoder.pos_embedding"]
    for k in range(options.get("num_layers", 12)):
        name = f"encoder.layers.encoder_layer_{k}"
        y = w.layer_norm(f"{name}.ln_1", x, 1e-6)
        weight, bias = (w[f"{name}.self_attention.in_proj_{part}"] for part in ("weight", "bias"))
        y = (y @ weight.T + bias).reshape(n, x.shape[1], 3, heads, -1)
        x = x + w.linear(f"{name}.self_attention.out_proj", attention(y[:, :, 0], y[:, :, 1], y[:, :, 2]))
        y = jax.nn.gelu(w.linear(f"{name}.mlp.0", w.layer_norm(f"{name}.ln_2", x, 1e-6)), approximate=False)
        x = x + w.linear(f"{name}.mlp.3", y)
    return w.linear("heads.head", w.layer_norm("encoder.ln", x, 1e-6)[:, 0])


def unet(w: Weights, options: dict[str, Any], x: jax.Array) -> jax.Array:
    def double(name: str, x: jax.Array) -> jax.Array:
        return jax.nn.relu(w.conv(f"{name}.2", jax.nn.relu(w.conv(f"{name}.0", x))))

    def raised(name: str, x: jax.Array) -> jax.Array:
        """Images of twice the size: each pixel becomes four."""
        n, _, height, width = x.shape
        y = jnp.einsum("nihw,ioab->nohawb", x, w[f"{name}.weight"])
        return y.reshape(n, -1, 2 * height, 2 * width) + w[f"{name}.bias"][:, None, None]

    depth = options.get("depth", 4)
    shortcuts = [double("down.0", x)]
    for level in range(1, depth + 1):
        shortcuts.append(double(f"down.{level}", max_pool(shortcuts[-1], 2, 2)))
    x = shortcuts.pop()
    for k in range(depth):
        x, shortcut = raised(f"up.{k}", x), shortcuts.pop()
        top, left = ((a - b) // 2 for a, b in zip(shortcut.shape[2:], x.shape[2:], strict=True))
        middle = shortcut[:, :, top : top + x.shape[2], left : left + x.shape[3]]
        x = double(f"merge.{k}", jnp.concatenate([middle, x], 1))
    return w.conv("head", x)


def classification(logits: jax.Array, images: jax.Array, labels: jax.Array) -> jax.Array:
    return cross_entropy(jnp.moveaxis(logits, 1, -1), labels)  # of images, or of their pixels


def with_auxiliary(outputs: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
    if not isinstance(outputs, tuple):
        return cross_entropy(outputs, labels)
    return cross_entropy(outputs[0], labels) + 0.4 * cross_entropy(outputs[1], labels)


NETWORKS: dict[str, Callable[..., Any]] = {
    "alexnet": alexnet,
    "inception_v3": inception_v3,
    "mobilenet_v2": mobilenet_v2,
    "resnet18": partial(resnet, (2, 2, 2, 2), False),
    "resnet50": partial(resnet, (3, 4, 6, 3), True),
    "unet": unet,
    **{name: partial(vgg, layers) for name, layers in _VGG.items()},
    "vit_b_16": vit_b_16,
}
LOSSES: dict[str, Callable[..., jax.Array]] = {f.__name__: f for f in (classification, with_auxiliary)}
