"""What does a Gemma 3 config say? The text model: four norms, q/k norms, one full layer in six."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, grouped, layer_windows, layers, root, runs
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, Norm, QkNorm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Absent keys have the defaults of Gemma3TextConfig: gemma-3-4b's config leaves most of them out."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    act = activation(fields, "hidden_activation", default="gelu_pytorch_tanh")
    mlp = DenseMlp(width=fields.count("intermediate_size"), activation=act)
    window = fields.count("sliding_window", default=4096)
    every = fields.count("sliding_window_pattern", default=6)
    blocks = [
        Block(
            attention=grouped(
                fields,
                heads=fields.count("num_attention_heads", default=8),
                kv_heads=fields.count("num_key_value_heads", default=4),
                head_dim=fields.count("head_dim", default=256),
                bias=bias,
                o_bias=bias,
                qk_norm=QkNorm.PER_HEAD,
                softcap=fields.given("attn_logit_softcapping"),
                window=seen,
            ),
            mlp=mlp,
            norm=Norm.RMS_PLUS_ONE,
            norms=4,
        )
        for seen in layer_windows(fields, count=layers(fields), window=window, full_every=every)
    ]
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=runs(blocks),
        tied=True,
        default_vocab=262_208,
        default_max_tokens=131_072,
        norm=Norm.RMS_PLUS_ONE,
        logit_softcap=fields.given("final_logit_softcapping"),
    )
