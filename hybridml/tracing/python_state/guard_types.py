"""Guards: single Python values that a trace has relied on. A program is right for a call while all of them hold.

A guard reads its value, says what it is to people, puts another value there, and tells what native code compares
instead of it. Which guards a function needs is found out in guards.py.
"""

from __future__ import annotations

import gc
import math
import types
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable
from functools import lru_cache, partial
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ...core.shared.calls import calls_of_thread, is_of_a_thread
from .classes import class_of, registered
from .reads import (
    ABSENT,
    MOST_COMPARED,
    checksum,
    elements,
    entries_of,
    environment,
    form,
    given_by,
    keys_of,
    level,
    put_bytes,
    put_contents,
    put_form,
    size_of,
    variable,
)

if TYPE_CHECKING:
    from hybridml_compiler.targets.cpu.python_entry.places import Place

    from .names import Names

SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic)
GONE = (AttributeError, IndexError, KeyError, ValueError)  # what reading raises where there is nothing any longer
_SHOWN = (bool, int, float, complex, str, bytes, type(None), tuple, frozenset)
_PRESENT = object()  # the value that is there now

Check = tuple[Callable[[Any], Any], Any, Any]
NameOf = Callable[[Any], str]  # the name by which code reaches an object


class Guard:
    """A value that must be what it was: `owner` has it, under `key` if it has several.

    `check` is (read, argument, value); it holds while `read(argument)` gives the value or an equal one. Calls unpack
    these tuples: 60 ns per guard, where a method of each would take 130.
    """

    is_content: ClassVar[bool] = False  # of a list, dict, set or deque
    is_named: ClassVar[bool] = False  # code reads exactly this value, by a name
    can_put: ClassVar[bool] = False
    read: ClassVar[Any]  # the function that reads the value of the owner

    def __init__(self, owner: Any, key: Any = None, value: Any = _PRESENT) -> None:
        self.owner, self.key = owner, key
        read, argument = self._reader()
        self.check: Check = read, argument, read(argument) if value is _PRESENT else value

    def _reader(self) -> tuple[Callable[[Any], Any], Any]:
        """A function that reads the value, and its argument."""
        return type(self).read, self.owner

    @property
    def value(self) -> Any:
        """The value that the trace has relied on."""
        return self.check[2]

    def now(self) -> Any:
        """The present value; one of `GONE` is raised where there is none."""
        read, argument, _ = self.check
        return read(argument)

    def holds(self) -> bool:
        """Whether the value is still there, or an equal one."""
        return hold((self,))

    def renewed(self) -> Self | None:
        """The guard for the present value; None where there is none."""
        try:
            return type(self)(self.owner, self.key)
        except GONE:
            return None

    @property
    def container(self) -> Any:
        """The list, dict, set or deque whose content it guards; None for any other."""
        return self.owner if self.is_content else None

    def put(self, value: Any) -> None:
        """Gives the owner this value, where that can be done."""
        raise NotImplementedError

    def native(self) -> Place | None:
        """The place that native code compares by identity instead; None where it cannot, or where the value there now
        is an equal one of another identity."""
        return self._place() if self.now() is self.value else None

    def _place(self) -> Place | None:
        return None

    # -- for people

    @property
    def name(self) -> str:
        """The variable, attribute or key, without its owner."""
        return str(self.key)

    def label(self, name_of: NameOf) -> str:
        """The guarded value as a message names it."""
        return self.name

    def path(self, names: Names) -> str:
        """The guarded value as its user would write it."""
        return self.name

    def change(self, name_of: NameOf) -> str:
        """One line that says how the present value differs; "" where it does not."""
        try:
            now, was = self.now(), self.value
        except GONE:
            now = ABSENT
        if now is ABSENT and self.value is not ABSENT:
            return f"{self.label(name_of)} is gone"
        return "" if now is was or _equal(now, was) else self._difference(name_of, was, now)

    def _difference(self, name_of: NameOf, was: Any, now: Any) -> str:
        return f"{self.label(name_of)} {_brief(was)} -> {_brief(now)}"


class ItemGuard(Guard):
    """An entry of a dict or list: a global variable, an attribute of an object or class, an item. That a dict has none
    is `ABSENT`."""

    is_content = is_named = True

    def _reader(self) -> tuple[Callable[[Any], Any], Any]:
        owner = self.owner
        if isinstance(owner, dict | types.MappingProxyType):
            get = dict.get.__get__(owner) if isinstance(owner, dict) else owner.get
            return partial(get, self.key), ABSENT
        return owner.__getitem__, self.key

    def _place(self) -> Place | None:
        owner = _behind(self.owner)
        if not isinstance(owner, dict) or type(self.key) is not str:
            return None
        return _places().EntryHolds(owner, self.key, _places().ABSENT if self.value is ABSENT else self.value)

    def label(self, name_of: NameOf) -> str:
        return f"{name_of(self.owner)}[{self.key}]" if type(self.owner) is list else self.name

    def path(self, names: Names) -> str:
        return names.item(self.owner, self.key)


