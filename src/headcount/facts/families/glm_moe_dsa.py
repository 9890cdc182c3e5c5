"""What does a GLM-5 config say? DeepSeek's latent attention with a token indexer, and its experts."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.deepseek import latent_attention, leading_dense, routed
from headcount.facts.families.standard import dense_mlp, layers, root
from headcount.facts.model_shape import ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Layers that share another's indexer (`indexer_types`: shared) are refused: this reader does not count them."""
    count = layers(fields)
    types = fields.texts("indexer_types", length=count) or ()
    if any(kind != "full" for kind in types):
        fields.wrong("indexer_types", "has layers that share an indexer, which this reader does not count")
    if not fields.given("q_lora_rank"):
        fields.wrong("q_lora_rank", "is missing or null; the indexer reads the compressed query")
    hidden = fields.count("hidden_size")
    attention = latent_attention(
        fields, index_heads=fields.count("index_n_heads"), index_head_dim=fields.count("index_head_dim")
    )
    blocks = leading_dense(fields, attention, dense_mlp(fields), routed(fields), count=count)
    return root(fields, name=name, hidden=hidden, blocks=blocks)
