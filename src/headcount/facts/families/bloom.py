"""What does a BLOOM config say? Fused qkv, biases, ALiBi, a norm on the embeddings, tied head."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import grouped, layers, root
from headcount.facts.model_shape import Activation, Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """ALiBi has no longest context; `seq_length` is what the model was trained on."""
    hidden = fields.count("hidden_size", "n_embed")
    heads = fields.count("n_head", "num_attention_heads")
    attention = grouped(
        fields,
        heads=heads,
        kv_heads=heads,
        head_dim=fields.divides("n_head", hidden, heads, of="hidden_size"),
        bias=True,
        o_bias=True,
        fused_qkv=True,
        qkv_name="query_key_value",
        o_name="dense",
    )
    mlp = DenseMlp(
        width=4 * hidden,
        gated=False,
        bias=True,
        activation=Activation.GELU,
        up_name="dense_h_to_4h",
        down_name="dense_4h_to_h",
    )
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=[
            (
                layers(fields, "n_layer", "num_hidden_layers"),
                Block(attention=attention, mlp=mlp, norm=Norm.LAYER, norm_bias=True),
            )
        ],
        context_keys=("seq_length",),
        default_max_tokens=2048,
        tied=True,
        norm=Norm.LAYER,
        norm_bias=True,
        embed_norm=True,
        embed_name="word_embeddings",
    )