class LengthGuard(Guard):
    """The number of items of a container."""

    is_content = True
    read = len

    def native(self) -> Place | None:
        owner = _behind(self.owner)
        return _places().DictSize(owner, self.value) if type(owner) is dict else None

    def label(self, name_of: NameOf) -> str:
        return f"the size of {name_of(self.owner)}"


class KeysGuard(LengthGuard):
    """The keys of a dict, in their order."""

    def _reader(self) -> tuple[Callable[[Any], Any], Any]:
        return (tuple if type(self.owner) in (dict, OrderedDict) else keys_of), self.owner  # 90 ns, or 270

    def native(self) -> Place | None:
        place = _places().KeysHold(self.owner, self.value) if type(self.owner) is dict else None
        return place if place is not None and place.holds() else None

    def _difference(self, name_of: NameOf, was: Any, now: Any) -> str:
        if len(now) != len(was):
            return f"{self.label(name_of)} {len(was)} -> {len(now)}"
        return f"the keys of {name_of(self.owner)} are others, or in another order"


class AttributesGuard(LengthGuard):
    """The number of attributes that an object or class has, by its `__dict__`; their names are `key`."""

    def __init__(self, owner: Any, key: Any = None, value: Any = _PRESENT) -> None:
        super().__init__(owner, frozenset(owner), value)

    def _difference(self, name_of: NameOf, was: int, now: int) -> str:
        moved = sorted(self.key ^ frozenset(self.owner))
        return f"attribute {', '.join(moved)} is {'new' if now > was else 'gone'}"


class ContentsGuard(Guard):
    """All items of a container at once, in their order: a set, or a long list or dict."""

    is_content = can_put = True

    def _reader(self) -> tuple[Callable[[Any], Any], Any]:
        return (entries_of if isinstance(self.owner, dict) else tuple), self.owner

    def put(self, value: Any) -> None:
        put_contents(self.owner, value)

    def label(self, name_of: NameOf) -> str:
        return name_of(self.owner)

    def _difference(self, name_of: NameOf, was: Any, now: Any) -> str:
        if isinstance(self.owner, set | frozenset):
            return super()._difference(name_of, frozenset(was), frozenset(now))
        return f"the items of {self.label(name_of)} are others"


class AttributeGuard(Guard):
    """An attribute that no dict has: it is in a slot."""

    is_named = can_put = True

    def _reader(self) -> tuple[Callable[[Any], Any], Any]:
        return _getter(self.key), self.owner

    @property
    def assigned(self) -> Any:
        """The value that must be assigned to get the guarded one."""
        return self.value

    def put(self, value: Any) -> None:
        setattr(self.owner, self.name, value)

    def drop(self) -> None:
        """Takes the attribute from its owner."""
        delattr(self.owner, self.name)

    def path(self, names: Names) -> str:
        return names.attribute(self.owner, self.name)


class CellGuard(AttributeGuard):
    """A variable of an enclosing function, by the closure cell (`owner`) that it is in and its name (`key`)."""

    read = attrgetter("cell_contents")
    _reader = Guard._reader
    path = Guard.path

    def put(self, value: Any) -> None:
        self.owner.cell_contents = value

    def drop(self) -> None:
        del self.owner.cell_contents

    def _place(self) -> Place | None:
        return _places().CellHolds(self.owner, self.value)


class FunctionGuard(AttributeGuard):
    """The code of a function, or its default values, which reloading tools replace in place."""

    is_named = False
    PARTS: ClassVar = ("__code__", "__defaults__", "__kwdefaults__")

    def _place(self) -> Place | None:
        return _places().FunctionHolds(self.owner, self.key, self.value)

    def _difference(self, name_of: NameOf, was: Any, now: Any) -> str:
        return f"{self.owner.__name__}.{self.key} is another"


class ClassGuard(AttributeGuard):
    """The class of an object."""

    is_named = False
    read = staticmethod(class_of)
    _reader = Guard._reader
    name = "__class__"

    def label(self, name_of: NameOf) -> str:
        return f"the class of {name_of(self.owner)}"

    def _place(self) -> Place | None:
        return _places().ClassHolds(self.owner, self.value)


class ResolutionGuard(AttributeGuard):
    """The method resolution order of a class, which is another one where its bases (`key`) are."""

    is_named = False
    read = attrgetter("__mro__")
    _reader = Guard._reader
    name = "__bases__"

    def __init__(self, owner: type, key: Any = None, value: Any = _PRESENT) -> None:
        super().__init__(owner, owner.__bases__, value)

    @property
    def assigned(self) -> Any:
        return self.key

    def _place(self) -> Place | None:
        return _places().OrderHolds(self.owner, self.value)

    def _difference(self, name_of: NameOf, was: Any, now: Any) -> str:
        return f"the bases of {self.owner.__name__} are others"


class LayoutGuard(Guard):
    """Shape, dtype, strides and writability of a NumPy array."""

    can_put = True
    read = staticmethod(form)

    def put(self, value: Any) -> None:
        put_form(self.owner, value)

    def native(self) -> Place | None:
        return _places().FormHolds(self.owner, self.value) if self.now() == self.value else None

    def _difference(self, name_of: NameOf, was: Any, now: Any) -> str:
        return f"{name_of(self.owner)} has another shape, dtype, memory layout or is read-only"


