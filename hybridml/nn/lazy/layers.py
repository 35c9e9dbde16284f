"""Lazy layers: the number of their input's features or channels is that of the first input."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from hybridml_compiler.errors import ShapeError

from ... import arrays as xp
from ...arrays.shape_dtype import untouched
from ...core.context import place_beside
from ...core.device_tensor import on_device
from ...core.interpreter import eagerly
from ...core.tensor import Tensor, default_device_var, wrap
from ...tracing.capture.tracer import is_tracing
from ...tracing.python_state.mutation_epoch import attributes_changed
from ...tracing.specialize.errors import FirstCall
from ...tracing.specialize.path_tree import are_without_values, stand_in
from ..convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from ..linear import Linear
from ..module import Module
from ..normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .uninitialized import become, forget, is_uninitialized


def _starting(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The `forward` of a lazy module, which begins with what the first call does. A traced one runs on when the module
    has become another."""

    @functools.wraps(forward)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        lazy = isinstance(self, LazyModuleMixin)
        return self._first(forward, args, kwargs) if lazy else forward(self, *args, **kwargs)

    return call


class LazyModuleMixin(Module):
    """Module whose tensors get their shapes in the first call: (...) -> what its `forward` returns.

    The constructor makes `UninitializedParameter` and `UninitializedBuffer`; `initialize_parameters`, called with what
    the call gets, gives them shapes (`materialize`) and values. After that the layer is of the class `cls_to_become`,
    if it has one. Where there are shapes alone (`hm.eval_shape`, an input of device "meta") so are the tensors after
    it, on "meta": the first call with values, or `to_empty` and `reset_parameters`, gives them values. In a traced
    function the first call runs eagerly. Source: `torch.nn.modules.lazy.LazyModuleMixin`.

    >>> class Scale(LazyModuleMixin):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = hm.nn.UninitializedParameter()
    ...
    ...     def initialize_parameters(self, x):
    ...         self.factor.materialize(x.shape[-1])
    ...         hm.nn.init.ones_(self.factor)
    ...
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> layer = Scale()
    >>> layer(hm.ones((2, 3))).shape, layer.factor.shape
    ((2, 3), (3,))
    """

    cls_to_become: ClassVar[type[Module] | None] = None

    def has_uninitialized_params(self) -> bool:
        """Whether tensors of this module itself have no shape yet."""
        return any(is_uninitialized(tensor) for _, tensor in self._tensors())

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives the uninitialized tensors their shapes and values, by what the first call gets."""
        raise NotImplementedError(f"{type(self).__name__} has no initialize_parameters method")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "forward" in vars(cls):
            cls.forward = _starting(cls.forward)  # type: ignore[method-assign]

    def _first(self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call before the module has become another: its tensors get what they lack."""
        source = place_beside((*args, *kwargs.values())) or "cpu"
        shapes_alone = are_without_values() or source == "meta"
        becomes: Any = self.cls_to_become if "cls_to_become" in vars(type(self)) else None
        lacks = any(is_uninitialized(t) or (not shapes_alone and t.device == "meta") for _, t in self._tensors())
        if is_tracing() and not shapes_alone and (lacks or becomes is not None):
            raise FirstCall(
                "calls lazy layers that have no values yet; call it once before, or hm.eval_shape and `to_empty`"
            )
        if lacks:
            self._start("meta" if shapes_alone else None, source, args, kwargs)
        if are_without_values():
            with self._standing_in(source):
                self._take_sizes(*args, **kwargs)
                return forward(self, *args, **kwargs)
        self._take_sizes(*args, **kwargs)
        if becomes is not None and not shapes_alone:
            self.__class__ = becomes
            attributes_changed()
        return forward(self, *args, **kwargs)

    def _take_sizes(self, *args: Any, **kwargs: Any) -> None:
        """Notes the sizes of a call's input; the tensors have theirs."""

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        return self._own("parameter", "buffer", "transient")

    def _start(self, place: str | None, source: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Initializes what lacks a shape or values: on `place`, or where it is to be. An error leaves it lazy."""
        lacking = [(t, t.device.type) for _, t in self._tensors() if is_uninitialized(t) or t.device == "meta"]
        try:
            for tensor, own in lacking:
                forget(tensor, place or (source if own == "meta" else own))
            eagerly(lambda: self.initialize_parameters(*args, **kwargs))
        except BaseException:
            for tensor, own in lacking:
                forget(tensor, own)
            raise
        attributes_changed()

    @contextmanager
    def _standing_in(self, source: str) -> Iterator[None]:
        """A context for shapes alone, in which tensors without values are where the input is, in memory that nobody
        touches. The attributes are as before afterwards."""
        own = vars(self)
        before = dict(own)
        try:
            for name, t in self._tensors():
                if t.device == "meta" and source != "meta":
                    own[name] = eagerly(functools.partial(_untouched, t))
                    stand_in()
            yield
        finally:
            own.update(before)
            for name in own.keys() - before.keys():
                del own[name]


def _untouched(t: Tensor) -> Tensor:
    return wrap(untouched(t.shape, t.dtype)).requires_grad_(t.requires_grad)


class _LazyLayer(LazyModuleMixin):
    """Base class of the lazy layers: each has the constructor of what it becomes, without the first argument."""

    _about: ClassVar[str] = ""  # the docstring of a family's members, in the words of each
    size_name: ClassVar[str]  # of that argument
    cls_to_become: ClassVar[Any]
    _starts = False  # whether values are given: not by the constructor

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        family, *layers = cls.__bases__
        if cls.__name__.startswith("_"):
            cls._about, cls.__doc__ = cls.__doc__ or cls._about, None
        elif layers and family.__module__ == __name__:  # and no subclass of a user
            becomes: Any = layers[0]
            cls.cls_to_become, cls.forward = becomes, _starting(becomes.forward)  # type: ignore[method-assign]
            sizes = ", 4" * getattr(cls, "dims", 0)
            cls.__doc__ = cls.__doc__ or cls._about.format(name=layers[0].__name__, sizes=sizes)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        object.__setattr__(self, "_given", (args, kwargs))
        self.cls_to_become.__init__(self, 0, *args, **kwargs)
        place = default_device_var.get().place or "cpu"
        for _, tensor in self._tensors():
            forget(tensor, place)
        del vars(self)[self.size_name]
        object.__setattr__(self, "_starts", True)

    def __getattr__(self, name: str) -> Any:
        """The size as the tensors have it, 0 before: an attribute would be put back where there are shapes alone."""
        if name != self.size_name:
            return super().__getattr__(name)
        known = (t.shape for _, t in self._tensors() if not is_uninitialized(t) and t.ndim)
        return next(map(self._size_of, known), 0)

    def reset_parameters(self) -> None:
        if self._starts and not self.has_uninitialized_params():
            self.cls_to_become.reset_parameters(self)

    def initialize_parameters(self, input: Tensor) -> None:
        """Takes the size from the input's shape, and what the layer would have been made with."""
        size = self._size(input)
        lacking = {name: tensor for name, tensor in self._tensors() if is_uninitialized(tensor)}
        place = next(iter(lacking.values())).device.type
        made: Any = object.__new__(type(self))
        object.__setattr__(made, "_starts", place != "meta")
        args, kwargs = vars(self)["_given"]
        on_device(place, lambda: self.cls_to_become.__init__(made, size, *args, **kwargs))
        for name, tensor in lacking.items():
            become(tensor, xp.astype(getattr(made, name).detach(), tensor.dtype))

    def _take_sizes(self, input: Tensor) -> None:
        setattr(self, self.size_name, self._size(input))

    def _size(self, input: Tensor) -> int:
        ranks, axis = self._input_axes()
        if input.ndim not in ranks if ranks else not input.ndim:
            wanted = " or ".join(map(str, ranks)) or "1 or more"
            raise ShapeError(f"{type(self).__name__}: input must have {wanted} axes, got shape {input.shape}")
        return int(input.shape[axis])

    def _size_of(self, shape: tuple[int, ...]) -> int:
        """The size in the shape of the layer's first tensor."""
        return shape[0]

    def _input_axes(self) -> tuple[tuple[int, ...], int]:
        """The numbers of axes that an input may have (none: any), and the axis of the features or channels."""
        dims = getattr(self, "dims", 0)
        return ((dims + 1, dims + 2), -1 - dims) if dims else ((), -1)


class LazyLinear(_LazyLayer, Linear):
    """`Linear` whose `in_features` is that of the first input: (..., in_features) -> (..., out_features).

    >>> layer = LazyLinear(4)
    >>> layer(hm.ones((2, 3))).shape, layer
    ((2, 4), Linear(in_features=3, out_features=4, bias=True))
    """

    size_name = "in_features"

    def _size_of(self, shape: tuple[int, ...]) -> int:
        return shape[1]


class _LazyConvolution(_LazyLayer):
    """`{name}` whose `in_channels` is that of the first input: (n, in_channels, ...) -> (n, out_channels, ...).

    The other arguments are those of `{name}`.

    >>> Lazy{name}(4, 1)(hm.ones((2, 3{sizes}))).shape
    (2, 4{sizes})
    """

    size_name = "in_channels"

    def _size_of(self, shape: tuple[int, ...]) -> int:
        layer: Any = self
        return shape[1] * int(layer.groups)


class LazyConv1d(_LazyConvolution, Conv1d): ...


class LazyConv2d(_LazyConvolution, Conv2d): ...


class LazyConv3d(_LazyConvolution, Conv3d): ...


class _LazyTransposed(_LazyConvolution):
    _size_of = _LazyLayer._size_of


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d): ...


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d): ...


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d): ...


class _LazyNorm(_LazyLayer):
    """`{name}` whose `num_features` is that of the first input: (n, num_features, ...) -> the same shape.

    The other arguments are those of `{name}`.

    >>> Lazy{name}(affine=True)(hm.ones((2, 3{sizes}))).shape
    (2, 3{sizes})
    """

    size_name = "num_features"


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d): ...


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d): ...


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d): ...


class _LazyBatchNorm(_LazyNorm):
    def _input_axes(self) -> tuple[tuple[int, ...], int]:
        found: Any = self
        return found._ranks(), 1


class LazyBatchNorm1d(_LazyBatchNorm, BatchNorm1d): ...


class LazyBatchNorm2d(_LazyBatchNorm, BatchNorm2d): ...


class LazyBatchNorm3d(_LazyBatchNorm, BatchNorm3d): ...


__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d",
    "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear", "LazyModuleMixin",
]  # fmt: skip
