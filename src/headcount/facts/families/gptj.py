"""What does a GPT-J config say? One norm feeds attention and MLP in parallel; biases in the MLP and the head only."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, grouped, layers, root
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Separate q, k, v without biases."""
    hidden = fields.count("n_embd", "hidden_size")
    heads = fields.count("n_head", "num_attention_heads")
    head_dim = fields.divides("n_head", hidden, heads, of="n_embd")
    mlp = DenseMlp(
        width=fields.count("n_inner", default=4 * hidden),
        gated=False,
        bias=True,
        activation=activation(fields, "activation_function", default="gelu_new"),
        up_name="fc_in",
        down_name="fc_out",
    )
    block = Block(
        attention=grouped(fields, heads=heads, kv_heads=heads, head_dim=head_dim, o_name="out_proj"),
        mlp=mlp,
        norm=Norm.LAYER,
        norms=1,
        norm_bias=True,
        parallel=True,
    )
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=[(layers(fields, "n_layer", "num_hidden_layers"), block)],
        context_keys=("n_positions",),
        norm=Norm.LAYER,
        norm_bias=True,
        head_bias=True,
        embed_name="wte",
    )
