"""Message brokers: the owners of stores, and the partitions' state machines. Pure, no I/O."""
