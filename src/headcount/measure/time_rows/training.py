"""What does a published training throughput measure, in the planner's terms?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError
from headcount.estimate.training import Passes, Spread, Training, passes_of, training_of
from headcount.facts.gpu import Gpu, find_gpu
from headcount.facts.link import find_fabric, usual_fabric
from headcount.facts.model_shape import ModelShape
from headcount.measure.time_rows.decode import Skipped
from headcount.measure.time_rows.shapes import table_shape

__all__ = ["TrainingRow", "training_rows"]

_FRAMEWORKS: Mapping[str, str] = {
    "llm_foundry": "fsdp-eager",
    "torchtune": "fsdp-eager",
    "torchtitan": "fsdp",
    "megatron_bridge": "megatron",
    "megatron_lm": "megatron",
    "dgxc_v25_02": "megatron",
    "dgxc_v25_05": "megatron",
    "nemo_24_07": "megatron",
    "nemo_longseq": "megatron",
}
_GPUS = {"h100": "h100-sxm5-80gb", "h100 80gb": "h100-sxm5-80gb", "a100 80gb": "a100-sxm4-80gb",
         "a100 40gb": "a100-sxm4-40gb", "a100": "a100-sxm4-80gb"}  # fmt: skip
_PRECISIONS = (("nvfp4", "fp4"), ("rowwise", "fp8-rowwise"), ("fp8", "fp8"), ("bf16", "bf16"), ("mixed", "bf16"))
_RECOMPUTE = {"full": 1.0, "selective": 0.4, "selective (per op)": 0.3, "selective (config default)": 0.4, "none": 0.0}
# torchtune's README adds one switch a row and keeps those before (the two adapter rows keep all but the last two).
_LADDER = (
    "baseline",
    "+ packed dataset",
    "+ compile",
    "+ chunked cross entropy",
    "+ activation checkpointing",
    "+ optimizer in backward",
    "+ activation offloading",
    "+ 8-bit AdamW",
    "LoRA (all but last two)",
    "QLoRA",
)
_NEEDED = ("tok_s_per_gpu", "gpus", "seq_len_tokens", "micro_batch")
_MATMUL = 0.87  # of peak: the best product that anybody printed (stas00/ml-engineering MAMF, A100)


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A row that the model can predict."""

    id: str
    segment: str  # fsdp | megatron-dense | megatron-mixture
    group: tuple[str, str]  # model, GPU
    framework: str
    architecture: str
    precision: str
    release: float  # year of the container, for mixtures
    gpus: int
    tokens: float  # of one optimizer step, all GPUs
    work: Training
    observed_tokens_per_s_per_gpu: float


def training_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[TrainingRow | Skipped]:
    """Every distinct row that says what ran."""
    read = list(rows)
    broken = {_table(row) for row in read if isinstance(each := _one("", row), Skipped) and _BOUND in each.reason}
    seen: set[tuple[tuple[str, str], ...]] = set()
    for number, row in enumerate(read, 1):
        name = str(row.get("id") or f"{row.get('source', 'row')}-{number}")
        mark = tuple(sorted((key, str(value)) for key, value in row.items() if key not in ("id", "section", "notes")))
        if mark in seen:
            yield Skipped(name, "an exact repeat")
            continue
        seen.add(mark)
        if _table(row) in broken:
            yield Skipped(name, f"a row of its table is {_BOUND}: the table does not mean what it says")
        else:
            yield _one(name, row)


