"""Small models of every family, from transformers' own configs: built, adapted by peft, then made fake."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import transformers
import transformers.masking_utils
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM, PretrainedConfig

from headcount.facts.families import read_shape
from headcount.facts.model_shape import ModelShape

transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore")
# Fake tensors cannot say whether a row is packed, so transformers would keep a dense mask that real rows do not have.
transformers.masking_utils.find_packed_sequence_indices = lambda *_args, **_kwargs: None

# The families whose kept bytes and peaks docs/equations gives as laws; the others are held to 3 %.
LAWS = ("llama", "qwen2", "mistral", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text", "gpt2", "opt", "qwen3_moe")
OTHERS = ("gpt_neox", "olmo2", "granite", "glm4", "smollm3", "mixtral", "phi", "deepseek_v3", "gpt_oss")
EAGER = ("gemma2", "gpt_oss")  # soft-capped scores and sinks have no sdpa form

_GPT2 = {"n_embd": 96, "n_inner": 224, "n_head": 6, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
_OPT = {
    "hidden_size": 96, "ffn_dim": 224, "num_attention_heads": 6, "dropout": 0.0, "attention_dropout": 0.0,
    "word_embed_proj_dim": 96,
}  # fmt: skip
_COMMON = {
    "hidden_size": 96, "intermediate_size": 224, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
    "tie_word_embeddings": False,
}  # fmt: skip
_EXPERTS = {"num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2}
_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
_MLA = {
    "q_lora_rank": 48, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 1, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 0, "num_key_value_heads": 6,
}  # fmt: skip


def config_of(family: str, *, layers: int = 2, vocab: int = 512, **changes) -> PretrainedConfig:
    """A scaled-down config with the family's own ratios: grouped queries, wide MLP, no dropout."""
    keys = dict(_GPT2 if family == "gpt2" else _OPT if family == "opt" else _COMMON)
    keys |= {"vocab_size": vocab, "pad_token_id": 0}
    keys |= {"n_layer" if family == "gpt2" else "num_hidden_layers": layers}
    keys |= {"n_positions" if family == "gpt2" else "max_position_embeddings": 2048}
    if family in ("gpt_neox", "phi", "phi3", "deepseek_v3"):
        keys.pop("head_dim")
    if family in ("gpt_neox", "phi"):
        keys |= {"num_key_value_heads": 6} | _DROPOUT
    if family == "gpt_neox":
        keys.pop("num_key_value_heads")
    if family == "phi3":
        keys |= {"resid_pdrop": 0.0}
    if family in ("gemma2", "gpt_oss"):
        kinds = ["sliding_attention", "full_attention"] * layers
        keys |= {"sliding_window": 2048, "layer_types": kinds[:layers]}
    if family == "gemma3_text":
        keys |= {"sliding_window": 2048, "layer_types": ["full_attention"] * layers}
    if family in ("mixtral", "gpt_oss", "qwen3_moe"):
        keys |= _EXPERTS
        keys |= (
            {"moe_intermediate_size": 40, "norm_topk_prob": True}
            if family == "qwen3_moe"
            else {"intermediate_size": 40}
        )
    if family == "deepseek_v3":
        keys |= _MLA
    return CONFIG_MAPPING[family](**(keys | changes))


def shape_of(family: str, **changes) -> ModelShape:
    """headcount's shape of the same config, read as it would read a config.json."""
    keys = json.loads(config_of(family, **changes).to_json_string(use_diff=False))
    keys["model_type"] = family
    if "num_experts" not in keys and "num_local_experts" in keys:
        keys["num_experts"] = keys["num_local_experts"]
    return read_shape(keys, name=family, source="tests")


class ScalarHead(nn.Module):
    """A trunk and one number per token: reward model and critic."""

    def __init__(self, trunk: nn.Module, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.trunk = trunk
        self.score = nn.Linear(hidden, 1, bias=False, dtype=dtype)

    def forward(self, token_BT: Tensor) -> Tensor:
        return self.score(self.trunk(token_BT, use_cache=False).last_hidden_state).squeeze(-1)


@dataclass(frozen=True)
class Built:
    """A model on fake tensors, its trained parameters, and the mode it must run under."""

    model: nn.Module
    mode: FakeTensorMode
    shape: ModelShape
    states: tuple[Tensor, ...]  # parameters and buffers

    def trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]


ALL_LINEAR = "all-linear"


def build(
    family: str,
    *,
    mode: FakeTensorMode,
    scalar: bool = False,
    checkpointing: bool = False,
    lora_rank: int = 0,
    dtype: torch.dtype = torch.bfloat16,
    frozen: bool = False,
    **changes,
) -> Built:
    """Build on the CPU (it is tiny), adapt, then swap every parameter and buffer for a fake one."""
    config = config_of(family, **changes)
    kernel = "eager" if family in EAGER else "sdpa"
    kind = AutoModel if scalar else AutoModelForCausalLM
    model = kind.from_config(config, dtype=dtype, attn_implementation=kernel)
    inner = model
    if lora_rank:
        model = _adapted(model, lora_rank, dtype)
    if checkpointing:
        inner.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if scalar:
        model = ScalarHead(model, config.hidden_size, dtype)
    model.train()
    if frozen:
        model.requires_grad_(False)
        model.eval()
    _make_fake(model, mode)
    states = (*model.parameters(), *model.buffers())
    return Built(model=model, mode=mode, shape=shape_of(family, **changes), states=states)


def _adapted(model: nn.Module, rank: int, dtype: torch.dtype) -> nn.Module:
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=ALL_LINEAR, lora_dropout=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Conv1D (GPT-2) and stacked experts: peft says that it adapts to them
        adapted = get_peft_model(model, config, autocast_adapter_dtype=False)
    adapted.enable_input_require_grads()
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(dtype)
    return adapted


def _make_fake(model: nn.Module, mode: FakeTensorMode) -> None:
    seen: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is None:
                continue
            if id(parameter) not in seen:
                with mode:
                    empty = torch.empty(parameter.shape, dtype=parameter.dtype)
                seen[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
            module._parameters[name] = seen[id(parameter)]
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = mode.from_tensor(buffer)


def blocks_of(model: nn.Module) -> Iterator[nn.Module]:
    """The transformer blocks, wherever the family keeps them."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) > 1:
            yield from module
            return
