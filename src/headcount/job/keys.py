"""Which keys may a job file have, of which type, between which bounds?

One row a key. The flat form (`update.micro_batch_tokens`) is what files, `--set`, recipes and sources share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headcount.job.job import AttentionKernel, Checkpointing, EnginePlacement, Loss, Placement, RowLayout, Scope, Tuning
from headcount.job.layout import ContextExchange, Load, Shard
from headcount.vocabulary import Algorithm

__all__ = ["KEYS", "Key"]

_MOST = 10**12


@dataclass(frozen=True, slots=True)
class Key:
    """`kind` is int, float, bool, str, strs (a list of names), tokens (an integer or {mean, max}) or choice."""

    path: str
    kind: str
    meaning: str
    low: float = 1
    high: float = _MOST
    choices: tuple[str, ...] = ()


def _choice(path: str, meaning: str, choices: type[StrEnum] | tuple[str, ...]) -> Key:
    return Key(path, "choice", meaning, choices=tuple(str(choice) for choice in choices))


def _network(role: str) -> Iterator[Key]:
    yield Key(f"{role}.model", "str", "hub id, folder, config.json, or a bare size such as 7b")
    yield _choice(f"{role}.tuning", "what trains", (Tuning.FULL, Tuning.LORA, Tuning.QLORA))
    yield Key(f"{role}.precision", "str", "precision policy of what trains (headcount facts precisions)")
    yield Key(f"{role}.base_precision", "str", "format of frozen weights")
    yield Key(f"{role}.optimizer", "str", "optimizer (headcount facts optimizers)")
    yield Key(f"{role}.adapter.rank", "int", "LoRA rank", 1, 65536)
    yield Key(f"{role}.adapter.targets", "strs", "module names, or all-linear")
    yield _choice(f"{role}.adapter.dtype", "dtype of the adapters", ("bf16", "fp32"))
    yield Key(f"{role}.adapter.dropout", "float", "LoRA dropout", 0, 1)
    yield Key(f"{role}.adapter.extra_trained", "strs", "modules trained whole beside the adapters")


KEYS: Mapping[str, Key] = {
    key.path: key
    for key in (
        Key("name", "str", "what to call the job"),
        _choice("algorithm", "how the policy is trained", Algorithm),
        Key("recipe", "str", "framework whose defaults fill what is not written (headcount facts recipes)"),
        *_network("policy"),
        Key("reference.model", "str", "another model than the policy's"),
        Key("reference.base_precision", "str", "format of the reference's weights"),
        _choice("reference.placement", "where the reference lives, or what stands in for it", Placement),
        *_network("critic"),
        _choice("critic.trunk", "share a trunk by a second adapter", ("policy", "reward")),
        _choice("critic.init_from", "whose weights the critic starts from", ("policy", "reward")),
        Key("data.prompts", "str", "JSONL of prompts; lengths are read from it"),
        Key("data.pairs", "str", "JSONL of preference pairs"),
        Key("data.rows", "str", "JSONL of chats"),
        Key("data.prompt_tokens", "tokens", "tokens of a prompt"),
        Key("data.completion_tokens", "tokens", "tokens of a completion (offline algorithms)"),
        Key("rollout.prompts_per_step", "int", "prompts of one step"),
        Key("rollout.group_size", "int", "completions of one prompt", 1, 65536),
        Key("rollout.completion_tokens", "tokens", "tokens of a completion"),
        _choice("rollout.engine", "what generates", ("builtin", "hf", "vllm", "sglang")),
        _choice("rollout.engine_placement", "where the engine's weights are", EnginePlacement),
        Key("rollout.engine_gpus", "int", "GPUs of a separate engine", 1, 65536),
        Key("rollout.engine_tensor", "int", "tensor-parallel ranks of one engine replica", 1, 1024),
        Key("rollout.engine_pipeline", "int", "pipeline stages of one engine replica", 1, 1024),
        Key("rollout.engine_expert", "int", "expert-parallel ranks of one engine replica", 1, 1024),
        Key("rollout.memory_fraction", "float", "share of total memory, weights included (vLLM's meaning)", 0.01, 1),
        Key("rollout.sleep_level", "int", "0 awake, 1 weights to the host, 2 weights dropped", 0, 2),
        Key("rollout.max_sequences", "int", "sequences that decode at once", 1, 10**6),
        _choice("rollout.engine_precision", "engine weights", ("bf16", "fp8", "int4", "fp4")),
        _choice("rollout.kv_precision", "KV cache", ("bf16", "fp8")),
        Key("rollout.eager", "bool", "no CUDA graphs"),
        Key("rollout.completion_sigma", "float", "standard deviation of the logarithm of completion lengths", 0, 3),
        Key("rollout.completion_lengths", "str", "JSONL of completion lengths that a run produced"),
        Key("rollout.staleness", "int", "updates that may pass while a batch is generated", 0, 1000),
        Key("rollout.throughput.tokens_per_s", "float", "decode rate that you measured", 0.001, 10**9),
        _choice("rollout.throughput.scope", "whose tokens the rate counts", Scope),
        Key("rollout.throughput.concurrency", "int", "sequences that decoded at once", 1, 10**6),
        Key("rollout.throughput.model", "str", "model that was measured"),
        Key("rollout.throughput.gpu", "str", "kind of card that was measured"),
        _choice("rollout.throughput.precision", "engine weights that were measured", ("bf16", "fp8", "int4", "fp4")),
        Key("rollout.throughput.tensor", "int", "tensor-parallel ranks that were measured", 1, 1024),
        Key("rollout.throughput.pipeline", "int", "pipeline stages that were measured", 1, 1024),
        Key("rollout.shared_prefill", "bool", "one prefill for the whole group"),
        Key("rollout.gathers_whole", "bool", "generation in place gathers the whole sharded policy"),
        Key("rollout.whole_model_sync", "bool", "weights are gathered whole on their way to the engine"),
        Key("update.micro_batch_sequences", "int", "sequences of one forward on one GPU (a pair is two)", 1, 10**6),
        Key("update.micro_batch_tokens", "int", "token budget of one forward on one GPU", 1, 10**9),
        _choice("update.row_layout", "how sequences lie in a micro-batch", RowLayout),
        Key("update.mini_batch_prompts", "int", "prompts (rows offline) of one optimizer step"),
        Key("update.passes", "int", "epochs over one rollout", 1, 1000),
        _choice("update.gradient_checkpointing", "what is kept for backward", Checkpointing),
        Key("update.checkpoint_reentrant", "bool", "re-entrant checkpointing"),
        Key("update.offload_checkpoints", "bool", "checkpoints on the host"),
        _choice("update.attention", "attention kernel", AttentionKernel),
        _choice("update.loss_implementation", "how log-probs and loss are computed", Loss),
        Key("update.loss_chunk_tokens", "int", "tokens of a chunk of the loss", 1, 10**9),
        Key("update.fused_norm", "bool", "one kernel per norm"),
        Key("update.fused_mlp", "bool", "one kernel for the MLP's element-wise part"),
        Key("update.compiled", "bool", "torch.compile"),
        Key("update.expand_kv", "bool", "keys and values repeated for every query head"),
        Key("update.residual_bytes", "int", "bytes of the residual stream", 2, 4, choices=("2", "4")),
        Key("update.optimizer_in_backward", "bool", "each layer steps during backward"),
        Key("update.native_gelu", "bool", "one kernel for a GELU that transformers writes out"),
        Key("update.experts_weighted_fp32", "bool", "routed outputs are weighted in fp32"),
        Key("update.expandable_segments", "bool", "the allocator's expandable segments"),
        Key("update.accumulate", "bool", "gradients stand while another micro-batch runs"),
        Key("update.reference_first", "bool", "DPO: the reference runs before the policy"),
        Key("update.joint", "bool", "PPO: one loss over policy and critic"),
        _choice("update.logits_on", "positions whose logits are made", ("completion", "all")),
        Key("update.learning_rate", "float", "step size", 0, 10),
        Key("update.beta", "float", "KL coefficient in the loss (GRPO), temperature (DPO)", 0, 100),
        Key("update.kl_coef", "float", "KL coefficient in the reward (PPO)", 0, 100),
        Key("update.clip_low", "float", "lower clip of the ratio", 0, 10),
        Key("update.clip_high", "float", "upper clip of the ratio", 0, 10),
        Key("update.gae_lambda", "float", "λ of generalised advantage estimation", 0, 1),
        _choice(
            "update.loss_aggregation",
            "how per-token losses are summed",
            ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"),
        ),
        Key("score.micro_batch_sequences", "int", "sequences of one forward without gradient", 1, 10**6),
        Key("score.micro_batch_tokens", "int", "token budget of one forward without gradient", 1, 10**9),
        Key("work.rows", "int", "prompts, pairs or rows of the data set"),
        Key("work.rows_per_step", "int", "pairs or rows of one optimizer step (offline algorithms)"),
        Key("work.epochs", "float", "passes over the data", 0.000001, 10**6),
        Key("work.steps", "int", "steps instead of epochs"),
        Key("work.save_every", "int", "steps between checkpoints; left out: one at the end"),
        Key("work.evaluate_every", "int", "steps between evaluations; left out: none"),
        Key("work.evaluation_prompts", "int", "prompts (rows offline) of one evaluation"),
        Key("work.evaluation_samples", "int", "completions of one evaluation prompt", 1, 65536),
        Key("hardware.gpu", "str", "kind of card (headcount facts gpus)"),
        Key("hardware.gpus", "int", "GPUs; left out: the fewest that fit", 1, 65536),
        Key("hardware.gpus_per_node", "int", "GPUs of one node", 1, 1024),
        Key("hardware.fabric", "str", "network between hosts (headcount facts fabrics)"),
        Key("hardware.host_memory_gib", "float", "host memory of one node", 1, 10**6),
        _choice("layout.shard", "who divides model state", Shard),
        Key("layout.tensor", "int", "tensor-parallel ranks", 1, 1024),
        Key("layout.sequence_parallel", "bool", "norms and residual divided over tensor ranks"),
        Key("layout.pipeline", "int", "pipeline stages", 1, 1024),
        Key("layout.virtual_pipeline", "int", "interleaved chunks of a stage", 1, 1024),
        Key("layout.pipeline_micro_batches", "int", "micro-batches in one pipeline flush", 1, 10**6),
        Key("layout.context", "int", "context-parallel ranks", 1, 1024),
        _choice("layout.context_exchange", "how context ranks see the whole row", ContextExchange),
        Key("layout.expert", "int", "expert-parallel ranks", 1, 1024),
        Key("layout.replicate", "int", "HSDP: groups that each hold all shards", 1, 65536),
        Key("layout.layer_split", "int", "naive split of layers over GPUs (device_map)", 1, 1024),
        Key("layout.reshard_after_forward", "bool", "FSDP2 frees gathered weights after the forward"),
        Key("layout.root_split", "bool", "embedding and head in FSDP groups of their own"),
        Key("layout.offload_parameters", "bool", "weights on the host"),
        Key("layout.offload_optimizer", "bool", "optimizer state and step on the host"),
        Key("layout.offload_between_phases", "bool", "trainer state on the host outside its phase"),
        _choice("layout.load", "where whole models are while they load", Load),
        Key("observed.decode_tokens_per_s", "float", "decode rate that you saw on this job's engine", 0.001, 10**9),
        _choice("observed.scope", "whose tokens that rate counts", Scope),
        Key("observed.concurrency", "int", "sequences that decoded at once", 1, 10**6),
        Key("observed.train_tokens_per_s", "float", "tokens a second and GPU that you saw in the update", 0.001, 10**9),
        Key("cost.price_per_gpu_hour", "float", "dollars", 0, 10**4),
        Key("cost.provider", "str", "whose prices (headcount facts prices)"),
        Key("cost.spot", "bool", "spot prices instead of on-demand ones"),
        Key("cost.usd_per_kwh", "float", "price of energy: adds a row from the cards' power", 0, 100),
        Key("cost.usd_per_preference", "float", "price of one labelled pair: adds a row", 0, 10**6),
    )
}
