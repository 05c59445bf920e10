"""Entities with all their properties and defaults (semantics section 19, DFT)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue as the catalog keeps it: one incarnation, one version (D-16)."""

    path: str
    incarnation: int = 0
    version: int = 1
    placement: tuple[str, ...] = ()
    """The store ids of its partitions, in order (D-14). Conventional: one (P-2)."""
    enable_partitioning: bool = False
    lock_duration_ms: int = 60_000
    max_delivery_count: int = 10
    default_ttl_ms: int | None = None
    """None: messages live for ever unless they say otherwise."""
    dead_lettering_on_expiration: bool = False
    max_size_mb: int = 1024
    """Of each partition (D-17)."""

    @property
    def max_size_bytes(self) -> int:
        return self.max_size_mb * 1024 * 1024
