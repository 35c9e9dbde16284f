"""Records: classes of fields, whose methods are made when they are first called.

They are what `dataclasses.dataclass` makes, for half of the compiler's classes are such: the standard library compiles
the text of up to six methods for each when its module is imported, 0.6 ms, which was a third of the time of a process's
first compiled call, and most of the classes are not used in it. A record takes 0.013 ms, and each method that somebody
calls 0.1 ms, but `__init__` 0.01: it is copied from a class of as many fields. That a record is frozen is checked by
the type checker alone, so that making one takes a third of the time. What users are given stays a data class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, field
from functools import cache
from reprlib import recursive_repr
from types import CodeType, FunctionType
from typing import Any, TypeVar, dataclass_transform, overload

C = TypeVar("C", bound=type)
T = TypeVar("T")
_AS_IT_COMES = (True, True, None, MISSING)  # options of a `dataclasses.field` that records do not have


@overload
def record(cls: C, /) -> C: ...
@overload
def record(*, frozen: bool = True, eq: bool = True, repr: bool = True) -> Callable[[C], C]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, /, *, frozen: bool = True, eq: bool = True, repr: bool = True) -> Any:
    """The class with the methods of its annotated fields: `__init__`, `__eq__` and `__hash__`, `__repr__`.

    `frozen`, `eq` and `repr` are those of `dataclasses.dataclass`, and a field may be a `dataclasses.field` with a
    default, a factory of defaults, or `repr=False`. Methods of the class itself stay. Raises TypeError where a field
    without a default follows one with a default, for a default that can change, and for other options of a field.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(3), Point(3) == Point(3, 0), Point(3) in {Point(3)}
    (Point(x=3, y=0), True, True)
    """
    if cls is None:
        return lambda made: _made(made, frozen, eq, repr)
    return _made(cls, frozen, eq, repr)


def fields(cls: Any) -> dict[str, Any]:
    """The fields of a record or of its class by name, in order: a default, `MISSING`, or a `dataclasses.Field`."""
    found: dict[str, Any] = cls.__record_fields__
    return found


def replace(record: T, /, **changes: Any) -> T:
    """A copy of a record, with other values of some fields.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> replace(Point(3), y=4)
    Point(x=3, y=4)
    """
    return type(record)(**{name: getattr(record, name) for name in fields(record)} | changes)


def _made(cls: Any, frozen: bool, eq: bool, repr_: bool) -> Any:
    found: dict[str, Any] = {}
    for base in cls.__mro__[:0:-1]:
        found |= base.__dict__.get("__record_fields__", {})
    for name, kind in cls.__annotations__.items():
        if "ClassVar" not in str(kind):
            found[name] = cls.__dict__.get(name, MISSING)
            _check_field(cls, name, found[name])
            if isinstance(found[name], Field):
                _set_default(cls, name, found[name])
    _check_order(cls, found)
    cls.__record_fields__ = found
    cls.__match_args__ = tuple(found)  # type: ignore[misc]
    _add(cls, "__init__", _init)
    if repr_:
        cls.__repr__ = cls.__dict__.get("__repr__", _repr)
    if eq:
        own = "__eq__" in cls.__dict__
        _add(cls, "__eq__", _eq)
        if not frozen:
            cls.__hash__ = None
        elif not own:
            _add(cls, "__hash__", _hash)
    return cls


def _set_default(cls: Any, name: str, given: Field[Any]) -> None:
    if given.default is MISSING:
        delattr(cls, name)
    else:
        setattr(cls, name, given.default)


def _check_field(cls: type, name: str, given: Any) -> None:
    """Raises TypeError for what a data class would do and a record does not."""
    default = given.default if isinstance(given, Field) else given
    if type(default).__hash__ is None:
        raise TypeError(
            f"field {name!r} of {cls.__qualname__}: records would share the default {default!r}; use a factory"
        )
    if isinstance(given, Field) and (given.init, given.compare, given.hash, given.kw_only) != _AS_IT_COMES:
        raise TypeError(
            f"field {name!r} of {cls.__qualname__}: a field has a default, a factory or repr=False, no more"
        )


def _check_order(cls: type, found: dict[str, Any]) -> None:
    first = ""
    for name, given in found.items():
        if not _is_required(given):
            first = first or name
        elif first:
            raise TypeError(f"field {name!r} of {cls.__qualname__} has no default and follows {first!r}, which has one")


def _is_required(given: Any) -> bool:
    return given is MISSING or (isinstance(given, Field) and given.default is given.default_factory is MISSING)


def _add(cls: Any, name: str, make: Callable[[Any], FunctionType]) -> None:
    """Gives the class a method that is made when it is first called, unless it has its own."""
    if cls.__dict__.get(name) is not None:
        return

    def first(*arguments: Any, **named: Any) -> Any:
        made = make(cls)
        made.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, made)
        return made(*arguments, **named)

    setattr(cls, name, first)


def _function(source: str) -> CodeType:
    """The code of the one function that a text defines."""
    return next(x for x in compile(source, "<record>", "exec").co_consts if isinstance(x, CodeType))


def _init(cls: Any) -> FunctionType:
    given = fields(cls).values()
    made = tuple(isinstance(x, Field) and x.default_factory is not MISSING for x in given)
    names = {f"make{k}": x.default_factory for k, x in enumerate(given) if made[k]}
    defaults = tuple(x.default if isinstance(x, Field) else x for x in given if not _is_required(x))
    return _copy(cls, _setting(made, hasattr(cls, "__post_init__")), defaults, missing=MISSING, **names)


def _eq(cls: Any) -> FunctionType:
    return _copy(cls, _comparing(len(fields(cls))))


def _hash(cls: Any) -> FunctionType:
    return _copy(cls, _hashing(len(fields(cls))))


def _copy(cls: Any, code: CodeType, defaults: tuple[Any, ...] = (), **names: Any) -> FunctionType:
    """A copy of the code for classes of as many fields, `f0`, `f1`, ..., in which these have their names. Compiling it
    takes 0.1 ms, a copy 0.005."""
    name_of = {f"f{k}": name for k, name in enumerate(fields(cls))}

    def renamed(listed: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name_of.get(name, name) for name in listed)

    own = code.replace(
        co_names=renamed(code.co_names),
        co_varnames=renamed(code.co_varnames),
        co_filename=f"<record {cls.__qualname__}>",
    )
    return FunctionType(own, {"__name__": cls.__module__, **names}, code.co_name, defaults)


@cache
def _setting(made: tuple[bool, ...], checked: bool) -> CodeType:
    """Code that sets fields to its arguments; of those that are made, a factory gives what is missing."""
    arguments = ", ".join(["self", *(f"f{k}" for k in range(len(made)))])
    lines = [
        f"self.f{k} = make{k}() if f{k} is missing else f{k}" if m else f"self.f{k} = f{k}" for k, m in enumerate(made)
    ]
    lines += ["self.__post_init__()"] * checked
    return _function(f"def __init__({arguments}): {'; '.join(lines) or 'pass'}")


@cache
def _comparing(count: int) -> CodeType:
    one, other = _tuple("self", count), _tuple("other", count)
    test = f"{one} == {other} if self.__class__ is other.__class__ else NotImplemented"
    return _function(f"def __eq__(self, other): return {test}")


@cache
def _hashing(count: int) -> CodeType:
    return _function(f"def __hash__(self): return hash({_tuple('self', count)})")


def _tuple(name: str, count: int) -> str:
    return f"({''.join(f'{name}.f{k}, ' for k in range(count))})"


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (name for name, given in fields(self).items() if not isinstance(given, Field) or given.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
