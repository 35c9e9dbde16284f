"""Command line: ``python -m hybridml doctor | compare | profile | run | cache | demo | models | study``."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import inspect
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hybridml

from .inspect.stances import STANCES, stance

_TARGET = """\
TARGET is a script, or an expression in the names of a file: `file.py`, `file.py:step` (called without
arguments) or `"file.py:step(x, scale=2)"`. A file with an expression is imported: what it has below
`if __name__ == "__main__"` does not run. `hm` and `np` may be used in an expression."""


class Call(NamedTuple):
    """A function of a user's file, with its arguments."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Target(NamedTuple):
    """A user's file and, unless it runs as a script, an expression in its names."""

    path: Path
    expression: str

    @staticmethod
    def parse(text: str) -> Target:
        """The target that a user has named. Raises ArgumentTypeError where there is no such file."""
        name, mark, expression = text.partition(".py:")
        path = Path(name + ".py" if mark else name)
        if not path.is_file():
            raise argparse.ArgumentTypeError(
                f"no file {str(path)!r} here; give a script, or path/to/file.py:function with a file that there is"
            )
        return Target(path, expression.strip())

    def call(self) -> Call:
        """The function that the expression names, and the arguments that it calls it with. Imports the file."""
        tree = self._parsed()
        space = {"hm": hybridml, "np": np, **vars(_imported(self.path)), "_given": lambda *a, **k: (a, k)}

        def value(node: ast.expr) -> Any:
            whole = ast.fix_missing_locations(ast.Expression(node))
            return eval(compile(whole, str(self.path), "eval"), space)

        fn = value(tree.func if isinstance(tree, ast.Call) else tree)
        if not callable(fn):
            raise SystemExit(f"{self.expression!r} is of type {type(fn).__name__}; give a function or a call of one")
        arguments = (tree.args, tree.keywords) if isinstance(tree, ast.Call) else ([], [])
        call = Call(fn, *value(ast.Call(ast.Name("_given", ast.Load()), *arguments)))
        try:
            inspect.signature(fn).bind(*call.args, **call.kwargs)
        except TypeError as error:
            raise SystemExit(
                f'{self.expression}: {error}; give its arguments, as in "{self.path}:step(x, y)"'
            ) from None
        return call

    def _parsed(self) -> ast.expr:
        try:
            return ast.parse(self.expression, mode="eval").body
        except SyntaxError as error:
            raise SystemExit(
                f"{self.expression!r} is no expression ({error.msg}); give a function or a call, as in "
                f'"{self.path}:step(x, y)"'
            ) from None

    def run(self, arguments: Sequence[str]) -> None:
        """Runs the file as Python does a script, with these arguments."""
        sys.argv[:] = [str(self.path), *arguments]
        sys.path.insert(0, str(self.path.resolve().parent))
        runpy.run_path(str(self.path), run_name="__main__")


def _imported(path: Path) -> Any:
    """The module of a file, which finds its neighbours as a script does."""
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py"
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def doctor(options: argparse.Namespace) -> int:
    """Looks at this machine: versions, LLVM, threads, caches, a compiled program. Ends with 1 where one is wrong."""
    from .inspect.diagnosis import doctor as examine

    found = examine()
    print(found)
    return 0 if found.ok else 1


def compare(options: argparse.Namespace) -> int:
    """Runs a function, or a whole script, eagerly and traced, and lays the two side by side."""
    if not options.target.expression:
        return _compare_script(options.target.path, options.arguments)
    from .inspect.side_by_side import compare as measure

    fn, args, kwargs = options.target.call()
    return _show(measure(fn, *args, repeats=options.repeats, why=options.why, **kwargs), options)


def _compare_script(path: Path, arguments: Sequence[str]) -> int:
    """Compares two processes that run a script: their times, and what they print."""
    seconds, printed = [], []
    for style in ("eager", "default"):
        command = [sys.executable, "-m", "hybridml", "run", "--stance", style, str(path), *arguments]
        start = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        seconds.append(time.perf_counter() - start)
        printed.append(done.stdout.splitlines())
        if done.returncode:
            print(f"{path} ended with status {done.returncode} {'eagerly' if style == 'eager' else 'traced'}")
            return 1
    print(f"{path}, the whole script: eager {seconds[0]:.2f} s, traced {seconds[1]:.2f} s (compiling included)")
    lines = enumerate(zip_longest(*printed), 1)
    print(
        next(
            (f"printed: line {k} is {a!r} eagerly and {b!r} traced" for k, (a, b) in lines if a != b),
            f"printed: the same {len(printed[0])} lines",
        )
    )
    return 0


