"""Small models of `benchmarks.eager`, written once for both libraries, whose names are the same.

Each builder gives a training step, and an inference call under `no_grad`. Batches are of 32 to 128: what one line of
Python costs counts more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Calls = tuple[Callable[[], Any], Callable[[], Any]]  # a training step, inference


def calls_of(lib: Any, module: Any, loss: Callable[[], Any], infer: Callable[[], Any], lr: float = 1e-3) -> Calls:
    optimizer = lib.optim.Adam(module.parameters(), lr=lr)

    def step() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value

    def call() -> Any:
        with lib.no_grad():
            return infer()

    return step, call


def mlp(lib: Any, F: Any) -> Calls:
    nn = lib.nn
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    x, y = lib.randn(64, 64), lib.randint(0, 10, (64,))
    return calls_of(lib, net, lambda: F.cross_entropy(net(x), y), lambda: net(x).argmax(1))


def tabular(lib: Any, F: Any) -> Calls:
    nn = lib.nn
    tables = nn.ModuleList([nn.Embedding(20, 8) for _ in range(4)])
    head = nn.Sequential(
        nn.Linear(40, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 1),
    )
    both = nn.ModuleList([tables, head])
    numbers, y = lib.randn(128, 8), lib.rand(128)
    codes = [lib.randint(0, 20, (128,)) for _ in range(4)]

    def out() -> Any:
        return head(lib.cat([*[table(c) for table, c in zip(tables, codes, strict=True)], numbers], 1))[:, 0]

    return calls_of(lib, both, lambda: F.binary_cross_entropy_with_logits(out(), y), lambda: lib.sigmoid(out()))


def convnet(lib: Any, F: Any) -> Calls:
    nn = lib.nn
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    x, y = lib.randn(32, 1, 14, 14), lib.randint(0, 10, (32,))
    return calls_of(lib, net, lambda: F.cross_entropy(net(x), y), lambda: net(x))


def encoder_layer(lib: Any, F: Any) -> Calls:
    layer = lib.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    x = lib.randn(32, 16, 64)
    return calls_of(lib, layer, lambda: (layer(x) ** 2).mean(), lambda: layer(x))


def lstm(lib: Any, F: Any) -> Calls:
    nn = lib.nn
    net = nn.ModuleList([nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 4)])
    x, y = lib.randn(32, 12, 16), lib.randint(0, 4, (32,))

    def out() -> Any:
        return net[1](net[0](x)[0][:, -1])

    return calls_of(lib, net, lambda: F.cross_entropy(out(), y), out)


def gan(lib: Any, F: Any) -> Calls:
    nn = lib.nn
    generator = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(0.2), nn.Linear(64, 32), nn.Tanh())
    critic = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    real, one, zero = lib.randn(64, 32), lib.ones((64, 1)), lib.zeros((64, 1))
    first = lib.optim.Adam(critic.parameters(), lr=1e-3)
    second = lib.optim.Adam(generator.parameters(), lr=1e-3)
    judge = F.binary_cross_entropy_with_logits

    def step() -> Any:
        fake = generator(lib.randn(64, 16))
        first.zero_grad()
        (judge(critic(real), one) + judge(critic(fake.detach()), zero)).backward()
        first.step()
        second.zero_grad()
        loss = judge(critic(fake), one)
        loss.backward()
        second.step()
        return loss

    def call() -> Any:
        with lib.no_grad():
            return generator(lib.randn(64, 16))

    return step, call


def dqn(lib: Any, F: Any) -> Calls:
    nn = lib.nn
    net, target = (nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4)) for _ in range(2))
    state, after, reward = lib.randn(64, 8), lib.randn(64, 8), lib.randn(64)
    action, one = lib.randint(0, 4, (64, 1)), lib.randn(1, 8)
    gather = lib.gather if lib.__name__ == "torch" else lambda q, axis, index: lib.take_along_axis(q, index, axis)

    def loss() -> Any:
        with lib.no_grad():
            best = target(after).amax(1) * 0.99 + reward
        return F.smooth_l1_loss(gather(net(state), 1, action)[:, 0], best)

    return calls_of(lib, net, loss, lambda: int(net(one).argmax()))


def vae(lib: Any, F: Any) -> Calls:
    nn = lib.nn
    net = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 16), nn.Linear(8, 64), nn.Linear(64, 64)])
    x = lib.rand(64, 64)

    def decoded(z: Any) -> Any:
        return net[3](F.relu(net[2](z)))

    def loss() -> Any:
        h = net[1](F.relu(net[0](x)))
        mean, log_variance = h[:, :8], h[:, 8:]
        z = mean + lib.exp(log_variance * 0.5) * lib.randn(64, 8)
        apart = (lib.exp(log_variance) + mean**2 - 1.0 - log_variance).sum() * 0.5
        return F.binary_cross_entropy_with_logits(decoded(z), x, reduction="sum") + apart

    return calls_of(lib, net, loss, lambda: lib.sigmoid(decoded(lib.randn(64, 8))))


def regression(lib: Any, F: Any) -> Calls:
    w, b = (lib.zeros(8, requires_grad=True), lib.zeros(1, requires_grad=True))
    x, y = lib.randn(128, 8), lib.randn(128)

    def step() -> Any:
        w.grad = b.grad = None
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        with lib.no_grad():
            w.sub_(0.1 * w.grad)
            b.sub_(0.1 * b.grad)
        return loss

    def call() -> Any:
        with lib.no_grad():
            return x @ w + b

    return step, call


def autoencoder(lib: Any, F: Any) -> Calls:
    nn = lib.nn
    net = nn.Sequential(
        nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 8), nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 64)
    )
    x = lib.randn(64, 64)
    return calls_of(lib, net, lambda: F.mse_loss(net(x), x), lambda: net(x))


def attention_pool(lib: Any, F: Any) -> Calls:
    nn = lib.nn
    net = nn.ModuleList([nn.Embedding(50, 32), nn.MultiheadAttention(32, 4, batch_first=True), nn.Linear(32, 3)])
    tokens, y = lib.randint(0, 50, (32, 12)), lib.randint(0, 3, (32,))

    def out() -> Any:
        x = net[0](tokens)
        return net[2](net[1](x, x, x, need_weights=False)[0].mean(1))

    return calls_of(lib, net, lambda: F.cross_entropy(out(), y), lambda: F.softmax(out(), -1))


def siamese(lib: Any, F: Any) -> Calls:
    nn = lib.nn
    net = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 16))
    a, b, n = (lib.randn(64, 32) for _ in range(3))

    def loss() -> Any:
        return F.triplet_margin_loss(*(F.normalize(net(x), dim=-1) for x in (a, b, n)))

    return calls_of(lib, net, loss, lambda: F.cosine_similarity(net(a), net(b), dim=-1))


MODELS = (
    mlp, tabular, convnet, encoder_layer, lstm, gan, dqn, vae, regression, autoencoder, attention_pool, siamese,
)  # fmt: skip
