"""Which shape does a model's name mean?

In this order: a config.json or its folder on disk; the shipped table (`data/models.toml`) by id, alias or the part
after the slash, in any case and with any of `-`, `_`, space or nothing between the words; a bare size (`7b`), which
picks a stated representative; the hub. Never a near match.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from headcount.errors import InputError, Mistake, UnknownFact, nearest
from headcount.facts.config_file import read_config_file
from headcount.facts.families import read_shape
from headcount.facts.model_shape import ModelShape, MoeMlp

__all__ = ["find_model", "known_models", "known_sizes"]

_TABLE = Path(__file__).parent / "data" / "models.toml"
_HEADER = re.compile(r"^\[\[(?:model|size)\]\]$", re.MULTILINE)
_SIZE = re.compile(r"\d+(?:\.\d+)?[bm](?:-a\d+(?:\.\d+)?b)?", re.IGNORECASE)
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_SEPARATORS = str.maketrans("", "", "-_ ")
_MAX_NAME = 4096  # the longest path that Linux takes

Row = Mapping[str, Any]


def find_model(name: str) -> ModelShape:
    """The shape of `name`: file, folder, shipped id or alias, bare size, hub id. UnknownFact says what to do else."""
    wanted = name.strip()
    if not wanted or len(wanted) > _MAX_NAME or "\0" in wanted:
        raise InputError.one("model", "is empty or no name at all", "name a hub id, a config.json or a size like 7b")
    path = _local(wanted)
    if path is not None:
        return read_shape(read_config_file(path), name=str(path), source=f"read from {path}.")
    row = _row_named(wanted)
    if row is not None:
        return _shape_of(row, name=_full_name(row, wanted))
    if _SIZE.fullmatch(wanted):
        return _representative(wanted)
    return _from_hub(wanted)


def _local(wanted: str) -> Path | None:
    """The file or folder that is meant: spelled like a path, or a folder here that holds a config.json."""
    spelled = wanted.endswith(".json") or wanted.startswith(("/", "./", "../", "~"))
    try:
        path = Path(wanted).expanduser()
        return path if spelled or (path / "config.json").is_file() else None
    except (OSError, RuntimeError) as error:  # a name too long for the file system, a home that does not exist
        if not spelled:
            return None
        raise InputError.one(wanted[:200], f"is no path here ({error})", "name a config.json that exists") from None


# --- the shipped table -----------------------------------------------------------------------------------------------


@cache
def _table_text() -> str:
    return _TABLE.read_text(encoding="utf-8")


@cache
def _row_texts() -> tuple[str, ...]:
    """The table cut into its rows: one lookup parses one row, not ninety."""
    text = _table_text()
    starts = [found.start() for found in _HEADER.finditer(text)]
    return tuple(text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True))


def _plain(name: str) -> str:
    """`Llama-3.1-70B`, `llama 3.1 70b` and `LLAMA3.1_70B` are one name."""
    return name.lower().translate(_SEPARATORS)


def _rows_that_mention(wanted: str) -> list[Row]:
    quoted = (f'"{_plain(wanted)}"', f'/{_plain(wanted)}"')
    texts = (text for text in _row_texts() if text.startswith("[[model]]"))
    return [tomllib.loads(text)["model"][0] for text in texts if any(quote in _plain(text) for quote in quoted)]


def _names(row: Row) -> list[str]:
    return [row["id"], *row.get("aliases", ())]


def _row_named(wanted: str) -> Row | None:
    """The one row with this name. Two rows with the same short name are an error that lists both."""
    plain = _plain(wanted)
    full: list[Row] = []
    short: list[Row] = []
    for row in _rows_that_mention(wanted):
        names = [_plain(known) for known in _names(row)]
        if plain in names:
            full.append(row)
        elif plain in (known.rpartition("/")[2] for known in names):
            short.append(row)
    rows = full or short
    if len(rows) > 1:
        ids = ", ".join(row["id"] for row in rows)
        raise InputError.one("model", f"{wanted!r} names more than one model", f"write one of: {ids}")
    return rows[0] if rows else None


def _full_name(row: Row, wanted: str) -> str:
    """The row's own spelling of what was asked."""
    plain = _plain(wanted)
    matching = [known for known in _names(row) if plain in (_plain(known), _plain(known).rpartition("/")[2])]
    return min(matching, key=lambda known: _plain(known) != plain)


