"""The operations of `benchmarks.eager`: one Python expression each, which reads the same in both libraries.

`xp` is the library, `F` its functional module; the other names are inputs, small (16 to 4,096 elements) or large
(a million and more, fewer where an operation does much work for each).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]


class Operation(NamedTuple):
    """An expression, in PyTorch's words where these differ, and the inputs that backward goes to."""

    name: str
    ours: str
    torch: str
    wanted: str = ""


# `name: ours | PyTorch's`, one where they read the same; in brackets the inputs that backward goes to.
_TEXT = """
[x y]
add: x + y
subtract: x - y
multiply: x * y
divide: x / y
maximum: xp.maximum(x, y)
atan2: xp.atan2(x, y)
where: xp.where(c, x, y)
[x]
add a number: x + 1.5
multiply by a number: 2.5 * x
number minus: 1.0 - x
negate: -x
square: x ** 2
abs: abs(x)
exp: xp.exp(x)
sin: xp.sin(x)
tanh: xp.tanh(x)
erf: xp.special.erf(x)
expm1: xp.expm1(x)
clip: xp.clip(x, -1.0, 1.0)
where with a number: xp.where(c, x, 0.0)
add a row: x + row
multiply by a column: x * column
[p]
log: xp.log(p)
sqrt: xp.sqrt(p)
log1p: xp.log1p(p)
power: p ** 1.7
reciprocal: 1.0 / p
[]
greater: x > 0
equal: i == j
add integers: i + j
remainder: i % 7
logical_and: c & d
isnan: xp.isnan(x)
round: xp.round(x)
floor: xp.floor(x)
to integers: x.to(xp.int32)
from integers: i.to(xp.float32)
[x]
sum: x.sum()
sum of columns: x.sum(0)
sum of rows: x.sum(-1)
mean: x.mean()
mean of rows: x.mean(-1)
max: x.max()
max of rows: xp.amax(x, -1)
variance of columns: xp.var(x, axis=0) | xp.var(x, 0, correction=0)
norm: xp.linalg.vector_norm(x)
logsumexp: xp.logsumexp(x, -1)
cumsum of rows: xp.cumsum(x, -1)
cumsum of columns: xp.cumsum(x, 0)
sort: xp.sort(x, -1) | xp.sort(x, -1).values
[]
argmax: xp.argmax(x, -1)
any: c.any()
count_nonzero: xp.count_nonzero(c)
topk: xp.topk(x, 4)[0]
item: x.sum().item()
[x]
reshape: x.reshape(-1)
transpose: x.T
copy of a transpose: x.T.contiguous()
a row: x[3]
columns: x[:, 2:6]
every second: x[::2]
new axis: x[:, None]
cat: xp.cat([x, y])
stack: xp.stack([x, y])
split: xp.split(x, n // 4)[1]
flip: xp.flip(x, (0,))
roll: xp.roll(x, 1, 0)
tile: xp.tile(x, (2, 1))
pad: F.pad(x, (1, 1))
rows by index: x[index]
take along: xp.take_along_axis(x, order, 1) | xp.take_along_dim(x, order, 1)
tril: xp.tril(x)
clone: x.clone()
[]
by mask: x[c]
scatter: x.clone().index_add_(0, index, y[:8])
in place: scratch.add_(x)
assign a row: scratch.__setitem__(0, row)
element: x[3, 4]
assign an element: scratch.__setitem__((3, 4), 1.5)
assign a slice: scratch.__setitem__((slice(1, 9), 3), y[4, :8])
product of elements: x[3, 4] * x[4, 3]
each row: [r for r in x][-1]
zeros: xp.zeros((n, n))
ones: xp.ones((n, n))
full: xp.full((n, n), 1.5)
arange: xp.arange(n * n)
linspace: xp.linspace(0, 1, n)
eye: xp.eye(n)
zeros_like: xp.zeros_like(x)
tensor of a list: xp.asarray([1.0, 2.0, 3.0])
randn: xp.randn(n, n)
rand: xp.rand(n, n)
randint: xp.randint(0, 10, (n, n))
one_hot: F.one_hot(labels, 16)
[x w]
matmul: x @ w
linear: F.linear(x, w, row)
einsum: xp.einsum('ij,kj->ik', x, w)
[row]
matrix by vector: x @ row
outer: xp.outer(row, row)
dot: xp.dot(row, row)
dot of slices: row[:8] @ row[8:16]
[heads]
batched matmul: heads @ heads.mT
attention: F.scaled_dot_product_attention(heads, heads, heads)
[x]
relu: F.relu(x)
gelu: F.gelu(x)
silu: F.silu(x)
sigmoid: xp.sigmoid(x)
leaky_relu: F.leaky_relu(x)
elu: F.elu(x)
softplus: F.softplus(x)
glu: F.glu(x)
softmax: F.softmax(x, -1)
log_softmax: F.log_softmax(x, -1)
normalize: F.normalize(x, dim=-1)
layer_norm: F.layer_norm(x, (n,), row, row)
rms_norm: F.rms_norm(x, (n,), row)
dropout: F.dropout(x, 0.5)
mse_loss: F.mse_loss(x, y)
l1_loss: F.l1_loss(x, y)
smooth_l1_loss: F.smooth_l1_loss(x, y)
cross_entropy: F.cross_entropy(x, labels)
nll_loss: F.nll_loss(x, labels)
bce_with_logits: F.binary_cross_entropy_with_logits(x, unit)
cosine_similarity: F.cosine_similarity(x, y)
[w]
embedding: F.embedding(labels, w)
[image]
permute: image.permute(0, 2, 3, 1)
conv2d: F.conv2d(image, kernel, padding=1)
conv2d 1x1: F.conv2d(image, point)
depthwise conv2d: F.conv2d(image, single, padding=1, groups=channels)
conv_transpose2d: F.conv_transpose2d(image, point)
max_pool2d: F.max_pool2d(image, 2)
avg_pool2d: F.avg_pool2d(image, 2)
adaptive_avg_pool2d: F.adaptive_avg_pool2d(image, 1)
group_norm: F.group_norm(image, 4)
batch_norm: F.batch_norm(image, None, None, training=True)
instance_norm: F.instance_norm(image)
interpolate: F.interpolate(image, scale_factor=2)
reflect pad: F.pad(image, (1, 1, 1, 1), mode='reflect')
[x]
conv1d: F.conv1d(x[None], taps, padding=1)
add halves: x[:, :n // 2] + x[:, n // 2:]
add a transpose: x + x.T
stencil: x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
gated halves: F.sigmoid(x[:, :n // 2]) * x[:, n // 2:]
max of a slice: xp.amax(x[:, 1:], -1)
copy of a slice: x[:, :n // 2].clone()
every second column: x[:, ::2] * 2.0
complex size: abs(xp.complex(x, y))
[]
complex add: z + v
complex multiply: z * v
complex divide: z / v
complex abs: abs(z)
complex exp: xp.exp(z)
complex sum: xp.sum(z, 0)
rfft: xp.fft.rfft(x)
cholesky: xp.linalg.cholesky(spd)
solve: xp.linalg.solve(spd, x[:spd.shape[0]])
"""


