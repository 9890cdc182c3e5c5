"""How long are the rows of a data file?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from headcount.errors import InputError

__all__ = ["data_lengths"]


@cache
def data_lengths(path: Path) -> Mapping[str, tuple[float, int] | int]:
    """Rows and (mean, max) tokens of prompts and completions of a JSONL file.

    Numeric `prompt_tokens` and `completion_tokens` are taken; else characters ÷ 4, which is an assumption.
    """
    prompts: list[float] = []
    completions: list[float] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise InputError.one(f"{path}:{number}", "is not a JSON object")
                prompts.append(_tokens(row, "prompt"))
                completions.append(_tokens(row, "completion", "chosen", "rejected", "response"))
    except OSError as error:
        raise InputError.one(str(path), f"cannot be read: {error.strerror or error}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError.one(f"{path}:{len(prompts) + 1}", f"not JSON: {error}") from None
    if not prompts:
        raise InputError.one(str(path), "has no rows")
    found: dict[str, tuple[float, int] | int] = {"rows": len(prompts)}
    for name, values in (("prompt", prompts), ("completion", completions)):
        if max(values) > 0:
            found[name] = (sum(values) / len(values), round(max(values)))
    return found


def _tokens(row: Mapping[str, Any], *names: str) -> float:
    counted = row.get(f"{names[0]}_tokens")
    if isinstance(counted, int | float) and not isinstance(counted, bool):
        return float(counted)
    return max((len(json.dumps(row[name], ensure_ascii=False)) / 4 for name in names if name in row), default=0.0)
