"""A real browser for tests of pages: Chromium without a window.

`make test` installs it from Debian's packages where it may. Where it could not, tests that need it
are skipped and say why; in CI that is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

WIDTH, HEIGHT = 1200, 900
NAMES = ("chromium", "google-chrome", "chrome")


def _found() -> tuple[str, str] | None:
    driver = shutil.which("chromedriver")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    return (program, driver) if program and driver else None


@contextmanager
def browser(*, dark: bool = False) -> Iterator[Chrome]:
    """Skips the test where there is none."""
    found = _found()
    if found is None:
        why = "There is no Chromium with its chromedriver: apt-get install chromium chromium-driver"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    program, driver = found
    options = ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    arguments.append(f"--window-size={WIDTH},{HEIGHT}")
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # Chromium refuses to run as root with it
    if dark:
        arguments.append("--force-dark-mode")
    for argument in arguments:
        options.add_argument(argument)
    window = Chrome(options=options, service=Service(executable_path=driver))
    try:
        yield window
    finally:
        window.quit()
