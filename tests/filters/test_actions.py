"""What actions do to the copy of a message (ACT-1 to ACT-4, RUL-7)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from busway.amqp.codec import scan_message
from busway.amqp.performatives import Properties
from busway.amqp.sections import (
    DATA,
    merge_changes,
    read_application_properties,
    read_properties,
    walk_pairs,
    walk_sections,
)
from busway.amqp.types import (
    Char,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    ULong,
)
from busway.filters.actions import Action, Rewritten, rewrite
from busway.filters.errors import RuleActionError
from busway.filters.evaluator import Compiler
from busway.filters.facts import MessageFacts
from busway.filters.parser import parse_action
from busway.model.message import Message
from tests.filters.messages import NEW_ID, message


def act(text: str, sent: Message) -> Rewritten:
    return rewrite(MessageFacts(sent), Action(parse_action(text), Compiler(lambda: NEW_ID)), {})


def user_after(text: str, user: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return read_application_properties(act(text, message(user, **fields)).bare)


def properties_after(text: str, user: dict[str, Any] | None = None, **fields: Any) -> Properties:
    return read_properties(act(text, message(user, **fields)).bare)


def body_of(bare: bytes) -> bytes:
    return b"".join(
        bare[start:stop] for code, start, _, stop in walk_sections(bare) if code == DATA
    )


class TestUserProperties:
    def test_set_creates_a_property(self) -> None:
        """ACT-3"""
        assert user_after("SET a = 1") == {"a": 1}
        assert user_after("SET a = 1", {"b": 2}, subject="x") == {"b": 2, "a": 1}

    def test_set_replaces_a_property_and_keeps_how_its_name_is_written(self) -> None:
        """ACT-3, SQL-2"""
        assert user_after("SET COLOR = 'blue'", {"Color": "red"}) == {"Color": "blue"}

    def test_remove_takes_a_property_away(self) -> None:
        """ACT-1"""
        assert user_after("REMOVE COLOR", {"Color": "red", "b": 1}) == {"b": 1}

    def test_removing_what_is_missing_is_no_error(self) -> None:
        """ACT-3"""
        assert user_after("REMOVE nothing", {"a": 1}) == {"a": 1}

    def test_statements_see_what_those_before_them_did(self) -> None:
        """ACT-2"""
        after = user_after("SET a = 1; SET b = a + 1; REMOVE a; SET c = a", {})
        assert after == {"b": 2}
        assert user_after("SET sys.Label = 'x'; SET l = sys.Label") == {"l": "x"}

    def test_set_from_unknown_changes_nothing(self) -> None:
        """ACT-3"""
        assert user_after("SET a = missing + 1", {"a": 5}) == {"a": 5}

    def test_set_from_null_sets_null(self) -> None:
        """ACT-3"""
        assert user_after("SET a = NULL", {"a": 5}) == {"a": None}

    @pytest.mark.parametrize(
        ("existing", "expression", "expected"),
        [
            (Int(5), "7", Int(7)),
            (Int(5), "'7'", Int(7)),
            (Short(5), "7.0", Short(7)),
            (UByte(5), "300", 300),
            (Int(5), "7.5", 7.5),
            (Int(5), "'x'", "x"),
            (Int(5), "'1_0'", "1_0"),
            (Int(5), "TRUE", True),
            (2.5, "7", 7.0),
            (Float(2.5), "'1.5'", Float(1.5)),
            (Float(2.5), "1e300", 1e300),
            ("x", "7", "7"),
            ("x", "TRUE", "True"),
            (Symbol("x"), "'y'", Symbol("y")),
            (Char("x"), "'y'", Char("y")),
            (Char("x"), "'yz'", "yz"),
            (True, "'FALSE'", False),
            (True, "1", 1),
            (UUID(int=1), "'00000000-0000-0000-0000-000000000002'", UUID(int=2)),
            (UUID(int=1), "'nonsense'", "nonsense"),
            ("x", "newid()", str(NEW_ID)),
            (Timestamp(5), "sys.EnqueuedTimeUtc", Timestamp(9)),
            (
                Described(Symbol("com.microsoft:datetime-offset"), 5),
                "sys.EnqueuedTimeUtc",
                Described(Symbol("com.microsoft:datetime-offset"), 621_355_968_000_090_000),
            ),
            (None, "7", 7),
        ],
    )
    def test_a_value_takes_the_type_that_is_there_if_it_can(
        self, existing: Any, expression: str, expected: Any
    ) -> None:
        """ACT-3"""
        after = user_after(f"SET a = {expression}", {"a": existing}, enqueued_ms=9)["a"]
        assert (after, type(after)) == (expected, type(expected))

    @pytest.mark.parametrize("value", [Int(5), Symbol("x"), [1, Int(2)], Float(0.5), ULong(9)])
    def test_a_property_that_is_only_copied_keeps_its_type(self, value: Any) -> None:
        copied = user_after("SET b = a", {"a": value})["b"]
        assert (copied, type(copied)) == (value, type(value))

    def test_no_text_can_grow_without_bound(self) -> None:
        """LIM-3"""
        with pytest.raises(RuleActionError):
            act("SET a = a + a " * 32, message({"a": "x" * 1000}))


class TestSystemProperties:
    @pytest.mark.parametrize(
        ("name", "field"),
        [
            ("Label", "subject"),
            ("Subject", "subject"),
            ("To", "to"),
            ("ReplyTo", "reply_to"),
            ("ReplyToSessionId", "reply_to_group_id"),
            ("CorrelationId", "correlation_id"),
            ("ContentType", "content_type"),
            ("MessageId", "message_id"),
            ("SessionId", "group_id"),
        ],
    )
    def test_the_settable_ones_are_set_and_removed(self, name: str, field: str) -> None:
        """ACT-4"""
        assert getattr(properties_after(f"SET sys.{name} = 'x'"), field) == "x"
        assert getattr(properties_after(f"REMOVE sys.{name}", **{field: "x"}), field) is None

    def test_the_others_keep_their_values_and_types(self) -> None:
        fields = {"message_id": ULong(5), "user_id": b"u", "group_sequence": 3, "creation_time": 9}
        after = properties_after("SET sys.Label = 'x'", **fields)
        assert {name: getattr(after, name) for name in fields} == fields
        assert type(after.message_id) is ULong

    def test_a_session_id_becomes_a_text(self) -> None:
        """ACT-4"""
        after = act("SET sys.SessionId = user.X", message({"X": Int(7)}, group_id="old"))
        assert after.session_id == "7"
        assert read_properties(after.bare).group_id == "7"

    def test_time_to_live_is_a_span(self) -> None:
        """ACT-4"""
        span = {"t": Described(Symbol("com.microsoft:timespan"), 50_000)}
        assert act("SET sys.TimeToLive = t", message(span)).ttl_ms == 5
        long = {"t": Described(Symbol("com.microsoft:timespan"), 100 * 864_000_000_000)}
        assert act("SET sys.TimeToLive = t", message(long)).ttl_ms == 100 * 86_400_000
        assert act("REMOVE sys.TimeToLive", message(ttl_ms=9)).ttl_ms is None
        with pytest.raises(RuleActionError, match="takes a TimeSpan"):
            act("SET sys.TimeToLive = 5", message())

    @pytest.mark.parametrize("text", ["SET sys.Size = 1", "REMOVE sys.EnqueuedTimeUtc"])
    def test_the_rest_cannot_be_changed(self, text: str) -> None:
        """ACT-4"""
        with pytest.raises(RuleActionError, match="cannot be changed"):
            act(text, message())

    @pytest.mark.parametrize("text", ["SET sys.Nope = 1", "REMOVE sys.Nope", "SET a = sys.Nope"])
    def test_one_that_does_not_exist_fails_the_action(self, text: str) -> None:
        """ACT-3"""
        with pytest.raises(RuleActionError, match="no system property 'Nope'") as caught:
            act(text, message())
        assert caught.value.reason == "RuleActionException"

    def test_ids_have_their_limits(self) -> None:
        """NAM-4"""
        with pytest.raises(RuleActionError, match="at most 128 characters"):
            act("SET sys.SessionId = a", message({"a": "x" * 129}))

    def test_a_list_is_no_text(self) -> None:
        with pytest.raises(RuleActionError, match="cannot be set to Object"):
            act("SET sys.Label = a", message({"a": [1]}))


class TestTheCopy:
    SENT = message({"keep": Int(5), "drop": 1}, subject="x", message_id="m", data=b"the body")

    def test_the_original_stays_as_it_is(self) -> None:
        """RUL-7"""
        before = self.SENT.bare
        act("SET keep = 6; SET sys.Label = 'y'; REMOVE drop", self.SENT)
        assert self.SENT.bare == before

    def test_body_and_other_properties_keep_their_bytes(self) -> None:
        after = act("SET new = 1; SET sys.Label = 'y'; REMOVE drop", self.SENT)
        assert body_of(after.bare) == body_of(self.SENT.bare)
        pairs = {
            name: bare[start:stop]
            for bare in (after.bare,)
            for code, _, value, end in walk_sections(bare)
            if code == 0x74
            for name, start, _, stop in walk_pairs(bare, value, end)
        }
        assert pairs[b"keep"] == b"\xa1\x04keep\x54\x05"
        assert list(pairs) == [b"keep", b"new"]

    def test_the_result_is_a_message(self) -> None:
        for sent in (self.SENT, message(), message({}), message(subject="x")):
            after = act("SET a = 1; SET sys.Label = 'l'", sent)
            sections = scan_message(after.bare)
            assert sections.bare == after.bare
            assert read_application_properties(after.bare)["a"] == 1
            assert read_properties(after.bare).subject == "l"

    def test_an_action_on_texts_only_leaves_the_properties_section_alone(self) -> None:
        after = act("SET new = 1", self.SENT)
        stop = next(stop for code, _, _, stop in walk_sections(after.bare) if code == 0x73)
        assert after.bare[:stop] == self.SENT.bare[:stop]

    def test_its_size_is_that_of_what_it_became(self) -> None:
        after = act("SET new = 'long enough to be seen'", self.SENT)
        assert after.size - self.SENT.size == len(after.bare) - len(self.SENT.bare)

    def test_what_settlements_changed_becomes_part_of_it(self) -> None:
        changes = merge_changes(None, {"Why": "because"})
        assert user_after("SET a = why", {"b": 1}, changes=changes) == {
            "b": 1,
            "Why": "because",
            "a": "because",
        }

    def test_many_properties_fit(self) -> None:
        user = {f"p{n}": "x" * 50 for n in range(200)}
        assert user_after("SET a = 1", user) == {**user, "a": 1}


@pytest.mark.parametrize(
    "given",
    [Int(7), Short(7), UByte(7), ULong(7), Float(0.5), Char("x"), Timestamp(5), "text", True],
)
def test_a_parameter_that_is_copied_keeps_its_type(given: Any) -> None:
    """ACT-3: `(int)message.ApplicationProperties["i"]` throws for a long."""
    compiler = Compiler(lambda: NEW_ID, {"@i": given})
    done = rewrite(MessageFacts(message()), Action(parse_action("SET i = @i"), compiler), {})
    found = read_application_properties(done.bare)["i"]
    assert (type(found), found) == (type(given), given)


def test_an_instant_with_more_digits_than_a_timestamp_has_is_one_in_a_message() -> None:
    ticks = 621_355_968_000_000_000 + 51_234
    compiler = Compiler(lambda: NEW_ID, {"@d": Described(Symbol("busway:utc-ticks"), ticks)})
    done = rewrite(MessageFacts(message()), Action(parse_action("SET d = @d"), compiler), {})
    found = read_application_properties(done.bare)["d"]
    assert (type(found), found) == (Timestamp, 5)
