"""Do headcount's formulas give the bytes that real steps of real models hold?

Every case builds transformers models (peft adapters where asked), runs two plain steps of the algorithm on fake tensors
and takes the second one's peak of every stretch: scoring by each network, backward of each trained one, its optimizer
step. Predictions come from the planner's own moments. LAWS are held to 1 %, the other families to 3 %; state and what
a block keeps are held to the byte.
"""

from __future__ import annotations

from functools import cache
from math import isclose

import pytest

from headcount.estimate import activations
from headcount.ledger.derivation import total
from headcount.plan.passes import update_pass
from headcount.vocabulary import Role, State
from tests.ground_truth.kept import kept_per_block
from tests.ground_truth.models import LAWS, OTHERS
from tests.ground_truth.predicted import job_of, predicted_peaks, predicted_state
from tests.ground_truth.steps import Case, Measured, measure

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers")

ALGORITHMS = ("sft", "dpo", "reward-model", "ppo", "grpo")
MODES = {
    "full": {},
    "full, checkpointed": {"checkpointing": True},
    "lora": {"lora_rank": 4},
    "lora, checkpointed": {"lora_rank": 4, "checkpointing": True},
}

_OPT = "OPT makes its own all-ones mask, which fake tensors cannot recognise: a boolean B·T² mask (1.6 to 1.8 % low)"
_MLA = "adapters on latent attention hold more in the backward of a recomputed block: 3.0 to 3.4 % low"

# (family, mode): (algorithms, reason)
FALLS_SHORT: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("deepseek_v3", "lora, checkpointed"): (ALGORITHMS, _MLA),
    ("opt", "full"): (("grpo",), _OPT),
    ("opt", "full, checkpointed"): (("grpo",), _OPT),
    ("opt", "lora"): (("ppo",), _OPT),
    ("opt", "lora, checkpointed"): (("ppo",), _OPT),
}


def _marks(family: str, mode: str, algorithm: str) -> list[pytest.MarkDecorator]:
    marks = []
    if family in OTHERS and algorithm != "ppo":  # PPO has a policy, a critic and scoring: it covers the others
        marks.append(pytest.mark.long)
    algorithms, reason = FALLS_SHORT.get((family, mode), ((), ""))
    if algorithm in algorithms:
        marks.append(pytest.mark.xfail(strict=True, reason=reason))
    return marks


CELLS = [
    pytest.param(family, mode, algorithm, marks=_marks(family, mode, algorithm), id=f"{family}-{mode}-{algorithm}")
    for family in LAWS + OTHERS
    for mode in MODES
    for algorithm in ALGORITHMS
]


@cache
def _step(family: str, mode: str, algorithm: str) -> tuple[Case, Measured]:
    case = Case(family, algorithm, **MODES[mode])
    return case, measure(case)


@pytest.mark.parametrize(("family", "mode", "algorithm"), CELLS)
def test_every_peak_of_a_step(family: str, mode: str, algorithm: str) -> None:
    case, measured = _step(family, mode, algorithm)
    predicted = predicted_peaks(case)
    bar = 0.01 if family in LAWS else 0.03
    errors = {name: predicted[name] / peak - 1 for name, peak in measured.peaks.items()}
    assert {name: f"{error:+.2%}" for name, error in errors.items() if abs(error) > bar} == {}


WIDE = {"hidden_size": 240, "intermediate_size": 640, "layers": 3, "vocab": 2048}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3_text", "phi3", "qwen3_moe"])
def test_the_laws_hold_on_a_wider_and_deeper_model(family: str, mode: str) -> None:
    # PPO has a policy, a critic and every kind of scoring; no law was read off this shape
    case = Case(family, "ppo", changes=WIDE, **MODES[mode])
    predicted = predicted_peaks(case)
    errors = {name: predicted[name] / peak - 1 for name, peak in measure(case).peaks.items()}
    assert {name: f"{error:+.2%}" for name, error in errors.items() if abs(error) > 0.01} == {}


def _states() -> list:
    fp32_router = pytest.mark.xfail(strict=True, reason="transformers keeps DeepSeek's router in fp32: 3,072 bytes")
    return [
        pytest.param(family, mode, marks=[fp32_router] if family == "deepseek_v3" else [])
        for family in LAWS + OTHERS
        for mode in ("full", "lora")
    ]


@pytest.mark.parametrize(("family", "mode"), _states())
def test_weights_gradients_and_moments_to_the_byte(family: str, mode: str) -> None:
    case, measured = _step(family, mode, "ppo")
    assert predicted_state(case) == {
        State.WEIGHTS: measured.weights,
        State.GRADIENTS: measured.gradients,
        State.OPTIMIZER: measured.optimizer,
    }


@pytest.mark.parametrize("mode", ["full", "lora"])
@pytest.mark.parametrize("family", LAWS)
def test_one_more_block_keeps_these_bytes_exactly(family: str, mode: str) -> None:
    case = Case(family, "sft", **MODES[mode])
    job = job_of(case)
    network = job.networks[Role.POLICY]
    run = update_pass(job, network)
    terms = activations.kept_per_block(network.shape.block(0), hidden=network.shape.hidden, run=run)
    kept = kept_per_block(family, rows=case.rows, row_tokens=case.row_tokens, lora_rank=case.lora_rank)
    assert total(terms) == kept


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3_moe"])
def test_foreach_holds_one_more_copy_of_the_trained_numbers(family: str) -> None:
    case = Case(family, "sft", foreach=True)
    name = "update/policy/optimizer step"
    # 0.1 %: a step counter of four bytes a tensor, and its scalars.
    assert isclose(predicted_peaks(case)[name], measure(case).peaks[name], rel_tol=1e-3)
