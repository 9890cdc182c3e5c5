"""What does one attention layer keep between forward and backward?

Measured on PyTorch 2.13 fake tensors (tests/ground_truth).
"""

from __future__ import annotations

from math import ceil

from headcount.estimate.forward_pass import Pass
from headcount.facts.model_shape import Attention, AttentionKind, Block, Norm, QkNorm
from headcount.job.job import AttentionKernel
from headcount.ledger.derivation import Derived, derive

__all__ = ["attention_kept", "local_heads"]

_SOURCE = "measured on PyTorch 2.13 fake tensors (tests/ground_truth)"


def local_heads(attention: Attention, tensor: int) -> tuple[int, int]:
    """(query heads, key heads) of one tensor-parallel rank; key heads are copied once TP outnumbers them."""
    return ceil(attention.heads / tensor), ceil(attention.kv_heads / tensor)


def attention_kept(block: Block, *, run: Pass) -> dict[str, Derived]:
    """Rotated queries and keys, values, output, the softmax's statistics, q/k norms, mask."""
    attention = block.attention
    if attention.kind is AttentionKind.MLA:
        terms = _latent(attention, run)
    elif attention.fused_qkv:
        terms = _fused(attention, run)
    else:
        terms = _separate(attention, run)
    terms |= _qk_norms(block, run) | _scores(attention, run)
    return terms


def _widths(attention: Attention, run: Pass) -> dict[str, float]:
    """Feature widths of this rank, keys and values expanded when the kernel wants it."""
    heads, kv_heads = local_heads(attention, run.tensor)
    value_dim = attention.value_head_dim or attention.head_dim
    seen = heads if run.expands_kv(attention) else kv_heads
    return {
        "tokens": run.tokens,
        "compute_bytes": run.compute_bytes,
        "q_width": heads * attention.head_dim,
        "k_width": seen * attention.head_dim,
        "v_width": seen * value_dim,
        "o_width": heads * value_dim,
    }


def _separate(attention: Attention, run: Pass) -> dict[str, Derived]:
    """Rotated q and k, v and the output, each once."""
    formula = "tokens × compute_bytes × (q_width + k_width + v_width + o_width)"
    return {"queries, keys, values, output": derive(formula, source=_SOURCE, **_widths(attention, run))}


def _fused(attention: Attention, run: Pass) -> dict[str, Derived]:
    """One projection makes q, k and v: values stay views of it, so all of it stays alive.

    With rotary embeddings the rotated q and k are copies beside it and the output is copied once more; GPT-2 has none.
    """
    widths = _widths(attention, run)
    if attention.qkv_name == "c_attn":
        return _separate(attention, run)
    heads, kv_heads = local_heads(attention, run.tensor)
    fused = heads * attention.head_dim + kv_heads * (
        attention.head_dim + (attention.value_head_dim or attention.head_dim)
    )
    if run.expands_kv(attention):
        formula = "tokens × compute_bytes × (q_width + k_width + v_width + o_width)"
        return {"queries, keys, values, output": derive(formula, source=_SOURCE, **widths)}
    del widths["v_width"]
    formula = "tokens × compute_bytes × (fused_width + q_width + k_width + 2 × o_width)"
    return {"queries, keys, values, output": derive(formula, source=_SOURCE, **widths, fused_width=fused)}


def _latent(attention: Attention, run: Pass) -> dict[str, Derived]:
    """MLA: latents and their norms, then per-head q, k (both concatenated with the rotary part), v and output."""
    widths = _widths(attention, run)
    latents = (attention.q_lora_rank or 0) + attention.kv_lora_rank
    return {
        "queries, keys, values, output": derive(
            "tokens × compute_bytes × (q_width + k_width + v_width + o_width)", source=_SOURCE, **widths
        ),
        "latents": derive(
            "tokens × (4 + 2 × compute_bytes) × latents",
            source=_SOURCE,
            tokens=run.tokens,
            compute_bytes=run.compute_bytes,
            latents=latents,
        ),
    }


def _qk_norms(block: Block, run: Pass) -> dict[str, Derived]:
    """A norm over queries and one over keys: fp32 input, normalised value, 1/rms per head (or per token)."""
    attention = block.attention
    if attention.qk_norm is QkNorm.NONE:
        return {}
    heads, kv_heads = local_heads(attention, run.tensor)
    per_head = attention.qk_norm is QkNorm.PER_HEAD
    gemma = block.norm is Norm.RMS_PLUS_ONE
    kept = (4 if gemma or run.autocast else run.compute_bytes) if run.full else 0
    formula = "tokens × ((4 + normalised_bytes) × qk_width + 4 × statistics) + 4 × constants"
    return {
        "query and key norms": derive(
            formula,
            source=_SOURCE,
            tokens=run.tokens,
            normalised_bytes=kept,
            qk_width=(heads + kv_heads) * attention.head_dim,
            statistics=heads + kv_heads if per_head else 2,
            constants=2 * attention.head_dim if gemma else 0,
        )
    }


def _scores(attention: Attention, run: Pass) -> dict[str, Derived]:
    heads, _ = local_heads(attention, run.tensor)
    if run.attention_kernel(attention) is AttentionKernel.EAGER:
        return {"attention probabilities": _probabilities(attention, heads, run)}
    statistics = derive("4 × heads × tokens", source="fp32, one a query and head", heads=heads, tokens=run.tokens)
    terms = {"log-sum-exp": statistics}
    if run.masked(attention):
        formula = "rows × queries × keys × compute_bytes"
        terms["additive mask"] = derive(
            formula,
            source="the boolean mask becomes an additive one, once per layer; " + _SOURCE,
            rows=run.rows,
            queries=run.keys / run.context,
            keys=run.keys,
            compute_bytes=run.compute_bytes,
        )
    return terms


def _probabilities(attention: Attention, heads: int, run: Pass) -> Derived:
    """Eager: fp32 probabilities and their 16-bit cast; GPT-2 stays in the compute dtype; a soft cap keeps its tanh."""
    s = run.compute_bytes
    upcast = attention.qkv_name != "c_attn" or not attention.fused_qkv
    per_score = (4 + s if s < 4 else 4) if upcast else s
    return derive(
        "heads × tokens × keys × bytes_per_score",
        source=_SOURCE,
        heads=heads,
        tokens=run.tokens,
        keys=run.keys,
        bytes_per_score=per_score + (s if attention.softcap else 0),
    )
