"""Does every count equal that of transformers' own module, to the parameter?

The module is built from the same config on the meta device: no weights, no memory. transformers is the independent
implementation; published totals (safetensors metadata of the hub, or the paper) are a third one.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from headcount.estimate.parameters import (
    Kind,
    adapter_parameters,
    block_parameters,
    block_tensors,
    parameters,
    root_parameters,
    root_tensors,
)
from headcount.facts.families import FAMILIES, read_shape
from headcount.facts.models import find_model

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # peft 0.21 calls what transformers 5 deprecates
    pytest.mark.filterwarnings("ignore:The following rank_pattern:RuntimeWarning"),  # peft: not seen, but used
    pytest.mark.filterwarnings("ignore:The following alpha_pattern:RuntimeWarning"),
]

ROWS = tomllib.loads(resources.files("headcount.facts").joinpath("data/models.toml").read_text("utf-8"))["model"]
BY_ID = {row["id"]: row for row in ROWS}

# Remote code or never in transformers: counted by hand below.
NOT_IN_TRANSFORMERS = {"qwen"}
# Same module under another name in transformers.
BUILT_AS = {"kimi_k2": "deepseek_v3"}

_GQA = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
_LLAMA = _GQA | {"intermediate_size": 96, "vocab_size": 131, "max_position_embeddings": 64}
_MLA = _LLAMA | {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 20,
}
_GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 131, "n_positions": 32}
_FALCON = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 131}
_OPT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 96, "vocab_size": 131}
_OPT |= {"max_position_embeddings": 32}
_MOE2 = {"moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 2}

# Small configs that turn every switch that a family has.
SMALL = {
    "llama": _LLAMA,
    "llama-biased": _LLAMA | {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "head_dim": 24},
    "llama-tied": _LLAMA | {"model_type": "llama", "tie_word_embeddings": True},
    "mistral": _LLAMA | {"sliding_window": 16},
    "mixtral": _LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": _LLAMA,
    "qwen2_moe": _LLAMA | _MOE2 | {"shared_expert_intermediate_size": 40},
    "qwen2_moe-mixed": _LLAMA
    | _MOE2
    | {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 40, "mlp_only_layers": [1], "qkv_bias": False},
    "qwen3": _LLAMA | {"head_dim": 32},
    "qwen3-biased": _LLAMA | {"model_type": "qwen3", "attention_bias": True, "tie_word_embeddings": True},
    "qwen3_moe": _LLAMA | _MOE2 | {"decoder_sparse_step": 2},
    "gemma": _LLAMA | {"head_dim": 32},
    "gemma2": _LLAMA | {"head_dim": 32, "sliding_window": 16},
    "gemma3_text": _LLAMA | {"head_dim": 32, "sliding_window": 16},
    "phi3": _LLAMA,
    "phi": _LLAMA,
    "smollm3": _LLAMA | {"attention_bias": True},
    "opt": _OPT | {"word_embed_proj_dim": 64},
    "opt-350m-like": _OPT | {"model_type": "opt", "word_embed_proj_dim": 32, "do_layer_norm_before": False},
    "opt-no-final-norm": _OPT | {"model_type": "opt", "_remove_final_layer_norm": True},
    "gpt2": _GPT,
    "gpt2-inner": _GPT | {"model_type": "gpt2", "n_inner": 100},
    "gpt_neox": _LLAMA | {"num_key_value_heads": 4},
    "gpt_neox-plain": _LLAMA | {"model_type": "gpt_neox", "num_key_value_heads": 4, "attention_bias": False},
    "deepseek_v2": _MLA | {"q_lora_rank": None},
    "deepseek_v2-compressed": _MLA | {"model_type": "deepseek_v2", "q_lora_rank": 24, "attention_bias": True},
    "deepseek_v3": _MLA | {"q_lora_rank": 24},
    "deepseek_v3-biased": _MLA | {"model_type": "deepseek_v3", "q_lora_rank": None, "attention_bias": True},
    "kimi_k2": _MLA | {"q_lora_rank": 24, "n_shared_experts": 1},
    "olmo": _LLAMA,
    "olmo2": _LLAMA,
    "olmo3": _LLAMA | {"num_hidden_layers": 5},
    "olmoe": _LLAMA | {"num_experts": 8, "num_experts_per_tok": 2},
    "granite": _LLAMA | {"attention_bias": True, "mlp_bias": True},
    "granitemoe": _LLAMA | {"num_local_experts": 8, "num_experts_per_tok": 2},
    "glm": _LLAMA | {"head_dim": 32},
    "glm4": _LLAMA | {"head_dim": 32, "attention_bias": False},
    "glm4_moe": _LLAMA
    | {key: _MLA[key] for key in ("moe_intermediate_size", "n_routed_experts", "n_shared_experts")}
    | {"num_experts_per_tok": 2, "first_k_dense_replace": 2, "head_dim": 32, "use_qk_norm": True},
    "glm_moe_dsa": _MLA | {"q_lora_rank": 24, "index_n_heads": 2, "index_head_dim": 16},
    "glm_moe_dsa-shared": _MLA
    | {"model_type": "glm_moe_dsa", "q_lora_rank": 24, "index_n_heads": 2, "index_head_dim": 16}
    | {"num_hidden_layers": 9, "index_topk_freq": 4, "index_skip_topk_offset": 3, "first_k_dense_replace": 3},
    "gpt_oss": _LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16},
    "falcon": _FALCON | {"max_position_embeddings": 32},
    "falcon-serial": _FALCON | {"model_type": "falcon", "parallel_attn": False, "bias": True, "multi_query": False},
    "falcon-new": _FALCON | {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2},
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 32, "vocab_size": 131},
    "bloom": {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 131},
    "gptj": _GPT | {"rotary_dim": 8},
    "gpt_bigcode": _GPT,
    "gpt_bigcode-mha": _GPT | {"model_type": "gpt_bigcode", "multi_query": False},
    "starcoder2": _LLAMA,
    "stablelm": _LLAMA | {"use_qkv_bias": True},
    "stablelm-parallel": _LLAMA | {"model_type": "stablelm", "use_parallel_residual": True, "qk_layernorm": True},
    "cohere": _LLAMA | {"use_qk_norm": True},
    "cohere2": _LLAMA | {"num_hidden_layers": 5},
    "nemotron": _LLAMA | {"attention_bias": True, "mlp_bias": True},
    "minimax_m2": _LLAMA | {"head_dim": 32, "num_local_experts": 8, "num_experts_per_tok": 2},
    "llama4_text": _LLAMA
    | {"intermediate_size_mlp": 80, "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}
    | {"head_dim": 16, "num_hidden_layers": 4},
}


def _config(case: str) -> dict[str, object]:
    return {"model_type": case} | SMALL[case]


def _transformers_config(config: dict[str, object]):
    given = {key: value for key, value in config.items() if key != "model_type"}
    model_type = str(config["model_type"])
    # A small vocabulary does not hold the family's padding token.
    return AutoConfig.for_model(BUILT_AS.get(model_type, model_type), pad_token_id=None, **given)


@cache
def _module(case: str):
    return _on_meta(AutoModelForCausalLM, _config(case))


def _on_meta(auto_class: type, config: dict[str, object], **more: object):
    built = _transformers_config(config)
    for key, value in more.items():
        setattr(built, key, value)
    with torch.device("meta"):
        return auto_class.from_config(built)


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _blocks(module: torch.nn.Module) -> torch.nn.ModuleList:
    """The longest module list is the stack of blocks."""
    stacks = [child for child in module.modules() if isinstance(child, torch.nn.ModuleList)]
    return max(stacks, key=_count)


def _shape(case: str):
    return read_shape(_config(case), name=case, source="a test")


def test_every_family_has_a_small_config():
    covered = {str(_config(case)["model_type"]) for case in SMALL}
    with_vision = {family for family, file in FAMILIES.items() if file == "with_vision"}  # tested below
    assert covered >= set(FAMILIES) - NOT_IN_TRANSFORMERS - with_vision


@pytest.mark.parametrize("case", SMALL)
def test_small_model_counts_as_transformers_does(case):
    assert parameters(_shape(case)) == _count(_module(case))


@pytest.mark.parametrize("case", SMALL)
def test_each_block_and_the_root_count_as_transformers_do(case):
    shape, blocks = _shape(case), _blocks(_module(case))
    ours = [block_parameters(shape.block(layer), hidden=shape.hidden) for layer in range(shape.layers)]
    assert ours == [_count(block) for block in blocks]
    assert root_parameters(shape) == _count(_module(case)) - sum(ours)


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in SMALL
        if BUILT_AS.get(str(_config(case)["model_type"]), _config(case)["model_type"])
        in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    ],
)
def test_scalar_head_counts_as_transformers_does(case):
    module = _on_meta(AutoModelForSequenceClassification, _config(case), num_labels=1)
    assert parameters(_shape(case), scalar_head=True) == _count(module)


@pytest.mark.parametrize("case", SMALL)
def test_every_linear_of_a_block_has_transformers_name_and_size(case):
    """LoRA targets are these names, so a rename would silently adapt nothing."""
    shape, blocks = _shape(case), _blocks(_module(case))
    for layer, module in enumerate(blocks):
        ours = sorted(
            (t.module, t.rows * t.columns)
            for t in block_tensors(shape.block(layer), hidden=shape.hidden)
            if t.kind is Kind.LINEAR
        )
        theirs = sorted(
            (name.rpartition(".")[2], child.weight.numel())
            for name, child in module.named_modules()
            if isinstance(child, torch.nn.Linear) or type(child).__name__ == "Conv1D"
        )
        assert ours == theirs


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj", "v_proj"), ("o_proj", "down_proj")])
@pytest.mark.parametrize("case", SMALL)
def test_adapters_count_as_peft_does(case, targets):
    from peft import LoraConfig, get_peft_model

    shape = _shape(case)
    ours = adapter_parameters(shape, rank=3, targets=(targets,) if isinstance(targets, str) else targets)
    lora = LoraConfig(
        r=3,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
        fan_in_fan_out=shape.family == "gpt2",
    )
    module = _on_meta(AutoModelForCausalLM, _config(case))
    if ours == 0:
        with pytest.raises(ValueError, match="not found in the base model"):
            get_peft_model(module, lora)
        return
    adapted = get_peft_model(module, lora, low_cpu_mem_usage=True)
    assert ours == sum(p.numel() for name, p in adapted.named_parameters() if "lora_" in name)


@pytest.mark.parametrize(
    ("model_type", "text_case"),
    [("gemma3", "gemma3_text"), ("llama4", "llama4_text"), ("mistral3", "mistral"), ("kimi_k25", "kimi_k2")],
)
def test_vision_language_config_counts_its_language_model_alone(model_type, text_case):
    config = {"model_type": model_type, "text_config": _config(text_case)}
    shape = read_shape(config, name="m", source="a test.")
    assert parameters(shape) == _count(_module(text_case))
    assert "vision tower is not counted" in shape.source


def test_gemma_3_4b_config_as_released_leaves_out_what_the_class_defaults_say():
    # huggingface.co/google/gemma-3-4b-it config.json, text_config
    text = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34}
    shape = read_shape(
        {"model_type": "gemma3", "text_config": text | {"sliding_window": 1024}}, name="m", source="a test."
    )
    assert parameters(shape) == parameters(find_model("google/gemma-3-4b-it")) == 3_880_263_168


# --- the shipped table -----------------------------------------------------------------------------------------------


def _full_config(row: dict) -> dict[str, object]:
    own = {key: None if value == "null" else value for key, value in row.get("config", {}).items()}
    return own if "like" not in row else _full_config(BY_ID[row["like"]]) | own


def _architecture(row: dict) -> str:
    """Rows that differ in context alone build the same module: one of them is enough."""
    context = ("max_position_embeddings", "sliding_window")
    return repr(sorted((k, repr(v)) for k, v in _full_config(row).items() if k not in context))


def _buildable(row: dict) -> bool:
    config = _full_config(row)
    foundry_only = config["model_type"] == "mpt" and not config["no_bias"]
    return config["model_type"] not in NOT_IN_TRANSFORMERS and not foundry_only


DISTINCT = list({_architecture(row): row["id"] for row in ROWS if _buildable(row)}.values())


@pytest.mark.parametrize("model", DISTINCT)
def test_shipped_row_counts_as_transformers_does(model):
    assert parameters(find_model(model)) == _count(_on_meta(AutoModelForCausalLM, _full_config(BY_ID[model])))


@pytest.mark.parametrize("row", [row for row in ROWS if "parameters" in row], ids=lambda row: row["id"])
def test_shipped_row_counts_as_published(row):
    assert parameters(find_model(row["id"])) == row["parameters"]


# Totals as printed by the hub for the checkpoint (safetensors metadata), or in the paper; exact where exact is printed.
PUBLISHED = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "google/gemma-2-9b": 9_241_705_984,
    "microsoft/phi-4": 14_659_507_200,
    "openai-community/gpt2": 124_439_808,
    "EleutherAI/pythia-6.9b": 6_857_302_016,
    "facebook/opt-350m": 331_196_416,
    "openai/gpt-oss-120b": 116_829_156_672,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_total(model):
    assert parameters(find_model(model)) == PUBLISHED[model]


def test_deepseek_v3_published_total_is_ours_and_the_router_correction_bias():
    # 671,026,419,200 counts e_score_correction_bias: 256 numbers in each of 58 layers, a buffer in transformers 5
    assert parameters(find_model("deepseek-ai/DeepSeek-V3")) + 58 * 256 == 671_026_419_200


def test_kimi_k2_published_total_is_ours_and_the_router_correction_bias():
    # 1,026,408,232,448 on the hub: as for DeepSeek-V3, 384 numbers in each of 60 layers
    assert parameters(find_model("moonshotai/Kimi-K2-Instruct")) + 60 * 384 == 1_026_408_232_448


def test_what_gemma_3_totals_have_beyond_ours_is_one_vision_tower():
    # hub totals of the multimodal checkpoints; the projection to the text model is 1,152 × its width
    published = {"4b": 4_300_079_472, "12b": 12_187_325_040, "27b": 27_432_406_640}
    shapes = {size: find_model(f"google/gemma-3-{size}-pt") for size in published}
    towers = {published[size] - parameters(shape) - 1_152 * shape.hidden for size, shape in shapes.items()}
    assert len(towers) == 1


def test_what_llama_4_totals_have_beyond_ours_is_one_vision_tower():
    # hub totals of the multimodal checkpoints; both text models are 5,120 wide
    published = {"Scout-17B-16E": 108_641_793_536, "Maverick-17B-128E": 401_583_781_376}
    towers = {total - parameters(find_model(f"meta-llama/Llama-4-{size}")) for size, total in published.items()}
    assert len(towers) == 1


@pytest.mark.parametrize(
    ("model", "published"),
    [("Qwen/Qwen-7B", 7_721_324_544), ("Qwen/Qwen-14B", 14_167_290_880), ("Qwen/Qwen-72B", 72_287_920_128)],
)
def test_first_generation_qwen_by_hand(model, published):
    """Remote code: embedding + head 2·V·h, c_attn 3·h·h + 3·h, c_proj h·h, MLP 3·h·f/2, two norms; a final norm."""
    c = BY_ID[model]["config"]
    h, v, f = c["hidden_size"], c["vocab_size"], c["intermediate_size"]
    block = 3 * h * h + 3 * h + h * h + 3 * h * (f // 2) + 2 * h
    by_hand = 2 * v * h + c["num_hidden_layers"] * block + h
    assert parameters(find_model(model)) == by_hand == published


@pytest.mark.parametrize(
    ("model", "printed_b"),
    [("mosaicml/mpt-13b", 12.854), ("mosaicml/mpt-1b", 1.316), ("mosaicml/mpt-70b", 64.862)],
)
def test_llm_foundry_mpt_counts_as_its_throughput_table_prints(model, printed_b):
    # github.com/mosaicml/llm-foundry scripts/train/benchmarking/README.md, rows of 2,048 tokens, three decimals
    assert parameters(find_model(model)) == pytest.approx(printed_b * 1e9, abs=0.5e6)


def test_root_tensors_name_the_head():
    assert [t.module for t in root_tensors(find_model("Qwen/Qwen2.5-7B")) if t.kind is Kind.HEAD] == ["lm_head"]
