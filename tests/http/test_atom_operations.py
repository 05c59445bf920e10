"""Every operation of management and how it fails (http.md 2, 4 and 5)."""

from __future__ import annotations

import re

import pytest

from tests.http.atom_client import (
    Management,
    Reply,
    atom,
    description,
    entry,
    token,
)

QUEUE = description("Queue")
TOPIC = description("Topic")
SUBSCRIPTION = description("Subscription")
RULE = description("Rule")


def subscribed(bus: Management, topic: str) -> str:
    bus.create("Topic", f"/{topic}")
    bus.create("Subscription", f"/{topic}/Subscriptions/s")
    return f"/{topic}/Subscriptions/s"


class TestCreating:
    @pytest.mark.parametrize("kind", ["Queue", "Topic"])
    def test_is_told_with_201_and_the_entry(self, bus: Management, kind: str) -> None:
        reply = bus.put(f"/new-{kind}", description(kind))
        assert reply.status == 201
        assert reply.headers["content-type"] == "application/atom+xml;type=entry;charset=utf-8"
        assert "etag" not in reply.headers
        assert [child.tag for child in reply.root] == [
            atom(name)
            for name in ("id", "title", "published", "updated", "author", "link", "content")
        ]
        assert reply.root.findtext(f"{atom('author')}/{atom('name')}") == "busway"
        assert reply.content.tag.endswith(f"{kind}Description")

    def test_of_a_subscription_and_a_rule(self, bus: Management) -> None:
        bus.create("Topic", "/parent")
        made = bus.create("Subscription", "/parent/Subscriptions/child")
        assert made.root.find(atom("author")) is None
        assert made.root.findtext(atom("title")) == "child"
        rule = bus.create("Rule", "/parent/Subscriptions/child/Rules/grandchild")
        assert rule.root.findtext(atom("title")) == "grandchild"

    def test_what_is_there_is_a_conflict(self, bus: Management) -> None:
        path = subscribed(bus, "taken")
        for again, body in (
            ("/taken", TOPIC),
            ("/TAKEN", QUEUE),  # NAM-2: one name space, in any case
            (path, SUBSCRIPTION),
            (f"{path}/rules/$default", RULE),
        ):
            reply = bus.put(again, body)
            assert reply.status == 409
            assert reply.detail.startswith("SubCode=40900. The messaging entity '")
            assert "etag" in reply.headers

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/nowhere/Subscriptions/s", SUBSCRIPTION),
            ("/nowhere/Subscriptions/s/Rules/r", RULE),
        ],
    )
    def test_needs_its_parent(self, bus: Management, path: str, body: bytes) -> None:
        reply = bus.put(path, body)
        assert (reply.status, reply.detail[:14]) == (404, "SubCode=40400.")

    def test_a_queue_has_no_subscriptions(self, bus: Management) -> None:
        bus.create("Queue", "/no-topic")
        assert bus.put("/no-topic/Subscriptions/s", SUBSCRIPTION).status == 404
        assert bus.get("/no-topic/Subscriptions").status == 404

    @pytest.mark.parametrize(
        "name", ["%20", "a$b", "x" * 261, "-a", "%C3%A4", "a?b".replace("?", "%3F")]
    )
    def test_needs_a_name_that_can_be(self, bus: Management, name: str) -> None:
        """NAM-1."""
        reply = bus.put(f"/{name}", QUEUE)
        assert reply.status == 400
        assert "is not a valid queue name" in reply.detail

    @pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH"])
    def test_without_a_name_is_refused(self, bus: Management, method: str) -> None:
        reply = bus.request(method, "/", QUEUE if method == "PUT" else None)
        assert reply.status == 405
        assert reply.headers["allow"] == "GET"
        assert method in reply.detail

    def test_names_may_have_slashes(self, bus: Management) -> None:
        """As Python sends them, and as JavaScript does."""
        bus.create("Queue", "/deep%2F.-_1")
        assert bus.get("/deep/.-_1").root.findtext(atom("title")) == "deep/.-_1"
        assert bus.put("/deep/.-_1", QUEUE).status == 409

    def test_a_sub_queue_has_no_description(self, bus: Management) -> None:
        bus.create("Queue", "/with-dead-letters")
        subscription = subscribed(bus, "topic-with-dead-letters")
        for entity in ("/with-dead-letters", subscription):
            for part in ("$DeadLetterQueue", "$Transfer/$DeadLetterQueue"):
                reply = bus.get(f"{entity}/{part}")
                assert reply.status == 400
                assert f"{entity[1:]}/{part}' is a part of an entity" in reply.detail
                assert bus.put(f"{entity}/{part}", SUBSCRIPTION).status == 400
                assert bus.delete(f"{entity}/{part}").status == 404
        assert bus.get(f"{subscription}/Rules/$Missing").status == 404

    def test_a_new_subscription_is_use_of_its_topic(self, bus: Management) -> None:
        made = bus.create("Topic", "/accessed")
        bus.create("Subscription", "/accessed/Subscriptions/s")
        assert bus.get("/accessed").moment("AccessedAt") >= made.moment("UpdatedAt")

    @pytest.mark.parametrize("partitioned", ["false", "true"])
    def test_names_may_end_as_those_of_mass_transit_do(
        self, bus: Management, partitioned: str
    ) -> None:
        """NAM-1: it makes such a topic, with a subscription, when a consumer throws."""
        topic = f"/Fault--{partitioned}/OrderPaid--"
        bus.create("Topic", topic, EnablePartitioning=partitioned)
        bus.create("Subscription", f"{topic}/Subscriptions/errors__")
        assert bus.get(topic).root.findtext(atom("title")) == topic[1:]
        assert bus.get(f"{topic}/Subscriptions/errors__").status == 200


