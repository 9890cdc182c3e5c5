"""Which shape does a name mean, and is a wrong one ever picked silently?"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib import resources

import pytest

from headcount.errors import InputError, UnknownFact
from headcount.estimate.parameters import parameters
from headcount.facts import models
from headcount.facts.model_shape import AttentionKind, MoeMlp, Norm
from headcount.facts.models import find_model, known_models, known_sizes

ROWS = tomllib.loads(resources.files("headcount.facts").joinpath("data/models.toml").read_text("utf-8"))["model"]
TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 32,
}


@pytest.fixture
def no_hub(monkeypatch):
    def refuse(wanted):
        raise AssertionError(f"the hub was asked for {wanted}")

    monkeypatch.setattr(models, "_from_hub", refuse)


def _all_names():
    return [(name, row["id"]) for row in ROWS for name in [row["id"], *row.get("aliases", ())]]


def test_the_table_has_at_least_sixty_models_each_with_a_source():
    assert len(ROWS) >= 60
    assert all(row["source"].strip() for row in ROWS)


def test_no_name_means_two_models():
    plain = [models._plain(name) for name, _ in _all_names()]
    assert len(plain) == len(set(plain))


def test_no_short_name_means_two_models():
    owners: dict[str, set[str]] = {}
    for name, row_id in _all_names():
        owners.setdefault(models._plain(name).rpartition("/")[2], set()).add(row_id)
    assert {name: ids for name, ids in owners.items() if len(ids) > 1} == {}


@pytest.mark.usefixtures("no_hub")
def test_every_name_finds_its_own_row():
    counts = {row["id"]: parameters(find_model(row["id"])) for row in ROWS}
    for name, row_id in _all_names():
        shape = find_model(name)
        assert shape.name == name
        assert parameters(shape) == counts[row_id]


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("qwen/qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("QWEN2.5-7B-INSTRUCT", "Qwen/Qwen2.5-7B-Instruct"),
        ("Llama 3.1 70B", "meta-llama/Llama-3.1-70B"),
        ("LLAMA3.1_405B", "meta-llama/Llama-3.1-405B"),
        ("gpt2", "openai-community/gpt2"),
        (" gpt2-xl ", "openai-community/gpt2-xl"),
        ("DeepSeek-R1", "deepseek-ai/DeepSeek-R1"),
    ],
)
def test_case_separators_and_owner_may_be_left_out(name, full):
    assert find_model(name).name == full


def test_distilled_qwen_1_5b_is_not_tied_as_its_base_is():
    # 1,777,088,000 on the hub against 1,543,714,304 of Qwen2.5-1.5B: the head is 151,936 × 1,536 more
    distilled = parameters(find_model("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"))
    assert distilled - parameters(find_model("Qwen/Qwen2.5-1.5B")) == 151_936 * 1_536


@pytest.mark.parametrize("size", [name for name, _ in known_sizes()])
def test_bare_size_says_who_stands_for_it_and_is_near(size):
    shape = find_model(size)
    assert f"stands for {size}" in shape.name
    assert f"bare size {size}" in shape.source
    nominal = float(size[:-1]) * 1e9
    assert parameters(shape) == pytest.approx(nominal, rel=0.26)  # Llama-3.2-1B has 1.24 × 10⁹


@pytest.mark.usefixtures("no_hub")
def test_size_without_a_representative_is_refused_with_the_known_ones():
    with pytest.raises(UnknownFact, match=r"9[bB].*\n.*7b, 8b"):
        find_model("9B")


def test_unknown_name_is_refused_not_matched_to_its_neighbour():
    with pytest.raises(UnknownFact, match=r"did you mean Qwen/Qwen2\.5-7B-Instruct"):
        find_model("Qwen2.5-7B-Instrukt")


def test_hub_id_offline_is_refused_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(models, "_reachable", lambda endpoint: False)
    with pytest.raises(UnknownFact, match=r"config\.json"):
        find_model("no-such-owner/no-such-model")


def test_hub_id_online_is_read_from_the_downloaded_file(monkeypatch, tmp_path):
    import huggingface_hub

    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY))
    monkeypatch.setattr(models, "_reachable", lambda endpoint: True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda repo, name, **_: str(file))
    shape = find_model("owner/model")
    assert (shape.name, shape.hidden) == ("owner/model", 64)
    assert "huggingface.co/owner/model" in shape.source


@pytest.mark.parametrize("name", ["", "   ", "a\0b", "x" * 5000])
def test_no_name_at_all_is_an_input_error(name):
    with pytest.raises(InputError):
        find_model(name)


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".json", "~nobody-here/config.json", "./" + "y" * 300])
def test_name_that_the_file_system_refuses_is_an_input_error(name):
    with pytest.raises(InputError):
        find_model(name)


def test_file_and_folder_are_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    for given in (tmp_path, tmp_path / "config.json"):
        assert find_model(str(given)).hidden == 64


def test_folder_beside_us_wins_only_with_a_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert find_model("gpt2").hidden == 768
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(TINY))
    assert find_model("gpt2").hidden == 64


def test_known_models_lists_every_row_with_its_shape_and_source():
    listed = known_models()
    assert [model for model, _, _ in listed] == [row["id"] for row in ROWS]
    summary = {model: text for model, text, _ in listed}["Qwen/Qwen2.5-7B-Instruct"]
    assert "28 layers × 3584" in summary
    assert "28/4 heads of 128" in summary


def test_shapes_say_what_memory_needs():
    deepseek = find_model("deepseek-ai/DeepSeek-V3")
    assert [count for count, _ in deepseek.blocks] == [3, 58]
    assert deepseek.block(0).attention.kind is AttentionKind.MLA
    moe = deepseek.block(-1).mlp
    assert isinstance(moe, MoeMlp)
    assert (moe.experts, moe.active, moe.shared_width) == (256, 8, 2048)

    gemma2 = find_model("google/gemma-2-9b")
    assert [gemma2.block(layer).attention.window for layer in range(4)] == [4096, None, 4096, None]
    assert (gemma2.block(0).norms, gemma2.norm) == (4, Norm.RMS_PLUS_ONE)
    assert gemma2.logit_softcap

    gemma3 = find_model("google/gemma-3-1b-it")
    assert [layer for layer in range(26) if gemma3.block(layer).attention.window is None] == [5, 11, 17, 23]
    assert find_model("Qwen/Qwen2.5-7B").block(0).attention.window is None


def test_looking_up_a_shipped_id_imports_nothing_heavy():
    code = (
        "import sys; from headcount.facts.models import find_model\n"
        "find_model('zai-org/GLM-4.5-Air')\n"
        "print(sorted({'torch', 'numpy', 'pydantic', 'huggingface_hub', 'rich'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
