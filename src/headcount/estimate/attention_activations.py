"""What does one attention layer keep between forward and backward?

Measured on PyTorch 2.13 fake tensors (tests/ground_truth).
"""

from __future__ import annotations

from math import ceil

from headcount.estimate.forward_pass import Pass
from headcount.estimate.norm_activations import multiplies_in_fp32
from headcount.facts.model_shape import Attention, AttentionKind, Block, Norm, QkNorm
from headcount.job.job import AttentionKernel
from headcount.job.layout import ContextExchange
from headcount.ledger.derivation import Derived, derive

__all__ = ["attention_kept", "context_exchange", "falls_to_math", "local_heads"]

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
    """Rotated q and k, v and the output, each once; a rotary part that is joined on has the output copied once more."""
    formula = "tokens × compute_bytes × (q_width + k_width + v_width + output_copies × o_width)"
    copies = _output_copies(attention, run)
    widths = _widths(attention, run)
    return {"queries, keys, values, output": derive(formula, source=_SOURCE, **widths, output_copies=copies)}


def _output_copies(attention: Attention, run: Pass) -> int:
    """A fused kernel keeps its output, an output projection that needs its input keeps that: usually one tensor.

    With a joined rotary part q, and so the kernel's output, lies by head; the projection's input is a copy.
    """
    unfused = falls_to_math(attention, run) or run.attention_kernel(attention) is AttentionKernel.EAGER
    apart = unfused or attention.joined_rotary
    return int(not unfused) + int(apart and run.keeps_input(attention.o_name))


def _fused(attention: Attention, run: Pass) -> dict[str, Derived]:
    """One projection makes q, k and v: the values stay a view of it, so all of it stays alive.

    With rotary embeddings the rotated q and k are copies beside it; GPT-2 has none. Eager attention copies the values,
    too, and lets go of the projection.
    """
    eager = run.attention_kernel(attention) is AttentionKernel.EAGER
    if attention.qkv_name == "c_attn" or eager or run.expands_kv(attention):
        return _separate(attention, run)
    heads, kv_heads = local_heads(attention, run.tensor)
    value_dim = attention.value_head_dim or attention.head_dim
    widths = _widths(attention, run)
    del widths["v_width"]
    formula = "tokens × compute_bytes × (fused_width + q_width + k_width + output_copies × o_width)"
    kept = derive(
        formula,
        source=_SOURCE,
        **widths,
        fused_width=heads * attention.head_dim + kv_heads * (attention.head_dim + value_dim),
        output_copies=_output_copies(attention, run),
    )
    return {"queries, keys, values, output": kept}


def _latent(attention: Attention, run: Pass) -> dict[str, Derived]:
    """MLA: latents with their norms, then per-head q, k (both joined with the rotary part), v and output.

    A CPU has no kernel for values narrower than queries: it scales q and k, and keeps them and v, in fp32.
    """
    latents = (attention.q_lora_rank or 0) + attention.kv_lora_rank
    norms = 2 if attention.q_lora_rank else 1
    kept = 4 + (run.compute_bytes if run.full else 0)
    kept += run.compute_bytes if run.keeps_input("q_b_proj", "kv_b_proj") else 0
    return _latent_heads(attention, run) | {
        "latents": derive(
            "tokens × (bytes_per_latent × latents + 4 × norms)",
            source=_SOURCE,
            tokens=run.tokens,
            bytes_per_latent=kept,
            latents=latents,
            norms=norms,
        )
    }


def _latent_heads(attention: Attention, run: Pass) -> dict[str, Derived]:
    return {
        "queries, keys, values, output": derive(
            "tokens × (inner_bytes × (q_width + k_width + v_width) + output_copies × compute_bytes × o_width)",
            source=_SOURCE,
            **_widths(attention, run),
            output_copies=_output_copies(attention, run),
            inner_bytes=4 if falls_to_math(attention, run) else run.compute_bytes,
        )
    }


def falls_to_math(attention: Attention, run: Pass) -> bool:
    """No fused CPU kernel takes values narrower than queries."""
    narrow = (attention.value_head_dim or attention.head_dim) != attention.head_dim
    return run.on_cpu and narrow and run.attention_kernel(attention) is not AttentionKernel.EAGER


def _qk_norms(block: Block, run: Pass) -> dict[str, Derived]:
    """A norm over queries and one over keys: fp32 input, normalised value, 1/rms per head (or per token)."""
    attention = block.attention
    if attention.qk_norm is QkNorm.NONE:
        return {}
    heads, kv_heads = local_heads(attention, run.tensor)
    per_head = attention.qk_norm is QkNorm.PER_HEAD
    gemma = block.norm is Norm.RMS_PLUS_ONE
    kept = (4 if multiplies_in_fp32(block) or run.autocast else run.compute_bytes) if run.full else 0
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
    if falls_to_math(attention, run):
        scores = derive("4 × heads × tokens × keys", source=_SOURCE, heads=heads, tokens=run.tokens, keys=run.keys)
        return {"attention probabilities": scores}
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
    """Eager: fp32 probabilities and their 16-bit cast; a soft cap keeps its tanh.

    GPT-2 and gpt-oss stay in the compute dtype; gpt-oss has one more column, the sink, and keeps the maximum's index.
    """
    s = run.compute_bytes
    upcast = not attention.sinks and attention.qkv_name != "c_attn"
    per_score = (4 + s if s < 4 else 4) if upcast else s
    return derive(
        "heads × tokens × ((keys + sinks) × bytes_per_score + 8 × sinks)",
        source=_SOURCE,
        heads=heads,
        tokens=run.tokens,
        keys=run.keys,
        bytes_per_score=per_score + (s if attention.softcap else 0),
        sinks=int(attention.sinks),
    )


def context_exchange(block: Block, *, run: Pass, exchange: ContextExchange) -> Derived:
    """What context parallelism adds at the block at work.

    All-gather: keys and values of the whole sequence, their gradients, fp32 partial outputs. Ring: the next rank's keys
    and values and their gradients. Ulysses: queries to output once more, re-cut from tokens to heads.
    """
    attention = block.attention
    heads, kv_heads = local_heads(attention, run.tensor)
    value_dim = attention.value_head_dim or attention.head_dim
    kv_width = kv_heads * (attention.head_dim + value_dim)
    source = "tensors of each exchange, counted"
    numbers = {"tokens": run.tokens, "compute_bytes": run.compute_bytes}
    if run.context == 1:
        return derive("0")
    if exchange is ContextExchange.ALL_GATHER:
        formula = "2 × ranks × tokens × kv_width × compute_bytes + 4 × tokens × output_width"
        width = heads * value_dim
        return derive(formula, source=source, **numbers, ranks=run.context, kv_width=kv_width, output_width=width)
    if exchange is ContextExchange.RING:
        return derive("2 × tokens × kv_width × compute_bytes", source=source, **numbers, kv_width=kv_width)
    qkvo_width = heads * (attention.head_dim + value_dim) + kv_width
    return derive("tokens × qkvo_width × compute_bytes", source=source, **numbers, qkvo_width=qkvo_width)
