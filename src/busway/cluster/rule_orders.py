"""Rule changes that a transaction has made, on their way to the catalog (D-28, P-44).

They are recorded in the commit of the transaction, in its messaging store, which keeps them as
bytes and does not look into them. The catalog carries them out afterwards, once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from busway.cluster.catalog_rows import description_of_rule, rule_of_row
from busway.model.entities import Rule


@dataclass(frozen=True, slots=True)
class RuleOrder:
    subscription: int
    """Its incarnation: one that was made anew under the same name is another."""
    name: str
    rule: Rule | None
    """The rule to add; None to remove the one of this name."""


def encode_orders(orders: Sequence[RuleOrder]) -> bytes:
    rows = [
        [
            each.subscription,
            each.name,
            None if each.rule is None else description_of_rule(each.rule),
        ]
        for each in orders
    ]
    return json.dumps(rows, separators=(",", ":")).encode()


def decode_orders(data: bytes) -> list[RuleOrder]:
    return [
        RuleOrder(subscription, name, None if row is None else rule_of_row(row))
        for subscription, name, row in json.loads(data)
    ]
