"""What is asked of the planner and the trainers, after every default has been filled in?

A Job is complete: nothing is None that the planner needs, and `sources` says of every setting where it came from. The
nouns here are torch-free and import nothing above `facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from headcount.errors import InputError
from headcount.facts.gpu import Gpu
from headcount.facts.link import Fabric
from headcount.facts.model_shape import ModelShape
from headcount.facts.optimizer import Optimizer
from headcount.facts.precision import FrozenPrecision, PrecisionPolicy
from headcount.job.layout import Layout
from headcount.vocabulary import Algorithm, Role

__all__ = [
    "Adapter", "AttentionKernel", "Checkpointing", "Engine", "EnginePlacement", "Job", "Kernels", "Lengths", "Loss",
    "MicroBatch", "Money", "Network", "Observed", "Origin", "Placement", "RowLayout", "Scope", "Source", "Throughput",
    "Tuning", "Upkeep", "Work",
]  # fmt: skip


class Tuning(StrEnum):
    """What of a network trains."""

    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"
    FROZEN = "frozen"


class Placement(StrEnum):
    """Where a frozen network lives, or what stands in for it."""

    DEVICE = "device"
    OFFLOAD = "offload"  # on the host, on the GPU only in the phase that runs it
    ADAPTER_OFF = "adapter-off"  # the policy's own base with its adapters switched off
    CACHED = "cached"  # DPO: log-probs on disk after one pass
    NONE = "none"


class Checkpointing(StrEnum):
    """Which activations are kept for backward."""

    NONE = "none"
    SELECTIVE = "selective"  # keep the matmul and attention outputs, recompute the rest
    SELECTIVE_SECOND = "selective-second"  # keep every second matmul output and attention's (torchtitan's "op")
    SELECTIVE_ATTENTION = "selective-attention"  # Megatron: recompute the attention core only
    FULL = "full"  # keep block inputs


class AttentionKernel(StrEnum):
    """Which attention runs."""

    EAGER = "eager"
    SDPA = "sdpa"
    FLASH = "flash"


class Loss(StrEnum):
    """How log-probs and the loss come out of hidden states (`loss_implementation`). See docs/equations."""

    PLAIN = "plain"  # HF loss from labels: fp32 upcast, output dropped
    PLAIN_KEPT = "plain-kept"  # the same, 16-bit output object alive through backward
    PLAIN_FP32_KEPT = "plain-fp32-kept"  # an fp32 output alive through backward
    LOG_SOFTMAX = "log-softmax"  # log_softmax + gather in the compute dtype
    LOG_SOFTMAX_FP32 = "log-softmax-fp32"  # .float() first
    LOG_SOFTMAX_ROWS = "log-softmax-rows"
    LOGSUMEXP = "logsumexp"
    LOGSUMEXP_ROWS = "logsumexp-rows"
    CHUNKED = "chunked"  # chunks of tokens, each checkpointed
    CHUNKED_KEPT = (
        "chunked-kept"  # chunks of tokens, not checkpointed: the 16-bit logits of all chunks stay (torchtune)
    )
    COMPILED = "compiled"  # plain loss under torch.compile: 16-bit logits and their gradient, nothing in fp32
    FUSED = "fused"  # fused cross-entropy on materialised logits
    FUSED_LINEAR = "fused-linear"  # Liger class: logits never whole
    VOCAB_PARALLEL = "vocab-parallel"  # over TP ranks, written op by op
    MEGATRON = "megatron"  # vocabulary-parallel, in place


class RowLayout(StrEnum):
    """How sequences lie in a micro-batch; decides whether a mask exists and which length attention sees."""

    EQUAL = "equal"  # rows of one length, no mask
    PADDED = "padded"  # rows × longest, with a mask
    PACKED = "packed"  # one row of `sequences × row_tokens` tokens, variable-length kernels


class EnginePlacement(StrEnum):
    """Where the rollout engine's weights are."""

    SHARED = "shared"  # the policy's own weights (built-in generator, HF generate)
    COLOCATED = "colocated"  # a second copy on the same GPUs
    SEPARATE = "separate"  # GPUs of its own


