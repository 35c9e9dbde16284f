"""Programs as tutorials of NumPy have them: under NumPy, of tensors, with `import hybridml as np`, and traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hybridml as hm

X = np.random.default_rng(3).normal(size=80)


def statistics(np: Any, x: Any) -> Any:
    m = np.mean(x)
    s = np.std(x, ddof=1)
    z = (x - m) / s
    q = np.percentile(x, [25, 50, 75])
    iqr = q[2] - q[0]
    mask = (x < q[0] - 1.5 * iqr) | (x > q[2] + 1.5 * iqr)
    hist, edges = np.histogram(x, bins=5)
    med = np.median(x)
    mode = np.argmax(np.bincount(np.floor(x * 2).astype(int) + 20))
    return (z, q, mask, hist, edges, med, mode, np.cov(x, x[::-1]), np.corrcoef(x, x[::-1])[0, 1])


def life(np: Any, x: Any) -> Any:
    g = (np.reshape(x[:36], (6, 6)) > 0).astype(int)
    for _ in range(4):
        n = sum(np.roll(np.roll(g, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        g = ((n == 3) | (g == 1) & (n == 2)).astype(int)
    return (g, g.sum())


def life_in_place(np: Any, x: Any) -> Any:
    Z = np.zeros((8, 8), dtype=int)
    Z[1:4, 1:4] = [[0, 1, 0], [0, 0, 1], [1, 1, 1]]
    for _ in range(3):
        N = Z[:-2, :-2] + Z[:-2, 1:-1] + Z[:-2, 2:] + Z[1:-1, :-2] + Z[1:-1, 2:] + Z[2:, :-2] + Z[2:, 1:-1] + Z[2:, 2:]
        birth = (N == 3) & (Z[1:-1, 1:-1] == 0)
        survive = ((N == 2) | (N == 3)) & (Z[1:-1, 1:-1] == 1)
        Z[...] = 0
        Z[1:-1, 1:-1][birth | survive] = 1
    return (Z, np.nonzero(Z), int(Z.sum()))


def random_walk(np: Any, x: Any) -> Any:
    steps = np.where(x > 0, 1, -1)
    walk = np.cumsum(steps)
    return (walk, walk.min(), walk.max(), np.abs(walk).argmax(), (np.abs(walk) >= 5).any())


def image(np: Any, x: Any) -> Any:
    img = np.reshape(x[:64], (8, 8))
    img = (img - img.min()) / (img.max() - img.min())
    img8 = (img * 255).astype(np.uint8)
    k = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]])
    p = np.pad(img, 1, mode="edge")
    out = np.zeros_like(img)
    for i in range(3):
        for j in range(3):
            out += k[i, j] * p[i : i + 8, j : j + 8]
    flipped = img8[:, ::-1]
    thr = np.where(img > 0.5, 1, 0)
    rgb = np.stack([img, img**2, 1 - img], axis=-1)
    gray = rgb @ np.array([0.299, 0.587, 0.114])
    return (out, flipped, thr, gray, np.clip(gray, 0.2, 0.8), rgb.shape)


def linear_algebra(np: Any, x: Any) -> Any:
    A = np.reshape(x[:16], (4, 4)) + 4 * np.eye(4)
    b = np.arange(1.0, 5.0)
    s = np.linalg.solve(A, b)
    _, r = np.linalg.qr(A)
    w = np.linalg.eigvalsh(A @ A.T)
    return (
        s,
        np.allclose(A @ s, b),
        np.linalg.det(A),
        np.linalg.trace(A),
        abs(np.diag(r)),
        w,
        np.linalg.norm(A),
        np.linalg.inv(A),
        np.linalg.matrix_rank(A),
    )


def power_iteration(np: Any, x: Any) -> Any:
    A = np.reshape(x[:16], (4, 4))
    A = A @ A.T
    v = np.ones(4)
    for _ in range(50):
        w = A @ v
        v = w / np.linalg.norm(w)
    lam = v @ A @ v
    return (lam, np.abs(v))


def regression(np: Any, x: Any) -> Any:
    t = np.linspace(0, 1, len(x))
    A = np.column_stack([np.ones_like(t), t, t**2])
    c, *_ = np.linalg.lstsq(A, x, rcond=None)
    fit = A @ c
    p = np.polyfit(t, x, 2)
    return (c, np.sum((x - fit) ** 2), p, np.polyval(p, t)[:3], np.vstack([t, x]).T[:2])


def mandelbrot(np: Any, x: Any) -> Any:
    re = np.linspace(-2, 0.5, 12)
    im = np.linspace(-1, 1, 10)
    c = re[None, :] + 1j * im[:, None]
    z = np.zeros_like(c)
    n = np.zeros(c.shape, dtype=int)
    for _ in range(15):
        m = np.abs(z) <= 2
        z[m] = z[m] ** 2 + c[m]
        n[m] += 1
    return n


def random_numbers(np: Any, x: Any) -> Any:
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, size=(1000, 2))
    inside = (a**2).sum(axis=1) <= 1
    return (
        inside.shape,
        a.shape,
        rng.uniform(-1, 1) < 1,
        rng.integers(0, 6, 3).shape,
        rng.normal(size=3).shape,
        rng.choice(5, 3).shape,
        rng.permutation(5).shape,
        rng.random(2).shape,
    )


def sieve(np: Any, x: Any) -> Any:
    n = 60
    is_prime = np.ones(n + 1, dtype=bool)
    is_prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if is_prime[i]:
            is_prime[i * i :: i] = False
    return (np.nonzero(is_prime)[0], np.flatnonzero(is_prime), is_prime.sum())


def moving_averages(np: Any, x: Any) -> Any:
    w = 5
    kernel = np.ones(w) / w
    a = np.convolve(x, kernel, mode="valid")
    c = np.cumsum(np.insert(x, 0, 0.0))
    b = (c[w:] - c[:-w]) / w
    d = np.diff(x)
    return (a, b, np.allclose(a, b), np.sign(d), np.where(np.diff(np.sign(x)))[0])


def k_means(np: Any, x: Any) -> Any:
    pts = np.reshape(x[:60], (30, 2))
    centers = pts[:3].copy()
    for _ in range(5):
        d = np.linalg.norm(pts[:, np.newaxis] - centers[np.newaxis], axis=2)
        lab = d.argmin(axis=1)
        for k in range(3):
            if np.any(lab == k):
                centers[k] = pts[lab == k].mean(axis=0)
    return (lab, centers, [int((lab == k).sum()) for k in range(3)])


def distances(np: Any, x: Any) -> Any:
    pts = np.reshape(x[:20], (10, 2))
    diff = pts[:, None, :] - pts[None, :, :]
    D = np.sqrt((diff**2).sum(-1))
    np.fill_diagonal(D, np.inf)
    nn = D.argmin(1)
    order = np.argsort(D, axis=1)[:, :3]
    i, j = np.unravel_index(D.argmin(), D.shape)
    return (nn, order, int(i), int(j), D[i, j], np.triu(D, 1)[0, 1:])


def spectrum(np: Any, x: Any) -> Any:
    N = len(x)
    F = np.fft.fft(x)
    f = np.fft.fftfreq(N, d=0.1)
    power = np.abs(F) ** 2
    F2 = F.copy()
    F2[np.abs(f) > 2] = 0
    y = np.real(np.fft.ifft(F2))
    return (power[:5], f[np.argmax(power[: N // 2])], y, np.fft.rfft(x).shape, np.fft.fftshift(f)[:3])


def grids(np: Any, x: Any) -> Any:
    xs, ys = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 4))
    r = np.hypot(xs, ys)
    th = np.arctan2(ys, xs)
    z = np.exp(-(r**2)) * np.cos(3 * th)
    gy, gx = np.gradient(z)
    a, b = np.mgrid[0:3, 0:2]
    o = np.ogrid[0:3, 0:2]
    return (z, gx, gy, a, b, o[0] + o[1], np.indices((2, 3)))


def heat(np: Any, x: Any) -> Any:
    u = np.zeros((10, 10))
    u[0] = 1.0
    u[:, -1] = 0.5
    for _ in range(30):
        un = u.copy()
        u[1:-1, 1:-1] = 0.25 * (un[2:, 1:-1] + un[:-2, 1:-1] + un[1:-1, 2:] + un[1:-1, :-2])
        err = np.max(np.abs(u - un))
        if err < 0.001:
            break
    return (u, err)


def sorting(np: Any, x: Any) -> Any:
    idx = np.argsort(x)
    s = np.sort(x)[::-1]
    u, inv, cnt = np.unique(np.round(x).astype(int), return_inverse=True, return_counts=True)
    pos = np.searchsorted(np.sort(x), [0.0, 0.5])
    top = np.argpartition(-x, 3)[:3]
    lex = np.lexsort((x, np.round(x)))
    return (idx, s, u, inv, cnt, pos, np.sort(top), lex, np.isin(u, [0, 1]), np.intersect1d(u, [0, 1, 7]))


def lists(np: Any, x: Any) -> Any:
    a = np.array([1, 2, 3])
    b = np.asarray([4.0, 5, 6])
    same = a.dtype == np.int64 and np.zeros(2, dtype=np.bool_).dtype == np.bool_
    f = 3.0
    s = np.sum([1, 2, 3]) + np.mean([[1.0, 2], [3, 4]]) + np.max([3, 1]) + np.prod([2, 3])
    return (
        same,
        a + b,
        s,
        np.dot([1, 2], [3, 4]),
        np.isscalar(3),
        np.isscalar(f),
        np.concatenate([[1, 2], [3]]),
        np.array_equal([1, 2], [1, 2]),
        np.arange(3) * f,
        np.cumsum([1, 2, 3]),
        np.argsort([3, 1, 2]),
        np.std([1.0, 2.0, 4.0]),
    )


def iteration(np: Any, x: Any) -> Any:
    M = np.fromfunction(lambda i, j: i * 10 + j, (3, 4))
    L = np.fromfunction(lambda i, j: i == j, (3, 3), dtype=int)
    total = 0.0
    for idx in np.ndindex(3, 4):
        total += float(M[idx])
    w = []
    for (i, _), v in np.ndenumerate(M):
        w.append(i * float(v))
    a, step = np.linspace(0, 1, 5, retstep=True)
    y = np.empty(3)
    np.copyto(y, [1.0, 2.0, 3.0])
    return (
        M,
        L,
        total,
        sum(w),
        a,
        step,
        y,
        [row.sum() for row in M],
        np.atleast_2d(y).shape,
        np.r_[1:4, 7],
        np.c_[y, y],
    )


def products(np: Any, x: Any) -> Any:
    A = np.arange(6).reshape(2, 3)
    B = np.arange(12).reshape(3, 4)
    c = np.einsum("ij,jk->ik", A, B)
    d = np.tensordot(A, B, axes=1)
    e = np.outer([1, 2], [3, 4])
    k = np.kron(np.eye(2), np.ones((1, 2)))
    t = np.transpose(A)
    r = A.ravel()
    f = A.flatten(order="F")
    return (
        c,
        d,
        e,
        k,
        t,
        r,
        f,
        np.tile([1, 2], 2),
        np.repeat([1, 2], [2, 3]),
        np.cross([1, 0, 0], [0, 1, 0]),
        np.inner(A, A),
        np.vdot([1, 2], [3, 4]),
        A.T @ A,
        np.swapaxes(B, 0, 1).shape,
        np.array_split(np.arange(6), 3),
        np.hstack([A, A]),
        A.min(axis=0),
        A[..., -1],
        A.nbytes > 0,
        A.itemsize > 0,
    )


def newton(np: Any, x: Any) -> Any:

    def f(v):
        return np.array([v[0] ** 2 + v[1] ** 2 - 4, v[0] * v[1] - 1])

    def J(v):
        return np.array([[2 * v[0], 2 * v[1]], [v[1], v[0]]])

    v = np.array([2.0, 1.0])
    for _ in range(10):
        d = np.linalg.solve(J(v), -f(v))
        v = v + d
        if np.linalg.norm(d) < 1e-12:
            break
    return (v, f(v))


def pendulum(np: Any, x: Any) -> Any:

    def rhs(t, y):
        return np.array([y[1], -np.sin(y[0]) - 0.1 * y[1]])

    y = np.array([1.0, 0.0])
    dt = 0.05
    n = 20
    traj = np.zeros((n, 2))
    t = np.arange(n) * dt
    for i in range(n):
        traj[i] = y
        k1 = rhs(t[i], y)
        k2 = rhs(t[i] + dt / 2, y + dt / 2 * k1)
        k3 = rhs(t[i] + dt / 2, y + dt / 2 * k2)
        k4 = rhs(t[i] + dt, y + dt * k3)
        y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return (traj, np.trapezoid(traj[:, 0], t))


def markov_chain(np: Any, x: Any) -> Any:
    P = np.abs(np.reshape(x[:9], (3, 3))) + 0.1
    P /= P.sum(axis=1, keepdims=True)
    w, v = np.linalg.eig(P.T)
    k = np.argmin(np.abs(w - 1))
    pi = np.real(v[:, k])
    pi = pi / pi.sum()
    q = np.linalg.matrix_power(P, 50)[0]
    ent = -np.sum(P * np.log(P), axis=1)
    s = 0
    path = [s]
    for r in np.abs(np.sin(x[:10])):
        s = int(np.searchsorted(np.cumsum(P[s]), r))
        path.append(s)
    return (pi, q, ent, path)


def masks(np: Any, x: Any) -> Any:
    y = x.copy()
    y[y < 0] = 0
    y[(y > 0.5) & (y < 1)] *= 10
    sel = np.select([x < -1, x < 1], [-1, 0], default=1)
    ch = np.choose(np.abs(sel), [x, -x])
    pw = np.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v])
    cnt = np.count_nonzero(x > 0)
    every = np.all(y >= 0)
    dg = np.digitize(x, [-1.0, 0.0, 1.0])
    nan = np.where(x > 1.5, np.nan, x)
    return (
        y,
        sel,
        ch,
        pw,
        cnt,
        every,
        dg,
        np.nanmean(nan),
        np.isnan(nan).sum(),
        np.nan_to_num(nan, nan=9.0),
        x[np.ix_([0, 1])],
        np.take(x, [0, 2]),
        np.compress(x > 0, x),
        np.extract(x > 0, x),
        np.argwhere(x > 1).ravel(),
        np.inf,
        np.newaxis,
        np.pi,
        np.finfo(np.float64).eps,
        np.iinfo(np.int32).max,
    )


PROGRAMS = (
    statistics, life, life_in_place, random_walk, image, linear_algebra, power_iteration, regression, mandelbrot,
    random_numbers, sieve, moving_averages, k_means, distances, spectrum, grids, heat, sorting, lists, iteration,
    products, newton, pendulum, markov_chain, masks,
)  # fmt: skip


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """The namespace makes float64, as code for NumPy expects."""
    hm.set_default_dtype(hm.float64)
    yield
    hm.set_default_dtype(hm.float32)


@pytest.mark.filterwarnings("ignore:.*returns a ndarray that it makes")  # of functions that only NumPy has
@pytest.mark.parametrize("style", [lambda fn: fn, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("namespace", [np, hm], ids=["numpy", "hybridml"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_numpy(program: Callable[..., Any], namespace: Any, style: Callable[..., Any]) -> None:
    wanted, found = list(leaves(program(np, X))), list(leaves(style(lambda x: program(namespace, x))(hm.asarray(X))))
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        if b is not None:
            assert np.shape(a) == np.shape(b)
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-11)
            assert namespace is np or np.asarray(a).dtype == np.asarray(b).dtype
