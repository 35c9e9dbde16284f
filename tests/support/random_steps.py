"""Random programs of loops over NumPy's arrays of several dtypes, with objects of steps, as source text."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from .loops import flat

N, M = 20, 5
_HEAD = """def program(x, p):
    g, b, z, o = np.zeros((N, M), dtype=int), np.zeros(N, bool), np.zeros((N, 2), complex), np.arange(N)
    u, m, s, found = np.zeros(M), np.arange(M), hm.zeros((), dtype="float64"), []
    i, keep, old = o[3], u, m
    u[0], b[0], z[0, 0] = x[0], x[1] > 0.5, x[2]"""
_STATEMENTS = """
g[{k}] = g[{l}] + {n}
g[{k}, {c}:] += g[{l}, :M - {c}] * {n}
g[{k}][{c}] = {n}
row = g[{k}]; row[1] += {n}
row = g[{k}]; row += g[{l}]
o[{lo}:{hi}] = o[{lo}:{hi}][::-1].copy()
o[:{k}] += 1
o[{k}:] = o[{k}:] * {n} % 97
o[[{k}, {l}]] = o[[{l}, {k}]]
np.add.at(m, o[:3] % M, {n})
z.real[:, 1] = z.imag[:, 0] + x[{k}]
s = s + len(u[u > 0.5])
b[{k}:] ^= b[{k} - 1]
b[:{k}] = ~b[:{k}]
b[{k}] = o[:{k} + 1].sum() % 2 == 0
z[{k}] = z[{l}] * 1j + x[{k}]
z[{k}, 1:] += 0.5
u = u * 0.5 + x[{k}]
u = np.maximum(u, g[{k}] * 0.25)
m = m * 2 % 101 + g[{k}]
m = np.where(g[{k}] > 2, m, m + 1)
i = o[i] % N
s = s + x[{k}] * o[{l}]
s = s + g[{k}].max() + b[:{k}].any()
pair = (x[{k}], {n}); s = s + pair[0] * pair[1]
f = lambda y: y * {k} + s; s = f(x[{l}]) * 0.125
s = s + sum(x[q] * {n} for q in range(3))
d = dict(a=[x[{k}], o[{l}]]); s = s * 0.5 + d['a'][0]; g[{k}, 2] = d['a'][1]
g[p[{k}]] += m
j = int(x[{k}] * 10); g[j] += 1; o[j:j + 3] += 1
c = g[{k}].copy(); c += 1; m = c + m % 7
g[{k}].fill({n})
g[{k}, 0] = g[{l}].argmax() + len(g[{k}])
u[{c}] = x[{k}]
m = m.copy(); m[{c}] = {n}
keep[{c}] = x[{k}]
old = m
old[{c}] = {n}
u = keep + x[{k}]
m, old = old + 1, m * 2 % 31
""".strip().splitlines()


def program_of(seed: int) -> tuple[str, Callable[..., Any]]:
    """(source, function) of the program with this seed."""
    from_seed = random.Random(seed)
    lines, pick = [_HEAD], from_seed.choice

    def statement() -> str:
        k = pick(("k", "k", "k", "k - 1"))
        low = pick(("k", "1", "p[k]"))
        return pick(_STATEMENTS).format(
            k=k, l=pick(("k", "k - 1", "0", "3")), c=from_seed.randrange(M), n=pick(("1", "k", "3", "2")), lo=low,
            hi=pick(("N - 1", "k + 2", "N")),
        )  # fmt: skip

    appended = pick(("(k, s)", "u", "(i, m)", "h", "(o[k], x[k])"))
    for _ in range(from_seed.randint(1, 2)):
        lines.append(f"    for k in range({pick(('1, N - 1', '2, N', 'N - 2, 0, -1'))}):")
        for _ in range(from_seed.randint(1, 4)):
            if from_seed.random() < 0.2:
                lines.append(f"        if x[k] > {pick(('0.5', '0.2', 'x[k - 1]'))}:")
                lines += [f"            {statement()}" for _ in range(from_seed.randint(1, 2))]
            else:
                lines.append(f"        {statement()}")
        if from_seed.random() < 0.2:
            lines.append(f"        if x[k] > {pick(('0.9', '0.95', 's'))}:\n            break")
        elif from_seed.random() < 0.2:
            lines.append(f"        h = u * 0.5 + x[k]\n        found.append({appended})")
    lines.append("    u[1] = 7\n    m[2] = 3\n    return g, b, z, o, u, m, i, s, keep, old, *flat(found)")
    space: dict[str, Any] = {"flat": flat}
    source = f"import numpy as np\nimport hybridml as hm\nN, M = {N}, {M}\n" + "\n".join(lines)
    exec(compile(source, f"<program {seed}>", "exec"), space)
    return source, space["program"]
