"""Which GPU does a row's label mean?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headcount.errors import UnknownFact
from headcount.facts.gpu import Gpu, find_gpu, gpus
from headcount.measure.mapping.words import text_of
from headcount.units import GB

__all__ = ["Machine", "gpu_of"]

_DEFAULT = "a100-80gb"  # where a row names no card: what most published runs used
_SIZED = re.compile(r"(\d+)\s*gi?b\b")
_KINSHIP = (
    (r"\bl20\b", "l40s"),
    (r"\bl40\b", "l40s"),
    (r"\ba10\b", "a10g"),
    (r"\ba100\b", "a100-80gb"),
    (r"\bv100\b", "v100-32gb"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """An id of the GPU table; `assumed` says what the label left open."""

    gpu: str
    assumed: str = ""


def gpu_of(label: object) -> Machine | None:
    """The table's card for `A100-80GB`, `B200 (power limited)`, `80GB class`; None where none has that size."""
    text = text_of(label)
    if not text:
        return Machine(gpu=_DEFAULT, assumed="GPU not stated: an 80 GB A100")
    plain = re.sub(r"\(.*?\)|^\d+\s*x\s*", "", text).strip()
    for name in (text, plain):
        try:
            return Machine(gpu=find_gpu(name).id)
        except UnknownFact:
            continue
    kin = next((card for pattern, card in _KINSHIP if re.search(pattern, plain)), None)
    if kin is not None:
        return Machine(gpu=kin, assumed=f"{label}: planned as {kin}")
    sized = _SIZED.search(plain)
    card = _of_size(int(sized[1])) if sized else None
    return None if card is None else Machine(gpu=card.id, assumed=f"{label}: a card of that size, {card.name}")


def _of_size(marketed_gb: int) -> Gpu | None:
    """The first card of the table with that label; its driver's figure known if possible."""
    fitting = [gpu for gpu in gpus().values() if round(gpu.marketed_bytes / GB) == marketed_gb]
    return next((gpu for gpu in fitting if gpu.reported_bytes is not None), next(iter(fitting), None))
