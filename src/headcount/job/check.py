"""Which settings contradict each other?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.errors import Mistake, nearest
from headcount.facts.model_shape import AttentionKind, ModelShape, MoeMlp
from headcount.job.job import EnginePlacement, Job, Network, Placement, RowLayout, Tuning
from headcount.job.layout import Layout, Shard
from headcount.vocabulary import Algorithm

__all__ = ["contradictions", "module_names", "relation_mistakes"]

_OWN_GROUPS = ("train", "rollout")


def contradictions(flat: Mapping[str, Any], where: str) -> Iterator[Mistake]:
    """What the keys alone show: networks that nobody has, groups that nobody sits on."""
    rewards = flat.get("reward", [{"kind": "model"}])
    models = [row for row in rewards if row["kind"] == "model"]
    if len(models) > 1:
        what = f"{len(models)} reward networks in one job are not planned yet"
        yield Mistake(where=f"{where}: reward", what=what, fix='keep one [[reward]] with kind = "model"')
    for key in ("critic.trunk", "critic.init_from"):
        if flat.get(key) == "reward" and not models:
            what = "the reward is a function: there is no reward network to take weights from"
            yield Mistake(where=f"{where}: {key}", what=what, fix=f'{key} = "policy"')
    roles, groups = flat.get("layout.roles", {}), flat.get("layout.groups", {})
    for role, group in roles.items():
        if group not in groups:
            what = f"puts {role} on {group!r}, which is no group of this job"
            yield Mistake(where=f"{where}: layout.roles.{role}", what=what, fix=f"[layout.groups.{group}]\ngpus = 8")
    for group in groups:
        at = f"{where}: layout.groups.{group}"
        if group in _OWN_GROUPS:
            fix = "[layout] for the trainer, rollout.engine_gpus for the engine"
            yield Mistake(where=at, what=f"{group} is headcount's own name for a group", fix=fix)
        elif group not in roles.values():
            role = "critic" if flat.get("algorithm") == Algorithm.PPO else "reference"
            yield Mistake(where=at, what="no effect: no role sits there", fix=f'roles = {{ {role} = "{group}" }}')


def relation_mistakes(job: Job, where: str) -> Iterator[Mistake]:
    """Relations between settings that cannot hold."""
    for name, layout in job.layouts.items():
        if job.engine is None or name != job.engine.group or name == "train":
            at = f"{where}: layout" if name == "train" else f"{where}: layout.groups.{name}"
            yield from _layout(layout, [n for n in job.networks.values() if n.group == name], at)
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
    yield from _targets(job, where)
    if job.algorithm.pairs and job.update.sequences % 2 and job.update.rows is not RowLayout.PACKED:
        what = f"{job.update.sequences} sequences are not whole pairs; chosen and rejected count as two"
        fix = f"micro_batch_sequences = {job.update.sequences + 1}"
        yield Mistake(where=f"{where}: update.micro_batch_sequences", what=what, fix=fix)


def _targets(job: Job, where: str) -> Iterator[Mistake]:
    """LoRA targets that no module of the model is called."""
    for network in job.networks.values():
        if network.adapter is None or network.role is not job.policy.role:
            continue
        known = module_names(network.shape)
        for name in dict.fromkeys(network.adapter.targets):
            if name not in known:
                what = f"{network.shape.name} has no module {name!r}. {nearest(name, known)}".strip()
                fix = f"one of {', '.join(sorted(known))}"
                yield Mistake(where=f"{where}: policy.adapter.targets", what=what, fix=fix)
        for name in network.adapter.extra_trained:
            if name not in ("embed_tokens", "lm_head"):
                what = f"{name!r} is not planned as a module trained whole"
                yield Mistake(
                    where=f"{where}: policy.adapter.extra_trained", what=what, fix='"embed_tokens" or "lm_head"'
                )


def module_names(shape: ModelShape) -> set[str]:
    """Every name that an adapter may target."""
    names = {"all-linear", "experts", shape.head_name}
    for _, block in shape.blocks:
        attention, mlp = block.attention, block.mlp
        if attention.kind is AttentionKind.MLA:
            names |= {"q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"}
        elif attention.fused_qkv:
            names.add(attention.qkv_name)
        else:
            names |= {attention.q_name, attention.k_name, attention.v_name}
        names.add(attention.o_name)
        if isinstance(mlp, MoeMlp):
            names |= {"gate_proj", "up_proj", "down_proj", "gate", *mlp.expert_names}
        else:
            gate = {mlp.gate_up_name} if mlp.fused_gate_up else {mlp.gate_name, mlp.up_name}
            names |= {mlp.down_name} | (gate if mlp.gated else {mlp.up_name})
    return names


def _layout(layout: Layout, networks: list[Network], at: str) -> Iterator[Mistake]:
    """Degrees against GPUs, heads, layers and experts of every network that sits there."""
    ranks = layout.model_parallel
    if layout.gpus % ranks:
        split = f" × layer_split {layout.layer_split}" if layout.layer_split > 1 else ""
        degrees = f"tensor {layout.tensor} × pipeline {layout.pipeline} × context {layout.context}{split}"
        what = f"{layout.gpus:,} GPUs are not a multiple of {degrees} = {ranks:,}"
        yield Mistake(where=at, what=what, fix=f"hardware.gpus = {-(-layout.gpus // ranks) * ranks}")
    shapes = list({network.shape.name: network.shape for network in networks}.values())
    for shape in shapes:
        yield from _shape(layout, shape, at)
    if layout.expert > 1:
        yield from _experts(layout, shapes, at)
    if layout.gpus % ranks == 0:
        yield from _sharding(layout, at)


def _shape(layout: Layout, shape: ModelShape, at: str) -> Iterator[Mistake]:
    heads = shape.block(0).attention.heads
    if heads % layout.tensor:
        what = f"tensor = {layout.tensor} does not divide the {heads} heads of {shape.name}"
        yield Mistake(where=f"{at}.tensor", what=what, fix=f"tensor = {_divisor(heads, layout.tensor, layout.gpus)}")
    for degree, count in (("pipeline", layout.pipeline), ("layer_split", layout.layer_split)):
        if count > shape.layers:
            what = f"{degree} = {count} is more than the {shape.layers} layers of {shape.name}"
            yield Mistake(where=f"{at}.{degree}", what=what, fix=f"{degree} = {_divisor(shape.layers, count)}")
    if layout.virtual_pipeline > 1 and layout.pipeline * layout.virtual_pipeline > shape.layers:
        chunks = layout.pipeline * layout.virtual_pipeline
        what = f"{chunks} chunks (pipeline × virtual_pipeline) are more than the {shape.layers} layers of {shape.name}"
        yield Mistake(where=f"{at}.virtual_pipeline", what=what, fix="virtual_pipeline = 1")


def _divisor(number: int, most: int, also: int = 0) -> int:
    """The largest divisor up to `most` of a number, and of `also` where there is one."""
    return max(each for each in range(1, min(most, number) + 1) if number % each == 0 and also % each == 0)


def _sharding(layout: Layout, at: str) -> Iterator[Mistake]:
    if layout.pipeline > 1 and layout.shard in (Shard.ZERO2, Shard.ZERO3):
        what = f"{layout.shard} exchanges gradients every micro-batch, which a pipeline cannot"
        yield Mistake(where=f"{at}.shard", what=what, fix='shard = "zero-1"')
    ranks = layout.data * layout.context
    if layout.replicate > 1 and (not layout.shard.divides_weights or ranks % layout.replicate):
        what = f"replicate = {layout.replicate} needs a sharding whose {ranks} ranks it divides"
        yield Mistake(where=f"{at}.replicate", what=what, fix="replicate = 1")


def _experts(layout: Layout, shapes: list[ModelShape], at: str) -> Iterator[Mistake]:
    """Experts are divided where there are some; dense networks beside them keep their tensor ranks."""
    experts = {
        shape.name: block.mlp.experts for shape in shapes for _, block in shape.blocks if isinstance(block.mlp, MoeMlp)
    }
    ranks = layout.data * layout.context * layout.tensor
    if not experts:
        names = " and ".join(shape.name for shape in shapes)
        yield Mistake(where=f"{at}.expert", what=f"{names} has no experts", fix="expert = 1")
    for name, count in experts.items():
        if count % layout.expert:
            what = f"expert = {layout.expert} does not divide the {count} experts of {name}"
            yield Mistake(where=f"{at}.expert", what=what, fix=f"expert = {_divisor(count, layout.expert)}")
    if ranks and ranks % layout.expert:
        what = f"expert = {layout.expert} does not divide the {ranks} ranks that share a stage"
        yield Mistake(where=f"{at}.expert", what=what, fix=f"expert = {_divisor(ranks, layout.expert)}")


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
