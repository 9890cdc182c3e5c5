"""Which job does a published RL step describe?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError
from headcount.job.job import Job
from headcount.job.load import spec_from
from headcount.ledger.predicted import Band, Plan
from headcount.measure.time_rows.decode import Skipped
from headcount.measure.time_rows.shapes import table_shape

__all__ = ["RlRow", "rl_rows"]

_PROMPT = 150  # tokens of a mathematics prompt with its template, where only whole rows are known
_GPUS = {"h100 80gb": "h100-sxm5-80gb", "h20 96gb": "h20-96gb"}
_GROUP = 16  # samples of a prompt; it only decides how often a prompt is prefilled


@dataclass(frozen=True, kw_only=True, slots=True)
class RlRow:
    """One published step: its seconds, and those of its phases where they are printed."""

    id: str
    family: tuple[str, str, str]
    predicted_s: Band
    observed_s: float
    predicted_share: float  # of generation in the step
    observed_share: float | None
    job: Job


def rl_rows(rows: Iterable[Mapping[str, Any]], *, plan: Callable[[Job], Plan]) -> Iterator[RlRow | Skipped]:
    """Every row whose lengths and batch are stated."""
    for number, row in enumerate(rows, 1):
        name = str(row.get("id") or f"{row.get('source', 'row')}-{number}")
        try:
            yield _scored(name, row, plan)
        except HeadcountError as error:
            yield Skipped(name, " ".join(str(error).split())[:160])
        except (KeyError, TypeError, ValueError, ZeroDivisionError, IndexError) as error:
            yield Skipped(name, f"a field is missing or has no sense: {type(error).__name__} {error}")


class _Refused(HeadcountError):
    """A row that says too little, or contradicts itself."""


def _scored(name: str, row: Mapping[str, Any], plan: Callable[[Job], Plan]) -> RlRow:
    step_s, lengths = row.get("step_time_s"), row.get("mean_seq_len_tokens")
    if not step_s:
        raise _Refused("no step time")
    if not lengths or not row.get("rollout_batch_samples"):
        raise _Refused("lengths or batch are not stated")
    _own_rate(row)
    job = spec_from(_settings(row), where=name).build(gpus=_train_gpus(row))
    stage = plan(job).run
    if stage is None:
        raise _Refused("no speed is known for this card")
    generate = next((part.band.p50 for part in stage.step if part.name == "generate"), 0.0)
    observed = row.get("generation_s")
    return RlRow(
        id=name,
        family=(str(row["framework"]), job.policy.shape.name, job.gpu.id),
        predicted_s=stage.step_seconds,
        observed_s=float(step_s),
        predicted_share=generate / stage.step_seconds.p50,
        observed_share=float(observed) / float(step_s) if observed else None,
        job=job,
    )


def _own_rate(row: Mapping[str, Any]) -> None:
    """The row's tokens a second times its seconds must be its tokens."""
    rate = row.get("tok_s_per_gpu_end_to_end")
    if rate:
        tokens = float(row["rollout_batch_samples"]) * float(row["mean_seq_len_tokens"])
        implied = tokens / (float(rate) * int(row["gpus"]))
        if not 0.75 < implied / float(row["step_time_s"]) < 1.33:
            raise _Refused(f"its own rate implies {implied:,.0f} s a step, it states {row['step_time_s']} s")


def _asynchronous(row: Mapping[str, Any]) -> bool:
    return "off" in str(row.get("policy_mode") or "").lower() or "async" in str(row.get("policy_mode") or "").lower()


def _train_gpus(row: Mapping[str, Any]) -> int:
    """Half of the GPUs train in an asynchronous run that does not say; all of them in a colocated one."""
    return int(row["gpus"]) // 2 if _asynchronous(row) else int(row["gpus"])


def _settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """The job file of a row."""
    if str(row.get("algorithm")).upper() not in ("GRPO", "DAPO"):
        raise _Refused(f"{row.get('algorithm')} rows say too little")
    samples, train = int(row["rollout_batch_samples"]), int(row.get("train_batch_samples") or 0)
    mean, most = float(row["mean_seq_len_tokens"]), int(row["max_seq_len_tokens"])
    prompts = max(1, samples // _GROUP)
    apart = _asynchronous(row)
    rollout: dict[str, Any] = {
        "prompts_per_step": prompts,
        "group_size": _GROUP,
        "completion_tokens": {"mean": max(1.0, mean - _PROMPT), "max": max(1, most - _PROMPT)},
        "engine_tensor": _numbers(row["generation_tp_pp"])[0],
    }
    if apart:
        rollout |= {"engine_placement": "separate", "engine_gpus": int(row["gpus"]) - _train_gpus(row), "staleness": 1}
    precision = str(row.get("precision") or "")
    if precision.upper() == "FP8":
        rollout["engine_precision"] = "fp8"
    return {
        "algorithm": "grpo",
        "recipe": "nemo-rl-megatron",
        "policy": {"model": table_shape(str(row["model"])).name},
        "reward": [{"kind": "math"}],
        "data": {"prompt_tokens": _PROMPT},
        "rollout": rollout,
        "update": {"mini_batch_prompts": max(1, train // _GROUP) if train else prompts, "beta": 0.01},
        "hardware": {"gpu": _GPUS.get(str(row["gpu"]).lower(), str(row["gpu"]))},
        "layout": _layout(row),
    }


def _layout(row: Mapping[str, Any]) -> dict[str, Any]:
    """`[tp, cp, ep, pp, vpp]`."""
    tensor, context, expert, pipeline = [*_numbers(row["training_tp_cp_ep_pp_vpp"]), 1, 1, 1, 1][:4]
    layout: dict[str, Any] = {"tensor": tensor, "context": context, "expert": expert, "pipeline": pipeline}
    if tensor > 1:
        layout["sequence_parallel"] = True
    return layout


def _numbers(text: Any) -> list[int]:
    """`[2,1,8,1,n/a]` → [2, 1, 8, 1]."""
    return [int(part) for part in re.findall(r"\d+", str(text))]
