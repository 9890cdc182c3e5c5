"""What is the stable JSON form of a plan and of a comparison?

`schema` names form and version; keys are only ever added within a version. Bytes, seconds, dollars: plain numbers.
docs/json.md lists every key.
"""

from __future__ import annotations

from typing import Any

from headcount.ledger.derivation import Derived
from headcount.ledger.predicted import Assumption, Band, Footprint, Moment, Plan, Resident, Row, Seconds, Stage
from headcount.plan.compare import Compared, Comparison

__all__ = ["comparison_json", "derived_json", "plan_json", "row_json", "seconds_json"]

PLAN_SCHEMA = "headcount.plan/1"
COMPARE_SCHEMA = "headcount.compare/1"


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan, every moment and row included."""
    deciding = plan.deciding
    return {
        "schema": PLAN_SCHEMA,
        "name": plan.name,
        "algorithm": str(plan.algorithm),
        "model": plan.model,
        "gpu": plan.gpu,
        "gpus": plan.gpus,
        "verdict": str(plan.verdict),
        "because": plan.tightest.because,
        "deciding": {"group": plan.tightest.group, "moment": deciding.label, "row": _largest_row(deciding)},
        "levels_bytes": {str(level): _band(band) for level, band in plan.levels.items()},
        "headcount": [_resident(resident) for resident in plan.headcount],
        "footprints": [_footprint(footprint) for footprint in plan.footprints],
        "stages": [_stage(stage) for stage in plan.stages],
        "assumptions": [_assumption(assumption) for assumption in plan.assumptions],
        "settings": [
            {"key": key, "value": _plain(value), "origin": str(origin), "source": text}
            for key, value, origin, text in plan.settings
        ],
        "fixes": list(plan.fixes),
        "warnings": list(plan.warnings),
        "disk": [row_json(row) for row in plan.disk_bytes],
    }


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison: each variant's plan at its fewest GPUs and at the common count, and its pipeline."""
    return {
        "schema": COMPARE_SCHEMA,
        "model": comparison.model,
        "gpu": comparison.gpu,
        "workload": comparison.workload,
        "common_gpus": comparison.common_gpus,
        "variants": [_compared(compared) for compared in comparison.compared],
    }


def _compared(compared: Compared) -> dict[str, Any]:
    return {
        "name": compared.variant.name,
        "algorithm": str(compared.variant.algorithm),
        "note": compared.variant.note,
        "fewest": plan_json(compared.smallest) if compared.smallest else None,
        "common": plan_json(compared.common) if compared.common else None,
        "pipeline": [_stage(stage) for stage in compared.pipeline],
        "why_not": compared.why_not,
    }


def row_json(row: Row) -> dict[str, Any]:
    """One row with its derivation."""
    return {
        "key": row.key,
        "phase": str(row.phase),
        "role": str(row.role) if row.role else None,
        "item": row.item,
        "bytes": row.bytes,
        "band_bytes": _band(row.band),
        "basis": str(row.basis),
        "derivation": derived_json(row.amount),
        "terms": {name: derived_json(term) for name, term in row.terms},
        "shrinks_with": list(row.shrinks_with),
        "reads": list(row.reads),
        "note": row.note,
        "allocator": row.allocator,
    }


def derived_json(amount: Derived) -> dict[str, Any]:
    """Formula, numbers, value, source."""
    return {
        "value": amount.value,
        "formula": amount.formula,
        "numbers": amount.numbers,
        "inputs": dict(amount.inputs),
        "source": amount.source,
    }


def seconds_json(part: Seconds) -> dict[str, Any]:
    """One part of a stage: band in seconds, formula with its numbers, basis, measurement that it went through."""
    refit = {"refit": part.refit} if part.refit else {}
    return {**_band(part.band), "because": part.because, "basis": str(part.basis), **refit}


def _band(band: Band) -> dict[str, float]:
    return {"p10": band.p10, "p50": band.p50, "p90": band.p90}


def _largest_row(moment: Moment) -> str:
    return max(moment.rows, key=lambda row: row.bytes).key


def _moment(moment: Moment) -> dict[str, Any]:
    return {
        "moment": moment.label,
        "phase": str(moment.phase),
        "acting": str(moment.acting) if moment.acting else None,
        "name": moment.name,
        "bytes": moment.bytes,
        "allocated_bytes": moment.allocated_bytes,
        "rows": [row_json(row) for row in moment.rows],
    }


def _footprint(footprint: Footprint) -> dict[str, Any]:
    return {
        "group": footprint.group,
        "gpus": footprint.gpus,
        "layout": footprint.layout,
        "verdict": str(footprint.verdict),
        "because": footprint.because,
        "capacity_bytes": list(footprint.capacity_bytes),
        "host_capacity_bytes": footprint.host_capacity_bytes,
        "levels_bytes": {str(level): _band(band) for level, band in footprint.levels.items()},
        "moments": [_moment(moment) for moment in footprint.moments],
        "host_moments": [_moment(moment) for moment in footprint.host_moments],
    }


def _resident(resident: Resident) -> dict[str, Any]:
    return {
        "role": str(resident.role),
        "tier": str(resident.tier),
        "model": resident.model,
        "parameters": resident.parameters,
        "trained_parameters": resident.trained_parameters,
        "state_bytes": resident.state_bytes,
        "group": resident.group,
        "weights_of": str(resident.weights_of) if resident.weights_of else None,
        "note": resident.note,
    }


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "gpus": stage.gpus,
        "steps": stage.steps,
        "step_s": {part.name: seconds_json(part) for part in stage.step},
        "hours": _band(stage.hours),
        "gpu_hours": _band(stage.gpu_hours),
        "dollars": _band(stage.dollars) if stage.dollars else None,
        "price_source": stage.price_source,
        "around": stage.around,
        "idle_gpu_hours": stage.idle_gpu_hours,
        "energy_dollars": _band(stage.energy_dollars) if stage.energy_dollars else None,
    }


def _assumption(assumption: Assumption) -> dict[str, Any]:
    return {
        "key": assumption.key,
        "value": _plain(assumption.value),
        "text": assumption.text,
        "alternatives": [
            {"value": _plain(value), "peak_change_bytes": change} for value, change in assumption.alternatives
        ],
    }


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str | None) else str(value)