def _operations(text: str) -> list[Operation]:
    found, wanted = [], ""
    for line in text.split("\n"):
        if line.startswith("["):
            wanted = line[1:-1]
        elif line:
            name, _, expressions = line.partition(": ")
            ours, _, torch = expressions.partition(" | ")
            found.append(Operation(name, ours, torch or ours, wanted))
    return found


OPERATIONS = _operations(_TEXT)


def inputs(large: bool) -> tuple[Arrays, dict[str, int]]:
    """Arrays by name, and whole numbers that expressions name: `n`, a side of the matrices, and `channels`."""
    rng = np.random.default_rng(15)
    n = 1024 if large else 32
    channels, side, images = (32, 64, 8) if large else (8, 8, 2)
    small = 256 if large else 16

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x, y = normal(n, n), normal(n, n)
    half = normal(small, small)
    arrays: Arrays = {
        "x": x, "y": y, "w": normal(n, n), "p": abs(normal(n, n)) + 0.5, "unit": rng.random((n, n), np.float32),
        "row": normal(n), "column": normal(n, 1), "c": normal(n, n) > 0, "d": normal(n, n) > 0,
        "i": rng.integers(-50, 50, (n, n)), "j": rng.integers(-50, 50, (n, n)),
        "index": rng.integers(0, n, 8), "order": np.argsort(normal(n, n), 1), "labels": rng.integers(0, 16, n),
        "scratch": normal(n, n), "heads": normal(8, 256, 64) if large else normal(2, 16, 8),
        "image": normal(images, channels, side, side), "kernel": normal(channels, channels, 3, 3),
        "point": normal(channels, channels, 1, 1), "single": normal(channels, 1, 3, 3),
        "taps": normal(16, n, 3), "spd": half @ half.T + small * np.eye(small, dtype=np.float32),
        "z": x + 1j * y, "v": y - 1j * normal(n, n),
    }  # fmt: skip
    return arrays, {"n": n, "channels": channels}
