"""What does an OPT config say? Learned positions (two rows more than the context), biases, ReLU, tied embeddings.

opt-350m embeds 512 wide and computes 1,024 wide, and puts its norms after the residual sum, without a final one.
"""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, attention, layers, root
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]

_POSITION_OFFSET = 2  # OPTLearnedPositionalEmbedding


def read(fields: Fields, *, name: str) -> ModelShape:
    """`enable_bias` false and norms without weights (Galactica's kin) are refused."""
    for key in ("enable_bias", "layer_norm_elementwise_affine"):
        if not fields.flag(key, default=True):
            fields.wrong(key, "is false, which this reader does not count")
    hidden = fields.count("hidden_size")
    width = fields.count("word_embed_proj_dim", default=hidden)
    norm_first = fields.flag("do_layer_norm_before", default=True)
    block = Block(
        attention=attention(fields, hidden=hidden, bias=True, o_bias=True, o_name="out_proj"),
        mlp=_mlp(fields),
        norm=Norm.LAYER,
        norm_bias=True,
        post_norm=not norm_first,
    )
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=[(layers(fields), block)],
        tied=True,
        norm=Norm.LAYER,
        norm_bias=True,
        final_norm=norm_first and not fields.flag("_remove_final_layer_norm"),
        learned_positions=fields.count("max_position_embeddings") + _POSITION_OFFSET,
        embed_width=None if width == hidden else width,
    )


def _mlp(fields: Fields) -> DenseMlp:
    return DenseMlp(
        width=fields.count("ffn_dim"),
        gated=False,
        bias=True,
        activation=activation(fields, "activation_function", default="relu"),
        up_name="fc1",
        down_name="fc2",
    )
