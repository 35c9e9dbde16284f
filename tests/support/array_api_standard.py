"""Names and signatures of the array API standard 2024.12 (https://data-apis.org/array-api/2024.12/API_specification)."""

from __future__ import annotations

_ONE, _TWO = "(x, /)", "(x1, x2, /)"
_REDUCTION = "(x, /, *, axis=None, keepdims=False)"
_ACCUMULATION = "(x, /, *, axis=None, dtype=None, keepdims=False)"
_SPREAD = "(x, /, *, axis=None, correction=0.0, keepdims=False)"
_RUNNING = "(x, /, *, axis=None, dtype=None, include_initial=False)"
_LIKE = "(x, /, *, dtype=None, device=None)"
_SHAPED = "(shape, *, dtype=None, device=None)"
_ORDER = "(x, /, *, axis=-1, descending=False, stable=True)"
_FFT = "(x, /, *, n=None, axis=-1, norm='backward')"
_FFTN = "(x, /, *, s=None, axes=None, norm='backward')"
_FREQUENCIES = "(n, /, *, d=1.0, dtype=None, device=None)"

# signature -> names of the functions that have it
_MAIN: dict[str, str] = {
    _ONE: "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf "
    "isnan log log10 log1p log2 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt square "
    "tan tanh trunc matrix_transpose nonzero unique_all unique_counts unique_inverse unique_values",
    _TWO: "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal "
    "floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum "
    "minimum multiply nextafter not_equal pow remainder subtract matmul",
    "(x, /, min=None, max=None)": "clip",
    "(start, /, stop=None, step=1, *, dtype=None, device=None)": "arange",
    "(obj, /, *, dtype=None, device=None, copy=None)": "asarray",
    _SHAPED: "empty ones zeros",
    _LIKE: "empty_like ones_like zeros_like",
    "(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)": "eye",
    "(x, /, *, device=None, copy=None)": "from_dlpack",
    "(shape, fill_value, *, dtype=None, device=None)": "full",
    "(x, /, fill_value, *, dtype=None, device=None)": "full_like",
    "(start, stop, /, num, *, dtype=None, device=None, endpoint=True)": "linspace",
    "(*arrays, indexing='xy')": "meshgrid",
    "(x, /, *, k=0)": "tril triu",
    "(x, dtype, /, *, copy=True, device=None)": "astype",
    "(*arrays)": "broadcast_arrays",
    "(x, /, shape)": "broadcast_to",
    "(from_, to, /)": "can_cast",
    "(type, /)": "finfo iinfo",
    "(dtype, kind)": "isdtype",
    "(*arrays_and_dtypes)": "result_type",
    "(x, indices, /, *, axis=None)": "take",
    "(x, indices, /, *, axis=-1)": "take_along_axis",
    "()": "__array_namespace_info__",
    "(x1, x2, /, *, axes=2)": "tensordot",
    "(x1, x2, /, *, axis=-1)": "vecdot",
    "(arrays, /, *, axis=0)": "concat stack",
    "(x, /, axis)": "expand_dims squeeze",
    "(x, /, *, axis=None)": "flip",
    "(x, source, destination, /)": "moveaxis",
    "(x, /, axes)": "permute_dims",
    "(x, repeats, /, *, axis=None)": "repeat",
    "(x, /, shape, *, copy=None)": "reshape",
    "(x, /, shift, *, axis=None)": "roll",
    "(x, repetitions, /)": "tile",
    "(x, /, *, axis=0)": "unstack",
    _REDUCTION: "all any argmax argmin count_nonzero max mean min",
    "(x1, x2, /, *, side='left', sorter=None)": "searchsorted",
    "(condition, x1, x2, /)": "where",
    _ORDER: "argsort sort",
    _RUNNING: "cumulative_prod cumulative_sum",
    _ACCUMULATION: "prod sum",
    _SPREAD: "std var",
    "(x, /, *, axis=-1, n=1, prepend=None, append=None)": "diff",
}
_LINALG: dict[str, str] = {
    _ONE: "det eigh eigvalsh inv matrix_transpose slogdet svdvals",
    _TWO: "matmul outer solve",
    "(x, /, *, upper=False)": "cholesky",
    "(x1, x2, /, *, axis=-1)": "cross vecdot",
    "(x, /, *, offset=0)": "diagonal",
    "(x, /, *, keepdims=False, ord='fro')": "matrix_norm",
    "(x, n, /)": "matrix_power",
    "(x, /, *, rtol=None)": "matrix_rank pinv",
    "(x, /, *, mode='reduced')": "qr",
    "(x, /, *, full_matrices=True)": "svd",
    "(x1, x2, /, *, axes=2)": "tensordot",
    "(x, /, *, offset=0, dtype=None)": "trace",
    "(x, /, *, axis=None, keepdims=False, ord=2)": "vector_norm",
}
_FOURIER: dict[str, str] = {
    _FFT: "fft ifft rfft irfft hfft ihfft",
    _FFTN: "fftn ifftn rfftn irfftn",
    _FREQUENCIES: "fftfreq rfftfreq",
    "(x, /, *, axes=None)": "fftshift ifftshift",
}


def _by_name(prefix: str, table: dict[str, str]) -> dict[str, str]:
    return {prefix + name: signature for signature, names in table.items() for name in names.split()}


FUNCTIONS: dict[str, str] = {
    **_by_name("", _MAIN), **_by_name("linalg.", _LINALG), **_by_name("fft.", _FOURIER),
}  # fmt: skip
INFO: dict[str, str] = {
    "capabilities": "()",
    "default_device": "()",
    "default_dtypes": "(*, device=None)",
    "devices": "()",
    "dtypes": "(*, device=None, kind=None)",
}
METHODS: dict[str, str] = {
    **{name: "(self, /)" for name in (
        "__abs__", "__bool__", "__complex__", "__dlpack_device__", "__float__", "__index__", "__int__", "__invert__",
        "__neg__", "__pos__",
    )},
    **{f"__{name}__": "(self, other, /)" for name in (
        *("add", "and", "eq", "floordiv", "ge", "gt", "le", "lshift", "lt", "matmul", "mod", "mul", "ne", "or", "pow"),
        *("rshift", "sub", "truediv", "xor"),
    )},
    **{f"__{way}{name}__": "(self, other, /)" for way in "ri" for name in (
        *("add", "and", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow", "rshift", "sub", "truediv", "xor"),
    )},
    "__array_namespace__": "(self, /, *, api_version=None)",
    "__dlpack__": "(self, /, *, stream=None, max_version=None, dl_device=None, copy=None)",
    "__getitem__": "(self, key, /)",
    "__setitem__": "(self, key, value, /)",
    "to_device": "(self, device, /, *, stream=None)",
}  # fmt: skip
ATTRIBUTES = ("dtype", "device", "mT", "ndim", "shape", "size", "T")
CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)
