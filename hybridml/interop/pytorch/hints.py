"""Advice in place of names that other libraries have and hybridml has not: what to write instead."""

from ...core.spellings import advice

_ORDER = "memory keeps the order of the operands: leave memory_format out"
_NUMPY = "NumPy's own takes tensors: import numpy, and write numpy.{}"
_ITS_OWN = "{} is a part of NumPy: import numpy, and write hm.asarray(numpy.{})"

_ANOMALIES = "write with hm.debug_nans():, or hm.debug_nans(True)"
_TREES = "write hm.tree_leaves(tree), and hm.tree_map(f, tree) for a tree of its form"

HINTS: dict[str, str] = {
    "FloatTensor": "write hm.tensor(data, dtype=hm.float32)",
    "LongTensor": "write hm.tensor(data, dtype=hm.int64)",
    "DoubleTensor": "write hm.tensor(data, dtype=hm.float64)",
    "BoolTensor": "write hm.tensor(data, dtype=hm.bool)",
    "GradientTape": "write loss.backward(), or hm.value_and_grad(f)(x)",
    "Variable": "write hm.tensor(data, requires_grad=True), or hm.nn.Parameter(data)",
    "block_until_ready": "results are there when a call returns",
    "device_get": "write x.numpy()",
    "device_put": "write x.to(device)",
    "from_blob": "write hm.from_numpy(array) or hm.from_dlpack(x)",
    "function": "write hm.trace(f)",
    "get_rng_state": "write hm.random.default_generator.get_state()",
    "keras": "layers are in hm.nn, optimizers in hm.optim",
    "functional_call": "hm.func.functional_call(module, parameters, args)",
    "jacobian": "hm.jacrev(f)(x)",
    "lax": "hm.cond, hm.switch, hm.scan, hm.while_loop, hm.fori_loop and hm.map are functions of hybridml itself",
    "ldl_factor": "write hm.linalg.ldl_factor(x)",
    "lu_factor": "write hm.linalg.lu_factor(x)",
    "lu_solve": "write hm.linalg.lu_solve(LU, pivots, b)",
    "multiprocessing": "Python's own, which sends tensors in shared memory (share_memory_) without a copy",
    "numpy": "functions of arrays are those of hybridml itself: hm.sin, hm.zeros",
    "range": "write hm.arange",
    "rsub": "write y - x",
    "script": "write hm.trace(f)",
    "seed": "write hm.manual_seed(seed)",
    "set_rng_state": "write hm.random.default_generator.set_state(state)",
    "sparse": "tensors are dense, but gradients of nn.Embedding(sparse=True)",
    "use_deterministic_algorithms": "write hm.use_deterministic(True)",
    "array2string": _NUMPY.format("array2string"),
    "channels_last": _ORDER,
    "contiguous_format": _ORDER,
    "preserve_format": _ORDER,
    "debug": "print and f-strings work in traced functions as they are",
    "devices": "tensors are on the CPU; x.device is it",
    "disable_jit": "write with hm.eager():",
    "errstate": "there is nothing to silence: division by zero gives inf and nan without a warning",
    "loadtxt": _ITS_OWN.format("loadtxt", "loadtxt(file)"),
    "make_jaxpr": "write hm.trace(f), call it and read its .ir",
    "savetxt": _NUMPY.format("savetxt"),
    "savez": _NUMPY.format("savez") + ", or hm.save(dict_of_tensors, path)",
    "savez_compressed": _NUMPY.format("savez_compressed"),
    "scipy": "hm.linalg, hm.special, hm.signal and hm.fft have these functions; hm.distributions the densities",
    "tree": "write hm.tree_map(f, tree) and hm.tree_leaves(tree)",
    "tree_flatten": _TREES,
    "tree_unflatten": _TREES,
    "tree_util": "write hm.tree_map(f, tree) and hm.tree_leaves(tree)",
}

OF_TENSOR: dict[str, str] = {
    "apply_": "write x.copy_(f(x))",
    "base": "write x.numpy().base",
    "devices": "write x.device",
    "detach_": "write x = x.detach()",
    "flags": "write x.numpy().flags",
    "indices": "the result by axis= or by position is NumPy's, values alone; write x.max(dim=1) for both",
    "map_": "write x.copy_(f(x, y))",
    "resize_": "write x = x.reshape(...)",
    "squeeze_": "write x = x.squeeze()",
    "t_": "write x = x.t()",
    "transpose_": "write x = x.transpose(a, b)",
    "unsqueeze_": "write x = x.unsqueeze(dim)",
    "values": "the result by axis= or by position is NumPy's, values alone; write x.max(dim=1) for both",
}

_KEY = "generators count their draws: write hm.manual_seed(seed) and no key, or hm.Generator(seed).normal(shape)"

_ACTIVATIONS = (
    "celu", "elu", "gelu", "glu", "leaky_relu", "log_softmax", "one_hot", "relu", "relu6", "selu", "sigmoid", "silu",
    "softmax", "softplus",
)  # fmt: skip

# By module.
OF_MODULE: dict[str, dict[str, str]] = {
    "hybridml.autograd": {
        "functional": "hm.vjp, hm.jvp and hm.grad are functions of hybridml itself",
        "Variable": HINTS["Variable"],
        "detect_anomaly": _ANOMALIES,
        "gradcheck": "write hm.testing.gradcheck",
        "set_detect_anomaly": _ANOMALIES,
    },
    "hybridml.cuda": {"amp": "write hm.autocast(dtype=hm.float16), and hm.amp.GradScaler"},
    "hybridml.nn": {
        **{name: f"write hm.nn.functional.{name}" for name in _ACTIVATIONS},
        "initializers": "write hm.nn.init, whose functions fill a tensor: hm.nn.init.xavier_uniform_(hm.empty((2, 3)))",
        "dot_product_attention": "write hm.nn.functional.scaled_dot_product_attention",
        "logsumexp": "write hm.logsumexp",
        "standardize": "write hm.nn.functional.layer_norm",
        "swish": "write hm.nn.functional.silu",
        "tanh": "write hm.tanh",
    },
    "hybridml.random": {
        "PRNGKey": _KEY, "RandomState": "write hm.Generator(seed)", "fold_in": _KEY, "key": _KEY, "split": _KEY,
        "random_sample": "write hm.random.rand",
    },
    "hybridml.testing": {
        "assert_close": "write numpy.testing.assert_allclose(x, y), which takes tensors",
    },
}  # fmt: skip
advice |= OF_MODULE
