"""Which parameter tensors does a model have, and how many numbers are in them?

One inventory serves every count: totals, largest tensor, bytes of one block, adapters, FLOPs of the linears. Names and
sizes are those of transformers 5's own modules; `tests/parity/test_parameter_counts.py` holds them equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from headcount.facts.model_shape import Attention, AttentionKind, Block, DenseMlp, ModelShape, MoeMlp, Norm, QkNorm

__all__ = [
    "Kind",
    "Tensor",
    "active_parameters",
    "adapter_parameters",
    "adapter_parts",
    "block_parameters",
    "block_tensors",
    "largest_tensor",
    "parameters",
    "root_parameters",
    "root_tensors",
]


class Kind(StrEnum):
    """What a parameter tensor does; decides sharding, adapters, precision and FLOPs."""

    EMBEDDING = "embedding"
    POSITION = "position"
    LINEAR = "linear"
    EXPERT = "expert"  # a linear that one token in experts/active reads
    ROUTER = "router"
    NORM = "norm"
    BIAS = "bias"
    HEAD = "head"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """`copies` equal tensors of `rows × columns`.

    For linears `columns` is the input width and `rows` the output width. `module` is the name that LoRA targets use
    (`q_proj`, `qkv_proj`, `gate_proj`, `lm_head` …); a bias is named `q_proj.bias`. `tensor_parallel` tells whether TP
    divides it. The copies of experts are stacked in one parameter.
    """

    module: str
    kind: Kind
    rows: int
    columns: int = 1
    copies: int = 1
    tensor_parallel: bool = True

    @property
    def numel(self) -> int:
        """Numbers in all copies together."""
        return self.rows * self.columns * self.copies

    @property
    def parameter_numel(self) -> int:
        """Numbers in one parameter object: transformers 5 stacks all experts of a block in one."""
        return self.numel if self.module.startswith("experts.") else self.rows * self.columns


@cache
def block_tensors(block: Block, *, hidden: int) -> tuple[Tensor, ...]:
    """Every parameter tensor of one block."""
    return (*_attention(block.attention, hidden), *_mlp(block.mlp, hidden), *_norms(block, hidden))


def _linear(module: str, rows: int, columns: int, *, bias: bool = False, split: str = "rows") -> Iterator[Tensor]:
    """A linear and its bias. TP splits `rows` (bias split too), `columns` (bias whole) or `none`."""
    divided = split != "none"
    yield Tensor(module=module, kind=Kind.LINEAR, rows=rows, columns=columns, tensor_parallel=divided)
    if bias:
        yield Tensor(module=f"{module}.bias", kind=Kind.BIAS, rows=rows, tensor_parallel=split == "rows")


def _norm(module: str, width: int, *, norm: Norm = Norm.RMS, bias: bool = False, copies: int = 1) -> Iterator[Tensor]:
    if norm is Norm.LAYER_PLAIN:
        return
    yield Tensor(module=module, kind=Kind.NORM, rows=width, copies=copies, tensor_parallel=False)
    if bias:
        yield Tensor(module=f"{module}.bias", kind=Kind.BIAS, rows=width, copies=copies, tensor_parallel=False)


def _norms(block: Block, hidden: int) -> Iterator[Tensor]:
    yield from _norm("norm", hidden, norm=block.norm, bias=block.norm_bias, copies=block.norms)


def _attention(attention: Attention, hidden: int) -> Iterator[Tensor]:
    if attention.kind is AttentionKind.MLA:
        yield from _latent_attention(attention, hidden)
        return
    yield from _query_key_value(attention, hidden)
    yield from _linear(attention.o_name, hidden, attention.o_width, bias=attention.o_bias, split="columns")
    if attention.qk_norm is QkNorm.PER_HEAD:
        yield from _norm("q_norm", attention.head_dim)
        yield from _norm("k_norm", attention.head_dim)
    if attention.qk_norm is QkNorm.FULL_WIDTH:
        yield from _norm("q_norm", attention.q_width)
        yield from _norm("k_norm", attention.kv_width)
    if attention.sinks:
        yield Tensor(module="sinks", kind=Kind.OTHER, rows=attention.heads)


def _query_key_value(attention: Attention, hidden: int) -> Iterator[Tensor]:
    if attention.fused_qkv:
        width = attention.q_width + attention.kv_width + attention.v_width
        yield from _linear(attention.qkv_name, width, hidden, bias=attention.q_bias)
        return
    yield from _linear(attention.q_name, attention.q_width, hidden, bias=attention.q_bias)
    yield from _linear(attention.k_name, attention.kv_width, hidden, bias=attention.k_bias)
    yield from _linear(attention.v_name, attention.v_width, hidden, bias=attention.v_bias)


def _latent_attention(attention: Attention, hidden: int) -> Iterator[Tensor]:
    """DeepSeek's MLA, arXiv:2405.04434 §2.1: low-rank queries (optional) and one latent for keys and values."""
    latent, rope, heads = attention.kv_lora_rank, attention.rope_head_dim, attention.heads
    value_dim = attention.value_head_dim or attention.head_dim
    if attention.q_lora_rank is None:
        yield from _linear("q_proj", attention.q_width, hidden)
    else:
        yield from _linear("q_a_proj", attention.q_lora_rank, hidden, bias=attention.q_bias, split="none")
        yield from _norm("q_a_layernorm", attention.q_lora_rank)
        yield from _linear("q_b_proj", attention.q_width, attention.q_lora_rank)
    yield from _linear("kv_a_proj_with_mqa", latent + rope, hidden, bias=attention.k_bias, split="none")
    yield from _norm("kv_a_layernorm", latent)
    yield from _linear("kv_b_proj", heads * (attention.head_dim - rope + value_dim), latent)
    yield from _linear(attention.o_name, hidden, heads * value_dim, bias=attention.o_bias, split="columns")
    if attention.index_heads:
        yield from _indexer(attention, hidden)


