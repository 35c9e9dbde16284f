"""Sequential, ModuleList, ModuleDict, ParameterList."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, overload

from ..core.tensor import Tensor
from .module import Module


class _Numbered(Module):
    """Children under the names "0", "1", ...: what Sequential and ModuleList share."""

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Module | Self:
        children = list(self.named_children())
        if isinstance(index, slice):
            part = type(self)()
            for name, child in children[index]:
                part.add_module(name if isinstance(self, Sequential) else str(len(part)), child)
            return part
        return children[self._checked(index, len(children))][1]

    def __setitem__(self, index: int, module: Module) -> None:
        names = [name for name, _ in self.named_children()]
        setattr(self, names[self._checked(index, len(names))], module)

    def __delitem__(self, index: int) -> None:
        children = list(self.named_children())
        del children[self._checked(index, len(children))]
        self._renumber(children)

    def append(self, module: Module) -> Self:
        """Adds a module at the end and returns this container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Adds several modules at the end and returns this container."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Puts a module before position `index`; later children are renumbered."""
        children = list(self.named_children())
        children.insert(index, (str(index), module))
        self._renumber(children)

    def _renumber(self, children: list[tuple[str, Module]]) -> None:
        for name, _ in list(self.named_children()):
            delattr(self, name)
        for number, (name, child) in enumerate(children):
            self.add_module(str(number) if name.isdecimal() else name, child)

    def _checked(self, index: int, length: int) -> int:
        if not -length <= index < length:
            raise IndexError(f"{type(self).__name__}: index {index} is outside of {length} modules")
        return index % length


class Sequential(_Numbered):
    """Modules applied one after the other, each to the result of the one before.

    They are given as arguments, named "0", "1", ..., or as one ordered dict of named ones. Raises TypeError for an
    argument that is not a Module, IndexError for a position that does not exist.

    >>> model = Sequential(hm.nn.Linear(4, 8), hm.nn.ReLU(), hm.nn.Linear(8, 2))
    >>> model(hm.ones((3, 4))).shape
    (3, 2)
    """

    def __init__(self, *modules: Module | OrderedDict[str, Module]) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
            return
        for number, entry in enumerate(modules):
            if not isinstance(entry, Module):
                raise TypeError(
                    f"Sequential: argument {number} must be a Module, got {type(entry).__name__}"
                    + ("; a function can be wrapped in a Module with that forward" if callable(entry) else "")
                )
            self.add_module(str(number), entry)

    def forward(self, input: Any) -> Any:
        for module in self.children():
            input = module(input)
        return input


class ModuleList(_Numbered):
    """List of modules whose parameters are found; it has no forward of its own.

    Its children are named "0", "1", ... Raises IndexError for a position that does not exist.

    >>> len(ModuleList([hm.nn.Linear(2, 2) for _ in range(3)]))
    3
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)


class ModuleDict(Module):
    """Dict of modules whose parameters are found, in order of insertion; it has no forward of its own.

    Raises KeyError for a name that it does not have.

    >>> list(ModuleDict({"a": hm.nn.ReLU(), "b": hm.nn.Tanh()}))
    ['a', 'b']
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        for name, module in modules.items():
            self[name] = module

    def __getitem__(self, name: str) -> Module:
        if self._kinds.get(name) != "module":
            raise KeyError(name)
        return getattr(self, name)

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self, name)

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __contains__(self, name: object) -> bool:
        return self._kinds.get(name) == "module" if isinstance(name, str) else False

    def keys(self) -> Iterator[str]:
        return (name for name, _ in self.named_children())

    def values(self) -> Iterator[Module]:
        return self.children()

    def items(self) -> Iterator[tuple[str, Module]]:
        return self.named_children()


class ParameterList(Module):
    """List of parameters that a module finds, under the names "0", "1", ...

    Raises IndexError for a position that does not exist.

    >>> list(ParameterList([hm.nn.Parameter(hm.ones(2))]).state_dict())
    ['0']
    """

    def __init__(self, parameters: Iterable[Tensor] = ()) -> None:
        super().__init__()
        for parameter in parameters:
            self.append(parameter)

    def append(self, parameter: Tensor) -> Self:
        self.register_parameter(str(len(self)), parameter)
        return self

    def __len__(self) -> int:
        return sum(1 for _ in self._own("parameter"))

    def __iter__(self) -> Iterator[Tensor]:
        return (parameter for _, parameter in self._own("parameter"))

    def __getitem__(self, index: int) -> Tensor:
        return list(self)[index]


class ParameterDict(Module):
    """Dict of parameters that a module finds under their keys, in order of insertion.

    Raises KeyError for a name that it does not have.

    >>> list(ParameterDict({"a": hm.nn.Parameter(hm.ones(2))}).state_dict())
    ['a']
    """

    def __init__(self, parameters: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def update(self, parameters: Mapping[str, Tensor]) -> None:
        for name, parameter in parameters.items():
            self[name] = parameter

    def __getitem__(self, name: str) -> Tensor:
        if name not in self:
            raise KeyError(name)
        found: Tensor = getattr(self, name)
        return found

    def __setitem__(self, name: str, parameter: Tensor) -> None:
        self.register_parameter(name, parameter)

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self, name)

    def __len__(self) -> int:
        return sum(1 for _ in self.keys())

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __contains__(self, name: object) -> bool:
        return self._kinds.get(name) == "parameter" if isinstance(name, str) else False

    def keys(self) -> Iterator[str]:
        return (name for name, _ in self._own("parameter"))

    def values(self) -> Iterator[Tensor]:
        return (parameter for _, parameter in self._own("parameter"))

    def items(self) -> Iterator[tuple[str, Tensor]]:
        return self._own("parameter")


__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]