class TestUpdating:
    def test_is_told_with_200_and_the_entry(self, bus: Management) -> None:
        bus.create("Queue", "/changing")
        reply = bus.update("/changing", description("Queue", MaxDeliveryCount=3))
        assert (reply.status, reply.text("MaxDeliveryCount")) == (200, "3")
        assert reply.headers["etag"] == bus.get("/changing").headers["etag"]

    def test_replaces_the_whole_description(self, bus: Management) -> None:
        bus.create("Queue", "/whole", MaxDeliveryCount=3, UserMetadata="mine", LockDuration="PT30S")
        reply = bus.update("/whole", description("Queue", LockDuration="PT20S"))
        assert reply.text("LockDuration") == "PT20S"
        assert reply.text("MaxDeliveryCount") == "10"
        assert reply.text("UserMetadata") is None

    def test_keeps_the_name_as_first_written(self, bus: Management) -> None:
        """NAM-2; the id repeats the path of the request."""
        bus.create("Queue", "/CamelCase")
        reply = bus.update("/camelcase", QUEUE)
        assert reply.root.findtext(atom("title")) == "CamelCase"
        assert (reply.root.findtext(atom("id")) or "").endswith("/camelcase")

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/gone", QUEUE),
            ("/gone", TOPIC),
            ("/gone/Subscriptions/s", SUBSCRIPTION),
            ("/gone/Subscriptions/s/Rules/r", RULE),
        ],
    )
    def test_what_is_missing_is_not_found(self, bus: Management, path: str, body: bytes) -> None:
        reply = bus.update(path, body)
        assert (reply.status, reply.detail[:14]) == (404, "SubCode=40400.")
        assert f"{path}' could not be found" in reply.detail

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("RequiresSession", "Queue"),
            ("RequiresSession", "Subscription"),
            ("RequiresDuplicateDetection", "Queue"),
            ("RequiresDuplicateDetection", "Topic"),
            ("EnablePartitioning", "Queue"),
            ("EnablePartitioning", "Topic"),
        ],
    )
    def test_cannot_change_what_is_fixed(self, bus: Management, name: str, kind: str) -> None:
        """P-10, SES-1, DUP-1. What is not said again stays."""
        path = f"/fixed-{name}-{kind}"
        if kind == "Subscription":
            bus.create("Topic", path)
            path += "/Subscriptions/s"
        bus.create(kind, path, **{name: "true"})
        reply = bus.update(path, description(kind, **{name: "false"}))
        assert reply.status == 400
        assert f"{name} of the {kind.lower()}" in reply.detail
        assert "cannot be changed to false" in reply.detail
        assert bus.update(path, description(kind, Status="Disabled")).text(name) == "true"
        assert bus.get(path).text("Status") == "Disabled"

    def test_a_queue_does_not_become_a_topic(self, bus: Management) -> None:
        bus.create("Queue", "/steady")
        assert bus.update("/steady", TOPIC).status == 400
        assert bus.get("/steady").content.tag.endswith("QueueDescription")


