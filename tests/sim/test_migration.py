"""D-27, D-35: a queue is moved to its twin and back, whatever goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from busway.broker.broker import Broker
from busway.broker.seams import Entities, Host, StorePort, TransferSource
from busway.model.errors import BusError
from busway.model.message import Message
from busway.sim.history import Violation
from busway.sim.migration_simulation import MigrationSimulation
from busway.store.base import SubQueueKey

SEEDS = 60
GROUPS = 6
BUG_SEEDS = 30


@pytest.mark.parametrize("group", range(GROUPS))
def test_d_27_nothing_is_lost_doubled_changed_or_out_of_order(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        try:
            MigrationSimulation(seed).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_d_35_a_seed_replays_exactly() -> None:
    assert MigrationSimulation(7).run() == MigrationSimulation(7).run()


class TakesTwice(Broker):
    """Does not look at what it has taken already."""

    def transfer_mark(self, slot: int, source: TransferSource) -> int:
        return 0


class AnswersBeforeCommit(Broker):
    """Says *done* when it has staged what was moved to it (against D-5)."""

    def __init__(self, port: StorePort, host: Host, entities: Entities) -> None:
        super().__init__(port, host, entities)
        self._really = self.move_in
        self.move_in = self._at_once

    def _at_once(
        self,
        key: SubQueueKey,
        source: TransferSource,
        messages: Sequence[Message],
        done: Callable[[BusError | None], None],
    ) -> None:
        self._really(key, source, messages, lambda error: None)
        done(None)


class LetsTimeGoOn(Broker):
    """Expires and activates messages while they are moved."""

    def stands_still(self, incarnation: int) -> bool:
        return False


@pytest.mark.parametrize("bug", [TakesTwice, AnswersBeforeCommit, LetsTimeGoOn])
def test_the_checker_finds_a_bug_that_is_there(bug: type[Broker]) -> None:
    for seed in range(BUG_SEEDS):
        try:
            MigrationSimulation(seed, make_broker=bug).run()
        except Violation:
            return
    pytest.fail(f"{BUG_SEEDS} seeds and nothing was noticed")
