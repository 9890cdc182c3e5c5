"""What does a StableLM config say? Llama's linears between LayerNorms; parallel blocks have one norm."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layers, root
from headcount.facts.model_shape import Block, ModelShape, Norm, QkNorm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`qk_layernorm` (StableLM 2 12B) has a weight for each head's every feature."""
    hidden = fields.count("hidden_size")
    parallel = fields.flag("use_parallel_residual")
    block = Block(
        attention=attention(
            fields,
            hidden=hidden,
            bias=fields.flag("use_qkv_bias"),
            qk_norm=QkNorm.FULL_WIDTH if fields.flag("qk_layernorm") else QkNorm.NONE,
        ),
        mlp=dense_mlp(fields),
        norm=Norm.LAYER,
        norms=1 if parallel else 2,
        norm_bias=True,
        parallel=parallel,
    )
    blocks = [(layers(fields), block)]
    return root(fields, name=name, hidden=hidden, blocks=blocks, norm=Norm.LAYER, norm_bias=True)
