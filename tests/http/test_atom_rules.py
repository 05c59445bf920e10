"""Rules over HTTP: filters, actions and their typed values (http.md 7)."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

import pytest

from busway.amqp.types import Described, Float, Int, Symbol, Timestamp
from busway.http.atom.rules import read_rule, write_rule
from busway.http.atom.typed_values import read_values, write_values
from busway.model.entities import CorrelationFilter, FalseFilter, Rule, SqlFilter, TrueFilter
from busway.model.errors import BusError
from tests.http.atom_client import INSTANCE, SCHEMA, SERVICE, Management, atom, description, service

SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"
DEFINITIONS = f'xmlns="{SERVICE}" xmlns:i="{INSTANCE}"'


def value(key: str, kind: str, text: str) -> str:
    """As Python writes it."""
    return (
        f"<KeyValueOfstringanyType><Key>{escape(key)}</Key>"
        f'<Value xmlns:d6p1="{SCHEMA}" i:type="d6p1:{kind}">{escape(text)}</Value>'
        "</KeyValueOfstringanyType>"
    )


def parsed(markup: str) -> Element:
    return ElementTree.fromstring(f"<root {DEFINITIONS}>{markup}</root>")


@pytest.fixture
def subscription(bus: Management, request: pytest.FixtureRequest) -> str:
    topic = f"/rules-{abs(hash(request.node.nodeid))}"
    bus.create("Topic", topic)
    bus.create("Subscription", f"{topic}/Subscriptions/s")
    return f"{topic}/Subscriptions/s"


class TestFilters:
    @pytest.mark.parametrize(
        ("kind", "inner", "shown"),
        [
            (
                "SqlFilter",
                "<SqlExpression>a &lt; 'b' AND c = @c</SqlExpression>"
                f"<Parameters>{value('@c', 'int', '2')}</Parameters>",
                ["SqlExpression", "CompatibilityLevel", "Parameters"],
            ),
            (
                "SqlFilter",
                "<SqlExpression>1=1</SqlExpression>",
                ["SqlExpression", "CompatibilityLevel"],
            ),
            ("TrueFilter", "", ["SqlExpression", "CompatibilityLevel"]),
            (
                "FalseFilter",
                "<SqlExpression>1&gt;1</SqlExpression>",
                ["SqlExpression", "CompatibilityLevel"],
            ),
            (
                "CorrelationFilter",
                "<Label>red</Label><CorrelationId>7</CorrelationId>",
                ["CorrelationId", "Label"],
            ),
            (
                "CorrelationFilter",
                f"<Properties>{value('colour', 'string', 'red')}</Properties>",
                ["Properties"],
            ),
        ],
    )
    def test_come_back_as_they_were_said(
        self, bus: Management, subscription: str, kind: str, inner: str, shown: list[str]
    ) -> None:
        filter_text = f'<Filter i:type="{kind}">{inner}</Filter>'
        made = bus.create("Rule", f"{subscription}/Rules/r", filter_text)
        assert made.names == ["Filter", "Action", "CreatedAt", "Name"]
        for reply in (made, bus.get(f"{subscription}/Rules/r")):
            found = reply.content.find(service("Filter"))
            assert found is not None
            assert found.get(f"{{{INSTANCE}}}type") == kind
            assert [child.tag for child in found] == [service(name) for name in shown]
            assert reply.text("Name") == "r"
        assert f'<Filter i:type="{kind}">' in made.body.decode()

    def test_everything_is_taken_where_none_is_said(
        self, bus: Management, subscription: str
    ) -> None:
        assert b'<Filter i:type="TrueFilter">' in bus.create("Rule", f"{subscription}/Rules/r").body
        default = bus.get(f"{subscription}/Rules/$Default")
        assert default.text("Filter/SqlExpression") == "1=1"
        assert b'<Action i:type="EmptyRuleAction" />' in default.body

    def test_may_leave_out_their_type(self, bus: Management, subscription: str) -> None:
        body = description("Rule", "<Filter><SqlExpression>a = 1</SqlExpression></Filter>")
        assert b'"SqlFilter"' in bus.put(f"{subscription}/Rules/sql", body).body
        body = description("Rule", "<Filter><Label>x</Label></Filter>")
        assert b'"CorrelationFilter"' in bus.put(f"{subscription}/Rules/correlation", body).body

    @pytest.mark.parametrize(
        ("inner", "reason"),
        [
            (
                '<Filter i:type="SqlFilter"><SqlExpression>a =</SqlExpression></Filter>',
                "SQL filter",
            ),
            ('<Filter i:type="SqlFilter"></Filter>', "has no SqlExpression"),
            ('<Filter i:type="SqlFilter"><SqlExpression>a = @b</SqlExpression></Filter>', "@b"),
            ('<Filter i:type="CorrelationFilter"></Filter>', "has no condition"),
            ('<Filter i:type="StrangeFilter"></Filter>', "'StrangeFilter'. Known are SqlFilter"),
            ('<Action i:type="StrangeAction"></Action>', "'StrangeAction'. Known are"),
            (
                '<Action i:type="SqlRuleAction"><SqlExpression>SET</SqlExpression></Action>',
                "action",
            ),
            ("<Filter><Label><x/></Label></Filter>", "elements where a text should be"),
        ],
    )
    def test_that_cannot_be_are_refused(
        self, bus: Management, subscription: str, inner: str, reason: str
    ) -> None:
        """SQL-11, COR-3."""
        reply = bus.put(f"{subscription}/Rules/r", description("Rule", inner))
        assert reply.status == 400
        assert reason in reply.detail
        assert bus.get(f"{subscription}/Rules").titles == ["$Default"]


class TestRules:
    def test_are_replaced_as_a_whole(self, bus: Management, subscription: str) -> None:
        path = f"{subscription}/Rules/r"
        action = '<Action i:type="SqlRuleAction"><SqlExpression>SET a = 1</SqlExpression></Action>'
        made = bus.create("Rule", path, f"<Filter><Label>x</Label></Filter>{action}")
        assert made.text("Action/SqlExpression") == "SET a = 1"
        assert made.text("Action/CompatibilityLevel") == "20"
        changed = bus.update(path, description("Rule", "<Filter><To>y</To></Filter>"))
        assert changed.status == 200
        assert changed.text("Filter/To") == "y"
        assert changed.text("Filter/Label") is None
        assert changed.text("Action/SqlExpression") is None
        assert changed.text("CreatedAt") == made.text("CreatedAt")

    def test_are_named_by_their_path(self, bus: Management, subscription: str) -> None:
        body = description("Rule", Name="another")
        assert bus.put(f"{subscription}/Rules/Mine", body).text("Name") == "Mine"
        assert bus.get(f"{subscription}/Rules/mine").root.findtext(atom("title")) == "Mine"

    def test_need_a_name_that_can_be(self, bus: Management, subscription: str) -> None:
        assert bus.put(f"{subscription}/Rules/{'x' * 51}", description("Rule")).status == 400
        assert bus.put(f"{subscription}/Rules/a%2Fb", description("Rule")).status == 400

    def test_the_first_may_come_with_the_subscription(
        self, bus: Management, subscription: str
    ) -> None:
        """RUL-1. JavaScript calls it `defaultRuleOptions`."""
        first = (
            "<DefaultRuleDescription><Filter xmlns:p4='http://www.w3.org/2001/XMLSchema-instance'"
            " p4:type='SqlFilter'><SqlExpression>a = 1</SqlExpression></Filter>"
            "<Name>first</Name></DefaultRuleDescription>"
        )
        path = subscription[:-1] + "t"
        made = bus.create("Subscription", path, first)
        assert "DefaultRuleDescription" not in made.names
        assert bus.get(f"{path}/Rules").titles == ["first"]
        assert bus.get(f"{path}/Rules/first").text("Filter/SqlExpression") == "a = 1"
        broken = first.replace("a = 1", "a =")
        refused = bus.put(subscription[:-1] + "u", description("Subscription", broken))
        assert refused.status == 400
        assert bus.get(subscription[:-1] + "u").status == 404

    def test_are_counted_by_their_topic(self, bus: Management, subscription: str) -> None:
        """A true filter is an SQL filter."""
        topic = subscription.partition("/Subscriptions")[0]
        for name in "abc":
            bus.create("Rule", f"{subscription}/Rules/{name}", "<Filter><Label>x</Label></Filter>")
        got = bus.get(topic, api_version="2024-05")
        assert (got.text("SqlFilterCount"), got.text("CorrelationFilterCount")) == ("1", "3")
        assert got.text("SubscriptionCount") == "1"


class TestTypedValues:
    @pytest.mark.parametrize(
        ("kind", "text", "expected"),
        [
            ("string", " two words ", " two words "),
            ("string", "", ""),
            ("int", "-2147483648", Int(-2147483648)),
            ("long", "2147483650", 2147483650),
            ("double", "2.5", 2.5),
            ("double", "INF", float("inf")),
            ("boolean", "false", False),
            ("boolean", "1", True),
            ("dateTime", "2020-07-05T11:12:13Z", Timestamp(1593947533000)),
            ("dateTime", "2020-07-05T13:12:13.25+02:00", Timestamp(1593947533250)),
            (
                "dateTime",
                "2020-07-05T11:12:13",
                Described(Symbol("com.microsoft:datetime-offset"), 637295443330000000),
            ),
            (
                "duration",
                "P1DT2H3M",
                Described(Symbol("com.microsoft:timespan"), 93_780 * 10_000_000),
            ),
            ("duration", "-PT1S", Described(Symbol("com.microsoft:timespan"), -10_000_000)),
            ("duration", "PT0.0000001S", Described(Symbol("com.microsoft:timespan"), 1)),
            ("duration", "P1DT0.5S", Described(Symbol("com.microsoft:timespan"), 864_005_000_000)),
            (
                "dateTime",
                "2020-07-05T11:12:13.1234567Z",
                Described(Symbol("busway:utc-ticks"), 637_295_443_331_234_567),
            ),
            (
                "dateTime",
                "2020-07-05T11:12:13.1234567",
                Described(Symbol("com.microsoft:datetime-offset"), 637_295_443_331_234_567),
            ),
            ("float", "1.5", Float(1.5)),
        ],
    )
    def test_are_read_and_written_alike(self, kind: str, text: str, expected: object) -> None:
        read = read_values(parsed(value("key", kind, text)))
        assert read == {"key": expected}
        assert type(read["key"]) is type(expected)
        written = write_values("Parameters", read)
        again = read_values(parsed(written)[0])
        assert again == read
        assert type(again["key"]) is type(expected)
        namespace = SERIALIZATION if kind == "duration" else SCHEMA
        assert f'<Value i:type="d6p1:{kind}" xmlns:d6p1="{namespace}"' in written

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            ("int", "2147483648"),
            ("int", "1_0"),
            ("int", "one"),
            ("long", str(1 << 63)),
            ("double", "1_0"),
            ("boolean", "maybe"),
            ("dateTime", "yesterday"),
            ("dateTime", "0001-01-01T00:00:00+14:00"),
            ("duration", "P1Y"),
            ("strange", "x"),
            ("guid", "x"),
            ("char", "99999999999"),
            ("base64Binary", "*"),
        ],
    )
    def test_that_cannot_be_are_refused(self, kind: str, text: str) -> None:
        with pytest.raises(BusError, match="'key'"):
            read_values(parsed(value("key", kind, text)))

    def test_need_keys_of_their_own(self) -> None:
        with pytest.raises(BusError, match="no Key, or the same"):
            read_values(parsed(value("a", "int", "1") + value("a", "int", "2")))
        with pytest.raises(BusError, match="no Key, or the same"):
            read_values(parsed(value("", "int", "1")))

    def test_of_javascript_have_other_prefixes(self) -> None:
        """`p4:type` is declared further out, numbers are always double."""
        filter_text = (
            f'<Filter p4:type="CorrelationFilter" xmlns:p4="{INSTANCE}"><Properties>'
            "<KeyValueOfstringanyType><Key>n</Key>"
            f'<Value p4:type="l28:double" xmlns:l28="{SCHEMA}">2</Value>'
            "</KeyValueOfstringanyType></Properties></Filter>"
        )
        rule = read_rule("r", parsed(filter_text))
        assert rule.filter == CorrelationFilter(properties={"n": 2.0})

    def test_that_came_over_amqp_are_shown(self) -> None:
        """Types that no administration client sends; what XML cannot hold is replaced."""
        rule = Rule(
            name="r",
            filter=SqlFilter("a = @a\x00", {"@a": None, "@b": b"\x01", "@c": [1], "@d": "\ud800"}),
            action="SET a = 1",
            created_ms=1,
        )
        markup = "".join(write_rule(rule))
        root = parsed(markup)
        assert root.find(f"{service('Filter')}/{service('SqlExpression')}") is not None
        assert 'i:nil="true"' in markup


@pytest.mark.parametrize(
    "rule_filter",
    [
        TrueFilter(),
        FalseFilter(),
        SqlFilter("a = @b", {"@b": Int(1), "@c": Timestamp(5)}),
        CorrelationFilter(label="x", content_type="y", properties={"p": "q", "r": True}),
    ],
)
def test_a_rule_is_read_as_it_is_written(rule_filter: object) -> None:
    rule = Rule(
        name="r",
        filter=rule_filter,
        action="SET x = @y",
        action_parameters={"@y": 2.5},  # type: ignore[arg-type]
    )
    assert read_rule("r", parsed("".join(write_rule(rule)))) == rule


def test_an_instant_in_a_rule_is_the_same_for_both_clients() -> None:
    moment = datetime(2020, 7, 5, 11, 12, 13, tzinfo=UTC)
    markup = write_values("Properties", {"zone": Timestamp(int(moment.timestamp() * 1000))})
    assert ">2020-07-05T11:12:13Z<" in markup
