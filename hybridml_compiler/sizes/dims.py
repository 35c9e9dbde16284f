"""Dim: a size that is known only when a call comes, as a polynomial in symbols, and the guards that decisions make.

    n            a symbol: the size of some dimension of an input, at least 2 (sizes 0 and 1 are never symbolic)
    2*n + 1      a polynomial; `n//2` and `n%16` are atoms of polynomials where they do not divide out

A Dim is no int. It adds, multiplies and divides as one, and it can be asked questions, `n == 64`, `n < m`, which are
answered so that whatever is built on the answer is right:

- what follows from the form alone (n - n == 0, 2*n > n, n != 1) is answered without a condition;
- anything else is answered for the sizes at hand (the *hint* of each symbol), and that answer becomes a `Guard` of the
  program that is being made: it is run for other sizes only where every guard of it holds;
- whoever needs a number (`int(n)`, `names[n]`, an f-string) gets the hint and the guard `n == 64`: code that knows
  nothing of symbols makes a program that is less general, never a wrong one.

Where the answer only chooses between two right ways (a cost, a special case that the general one includes), no guard is
wanted: `hint(n)` is the size at hand, and under `structural()` sizes are equal only if their form says so.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from typing import Any, Literal, TypeAlias

import numpy as np

from ..errors import is_internal
from ..hooks import hooks
from .atoms import Atom, Monomial, Quotient, Symbol, symbol_of
from .collector import collector, guards_for, structurally

Size: TypeAlias = Any  # an int, or a Dim, which can do all that an int can
LEAST = 2  # of a symbol: sizes of 0 and 1 have programs of their own
_FLOATS, _NUMBERS = (float, complex), (int, float, complex)  # of Python, beside which a size is a number


class Dim:
    """Symbolic size. Made by `symbol` and by arithmetic, which gives an int wherever nothing symbolic is left."""

    __slots__ = ("_hash", "_symbols", "hint", "shape", "terms")

    @property
    def __class__(self) -> Any:  # `isinstance` looks at it after the type itself: to a user it is an int
        return int

    @__class__.setter
    def __class__(self, cls: type) -> None:
        raise TypeError("the class of a size cannot be assigned")

    _hash: int  # this one and the next are unset until they are asked for
    _symbols: frozenset[Symbol]
    shape: tuple[Any, ...]  # of the tensor of which it is the size, unset on others
    terms: tuple[tuple[Monomial, int], ...]  # factors and coefficient, in the order of their text; () is the constant
    hint: int

    def __call__(self, dim: Any = None) -> Any:  # of `x.size`, which PyTorch's programs call for the shape
        return self.shape if dim is None else self.shape[dim]

    def __add__(self, other: Any) -> Size:
        if type(other) is int:
            return _moved(self, other)
        if type(other) is not Dim:
            return _real(self) + other if type(other) in _FLOATS else _plain(other, NotImplemented, lambda n: self + n)
        return _sum(_terms(self), other.terms)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return _dim(tuple([(m, -c) for m, c in self.terms]), -self.hint)

    def __pos__(self) -> Size:
        return self

    def __sub__(self, other: Any) -> Size:
        if type(other) is int:
            return _moved(self, -other)
        if type(other) is not Dim:
            return _real(self) - other if type(other) in _FLOATS else _plain(other, NotImplemented, lambda n: self - n)
        return _sum(_terms(self), [(m, -c) for m, c in other.terms])

    def __rsub__(self, other: Any) -> Size:
        return other - _real(self) if type(other) in _FLOATS else _plain(other, NotImplemented, lambda n: -self + n)

    def __mul__(self, other: Any) -> Size:
        if type(other) is not Dim and type(other) is not int:
            return _real(self) * other if type(other) in _FLOATS else _plain(other, NotImplemented, lambda n: self * n)
        product: dict[Monomial, int] = {}
        for m, c in _terms(self).items():
            for k, d in _terms(other).items():
                key = tuple(sorted((*m, *k), key=str))
                product[key] = product.get(key, 0) + c * d
        return _make(product)

    __rmul__ = __mul__

    def __pow__(self, power: Any) -> Any:
        if type(power) is int and 0 <= power <= 8:
            return reduce(operator.mul, [self] * power, 1)
        if steps_of(self) and not at_most(1, self):
            hooks.undecided("divisor", self, None)  # an error of 0, and complex numbers of those below
        return _real(self) ** power

    def __rpow__(self, base: Any) -> Any:
        return _plain(base, NotImplemented, lambda n: hooks.power(n, self), (int, float))

    def __floordiv__(self, other: Any) -> Size:
        return _plain(other, NotImplemented, lambda n: _divided(self, n)[0])

    def __rfloordiv__(self, other: Any) -> Size:
        return _plain(other, NotImplemented, lambda n: _divided(n, self)[0])

    def __mod__(self, other: Any) -> Size:
        return _plain(other, NotImplemented, lambda n: _divided(self, n)[1])

    def __rmod__(self, other: Any) -> Size:
        return _plain(other, NotImplemented, lambda n: _divided(n, self)[1])

    def __divmod__(self, other: Any) -> tuple[Size, Size]:
        return _divided(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Size, Size]:
        return _divided(other, self)

    def __abs__(self) -> Size:
        return self if self >= 0 else -self

    # ---- questions

    def __eq__(self, other: object) -> bool:
        if type(other) is Dim:
            return self.terms == other.terms or decide("==", self, other)
        return NotImplemented if _takes_step(other, self) else isinstance(other, int) and decide("==", self, int(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return NotImplemented if _takes_step(other, self) else decide("<", self, other)

    def __le__(self, other: Any) -> bool:
        return NotImplemented if _takes_step(other, self) else not decide("<", other, self)

    def __gt__(self, other: Any) -> bool:
        return NotImplemented if _takes_step(other, self) else decide("<", other, self)

    def __ge__(self, other: Any) -> bool:
        return NotImplemented if _takes_step(other, self) else not decide("<", self, other)

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:  # a user's dict has the number as its key
        if _asked_by_user(self):
            return hash(number(self))
        try:
            return self._hash
        except AttributeError:  # -1 and -2 have one hash
            self._hash = found = hash(("dim", *((m, c, c < 0) if c != -1 else (m,) for m, c in self.terms)))
            return found

    # ---- a number is asked for

    def __index__(self) -> int:
        return number(self)

    def __int__(self) -> int:
        return number(self)

    def __float__(self) -> float:
        return float(number(self))

    def __truediv__(self, other: Any) -> Any:
        return _plain(other, NotImplemented, lambda n: _real(self) / _real_divisor(n), _NUMBERS)

    def __rtruediv__(self, other: Any) -> Any:
        return _plain(other, NotImplemented, lambda n: n / _real_divisor(self), _NUMBERS)

    def __format__(self, spec: str) -> str:
        return format(number(self), spec) if spec or _asked_by_user(self) else self.text

    def __str__(self) -> str:
        return str(number(self)) if _asked_by_user(self) else self.text

    __repr__ = __str__

    @property
    def text(self) -> str:
        text = ""
        for monomial, c in self.terms:
            factors = [*([str(abs(c))] if abs(c) != 1 or not monomial else []), *map(str, monomial)]
            text += f" {'-' if c < 0 else '+'} " if text else "-" * (c < 0)
            text += "*".join(factors)
        return text.replace(" ", "")

    def __reduce__(self) -> Any:
        return _make, (dict(self.terms),)


def _asked_by_user(size: Dim) -> bool:
    """Whether a user's line wants the text or the hash of a size, which is that of its number; to the framework it is a
    formula."""
    if (collector.get() is None and not steps_of(size)) or structurally.get():
        return False
    return not is_internal(sys._getframe(2).f_code.co_filename)


hooks.size_as_float, hooks.power = lambda size: float(number(size)), lambda base, size: base ** number(size)


def _real(size: Dim) -> Any:
    return hooks.size_as_float(size)


def _real_divisor(size: Any) -> Any:
    if type(size) is not Dim:
        return size
    if provable("==", size, 0) is None and steps_of(size):
        hooks.undecided("divisor", size, None)
    return 0 if size == 0 else _real(size)  # Python divides by 0, which raises its error


def symbol(name: str, size: int, most: Size | None = None) -> Dim:
    """A symbol whose hint is `size`; with `most`, the number of a step of a loop (see steps.py)."""
    made = _make({(symbol_of(name, size, most),): 1})
    assert type(made) is Dim and size >= LEAST, (name, size)
    return made


def _dim(terms: tuple[tuple[Monomial, int], ...], hint: int) -> Dim:
    dim = Dim()
    dim.terms, dim.hint = terms, hint
    return dim


def _make(terms: Mapping[Monomial, int]) -> Size:
    kept = [term for term in terms.items() if term[1]]
    if len(kept) < 2:
        if not kept:
            return 0
        if not kept[0][0]:
            return kept[0][1]
    else:
        kept.sort(key=_term_order)
    hint = 0
    for monomial, product in kept:
        for atom in monomial:
            product *= atom.hint
        hint += product
    return _dim(tuple(kept), hint)


def _term_order(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return -len(term[0]), [a.name if type(a) is Symbol else str(a) for a in term[0]]


def _moved(size: Dim, by: int) -> Dim:
    """The size plus a number, which is its last term."""
    *others, (monomial, constant) = size.terms
    if monomial:
        others, constant = [*size.terms], 0
    constant += by
    return _dim((*others, ((), constant)) if constant else tuple(others), size.hint + by)


def _terms(size: Size) -> dict[Monomial, int]:
    return dict(_make_terms(size))


def _sum(a: dict[Monomial, int], b: Iterable[tuple[Monomial, int]]) -> Size:
    for m, c in b:
        a[m] = a.get(m, 0) + c
    return _make(a)


def _takes_step(other: Any, size: Dim | None = None) -> bool:
    """Whether a value is a number of the program whose own operators compute with numbers of steps, or with this."""
    return hasattr(type(other), "takes_step") and other.takes_step(size)


def _plain(other: Any, otherwise: Any, then: Callable[[Any], Any], kinds: tuple[type, ...] = (int,)) -> Any:
    """`then(other)` for a Dim or a plain number (NumPy's integers included); `otherwise` for anything else."""
    if type(other) is Dim or type(other) in kinds:
        return then(other)
    is_int = isinstance(other, int) and not _takes_step(other)
    if is_int or issubclass(type(other), np.integer):  # True, or an int in disguise; none of NumPy's
        return then(operator.index(other))
    return then(float(other)) if float in kinds and isinstance(other, float) else otherwise


def _divided(over: Size, by: Size) -> tuple[Size, Size]:
    """Quotient and remainder, rounded down; terms that are multiples of `by` divide out."""
    if type(over) is not Dim and type(by) is not Dim:
        return over // by, over % by
    if type(by) is not Dim and by == 0:
        raise ZeroDivisionError("a size divided by 0")
    if type(by) is not Dim or steps_of(by):
        if at_most(by, -1):
            quotient, opposite = _divided(-over, -by)
            return quotient, -opposite
        if not at_most(1, by):
            hooks.undecided("divisor", by, None)
    elif collector.get() is not None and not at_most(1, by) and by < 1:
        return divmod(number(over), number(by))
    if (exact := _exact(over, by)) is not None:
        return exact, 0
    whole: dict[Monomial, int] = {}
    rest: Size = over
    divisor = list(_terms(by).items())
    if len(divisor) == 1:
        (factors, coefficient), left = divisor[0], dict[Monomial, int]()
        for m, c in _terms(over).items():
            others = _without(m, factors)
            if others is not None and (c % coefficient == 0 or not factors):  # 7*n // 2 = 3*n + n // 2
                whole[others] = c // coefficient
                left[m] = c % coefficient
            else:
                left[m] = c
        rest = _make(left)
    quotient = _make(whole)
    if type(rest) is not Dim and type(by) is not Dim:
        return quotient + rest // by, rest % by
    for less in (0, 1, -1):  # (n - 1) // n is 1 + -1 // n, and so 0
        within = rest + less * by
        low, high = bounds(within), bounds(by - within)
        if low is not None and low >= 0 and high is not None and high > 0:
            return quotient - less, within
    remainder = _make({(Quotient("%", rest, by),): 1})
    return quotient + _make({(Quotient("//", rest, by),): 1}), remainder


def _exact(over: Size, by: Size) -> Size | None:
    """over / by where it is a polynomial: by long division."""
    (lead, coefficient), *_ = _make_terms(by)
    quotient: dict[Monomial, int] = {}
    for _ in range(16):
        if type(over) is not Dim:
            return _make(quotient) if over == 0 else None
        (m, c), *_ = over.terms
        others = _without(m, lead)
        if others is None or c % coefficient:
            return None
        quotient[others] = c // coefficient
        over = over - _make({others: c // coefficient}) * by
    return None


def _make_terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return size.terms if type(size) is Dim else (((), operator.index(size)),)


def _without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """The factors that are left; None if it does not have all of them."""
    left = list(monomial)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


# ---------------------------------------------------------------- consequences of the form


def hint(size: Size) -> int:
    """The size at hand: for costs, and wherever any number is right."""
    return size.hint if type(size) is Dim else size


def hints(shape: Iterable[Size]) -> tuple[int, ...]:
    return tuple(map(hint, shape))


def is_dim(size: Any) -> bool:
    return type(size) is Dim


def is_symbol(size: Any) -> bool:
    """Whether a size is a symbol by itself, to which an array of that size gives a value."""
    return type(size) is Dim and size.text.isidentifier()


def is_symbolic(sizes: Iterable[Any]) -> bool:
    """Whether there is a Dim among the sizes."""
    return Dim in map(type, sizes)


def symbols_of(*sizes: Any) -> set[Symbol]:
    """The symbols in sizes, and in tuples of sizes."""
    found: set[Symbol] = set()
    for size in sizes:
        if type(size) is Dim:
            found |= _symbols_in(size)
        elif type(size) is tuple:
            found |= symbols_of(*size)
    return found


def _symbols_in(size: Dim) -> frozenset[Symbol]:
    try:
        return size._symbols
    except AttributeError:
        found: set[Symbol] = set()
        for monomial, _ in size.terms:
            for atom in monomial:
                found |= {atom} if isinstance(atom, Symbol) else symbols_of(atom.over, atom.by)
        size._symbols = frozenset(found)
        return size._symbols


def steps_of(*sizes: Any) -> set[Symbol]:
    """The symbols in sizes that are the number of a step of a loop."""
    return {s for s in symbols_of(*sizes) if s.most is not None}


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are equal by their form."""
    return a is b or (type(a) is type(b) and (a.terms == b.terms if type(a) is Dim else a == b))


def bounds(size: Size) -> int | None:
    """A number that the size is never below; None where its form tells none.

    With every atom written as its least value and a rest (n = 2 + n'), a polynomial without a negative coefficient
    before a rest is least where the rests are 0. Steps of loops are at one of their ends, inner ones first.
    """
    if type(size) is not Dim:
        return operator.index(size)
    known = collector.get()
    return _bounds_of_form(size.terms) if known is None or not known.found else _bounds(size)


@lru_cache(1 << 12)
def _bounds_of_form(terms: tuple[tuple[Monomial, int], ...]) -> int | None:
    """The bound that no guard has a part in: triangular loops ask for each of two dozen a hundred times."""
    return _bounds(_make(dict(terms)))


def _bounds(size: Size) -> int | None:
    reduced = hooks.without_steps(size)
    size = size if reduced is None else reduced  # the square of a step is no form of that: it is least at the first
    if type(size) is not Dim:
        return operator.index(size)
    known = collector.get()
    if known is not None:
        found = known.least_of(size)
        if found is not None:
            return found
    expanded: dict[Monomial, int] = {}
    for monomial, c in size.terms:
        parts: dict[Monomial, int] = {(): c}
        for atom in monomial:
            low = _least(atom)
            if low is None:
                return None
            grown: dict[Monomial, int] = {}
            for m, d in parts.items():
                key = tuple(sorted((*m, atom), key=str))
                grown[key] = grown.get(key, 0) + d
                grown[m] = grown.get(m, 0) + d * low
            parts = grown
        for m, d in parts.items():
            expanded[m] = expanded.get(m, 0) + d
    if any(c < 0 for m, c in expanded.items() if m):
        return None
    return expanded.get((), 0)


def _least(atom: Atom) -> int | None:
    if isinstance(atom, Symbol):
        return LEAST
    if atom.kind == "%":
        return 0
    over = bounds(atom.over)
    if over is None or type(atom.by) is not Dim:
        return None if over is None else over // atom.by
    return 0 if over >= 0 else None


def provable(relation: str, a: Size, b: Size) -> bool | None:
    """`a == b` or `a < b`, if it follows from the form or from the guards; else None."""
    d = a - b
    if type(d) is not Dim:
        return bool(d == 0 if relation == "==" else d < 0)
    low, high = bounds(d), bounds(-d)
    if relation == "==":
        if (low is not None and low > 0) or (high is not None and high > 0):
            return False
        known = collector.get()
        return None if known is None else known.equality(d)
    if low is not None and low >= 0:
        return False
    return True if high is not None and high > 0 else None


def at_most(a: Size, b: Size) -> bool:
    """Whether a <= b is known from the form."""
    if type(a) is not Dim and type(b) is not Dim:
        return bool(a <= b)
    return provable("<", b, a) is False


# ---------------------------------------------------------------- decisions


def decide(relation: Literal["==", "<"], a: Size, b: Size) -> bool:
    """The answer, and the guard that it needs."""
    known = provable(relation, a, b)
    if known is not None:
        return known
    if relation == "==" and structurally.get():
        return False
    if steps_of(a, b):
        return hooks.undecided(relation, a, b)
    answer = (hint(a) == hint(b)) if relation == "==" else hint(a) < hint(b)
    opposite: Any = {"==": "!=", "<": ">="}[relation]
    guards = guards_for(a if type(a) is Dim else b, "compared")
    left, right = (a, b) if type(a) is Dim else (b, a)
    if relation == "<" and left is not a:  # 4 < n: n >= 5
        guards.add(left, ">=" if answer else "<", right + 1)
    else:
        guards.add(left, relation if answer else opposite, right)
    return answer


def number(size: Size, asked: bool = True) -> int:
    """The size as an int, which the program then is for."""
    if type(size) is not Dim:
        return operator.index(size)
    if steps_of(size):
        hooks.undecided("number", size, None)
    guards = guards_for(size, "used")
    if provable("==", size, size.hint) is not True:
        guards.add(size, "==", size.hint, asked)
    return size.hint
