"""What is wrong with the keys and values of a job file, one by one?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from headcount.errors import Mistake, nearest
from headcount.job.keys import KEYS, Key
from headcount.units import toml_text

__all__ = ["flatten", "mistakes_in"]

Value = object

# Tables whose keys are names that the user chooses.
_REWARD_KEYS = ("kind", "model", "weight", "base_precision", "placement", "seconds", "workers")
_REWARD_KINDS = ("exact", "math", "regex", "code", "model", "length", "format", "json")
_GROUP_KEYS = ("gpus", "shard", "tensor", "pipeline", "context", "offload_optimizer", "offload_parameters", "load")
_ROLES = ("critic", "reference", "reward")


_WHOLE = ("reward", "layout.roles", "layout.groups")
_MOST_MISTAKES = 50
_SECTIONS = {key.rpartition(".")[0] for key in KEYS} - {""}


_LARGEST = 10**18  # beyond it no key goes, and text of it is of no use


def flatten(mapping: Mapping[str, Value], prefix: str = "") -> dict[str, Value]:
    """`{"update": {"passes": 2}}` → `{"update.passes": 2}`; lengths, rewards, roles and groups stay whole."""
    flat: dict[str, Value] = {}
    for name, value in mapping.items():
        path = f"{prefix}{name}"
        leaf = path in KEYS or path in _WHOLE or prefix.count(".") > 3
        if isinstance(value, Mapping) and not leaf:
            flat |= flatten(value, f"{path}.")
            if not value and path not in _SECTIONS:  # an empty known table says nothing, and may
                flat[path] = value
        else:
            flat[path] = value
    return flat


def mistakes_in(flat: Mapping[str, Value], *, where: str) -> dict[str, list[Mistake]]:
    """Unknown keys (the nearest named), wrong types and units, values out of bounds. Sound keys have no entry."""
    found: dict[str, list[Mistake]] = {}
    for path, value in flat.items():
        mistakes = list(_mistakes(path, value, f"{where}: {_cut(path)}"))
        if mistakes:
            found[path] = mistakes
        if len(found) > _MOST_MISTAKES:
            more = Mistake(where=where, what=f"more than {_MOST_MISTAKES} wrong keys; the rest is not listed")
            return found | {path: [more]}
    return found


def _mistakes(path: str, value: Value, at: str) -> Iterator[Mistake]:
    if path == "reward":
        yield from _reward_mistakes(value, at)
    elif path in _WHOLE:
        yield from _group_mistakes(path, value, at)
    elif path in _SECTIONS and path not in KEYS and not isinstance(value, Mapping):
        yield Mistake(where=at, what=f"{_shown(value)} is not a table", fix=f"[{path}]")
    elif path not in KEYS:
        yield _unknown(path, value, at)
    elif (wrong := _wrong(KEYS[path], value)) is not None:
        yield Mistake(where=at, what=wrong, fix=_example(KEYS[path], value))


def _unknown(path: str, value: Value, at: str) -> Mistake:
    """The nearest key of its section, else of all: a key in the wrong section is told its right one."""
    section, _, leaf = _cut(path).rpartition(".")
    siblings = {key.rpartition(".")[2]: key for key in KEYS if key.rpartition(".")[0] == section}
    everywhere = {key.rpartition(".")[2]: key for key in reversed(tuple(KEYS))}
    near = get_close_matches(leaf, siblings, n=1, cutoff=0.6)
    key = siblings[near[0]] if near else everywhere.get(leaf) or next(iter(get_close_matches(path, KEYS, n=1)), "")
    if not key:
        hint = nearest(section or leaf, {*_SECTIONS, "reward"} | {key for key in KEYS if "." not in key})
        return Mistake(where=at, what=f"no such key. {hint}".strip(), fix="remove it")
    name = key.removeprefix(f"{section}.")
    return Mistake(where=at, what=f"no such key. did you mean {name}?", fix=f"{name} = {_shown(value)}")


def _wrong(key: Key, value: Value) -> str | None:
    """What is wrong with a value, or None."""
    shown = _shown(value)
    if key.kind == "choice":
        return (
            None
            if value in key.choices
            else f"{shown} is none of {', '.join(key.choices)}. {_near(value, key)}".strip()
        )
    if key.kind == "bool":
        return None if isinstance(value, bool) else f"{shown} is not true or false"
    if key.kind == "str":
        return None if isinstance(value, str) and value.strip() else f"{shown} is not a name"
    if key.kind == "strs":
        items = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
        good = items and all(isinstance(item, str) and item for item in items)
        return None if good else f"{shown} is not a list of names"
    if key.kind == "tokens":
        return _wrong_tokens(value)
    return _wrong_number(key, value)


def _near(value: Value, key: Key) -> str:
    return nearest(value, key.choices) if isinstance(value, str) else ""


def _wrong_number(key: Key, value: Value) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        unit = " (a plain number, without a unit)" if isinstance(value, str) else ""
        return f"{_shown(value)} is not a number{unit}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not finite"
    if abs(value) > _LARGEST:
        return (
            f"a number of more than {math.floor(math.log10(_LARGEST))} digits is outside {key.low:,g} to {key.high:,g}"
        )
    if key.kind == "int" and not float(value).is_integer():
        return f"{value} is not a whole number"
    if not key.low <= value <= key.high:
        return f"{value:,} is outside {key.low:,g} to {key.high:,g}"
    if key.choices and str(value) not in key.choices:
        return f"{value} is none of {', '.join(key.choices)}"
    return None


def _wrong_tokens(value: Value) -> str | None:
    if not isinstance(value, Mapping):
        return _wrong_number(Key("tokens", "int", "", 1, 10**8), value)
    extra = set(value) - {"mean", "max"}
    if extra or "max" not in value:
        return f"{_shown(value)} needs max (and may have mean)" + (
            f"; unknown: {', '.join(map(str, extra))}" if extra else ""
        )
    kinds = {"mean": Key("mean", "float", "", 1, 10**8), "max": Key("max", "int", "", 1, 10**8)}
    wrong = [text for part in value if (text := _wrong_number(kinds[part], value[part]))]
    if wrong:
        return "; ".join(wrong)
    if float(value.get("mean", value["max"])) > float(value["max"]):
        return f"mean {value['mean']} is above max {value['max']}"
    return None


def _shown(value: Value) -> str:
    """A value as TOML spells it, cut short."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "a huge number"
    return _cut(toml_text(value))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def _example(key: Key, value: Value) -> str:
    """A line to paste: the nearest choice or bound, or a usual value."""
    samples = {"bool": "true", "str": '"…"', "strs": '["all-linear"]', "tokens": "{ mean = 512, max = 1024 }"}
    sample = samples.get(key.kind) or (f'"{_likely(key, value)}"' if key.kind == "choice" else _inside(key, value))
    return f"{key.path.rpartition('.')[2]} = {sample}   # {key.meaning}"


