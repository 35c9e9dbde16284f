"""The source of a Python function, found and parsed."""

from __future__ import annotations

import ast
import dis
import inspect
import types
from typing import Any

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.record import record


@record
class Source:
    """A function as it is written, in a file whose lines `tree` counts."""

    fn: Any
    tree: ast.FunctionDef | ast.Lambda
    file: str


def source_of(fn: Any, what: str = "hm.kernel") -> Source:
    """The source of a function. ArgumentError where there is none, as in `python -c` or for what C code makes. `what`
    asks for it."""
    if not isinstance(fn, types.FunctionType):
        raise ArgumentError(f"{what}: takes a Python function of scalars, got {type(fn).__name__}")
    try:
        module = _parsed(fn)
    except (OSError, TypeError, SyntaxError):
        raise ArgumentError(
            f"{what}: the source of {fn.__name__} is not to be found; write it in a file or a notebook"
        ) from None
    found: list[Any] = [*{ast.dump(node): node for node in ast.walk(module) if _is(node, fn)}.values()]
    file = inspect.getsourcefile(fn) or "?"
    if len(found) != 1:
        place = f"{file}:{fn.__code__.co_firstlineno}"
        raise ArgumentError(
            f"{what}: the source of {fn.__name__} is not to be found at {place}; write it in a file or a "
            "notebook, and make the kernel anew where that has changed"
        )
    return Source(fn, found[0], file)


def _parsed(fn: types.FunctionType) -> ast.Module:
    """The file of a function; of one that is no program, such as a page with code in it, the function's lines."""
    try:
        return ast.parse("".join(inspect.findsource(fn)[0]))
    except SyntaxError:
        lines, first = inspect.getsourcelines(fn)
    indented = lines[0][:1].isspace()
    module = ast.parse("".join(["if True:\n"] * indented + lines))
    ast.increment_lineno(module, first - 1 - indented)
    return module


def _is(node: ast.AST, fn: types.FunctionType) -> bool:
    """Whether a node is the function: by its line, and for a lambda by the columns of its instructions."""
    first = fn.__code__.co_firstlineno
    if isinstance(node, ast.FunctionDef):
        return (
            node.name == fn.__code__.co_name and min([node.lineno, *(d.lineno for d in node.decorator_list)]) == first
        )
    if not isinstance(node, ast.Lambda) or fn.__code__.co_name != "<lambda>" or node.lineno != first:
        return False
    places = [(line, column) for line, _, column, _ in fn.__code__.co_positions() if column]
    if not places:  # Python 3.12 says none of a lambda that returns a constant
        return _constant(node) in map(repr, fn.__code__.co_consts)
    inside = (node.body.lineno, node.body.col_offset), (node.body.end_lineno, node.body.end_col_offset)
    return inside[0] <= places[-1] < inside[1] and inside[0] == min(places)


def _constant(node: ast.Lambda) -> str:
    """The text of the constant that a lambda returns; "" where it returns something else."""
    codes = [x for x in compile(ast.Expression(node), "", "eval").co_consts if isinstance(x, types.CodeType)]
    returned = [x.argrepr for x in dis.get_instructions(codes[0]) if x.opname in ("LOAD_CONST", "RETURN_CONST")]
    return returned[0] if len(returned) == 1 and not codes[0].co_names else ""


def has_loops(source: Source) -> bool:
    """Whether there is a loop in the function itself."""
    return any(isinstance(node, ast.For | ast.While) for node in ast.walk(source.tree))
