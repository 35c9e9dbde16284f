"""The number of references that Python counts for an object of one variable: more mean that others hold it as well.

Interpreters differ. Up to 3.13 an argument is a reference of its own; from 3.14 on it is borrowed from the variable
that it is read from, and counted no more.
"""

from __future__ import annotations

from sys import getrefcount


def _variable() -> int:
    value = object()
    return getrefcount(value)


def _argument() -> int:
    value = object()
    return _given(value)


def _given(value: object) -> int:
    return getrefcount(value)


VARIABLE = _variable()  # `getrefcount(v)` of what only the variable v holds: 2, or 1
ARGUMENT = _argument()  # and of a parameter that only a variable of the caller holds besides: 3, or 1
