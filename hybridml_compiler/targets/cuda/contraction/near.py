"""The hardware's power of two, in kernels whose results are rounded to 16 bits: as near as 2 units of float32."""

from __future__ import annotations

import numpy as np

from .... import dtypes
from ..emit.functions import DeviceFunctions

POWER = """\
static __device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
"""
_EXPONENTIAL = """\
static __device__ __forceinline__ float near_exp(float x) { return power_of_two(x * 1.4426950408889634f); }
"""


class NearFunctions(DeviceFunctions):
    """Device functions whose exponentials of float32 are powers of two."""

    def function(self, name: str, dtype: np.dtype, arity: int) -> str:
        if name != "exp" or dtype is not dtypes.float32:
            return super().function(name, dtype, arity)
        self._texts.setdefault("near_exp", f"{POWER}\n{_EXPONENTIAL}")
        return "near_exp"
