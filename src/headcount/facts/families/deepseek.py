"""What does a DeepSeek V2, V3, R1 or Kimi K2 config say? Latent attention; experts after the first dense layers.

Sources: arXiv:2405.04434, arXiv:2412.19437. The multi-token-prediction layer of V3's checkpoint is not part of the
model that transformers builds, and not counted.
"""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import QWEN_EXPERTS, dense_mlp, experts, layers, root
from headcount.facts.model_shape import Attention, AttentionKind, Block, DenseMlp, ModelShape, MoeMlp

__all__ = ["latent_attention", "leading_dense", "read", "routed"]


def latent_attention(fields: Fields, *, index_heads: int = 0, index_head_dim: int = 0) -> Attention:
    """Multi-head latent attention; `head_dim` is nope + rope. The bias sits on the two down-projections and o."""
    if "q_lora_rank" not in fields.values:
        fields.wrong("q_lora_rank", "is missing; the query's size depends on it", 'write a number, or "null" for none')
    heads = fields.count("num_attention_heads")
    rope = fields.count("qk_rope_head_dim")
    bias = fields.flag("attention_bias")
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=fields.count("qk_nope_head_dim") + rope,
        kind=AttentionKind.MLA,
        value_head_dim=fields.count("v_head_dim"),
        q_bias=bias,
        k_bias=bias,
        o_bias=bias,
        q_lora_rank=fields.maybe_count("q_lora_rank"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        rope_head_dim=rope,
        index_heads=index_heads,
        index_head_dim=index_head_dim,
    )


def routed(fields: Fields) -> MoeMlp:
    """`n_routed_experts` experts and `n_shared_experts` shared ones of the same width."""
    shared = fields.count("n_shared_experts", default=0, least=0)
    width = fields.count("moe_intermediate_size")
    return experts(
        fields,
        count_key="n_routed_experts",
        width_key="moe_intermediate_size",
        shared_width=shared * width,
        normalised=fields.flag("norm_topk_prob", default=True),
        fp32_weights=True,
        expert_names=QWEN_EXPERTS,
    )


def leading_dense(
    fields: Fields, attention: Attention, dense: DenseMlp, moe: MoeMlp, *, count: int
) -> list[tuple[int, Block]]:
    """`first_k_dense_replace` dense blocks, experts in all others."""
    first = min(fields.count("first_k_dense_replace", least=0), count)
    runs = [(first, Block(attention=attention, mlp=dense)), (count - first, Block(attention=attention, mlp=moe))]
    return [run for run in runs if run[0]]


def read(fields: Fields, *, name: str) -> ModelShape:
    """DeepSeek V2 and V3, and models with their architecture."""
    if fields.count("moe_layer_freq", default=1) != 1:
        fields.wrong("moe_layer_freq", "is not 1: experts in some layers only, which no released model has")
    hidden = fields.count("hidden_size")
    dense = dense_mlp(fields, bias=fields.flag("mlp_bias"))
    blocks = leading_dense(fields, latent_attention(fields), dense, routed(fields), count=layers(fields))
    return root(fields, name=name, hidden=hidden, blocks=blocks)
