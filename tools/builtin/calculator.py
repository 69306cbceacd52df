"""Calculator tool: arithmetic on Python's syntax tree, without evaluating any code.

The text is first split into numbers, names and operators, so that the parser never sees
anything else. Integers are limited to MAX_BITS before an operation runs, and the depth
and length of an expression are limited too, so that no calculation takes long.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Sequence

from tools.errors import ToolError
from tools.registry import tool

MAX_LENGTH = 1000  # characters of an expression
MAX_DEPTH = 500  # nested operations; a sum of 500 numbers has as many
MAX_BITS = 3322  # of an integer; 1000 digits
MAX_FACTORIAL = 449  # its factorial has 998 digits

Number = int | float

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])"
    r"|(?P<name>[A-Za-z]\w*)|(?P<symbol>\*\*|//|[-+*/%^(),×·÷−]))",
    re.ASCII,
)
_SPELLINGS = {"^": "**", "×": "*", "·": "*", "÷": "/", "−": "-"}


@tool(label="Calculator", replay="safe")
async def calculator(expression: str) -> str:
    """Work out an arithmetic expression exactly.

    Operators: + - * / // % ** (also ^) and parentheses. Constants: pi, e, tau.
    Functions: sqrt, cbrt, abs, round (half to even), floor, ceil, min, max, sin, cos,
    tan, asin, acos, atan, exp, log(x, base), ln, log2, log10, factorial, gcd, degrees,
    radians. Angles are in radians.

    Args:
        expression: For example (3 + 4) * sqrt(2) / 5, in digits without separators.
    """
    return _format_number(_evaluate(_parse(expression), MAX_DEPTH))


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise ToolError(f"the expression is longer than {MAX_LENGTH} characters.")
    tokens = _tokens(text)
    if not tokens:
        raise ToolError("the expression is empty.")
    try:
        return ast.parse(" ".join(tokens), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as exc:
        raise ToolError(
            "the expression is incomplete; write for example 2 * (3 + 4)."
        ) from exc


def _tokens(text: str) -> list[str]:
    text = text.strip()
    tokens, at = [], 0
    while at < len(text):
        if (match := _TOKEN.match(text, at)) is None:
            raise ToolError(f"{text[at : at + 10].strip()!r} cannot be read here.")
        token = match[match.lastgroup or 0]
        tokens.append(_SPELLINGS.get(token, token))
        at = match.end()
    return tokens


def _evaluate(node: ast.expr, depth: int) -> Number:
    if depth < 0:
        raise ToolError("the expression is nested too deeply.")
    match node:
        case ast.Constant(value=int() | float() as number) if type(number) is not bool:
            return _check_bounds(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=operand):
            value = _evaluate(operand, depth - 1)
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=operation, right=right):
            operands = [_evaluate(left, depth - 1), _evaluate(right, depth - 1)]
            return _apply(_OPERATIONS.get(type(operation)), operands)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name in _FUNCTIONS:
                values = [_evaluate(argument, depth - 1) for argument in arguments]
                return _apply(_FUNCTIONS[name], values, name)
            raise ToolError(f"there is no function {name!r}; use {_names(_FUNCTIONS)}.")
        case ast.Name(id=name):
            raise ToolError(
                f"{name!r} is unknown; use the constants {_names(_CONSTANTS)}"
                f" and the functions {_names(_FUNCTIONS)}."
            )
        case ast.Tuple():
            raise ToolError("write numbers without separators: 1000.5, not 1,000.5.")
        case ast.Call():
            raise ToolError("a '*' is missing before a '('.")
    raise ToolError("this is not arithmetic.")


def _apply(
    function: Callable[..., Number] | None, values: Sequence[Number], name: str = ""
) -> Number:
    if function is None:
        raise ToolError("this is not arithmetic.")
    try:
        return _check_bounds(function(*values))
    except ZeroDivisionError as exc:
        raise ToolError("this divides by zero.") from exc
    except OverflowError as exc:
        raise ToolError("the numbers are too large.") from exc
    except ValueError as exc:
        raise ToolError(f"{name or 'this'} is not defined there.") from exc
    except TypeError as exc:
        raise ToolError(f"{name or 'this'} does not take these arguments.") from exc


def _check_bounds(value: Number) -> Number:
    if isinstance(value, complex):
        raise ToolError("the result is not a real number.")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ToolError("the numbers are too large: integers have up to 1000 digits.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolError("the numbers are too large.")
    return value


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        bits = (abs(base).bit_length() - 1) * exponent
        if bits > MAX_BITS:
            raise OverflowError
    value: Number = base**exponent
    return value


def _round(value: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int):
        raise TypeError
    if not -1000 <= digits <= 1000:
        raise OverflowError
    return round(value, digits) if digits else round(value)


def _factorial(value: Number) -> Number:
    if isinstance(value, float):
        raise TypeError
    if value > MAX_FACTORIAL:
        raise OverflowError
    return math.factorial(value)


def _format_number(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:.15g}"  # 15 digits, so that 0.1 + 0.2 gives 0.3


def _names(
    names: Sequence[str] | dict[str, Callable[..., Number]] | dict[str, float],
) -> str:
    return ", ".join(names)


_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}

_OPERATIONS: dict[type[ast.operator], Callable[..., Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}

_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": math.sqrt,
    "cbrt": math.cbrt,
    "abs": abs,
    "round": _round,
    "floor": math.floor,
    "ceil": math.ceil,
    "min": lambda first, *others: min((first, *others)),
    "max": lambda first, *others: max((first, *others)),
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "exp": math.exp,
    "log": math.log,
    "ln": lambda value: math.log(value),
    "log2": math.log2,
    "log10": math.log10,
    "factorial": _factorial,
    "gcd": math.gcd,
    "degrees": math.degrees,
    "radians": math.radians,
}
