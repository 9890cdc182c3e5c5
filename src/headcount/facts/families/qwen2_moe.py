"""What does a Qwen2-MoE config say? Routed experts, one gated shared expert, biases on q, k, v."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.qwen2 import windows
from headcount.facts.families.standard import attention, dense_mlp, experts, layers, root, runs
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, MoeMlp

__all__ = ["read", "sparse_mlps"]


def sparse_mlps(fields: Fields, moe: MoeMlp, count: int) -> list[MoeMlp | DenseMlp]:
    """Every `decoder_sparse_step`-th layer has experts, except those in `mlp_only_layers`."""
    step = fields.count("decoder_sparse_step", default=1)
    dense_layers = fields.indices("mlp_only_layers", below=count)
    every = [layer not in dense_layers and (layer + 1) % step == 0 for layer in range(count)]
    if all(every):
        return [moe] * count
    dense = dense_mlp(fields)
    return [moe if sparse else dense for sparse in every]


def read(fields: Fields, *, name: str) -> ModelShape:
    """The shared expert has its own width and a scalar gate."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("qkv_bias", default=True)
    moe = experts(
        fields,
        count_key="num_experts",
        width_key="moe_intermediate_size",
        shared_width=fields.count("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
    )
    count = layers(fields)
    mlps = sparse_mlps(fields, moe, count)
    blocks = [
        Block(attention=attention(fields, hidden=hidden, bias=bias, window=window), mlp=mlp)
        for window, mlp in zip(windows(fields, count), mlps, strict=True)
    ]
    return root(fields, name=name, hidden=hidden, blocks=runs(blocks))
