"""Every route of HTTP, with every kind of token that must not open it (D-34, http.md section 3).

`ROUTES` is the one table of what there is to ask for. A room, a method or an operation that is not
in it fails here: whoever adds one says which right it takes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from busway.gateway import auth
from busway.gateway.auth import Right
from busway.http.atom.operations import METHODS
from busway.http.calls import CLAIM_WORDS
from busway.http.health import Examiner
from busway.http.operations import own_pages
from busway.http.rest.room import OPERATIONS
from busway.http.server import rooms
from busway.http.targets import Kind, parse, path_of
from busway.model.entities import ROOT_RULE_NAME
from busway.testing import Server
from tests.http.atom_client import Management, description
from tests.http.rest_client import Reply, Rest

KEYS = {name: f"the-key-of-{name}-and-more" for name in ("Send", "Listen", "Both", "Manage")}
RIGHTS = {
    "Send": ["Send"],
    "Listen": ["Listen"],
    "Both": ["Send", "Listen"],
    "Manage": ["Manage", "Send", "Listen"],
}
BOTH = Right.SEND | Right.LISTEN
ENOUGH = {Right.SEND: "Send", Right.LISTEN: "Listen", BOTH: "Both", Right.MANAGE: "Manage"}
"""The weakest rule that has a right."""
TOO_LITTLE = {Right.SEND: "Listen", Right.LISTEN: "Send", BOTH: "Send", Right.MANAGE: "Both"}
"""The strongest that has not."""

CONFIG = """
[[queues]]
name = "present"

[[queues]]
name = "other"

[[topics]]
name = "current"

