"""Trying rules out: a message, the rules that would take it, and why the others would not.

    POST /{topic}/$explorer/try
    {"properties": {"Label": "order"}, "application_properties": {"amount": 5}, "body": "...",
     "rule": {"sql": "amount > 3", "action": "SET priority = 'high'"}}

Without `rule` the rules of the topic's subscriptions are asked; with one, that alone. Nothing is
sent. Properties have the names of `BrokerProperties`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aiohttp import web

from busway.amqp import codec
from busway.filters.explain import Explanation, explain
from busway.http.calls import Call
from busway.http.explorer.asking import body_of, entity_of, told
from busway.http.replies import HttpError
from busway.http.rest import values
from busway.http.rest.messages import payload_of
from busway.http.steps import in_steps
from busway.model.entities import Queue, Rule, SqlFilter, Subscription
from busway.model.message import Message

DRAFT = "draft"
FIELDS = ("properties", "application_properties", "content_type", "body", "rule")


async def answer(call: Call) -> web.StreamResponse:
    entity = entity_of(call)
    if isinstance(entity, Queue):
        raise HttpError(
            400, f"'{entity.path}' is a queue. Only subscriptions of topics have rules."
        )
    wanted = await body_of(call, FIELDS)
    message = _message(wanted, call.now_ms())
    draft = wanted.get("rule")
    if draft is not None:
        return told({"rules": [_described(explain(_draft(draft), message))]})
    catalog = call.gateway.catalog
    subscriptions = (
        [entity] if isinstance(entity, Subscription) else list(catalog.subscriptions(entity))
    )
    found = []
    async for subscription in in_steps(subscriptions, lambda each: 1 + len(catalog.rules(each))):
        rules = [explain(rule, message) for rule in catalog.rules(subscription)]
        found.append(
            {
                "subscription": subscription.name,
                "matches": any(each.matches for each in rules),
                "rules": [_described(each) for each in rules],
            }
        )
    return told({"subscriptions": found})


def _described(explanation: Explanation) -> dict[str, Any]:
    return asdict(explanation)


def _draft(wanted: Any) -> Rule:
    if not isinstance(wanted, dict) or not isinstance(wanted.get("sql"), str):
        raise HttpError(400, "'rule' must be an object with 'sql', and 'action' if it has one.")
    action = wanted.get("action") or None
    if action is not None and not isinstance(action, str):
        raise HttpError(400, "'action' must be text.")
    return Rule(name=DRAFT, filter=SqlFilter(wanted["sql"]), action=action)


def _message(wanted: dict[str, Any], now_ms: int) -> Message:
    properties = wanted.get("properties") or {}
    user = wanted.get("application_properties") or {}
    if not isinstance(properties, dict) or not isinstance(user, dict):
        raise HttpError(400, "'properties' and 'application_properties' must be objects.")
    try:
        typed = {str(name): values.from_json(value) for name, value in user.items()}
    except ValueError as error:
        raise HttpError(400, f"'application_properties': {error}.") from None
    content_type, body = wanted.get("content_type"), wanted.get("body") or ""
    if not isinstance(body, str) or not isinstance(content_type, str | None):
        raise HttpError(400, "'body' and 'content_type' must be text.")
    payload = payload_of(body.encode(errors="replace"), content_type, properties, typed, now_ms)
    sections = codec.scan_message(payload)
    return Message(
        bare=sections.bare,
        size=len(payload),
        ttl_ms=sections.ttl_ms,
        annotations=sections.annotations,
        annotation_items=sections.annotation_items,
        session_id=sections.group_id,
    )
