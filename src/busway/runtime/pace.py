"""How fast readers of journals are served: as fast as they like, unless messages pass meanwhile.

Rows are read by other processes, but their octets go through the loop that messages go through, and
both want a processor. So while there are commits, all readers together get 16 MB a second: more
than the journal of five thousand messages a second has, and little enough for sends not to notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

BUSY_BYTES_PER_S = 16 * 1024 * 1024
"""For all readers together. Of twice as much, the p99 of sends can tell on two cores."""
BUSY_S = 0.1
"""So long after a commit, messages are taken to pass."""


class Pace:
    """Of all readers of a node."""

    def __init__(self, commits: Callable[[], int]) -> None:
        self._commits = commits
        self._seen = commits()
        self._busy_until = 0.0
        self._next_at = 0.0

    async def sent(self, size: int) -> None:
        """After so many octets: let others have their turn; longer, while messages pass."""
        now = asyncio.get_running_loop().time()
        commits = self._commits()
        if commits != self._seen:
            self._seen, self._busy_until = commits, now + BUSY_S
        if now >= self._busy_until:
            await asyncio.sleep(0)  # a socket that takes all never makes its writer wait
            return
        self._next_at = max(now, self._next_at) + size / BUSY_BYTES_PER_S
        await asyncio.sleep(self._next_at - now)
