"""Who reads journals gives way to who sends."""

from __future__ import annotations

import asyncio

from busway.runtime.pace import BUSY_BYTES_PER_S, BUSY_S, Pace

CHUNKS = 12
CHUNK = BUSY_BYTES_PER_S // 100


class Commits:
    def __init__(self) -> None:
        self.done = 0

    def __call__(self) -> int:
        return self.done


async def chunks(pace: Pace, count: int = CHUNKS, commits: Commits | None = None) -> float:
    """How long so many of them take, while there are commits if they are given."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(count):
        if commits is not None:
            commits.done += 1
        await pace.sent(CHUNK)
    return loop.time() - began


async def test_while_messages_pass_chunks_wait() -> None:
    commits = Commits()
    assert await chunks(Pace(commits), commits=commits) >= CHUNKS / 100 * 0.9


async def test_readers_share_one_pace() -> None:
    commits = Commits()
    pace = Pace(commits)
    both = await asyncio.gather(chunks(pace, commits=commits), chunks(pace, commits=commits))
    assert max(both) >= 2 * CHUNKS / 100 * 0.9


async def test_nobody_waits_where_nothing_passes() -> None:
    """Not by the clock, which a busy machine stretches: a turn takes one round of the loop."""
    pace, rounds = Pace(lambda: 7), 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await chunks(pace)
    counting.cancel()
    assert rounds <= CHUNKS + 1


async def test_some_time_after_the_last_commit_it_is_quiet_again() -> None:
    commits = Commits()
    pace = Pace(commits)
    await chunks(pace, 1, commits)
    await asyncio.sleep(2 * BUSY_S)
    await asyncio.wait_for(chunks(pace, 100_000), 60)
