"""Which shape does a model's name mean?

In this order: a config.json or its folder on disk; the shipped table (`data/models.toml`) by id, alias or the part
after the slash, any case; a bare size (`7b`), which picks a stated representative; the hub. Never a near match.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from socket import getaddrinfo
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from headcount.errors import InputError, Mistake, UnknownFact, nearest
from headcount.facts.config_file import read_config_file
from headcount.facts.families import read_shape
from headcount.facts.model_shape import ModelShape, MoeMlp

__all__ = ["find_model", "known_models", "known_sizes"]

_HEADER = re.compile(r"^\[\[(?:model|size)\]\]$", re.MULTILINE)
_SIZE = re.compile(r"\d+(?:\.\d+)?[bm](?:-a\d+(?:\.\d+)?b)?", re.IGNORECASE)
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_MAX_NAME = 4096  # the longest path that Linux takes

Row = Mapping[str, Any]


def find_model(name: str) -> ModelShape:
    """The shape of `name`: file, folder, shipped id or alias, bare size, hub id. UnknownFact says what to do else."""
    wanted = name.strip()
    if not wanted or len(wanted) > _MAX_NAME or "\0" in wanted:
        raise InputError.one("model", "is empty or no name at all", "name a hub id, a config.json or a size like 7b")
    path = Path(wanted).expanduser()
    if wanted.endswith(".json") or path.is_dir():
        return read_shape(read_config_file(path), name=str(path), source=f"read from {path}.")
    row = _row_named(wanted)
    if row is not None:
        return _shape_of(row, name=_full_name(row, wanted))
    if _SIZE.fullmatch(wanted):
        return _representative(wanted)
    return _from_hub(wanted)


# --- the shipped table -----------------------------------------------------------------------------------------------


@cache
def _table_text() -> str:
    return resources.files("headcount.facts").joinpath("data/models.toml").read_text(encoding="utf-8")


@cache
def _row_texts() -> tuple[str, ...]:
    """The table cut into its rows: one lookup parses one row, not ninety."""
    text = _table_text()
    starts = [found.start() for found in _HEADER.finditer(text)]
    return tuple(text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True))


def _rows_that_mention(wanted: str, table: str) -> list[Row]:
    quoted = (f'"{wanted.lower()}"', f'/{wanted.lower()}"')
    texts = (text for text in _row_texts() if text.startswith(f"[[{table}]]"))
    return [tomllib.loads(text)[table][0] for text in texts if any(quote in text.lower() for quote in quoted)]


def _names(row: Row) -> list[str]:
    return [row["id"], *row.get("aliases", ())]


def _answers(row: Row, wanted: str) -> bool:
    """True when `wanted` is one of the row's names, or the part after the slash of one."""
    return any(wanted.lower() in (known.lower(), known.lower().rpartition("/")[2]) for known in _names(row))


def _row_named(wanted: str) -> Row | None:
    """The one row with this name. Two rows with the same short name are an error that lists both."""
    rows = [row for row in _rows_that_mention(wanted, "model") if _answers(row, wanted)]
    exact = [row for row in rows if wanted.lower() in (known.lower() for known in _names(row))]
    rows = exact or rows
    if len(rows) > 1:
        ids = ", ".join(row["id"] for row in rows)
        raise InputError.one("model", f"{wanted!r} names more than one model", f"write one of: {ids}")
    return rows[0] if rows else None


def _full_name(row: Row, wanted: str) -> str:
    """The row's own spelling of what was asked."""
    lower = wanted.lower()
    matching = [known for known in _names(row) if lower in (known.lower(), known.lower().rpartition("/")[2])]
    return min(matching, key=lambda known: known.lower() != lower)


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
        from huggingface_hub import hf_hub_download  # noqa: PLC0415  half a second that a shipped id need not pay

        file = hf_hub_download(wanted, "config.json")
    except Exception as error:
        raise _unknown(wanted, f"the hub gave no config.json ({type(error).__name__})") from None
    return read_shape(read_config_file(Path(file)), name=wanted, source=f"huggingface.co/{wanted} config.json.")


def _reachable(endpoint: str) -> bool:
    """Does the hub's name resolve? Without this, an offline machine waits 23 s for the library's retries."""
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
    fix = (
        f"{near} Else save the model's config.json and name that file"
        if near
        else ("save the model's config.json and name that file, or see `headcount facts models` for the shipped ones")
    )
    what = f"{wanted[:100]!r} is not in the shipped table, and {why}"
    return UnknownFact([Mistake(where="model", what=what, fix=fix)])
