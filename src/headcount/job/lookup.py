"""Which names of a job file does no table have, and which of its keys cannot stand beside each other?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from headcount.errors import InputError, Mistake
from headcount.facts.gpu import Gpu, find_gpu
from headcount.facts.optimizer import find_optimizer
from headcount.facts.precision import find_frozen_precision, find_precision
from headcount.facts.recipe import find_recipe
from headcount.job.check import contradictions
from headcount.job.networks import model_of
from headcount.job.no_effect import no_effect
from headcount.vocabulary import Algorithm

__all__ = ["flat_mistakes", "gpu_of"]

_gpu = cache(find_gpu)


def gpu_of(flat: Mapping[str, Any], where: str) -> Gpu:
    """The card of a flat job."""
    try:
        return _gpu(flat["hardware.gpu"])
    except InputError as error:
        raise type(error)(list(_located(error, f"{where}: hardware.gpu"))) from None


def flat_mistakes(flat: Mapping[str, Any], where: str, *, misspelt: Mapping[str, Any]) -> Iterator[Mistake]:
    """What is wrong with well-typed keys before a job is built: unknown names, no effect, contradictions.

    `misspelt` are choices that were none: stated all the same, so what hangs on them is not called useless.
    """
    yield from _lookups(flat, where)
    if "algorithm" in flat:
        yield from no_effect({**flat, **misspelt}, Algorithm(flat["algorithm"]), where)
    yield from contradictions(flat, where)


def _located(error: InputError, where: str) -> Iterator[Mistake]:
    """The same mistakes, named by the key that caused them."""
    for mistake in error.mistakes:
        inner = f"{mistake.where}: " if "." in mistake.where or "/" in mistake.where else ""
        yield Mistake(where=where, what=f"{inner}{mistake.what}", fix=mistake.fix)


_FINDERS: Mapping[str, Callable[[str], object]] = {
    "recipe": find_recipe,
    "hardware.gpu": _gpu,
    **{f"{role}.model": model_of for role in ("policy", "reference", "critic")},
    **{f"{role}.precision": find_precision for role in ("policy", "critic")},
    **{f"{role}.base_precision": find_frozen_precision for role in ("policy", "reference", "critic")},
    **{f"{role}.optimizer": find_optimizer for role in ("policy", "critic")},
}


def _lookups(flat: Mapping[str, Any], where: str) -> Iterator[Mistake]:
    """Names that no table has."""
    named = [(key, find, flat[key]) for key, find in _FINDERS.items() if key in flat]
    for index, row in enumerate(flat.get("reward", ())):
        for leaf, find in (("model", model_of), ("base_precision", find_frozen_precision)):
            if leaf in row:
                named.append((f"reward[{index}].{leaf}", find, row[leaf]))
    for key, find, name in named:
        try:
            find(name)
        except InputError as error:
            yield from _located(error, f"{where}: {key}")
