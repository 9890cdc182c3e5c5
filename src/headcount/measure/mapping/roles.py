"""Which other networks and which rollout engine does a row have, and on which GPUs?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from headcount.measure.mapping.evidence import Case
from headcount.measure.mapping.words import text_of

__all__ = ["EngineWords", "Other", "engine_of", "others_of"]

_NUMBER_OF_GPUS = re.compile(r"(\d+) (?:separate )?gpus?\b")
_SHARE = re.compile(r"(?:gpu_memory_utilization|utilization|memory[_ ]share|mem_fraction\w*)\s*[:=]?\s*(0?\.\d+|1\.0)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Other:
    """A network beside the policy. `placement`: device | offload | adapter-off | cached | none | elsewhere."""

    role: str
    placement: str
    model: str | None = None  # None: same as the policy
    tuning: str = "frozen"
    gpus: int | None = None  # of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineWords:
    """The rollout engine. `placement`: shared | colocated | separate."""

    name: str
    placement: str
    tensor: int | None = None
    memory_fraction: float | None = None
    sleep_level: int | None = None
    gpus: int | None = None
    max_sequences: int | None = None
    eager: bool = False
    gathers_whole_model: bool = False


def others_of(case: Case) -> tuple[Other, ...] | None:
    """The networks that the row states; None where it states nothing and the recipe decides."""
    value = case.fields.get("other_models")
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(_listed([cast(Mapping[str, Any], each) for each in value if isinstance(each, Mapping)]))
    return tuple(_in_words(text_of(value)))


def _listed(entries: list[Mapping[str, Any]]) -> Iterator[Other]:
    for entry in entries:
        role = text_of(entry.get("role"))
        role = "critic" if "critic" in role or "value" in role else "reward" if "reward" in role else role
        if role not in ("critic", "reward", "reference"):
            continue
        placement = _placement(text_of(entry.get("placement")))
        model = text_of(entry.get("model"))
        if re.search(r"\bapi\b|function|rule|checker", model):
            placement = "elsewhere"
        named = None if not model or "same as" in model or placement == "elsewhere" else str(entry.get("model"))
        tuning = text_of(entry.get("tuning")) or "frozen"
        own = _NUMBER_OF_GPUS.search(text_of(entry.get("placement")))
        yield Other(role=role, placement=placement, model=named, tuning=tuning, gpus=int(own[1]) if own else None)


def _placement(text: str) -> str:
    if re.search(r"adapter[- ]?(off|disabled)|disabled adapter|same base", text):
        return "adapter-off"
    if re.search(r"cached|precomputed", text):
        return "cached"
    if re.search(
        r"of its own|separate (node|gpu|server)|elsewhere|other gpus|nodes|server|\d+ gpus? (actor|policy)", text
    ):
        return "elsewhere"
    if "offload" in text or "host" in text:
        return "offload"
    return "device" if re.search(r"full copy|same|device|gpu|shard|zero|with actor|tp\d|all ", text) else "present"


def _in_words(text: str) -> Iterator[Other]:
    clauses = [clause.strip() for clause in re.split(r";|, (?=reference|critic|reward)", text)]
    for clause in clauses:
        for role in ("reference", "critic", "reward"):
            if not re.search(rf"\b{role}\b", clause):
                continue
            if re.search(
                rf"\bno\b[^;]*\b{role}|{role} (?:log-?probs )?none|rule {role}|function {role}|no {role}", clause
            ):
                yield Other(role=role, placement="none")
                continue
            model = re.search(r"\b(opt-[\d.]+[mb]|\d+(?:\.\d+)?b)\b", clause)
            sized = model is not None and f"{role} opt" in clause.replace("and critic ", "")
            named = (
                f"facebook/{model[1]}"
                if model and model[1].startswith("opt") and (sized or role != "reference")
                else None
            )
            tuning = "full" if role == "critic" else "frozen"
            yield Other(
                role=role, placement=_placement(clause), model=named, tuning=tuning, gpus=_own_gpus(clause, role)
            )


def _own_gpus(clause: str, role: str) -> int | None:
    """`on 4 separate nodes` → 32; `4 GPUs actor, 2 critic` → 2 for the critic."""
    nodes = re.search(r"(\d+) (?:separate )?nodes", clause)
    if nodes:
        return 8 * int(nodes[1])
    listed = re.search(rf"(\d+) (?:gpus? )?{role}", clause) if re.search(r"\d+ gpus? (actor|policy)", clause) else None
    return int(listed[1]) if listed else None


def engine_of(case: Case) -> EngineWords | None:
    """The engine that the row states; None where it states none."""
    value = case.fields.get("engine")
    if isinstance(value, Mapping):
        return _engine_fields(cast(Mapping[str, Any], value))
    text = text_of(value)
    if text and text != "none":
        return _engine_words(text)
    if re.search(
        r"(engine|rollout)[^;,]* (on|in) (other|separate|its own)|trainer process only",
        text_of(case.fields.get("other_models")),
    ):
        return EngineWords(name="vllm", placement="separate")
    return None


def _engine_fields(fields: Mapping[str, Any]) -> EngineWords | None:
    name = text_of(fields.get("name"))
    if not name:
        return None
    stated = text_of(fields.get("placement"))
    in_place = bool(fields.get("in_place")) or "hf" in name or "hybrid" in name
    placement = "shared" if in_place else "separate" if "separate" in stated else "colocated"
    sleep = fields.get("sleep")
    share = fields.get("memory_share")
    return EngineWords(
        name=_engine_name(name),
        placement=placement,
        tensor=_whole(fields.get("tp")),
        memory_fraction=float(share) if isinstance(share, (int, float)) and 0 < share <= 1 else None,
        sleep_level=None
        if sleep is None
        else int(sleep)
        if isinstance(sleep, int) and sleep is not True
        else int(bool(sleep)),
        gpus=_whole(fields.get("gpus")),
        gathers_whole_model=fields.get("gather") is True,
    )


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1 else None


def _engine_name(text: str) -> str:
    return next(
        (name for name in ("vllm", "sglang", "trtllm") if name in text), "trtllm" if "tensorrt" in text else "hf"
    )


def _engine_words(text: str) -> EngineWords:
    shared = bool(re.search(r"hf generate|transformers|hybrid engine|shared weights|eager generate", text))
    separate = bool(re.search(r"separate|asynchronous|off-policy|\bon \d+|one step off|engines? tp", text))
    tensor = re.search(r"\btp\s*=?(\d+)", text)
    share = _SHARE.search(text)
    sequences = re.search(r"max_num_seqs\s*=?\s*(\d+)", text)
    own = _NUMBER_OF_GPUS.search(text)
    sleep = re.search(r"sleep level (\d)", text)
    return EngineWords(
        name=_engine_name(text),
        placement="shared" if shared else "separate" if separate else "colocated",
        tensor=int(tensor[1]) if tensor else None,
        memory_fraction=float(share[1]) if share else None,
        sleep_level=int(sleep[1]) if sleep else None,
        gpus=int(own[1]) if own and separate else None,
        max_sequences=int(sequences[1]) if sequences else None,
        eager="enforce_eager" in text,
    )
