"""Published decode rates judge the step model, each row by a fit that has not seen its (model, GPU).

Rows and sources: evidence/decode.jsonl (TensorRT-LLM performance overviews 0.9, 0.17, 1.0, 1.2; aiconfigurator's
online runs of vLLM, SGLang and TensorRT-LLM). Tolerances are the project's bars, not fits.
"""

from __future__ import annotations

import json
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from headcount.estimate.decode import decode_model, generate_model
from headcount.estimate.replica import replica_of
from headcount.facts.decode_speed import decode_speed
from headcount.facts.gpu import find_gpu
from headcount.facts.models import find_model
from headcount.measure.time_rows.decode import DecodeRow, Skipped, decode_rows, predicted_tokens_per_s

_ROOT = Path(__file__).parents[2]
_GOOD = {
    "source": "x", "model": "Llama 3.1 8B", "gpu": "H100", "tp": 1, "precision": "FP8", "engine": "vllm",
    "input_len_tokens": 1000, "output_len_tokens": 1000, "concurrency": 16, "scope": "online_concurrency",
    "output_tok_s": 2000,
}  # fmt: skip


@pytest.fixture(scope="module")
def read() -> list[DecodeRow | Skipped]:
    lines = (_ROOT / "evidence/decode.jsonl").read_text("utf-8").splitlines()
    return list(decode_rows(json.loads(line) for line in lines))


@pytest.fixture(scope="module")
def rows(read: list[DecodeRow | Skipped]) -> list[DecodeRow]:
    return [each for each in read if isinstance(each, DecodeRow)]


@pytest.fixture(scope="module")
def fit() -> ModuleType:
    loader = SourceFileLoader("fit_decode", str(_ROOT / "scripts/fit_decode"))
    spec = spec_from_loader("fit_decode", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def left_out(fit: ModuleType, rows: list[DecodeRow]) -> tuple[ModuleType, np.ndarray]:
    table = fit.Table(rows)
    return table, fit.left_out(table, table.fit(np.ones(len(rows), bool), table.centre))


@pytest.mark.parametrize(("segment", "median", "ninety"), [("dense", 0.14, 0.36), ("mixture", 0.16, 0.42)])
def test_rates_of_a_model_and_card_that_the_fit_has_not_seen(left_out, segment: str, median: float, ninety: float):
    table, errors = left_out
    absolute = np.abs(np.expm1(errors[[row.segment == segment for row in table.rows]]))
    assert len(absolute) > 300
    assert np.median(absolute) <= median
    assert np.quantile(absolute, 0.9) <= ninety


@pytest.mark.parametrize("layout", [False, True])
def test_one_measured_row_of_the_same_engine_and_precision_leaves_a_tenth(fit, left_out, layout: bool):
    near = np.concatenate([np.array(errors) for errors in fit.neighbours(*left_out, layout=layout).values()])
    assert np.median(np.abs(np.expm1(near))) <= 0.10


@pytest.mark.parametrize("segment", ["dense", "mixture"])
def test_shipped_bands_hold_seven_to_nine_of_ten_unseen_rows(left_out, segment: str):
    table, errors = left_out
    inside = [(row, error) for row, error in zip(table.rows, errors, strict=True) if row.segment == segment]
    held = 0
    for row, error in inside:
        band = predicted_tokens_per_s(row)
        # the shipped band around what the fit without the row's group says
        held += band.p10 / band.p50 <= 1 / np.exp(error) <= band.p90 / band.p50
    assert 0.70 <= held / len(inside) <= 0.90


def test_shipped_constants_are_the_fit_of_these_rows(rows: list[DecodeRow]):
    for segment, bar in (("dense", 0.08), ("mixture", 0.14)):
        errors = [predicted_tokens_per_s(r).p50 / r.observed_tokens_per_s - 1 for r in rows if r.segment == segment]
        assert np.median(np.abs(errors)) <= bar


def test_few_rows_are_skipped_and_each_says_why(read: list[DecodeRow | Skipped]):
    skipped = [each.reason for each in read if isinstance(each, Skipped)]
    known = ("an exact repeat", "precision is not stated", "can reach at peak", "is not in the shipped table")
    assert all(any(reason in each for reason in known) for each in skipped)
    assert len(skipped) <= 0.2 * len(read)


def _only(**changed: object) -> DecodeRow | Skipped:
    return next(iter(decode_rows([{**_GOOD, **changed}])))


def test_a_loose_name_finds_its_model_and_card():
    row = _only(model="Llama 4 Scout (17B-16E MoE)", gpu="H200", tp=4)
    assert isinstance(row, DecodeRow)
    assert (row.segment, row.group) == ("mixture", ("meta-llama/Llama-4-Scout-17B-16E", "h200-sxm"))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model": "Llama 9 5T"}, "Llama 9 5T"),
        ({"gpu": "H900"}, "H900"),
        ({"gpu": "A100"}, "a100"),  # 40 or 80 GB, SXM or PCIe
        ({"precision": None}, "precision is not stated"),
        ({"scope": "per_user"}, "none of max_load"),
        ({"concurrency": None}, "missing"),
        ({"output_tok_s": 200_000}, "can reach at peak"),
        ({"model": "Llama 3.1 405B", "scope": "max_load"}, "no room"),
    ],
)
def test_what_cannot_be_mapped_is_skipped_with_its_reason(changed: dict[str, object], why: str):
    row = _only(**changed)
    assert isinstance(row, Skipped)
    assert why in row.reason


