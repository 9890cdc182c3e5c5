"""How long are the rows of a data file?"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headcount.errors import InputError
from headcount.job.job import Origin, Source

__all__ = ["DataLengths", "data_lengths"]

_CHARACTERS_A_TOKEN = 4  # English prose; code and other scripts have fewer, hence the alternative
_CHARACTERS_AT_LEAST = 3
_MOST_TOKENS = 10**8


@dataclass(frozen=True, kw_only=True, slots=True)
class DataLengths:
    """Rows of a file and its {mean, max} tokens, each with how it is known; None where a part does not occur."""

    rows: int
    prompt: Source | None
    completion: Source | None


@dataclass(slots=True)
class _Seen:
    """Running sum and maximum of one part of the rows."""

    total: float = 0.0
    most: float = 0.0
    counted: bool = True

    def add(self, tokens: float, *, counted: bool) -> None:
        self.total += tokens
        self.most = max(self.most, tokens)
        self.counted = self.counted and (counted or not tokens)

    def source(self, rows: int, column: str) -> Source | None:
        if not self.most:
            return None
        if self.counted:
            value = {"mean": self.total / rows, "max": math.ceil(self.most)}
            return Source(origin=Origin.GIVEN, text=f"column {column} of the data file", value=value)
        usual, more = (
            {"mean": self.total / rows / per_token, "max": math.ceil(self.most / per_token)}
            for per_token in (_CHARACTERS_A_TOKEN, _CHARACTERS_AT_LEAST)
        )
        text = f"characters of the data file ÷ {_CHARACTERS_A_TOKEN}; a column {column} would state it"
        return Source(origin=Origin.ASSUMED, text=text, value=usual, alternatives=(more,))


@cache
def data_lengths(path: Path) -> DataLengths:
    """Rows and lengths of a JSONL file.

    Numeric columns `prompt_tokens` and `completion_tokens` are taken; else characters ÷ 4, an assumption.

    Raises:
        InputError: unreadable, no JSONL, no rows, or a length that is no sensible number.
    """
    rows = 0
    prompts, completions = _Seen(), _Seen()
    for number, row in _rows(path):
        rows += 1
        for seen, column, names in (
            (prompts, "prompt_tokens", ("prompt",)),
            (completions, "completion_tokens", ("completion", "chosen", "rejected", "response")),
        ):
            if column in row:
                seen.add(_counted(row[column], f"{path}:{number}", column), counted=True)
            else:
                seen.add(max((_characters(row[name]) for name in names if name in row), default=0), counted=False)
    if not rows:
        raise InputError.one(str(path), "has no rows")
    return DataLengths(
        rows=rows,
        prompt=prompts.source(rows, "prompt_tokens"),
        completion=completions.source(rows, "completion_tokens"),
    )


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    number = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise InputError.one(f"{path}:{number}", "is not a JSON object")
                yield number, row
    except OSError as error:
        raise InputError.one(str(path), f"cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError.one(f"{path}:{number or 1}", f"is not JSON: {error}") from None


def _counted(value: Any, at: str, column: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= _MOST_TOKENS:  # NaN fails the comparison
        what = f"{column} = {str(value)[:40]} is not a number between 0 and {_MOST_TOKENS:,}"
        raise InputError.one(at, what, f'"{column}": 512')
    return float(value)


def _characters(value: object) -> int:
    """Text is counted as it is; a list of chat messages by what its messages say."""
    if isinstance(value, str):
        return len(value)
    return len(json.dumps(value, ensure_ascii=False))
