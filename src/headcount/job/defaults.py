"""What does a job use where neither its file nor its recipe says anything?

The default workload is the one that `compare` prints: 10,000 rows, one epoch, prompt 512, completion mean 512 cap
1,024, 128 prompts × 8 a step.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DEFAULTS"]

_WORKLOAD = "headcount's printed workload"
_TRAINER = "headcount's own trainers"

DEFAULTS: Mapping[str, tuple[object, str]] = {
    "recipe": ("headcount", _TRAINER),
    "policy.tuning": ("full", "the whole network trains"),
    "policy.precision": (
        "fsdp-mixed-16",
        "fp32 shards, bf16 compute: what FSDP2 trainers keep (verl, prime-rl, torchtitan)",
    ),
    "policy.base_precision": ("bf16", "frozen weights in 16 bits"),
    "policy.optimizer": ("adamw-fused", "no step temporary; transformers 5 and torchtitan choose it"),
    "policy.adapter.rank": (32, "verl and TRL examples"),
    "policy.adapter.targets": (("all-linear",), "Schulman et al. 2025, LoRA Without Regret: all layers"),
    "policy.adapter.dtype": ("bf16", "peft raises adapters to fp32 unless told not to; headcount tells it"),
    "policy.adapter.dropout": (0.0, "no dropped copies"),
    "reference.base_precision": ("bf16", "frozen weights in 16 bits"),
    "data.prompt_tokens": ({"mean": 512, "max": 512}, _WORKLOAD),
    "data.completion_tokens": ({"mean": 512, "max": 1024}, _WORKLOAD),
    "rollout.completion_tokens": ({"mean": 512, "max": 1024}, _WORKLOAD),
    "rollout.completion_sigma": (0.7, "chat and reasoning completions are right-skewed; 0.5 to 1.0 in public RL logs"),
    "rollout.prompts_per_step": (128, _WORKLOAD),
    "rollout.group_size": (8, _WORKLOAD),
    "rollout.engine": ("vllm", "the engine of verl, TRL, OpenRLHF, NeMo-RL"),
    "rollout.engine_placement": ("colocated", "default of verl, TRL (1.0+), NeMo-RL, SkyRL"),
    "rollout.memory_fraction": (0.6, "NeMo-RL's default; verl's is 0.5"),
    "rollout.sleep_level": (2, "verl: weights dropped while the trainer works"),
    "rollout.max_sequences": (256, "verl rollout.max_num_seqs; vLLM's default"),
    "rollout.engine_precision": ("bf16", "the policy's 16-bit weights"),
    "rollout.kv_precision": ("bf16", "vLLM kv_cache_dtype auto"),
    "rollout.eager": (False, "CUDA graphs"),
    "rollout.shared_prefill": (True, "prefix caching: one prefill a group"),
    "rollout.gathers_whole": (False, _TRAINER),
    "rollout.whole_model_sync": (False, "tensor by tensor"),
    "update.row_layout": ("equal", "the micro-batch is planned at its longest row"),
    "update.passes": (1, "one epoch over each rollout (verl ppo_epochs, TRL num_iterations)"),
    "update.gradient_checkpointing": ("full", "default of TRL, verl, ms-swift, SkyRL, prime-rl"),
    "update.attention": ("flash", "variable-length kernels: no mask"),
    "update.loss_implementation": (
        "chunked",
        "logits in checkpointed chunks; TRL's SFT default, prime-rl's fused head",
    ),
    "update.loss_chunk_tokens": (1024, _TRAINER),
    "update.logits_on": ("completion", "the head runs on completion positions only"),
    "update.kl_coef": (0.05, "TRL ppo_config.py:240"),
    "update.beta": (0.0, "TRL grpo_config.py:671: no reference is loaded"),
    "update.reference_first": (True, _TRAINER),
    "update.joint": (False, "policy and critic update one after the other"),
    "work.rows": (10_000, _WORKLOAD),
    "work.epochs": (1.0, _WORKLOAD),
    "work.rows_per_step": (128, _WORKLOAD),
    "layout.load": ("shards", "meta-device initialisation, every rank reads its shard"),
}

# Sequences of one micro-batch: a forward near this many tokens keeps a GPU busy without deciding the peak.
MICRO_BATCH_TOKENS = 8192
MICRO_BATCH_SOURCE = "about 8,192 tokens a forward (verl's dynamic budget is 16,384, prime-rl packs to seq_len)"
