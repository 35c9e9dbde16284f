"""Attributes of a module that are computed where they are read, from parameters and buffers in their place.

A rule stands under the attribute's name in ``module._computed``, and the attribute is in no dictionary: so nothing of a
forward pass stays behind in the module, eager or traced, and copies, pickles and the module's class are as ever.
"""

from __future__ import annotations

from typing import Any

from hybridml_compiler.errors import ArgumentError, TraceError

from ...core.tensor import Tensor
from ...tracing.capture.tracer import is_tracing
from ...tracing.python_state.mutation_epoch import attributes_changed
from ..lazy.uninitialized import is_uninitialized
from ..module import Module


class Rule:
    """Rule by which an attribute of a module is computed."""

    kind: str  # the user's name of it
    suffixes: tuple[str, ...] = ()  # of the names of what it is computed from

    def read(self, module: Module, name: str) -> Tensor:
        raise NotImplementedError

    def write(self, module: Module, name: str, value: Any) -> None:
        raise AttributeError(
            f"{type(module).__name__}.{name} is computed by {self.kind} and cannot be assigned: write into "
            f"{' and '.join(self.parts(name))}, or remove the {self.kind} first"
        )

    def parts(self, name: str) -> list[str]:
        """The names of what the attribute is computed from."""
        return [name + suffix for suffix in self.suffixes]


def rule_of(module: Module, name: str) -> Rule | None:
    """The rule that computes an attribute; None where there is none."""
    found: dict[str, Rule] = vars(module).get("_computed", {})
    return found.get(name)


def outside_of_traces(what: str) -> None:
    """TraceError in a traced function, whose modules keep their parameters."""
    if is_tracing():
        raise TraceError(f"{what}: a traced function cannot change the parameters of a module; do it outside")


def set_rule(module: Module, name: str, rule: Rule | None) -> None:
    """Makes an attribute one that is computed, or with None no longer."""
    rules = {key: value for key, value in vars(module).get("_computed", {}).items() if key != name}
    object.__setattr__(module, "_computed", rules if rule is None else {**rules, name: rule})
    attributes_changed()


def tensor_of(module: Module, name: str, what: str, kinds: tuple[str, ...] = ("parameter",)) -> Tensor:
    """The parameter (or what `kinds` say) of this name, which a rule may take the place of; ArgumentError otherwise."""
    outside_of_traces(what)
    if not isinstance(module, Module):
        raise ArgumentError(f"{what}: takes a Module, got {type(module).__name__}")
    value = vars(module).get(name)
    if not isinstance(value, Tensor) or module._kinds.get(name) not in kinds:
        has = [key for key, kind in module._kinds.items() if kind in kinds and vars(module)[key] is not None]
        raise ArgumentError(f"{what}: {type(module).__name__} has no {' or '.join(kinds[:2])} {name!r}; it has {has}")
    if is_uninitialized(value):
        raise ArgumentError(
            f"{what}: {name} of this {type(module).__name__} has no shape yet; call the layer once before"
        )
    if hasattr(type(module), name):
        raise ArgumentError(f"{what}: {name} is an attribute of the class {type(module).__name__} as well; rename one")
    return value


__all__ = ["Rule", "outside_of_traces", "rule_of", "set_rule", "tensor_of"]
