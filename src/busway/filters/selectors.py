"""Selectors of JMS clients, `apache.org:selector-filter:string`: the syntax of JMS 2.0, 3.8.

The language is that of SQL filters but for a few things that are owned here: BETWEEN, a property
that stands for a condition, and names of headers: `JMSPriority`, or `amqp.priority` in the words
of the AMQP registry of filters. It has neither functions nor parameters. As in SQL filters, names
of properties that differ only by case are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from busway.amqp.sections import unpack_header
from busway.filters.errors import FilterError
from busway.filters.evaluator import Compiler, Evaluate
from busway.filters.facts import MessageFacts
from busway.filters.lexer import FILTER_KEYWORDS, TokenKind
from busway.filters.parser import OR, Node, Parser, check_length
from busway.filters.syntax import Comparison, Constant, Expression, Predicate, Property
from busway.filters.values import from_amqp
from busway.model.limits import FILTER_MAX_CHARS
from busway.model.message import Message
from busway.model.partitioning import message_id_text

Selector = Callable[[Message], bool]

SELECTOR_KEYWORDS = FILTER_KEYWORDS | {"BETWEEN"}

DEFAULT_PRIORITY = 4
"""AMQP 3.2.1; the same in JMS."""


def compile_selector(text: str) -> Selector | None:
    """Which messages a selector takes; None if it is empty and takes all.

    Raises `FilterSyntaxError`.
    """
    check_length(text, FILTER_MAX_CHARS)
    if not text.strip():
        return None
    parser = SelectorParser(text, SELECTOR_KEYWORDS)
    predicate = parser.predicate(OR)
    parser.expect_end("AND, OR or the end of the text")
    decide = _HeaderCompiler(_no_new_id).predicate(predicate)

    def selects(message: Message) -> bool:
        try:
            return decide(MessageFacts(message)) is True
        except FilterError:
            return False  # what cannot be compared is unknown (JMS 3.8.1.2)

    return selects


# --- Headers -------------------------------------------------------------------------------------


def _id(value: Any) -> str | None:
    return None if value is None else message_id_text(value)


def _priority(facts: MessageFacts) -> int:
    priority = unpack_header(facts.message.header)[2]
    return DEFAULT_PRIORITY if priority is None else priority


def _durable(facts: MessageFacts) -> bool:
    return bool(unpack_header(facts.message.header)[0])


def _delivery_mode(facts: MessageFacts) -> str:
    return "PERSISTENT" if _durable(facts) else "NON_PERSISTENT"


def _user_id(facts: MessageFacts) -> str | None:
    user_id = facts.properties.user_id
    return None if user_id is None else user_id.decode(errors="replace")


def _field(name: str) -> Evaluate:
    return lambda facts: from_amqp(getattr(facts.properties, name))


HEADERS: Final[Mapping[str, Evaluate]] = {
    "JMSCorrelationID": lambda facts: _id(facts.properties.correlation_id),
    "JMSDeliveryMode": _delivery_mode,
    "JMSMessageID": lambda facts: _id(facts.properties.message_id),
    "JMSPriority": _priority,
    "JMSTimestamp": lambda facts: _number(facts.properties.creation_time),
    "JMSType": lambda facts: facts.properties.subject,
    "JMSXDeliveryCount": lambda facts: facts.message.delivery_count + 1,
    "JMSXGroupID": lambda facts: facts.session_id,
    "JMSXGroupSeq": lambda facts: _number(facts.properties.group_sequence),
    "JMSXUserID": _user_id,
    "amqp.absolute_expiry_time": lambda facts: _number(facts.properties.absolute_expiry_time),
    "amqp.content_encoding": _field("content_encoding"),
    "amqp.content_type": _field("content_type"),
    "amqp.correlation_id": lambda facts: _id(facts.properties.correlation_id),
    "amqp.creation_time": lambda facts: _number(facts.properties.creation_time),
    "amqp.durable": _durable,
    "amqp.group_id": lambda facts: facts.session_id,
    "amqp.group_sequence": lambda facts: _number(facts.properties.group_sequence),
    "amqp.message_id": lambda facts: _id(facts.properties.message_id),
    "amqp.priority": _priority,
    "amqp.reply_to": _field("reply_to"),
    "amqp.reply_to_group_id": _field("reply_to_group_id"),
    "amqp.subject": _field("subject"),
    "amqp.to": _field("to"),
    "amqp.user_id": _user_id,
}
"""What selectors may name beside application properties."""

UNSELECTABLE: Final = ("JMSDestination", "JMSExpiration", "JMSRedelivered", "JMSReplyTo")
"""Headers that JMS keeps out of selectors; as properties they would never match."""


def _number(value: int | None) -> int | None:
    return None if value is None else int(value)


class _HeaderCompiler(Compiler):
    def _property(self, node: Property) -> Evaluate:
        return HEADERS[node.name] if node.scope == "sys" else super()._property(node)


def _no_new_id() -> NoReturn:
    raise AssertionError("a selector has no functions")


# --- Syntax --------------------------------------------------------------------------------------


class SelectorParser(Parser):
    def as_predicate(self, node: Node) -> Predicate:
        """A boolean property, or TRUE, is a condition by itself."""
        if isinstance(node, Property) or (
            isinstance(node, Constant) and isinstance(node.value, bool)
        ):
            return Comparison("=", node, Constant(True))
        return super().as_predicate(node)

    def primary(self) -> Expression:
        if self.token.kind is TokenKind.PARAMETER:
            raise self.error("a value: selectors have no parameters")
        return super().primary()

    def function(self) -> Expression:
        raise self.error("a value: selectors have no functions")

    def property_name(self) -> Property:
        token = self.token
        if token.kind is not TokenKind.NAME:
            raise self.error("the name of a property")
        name: str = self.advance().value
        if self.accept("."):
            if self.token.kind is not TokenKind.NAME:
                raise self.error(f"a name after '{name}.'")
            name = f"{name}.{self.advance().value}"
            if name not in HEADERS:
                raise self.error("a header such as amqp.priority before or after '.'", token)
        elif name in UNSELECTABLE:
            raise self.error(f"a header that a selector may name, not {name}", token)
        return Property("sys" if name in HEADERS else "user", name)
