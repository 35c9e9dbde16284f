"""Values that are made once, whatever number of threads ask for them at the same time.

`functools.cache` runs a function twice where two threads call it at once, and keeps one of the results. That is wrong
for whatever owns native memory or gives out addresses: the result that is dropped has been used by somebody. (A traced
function that two threads called for the first time crashed so.) `functools.cached_property` does the same from Python
3.12 on; before, it has one lock for all objects of a class, which a fork may leave locked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, update_wrapper
from typing import Any, Generic, TypeVar, overload

from .locks import rlock

T = TypeVar("T")


def once(function: Callable[..., T]) -> Callable[..., T]:
    """The function, called once for each arguments: others wait for the value. A call that raises is made again.

    >>> @once
    ... def made():
    ...     return object()
    >>> made() is made()
    True
    """
    values: dict[tuple[Hashable, ...], T] = {}
    making = rlock()

    def make(*arguments: Hashable) -> T:
        with making:
            if arguments not in values:
                values[arguments] = function(*arguments)
            return values[arguments]

    return update_wrapper(cache(make), function)  # in C: finding a value takes a fifth of the time with the lock


class lazy(Generic[T]):
    """A property that is computed once for each object, and kept in its `__dict__`: other threads wait for the value.

    >>> class Square:
    ...     @lazy
    ...     def area(self):
    ...         return object()
    >>> square = Square()
    >>> square.area is square.area
    True
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, obj: None, owner: type) -> lazy[T]: ...
    @overload
    def __get__(self, obj: object, owner: type) -> T: ...
    def __get__(self, obj: Any, owner: type) -> Any:
        if obj is None:
            return self
        values = obj.__dict__  # where there is a value, it is found before this method
        making = f"{self.name} is being made"
        with values.setdefault(making, rlock()):
            if self.name not in values:
                values[self.name] = self.function(obj)
            values.pop(making, None)
            return values[self.name]
