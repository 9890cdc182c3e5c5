"""From a Job to a Plan: rows, moments, verdict, time, the comparison and its faces.

`headcount.plan` is this package and the verb at once: `headcount.plan(job)` plans a job.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headcount.job.job import Job
    from headcount.ledger.predicted import Plan


class _Verb(ModuleType):
    """A package that can be called: the import system would otherwise hide the function behind the package."""

    def __call__(self, job: Job) -> Plan:
        from headcount.plan.planner import plan

        return plan(job)


sys.modules[__name__].__class__ = _Verb
