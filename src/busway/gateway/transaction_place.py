"""Where a transaction is: one queue or topic, and one of its partitions (TXN-3, PRT-6, D-28).

The entity is that of the first operation; in the session of the coordinator it is the one that the
session goes through (`via_entity.py`), whatever is done first. The partition is that of the first
operation that has one: a key, or a message that is settled. What is sent to other entities by way
of this one needs no key of its own, so it may come before the partition is known.

Everything that an operation cannot be part of is refused here, and each refusal says what to do.
"""

from __future__ import annotations

from busway.gateway.router import Destination
from busway.model.errors import (
    TRANSACTION_KEY_MISSING,
    TRANSACTION_SPANS_ENTITIES,
    TRANSACTION_SPANS_PARTITIONS,
    BusError,
)
from busway.model.partitioning import partition_of_key


class TransactionPlace:
    __slots__ = ("_because", "_key", "home", "partition")

    def __init__(self) -> None:
        self.home: Destination | None = None
        self.partition: int | None = None
        """None while any will do."""
        self._because = ""
        """What has decided the partition, in words."""
        self._key: str | None = None
        """The one key of all that is sent to a partitioned entity (P-34)."""

    def enter(self, home: Destination) -> None:
        """The first operation decides; those after it must be there, too."""
        if self.home is None:
            self.home = home
            if not home.enable_partitioning:
                self.partition = 0
        elif self.home.incarnation != home.incarnation:
            raise self._elsewhere(home)

    def is_elsewhere(self, home: Destination) -> bool:
        return self.home is not None and self.home.incarnation != home.incarnation

    def pin(self, partition: int, because: str) -> None:
        """An operation that can only be in this partition."""
        assert self.home is not None
        if self.partition is None:
            self.partition, self._because = partition, because
        elif self.partition != partition:
            raise BusError(
                TRANSACTION_SPANS_PARTITIONS,
                detail=f"This one is in partition {self.partition} of '{self.home.path}', by "
                f"{self._because}, and would be in partition {partition}, by {because}. Give all "
                "messages that it sends there the SessionId or PartitionKey of those that it "
                "settles.",
            )

    def pin_by_key(self, key: str | None) -> None:
        """P-33, P-34, P-38: all that is sent to a partitioned entity has one and the same key."""
        assert self.home is not None
        if not self.home.enable_partitioning:
            return
        if key is None:
            raise BusError(TRANSACTION_KEY_MISSING, entity=self.home.path)
        if self._key not in (None, key):
            raise BusError(
                TRANSACTION_SPANS_PARTITIONS,
                detail=f"A message has the key '{key}', and one before it '{self._key}': all "
                f"messages that a transaction sends to the partitioned entity '{self.home.path}' "
                "must have the same SessionId or PartitionKey.",
            )
        self._key = key
        self.pin(partition_of_key(key, len(self.home.placement)), f"the key '{key}'")

    def pin_by_via_key(self, via_key: str | None) -> None:
        """TXN-5: what goes to another entity may say by which partition of this one."""
        if via_key is None:
            return
        assert self.home is not None
        if not self.home.enable_partitioning:
            return
        partition = partition_of_key(via_key, len(self.home.placement))
        if self.partition not in (None, partition):
            raise BusError(
                TRANSACTION_SPANS_PARTITIONS,
                detail=f"The ViaPartitionKey (TransactionPartitionKey) '{via_key}' of a message is "
                f"one of partition {partition} of '{self.home.path}', by way of which it is sent, "
                f"and the transaction is in partition {self.partition}, by {self._because}. "
                "ViaPartitionKey must be equal to the SessionId or PartitionKey of the messages "
                "that the transaction settles or sends there; or do not set it.",
            )
        self.pin(partition, f"the ViaPartitionKey '{via_key}'")

    def _elsewhere(self, entity: Destination) -> BusError:
        assert self.home is not None
        return elsewhere(self.home, entity)


def elsewhere(home: Destination, entity: Destination) -> BusError:
    """An operation at `entity` cannot be part of a transaction at `home`."""
    return BusError(
        TRANSACTION_SPANS_ENTITIES,
        detail=f"This one is at '{home.path}', and messages of '{entity.path}' cannot be settled "
        f"or scheduled in it. To send to '{entity.path}' as well, send via '{home.path}', or open "
        "the client with EnableCrossEntityTransactions; then all messages that are settled must "
        "be of the entity whose receiver or sender was opened first.",
    )