def _table(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(row.get("source")), str(row.get("model")), str(row.get("gpu"))


def _one(name: str, row: Mapping[str, Any]) -> TrainingRow | Skipped:
    try:
        return _mapped(name, row)
    except HeadcountError as error:
        return Skipped(name, " ".join(str(error).split())[:160])
    except (KeyError, TypeError, ValueError, ZeroDivisionError, StopIteration) as error:
        return Skipped(name, f"a field is missing or has no sense: {type(error).__name__} {error}")


_BOUND = "above the bound that its card's products set"


class _Refused(HeadcountError):
    """A row that says too little."""


def _mapped(name: str, row: Mapping[str, Any]) -> TrainingRow:
    for key in _NEEDED:
        if row.get(key) is None:
            raise _Refused(f"{key} is not stated")
    shape = table_shape(str(row["model"]))
    gpu = find_gpu(_GPUS.get(str(row["gpu"]).lower(), str(row["gpu"])))
    framework = _framework(row)
    precision = _precision(row)
    spread, gpus, tokens, row_tokens = _spread(row, gpu, framework)
    work = _work(row, shape, gpu, spread, precision, tokens, row_tokens)
    observed = float(row["tok_s_per_gpu"])
    _plausible(work, tokens * spread.data * spread.micro_batches / gpus, observed)
    return TrainingRow(
        id=name,
        segment="fsdp" if framework.startswith("fsdp") else f"megatron-{'mixture' if shape.moe else 'dense'}",
        group=(shape.name, gpu.id),
        framework=framework,
        architecture=gpu.architecture,
        precision=precision,
        release=_release(row),
        gpus=gpus,
        tokens=tokens * spread.data * spread.micro_batches,
        work=work,
        observed_tokens_per_s_per_gpu=observed,
    )


def _plausible(work: Training, tokens: float, observed: float) -> None:
    """Matrix products at the best share of peak that any has, and nothing else: no run is faster."""
    products = (work.gemm_s + work.expert_s) * (1 + work.backward + work.recompute) + work.head_s * (1 + work.backward)
    bound = _MATMUL * tokens / (work.micro_batches * products)
    if observed > bound:
        raise _Refused(f"{observed:,.0f} tokens/s a GPU is {_BOUND} of {bound:,.0f}")


def _framework(row: Mapping[str, Any]) -> str:
    source = "maxtext" if "maxtext" in f"{row['model']} {row['source']}".lower() else str(row["source"])
    if source not in _FRAMEWORKS:
        raise _Refused(f"no framework class for {source}")
    how = f"{row.get('section')} {row.get('parallelism')}".lower()
    if source == "torchtune" and _rung(row) >= _LADDER.index("+ compile"):
        return "fsdp"
    if source == "torchtitan":
        if "async" in str(row.get("parallelism")).lower():
            return "fsdp-async-tp"
        # The tables of 8-bit products and of asynchronous tensor parallelism are compiled throughout.
        compiled = any(word in f"{how} {row.get('precision')}".lower() for word in ("compile", "async", "fp8"))
        return "fsdp" if compiled else "fsdp-eager"
    return _FRAMEWORKS[source]


def _rung(row: Mapping[str, Any]) -> int:
    """How many of torchtune's switches are on; -1: not a row of that table."""
    how = str(row.get("parallelism"))
    return _LADDER.index(how) if how in _LADDER else -1


def _precision(row: Mapping[str, Any]) -> str:
    stated = str(row.get("precision") or "").lower()
    for word, precision in _PRECISIONS:
        if word in stated:
            return precision
    raise _Refused("the precision is not stated")


def _spread(row: Mapping[str, Any], gpu: Gpu, framework: str) -> tuple[Spread, int, float, float]:
    """(layout, GPUs, tokens of a micro-batch of a data rank, tokens of a row)."""
    gpus, row_tokens = int(row["gpus"]), float(row["seq_len_tokens"])
    tensor, pipeline, context = (int(row.get(key) or 1) for key in ("tp", "pp", "cp"))
    data = max(1, gpus // (tensor * pipeline * context))
    micro = float(row["micro_batch"])
    whole = row.get("global_batch")
    if not whole and framework == "megatron":
        raise _Refused("the global batch is not stated, and with it neither bubble nor the optimizer's share")
    if "interleaved" in str(row.get("parallelism")).lower() and not row.get("vp"):
        raise _Refused("how many interleaved stages a rank has is not stated")
    # torchtitan prints the batch of a rank's whole pipeline flush as its micro-batch.
    flush = pipeline > 1 and framework.startswith("fsdp")
    in_flush = int(micro) if flush else 1
    micro_batches = max(1, round(float(whole) / (micro * data))) if whole and not flush else in_flush
    sharded = framework.startswith("fsdp") and gpus > 1
    kept = "SHARD_GRAD_OP" in str(row.get("parallelism"))
    spread = Spread(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        virtual_pipeline=int(row.get("vp") or 1),
        context=context,
        expert=int(row.get("ep") or 1),
        sharded=sharded,
        gathers=1 if kept else 2,
        micro_batches=micro_batches,
    )
    return spread, gpus, (1.0 if flush else micro) * row_tokens, row_tokens


def _work(
    row: Mapping[str, Any],
    shape: ModelShape,
    gpu: Gpu,
    spread: Spread,
    precision: str,
    tokens: float,
    row_tokens: float,
) -> Training:
    task = str(row["task"])
    if task == "qlora":
        raise _Refused("4-bit training is scored with the HF rows")
    recompute = _recompute(row)
    passes: Passes = passes_of(full=task != "lora", recompute=recompute)
    node = re.search(r"(\d+) Gbps node", str(row.get("section")))
    fabric = find_fabric("hdr-200") if node and node[1] == "1600" else usual_fabric(gpu.architecture)
    return training_of(
        shape,
        gpu,
        fabric,
        spread,
        passes,
        tokens=tokens,
        row_tokens=row_tokens,
        precision=precision,
        trained=0.005 if task == "lora" else 1.0,
    )


def _recompute(row: Mapping[str, Any]) -> float:
    rung = _rung(row)
    if rung == 0:
        raise _Refused("rows are padded, and how far is not stated")
    if rung > 0:
        return float(rung >= _LADDER.index("+ activation checkpointing"))
    stated = row.get("activation_checkpointing")
    if stated is None:
        return 0.0  # Megatron recipes recompute next to nothing unless they say so
    return _RECOMPUTE[str(stated)]


def _release(row: Mapping[str, Any]) -> float:
    """`26.04.01 NeMo Container`, `dgxc_v25_02`, `nemo_24_07` → a year; other tables: 2024."""
    found = re.search(r"(2\d)[._](\d\d)", f"{row.get('section') or ''} {row['source']}")
    return 2000 + int(found[1]) + int(found[2]) / 12 if found else 2024.0
