"""Start of the `headcount` command: Ctrl-C is quiet even while modules load."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["main"]


def main() -> None:
    """Load the command line and run it."""
    sys.unraisablehook = _heeded
    try:
        from headcount.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


def _heeded(lost: UnraisableHookArgs) -> None:
    # Ctrl-C inside a callback of Python's import lock: by default printed, then forgotten, and the run goes on.
    if lost.exc_type is KeyboardInterrupt:
        os._exit(130)
    sys.__unraisablehook__(lost)


if __name__ == "__main__":
    main()
