"""How does a TOML file, or a mapping, become a Job, with every mistake reported at once?"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headcount.errors import InputError, Mistake
from headcount.job.assemble import assemble
from headcount.job.job import Job
from headcount.job.keys import KEYS
from headcount.job.lookup import flat_mistakes, gpu_of
from headcount.job.overrides import Override, blamed, laid_over, overlaid
from headcount.job.schema import flatten, mistakes_in

__all__ = ["Spec", "read_spec", "read_table", "spec_from"]

_MOST_FILE_BYTES = 5 * 1024 * 1024
# tomllib needs memory in the square of a dotted key's parts: 200 kB of `a.a.a…` would take tens of gigabytes.
_DEEP_KEY = re.compile(r"""(?:\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*){32}""")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A checked job file in flat form. `build` fills in recipe and defaults; it may be called for many GPU counts."""

    flat: Mapping[str, Any]
    where: str = "job"
    folder: Path = field(default_factory=Path)
    overridden: tuple[Override, ...] = ()  # what the command line set

    @property
    def gpus(self) -> int | None:
        """The stated count; None: the fewest that fit."""
        stated = self.flat.get("hardware.gpus")
        return None if stated is None else int(stated)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of one node."""
        return int(self.flat.get("hardware.gpus_per_node", gpu_of(self.flat, self.where).gpus_per_node))

    def replaced(self, path: str, value: object) -> Spec:
        """The same job with one key changed; the new value is checked like any other."""
        changed = laid_over(self.flat, flatten({path: value}))
        return _checked(changed, self.where, self.folder, self.overridden)

    def build(self, *, gpus: int | None = None) -> Job:
        """The complete Job on `gpus` cards (the file's own count when left out)."""
        count = gpus or self.gpus
        if count is None:
            raise InputError.one(f"{self.where}: hardware.gpus", "the number of GPUs is not stated", "gpus = 8")
        try:
            return assemble(self, count)
        except InputError as error:
            if not self.overridden:
                raise
            raise type(error)(blamed(error.mistakes, self.where, self.overridden)) from None

    def workload_text(self) -> str:
        """The workload in one line."""
        job = self.build(gpus=self.gpus or self.gpus_per_node)
        lengths, work = job.lengths, job.work
        rows = "prompts" if job.algorithm.online else "pairs" if job.algorithm.pairs else "rows"
        group = f" × {work.group_size}" if job.algorithm.online else ""
        return (
            f"{work.rows:,} {rows}, {work.epochs:g} epoch{'' if work.epochs == 1 else 's'}; "
            f"prompt {lengths.prompt_mean:,g} tokens (at most {lengths.prompt_max:,}), "
            f"completion {lengths.completion_mean:,g} (at most {lengths.completion_max:,}); "
            f"{work.rows_per_step:,} {rows}{group} a step"
        )


def read_spec(path: str | os.PathLike[str], *, overrides: Sequence[str] = ()) -> Spec:
    """Read a job file. `overrides` are `key.path=value` strings that win over the file.

    Raises:
        InputError: all mistakes of file and overrides at once.
    """
    file = Path(path)
    flat, overridden = overlaid(flatten(_toml(file)), overrides, toml=_parsed)
    return _checked(_beside(flat, file.parent), str(path), file.parent, overridden)


def _beside(flat: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Models that are files or folders beside the job file are named from where headcount was called."""

    def found(name: object) -> object:
        there = folder / name if isinstance(name, str) and 0 < len(name) < 1024 and "\0" not in name else None
        return str(there) if there is not None and there.exists() and not Path(str(name)).exists() else name

    result = {path: found(value) if path.endswith(".model") else value for path, value in flat.items()}
    if isinstance(rewards := flat.get("reward"), list):
        result["reward"] = [
            {**row, "model": found(row["model"])} if isinstance(row, dict) and "model" in row else row
            for row in rewards
        ]
    return result


def spec_from(mapping: Mapping[str, Any], *, where: str = "job", overrides: Sequence[str] = ()) -> Spec:
    """The same from a mapping as tomllib gives it."""
    flat, overridden = overlaid(flatten(mapping), overrides, toml=_parsed)
    return _checked(flat, where, Path(), overridden)


_NEEDED = (
    ("algorithm", '"grpo"'),
    ("policy.model", '"Qwen/Qwen2.5-7B-Instruct"'),
    ("hardware.gpu", '"h100-sxm"'),
)


def _checked(flat: dict[str, Any], where: str, folder: Path, overridden: tuple[Override, ...] = ()) -> Spec:
    """Wrong keys, types and values; then, of what is left, unknown names and options without effect."""
    wrong = mistakes_in(flat, where=where)
    sound = {path: value for path, value in flat.items() if path not in wrong}
    misspelt = {path: flat[path] for path in wrong if path in KEYS and KEYS[path].kind == "choice"}
    mistakes = [mistake for each in wrong.values() for mistake in each]
    mistakes += [_missing(key, sample, where) for key, sample in _NEEDED if key not in flat]
    unknown = list(flat_mistakes(sound, where, misspelt=misspelt))
    spec = Spec(flat=sound, where=where, folder=folder, overridden=overridden)
    if mistakes and not unknown and all(key in sound for key, _ in _NEEDED):
        mistakes += _relations(spec)
    if mistakes or unknown:
        raise InputError(blamed([*mistakes, *unknown], where, overridden))
    return spec


def _relations(spec: Spec) -> Sequence[Mistake]:
    """What else a build would find, so that one edit mends all."""
    try:
        spec.build(gpus=spec.gpus or spec.gpus_per_node)
    except InputError as error:
        return error.mistakes
    return ()


def _missing(key: str, sample: str, where: str) -> Mistake:
    section, _, leaf = key.rpartition(".")
    return Mistake(
        where=f"{where}: {key}",
        what="is missing",
        fix=f"[{section}]\n{leaf} = {sample}" if section else f"{leaf} = {sample}",
    )


def read_table(file: Path) -> dict[str, Any]:
    """A TOML file of plain keys.

    Raises:
        InputError: not there, too large, no TOML.
    """
    return _toml(file)


def _toml(file: Path) -> dict[str, Any]:
    def refuse(what: str, fix: str = "") -> InputError:
        return InputError.one(str(file), what, fix)

    try:
        if file.is_dir():
            raise refuse("is a folder, not a job file")
        if not file.exists():
            raise refuse("no such file", "README.md and configs/plan in the repository show complete job files")
        if not file.is_file():
            raise refuse("is not a regular file")
        size = file.stat().st_size
        if size > _MOST_FILE_BYTES:
            raise refuse(f"{size:,} bytes: a job file has at most {_MOST_FILE_BYTES:,}")
        return _parsed(file.read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise refuse(f"not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise refuse(f"not TOML: {error}") from None
    except RecursionError:
        raise refuse("nested too deeply") from None
    except ValueError as error:
        raise refuse(f"not a job file: {error}") from None
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror or error}") from None


def _parsed(text: str) -> dict[str, Any]:
    if _DEEP_KEY.search(text):
        raise RecursionError("a dotted key of more than 32 parts")
    return tomllib.loads(text)