def _config_of(row: Row) -> dict[str, Any]:
    """The config keys of a row; `like` names the row whose keys it starts from; "null" is JSON's null."""
    own = {key: None if value == "null" else value for key, value in row.get("config", {}).items()}
    if "like" not in row:
        return own
    base = _row_named(row["like"])
    assert base is not None, f"models.toml: {row['id']} is like {row['like']}, which is no row"
    return _config_of(base) | own


def _shape_of(row: Row, *, name: str) -> ModelShape:
    same = "" if name == row["id"] else f" ({name} has the shape of {row['id']})"
    return read_shape(_config_of(row), name=name, source=f"{row['source']}{same}")


def known_models() -> list[tuple[str, str, str]]:
    """Every shipped model: id, shape in a few words, source."""
    rows = tomllib.loads(_table_text())["model"]
    return [(row["id"], _summary(_shape_of(row, name=row["id"])), row["source"]) for row in rows]


def known_sizes() -> list[tuple[str, str]]:
    """Every bare size that `find_model` takes, with the model that stands for it."""
    return [(row["name"], row["model"]) for row in tomllib.loads(_table_text())["size"]]


def _summary(shape: ModelShape) -> str:
    last = shape.block(-1)
    mlp, attention = last.mlp, last.attention
    width = f"{mlp.experts} experts of {mlp.width}, {mlp.active} active" if isinstance(mlp, MoeMlp) else f"{mlp.width}"
    return (
        f"{shape.family}: {shape.layers} layers × {shape.hidden}, {attention.heads}/{attention.kv_heads} heads of "
        f"{attention.head_dim}, MLP {width}, vocabulary {shape.vocab:,}{', tied' if shape.tied else ''}"
    )


# --- a bare size -----------------------------------------------------------------------------------------------------


def _representative(size: str) -> ModelShape:
    """The model that stands for a bare size; its name and source say that it was picked."""
    known = dict(known_sizes())
    if size.lower() not in known:
        what = f"{size!r} is a size that no representative model is named for"
        raise UnknownFact.one("model", what, f"name a model, or one of these sizes: {', '.join(known)}")
    row = _row_named(known[size.lower()])
    assert row is not None, f"models.toml: size {size} names no row"
    source = f"{row['source']} (picked to stand for the bare size {size.lower()})"
    return read_shape(_config_of(row), name=f"{row['id']} (stands for {size.lower()})", source=source)


# --- the hub ---------------------------------------------------------------------------------------------------------


def _from_hub(wanted: str) -> ModelShape:
    """The config.json of a hub id, from the local cache or the network."""
    if not _HUB_ID.fullmatch(wanted):
        raise _unknown(wanted, "it is neither a file, a name in the table, a size nor a hub id (owner/name)")
    try:
        file = _hub_config(wanted)
    except Exception as error:  # gated, absent, interrupted: whatever it is, the user can only name a file
        raise _unknown(wanted, f"the hub gave no config.json ({type(error).__name__})") from None
    if file is None:
        raise _unknown(wanted, "the hub is not reachable from here, nor is its config.json in the local cache")
    return read_shape(read_config_file(Path(file)), name=wanted, source=f"huggingface.co/{wanted} config.json.")


def _hub_config(wanted: str) -> str | None:
    """Path of the downloaded config.json; None when offline and not in the cache."""
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache  # noqa: PLC0415  half a second

    if constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT):
        cached = try_to_load_from_cache(wanted, "config.json")
        return cached if isinstance(cached, str) else None
    return hf_hub_download(wanted, "config.json")


def _reachable(endpoint: str) -> bool:
    """Does the hub's name resolve? Without this, an offline machine waits 23 s for the library's retries."""
    from socket import getaddrinfo  # noqa: PLC0415  these three load half of the standard library
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import getproxies  # noqa: PLC0415

    address = urlsplit(endpoint)
    if getproxies().get(address.scheme):
        return True
    try:
        getaddrinfo(address.hostname, address.port or address.scheme)
    except OSError:
        return False
    return True


def _unknown(wanted: str, why: str) -> UnknownFact:
    near = nearest(wanted, (known for row in tomllib.loads(_table_text())["model"] for known in _names(row)))
    otherwise = "save the model's config.json and name that file; `headcount facts models` lists the shipped ones"
    fix = f"{near} Else {otherwise}" if near else otherwise
    what = f"{wanted[:100]!r} is not in the shipped table, and {why}"
    return UnknownFact([Mistake(where="model", what=what, fix=fix)])
