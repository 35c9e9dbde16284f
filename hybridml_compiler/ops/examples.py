"""Examples of the public rows, by name: statements apart by `;`, and behind `->` what the last one gives.

They end the docstrings of the public functions (`as_doctest`), and the tests run them. Numbers hold on every CPU: they
are exact, or rounded to four places.
"""

from __future__ import annotations

# fmt: off
EXAMPLES: dict[str, str] = {
    # arithmetic
    "add": "hm.add(hm.tensor([[1, 2], [3, 4]]), hm.tensor([10, 20])).tolist() -> [[11, 22], [13, 24]]",
    "subtract": "hm.subtract(hm.tensor([5.0, 7.0]), hm.tensor([1.0, 2.0]), alpha=2) -> Tensor([3., 3.])",
    "multiply": "hm.multiply(hm.tensor([[1], [2]]), hm.tensor([10, 20])).tolist() -> [[10, 20], [20, 40]]",
    "divide": "hm.divide(hm.tensor([1, -1, 0]), 0) -> Tensor([ inf, -inf,  nan])",
    "floor_divide": "hm.floor_divide(hm.tensor([7, -7]), 2) -> Tensor([ 3, -4])",
    "remainder": "hm.remainder(hm.tensor([7, -7, 7]), hm.tensor([3, 3, -3])) -> Tensor([ 1,  2, -2])",
    "negative": "hm.negative(hm.tensor([1.0, -2.0])) -> Tensor([-1.,  2.])",
    "positive": "hm.positive(hm.tensor([1.0, -2.0])) -> Tensor([ 1., -2.])",
    "abs": "hm.abs(hm.tensor([-2.0, 3 + 4j])) -> Tensor([2., 5.])",
    "square": "hm.square(hm.tensor([-3, 4])) -> Tensor([ 9, 16])",
    "reciprocal": "hm.reciprocal(hm.tensor([2, 4, 0])) -> Tensor([0.50, 0.25,  inf])",
    "sqrt": "hm.sqrt(hm.tensor([4.0, 2.0, -1.0])) -> Tensor([2.0000, 1.4142,    nan])",
    "rsqrt": "hm.rsqrt(hm.tensor([4.0, 0.25])) -> Tensor([0.5, 2.0])",
    "sign": "hm.sign(hm.tensor([-2.5, 0.0, 7.0])) -> Tensor([-1.,  0.,  1.])",
    "pow": "hm.pow(hm.tensor([2, 3]), 3) -> Tensor([ 8, 27])",
    "floor": "hm.floor(hm.tensor([1.7, -1.2])) -> Tensor([ 1., -2.])",
    "ceil": "hm.ceil(hm.tensor([1.2, -1.7])) -> Tensor([ 2., -1.])",
    "trunc": "hm.trunc(hm.tensor([1.7, -1.7])) -> Tensor([ 1., -1.])",
    "round": "hm.round(hm.tensor([0.5, 1.5, -2.7])) -> Tensor([ 0.,  2., -3.])",
    "maximum": "hm.maximum(hm.tensor([1.0, 5.0]), hm.tensor([3.0, hm.nan])) -> Tensor([ 3., nan])",
    "minimum": "hm.minimum(hm.tensor([1, 5, 3]), 2) -> Tensor([1, 2, 2])",
    "gcd": "hm.gcd(hm.tensor([12, -8, 0]), 20) -> Tensor([ 4,  4, 20])",
    "lcm": "hm.lcm(hm.tensor([4, 6]), 10) -> Tensor([20, 30])",
    "hypot": "hm.hypot(hm.tensor([1.0, 3.0]), hm.tensor([1.0, 4.0])) -> Tensor([1.4142, 5.0000])",
    # exponentials, logarithms, angles
    "exp": "hm.exp(hm.tensor([0.0, 1.0])) -> Tensor([1.0000, 2.7183])",
    "exp2": "hm.exp2(hm.tensor([0.5, 3.0])) -> Tensor([1.4142, 8.0000])",
    "expm1": "hm.expm1(hm.tensor([0.0, 1.0])) -> Tensor([0.0000, 1.7183])",
    "log": "hm.log(hm.tensor([1.0, 2.0, 0.0])) -> Tensor([0.0000, 0.6931,   -inf])",
    "log2": "hm.log2(hm.tensor([3.0, 8.0])) -> Tensor([1.585, 3.000])",
    "log10": "hm.log10(hm.tensor([2.0, 1000.0])) -> Tensor([0.301, 3.000])",
    "log1p": "hm.log1p(hm.tensor([0.0, 1.0])) -> Tensor([0.0000, 0.6931])",
    "logaddexp": "hm.logaddexp(hm.tensor([1000.0]), 1000.0) -> Tensor([1000.6932])",
    "logaddexp2": "hm.logaddexp2(hm.tensor([3.0]), hm.tensor([3.0])) -> Tensor([4.])",
    "sin": "hm.sin(hm.tensor([0.0, 1.0, hm.pi / 2])) -> Tensor([0.0000, 0.8415, 1.0000])",
    "cos": "hm.cos(hm.tensor([0.0, 1.0, hm.pi])) -> Tensor([ 1.0000,  0.5403, -1.0000])",
    "tan": "hm.tan(hm.tensor([0.0, 1.0])) -> Tensor([0.0000, 1.5574])",
    "asin": "hm.asin(hm.tensor([0.5, 1.0, 2.0])) -> Tensor([0.5236, 1.5708,    nan])",
    "acos": "hm.acos(hm.tensor([1.0, 0.5, -1.0])) -> Tensor([0.0000, 1.0472, 3.1416])",
    "atan": "hm.atan(hm.tensor([0.0, 1.0, hm.inf])) -> Tensor([0.0000, 0.7854, 1.5708])",
    "atan2": "hm.atan2(hm.tensor([1.0, 1.0]), hm.tensor([1.0, -1.0])) -> Tensor([0.7854, 2.3562])",
    "sinh": "hm.sinh(hm.tensor([0.0, 1.0])) -> Tensor([0.0000, 1.1752])",
    "cosh": "hm.cosh(hm.tensor([0.0, 1.0])) -> Tensor([1.0000, 1.5431])",
    "tanh": "hm.tanh(hm.tensor([0.0, 1.0])) -> Tensor([0.0000, 0.7616])",
    "asinh": "hm.asinh(hm.tensor([0.0, 1.0])) -> Tensor([0.0000, 0.8814])",
    "acosh": "hm.acosh(hm.tensor([1.0, 2.0])) -> Tensor([0.000, 1.317])",
    "atanh": "hm.atanh(hm.tensor([0.0, 0.5, 1.0])) -> Tensor([0.0000, 0.5493,    inf])",
    "sigmoid": "hm.sigmoid(hm.tensor([0.0, 1.0, -1000.0])) -> Tensor([0.5000, 0.7311, 0.0000])",
    "relu": "hm.relu(hm.tensor([-1.0, 0.0, 2.0])) -> Tensor([0., 0., 2.])",
    "cbrt": "hm.cbrt(hm.tensor([2.0, -8.0])) -> Tensor([ 1.2599, -2.0000])",
    # special functions
    "erf": "hm.erf(hm.tensor([0.0, 0.5, 2.0])) -> Tensor([0.0000, 0.5205, 0.9953])",
    "erfc": "hm.erfc(hm.tensor([0.0, 0.5, 2.0])) -> Tensor([1.0000, 0.4795, 0.0047])",
    "erfcx": "hm.erfcx(hm.tensor([0.0, 1.0, 10.0])) -> Tensor([1.0000, 0.4276, 0.0561])",
    "erfinv": "hm.erfinv(hm.tensor([0.0, 0.5, 1.0])) -> Tensor([0.0000, 0.4769,    inf])",
    "erfcinv": "hm.erfcinv(hm.tensor([1.0, 0.5, 0.0])) -> Tensor([0.0000, 0.4769,    inf])",
    "ndtr": "hm.ndtr(hm.tensor([0.0, 1.96])) -> Tensor([0.500, 0.975])",
    "log_ndtr": "hm.log_ndtr(hm.tensor([0.0, -10.0])) -> Tensor([ -0.6931, -53.2313])",
    "ndtri": "hm.ndtri(hm.tensor([0.5, 0.975, 1.0])) -> Tensor([0.00, 1.96,  inf])",
    "gamma": "hm.gamma(hm.tensor([5.0, 0.5])) -> Tensor([24.0000,  1.7725])",
    "lgamma": "hm.lgamma(hm.tensor([5.0, 0.5, 0.0])) -> Tensor([3.1781, 0.5724,    inf])",
    "digamma": "hm.digamma(hm.tensor([1.0, 2.0])) -> Tensor([-0.5772,  0.4228])",
    "trigamma": "hm.trigamma(hm.tensor([1.0, 2.0])) -> Tensor([1.6449, 0.6449])",
    "gammainc": "hm.gammainc(hm.tensor([1.0, 2.0]), 1.0) -> Tensor([0.6321, 0.2642])",
    "gammaincc": "hm.gammaincc(hm.tensor([1.0, 2.0]), 1.0) -> Tensor([0.3679, 0.7358])",
    "betainc": "hm.betainc(2.0, 3.0, hm.tensor([0.0, 0.5, 1.0])) -> Tensor([0.0000, 0.6875, 1.0000])",
    "zeta": "hm.zeta(hm.tensor([2.0, 4.0]), 1.0) -> Tensor([1.6449, 1.0823])",
    "exp1": "hm.exp1(hm.tensor([0.5, 1.0])) -> Tensor([0.5598, 0.2194])",
    "expi": "hm.expi(hm.tensor([0.5, 1.0])) -> Tensor([0.4542, 1.8951])",
    "i0": "hm.i0(hm.tensor([0.0, 1.0])) -> Tensor([1.0000, 1.2661])",
    "i0e": "hm.i0e(hm.tensor([0.0, 1.0])) -> Tensor([1.0000, 0.4658])",
    "i1": "hm.i1(hm.tensor([0.0, 1.0])) -> Tensor([0.0000, 0.5652])",
    "i1e": "hm.i1e(hm.tensor([0.0, 1.0])) -> Tensor([0.0000, 0.2079])",
    "j0": "hm.j0(hm.tensor([0.0, 1.0])) -> Tensor([1.0000, 0.7652])",
    "j1": "hm.j1(hm.tensor([0.0, 1.0])) -> Tensor([0.0000, 0.4401])",
    "y0": "hm.y0(hm.tensor([1.0, 2.0])) -> Tensor([0.0883, 0.5104])",
    "y1": "hm.y1(hm.tensor([1.0, 2.0])) -> Tensor([-0.7812, -0.1070])",
    # comparisons, logic, bits
    "equal": "x = hm.tensor([1.0, 2.0, hm.nan]); hm.equal(x, x) -> Tensor([ True,  True, False])",
    "not_equal": "x = hm.tensor([1.0, 2.0, hm.nan]); hm.not_equal(x, x) -> Tensor([False, False,  True])",
    "less": "hm.less(hm.tensor([1, 2, 3]), 2) -> Tensor([ True, False, False])",
    "less_equal": "hm.less_equal(hm.tensor([1, 2, 3]), 2) -> Tensor([ True,  True, False])",
    "greater": "hm.greater(hm.tensor([1, 2, 3]), 2) -> Tensor([False, False,  True])",
    "greater_equal": "hm.greater_equal(hm.tensor([1, 2, 3]), 2) -> Tensor([False,  True,  True])",
    "logical_and": "hm.logical_and(hm.tensor([0, 1, 2]), hm.tensor([1, 2, 0])) -> Tensor([False,  True, False])",
    "logical_or": "hm.logical_or(hm.tensor([0, 1, 2]), hm.tensor([0, 0, 3])) -> Tensor([False,  True,  True])",
    "logical_xor": "hm.logical_xor(hm.tensor([0, 1, 2]), hm.tensor([0, 0, 3])) -> Tensor([False,  True, False])",
    "logical_not": "hm.logical_not(hm.tensor([0.0, 0.5, hm.nan])) -> Tensor([ True, False, False])",
    "bitwise_and": "hm.bitwise_and(hm.tensor([12, 7]), 10) -> Tensor([8, 2])",
    "bitwise_or": "hm.bitwise_or(hm.tensor([12, 7]), 10) -> Tensor([14, 15])",
    "bitwise_xor": "hm.bitwise_xor(hm.tensor([12, 7]), 10) -> Tensor([ 6, 13])",
    "bitwise_invert": "hm.bitwise_invert(hm.tensor([0, 5, -1])) -> Tensor([-1, -6,  0])",
    "bitwise_left_shift": "hm.bitwise_left_shift(hm.tensor([1, 3]), 2) -> Tensor([ 4, 12])",
    "bitwise_right_shift": "hm.bitwise_right_shift(hm.tensor([12, -8]), 2) -> Tensor([ 3, -2])",
    "isnan": "hm.isnan(hm.tensor([1.0, hm.nan, hm.inf])) -> Tensor([False,  True, False])",
    "isinf": "hm.isinf(hm.tensor([1.0, hm.nan, -hm.inf])) -> Tensor([False, False,  True])",
    "isfinite": "hm.isfinite(hm.tensor([1.0, hm.nan, hm.inf])) -> Tensor([ True, False, False])",
    "signbit": "hm.signbit(hm.tensor([1.0, -2.0, -0.0])) -> Tensor([False,  True,  True])",
    "copysign": "hm.copysign(hm.tensor([1.0, -2.0]), hm.tensor([-0.0, 3.0])) -> Tensor([-1.,  2.])",
    "nextafter": "hm.tensor([1.0]).nextafter(hm.tensor([2.0])) - 1 -> Tensor([1.1921e-07])",
    "ldexp": "hm.ldexp(hm.tensor([0.5, 3.0]), hm.tensor([4, -1])) -> Tensor([8.0, 1.5])",
    "frexp": "hm.frexp(hm.tensor([8.0, 0.75, 0.0])) -> (Tensor([0.50, 0.75, 0.00]), Tensor([4, 0, 0], dtype=int32))",
    # complex numbers
    "real": "hm.real(hm.tensor([1 + 2j, 3 - 4j])) -> Tensor([1., 3.])",
    "imag": "hm.imag(hm.tensor([1 + 2j, 3 - 4j])) -> Tensor([ 2., -4.])",
    "conj": "hm.conj(hm.tensor([1 + 2j, 3 - 4j])).tolist() -> [(1-2j), (3+4j)]",
    # shapes
    "permute_dims": "hm.permute_dims(hm.zeros((2, 3, 4)), (2, 0, 1)).shape -> (4, 2, 3)",
    "broadcast_to": "hm.broadcast_to(hm.tensor([1, 2]), (3, 2)).tolist() -> [[1, 2], [1, 2], [1, 2]]",
    "flip": "hm.flip(hm.tensor([[1, 2], [3, 4]]), axis=1).tolist() -> [[2, 1], [4, 3]]",
    "diagonal": "hm.diagonal(hm.tensor([[1, 2, 3], [4, 5, 6]]), offset=1) -> Tensor([2, 6])",
    "tril": "hm.tril(hm.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])).tolist() -> [[1, 0, 0], [4, 5, 0], [7, 8, 9]]",
    "triu": "hm.triu(hm.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]]), k=1).tolist() -> [[0, 2, 3], [0, 0, 6], [0, 0, 0]]",
    # reductions
    "sum": "hm.sum(hm.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1, keepdims=True).tolist() -> [[3.0], [7.0]]",
    "prod": "hm.prod(hm.tensor([[1, 2], [3, 4]]), axis=0) -> Tensor([3, 8])",
    "max": "hm.max(hm.tensor([[1, 9], [7, 4]]), axis=1) -> Tensor([9, 7])",
    "min": "hm.min(hm.tensor([[1, 9], [7, 4]]), axis=1, keepdims=True).tolist() -> [[1], [4]]",
    "argmax": "hm.argmax(hm.tensor([[1, 9, 9], [7, 4, 2]]), axis=1) -> Tensor([1, 0])",
    "argmin": "hm.argmin(hm.tensor([[1, 9], [7, 4]]), axis=0) -> Tensor([0, 1])",
    "mean": "hm.mean(hm.tensor([[1, 2], [3, 6]]), axis=0) -> Tensor([2., 4.])",
    "var": "hm.var(hm.tensor([1.0, 2.0, 3.0, 6.0]), correction=1) -> Tensor(4.6667)",
    "any": "hm.any(hm.tensor([[0, 1], [0, 0]]), axis=1) -> Tensor([ True, False])",
    "all": "hm.all(hm.tensor([[1, 2], [0, 3]]), axis=1) -> Tensor([ True, False])",
    "cumulative_sum": "hm.tensor([1, 2, 3]).cumulative_sum() -> Tensor([1, 3, 6])",
    "cumulative_prod": "hm.tensor([[1, 2], [3, 4]]).cumulative_prod(axis=1).tolist() -> [[1, 2], [3, 12]]",
    "cumulative_max": "hm.cumulative_max(hm.tensor([1, 3, 2, 5])) -> Tensor([1, 3, 3, 5])",
    "cumulative_min": "hm.cumulative_min(hm.tensor([[4, 6], [5, 3]]), axis=0).tolist() -> [[4, 6], [4, 3]]",
    # indices
    "take": "hm.take(hm.tensor([[1, 2, 3], [4, 5, 6]]), hm.tensor([2, 0]), axis=1).tolist() -> [[3, 1], [6, 4]]",
    "one_hot": "hm.one_hot(hm.tensor([0, 2]), 3).tolist() -> [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]",
    "scatter_add": "updates = hm.tensor([1.0, 2.0, 3.0]);"
                   " hm.scatter_add(hm.zeros(3), hm.tensor([0, 2, 2]), updates, axis=0) -> Tensor([1., 0., 5.])",
    "scatter_set": "updates = hm.tensor([1.0, 2.0, 3.0]);"
                   " hm.scatter_set(hm.zeros(3), hm.tensor([0, 2, 2]), updates, axis=0) -> Tensor([1., 0., 3.])",
    "scatter_mul": "updates = hm.tensor([1.0, 2.0, 3.0]);"
                   " hm.scatter_mul(hm.ones(3), hm.tensor([0, 2, 2]), updates, axis=0) -> Tensor([1., 1., 6.])",
    "scatter_min": "x = hm.tensor([5, 5, 5]);"
                   " hm.scatter_min(x, hm.tensor([0, 2, 2]), hm.tensor([1, 9, 4]), axis=0) -> Tensor([1, 5, 4])",
    "scatter_max": "x = hm.tensor([5, 5, 5]);"
                   " hm.scatter_max(x, hm.tensor([0, 2, 2]), hm.tensor([1, 9, 4]), axis=0) -> Tensor([5, 5, 9])",
    # matrices
    "matmul": "hm.matmul(hm.tensor([[1, 2], [3, 4]]), hm.tensor([10, 1])) -> Tensor([12, 34])",
    "solve": "hm.solve(hm.tensor([[2.0, 0.0], [0.0, 4.0]]), hm.tensor([2.0, 2.0])) -> Tensor([1.0, 0.5])",
    "solve_triangular": "x = hm.tensor([[2.0, 0.0], [1.0, 4.0]]);"
                        " hm.solve_triangular(x, hm.tensor([2.0, 5.0]), upper=False) -> Tensor([1., 1.])",
    "cholesky": "hm.cholesky(hm.tensor([[4.0, 2.0], [2.0, 5.0]])).tolist() -> [[2.0, 0.0], [1.0, 2.0]]",
    "lu": "p, l, u = hm.lu(hm.tensor([[1.0, 2.0], [4.0, 8.0]]));"
          " l.tolist(), u.tolist() -> ([[1.0, 0.0], [0.25, 1.0]], [[4.0, 8.0], [0.0, 0.0]])",
    "qr": "q, r = hm.qr(hm.tensor([[3.0, 1.0], [4.0, 1.0], [0.0, 2.0]])); q.shape, r.shape -> ((3, 2), (2, 2))",
    "svd": "x = hm.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]); u, s, vh = hm.svd(x, full_matrices=False);"
           " u.shape, hm.round(s), vh.shape -> ((3, 2), Tensor([4., 3.]), (2, 2))",
    "svdvals": "hm.round(hm.svdvals(hm.tensor([[3.0, 0.0], [0.0, 4.0]]))) -> Tensor([4., 3.])",
    "eigh": "values, vectors = hm.eigh(hm.tensor([[2.0, 1.0], [1.0, 2.0]]));"
            " hm.round(values), vectors.shape -> (Tensor([1., 3.]), (2, 2))",
    "eigvalsh": "hm.round(hm.eigvalsh(hm.tensor([[2.0, 1.0], [1.0, 2.0]]))) -> Tensor([1., 3.])",
    "eig": "values, vectors = hm.eig(hm.tensor([[0.0, -1.0], [1.0, 0.0]]));"
           " hm.sort(hm.round(values.imag)), vectors.shape -> (Tensor([-1.,  1.]), (2, 2))",
    "eigvals": "hm.sort(hm.round(hm.eigvals(hm.tensor([[2.0, 1.0], [0.0, 3.0]])).real)) -> Tensor([2., 3.])",
    "inv": "hm.inv(hm.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist() -> [[0.5, 0.0], [0.0, 0.25]]",
    "pinv": "x = hm.tensor([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]]);"
            " hm.allclose(x @ hm.pinv(x, 1e-6) @ x, x) -> Tensor(True)",
    "det": "hm.det(hm.tensor([[2.0, 1.0], [4.0, 6.0]])) -> Tensor(8.)",
    "slogdet": "hm.slogdet(hm.tensor([[0.0, 2.0], [1.0, 0.0]])) -> (Tensor(-1.), Tensor(0.6931))",
    "matrix_exp": "hm.matrix_exp(hm.tensor([[0.0, 1.0], [0.0, 0.0]])).tolist() -> [[1.0, 1.0], [0.0, 1.0]]",
}
# fmt: on


def example_of(name: str) -> list[str]:
    """The example of a row as a paragraph of its docstring, if it has one."""
    return [as_doctest(EXAMPLES[name])] if name in EXAMPLES else []


def as_doctest(example: str) -> str:
    """An example in the words of a docstring.

    >>> as_doctest("x = 3; x + 1 -> 4").splitlines()
    ['>>> import hybridml as hm', '>>> x = 3', '>>> x + 1', '4']
    """
    code, _, result = example.rpartition(" -> ")
    return ">>> import hybridml as hm\n>>> " + code.replace("; ", "\n>>> ") + "\n" + result
