"""How many sequences of how many tokens does one micro-batch of a row hold?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.measure.mapping.evidence import Case, mapping_in
from headcount.measure.mapping.words import text_of

__all__ = ["Batch", "batch_of"]

# Mean tokens of (prompt, answer) of data sets that rows name without lengths; GSM8K: about 100 and 250–300.
_DATA_SETS = {"gsm8k": (100, 275), "self-cognition": (50, 50)}
# Trainers that remove padding unless told not to, and those whose max_length truncates but never fills.
_PADDING_FREE = ("verl", "nemo-rl", "nemo-rl-megatron", "skyrl", "areal", "slime")
_TRUNCATING = ("ms-swift", "ms-swift-megatron")
_STATED = re.compile(r"prompts? ~?(\d+)[^.;]*?answers? ~?(\d+)(?:\s*[-–]\s*(\d+))?")
_LONG_CAP = 2048  # tokens of a completion cap that few completions reach
_DEFAULT_TOKENS = 1024  # what most trainers' caps default to where a row has no length at all


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Lengths are caps unless `typical` (mean prompt, mean completion) is known.

    `sequences` counts rows of the micro-batch as the job file does (pairs for DPO); None leaves it to the recipe.
    `row_layout` is equal, padded or packed. `assumed` names what the row does not state.
    """

    sequences: int | None
    prompt: int
    completion: int
    typical: tuple[int, int] | None = None
    micro_batch_tokens: int | None = None
    row_layout: str = "equal"
    group_size: int | None = None
    rows_per_step: int | None = None
    mini_batch_rows: int | None = None
    accumulates: bool | None = None
    cap_share: int = 1  # lengths are bounds: real rows may be this many times shorter
    assumed: tuple[str, ...] = ()

    @property
    def padding_free(self) -> bool:
        """True when a micro-batch holds the real lengths and no padding."""
        return self.row_layout == "packed"


def batch_of(case: Case, *, recipe: str = "", context_ranks_share: int = 1, split: int = 1) -> Batch:
    """Read `batch`. `context_ranks_share`: sequence-parallel ranks that hold one micro-batch together.

    `split`: pipeline micro-batches into which the framework cuts the number that a row states.
    """
    fields = mapping_in(case.fields, "batch")
    assumed: list[str] = []
    prompt, completion = _lengths(case, fields, assumed)
    packing = text_of(fields.get("packing"))
    stated_sequences = sequences = _count(fields, "micro_batch_per_gpu")
    if sequences is not None and context_ranks_share > 1 and fields.get("micro_batch_unit"):
        sequences *= context_ranks_share
    if sequences is not None:
        sequences = max(1, sequences // split)
    layout = _row_layout(packing, sequences, recipe)
    typical = _typical(case, fields, prompt, completion)
    tokens = _count(fields, "max_tokens_per_gpu", "pack_tokens_per_microbatch")
    if sequences is None and tokens is None:
        assumed.append("update.micro_batch_sequences")
    return Batch(
        sequences=sequences,
        prompt=prompt,
        completion=completion,
        typical=typical,
        micro_batch_tokens=tokens,
        row_layout="packed" if tokens is not None else layout,
        group_size=_count(fields, "group_size"),
        rows_per_step=_count(fields, "prompts_per_step", "rollout_batch", "global_batch"),
        mini_batch_rows=_count(fields, "mini_batch_prompts"),
        accumulates=_accumulates(case, fields, stated_sequences),
        cap_share=1 if typical else _cap_share(case, layout, packing, recipe, completion),
        assumed=tuple(assumed),
    )


def _count(fields: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1:
            return int(value)
    return None


def _lengths(case: Case, fields: Mapping[str, Any], assumed: list[str]) -> tuple[int, int]:
    """(prompt, completion) caps. Rows of one text have no prompt."""
    whole = _count(fields, "seq_len")
    prompt, completion = _count(fields, "prompt_len"), _count(fields, "completion_len")
    online = case.fields.get("algorithm") in ("grpo", "ppo")
    if prompt is None and completion is None and whole is not None:
        half = whole // 2 if online and fields.get("packing") is not True else 0
        return half, whole - half
    if prompt is None and completion is None:
        assumed.append("data.completion_tokens")
        mean = _count(fields, "avg_seq_tokens", "avg_completion_tokens") or _DEFAULT_TOKENS
        return (mean // 2 if online else 0), mean
    if prompt is None:
        assumed.append("data.prompt_tokens")
    if completion is None:
        assumed.append("data.completion_tokens")
    known_completion = completion or max(1, (whole or 0) - (prompt or 0)) if whole else completion
    return prompt or 512, known_completion or 512


def _typical(case: Case, fields: Mapping[str, Any], prompt: int, completion: int) -> tuple[int, int] | None:
    """Mean lengths where stated: fields first, then prose, then the data set's own statistic."""
    mean_prompt, mean_completion = _count(fields, "avg_prompt_tokens"), _count(fields, "avg_completion_tokens")
    whole = _count(fields, "avg_seq_tokens")
    if mean_completion is None and whole is not None:
        mean_prompt, mean_completion = (
            (0, whole) if not prompt else (min(prompt, whole // 2), whole - min(prompt, whole // 2))
        )
    if mean_completion is None:
        mean_prompt, mean_completion = _in_prose(text_of(case.fields.get("notes")))
    if mean_completion is None:
        return None
    return min(mean_prompt if mean_prompt is not None else prompt, max(prompt, 1)), min(mean_completion, completion)


def _in_prose(notes: str) -> tuple[int | None, int | None]:
    stated = _STATED.search(notes)
    if stated:
        low, high = int(stated[2]), int(stated[3] or stated[2])
        return int(stated[1]), (low + high) // 2
    return next((lengths for name, lengths in _DATA_SETS.items() if name in notes), (None, None))


def _row_layout(packing: str, sequences: int | None, recipe: str) -> str:
    if not packing and recipe in _PADDING_FREE:
        return "packed"
    if re.search(r"remove_padding|padding[-_ ]free|dynamic|varlen", packing):
        return "packed"
    if packing == "true":
        return "equal"
    return "padded" if (sequences or 1) > 1 else "equal"


def _cap_share(case: Case, layout: str, packing: str, recipe: str, completion: int) -> int:
    """How far real rows may stay below the stated bounds.

    Padding-free batches carry the sum of real lengths, and truncating trainers' max_length is no length: caps
    overstate tokens about fourfold (verl's GSM8K runs, evidence/README.md). A padded online batch is as long as its
    longest completion, which reaches a short cap sooner or later and a long one rarely.
    """
    if layout == "packed" or (recipe in _TRUNCATING and packing != "true"):
        return 4
    online = case.fields.get("algorithm") in ("grpo", "ppo") and packing != "true"
    return 2 if online and completion >= _LONG_CAP else 1


def _accumulates(case: Case, fields: Mapping[str, Any], sequences: int | None) -> bool | None:
    """Does an optimizer step take several micro-batches? From the row, or from its global batch; offline else no."""
    steps = _count(fields, "grad_accum")
    if steps is not None:
        return steps > 1
    if case.fields.get("algorithm") in ("grpo", "ppo"):
        return None
    whole, ranks = _count(fields, "global_batch"), _count(mapping_in(case.fields, "parallelism"), "dp")
    if whole is None or ranks is None or sequences is None:
        return False
    return whole > sequences * ranks
