"""One candidate for programs of arrays and loops, in a process of its own, driven line by line as `worker.py` is.

- `{"load": source, "inputs": path, "results": path}` calls the program that a `Source` describes once, writes the
  results, and answers the time of that call, what memory grew by, and the warnings that it gave;
- `{"again": path}` calls it twice more and writes these results;
- `{"seconds": s}` times calls for about that long.

Each call gets fresh copies of the inputs, which are no part of its time.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from hybridml_examples.study.timing import forget_peak, limit_cpus, memory, serve

Function = Callable[..., Any]


class Source(NamedTuple):
    """A function of a file, the names of its arguments, and the numbers among them."""

    file: str
    function: str
    arguments: Sequence[str]
    numbers: dict[str, Any]


def module_of(file: str) -> ModuleType:
    """The module of a file, apart from any other of the same file."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flat(results: Any) -> list[np.ndarray]:
    """Arrays that a function returned."""
    if isinstance(results, tuple | list):
        return [array for part in results for array in flat(part)]
    return [] if results is None else [np.array(results)]


class Worker:
    """Candidates: numpy; hybridml eager and traced, on NumPy's source as it is or with `as np`; numba and jax.

    Numba compiles what its file has not compiled, for loops of threads if the style is `np`. JAX's programs return new
    arrays and write into none.
    """

    def __init__(self, name: str) -> None:
        self.family, _, self.style = name.partition(" ")
        self.framework: Any = importlib.import_module(self.family)
        self.array: Function = np.copy
        self.wait: Function = id
        if self.family == "hybridml":
            self.array = lambda values: self.framework.asarray(values.copy())
        elif self.family == "jax":
            self.framework.config.update("jax_enable_x64", True)
            self.wait = self.framework.block_until_ready
            self.array = lambda values: self.wait(self.framework.numpy.array(values))

    def compiled(self, module: ModuleType, function: str) -> Function:
        if self.style.endswith("as np"):
            module.__dict__["np"] = self.framework
        found: Function = getattr(module, function)
        if self.style.startswith("traced"):
            found = self.framework.trace(found)
        elif self.family == "numba" and not hasattr(found, "py_func"):
            found = self.framework.njit(parallel=self.style == "np")(found)
        return found

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "load" in request:
            return self.load(Source(*request["load"]), request["inputs"], request["results"])
        if "again" in request:
            np.savez(request["again"], *[array for _ in range(2) for array in self.results(*self.call())])
        return {"samples": self.sample(request["seconds"])} if "seconds" in request else {}

    def load(self, source: Source, inputs: str, results: str) -> dict[str, Any]:
        with np.load(inputs) as file:
            given = source.numbers | {name: a if a.ndim else a[()] for name, a in file.items()}
        self.inputs = [given[name] for name in source.arguments]
        if self.style.endswith("as np"):  # what has no dtype of its own is to be as wide as the inputs, as with NumPy
            floats = [a.dtype for a in given.values() if getattr(a, "dtype", np.dtype(int)).kind == "f"]
            self.framework.set_default_dtype(max(floats, default=self.framework.get_default_dtype()))
        self.program = self.compiled(module_of(source.file), source.function)
        arguments = self.fresh()
        before = memory()
        forget_peak()
        with warnings.catch_warnings(record=True) as warned:
            found = self.call(arguments)
        grown = memory(peak=True) - before
        np.savez(results, *self.results(*found))
        said = [str(warning.message).partition("\n")[0] for warning in warned]
        return {"first": found[0], "memory": max(grown, 0), "warnings": list(dict.fromkeys(said))}

    def fresh(self) -> list[Any]:
        return [self.array(value) if isinstance(value, np.ndarray) else value for value in self.inputs]

    def call(self, given: list[Any] | None = None) -> tuple[float, Any, list[Any]]:
        """Seconds, what is returned, and the arguments after the call."""
        arguments = self.fresh() if given is None else given
        start = time.perf_counter()
        results = self.program(*arguments)
        self.wait(results)
        return time.perf_counter() - start, results, arguments

    def results(self, _: float, returned: Any, arguments: list[Any]) -> list[np.ndarray]:
        """Arrays that a call returned, and those among its arguments that it has changed."""
        pairs = [(np.asarray(a), given) for a, given in zip(arguments, self.inputs, strict=True) if np.ndim(given)]
        return flat(returned) + [a for a, given in pairs if not np.array_equal(a, given)]

    def sample(self, seconds: float) -> list[float]:
        samples: list[float] = []
        gc.collect()
        gc.disable()
        try:
            deadline = time.perf_counter() + seconds
            while not samples or time.perf_counter() < deadline:
                samples.append(self.call()[0])
        finally:
            gc.enable()
        return samples


def main() -> None:
    limit_cpus(int(sys.argv[2]))
    serve(Worker(sys.argv[1]).answer)


if __name__ == "__main__":
    main()
