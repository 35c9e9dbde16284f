"""Signatures of functions of small arrays, as NumPy writes them: `(m,n),(n)->(m)`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import Size, is_dim, same

_CORE = r"\(\s*(?:\w+(?:\s*,\s*\w+)*)?\s*\)"
_SIGNATURE = re.compile(rf"\s*({_CORE}(?:\s*,\s*{_CORE})*)\s*->\s*({_CORE}(?:\s*,\s*{_CORE})*)\s*")

Names = tuple[tuple[str, ...], ...]  # of the axes of each argument, or of each result


@record
class Cores:
    """The names of the axes that a function of arrays takes and returns: the last ones of its arguments and results."""

    inputs: Names
    outputs: Names

    def split(self, what: str, shapes: Sequence[tuple[Size, ...]]) -> tuple[list[tuple[Size, ...]], dict[str, Size]]:
        """The axes of each argument before those of the signature, and the sizes of these."""
        sizes: dict[str, Size] = {}
        before = []
        for number, (core, shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            if len(shape) < len(core):
                raise ShapeError(
                    f"{what}: argument {number} has shape {shape}, and the signature says ({', '.join(core)}), at "
                    f"least {len(core)} axes"
                )
            at = len(shape) - len(core)
            for name, size in zip(core, shape[at:], strict=True):
                known = int(name) if name.isdigit() else sizes.setdefault(name, size)
                if not _are_same(known, size):
                    raise ShapeError(
                        f"{what}: core axis {name} of argument {number} has {size} elements, where it should have "
                        f"{known}"
                    )
            before.append(shape[:at])
        return before, sizes

    def shapes(self, sizes: Mapping[str, Size]) -> list[tuple[Size, ...]] | None:
        """The shapes of the results of one call; None where only a call can say."""
        known = {**sizes, **{name: int(name) for core in self.outputs for name in core if name.isdigit()}}
        if any(name not in known for core in self.outputs for name in core):
            return None
        return [tuple(known[name] for name in core) for core in self.outputs]


def cores_of(signature: str) -> Cores:
    """The parts of a signature."""
    found = _SIGNATURE.fullmatch(signature)
    if found is None:
        raise ArgumentError(f"hm.vectorize: signature is written as NumPy's, '(m,n),(n)->(m)', got {signature!r}")
    inputs, outputs = (
        tuple(tuple(re.findall(r"\w+", core)) for core in re.findall(_CORE, part)) for part in found.groups()
    )
    return Cores(inputs, outputs)


def _are_same(a: Size, b: Size) -> bool:
    return same(a, b) if is_dim(a) or is_dim(b) else bool(a == b)