def _likely(key: Key, value: Value) -> str:
    near = get_close_matches(value.lower(), key.choices, n=1, cutoff=0.5) if isinstance(value, str) else []
    return near[0] if near else key.choices[0]


def _inside(key: Key, value: Value) -> str:
    """What a number with a unit may mean (`16k` is 16,384 tokens), else the bound that it oversteps."""
    spelt = re.fullmatch(r"\s*(\d{1,6})\s*k(?:ilo)?\s*", value, re.IGNORECASE) if isinstance(value, str) else None
    plain = re.match(r"\s*(\d{1,12}(?:\.\d{1,6})?)", value) if isinstance(value, str) else None
    if spelt:
        number: float = int(spelt[1]) * 1024
    elif plain:
        number = float(plain[1])
    else:
        counted = isinstance(value, int) or (isinstance(value, float) and not math.isnan(value))
        number = min(max(value, key.low), key.high) if counted and isinstance(value, int | float) else key.low
    number = min(max(number, key.low), key.high)
    return str(round(number)) if key.kind == "int" else f"{number:g}"


def _reward_mistakes(value: Value, at: str) -> Iterator[Mistake]:
    fix = '[[reward]]\nkind = "math"'
    if not isinstance(value, list) or not value:
        yield Mistake(where=at, what=f"{_shown(value)} is not a list of tables", fix=fix)
        return
    for index, row in enumerate(value):
        here = f"{at}[{index}]"
        if not isinstance(row, Mapping):
            yield Mistake(where=here, what="not a table", fix=fix)
            continue
        for extra in sorted(set(row) - set(_REWARD_KEYS)):
            near = nearest(str(extra), _REWARD_KEYS)
            yield Mistake(where=f"{here}.{extra}", what=f"no such key. {near}".strip(), fix="remove it")
        kind = row.get("kind")
        if not (isinstance(kind, str) and (kind in _REWARD_KINDS or kind.startswith("python:"))):
            choices = f"{', '.join(_REWARD_KINDS)} or python:package.module:function"
            what = f"{_shown(kind)} is none of {choices}" if "kind" in row else f"a reward needs its kind: {choices}"
            yield Mistake(where=f"{here}.kind", what=what, fix='kind = "math"')
        weight = row.get("weight", 1.0)
        if wrong := _wrong_number(Key("weight", "float", "", -1000, 1000), weight):
            yield Mistake(where=f"{here}.weight", what=wrong, fix="weight = 1.0")
        yield from _verifier_mistakes(row, here)
        if kind != "model" and (useless := sorted({"model", "base_precision", "placement"} & set(row))):
            what = f"no effect: a {kind} reward has no network"
            yield Mistake(where=f"{here}.{useless[0]}", what=what, fix='remove it, or kind = "model"')
        placement = row.get("placement", "device")
        if kind == "model" and placement not in ("device", "offload"):
            what = f"{_shown(placement)} is not device or offload"
            yield Mistake(where=f"{here}.placement", what=what, fix='placement = "offload"')
        for name in ("model", "base_precision"):
            if name in row and not isinstance(row[name], str):
                yield Mistake(where=f"{here}.{name}", what=f"{_shown(row[name])} is not a name", fix=f'{name} = "…"')