class TestIfMatch:
    def test_compares_with_the_etag(self, bus: Management) -> None:
        bus.create("Queue", "/versions")
        first = bus.get("/versions").headers["etag"]
        assert re.fullmatch(r"6\d{17}", first)  # ticks since the year 1
        second = bus.update("/versions", QUEUE, headers={"If-Match": first}).headers["etag"]
        assert int(second) > int(first)
        stale = bus.update("/versions", QUEUE, headers={"If-Match": f'"{first}"'})
        assert (stale.status, stale.headers["etag"]) == (412, second)
        assert stale.detail.startswith("SubCode=41200. If-Match names another version")
        assert bus.delete("/versions", headers={"If-Match": first}).status == 412
        assert bus.delete("/versions", headers={"If-Match": second}).status == 200

    def test_of_a_rule_sees_every_change(self, bus: Management) -> None:
        rule = f"{subscribed(bus, 'rule-versions')}/Rules/$Default"
        first = bus.get(rule).headers["etag"]
        assert bus.update(rule, RULE, headers={"If-Match": first}).status == 200
        assert bus.update(rule, RULE, headers={"If-Match": first}).status == 412

    def test_needs_something_to_compare_with(self, bus: Management) -> None:
        assert bus.update("/never-was", QUEUE, headers={"If-Match": "1"}).status == 404


class TestGetting:
    def test_gives_the_entry_with_the_path_as_requested(self, bus: Management) -> None:
        """JavaScript cuts names out of it, upper and lower case too."""
        path = subscribed(bus, "Exact")
        for asked in (path, path.replace("Subscriptions", "subscriptions"), path.lower()):
            reply = bus.get(asked)
            assert reply.status == 200
            assert reply.root.findtext(atom("id")) == f"http://{bus.authority}{asked}"
            assert reply.links == {"self": f"http://{bus.authority}{asked}"}
            assert reply.root.findtext(atom("title")) == "s"

    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    def test_what_is_missing_is_not_found(self, bus: Management, method: str) -> None:
        path = subscribed(bus, f"there-{method}")
        for missing in (
            "/not-there",
            "/not-there/Subscriptions/s",
            "/not-there/Subscriptions/s/Rules/r",
            path.replace("/s", "/other"),
            f"{path}/Rules/other",
        ):
            reply = bus.request(method, missing)
            assert (reply.status, reply.detail[:14]) == (404, "SubCode=40400."), missing

    @pytest.mark.parametrize(
        "user_agent",
        [
            "azsdk-net-Messaging.ServiceBus/7.20.1 (.NET 9.0.5; Linux)",
            "my-app azsdk-js-serviceBus/7.9.5 core-rest-pipeline/1.22.2 Node/20.19.2",
        ],
    )
    def test_an_azure_sdk_is_told_of_a_missing_queue_as_by_the_service(
        self, bus: Management, user_agent: str
    ) -> None:
        """N-15: a feed without an entry. For what is below a topic the service has a 404, too."""
        path, said = subscribed(bus, f"sdk-{len(user_agent)}"), {"User-Agent": user_agent}
        reply = bus.request("GET", "/not-there", headers=said)
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/atom+xml;type=feed;charset=utf-8"
        assert (reply.root.tag, reply.entries) == (atom("feed"), [])
        for missing in ("/not-there/Subscriptions/s", f"{path}/Rules/other"):
            assert bus.request("GET", missing, headers=said).status == 404
        assert bus.request("DELETE", "/not-there", headers=said).status == 404
        assert bus.request("GET", f"{path}/$DeadLetterQueue", headers=said).status == 400

    @pytest.mark.parametrize(
        "path", ["/not-there/Subscriptions", "/not-there/Subscriptions/s/Rules"]
    )
    def test_lists_of_what_is_missing_are_not_found(self, bus: Management, path: str) -> None:
        assert bus.get(path).status == 404

    def test_without_a_name_gives_a_feed_without_entries(self, bus: Management) -> None:
        """Python makes *not found* of it."""
        reply = bus.get("/")
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/atom+xml;type=feed;charset=utf-8"
        assert reply.root.findtext(atom("title")) == "Publicly Listed Services"
        assert reply.entries == []

    def test_a_topic_by_a_name_that_a_client_takes_for_a_queue(self, bus: Management) -> None:
        bus.create("Topic", "/topic-it-is")
        assert bus.get("/topic-it-is").content.tag.endswith("TopicDescription")

    def test_the_namespace(self, bus: Management) -> None:
        reply = bus.get("/$namespaceinfo")
        assert reply.status == 200
        assert reply.root.findtext(atom("title")) == "busway"
        names = ["CreatedTime", "MessagingSKU", "ModifiedTime", "Name", "NamespaceType"]
        assert reply.names == names
        assert [reply.text(name) for name in names[1::2]] == ["Standard", "busway"]
        assert reply.text("NamespaceType") == "Messaging"
        assert (reply.text("CreatedTime") or "") > "2020"


