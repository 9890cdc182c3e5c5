"""Does a wrong, cut-off or hostile config.json give one message with every mistake, and never a traceback?"""

from __future__ import annotations

import contextlib
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.errors import InputError, UnknownFact
from headcount.facts.config_file import MAX_FILE_BYTES
from headcount.facts.families import FAMILIES, read_shape
from headcount.facts.model_shape import ModelShape
from headcount.facts.models import find_model

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 32,
}


def _refused(tmp_path, content: bytes) -> str:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InputError) as error:
        find_model(str(file))
    return str(error.value)


def _mistakes(**changes) -> list[str]:
    config = {key: value for key, value in (TINY | changes).items() if value is not ...}
    with pytest.raises(InputError) as error:
        read_shape(config, name="m", source="")
    return [str(mistake) for mistake in error.value.mistakes]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not JSON"),
        (json.dumps(TINY).encode()[:60], "cut off"),
        (b"[1, 2]", "holds a list"),
        (b"null", "holds null"),
        (b"\x80garbage", "UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b'{"hidden_size": ' + b"9" * 10_000 + b"}", "thousands of digits"),
        (b"{}", "model_type: is missing"),
        (b'{"model_type": 3}', "model_type: is 3, must be a string"),
        (b'{"model_type": {"a": [1]}}', "model_type: is an object, must be a string"),
    ],
)
def test_a_file_that_is_no_config_is_refused_in_one_sentence(tmp_path, content, says):
    assert says in _refused(tmp_path, content)


def test_a_hundred_megabytes_are_refused_without_being_read(tmp_path):
    file = tmp_path / "config.json"
    with file.open("wb") as stream:
        stream.truncate(100_000_000)
    with pytest.raises(InputError, match=f"{MAX_FILE_BYTES:,} bytes"):
        find_model(str(file))


def test_what_is_no_regular_file_is_refused_and_does_not_hang(tmp_path):
    pipe = tmp_path / "config.json"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="not a regular file"):
        find_model(str(pipe))
    with pytest.raises(InputError, match="no such file"):
        find_model(str(tmp_path / "absent.json"))


def test_all_mistakes_come_at_once_with_key_and_value():
    found = _mistakes(
        hidden_size=-64,
        num_hidden_layers="two",
        vocab_size=0,
        intermediate_size=1.5,
        max_position_embeddings=...,
        tie_word_embeddings="false",
    )
    text = "\n".join(found)
    for key, value in (("hidden_size", "-64"), ("num_hidden_layers", "'two'"), ("vocab_size", "is 0")):
        assert any(key in line and value in line for line in found), text
    assert any("intermediate_size: is 1.5" in line for line in found)
    assert any("max_position_embeddings: is missing" in line for line in found)
    assert any("tie_word_embeddings: is 'false'" in line for line in found)
    assert len(found) == 6


@pytest.mark.parametrize(
    "value",
    [10**12, 10**5000, True, [], {}, "4096", 2.0, float("nan"), float("inf")],
    ids=["10¹²", "10⁵⁰⁰⁰", "true", "list", "object", "text", "float", "nan", "inf"],
)
def test_a_size_that_cannot_be_is_one_mistake_naming_the_key(value):
    found = _mistakes(hidden_size=value)
    assert len(found) == 1
    assert "hidden_size" in found[0]
    assert len(found[0]) < 300


def test_layers_are_bounded_so_that_no_loop_runs_away():
    assert "num_hidden_layers" in _mistakes(model_type="qwen2", num_hidden_layers=99_000_000)[0]


def test_heads_that_do_not_divide_are_explained():
    assert any("num_key_value_heads: is 3" in line for line in _mistakes(num_key_value_heads=3))
    assert any(
        "does not divide hidden_size" in line for line in _mistakes(num_attention_heads=6, num_key_value_heads=6)
    )


def test_more_active_experts_than_experts_is_refused():
    found = _mistakes(model_type="mixtral", num_local_experts=4, num_experts_per_tok=5)
    assert any("num_experts_per_tok" in line and "more than" in line for line in found)


def test_one_wrong_key_in_a_family_with_many_layers_is_one_mistake():
    assert len(_mistakes(model_type="qwen2", num_hidden_layers=80, num_attention_heads="many")) == 1


def test_layer_types_of_the_wrong_length_are_refused():
    found = _mistakes(model_type="gemma3_text", layer_types=["full_attention"] * 5)
    assert any("5 entries for 2 layers" in line for line in found)


def test_unknown_family_names_the_nearest_and_what_to_add():
    with pytest.raises(UnknownFact) as error:
        read_shape(TINY | {"model_type": "llama5"}, name="m", source="")
    text = str(error.value)
    assert "nearest known family: llama" in text
    assert "facts/families/llama5.py" in text
    assert "kv_heads" in text


def test_hostile_family_name_stays_out_of_the_path_and_short():
    with pytest.raises(UnknownFact) as error:
        read_shape(TINY | {"model_type": "../" * 10_000}, name="m", source="")
    assert "facts/families/NAME.py" in str(error.value)
    assert len(str(error.value)) < 1_000


_LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_ANY = st.recursive(
    _LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
_KEYS = sorted(
    set(TINY)
    | {"head_dim", "layer_types", "text_config", "attn_config", "sliding_window", "n_embd", "n_head", "n_layer"}
    | {"num_experts", "num_local_experts", "num_experts_per_tok", "mlp_only_layers", "moe_layers", "q_lora_rank"}
    | {"n_routed_experts", "moe_intermediate_size", "first_k_dense_replace", "hidden_act", "decoder_sparse_step"}
    | {"use_sliding_window", "max_window_layers", "sliding_window_pattern", "interleave_moe_layer_step", "d_model"}
)


@settings(max_examples=400, deadline=None)
@given(family=st.sampled_from(sorted(FAMILIES)), changes=st.dictionaries(st.sampled_from(_KEYS), _ANY, max_size=6))
def test_no_content_gets_past_the_reader_as_anything_but_a_shape_or_an_input_error(family, changes):
    with contextlib.suppress(InputError):
        assert isinstance(read_shape(TINY | changes | {"model_type": family}, name="m", source=""), ModelShape)
