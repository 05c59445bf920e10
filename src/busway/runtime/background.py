"""Work that may wait: how a process says that everything else on the machine goes before it."""

from __future__ import annotations

import contextlib
import os

NICE = 10
NICEST = 19


def step_back() -> None:
    """Let others go first, but get there: for a start, which somebody waits for. Also leave the
    group of processes that a Ctrl-C is for.

    Not the session: on Linux each session has a share of the machine of its own, however nice its
    processes are (sched(7), autogroup), and `go_last` counts among those of one session only. A
    nice session of its own doubled the p50 of sends beside a scan on a machine with nothing else to
    do; on one that other sessions fill it is the better choice.
    """
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    if hasattr(os, "nice"):
        os.nice(NICE)


def go_last() -> None:
    """Ask for the lowest priority that this system has; where it has none, nothing changes.

    Linux has a class for it. Being nice is not enough there: a thread that wakes up on a machine
    without an idle core waits for the slice of one that is nice to end, but takes the place of one
    of this class at once. A processor that others keep busy leaves it 0.3 %: enough for a batch now
    and then, and too little to start a program.
    """
    if hasattr(os, "nice"):
        os.nice(NICEST)  # no more than that is given
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):  # some containers forbid the call
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def cores() -> int:
    """How many of them this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
