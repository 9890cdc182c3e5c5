"""What does headcount know, with source and date?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.table import Table

from headcount.errors import InputError, nearest
from headcount.facts.gpu import gpus
from headcount.facts.link import fabrics
from headcount.facts.models import known_models
from headcount.facts.optimizer import optimizers
from headcount.facts.overhead import overheads
from headcount.facts.precision import frozen_precisions, precisions
from headcount.facts.price import prices
from headcount.facts.recipe import recipes
from headcount.units import GB, GIB

__all__ = ["KINDS", "facts_rows", "facts_table"]

Rows = list[dict[str, Any]]


def _gpu_rows() -> Rows:
    return [
        {
            "id": gpu.id,
            "aliases": ", ".join(gpu.aliases),
            "marketed_gb": round(gpu.marketed_bytes / GB, 1),
            "usable_gib": " to ".join(f"{size / GIB:.2f}" for size in dict.fromkeys(gpu.capacity_bytes)),
            "gb_per_s": None if gpu.bytes_per_s is None else round(gpu.bytes_per_s / GB),
            "bf16_tflops": round(gpu.flops_per_s["bf16"] / 1e12, 1) if "bf16" in gpu.flops_per_s else None,
            "fp8_tflops": round(gpu.flops_per_s["fp8"] / 1e12, 1) if "fp8" in gpu.flops_per_s else None,
            "link_gb_per_s": None if gpu.link_bytes_per_s is None else round(gpu.link_bytes_per_s / GB),
            "source": gpu.source,
            "date": gpu.date,
        }
        for gpu in gpus().values()
    ]


def _fabric_rows() -> Rows:
    return [
        {
            "id": fabric.id,
            "name": fabric.name,
            "gb_per_s_per_gpu": fabric.bytes_per_s / GB,
            "latency_us": round(fabric.latency_s * 1e6),
            "source": fabric.source,
            "date": fabric.date,
        }
        for fabric in fabrics().values()
    ]


def _price_rows() -> Rows:
    return [
        {
            "gpu": row.gpu,
            "provider": row.provider,
            "instance": row.instance,
            "gpus": row.instance_gpus,
            "region": row.region,
            "on_demand_usd": row.on_demand_usd,
            "spot_usd": row.spot_usd,
            "source": row.source,
            "date": row.date,
        }
        for row in prices()
    ]


def _precision_rows() -> Rows:
    trained = [
        {"name": p.name, "bytes": p.total_bytes, "holds": p.meaning, "source": p.source} for p in precisions().values()
    ]
    frozen = [
        {"name": p.name, "bytes": round(p.weight_bytes, 4), "holds": "frozen weights", "source": p.source}
        for p in frozen_precisions().values()
    ]
    return trained + frozen


def _optimizer_rows() -> Rows:
    return [
        {
            "name": o.name,
            "moments": o.moments,
            "moment_bytes": o.moment_bytes or "as the policy",
            "step": f"{o.step_copies:g} copies" if not o.step_largest else f"{o.step_largest:g} × largest tensor",
            "paged": o.paged,
            "source": o.source,
        }
        for o in optimizers().values()
    ]


def _overhead_rows() -> Rows:
    return [
        {
            "name": o.name,
            "low_gib": round(o.low_bytes / GIB, 2),
            "typical_gib": round(o.typical_bytes / GIB, 2),
            "high_gib": round(o.high_bytes / GIB, 2),
            "meaning": o.meaning,
            "source": o.source,
            "date": o.date,
        }
        for o in overheads().values()
    ]


def _recipe_rows() -> Rows:
    return [
        {
            "recipe": recipe.name,
            "version": recipe.version,
            "key": setting.key,
            "value": setting.value,
            "when": setting.condition,
            "assumed": bool(setting.alternatives),
            "source": setting.source,
        }
        for recipe in recipes().values()
        for setting in recipe.settings
    ]


def _model_rows() -> Rows:
    return [{"model": name, "shape": summary, "source": source} for name, summary, source in known_models()]


KINDS: Mapping[str, Callable[[], Rows]] = {
    "gpus": _gpu_rows,
    "models": _model_rows,
    "fabrics": _fabric_rows,
    "prices": _price_rows,
    "precisions": _precision_rows,
    "optimizers": _optimizer_rows,
    "overheads": _overhead_rows,
    "recipes": _recipe_rows,
}


def facts_rows(kind: str) -> Rows:
    """Every row of one kind, as plain values."""
    if kind not in KINDS:
        what = f"{kind!r} is not a kind of fact. {nearest(kind, KINDS)}".strip()
        raise InputError.one("facts", what, f"one of {', '.join(KINDS)}")
    return KINDS[kind]()


def facts_table(kind: str, rows: Rows) -> Table:
    """The rows for a terminal."""
    table = Table(title=f"{len(rows)} {kind}", box=box.SIMPLE_HEAD, title_justify="left")
    for place, name in enumerate(rows[0]):
        numbers = all(isinstance(row[name], int | float | None) and not isinstance(row[name], bool) for row in rows)
        heading, side = name.replace("_", " "), "right" if numbers else "left"
        table.add_column(heading, justify=side, overflow="fold", no_wrap=place == 0)  # the name stays in one piece
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: object) -> str:
    words = {None: "–", True: "yes", False: "no"}
    return words[value] if value is None or isinstance(value, bool) else str(value)