def _indexer(attention: Attention, hidden: int) -> Iterator[Tensor]:
    """The token indexer of DeepSeek sparse attention: which keys a query may look at."""
    assert attention.q_lora_rank is not None, "the indexer reads the compressed query"
    width = attention.index_head_dim
    yield from _linear("wq_b", attention.index_heads * width, attention.q_lora_rank, split="none")
    yield from _linear("wk", width, hidden, split="none")
    yield from _norm("indexer.k_norm", width, bias=True)
    yield from _linear("weights_proj", attention.index_heads, hidden, split="none")


def _mlp(mlp: DenseMlp | MoeMlp, hidden: int) -> Iterator[Tensor]:
    return _experts(mlp, hidden) if isinstance(mlp, MoeMlp) else _dense(mlp, hidden)


def _dense(mlp: DenseMlp, hidden: int) -> Iterator[Tensor]:
    if mlp.gated and mlp.fused_gate_up:
        yield from _linear(mlp.gate_up_name, 2 * mlp.width, hidden, bias=mlp.bias)
    elif mlp.gated:
        yield from _linear(mlp.gate_name, mlp.width, hidden, bias=mlp.bias)
        yield from _linear(mlp.up_name, mlp.width, hidden, bias=mlp.bias)
    else:
        yield from _linear(mlp.up_name, mlp.width, hidden, bias=mlp.bias)
    yield from _linear(mlp.down_name, hidden, mlp.width, bias=mlp.bias, split="columns")


def _experts(mlp: MoeMlp, hidden: int) -> Iterator[Tensor]:
    for name, rows, columns in (("gate_up_proj", 2 * mlp.width, hidden), ("down_proj", hidden, mlp.width)):
        module = f"experts.{name}"
        yield Tensor(module=module, kind=Kind.EXPERT, rows=rows, columns=columns, copies=mlp.experts)
        if mlp.expert_bias:
            yield Tensor(module=f"{module}.bias", kind=Kind.BIAS, rows=rows, copies=mlp.experts)
    router = Kind.LINEAR if mlp.router_linear else Kind.ROUTER
    yield Tensor(module="router", kind=router, rows=mlp.experts, columns=hidden, tensor_parallel=False)
    if mlp.router_bias:
        yield Tensor(module="router.bias", kind=Kind.BIAS, rows=mlp.experts, tensor_parallel=False)
    if mlp.shared_width:
        yield from _dense(DenseMlp(width=mlp.shared_width), hidden)
    if mlp.shared_gate:
        yield from _linear("shared_expert_gate", 1, hidden, split="none")


@cache
def root_tensors(shape: ModelShape, *, scalar_head: bool = False) -> tuple[Tensor, ...]:
    """Embedding, positions, final norm, head. `scalar_head` (reward, critic): hidden → 1 instead of the vocabulary."""
    return (*_embedding(shape), *_output(shape, scalar_head=scalar_head))


def _embedding(shape: ModelShape) -> Iterator[Tensor]:
    width = shape.embed_width or shape.hidden
    yield Tensor(module=shape.embed_name, kind=Kind.EMBEDDING, rows=shape.vocab, columns=width)
    if shape.learned_positions:
        rows = shape.learned_positions
        yield Tensor(module="positions", kind=Kind.POSITION, rows=rows, columns=shape.hidden, tensor_parallel=False)
    if width != shape.hidden:
        yield from _linear("project_in", shape.hidden, width, split="none")
        yield from _linear("project_out", width, shape.hidden, split="none")
    if shape.embed_norm:
        yield from _norm("embed_norm", shape.hidden, norm=shape.norm, bias=shape.norm_bias)


def _output(shape: ModelShape, *, scalar_head: bool) -> Iterator[Tensor]:
    width = shape.embed_width or shape.hidden
    if shape.final_norm:
        yield from _norm("final_norm", shape.hidden, norm=shape.norm, bias=shape.norm_bias)
    if scalar_head:
        yield Tensor(module="score", kind=Kind.HEAD, rows=1, columns=width, tensor_parallel=False)
        return
    if not shape.tied:
        yield Tensor(module=shape.head_name, kind=Kind.HEAD, rows=shape.vocab, columns=width)
    if shape.head_bias:
        yield Tensor(module=f"{shape.head_name}.bias", kind=Kind.BIAS, rows=shape.vocab)