class TestDeleting:
    def test_is_told_with_an_empty_200(self, bus: Management) -> None:
        bus.create("Queue", "/short-lived")
        etag = bus.get("/short-lived").headers["etag"]
        reply = bus.delete("/short-lived")
        assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "0")
        assert reply.headers["etag"] == etag
        assert bus.get("/short-lived").status == 404

    def test_takes_what_is_below_with_it(self, bus: Management) -> None:
        """STA-4. A topic that is made again has none of it."""
        path = subscribed(bus, "with-all")
        assert bus.delete("/with-all").status == 200
        assert bus.get(path).status == 404
        bus.create("Topic", "/with-all")
        assert bus.get("/with-all/Subscriptions").titles == []

    def test_the_default_rule_is_one_like_others(self, bus: Management) -> None:
        """RUL-1."""
        path = subscribed(bus, "ruleless")
        assert bus.delete(f"{path}/Rules/$Default").status == 200
        assert bus.get(f"{path}/Rules").titles == []


class TestListing:
    def test_comes_in_pages_by_name(self, bus: Management) -> None:
        names = [f"Page-{number:02d}" for number in range(7)]
        bus.create("Topic", "/pages")
        for name in reversed(names):
            bus.create("Subscription", f"/pages/Subscriptions/{name}")
        bus.create("Subscription", "/pages/Subscriptions/apple")
        assert bus.pages("/pages/Subscriptions", top=3) == [
            ["apple", *names[:2]],
            names[2:5],
            names[5:],
        ]

    def test_a_page_says_where_the_next_one_is(self, bus: Management) -> None:
        """Python takes the second of exactly two links, and reads both numbers from it."""
        path = subscribed(bus, "two-links")
        bus.create("Subscription", "/two-links/Subscriptions/t")
        feed = "/two-links/Subscriptions"
        reply = bus.get(f"{feed}?$skip=0&$top=1", api_version="2017-04")
        assert [child.tag for child in reply.root] == [
            atom(name) for name in ("title", "id", "updated", "link", "link", "entry")
        ]
        address = f"http://{bus.authority}{feed}"
        assert list(reply.links.items()) == [
            ("self", address),
            ("next", f"{address}?$skip=1&$top=1&api-version=2017-04"),
        ]
        last = bus.get(f"{feed}?$skip=1&$top=1")
        assert list(last.links) == ["self"]
        assert last.entries[0].findtext(atom("id")) == f"http://{bus.authority}{path[:-1]}t"

    def test_titles_and_ids_of_all_kinds(self, bus: Management) -> None:
        path = subscribed(bus, "kinds/topic")
        bus.create("Queue", "/kinds/queue")
        for feed, title, name, address in (
            ("/$Resources/queues", "Queues", "kinds/queue", "/kinds/queue"),
            ("/$Resources/Topics", "Topics", "kinds/topic", "/kinds/topic"),
            ("/kinds/topic/Subscriptions/", "Subscriptions", "s", path),
            (f"{path}/Rules", "Rules", "$Default", f"{path}/Rules/$Default"),
        ):
            reply = bus.get(feed)
            assert reply.headers["content-type"] == "application/atom+xml;type=feed;charset=utf-8"
            assert reply.root.findtext(atom("title")) == title
            found = next(each for each in reply.entries if each.findtext(atom("title")) == name)
            assert found.findtext(atom("id")) == f"http://{bus.authority}{address}"

    @pytest.mark.parametrize("query", ["$skip=-1", "$top=-1", "$skip=x", "$top=1.5", "$top=%C2%B2"])
    def test_numbers_that_are_none_are_refused(self, bus: Management, query: str) -> None:
        reply = bus.get(f"/$Resources/queues?{query}")
        assert reply.status == 400
        assert "must be a whole number" in reply.detail

    @pytest.mark.parametrize("query", ["$top=0", "$skip=1000000000"])
    def test_pages_may_be_empty(self, bus: Management, query: str) -> None:
        bus.put("/some-queue", QUEUE)
        reply = bus.get(f"/$Resources/queues?{query}")
        assert (reply.status, reply.entries, list(reply.links)) == (200, [], ["self"])

    def test_100_without_a_number_and_as_many_as_asked_for(self, bus: Management) -> None:
        path = subscribed(bus, "many")
        for number in range(100):
            bus.create("Rule", f"{path}/Rules/r{number:03d}")
        assert len(bus.get(f"{path}/Rules").entries) == 100
        assert len(bus.get(f"{path}/Rules?$top=250").entries) == 101
        assert len(bus.get(f"{path}/Rules?$skip=100").entries) == 1


