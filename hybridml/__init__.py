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

from . import arrays, autograd, interop, polynomials, random  # noqa: F401  (interop: NumPy and einops find tensors)
from .control_flow import cond, fori_loop, map, scan, while_loop
from .core.context import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from .core.proxies import scalar as _scalar
from .core.pytree import tree_leaves, tree_map
from .core.tensor import Device, Tensor
from .core.tensor import Tensor as ndarray
from .display import tensors as _tensors  # noqa: F401  (how tensors show themselves)
from .random import Generator, manual_seed, multinomial, rand, rand_like, randint, randn, randn_like, randperm
from .tracing import compiled as _compiled  # noqa: F401  (gives dispatch a kernel)
from .transforms.checkpoint import checkpoint
from .transforms.grad import grad, jvp, value_and_grad, vjp

_scalar.install()

__version__ = "0.1.0"

# Imported when first used: a program that only adds two tensors does not load the layers or the compiler.
_MODULES = ("data", "distributions", "fft", "functional", "io", "linalg", "nn", "optim", "signal", "special", "testing")
_FUNCTIONS = {
    "TracedFunction": "hybridml.tracing.function",
    "bfloat16": "hybridml_compiler.dtypes",
    "audit": "hybridml.inspect.audits",
    "compare": "hybridml.inspect.side_by_side",
    "deadline": "hybridml.inspect.deadlines",
    "debug_nans": "hybridml.inspect.nans",
    "doctor": "hybridml.inspect.diagnosis",
    "eager": "hybridml.inspect.stances",
    "explain": "hybridml.inspect.explanation",
    "get_num_threads": "hybridml_compiler.targets.cpu.runtime.threads",
    "is_deterministic": "hybridml_compiler.config",
    "load": "hybridml.io",
    "memory_timeline": "hybridml.profiler.profile",
    "profile": "hybridml.profiler.profile",
    "save": "hybridml.io",
    "set_num_threads": "hybridml_compiler.targets.cpu.runtime.threads",
    "stance": "hybridml.inspect.stances",
    "trace": "hybridml.tracing.decorator",
    "use_deterministic": "hybridml_compiler.config",
    **dict.fromkeys(
        ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "istft", "kaiser_window", "stft"),
        "hybridml.arrays.spectral",
    ),
    **dict.fromkeys(
        ("cholesky_inverse", "cholesky_solve", "dist", "lu_unpack", "pinverse", "renorm", "triangular_solve"),
        "hybridml.linalg",
    ),
    **dict.fromkeys(
        ("betaln", "igamma", "igammac", "logit", "mvlgamma", "polygamma", "sinc", "xlog1py", "xlogy"),
        "hybridml.special",
    ),
}

__all__ = [
    "ArgumentError", "AxisError", "CompileError", "DTypeError", "DeadlineError", "Device", "DeviceError", "Generator",
    "GradientError", "HybridmlError", "OutOfBoundsError", "ShapeError", "Tensor", "TraceError", "TracedFunction",
    "audit", "autograd", "bartlett_window", "betaln", "bfloat16", "blackman_window", "checkpoint",
    "cholesky_inverse", "cholesky_solve", "compare", "cond", "data", "deadline", "debug_nans", "dist", "distributions",
    "doctor", "eager", "enable_grad", "errors", "explain", "fft", "fori_loop", "functional", "get_num_threads",
    "grad", "hamming_window", "hann_window", "igamma", "igammac", "io", "is_deterministic",
    "is_grad_enabled", "istft", "jvp", "kaiser_window", "linalg", "load", "logit", "lu_unpack",
    "manual_seed", "map", "memory_timeline", "multinomial", "mvlgamma", "ndarray", "nn", "no_grad",
    "optim", "pinverse", "polygamma", "profile", "rand", "rand_like", "randint",
    "randn", "randn_like", "random", "randperm", "renorm", "save", "scan", "set_grad_enabled", "set_num_threads",
    "signal", "sinc", "special", "stance", "stft", "testing", "trace", "tree_leaves", "tree_map", "triangular_solve",
    "use_deterministic", "value_and_grad", "vjp", "while_loop", "xlog1py", "xlogy",
]  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        found: _Any = _import_module(f"hybridml.{name}")
    elif name in _FUNCTIONS:
        found = getattr(_import_module(_FUNCTIONS[name]), name)
    else:
        raise AttributeError(f"module 'hybridml' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})


globals().update(arrays.names)
globals().update({name: getattr(polynomials, name) for name in polynomials.__all__})
__all__ += [*arrays.names, *polynomials.__all__]
