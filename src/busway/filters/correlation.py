"""Correlation filters: conditions that must all hold, and an index over many of them (COR-1 to 3).

The index groups filters by *shape*, the set of fields that they ask for. Filters of one shape are
one dictionary from the values that they want to who wants them: a message is looked up once per
shape, however many filters have it, and what is found matches without a second look. Shapes hang
under one of their fields, so a shape whose field the message lacks is not even looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from busway.filters.facts import equality_key, property_key
from busway.filters.values import from_amqp
from busway.model.entities import CorrelationFilter

FIELDS: dict[str, str] = {
    "correlation_id": "sys.CorrelationId",
    "message_id": "sys.MessageId",
    "to": "sys.To",
    "reply_to": "sys.ReplyTo",
    "label": "sys.Label",
    "session_id": "sys.SessionId",
    "reply_to_session_id": "sys.ReplyToSessionId",
    "content_type": "sys.ContentType",
}
"""The attributes of a filter, and the fields of `MessageFacts.correlated` that they are about."""

Conditions = Mapping[str, object | None]
"""The value wanted of each field; None where no value could ever equal it."""

Owner = TypeVar("Owner", bound=Hashable)


def conditions_of(correlation: CorrelationFilter) -> Conditions:
    """Fields that are None are not asked for; a property may be asked to be null (COR-1)."""
    wanted: dict[str, object | None] = {}
    for attribute, field in FIELDS.items():
        text = getattr(correlation, attribute)
        if text is not None:
            wanted[field] = str(text)
    for name, value in correlation.properties.items():
        wanted[f"user.{property_key(name)}"] = equality_key(from_amqp(value))
    return wanted


def holds(conditions: Conditions, correlated: Mapping[str, object]) -> bool:
    """One filter and one message, without an index; a missing property is no match (COR-1)."""
    return all(
        value is not None and field in correlated and correlated[field] == value
        for field, value in conditions.items()
    )


class _Shape(Generic[Owner]):
    """All filters that ask for the same fields."""

    def __init__(self, fields: tuple[str, ...], pivot: str) -> None:
        self.fields = fields
        self.pivot = pivot
        self.wanted: dict[tuple[object, ...], dict[Owner, None]] = {}
        """Who wants which values, in the order of `fields`."""

    def find(self, correlated: Mapping[str, object]) -> Iterator[Owner]:
        try:
            values = tuple([correlated[field] for field in self.fields])
        except KeyError:
            return iter(())
        return iter(self.wanted.get(values, ()))


class CorrelationIndex(Generic[Owner]):
    """Which of many correlation filters match a message. Filters come and go at any time."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], _Shape[Owner]] = {}
        self._by_pivot: dict[str, dict[tuple[str, ...], _Shape[Owner]]] = {}
        self._places: dict[Owner, tuple[_Shape[Owner], tuple[object, ...]] | None] = {}
        """Where each filter is; None for one that can never match."""

    def __len__(self) -> int:
        return len(self._places)

    def add(self, owner: Owner, conditions: Conditions) -> None:
        assert conditions, "a correlation filter has a condition (COR-3)"
        assert owner not in self._places
        if None in conditions.values():
            self._places[owner] = None
            return
        fields = tuple(sorted(conditions))
        shape = self._shapes.get(fields) or self._new_shape(fields)
        values = tuple(conditions[field] for field in fields)
        shape.wanted.setdefault(values, {})[owner] = None
        self._places[owner] = shape, values

    def remove(self, owner: Owner) -> None:
        place = self._places.pop(owner)
        if place is None:
            return
        shape, values = place
        del shape.wanted[values][owner]
        if not shape.wanted[values]:
            del shape.wanted[values]
        if not shape.wanted:
            self._drop_shape(shape)

    def matches(self, correlated: Mapping[str, object]) -> Iterator[Owner]:
        by_pivot = self._by_pivot
        fewer = by_pivot if len(by_pivot) <= len(correlated) else correlated
        for field in fewer:
            if field in by_pivot and field in correlated:
                for shape in by_pivot[field].values():
                    yield from shape.find(correlated)

    def _new_shape(self, fields: tuple[str, ...]) -> _Shape[Owner]:
        # Under the field that the fewest others hang under: fields that all filters ask for, and
        # that all messages therefore have, would tell nothing.
        pivot = min(fields, key=lambda field: len(self._by_pivot.get(field, ())))
        shape: _Shape[Owner] = _Shape(fields, pivot)
        self._shapes[fields] = shape
        self._by_pivot.setdefault(pivot, {})[fields] = shape
        return shape

    def _drop_shape(self, shape: _Shape[Owner]) -> None:
        del self._shapes[shape.fields]
        del self._by_pivot[shape.pivot][shape.fields]
        if not self._by_pivot[shape.pivot]:
            del self._by_pivot[shape.pivot]
