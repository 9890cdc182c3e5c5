"""Which blocks were the laws measured on? h = 96, f = 224, 6 query heads, 2 key heads, d = 16."""

from __future__ import annotations

from typing import Any

from headcount.estimate.forward_pass import Pass
from headcount.facts.model_shape import Activation, Attention, Block, DenseMlp, ModelShape, MoeMlp, Norm, QkNorm
from headcount.job.job import AttentionKernel, Checkpointing, Kernels, MicroBatch, RowLayout

HIDDEN = 96
GATED = DenseMlp(width=224)


def heads(**more: Any) -> Attention:
    return Attention(**{"heads": 6, "kv_heads": 2, "head_dim": 16, **more})


def ungated(activation: Activation) -> DenseMlp:
    return DenseMlp(width=224, gated=False, bias=True, activation=activation)


LLAMA = Block(attention=heads(), mlp=GATED)
QWEN3 = Block(attention=heads(qk_norm=QkNorm.PER_HEAD), mlp=GATED)
PHI3 = Block(attention=heads(fused_qkv=True, joined_rotary=True), mlp=DenseMlp(width=224, fused_gate_up=True))
GEMMA = Block(attention=heads(), mlp=GATED, norm=Norm.RMS_PLUS_ONE)
GEMMA2 = Block(attention=heads(softcap=True), mlp=GATED, norm=Norm.RMS_PLUS_ONE, norms=4)
GEMMA3 = Block(attention=heads(qk_norm=QkNorm.PER_HEAD), mlp=GATED, norm=Norm.RMS_PLUS_ONE, norms=4)
GPT2 = Block(
    attention=heads(kv_heads=6, fused_qkv=True, qkv_name="c_attn"),
    mlp=ungated(Activation.GELU_PYTHON),
    norm=Norm.LAYER,
    norm_bias=True,
)
OPT = Block(attention=heads(kv_heads=6), mlp=ungated(Activation.RELU), norm=Norm.LAYER, norm_bias=True)
QWEN3_MOE = Block(attention=heads(qk_norm=QkNorm.PER_HEAD), mlp=MoeMlp(experts=8, active=2, width=40))
OLMO2 = Block(attention=heads(qk_norm=QkNorm.FULL_WIDTH), mlp=GATED, post_norm=True)
NEOX = Block(
    attention=heads(kv_heads=6, fused_qkv=True, qkv_name="query_key_value", joined_rotary=True),
    mlp=ungated(Activation.GELU),
    norm=Norm.LAYER,
    parallel=True,
)
LLAMA_8B = Block(attention=Attention(heads=32, kv_heads=8, head_dim=128), mlp=DenseMlp(width=14336))
SHAPE_8B = ModelShape(name="8B", family="llama", hidden=4096, blocks=((32, LLAMA_8B),), vocab=128256, max_tokens=131072)


def measured_pass(
    *,
    s: int = 2,
    attention: AttentionKernel = AttentionKernel.SDPA,
    rows: RowLayout = RowLayout.EQUAL,
    checkpointing: Checkpointing = Checkpointing.NONE,
    sequences: int = 2,
    row_tokens: int = 32,
    **more: Any,
) -> Pass:
    """The measured pass: 2 rows of 32 tokens on a CPU."""
    return Pass(
        micro_batch=MicroBatch(sequences=sequences, row_tokens=row_tokens, logit_tokens=row_tokens, rows=rows),
        kernels=Kernels(attention=attention, checkpointing=checkpointing, residual_bytes=s),
        compute_bytes=s,
        **{"on_cpu": True, **more},
    )
