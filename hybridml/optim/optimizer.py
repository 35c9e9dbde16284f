"""Optimizer: parameter groups, per-parameter state, and a step that commits all of its writes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from hybridml_compiler.compile_policy import UPDATE
from hybridml_compiler.errors import ArgumentError, GradientError, ShapeError

from .. import arrays as xp
from ..core.context import current_interpreter, enable_grad, no_grad
from ..core.states import check_entries
from ..core.tensor import Tensor, adopt
from ..nn.lazy.uninitialized import is_uninitialized
from ..nn.module import drop_gradients
from ..nn.parameter import RowWrites, Writes, commit
from ..tracing.decorator import trace
from ..tracing.python_state.mutation_epoch import attributes_changed
from .checks import Check, complaint
from .group import ParameterGroup
from .parts import held_as
from .rows import come_again, is_sparse, rows_of, update_rows


class Optimizer:
    """Base class of the optimizers: subclasses name their numbers and state, and write `update`.

    State is made when a parameter is added, not at its first step: a traced step then finds it as captured tensors.
    ``state_dict()`` has PyTorch's structure: the state of parameter k under ``["state"][k]``. A subclass that writes
    `step` itself, as PyTorch's do, finds Python numbers in its groups and keeps what it likes in
    ``self.state[parameter]``. Raises ArgumentError and TypeError for parameters that cannot be trained,
    NotImplementedError without `update`.

    >>> class Plain(Optimizer):
    ...     numbers = ("lr",)
    ...
    ...     def update(self, group, ready, steps):
    ...         parameters = [group["params"][k] for k in ready]
    ...         return [(p, p - p.grad * group["lr"].astype(p.dtype)) for p in parameters]
    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Plain([w], {"lr": 0.25}).step()
    >>> w.tolist()
    [0.5]
    """

    numbers: tuple[str, ...] = ("lr", "weight_decay")  # hyper-parameters held as tensors
    tensors: tuple[str, ...] = ()  # of the state, each shaped as its parameter (see `initial`)
    per_parameter: ClassVar[dict[str, float]] = {}  # numbers of the state, beside "step", and their starts
    checks: ClassVar[dict[str, Check]] = {}  # bounds of hyper-parameters, where they are not the usual ones

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]) -> None:
        self.defaults = dict(defaults)
        self.numbers = () if self._by_hand else tuple(name for name in self.numbers if name in self.defaults)
        self.param_groups: list[ParameterGroup] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        self._steps: list[Tensor] = []  # a group: steps taken by each parameter, float64
        found: list[Any] = [params] if isinstance(params, Tensor) else list(params)
        if not found:
            raise ArgumentError(f"{type(self).__name__}: got no parameters; pass model.parameters()")
        for group in found if isinstance(found[0], Mapping) else [{"params": found}]:
            self.add_param_group(group)
        self._compiled_step()  # made now: an attribute that came later would be one that `hm.compare` takes back

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        attributes_changed()

    # --- for subclasses ---------------------------------------------------------------------------------------------

    def state_names(self, group: ParameterGroup) -> Sequence[str]:
        """State tensors that `update` needs with these settings."""
        return self.tensors

    def fits(self, name: str, parameter: Tensor) -> bool:
        """Whether a parameter has the state tensor `name`."""
        return True

    def initial(self, name: str, parameter: Tensor, group: ParameterGroup) -> Tensor:
        """The state tensor `name` of a parameter before its first step."""
        return full(parameter)

    def update(self, group: ParameterGroup, ready: list[int], steps: Tensor) -> Writes:
        """The new values of one group, as (target, value) pairs; runs without recording and must write nothing.

        `ready` numbers the parameters that have a gradient; `steps` counts the steps of each parameter with this one.
        """
        raise NotImplementedError(f"{type(self).__name__} has no update method")

    def refuses_sparse(self, group: ParameterGroup) -> str:
        """Why sparse gradients are an error; "" where elements without a gradient, and their state, do not change."""
        return f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead"

    # --- use --------------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient; returns the loss of `closure` (called first), or None."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            large = current_interpreter() is None and self._size >= UPDATE
            if large and (not (counts := self._rows()) or come_again(self, counts)):
                self._compiled_step()(self)
            else:
                self._update_all()
        return loss

    def _update_all(self) -> None:
        writes: Writes = []
        rows: RowWrites = []
        for group, counts in zip(self.param_groups, self._steps, strict=True):
            grads = [parameter.grad for parameter in group["params"]]
            has_grad = [grad is not None for grad in grads]
            if any(has_grad):
                self._ensure_state(group)
                steps = counts + (1 if all(has_grad) else xp.asarray(has_grad, device="cpu"))
                writes.append((counts, steps))
                found = {k: rows_of(grad, group.get("lazy", False)) for k, grad in enumerate(grads)}
                sparse = {k: grad for k, grad in found.items() if grad is not None}
                if sparse:
                    if reason := self.refuses_sparse(group):
                        raise GradientError(reason)
                    rows += update_rows(self.update, group, sparse, steps, self.state)
                dense = [k for k, has in enumerate(has_grad) if has and k not in sparse]
                writes += self.update(group, dense, steps) if dense else []
        # State that is wider than its parameter (`Module.to` came later) computes wide and is rounded here.
        kept = [(t, held_as(new, t.dtype)) for t, new in writes]
        commit(kept, [(t, where, held_as(new, t.dtype)) for t, where, new in rows])

    def _rows(self) -> tuple[int, ...]:
        """The number of rows of each sparse gradient."""
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        return tuple([grad._nnz() for grad in grads if is_sparse(grad)])

    def _compiled_step(self) -> Any:
        """`_update_all` as one native call: the same bits as operation by operation, without its temporaries."""
        found = self.__dict__.get("_compiled")
        if found is None:
            found = trace(Optimizer._update_all)
            object.__setattr__(self, "_compiled", found)
        return found

    @property
    def _size(self) -> int:
        return sum(p.numel() for group in self.param_groups for p in group["params"])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops every gradient, or with `set_to_none=False` fills it with zeros."""
        drop_gradients((parameter for group in self.param_groups for parameter in group["params"]), set_to_none)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Adds parameters with settings of their own; what is not given comes from the optimizer's defaults."""
        given = param_group["params"]
        params: list[Any] = [given] if isinstance(given, Tensor) else list(given)
        # (name, parameter) pairs, as `model.named_parameters()` gives them, are as good.
        params = [p[1] if isinstance(p, tuple) and len(p) == 2 else p for p in params]
        settings = {**self.defaults, **param_group, "params": params}
        unknown = settings.keys() - self.defaults.keys() - {"params"}
        if unknown:
            raise TypeError(
                f"{type(self).__name__}: unknown settings {sorted(unknown)}; it has {sorted(self.defaults)}"
            )
        for number, parameter in enumerate(params):
            if not isinstance(parameter, Tensor):
                raise TypeError(
                    f"{type(self).__name__}: parameter {number} is a {type(parameter).__name__}, not a Tensor"
                )
            if is_uninitialized(parameter):
                raise ArgumentError(
                    f"{type(self).__name__}: parameter {number} is of a lazy layer and has no shape yet; call the "
                    f"model with an input first, or load a state dict into it, and make the optimizer then"
                )
            if not parameter.is_leaf:
                raise ArgumentError(
                    f"{type(self).__name__}: parameter {number} of shape {parameter.shape} was computed; only leaf "
                    f"tensors can be trained: pass the tensor that it was computed from"
                )
            if not xp.isdtype(parameter.dtype, ("real floating", "complex floating")):
                raise TypeError(
                    f"{type(self).__name__}: parameter {number} is {parameter.dtype}; only floats and complex numbers "
                    f"train: cast it with astype"
                )
        seen = [id(p) for p in params] + [id(p) for group in self.param_groups for p in group["params"]]
        if len(set(seen)) < len(seen):
            raise ArgumentError(f"{type(self).__name__}: a parameter appears more than once")
        self._check(settings)
        group = ParameterGroup(settings, self.numbers)
        group.vectors = {name: adopt(np.full(len(params), start)) for name, start in self.per_parameter.items()}
        self.param_groups.append(group)
        self._steps.append(adopt(np.zeros(len(params))))
        self._ensure_state(group)
        attributes_changed()

    @property
    def lr(self) -> Tensor:
        """The learning rate of the first group, as the tensor that steps read; assignment writes into every group."""
        return self.param_groups[0]["lr"]

    @lr.setter
    def lr(self, value: Any) -> None:
        for group in self.param_groups:
            group["lr"] = value

    def state_dict(self) -> dict[str, Any]:
        """State as PyTorch lays it out, ``{"state": {k: {name: tensor}}, "param_groups": [...]}``. Not copied."""
        state: dict[int, dict[str, Tensor]] = {}
        groups = []
        for group, steps in zip(self.param_groups, self._steps, strict=True):
            first = len(state)
            for k, parameter in enumerate(group["params"]):
                numbers = {} if self._by_hand else {"step": steps, **group.vectors}
                state[first + k] = {n: v[k].clone() for n, v in numbers.items()} | self.state[parameter]
            groups.append({**group.values_as_python(), "params": list(range(first, len(state)))})
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Copies settings and state in place. Nothing is written unless the groups and shapes fit (ValueError)."""
        check_entries(self, state_dict, "state", "param_groups")
        groups, state = state_dict["param_groups"], state_dict["state"]
        sizes = [len(group["params"]) for group in self.param_groups]
        given = [len(group["params"]) for group in groups]
        if sizes != given:
            raise ArgumentError(
                f"{type(self).__name__}.load_state_dict: the groups hold {sizes} parameters, the state is for {given}"
            )
        writes: list[tuple[Tensor, Any]] = []
        kept: dict[Tensor, dict[str, Any]] = {}
        for group, steps, saved in zip(self.param_groups, self._steps, groups, strict=True):
            vectors = {n: np.full(len(saved["params"]), start) for n, start in self.per_parameter.items()}
            vectors["step"] = np.zeros(len(saved["params"]))
            for k, (parameter, key) in enumerate(zip(group["params"], saved["params"], strict=True)):
                entry = dict(state.get(key, state.get(str(key), {})))
                if self._by_hand:
                    kept[parameter] = {name: _own(value) for name, value in entry.items()}
                    continue
                # PyTorch does not count the steps of some: what has state is past the first one.
                vectors["step"][k] = any(value is not None for value in entry.values())
                for name in vectors.keys() & entry.keys():
                    vectors[name][k] = float(entry.pop(name) or 0)
                # What has no entry is as it is before the first step; of an optimizer without state None stands for it.
                held = self.state[parameter]
                for name in held.keys() | entry.keys():
                    value = entry.get(name)
                    if name not in held:
                        held[name] = self.initial(name, parameter, group)
                    tensor = self.initial(name, parameter, group) if value is None else xp.asarray(value, device="cpu")
                    if tensor.shape != held[name].shape:
                        raise ShapeError(
                            f"{type(self).__name__}.load_state_dict: {name} of parameter {key} has shape "
                            f"{tensor.shape}, that of the optimizer {held[name].shape}"
                        )
                    writes.append((held[name], xp.astype(tensor.to(device=held[name].device), held[name].dtype)))
            for name, vector in vectors.items():
                writes.append((steps if name == "step" else group.vectors[name], xp.asarray(vector, device="cpu")))
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({key: value for key, value in saved.items() if key in self.defaults})
        self.state |= kept
        with no_grad():
            commit(writes)
        attributes_changed()

    def __repr__(self) -> str:
        lines = []
        for number, group in enumerate(self.param_groups):
            settings = ", ".join(f"{key}={value}" for key, value in group.values_as_python().items())
            lines.append(f"  group {number}: {len(group['params'])} parameters, {settings}")
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)"

    # --- inside -----------------------------------------------------------------------------------------------------

    @property
    def _by_hand(self) -> bool:
        """Whether the subclass writes `step`, and makes its state there."""
        return type(self).step is not Optimizer.step

    def _check(self, settings: Mapping[str, Any]) -> None:
        """Raises an error for settings that can only be a mistake."""
        for name in self.numbers:
            wrong = complaint(name, settings[name], self.checks)
            if wrong is not None:
                raise ArgumentError(f"{type(self).__name__}: {wrong}")

    def _ensure_state(self, group: ParameterGroup) -> None:
        names = self.state_names(group)
        for parameter in group["params"]:
            held = self.state.setdefault(parameter, {})
            for name in names:
                if _lacks_values(held[name], parameter) if name in held else self.fits(name, parameter):
                    held[name] = self.initial(name, parameter, group)


def _lacks_values(state: Tensor, parameter: Tensor) -> bool:
    """Whether a parameter has got its values since its state was made, on "meta"."""
    return type(state._array) is not np.ndarray and state.device == "meta" != parameter.device


def _own(value: Any) -> Any:
    """A loaded value of state by hand, in memory of its own: PyTorch's tensors and arrays are tensors of ours."""
    if isinstance(value, list):
        return list(map(_own, value))
    return xp.asarray(value, device="cpu").clone() if hasattr(value, "__array__") else value


def full(parameter: Tensor, start: float = 0.0, shape: tuple[int, ...] | None = None, dtype: Any = None) -> Tensor:
    """A state tensor of `start` on the parameter's device; of its shape and dtype where none are given."""
    dtype = parameter.dtype if dtype is None else dtype
    number = complex(start, start) if dtype.kind == "c" else start
    shape = parameter.shape if shape is None else shape
    if type(parameter).home is not None:
        return xp.full(shape, number, dtype=dtype, device=parameter.device)
    # From NumPy: also inside a traced function this is memory that outlives the call, in the parameter's order.
    array = parameter._array
    if type(array) is not np.ndarray:
        from ..tracing.specialize.errors import Untraceable

        raise Untraceable("an optimizer of tensors that the call itself makes has a state of its own in every call")
    return adopt(np.full_like(array, number, dtype, shape=None if shape == array.shape else shape))
