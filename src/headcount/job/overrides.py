"""What does `--set key=value` change, and how is its mistake told from one of the file?"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.errors import InputError, Mistake
from headcount.job.keys import KEYS
from headcount.job.schema import flatten

__all__ = ["Override", "blamed", "laid_over", "overlaid"]

# Two words for one thing: who sets one anew means it instead of the other.
_RIVALS = (
    ("update.micro_batch_sequences", "update.micro_batch_tokens"),
    ("score.micro_batch_sequences", "score.micro_batch_tokens"),
    ("work.steps", "work.epochs"),
)
_TABLES = ("layout.groups.", "layout.roles.")  # whose keys are names that the user chooses
_NAMED = ("reward", "layout.groups", "layout.roles")
_MOST_REWARDS = 64
_MOST_PARTS = 32
_MOST_SHOWN = 60  # characters of a key


@dataclass(frozen=True, kw_only=True, slots=True)
class Override:
    """One key that the command line set."""

    said: str  # as the user wrote it: `--set reward.kind`, `--gpu`
    key: str  # as mistakes name it: `reward[0].kind`
    new: str  # its outermost table that the file does not have, else the key


def overlaid(
    flat: Mapping[str, Any], texts: Sequence[str], *, toml: Callable[[str], Mapping[str, Any]]
) -> tuple[dict[str, Any], tuple[Override, ...]]:
    """A flat job with every `key=value` laid over it, in their order, and what was set.

    Raises:
        InputError: a text is not key=value, or names a reward that cannot be.
    """
    names, made, overrides = set(_names(flat)), dict(flat), list[Override]()
    for text in texts:
        said, changes = _parsed(text, toml=toml)
        made = laid_over(made, changes)
        overrides += [_override(said, path, names) for path in changes]
    return made, tuple(overrides)


def _names(flat: Mapping[str, Any]) -> Iterator[str]:
    """Every key and table of the file, as mistakes name them."""
    for path, value in flat.items():
        yield from _outwards(path)
        if path in _NAMED:
            yield from _inside(path, value)


def _outwards(name: str) -> Iterator[str]:
    """`layout.groups.side` → layout, layout.groups, layout.groups.side."""
    yield from (name[: end.start()] for end in re.finditer(r"[.\[]", name))
    yield name


def _inside(name: str, value: object) -> Iterator[str]:
    yield name
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _inside(f"{name}.{key}", below)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _inside(f"{name}[{index}]", below)


def _override(said: str, path: str, names: set[str]) -> Override:
    key = path
    if path.startswith("reward."):
        place, leaf = _place(path)
        key = f"reward[{place or 0}]{leaf and '.'}{leaf}"
    return Override(said=said, key=key, new=next((name for name in _outwards(key) if name not in names), key))


def _place(path: str) -> tuple[int | None, str]:
    """`reward.1.kind` → 1 and kind; `reward.kind` → None and kind."""
    place, _, leaf = path.removeprefix("reward.").partition(".")
    if re.fullmatch(r"[0-9]{1,9}", place):
        return int(place), leaf
    return None, path.removeprefix("reward.")


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
        return {"reward": _rewards(flat.get("reward"), path, value)}
    for table in _TABLES:
        if path.startswith(table):
            whole = table.rstrip(".")
            inside = flat.get(whole)
            return {whole: _nested(inside if isinstance(inside, Mapping) else {}, path.removeprefix(table), value)}
    return {path: value}


def _rewards(rows: object, path: str, value: object) -> list[Any]:
    made = [dict(row) if isinstance(row, Mapping) else row for row in rows] if isinstance(rows, list) else []
    place, leaf = _place(path)
    if place is None and len(made) > 1:
        what = f"the job has {len(made)} rewards, reward.0 to reward.{len(made) - 1}: say which"
        raise InputError.one(f"--set {path}", what, f"--set reward.0.{leaf}=…")
    index = place or 0
    if index > len(made) or index >= _MOST_REWARDS:
        what = f"the job has {len(made)} reward{'' if len(made) == 1 else 's'}; the next one is reward.{len(made)}"
        raise InputError.one(f"--set {path}", what, f"--set reward.{len(made)}.kind=math")
    if index == len(made):
        made.append({})
    if not leaf:
        made[index] = value
    elif isinstance(made[index], dict):
        made[index][leaf] = value
    return made


def _nested(table: Mapping[str, Any], path: str, value: object) -> dict[str, Any]:
    name, _, rest = path.partition(".")
    below = table.get(name)
    return {**table, name: _nested(below if isinstance(below, Mapping) else {}, rest, value) if rest else value}


def _parsed(text: str, *, toml: Callable[[str], Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """`layout.tensor=2` → `--set layout.tensor` and {"layout.tensor": 2}; a bare word is a string.

    Another option than --set says itself first: `--gpu hardware.gpu="h200"`.
    """
    head, equals, value = text.partition("=")
    option, _, key = head.strip().rpartition(" ") if head.startswith("--") else ("", "", head.strip())
    said, value = option or f"--set {_cut(key or text)}", value.strip()
    if not equals or not key:
        raise InputError.one(said, "is not key=value", "--set layout.tensor=2")
    if key.count(".") >= _MOST_PARTS:
        raise InputError.one(said, "nested too deeply", "--set layout.tensor=2")
    try:
        table = toml(f"value = {value}")
        read = table["value"] if set(table) == {"value"} else value
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        read = value
    whole = key in KEYS or key.startswith(("reward.", *_TABLES))
    return said, {key: read} if whole else flatten({key: read})


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}…"


def blamed(mistakes: Iterable[Mistake], where: str, overrides: Sequence[Override]) -> list[Mistake]:
    """Mistakes about keys that the command line set say so instead of the file."""
    return [_blame(mistake, where, overrides) for mistake in mistakes]


def _blame(mistake: Mistake, where: str, overrides: Sequence[Override]) -> Mistake:
    """A key that was set, or a table that only `--set` made, is its own; a table that it changed is both's."""
    key = mistake.where.removeprefix(f"{where}: ")
    if key == mistake.where:
        return mistake
    own = [each for each in overrides if _within(key, each.key) or _cut(each.key) == key]
    made = [each for each in overrides if _made(key, each)]
    changed = [each for each in overrides if _within(each.key, key)]
    if own or made:
        at = own[-1].said if own else _together(made)
    elif changed:
        at = f"{mistake.where} (with {_together(changed)})"
    else:
        return mistake
    return Mistake(where=at, what=mistake.what, fix=mistake.fix)


def _made(key: str, override: Override) -> bool:
    """Does the mistake lie in a table that this override made? What a section lacks is not the override's fault."""
    named = override.key.startswith(_NAMED)
    return _within(key, override.new) and (named or _within(override.key, key))


def _within(name: str, table: str) -> bool:
    return name == table or name.startswith((f"{table}.", f"{table}["))


def _together(overrides: Iterable[Override]) -> str:
    return ", ".join(dict.fromkeys(each.said for each in overrides))
