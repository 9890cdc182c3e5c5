"""Which settings contradict each other, or would have no effect?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.errors import Mistake
from headcount.facts.model_shape import MoeMlp
from headcount.job.job import EnginePlacement, Job, Placement, Tuning
from headcount.job.layout import Layout, Shard
from headcount.vocabulary import Algorithm

__all__ = ["no_effect", "relation_mistakes"]

# Keys that only some algorithms read.
_ONLY_FOR: Mapping[str, tuple[Algorithm, ...]] = {
    "update.clip_low": (Algorithm.PPO, Algorithm.GRPO),
    "update.clip_high": (Algorithm.PPO, Algorithm.GRPO),
    "update.kl_coef": (Algorithm.PPO, Algorithm.GRPO),
    "update.gae_lambda": (Algorithm.PPO,),
    "update.joint": (Algorithm.PPO,),
    "update.passes": (Algorithm.PPO, Algorithm.GRPO),
    "update.beta": (Algorithm.GRPO, Algorithm.DPO),
    "update.reference_first": (Algorithm.DPO,),
    "update.loss_aggregation": (Algorithm.PPO, Algorithm.GRPO),
    "work.reward_retrains": (Algorithm.PPO, Algorithm.GRPO),
}
_ONLINE_SECTIONS = ("rollout", "critic", "reward")


def no_effect(flat: Mapping[str, Any], algorithm: Algorithm, where: str) -> Iterator[Mistake]:
    """Options that would be accepted and ignored are refused."""
    for path in flat:
        section = path.split(".")[0]
        reads = _ONLY_FOR.get(path)
        if reads is not None and algorithm not in reads:
            yield _useless(where, path, f"{algorithm} does not read it")
        elif section in _ONLINE_SECTIONS and not algorithm.online:
            yield _useless(where, path, f"{algorithm} generates nothing and has no {section}")
        elif section == "critic" and algorithm is not Algorithm.PPO:
            yield _useless(where, path, f"{algorithm} has no critic")
        elif section == "reference" and algorithm in (Algorithm.SFT, Algorithm.REWARD_MODEL):
            yield _useless(where, path, f"{algorithm} has no reference")
        elif path == "data.completion_tokens" and algorithm.online and "rollout.completion_tokens" in flat:
            yield _useless(where, path, "rollout.completion_tokens is what counts")
    if flat.get("policy.tuning", "full") == "full":
        for path in flat:
            if path.startswith("policy.adapter."):
                yield _useless(where, path, 'policy.tuning = "full" has no adapter')
    yield from _engine_no_effect(flat, where)
    if "work.steps" in flat and "work.epochs" in flat:
        yield _useless(where, "work.epochs", "work.steps already says how long")
    for section in ("update", "score"):
        if f"{section}.micro_batch_tokens" in flat and f"{section}.micro_batch_sequences" in flat:
            yield _useless(
                where, f"{section}.micro_batch_tokens", f"{section}.micro_batch_sequences already says how many"
            )


def _engine_no_effect(flat: Mapping[str, Any], where: str) -> Iterator[Mistake]:
    if flat.get("rollout.engine") in ("builtin", "hf"):
        for leaf in (
            "sleep_level",
            "memory_fraction",
            "engine_tensor",
            "engine_gpus",
            "engine_precision",
            "engine_pipeline",
        ):
            if f"rollout.{leaf}" in flat:
                engine = flat["rollout.engine"]
                yield _useless(
                    where, f"rollout.{leaf}", f'engine = "{engine}" generates with the policy\'s own weights'
                )
    if "rollout.engine_gpus" in flat and flat.get("rollout.engine_placement") != "separate":
        yield _useless(where, "rollout.engine_gpus", 'only engine_placement = "separate" has GPUs of its own')
    if flat.get("rollout.engine_placement") == "separate" and "rollout.sleep_level" in flat:
        yield _useless(where, "rollout.sleep_level", "a separate engine never sleeps")


def _useless(where: str, path: str, why: str) -> Mistake:
    return Mistake(where=f"{where}: {path}", what=f"no effect: {why}", fix="remove it")


def relation_mistakes(job: Job, where: str) -> Iterator[Mistake]:
    """Relations between settings that cannot hold."""
    for name, layout in job.layouts.items():
        yield from _layout(job, layout, f"{where}: layout" if name == "train" else f"{where}: layout.groups.{name}")
    yield from _lengths(job, where)
    if job.algorithm is Algorithm.GRPO and job.work.group_size < 2:
        what = "a group of one has no siblings to be compared with: every advantage is 0"
        yield Mistake(where=f"{where}: rollout.group_size", what=what, fix="group_size = 8")
    if job.work.mini_batch_rows > job.work.rows_per_step:
        what = f"{job.work.mini_batch_rows:,} is more than the {job.work.rows_per_step:,} of one step"
        yield Mistake(
            where=f"{where}: update.mini_batch_prompts", what=what, fix=f"mini_batch_prompts = {job.work.rows_per_step}"
        )
    yield from _placements(job, where)
    yield from _engine(job, where)
    if job.algorithm.pairs and job.update.sequences % 2 and job.update.rows != "packed":
        what = f"{job.update.sequences} sequences are not whole pairs; chosen and rejected count as two"
        fix = f"micro_batch_sequences = {job.update.sequences + 1}"
        yield Mistake(where=f"{where}: update.micro_batch_sequences", what=what, fix=fix)


def _layout(job: Job, layout: Layout, at: str) -> Iterator[Mistake]:
    if layout.gpus % layout.model_parallel:
        what = (
            f"{layout.gpus} GPUs are not a multiple of tensor {layout.tensor} × pipeline {layout.pipeline} × context "
            f"{layout.context}" + (f" × layer_split {layout.layer_split}" if layout.layer_split > 1 else "")
        )
        yield Mistake(
            where=at,
            what=what,
            fix=f"hardware.gpus = {-(-layout.gpus // layout.model_parallel) * layout.model_parallel}",
        )
        return
    for network in job.networks.values():
        shape = network.shape
        heads = shape.block(0).attention.heads
        if heads % layout.tensor:
            what = f"tensor = {layout.tensor} does not divide the {heads} heads of {shape.name}"
            yield Mistake(where=f"{at}.tensor", what=what, fix=f"tensor = {_divisor(heads, layout.tensor)}")
        if layout.pipeline > shape.layers:
            what = f"pipeline = {layout.pipeline} is more than the {shape.layers} layers of {shape.name}"
            yield Mistake(where=f"{at}.pipeline", what=what, fix="pipeline = 1")
        break
    yield from _experts(job, layout, at)
    if layout.pipeline > 1 and layout.shard in (Shard.ZERO2, Shard.ZERO3):
        what = f"{layout.shard} exchanges gradients every micro-batch, which a pipeline cannot"
        yield Mistake(where=f"{at}.shard", what=what, fix='shard = "zero-1"')
    if layout.replicate > 1 and (not layout.shard.divides_weights or layout.data * layout.context % layout.replicate):
        what = f"replicate = {layout.replicate} needs a sharding whose {layout.data * layout.context} ranks it divides"
        yield Mistake(where=f"{at}.replicate", what=what, fix="replicate = 1")
    if layout.sequence_parallel and layout.tensor == 1:
        yield Mistake(where=f"{at}.sequence_parallel", what="no effect: tensor is 1", fix="tensor = 2, or remove it")
    if layout.virtual_pipeline > 1 and layout.pipeline == 1:
        yield Mistake(where=f"{at}.virtual_pipeline", what="no effect: pipeline is 1", fix="remove it")


def _divisor(number: int, most: int) -> int:
    return max(candidate for candidate in range(1, most + 1) if number % candidate == 0)


def _experts(job: Job, layout: Layout, at: str) -> Iterator[Mistake]:
    if layout.expert == 1:
        return
    mixtures = [block.mlp for _, block in job.policy.shape.blocks if isinstance(block.mlp, MoeMlp)]
    if not mixtures:
        what = f"{job.policy.shape.name} has no experts"
        yield Mistake(where=f"{at}.expert", what=what, fix="expert = 1")
    elif mixtures[0].experts % layout.expert:
        what = f"expert = {layout.expert} does not divide {mixtures[0].experts} experts"
        yield Mistake(where=f"{at}.expert", what=what, fix=f"expert = {_divisor(mixtures[0].experts, layout.expert)}")
    elif layout.data * layout.context * layout.tensor % layout.expert:
        ranks = layout.data * layout.context * layout.tensor
        what = f"expert = {layout.expert} does not divide the {ranks} ranks that share a stage"
        yield Mistake(where=f"{at}.expert", what=what, fix="expert = 1")


def _lengths(job: Job, where: str) -> Iterator[Mistake]:
    row, most = job.lengths.row_max, job.policy.shape.max_tokens
    if row > most:
        what = (
            f"prompt {job.lengths.prompt_max:,} + completion {job.lengths.completion_max:,} = {row:,} tokens, but "
            f"{job.policy.shape.name} sees {most:,}"
        )
        yield Mistake(where=f"{where}: lengths", what=what, fix="shorten prompt_tokens.max or completion_tokens.max")


def _placements(job: Job, where: str) -> Iterator[Mistake]:
    for network in job.networks.values():
        at = f"{where}: {network.role}.placement"
        if network.placement is Placement.CACHED and job.algorithm is not Algorithm.DPO:
            what = "only DPO's pairs are known beforehand; generated tokens cannot have cached log-probs"
            yield Mistake(where=at, what=what, fix='placement = "offload"')
        if network.placement is Placement.ADAPTER_OFF and job.policy.adapter is None:
            what = f'policy.tuning = "{job.policy.tuning}" has no adapter to switch off'
            yield Mistake(where=at, what=what, fix='placement = "device", or policy.tuning = "lora"')
        if network.tuning is Tuning.QLORA and not network.frozen.quantised:
            what = f"{network.frozen.name} is not a quantised format"
            yield Mistake(where=f"{where}: policy.base_precision", what=what, fix='base_precision = "nf4"')


def _engine(job: Job, where: str) -> Iterator[Mistake]:
    engine = job.engine
    if engine is None:
        return
    at, layout = f"{where}: rollout", job.layouts[engine.group]
    if engine.name in ("builtin", "hf") and engine.placement is not EnginePlacement.SHARED:
        what = f'engine = "{engine.name}" generates with the policy\'s own weights'
        yield Mistake(where=f"{at}.engine_placement", what=what, fix='engine_placement = "shared"')
    if engine.placement is EnginePlacement.SHARED:
        if engine.name not in ("builtin", "hf"):
            what = f"{engine.name} always holds its own copy of the weights"
            yield Mistake(where=f"{at}.engine_placement", what=what, fix='engine_placement = "colocated"')
        return
    heads = job.policy.shape.block(0).attention.heads
    if heads % engine.tensor:
        what = f"engine_tensor = {engine.tensor} does not divide the {heads} heads of {job.policy.shape.name}"
        yield Mistake(where=f"{at}.engine_tensor", what=what, fix=f"engine_tensor = {_divisor(heads, engine.tensor)}")
    if layout.gpus % (engine.tensor * engine.pipeline):
        ranks = f"engine_tensor {engine.tensor} × engine_pipeline {engine.pipeline}"
        what = f"{layout.gpus} GPUs are not whole replicas of {ranks}"
        yield Mistake(where=f"{at}.engine_tensor", what=what, fix="engine_tensor = 1")
