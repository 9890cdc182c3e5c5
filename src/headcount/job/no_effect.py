"""Which stated keys would change nothing? They are refused: an option that is accepted and ignored misleads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headcount.errors import Mistake
from headcount.job.job import Checkpointing, Job, Loss, Placement, Tuning
from headcount.vocabulary import Algorithm, Role

__all__ = ["no_effect", "no_effect_on"]

_PPO, _GRPO, _DPO = Algorithm.PPO, Algorithm.GRPO, Algorithm.DPO
_RM, _SFT = Algorithm.REWARD_MODEL, Algorithm.SFT

# Keys, or whole sections, that only some algorithms read.
_ONLY_FOR: Mapping[str, tuple[Algorithm, ...]] = {
    "rollout": (_PPO, _GRPO),
    "observed.decode_tokens_per_s": (_PPO, _GRPO),
    "observed.scope": (_PPO, _GRPO),
    "observed.concurrency": (_PPO, _GRPO),
    "critic": (_PPO,),
    "reward": (_PPO, _GRPO),
    "reference": (_PPO, _GRPO, _DPO),
    "score": (_PPO, _GRPO, _DPO),
    "data.prompts": (_PPO, _GRPO),
    "data.pairs": (_DPO, _RM),
    "data.rows": (_SFT,),
    "layout.roles": (_PPO, _GRPO, _DPO),
    "layout.offload_between_phases": (_PPO, _GRPO),
    "update.beta": (_GRPO, _DPO),
    "update.clip_high": (_PPO, _GRPO),
    "update.clip_low": (_PPO, _GRPO),
    "update.gae_lambda": (_PPO,),
    "update.joint": (_PPO,),
    "update.kl_coef": (_PPO, _GRPO),
    "update.logits_on": (_PPO, _GRPO, _DPO, _SFT),
    "update.loss_aggregation": (_PPO, _GRPO),
    "update.loss_chunk_tokens": (_PPO, _GRPO, _DPO, _SFT),
    "update.loss_implementation": (_PPO, _GRPO, _DPO, _SFT),
    "update.passes": (_PPO, _GRPO),
    "update.reference_first": (_DPO,),
    "work.rows_per_step": (_DPO, _RM, _SFT),
}
_WHY = {
    "rollout": "generates nothing",
    "critic": "has no critic",
    "reward": "scores nothing with a reward",
    "reference": "has no reference",
    "score": "has no pass without gradients",
    "update.loss_implementation": "has a scalar head and no vocabulary logits",
    "update.loss_chunk_tokens": "has a scalar head and no vocabulary logits",
    "update.logits_on": "has a scalar head and no vocabulary logits",
    "work.rows_per_step": "counts its step in rollout.prompts_per_step",
}
_NEEDS_ENGINE = (
    "eager", "engine_expert", "engine_pipeline", "engine_precision", "engine_tensor", "memory_fraction", "sleep_level",
    "staleness", "whole_model_sync",
)  # fmt: skip


def no_effect(flat: Mapping[str, Any], algorithm: Algorithm, where: str) -> Iterator[Mistake]:
    """What can be said from the keys alone, before anything is looked up."""
    for path in flat:
        rule = path if path in _ONLY_FOR else path.split(".", maxsplit=1)[0]
        if algorithm not in _ONLY_FOR.get(rule, (algorithm,)):
            yield _useless(where, path, f"{algorithm} {_WHY.get(rule, 'does not read it')}")
    if any(path.startswith("rollout.throughput.") for path in flat):
        seen = [path for path in flat if path.startswith("observed.") and path != "observed.train_tokens_per_s"]
        yield from _all(flat, seen, where, "rollout.throughput already says how fast the engine is")
    yield from _said_twice(flat, algorithm, where)
    yield from _tuning(flat, where)
    yield from _engine(flat, where)


def _useless(where: str, path: str, why: str, fix: str = "remove it") -> Mistake:
    return Mistake(where=f"{where}: {path}", what=f"no effect: {why}", fix=fix)


def _all(flat: Mapping[str, Any], paths: Iterable[str], where: str, why: str) -> Iterator[Mistake]:
    yield from (_useless(where, path, why) for path in paths if path in flat)


def _said_twice(flat: Mapping[str, Any], algorithm: Algorithm, where: str) -> Iterator[Mistake]:
    """Two keys for one thing: the second is named."""
    pairs = [
        ("work.steps", "work.epochs", "how long"),
        ("update.micro_batch_sequences", "update.micro_batch_tokens", "how large"),
        ("score.micro_batch_sequences", "score.micro_batch_tokens", "how large"),
    ]
    if algorithm.online:
        pairs.append(("rollout.completion_tokens", "data.completion_tokens", "how long"))
        pairs += [
            ("rollout.completion_lengths", f"rollout.completion_{other}", "how long") for other in ("tokens", "sigma")
        ]
    else:
        pairs.append(("work.rows_per_step", "update.mini_batch_prompts", "how many rows an optimizer step takes"))
    for first, second, what in pairs:
        if first in flat and second in flat:
            yield _useless(where, second, f"{first} already says {what}")


def _tuning(flat: Mapping[str, Any], where: str) -> Iterator[Mistake]:
    """Adapters and frozen bases belong to LoRA; a critic on another's trunk has nothing of its own."""
    policy = flat.get("policy.tuning", "full")
    trunk = flat.get("critic.trunk")
    for role, tuning in (("policy", policy), ("critic", flat.get("critic.tuning", policy))):
        if tuning != "full" or (role == "critic" and trunk):
            continue
        why = f'{role}.tuning = "full" trains every weight: no adapter, no frozen base'
        yield from _all(flat, [p for p in flat if p.startswith(f"{role}.adapter.")], where, why)
        yield from _all(flat, [f"{role}.base_precision"], where, why)
    if trunk:
        own = ("model", "tuning", "precision", "base_precision", "optimizer", "init_from")
        why = f"the critic is an adapter on the {trunk}'s trunk"
        yield from _all(flat, [f"critic.{leaf}" for leaf in own], where, why)
    elif "critic.model" in flat:
        yield from _all(flat, ["critic.init_from"], where, "critic.model already says whose weights the critic has")


