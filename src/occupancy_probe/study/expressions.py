"""Expressions in study files (``where``, ``assume``): evaluated by simpleeval, never by ``eval``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from simpleeval import EvalWithCompoundTypes, InvalidExpression

from occupancy_probe.exc import StudyError

_FAULTS = (
    InvalidExpression,
    SyntaxError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
"""Whatever an expression from a stranger can raise; the last two come from deep nesting."""


class _Evaluator(EvalWithCompoundTypes):
    """Arithmetic, comparisons, ``in`` and calls of the given functions; no attributes at all."""

    def __init__(self, names: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]):
        super().__init__(names=dict(names), functions=dict(functions))
        self.nodes.pop(ast.Attribute, None)
        for comprehension in (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp):
            self.nodes.pop(comprehension, None)
        for operator, function in list(self.operators.items()):
            if operator in _ON_NUMBERS:
                self.operators[operator] = _numeric(function)


_ON_NUMBERS = (ast.Mult, ast.Mod, ast.Pow, ast.LShift)
"""Operators that can make a small text into gigabytes when applied to strings or lists."""


def _numeric(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def applied(left: Any, right: Any) -> Any:
        if not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
            raise TypeError("arithmetic is for numbers only")
        return function(left, right)

    return applied


def evaluate(
    expression: str,
    names: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Value of ``expression`` over ``names``; StudyError says what is unknown and what is known."""
    try:
        # One expression and nothing else: simpleeval would take the first of several statements.
        ast.parse(expression.strip(), mode="eval")
        return _Evaluator(names, functions or {}).eval(expression)
    except _FAULTS as e:
        known = ", ".join([*sorted(names), *(f"{f}()" for f in sorted(functions or {}))])
        said = " ".join(str(e).split()) or type(e).__name__
        raise StudyError(
            f"expression {expression[:100]!r}: {said[:200]}; known names: {known}"
        ) from e


def names_in(expression: str) -> tuple[str, ...]:
    """Names that ``expression`` reads, in order of appearance."""
    tree = ast.parse(expression.strip(), mode="eval")
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    found = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called]
    return tuple(dict.fromkeys(found))


def calls_in(expression: str) -> list[tuple[str, list[str]]]:
    """Functions that ``expression`` calls, each with those of its arguments that are texts."""
    tree = ast.parse(expression.strip(), mode="eval")
    return [
        (
            n.func.id if isinstance(n.func, ast.Name) else ast.unparse(n.func),
            [a.value for a in n.args if isinstance(a, ast.Constant) and isinstance(a.value, str)],
        )
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
    ]
