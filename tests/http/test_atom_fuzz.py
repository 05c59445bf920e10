"""Bodies and paths of any kind: none is our mistake, and what is shown can be sent back."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.http.atom.descriptions import DESCRIPTIONS
from busway.http.atom.typed_values import READERS
from busway.model.entities import Queue, Subscription, Topic
from tests.fuzz import fuzz_management
from tests.http.atom_client import ATOM, description, entry
from tests.http.in_process import Answer, HttpInProcess

EXAMPLES = settings(max_examples=150, deadline=None)


@pytest.fixture(scope="module")
def http() -> Iterator[HttpInProcess]:
    with HttpInProcess() as running:
        yield running


TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "true",
            "false",
            "0",
            "1",
            "16",
            "1024",
            "3072",
            "49152",
            "PT1M",
            "P10D",
            "PT0S",
            "P10675199DT2H48M5.4775807S",
            "Active",
            "Disabled",
            "sb://host/q",
            "q",
            "t",
            "-1",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20),
)
"""Of elements; without what XML cannot hold."""


def descriptions(kind: type, name: str) -> st.SearchStrategy[bytes]:
    names = [row.element for row in DESCRIPTIONS[kind].rows]
    said = st.dictionaries(st.sampled_from(names), TEXTS, max_size=4)
    return said.map(lambda elements: description(name, **elements))


VALUES = st.tuples(TEXTS, st.sampled_from([*READERS, "strange"]), TEXTS).map(
    lambda each: (
        f"<KeyValueOfstringanyType><Key>{escape(each[0])}</Key>"
        f'<Value i:type="d6p1:{each[1]}">{escape(each[2])}</Value></KeyValueOfstringanyType>'
    )
)
CONDITIONS = st.dictionaries(
    st.sampled_from(["Label", "To", "SessionId", "SqlExpression", "ContentType"]), TEXTS, max_size=3
).map(lambda each: "".join(f"<{name}>{escape(text)}</{name}>" for name, text in each.items()))


@st.composite
def rules(draw: st.DrawFn) -> bytes:
    kinds = ["SqlFilter", "TrueFilter", "FalseFilter", "CorrelationFilter", "Odd", ""]
    inner = draw(CONDITIONS)
    for name in draw(st.sets(st.sampled_from(["Properties", "Parameters"]))):
        inner += f"<{name}>{''.join(draw(st.lists(VALUES, max_size=3)))}</{name}>"
    action = draw(st.sampled_from(["", "SET a = 1", "SET a = @b", "REMOVE x"]))
    parts = f'<Filter i:type="{draw(st.sampled_from(kinds))}">{inner}</Filter>'
    if action:
        parts += f'<Action i:type="SqlRuleAction"><SqlExpression>{action}</SqlExpression></Action>'
    return description("Rule", parts)


def send_back(http: HttpInProcess, path: str) -> None:
    """What was got is a description that changes nothing."""
    shown = http.request("GET", path)
    assert shown.status == 200
    before = _content(shown)
    body = entry(ElementTree.tostring(before, encoding="unicode"))
    again = http.request("PUT", path, body, {"If-Match": "*"})
    assert again.status == 200, again.body
    unchanged = {child.tag: _canonical(child) for child in _content(http.request("GET", path))}
    for child in before:
        if not child.tag.endswith("UpdatedAt"):
            assert unchanged[child.tag] == _canonical(child)


def _content(answer: Answer) -> Element:
    content = ElementTree.fromstring(answer.body).find(f"{{{ATOM}}}content")
    assert content is not None
    return content[0]


def _canonical(element: Element) -> bytes:
    return ElementTree.tostring(element)


@pytest.mark.parametrize(("kind", "name"), [(Queue, "Queue"), (Topic, "Topic")])
def test_descriptions_of_queues_and_topics(http: HttpInProcess, kind: type, name: str) -> None:
    http.request("PUT", "/q", description("Queue"))
    http.request("PUT", "/t", description("Topic"))

    @EXAMPLES
    @given(descriptions(kind, name))
    def check(body: bytes) -> None:
        answer = http.request("PUT", "/fuzzed", body)
        answer.check()
        assert answer.status in (201, 400)
        if answer.status == 201:
            send_back(http, "/fuzzed")
            assert http.request("DELETE", "/fuzzed").status == 200

    check()


def test_descriptions_of_subscriptions(http: HttpInProcess) -> None:
    http.request("PUT", "/q", description("Queue"))
    http.request("PUT", "/t", description("Topic"))

    @EXAMPLES
    @given(descriptions(Subscription, "Subscription"))
    def check(body: bytes) -> None:
        path = "/t/Subscriptions/fuzzed"
        answer = http.request("PUT", path, body)
        answer.check()
        assert answer.status in (201, 400)
        if answer.status == 201:
            send_back(http, path)
            assert http.request("DELETE", path).status == 200

    check()


def test_rules(http: HttpInProcess) -> None:
    http.request("PUT", "/ruled", description("Topic"))
    http.request("PUT", "/ruled/Subscriptions/s", description("Subscription"))

    @EXAMPLES
    @given(rules())
    def check(body: bytes) -> None:
        path = "/ruled/Subscriptions/s/Rules/fuzzed"
        answer = http.request("PUT", path, body)
        answer.check()
        assert answer.status in (201, 400)
        if answer.status == 201:
            send_back(http, path)
            assert http.request("DELETE", path).status == 200

    check()


PATH_PARTS = st.one_of(
    st.sampled_from(
        [
            "q",
            "t",
            "Subscriptions",
            "rules",
            "$Default",
            "$Resources",
            "queues",
            "$namespaceinfo",
            "messages",
            "head",
            "%2F",
            "%00",
            "%ff",
            "..",
            ".",
            "$DeadLetterQueue",
        ]
    ),
    st.text(st.characters(min_codepoint=33, exclude_categories=["Cs", "Cc", "Zs"]), max_size=6),
)


@EXAMPLES
@given(
    st.sampled_from(["GET", "PUT", "DELETE", "PATCH"]),
    st.lists(PATH_PARTS, max_size=7),
    st.sampled_from(
        ["", "?$skip=1&$top=2", "?api-version=2017-04", "?api-version=%ff", "?%", "?&="]
    ),
)
def test_paths(http: HttpInProcess, method: str, parts: list[str], query: str) -> None:
    body = description("Queue") if method == "PUT" else b""
    http.request(method, f"/{'/'.join(parts)}{query}", body).check()


def test_a_short_run_of_mutated_requests(http: HttpInProcess) -> None:
    """`make fuzz` runs it for longer."""
    for _ in fuzz_management.run(http, seconds=3, seed=20261116):
        pass
