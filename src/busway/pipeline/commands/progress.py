"""How far a job has come, on the error stream: a bar for a person, lines for a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from busway.pipeline.commands import console

WIDTH = 30
DRAWN_EVERY_S = 0.1
SAID_EVERY_S = 5.0


@contextmanager
def progress(
    what: str, total: int | None, said_every_s: float = SAID_EVERY_S
) -> Iterator[Callable[[int], None]]:
    """A function to be told how many of `total` are done; None if nobody knows how many there are.
    What it was told last is always shown."""
    is_person = sys.stderr.isatty()
    every_s = DRAWN_EVERY_S if is_person else said_every_s
    shown, told = -1, -1
    next_at = 0.0

    def show(done: int) -> None:
        nonlocal shown, next_at
        shown, next_at = done, time.monotonic() + every_s
        if total is None:
            text = f"{done:,} {what}"
            print(f"\r{text}" if is_person else text, end="" if is_person else "\n",
                  file=sys.stderr, flush=True)  # fmt: skip
        elif is_person:
            filled = WIDTH * done // max(total, 1)
            bar = "#" * filled + "-" * (WIDTH - filled)
            print(f"\r[{bar}] {done:,} of {total:,} {what}", end="", file=sys.stderr, flush=True)
        else:
            console.say(f"{done:,} of {total:,} {what}")

    def tell(done: int) -> None:
        nonlocal told
        told = done
        if done != shown and time.monotonic() >= next_at:
            show(done)

    try:
        yield tell
    finally:
        if told not in (-1, shown):
            show(told)
        if is_person and shown >= 0:
            print(file=sys.stderr)
