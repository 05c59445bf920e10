"""The example projects run as their pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_one_hundred_tests_with_pytest() -> None:
    """Of schedules, locks and times to live of minutes to days; 'make test' takes no longer for
    it than the SDK for opening links."""
    clean = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=EXAMPLES / "pytest",
        env=clean,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b100 passed", done.stdout)
