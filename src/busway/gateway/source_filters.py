"""What a receiver's source asks for beside an address: a session, a selector, a browse.

An attach is answered with the filters that are applied and with no others (AMQP 3.5.8). A client
may go on without a filter that it asked for and then gets what it did not want, so one that cannot
be applied is refused, with a text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from busway.amqp.performatives import Source
from busway.amqp.types import Described
from busway.filters.errors import FilterSyntaxError
from busway.filters.selectors import Selector, compile_selector
from busway.model.errors import INVALID_FIELD, NOT_IMPLEMENTED, NOT_SUPPORTED, BusError

SESSION_FILTER = "com.microsoft:session-filter"
SHARED_SESSION_FILTER = "com.microsoft:non-exclusive-session-filter"
SELECTOR_DESCRIPTORS = ("apache.org:selector-filter:string", 0x0000_468C_0000_0004)
COPY, MOVE = "copy", "move"


@dataclass(frozen=True, slots=True)
class SessionWish:
    """Which session a link asks for."""

    session_id: str | None
    """None: the next available one."""
    descriptor: Any = None
    """Go describes the filter's value and wants it back so; the others do neither."""

    def granted(self, session_id: str) -> Any:
        """The filter's value in the form that the client used."""
        return session_id if self.descriptor is None else Described(self.descriptor, session_id)


@dataclass(slots=True)
class SourceWishes:
    """What a source asks for."""

    browse: bool = False
    """Messages are shown and stay where they are (distribution-mode copy)."""
    session: SessionWish | None = None
    selector: Selector | None = None
    applied: dict[Any, Any] = field(default_factory=dict)
    """The filters that the answer confirms."""


def wishes_of(source: Source) -> SourceWishes:
    """Raises `BusError` for what cannot be had."""
    if source.distribution_mode not in (None, MOVE, COPY):
        raise BusError(
            INVALID_FIELD,
            detail=f"There is no distribution mode '{source.distribution_mode}'. Use 'move' to "
            "receive, or 'copy' to browse.",
        )
    wishes = SourceWishes(browse=source.distribution_mode == COPY)
    for name, value in (source.filter or {}).items():
        _take(wishes, name, value)
    return wishes


def _take(wishes: SourceWishes, name: Any, value: Any) -> None:
    descriptor, content = (
        (value.descriptor, value.value) if isinstance(value, Described) else (None, value)
    )
    if str(name) == SESSION_FILTER:
        wishes.session = _session(content, descriptor)
    elif str(name).startswith(SHARED_SESSION_FILTER):
        raise BusError(NOT_IMPLEMENTED, operation=str(name))
    elif descriptor in SELECTOR_DESCRIPTORS or str(name) in SELECTOR_DESCRIPTORS:
        wishes.selector = _selector(content, wishes.browse)
    elif value is None:
        return  # AMQP 3.5.8: an entry that is null is no filter
    else:
        raise BusError(
            NOT_SUPPORTED,
            detail=f"The filter '{name}' is not supported, and without it this receiver would get "
            "messages that it does not want. Remove the filter, or let the rules of a "
            "subscription choose the messages.",
        )
    wishes.applied[name] = value


def _session(content: Any, descriptor: Any) -> SessionWish:
    if content is not None and not isinstance(content, str):
        raise BusError(
            INVALID_FIELD,
            detail=f"The filter '{SESSION_FILTER}' must be a string, the id of a session, or null "
            f"for the next available one; it is of type {type(content).__name__}.",
        )
    return SessionWish(None if content is None else str(content), descriptor)


def _selector(content: Any, browse: bool) -> Selector | None:
    if not isinstance(content, str):
        raise BusError(INVALID_FIELD, detail="A selector is a string.")
    try:
        selector = compile_selector(str(content))
    except FilterSyntaxError as problem:
        raise BusError(INVALID_FIELD, detail=f"The selector is not valid. {problem}") from None
    if selector is not None and not browse:
        raise BusError(
            NOT_SUPPORTED,
            detail="A receiver that takes messages cannot have a selector here; a browser can "
            "(distribution-mode 'copy'). Let the rules of a subscription choose the messages.",
        )
    return selector
