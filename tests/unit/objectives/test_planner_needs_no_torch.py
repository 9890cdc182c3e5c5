"""Does planning stay free of torch, now that a floor of this package is made of it?"""

from __future__ import annotations

import subprocess
import sys

import pytest

SPY = """
import sys, contextlib, io
{what}
loaded = [name for name in ("torch", "transformers", "peft", "headcount.objectives") if name in sys.modules]
sys.exit(f"loaded {{loaded}}" if loaded else 0)
"""
COMPARE = """
from headcount.__main__ import main
sys.argv = ["headcount", "compare", "--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "h100-sxm"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
assert "headcount.plan.compare" in sys.modules
"""


@pytest.mark.parametrize(
    "what", ["import headcount", "import headcount.objectives as _; del sys.modules['headcount.objectives']", COMPARE]
)
def test_a_fresh_process_loads_no_torch(what: str):
    ran = subprocess.run([sys.executable, "-c", SPY.format(what=what)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
