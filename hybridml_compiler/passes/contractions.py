"""Matrix products in the form that leaves no copy, and convolutions that are matrix products.

A weight gradient arrives as the transpose of a product. The product can write the transpose itself, since operands are
read transposed for nothing; a transposed result would have to be gathered element by element. Sums run over the same
products in the order that the library chooses, as for any contraction.

A product of one row and one column is a sum of products, which is fused with what is around it. In a loop, of 1000
float64 elements, a step takes 0.26 us; with a call of BLAS's dgemm 1.75.

A convolution with one tap is a product over its pixels, one with a single window a product over its taps: the layer and
both gradients of a 1 x 1 convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import dtypes
from ..graph.ir import Graph, Node, users
from ..graph.rewrite import Rule, Rules, make, rewrite
from ..record import replace
from ..sizes.dims import same
from .patterns import is_op, sample


def _swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _transposed_product(node: Node) -> Node | None:
    (product,) = node.inputs
    if not is_op(product, "matmul") or node.params["axes"] != _swapped(len(node.shape)):
        return None
    a, b = product.inputs
    if len(a.shape) != len(node.shape) or len(b.shape) != len(node.shape):
        return None
    axes = _swapped(len(node.shape))
    return make("matmul", make("permute_dims", b, axes=axes), make("permute_dims", a, axes=axes))


def _dot_as_sum(node: Node) -> Node | None:
    a, b = node.inputs
    if node.dtype.kind not in "iuf" or node.dtype.itemsize < 4:  # narrow floats are added up in wider ones
        return None
    if (len(a.shape) > 1 and not same(a.shape[-2], 1)) or (len(b.shape) > 1 and not same(b.shape[-1], 1)):
        return None
    column = make("reshape", b, shape=(*b.shape[:-2], b.shape[-2])) if len(b.shape) > 1 else b
    row = make("reshape", a, shape=(*a.shape[:-2], a.shape[-1])) if len(a.shape) > 1 else a
    total = make("sum", make("multiply", row, column), axis=-1, dtype=node.dtype)
    return make("reshape", total, shape=node.shape)


def _convolution_as_product(node: Node) -> Node | None:
    x, w = node.inputs
    kh, kw, groups, c, o = w.shape
    n, height, width = node.shape[:3]
    if groups != 1 or 0 in (*x.shape, *w.shape):
        return None
    if node.params["channels_first"]:
        return _planes_as_product(node) if (kh, kw) == (1, 1) else None
    if (kh, kw) == (1, 1):
        pixels = _meeting(node, (height, width), node.params["stride"])
        if pixels is None:
            return None
        # Images with channels first are read where they are, one by one; those with channels last are one matrix.
        rows, columns = (n, height * width, c), (c, o)
        product = _product(make("reshape", pixels, shape=rows), make("reshape", w, shape=columns))
    elif (height, width) == (1, 1):
        window = _meeting(node, (kh, kw), node.params["dilation"])
        if window is None:
            return None
        if is_op(
            _before_ones(x), "permute_dims"
        ):  # a weight gradient: the axis summed over first is the outermost in memory
            window = make("permute_dims", window, axes=(0, 4, 1, 2, 3))
            w = make("permute_dims", w, axes=(3, 0, 1, 2, 4))
        left = make("reshape", window, shape=(n, kh * kw * c))
        product = _product(left, make("reshape", w, shape=(kh * kw * c, o)))
    else:
        return None
    return make("reshape", product, shape=node.shape)


def _before_ones(x: Node) -> Node:
    """The value before a reshape that adds or drops axes of size 1: a convolution of fewer axes has such."""
    if not is_op(x, "reshape") or [n for n in x.shape if n != 1] != [n for n in x.inputs[0].shape if n != 1]:
        return x
    return x.inputs[0]


def _planes_as_product(node: Node) -> Node | None:
    """A convolution by one tap, the result with channels first: a product of the weights and the planes of each
    image."""
    w = node.inputs[1]
    n, _, o, height, width = node.shape
    pixels = _meeting(node, (height, width), node.params["stride"])
    if pixels is None:
        return None
    planes = make("reshape", make("permute_dims", pixels, axes=(0, 3, 4, 1, 2)), shape=(n, w.shape[3], height * width))
    weights = make("permute_dims", make("reshape", w, shape=(w.shape[3], o)), axes=(1, 0))
    return make("reshape", _product(weights, planes), shape=node.shape)


def _product(a: Node, b: Node) -> Node:
    return make("matmul", _widened_last(a), _widened_last(b))


def _widened_last(x: Node) -> Node:
    """x with a cast that products make themselves after the movements, so that they copy narrow elements."""
    if x.op is None or x.kind != "movement" or len(x.inputs) != 1:
        return x
    below = _widened_last(x.inputs[0])
    if is_op(below, "astype") and dtypes.widens(below.inputs[0].dtype, below.dtype):
        return make("astype", make(x.op.name, below.inputs[0], **x.params), dtype=below.dtype)
    return x


def _meeting(node: Node, counts: Sequence[int], steps: Sequence[int]) -> Node | None:
    """The `counts` pixels of x that meet the kernel, `steps` apart; None if one of them is padding."""
    x = node.inputs[0]
    starts = [-low for low, _ in node.params["padding"]]
    stops = [start + (count - 1) * step + 1 for start, count, step in zip(starts, counts, steps, strict=True)]
    if min(starts) < 0 or any(stop > size for stop, size in zip(stops, x.shape[1:3], strict=True)):
        return None
    bounds = [(0, *starts, 0, 0), (x.shape[0], *stops, *x.shape[3:]), (1, *steps, 1, 1)]
    axes: tuple[int, ...] = tuple(range(5))
    if is_op(x, "permute_dims"):  # below the permutation: the forward pass takes the same slice
        axes, (x,) = x.params["axes"], x.inputs
        bounds = [tuple(bound[axes.index(k)] for k in range(5)) for bound in bounds]
    found = make("slice", x, **dict(zip(("starts", "stops", "steps"), bounds, strict=True)))
    return found if axes == tuple(range(5)) else make("permute_dims", found, axes=axes)


def _convolution(x: tuple[int, ...], w: tuple[int, ...], **params: object) -> Node:
    return make("convolution", sample("i8", *x), sample("i8", *w), **params)


def _gradient_of_pixels() -> Node:
    exchanged = make("permute_dims", sample("i8", 2, 5, 4, 1, 3), axes=(4, 1, 2, 3, 0))
    cotangent = make("permute_dims", sample("i8", 2, 3, 2, 1, 6), axes=(1, 2, 3, 0, 4))
    return make("convolution", exchanged, cotangent, dilation=2, padding=((0, 0), (0, -1)))


def _of_bytes() -> Node:
    wide = make("astype", sample("i1", 2, 3, 4, 1, 3), dtype=dtypes.int32)
    pixels = make("permute_dims", wide, axes=(2, 0, 1, 3, 4))
    return make("convolution", pixels, sample("i4", 1, 1, 1, 3, 2))


PRODUCT_RULE = Rule(
    "permute_dims(a @ b) -> permute_dims(b) @ permute_dims(a)", ("permute_dims",), _transposed_product, lambda: [
        make("permute_dims", make("matmul", sample("i8", 3, 4), sample("i8", 4, 2)), axes=(1, 0)),
        make("permute_dims", make("matmul", sample("i8", 2, 3, 4), sample("i8", 2, 4, 2)), axes=(0, 2, 1)),
])  # fmt: skip
CONVOLUTION_RULE = Rule(
    "convolution of one tap or one window -> matmul", ("convolution",), _convolution_as_product, lambda: [
        _convolution((2, 3, 4, 1, 3), (1, 1, 1, 3, 2)),
        _convolution((2, 5, 4, 1, 3), (1, 1, 1, 3, 2), stride=(2, 3), padding=((-1, 0), (0, -1))),
        _convolution((2, 5, 4, 1, 3), (1, 1, 1, 3, 2), stride=(2, 3), padding=((-1, 0), (0, -1)), channels_first=True),
        _convolution((2, 3, 4, 1, 3), (3, 4, 1, 3, 2)),
        _convolution((2, 6, 4, 1, 3), (3, 2, 1, 3, 2), dilation=2, padding=((-1, 0), (0, -1))),
        _gradient_of_pixels(),
        _of_bytes(),
])  # fmt: skip
DOT_RULE = Rule(
    "a @ b of one row and one column -> sum(a * b)", ("matmul",), _dot_as_sum, lambda: [
        make("matmul", sample("i8", 5), sample("i8", 5)),
        make("matmul", sample("i4", 1, 4), sample("i4", 4)),
        make("matmul", sample("i8", 5), sample("i8", 3, 5, 1)),
        make("matmul", sample("i8", 2, 1, 1, 5), sample("i8", 3, 5, 1)),
])  # fmt: skip
CONTRACTION_RULES = (PRODUCT_RULE, CONVOLUTION_RULE, DOT_RULE)
_PRODUCTS_OF_CONVOLUTIONS = Rules([CONVOLUTION_RULE], lasting=True)
_SUMS_OF_DOTS = Rules([DOT_RULE], lasting=True)


def transpose_products(graph: Graph) -> Graph:
    """Let products write their transpose, where nothing else reads the product itself."""
    nodes = graph.nodes()
    if not any([is_op(node, "permute_dims") and is_op(node.inputs[0], "matmul") for node in nodes]):
        return graph
    readers = users(nodes)
    outputs = set(graph.roots)

    def alone(node: Node) -> Node | None:
        product = node.inputs[0]
        return None if product in outputs or len(readers.get(product, ())) > 1 else _transposed_product(node)

    return rewrite(graph, Rules([replace(PRODUCT_RULE, match=alone)]))


def convolutions_as_products(graph: Graph) -> Graph:
    """Convolutions of one tap, and those with one window, as matrix products."""
    return rewrite(graph, _PRODUCTS_OF_CONVOLUTIONS)


def dots_as_sums(graph: Graph) -> Graph:
    """Products of one row and one column as sums of products."""
    return rewrite(graph, _SUMS_OF_DOTS)
