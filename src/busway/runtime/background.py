"""Work that may wait: how a process says that everything else on the machine goes before it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

NICE = 10
NICEST = 19
SHARE_OF_SESSION = Path("/proc/self/autogroup")


def step_back() -> None:
    """Let others go first, but get there: for a start, which somebody waits for. In a session of
    its own: a Ctrl-C is for those that started this process."""
    if hasattr(os, "setsid"):
        os.setsid()
    if hasattr(os, "nice"):
        os.nice(NICE)


def go_last() -> None:
    """Ask for the lowest priority that this system has, after `step_back`.

    Linux has a class for it: a thread that wakes up takes the place of one of this class at once.
    But it gives each session a share of the machine, however nice its processes are (sched(7),
    autogroup), so the session has to be nice, too; without one of their own these processes would
    take from the share of those that they must not disturb. What is left on a busy machine is
    enough for a batch now and then, and too little to start a program.
    """
    if hasattr(os, "nice"):
        os.nice(NICEST)  # no more than that is given
    with contextlib.suppress(OSError):  # some containers forbid it, other systems have none of it
        if os.getsid(0) == os.getpid() and SHARE_OF_SESSION.exists():
            SHARE_OF_SESSION.write_text(str(NICEST))
    with contextlib.suppress(OSError):
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def cores() -> int:
    """How many of them this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
