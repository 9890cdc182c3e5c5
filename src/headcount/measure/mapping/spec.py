"""Which job file would describe the run of a row? Everything that the row leaves out is left to the recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headcount.facts.models import find_model
from headcount.job.job import Job
from headcount.job.load import spec_from
from headcount.measure.mapping.batch import Batch, batch_of
from headcount.measure.mapping.evidence import Case, mapping_in
from headcount.measure.mapping.framework import recipe_of
from headcount.measure.mapping.machines import Machine, gpu_of
from headcount.measure.mapping.parallel import spread_of
from headcount.measure.mapping.policy import policy_of
from headcount.measure.mapping.roles import EngineWords, Other, engine_of, others_of
from headcount.measure.mapping.update import update_of
from headcount.measure.mapping.words import Method, method_of, stated, text_of
from headcount.units import GB, GIB

__all__ = ["Mapped", "NotMappable", "jobs_of", "specs_of"]

# Pretraining is SFT on packed rows; KTO runs a policy and a reference over single sequences.
_ALGORITHMS = {"sft": "sft", "pretrain": "sft", "dpo": "dpo", "ppo": "ppo", "grpo": "grpo", "rm": "reward-model",
               "reward-model": "reward-model", "reward": "reward-model", "rloo": "grpo", "reinforce++": "grpo",
               "dapo": "grpo", "gspo": "grpo"}  # fmt: skip
_ONLINE = ("grpo", "ppo")
_PAIRS = ("dpo", "reward-model")
_HALF_A_CARD = 40e9


class NotMappable(Exception):
    """Why no job can be made of a row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mapped:
    """The jobs of one row: the main one first, others where only a cap on lengths is known."""

    jobs: tuple[Job, ...]
    recipe: str
    gpus: int
    family: tuple[str, str, str]
    trainer_only: bool  # the engine runs on GPUs that the row does not describe
    assumed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reading:
    """Everything read of a row, before it is written as a job file."""

    algorithm: str
    recipe: str
    model: str
    method: Method
    machine: Machine
    gpus: int  # that train
    batch: Batch
    others: tuple[Other, ...] | None
    engine: EngineWords | None
    layout: Mapping[str, Any]
    params_b: float | None
    assumed: tuple[str, ...]


def jobs_of(case: Case) -> Mapped:
    """Build the jobs of a row. Raises NotMappable, or the loader's InputError, with the reason."""
    reading = _read(case)
    specs = _specs(case, reading)
    jobs = tuple(spec_from(spec).build(gpus=reading.gpus) for spec in specs)
    family = (reading.recipe, reading.model, reading.method.tuning)
    engine = reading.engine
    return Mapped(
        jobs=jobs,
        recipe=reading.recipe,
        gpus=reading.gpus,
        family=family,
        trainer_only=engine is not None and engine.placement == "separate" and engine.gpus is None,
        assumed=reading.assumed,
    )


def specs_of(case: Case) -> list[dict[str, Any]]:
    """The job files of a row as mappings: one, or one at the cap and one at the typical length."""
    return _specs(case, _read(case))


def _read(case: Case) -> _Reading:
    fields = case.fields
    algorithm = _algorithm(fields)
    method = method_of(
        fields.get("method"), notes=text_of(fields.get("notes")), precision=text_of(fields.get("precision"))
    )
    if method is None:
        raise NotMappable("no training: an inference run")
    recipe = recipe_of(case)
    machine = gpu_of(fields.get("gpu"))
    if machine is None:
        raise NotMappable(f"no GPU of the table is a {fields.get('gpu')}")
    others, engine = others_of(case), engine_of(case)
    if algorithm == "ppo" and others is not None and all(other.role != "critic" for other in others):
        algorithm = "grpo"  # no critic network: the values come from a head on the policy
    gpus, assumed_gpus = _training_gpus(case, engine, others)
    spread = spread_of(case, recipe=recipe, gpus=gpus)
    local_batch_split = spread.layout.get("pipeline_micro_batches", 1) if recipe == "torchtitan" else 1
    batch = batch_of(case, recipe=recipe, context_ranks_share=spread.ulysses, split=local_batch_split)
    assumed = (machine.assumed, assumed_gpus, *spread.assumed, *batch.assumed)
    return _Reading(
        algorithm=algorithm, recipe=recipe, model=_model(fields), method=method, machine=machine, gpus=gpus,
        batch=batch, others=others, engine=engine, layout=spread.layout, params_b=_params_b(fields),
        assumed=tuple(text for text in assumed if text),
    )  # fmt: skip


def _algorithm(fields: Mapping[str, Any]) -> str:
    text = text_of(fields.get("algorithm"))
    if text in ("decode", "inference"):
        raise NotMappable("no training: a decode run")
    if text not in _ALGORITHMS:
        raise NotMappable(f"algorithm {text or 'not stated'!r} is not planned (it is none of {', '.join(_ALGORITHMS)})")
    return _ALGORITHMS[text]


