"""What NumPy lets other types implement."""

from __future__ import annotations

import numpy as np
import numpy.fft
import numpy.lib.recfunctions
from numpy.testing import overrides

OVERRIDABLE_UFUNCS = sorted(overrides.get_overridable_numpy_ufuncs(), key=lambda u: u.__name__)
OVERRIDABLE_FUNCTIONS = sorted(
    overrides.get_overridable_numpy_array_functions(), key=lambda f: (f.__module__, f.__name__)
)
assert np and numpy.fft
