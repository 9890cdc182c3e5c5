"""Which of the four levels did a source read, and how many bytes is its figure?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from headcount.measure.mapping.evidence import Case
from headcount.measure.mapping.words import text_of
from headcount.units import GB, GIB, MIB
from headcount.vocabulary import Level

__all__ = ["Observation", "level_of", "observation_of"]

# GB and GiB differ by 7.4 %. A bare "G" is read as GiB (what NVIDIA's and PyTorch's tools divide by) and the band of
# the prediction is widened down by that factor.
_BYTES_PER_UNIT = {"gib": GIB, "gb": GB, "mib": MIB, "mb": 10**6, "unclear": GIB, "g": GIB}

# What frameworks put in their own logs; each read in its source.
_LOGS = {
    "torchtitan": (Level.RESERVED, "torchtitan logs max_reserved_gib (components/metrics.py)"),
    "prime-rl": (Level.RESERVED, "prime-rl logs torch.cuda.max_memory_reserved (trainer/*/train.py)"),
    "torchtune": (Level.ACTIVE, "torchtune prints peak memory active (training/memory.py)"),
    "litgpt": (Level.ALLOCATED, "litgpt prints torch.cuda.max_memory_allocated / 1e9 (finetune/lora.py)"),
    "ms-swift": (Level.RESERVED, "ms-swift logs torch.cuda.max_memory_reserved as memory(GiB)"),
    "axolotl": (Level.RESERVED, "axolotl logs device_mem_reserved"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """A measured peak of one GPU. `named` is true when the source names its counter and unit."""

    bytes: float
    level: Level
    unit: str  # as printed by the source
    named: bool
    because: str

    @property
    def unit_bytes(self) -> int:
        """Bytes of one printed unit."""
        return _BYTES_PER_UNIT[self.unit.lower()]


def observation_of(case: Case, *, recipe: str, gpus: int) -> Observation | None:
    """The peak of one GPU, or None where the row has none that can be read."""
    measured = case.measured
    unit = text_of(measured.get("unit"))
    value = _figure(measured.get("peak_gb_per_gpu"))
    if value is None:
        whole = _figure(measured.get("peak_gb_total"))
        value = whole / gpus if whole is not None and gpus > 0 else None
    if value is None or value <= 0 or unit not in _BYTES_PER_UNIT:
        return None
    counter = text_of(measured.get("memory_counter"))
    level, because = level_of(counter, recipe=recipe)
    named = bool(counter) and unit not in ("unclear", "g") and "approximate" not in counter
    return Observation(bytes=value * _BYTES_PER_UNIT[unit], level=level, unit=unit, named=named, because=because)


def _figure(value: Any) -> float | None:
    if isinstance(value, (list, tuple)):
        figures = [figure for figure in map(_figure, value) if figure is not None]
        return max(figures, default=None)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def level_of(counter: str, *, recipe: str) -> tuple[Level, str]:
    """The level that a counter's name means; without a name, what the framework logs."""
    text = counter.lower()
    log = next((log for name, log in _LOGS.items() if recipe.startswith(name)), None)
    if "active" in text:
        return Level.ACTIVE, f"source says {counter!r}"
    if re.search(r"nvidia-smi|nvml|device[- ]used|driver", text):
        return Level.DEVICE_USED, f"source says {counter!r}"
    if re.search(r"allocated", text) and not re.search(r"allocated[^;]*\breserved", text):
        return Level.ALLOCATED, f"source says {counter!r}"
    if re.search(r"\breserved|mem_reserved", text) and "allocated" not in text:
        return Level.RESERVED, f"source says {counter!r}"
    if log is not None:
        return log
    if "alloc" in text:
        return Level.ALLOCATED, f"source says {counter!r}"
    return Level.RESERVED, "counter not stated: taken as the caching allocator's reserved bytes"
