"""Examples of the methods and attributes of tensors that are no rows, in the form of those of `ops/examples.py`."""

from __future__ import annotations

from inspect import cleandoc

from hybridml_compiler.ops.examples import as_doctest

from ..core.tensor import Tensor

# fmt: off
EXAMPLES: dict[str, str] = {
    # what a tensor is
    "shape": "hm.zeros((2, 3)).shape -> (2, 3)",
    "ndim": "hm.zeros((2, 3)).ndim -> 2",
    "dim": "hm.zeros((2, 3)).dim() -> 2",
    "ndimension": "hm.zeros((2, 3)).ndimension() -> 2",
    "size": "x = hm.zeros((2, 3)); x.size, x.size(), x.size(1) -> (6, (2, 3), 3)",
    "numel": "hm.zeros((2, 3)).numel() -> 6",
    "nelement": "hm.zeros((2, 3)).nelement() -> 6",
    "dtype": "hm.tensor([1, 2]).dtype.name -> 'int64'",
    "itemsize": "hm.tensor([1.0, 2.0]).itemsize -> 4",
    "block_until_ready": "hm.ones(2).block_until_ready() -> Tensor([1., 1.])",
    "element_size": "hm.tensor([1.0, 2.0]).element_size() -> 4",
    "nbytes": "hm.tensor([1.0, 2.0]).nbytes -> 8",
    "device": "hm.tensor([1.0]).device -> device('cpu')",
    "is_cuda": "hm.tensor([1.0]).is_cuda -> False",
    "is_sparse": "hm.tensor([1.0]).is_sparse -> False",
    "strides": "hm.zeros((2, 3)).strides -> (12, 4)",
    "stride": "hm.zeros((2, 3)).stride(), hm.zeros((2, 3)).stride(0) -> ((3, 1), 3)",
    "is_contiguous": "hm.zeros((2, 3)).is_contiguous(), hm.zeros((2, 3)).T.is_contiguous() -> (True, False)",
    "data_ptr": "x = hm.zeros(4); x[1:].data_ptr() - x.data_ptr() -> 4",
    "equal": "hm.tensor([1, 2]).equal(hm.tensor([1, 2])) -> True",
    # gradients
    "requires_grad": "x = hm.tensor([1.0]); x.requires_grad = True; (x * 2).requires_grad -> True",
    "requires_grad_": "hm.tensor([1.0]).requires_grad_().requires_grad -> True",
    "is_leaf": "x = hm.tensor([1.0], requires_grad=True); x.is_leaf, (x * 2).is_leaf -> (True, False)",
    "grad": "x = hm.tensor([1.0, 2.0], requires_grad=True); (x * x).sum().backward(); x.grad -> Tensor([2., 4.])",
    "grad_fn": "hm.tensor([1.0]).grad_fn is None -> True",
    "retain_grad": "x = hm.tensor(3.0, requires_grad=True); y = x * x; y.retain_grad(); (y * 2).backward();"
                   " y.grad -> Tensor(2.)",
    "register_hook": "x = hm.tensor(3.0, requires_grad=True); handle = x.register_hook(lambda g: g * 10); x.backward();"
                     " x.grad -> Tensor(10.)",
    "detach": "x = hm.tensor([1.0], requires_grad=True); (x * 2).detach().requires_grad -> False",
    "data": "x = hm.tensor([1.0, 2.0], requires_grad=True); x.data = hm.zeros(2); x.tolist() -> [0.0, 0.0]",
    # values of Python and NumPy
    "item": "hm.tensor([[2.5]]).item(), hm.tensor([1, 2, 3]).item(1) -> (2.5, 2)",
    "tolist": "hm.tensor([[1, 2], [3, 4]]).tolist() -> [[1, 2], [3, 4]]",
    "numpy": "x = hm.zeros(2); x.numpy()[0] = 5.0; x -> Tensor([5., 0.])",
    "tobytes": "hm.tensor([1, 2], dtype=hm.uint8).tobytes() == bytes([1, 2]) -> True",
    # other dtypes and devices
    "astype": "hm.tensor([1.7, -1.7]).astype(hm.int32) -> Tensor([ 1, -1], dtype=int32)",
    "to": "hm.tensor([1, 2]).to(hm.float64).dtype.name -> 'float64'",
    "type": "hm.tensor([1, 2]).type(), hm.tensor([1, 2]).type(hm.float32).dtype.name -> ('hybridml.int64', 'float32')",
    "type_as": "hm.tensor([1, 2]).type_as(hm.tensor([0.5])) -> Tensor([1., 2.])",
    "bool": "hm.tensor([0.0, 0.5]).bool() -> Tensor([False,  True])",
    "byte": "hm.tensor([1.0, 255.0]).byte() -> Tensor([  1, 255], dtype=uint8)",
    "char": "hm.tensor([1.0, -1.0]).char() -> Tensor([ 1, -1], dtype=int8)",
    "short": "hm.tensor([1.0, -1.0]).short() -> Tensor([ 1, -1], dtype=int16)",
    "int": "hm.tensor([1.7, -1.7]).int() -> Tensor([ 1, -1], dtype=int32)",
    "long": "hm.tensor([1.7, -1.7]).long() -> Tensor([ 1, -1])",
    "half": "hm.tensor([1.0, 2.0]).half().dtype.name -> 'float16'",
    "bfloat16": "hm.tensor([1.0, 2.0]).bfloat16().dtype.name -> 'bfloat16'",
    "float": "hm.tensor([1, 2]).float() -> Tensor([1., 2.])",
    "double": "hm.tensor([1, 2]).double().dtype.name -> 'float64'",
    "cpu": "hm.tensor([1.0]).cpu().device -> device('cpu')",
    "cuda": "hm.tensor([1.0]).cuda('cuda:sim').device -> device('cuda:sim')",
    "pin_memory": "hm.tensor([1.0]).pin_memory('cuda:sim').tolist() -> [1.0]",
    "is_pinned": "hm.tensor([1.0]).pin_memory('cuda:sim').is_pinned() -> True",
    "to_device": "x = hm.tensor([1.0]); x.to_device(x.device).device -> device('cpu')",
    "clone": "x = hm.tensor([1, 2]); y = x.clone(); y[0] = 9; x -> Tensor([1, 2])",
    "copy": "x = hm.tensor([1, 2]); y = x.copy(); y[0] = 9; x -> Tensor([1, 2])",
    "contiguous": "hm.zeros((2, 3)).T.contiguous().is_contiguous() -> True",
    "new_empty": "hm.tensor([1, 2]).new_empty((2, 3)).shape -> (2, 3)",
    "new_full": "hm.tensor([1, 2]).new_full((3,), 7) -> Tensor([7, 7, 7])",
    "new_ones": "hm.tensor([1, 2]).new_ones(3) -> Tensor([1, 1, 1])",
    "new_tensor": "hm.tensor([0.5]).new_tensor([1, 2]) -> Tensor([1., 2.])",
    "new_zeros": "hm.tensor([1, 2]).new_zeros(3) -> Tensor([0, 0, 0])",
    # shapes
    "reshape": "x = hm.arange(6); x.reshape(2, -1)[0], x.reshape(2, -1, order='F')[0] ->"
               " (Tensor([0, 1, 2]), Tensor([0, 2, 4]))",
    "reshape_as": "hm.arange(6).reshape_as(hm.zeros((2, 3))).shape -> (2, 3)",
    "view_as": "hm.arange(6).view_as(hm.zeros((2, 3))).shape -> (2, 3)",
    "flatten": "hm.zeros((2, 3, 4)).flatten(1).shape -> (2, 12)",
    "ravel": "hm.tensor([[1, 2], [3, 4]]).ravel() -> Tensor([1, 2, 3, 4])",
    "squeeze": "hm.zeros((1, 3, 1)).squeeze().shape, hm.zeros((1, 3, 1)).squeeze(0).shape -> ((3,), (3, 1))",
    "expand": "hm.tensor([[1], [2]]).expand(-1, 3).tolist() -> [[1, 1, 1], [2, 2, 2]]",
    "expand_as": "hm.tensor([1, 2]).expand_as(hm.zeros((3, 2))).tolist() -> [[1, 2], [1, 2], [1, 2]]",
    "tile": "hm.arange(2).tile(2, 2).tolist() -> [[0, 1, 0, 1], [0, 1, 0, 1]]",
    "permute": "hm.zeros((2, 3, 4)).permute(2, 0, 1).shape -> (4, 2, 3)",
    "transpose": "x = hm.zeros((2, 3, 4));"
                 " x.transpose(0, 2).shape, x.transpose((1, 2, 0)).shape -> ((4, 3, 2), (3, 4, 2))",
    "T": "hm.tensor([[1, 2], [3, 4]]).T.tolist() -> [[1, 3], [2, 4]]",
    "mT": "hm.zeros((5, 2, 3)).mT.shape -> (5, 3, 2)",
    "mH": "hm.tensor([[1j, 2.0]]).mH.tolist() -> [[-1j], [(2-0j)]]",
    "repeat": "x = hm.tensor([1, 2]);"
              " x.repeat(2).tolist(), x.repeat(2, 1).tolist() -> ([1, 1, 2, 2], [[1, 2], [1, 2]])",
    # parts
    "at": "x = hm.zeros(3); x.at[[0, 0, 2]].add(1.0), x -> (Tensor([2., 0., 1.]), Tensor([0., 0., 0.]))",
    "flat": "x = hm.tensor([[1, 2], [3, 4]]); x.flat[3] = 0;"
            " list(x.flat) -> [Tensor(1), Tensor(2), Tensor(3), Tensor(0)]",
    "select": "hm.tensor([[1, 2], [3, 4]]).select(1, 0) -> Tensor([1, 3])",
    "take": "hm.tensor([[1, 2], [3, 4]]).take([3, 0]) -> Tensor([4, 1])",
    "choose": "hm.tensor([1, 0]).choose([hm.tensor([1, 2]), hm.tensor([10, 20])]) -> Tensor([10,  2])",
    "compress": "hm.tensor([[1, 2], [3, 4]]).compress([False, True], axis=0).tolist() -> [[3, 4]]",
    "nonzero": "hm.tensor([0, 3, 0, 5]).nonzero() -> (Tensor([1, 3]),)",
    "argsort": "hm.tensor([3, 1, 2]).argsort(descending=True) -> Tensor([0, 2, 1])",
    "argpartition": "x = hm.tensor([5, 1, 4, 2]); x[x.argpartition(1)][:2].sort() -> Tensor([1, 2])",
    "trace": "hm.tensor([[1, 2], [3, 4]]).trace() -> Tensor(5)",
    "real": "hm.tensor([1 + 2j]).real -> Tensor([1.])",
    "imag": "z = hm.tensor([1 + 2j]); z.imag = 5.0; z.tolist() -> [(1+5j)]",
    "scatter_add": "hm.zeros(3).scatter_add(0, hm.tensor([0, 2, 2]), hm.ones(3)) -> Tensor([1., 0., 2.])",
    # functions as methods
    "gelu": "hm.tensor([-1.0, 0.0, 1.0]).gelu() -> Tensor([-0.1587,  0.0000,  0.8413])",
    "selu": "hm.tensor([-1.0, 0.0, 1.0]).selu() -> Tensor([-1.1113,  0.0000,  1.0507])",
    "softmax": "hm.tensor([0.0, 0.0]).softmax(0) -> Tensor([0.5, 0.5])",
    "log_softmax": "hm.tensor([0.0, 0.0]).log_softmax(0) -> Tensor([-0.6931, -0.6931])",
    "sinc": "hm.tensor([0.0, 0.5]).sinc() -> Tensor([1.0000, 0.6366])",
    "xlogy": "hm.tensor([0.0, 2.0]).xlogy(hm.tensor([0.0, 1.0])) -> Tensor([0., 0.])",
    "cholesky": "hm.tensor([[4.0, 2.0], [2.0, 5.0]]).cholesky().tolist() -> [[2.0, 0.0], [1.0, 2.0]]",
    "det": "hm.tensor([[2.0, 1.0], [4.0, 6.0]]).det() -> Tensor(8.)",
    "slogdet": "hm.tensor([[0.0, 2.0], [1.0, 0.0]]).slogdet()[1] -> Tensor(0.6931)",
    "dist": "hm.tensor([0.0, 0.0]).dist(hm.tensor([3.0, 4.0])) -> Tensor(5.)",
    "pinverse": "hm.tensor([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]]).pinverse().shape -> (2, 3)",
    "qr": "q, r = hm.tensor([[3.0, 1.0], [4.0, 1.0], [0.0, 2.0]]).qr(); q.shape, r.shape -> ((3, 2), (2, 2))",
    "svd": "u, s, vh = hm.tensor([[3.0, 0.0], [0.0, 4.0]]).svd(); hm.round(s) -> Tensor([4., 3.])",
    "renorm": "hm.tensor([[3.0, 4.0], [0.3, 0.4]]).renorm(2, 0, 1.0)[1] -> Tensor([0.3, 0.4])",
    # in place
    "copy_": "hm.zeros((2, 2)).copy_(hm.tensor([1.0, 2.0])).tolist() -> [[1.0, 2.0], [1.0, 2.0]]",
    "fill": "x = hm.zeros(2); x.fill(3.0); x -> Tensor([3., 3.])",
    "fill_": "hm.zeros(2).fill_(3.0) -> Tensor([3., 3.])",
    "zero_": "hm.ones(2).zero_() -> Tensor([0., 0.])",
    "add_": "hm.tensor([1.0, 2.0]).add_(hm.tensor([10.0, 10.0]), alpha=2) -> Tensor([21., 22.])",
    "sub_": "hm.tensor([1.0, 2.0]).sub_(1.0) -> Tensor([0., 1.])",
    "mul_": "hm.tensor([1.0, 2.0]).mul_(3.0) -> Tensor([3., 6.])",
    "div_": "hm.tensor([1.0, 2.0]).div_(4.0) -> Tensor([0.25, 0.50])",
    "pow_": "hm.tensor([2.0, 3.0]).pow_(2) -> Tensor([4., 9.])",
    "remainder_": "hm.tensor([7.0, -7.0]).remainder_(3.0) -> Tensor([1., 2.])",
    "lerp_": "hm.tensor([0.0, 10.0]).lerp_(hm.tensor([10.0, 20.0]), 0.5) -> Tensor([ 5., 15.])",
    "addcdiv_": "hm.zeros(2).addcdiv_(hm.tensor([1.0, 3.0]), hm.tensor([2.0, 4.0]), value=2) -> Tensor([1.0, 1.5])",
    "addcmul_": "hm.zeros(2).addcmul_(hm.tensor([1.0, 3.0]), hm.tensor([2.0, 4.0]), value=2) -> Tensor([ 4., 24.])",
    "abs_": "hm.tensor([-1.0, 2.0]).abs_() -> Tensor([1., 2.])",
    "neg_": "hm.tensor([-1.0, 2.0]).neg_() -> Tensor([ 1., -2.])",
    "sign_": "hm.tensor([-1.5, 2.0]).sign_() -> Tensor([-1.,  1.])",
    "ceil_": "hm.tensor([1.2, -1.7]).ceil_() -> Tensor([ 2., -1.])",
    "floor_": "hm.tensor([1.7, -1.2]).floor_() -> Tensor([ 1., -2.])",
    "round_": "hm.tensor([0.5, 1.5]).round_() -> Tensor([0., 2.])",
    "trunc_": "hm.tensor([1.7, -1.7]).trunc_() -> Tensor([ 1., -1.])",
    "clamp_": "hm.tensor([-2.0, 0.5, 9.0]).clamp_(0.0, 1.0) -> Tensor([0.0, 0.5, 1.0])",
    "clip_": "hm.tensor([-2.0, 0.5, 9.0]).clip_(0.0, 1.0) -> Tensor([0.0, 0.5, 1.0])",
    "clamp_max_": "hm.tensor([-2.0, 0.5, 9.0]).clamp_max_(1.0) -> Tensor([-2.0,  0.5,  1.0])",
    "clamp_min_": "hm.tensor([-2.0, 0.5, 9.0]).clamp_min_(0.0) -> Tensor([0.0, 0.5, 9.0])",
    "nan_to_num_": "hm.tensor([1.0, hm.nan]).nan_to_num_() -> Tensor([1., 0.])",
    "reciprocal_": "hm.tensor([2.0, 4.0]).reciprocal_() -> Tensor([0.50, 0.25])",
    "square_": "hm.tensor([-3.0, 4.0]).square_() -> Tensor([ 9., 16.])",
    "sqrt_": "hm.tensor([4.0, 2.0]).sqrt_() -> Tensor([2.0000, 1.4142])",
    "rsqrt_": "hm.tensor([4.0, 0.25]).rsqrt_() -> Tensor([0.5, 2.0])",
    "exp_": "hm.tensor([0.0, 1.0]).exp_() -> Tensor([1.0000, 2.7183])",
    "expm1_": "hm.tensor([0.0, 1.0]).expm1_() -> Tensor([0.0000, 1.7183])",
    "log_": "hm.tensor([1.0, 2.0]).log_() -> Tensor([0.0000, 0.6931])",
    "log1p_": "hm.tensor([0.0, 1.0]).log1p_() -> Tensor([0.0000, 0.6931])",
    "log2_": "hm.tensor([3.0, 8.0]).log2_() -> Tensor([1.585, 3.000])",
    "log10_": "hm.tensor([2.0, 1000.0]).log10_() -> Tensor([0.301, 3.000])",
    "sin_": "hm.tensor([0.0, 1.0]).sin_() -> Tensor([0.0000, 0.8415])",
    "cos_": "hm.tensor([0.0, 1.0]).cos_() -> Tensor([1.0000, 0.5403])",
    "tan_": "hm.tensor([0.0, 1.0]).tan_() -> Tensor([0.0000, 1.5574])",
    "tanh_": "hm.tensor([0.0, 1.0]).tanh_() -> Tensor([0.0000, 0.7616])",
    "sigmoid_": "hm.tensor([0.0, 1.0]).sigmoid_() -> Tensor([0.5000, 0.7311])",
    "relu_": "hm.tensor([-1.0, 2.0]).relu_() -> Tensor([0., 2.])",
    "erf_": "hm.tensor([0.0, 0.5]).erf_() -> Tensor([0.0000, 0.5205])",
    "logical_not_": "hm.tensor([True, False]).logical_not_() -> Tensor([False,  True])",
    "cumsum_": "hm.tensor([1, 2, 3]).cumsum_(0) -> Tensor([1, 3, 6])",
    "tril_": "hm.tensor([[1, 2], [3, 4]]).tril_().tolist() -> [[1, 0], [3, 4]]",
    "triu_": "hm.tensor([[1, 2], [3, 4]]).triu_().tolist() -> [[1, 2], [0, 4]]",
    "put": "x = hm.zeros(3); x.put([0, 2], [1.0, 2.0]); x -> Tensor([1., 0., 2.])",
    "put_": "hm.zeros(3).put_(hm.tensor([0, 2]), hm.tensor([1.0, 2.0])) -> Tensor([1., 0., 2.])",
    "index_add_": "hm.zeros(3).index_add_(0, hm.tensor([0, 2, 2]), hm.ones(3)) -> Tensor([1., 0., 2.])",
    "index_copy_": "hm.zeros(3).index_copy_(0, hm.tensor([2, 0]), hm.tensor([1.0, 2.0])) -> Tensor([2., 0., 1.])",
    "index_fill_": "hm.zeros(3).index_fill_(0, hm.tensor([0, 2]), 7.0) -> Tensor([7., 0., 7.])",
    "index_put_": "hm.zeros(3).index_put_((hm.tensor([0, 2]),), hm.tensor([1.0, 2.0])) -> Tensor([1., 0., 2.])",
    "index_reduce_": "x, i = hm.ones(3), hm.tensor([0, 2, 2]);"
                     " x.index_reduce_(0, i, hm.tensor([2.0, 3.0, 4.0]), 'prod') -> Tensor([ 2.,  1., 12.])",
    "masked_fill_": "hm.tensor([1.0, -1.0]).masked_fill_(hm.tensor([False, True]), 0.0) -> Tensor([1., 0.])",
    "masked_scatter_": "x = hm.zeros(3); x.masked_scatter_(hm.tensor([True, False, True]), hm.tensor([1.0, 2.0])) ->"
                       " Tensor([1., 0., 2.])",
    "scatter_": "hm.zeros(3).scatter_(0, hm.tensor([0, 2]), hm.tensor([1.0, 2.0])) -> Tensor([1., 0., 2.])",
    "scatter_add_": "hm.zeros(3).scatter_add_(0, hm.tensor([0, 2, 2]), hm.ones(3)) -> Tensor([1., 0., 2.])",
    "scatter_reduce_": "x, i = hm.ones(3), hm.tensor([0, 2, 2]);"
                       " x.scatter_reduce_(0, i, hm.tensor([2.0, 3.0, 4.0]), 'prod') -> Tensor([ 2.,  1., 12.])",
    "uniform_": "(hm.zeros(3).uniform_(2.0, 3.0) >= 2).all() -> Tensor(True)",
    "normal_": "hm.zeros(3).normal_(mean=5.0, std=0.0) -> Tensor([5., 5., 5.])",
    "bernoulli_": "hm.zeros(3).bernoulli_(1.0) -> Tensor([1., 1., 1.])",
    "exponential_": "(hm.zeros(3).exponential_() >= 0).all() -> Tensor(True)",
}
# fmt: on


def describe() -> None:
    """Ends the docstring of each of these with its example."""
    for name, example in EXAMPLES.items():
        found = vars(Tensor)[name]
        doc: str = found.__doc__
        first = cleandoc(doc) if "\n" in doc else doc  # which takes 10 us
        found.__doc__ = f"{first}\n\n{as_doctest(example)}"