def _model(fields: Mapping[str, Any]) -> str:
    name = fields.get("model")
    if isinstance(name, str) and name.strip():
        return re.sub(r"\s*\(.*?\)", "", name).strip()
    size = _params_b(fields)
    if size is not None:
        return f"{size:g}b"
    raise NotMappable("neither the model nor its size is stated")


def _params_b(fields: Mapping[str, Any]) -> float | None:
    size = fields.get("params_b")
    return float(size) if isinstance(size, (int, float)) and not isinstance(size, bool) and size > 0 else None


def _training_gpus(case: Case, engine: EngineWords | None, others: tuple[Other, ...] | None) -> tuple[int, str]:
    """GPUs that train: all of them, less the engine's own and those of networks that sit elsewhere."""
    gpus = case.fields.get("gpus")
    if not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 1:
        raise NotMappable("the number of GPUs is not stated")
    elsewhere = any(other.placement == "elsewhere" and other.role != "reward" for other in others or ())
    separate = engine is not None and engine.placement == "separate"
    fields = mapping_in(case.fields, "parallelism")
    ranks = fields.get("dp")
    if (elsewhere or separate) and isinstance(ranks, int) and not isinstance(ranks, bool):
        for key in ("tp", "pp", "cp"):
            degree = fields.get(key)
            ranks *= degree if isinstance(degree, int) and not isinstance(degree, bool) and degree > 1 else 1
        return min(gpus, ranks), ""
    if separate and engine is not None and engine.gpus and engine.gpus < gpus:
        return gpus - engine.gpus, ""
    return gpus, "layout: which GPUs train is not stated; all of them" if separate or elsewhere else ""


