"""The examples in the library's docstrings run, and everything public has a docstring."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import hybridml as hm

PACKAGES = ("functional", "linalg", "nn", "optim", "data", "distributions", "random")
MODULES = ["fft", "io", "arrays.shaping.padding", "special", "arrays.spectral", *PACKAGES] + [
    f"{package}.{module.name}"
    for package in PACKAGES
    for module in pkgutil.iter_modules(importlib.import_module(f"hybridml.{package}").__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"hybridml.{name}"), extraglobs={"hm": hm})
    assert result.failed == 0


@pytest.mark.parametrize("package", PACKAGES)
def test_everything_public_is_described(package: str) -> None:
    module = importlib.import_module(f"hybridml.{package}")
    assert module.__all__ == sorted(module.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    for name in module.__all__:
        assert inspect.getdoc(getattr(module, name)), f"hybridml.{package}.{name} has no docstring"
