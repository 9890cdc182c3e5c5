"""What could be changed about a job: bytes and seconds saved, what it costs, what it does to quality?

Every lever is tried: the job is planned again with the one key changed, and both plans are held side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headcount.errors import InputError
from headcount.job.job import Job
from headcount.ledger.predicted import Plan
from headcount.plan.planner import plan
from headcount.vocabulary import Verdict

__all__ = ["Lever", "Pulled", "levers_json", "pulled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lever:
    """One change of a job file and what it asks in return."""

    key: str
    value: object
    name: str
    quality: str  # what it does to the result


_SAME = "none: the same mathematics"

LEVERS: tuple[Lever, ...] = (
    Lever(key="update.loss_implementation", value="chunked", name="loss in chunks", quality=_SAME),
    Lever(key="update.loss_implementation", value="fused-linear", name="fused linear loss", quality=_SAME),
    Lever(key="update.gradient_checkpointing", value="full", name="recompute every block", quality=_SAME),
    Lever(key="update.gradient_checkpointing", value="selective", name="recompute what is cheap", quality=_SAME),
    Lever(key="update.gradient_checkpointing", value="none", name="keep all activations", quality=_SAME),
    Lever(key="update.micro_batch_sequences", value=1, name="smallest micro-batch", quality=_SAME),
    Lever(key="update.compiled", value=True, name="torch.compile", quality=_SAME),
    Lever(key="layout.root_split", value=True, name="embedding and head in FSDP groups of their own", quality=_SAME),
    Lever(key="layout.reshard_after_forward", value=False, name="keep weights gathered for backward", quality=_SAME),
    Lever(key="layout.offload_optimizer", value=True, name="optimizer on the host", quality=_SAME),
    Lever(key="layout.tensor", value=2, name="two tensor ranks", quality=_SAME),
    Lever(
        key="policy.optimizer",
        value="adamw-8bit",
        name="8-bit AdamW",
        quality="small: block-wise quantised moments (Dettmers et al., arXiv:2110.02861)",
    ),
    Lever(
        key="policy.precision",
        value="bf16-pure-8",
        name="no fp32 master weights",
        quality="risk: small updates are lost in 16-bit weights at low learning rates",
    ),
    Lever(
        key="policy.tuning",
        value="lora",
        name="LoRA",
        quality="less capacity; close to full tuning in RL and small-data SFT; removes the reference's weights",
    ),
    Lever(key="policy.tuning", value="qlora", name="QLoRA", quality="as LoRA, on a 4-bit base"),
    Lever(key="reference.placement", value="offload", name="reference on the host outside SCORE", quality=_SAME),
    Lever(
        key="reference.placement",
        value="cached",
        name="reference log-probs from disk",
        quality=_SAME + "; fixed pairs only: offline DPO cannot explore beyond its data",
    ),
    Lever(
        key="update.beta",
        value=0.0,
        name="no KL term",
        quality="drops the anchor: nothing holds the policy near where it started",
    ),
    Lever(key="update.kl_coef", value=0.0, name="no KL in the reward", quality="drops the anchor, as beta = 0"),
    Lever(
        key="critic.trunk",
        value="policy",
        name="critic as an adapter on the policy's trunk",
        quality="couples critic and policy: the value head sees the policy's features (needs LoRA)",
    ),
    Lever(key="rollout.engine_precision", value="fp8", name="FP8 engine", quality="rollouts differ from the trainer's "
          "policy: correct by truncated importance sampling"),
    Lever(key="rollout.kv_precision", value="fp8", name="FP8 cache", quality="small; as FP8 engine"),
    Lever(key="rollout.sleep_level", value=2, name="engine drops its weights while the trainer works", quality=_SAME),
    Lever(key="rollout.memory_fraction", value=0.4, name="smaller engine share", quality=_SAME),
    Lever(key="rollout.memory_fraction", value=0.8, name="larger engine share", quality=_SAME),
    Lever(key="rollout.group_size", value=4, name="groups of four", quality="noisier advantages: fewer siblings"),
    Lever(
        key="update.mini_batch_prompts",
        value=None,
        name="on-policy: one optimizer step a rollout",
        quality="no stale updates, no pass for old log-probs; fewer optimizer steps",
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulled:
    """A lever that was tried on a job. Savings are positive when the change helps."""

    lever: Lever
    saved_bytes: float
    saved_step_s: float | None
    verdict: Verdict
    host_bytes: float  # more on the host, per node


def pulled(job: Job) -> list[Pulled]:
    """Every lever that changes the job, the most bytes first. One that contradicts the job is left out."""
    base = plan(job)
    tried = [result for lever in LEVERS if (result := _tried(job, base, lever)) is not None]
    useful = [each for each in tried if each.saved_bytes or (each.saved_step_s or 0.0)]
    return sorted(useful, key=lambda each: (-each.saved_bytes, -(each.saved_step_s or 0.0)))


def _tried(job: Job, base: Plan, lever: Lever) -> Pulled | None:
    value = job.work.rows_per_step if lever.value is None else lever.value
    try:
        changed = plan(job.replaced(lever.key, value))
    except InputError:
        return None
    seconds = [_step_s(each) for each in (base, changed)]
    before, after = seconds
    return Pulled(
        lever=lever,
        saved_bytes=base.deciding.bytes - changed.deciding.bytes,
        saved_step_s=None if before is None or after is None else before - after,
        verdict=changed.verdict,
        host_bytes=_host(changed) - _host(base),
    )


def _step_s(planned: Plan) -> float | None:
    """Seconds of a step of the run; None where the card's speed is unknown."""
    return planned.run.step_seconds.p50 if planned.run else None


def _host(planned: Plan) -> float:
    return max((moment.bytes for held in planned.footprints for moment in held.host_moments), default=0)


def levers_json(results: list[Pulled]) -> dict[str, Any]:
    """The stable form (docs/json.md)."""
    return {"schema": "headcount.levers/1", "levers": list(_records(results))}


def _records(results: list[Pulled]) -> Iterator[dict[str, Any]]:
    for each in results:
        yield {
            "key": each.lever.key,
            "value": each.lever.value,
            "name": each.lever.name,
            "saved_bytes": each.saved_bytes,
            "saved_step_s": each.saved_step_s,
            "host_bytes": each.host_bytes,
            "verdict": str(each.verdict),
            "quality": each.lever.quality,
        }
