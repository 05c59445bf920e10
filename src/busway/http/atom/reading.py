"""XML, read: by namespace and never by prefix, in any order, and safely.

No document types, hence no entities of its own making, inside or outside; a bound on bytes and one
on depth (http.md 4). Whatever is wrong is the caller's mistake: 400, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from busway.http.atom.markup import ATOM, INSTANCE, SERVICE
from busway.model.errors import ARGUMENT_ERROR, BusError

if TYPE_CHECKING:
    from collections.abc import Collection

BODY_MAX_BYTES = 1024 * 1024
"""The largest description has twelve access rules or a hundred parameters: some 50 KB."""
DEPTH_MAX = 16
"""A parameter's value of a default rule is the deepest that there is, at 9."""


DETAIL_MAX_CHARS = 500
"""Of an error that repeats what a stranger wrote."""


def bad(detail: str) -> BusError:
    shown = detail if len(detail) <= DETAIL_MAX_CHARS else f"{detail[:DETAIL_MAX_CHARS]}..."
    return BusError(ARGUMENT_ERROR, detail=shown)


class _BoundedBuilder(TreeBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"elements are nested more than {DEPTH_MAX} deep")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def parse(body: bytes) -> Element:
    if not body.strip():
        raise bad("The request has no body. Send an Atom entry with a description in it.")
    try:
        parser = DefusedXMLParser(target=_BoundedBuilder(), forbid_dtd=True)
        parser.feed(body)
        root = parser.close()
    except DefusedXmlException:
        raise bad(
            "The body of the request has a document type or entities, which are not read."
        ) from None
    except (ParseError, ValueError, LookupError) as problem:  # LookupError: an unknown encoding
        raise bad(f"The body of the request is not XML that can be read: {problem}.") from None
    assert isinstance(root, Element)
    return root


def description_in(body: bytes, expected: Collection[str]) -> Element:
    """The one description in the content of an entry; `expected` are the names it may have."""
    entry = parse(body)
    names = " or ".join(expected)
    if entry.tag != f"{{{ATOM}}}entry":
        raise bad(f"The body of the request is not an Atom entry but {entry.tag!r}.")
    contents = entry.findall(f"{{{ATOM}}}content")
    descriptions = [child for content in contents for child in content]
    if len(descriptions) != 1:
        raise bad(
            f"The content of the entry has {len(descriptions)} elements and needs exactly one: "
            f"{names}."
        )
    (description,) = descriptions
    if local_name(description) not in expected:
        raise bad(
            f"The content of the entry is {description.tag!r}. Here it must be {names}, of the "
            f"namespace {SERVICE}."
        )
    return description


def local_name(element: Element) -> str | None:
    """Its name, if it is one of the service's."""
    namespace, _, name = element.tag.rpartition("}")
    return name if namespace == f"{{{SERVICE}" else None


def children(element: Element) -> dict[str, Element]:
    """By name. Those of other namespaces, and those that say of themselves to be nothing, are left
    out; one that is there twice could mean either."""
    found: dict[str, Element] = {}
    for child in element:
        name = local_name(child)
        if name is None or child.get(f"{{{INSTANCE}}}nil") == "true":
            continue
        if name in found:
            raise bad(f"The element {name} of {local_name(element)} is there more than once.")
        found[name] = child
    return found


def text_of(element: Element) -> str:
    """As it stands. An element where a text should be has none."""
    if len(element):
        raise bad(f"The element {local_name(element)} has elements where a text should be.")
    return element.text or ""


def type_of(element: Element) -> str | None:
    """The name of its `type`, without a prefix: the names of all namespaces in use differ."""
    value = element.get(f"{{{INSTANCE}}}type")
    return None if value is None else value.strip().rpartition(":")[2]
