"""Conversions to 16 bits, and in kernels of such numbers the hardware's power of two, as near as 2 units of float32."""

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
NARROW = """\
static __device__ __forceinline__ unsigned int narrow(float low, float high) {{
  unsigned int both;
  asm("cvt.rn.{kind}x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}}
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
