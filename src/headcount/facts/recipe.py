"""Which settings does a framework use where its user wrote nothing?

Recipes are data (recipes.toml). A setting may hold only for some tunings, algorithms, layouts; the last one that
applies wins. One with `alternatives` is an assumption: the plan tries the others and widens its band.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from headcount.errors import UnknownFact, nearest

__all__ = ["Recipe", "Setting", "find_recipe", "recipes", "settings_for"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One default of a framework and when it holds; `when` maps tuning, algorithm, shard, many to allowed values."""

    key: str
    value: object
    source: str
    when: Mapping[str, tuple[object, ...]]
    alternatives: tuple[object, ...] = ()

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


@cache
def recipes() -> Mapping[str, Recipe]:
    """Every recipe by name, parents' settings first."""
    rows: dict[str, Any] = tomllib.loads(files("headcount.facts.data").joinpath("recipes.toml").read_text("utf-8"))
    return {name: _recipe(name, rows) for name in rows}


def _recipe(name: str, rows: Mapping[str, Any]) -> Recipe:
    row = rows[name]
    return Recipe(
        name=name,
        title=row["title"],
        version=row["version"],
        source=row["source"],
        settings=tuple(_settings(name, rows)),
    )


def _settings(name: str, rows: Mapping[str, Any]) -> Iterator[Setting]:
    row = rows[name]
    if "like" in row:
        yield from _settings(row["like"], rows)
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
        )


def find_recipe(name: str) -> Recipe:
    """A recipe by name; UnknownFact names the nearest."""
    if name in recipes():
        return recipes()[name]
    raise UnknownFact.one(
        "recipe", f"{name!r} is not known. {nearest(name, recipes())}".strip(), f"one of {', '.join(recipes())}"
    )


def settings_for(name: str, facts: Mapping[str, object]) -> dict[str, Setting]:
    """The settings of a recipe that apply; the last one that applies to a key wins."""
    return {setting.key: setting for setting in find_recipe(name).settings if setting.applies(facts)}
