"""Who is served when links come and go: `python -m bench.fairness`; virtual time, a few seconds.

`tests/gateway/short_visits.py` has what is done, `tests/gateway/test_fair_turns.py` what must come
of it.
"""

from __future__ import annotations

from collections import Counter

from busway.model.partitioning import partition_of_key
from tests.gateway import short_visits
from tests.gateway.short_visits import PARTITIONS, SESSIONS, TURNS


def next_sessions(*, partitioned: bool, accepters: int) -> str:
    served = short_visits.next_sessions(partitioned=partitioned, accepters=accepters)
    ids = short_visits.session_ids()
    filled = {partition_of_key(each, PARTITIONS) if partitioned else 0 for each in ids}
    came = served.sessions.index(ids[0]) + 1 if ids[0] in served.sessions else "never"
    times = Counter(served.sessions)
    return (
        f"sessions {len(times)} of {SESSIONS}, partitions {len(served.partitions)} of "
        f"{len(filled)}, the oldest session in turn {came}, one session at most "
        f"{max(times.values())} times"
    )


def of_partitions(served: Counter[int]) -> str:
    counts = [served[each] for each in range(PARTITIONS)]
    return f"partitions {len(served)} of {PARTITIONS}, {min(counts)} to {max(counts)} times each"


def main() -> None:
    print(f"served in {TURNS} turns")
    for partitioned in (False, True):
        kind = "partitioned" if partitioned else "conventional"
        for accepters in (1, 4):
            line = next_sessions(partitioned=partitioned, accepters=accepters)
            print(f"next session, {kind}, accepters {accepters}: {line}")
    for at_once in (1, 4):
        line = of_partitions(short_visits.short_links(at_once=at_once))
        print(f"short links, at once {at_once}: {line}")
    print(f"batch deletes of one message: {of_partitions(short_visits.batch_deletes())}")


if __name__ == "__main__":
    main()
