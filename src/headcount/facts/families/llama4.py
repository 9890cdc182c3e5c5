"""What does a Llama 4 config say? The text model: chunked attention in three layers of four, one routed expert.

Scout has experts in every layer, Maverick in every second one; a shared expert runs beside them.
"""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, attention, experts, layer_windows, layers, root, runs
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, MoeMlp

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`use_qk_norm` here is a norm without weights."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    count = layers(fields)
    chunk = fields.count("attention_chunk_size", default=8192)
    every = fields.count("no_rope_layer_interval", default=4)
    blocks = [
        Block(attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias, window=window), mlp=mlp)
        for window, mlp in zip(
            layer_windows(fields, count=count, window=chunk, full_every=every), _mlps(fields, count), strict=True
        )
    ]
    return root(fields, name=name, hidden=hidden, blocks=runs(blocks))


def _mlps(fields: Fields, count: int) -> list[MoeMlp | DenseMlp]:
    width = fields.count("intermediate_size")
    moe = experts(
        fields,
        count_key="num_local_experts",
        width_key="intermediate_size",
        shared_width=width,
        router_linear=True,
    )
    act = activation(fields, "hidden_act", default="silu")
    dense = DenseMlp(width=fields.count("intermediate_size_mlp", default=16384), activation=act)
    step = fields.count("interleave_moe_layer_step", default=1)
    given = fields.indices("moe_layers", below=count)
    routed = given or frozenset(range(step - 1, count, step))
    return [moe if layer in routed else dense for layer in range(count)]