def _specs(case: Case, reading: _Reading) -> list[dict[str, Any]]:
    batch, pieces = reading.batch, _pieces(reading)
    if pieces > 1:
        # Rows beyond the model's own context: the same tokens in rows of its context. Flash attention, which such
        # runs use, needs memory in the number of tokens, not in the square of the row.
        return [
            _spec(case, reading, prompt=batch.prompt // pieces, completion=batch.completion // pieces, pieces=pieces)
        ]
    prompt, completion = batch.typical if batch.padding_free and batch.typical else (batch.prompt, batch.completion)
    main = _spec(case, reading, prompt=prompt, completion=completion)
    least = _least(case, reading, main, prompt=prompt, completion=completion)
    return [main] if least is None else [main, least]


def _least(
    case: Case, reading: _Reading, main: dict[str, Any], *, prompt: int, completion: int
) -> dict[str, Any] | None:
    """The same run at the least that its row allows, where the row leaves something open; None where it does not.

    Lengths that are caps or assumed are cut (see Batch.cap_share), a token budget is short of its longest row, an
    unknown micro-batch is one sequence, unknown checkpointing is full, an Adam that may be on the host is. The
    verdict is uncertain where the two differ.
    """
    batch = reading.batch
    share = batch.cap_share
    if any(key.startswith("data.") for key in batch.assumed):
        share = max(share, 2)
    least = _spec(case, reading, prompt=prompt // share, completion=completion // share)
    update = least["update"]
    if "update.micro_batch_sequences" in batch.assumed:
        update["micro_batch_sequences"] = 2 if reading.algorithm in _PAIRS else 1
        least.get("rollout", {}).setdefault("max_sequences", 1)
    if batch.micro_batch_tokens and share > 1:
        update["micro_batch_tokens"] = _least_budget(reading, prompt + completion, share)
    if least.get("rollout", {}).get("engine_placement") == "shared":
        least["rollout"].setdefault("gathers_whole", False)
    update.setdefault("gradient_checkpointing", "full")
    if re.search(r"/ *cpu|cpu adam", text_of(case.fields.get("optimizer"))):
        least["layout"] = {"offload_optimizer": True, **least.get("layout", {})}
    return None if least == main else least


def _least_budget(reading: _Reading, row_tokens: int, share: int) -> int:
    """A token budget stays short of its longest row, and of all the tokens that one rank has in a mini-batch."""
    batch = reading.batch
    budget = (batch.micro_batch_tokens or 0) - row_tokens
    if batch.mini_batch_rows:
        sequences = -(-batch.mini_batch_rows * (batch.group_size or 1) // reading.gpus)
        budget = min(budget, sequences * row_tokens // share)
    return max(budget, row_tokens // share, 1)


def _pieces(reading: _Reading) -> int:
    """How many rows of the model's context one row of the run makes."""
    longest = find_model(reading.model).max_tokens
    return -(-(reading.batch.prompt + reading.batch.completion) // longest)


def _spec(case: Case, reading: _Reading, *, prompt: int, completion: int, pieces: int = 1) -> dict[str, Any]:
    online = reading.algorithm in _ONLINE
    lengths = {"prompt_tokens": max(1, prompt)}
    if not online:
        lengths["completion_tokens"] = max(1, completion - (0 if prompt else 1))
    spec: dict[str, Any] = {
        "algorithm": reading.algorithm,
        "policy": policy_of(
            case, method=reading.method, recipe=reading.recipe, model=reading.model, shard=reading.layout.get("shard")
        ),
        "data": lengths,
        "update": update_of(
            case,
            batch=replace(reading.batch, sequences=(reading.batch.sequences or 1) * pieces)
            if pieces > 1
            else reading.batch,
            method=reading.method,
            recipe=reading.recipe,
            tensor=reading.layout.get("tensor", 1),
            pairs=reading.algorithm in _PAIRS,
        ),
        "hardware": stated(
            {"gpu": reading.machine.gpu, "gpus": reading.gpus, "host_memory_gib": _host_gib(case.fields)}
        ),
        "layout": dict(reading.layout),
    }
    if reading.recipe:
        spec["recipe"] = reading.recipe
    if online:
        spec["rollout"] = _rollout(reading) | {"completion_tokens": max(1, completion)}
    spec |= _roles(reading, spec["layout"])
    return {key: value for key, value in spec.items() if value != {}}


def _host_gib(fields: Mapping[str, Any]) -> float | None:
    size = fields.get("host_memory_gb")
    if not isinstance(size, (int, float)) or isinstance(size, bool) or size <= 0:
        return None
    return float(size) * GB / GIB


def _roles(reading: _Reading, layout: dict[str, Any]) -> dict[str, Any]:
    """Reference, critic and reward as the row states them; a network on GPUs of its own becomes a group."""
    if reading.others is None:
        return {}
    named = {other.role: other for other in reading.others}
    result: dict[str, Any] = {}
    if reading.algorithm in ("grpo", "ppo", "dpo"):
        result["reference"] = _reference(named.get("reference"), reading.recipe)
    if reading.algorithm == "ppo":
        critic, reward = named.get("critic"), named.get("reward")
        if critic is not None and critic.placement != "none":
            result["critic"] = _critic(critic, reading)
            _own_group(layout, critic)
        if reward is not None:
            result["reward"] = [_reward(reward, reading)]
    return result


def _reference(reference: Other | None, recipe: str) -> dict[str, Any]:
    if reference is None or reference.placement in ("none", "elsewhere"):
        return {"placement": "none"}
    if reference.placement == "present":
        return {"placement": "offload" if recipe.startswith("nemo-rl") else "device"}
    return {"placement": reference.placement}


def _critic(critic: Other, reading: _Reading) -> dict[str, Any]:
    tuning = "lora" if "lora" in critic.tuning else None
    return stated({"model": _model_of(critic, reading), "tuning": tuning})


def _reward(reward: Other, reading: _Reading) -> dict[str, Any]:
    if reward.placement in ("none", "elsewhere"):
        return {"kind": "exact"}
    return {"kind": "model", "model": _model_of(reward, reading)}


def _model_of(other: Other, reading: _Reading) -> str:
    """`7B` beside a 7.6B policy is the policy's own kind of model."""
    size = re.fullmatch(r"(\d+(?:\.\d+)?)b", (other.model or "").lower())
    if other.model is None or (size and reading.params_b and abs(float(size[1]) / reading.params_b - 1) < 0.12):
        return reading.model
    return other.model


def _own_group(layout: dict[str, Any], other: Other) -> None:
    """A network on GPUs of its own, spread and offloaded like the policy as far as its GPUs go."""
    if other.placement != "elsewhere":
        return
    gpus = other.gpus or 8
    group: dict[str, Any] = {"gpus": gpus, "shard": layout.get("shard", "zero-3")}
    for key in ("tensor", "pipeline"):
        degree = layout.get(key, 1)
        if degree > 1 and gpus % degree == 0:
            group[key] = degree
            gpus //= degree
    group |= {key: layout[key] for key in ("offload_optimizer", "offload_parameters") if key in layout}
    layout["roles"] = {**layout.get("roles", {}), other.role: other.role}
    layout["groups"] = {**layout.get("groups", {}), other.role: group}


def _engine_tensor(reading: _Reading) -> int | None:
    """Where no tensor degree is stated: the first whose share of the 16-bit weights is below half an 80 GB card."""
    weights, tensor = 2e9 * (reading.params_b or 0.0), 1
    while weights / tensor > _HALF_A_CARD and tensor * 2 <= reading.gpus:
        tensor *= 2
    return tensor if tensor > 2 else None  # small enough for the recipe's own default


def _rollout(reading: _Reading) -> dict[str, Any]:
    engine, batch = reading.engine, reading.batch
    words: dict[str, Any] = {"group_size": batch.group_size, "prompts_per_step": batch.rows_per_step}
    if engine is None and batch.sequences:
        words["max_sequences"] = batch.sequences
    if engine is not None:
        shared = engine.placement == "shared"
        words |= {
            "engine": "hf" if shared else engine.name if engine.name != "trtllm" else "vllm",
            "engine_placement": engine.placement,
            "engine_tensor": None if shared else engine.tensor or _engine_tensor(reading),
            "engine_gpus": (engine.gpus or engine.tensor or 1) if engine.placement == "separate" else None,
            "memory_fraction": None if shared else engine.memory_fraction,
            "sleep_level": engine.sleep_level if engine.placement == "colocated" else None,
            "max_sequences": engine.max_sequences or (batch.sequences if shared else None),
            "gathers_whole": engine.gathers_whole_model or None,
        }
    return stated(words)