def _verifier_mistakes(row: Mapping[object, Value], here: str) -> Iterator[Mistake]:
    """Seconds a completion and workers of a reward function."""
    for name, key in (
        ("seconds", Key("seconds", "float", "seconds of one completion", 0, 10**6)),
        ("workers", Key("workers", "int", "completions checked at once", 1, 10**6)),
    ):
        if name in row and (wrong := _wrong_number(key, row[name])):
            yield Mistake(where=f"{here}.{name}", what=wrong, fix=f"{name} = {key.low:g}   # {key.meaning}")
    if row.get("kind") == "model" and (useless := sorted({"seconds", "workers"} & set(row))):
        yield Mistake(where=f"{here}.{useless[0]}", what="no effect: a network's time is planned", fix="remove it")
    elif "workers" in row and "seconds" not in row:
        yield Mistake(where=f"{here}.workers", what="no effect without seconds", fix="seconds = 0.5")


def _group_mistakes(path: str, value: Value, at: str) -> Iterator[Mistake]:
    if not isinstance(value, Mapping):
        yield Mistake(where=at, what=f"{_shown(value)} is not a table", fix='roles = { critic = "critic" }')
        return
    for name, inside in value.items():
        here = f"{at}.{name}"
        if path == "layout.roles":
            if name not in _ROLES or not isinstance(inside, str):
                yield Mistake(
                    where=here, what=f"a role ({', '.join(_ROLES)}) is put on a named group", fix='critic = "critic"'
                )
            continue
        if not isinstance(inside, Mapping) or "gpus" not in inside:
            yield Mistake(where=here, what="a group of GPUs needs gpus", fix="gpus = 8")
            continue
        for extra in sorted(set(inside) - set(_GROUP_KEYS)):
            yield Mistake(where=f"{here}.{extra}", what=f"no such key. {nearest(extra, _GROUP_KEYS)}", fix="remove it")
        for key in set(inside) & set(_GROUP_KEYS):
            wrong = _wrong(KEYS["hardware.gpus" if key == "gpus" else f"layout.{key}"], inside[key])
            if wrong:
                yield Mistake(
                    where=f"{here}.{key}",
                    what=wrong,
                    fix=_example(KEYS.get(f"layout.{key}", KEYS["hardware.gpus"]), inside[key]),
                )
