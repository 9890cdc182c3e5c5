"""What does a published decode rate measure, in the planner's terms?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headcount.errors import HeadcountError
from headcount.estimate.replica import Replica, replica_of
from headcount.estimate.serving import Serving, serving_at, serving_of, serving_rate, tokens_per_s
from headcount.facts.decode_speed import decode_speed
from headcount.facts.gpu import Gpu, find_gpu
from headcount.facts.model_shape import ModelShape
from headcount.facts.models import find_model
from headcount.ledger.predicted import Band

__all__ = ["DecodeRow", "Skipped", "decode_rows", "predicted_tokens_per_s"]

# Names of published tables that are no hub id.
_MODELS: Mapping[str, str] = {
    "falcon 180b": "tiiuae/falcon-180B",
    "gpt-j 6b": "EleutherAI/gpt-j-6b",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "llama 3.1 405b": "meta-llama/Llama-3.1-405B",
    "llama 3.1 70b": "meta-llama/Llama-3.1-70B",
    "llama 3.1 8b": "meta-llama/Llama-3.1-8B",
    "llama 3.3 70b": "meta-llama/Llama-3.3-70B-Instruct",
    "llama 4 maverick (17b-128e moe)": "meta-llama/Llama-4-Maverick-17B-128E",
    "llama 4 scout (17b-16e moe)": "meta-llama/Llama-4-Scout-17B-16E",
    "llama 7b": "huggyllama/llama-7b",
    "mistral 7b": "mistralai/Mistral-7B-v0.1",
    "mixtral 8x22b": "mistralai/Mixtral-8x22B-v0.1",
    "mixtral 8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "zhipuai/glm-5": "zai-org/GLM-5",
}
_GPUS: Mapping[str, str] = {
    "h100": "h100-sxm5-80gb",
    "a100 80gb sxm": "a100-sxm4-80gb",
    "gh200 96gb": "gh200-96gb",
    "rtx pro 6000": "rtx-pro-6000",
}
# One constant for a kind of weights, whoever packs them.
_PRECISIONS = {"fp16": "bf16", "nvfp4": "fp4", "mxfp4": "fp4", "awq": "int4", "gptq": "int4", "w4a16": "int4"}

# TensorRT-LLM's benchmark runs a list of requests that depends on their lengths (its performance overview).
_REQUESTS: Mapping[tuple[int, int], int] = {(128, 128): 30_000, (20000, 2000): 1000, (32768, 1024): 500}
_USUAL_REQUESTS = ((2_500, 3000), (10**9, 1500))  # (up to so many tokens, requests)
_MOST_AT_ONCE = {"0.9": 1024, "0.17": 2048}  # max batch by release; newer ones:
_MOST_NEW = 4096
_ROUNDING = 1.02
_WAVES_UNKNOWN = 1.3  # how much more an engine may hold at once than we think


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """A row that the model can predict."""

    id: str
    segment: str  # dense | mixture
    group: tuple[str, str]  # model, GPU
    engine: str
    architecture: str
    precision: str
    replica: Replica
    serving: Serving
    observed_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that it cannot, and why."""

    id: str
    reason: str


def decode_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[DecodeRow | Skipped]:
    """Every distinct row; an exact repeat counts once."""
    seen: set[tuple[tuple[str, str], ...]] = set()
    for number, row in enumerate(rows, 1):
        name = str(row.get("id") or f"{row.get('source', 'row')}-{number}")
        mark = tuple(sorted((key, str(value)) for key, value in row.items() if key not in ("id", "measured_date")))
        if mark in seen:
            yield Skipped(name, "an exact repeat")
            continue
        seen.add(mark)
        try:
            yield _mapped(name, row)
        except HeadcountError as error:
            yield Skipped(name, " ".join(str(error).split())[:160])
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            yield Skipped(name, f"a field is missing or has no sense: {error}")


def predicted_tokens_per_s(row: DecodeRow) -> Band:
    """The rate that the shipped constants give, with its band.

    Raises:
        UnknownFact: nobody measured this architecture, precision or engine.
    """
    speed = decode_speed(row.architecture, row.precision, row.engine, mixture=row.segment == "mixture")
    return serving_rate(row.serving, speed)


class _Refused(HeadcountError):
    """A row that says too little, or what cannot be."""