class TestRequests:
    def test_need_a_token(self, bus: Management) -> None:
        for authorization in ("", "Bearer abc", "nonsense", token("https://x", "another key")):
            reply = bus.get("/$Resources/queues", headers={"Authorization": authorization})
            assert reply.status == 401
            assert reply.detail.startswith("SubCode=401")

    @pytest.mark.parametrize("path", ["/orders", "/$Resources/queues", "/$namespaceinfo", "/"])
    @pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS", "HEAD"])
    def test_of_other_methods_are_refused(self, bus: Management, method: str, path: str) -> None:
        reply = bus.request(method, path)
        assert reply.status == 405
        assert "GET" in reply.headers["allow"]

    def test_of_an_unknown_version_hear_which_are_known(self, bus: Management) -> None:
        reply = bus.get("/$namespaceinfo", api_version="2099-01")
        assert reply.status == 400
        assert "'2099-01' is not known. Known are 2013-07" in reply.detail
        assert "2024-05" in reply.detail

    @pytest.mark.parametrize(
        "version", [None, "2013-07", "2014-09", "2017-04", "2021-05", "2024-05"]
    )
    def test_of_known_versions_are_served(self, bus: Management, version: str | None) -> None:
        assert bus.get("/$namespaceinfo", api_version=version).status == 200

    def test_get_their_id_back(self, bus: Management) -> None:
        for path in ("/$namespaceinfo", "/not-there"):
            reply = bus.get(path, headers={"x-ms-client-request-id": "mine-17"})
            assert reply.headers["x-ms-client-request-id"] == "mine-17"

    def test_hear_of_errors_as_the_service_words_them(self, bus: Management) -> None:
        detail = bus.get("/not-there").detail
        assert re.fullmatch(
            r"SubCode=40400\. The messaging entity 'sb://\S+/not-there' could not be found\. .+ "
            r"TrackingId:[0-9a-f-]{36}_G\d+, SystemTracker:\S+:not-there, "
            r"Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
            detail,
        )


