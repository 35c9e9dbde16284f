"""The public namespace with every function run through `@trace`: an array module of its own.

For suites that judge array libraries by their module (`ARRAY_API_TESTS_MODULE=hybridml.testing.traced`): they see what
a user of `@trace` gets.
"""

from __future__ import annotations

import types as _types

import hybridml as _hybridml

from .. import arrays as _arrays
from .. import polynomials as _polynomials
from . import wrapped as _wrapped

globals().update(_wrapped.namespace(_hybridml, [*_arrays.names, *_polynomials.__all__]))
for _name in ("linalg", "fft", "special"):
    if hasattr(_hybridml, _name):
        _module = getattr(_hybridml, _name)
        globals()[_name] = _types.SimpleNamespace(**_wrapped.namespace(_module, _module.__all__))