def _mapped(name: str, row: Mapping[str, Any]) -> DecodeRow:
    shape, gpu = _model(str(row["model"])), find_gpu(_GPUS.get(str(row["gpu"]).lower(), str(row["gpu"])))
    engine = str(row["engine"])
    precision = _precision(row, shape)
    replica = _replica(row, shape, gpu, engine, precision)
    serving = _serving(row, replica)
    observed = float(row["output_tok_s"])
    _plausible(replica, serving, observed)
    return DecodeRow(
        id=name,
        segment="mixture" if shape.moe else "dense",
        group=(shape.name, gpu.id),
        engine=engine,
        architecture=gpu.architecture,
        precision=precision,
        replica=replica,
        serving=serving,
        observed_tokens_per_s=observed,
    )


def _model(name: str) -> ModelShape:
    spoken = re.sub(r" v(?=\d)", " ", name)  # TensorRT-LLM's "LLaMA v3.1 70B"
    return find_model(_MODELS.get(spoken.lower(), spoken))


def _precision(row: Mapping[str, Any], shape: ModelShape) -> str:
    """As printed; gpt-oss has 4-bit weights whatever its activations are called."""
    stated = row.get("precision")
    if shape.family == "gpt_oss":
        return "fp4"
    if stated is None:
        raise _Refused("the precision is not stated")
    return _PRECISIONS.get(str(stated).lower(), str(stated).lower())


def _replica(row: Mapping[str, Any], shape: ModelShape, gpu: Gpu, engine: str, precision: str) -> Replica:
    attention_data = int(row.get("attention_dp") or 1)
    # TensorRT-LLM takes the cache's dtype from the checkpoint: NVIDIA's own quantised ones say FP8, others (OpenAI's
    # MXFP4, Meta's FP8) say nothing, and it stays in 16 bits.
    others = shape.family == "gpt_oss" or (shape.family == "llama4_text" and precision == "fp8")
    quantised_cache = engine == "tensorrt_llm" and precision in ("fp8", "fp4") and not others
    tensor = int(row["tp"])
    return replica_of(
        shape,
        gpu,
        precision=precision,
        kv_bytes=1 if quantised_cache else 2,
        tensor=1 if attention_data > 1 else tensor,
        pipeline=int(row.get("pp") or 1),
        attention_data=attention_data,
    )


def _serving(row: Mapping[str, Any], replica: Replica) -> Serving:
    prompt, output = int(row["input_len_tokens"]), int(row["output_len_tokens"])
    scope = row["scope"]
    if scope == "online_concurrency":
        return serving_at(replica, concurrency=int(row["concurrency"]), prompt=prompt, output=output)
    if scope == "static_batch":
        batch = int(row["batch"])  # what does not fit at once waits
        return serving_of(replica, requests=batch, most=batch, prompt=prompt, output=output)
    if scope != "max_load":
        raise _Refused(f"scope {scope!r} is none of max_load, online_concurrency, static_batch")
    most = _MOST_AT_ONCE.get(str(row.get("engine_version")), _MOST_NEW)
    usual = next(count for tokens, count in _USUAL_REQUESTS if prompt + output <= tokens)
    requests = _REQUESTS.get((prompt, output), usual)
    most_all = most * replica.attention_data
    return serving_of(replica, requests=requests, most=most_all, prompt=prompt, output=output)


class _Peak:
    """Every share 1 and every host cost 0: faster than physics allows."""

    weights = cache = compute = prefill = exchange = 1.0
    layer_s = moe_layer_s = mla_layer_s = step_s = request_s = prefill_s = collective_s = 0.0
    hidden_passes = stage_wait = 0.0


def _unwired(serving: Serving) -> Serving:
    """Exchanges for nothing: what share of a link they reach is no law of physics."""
    waves = tuple((count, replace(load, wire_s=0.0, exchange_s=0.0)) for count, load in serving.waves)
    return replace(serving, waves=waves, prefill_wire_s=0.0, prefill_exchange_s=0.0)


def _plausible(replica: Replica, serving: Serving, observed: float) -> None:
    """A rate above what bandwidth and peak allow cannot have been measured as stated."""
    bound = float(tokens_per_s(_unwired(serving), _Peak)) * (_ROUNDING if len(serving.waves) == 1 else _WAVES_UNKNOWN)
    if observed > bound:
        what = f"{observed:,.0f} tokens/s is above the {bound:,.0f} that {replica.gpus} GPU(s) can reach at peak"
        raise _Refused(what)
