"""Methods and statuses of management (http.md 5): what a request asks for, and how it is answered.

All of it needs the right to manage. Nothing waits between looking at an entity and changing it, so
what `If-Match` was compared with is what is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from aiohttp import hdrs, web

from busway.gateway.auth import Right
from busway.http import replies
from busway.http.atom.descriptions import service_element
from busway.http.atom.feeds import (
    ENTRY_TYPE,
    FEED_TYPE,
    PAGE,
    SKIP,
    TOP,
    Entry,
    below,
    page_of,
    write_entry,
    write_feed,
)
from busway.http.atom.instants import instant
from busway.http.atom.markup import Markup, document, element
from busway.http.atom.reading import BODY_MAX_BYTES, description_in
from busway.http.atom.resources import (
    OneRule,
    OneSubscription,
    QueueOrTopic,
    Resource,
    Visit,
)
from busway.http.atom.versions import version_of
from busway.http.calls import Call
from busway.http.replies import HttpError
from busway.http.targets import Kind
from busway.model.entities import Queue, Rule, Subscription, Topic
from busway.model.errors import BusError
from busway.model.limits import Tier
from busway.model.names import name_key

Thing = TypeVar("Thing")
Listed = TypeVar("Listed")

ETAG = "etag"
API_VERSION = "api-version"
ANYTHING = "*"
AZURE_SDK = "azsdk-"
"""In the User-Agent of each of them, behind the name that an application may give itself."""


async def manage(call: Call) -> web.StreamResponse:
    """Every request for what the catalog knows."""
    call.demand(Right.MANAGE)
    methods = METHODS[call.target.kind]
    operation = methods.get(call.method)
    if operation is None:
        raise HttpError(
            405,
            f"{call.method} is not a request that this resource takes; it takes "
            f"{', '.join(methods)}.",
            headers={hdrs.ALLOW: ", ".join(methods)},
        )
    return await operation(Visit(call, version_of(call.request.query.get(API_VERSION))))


# --- One thing -----------------------------------------------------------------------------------


async def put(visit: Visit, resource: Resource[Thing]) -> web.StreamResponse:
    """With `If-Match` it changes what is there, without it makes what is not."""
    body = await visit.call.body(BODY_MAX_BYTES)
    description = description_in(body, resource.elements)
    wanted = visit.call.request.headers.get(hdrs.IF_MATCH)
    found = resource.find()
    try:
        if wanted is None:
            return _entry(resource.entry(resource.create(description), after_put=True), status=201)
        if found is None:
            raise visit.missing()
        _match(wanted, resource.etag(found))
        changed = resource.update(description, found)
    except (BusError, HttpError) as error:
        raise _about(resource, found, error) from None
    return _entry(resource.entry(changed, after_put=True), resource.etag(changed))


async def get(visit: Visit, resource: Resource[Thing]) -> web.StreamResponse:
    found = resource.find()
    if found is None:
        named = str(visit.call.target.address)
        if "/$" in named:
            raise HttpError(400, f"'{named}' is a part of an entity, and has no description.")
        if visit.call.target.kind is Kind.ENTITY and _is_azure_sdk(visit):
            return await get_root(visit)
        raise visit.missing()
    return _entry(resource.entry(found, after_put=False), resource.etag(found))


def _is_azure_sdk(visit: Visit) -> bool:
    """The service answers a GET of a missing queue or topic with a feed that has no entry.

    The Azure SDKs make *not found* of it, and .NET logs a warning for a 404 (N-15). Whoever else
    asks, `curl` or a script, has only the status to go by, and is told 404.
    """
    return AZURE_SDK in visit.call.request.headers.get(hdrs.USER_AGENT, "").lower()


async def delete(visit: Visit, resource: Resource[Thing]) -> web.StreamResponse:
    found = resource.find()
    if found is None:
        raise visit.missing()
    etag = resource.etag(found)
    try:
        _match(visit.call.request.headers.get(hdrs.IF_MATCH, ANYTHING), etag)
        resource.delete(found)
    except (BusError, HttpError) as error:
        raise _about(resource, found, error) from None
    return replies.empty(200, {ETAG: etag})


def _match(wanted: str, etag: str) -> None:
    if wanted.strip().strip('"') not in (ANYTHING, etag):
        raise HttpError(
            412,
            "If-Match names another version than the one that is there. Get it again, and repeat "
            "the change.",
        )


def _about(
    resource: Resource[Thing], found: Thing | None, error: BusError | HttpError
) -> BusError | HttpError:
    """The service sends the etag of what is there with errors, too."""
    if found is None:
        return error
    headers = {ETAG: resource.etag(found)}
    if isinstance(error, HttpError):
        return HttpError(
            error.status, error.text, sub_code=error.sub_code, headers=error.headers | headers
        )
    return HttpError(error.kind.status, error.text, sub_code=error.kind.sub_code, headers=headers)


def _entry(entry: Entry, etag: str | None = None, status: int = 200) -> web.Response:
    headers = {"Content-Type": ENTRY_TYPE}
    if etag is not None:
        headers[ETAG] = etag
    return web.Response(status=status, body=document(write_entry(entry)), headers=headers)


# --- Lists ---------------------------------------------------------------------------------------


async def list_queues(visit: Visit) -> web.StreamResponse:
    def entry(queue: Queue) -> Entry:
        return visit.entity_entry(queue, below(visit.call.base, queue.path))

    return await _feed(visit, "Queues", visit.catalog.queues, entry)


async def list_topics(visit: Visit) -> web.StreamResponse:
    def entry(topic: Topic) -> Entry:
        return visit.entity_entry(topic, below(visit.call.base, topic.path))

    return await _feed(visit, "Topics", visit.catalog.topics, entry)


async def list_subscriptions(visit: Visit) -> web.StreamResponse:
    catalog, topic = visit.catalog, visit.catalog.find(visit.call.target.path)
    if not isinstance(topic, Topic):
        raise visit.missing()

    def page(skip: int, top: int) -> list[Subscription]:
        return catalog.subscriptions(topic, skip, top)

    def entry(subscription: Subscription) -> Entry:
        return visit.entity_entry(subscription, below(visit.address, subscription.name))

    return await _feed(visit, "Subscriptions", page, entry)


async def list_rules(visit: Visit) -> web.StreamResponse:
    rules = visit.catalog.rules(OneRule(visit).subscription())
    rules.sort(key=lambda rule: name_key(rule.name))

    def page(skip: int, top: int) -> list[Rule]:
        return rules[skip : skip + top]

    def entry(rule: Rule) -> Entry:
        return visit.rule_entry(rule, below(visit.address, rule.name))

    return await _feed(visit, "Rules", page, entry)


async def _feed(
    visit: Visit,
    title: str,
    listed: Callable[[int, int], Sequence[Listed]],
    entry: Callable[[Listed], Entry],
) -> web.StreamResponse:
    """`listed` gives what is there from one place on, at most so many; it is asked again after
    each turn that others get."""
    query = visit.call.request.query
    page = page_of(query)
    entries: list[Markup] = []
    while chunk := listed(page.skip + len(entries), min(PAGE, page.top - len(entries))):
        entries += [write_entry(entry(each), outermost=False) for each in chunk]
        await asyncio.sleep(0)
    following = None
    if page.top and listed(page.end, 1):
        following = {SKIP: str(page.end), TOP: str(page.top), API_VERSION: visit.version}
    feed = write_feed(title, visit.address, visit.now_ms(), entries, following)
    return _feed_reply(feed)


def _feed_reply(feed: Markup) -> web.Response:
    return web.Response(body=document(feed), headers={"Content-Type": FEED_TYPE})


# --- The namespace -------------------------------------------------------------------------------


async def get_root(visit: Visit) -> web.StreamResponse:
    """What a client gets that asks for an entity without a name, or an SDK for a missing one."""
    title = "Publicly Listed Services"
    return _feed_reply(write_feed(title, visit.address, visit.now_ms(), []))


async def get_namespace(visit: Visit) -> web.StreamResponse:
    namespace = visit.catalog.namespace
    inner = [
        element("CreatedTime", instant(namespace.created_ms)),
        element("MessagingSKU", namespace.tier.value),
        element("ModifiedTime", instant(namespace.updated_ms)),
        element("Name", namespace.name),
        element("NamespaceType", "Messaging"),
    ]
    if namespace.tier is Tier.PREMIUM:
        inner.insert(2, element("MessagingUnits", str(namespace.partitions)))
    return _entry(
        Entry(
            visit.address,
            namespace.name,
            namespace.created_ms,
            namespace.updated_ms,
            service_element("NamespaceInfo", inner),
            author=namespace.name,
        )
    )


# --- Who does what -------------------------------------------------------------------------------

Operation = Callable[[Visit], Awaitable[web.StreamResponse]]


def _methods(resource: Callable[[Visit], Resource[Thing]]) -> dict[str, Operation]:
    return {
        "GET": lambda visit: get(visit, resource(visit)),
        "PUT": lambda visit: put(visit, resource(visit)),
        "DELETE": lambda visit: delete(visit, resource(visit)),
    }


METHODS: dict[Kind, dict[str, Operation]] = {
    Kind.ROOT: {"GET": get_root},
    Kind.NAMESPACE: {"GET": get_namespace},
    Kind.QUEUES: {"GET": list_queues},
    Kind.TOPICS: {"GET": list_topics},
    Kind.SUBSCRIPTIONS: {"GET": list_subscriptions},
    Kind.RULES: {"GET": list_rules},
    Kind.ENTITY: _methods(QueueOrTopic),
    Kind.SUBSCRIPTION: _methods(OneSubscription),
    Kind.RULE: _methods(OneRule),
}


def rooms() -> dict[Kind, Callable[[Call], Awaitable[web.StreamResponse]]]:
    return dict.fromkeys(METHODS, manage)
