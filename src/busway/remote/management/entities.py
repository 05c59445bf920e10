"""Queues, topics and subscriptions of a namespace: made, shown, changed and deleted.

Values are those of the command line: durations like `5m` and `PT5M`, `true` and `false`. What comes
back is a dict of plain values with the names of the options, durations in ISO 8601; its fields are
listed in docs/reference/command-line.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from busway.http.atom.markup import COUNTS, SERVICE, Markup, element
from busway.http.atom.rules import DEFAULT_RULE_DESCRIPTION, write_rule
from busway.model.durations import format_iso, parse_duration, parse_iso
from busway.model.entities import Rule
from busway.remote.connection import Credentials
from busway.remote.management.atom import Atom, Entry, again, service_element
from busway.remote.management.options import (
    BY_NAME,
    ELEMENTS,
    NOTHING,
    ORDER,
    QUEUE,
    STATUSES,
    SUBSCRIPTION,
    TOPIC,
    Option,
    Value,
    options_of,
)

LISTS = {QUEUE: "$Resources/queues", TOPIC: "$Resources/topics"}
PATHS = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
RULES = "AuthorizationRules"
COUNT_NAMES = {
    "active": "ActiveMessageCount",
    "dead_letter": "DeadLetterMessageCount",
    "scheduled": "ScheduledMessageCount",
    "transfer": "TransferMessageCount",
    "transfer_dead_letter": "TransferDeadLetterMessageCount",
}
TIMES = {"created_at": "CreatedAt", "updated_at": "UpdatedAt", "accessed_at": "AccessedAt"}
PREMIUM = "premium"


class OptionError(Exception):
    """A value that an option cannot have."""


def path_of(topic: str, subscription: str) -> str:
    return f"{topic}/Subscriptions/{subscription}"


class Entities:
    """Those of one namespace. Raises `RemoteError`, and `OptionError` before anything is sent."""

    def __init__(self, credentials: Credentials) -> None:
        self._atom = Atom(credentials)

    @property
    def address(self) -> str:
        return self._atom.address

    def create(
        self, kind: str, path: str, given: Mapping[str, str], rule: Rule | None = None
    ) -> dict[str, Any]:
        """`rule`: the first one of a subscription, in place of one that takes everything."""
        said = _texts(given)
        if kind != SUBSCRIPTION and "EnablePartitioning" not in said and self._may_choose():
            said["EnablePartitioning"] = "true"  # P-11: as in the portal
        parts = {name: element(name, text) for name, text in said.items() if text is not None}
        inner = _in_order(kind, parts)
        if rule is not None:
            place = next(
                (n for n, each in enumerate(inner) if each.startswith("<Status")), len(inner)
            )
            first = element(DEFAULT_RULE_DESCRIPTION, write_rule(rule), {"xmlns": SERVICE})
            inner.insert(place, first)
        made = self._atom.put(
            path,
            service_element(ELEMENTS[kind], inner),
            change=False,
            destinations=_destinations(said),
        )
        return described(kind, made, path)

    def update(self, kind: str, path: str, given: Mapping[str, str]) -> dict[str, Any]:
        """Change what is named, and send everything else back as it was."""
        said = _texts(given)
        there = self._description(kind, path)
        parts = {name: again(child) for child in there if (name := _local(child)) in ORDER[kind]}
        for name, text in said.items():
            if text is None:
                parts.pop(name, None)
            else:
                parts[name] = element(name, text, {"xmlns": SERVICE})
        kept = {
            name: there.findtext(_tag(name)) for name in PATHS if there.find(_tag(name)) is not None
        }
        destinations = {
            name: _name_of(text)
            for name, text in {**kept, **said}.items()
            if text and name in PATHS
        }
        changed = self._atom.put(
            path,
            service_element(ELEMENTS[kind], _in_order(kind, parts)),
            change=True,
            destinations=destinations,
        )
        return described(kind, changed, path)

    def show(self, kind: str, path: str) -> dict[str, Any]:
        entry = self._atom.get(path)
        self._check(kind, path, entry.description)
        return described(kind, entry, path)

    def all(self, kind: str, topic: str | None = None) -> Iterator[dict[str, Any]]:
        where = LISTS[kind] if topic is None else f"{topic}/Subscriptions"
        for entry in self._atom.entries(where):
            name = entry.title
            yield described(kind, entry, name if topic is None else path_of(topic, name))

    def delete(self, kind: str, path: str) -> None:
        self._description(kind, path)
        self._atom.delete(path)

    def kind_of(self, path: str) -> str:
        tag = _local(self._atom.get(path).description)
        return next(kind for kind, name in ELEMENTS.items() if name == tag)

    def _description(self, kind: str, path: str) -> Element:
        found = self._atom.get(path).description
        self._check(kind, path, found)
        return found

    def _check(self, kind: str, path: str, description: Element) -> None:
        from busway.remote.client import RemoteError
        from busway.remote.console import NOT_FOUND

        if _local(description) != ELEMENTS[kind]:
            is_one = next(k for k, name in ELEMENTS.items() if name == _local(description))
            raise RemoteError(
                f"'{path}' is a {is_one}. Say 'busway {is_one}'.", exit_status=NOT_FOUND
            )

    def _may_choose(self) -> bool:
        """P-13: in Premium the namespace decides."""
        info = self._atom.get("$namespaceinfo").description
        return (_text(info, "MessagingSKU") or "").lower() != PREMIUM


# --- Values in -----------------------------------------------------------------------------------


def _texts(given: Mapping[str, str]) -> dict[str, str | None]:
    """By element, as the service writes it; None for what is taken away."""
    return {BY_NAME[name].element: _text_of(BY_NAME[name], text) for name, text in given.items()}


def _text_of(option: Option, text: str) -> str | None:
    if option.value in (Value.TEXT, Value.PATH):
        return None if text.lower() == NOTHING else text
    try:
        match option.value:
            case Value.FLAG:
                return {"true": "true", "false": "false"}[text.lower()]
            case Value.COUNT:
                if not (text.isascii() and text.isdigit() and len(text) <= 10):
                    raise ValueError(text)
                return text
            case Value.SPAN:
                return format_iso(parse_duration(text))
    except (ValueError, KeyError):
        hint = " such as 30s, 5m, 14d, PT5M or unlimited" if option.value is Value.SPAN else ""
        raise OptionError(
            f"{option.flag} is '{text}', and must be {option.value.value}{hint}."
        ) from None
    known = {each.lower(): each for each in STATUSES}
    if text.lower() not in known:
        raise OptionError(f"{option.flag} is '{text}', and must be one of {', '.join(STATUSES)}.")
    return known[text.lower()]


def _in_order(kind: str, parts: Mapping[str, Markup]) -> list[Markup]:
    return [parts[name] for name in ORDER[kind] if name in parts]


def _destinations(said: Mapping[str, str | None]) -> dict[str, str]:
    return {name: _name_of(text) for name, text in said.items() if text and name in PATHS}


def _name_of(address: str) -> str:
    """The service shows `sb://host/name` for where messages go on to."""
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(address).path).strip("/") if "://" in address else address


# --- Values out ----------------------------------------------------------------------------------


def described(kind: str, entry: Entry, path: str) -> dict[str, Any]:
    """What an entry says, with the names of the options."""
    found = entry.description
    told: dict[str, Any] = {"name": path, "type": kind}
    for option in options_of(kind):
        told[option.name] = _value(option, _text(found, option.element))
    counts = found.find(_tag("CountDetails"))
    told["counts"] = {
        name: int((None if counts is None else counts.findtext(f"{{{COUNTS}}}{tag}")) or 0)
        for name, tag in COUNT_NAMES.items()
    }
    told["size_bytes"] = int(_text(found, "SizeInBytes") or 0)
    told["availability"] = _text(found, "EntityAvailabilityStatus")
    if kind == TOPIC:
        told["subscriptions"] = int(_text(found, "SubscriptionCount") or 0)
    told.update({name: _text(found, tag) for name, tag in TIMES.items()})
    return told


def _value(option: Option, text: str | None) -> Any:
    if text is None or text == "":
        return None
    match option.value:
        case Value.FLAG:
            return text.lower() == "true"
        case Value.COUNT:
            return int(text)
        case Value.SPAN:
            return None if parse_iso(text) is None else text
        case Value.PATH:
            return _name_of(text)
    return text


def _text(found: Element, name: str) -> str | None:
    return found.findtext(_tag(name))


def _tag(name: str) -> str:
    return f"{{{SERVICE}}}{name}"


def _local(found: Element) -> str:
    return found.tag.rpartition("}")[2]
