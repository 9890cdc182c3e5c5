"""What does a GLM-5 config say? DeepSeek's latent attention with a token indexer, and its experts."""

from __future__ import annotations

from dataclasses import replace

from headcount.facts.config_file import Fields
from headcount.facts.families.deepseek import latent_attention, routed
from headcount.facts.families.standard import dense_mlp, layers, root, runs
from headcount.facts.model_shape import Block, ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Later GLM-5 versions let a layer use the indexer of one before it: such a layer has none."""
    if not fields.given("q_lora_rank"):
        fields.wrong("q_lora_rank", "is missing or null; the indexer reads the compressed query")
    hidden = fields.count("hidden_size")
    full = latent_attention(
        fields, index_heads=fields.count("index_n_heads"), index_head_dim=fields.count("index_head_dim")
    )
    shared = replace(full, index_heads=0, index_head_dim=0)
    indexed = _has_indexer(fields, layers(fields))
    first = fields.count("first_k_dense_replace", default=3, least=0)
    dense, moe = dense_mlp(fields), routed(fields)
    blocks = [
        Block(attention=full if has else shared, mlp=dense if layer < first else moe)
        for layer, has in enumerate(indexed)
    ]
    return root(fields, name=name, hidden=hidden, blocks=runs(blocks))


def _has_indexer(fields: Fields, count: int) -> list[bool]:
    """By `indexer_types`, else every `index_topk_freq`-th layer from `index_skip_topk_offset` on, as transformers 5."""
    if fields.given("index_topk_pattern"):
        fields.wrong("index_topk_pattern", "is given, which this reader does not know", "write indexer_types instead")
    types = fields.texts("indexer_types", length=count)
    if types is not None:
        return [kind == "full" for kind in types]
    every = fields.count("index_topk_freq", default=1)
    offset = fields.count("index_skip_topk_offset", default=2, least=0)
    return [max(layer - offset + 1, 0) % every == 0 for layer in range(count)]
