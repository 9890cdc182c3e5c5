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

__all__ = ["DataLengths", "completion_quantiles", "data_lengths"]

_CHARACTERS_A_TOKEN = 4  # English prose; code and other scripts have fewer, hence the alternative
_CHARACTERS_AT_LEAST = 3
_MOST_TOKENS = 10**8
_LONGEST_LINE = 50_000_000


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
    for number, read in _rows(path):
        rows += 1
        row = _with_turns(read)
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
    if not prompts.most and not completions.most:
        known = "prompt, completion, chosen, rejected, response, messages or conversations"
        raise InputError.one(str(path), f"no row has text or tokens in a column that is read: {known}")
    return DataLengths(
        rows=rows,
        prompt=prompts.source(rows, "prompt_tokens"),
        completion=completions.source(rows, "completion_tokens"),
    )


@cache
def completion_quantiles(path: Path, count: int = 256) -> tuple[float, ...]:
    """Evenly spaced quantiles of the column `completion_tokens` of a JSONL file.

    Raises:
        InputError: unreadable, no JSONL, a row without the column, or a length that is no sensible number.
    """
    drawn: list[float] = []
    for number, row in _rows(path):
        if "completion_tokens" not in row:
            what = "has no completion_tokens: lengths of a run are needed, not its text"
            raise InputError.one(f"{path}:{number}", what, '"completion_tokens": 512')
        drawn.append(max(1.0, _counted(row["completion_tokens"], f"{path}:{number}", "completion_tokens")))
    if not drawn:
        raise InputError.one(str(path), "has no rows")
    drawn.sort()
    last = len(drawn) - 1
    return tuple(drawn[round(i * last / (count - 1))] for i in range(count)) if last >= count else tuple(drawn)


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    number = 0
    try:
        if path.exists() and not path.is_file():
            raise InputError.one(str(path), "is not a regular file", "name a JSONL file")
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(_LONGEST_LINE), ""), 1):
                if not line.strip():
                    continue
                if len(line) >= _LONGEST_LINE:
                    raise InputError.one(f"{path}:{number}", f"a line of more than {_LONGEST_LINE:,} characters")
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise InputError.one(f"{path}:{number}", "is not a JSON object")
                yield number, row
    except OSError as error:
        raise InputError.one(str(path), f"cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError.one(f"{path}:{number or 1}", f"is not JSON: {error}") from None


def _with_turns(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a chat the last turn is the completion, everything before it the prompt."""
    turns = next((row[name] for name in ("messages", "conversations") if isinstance(row.get(name), list)), None)
    if not turns or {"prompt", "completion"} & set(row):
        return row
    said = [turn.get("content", turn.get("value")) if isinstance(turn, dict) else turn for turn in turns]
    return {**row, "prompt": "".join(text for text in said[:-1] if isinstance(text, str)), "completion": said[-1]}


def _counted(value: Any, at: str, column: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= _MOST_TOKENS:  # NaN fails the comparison
        what = f"{column} = {json.dumps(value, ensure_ascii=False)[:40]} is not a number between 0 and {_MOST_TOKENS:,}"
        raise InputError.one(at, what, f'"{column}": 512')
    return float(value)


def _characters(value: object) -> int:
    """Text is counted as it is; a list of chat messages by what its messages say."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value)
    return len(json.dumps(value, ensure_ascii=False))