def _engine(flat: Mapping[str, Any], where: str) -> Iterator[Mistake]:
    """Keys of an engine that the named engine, or its place, does not have."""
    engine, place = flat.get("rollout.engine"), flat.get("rollout.engine_placement")
    if engine in ("builtin", "hf"):
        why = f'engine = "{engine}" generates with the policy\'s own weights'
        yield from _all(flat, [f"rollout.{leaf}" for leaf in _NEEDS_ENGINE], where, why)
    if engine in ("vllm", "sglang"):
        yield from _all(flat, ["rollout.gathers_whole"], where, f"{engine} holds its own copy of the weights")
    if engine == "hf":
        yield from _all(flat, ["rollout.shared_prefill"], where, "HF generate runs every prompt of a group")
    if place != "separate":
        why = 'only engine_placement = "separate" has GPUs of its own'
        yield from _all(flat, ["rollout.engine_gpus", "rollout.staleness"], where, why)
    else:
        yield from _all(flat, ["rollout.sleep_level"], where, "a separate engine never sleeps")


def no_effect_on(job: Job, flat: Mapping[str, Any], where: str) -> Iterator[Mistake]:
    """What only the finished job can tell: recipe and defaults decide whether a stated key still matters."""
    train = job.layouts["train"]
    kernels = job.kernels
    rules: tuple[tuple[bool, tuple[str, ...], str], ...] = (
        (kernels.checkpointing is Checkpointing.NONE, ("update.checkpoint_reentrant",), "nothing is checkpointed"),
        (kernels.loss is not Loss.CHUNKED, ("update.loss_chunk_tokens",), f"the loss is {kernels.loss}"),
        (not train.shard.divides_weights, ("layout.root_split",), f"shard = {train.shard} gathers nothing"),
        (train.context == 1, ("layout.context_exchange",), "context is 1"),
        (train.pipeline == 1, ("layout.pipeline_micro_batches", "layout.virtual_pipeline"), "pipeline is 1"),
        (train.tensor == 1, ("layout.sequence_parallel",), "tensor is 1"),
    )
    offline_money = (job.algorithm.online, ("cost.usd_per_preference",), "nothing is trained on labelled pairs")
    unpaired = (job.algorithm is _SFT, ("cost.usd_per_preference",), "rows are no labelled pairs")
    never = (
        not job.upkeep.evaluate_every,
        ("work.evaluation_prompts", "work.evaluation_samples"),
        "it never evaluates",
    )
    for useless, paths, why in (*rules, offline_money, unpaired, never):
        if useless:
            yield from _all({p: v for p, v in flat.items() if _asks(v)}, paths, where, why)
    if not train.shard.divides_gradients and flat.get("layout.reshard_after_forward") is False:
        yield _useless(where, "layout.reshard_after_forward", f"shard = {train.shard} gathers nothing")
    yield from _reference(job, flat, where)


def _asks(value: object) -> bool:
    """`false` and 1 state what is so anyway."""
    return value is True or value not in (False, 1)


def _reference(job: Job, flat: Mapping[str, Any], where: str) -> Iterator[Mistake]:
    reference = job.networks.get(Role.REFERENCE)
    stated = [path for path in flat if path.startswith("reference.")]
    if reference is None and flat.get("reference.placement", "device") != "none":
        key = "kl_coef" if job.algorithm is _PPO else "beta"
        why = f"update.{key} is 0 and nothing pulls towards a reference"
        for path in stated:
            yield _useless(where, path, why, f"remove [reference], or update.{key} = 0.01")
    if reference is not None and reference.placement is Placement.ADAPTER_OFF:
        why = "the reference is the policy's own base with its adapters off"
        yield from _all(flat, ["reference.base_precision", "reference.model"], where, why)
    if job.policy.tuning is Tuning.FULL and flat.get("reference.placement") == "none":
        yield from _all(flat, ["reference.model", "reference.base_precision"], where, "there is no reference")
