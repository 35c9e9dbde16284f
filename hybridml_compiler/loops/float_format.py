"""Float formats as polynomials see them: where the exponent sits, and the constant that rounds to an integer."""

from __future__ import annotations

import numpy as np

from ..dtypes import float32, float64, int32, int64
from ..record import record


@record
class Format:
    """An IEEE 754 binary format: its dtype, the integer dtype of its bits, and its mantissa and exponent fields."""

    dtype: np.dtype
    bits: np.dtype
    mantissa: int
    bias: int

    @property
    def magic(self) -> float:
        """The number that rounds to the nearest integer when added: the low bits of the sum hold the integer."""
        return 1.5 * 2.0**self.mantissa

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def sign(self) -> int:
        """The sign bit as an integer of `bits`."""
        return int(np.iinfo(self.bits).min)


FORMATS: dict[np.dtype, Format] = {
    float32: Format(float32, int32, 23, 127),
    float64: Format(float64, int64, 52, 1023),
}
