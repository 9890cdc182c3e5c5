"""Which few integers of a language model decide its memory and its FLOPs?

A shape is read once, from a config.json (`facts/families`) or from the shipped table (`facts/models`). It is a run of
blocks; every block has one attention and one MLP, so alternating windows, leading dense layers and mixtures of experts
are all just different blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Activation", "Attention", "AttentionKind", "Block", "DenseMlp", "ModelShape", "MoeMlp", "Norm", "QkNorm"]


class Norm(StrEnum):
    """Which normalisation the blocks use. It decides which fp32 copies stay alive."""

    RMS = "rms"
    RMS_PLUS_ONE = "rms-plus-one"  # Gemma: x·(1 + w), computed whole in fp32
    LAYER = "layer"  # mean and variance, with bias unless the family says otherwise
    LAYER_PLAIN = "layer-plain"  # OLMo 1: mean and variance, no parameters at all


class QkNorm(StrEnum):
    """Is there a norm on queries and keys, and over what?"""

    NONE = "none"
    PER_HEAD = "per-head"  # Qwen3, Gemma 3: a weight of head_dim
    FULL_WIDTH = "full-width"  # OLMo 2: a weight of heads × head_dim


class AttentionKind(StrEnum):
    """Grouped-query (covers multi-head and multi-query) or DeepSeek's multi-head latent attention."""

    GQA = "gqa"
    MLA = "mla"


class Activation(StrEnum):
    """The MLP's nonlinearity. `GELU_PYTHON` is several PyTorch operations, each keeping its own output."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu-tanh"
    GELU_PYTHON = "gelu-python"
    RELU = "relu"
    RELU_SQUARED = "relu-squared"  # Nemotron
    CLAMPED_SWIGLU = "clamped-swiglu"  # gpt-oss


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """One attention layer. For MLA `head_dim` is the query/key width per head (nope + rope)."""

    heads: int
    kv_heads: int
    head_dim: int
    kind: AttentionKind = AttentionKind.GQA
    value_head_dim: int | None = None  # None: head_dim
    fused_qkv: bool = False
    q_bias: bool = False
    k_bias: bool = False
    v_bias: bool = False
    o_bias: bool = False
    qk_norm: QkNorm = QkNorm.NONE
    window: int | None = None
    softcap: bool = False
    joined_rotary: bool = False  # rotated and plain parts are joined (partial rotary, Phi-3): sdpa's output is copied
    sinks: bool = False  # one learned logit per head (gpt-oss)
    q_lora_rank: int | None = None  # MLA; None: queries are not compressed
    kv_lora_rank: int = 0  # MLA
    rope_head_dim: int = 0  # MLA: the shared rotary part of the key
    index_heads: int = 0  # DeepSeek sparse attention: heads of the token indexer; 0: none
    index_head_dim: int = 0
    q_name: str = "q_proj"  # the linears' names in transformers, which LoRA targets use
    k_name: str = "k_proj"
    v_name: str = "v_proj"
    qkv_name: str = "qkv_proj"
    o_name: str = "o_proj"

    def __post_init__(self) -> None:
        if self.heads < 1 or self.kv_heads < 1 or self.head_dim < 1:
            raise ValueError(f"heads={self.heads}, kv_heads={self.kv_heads}, head_dim={self.head_dim} must be positive")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}; grouped-query attention needs "
                "whole groups. Check num_attention_heads and num_key_value_heads in config.json."
            )

    @property
    def q_width(self) -> int:
        """Query features per token."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Key features per token; values have `v_width`."""
        return self.kv_heads * self.head_dim

    @property
    def v_width(self) -> int:
        """Value features per token."""
        return self.kv_heads * (self.value_head_dim or self.head_dim)

    @property
    def o_width(self) -> int:
        """Features that enter the output projection."""
        return self.heads * (self.value_head_dim or self.head_dim)


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseMlp:
    """gate·up·down (gated) or up·down."""

    width: int
    gated: bool = True
    fused_gate_up: bool = False
    bias: bool = False
    activation: Activation = Activation.SILU
    gate_name: str = "gate_proj"
    up_name: str = "up_proj"
    down_name: str = "down_proj"
    gate_up_name: str = "gate_up_proj"


@dataclass(frozen=True, kw_only=True, slots=True)
class MoeMlp:
    """A router and its experts; every expert is gated, of `width`. State counts all, FLOPs count `active`."""

    experts: int
    active: int
    width: int
    shared_width: int = 0  # all shared experts together; 0: none
    shared_gate: bool = False  # Qwen2-MoE: a scalar gate on the shared expert
    normalised: bool = False  # the weights of the chosen experts are divided by their sum
    fp32_weights: bool = False  # they multiply in fp32 (Mixtral, DeepSeek)
    router_bias: bool = False
    router_linear: bool = False  # Llama 4: the router is a linear module, which LoRA's "all-linear" takes
    expert_bias: bool = False
    expert_names: tuple[str, ...] = ()  # gate, up, down as LoRA targets name them; (): peft 0.21 leaves experts alone
    activation: Activation = Activation.SILU

    def __post_init__(self) -> None:
        if not 1 <= self.active <= self.experts:
            raise ValueError(f"active={self.active} experts of {self.experts}: must lie between 1 and all of them")


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One transformer block. `norms` is 1 (shared, Phi-1), 2 (before attention and MLP) or 4 (Gemma 2/3: after too)."""

    attention: Attention
    mlp: DenseMlp | MoeMlp
    norm: Norm = Norm.RMS
    norms: int = 2
    norm_bias: bool = False
    post_norm: bool = False  # OLMo 2: the norms sit on the outputs, not the inputs
    parallel: bool = False  # GPT-NeoX, Phi-1: attention and MLP read the same input


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """Everything of a model that bytes and FLOPs need. `blocks` is run-length coded, first block first."""

    name: str
    family: str  # the config's model_type
    hidden: int
    blocks: tuple[tuple[int, Block], ...]
    vocab: int
    max_tokens: int
    tied: bool = False
    norm: Norm = Norm.RMS  # the final norm
    norm_bias: bool = False
    final_norm: bool = True
    learned_positions: int = 0  # rows of a position table (GPT-2, OPT); 0: rotary
    embed_width: int | None = None  # OPT-350m embeds narrower than it computes; None: hidden
    embed_norm: bool = False
    embed_scaled: bool = False  # Granite multiplies the embedding's output: another tensor enters the first block
    head_bias: bool = False
    logit_softcap: bool = False
    embed_name: str = "embed_tokens"
    head_name: str = "lm_head"
    source: str = ""

    def __post_init__(self) -> None:
        if min(self.hidden, self.vocab, self.max_tokens, self.layers) < 1:
            raise ValueError(
                f"{self.name}: hidden={self.hidden}, vocab={self.vocab}, layers={self.layers} must be positive"
            )

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return sum(count for count, _ in self.blocks)

    def block(self, index: int) -> Block:
        """The block at `index`, negative from the end."""
        at = index % self.layers
        for count, block in self.blocks:
            if at < count:
                return block
            at -= count
        raise IndexError(index)

    @property
    def moe(self) -> bool:
        """True when any block routes to experts."""
        return any(isinstance(block.mlp, MoeMlp) for _, block in self.blocks)