class Origin(StrEnum):
    """Where a setting came from."""

    GIVEN = "given"  # the job file or a flag
    RECIPE = "recipe"  # the framework's default, with its source
    DEFAULT = "default"  # headcount's own default
    ASSUMED = "assumed"  # nobody stated it; widens the band


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Why a setting has its value; `alternatives` are the other plausible values of an assumed one."""

    origin: Origin
    text: str
    value: object = None
    alternatives: tuple[object, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """LoRA. `targets`: module names or ("all-linear",); `extra_trained` modules (embed_tokens, lm_head) are copied."""

    rank: int
    targets: tuple[str, ...] = ("all-linear",)
    weight_bytes: int = 4  # peft raises 16-bit adapters to fp32 unless autocast_adapter_dtype=False
    dropout: float = 0.0
    extra_trained: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """One network of the job. `weights_of` names the role whose weights it shares (adapter-off, shared trunk)."""

    role: Role
    shape: ModelShape
    tuning: Tuning
    scalar_head: bool
    precision: PrecisionPolicy  # meaningful for the trainable
    frozen: FrozenPrecision  # dtype of frozen weights (base of LoRA/QLoRA included)
    optimizer: Optimizer
    adapter: Adapter | None = None
    placement: Placement = Placement.DEVICE
    weights_of: Role | None = None
    group: str = "train"  # which group of GPUs it sits on

    @property
    def trainable(self) -> bool:
        """True when it has an optimizer."""
        return self.tuning is not Tuning.FROZEN


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Tokens of prompts and completions: mean (time) and max (memory)."""

    prompt_mean: float
    prompt_max: int
    completion_mean: float
    completion_max: int
    completion_sigma: float = 0.7  # standard deviation of log length; 0: all are as long as the mean
    completion_quantiles: tuple[float, ...] = ()  # evenly spaced, of lengths that were read; empty: the log-normal

    @property
    def row_max(self) -> int:
        """Tokens of the longest row."""
        return self.prompt_max + self.completion_max

    @property
    def row_mean(self) -> float:
        """Tokens of the mean row."""
        return self.prompt_mean + self.completion_mean


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """What one forward on one data-parallel rank holds. A DPO or RM pair counts as two sequences."""

    sequences: int
    row_tokens: int  # of the longest row
    logit_tokens: int  # positions a row whose logits are made
    rows: RowLayout = RowLayout.EQUAL

    @property
    def tokens(self) -> int:
        """N = B·T."""
        return self.sequences * self.row_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernels:
    """Settings of the forward and backward that decide which bytes stay alive."""

    attention: AttentionKernel = AttentionKernel.SDPA
    checkpointing: Checkpointing = Checkpointing.FULL
    reentrant: bool = False
    offload_checkpoints: bool = False  # activation offload: about two checkpoints in flight stay
    loss: Loss = Loss.PLAIN
    loss_chunk_tokens: int = 1024
    fused_norm: bool = False
    fused_mlp: bool = False
    compiled: bool = False
    expand_kv: bool = False  # repeat_kv before attention
    residual_bytes: int = 2  # 4 when embeddings or norms were upcast (k-bit preparation)
    optimizer_in_backward: bool = False
    accumulate: bool = False  # gradients are present before the backward that peaks
    native_gelu: bool = False  # one F.gelu where transformers writes the formula out (litgpt)
    experts_weighted_fp32: bool = False  # routed outputs meet their scores in fp32 (torchtitan, prime-rl)
    expandable_segments: bool = False  # PYTORCH_CUDA_ALLOC_CONF: hardly any fragments in the reserved level
    on_cpu: bool = False  # PyTorch's CPU kernels instead of CUDA's: they keep other statistics and masks
    reference_first: bool = True  # DPO: the frozen forward runs before the policy's, under no kept activations


