"""When entities were last used, for those that go when nobody does (STA-4).

Memory only: after a restart each has its whole time again. What counts as use is for those who see
it to say: a queue is used by sends, receives, peeks and scheduled messages, a topic by sends and
scheduled messages, a subscription by receives and peeks; an update counts for all of them, a new
rule for its subscription.
"""

from __future__ import annotations

from busway.model.entities import Entity, Topic


class Idleness:
    def __init__(self) -> None:
        self._used_ms: dict[int, int | None] = {}
        """Of entities with AutoDeleteOnIdle only; None until the first look at them."""

    def watch(self, entity: Entity) -> None:
        """The entity is there. One that forwards is never idle (FWD-6)."""
        forwards = not isinstance(entity, Topic) and entity.forward_to is not None
        if entity.auto_delete_on_idle_ms is not None and not forwards:
            self._used_ms.setdefault(entity.incarnation)

    def changed(self, entity: Entity) -> None:
        """The entity is new, or was updated, which is use."""
        self.forget(entity.incarnation)
        self.watch(entity)
        if entity.updated_ms:
            self.touch(entity.incarnation, entity.updated_ms)

    def forget(self, incarnation: int) -> None:
        self._used_ms.pop(incarnation, None)

    def touch(self, incarnation: int, now_ms: int) -> None:
        if incarnation in self._used_ms:
            self._used_ms[incarnation] = now_ms

    def watched(self) -> list[int]:
        return list(self._used_ms)

    def used_ms(self, incarnation: int) -> int | None:
        return self._used_ms.get(incarnation)

    def idle_ms(self, incarnation: int, now_ms: int) -> int:
        """How long it has not been used; from now on, if nobody has looked before."""
        used_ms = self._used_ms.get(incarnation)
        if used_ms is None:
            self._used_ms[incarnation] = used_ms = now_ms
        return now_ms - used_ms
