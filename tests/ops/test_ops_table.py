"""Every row of the operation table on its own samples: shapes, dtypes, precision, lowering, errors, documentation."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hybridml_compiler import aval as avals
from hybridml_compiler import dtypes, errors
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.ir import Graph, apply, graph_of
from hybridml_compiler.ops.op import REQUIRED, ErrorSample, Op, Sample
from hybridml_compiler.ops.promotion import input_dtypes
from hybridml_compiler.ops.table import ALIASES, OPS
from tests.support.cases import case
from tests.support.run_plan import plan_of, run_plan

# Sums run in another order in the reference than in NumPy; all else has the same bits.
REORDERED = ("reduction", "contraction", "convolution", "scan")


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):  # 1 / 0 is a value here
        yield


def label(args: Any, params: Any) -> str:
    def one(a: Any) -> str:
        return "+".join(map(one, a)) if isinstance(a, list) else str(avals.of(a)).replace("[", "(").replace("]", ")")

    named = (f"{k}={str(v).replace(' ', '')}" for k, v in params.items())
    return ",".join([*map(one, args), *named])


def samples(op: Op) -> Iterator[Sample]:
    return iter(op.samples(np.random.default_rng(zlib.crc32(op.name.encode()))))


def operands(op: Op, sample: Sample | ErrorSample) -> list[np.ndarray]:
    return list(sample.args[0] if op.variadic else sample.args)


def infer(op: Op, inputs: list[Aval], params: Any) -> Any:
    return op.infer(inputs, **params) if op.variadic else op.infer(*inputs, **params)


def run(op: Op, arrays: list[np.ndarray], params: Any) -> Any:
    """An array, or a list of them."""
    found = op.run(arrays, params)
    return list(map(np.asarray, found)) if op.results else np.asarray(found)


def lowered(op: Op, arrays: list[np.ndarray], params: Any) -> np.ndarray:
    """The result of the row's kernel, which is interpreted."""
    nodes = graph_of(arrays)
    plan = plan_of(Graph(tuple(nodes), (apply(op, nodes, params),), op.name), blas=False)
    found = run_plan(plan, [np.ascontiguousarray(a).reshape(a.shape) for a in arrays], 1, {})
    assert found is not None, "an index is out of range"
    return found[0]


def tolerance(dtype: np.dtype, size: int) -> dict[str, float]:
    unit = float(np.finfo(dtype).eps)
    return {"rtol": 16 * unit, "atol": 4 * unit * max(1, size)}


@pytest.mark.parametrize("op", OPS.values(), ids=str)
def test_row(op: Op) -> None:
    for sample in samples(op):
        with case(label(sample.args, sample.params)):
            check_row(op, sample)


def check_row(op: Op, sample: Sample) -> None:
    arrays = operands(op, sample)
    inputs = [avals.of(a) for a in arrays]
    wanted = input_dtypes(op, inputs)
    arrays = [a.astype(d) if a.dtype != d else a for a, d in zip(arrays, wanted, strict=True)]
    inputs = [avals.of(a) for a in arrays]
    before = [a.copy() for a in arrays]

    params = op.canonical_params(inputs, sample.params)
    assert repr(op.canonical_params(inputs, params)) == repr(params), "canon is idempotent"
    hash(tuple(params.items()))

    out = infer(op, inputs, params)
    assert infer(op, inputs, op.with_defaults(sample.params)) == out, "infer takes the user's form too"
    result = run(op, arrays, params)
    again = run(op, arrays, op.with_defaults(sample.params))
    for made, same, aval in zip(*((x if op.results else [x]) for x in (result, again, out)), strict=True):
        assert (made.shape, made.dtype) == (aval.shape, aval.dtype)
        np.testing.assert_array_equal(same, made)
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b, err_msg="eager changed its input")
    if op.kind in ("opaque", "effect") or (not op.complex_kernels and any(x.dtype.kind == "c" for x in (*inputs, out))):
        return  # NumPy computes it everywhere

    by_definition = lowered(op, arrays, params)
    assert by_definition.dtype == out.dtype
    for eager, interpreted in zip(parts_of(result), parts_of(by_definition), strict=True):
        if op.kind in REORDERED and out.dtype.kind in "fc":
            close = tolerance(out.dtype, sum(a.size for a in arrays))
            np.testing.assert_allclose(eager, interpreted, **close)
        else:
            assert_same_bits(eager, interpreted)


def parts_of(array: np.ndarray) -> list[np.ndarray]:
    """The real and the imaginary part of complex numbers; others as they are."""
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind == "f":
        assert np.all((np.signbit(a) == np.signbit(b)) | np.isnan(a)), "signs of zero differ"


