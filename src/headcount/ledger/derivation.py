"""How does a number carry the formula that made it?

The printed formula *is* the arithmetic: `derive` evaluates the text it will show, so the two cannot part. Formulas
are typeset (× ÷ · ⌈…⌉) and use long names; the names' values are the numbers filled in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType

from headcount.units import number_text

__all__ = ["Derived", "derive", "total"]

_TYPESET = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "⌈": "ceil(", "⌉": ")"})
_FUNCTIONS = {"ceil": math.ceil, "max": max, "min": min}
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


@cache
def _compiled(formula: str) -> CodeType:
    # Formulas are literals of this package, never user input.
    return compile(formula.translate(_TYPESET), formula, "eval")


@dataclass(frozen=True, slots=True)
class Derived:
    """A value, the formula that made it and the numbers that went in."""

    value: float
    formula: str
    inputs: tuple[tuple[str, float], ...] = ()
    source: str = ""

    @property
    def bytes(self) -> int:
        """The value as whole bytes, rounded up: a part of a byte is a byte."""
        return self.value if isinstance(self.value, int) else math.ceil(self.value - 1e-6)

    @property
    def numbers(self) -> str:
        """The formula with its numbers filled in: `32 × 4,096 × 8,192 × 2`."""
        given: Mapping[str, float] = dict(self.inputs)
        return _NAME.sub(lambda m: number_text(given[m[0]]) if m[0] in given else m[0], self.formula)


def derive(formula: str, *, source: str = "", **inputs: float) -> Derived:
    """Evaluate `formula` over `inputs` and keep both.

    >>> derive("2 × layers × kv_width", layers=32, kv_width=1024).numbers
    '2 × 32 × 1,024'
    """
    value = eval(_compiled(formula), {"__builtins__": {}}, {**_FUNCTIONS, **inputs})
    return Derived(value=value, formula=formula, inputs=tuple(inputs.items()), source=source)


def total(parts: Mapping[str, Derived]) -> float:
    """The sum of named terms."""
    return sum(part.value for part in parts.values())
