"""The module of all native methods, as LLVM IR."""

from __future__ import annotations

from collections.abc import Mapping

from ..llvm.native import native
from ..llvm.native import text as module_text
from ..spec import host_spec
from . import functions
from .copies import hml_copy_loop
from .elementwise import binary
from .kernels import emit_loop
from .lifetimes import hml_dealloc
from .objects import operand
from .reductions import hml_reduction
from .slots import slots
from .views import place_of


def text(methods: Mapping[str, str]) -> str:
    """LLVM IR of the slots of these methods, by what each does, and of the functions."""
    loop = native("void", *["ptr"] * 4, name="hml_kernel_loop")(emit_loop)
    called = functions.hml_function, functions.hml_array_ufunc, functions.hml_array_function, functions.hml_array
    copies = functions.hml_clone, functions.hml_copy, hml_copy_loop, hml_reduction
    # With the others optimized as well, LLVM takes twice the time, and `x[i]`, `s * t`, `A[i, :7] @ v` 2 % less.
    optimized = binary, hml_copy_loop, loop, operand, place_of
    defined = *called, *copies, loop, hml_dealloc, *slots(methods)
    return module_text("eager_calls", host_spec(), *defined, optimized=optimized)
