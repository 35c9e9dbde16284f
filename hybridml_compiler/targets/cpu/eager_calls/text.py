"""The module of all native methods, as LLVM IR."""

from __future__ import annotations

from collections.abc import Mapping

from ..llvm.native import native
from ..llvm.native import text as module_text
from ..spec import host_spec
from . import functions
from .copies import hml_copy_loop
from .kernels import emit_loop
from .lifetimes import hml_dealloc
from .reductions import hml_reduction
from .slots import slots

# What most calls run through. For the others LLVM takes a third of its time: with all of them optimized it takes 1.5
# times as long, and Seidel, `durbin` and `trmm` of NPBench are as fast; with none of these they take a tenth more.
_OFTEN = (
    "assigned", "_assigned", "binary", "chosen", "dtype_row", "_freed", "hml_array_function", "hml_copy_loop",
    "hml_dealloc", "hml_kernel_loop", "hml_slot_getitem", "hml_slot_setitem", "link", "loop_of", "loop_of_two", "meets",
    "new_number", "number", "of_two", "operand", "place_of", "plain_array", "product", "seen", "updated", "_updated",
    "wrap", "write_stamp",
)  # fmt: skip


def text(methods: Mapping[str, str]) -> str:
    """LLVM IR of the slots of these methods, by what each does, and of the functions."""
    loop = native("void", *["ptr"] * 4, name="hml_kernel_loop")(emit_loop)
    called = functions.hml_function, functions.hml_array_ufunc, functions.hml_array_function, functions.hml_array
    copies = functions.hml_clone, functions.hml_copy, hml_copy_loop, hml_reduction
    defined = *called, *copies, loop, hml_dealloc, *slots(methods)
    return module_text("eager_calls", host_spec(), *defined, optimized=_OFTEN)
