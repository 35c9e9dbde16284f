"""Larger programs of `benchmarks.eager`, written once for both libraries, whose names are the same.

Each builder gives a training step, and inference under `no_grad`, as those of `eager_models.py`. The arithmetic counts
most here, and the memory that a step takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .eager_models import Calls, calls_of


def _modules(lib: Any, parts: dict[str, Any]) -> Any:
    return lib.nn.ModuleDict(parts)


def mobilenet(lib: Any, F: Any) -> Calls:
    """Inverted residuals with depthwise convolutions (Sandler et al. 2018): 8 images of 96 x 96."""
    nn = lib.nn

    def block(inner: int, outer: int, stride: int) -> Any:
        wide = 4 * inner
        return nn.Sequential(
            nn.Conv2d(inner, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, outer, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip

    sizes = ((16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 96, 1))
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
    blocks = nn.ModuleList([block(*size) for size in sizes])
    net = _modules(lib, {"stem": stem, "blocks": blocks, "head": nn.Linear(96, 100)})
    images, labels = lib.randn(8, 3, 96, 96), lib.randint(0, 100, (8,))

    def out() -> Any:
        x = net["stem"](images)
        for part, (inner, outer, stride) in zip(net["blocks"], sizes, strict=True):
            y = part(x)
            x = x + y if inner == outer and stride == 1 else y
        return net["head"](x.mean((2, 3)))

    return calls_of(lib, net, lambda: F.cross_entropy(out(), labels), lambda: out().argmax(1))


def unet(lib: Any, F: Any) -> Calls:
    """Segmentation with skips and group normalisation (Ronneberger et al. 2015): 4 images of 96 x 96."""
    nn = lib.nn

    def double(inner: int, outer: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(8, outer), nn.SiLU(),
            nn.Conv2d(outer, outer, 3, padding=1), nn.GroupNorm(8, outer), nn.SiLU(),
        )  # fmt: skip

    down = nn.ModuleList([double(3, 16), double(16, 32), double(32, 64)])
    up = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)])
    join = nn.ModuleList([double(64, 32), double(32, 16)])
    net = _modules(lib, {"down": down, "up": up, "join": join, "last": nn.Conv2d(16, 5, 1)})
    images, labels = lib.randn(4, 3, 96, 96), lib.randint(0, 5, (4, 96, 96))

    def out() -> Any:
        x, kept = images, []
        for k, part in enumerate(net["down"]):
            x = part(F.max_pool2d(x, 2) if k else x)
            kept.append(x)
        for grown, joined, skip in zip(net["up"], net["join"], kept[1::-1], strict=True):
            x = joined(lib.cat([skip, grown(x)], 1))
        return net["last"](x)

    return calls_of(lib, net, lambda: F.cross_entropy(out(), labels), lambda: out().argmax(1))


def _encoder(lib: Any, layers: int, width: int) -> Any:
    nn = lib.nn
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def vit(lib: Any, F: Any) -> Calls:
    """A vision transformer (Dosovitskiy et al. 2021): 8 images of 64 x 64 in patches of 8 x 8."""
    nn = lib.nn
    net = _modules(
        lib, {"patch": nn.Conv2d(3, 192, 8, 8), "encoder": _encoder(lib, 4, 192), "head": nn.Linear(192, 100)}
    )
    images, labels = lib.randn(8, 3, 64, 64), lib.randint(0, 100, (8,))

    def out() -> Any:
        x = net["patch"](images).flatten(2).permute(0, 2, 1)
        return net["head"](net["encoder"](x).mean(1))

    return calls_of(lib, net, lambda: F.cross_entropy(out(), labels), lambda: out().argmax(1))


def resnet(lib: Any, F: Any) -> Calls:
    """Residual blocks with batch normalisation (He et al. 2016): 16 images of 64 x 64."""
    nn = lib.nn

    def block(inner: int, outer: int, stride: int) -> Any:
        body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
        short = nn.Conv2d(inner, outer, 1, stride, bias=False) if inner != outer else nn.Identity()
        return _modules(lib, {"body": body, "short": short})

    sizes = ((32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1))
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
    net = _modules(
        lib, {"stem": stem, "blocks": nn.ModuleList([block(*s) for s in sizes]), "head": nn.Linear(128, 100)}
    )
    images, labels = lib.randn(16, 3, 64, 64), lib.randint(0, 100, (16,))

    def out() -> Any:
        x = net["stem"](images)
        for part in net["blocks"]:
            x = F.relu(part["body"](x) + part["short"](x))
        return net["head"](x.mean((2, 3)))

    return calls_of(lib, net, lambda: F.cross_entropy(out(), labels), lambda: out().argmax(1))


def second_derivatives(lib: Any, F: Any) -> Calls:
    """A critic with a gradient penalty (Gulrajani et al. 2017): the loss holds the gradient of the network."""
    nn = lib.nn
    net = nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 1))
    x = lib.randn(256, 256).requires_grad_()

    def loss() -> Any:
        (slope,) = lib.autograd.grad(net(x).sum(), (x,), create_graph=True)
        return ((slope.square().sum(1).sqrt() - 1) ** 2).mean() - net(x).mean()

    return calls_of(lib, net, loss, lambda: net(x))


def language_model(lib: Any, F: Any) -> Calls:
    """A causal transformer: a step on 8 sequences of 128 tokens, and 48 tokens written one by one without a cache."""
    nn = lib.nn
    parts = {"embed": nn.Embedding(256, 128), "place": nn.Embedding(128, 128), "norm": nn.LayerNorm(128)}
    net = _modules(lib, {**parts, "head": nn.Linear(128, 256)} | {
        f"{name}{k}": module for k in range(2) for name, module in (
            ("before", nn.LayerNorm(128)), ("qkv", nn.Linear(128, 384)), ("out", nn.Linear(128, 128)),
            ("then", nn.LayerNorm(128)), ("wide", nn.Linear(128, 512)), ("narrow", nn.Linear(512, 128)))
    })  # fmt: skip
    tokens = lib.randint(0, 256, (8, 129))

    def logits(codes: Any) -> Any:
        n, length = codes.shape
        x = net["embed"](codes) + net["place"](lib.arange(length))
        for k in range(2):
            qkv = net[f"qkv{k}"](net[f"before{k}"](x)).reshape(n, length, 3, 4, 32).permute(2, 0, 3, 1, 4)
            heads = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
            x = x + net[f"out{k}"](heads.permute(0, 2, 1, 3).reshape(n, length, 128))
            x = x + net[f"narrow{k}"](F.gelu(net[f"wide{k}"](net[f"then{k}"](x))))
        return net["head"](net["norm"](x))

    def written() -> Any:
        codes = tokens[:1, :16]
        for _ in range(48):
            codes = lib.cat([codes, logits(codes)[:, -1].argmax(-1)[:, None]], 1)
        return codes

    def loss() -> Any:
        return F.cross_entropy(logits(tokens[:, :-1]).reshape(-1, 256), tokens[:, 1:].reshape(-1))

    return calls_of(lib, net, loss, written)


def bodies(lib: Any, F: Any) -> Calls:
    """Forces between 512 bodies by broadcasting, and the gradient of their energy."""
    place, mass = lib.randn(512, 3).requires_grad_(), lib.rand(512)

    def energy() -> Any:
        apart = place[:, None] - place[None]
        return (mass[:, None] * mass / (apart.square().sum(-1) + 0.01).sqrt()).sum()

    def step() -> Any:
        place.grad = None
        energy().backward()
        return place.grad

    def call() -> Any:
        with lib.no_grad():
            apart = place[:, None] - place[None]
            near = (apart.square().sum(-1) + 0.01) ** -1.5
            return (apart * (near * mass)[..., None]).sum(1)

    return step, call


NETWORKS: tuple[Callable[[Any, Any], Calls], ...] = (
    mobilenet, unet, vit, resnet, second_derivatives, language_model, bodies,
)  # fmt: skip
