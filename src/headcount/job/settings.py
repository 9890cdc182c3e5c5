"""Which value does a key have, and who said so: the file, the recipe, headcount's default?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from headcount.facts.recipe import Setting, settings_for
from headcount.job.defaults import DEFAULTS
from headcount.job.job import Origin, Source

__all__ = ["Settings"]


@cache
def _recipe_settings(name: str, facts: tuple[tuple[str, object], ...]) -> Mapping[str, Setting]:
    return settings_for(name, dict(facts))


class Settings:
    """Looks keys up in order (given, recipe, default) and remembers where each one came from."""

    def __init__(self, flat: Mapping[str, Any], *, recipe: str, facts: Mapping[str, object]) -> None:
        self.flat = flat
        self._recipe = _recipe_settings(recipe, tuple(sorted(facts.items())))
        self.sources: dict[str, Source] = {}

    def given(self, key: str) -> bool:
        """Did the file say it?"""
        return key in self.flat

    def stated(self, key: str) -> bool:
        """Did the file or the recipe say it?"""
        return key in self.flat or key in self._recipe

    def recipe_means(self, key: str, fact: str) -> bool:
        """Does the recipe have a value of this key for this very fact, not one for all cases?"""
        return key in self._recipe and fact in self._recipe[key].when

    def get(self, key: str, default: Any = None, why: str = "") -> Any:
        """The value of a key; `default` with its reason `why` stands where neither file, recipe nor table has one."""
        value, source = self._find(key, default, why)
        if source is not None:
            self.sources[key] = source
        return value

    def _find(self, key: str, default: Any, why: str) -> tuple[Any, Source | None]:
        if key in self.flat:
            value = self.flat[key]
            return value, Source(origin=Origin.GIVEN, text="the job file", value=value)
        if key in self._recipe:
            setting = self._recipe[key]
            origin = Origin.ASSUMED if setting.alternatives else Origin.RECIPE
            text, others = setting.source, setting.alternatives
            return setting.value, Source(origin=origin, text=text, value=setting.value, alternatives=others)
        if key in DEFAULTS and default is None:
            value, text = DEFAULTS[key]
            return value, Source(origin=Origin.DEFAULT, text=text, value=value)
        if why:
            return default, Source(origin=Origin.DEFAULT, text=why, value=default)
        return default, None
