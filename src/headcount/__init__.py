"""Plan, run and measure LLM post-training.

>>> import headcount
>>> job = headcount.read_job("configs/plan/sft.toml")
>>> headcount.plan(job).verdict
<Verdict.FITS: 'fits'>
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; typing itself would take longer to load than all of this
if TYPE_CHECKING:
    from typing import Any

    from headcount import plan
    from headcount.errors import DoesNotFit, HeadcountError, InputError, UnknownFact
    from headcount.job.job import Job
    from headcount.ledger.predicted import Plan
    from headcount.plan.compare import compare
    from headcount.plan.planner import fewest, read_job

__all__ = [
    "DoesNotFit",
    "HeadcountError",
    "InputError",
    "Job",
    "Plan",
    "UnknownFact",
    "compare",
    "fewest",
    "plan",
    "read_job",
]

_HOMES = {
    "DoesNotFit": "headcount.errors",
    "HeadcountError": "headcount.errors",
    "InputError": "headcount.errors",
    "UnknownFact": "headcount.errors",
    "Job": "headcount.job.job",
    "Plan": "headcount.ledger.predicted",
    "compare": "headcount.plan.compare",
    "fewest": "headcount.plan.planner",
    "read_job": "headcount.plan.planner",
}


def __getattr__(name: str) -> Any:
    # Names load when they are used: `import headcount` costs nothing.
    if name == "plan":
        return import_module("headcount.plan")
    if name not in _HOMES:
        raise AttributeError(f"module 'headcount' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