def test_a_repeat_counts_once():
    first, second = decode_rows([_GOOD, {**_GOOD, "id": "again"}])
    assert isinstance(first, DecodeRow)
    assert second == Skipped("again", "an exact repeat")


# Qwen2.5 speed benchmark (QwenLM/Qwen2.5 docs/source/benchmark/speed_benchmark.rst): A100-80GB, batch 1, 2,048 tokens
# generated after prompts of so many tokens; tokens a second. None of these rows is in the fit.
_GENERATE = [
    ("7B", 1, 40.38), ("7B", 6144, 38.76), ("7B", 14336, 29.78), ("7B", 30720, 18.83),
    ("32B", 1, 17.54), ("32B", 6144, 12.49), ("32B", 14336, 8.95), ("32B", 30720, 5.59),
]  # fmt: skip
_VLLM = [
    ("7B", 1, 1, 84.28), ("7B", 1, 30720, 70.33), ("32B", 1, 1, 22.13), ("32B", 1, 14336, 19.91),
    ("32B", 2, 30720, 31.82), ("72B", 4, 14336, 30.10),
]  # fmt: skip


def _rate(size: str, prompt: int, tensor: int, *, transformers: bool) -> float:
    shape, gpu = find_model(f"Qwen/Qwen2.5-{size}-Instruct"), find_gpu("a100-sxm4-80gb")
    replica = replica_of(shape, gpu, precision="bf16", kv_bytes=2, tensor=tensor)
    speed = decode_speed("ampere", "bf16", "vllm", mixture=False)
    model = generate_model(replica, speed) if transformers else decode_model(replica, speed)
    return 1 / (model.step_s[1](1, prompt + 1024) + model.prefill_s(prompt, prompt) / 2048)


@pytest.mark.parametrize(("size", "prompt", "tokens_per_s"), _GENERATE)
def test_generate_of_transformers_slows_with_its_copied_cache(size: str, prompt: int, tokens_per_s: float):
    assert _rate(size, prompt, 1, transformers=True) == pytest.approx(tokens_per_s, rel=0.15)


@pytest.mark.parametrize(("size", "tensor", "prompt", "tokens_per_s"), _VLLM)
def test_vllm_on_one_stream_is_within_the_band_of_unseen_rows(size, tensor, prompt, tokens_per_s):
    low, high = decode_speed("ampere", "bf16", "vllm", mixture=False).spread
    rate = _rate(size, prompt, tensor, transformers=False)
    assert rate / high <= tokens_per_s <= rate / low
