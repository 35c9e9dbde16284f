"""Rows with effects: what a program does to the world outside of it, in the order of the program.

Such a row takes a token, an integer that the one before has made, and makes the next: what depends on it comes after
it in every program. It is computed where nobody reads its result. A parameter names the object that it is about, which
the front end knows by that name in this process; so a program's text does not hold objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ShapeError
from ..hooks import hooks
from .op import REQUIRED, Asynchronous, ErrorSample, Op, Sample
from .samples import fails

ALONE = "alone"  # the name of an object that nobody else has: rows of it are computed without a front end
TOKEN = Aval((), dtypes.int64)
START = np.zeros((), dtypes.int64)


def after(token: np.ndarray) -> np.ndarray:
    """The token behind this one, where there is no front end."""
    return np.asarray(token + 1, dtypes.int64)


def _effect(name: str, owner: str, alone: Callable[..., Any]) -> Callable[..., Any]:
    """The meaning of a row: what the front end makes of its arrays, for the object that the parameter `owner` names."""

    def eager(*operands: np.ndarray, **params: Any) -> Any:
        of = params.pop(owner)
        return alone(*operands, **params) if of == ALONE else hooks.effects[owner](name, of, operands, params)

    return eager


def check_token(name: str, token: Aval, **_: Any) -> None:
    """Raises ShapeError for an operand that no such row can have made."""
    if token.shape or token.dtype != dtypes.int64:
        raise ShapeError(f"{name}: the token must be what the row before it has made, an integer, got {token}")


def effect(
    name: str,
    doc: str,
    infer: Callable[..., Any],
    alone: Callable[..., Any],
    *,
    owner: str,
    check: Callable[..., None] = check_token,
    inputs: tuple[str, ...] = ("token",),
    results: tuple[str, ...] = (),
    samples: Sequence[Mapping[str, Any]] = ({},),
    error_samples: Callable[[], Any] = tuple,
    asynchronous: Asynchronous = "",
    **params: Any,
) -> Op:
    """A row with a token, about the object that the parameter `owner` names; `params` are others, with their defaults.

    `alone`: its meaning where nobody else has that object. `check`: raises for a token or parameters that cannot be.
    """
    arrays = (np.arange(6.0).reshape(2, 3), START)[-len(inputs) :]

    def canon(*avals: Aval, **given: Any) -> dict[str, Any]:
        check(name, avals[-1], **given)
        return given

    def refused() -> Iterator[ErrorSample]:
        yield from error_samples()
        yield fails(ShapeError, "the token must be", *arrays[:-1], (3,), **{owner: ALONE, **samples[0]})

    return Op(
        name,
        "effect",
        public=False,
        inputs=inputs,
        results=results,
        params={owner: REQUIRED, **params},
        canon=canon,
        infer=infer,
        eager=_effect(name, owner, alone),
        samples=lambda rng: (Sample(arrays, {owner: ALONE, **given}, grad=False) for given in samples),
        error_samples=refused,
        vjp=(None,) * len(inputs),
        fails=True,  # it is computed where nobody reads its result: others wait for it
        asynchronous=asynchronous,
        unify=(),
        cost=0.0,
        doc=doc,
    )


def to_token(*_: Any, **__: Any) -> Aval:
    """The type of a row that makes its token alone."""
    return TOKEN


def _checked_infer(x: Aval, token: Aval) -> Aval:
    check_token("checked", token)
    return TOKEN


checked = Op(
    "checked",
    "effect",
    public=False,
    inputs=("x", "token"),
    infer=_checked_infer,
    eager=lambda x, token: token.copy(),
    samples=lambda rng: (Sample((np.zeros(2), START), grad=False),),
    error_samples=lambda: (fails(ShapeError, "the token must be", (2,), (3,)),),
    vjp=(None, None),
    unify=(),
    cost=0.0,
    doc="The token, once x is known: an effect behind it does not happen where what makes x raises.",
)

ROWS = (checked,)
