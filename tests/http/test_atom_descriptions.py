"""Elements, their order, defaults and bounds, by api-version and tier (http.md 6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from busway.testing import Server
from tests.http.atom_client import (
    COUNTS,
    INSTANCE,
    SERVICE,
    UNLIMITED,
    Management,
    description,
    service,
)

QUEUE = {
    "LockDuration": "PT1M",
    "MaxSizeInMegabytes": "1024",
    "RequiresDuplicateDetection": "false",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": UNLIMITED,
    "DeadLetteringOnMessageExpiration": "false",
    "DuplicateDetectionHistoryTimeWindow": "PT10M",
    "MaxDeliveryCount": "10",
    "EnableBatchedOperations": "true",
    "SizeInBytes": "0",
    "MessageCount": "0",
    "IsAnonymousAccessible": "false",
    "AuthorizationRules": "",
    "Status": "Active",
    "CreatedAt": ...,
    "UpdatedAt": ...,
    "AccessedAt": "0001-01-01T00:00:00Z",
    "SupportOrdering": "true",
    "CountDetails": "",
    "AutoDeleteOnIdle": UNLIMITED,
    "EnablePartitioning": "false",
    "EntityAvailabilityStatus": "Available",
    "EnableExpress": "false",
    "MaxMessageSizeInKilobytes": "256",
}
TOPIC = {
    "DefaultMessageTimeToLive": UNLIMITED,
    "MaxSizeInMegabytes": "1024",
    "RequiresDuplicateDetection": "false",
    "DuplicateDetectionHistoryTimeWindow": "PT10M",
    "EnableBatchedOperations": "true",
    "SizeInBytes": "0",
    "FilteringMessagesBeforePublishing": "false",
    "IsAnonymousAccessible": "false",
    "AuthorizationRules": "",
    "Status": "Active",
    "CreatedAt": ...,
    "UpdatedAt": ...,
    "AccessedAt": "0001-01-01T00:00:00Z",
    "SupportOrdering": "true",
    "CountDetails": "",
    "SubscriptionCount": "0",
    "SqlFilterCount": "0",
    "CorrelationFilterCount": "0",
    "AutoDeleteOnIdle": UNLIMITED,
    "EnablePartitioning": "false",
    "EntityAvailabilityStatus": "Available",
    "EnableSubscriptionPartitioning": "false",
    "EnableExpress": "false",
    "MaxMessageSizeInKilobytes": "256",
}
SUBSCRIPTION = {
    "LockDuration": "PT1M",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": UNLIMITED,
    "DeadLetteringOnMessageExpiration": "false",
    "DeadLetteringOnFilterEvaluationExceptions": "true",
    "MessageCount": "0",
    "MaxDeliveryCount": "10",
    "EnableBatchedOperations": "true",
    "Status": "Active",
    "CreatedAt": ...,
    "UpdatedAt": ...,
    "AccessedAt": ...,
    "CountDetails": "",
    "AutoDeleteOnIdle": UNLIMITED,
    "EntityAvailabilityStatus": "Available",
    "IsClientAffine": "false",
}
ONLY_ON_GET = {
    "Queue": {"AccessedAt", "CountDetails"},
    "Topic": {
        "AccessedAt",
        "CountDetails",
        "SubscriptionCount",
        "SqlFilterCount",
        "CorrelationFilterCount",
    },
    "Subscription": {"CountDetails"},
}


def path_for(bus: Management, kind: str, name: str) -> str:
    if kind != "Subscription":
        return f"/{name}"
    bus.create("Topic", f"/{name}-topic")
    return f"/{name}-topic/Subscriptions/{name}"


@pytest.mark.parametrize(
    ("kind", "elements"),
    [("Queue", QUEUE), ("Topic", TOPIC), ("Subscription", SUBSCRIPTION)],
)
class TestElements:
    def test_come_in_order_with_their_defaults(
        self, bus: Management, kind: str, elements: dict[str, str]
    ) -> None:
        path = path_for(bus, kind, f"defaults-{kind}")
        made = bus.put(path, description(kind), api_version="2024-05")
        after_put = [name for name in elements if name not in ONLY_ON_GET[kind]]
        assert made.names == after_put
        got = bus.get(path, api_version="2024-05")
        assert got.names == list(elements)
        for name, value in elements.items():
            assert value in (..., got.text(name)), name

    def test_of_lists_are_those_of_a_get(
        self, bus: Management, kind: str, elements: dict[str, str]
    ) -> None:
        path = path_for(bus, kind, f"listed-{kind}")
        bus.create(kind, path)
        feed = f"/$Resources/{kind}s" if kind != "Subscription" else path.rpartition("/")[0]
        reply = bus.get(feed, api_version="2024-05")
        first = reply.entries[0].find(f".//{service(f'{kind}Description')}")
        assert first is not None
        assert [child.tag for child in first] == [service(name) for name in elements]

    def test_that_came_later_are_not_for_earlier_versions(
        self, bus: Management, kind: str, elements: dict[str, str]
    ) -> None:
        path = path_for(bus, kind, f"versions-{kind}")
        bus.create(kind, path)
        later = {
            "2021-05": {"SqlFilterCount", "CorrelationFilterCount"},
            "2017-04": {"MaxMessageSizeInKilobytes", "IsClientAffine"},
            "2013-08": {"EnablePartitioning"},  # P-9
        }
        hidden: set[str] = set()
        for version, names in later.items():
            hidden |= names
            shown = [name for name in elements if name not in hidden]
            assert bus.get(path, api_version=version).names == shown

    def test_have_the_prefixes_that_javascript_looks_for(
        self, bus: Management, kind: str, elements: dict[str, str]
    ) -> None:
        path = path_for(bus, kind, f"prefixes-{kind}")
        bus.create(kind, path)
        text = bus.get(path).body.decode()
        opening = f'<{kind}Description xmlns="{SERVICE}" xmlns:i="{INSTANCE}">'
        assert opening in text
        assert f'<CountDetails xmlns:d2p1="{COUNTS}"><d2p1:ActiveMessageCount>0</d2p1' in text
        assert "<AuthorizationRules />" in text or kind == "Subscription"

    def test_times_are_in_order(self, bus: Management, kind: str, elements: dict[str, str]) -> None:
        path = path_for(bus, kind, f"times-{kind}")
        made = bus.create(kind, path)
        assert made.text("CreatedAt") == made.text("UpdatedAt")
        changed = bus.update(path, description(kind, UserMetadata="later"))
        assert changed.text("CreatedAt") == made.text("CreatedAt")
        assert changed.moment("UpdatedAt") >= made.moment("UpdatedAt")
        assert "2020" < (made.text("CreatedAt") or "") < "3"


class TestValues:
    @pytest.mark.parametrize(
        ("kind", "elements"),
        [
            (
                "Queue",
                {
                    "LockDuration": "PT13S",
                    "MaxSizeInMegabytes": "3072",
                    "RequiresDuplicateDetection": "true",
                    "RequiresSession": "true",
                    "DefaultMessageTimeToLive": "PT11M2S",
                    "DeadLetteringOnMessageExpiration": "true",
                    "DuplicateDetectionHistoryTimeWindow": "PT12M3S",
                    "MaxDeliveryCount": "14",
                    "EnableBatchedOperations": "false",
                    "Status": "SendDisabled",
                    "UserMetadata": "<&> 'quoted' \"twice\" ä",
                    "AutoDeleteOnIdle": "PT10M1S",
                    "MaxMessageSizeInKilobytes": "256",
                },
            ),
            (
                "Topic",
                {
                    "DefaultMessageTimeToLive": "P1D",
                    "MaxSizeInMegabytes": "5120",
                    "DuplicateDetectionHistoryTimeWindow": "P7D",
                    "EnableBatchedOperations": "false",
                    "Status": "Disabled",
                    "UserMetadata": "x",
                    "SupportOrdering": "false",
                    "AutoDeleteOnIdle": "PT5M",
                    "EnableExpress": "true",
                },
            ),
            (
                "Subscription",
                {
                    "LockDuration": "PT5M",
                    "RequiresSession": "true",
                    "DefaultMessageTimeToLive": "PT0.5S",
                    "DeadLetteringOnMessageExpiration": "true",
                    "DeadLetteringOnFilterEvaluationExceptions": "false",
                    "MaxDeliveryCount": "2147483647",
                    "EnableBatchedOperations": "false",
                    "Status": "ReceiveDisabled",
                    "UserMetadata": "x" * 1024,
                    "AutoDeleteOnIdle": "P100D",
                },
            ),
        ],
    )
    def test_come_back_as_they_were_said(
        self, bus: Management, kind: str, elements: dict[str, str]
    ) -> None:
        path = path_for(bus, kind, f"said-{kind}")
        made = bus.create(kind, path, **elements)
        assert {name: made.text(name) for name in elements} == elements
        got = bus.get(path)
        assert {name: got.text(name) for name in elements} == elements

    @pytest.mark.parametrize(
        "text", [UNLIMITED, "P10675199DT2H48M5.477539S", "P99999999D", "p10675200d"]
    )
    def test_unlimited_survives_what_pythons_client_makes_of_it(
        self, bus: Management, text: str
    ) -> None:
        bus.put("/unlimited", description("Queue"))
        reply = bus.update(
            "/unlimited",
            description("Queue", DefaultMessageTimeToLive=text, AutoDeleteOnIdle=text),
        )
        assert reply.text("DefaultMessageTimeToLive") == UNLIMITED
        assert reply.text("AutoDeleteOnIdle") == UNLIMITED

    @pytest.mark.parametrize(
        ("kind", "name", "value"),
        [
            ("Queue", "LockDuration", "PT5M1S"),
            ("Queue", "LockDuration", UNLIMITED),
            ("Queue", "LockDuration", "1 minute"),
            ("Queue", "LockDuration", ""),
            ("Queue", "LockDuration", "P1M"),
            ("Queue", "DuplicateDetectionHistoryTimeWindow", "PT19S"),
            ("Topic", "DuplicateDetectionHistoryTimeWindow", "P7DT1S"),
            ("Queue", "AutoDeleteOnIdle", "PT4M59S"),
            ("Queue", "MaxDeliveryCount", "0"),
            ("Queue", "MaxDeliveryCount", "2147483648"),
            ("Subscription", "MaxDeliveryCount", "-1"),
            ("Queue", "MaxDeliveryCount", "ten"),
            ("Queue", "MaxSizeInMegabytes", "1000"),
            ("Queue", "MaxSizeInMegabytes", "10240"),  # of Premium
            ("Queue", "MaxSizeInMegabytes", "1e3"),
            ("Topic", "DefaultMessageTimeToLive", "PT0S"),
            ("Queue", "UserMetadata", "x" * 1025),
            ("Queue", "RequiresSession", "yes"),
            ("Queue", "Status", "Deleting"),
            ("Topic", "Status", "ReceiveDisabled"),
            ("Subscription", "Status", "SendDisabled"),
            ("Queue", "ForwardTo", "nowhere"),
            ("Queue", "ForwardDeadLetteredMessagesTo", "sb://host/nowhere"),
            ("Queue", "MaxMessageSizeInKilobytes", "1024"),
        ],
    )
    def test_out_of_bounds_are_refused(
        self, bus: Management, kind: str, name: str, value: str
    ) -> None:
        path = "/bounded" if kind != "Subscription" else path_for(bus, kind, f"b{value}")
        reply = bus.put(path, description(kind, **{name: value}))
        assert reply.status == 400
        assert reply.detail.startswith("SubCode=40000. ")
        assert name in reply.detail
        assert bus.get(path).status == 404

    def test_of_a_size_that_the_tier_fixes_can_be_sent_back(self, bus: Management) -> None:
        """Python echoes what it got, on Standard too; only older versions do not know it."""
        body = description("Queue", MaxMessageSizeInKilobytes=256)
        assert bus.put("/echoed", body).status == 201
        assert bus.update("/echoed", body).status == 200
        reply = bus.update("/echoed", body, api_version="2017-04")
        assert reply.status == 400
        assert (
            "MaxMessageSizeInKilobytes is not known before the api-version 2021-05" in reply.detail
        )

    def test_empty_texts_are_none(self, bus: Management) -> None:
        made = bus.create("Queue", "/empty", UserMetadata="", ForwardTo="")
        assert made.text("UserMetadata") is None
        assert made.text("ForwardTo") is None


class TestPartitioned:
    """P-12, P-15, http.md 6."""

    @pytest.mark.parametrize("kind", ["Queue", "Topic"])
    def test_shows_the_size_of_all_16(self, bus: Management, kind: str) -> None:
        path = f"/sixteen-{kind}"
        made = bus.create(kind, path, EnablePartitioning="true", MaxSizeInMegabytes=3072)
        assert made.text("MaxSizeInMegabytes") == "49152"
        assert made.text("SupportOrdering") == "false"
        assert made.text("EnablePartitioning") == "true"

    def test_takes_the_size_of_all_back(self, bus: Management) -> None:
        bus.create("Queue", "/not-again", EnablePartitioning="true", MaxSizeInMegabytes=2048)
        for said, shown in ((32768, "32768"), (1024, "16384"), (81920, "81920"), (5120, "81920")):
            reply = bus.update("/not-again", description("Queue", MaxSizeInMegabytes=said))
            assert reply.text("MaxSizeInMegabytes") == shown
        reply = bus.update("/not-again", description("Queue", MaxSizeInMegabytes=16000))
        assert reply.status == 400

    def test_is_not_known_before_2013_10(self, bus: Management) -> None:
        """P-9."""
        body = description("Queue", EnablePartitioning="true")
        old = bus.put("/unknowing", body, api_version="2013-08")
        assert old.status == 201
        assert bus.get("/unknowing").text("EnablePartitioning") == "false"

    def test_is_kept_by_an_update_that_does_not_know_it(self, bus: Management) -> None:
        """P-9, P-10."""
        bus.create("Queue", "/kept", EnablePartitioning="true")
        body = description("Queue", EnablePartitioning="false", MaxDeliveryCount=3)
        assert bus.update("/kept", body, api_version="2013-08").status == 200
        got = bus.get("/kept")
        assert (got.text("EnablePartitioning"), got.text("MaxDeliveryCount")) == ("true", "3")

    def test_100_are_enough(self, tmp_path: Path) -> None:
        """P-16: a clear quota error, and nothing is created."""
        with Server(partitioned=[f"p{number}" for number in range(100)]) as server:
            bus = Management(server)
            reply = bus.put("/one-more", description("Topic", EnablePartitioning="true"))
            assert reply.status == 403
            assert "maximum of 100 partitioned queues and topics" in reply.detail
            assert "SubCode=40300" in reply.detail
            assert bus.get("/one-more").status == 404
            assert bus.put("/one-more", description("Topic")).status == 201
            bus.close()


class TestForwards:
    def test_are_addresses_in_and_out(self, bus: Management) -> None:
        bus.create("Queue", "/forward-target")
        for said in (
            f"sb://{bus.authority}/forward-target",
            "forward-target",
            "https://other.example:99/forward-target?x=y",
        ):
            body = description("Queue", ForwardTo=said, ForwardDeadLetteredMessagesTo=said)
            bus.delete("/forwarding")
            made = bus.put("/forwarding", body)
            assert made.text("ForwardTo") == f"sb://{bus.authority}/forward-target"
            assert made.text("ForwardDeadLetteredMessagesTo") == made.text("ForwardTo")
        shouted = f"SB://{bus.authority}/FORWARD-TARGET".upper()
        changed = bus.update("/forwarding", description("Queue", ForwardTo=shouted))
        assert changed.text("ForwardTo") == f"sb://{bus.authority}/FORWARD-TARGET"
        cleared = bus.update("/forwarding", description("Queue"))
        assert cleared.text("ForwardTo") is None
        assert cleared.text("ForwardDeadLetteredMessagesTo") is None

    def test_stay_in_their_place(self, bus: Management) -> None:
        bus.create("Queue", "/placed")
        forwards = {"ForwardTo": "placed", "ForwardDeadLetteredMessagesTo": "placed"}
        queue = bus.create("Queue", "/placing", UserMetadata="m", **forwards).names
        assert queue[queue.index("Status") + 1 :][:2] == ["ForwardTo", "UserMetadata"]
        assert queue[queue.index("EnableExpress") + 1] == "ForwardDeadLetteredMessagesTo"
        path = path_for(bus, "Subscription", "placing")
        names = bus.create("Subscription", path, UserMetadata="m", **forwards).names
        assert names[names.index("Status") + 1] == "ForwardTo"
        after = names[names.index("UserMetadata") :][:3]
        assert after == ["UserMetadata", "ForwardDeadLetteredMessagesTo", "AutoDeleteOnIdle"]


@pytest.fixture(scope="module")
def premium() -> Iterator[Management]:
    with Server(arguments=["--tier", "premium", "--namespace-partitions", "2"]) as server:
        client = Management(server)
        yield client
        client.close()


class TestPremium:
    """P-13, P-14."""

    def test_is_told_of_the_namespace(self, premium: Management) -> None:
        reply = premium.get("/$namespaceinfo")
        assert (reply.text("MessagingSKU"), reply.text("MessagingUnits")) == ("Premium", "2")
        assert reply.names.index("MessagingUnits") == 2

    def test_partitions_all_that_do_not_say_otherwise(self, premium: Management) -> None:
        made = premium.create("Queue", "/all")
        assert made.text("EnablePartitioning") == "true"
        assert made.text("MaxSizeInMegabytes") == "2048"
        refused = premium.put("/none", description("Queue", EnablePartitioning="false"))
        assert refused.status == 400
        assert "Non-partitioned entities are not allowed in partitioned namespace" in refused.detail

    def test_sizes_are_not_multiplied_again(self, premium: Management) -> None:
        """2048 is a size, and what 1024 for each of two looks like."""
        premium.create("Queue", "/twice")
        body = description("Queue", MaxSizeInMegabytes=2048)
        assert premium.update("/twice", body).text("MaxSizeInMegabytes") == "2048"
        body = description("Queue", MaxSizeInMegabytes=4096)
        assert premium.update("/twice", body).text("MaxSizeInMegabytes") == "8192"

    def test_messages_may_be_large(self, premium: Management) -> None:
        made = premium.create("Queue", "/large")
        assert made.text("MaxMessageSizeInKilobytes") == "1024"
        size = {"MaxMessageSizeInKilobytes": 54321}
        changed = premium.update("/large", description("Queue", **size))
        assert changed.text("MaxMessageSizeInKilobytes") == "54321"
        for wrong in (1023, 102401):
            body = description("Queue", MaxMessageSizeInKilobytes=wrong)
            assert premium.put("/too-large", body).status == 400
        kept = premium.update("/large", description("Queue"), api_version="2017-04")
        assert kept.status == 200
        assert premium.get("/large").text("MaxMessageSizeInKilobytes") == "54321"


def test_premium_of_one_partition_refuses_what_says_that_it_is_partitioned() -> None:
    """P-14, N-16."""
    with Server(arguments=["--tier", "premium", "--namespace-partitions", "1"]) as server:
        bus = Management(server)
        for kind in ("Queue", "Topic"):
            refused = bus.put("/never", description(kind, EnablePartitioning="true"))
            assert refused.status == 400
            assert "EnablePartitioning must be set to false, or left out" in refused.detail
            made = bus.put(f"/{kind}", description(kind, EnablePartitioning="false"))
            assert made.text("EnablePartitioning") == "false"
        assert bus.put("/open", description("Queue")).text("EnablePartitioning") == "false"
        bus.close()


def test_the_basic_tier_has_queues_only() -> None:
    with Server(arguments=["--tier", "basic"]) as server:
        bus = Management(server)
        assert bus.put("/q", description("Queue")).status == 201
        refused = bus.put("/t", description("Topic"))
        assert refused.status == 400
        assert "the tier Basic has no topics" in refused.detail
        assert bus.put("/s", description("Queue", RequiresSession="true")).status == 400
        bus.close()


def test_what_is_written_can_be_read_by_any_reader(bus: Management) -> None:
    """A text never becomes markup, whatever is in it."""
    nasty = "]]></UserMetadata><x a='\"'/>&amp;"
    reply = bus.create("Queue", "/nasty", UserMetadata=nasty)
    assert ElementTree.fromstring(reply.body).tag.endswith("entry")
    assert reply.text("UserMetadata") == nasty
