"""Which settings does a framework use where its user wrote nothing?

Recipes are data (recipes.toml). A setting may hold only for some tunings, algorithms, layouts; the last one that
applies wins. One with `alternatives` is an assumption: the plan tries the others and widens its band. Defaults change
with versions: `trl@0.15` asks for those of 0.15, `trl` for those of the version that the table was read from.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from headcount.errors import UnknownFact, nearest

__all__ = ["Recipe", "Setting", "find_recipe", "recipes", "settings_for"]

_VERSION = re.compile(r"v?\d{1,9}(\.\w{1,20}){0,5}")


Version = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One default of a framework and when it holds; `when` maps tuning, algorithm, shard, many to allowed values.

    `since` and `before` bound the versions: from the first, and up to but without the second.
    """

    key: str
    value: object
    source: str
    when: Mapping[str, tuple[object, ...]]
    alternatives: tuple[object, ...] = ()
    since: Version = ()
    before: Version = ()

    def of_version(self, version: Version | None) -> bool:
        """Does it hold in a version? None is the newest."""
        if version is None:
            return not self.before
        return version >= self.since and not (self.before and version >= self.before)

    @property
    def condition(self) -> str:
        """When it holds, in words; empty: always."""
        parts = [f"{name} {'|'.join(map(str, allowed))}" for name, allowed in self.when.items()]
        versions = (("from", self.since), ("before", self.before))
        parts += [f"{word} {'.'.join(map(str, version))}" for word, version in versions if version]
        return ", ".join(parts)

    def applies(self, facts: Mapping[str, object]) -> bool:
        """Do the facts of the job meet every condition?"""
        return all(facts.get(name) in allowed for name, allowed in self.when.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A framework (and version) with its defaults in order."""

    name: str
    title: str
    version: str
    source: str
    settings: tuple[Setting, ...]
    batch: str = ""  # what its batch sizes count, and over which GPUs
    speed: str = "hf"  # class of trainer whose speed it has (facts/data/training_speed.toml)
    speed_measured: bool = False  # its own rates are among those that the class was fitted to


@cache
def recipes() -> Mapping[str, Recipe]:
    """Every recipe by name, parents' settings first."""
    rows: dict[str, Any] = tomllib.loads(files("headcount.facts.data").joinpath("recipes.toml").read_text("utf-8"))
    return {name: _recipe(name, rows) for name in rows}


def _recipe(name: str, rows: Mapping[str, Any]) -> Recipe:
    row = rows[name]
    settings = tuple(_settings(name, rows))
    return Recipe(
        name=name,
        title=row["title"],
        version=row["version"],
        source=row["source"],
        settings=settings,
        batch=_batch(name, rows),
        speed=row.get("speed", "hf"),
        speed_measured=row.get("speed_measured", False),
    )


def _settings(name: str, rows: Mapping[str, Any]) -> Iterator[Setting]:
    row = rows[name]
    if "like" in row:  # the parent's newest: a child's versions are not its parent's
        yield from (replace(each, since=()) for each in _settings(row["like"], rows) if not each.before)
    for each in row.get("setting", ()):
        when = {
            key: tuple(allowed) if isinstance(allowed, list) else (allowed,)
            for key, allowed in each.get("when", {}).items()
        }
        yield Setting(
            key=each["key"],
            value=each["value"],
            source=f"{row['title']} {row['version']}: {each['source']}",
            when=when,
            alternatives=tuple(each.get("alternatives", ())),
            since=_version(each.get("since", "")),
            before=_version(each.get("before", "")),
        )


def _batch(name: str, rows: Mapping[str, Any]) -> str:
    row = rows[name]
    return row["batch"] if "batch" in row or "like" not in row else _batch(row["like"], rows)


def _version(text: str) -> Version:
    """`0.15` → (0, 15); trailing words (`dev`, `rc1`) are dropped."""
    return tuple(int(part) for part in re.findall(r"(?:^v?|\.)(\d{1,9})", text))


def find_recipe(name: str) -> Recipe:
    """A recipe by name, `trl` or `trl@0.15`, with the settings of that version.

    Raises:
        UnknownFact: no such framework (the nearest is named), or a version that is no version.
    """
    framework, at, version = name.partition("@")
    if framework not in recipes():
        what = f"{framework!r} is not known. {nearest(framework, recipes())}".strip()
        raise UnknownFact.one("recipe", what, f"one of {', '.join(recipes())}")
    if at and not _VERSION.fullmatch(version):
        raise UnknownFact.one("recipe", f"{version!r} is not a version", f'recipe = "{framework}@1.0"')
    recipe = recipes()[framework]
    wanted = _version(version) if at else None
    settings = tuple(setting for setting in recipe.settings if setting.of_version(wanted))
    return replace(recipe, settings=settings, version=version or recipe.version)


def settings_for(name: str, facts: Mapping[str, object]) -> dict[str, Setting]:
    """The settings of a recipe that apply; the last one that applies to a key wins."""
    return {setting.key: setting for setting in find_recipe(name).settings if setting.applies(facts)}
