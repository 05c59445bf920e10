"""Where messages may go from where they were sent to: what checkers know of forwarding (FWD).

Entities are named by paths in forwards, and a path may be another incarnation tomorrow.
"""

from __future__ import annotations

from busway.sim.history import Event, Holder, QueueCreated, QueueDeleted, QueueDisabled


class Routes:
    def __init__(self) -> None:
        self.queues: dict[int, Holder] = {}
        self.deleted: set[int] = set()
        self.troubled: set[str] = set()
        """Paths that were disabled or deleted at some time: what was on its way there may have
        stayed where it was, as a dead letter (FWD-4)."""
        self._by_path: dict[str, list[int]] = {}
        self._reachable: dict[tuple[int, str | None], frozenset[int]] = {}

    def see(self, event: Event) -> None:
        match event:
            case QueueCreated(queue):
                self.queues[queue.incarnation] = queue
                self._by_path.setdefault(queue.path, []).append(queue.incarnation)
                self._reachable.clear()
            case QueueDeleted(incarnation):
                self.deleted.add(incarnation)
                self.troubled.add(self.queues[incarnation].path)
            case QueueDisabled(path):
                self.troubled.add(path)

    def from_(self, incarnation: int, destination: str | None = None) -> frozenset[int]:
        """This incarnation and all that what is sent to it may come to."""
        found = self._reachable.get((incarnation, destination))
        if found is None:
            reached: dict[int, None] = {}
            self._walk(incarnation, reached)
            for each in self._by_path.get(destination or "", []):
                self._walk(each, reached)
            found = self._reachable[incarnation, destination] = frozenset(reached)
        return found

    def _walk(self, incarnation: int, reached: dict[int, None]) -> None:
        if incarnation in reached:
            return
        reached[incarnation] = None
        for path in self.forwards_of(incarnation):
            for each in self._by_path.get(path, []):
                self._walk(each, reached)

    def forwards_of(self, incarnation: int) -> list[str]:
        queue = self.queues[incarnation]
        return [path for path in (queue.forward_to, queue.forward_dead_letters_to) if path]
