"""hybridml: one program, two execution styles.

A program runs eagerly by default: every line at once, with NumPy underneath. Put `@hybridml.trace` on a function and
the same program is captured, fused and compiled. Rows of the operation table are functions here (`hm.exp`,
`hm.matmul`) and methods of `Tensor`; names follow the array API standard, with NumPy's and PyTorch's as aliases.

Type checkers and editors read `__init__.pyi`, which `make docs` writes.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from hybridml_compiler import errors
from hybridml_compiler.errors import (
    ArgumentError,
    AxisError,
    CompileError,
    DeadlineError,
    DeviceError,
    DTypeError,
    GradientError,
    HybridmlError,
    OutOfBoundsError,
    ShapeError,
    TraceError,
)

from . import arrays, autograd, polynomials, random
from .control_flow import cond, fori_loop, map, prange, scan, switch, while_loop
from .core.context import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from .core.native_methods import note as _note
from .core.proxies import complex as _complex
from .core.proxies import scalar as _scalar
from .core.pytree import tree_leaves, tree_map
from .core.spellings import no_attribute as _no_attribute
from .core.tensor import Device, Tensor
from .core.tensor import Tensor as ndarray
from .core.tracebacks import install as _install
from .display import tensors as _tensors  # noqa: F401  (how tensors show themselves)
from .interop.numpy import function_methods as _function_methods
from .interop.pytorch import functions as _functions
from .interop.pytorch import hardware as _hardware
from .interop.pytorch.hints import HINTS as _HINTS
from .random import Generator, manual_seed, multinomial, rand, rand_like, randint, randn, randn_like, randperm
from .tracing import compiled as _compiled  # noqa: F401  (gives dispatch a kernel)
from .transforms.checkpoint import checkpoint
from .transforms.custom import custom_jvp, custom_vjp
from .transforms.grad import grad, jvp, stop_gradient, value_and_grad, vjp
from .transforms.jacobian import hessian, hvp, jacfwd, jacrev, linearize
from .transforms.vmap import axis_index, pmean, psum, vmap

_scalar.install()
_complex.install()
_install()

__version__ = "0.1.0"

# Imported when first used: a program that only adds two tensors does not load the layers or the compiler.
_MODULES = (
    "amp", "cuda", "data", "distributed", "distributions", "fft", "func", "functional", "io", "linalg", "metrics",
    "models", "nn", "optim", "signal", "special", "testing", "training", "utils",
)  # fmt: skip
_NUMPYS = """
apply_along_axis array array_equiv c_ compress copy copyto diag_indices diag_indices_from extract fill_diagonal
flatnonzero fromfunction fromiter indices iscomplex iscomplexobj isrealobj isscalar ix_ mgrid ndenumerate ndim
ndindex ogrid piecewise place putmask r_ rollaxis shape size tril_indices_from trim_zeros triu_indices_from
"""
_FUNCTIONS = {
    "ShapeDtypeStruct": "hybridml.arrays.shape_dtype",
    "TracedFunction": "hybridml.tracing.function",
    "bfloat16": "hybridml_compiler.dtypes",
    "audit": "hybridml.inspect.audits",
    "autocast": "hybridml.amp",
    "compare": "hybridml.inspect.side_by_side",
    "config": "hybridml.inspect.settings",
    "deadline": "hybridml.inspect.deadlines",
    "debug_nans": "hybridml.inspect.nans",
    "device_of": "hybridml.distributed.placing.device_of",
    "doctor": "hybridml.inspect.diagnosis",
    "eager": "hybridml.inspect.stances",
    "eval_shape": "hybridml.inspect.shapes",
    "explain": "hybridml.inspect.explanation",
    "explain_speed": "hybridml.profiler.speed.explain",
    "get_num_threads": "hybridml_compiler.targets.cpu.runtime.threads",
    "is_deterministic": "hybridml_compiler.config",
    "kernel": "hybridml.extend.kernel",
    "load": "hybridml.io",
    "op": "hybridml.extend.op",
    "memory_timeline": "hybridml.profiler.profile",
    "profile": "hybridml.profiler.profile",
    "save": "hybridml.io",
    "set_num_threads": "hybridml_compiler.targets.cpu.runtime.threads",
    "stance": "hybridml.inspect.stances",
    "summary": "hybridml.inspect.summary",
    "trace": "hybridml.tracing.decorator",
    "use_deterministic": "hybridml_compiler.config",
    "vectorize": "hybridml.extend.vectorize",
    **dict.fromkeys(
        ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "istft", "kaiser_window", "stft"),
        "hybridml.arrays.spectral",
    ),
    **dict.fromkeys(
        (
            "cdist",
            "celu",
            "conv1d",
            "conv2d",
            "conv3d",
            "cosine_similarity",
            "dropout",
            "embedding",
            "gelu",
            "layer_norm",
            "log_softmax",
            "pairwise_distance",
            "selu",
            "softmax",
        ),
        "hybridml.functional",
    ),
    **dict.fromkeys(
        ("cholesky_inverse", "cholesky_solve", "dist", "lu_unpack", "pinverse", "renorm", "triangular_solve"),
        "hybridml.linalg",
    ),
    **dict.fromkeys(
        ("betaln", "igamma", "igammac", "logit", "mvlgamma", "polygamma", "sinc", "xlog1py", "xlogy"),
        "hybridml.special",
    ),
    **dict.fromkeys(_NUMPYS.split(), "hybridml.interop.numpy.namespace"),
}

__all__ = [
    "ArgumentError", "AxisError", "CompileError", "DTypeError", "DeadlineError", "Device", "DeviceError", "Generator",
    "GradientError", "HybridmlError", "OutOfBoundsError", "ShapeDtypeStruct", "ShapeError", "Tensor", "TraceError",
    "TracedFunction", "amp", "apply_along_axis", "array", "array_equiv", "audit", "autocast", "autograd", "axis_index",
    "bartlett_window", "betaln", "bfloat16", "blackman_window", "c_", "cdist", "celu", "checkpoint", "cholesky_inverse",
    "cholesky_solve", "compare", "compress", "cond", "config", "conv1d", "conv2d", "conv3d", "copy", "copyto",
    "cosine_similarity", "cuda", "custom_jvp", "custom_vjp", "data", "deadline", "debug_nans", "device_of",
    "diag_indices", "diag_indices_from", "dist", "distributed", "distributions", "doctor", "dropout", "eager",
    "embedding", "enable_grad", "errors", "eval_shape", "explain", "explain_speed", "extract", "fft", "fill_diagonal",
    "flatnonzero", "fori_loop", "fromfunction", "fromiter",
    "func", "functional", "gelu", "get_num_threads", "grad", "hamming_window", "hann_window", "hessian", "hvp",
    "igamma", "igammac", "indices", "io", "is_deterministic", "is_grad_enabled", "iscomplex", "iscomplexobj",
    "isrealobj", "isscalar", "istft", "ix_", "jacfwd", "jacrev", "jvp", "kaiser_window", "kernel", "layer_norm",
    "linalg", "linearize", "load", "log_softmax", "logit", "lu_unpack", "manual_seed", "map", "memory_timeline",
    "metrics", "mgrid", "models", "multinomial", "mvlgamma", "ndarray", "ndenumerate", "ndim", "ndindex", "nn",
    "no_grad", "ogrid", "op", "optim", "pairwise_distance", "piecewise", "pinverse", "place", "pmean", "polygamma",
    "prange", "profile", "psum", "putmask", "r_", "rand", "rand_like", "randint", "randn", "randn_like", "random",
    "randperm", "renorm", "rollaxis", "save", "scan", "selu", "set_grad_enabled", "set_num_threads", "shape", "signal",
    "sinc", "size", "softmax", "special", "stance", "stft", "stop_gradient", "summary", "switch", "testing", "trace",
    "training", "tree_leaves", "tree_map", "triangular_solve", "tril_indices_from", "trim_zeros", "triu_indices_from",
    "use_deterministic", "utils", "value_and_grad", "vectorize", "vjp", "vmap", "while_loop", "xlog1py", "xlogy",
]  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        found: _Any = _import_module(f"hybridml.{name}")
    elif name in _FUNCTIONS:
        found = getattr(_import_module(_FUNCTIONS[name]), name)
    else:
        raise AttributeError(_no_attribute("module 'hybridml'", name, __all__, _HINTS))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_BUILTINS, "__version__"})


_more = {name: getattr(polynomials, name) for name in polynomials.__all__} | _functions.names | _hardware.names
globals().update(arrays.names | _more)
_function_methods.install(arrays.names)
_note()
_BUILTINS = ("bool", "compile", "complex", "float", "int")  # `from hybridml import *` leaves these as they are
__all__ += sorted({*arrays.names, *_more} - {*_BUILTINS})
