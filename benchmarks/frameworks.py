"""What the programs of `programs.py` need of a framework, a class each: only the names differ, not what is asked."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[..., Any]


class Framework(ABC):
    """`sum` and `random` (so many numbers) are the library's own functions: its tracer sees what a user would write."""

    sum: Function
    random: Function

    @abstractmethod
    def tensor(self, values: Any) -> Any:
        """A tensor of these numbers."""

    @abstractmethod
    def trace(self, fn: Function) -> Function:
        """The function as the framework compiles it."""

    @abstractmethod
    def compiles(self, traced: Function) -> int:
        """How many programs the traced function has compiled."""

    @abstractmethod
    def grad(self, fn: Function) -> Function:
        """The derivative of a function from one tensor to a scalar; can be taken again."""

    @abstractmethod
    def seed(self, number: int) -> None:
        """Let random numbers start from here."""

    def read(self, value: Any) -> Any:
        """A result as numbers, lists and strings."""
        if isinstance(value, list | tuple):
            return [self.read(item) for item in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        return np.asarray(value).tolist()


class Hybridml(Framework):
    def __init__(self) -> None:
        import hybridml as hm

        self.hm, self.sum = hm, hm.sum

    def tensor(self, values: Any) -> Any:
        return self.hm.tensor(values)

    def trace(self, fn: Function) -> Function:
        return self.hm.trace(fn)

    def compiles(self, traced: Any) -> int:
        return int(traced.cache_info().compiles)

    def grad(self, fn: Function) -> Function:
        return self.hm.grad(fn)

    def seed(self, number: int) -> None:
        self.hm.manual_seed(number)

    def random(self, count: int) -> Any:
        return self.hm.random.uniform((count,))

    def read(self, value: Any) -> Any:
        return value.tolist() if isinstance(value, self.hm.Tensor) else super().read(value)


class Torch(Framework):
    def __init__(self) -> None:
        import torch

        self.torch, self.sum = torch, torch.sum

    def tensor(self, values: Any) -> Any:
        return self.torch.tensor(values)

    def trace(self, fn: Function) -> Function:
        counter = importlib.import_module("torch._dynamo.testing").CompileCounterWithBackend("inductor")
        traced = self.torch.compile(fn, backend=counter)
        traced._counter = counter
        return traced

    def compiles(self, traced: Any) -> int:
        return int(traced._counter.frame_count)

    def grad(self, fn: Function) -> Function:
        def derivative(x: Any) -> Any:
            x = x if x.requires_grad else x.detach().requires_grad_()
            return self.torch.autograd.grad(fn(x), x, create_graph=True)[0]

        return derivative

    def seed(self, number: int) -> None:
        self.torch.manual_seed(number)

    def random(self, count: int) -> Any:
        return self.torch.rand(count)

    def read(self, value: Any) -> Any:
        return value.detach().tolist() if isinstance(value, self.torch.Tensor) else super().read(value)


class Jax(Framework):
    def __init__(self) -> None:
        import jax

        self.jax, self.sum = jax, jax.numpy.sum
        self.key = jax.random.key(0)

    def tensor(self, values: Any) -> Any:
        return self.jax.numpy.asarray(values)

    def trace(self, fn: Function) -> Function:
        return self.jax.jit(fn)

    def compiles(self, traced: Any) -> int:
        return int(traced._cache_size())

    def grad(self, fn: Function) -> Function:
        """Of a vector-valued derivative the sum is differentiated again, as the other frameworks do."""
        return self.jax.grad(lambda x: self.sum(fn(x)))

    def seed(self, number: int) -> None:
        self.key = self.jax.random.key(number)

    def random(self, count: int) -> Any:
        return self.jax.random.uniform(self.key, (count,))  # a user hands the key on; here one draw is made of it


class Tensorflow(Framework):
    def __init__(self) -> None:
        import tensorflow as tf

        self.tf, self.sum = tf, tf.reduce_sum

    def tensor(self, values: Any) -> Any:
        return self.tf.constant(values)

    def trace(self, fn: Function) -> Function:
        return self.tf.function(fn)

    def compiles(self, traced: Any) -> int:
        return int(traced.experimental_get_tracing_count())

    def grad(self, fn: Function) -> Function:
        def derivative(x: Any) -> Any:
            with self.tf.GradientTape() as tape:
                tape.watch(x)
                y = fn(x)
            return tape.gradient(y, x)

        return derivative

    def seed(self, number: int) -> None:
        self.tf.random.set_seed(number)

    def random(self, count: int) -> Any:
        return self.tf.random.uniform((count,))


class Numba(Framework):
    def __init__(self) -> None:
        import numba

        self.numba, self.sum, self.random = numba, np.sum, np.random.rand

    def tensor(self, values: Any) -> Any:
        return np.asarray(values, dtype=np.float32)

    def trace(self, fn: Function) -> Function:
        return self.numba.njit(fn)

    def compiles(self, traced: Any) -> int:
        return len(traced.signatures)

    def grad(self, fn: Function) -> Function:
        raise NotAvailable

    def seed(self, number: int) -> None:
        np.random.seed(number)  # the state that numba's functions have a copy of


class NotAvailable(Exception):
    """The framework has no such thing; the table shows a dash."""


FRAMEWORKS: dict[str, tuple[str, type[Framework]]] = {  # name -> the library it imports
    "hybridml": ("hybridml", Hybridml),
    "torch.compile": ("torch", Torch),
    "jax.jit": ("jax", Jax),
    "tf.function": ("tensorflow", Tensorflow),
    "numba.njit": ("numba", Numba),
}
