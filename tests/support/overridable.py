"""What NumPy lets other types implement."""

from __future__ import annotations

import numpy.fft
import numpy.lib.recfunctions  # noqa: F401
from numpy.testing import overrides

OVERRIDABLE_UFUNCS = sorted(overrides.get_overridable_numpy_ufuncs(), key=lambda u: u.__name__)
# Without the 28 of `np.strings` and `np.char`, which are there only once somebody has imported those: all work on
# strings alone, and are refused.
OVERRIDABLE_FUNCTIONS = sorted(
    (
        f
        for f in overrides.get_overridable_numpy_array_functions()
        if f.__module__ not in ("numpy.strings", "numpy.char")
    ),
    key=lambda f: (f.__module__, f.__name__),
)
