"""NumPy's polynomials and what it computes of sampled functions."""

from __future__ import annotations

import numpy as np

from .table import same

same(np, "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots")
same(np, "convolve correlate ediff1d gradient interp trapezoid unwrap")