@pytest.mark.parametrize("op", OPS.values(), ids=str)
def test_float32_against_float64(op: Op) -> None:
    for sample in samples(op):
        with case(label(sample.args, sample.params)):
            check_float32(op, sample)


def check_float32(op: Op, sample: Sample) -> None:
    arrays = operands(op, sample)
    if not any(a.dtype == np.float32 for a in arrays):
        return
    if not all(np.all(np.isfinite(a)) for a in arrays) or "dtype" in sample.params:
        return  # edge values overflow in one and not in the other
    wide = [a.astype("f8") if a.dtype == np.float32 else a for a in arrays]
    edges = any(a.dtype == np.float32 and np.any(np.abs(a) > 1e6) for a in arrays)
    if edges:
        return
    params = op.with_defaults(sample.params)
    narrow, exact = run(op, arrays, params), run(op, wide, params)
    if op.results:
        return  # of which some are unique but for signs; rooms of their own test those
    assert narrow.dtype == {"float64": np.float32, "complex128": np.complex64}.get(exact.dtype.name, exact.dtype)
    np.testing.assert_allclose(narrow, exact, rtol=1e-5, atol=1e-5 * max(1, sum(a.size for a in arrays)) / 10)


@pytest.mark.parametrize("op", OPS.values(), ids=str)
def test_errors(op: Op) -> None:
    for sample in op.error_samples():
        with case(label(sample.args, sample.params)):
            check_error(op, sample)


def check_error(op: Op, sample: ErrorSample) -> None:
    arrays = operands(op, sample)
    with pytest.raises(sample.error) as caught:
        inputs = [avals.of(a) for a in arrays]
        inputs = [Aval(a.shape, d) for a, d in zip(inputs, input_dtypes(op, inputs), strict=True)]
        params = op.canonical_params(inputs, sample.params)
        infer(op, inputs, params)
        run(op, arrays, params)
    assert isinstance(caught.value, errors.HybridmlError)
    assert sample.match in str(caught.value)
    assert op.name in str(caught.value) or sample.error is errors.DTypeError


@pytest.mark.parametrize("op", OPS.values(), ids=str)
def test_row_is_complete(op: Op) -> None:
    assert len(op.doc) > 10 and op.doc.endswith("."), "a sentence on what it means"
    assert len(op.doc.splitlines()) == 1
    assert list(op.error_samples()) or len(op.inputs) == 1, "something is refused: error_samples, made by `fails`"
    assert list(op.samples(np.random.default_rng(0)))
    assert all(v is REQUIRED or hash(v) is not None for v in op.params.values())
    assert all(name.isidentifier() for name in (op.name, *op.inputs, *op.params))
    if op.vjp:
        assert len(op.vjp) == len(op.inputs), "one rule an input, None for no gradient"
    if any(sample.grad for sample in op.samples(np.random.default_rng(0))) and op.kind not in ("creation", "random"):
        assert op.vjp, "a rule, or (None, ...) to say that there is none"
    known = {"out", *op.inputs, *op.params, *(f"{x}_{what}" for x in op.inputs for what in ("shape", "dtype"))}
    if op.variadic:
        known = {"k", "out", *op.params, f"{op.inputs[0]}_shapes", f"{op.inputs[0]}_dtypes"}
    for names in op.needs:
        assert set(names or ()) <= known
    for rule in op.vjp:
        if rule is not None:
            assert next(iter(inspect.signature(rule).parameters)) == "g"


def test_aliases_point_to_rows() -> None:
    assert set(ALIASES.values()) <= OPS.keys()
    assert not ALIASES.keys() & OPS.keys()


def test_names_are_used_once() -> None:
    for column in ("method", "operator"):
        names = [name for op in OPS.values() if (name := getattr(op, column))]
        assert len(names) == len(set(names))
    assert len(OPS) >= 60


def test_promotion() -> None:
    def wanted(name: str, *given: str) -> list[str]:
        return [dtypes.short(d) for d in input_dtypes(OPS[name], [avals.parse(text) for text in given])]

    assert wanted("add", "f32[2]", "i64[2]") == ["f32", "f32"]
    assert wanted("add", "i32[2]", "f64[]~") == ["f32", "f32"]
    assert wanted("divide", "i32[2]", "i64[2]") == ["f32", "f32"]
    assert wanted("where", "bool[2]", "f64[2]", "f32[]~") == ["bool", "f64", "f64"]
    assert wanted("take", "f64[3]", "i32[2]") == ["f64", "i32"]
    assert wanted("logical_and", "f64[3]", "i32[]") == ["bool", "bool"]
    assert wanted("mean", "u8[3]") == ["f32"]
    assert wanted("slice_update", "f32[3]", "f64[]~") == ["f32", "f32"]
    assert wanted("concat", "f32[3]", "f64[1]", "i8[2]") == ["f64", "f64", "f64"]
