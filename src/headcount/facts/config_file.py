"""How is a config.json read so that a wrong, cut-off or hostile one gives one clear message?

Every value is checked as it is taken; mistakes are collected and raised together by `Fields.close`. A wrong value
stands in as a harmless one until then, so that a reader can go on and find the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headcount.errors import InputError, Mistake

__all__ = ["MAX_FILE_BYTES", "Fields", "StandIn", "parse_config", "read_config_file", "shown"]

MAX_FILE_BYTES = 5_000_000  # the largest real config.json (with per-module quantization lists) is below 1 MB
_MAX_COUNT = 100_000_000  # ten times the largest vocabulary, width or context of any model in the table
_FIX_COUNT = "take the number from the model's own config.json"


def read_config_file(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, a config.json or a folder that holds one."""
    try:
        file = path / "config.json" if path.is_dir() else path
        content = _read_bytes(file)
    except OSError as error:
        raise InputError.one(str(path)[:200], f"cannot be read ({error.strerror})", "check its permissions") from None
    return parse_config(content, where=str(file))


def _read_bytes(file: Path) -> bytes:
    if not file.exists():
        raise InputError.one(str(file), "there is no such file", "name a config.json or a folder that holds one")
    if not file.is_file():
        raise InputError.one(str(file), "is not a regular file", "name a config.json or a folder that holds one")
    with file.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        what = f"is larger than {MAX_FILE_BYTES:,} bytes; a model's config.json has a few thousand"
        raise InputError.one(str(file), what, "name the config.json, not the weights or the tokenizer")
    return content


def parse_config(content: bytes, *, where: str) -> dict[str, Any]:
    """The JSON object in `content`; anything else is an InputError that names `where`."""
    fix = "download the model's config.json again"
    try:
        config = json.loads(content)
    except RecursionError:
        raise InputError.one(where, "is nested too deeply to be a model's config", fix) from None
    except UnicodeDecodeError:
        raise InputError.one(where, "is not text in UTF-8", fix) from None
    except json.JSONDecodeError as error:
        what = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno} (cut off while copying?)"
        raise InputError.one(where, what, fix) from None
    except ValueError:
        raise InputError.one(where, "holds a number with thousands of digits", fix) from None
    if not isinstance(config, dict):
        raise InputError.one(where, f"holds {_kind(config)}, not an object of settings", fix)
    return config


class StandIn(int):
    """The harmless number that stands in for a wrong one: no relation between keys is blamed on it."""


class Fields:
    """The settings of one config, taken by key, each checked; `close` raises every mistake at once."""

    def __init__(self, values: Mapping[str, Any], *, where: str, mistakes: list[Mistake] | None = None) -> None:
        self.values = values
        self.where = where
        self.mistakes: list[Mistake] = [] if mistakes is None else mistakes

    def close(self) -> None:
        """Raise one InputError with all mistakes found so far, if any."""
        if self.mistakes:
            raise InputError(self.mistakes)

    def wrong(self, key: str, what: str, fix: str = "") -> None:
        """Note a mistake in `key`."""
        mistake = Mistake(where=f"{self.where}: {key}", what=what, fix=fix)
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)

    def given(self, key: str) -> bool:
        """True when `key` is there and not null."""
        return self.values.get(key) is not None

    def count(self, *keys: str, default: int | None = None, least: int = 1, most: int = _MAX_COUNT) -> int:
        """A whole number from `least` to `most` under the first of `keys` that is there."""
        key = next((key for key in keys if self.given(key)), None)
        if key is None:
            return self._absent(keys[0], default)
        value = self.values[key]
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not least <= value <= most:
            self.wrong(key, f"is {shown(value)}; must be a whole number from {least} to {most:,}", _FIX_COUNT)
            return StandIn(max(least, 1))
        return value

    def _absent(self, key: str, default: int | None) -> int:
        if default is None:
            self.wrong(key, "is missing; the model's shape depends on it", _FIX_COUNT)
            return StandIn(1)
        return default

    def maybe_count(self, key: str) -> int | None:
        """As `count`, but null or absent stays None."""
        return self.count(key) if self.given(key) else None

    def flag(self, key: str, *, default: bool = False) -> bool:
        """true or false."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(key, f"is {shown(value)}; must be true or false", f'"{key}": true or false, without quotes')
            return default
        return value

    def text(self, key: str, *, default: str) -> str:
        """A string."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.wrong(key, f"is {shown(value)}; must be a string")
            return default
        return value

    def texts(self, key: str, *, length: int) -> tuple[str, ...] | None:
        """A list of `length` strings, or None where absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, str) for v in value):
            self.wrong(key, f"is {shown(value)}; must be a list of strings")
            return None
        if len(value) != length:
            self.wrong(key, f"has {len(value):,} entries for {length:,} layers", "give one entry per layer")
            return None
        return tuple(value)

    def indices(self, key: str, *, below: int) -> frozenset[int]:
        """A list of layer numbers from 0 to `below` − 1, as a set; empty where absent."""
        value = self.values.get(key) or []
        if not isinstance(value, list) or not all(type(v) is int and 0 <= v < below for v in value):
            self.wrong(key, f"is {shown(value)}; must be a list of layer numbers from 0 to {below - 1}")
            return frozenset()
        return frozenset(value)

    def child(self, key: str) -> Fields:
        """The object under `key`; its mistakes are this one's."""
        value = self.values.get(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            self.wrong(key, f"is {shown(value)}; must be an object")
            value = {}
        return Fields(value, where=f"{self.where}: {key}", mistakes=self.mistakes)

    def divides(self, key: str, whole: int, parts: int, *, of: str) -> int:
        """`whole ÷ parts` when it leaves nothing; `key` is to blame when it does."""
        if isinstance(whole, StandIn) or isinstance(parts, StandIn):
            return StandIn(1)
        if whole % parts:
            self.wrong(key, f"is {parts:,}, which does not divide {of} = {whole:,}", "check both in the config.json")
            return StandIn(1)
        return whole // parts


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def shown(value: Any) -> str:
    """The value as JSON spells it, cut short. A huge integer is not turned into text: that alone can fail."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a number with more than 38 digits"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