def profile(options: argparse.Namespace) -> int:
    """Profiles time and memory of a function, or of a whole script, by operation, kernel and source line."""
    from .profiler.profile import Profile

    found, target = Profile(), options.target
    if target.expression:
        fn, args, kwargs = target.call()
        for _ in range(options.warm):
            fn(*args, **kwargs)
        with found:
            fn(*args, **kwargs)
    else:
        with contextlib.suppress(SystemExit), found:
            target.run(options.arguments)
    if options.trace is not None:
        found.save(options.trace)
    return _show(found, options)


def _show(report: Any, options: argparse.Namespace) -> int:
    """Prints a report in the form that was asked for."""
    if options.html is not None:
        report.save_html(options.html)
    print(report.to_json() if options.json else report.to_text())
    return 0


def run(options: argparse.Namespace) -> int:
    """Runs a script under a stance: `eager` runs its traced functions line by line, as they are for a debugger."""
    with stance(options.stance):
        options.target.run(options.arguments)
    return 0


def cache(options: argparse.Namespace) -> int:
    """Shows the cache of compiled programs (info), its folder (path), or empties it (clear)."""
    from hybridml_compiler.runtime import cache as programs

    if options.action == "clear":
        programs.clear()
    found = programs.info()
    where = found.directory or "in memory only (HYBRIDML_CACHE_DIR)"
    print(where if options.action == "path" else f"{where}: {found.entries} entries, {found.bytes / 2**20:.1f} MiB")
    return 0


def demo(options: argparse.Namespace) -> int:
    """Trains three small models eagerly and traced, and writes one HTML report of both side by side."""
    from hybridml_examples import demo as examples

    return examples.run(options)


def models(options: argparse.Namespace) -> int:
    """Lists the published architectures, shows one layer by layer, trains one on data that is here, uses one."""
    from hybridml_examples.networks import listing

    return listing.run(options)


def study(options: argparse.Namespace) -> int:
    """Times published networks in both styles beside PyTorch and JAX, and writes one HTML report of them."""
    from hybridml_examples.study import run as of_study

    return of_study.run(options)


def _parser() -> argparse.ArgumentParser:
    from hybridml_examples import add_arguments
    from hybridml_examples.networks import arguments
    from hybridml_examples.study import add_arguments as add_arguments_of_study

    about = "Looks at what hybridml does on this machine and with your programs."
    parser = argparse.ArgumentParser(prog="python -m hybridml", description=about)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(fn: Callable[[argparse.Namespace], int], epilog: str = "") -> argparse.ArgumentParser:
        about = fn.__doc__ or ""
        found = commands.add_parser(
            fn.__name__, help=about, description=about, epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        found.set_defaults(command=fn)
        return found

    def takes_target(found: argparse.ArgumentParser, what: str, rest: str, about: str) -> None:
        found.add_argument("target", metavar="TARGET", type=Target.parse, help=what)
        found.add_argument("arguments", nargs=rest, help=about)

    def shows(found: argparse.ArgumentParser) -> None:
        found.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page, too")
        found.add_argument("--json", action="store_true", help="print JSON instead of tables")

    command(doctor)
    comparing = command(compare, _TARGET + "\nA script runs twice, in a process for each style.")
    comparing.add_argument("--repeats", type=int, default=20, help="measurements of each style (default 20)")
    comparing.add_argument("--why", action="store_true", help="where the time goes, and what each factor is worth")
    profiling = command(profile, _TARGET)
    profiling.add_argument("--trace", type=Path, metavar="FILE", help="write a trace for Perfetto, too")
    profiling.add_argument("--warm", type=int, default=1, help="calls of a function before (default 1: it compiles)")
    for found in (comparing, profiling):
        shows(found)
        takes_target(
            found, "path/to/file.py[:function]", "*", "arguments of a script; after -- those that begin with -"
        )
    running = command(run, "A stance says how traced functions run: see hm.stance.")
    running.add_argument("--stance", choices=STANCES, default="default", help="default: compiled")
    takes_target(running, "path/to/file.py", argparse.REMAINDER, "arguments of the script")
    command(cache).add_argument("action", choices=["info", "path", "clear"], nargs="?", default="info")
    add_arguments(command(demo))
    arguments.of_models(command(models, arguments.GUIDE))
    add_arguments_of_study(command(study))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line (that of the process by default); returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given or ["--help"])
    status: int = options.command(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