[[topics.subscriptions]]
name = "watch"
""" + "".join(
    f'\n[[access]]\nname = "all-{name}"\nrights = {rights}\nkey = "{KEYS[name]}"\n'
    for name, rights in RIGHTS.items()
)

THERE = {"queue": "present", "topic": "current", "sub": "watch", "rule": "$Default"}
MISSING = {"queue": "nowhere", "topic": "noplace", "sub": "never", "rule": "$Nothing"}
"""As long as those that are there, so that lengths tell nothing either."""


@dataclass(frozen=True)
class Route:
    kind: Kind
    method: str
    path: str
    """With `{queue}` and the like for names."""
    right: Right | None
    """None for what is open to everybody."""
    answers: frozenset[int] = frozenset({200})
    """What who may is answered, for names that are missing."""

    @property
    def entity(self) -> str | None:
        """`queue` or `topic`, where it is about one."""
        return next((kind for kind in ("queue", "topic") if f"{{{kind}}}" in self.path), None)

    def at(self, names: Mapping[str, str]) -> str:
        return self.path.format(**names)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


LOCK = "00000000-0000-0000-0000-000000000000"
PLACES = (
    "{queue}",
    "{queue}/$DeadLetterQueue",
    "{queue}/$Transfer/$DeadLetterQueue",
    "{topic}",
    "{topic}/Subscriptions/{sub}",
    "{topic}/Subscriptions/{sub}/$DeadLetterQueue",
)
MESSAGING = (
    ("POST", "messages", Right.SEND),
    ("POST", "messages/head?timeout=0", Right.LISTEN),
    ("DELETE", "messages/head?timeout=0", Right.LISTEN),
    ("DELETE", f"messages/1/{LOCK}", Right.LISTEN),
    ("PUT", f"messages/1/{LOCK}", Right.LISTEN),
    ("POST", f"messages/1/{LOCK}", Right.LISTEN),
)
JOURNAL = (
    ("GET", "", Right.LISTEN),
    ("PUT", "", Right.MANAGE),
    ("GET", "/plan", Right.LISTEN),
    ("GET", "/at?time=0", Right.LISTEN),
    ("GET", "/read?partition=0&from=0&to=0", Right.LISTEN),
    ("GET", "/consumers", Right.LISTEN),
    ("GET", "/consumers/me", Right.LISTEN),
    ("PUT", "/consumers/me", Right.LISTEN),
    ("DELETE", "/consumers/me", Right.LISTEN),
)
EXPLORER = (
    ("GET", "", Right.MANAGE),
    ("GET", "/messages", Right.LISTEN),
    ("DELETE", "/messages", Right.LISTEN),
    ("POST", "/messages/lock", Right.LISTEN),
    ("POST", "/messages/settle", Right.LISTEN),
    ("POST", "/resubmit", BOTH),
    ("GET", "/sessions", Right.LISTEN),
    ("GET", "/sessions/one", Right.LISTEN),
    ("POST", "/try", Right.MANAGE),
)
RESOURCES = (
    (Kind.ENTITY, "/{queue}"),
    (Kind.ENTITY, "/{topic}"),
    (Kind.SUBSCRIPTION, "/{topic}/Subscriptions/{sub}"),
    (Kind.RULE, "/{topic}/Subscriptions/{sub}/Rules/{rule}"),
)

ROUTES = (
    Route(Kind.ROOT, "GET", "/", Right.MANAGE),
    Route(Kind.QUEUES, "GET", "/$Resources/queues", Right.MANAGE),
    Route(Kind.TOPICS, "GET", "/$Resources/topics", Right.MANAGE),
    Route(Kind.NAMESPACE, "GET", "/$namespaceinfo", Right.MANAGE),
    Route(Kind.SUBSCRIPTIONS, "GET", "/{topic}/Subscriptions", Right.MANAGE, frozenset({404})),
    Route(Kind.RULES, "GET", "/{topic}/Subscriptions/{sub}/Rules", Right.MANAGE, frozenset({404})),
    *(
        Route(kind, method, path, Right.MANAGE, frozenset({404 if method != "PUT" else 400}))
        for kind, path in RESOURCES
        for method in ("GET", "PUT", "DELETE")
    ),
    *(
        Route(Kind.MESSAGES, method, f"/{place}/{rest}", right, frozenset({410}))
        for place in PLACES
        for method, rest, right in MESSAGING
    ),
    *(
        Route(Kind.JOURNAL, method, f"/{place}/$journal{rest}", right, frozenset({404}))
        for place in ("{queue}", "{topic}", "{topic}/Subscriptions/{sub}")
        for method, rest, right in JOURNAL
    ),
    *(
        Route(Kind.EXPLORER, method, f"/{place}/$explorer{rest}", right, frozenset({404}))
        for place in PLACES
        for method, rest, right in EXPLORER
    ),
    Route(Kind.PORTAL, "GET", "/portal/", None),
    Route(Kind.IDENTITY, "GET", "/msi/token?resource=x", None, frozenset({404})),
    Route(Kind.WEBSOCKET, "GET", "/$servicebus/websocket", None, frozenset({400, 426})),
    Route(Kind.HEALTH, "GET", "/health", None),
    Route(Kind.METRICS, "GET", "/metrics", Right.MANAGE),
    Route(Kind.BUSWAY, "GET", "/$busway/map", Right.MANAGE),
    Route(Kind.BUSWAY, "GET", "/$busway/entities", Right.MANAGE),
    Route(Kind.BUSWAY, "GET", "/$busway/connections", Right.MANAGE),
    Route(Kind.BUSWAY, "GET", "/$busway/nodes", Right.MANAGE),
    Route(Kind.BUSWAY, "GET", "/$busway/report", Right.MANAGE),
    Route(Kind.BUSWAY, "PUT", "/$busway/report", Right.MANAGE, frozenset({400})),
    Route(Kind.BUSWAY, "POST", "/$busway/report/link", Right.MANAGE),
    Route(Kind.BUSWAY, "GET", "/$busway/report/00", None, frozenset({404})),
    Route(Kind.BUSWAY, "GET", "/$busway/rules", Right.MANAGE),
    Route(Kind.BUSWAY, "GET", "/$busway/rules/nobody", Right.MANAGE, frozenset({404})),
    Route(Kind.BUSWAY, "PUT", "/$busway/rules/nobody", Right.MANAGE, frozenset({400})),
    Route(Kind.BUSWAY, "DELETE", "/$busway/rules/nobody", Right.MANAGE, frozenset({404})),
    Route(Kind.BUSWAY, "POST", "/$busway/rules/nobody/renew", Right.MANAGE, frozenset({400})),
    Route(Kind.BUSWAY, "GET", "/$busway/clock", Right.MANAGE),
    Route(Kind.BUSWAY, "POST", "/$busway/clock", Right.MANAGE, frozenset({403})),
    Route(Kind.BUSWAY, "POST", "/$busway/reset", Right.MANAGE, frozenset({403})),
    Route(Kind.BUSWAY, "POST", "/$busway/migrations", Right.MANAGE, frozenset({400})),
    Route(Kind.BUSWAY, "GET", "/$busway/migrations/nobody", Right.MANAGE, frozenset({404})),
    Route(Kind.BUSWAY, "DELETE", "/$busway/migrations/nobody", Right.MANAGE, frozenset({404})),
    Route(Kind.BUSWAY, "POST", "/$busway/migrations/nobody/switch", Right.MANAGE, frozenset({404})),
    Route(Kind.BUSWAY, "GET", "/$busway/stores/store-0/fault", Right.MANAGE, frozenset({200, 403})),
    Route(
        Kind.BUSWAY, "POST", "/$busway/stores/store-0/fault", Right.MANAGE, frozenset({400, 403})
    ),
)
CLOSED = [route for route in ROUTES if route.right is not None]

# --- The table is complete -----------------------------------------------------------------------


def test_every_room_is_in_the_table() -> None:
    assert {route.kind for route in ROUTES} == set(Kind)
    assert set(rooms()) == set(Kind)


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_every_route_leads_to_its_room(route: Route) -> None:
    place = route.at(THERE)
    found = parse(
        route.method, path_of(place), has_api_version=False, has_resource="resource=" in place
    )
    assert found.kind is route.kind


def test_every_operation_on_messages_is_in_the_table() -> None:
    found = {}
    for route in ROUTES:
        if route.kind is Kind.MESSAGES:
            target = parse(route.method, path_of(route.at(THERE)), has_api_version=False)
            found[route.method, len(target.rest)] = route.right
    assert found == {key: right for key, (right, _) in OPERATIONS.items()}


def test_every_operation_of_management_is_in_the_table() -> None:
    found: dict[Kind, set[str]] = {}
    for route in ROUTES:
        found.setdefault(route.kind, set()).add(route.method)
    for kind, methods in METHODS.items():
        assert found[kind] == set(methods)


def test_every_page_of_our_own_is_in_the_table() -> None:
    """And leads to itself alone."""
    pages = own_pages(Examiner())
    found = set()
    for route in ROUTES:
        if route.kind is Kind.BUSWAY:
            rest = parse(route.method, path_of(route.path), has_api_version=False).rest
            (page,) = (each for each in pages if each.is_at(rest) and each.method == route.method)
            found.add((page.method, page.path))
    assert found == {(page.method, page.path) for page in pages}


# --- Tokens --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(config=CONFIG) as running:
        management = Management(running)
        for kind, name in (("Queue", "present"), ("Queue", "other"), ("Topic", "current")):
            rules = "".join(access_rule(name, each) for each in RIGHTS)
            inner = f"<AuthorizationRules>{rules}</AuthorizationRules>"
            reply = management.update(f"/{name}", description(kind, inner))
            assert reply.status == 200, reply.body
        management.close()
        yield running


def access_rule(entity: str, name: str) -> str:
    rights = "".join(f"<AccessRights>{each}</AccessRights>" for each in RIGHTS[name])
    return (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        f"<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
        f"<Rights>{rights}</Rights><KeyName>own-{name}</KeyName>"
        f"<PrimaryKey>{own_key(entity, name)}</PrimaryKey>"
        f"<SecondaryKey>{own_key(entity, name)}-2</SecondaryKey></AuthorizationRule>"
    )


def own_key(entity: str, name: str) -> str:
    return f"the-key-of-{entity}-{name}"


@pytest.fixture(scope="module")
def rest(server: Server) -> Iterator[Rest]:
    client = Rest(server)
    yield client
    client.close()


def signed(rule: str, key: str, path: str = "", lasts_s: int = 600) -> str:
    return auth.write(f"https://localhost/{path}", rule, key, int(time.time()) + lasts_s)


def everything(name: str, **more: object) -> str:
    """By a rule of the namespace."""
    return signed(f"all-{name}", KEYS[name], **more)  # type: ignore[arg-type]


Maker = Callable[[Route, str, str], str | None]
"""A token for a route, given its path and the root key."""

REFUSED: dict[str, Maker] = {
    "no token": lambda route, path, key: None,
    "an empty one": lambda route, path, key: "",
    "a password": lambda route, path, key: "Basic dXNlcjpwYXNzd29yZA==",
    "a bearer": lambda route, path, key: "Bearer eyJhbGciOiJub25lIn0.e30.",
    "only its name": lambda route, path, key: "SharedAccessSignature",
    "no signature": lambda route, path, key: everything("Manage").replace("&sig=", "&gis="),
    "no expiry": lambda route, path, key: everything("Manage").replace("&se=", "&es="),
    "an expiry that is no number": lambda route, path, key: re.sub(
        r"&se=\d+", "&se=soon", everything("Manage")
    ),
    "a later expiry than was signed": lambda route, path, key: everything("Manage").replace(
        "&se=1", "&se=2"
    ),
    "expired": lambda route, path, key: signed(ROOT_RULE_NAME, key, lasts_s=-1),
    "a wrong key": lambda route, path, key: signed(ROOT_RULE_NAME, f"{key}x"),
    "the key of another rule": lambda route, path, key: signed(ROOT_RULE_NAME, KEYS["Manage"]),
    "an unknown rule": lambda route, path, key: signed("nobody", key),
    "too weak": lambda route, path, key: everything(TOO_LITTLE[right_of(route)]),
    "for another entity": lambda route, path, key: everything("Manage", path="other"),
    "for what only begins so": lambda route, path, key: everything(
        "Manage", path=path.lstrip("/")[:3] or "x"
    ),
    "by another entity's rule, for all": lambda route, path, key: signed(
        "own-Manage", own_key("other", "Manage")
    ),
    "by another entity's rule, for this": lambda route, path, key: signed(
        "own-Manage", own_key("other", "Manage"), path.lstrip("/").partition("?")[0]
    ),
}


def right_of(route: Route) -> Right:
    assert route.right is not None
    return route.right


def root_key(server: Server) -> str:
    fields = dict(part.split("=", 1) for part in server.connection_string.split(";") if part)
    return fields["SharedAccessKey"]


def ask(rest: Rest, route: Route, names: Mapping[str, str], authorization: str | None) -> Reply:
    return rest.request(route.method, route.at(names), headers={"Authorization": authorization})


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("route", CLOSED, ids=str)
def test_a_token_that_is_not_good_enough_opens_nothing_and_tells_nothing(
    rest: Rest, route: Route, what: str
) -> None:
    """The same answer, whether there is something at that place or not."""
    key = root_key(rest.server)
    told = []
    for names in (THERE, MISSING):
        reply = ask(rest, route, names, REFUSED[what](route, route.at(names), key))
        assert reply.status == 401, reply.text
        assert reply.headers["content-type"] == "application/xml; charset=utf-8"
        told.append((sorted(untraceable(reply.headers)), without_names(reply.text, names)))
    assert told[0] == told[1]


def untraceable(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in headers.items() if name != "date")


def without_names(text: str, names: Mapping[str, str]) -> str:
    """But for what differs from one answer to the next, and what the client has said itself."""
    text = re.sub(r"TrackingId:[0-9a-f-]+", "", text)
    text = re.sub(r"Timestamp:[0-9T:-]+", "", text)
    text = re.sub(r"Expiration time: '\d+'", "", text)
    for kind, name in names.items():
        text = re.sub(re.escape(name), f"<{kind}>", text, flags=re.IGNORECASE)
    # What only begins as a name does is part of it.
    return re.sub(r"localhost(:\d+)?/\w{1,3}'", "localhost/...'", text)


ALLOWED: dict[str, Maker] = {
    "the root rule, for all": lambda route, path, key: signed(ROOT_RULE_NAME, key),
    "a rule that is just enough, for all": lambda route, path, key: everything(
        ENOUGH[right_of(route)]
    ),
    "a rule that is just enough, for this": lambda route, path, key: everything(
        ENOUGH[right_of(route)], path=path.lstrip("/").partition("?")[0]
    ),
    "in other letters": lambda route, path, key: everything(
        ENOUGH[right_of(route)], path=path.lstrip("/").partition("?")[0].upper()
    ),
}


@pytest.mark.parametrize("what", ALLOWED)
@pytest.mark.parametrize("route", CLOSED, ids=str)
def test_a_token_that_is_good_enough_opens_what_it_is_for(
    rest: Rest, route: Route, what: str
) -> None:
    token = ALLOWED[what](route, route.at(MISSING), root_key(rest.server))
    assert ask(rest, route, MISSING, token).status in route.answers


@pytest.mark.parametrize("secondary", [False, True])
@pytest.mark.parametrize(
    "route", [each for each in CLOSED if each.entity and each.method != "DELETE"], ids=str
)
def test_an_entitys_own_rule_opens_it(rest: Rest, route: Route, secondary: bool) -> None:
    """Either of its keys, and what lies below it: subscriptions have no rules of their own."""
    assert route.entity is not None
    name = ENOUGH[right_of(route)]
    key = own_key(THERE[route.entity], name) + ("-2" if secondary else "")
    reply = ask(rest, route, THERE, signed(f"own-{name}", key))
    assert reply.status not in (401, 500, 503), reply.text


@pytest.mark.parametrize("route", [each for each in CLOSED if each.entity], ids=str)
def test_an_entitys_own_rule_opens_no_more_than_it_says(rest: Rest, route: Route) -> None:
    """Who has its key knows that it is there, but not more than that."""
    assert route.entity is not None
    name = TOO_LITTLE[right_of(route)]
    reply = ask(rest, route, THERE, signed(f"own-{name}", own_key(THERE[route.entity], name)))
    assert reply.status == 401
    assert f"'{CLAIM_WORDS[right_of(route)]}' claim(s) are required" in reply.text


@pytest.mark.parametrize("route", [each for each in ROUTES if each.right is None], ids=str)
@pytest.mark.parametrize("token", [None, "", "nonsense", "SharedAccessSignature sr=x"])
def test_what_is_open_asks_for_nothing(rest: Rest, route: Route, token: str | None) -> None:
    assert ask(rest, route, THERE, token).status in route.answers


def test_nothing_of_it_has_touched_what_is_there(server: Server, rest: Rest) -> None:
    """Runs last: sends that were allowed are all that has happened."""
    for path in ("/present", "/other", "/current", "/current/Subscriptions/watch"):
        assert rest.request("GET", f"{path}?api-version=2021-05").status == 200
