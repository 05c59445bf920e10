"""In a simulation no mistake is survived: what a gateway would log and go on from ends the run.

Faults of stores make brokers warn all the time; those lines are only of use to whoever replays a
seed, so they are kept quiet unless asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

ROOT = "busway"


class MistakesAreFatal(logging.Handler):
    """Raises what a line was logged about."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            raise error


@contextmanager
def mistakes_are_fatal(*, quiet: bool) -> Iterator[None]:
    logger = logging.getLogger(ROOT)
    handler = MistakesAreFatal()
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = not quiet
    if quiet:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate, logger.level = before
