"""How many bytes are alive, at every instant of real PyTorch code, without a GPU and without weights?

A dispatch mode that follows storages (not tensors: a saved view keeps its whole storage) from birth to death. Works on
fake tensors, where nothing is allocated. What it cannot see: memory inside one operation (CPU and CUDA kernels'
workspaces) and the allocator's rounding.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tracker(TorchDispatchMode):
    """Live and peak bytes of storages born while the mode is active. `known` storages count nothing."""

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._births: dict[int, tuple[weakref.ref, int, str]] = {}
        self.at_peak: list[tuple[int, str]] = []
        for tensor in known:
            self._see(tensor, "known", count=False)

    def reset_peak(self) -> None:
        """Start a new stretch: its peak is what is alive now."""
        self.peak = self.live

    def _see(self, tensor: Tensor, by: str, *, count: bool = True) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._births:
            return
        size = storage.nbytes() if count else 0

        def gone(_: object) -> None:
            self._births.pop(key, None)
            self.live -= size

        self._births[key] = (weakref.ref(storage, gone), size, f"{by} {tuple(tensor.shape)} {tensor.dtype}")
        self.live += size
        self.peak = max(self.peak, self.live)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf, str(func))
        return out

    def largest(self, count: int = 20) -> list[tuple[int, str]]:
        """The largest storages alive now, with the operation that made each."""
        alive = [(size, by) for _, size, by in self._births.values() if size]
        return sorted(alive, reverse=True)[:count]
