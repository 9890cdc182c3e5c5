"""What does `--set key=value` change, and how is its mistake told from one of the file?"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headcount.errors import InputError, Mistake
from headcount.job.keys import KEYS
from headcount.job.schema import flatten

__all__ = ["blamed", "laid_over", "parsed"]

# Two words for one thing: who sets one anew means it instead of the other.
_RIVALS = (
    ("update.micro_batch_sequences", "update.micro_batch_tokens"),
    ("score.micro_batch_sequences", "score.micro_batch_tokens"),
    ("work.steps", "work.epochs"),
)
_TABLES = ("layout.groups.", "layout.roles.")  # whose keys are names that the user chooses
_MOST_REWARDS = 64


def laid_over(flat: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keys set anew; of two that say one thing the new one stands."""
    rivals = {one: other for pair in _RIVALS for one, other in (pair, pair[::-1])}
    gone = {rivals[path] for path in changes if path in rivals}
    kept = {path: value for path, value in flat.items() if path not in gone}
    for path, value in changes.items():
        kept |= _one(kept, path, value)
    return kept


def _one(flat: Mapping[str, Any], path: str, value: object) -> dict[str, Any]:
    """`reward.kind` and `reward.1.kind` reach into [[reward]]; `layout.groups.NAME.gpus` into its table."""
    if path.startswith("reward."):
        return {"reward": _rewards(flat.get("reward"), path.removeprefix("reward."), value)}
    for table in _TABLES:
        if path.startswith(table):
            whole = table.rstrip(".")
            inside = flat.get(whole)
            return {whole: _nested(inside if isinstance(inside, Mapping) else {}, path.removeprefix(table), value)}
    return {path: value}


def _rewards(rows: object, path: str, value: object) -> list[Any]:
    place, _, key = path.partition(".") if path[:1].isdigit() else ("0", "", path)
    made = [dict(row) if isinstance(row, Mapping) else row for row in rows] if isinstance(rows, list) else []
    index = int(place) if place.isdigit() and len(place) < 4 else _MOST_REWARDS
    if index > len(made) or index >= _MOST_REWARDS:
        what = f"there are {len(made)} rewards; the next one is reward.{len(made)}"
        raise InputError.one(f"--set reward.{path}", what, f"--set reward.{len(made)}.kind=math")
    if index == len(made):
        made.append({})
    if isinstance(made[index], dict):
        made[index][key] = value
    return made


def _nested(table: Mapping[str, Any], path: str, value: object) -> dict[str, Any]:
    name, _, rest = path.partition(".")
    below = table.get(name)
    return {**table, name: _nested(below if isinstance(below, Mapping) else {}, rest, value) if rest else value}


def parsed(text: str, *, toml: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """`layout.tensor=2` → {"layout.tensor": 2}; a bare word is a string.

    Raises:
        InputError: no key, or no `=`.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError.one(f"--set {text}", "is not key=value", "--set layout.tensor=2")
    try:
        table = toml(f"value = {value.strip()}")
        read = table["value"] if set(table) == {"value"} else value.strip()
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        read = value.strip()
    whole = key in KEYS or key.startswith(("reward.", *_TABLES))
    return {key: read} if whole else flatten({key: read})


def blamed(mistakes: Iterable[Mistake], where: str, overridden: Iterable[str]) -> list[Mistake]:
    """Mistakes about keys that the command line set say so instead of the file."""
    stems = {_stem(path): path for path in overridden}
    return [_blame(mistake, where, stems) for mistake in mistakes]


def _stem(path: str) -> str:
    """The key as mistakes name it: rewards and tables are named by their list or table."""
    if path.startswith("reward."):
        return "reward"
    return next((path.rpartition(".")[0] if path.count(".") > 2 else path for t in _TABLES if path.startswith(t)), path)


def _blame(mistake: Mistake, where: str, stems: Mapping[str, str]) -> Mistake:
    key = mistake.where.removeprefix(f"{where}: ")
    for stem, path in stems.items():
        if key == stem or key.startswith((f"{stem}.", f"{stem}[")):
            return Mistake(where=f"--set {path}", what=mistake.what, fix=mistake.fix)
    return mistake
