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
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .worker import forget_peak, limit_cpus, memory, serve

Function = Callable[..., Any]


class Source(NamedTuple):
    """A function of a file, the names of its arguments, and the numbers among them."""

    file: str
    function: str
    arguments: Sequence[str]
    numbers: dict[str, Any]


class Library:
    """What makes a program of a function, its arrays of NumPy's, and waits for the results; here NumPy itself."""

    in_place = True  # programs write into their arguments

    def __init__(self, style: str) -> None:
        self.style = style

    def program(self, module: ModuleType, function: str) -> Function:
        found: Function = getattr(module, function)
        return found

    def array(self, values: np.ndarray) -> Any:
        return values.copy()

    def wait(self, results: Any) -> None:
        pass


class Hybridml(Library):
    """Styles: the file as it is, on tensors, or with `np` from `import hybridml as np`; eager or traced."""

    def __init__(self, style: str) -> None:
        super().__init__(style)
        self.hm = importlib.import_module("hybridml")

    def program(self, module: ModuleType, function: str) -> Function:
        if self.style.endswith("as np"):
            module.__dict__["np"] = self.hm
        found = super().program(module, function)
        return self.hm.trace(found) if self.style.startswith("traced") else found

    def array(self, values: np.ndarray) -> Any:
        return self.hm.asarray(values.copy())


class Numba(Library):
    """A function that is not compiled by its file is compiled here, for loops of threads if the style is `np`."""

    def __init__(self, style: str) -> None:
        super().__init__(style)
        self.numba = importlib.import_module("numba")

    def program(self, module: ModuleType, function: str) -> Function:
        found = super().program(module, function)
        return found if hasattr(found, "py_func") else self.numba.njit(parallel=self.style == "np")(found)


class Jax(Library):
    in_place = False

    def __init__(self, style: str) -> None:
        super().__init__(style)
        self.jax = importlib.import_module("jax")
        self.jax.config.update("jax_enable_x64", True)

    def array(self, values: np.ndarray) -> Any:
        return self.jax.block_until_ready(self.jax.numpy.array(values))

    def wait(self, results: Any) -> None:
        self.jax.block_until_ready(results)


LIBRARIES = {"numpy": Library, "hybridml": Hybridml, "numba": Numba, "jax": Jax}


def flat(results: Any) -> list[np.ndarray]:
    """Arrays that a function returned."""
    if isinstance(results, tuple | list):
        return [array for part in results for array in flat(part)]
    return [] if results is None else [np.array(results)]


class Worker:
    def __init__(self, name: str) -> None:
        family, _, style = name.partition(" ")
        self.library = LIBRARIES[family](style)

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
        spec = importlib.util.spec_from_file_location("program", source.file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.program = self.library.program(module, source.function)
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
        return [self.library.array(value) if isinstance(value, np.ndarray) else value for value in self.inputs]

    def call(self, given: list[Any] | None = None) -> tuple[float, Any, list[Any]]:
        """Seconds, what is returned, and the arguments after the call."""
        arguments = self.fresh() if given is None else given
        start = time.perf_counter()
        results = self.program(*arguments)
        self.library.wait(results)
        return time.perf_counter() - start, results, arguments

    def results(self, _: float, returned: Any, arguments: list[Any]) -> list[np.ndarray]:
        """Arrays that a call returned and, where a program writes into them, its arguments that are arrays."""
        kept = [np.asarray(a) for a in arguments if getattr(a, "ndim", 0)] if self.library.in_place else []
        return flat(returned) + kept

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
