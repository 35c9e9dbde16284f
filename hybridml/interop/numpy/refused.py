"""NumPy functions that have no meaning on tensors: those of dates and of records with named fields."""

from __future__ import annotations

from .table import REFUSED
from .texts import WHY

_DATES = "works on dates, and tensors hold numbers; give it arrays of datetime64"
_RECORDS = "works on records with named fields, which a tensor has not; keep a dict of tensors, one for each field"

REFUSED |= {f"numpy.{name}": _DATES for name in ("busday_count", "busday_offset", "datetime_as_string", "is_busday")}
REFUSED["numpy.lib.recfunctions"] = _RECORDS
REFUSED |= dict.fromkeys(("numpy.strings", "numpy.char"), WHY)
REFUSED["numpy.in1d"] = "is deprecated since NumPy 2.0 and not in 2.4; use np.isin"
