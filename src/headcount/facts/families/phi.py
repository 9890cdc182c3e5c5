"""What does a Phi-1, Phi-1.5 or Phi-2 config say? One LayerNorm feeds attention and MLP in parallel; biases."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, attention, layers, root
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """The vocabulary head has a bias, too. `qk_layernorm` is refused: no released Phi uses it."""
    if fields.flag("qk_layernorm"):
        fields.wrong("qk_layernorm", "is true, which no released Phi uses and this reader does not count")
    hidden = fields.count("hidden_size")
    mlp = DenseMlp(
        width=fields.count("intermediate_size"),
        gated=False,
        bias=True,
        activation=activation(fields, "hidden_act", default="gelu_new"),
        up_name="fc1",
        down_name="fc2",
    )
    block = Block(
        attention=attention(fields, hidden=hidden, bias=True, o_bias=True, o_name="dense", joined_rotary=True),
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
        blocks=[(layers(fields), block)],
        norm=Norm.LAYER,
        norm_bias=True,
        head_bias=True,
    )
