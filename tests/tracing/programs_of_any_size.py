"""Programs of loops and NumPy arrays whose sizes come with the call, with what makes their arguments for a size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import hybridml as hm

Make = Callable[[np.random.Generator, int], tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Callable[..., Any], Make]] = {}


def program(make: Make) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Notes a program with what makes its arguments for a size."""

    def note(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[fn.__name__] = fn, make
        return fn

    return note


def array(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    return (rng.random(n),)


def number(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    return (n,)


@program(number)
def squares(n: Any) -> Any:
    out = np.empty(n)
    for i in range(n):
        out[i] = i * i
    return out


@program(number)
def fib(n: Any) -> Any:
    a = np.zeros(n, dtype=np.int64)
    a[1] = 1
    for i in range(2, n):
        a[i] = (a[i - 1] + a[i - 2]) % 1000003
    return a


@program(number)
def logistic(n: Any) -> Any:
    x = 0.3
    xs = np.empty(n)
    for i in range(n):
        x = 3.9 * x * (1 - x)
        xs[i] = x
    return (xs, x)


@program(array)
def ema(x: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = 0.9 * y[i - 1] + 0.1 * x[i]
    return y


@program(array)
def ema_state(x: Any) -> Any:
    y = x[0]
    out = np.zeros(len(x))
    for i in range(len(x)):
        y = 0.9 * y + 0.1 * x[i]
        out[i] = y
    return out


@program(array)
def inplace(x: Any) -> Any:
    x[1:-1] = 0.5 * (x[2:] + x[:-2])
    return x


@program(array)
def inplace_loop(x: Any) -> Any:
    for i in range(1, x.shape[0]):
        x[i] += x[i - 1]


@program(array)
def elementwise(x: Any) -> Any:
    return np.sqrt(x) * 2 + x**2 - 1


@program(array)
def stats(x: Any) -> Any:
    return (x.mean(), x.sum(), x.max(), x.std(), np.dot(x, x))


@program(array)
def centered(x: Any) -> Any:
    d = np.zeros(x.shape)
    d[1:-1] = (x[2:] - x[:-2]) / 2
    d[0] = x[1] - x[0]
    d[-1] = x[-1] - x[-2]
    return d


@program(array)
def where(x: Any) -> Any:
    return np.where(x > 0.5, x, -x)


@program(array)
def views(x: Any) -> Any:
    a = np.zeros(len(x))
    b = a[1:]
    b[0] = 5.0
    b += x[1:]
    return a


@program(array)
def retview2(x: Any) -> Any:
    a = x * 2
    return (a, a[2:])


@program(lambda rng, n: (rng.random((n, 3)),))
def rows(x: Any) -> Any:
    out = np.zeros(x.shape[0])
    for i in range(x.shape[0]):
        out[i] = np.sqrt((x[i] ** 2).sum())
    return out


@program(lambda rng, n: (rng.random((n, 3)),))
def norm2(x: Any) -> Any:
    return (np.sqrt((x * x).sum(axis=1)), x.T @ x, x - x.mean(axis=0))


@program(lambda rng, n: (rng.random((n, n)),))
def laplace(u: Any) -> Any:
    v = u.copy()
    v[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
    return v


@program(lambda rng, n: (rng.random((n, n)), 7))
def jacobi(u: Any, k: Any) -> Any:
    for _ in range(k * 4):
        v = u.copy()
        v[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
        u = v
    return u


@program(lambda rng, n: (rng.random((n, n)), rng.random(n)))
def matvec(a: Any, x: Any) -> Any:
    y = np.zeros(len(x))
    for i in range(len(x)):
        s = 0.0
        for j in range(len(x)):
            s += a[i, j] * x[j]
        y[i] = s
    return y


@program(lambda rng, n: (rng.random((n, n)), rng.random(n)))
def forward_sub(a: Any, b: Any) -> Any:
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / (a[i, i] + 1)
    return x


@program(lambda rng, n: (rng.random(n), 0.05))
def heat(u: Any, a: Any) -> Any:
    for _ in range(40):
        u[1:-1] = u[1:-1] + a * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


@program(lambda rng, n: (rng.random(n), n))
def heat2(u: Any, n: Any) -> Any:
    for _ in range(n):
        u = u + 0.05 * (np.roll(u, 1) - 2 * u + np.roll(u, -1))
    return u


@program(lambda rng, n: (n, 2.5))
def lin2(n: Any, T: Any) -> Any:
    t = np.linspace(0, T, n)
    y = np.zeros(n)
    y[0] = 1.0
    for i in range(1, n):
        y[i] = y[i - 1] - (t[i] - t[i - 1]) * y[i - 1]
    return (t, y)


@program(lambda rng, n: (n, 0.01))
def pendulum(n: Any, dt: Any) -> Any:
    th, om = (1.0, 0.0)
    ths = np.zeros(n)
    for i in range(n):
        om = om - 9.81 * math.sin(th) * dt
        th = th + om * dt
        ths[i] = th
    return ths


@program(lambda rng, n: (n, np.array([1.0, 0.0]), 0.01))
def rk4(n: Any, y: Any, dt: Any) -> Any:
    out = np.zeros((n, 2))

    def f(y: Any) -> Any:
        return np.array([y[1], -y[0]])

    for i in range(n):
        k1 = f(y)
        k2 = f(y + dt / 2 * k1)
        k3 = f(y + dt / 2 * k2)
        k4 = f(y + dt * k3)
        y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        out[i] = y
    return out


@program(lambda rng, n: (n, np.array([1.0, 0.0]), 0.01))
def columns(n: Any, y: Any, dt: Any) -> Any:
    out = np.zeros((n, 2))
    for i in range(n):
        y = y + dt * np.array([y[1], -y[0]])
        out[i] = y
    return (out[:, 0], out[:, 1])


@program(number)
def listed(n: Any) -> Any:
    out = []
    x = 1.0
    for i in range(n):
        x = x * 0.5 + i
        out.append(x)
    return np.array(out)


@program(lambda rng, n: (n,))
def triangle(n: Any) -> Any:
    t = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            t[i, j] = i - j
    return t


@program(lambda rng, n: (n,))
def down(n: Any) -> Any:
    a = np.zeros(n)
    for i in range(n - 1, -1, -1):
        a[i] = 1.0 if i == n - 1 else a[i + 1] * 0.5
    return a


@program(number)
def mc(n: Any) -> Any:
    s = 0.0
    for i in range(1, n + 1):
        s += 1.0 / (i * i)
    return s


@program(lambda rng, n: (rng.random(n), rng.random(n + 1)))
def conv(x: Any, y: Any) -> Any:
    n, m = (len(x), len(y))
    out = np.zeros(n + m - 1)
    for i in range(n):
        for j in range(m):
            out[i + j] += x[i] * y[j]
    return out


@program(lambda rng, n: (rng.random(n).astype(np.float32),))
def f32(x: Any) -> Any:
    y = np.zeros(len(x), dtype=np.float32)
    for i in range(len(x)):
        y[i] = x[i] * 2
    return (y, x.mean(), x / 3)


@program(lambda rng, n: (rng.integers(0, 9, n),))
def ints(x: Any) -> Any:
    return (x // 2, x.sum(), x / 2, x % 3, x.max(), np.cumsum(x))


@program(lambda rng, n: (rng.random(n) > 0.5,))
def bools(x: Any) -> Any:
    return (x.sum(), ~x, x & True, x + x)


@program(array)
def bubble(x: Any) -> Any:
    a = x.copy()
    n = len(a)
    for i in range(n):
        for j in range(n - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = (a[j + 1], a[j])
    return a


@program(array)
def runningmax(x: Any) -> Any:
    m = x[0]
    out = np.empty_like(x)
    for i, v in enumerate(x):
        m = max(m, v)
        out[i] = m
    return out


@program(array)
def iterate(x: Any) -> Any:
    s = 0.0
    for v in x:
        s = s * 0.9 + v
    return s


@program(lambda rng, n: (rng.random(n), rng.random(n)))
def zipped(x: Any, y: Any) -> Any:
    s = 0.0
    for a, b in zip(x, y):  # noqa: B905 - as users write it
        s += a * b
    return s


@program(array)
def alias(x: Any) -> Any:
    y = x
    y[0] = 7.0
    return x + y


@program(array)
def early(x: Any) -> Any:
    for i in range(len(x)):
        if x[i] > 0.9:
            return i
    return -1


@program(array)
def closure(x: Any) -> Any:

    def f(i):
        return x[i] * 2

    s = 0.0
    for i in range(len(x)):
        s += f(i)
    return s


@program(array)
def out_arg(x: Any) -> Any:
    y = np.empty_like(x)
    np.multiply(x, 2, out=y)
    np.add(y, x, out=y)
    y *= 3
    y -= x
    return y


@program(number)
def ar2(n: Any) -> Any:
    t = np.arange(n)
    return (t * 2, t.sum(), np.arange(1, n) ** 2.0)


@program(lambda rng, n: (rng.random((n, n)),))
def lu(a: Any) -> Any:
    a = a.copy() + len(a) * np.ones((len(a), len(a)))
    n = len(a)
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            a[i, k + 1 :] -= a[i, k] * a[k, k + 1 :]
    return a


@program(lambda rng, n: (rng.random((n, n)),))
def floyd(d: Any) -> Any:
    d = d.copy()
    n = d.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]
    return d


@program(lambda rng, n: (rng.random(n), rng.random(n)))
def dtw(x: Any, y: Any) -> Any:
    n, m = (len(x), len(y))
    D = np.full((n + 1, m + 1), 1000000000.0)
    D[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            c = abs(x[i - 1] - y[j - 1])
            D[i, j] = c + min(D[i - 1, j], D[i, j - 1], D[i - 1, j - 1])
    return D[n, m]


@program(lambda rng, n: (rng.random((n, 2)), rng.random((n, 2)), 20))
def nbody_inplace(x: Any, v: Any, k: Any) -> Any:
    for _ in range(k):
        d = x[None, :, :] - x[:, None, :]
        v += 0.01 * d.sum(1)
        x += 0.01 * v
    return x


@program(lambda rng, n: (rng.random(n), 20))
def swap(u: Any, k: Any) -> Any:
    v = np.zeros_like(u)
    for _ in range(k):
        v[1:-1] = 0.5 * (u[2:] + u[:-2])
        u, v = (v, u)
    return u


@program(lambda rng, n: (rng.random(n),))
def hist(x: Any) -> Any:
    h = np.zeros(10)
    for i in range(len(x)):
        h[int(x[i] * 10)] += 1
    return h


@program(lambda rng, n: (rng.random(n), rng.integers(0, n, n)))
def scatter(x: Any, k: Any) -> Any:
    out = np.zeros(len(x))
    for i in range(len(x)):
        out[k[i]] += x[i]
    return out


@program(lambda rng, n: (rng.random(n),))
def whiledata(x: Any) -> Any:
    u = x.copy()
    k = 0
    while np.abs(u).max() > 0.001 and k < 100:
        u = 0.5 * u
        k += 1
    return (u, k)


@program(lambda rng, n: (rng.random(n),))
def grow(x: Any) -> Any:
    out = []
    for i in range(len(x)):
        if x[i] > 0.5:
            out.append(x[i])
    return np.array(out)


@program(lambda rng, n: (rng.random((n, 5)), rng.integers(0, 5, n)))
def xent(z: Any, y: Any) -> Any:
    z = z - z.max(axis=1, keepdims=True)
    logp = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return -logp[np.arange(len(y)), y].mean()


@program(lambda rng, n: (rng.random((n, n)), rng.random(n)))
def power(a: Any, v: Any) -> Any:
    for _ in range(30):
        v = a @ v
        v = v / np.sqrt((v * v).sum())
    return (v, v @ a @ v)


@program(lambda rng, n: (hm.tensor(rng.random(n)), rng.random(n)))
def mixed(t: Any, x: Any) -> Any:
    return (t + x, (t * x).sum())


@program(array)
def same(x: Any) -> Any:
    return (x, x)


@program(array)
def outer(x: Any) -> Any:
    return (np.outer(x, x), x[:, None] * x[None, :])


@program(number)
def every_third(n: Any) -> Any:
    a = np.zeros(n)
    for i in range(0, n, 3):
        a[i] = i
    return a