class ElementsGuard(Guard):
    """The bytes of an array or buffer."""

    can_put = True
    read = staticmethod(elements)

    def put(self, value: Any) -> None:
        put_bytes(self.owner, value)

    def _difference(self, name_of: NameOf, was: bytes, now: bytes) -> str:
        return f"the elements of {name_of(self.owner)} are others"


class ChecksumGuard(ElementsGuard):
    """The checksum of a large array or buffer."""

    can_put = False
    read = staticmethod(checksum)


class RegistryGuard(Guard):
    """The classes that are registered with an abstract class."""

    read = staticmethod(registered)


class ContextGuard(Guard):
    """The value of a context variable."""

    read = staticmethod(variable)


class ThreadGuard(Guard):
    """The object of a kind that belongs to this thread, which a function gives."""

    read = staticmethod(given_by)

    def _difference(self, name_of: NameOf, was: Any, now: Any) -> str:
        return "it is called in another thread, and calls queues"


class EnvironmentGuard(Guard):
    """All environment variables."""

    read = staticmethod(environment)

    def _difference(self, name_of: NameOf, was: Any, now: Any) -> str:
        return "an environment variable is another"


class LevelGuard(Guard):
    """The level and the switch that decide whether a logger says something."""

    read = staticmethod(level)


class TupleRestGuard(Guard):
    """The tuple that another guard (`owner`) reads, without the items at some indices (`key`), whose types count."""

    owner: Guard

    def _reader(self) -> tuple[Callable[[Any], Any], Any]:
        return partial(_types_at, self.key), self.owner.check

    @property
    def name(self) -> str:
        return self.owner.name


class TupleItemGuard(TupleRestGuard):
    """One item (`key`) of the tuple that another guard (`owner`) reads; None where there is none."""

    is_named = True

    def _reader(self) -> tuple[Callable[[Any], Any], Any]:
        return partial(_item_at, self.key), self.owner.check


def elements_guard(buffer: Any) -> ElementsGuard:
    """The guard of what an array or buffer holds: a large one is compared by its checksum."""
    return (ElementsGuard if size_of(buffer) <= MOST_COMPARED else ChecksumGuard)(buffer)


def thread_guards(captured: Iterable[Any]) -> list[ThreadGuard]:
    """The guard that calls are in the same thread, where the token of one is captured."""
    return [ThreadGuard(calls_of_thread)] if any(map(is_of_a_thread, captured)) else []


def hold(guards: Iterable[Guard]) -> bool:
    """Whether all guards hold."""
    try:
        for guard in guards:
            read, argument, value = guard.check
            now = read(argument)
            if now is not value and not _equal(now, value):
                return False
    except GONE:
        return False
    return True


def _equal(now: Any, value: Any) -> bool:
    if type(now) is not type(value):
        return False
    if type(value) is tuple:
        if len(now) != len(value):
            return False
        return all(map(is_, now, value)) or all(a is b or _equal(a, b) for a, b in zip(now, value, strict=True))
    if isinstance(value, complex | np.complexfloating):
        return _equal(now.real, value.real) and _equal(now.imag, value.imag)
    if isinstance(value, float | np.floating):  # signs of zeros say on which side of a cut it is
        same = now == value or (now != now and value != value)
        return bool(same and math.copysign(1.0, now) == math.copysign(1.0, value))
    if isinstance(value, SCALARS):
        same = now == value or (now != now and value != value)
        return bool(same and (not isinstance(value, np.generic) or now.dtype == value.dtype))  # the unit of a time
    # In their order: equal items need not be the same, and code may see which is first.
    return type(value) is frozenset and _equal(tuple(now), tuple(value))


def _places() -> Any:
    """The module of the native checks: late, since loading it takes 23 ms."""
    from hybridml_compiler.targets.cpu.python_entry import places

    return places


_getter = lru_cache(maxsize=4096)(attrgetter)


def _item_at(index: int, check: Check) -> Any:
    """An item of the tuple that a check reads; None where there is none."""
    read, argument, _ = check
    found = read(argument)
    return found[index] if type(found) is tuple and index < len(found) else None


def _types_at(indices: Container[int], check: Check) -> Any:
    """The tuple that a check reads, with the types of the items at these indices in their places."""
    read, argument, _ = check
    found = read(argument)
    if type(found) is not tuple:
        return found
    return tuple([type(item) if k in indices else item for k, item in enumerate(found)])


def _behind(owner: Any) -> Any:
    """The dict itself behind the proxy of a class's `__dict__`, which refers to nothing else."""
    behind = gc.get_referents(owner) if type(owner) is types.MappingProxyType else [owner]
    return behind[0] if len(behind) == 1 else None


def _brief(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    if value is ABSENT:
        return "nothing"
    shown = repr(value) if isinstance(value, _SHOWN) else f"a {type(value).__name__}"
    return shown if len(shown) <= 40 else shown[:37] + "..."
