"""What does every GPU of one engine replica read, multiply and cache?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from headcount.estimate.kv_cache import layer_bytes_per_token
from headcount.estimate.parameters import Kind, block_tensors, root_tensors
from headcount.facts.gpu import Gpu
from headcount.facts.model_shape import Attention, AttentionKind, Block, ModelShape, MoeMlp

__all__ = ["Replica", "replica_of"]

_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int4": 0.56, "fp4": 0.5625}


@dataclass(frozen=True, kw_only=True, slots=True)
class Replica:
    """One engine replica: what every GPU of it reads, multiplies and caches. Bytes and FLOPs are per GPU."""

    gpu: Gpu
    precision: str
    dense_bytes: float  # read by every step
    expert_bytes: float  # all experts together
    experts: int
    active: int
    flops_per_token: float  # linears, of one token of this GPU's batch
    attention_flops: float  # of one token, per token of its context
    full_cache_bytes: float  # of one cached token: layers that see everything
    window_cache_bytes: float  # layers that see a window
    window: int
    expansion: float  # the cache with keys and values for every query head, over the cache as it is kept
    layers: int
    moe_layers: int
    mla_layers: int
    hidden: int
    reduces: int  # all-reduces of a token through all layers
    tensor: int
    pipeline: int
    attention_data: int  # ranks that each decode their part of the batch (attention data-parallel, experts divided)
    peak: float
    total_weight_bytes: float  # of the whole replica

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return self.tensor * self.pipeline * self.attention_data


def replica_of(
    shape: ModelShape,
    gpu: Gpu,
    *,
    precision: str,
    kv_bytes: float,
    tensor: int = 1,
    pipeline: int = 1,
    attention_data: int = 1,
) -> Replica:
    """Divide a model over a replica's GPUs.

    Embedding rows are looked up, not read whole. 4-bit checkpoints of mixtures keep attention in 16 bits, and the
    vocabulary head is never quantised.

    Raises:
        UnknownFact: the card has no bandwidth, or no peak at this precision.
    """
    weight_bytes = _BYTES[precision]
    attention_bytes = 2.0 if precision == "fp4" and shape.moe else weight_bytes
    dense = flops = expert = 0.0
    for count, block in shape.blocks:
        inside, experts, attention = _split(block, shape.hidden)
        dense += count * (inside * weight_bytes + attention * attention_bytes)
        expert += count * experts * weight_bytes
        reached = block.mlp.active / block.mlp.experts if isinstance(block.mlp, MoeMlp) else 0.0
        flops += count * 2 * (inside + attention + experts * reached)
    head = _head_numbers(shape)
    mixtures = [(count, block.mlp) for count, block in shape.blocks if isinstance(block.mlp, MoeMlp)]
    full, windowed, window = _cache(shape, kv_bytes, tensor)
    return Replica(
        gpu=gpu,
        precision=precision,
        dense_bytes=(dense + 2 * head) / tensor,
        expert_bytes=expert / tensor / attention_data,
        experts=mixtures[-1][1].experts if mixtures else 0,
        active=mixtures[-1][1].active if mixtures else 0,
        flops_per_token=(flops + 2 * head) / tensor,
        attention_flops=sum(c * _score_flops(b.attention) for c, b in shape.blocks) / tensor,
        full_cache_bytes=full,
        window_cache_bytes=windowed,
        window=window,
        expansion=_expansion(shape),
        layers=shape.layers,
        moe_layers=sum(count for count, _ in mixtures),
        mla_layers=sum(c for c, b in shape.blocks if b.attention.kind is AttentionKind.MLA),
        hidden=shape.hidden,
        # Parallel blocks add both outputs before one all-reduce (vLLM model_executor/models/falcon.py).
        reduces=sum(count * (1 if block.parallel else 2) for count, block in shape.blocks),
        tensor=tensor,
        pipeline=pipeline,
        attention_data=attention_data,
        peak=_peak(gpu, precision),
        total_weight_bytes=(dense + 2 * head) * attention_data + expert + 2 * head,
    )


@lru_cache(maxsize=256)
def _split(block: Block, hidden: int) -> tuple[int, int, int]:
    """Numbers of one block: (MLP, router and norms; all experts; attention linears)."""
    attention = block.attention
    names = {attention.q_name, attention.k_name, attention.v_name, attention.qkv_name, attention.o_name}
    names |= {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"}
    inside = experts = heads = 0
    for tensor in block_tensors(block, hidden=hidden):
        if tensor.module.startswith("experts."):
            experts += tensor.numel
        elif tensor.module in names:
            heads += tensor.numel
        else:
            inside += tensor.numel
    return inside, experts, heads


def _head_numbers(shape: ModelShape) -> int:
    tensors = root_tensors(shape)
    head = sum(t.numel for t in tensors if t.kind is Kind.HEAD)
    return head or shape.vocab * shape.hidden  # a tied table is read as the head


def _score_flops(attention: Attention) -> float:
    """Scores and weighted values of one token against one cached token; MLA works on the latent for every head."""
    if attention.kind is AttentionKind.MLA:
        return 2 * attention.heads * (2 * attention.kv_lora_rank + attention.rope_head_dim)
    return 2 * attention.heads * (attention.head_dim + (attention.value_head_dim or attention.head_dim))


def _cache(shape: ModelShape, kv_bytes: float, tensor: int) -> tuple[float, float, int]:
    """(bytes a cached token in layers that see all, in windowed layers, the window)."""
    full = windowed = 0.0
    window = 0
    for count, block in shape.blocks:
        each = count * layer_bytes_per_token(block.attention, kv_bytes=kv_bytes, tensor=tensor)
        if block.attention.window:
            windowed, window = windowed + each, block.attention.window
        else:
            full += each
    return full, windowed, window


def _expansion(shape: ModelShape) -> float:
    """Query heads per key head; of a latent cache, all heads' keys and values over the latent."""
    kept = sum(count * layer_bytes_per_token(block.attention, kv_bytes=1) for count, block in shape.blocks)
    heads = [(count * b.attention.heads, b.attention) for count, b in shape.blocks]
    return sum(n * (each.head_dim + (each.value_head_dim or each.head_dim)) for n, each in heads) / kept


def _peak(gpu: Gpu, precision: str) -> float:
    """Dense peak of the units that multiply: 4-bit weights without 4-bit units run in 16 bits."""
    if precision == "int4" or (precision == "fp4" and "fp4" not in gpu.flops_per_s):
        precision = "bf16"
    if precision == "bf16" and "bf16" not in gpu.flops_per_s:
        precision = "fp16"
    if precision == "fp16" and "fp16" not in gpu.flops_per_s:
        precision = "bf16"
    return gpu.peak_flops_per_s(precision)
