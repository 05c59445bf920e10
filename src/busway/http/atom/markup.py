"""XML, written: elements that are closed and texts that are escaped, by construction.

Prefixes matter to readers: JavaScript's client looks for the literal names `i:type` and `d2p1:...`
and for elements without a prefix (http.md 4 and 7). So namespaces are declared where the service
declares them, which the library's own writer would not do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape, quoteattr

ATOM = "http://www.w3.org/2005/Atom"
SERVICE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"

DECLARATION = '<?xml version="1.0" encoding="utf-8"?>'


class Markup(str):
    """Text that is XML already. Any other text is escaped when it is put into an element."""

    __slots__ = ()


def element(
    name: str,
    content: str | Iterable[Markup] = "",
    attributes: Mapping[str, str] | None = None,
) -> Markup:
    """`content` is a text, or elements. Names are ours, everything else may be a stranger's."""
    start = name
    for key, value in (attributes or {}).items():
        start += f" {key}={quoteattr(legal(value))}"
    if isinstance(content, Markup):
        inner: str = content
    elif isinstance(content, str):
        inner = content if content.isalnum() else escape(legal(content))
    else:
        inner = "".join(content)
    return Markup(f"<{start}>{inner}</{name}>" if inner else f"<{start} />")


def document(root: Markup) -> bytes:
    return f"{DECLARATION}{root}".encode()


def legal(text: str) -> str:
    """Without what XML 1.0 cannot hold, not even escaped; AMQP clients may bring anything."""
    if text.isprintable():  # the usual case, at the speed of C
        return text
    return "".join(c if _is_legal(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


def _is_legal(character: str) -> bool:
    return (
        character in "\t\n\r"
        or " " <= character < "\ud800"
        or "\udfff" < character < "\ufffe"
        or character > "\uffff"
    )
