"""How are bytes, seconds and money read and written?

Inside the code everything is bytes, seconds, tokens, FLOPs, dollars. GB (10⁹) and GiB (2³⁰) differ by 7.4 % and
are never mixed: both are printed on request, and an observation without a unit is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = [
    "GB",
    "GIB",
    "KIB",
    "MIB",
    "bytes_text",
    "count_text",
    "duration_text",
    "money_text",
    "number_text",
    "toml_text",
]

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
GB = 10**9


def bytes_text(value_bytes: float, *, unit: str = "GiB") -> str:
    """`1234567890` → `1.15 GiB`; `unit="GB"` divides by 10⁹, `unit="both"` prints the two."""
    if unit == "both":
        return f"{bytes_text(value_bytes)} ({bytes_text(value_bytes, unit='GB')})"
    if unit not in ("GiB", "GB"):
        raise ValueError(f"unit is {unit!r}; bytes are printed in GiB (2³⁰), GB (10⁹) or both")
    return f"{value_bytes / (GIB if unit == 'GiB' else GB):,.2f} {unit}"


def toml_text(value: object) -> str:
    """A value as a job file spells it: `true`, `"full"`, `{ mean = 512, max = 1024 }`."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key} = {toml_text(each)}" for key, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_text(each) for each in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else f"{value}"


def count_text(value: float) -> str:
    """`7_615_616_512` → `7.62B`, as model sizes are spoken."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:g}"


def duration_text(seconds: float) -> str:
    """`5400` → `1 h 30 min`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def money_text(dollars: float) -> str:
    """`1234.5` → `$1,234`; small sums keep their cents."""
    return f"${dollars:,.0f}" if abs(dollars) >= 100 else f"${dollars:,.2f}"


def number_text(value: float) -> str:
    """A number inside a derivation: whole ones with thousands commas, fractions with six digits."""
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:.6g}"
