"""Native methods of tensors, for the tests about them."""

from __future__ import annotations

import sys

import pytest

from hybridml.core import native_methods


@pytest.fixture(scope="session")
def native() -> None:
    """Methods that are native from here on. The structs of newer interpreters may not be known."""
    if not native_methods.fallbacks:
        native_methods.install()
    if sys.version_info >= (3, 14) and not native_methods.fallbacks:
        pytest.skip("the structs of this interpreter are not known")
    assert native_methods.fallbacks
