"""Which settings of one forward and backward do the activation laws read?

The nouns of the laws, per GPU: how many tokens, in which rows, in which dtype, with which kernels, divided by what.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from headcount.facts.model_shape import Attention, Block, MoeMlp
from headcount.job.job import Adapter, AttentionKernel, Kernels, MicroBatch, RowLayout, Tuning

__all__ = ["Pass", "attention_inputs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """One forward (and backward) of one network on one GPU."""

    micro_batch: MicroBatch
    kernels: Kernels = field(default_factory=Kernels)
    compute_bytes: int = 2  # s: of the dtype the linears run in
    tuning: Tuning = Tuning.FULL
    adapter: Adapter | None = None
    autocast: bool = False  # fp32 weights under 16-bit autocast
    quantised_base: bool = False  # bitsandbytes linears keep their input though frozen
    on_cpu: bool = False  # kernels differ: dropout masks, LayerNorm statistics, attention of MLA
    tensor: int = 1
    sequence_parallel: bool = False
    context: int = 1

    @property
    def tokens(self) -> int:
        """N: tokens of this rank; context-parallel ranks divide the rows."""
        return ceil(self.micro_batch.tokens / self.context)

    @property
    def logit_tokens(self) -> int:
        """Positions whose logits this rank makes."""
        whole = self.micro_batch.sequences * self.micro_batch.logit_tokens
        return ceil(whole / self.context)

    @property
    def rows(self) -> int:
        """B: rows that attention sees; a packed batch is one row."""
        return 1 if self.micro_batch.rows is RowLayout.PACKED else self.micro_batch.sequences

    @property
    def keys(self) -> int:
        """T: keys that one query row spans in dense attention."""
        return self.micro_batch.tokens // self.rows

    @property
    def full(self) -> bool:
        """True when every weight trains."""
        return self.tuning is Tuning.FULL

    @property
    def residual_split(self) -> int:
        """What divides the residual stream and the norms: TP ranks under sequence parallelism, else nothing."""
        return self.tensor if self.sequence_parallel else 1

    def attention_kernel(self, attention: Attention) -> AttentionKernel:
        """Soft-capped scores and sinks have no sdpa form: transformers runs them eagerly."""
        wanted = self.kernels.attention
        eager_only = (attention.softcap or attention.sinks) and wanted is AttentionKernel.SDPA
        return AttentionKernel.EAGER if eager_only else wanted

    def masked(self, attention: Attention) -> bool:
        """Does sdpa get a mask: padded rows, a packed row, or a window no longer than the row?"""
        if self.attention_kernel(attention) is AttentionKernel.FLASH:
            return False
        windowed = attention.window is not None and self.keys >= attention.window
        return windowed or self.micro_batch.rows is not RowLayout.EQUAL

    def expands_kv(self, attention: Attention) -> bool:
        """Are keys and values copied to all query heads? One key head and one row expand as a view: no copy."""
        if attention.heads == attention.kv_heads:
            return False
        view = attention.kv_heads == 1 and self.rows == 1
        eager = self.attention_kernel(attention) is AttentionKernel.EAGER
        return not view and (self.kernels.expand_kv or eager or self.masked(attention))

    def adapts(self, *modules: str) -> int:
        """How many of these linears carry an adapter."""
        if self.adapter is None:
            return 0
        if "all-linear" in self.adapter.targets:
            return len(modules)
        return sum(module in self.adapter.targets for module in modules)

    @property
    def adapts_experts(self) -> bool:
        """Do adapters sit on the stacked experts too (target "experts", prime-rl)? peft leaves them out."""
        return self.adapter is not None and "experts" in self.adapter.targets

    def merges_experts(self, mlp: MoeMlp) -> bool:
        """Does peft adapt the stacked experts? It then computes with merged copies, W + B·A, kept till backward.

        peft 0.21 on transformers 5, where a family's experts are one parameter and a target is named as they are.
        """
        if self.adapter is None or not mlp.expert_names or self.adapts_experts:
            return False  # grouped adapters of their own (target "experts") merge nothing
        return bool({"all-linear", *mlp.expert_names} & set(self.adapter.targets))

    def keeps_input(self, *modules: str) -> bool:
        """Does any of these linears, which share one input, keep that input in the compute dtype?

        A trained linear does; a frozen one does not, unless it is 4-bit or its adapter reads that very tensor: same
        dtype and no dropout.
        """
        if self.full or self.quantised_base:
            return True
        if self.adapter is None or self.adapter.dropout or self.adapter.weight_bytes != self.compute_bytes:
            return False
        return self.adapts(*modules) > 0


def attention_inputs(block: Block) -> tuple[str, ...]:
    """The linears that read the attention norm's output."""
    attention = block.attention
    if attention.fused_qkv:
        return (attention.qkv_name,)
    return (attention.q_name, attention.k_name, attention.v_name)