class TestBodies:
    def refused(self, bus: Management, body: bytes) -> str:
        reply: Reply = bus.put("/from-a-strange-body", body)
        assert reply.status == 400
        return reply.detail

    def test_must_be_xml(self, bus: Management) -> None:
        assert "has no body" in self.refused(bus, b"")
        assert "is not XML" in self.refused(bus, b"{}")
        assert "is not XML" in self.refused(bus, QUEUE[:-10])
        assert "is not XML" in self.refused(bus, b'<?xml version="1.0" encoding="klingon"?><a/>')

    def test_must_be_an_entry_with_one_description(self, bus: Management) -> None:
        assert "is not an Atom entry" in self.refused(bus, b"<entry/>")
        assert "0 elements" in self.refused(bus, entry(""))
        assert "2 elements" in self.refused(bus, entry("<a/><b/>"))
        assert "must be QueueDescription or Topic" in self.refused(bus, SUBSCRIPTION)
        assert "must be QueueDescription" in self.refused(bus, entry("<QueueDescription/>"))

    def test_are_not_repeated_at_length(self, bus: Management) -> None:
        name = "x" * 100_000
        detail = self.refused(bus, f"<{name}/>".encode())
        assert len(detail) < 1_000
        assert "xxx..." in detail

    def test_may_have_any_order_and_more_than_is_known(self, bus: Management) -> None:
        """Python's own order differs from the service's; it sends read-only elements back."""
        inner = "<MessageCount>7</MessageCount><x:Strange xmlns:x='urn:x'><y/></x:Strange><Odd/>"
        body = description("Queue", inner, MaxDeliveryCount=4, LockDuration="PT7S")
        reply = bus.put("/any-order", body)
        assert (reply.text("LockDuration"), reply.text("MessageCount")) == ("PT7S", "0")

    def test_may_use_any_prefix(self, bus: Management) -> None:
        """As Python writes it, with its declaration in single quotes."""
        body = description("Queue", MaxDeliveryCount=5).decode()
        body = body.replace("<entry xmlns=", "<ns0:entry xmlns:ns0=").replace(
            "</entry>", "</ns0:entry>"
        )
        body = body.replace("<content", "<ns0:content").replace("</content>", "</ns0:content>")
        body = body.replace('<?xml version="1.0"?>', "<?xml version='1.0' encoding='utf-8'?>\n")
        assert bus.put("/any-prefix", body.encode()).text("MaxDeliveryCount") == "5"

    def test_may_not_say_a_thing_twice(self, bus: Management) -> None:
        inner = "<MaxDeliveryCount>1</MaxDeliveryCount>"
        detail = self.refused(bus, description("Queue", inner, MaxDeliveryCount=2))
        assert "MaxDeliveryCount of QueueDescription is there more than once" in detail

    def test_that_are_nil_are_not_there(self, bus: Management) -> None:
        body = description("Queue", "<UserMetadata i:nil='true'/><MaxDeliveryCount i:nil='true'/>")
        assert bus.put("/nothing-said", body).text("MaxDeliveryCount") == "10"

    def test_are_bounded(self, bus: Management) -> None:
        assert bus.put("/large", QUEUE + b" " * 1024 * 1024).status == 413
        nested = "<a>" * 20 + "</a>" * 20
        assert "nested" in self.refused(bus, description("Queue", nested))

    @pytest.mark.parametrize(
        "subset",
        [
            '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;">',
            '<!ENTITY c SYSTEM "file:///etc/passwd">',
            '<!ENTITY % c SYSTEM "http://localhost/x.dtd"> %c;',
            "",
        ],
    )
    def test_have_no_document_type(self, bus: Management, subset: str) -> None:
        """Entity bombs and external entities."""
        plain = description("Queue", UserMetadata="REFERENCE").decode()
        body = plain.replace("REFERENCE", "&c;").replace("?>", f"?><!DOCTYPE entry [{subset}]>", 1)
        assert "document type or entities" in self.refused(bus, body.encode())
        assert "is not XML" in self.refused(bus, plain.replace("REFERENCE", "&c;").encode())

    def test_with_an_expectation_are_asked_for(self, bus: Management) -> None:
        """`Expect: 100-continue`, which .NET sends; the interim reply is not the reply."""
        reply = bus.put("/expected", QUEUE, headers={"Expect": "100-continue"})
        assert reply.status == 201
