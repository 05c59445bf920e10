"""What a lake knows of an entity's dead letters: those that have left the queue since, too."""

from __future__ import annotations

from busway.remote.triage import NO_REASON, TriageError
from busway.remote.wire.dead_letters import subscription_of, top_level


def history(lake: str, entity: str) -> dict[str, dict[str, int]]:
    """By reason: what a lake has seen, of dead letters that are gone, too."""
    from busway.pipeline.lake.lake import Lake
    from busway.pipeline.lake.tables import DEAD_LETTERS

    table = Lake(lake).table(DEAD_LETTERS.layout())
    if not table.exists():
        raise TriageError(
            f"The lake {lake} has no table 'dead_letters' yet. Make it with: busway pipeline curate"
            f" --lake {lake}."
        )
    wanted = (top_level(entity).lower(), (subscription_of(entity) or "").lower())
    found: dict[str, dict[str, int]] = {}
    columns = ["entity", "subscription", "reason", "left_at"]
    for row in table.delta().to_pyarrow_table(columns=columns).to_pylist():
        if (row["entity"].lower(), (row["subscription"] or "").lower()) == wanted:
            counts = found.setdefault(
                row["reason"] or NO_REASON, {"dead_lettered": 0, "still_there": 0}
            )
            counts["dead_lettered"] += 1
            counts["still_there"] += row["left_at"] is None
    return dict(sorted(found.items(), key=lambda each: -each[1]["dead_lettered"]))
