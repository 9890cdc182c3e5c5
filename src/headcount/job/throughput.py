"""May a decode rate that somebody measured stand in for the model's?

Only with its scope and its conditions: a rate of another model, card or precision, or one that does not say whose
tokens it counts, plans another job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.errors import HeadcountError, Mistake
from headcount.facts.gpu import find_gpu
from headcount.job.job import Engine, EnginePlacement, Job, Observed, Scope, Throughput

__all__ = ["observed_mistakes", "observed_of", "throughput_mistakes", "throughput_of"]

_PREFIX = "rollout.throughput."
_NEEDED: Mapping[str, str] = {
    "tokens_per_s": "3100",
    "scope": '"aggregate"   # all engine GPUs together; or "per-stream"',
    "concurrency": "256   # sequences that decoded at once",
    "model": '"Qwen/Qwen2.5-7B-Instruct"',
    "gpu": '"h100-sxm"',
    "precision": '"bf16"',
    "tensor": "1",
}


def throughput_of(flat: Mapping[str, Any]) -> Throughput | None:
    """The stated rate; None where none, or not all of it, is stated (`throughput_mistakes` says what is missing)."""
    stated = _stated(flat)
    if not {"tokens_per_s", "scope", "concurrency"} <= stated.keys():
        return None
    return Throughput(
        tokens_per_s=float(stated["tokens_per_s"]),
        scope=Scope(stated["scope"]),
        concurrency=int(stated["concurrency"]),
    )


def observed_of(flat: Mapping[str, Any]) -> Observed:
    """What `[observed]` says of this job's own speed."""
    rate = flat.get("observed.train_tokens_per_s")
    decode = None
    if {"observed.decode_tokens_per_s", "observed.scope", "observed.concurrency"} <= flat.keys():
        decode = Throughput(
            tokens_per_s=float(flat["observed.decode_tokens_per_s"]),
            scope=Scope(flat["observed.scope"]),
            concurrency=int(flat["observed.concurrency"]),
        )
    return Observed(decode=decode, train_tokens_per_s_per_gpu=None if rate is None else float(rate))


def observed_mistakes(flat: Mapping[str, Any], where: str) -> Iterator[Mistake]:
    """A decode rate without whose tokens it counts, and among how many."""
    decode = ("observed.decode_tokens_per_s", "observed.scope", "observed.concurrency")
    if any(key in flat for key in decode):
        for key in (key for key in decode if key not in flat):
            name = key.removeprefix("observed.")
            sample = _NEEDED["tokens_per_s" if name == "decode_tokens_per_s" else name]
            what = "is missing: a rate counts only with its scope and concurrency"
            yield Mistake(where=f"{where}: {key}", what=what, fix=f"{name} = {sample}")


def throughput_mistakes(flat: Mapping[str, Any], job: Job, where: str) -> Iterator[Mistake]:
    """What the rate does not say, and where its conditions are not the job's."""
    stated = _stated(flat)
    if not stated or job.engine is None:
        return
    for name in (name for name in _NEEDED if name not in stated):
        what = "is missing: a rate counts only with its scope and conditions"
        yield Mistake(where=f"{where}: {_PREFIX}{name}", what=what, fix=f"{name} = {_NEEDED[name]}")
    for name, measured, planned in _conditions(stated, job, job.engine):
        what = f"measured with {measured}, the job runs {planned}: it says nothing about this job"
        yield Mistake(where=f"{where}: {_PREFIX}{name}", what=what, fix="measure again, or remove [rollout.throughput]")


def _stated(flat: Mapping[str, Any]) -> dict[str, Any]:
    return {path.removeprefix(_PREFIX): value for path, value in flat.items() if path.startswith(_PREFIX)}


def _conditions(stated: Mapping[str, Any], job: Job, engine: Engine) -> Iterator[tuple[str, object, object]]:
    """(key, measured, planned) of every condition that differs."""
    tensor = job.layouts["train"].tensor if engine.placement is EnginePlacement.SHARED else engine.tensor
    if "model" in stated and stated["model"] != job.policy.shape.name:
        yield "model", stated["model"], job.policy.shape.name
    if "gpu" in stated and _card(stated["gpu"]) != job.gpu.id:
        yield "gpu", stated["gpu"], job.gpu.id
    if "precision" in stated and stated["precision"] != engine.precision:
        yield "precision", stated["precision"], engine.precision
    for name, planned in (("tensor", tensor), ("pipeline", engine.pipeline)):
        if name in stated and int(stated[name]) != planned:
            yield name, f"{name} {stated[name]}", f"{name} {planned}"


def _card(name: str) -> str:
    """The id that an alias stands for; the name itself where it is no card that we know."""
    try:
        return find_gpu(name).id
    except HeadcountError:
        return name
