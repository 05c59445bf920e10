"""What filters can ask of a simulated message, and which filters would let it in.

The table has each filter twice: as a rule of the product, and as a plain sentence of Python about
the same thing. What a subscription must get is decided by the second, so the two must agree (RUL,
COR, SQL).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from busway.model.entities import CorrelationFilter, FalseFilter, RuleFilter, SqlFilter, TrueFilter

COLORS = ("red", "green", "blue", None)
LABELS = ("order", "offer", "note", None)


@dataclass(frozen=True, slots=True)
class Traits:
    """Of a message; None is a property that it does not have."""

    color: str | None = None
    weight: int | None = None
    label: str | None = None

    @classmethod
    def draw(cls, random: Random) -> Traits:
        weight = random.choice((None, random.randrange(10), random.randrange(10)))
        return cls(random.choice(COLORS), weight, random.choice(LABELS))

    @property
    def properties(self) -> dict[str, Any] | None:
        """As application properties."""
        found = {"color": self.color, "weight": self.weight}
        return {name: value for name, value in found.items() if value is not None} or None


PLAIN = Traits()
"""Of messages that no filter will ask."""

Wants = Callable[[Traits], bool]

RULES: tuple[tuple[RuleFilter, Wants], ...] = (
    (TrueFilter(), lambda _: True),
    (FalseFilter(), lambda _: False),
    (CorrelationFilter(label="order"), lambda t: t.label == "order"),
    (CorrelationFilter(properties={"color": "red"}), lambda t: t.color == "red"),
    (CorrelationFilter(properties={"weight": 3}), lambda t: t.weight == 3),
    (
        CorrelationFilter(label="offer", properties={"color": "blue"}),
        lambda t: t.label == "offer" and t.color == "blue",
    ),
    (SqlFilter("weight > 4"), lambda t: t.weight is not None and t.weight > 4),
    (SqlFilter("weight % 2 = 0"), lambda t: t.weight is not None and t.weight % 2 == 0),
    (
        SqlFilter("color IN ('red', 'green') AND weight <= 7"),
        lambda t: t.color in ("red", "green") and t.weight is not None and t.weight <= 7,
    ),
    # A comparison with what is not there is unknown, and so is its opposite (SQL-4).
    (SqlFilter("NOT (color = 'red')"), lambda t: t.color is not None and t.color != "red"),
    (
        SqlFilter("color IS NULL OR weight < 2"),
        lambda t: t.color is None or (t.weight is not None and t.weight < 2),
    ),
    (SqlFilter("sys.Label LIKE 'o%'"), lambda t: t.label in ("order", "offer")),
    (SqlFilter("EXISTS(color) AND EXISTS(weight)"), lambda t: None not in (t.color, t.weight)),
)


def some_rules(random: Random) -> list[tuple[RuleFilter, Wants]]:
    """One or two; what any of them wants is there once (RUL-2)."""
    return random.sample(RULES, random.choice((1, 1, 2)))
