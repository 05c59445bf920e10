"""The rules of a subscription, looked after over Atom (http.md 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree.ElementTree import Element

from busway.broker.journal_properties import text_of
from busway.http.atom.markup import SERVICE
from busway.http.atom.rules import CONDITIONS as WIRE_CONDITIONS
from busway.http.atom.rules import RULE, read_rule, write_rule
from busway.model.entities import CorrelationFilter, Rule, SqlFilter
from busway.remote.connection import Credentials
from busway.remote.management.atom import Atom, service_element

CONDITIONS = tuple(WIRE_CONDITIONS.values())


class Rules:
    """Raises `RemoteError`."""

    def __init__(self, credentials: Credentials, topic: str, subscription: str) -> None:
        self._atom = Atom(credentials)
        self._path = f"{topic}/Subscriptions/{subscription}/Rules"

    def get(self, name: str) -> Rule:
        return _read(name, self._atom.get(f"{self._path}/{name}").description)

    def all(self) -> Iterator[Rule]:
        for entry in self._atom.entries(self._path):
            yield _read(entry.title, entry.description)

    def put(self, rule: Rule, *, change: bool) -> Rule:
        description = service_element(RULE, write_rule(rule))
        path = f"{self._path}/{rule.name}"
        made = self._atom.put(path, description, change=change, destinations={})
        return _read(rule.name, made.description)

    def delete(self, name: str) -> None:
        self._atom.delete(f"{self._path}/{name}")


def _read(name: str, description: Element) -> Rule:
    from datetime import datetime

    created = description.findtext(f"{{{SERVICE}}}CreatedAt") or ""
    rule = read_rule(name, description)
    if not created:
        return rule
    moment = datetime.fromisoformat(created)
    return replace(rule, created_ms=int(moment.timestamp() * 1000))


def told(rule: Rule) -> dict[str, Any]:
    """For programs and for people: `text` says in one line what it takes."""
    from datetime import UTC, datetime

    created = datetime.fromtimestamp(rule.created_ms / 1000, UTC)
    found: dict[str, Any] = {
        "name": rule.name,
        "filter": type(rule.filter).__name__.removesuffix("Filter").lower(),
        "text": _text(rule),
        "action": rule.action,
        "created_at": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    if isinstance(rule.filter, CorrelationFilter):
        found["conditions"] = dict(_conditions(rule.filter))
    return found


def _text(rule: Rule) -> str:
    match rule.filter:
        case SqlFilter(expression):
            return expression
        case CorrelationFilter():
            return ", ".join(f"{name} = {value}" for name, value in _conditions(rule.filter))
    return "everything" if type(rule.filter).__name__ == "TrueFilter" else "nothing"


def _conditions(wanted: CorrelationFilter) -> Iterator[tuple[str, str | None]]:
    for field in CONDITIONS:
        value = getattr(wanted, field)
        if value is not None:
            yield "subject" if field == "label" else field, value
    for name, each in wanted.properties.items():
        yield name, text_of(each)
