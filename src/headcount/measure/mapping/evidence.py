"""What does a line of an evidence file say? One published row gives one case, one report gives one for each side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from headcount.errors import InputError, Mistake

__all__ = ["Case", "cases_of", "read_cases"]

Fields = Mapping[str, Any]
_MAX_LINE_CHARACTERS = 1_000_000
_VERDICTS = {"fits": True, "does_not_fit": False, "does not fit": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One run to plan: the fields of `published_open.jsonl`, and what a planner must reproduce.

    `unreadable` says why the line is no case at all; `excluded` is the source's own reason against scoring it.
    """

    id: str
    fields: Fields
    fits: bool | None = None  # what happened; None: not known
    report: bool = False
    plan_ready: bool = True
    excluded: str = ""
    unreadable: str = ""

    @property
    def measured(self) -> Fields:
        """The measured figures; empty when there are none."""
        return mapping_in(self.fields, "measured")

    @property
    def grade(self) -> str:
        """A, B or C; empty for reports."""
        return str(self.fields.get("grade") or "")


def mapping_in(fields: Fields, key: str) -> Fields:
    """The mapping at `key`, or an empty one."""
    value = fields.get(key)
    return cast(Fields, value) if isinstance(value, Mapping) else {}


def read_cases(paths: Sequence[Path]) -> list[Case]:
    """Every case of the files, in order. Refuses a file that is not there or holds no readable line at all."""
    cases = [case for path in paths for case in _cases_in(path)]
    if not cases:
        raise InputError.one(", ".join(map(str, paths)), "no case in it", "one JSON object a line")
    if all(case.unreadable for case in cases):
        raise InputError(
            [Mistake(where=case.id, what=case.unreadable, fix="one JSON object a line") for case in cases[:5]]
        )
    return cases


def _cases_in(path: Path) -> Iterator[Case]:
    try:
        if path.exists() and not path.is_file():
            raise InputError.one(str(path), "is not a regular file", "name a .jsonl file")
        with path.open(encoding="utf-8-sig", errors="replace") as lines:
            read = iter(lambda: lines.readline(_MAX_LINE_CHARACTERS + 1), "")
            for number, line in enumerate(read, start=1):
                if line.strip():
                    yield from _cases_on(line, where=f"{path.name}:{number}")
    except OSError as error:
        raise InputError.one(str(path), f"cannot be read: {error.strerror or error}", "name a .jsonl file") from error


def _cases_on(line: str, *, where: str) -> Iterator[Case]:
    if len(line) > _MAX_LINE_CHARACTERS:
        yield Case(id=where, fields={}, unreadable=f"line of {len(line):,} characters; a row has at most a million")
        return
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        yield Case(id=where, fields={}, unreadable=f"not JSON: {error}")
        return
    if not isinstance(row, dict):
        yield Case(id=where, fields={}, unreadable=f"a JSON {type(row).__name__}, not an object")
        return
    yield from cases_of(row, where=where)


def cases_of(row: Fields, *, where: str = "row") -> Iterator[Case]:
    """The cases of one parsed row. A report's `sides` are merged into its job, one case each."""
    name = str(row.get("id") or where)
    if "job" in row or "oomed" in row:
        yield from _report_cases(row, name=name)
    else:
        yield Case(id=name, fields=row, fits=_known(mapping_in(row, "measured").get("fits")))


def _report_cases(row: Fields, *, name: str) -> Iterator[Case]:
    ready = row.get("plan_ready") is not False
    excluded = str(row.get("job_excluded") or "")
    job = mapping_in(row, "job")
    if not job:
        yield Case(id=name, fields=row, report=True, plan_ready=ready, excluded=excluded or "no structured job")
        return
    sides = {side: over for side, over in mapping_in(row, "sides").items() if isinstance(over, Mapping)}
    for side, over in sides.items():
        fields = merged(job, cast(Fields, over))
        fits = _VERDICTS.get(side)
        yield Case(id=f"{name}/{side}", fields=fields, fits=fits, report=True, plan_ready=ready, excluded=excluded)
    if not sides:
        fits = _VERDICTS.get(str(row.get("verdict")))
        fits = _known(mapping_in(job, "measured").get("fits")) if fits is None else fits
        yield Case(id=name, fields=job, fits=fits, report=True, plan_ready=ready, excluded=excluded)


def _known(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def merged(base: Fields, over: Fields) -> Fields:
    """`over` deep-merged into `base`: mappings merge, everything else replaces."""
    result = dict(base)
    for key, value in over.items():
        below = base.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[key] = merged(cast(Fields, below), cast(Fields, value)) if both else value
    return result
