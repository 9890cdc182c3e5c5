"""PPO, GRPO, DPO, reward model and SFT side by side for one model on one GPU kind: who, how much, how many, how long?

Every variant runs the same printed workload; each is shown at its own fewest GPUs and at one common count, with the
stages of the pipeline around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headcount.job.load import Spec, spec_from
from headcount.ledger.predicted import Plan, Stage
from headcount.plan.planner import fewest, plan
from headcount.vocabulary import Algorithm

__all__ = ["VARIANTS", "Compared", "Comparison", "Variant", "compare"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One column of the comparison: an algorithm and the settings that make it this variant."""

    name: str
    algorithm: Algorithm
    settings: Mapping[str, object]
    needs_reward_model: bool = False
    note: str = ""


VARIANTS: tuple[Variant, ...] = (
    Variant(
        name="PPO-RLHF",
        algorithm=Algorithm.PPO,
        settings={"reward": [{"kind": "model"}]},
        needs_reward_model=True,
        note="policy and critic train; reference and reward are frozen",
    ),
    Variant(
        name="PPO, one LoRA trunk",
        algorithm=Algorithm.PPO,
        settings={
            "policy": {"tuning": "lora"},
            "critic": {"trunk": "policy"},
            "reward": [{"kind": "model"}],
        },
        needs_reward_model=True,
        note="policy and critic are two adapters on one base; the reference is the base itself",
    ),
    Variant(
        name="GRPO, checker",
        algorithm=Algorithm.GRPO,
        settings={"reward": [{"kind": "math"}], "update": {"beta": 0.04}},
        note="no critic; the reward is a function",
    ),
    Variant(
        name="GRPO, reward model",
        algorithm=Algorithm.GRPO,
        settings={"reward": [{"kind": "model"}], "update": {"beta": 0.04}},
        needs_reward_model=True,
        note="no critic; a frozen reward model scores",
    ),
    Variant(
        name="GRPO, no KL",
        algorithm=Algorithm.GRPO,
        settings={"reward": [{"kind": "math"}], "update": {"beta": 0.0}},
        note="no critic, no reference",
    ),
    Variant(
        name="DPO, live reference",
        algorithm=Algorithm.DPO,
        settings={"reference": {"placement": "device"}},
        note="policy trains beside its frozen reference; nothing is generated",
    ),
    Variant(
        name="DPO, cached reference",
        algorithm=Algorithm.DPO,
        settings={"reference": {"placement": "cached"}},
        note="reference log-probs from one pass, then the policy alone",
    ),
    Variant(name="Reward model", algorithm=Algorithm.REWARD_MODEL, settings={}, note="pairs, scalar head, no logits"),
    Variant(name="SFT", algorithm=Algorithm.SFT, settings={}, note="the policy alone"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One variant: its plan at the fewest GPUs (None: none fits), at the common count, and its pipeline."""

    variant: Variant
    smallest: Plan | None
    common: Plan | None
    pipeline: tuple[Stage, ...]  # at the fewest GPUs of each stage
    why_not: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The side-by-side answer."""

    model: str
    gpu: str
    workload: str
    common_gpus: int
    compared: tuple[Compared, ...]


def variant_spec(variant: Variant, shared: Mapping[str, object], overrides: Sequence[str] = ()) -> Spec:
    """The variant's job: the shared settings with the variant's own laid over them, section by section."""
    merged: dict[str, object] = {"name": variant.name, "algorithm": str(variant.algorithm)}
    for layer in (shared, variant.settings):
        for section, value in layer.items():
            below = merged.get(section)
            merged[section] = {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
    return spec_from(merged, where=variant.name, overrides=overrides)


def compare(
    shared: Mapping[str, object],
    *,
    gpus: int | None = None,
    reward_retrains: int = 0,
    overrides: Sequence[str] = (),
    variants: Sequence[Variant] = VARIANTS,
) -> Comparison:
    """Plan every variant of one shared question (`policy.model`, `hardware.gpu`, and what else the user fixes).

    `gpus` is the common count; left out it is the largest of the variants' fewest. `reward_retrains = k` adds k reward
    models and k PPO runs to the pipeline of what needs a reward model.
    """
    specs = {variant.name: variant_spec(variant, shared, overrides) for variant in variants}
    smallest = {name: fewest(spec) for name, spec in specs.items()}
    fits = [found.plan for found in smallest.values() if found.plan is not None]
    per_node = next(iter(specs.values())).gpus_per_node
    stated = gpus or next(iter(specs.values())).gpus
    common_gpus = stated or usual_count(max((found.gpus for found in fits), default=per_node), per_node)
    reward = next((v for v in variants if v.algorithm is Algorithm.REWARD_MODEL), None)
    reward_plan = smallest[reward.name].plan if reward else None
    compared = tuple(
        Compared(
            variant=variant,
            smallest=smallest[variant.name].plan,
            common=plan(specs[variant.name].build(gpus=common_gpus)),
            pipeline=_pipeline(variant, smallest[variant.name].plan, reward_plan, reward_retrains),
            why_not=smallest[variant.name].why_not,
        )
        for variant in variants
    )
    first = next(iter(specs.values()))
    return Comparison(
        model=str(compared[0].common.model if compared[0].common else ""),
        gpu=str(compared[0].common.gpu if compared[0].common else ""),
        workload=first.workload_text(),
        common_gpus=common_gpus,
        compared=compared,
    )


def usual_count(gpus: int, per_node: int) -> int:
    """At least `gpus`, as people rent them: a power of two inside a node, whole nodes beyond."""
    if gpus > per_node:
        return -(-gpus // per_node) * per_node
    count = 1
    while count < gpus:
        count *= 2
    return min(count, per_node)


def _pipeline(variant: Variant, own: Plan | None, reward: Plan | None, retrains: int) -> tuple[Stage, ...]:
    """Reward model first where one is needed, then the run; `retrains` repeats both, each on its line."""
    if own is None:
        return ()
    if not variant.needs_reward_model or reward is None:
        return own.stages
    lines: list[Stage] = []
    for turn in range(retrains + 1):
        again = f" (retrain {turn})" if turn else ""
        for stage in (*reward.stages, *own.stages):
            lines.append(replace(stage, name=stage.name + again))
    return tuple(lines)
