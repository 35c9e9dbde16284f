"""Kernels over whole arrays: a function that numba compiles, as an operation that programs call without Python."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from typing import Any

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.custom import Signature
from hybridml_compiler.ops.op import Op

from .code_digest import version_of
from .columns import inputs_and_params, row_name
from .numba_code import array_type, compiled, native_function, parameter_types
from .operation import Operation, Reads
from .row_of_function import row_of_function


class ArrayKernel(Operation):
    """An operation that numba compiles for the dtypes and numbers of axes that come."""

    def __init__(self, fn: Any, columns: Mapping[str, Any]) -> None:
        if not isinstance(fn, types.FunctionType):
            raise ArgumentError(f"hm.kernel: takes a Python function, got {type(fn).__name__}")
        inputs_and_params("hm.kernel", fn)
        self.name = row_name("hm.kernel", fn)
        self.columns = columns
        self.digested = (fn, *columns.values())
        super().__init__(fn)

    def row(self, reads: Reads) -> Op:
        fn = self.fn
        reads.all_of(fn)
        inputs, params = inputs_and_params("hm.kernel", fn)
        dispatchers: dict[Signature, Any] = {}
        kept: list[Any] = []

        def dispatcher(signature: Signature) -> Any:
            if signature not in dispatchers:
                arrays, kinds = signature
                given = [array_type(dtype, ndim) for dtype, ndim in arrays[: len(inputs)]]
                dispatchers[signature] = compiled(fn, [*given, *parameter_types(kinds)])
            return dispatchers[signature]

        def native(signature: Signature) -> int:
            address, entry = native_function(fn.__name__, dispatcher(signature), signature, len(inputs))
            kept.append(entry)
            return address

        def call(*arrays: Any, **given: Any) -> Any:
            """The function itself, for its error."""
            return fn(*arrays, **given)

        return row_of_function(
            self.name, call, inputs, params, what="hm.kernel", version=version_of(*self.digested),
            native=native, doc=inspect.getdoc(fn) or "", **self.columns,
        )  # fmt: skip
