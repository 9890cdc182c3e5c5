"""How is the work spread over GPUs? One Layout for each group of GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ContextExchange", "Layout", "Load", "Shard"]


class Shard(StrEnum):
    """Who divides model state over the data-parallel ranks, and which part of it."""

    NONE = "none"  # one GPU, or every rank whole without gradient exchange
    DDP = "ddp"
    ZERO1 = "zero-1"  # optimizer state (also Megatron's distributed optimizer)
    ZERO2 = "zero-2"  # + gradients
    ZERO3 = "zero-3"  # + weights, DeepSpeed's buffers
    FSDP1 = "fsdp1"
    FSDP2 = "fsdp2"

    @property
    def divides_weights(self) -> bool:
        """True for ZeRO-3 and both FSDPs."""
        return self in (Shard.ZERO3, Shard.FSDP1, Shard.FSDP2)

    @property
    def divides_gradients(self) -> bool:
        """True from ZeRO-2 on."""
        return self.divides_weights or self is Shard.ZERO2

    @property
    def divides_optimizer(self) -> bool:
        """True from ZeRO-1 on."""
        return self.divides_gradients or self is Shard.ZERO1


class Load(StrEnum):
    """Where whole models are while they load, before sharding."""

    SHARDS = "shards"  # meta-device initialisation: every rank reads its own shard
    HOST_RANK0 = "host-rank0"  # one whole copy per node on the host
    HOST_EVERY_RANK = "host-every-rank"  # one whole copy per rank on the host
    DEVICE = "device"  # whole on the GPU, then sharded


class ContextExchange(StrEnum):
    """How context-parallel ranks see the rest of the sequence."""

    RING = "ring"
    ALL_GATHER = "all-gather"
    ULYSSES = "ulysses"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Degrees of parallelism of one group of GPUs. data = gpus ÷ (tensor · pipeline · context)."""

    gpus: int
    gpus_per_node: int = 8
    shard: Shard = Shard.NONE
    replicate: int = 1  # HSDP: groups that each hold all shards
    reshard_after_forward: bool = True
    root_split: bool = False  # embedding and head in FSDP groups of their own
    tensor: int = 1
    sequence_parallel: bool = False
    pipeline: int = 1
    virtual_pipeline: int = 1
    pipeline_micro_batches: int = 1  # micro-batches in one pipeline flush
    context: int = 1
    context_exchange: ContextExchange = ContextExchange.RING
    expert: int = 1
    layer_split: int = 1  # naive device_map split: divides weights and checkpoints over GPUs, nothing else
    offload_parameters: bool = False  # to the host, fetched block by block
    offload_optimizer: bool = False  # optimizer state and step on the host
    load: Load = Load.SHARDS
    offload_between_phases: bool = False  # on the host outside the phase that uses it (verl param/optimizer_offload)

    @property
    def model_parallel(self) -> int:
        """GPUs that hold one copy of the model before data-parallel sharding."""
        return self.tensor * self.pipeline * self.context * self.layer_split

    @property
    def data(self) -> int:
        """Data-parallel ranks."""
        return self.gpus // self.model_parallel

    @property
    def shard_degree(self) -> int:
        """Ranks over which data-parallel sharding divides state; context ranks shard too (they hold equal weights)."""
        if self.shard in (Shard.NONE, Shard.DDP):
            return 1
        return self.data * self.context // self.replicate

    @property
    def expert_shard_degree(self) -> int:
        """Ranks over which expert weights are divided by sharding, after `expert` has divided the experts."""
        return max(1, self.shard_degree // self.expert)

    @property
    def text(self) -> str:
        """`8 GPUs: fsdp2 over 8, tensor 2`: the degrees that are not 1 and the switches that are on."""
        degrees = ("replicate", "tensor", "pipeline", "virtual_pipeline", "context", "expert", "layer_split")
        parts = [f"{self.shard} over {self.shard_degree}" if self.shard_degree > 1 else str(self.shard)]
        parts += [f"{name} {getattr(self, name)}" for name in degrees if getattr(self, name) > 1]
        switches = (
            "sequence_parallel",
            "root_split",
            "offload_parameters",
            "offload_optimizer",
            "offload_between_phases",
        )
        parts += [name.replace("_", " ") for name in switches if getattr(self, name)]
        parts += ["weights stay gathered"] if self.shard is Shard.FSDP2 and not self.reshard_after_forward else []
        return f"{self.gpus} GPUs: {', '.join(parts)}"

    @property
    def nodes(self) -> int:
        """Whole nodes held."""
        return -(-self.gpus // self.gpus_per_node)
