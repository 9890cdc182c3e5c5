"""The same case as a Job, and what headcount predicts for it."""

from __future__ import annotations

from headcount.facts.gpu import find_gpu
from headcount.facts.link import usual_fabric
from headcount.facts.optimizer import find_optimizer
from headcount.facts.precision import find_frozen_precision, find_precision
from headcount.job.job import (
    Adapter,
    AttentionKernel,
    Checkpointing,
    Job,
    Kernels,
    Lengths,
    Loss,
    MicroBatch,
    Network,
    Placement,
    Tuning,
    Work,
)
from headcount.job.layout import Layout
from headcount.plan.phases import phase_moments
from headcount.vocabulary import Algorithm, Phase, Role, State
from tests.ground_truth.models import EAGER, shape_of
from tests.ground_truth.steps import Case


def job_of(case: Case) -> Job:
    """16-bit weights under PyTorch's AdamW, one GPU, nothing given away to a framework."""
    algorithm = Algorithm(case.algorithm)
    whole_row = algorithm is Algorithm.SFT
    micro_batch = MicroBatch(
        sequences=case.rows,
        row_tokens=case.row_tokens,
        logit_tokens=case.row_tokens if whole_row else case.completion_tokens + 1,
    )
    return Job(
        name=f"{case.family} {algorithm}",
        algorithm=algorithm,
        networks=_networks(case, algorithm),
        lengths=Lengths(prompt_mean=1, prompt_max=1, completion_mean=1, completion_max=1),
        work=Work(rows=case.rows, epochs=1, rows_per_step=case.rows, mini_batch_rows=case.rows),
        update=micro_batch,
        score=micro_batch,
        kernels=Kernels(
            attention=AttentionKernel.EAGER if case.family in EAGER else AttentionKernel.SDPA,
            checkpointing=Checkpointing.FULL if case.checkpointing else Checkpointing.NONE,
            loss=Loss.PLAIN if whole_row else Loss.LOG_SOFTMAX,
            on_cpu=True,
        ),
        gpu=find_gpu("h100"),
        fabric=usual_fabric("hopper"),
        layouts={"train": Layout(gpus=1)},
    )


def _networks(case: Case, algorithm: Algorithm) -> dict[Role, Network]:
    tuning = Tuning.LORA if case.lora_rank else Tuning.FULL
    adapter = Adapter(rank=case.lora_rank, weight_bytes=2) if case.lora_rank else None

    def network(role: Role, tuning: Tuning = tuning, *, scalar: bool = False, **more) -> Network:
        return Network(
            role=role,
            shape=shape_of(case.family, **case.changes),
            tuning=tuning,
            scalar_head=scalar,
            precision=find_precision("bf16-pure-8"),
            frozen=find_frozen_precision("bf16"),
            optimizer=find_optimizer("adamw-foreach" if case.foreach else "adamw-fused"),
            adapter=adapter if tuning is Tuning.LORA else None,
            **more,
        )

    if algorithm is Algorithm.REWARD_MODEL:
        return {Role.REWARD: network(Role.REWARD, scalar=True)}
    networks = {Role.POLICY: network(Role.POLICY)}
    if algorithm is Algorithm.PPO:
        networks[Role.CRITIC] = network(Role.CRITIC, scalar=True)
        networks[Role.REWARD] = network(Role.REWARD, Tuning.FROZEN, scalar=True)
    if case.reference and algorithm in (Algorithm.DPO, Algorithm.PPO, Algorithm.GRPO):
        off = {"placement": Placement.ADAPTER_OFF, "weights_of": Role.POLICY} if case.lora_rank else {}
        networks[Role.REFERENCE] = network(Role.REFERENCE, Tuning.FROZEN, **off)
    return networks


def predicted_peaks(case: Case) -> dict[str, int]:
    """Peak of every stretch that `steps.measure` measures, from the planner's own moments."""
    job = job_of(case)
    peaks: dict[str, int] = {}
    for moment in phase_moments(job, "train", Phase.UPDATE):
        part = "optimizer step" if moment.name == "optimizer step" else "backward"
        # DPO's reference runs inside the policy's loss.
        role = Role.POLICY if moment.acting is Role.REFERENCE else moment.acting
        key = f"update/{role}/{part}"
        peaks[key] = max(peaks.get(key, 0), moment.allocated_bytes)
    if job.algorithm.online:
        for moment in phase_moments(job, "train", Phase.SCORE):
            key = f"score/{moment.acting}"
            peaks[key] = max(peaks.get(key, 0), moment.allocated_bytes)
    return peaks


def predicted_state(case: Case) -> dict[State, int]:
    """Weights of all networks; optimizer state and gradients of the last one that updates."""
    job = job_of(case)
    rows = [row for moment in phase_moments(job, "train", Phase.UPDATE) for row in moment.rows]
    trains = {Algorithm.PPO: Role.CRITIC, Algorithm.REWARD_MODEL: Role.REWARD}.get(job.algorithm, Role.POLICY)
    weights = {(row.role, row.item): row.bytes for row in rows if row.item in ("weights", "adapters")}
    moments = {row.item: row.bytes for row in rows if row.role is trains and row.item == "optimizer moments"}
    gradients = [
        row.bytes
        for moment in phase_moments(job, "train", Phase.UPDATE)
        if moment.name == "optimizer step" and moment.acting is trains
        for row in moment.rows
        if row.item == "gradients"
    ]
    return {
        State.WEIGHTS: sum(weights.values()),
        State.OPTIMIZER: sum(moments.values()),
        State.GRADIENTS: gradients[0],
    }
