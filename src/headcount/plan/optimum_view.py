"""How is a search shown: the best layouts, what they cost, why the rest was passed over, what to paste?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headcount.ledger.predicted import Band
from headcount.plan.optimum import Choice, Searched
from headcount.units import bytes_text, duration_text, money_text

__all__ = ["search_json", "search_view", "toml_of"]


def search_view(found: Searched, *, unit: str = "GiB") -> RenderableType:
    """Tables of the best and of the trade-offs, the winner's settings to paste, rejections by reason."""
    parts: list[RenderableType] = []
    if found.chosen is None:
        parts.append(Text("No layout fits.", style="bold"))
        parts += _missed(found, unit)
    else:
        parts.append(_table("Best layouts", found.best, unit))
        if len(found.front) > 1:
            parts.append(_table("Trade-offs: no other is at most as many GPUs, hours and dollars", found.front, unit))
        parts.append(Text("The winner, to paste into the job:\n" + toml_of(found.chosen)))
    parts.append(Text(f"{found.candidates:,} candidates"))
    parts += [Text(f"  {count:>9,}  {reason}") for reason, count in found.rejected.items()]
    return Group(*parts)


def _missed(found: Searched, unit: str) -> Iterator[RenderableType]:
    if found.nearest is not None:
        near = found.nearest
        need = bytes_text(near.need.p50, unit=unit)
        yield Text(f"Nearest: {near.layout} needs {need} a GPU ({near.verdict}), peak at {near.deciding}")
    for fix in found.fixes:
        yield Text(f"  {fix}")


def _table(title: str, choices: Sequence[Choice], unit: str) -> Table:
    """What differs between the choices; a setting that all share stands under the table."""
    cells = [_cells(choice, unit) for choice in choices]
    same = {name for name in _SETTINGS if len({row[name] for row in cells}) == 1}
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for name in (name for name in cells[0] if name not in same):
        table.add_column(name, justify="left" if name in _LEFT else "right", overflow="fold", no_wrap=name not in _LEFT)
    for row in cells:
        table.add_row(*(value for name, value in row.items() if name not in same))
    shared = ", ".join(
        f"{name} {cells[0][name]}" for name in cells[0] if name in same and cells[0][name] != "as stated"
    )
    table.caption = f"{'All of them' if len(cells) > 1 else 'With'}: {shared}" if shared else None
    return table


_SETTINGS = ("card", "micro-batch", "kept", "engine")
_LEFT = ("card", "layout", "kept", "engine")


def _cells(choice: Choice, unit: str) -> dict[str, str]:
    return {
        "GPUs": f"{choice.gpus:,}",
        "card": choice.gpu,
        "layout": choice.layout.partition(": ")[2] if choice.layout.count("GPUs:") == 1 else choice.layout,
        "micro-batch": str(choice.settings.get("update.micro_batch_sequences", "as stated")),
        "kept": _kept(choice.settings),
        "engine": _engine(choice.settings),
        "a step": duration_text(choice.step_s),
        "hours": _range(choice.hours),
        "dollars": money_text(choice.dollars.p50) if choice.dollars else "no price",
        "peak a GPU": bytes_text(choice.need.p50, unit=unit),
    }


def _kept(settings: Mapping[str, object]) -> str:
    """What checkpointing leaves, in a word."""
    words = {"none": "all activations", "selective": "matrix products", "full": "block inputs"}
    return words.get(str(settings.get("update.gradient_checkpointing")), "as stated")


def _engine(settings: Mapping[str, object]) -> str:
    names = {"rollout.engine_gpus": "GPUs", "rollout.engine_tensor": "tensor", "rollout.memory_fraction": "share"}
    return ", ".join(f"{word} {settings[key]}" for key, word in names.items() if key in settings) or "as stated"


def _range(band: Band) -> str:
    return f"{band.p50:,.1f} ({band.p10:,.1f}–{band.p90:,.1f})"


def toml_of(choice: Choice) -> str:
    """The winner's settings as tables of a job file."""
    return "\n".join(_toml_lines({"hardware.gpus": choice.train_gpus, **choice.settings}.items()))


def _toml_lines(settings: Iterable[tuple[str, object]]) -> Iterator[str]:
    sections: dict[str, list[str]] = {}
    for key, value in settings:
        section, _, leaf = key.rpartition(".")
        sections.setdefault(section, []).append(f"{leaf} = {json.dumps(value)}")
    for section, lines in sections.items():
        yield f"[{section}]"
        yield from lines


def search_json(found: Searched) -> dict[str, Any]:
    """The stable form (docs/json.md)."""
    return {
        "schema": "headcount.search/1",
        "candidates": found.candidates,
        "rejected": dict(found.rejected),
        "best": [_choice(choice) for choice in found.best],
        "front": [_choice(choice) for choice in found.front],
        "nearest": _choice(found.nearest) if found.nearest else None,
        "fixes": list(found.fixes),
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "gpu": choice.gpu,
        "gpus": choice.gpus,
        "train_gpus": choice.train_gpus,
        "layout": choice.layout,
        "settings": dict(choice.settings),
        "verdict": str(choice.verdict),
        "need_bytes": _band(choice.need),
        "deciding": choice.deciding,
        "step_s": choice.step_s,
        "hours": _band(choice.hours),
        "gpu_hours": choice.gpu_hours,
        "dollars": _band(choice.dollars) if choice.dollars else None,
        "idle_gpu_hours": choice.idle_gpu_hours,
    }


def _band(band: Band) -> dict[str, float]:
    return {"p10": band.p10, "p50": band.p50, "p90": band.p90}
