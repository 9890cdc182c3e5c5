"""What can go wrong that a user can mend, and how do we say it?

HeadcountError
├── InputError      the job, a config.json, a table row or a flag is wrong: every mistake at once, exit code 2
│   └── UnknownFact a GPU, model, price or architecture that no table has: refused with what to add
└── DoesNotFit      raised only by a caller that insists on a layout (the pre-flight of `train`), exit code 4
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

__all__ = ["DoesNotFit", "HeadcountError", "InputError", "Mistake", "UnknownFact", "nearest"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """One thing to mend: where it is, what is wrong and why, and the fix to paste."""

    where: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"\n    fix: {self.fix}" if self.fix else ""
        return f"{self.where}: {self.what}{fix}"


class HeadcountError(Exception):
    """Base of all errors that a user can mend."""

    exit_code = 1


class InputError(HeadcountError):
    """Wrong input. Carries every mistake found, so that one edit mends them all."""

    exit_code = 2

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))

    @classmethod
    def one(cls, where: str, what: str, fix: str = "") -> InputError:
        """A single mistake, as an error of this class."""
        return cls([Mistake(where=where, what=what, fix=fix)])


class UnknownFact(InputError):
    """Something that no table has. Unknown is not zero: refused, never guessed."""


class DoesNotFit(HeadcountError):
    """The layout that the caller insists on needs more memory than the GPU has."""

    exit_code = 4


def nearest(name: str, known: Iterable[str], *, n: int = 3) -> str:
    """`did you mean …` for an unknown name, or the empty string."""
    near = get_close_matches(name.lower(), sorted(known), n=n, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else ""
