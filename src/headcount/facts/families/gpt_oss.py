"""What does a gpt-oss config say? Biases everywhere, attention sinks, windows on every other layer, biased experts."""

from __future__ import annotations

from headcount.facts.config_file import Fields, StandIn
from headcount.facts.families.standard import attention, layer_windows, layers, root, runs
from headcount.facts.model_shape import Activation, Block, ModelShape, MoeMlp

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """The first layer sees a window, the second all, and so on."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias", default=True)
    window = fields.count("sliding_window", default=128)
    moe = _experts(fields)
    blocks = [
        Block(
            attention=attention(
                fields, hidden=hidden, bias=bias, o_bias=bias, default_head_dim=64, sinks=True, window=seen
            ),
            mlp=moe,
        )
        for seen in layer_windows(fields, count=layers(fields), window=window, full_every=2)
    ]
    return root(fields, name=name, hidden=hidden, blocks=runs(blocks))


def _experts(fields: Fields) -> MoeMlp:
    count = fields.count("num_local_experts")
    active = fields.count("num_experts_per_tok", "experts_per_token")
    if active > count and not isinstance(count, StandIn):
        fields.wrong("num_experts_per_tok", f"is {active:,}, more than num_local_experts = {count:,}", "check both")
    active = min(active, count)
    return MoeMlp(
        experts=count,
        active=active,
        width=fields.count("intermediate_size"),
        router_bias=True,
        expert_bias=True,
        activation=Activation.CLAMPED_SWIGLU,
    )
