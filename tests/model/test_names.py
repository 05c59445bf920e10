"""Names and addresses (NAM, amqp.md sections 5 and 6, D-34)."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.model.errors import NAME_INVALID, NOT_FOUND, BusError
from busway.model.names import (
    CBS_ADDRESS,
    NAMESPACE_NAME,
    QUEUE_NAME,
    RULE_NAME,
    SUBSCRIPTION_NAME,
    TOPIC_NAME,
    Address,
    NameRule,
    SubQueueKind,
    audience_key,
    check_name,
    name_key,
    parse_address,
    resource_path,
    scope_covers,
)

DEAD_LETTER = SubQueueKind.DEAD_LETTER
TRANSFER_DEAD_LETTER = SubQueueKind.TRANSFER_DEAD_LETTER

segment = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9_-])?", fullmatch=True)
path = (
    st.lists(segment, min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda text: "subscriptions" not in text.lower().split("/"))
)
addresses = st.builds(
    Address, path, st.none() | segment, st.sampled_from(SubQueueKind), st.booleans()
)


def refusal_of(attempt: Callable[[], object]) -> BusError | None:
    try:
        attempt()
    except BusError as error:
        return error
    return None


class TestNames:
    @pytest.mark.parametrize(
        ("rule", "name"),
        [
            (QUEUE_NAME, "a"),
            (QUEUE_NAME, "Orders.eu-west_1"),
            (QUEUE_NAME, "txt/.-_123"),
            (QUEUE_NAME, "q" * 260),
            (QUEUE_NAME, "subscriptions"),
            (TOPIC_NAME, "news/europe"),
            (TOPIC_NAME, "MassTransit/Fault--Orders/OrderPaid--"),
            (TOPIC_NAME, "PingMessage__"),
            (SUBSCRIPTION_NAME, "s-"),
            (RULE_NAME, "r_"),
            (SUBSCRIPTION_NAME, "s" * 50),
            (RULE_NAME, "$Default"),
            (RULE_NAME, "$default"),
            (NAMESPACE_NAME, "busway"),
        ],
    )
    def test_legal(self, rule: NameRule, name: str) -> None:
        check_name(rule, name)

    @pytest.mark.parametrize(
        ("rule", "name", "reason"),
        [
            (QUEUE_NAME, "", "it is empty"),
            (QUEUE_NAME, "q" * 261, "it has 261 characters and at most 260 are allowed"),
            (QUEUE_NAME, "a b", "it contains ' ' and only letters, digits"),
            (QUEUE_NAME, "größe", "it contains 'ö' and only"),
            (QUEUE_NAME, "$Default", r"it contains '\$' and only"),
            (QUEUE_NAME, "-a", "it must start with a letter or a digit"),
            (QUEUE_NAME, "_a", "it must start with a letter or a digit"),
            (QUEUE_NAME, "a/", "it must end with a letter, a digit, '-' or '_'"),
            (QUEUE_NAME, "a.", "it must end with a letter, a digit, '-' or '_'"),
            (NAMESPACE_NAME, "a-", "it must end with a letter or a digit"),
            (QUEUE_NAME, "a//b", "it contains an empty part"),
            (QUEUE_NAME, "a/Subscriptions/b", "the part 'Subscriptions' is reserved"),
            (SUBSCRIPTION_NAME, "a/b", "it contains '/' and only"),
            (SUBSCRIPTION_NAME, "s" * 51, "at most 50"),
            (RULE_NAME, "r\n", "it contains '\\\\n' and only"),
        ],
    )
    def test_illegal_and_why(self, rule: NameRule, name: str, reason: str) -> None:
        with pytest.raises(BusError, match=reason) as raised:
            check_name(rule, name)
        assert raised.value.kind is NAME_INVALID

    def test_a_name_is_the_same_in_upper_and_lower_case(self) -> None:
        assert name_key("Orders/EU") == name_key("orders/eu")

    @given(path)
    def test_every_path_of_the_pattern_is_legal_and_is_its_own_address(self, name: str) -> None:
        check_name(QUEUE_NAME, name)
        assert parse_address(name) == Address(name)

    @given(st.text(max_size=300))
    def test_any_text_is_legal_or_refused_with_a_reason(self, name: str) -> None:
        refusal = refusal_of(lambda: check_name(QUEUE_NAME, name))
        assert refusal is None or refusal.kind is NAME_INVALID


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "address"),
        [
            # Python, JS and Java and Go, .NET
            ("amqps://ns.servicebus.windows.net/orders", Address("orders")),
            ("amqps://localhost:5673/orders", Address("orders")),
            ("orders", Address("orders")),
            ("/orders", Address("orders")),
            ("orders/", Address("orders")),
            ("/eu%2Forders", Address("eu/orders")),
            ("sb://ns/orders?api-version=2021-05", Address("orders")),
            ("a/b/c", Address("a/b/c")),
            ("orders/$management", Address("orders", management=True)),
            ("orders/$MANAGEMENT", Address("orders", management=True)),
            ("orders/$DeadLetterQueue", Address("orders", None, DEAD_LETTER)),
            ("ORDERS/$deadletterqueue", Address("ORDERS", None, DEAD_LETTER)),
            ("/orders/%24DeadLetterQueue", Address("orders", None, DEAD_LETTER)),
            ("orders/$DeadLetterQueue/$management", Address("orders", None, DEAD_LETTER, True)),
            ("orders/$Transfer/$DeadLetterQueue", Address("orders", None, TRANSFER_DEAD_LETTER)),
            ("news/Subscriptions/all", Address("news", "all")),
            ("eu/news/subscriptions/all", Address("eu/news", "all")),
            ("news/SUBSCRIPTIONS/all/$DeadLetterQueue", Address("news", "all", DEAD_LETTER)),
            ("news/Subscriptions/all/$management", Address("news", "all", management=True)),
            ("$cbs", CBS_ADDRESS),
            ("amqps://ns/$CBS", CBS_ADDRESS),
            ("$management", Address("", management=True)),
            ("subscriptions/x", Address("subscriptions/x")),
        ],
    )
    def test_forms_on_the_wire(self, text: str, address: Address) -> None:
        assert parse_address(text) == address

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "/",
            "amqps://ns",
            "a//b",
            "$DeadLetterQueue",
            "orders/$unknown",
            "orders/$DeadLetterQueue/$DeadLetterQueue",
            "orders/$DeadLetterQueue/x",
            "orders/$cbs",
            "orders/$management/$management",
        ],
    )
    def test_what_cannot_be_an_address_is_not_found(self, text: str) -> None:
        with pytest.raises(BusError) as raised:
            parse_address(text)
        assert raised.value.kind is NOT_FOUND

    @given(addresses)
    def test_every_form_means_the_same_node(self, address: Address) -> None:
        text = str(address)
        for form in (
            text,
            f"/{text}",
            f"amqps://ns.example:5671/{text}",
            f"sb://ns/{quote(text, safe='')}",
        ):
            assert parse_address(form) == address

    @given(addresses)
    def test_case_does_not_matter(self, address: Address) -> None:
        assert parse_address(str(address).upper()).key == address.key

    @given(st.text(max_size=80))
    def test_any_text_is_an_address_or_not_found(self, text: str) -> None:
        refusal = refusal_of(lambda: parse_address(text))
        assert refusal is None or refusal.kind is NOT_FOUND

    def test_parts(self) -> None:
        address = parse_address("news/subscriptions/all/$deadletterqueue/$management")
        assert address.entity == "news/Subscriptions/all"
        assert address.node == "news/Subscriptions/all/$DeadLetterQueue"
        assert str(address) == "news/Subscriptions/all/$DeadLetterQueue/$management"


class TestAudiences:
    @pytest.mark.parametrize(
        "text",
        [
            "sb://ns.servicebus.windows.net/Orders",
            "sb://localhost:5673/orders",
            "amqp://ns/orders/",
            "amqps://ns/orders/$management",
            "sb://ns/ord%65rs",
            "https://ns/orders?api-version=2021-05",
            "orders",
        ],
    )
    def test_have_one_form(self, text: str) -> None:
        assert audience_key(text) == "orders"

    @pytest.mark.parametrize("text", ["sb://ns", "sb://ns/", "amqps://ns:5671", "$management"])
    def test_of_the_whole_namespace_are_empty(self, text: str) -> None:
        assert audience_key(text) == ""

    @pytest.mark.parametrize(
        ("scope", "resource", "covered"),
        [
            ("", "orders", True),
            ("orders", "orders", True),
            ("orders", "orders/$deadletterqueue", True),
            ("orders", "orders2", False),
            ("orders/eu", "orders", False),
        ],
    )
    def test_cover_what_is_below_them(self, scope: str, resource: str, covered: bool) -> None:
        assert scope_covers(scope, resource) is covered

    def test_the_case_of_a_path_is_kept_until_it_is_compared(self) -> None:
        assert resource_path("sb://NS/Orders") == "Orders"