def parameters(shape: ModelShape, *, scalar_head: bool = False) -> int:
    """All parameters, tied embeddings counted once."""
    blocks = sum(count * block_parameters(block, hidden=shape.hidden) for count, block in shape.blocks)
    return blocks + root_parameters(shape, scalar_head=scalar_head)


def active_parameters(shape: ModelShape, *, scalar_head: bool = False) -> int:
    """The parameters that one token's forward pass multiplies with: of the experts only the active ones.

    A looked-up table (embedding, positions) is not multiplied with; a tied one is, as the vocabulary head.
    """
    looked_up = 0 if shape.tied and not scalar_head else _numel(root_tensors(shape), Kind.EMBEDDING)
    looked_up += _numel(root_tensors(shape), Kind.POSITION)
    idle = sum(count * _idle_parameters(block, hidden=shape.hidden) for count, block in shape.blocks)
    return parameters(shape, scalar_head=scalar_head) - looked_up - idle


def _numel(tensors: tuple[Tensor, ...], kind: Kind) -> int:
    return sum(tensor.numel for tensor in tensors if tensor.kind is kind)


def _idle_parameters(block: Block, *, hidden: int) -> int:
    """The experts that one token does not reach."""
    if not isinstance(block.mlp, MoeMlp):
        return 0
    mlp = block.mlp
    stacked = (t for t in block_tensors(block, hidden=hidden) if t.module.startswith("experts."))
    return sum(t.numel for t in stacked) // mlp.experts * (mlp.experts - mlp.active)


@cache
def block_parameters(block: Block, *, hidden: int) -> int:
    """Parameters of one block (P_l)."""
    return sum(tensor.numel for tensor in block_tensors(block, hidden=hidden))


def root_parameters(shape: ModelShape, *, scalar_head: bool = False) -> int:
    """Parameters outside the blocks (P_r)."""
    return sum(tensor.numel for tensor in root_tensors(shape, scalar_head=scalar_head))


def largest_tensor(shape: ModelShape, *, scalar_head: bool = False) -> int:
    """Numbers in the largest single tensor (max_p)."""
    inside = (tensor for _, block in shape.blocks for tensor in block_tensors(block, hidden=shape.hidden))
    return max(t.parameter_numel for t in (*inside, *root_tensors(shape, scalar_head=scalar_head)))


def adapter_parameters(shape: ModelShape, *, rank: int, targets: tuple[str, ...]) -> int:
    """LoRA: Σ rank × (columns + rows) over the targeted linears. `("all-linear",)` takes every linear but the head.

    As peft 0.21 does it on transformers 5: where a family's experts are stacked in one parameter, targets named as
    the experts' linears adapt the stack (gate and up fused, at twice the rank) and no longer a dense or shared MLP of
    the same names. Naming the head (`lm_head`) adapts it.
    """
    return sum(adapter_parts(shape, rank=rank, targets=targets))


def adapter_parts(shape: ModelShape, *, rank: int, targets: tuple[str, ...]) -> tuple[int, int, int]:
    """Adapter numbers in the blocks' dense linears, in the experts, and at the head."""
    expert_names = _expert_names(shape)

    def numbers(tensors: Iterable[Tensor], *, experts: bool) -> int:
        chosen = (tensor for tensor in tensors if (tensor.kind is Kind.EXPERT) is experts)
        return sum(
            tensor.copies * _rank(tensor, rank, targets, expert_names) * (tensor.rows + tensor.columns)
            for tensor in chosen
        )

    blocks = [(count, block_tensors(block, hidden=shape.hidden)) for count, block in shape.blocks]
    dense = sum(count * numbers(tensors, experts=False) for count, tensors in blocks)
    routed = sum(count * numbers(tensors, experts=True) for count, tensors in blocks)
    return dense, routed, numbers(root_tensors(shape), experts=False)


def _expert_names(shape: ModelShape) -> tuple[str, ...]:
    return next((b.mlp.expert_names for _, b in shape.blocks if isinstance(b.mlp, MoeMlp) and b.mlp.expert_names), ())


def _rank(tensor: Tensor, rank: int, targets: tuple[str, ...], expert_names: tuple[str, ...]) -> int:
    """The rank of one tensor's adapter; 0 for none."""
    everything = "all-linear" in targets
    if tensor.kind is Kind.EXPERT or tensor.module in expert_names:
        return _expert_rank(tensor, rank, everything=everything, targets=targets, expert_names=expert_names)
    if tensor.kind is Kind.ROUTER:
        return rank if expert_names and (everything or "gate" in targets) else 0
    if tensor.kind is Kind.LINEAR:
        return rank if everything or tensor.module in targets else 0
    return rank if tensor.kind is Kind.HEAD and tensor.module in targets else 0


def _expert_rank(
    tensor: Tensor, rank: int, *, everything: bool, targets: tuple[str, ...], expert_names: tuple[str, ...]
) -> int:
    if not expert_names or tensor.kind is not Kind.EXPERT:
        return 0
    fused = tensor.module == "experts.gate_up_proj"
    named = set(expert_names[:2]) <= set(targets) if fused else expert_names[2] in targets
    return (2 if fused else 1) * rank if everything or named else 0
