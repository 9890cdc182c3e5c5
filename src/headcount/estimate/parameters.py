"""Which parameter tensors does a model have, and how many numbers are in them?

One inventory serves every count: totals, largest tensor, bytes of one block, adapters, FLOPs of the linears.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from headcount.facts.model_shape import Block, ModelShape

__all__ = ["Kind", "Tensor", "active_parameters", "adapter_parameters", "block_parameters", "block_tensors", "largest_tensor", "parameters", "root_parameters", "root_tensors"]


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
    (`q_proj`, `qkv_proj`, `gate_proj`, `lm_head` …). `tensor_parallel` tells whether TP divides it.
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


@lru_cache(maxsize=None)
def block_tensors(block: Block, *, hidden: int) -> tuple[Tensor, ...]:
    """Every parameter tensor of one block."""
    raise NotImplementedError


@lru_cache(maxsize=None)
def root_tensors(shape: ModelShape, *, scalar_head: bool = False) -> tuple[Tensor, ...]:
    """Embedding, positions, final norm, head. `scalar_head` (reward, critic): hidden → 1 instead of the vocabulary."""
    raise NotImplementedError


def parameters(shape: ModelShape, *, scalar_head: bool = False) -> int:
    """All parameters, tied embeddings counted once."""
    raise NotImplementedError


def active_parameters(shape: ModelShape, *, scalar_head: bool = False) -> int:
    """The parameters that one token's forward pass multiplies with: of the experts only the active ones."""
    raise NotImplementedError


def block_parameters(block: Block, *, hidden: int) -> int:
    """Parameters of one block (P_l)."""
    raise NotImplementedError


def root_parameters(shape: ModelShape, *, scalar_head: bool = False) -> int:
    """Parameters outside the blocks (P_r)."""
    raise NotImplementedError


def largest_tensor(shape: ModelShape, *, scalar_head: bool = False) -> int:
    """Numbers in the largest single tensor (max_p)."""
    raise NotImplementedError


def adapter_parameters(shape: ModelShape, *, rank: int, targets: tuple[str, ...]) -> int:
    """LoRA: Σ rank × (columns + rows) over the targeted linears. `("all-linear",)` takes every linear but the head."""
    raise NotImplementedError