class Scope(StrEnum):
    """Whose tokens a stated throughput counts."""

    AGGREGATE = "aggregate"  # all engine GPUs together
    PER_STREAM = "per-stream"  # one sequence among `concurrency` on its replica


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """A decode rate that somebody measured, under conditions that were held against the job's."""

    tokens_per_s: float
    scope: Scope
    concurrency: int  # sequences that decoded at once: in all (aggregate), on the replica (per-stream)


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """The rollout engine."""

    name: str  # builtin | hf | vllm | sglang | trtllm
    placement: EnginePlacement
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    memory_fraction: float | None = None  # of total memory, weights included (vLLM's meaning); None for built-in
    sleep_level: int = 0  # 0 awake all the time · 1 weights to the host · 2 weights dropped
    max_sequences: int = 256
    precision: str = "bf16"  # of its weights
    weight_bytes: float = 2.0
    kv_bytes: int = 2
    eager: bool = False
    shared_prefill: bool = True
    gathers_whole: bool = False  # generation in place gathers the whole sharded policy first
    whole_model_sync: bool = False  # weights are gathered whole before they go to the engine, not tensor by tensor
    staleness: int = 0  # updates that may pass while a batch is generated; 0: the engine waits for each
    throughput: Throughput | None = None  # stated: replaces the decode model
    group: str = "train"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """How much work the job is, and how it is cut into steps."""

    rows: int  # prompts, pairs or rows of the data set
    epochs: float
    rows_per_step: int  # prompts_per_step, or rows of one optimizer step offline
    mini_batch_rows: int  # rows of one optimizer step
    group_size: int = 1
    passes: int = 1  # update epochs over one rollout (ppo_epochs, num_iterations)

    @property
    def steps(self) -> int:
        """Whole steps of the job."""
        return max(1, round(self.rows * self.epochs / self.rows_per_step))


@dataclass(frozen=True, kw_only=True, slots=True)
class Upkeep:
    """What a run does beside its steps, and what scoring costs without a network."""

    save_every: int = 0  # steps between checkpoints; 0: only at the end
    evaluate_every: int = 0  # steps between evaluations; 0: never
    evaluation_prompts: int = 0
    evaluation_samples: int = 1  # completions of one evaluation prompt
    verifier_s: float = 0.0  # seconds of a reward function on one completion
    verifier_workers: int = 1

    def evaluations(self, steps: int) -> int:
        """How often the run evaluates."""
        return steps // self.evaluate_every if self.evaluate_every else 0

    def saves(self, steps: int) -> int:
        """How often the run saves; the end counts."""
        return -(-steps // self.save_every) if self.save_every else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Money:
    """Whose prices, and which costs beside GPUs. None: the price table's median on-demand offer; no such row."""

    price_per_gpu_hour: float | None = None
    provider: str | None = None
    spot: bool = False
    usd_per_kwh: float | None = None
    usd_per_preference: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What a user saw on this very job: refits the constants of its group. None: not seen."""

    decode: Throughput | None = None
    train_tokens_per_s_per_gpu: float | None = None


class Rebuild(Protocol):
    """What made the job and can make it again with one key changed (`job.load.Spec`)."""

    def replaced(self, path: str, value: object) -> Rebuild:
        """The same with one key changed."""
        ...

    def build(self, *, gpus: int | None = None) -> Job:
        """The complete job."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """The whole question. `layouts` maps a group of GPUs (`train`, `rollout`, …) to its layout."""

    name: str
    algorithm: Algorithm
    networks: Mapping[Role, Network]  # resident or virtual (adapter-off); an absent role is not needed
    lengths: Lengths
    work: Work
    update: MicroBatch
    score: MicroBatch  # no-grad passes: old log-probs, reference, reward, values
    kernels: Kernels
    gpu: Gpu
    fabric: Fabric  # between hosts
    layouts: Mapping[str, Layout]
    engine: Engine | None = None
    joint_update: bool = False
    kl_coef: float = 0.0
    recipe: str = "headcount"
    libraries: Mapping[str, str] = field(default_factory=dict)
    money: Money = field(default_factory=Money)
    upkeep: Upkeep = field(default_factory=Upkeep)
    observed: Observed = field(default_factory=Observed)
    host_bytes_per_node: int | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    spec: Rebuild | None = field(default=None, repr=False, compare=False)

    def replaced(self, path: str, value: object) -> Job:
        """The same job with one key of its file changed, on the same GPUs."""
        if self.spec is None:
            raise InputError.one(path, "this job was not built from a job file, so no key of it can change")
        return self.spec.replaced(path, value).build(gpus=self.layouts["train"].gpus)

    @property
    def gpus(self) -> int:
        """GPUs held: all groups together."""
        return sum(layout.gpus for layout in self.layouts.values())

    @property
    def policy(self) -> Network:
        """The network the run is about: the reward model when that is what trains."""
        return self.networks.get(Role.POLICY) or self.networks[Role.REWARD]
