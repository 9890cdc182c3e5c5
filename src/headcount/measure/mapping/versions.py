"""How old is the software of a row, as far as its source tells?"""

from __future__ import annotations

import re

from headcount.measure.mapping.evidence import Case
from headcount.measure.mapping.words import text_of

__all__ = ["year_of"]

_DATED = re.compile(r"(?<!\d)(20[12]\d)[-_./]?(?:0[1-9]|1[0-2])(?!\d)")
_PAGES = {"docs/performance.md": 2024}  # torchtitan's first table, replaced by dated files under benchmarks/


def year_of(case: Case) -> int | None:
    """The year in the source's address or in the notes (`…_202412_…`, `2025-06`); None where neither is dated."""
    for page, year in _PAGES.items():
        if page in text_of(case.fields.get("source")):
            return year
    for key in ("source", "framework", "notes"):
        found = _DATED.search(text_of(case.fields.get(key)))
        if found:
            return int(found[1])
    return None
