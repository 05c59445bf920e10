"""`/$busway/rules`: the access rules of the namespace, and their keys (D-34).

    GET    /$busway/rules               which there are, with their rights; without their keys
    GET    /$busway/rules/{name}        one of them, with its keys
    PUT    /$busway/rules/{name}        {"rights": ["Send"]} makes or replaces it; keys may be
                                        given, else those that it has are kept, or made
    POST   /$busway/rules/{name}/renew  {"key": "primary"} makes that key anew
    DELETE /$busway/rules/{name}        nobody gets in with it any more

For whoever may manage the namespace that the host means. The rule that signs a request may be
renewed by it: the answer has the new key.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from busway.cluster.namespace_access import KeyName, NamespaceAccess
from busway.gateway.auth import Right
from busway.http.calls import Call
from busway.http.replies import HttpError, empty
from busway.model.access import CHOSEN_KEY_MIN_CHARS, fresh_key
from busway.model.entities import AuthorizationRule

BODY_BYTES_MAX = 4_096
FIELDS = ("rights", "primary_key", "secondary_key")


def _access(call: Call) -> NamespaceAccess:
    call.demand(Right.MANAGE)
    return call.gateway.catalog.access


async def show_all(call: Call) -> web.StreamResponse:
    namespace = _access(call).namespace
    rules = [_described(rule) for rule in namespace.authorization_rules]
    return _told({"namespace": namespace.name, "rules": rules})


async def show(call: Call) -> web.StreamResponse:
    return _told(_with_keys(_access(call).existing(_name(call))))


async def put(call: Call) -> web.StreamResponse:
    access, name = _access(call), _name(call)
    wanted = _read(await call.body(BODY_BYTES_MAX), FIELDS)
    old = access.find(name)
    rights = wanted.get("rights")
    if not isinstance(rights, list) or not all(isinstance(each, str) for each in rights):
        raise _refused("'rights' is no list of words")
    rule = AuthorizationRule(
        name,
        tuple(rights),
        _key(wanted, "primary_key")
        or (old and old.primary_key)
        or fresh_key(call.services.host.random_bytes),
        _key(wanted, "secondary_key")
        or (old and old.secondary_key)
        or fresh_key(call.services.host.random_bytes),
    )
    return _told(_with_keys(access.put(rule, call.now_ms())), 201 if old is None else 200)


async def renew(call: Call) -> web.StreamResponse:
    access = _access(call)
    wanted = _read(await call.body(BODY_BYTES_MAX), ("key",)).get("key")
    if wanted not in [each.value for each in KeyName]:
        raise HttpError(
            400,
            "Which key is to be made anew? Send an object with 'key', which is 'primary' or "
            "'secondary'.",
        )
    key = _fresh_key(call)
    return _told(_with_keys(access.renew(_name(call), KeyName(wanted), key, call.now_ms())))


async def remove(call: Call) -> web.StreamResponse:
    _access(call).remove(_name(call), call.now_ms())
    return empty(200)


def _fresh_key(call: Call) -> str:
    return fresh_key(call.services.host.random_bytes)


def _name(call: Call) -> str:
    return call.target.rest[1]


# --- Out -----------------------------------------------------------------------------------------


def _described(rule: AuthorizationRule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "rights": list(rule.rights),
        "created": _instant(rule.created_ms),
        "changed": _instant(rule.updated_ms),
    }


def _with_keys(rule: AuthorizationRule) -> dict[str, Any]:
    keys = {"primary_key": rule.primary_key, "secondary_key": rule.secondary_key}
    return _described(rule) | keys


def _instant(at_ms: int) -> str | None:
    """None for the root rule, whose times nobody keeps."""
    if not at_ms:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _told(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.json_response(body, status=status, headers={"Cache-Control": "no-store"})


# --- In ------------------------------------------------------------------------------------------


def _read(body: bytes, known: tuple[str, ...]) -> dict[str, Any]:
    try:
        wanted: Any = json.loads(body)
    except ValueError as error:
        raise _refused(f"the body is not JSON: {error}") from None
    if not isinstance(wanted, dict):
        raise _refused("the body is not an object")
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise _refused(f"'{unknown[0]}' is not known")
    return wanted


def _key(wanted: dict[str, Any], field: str) -> str | None:
    key = wanted.get(field)
    if key is None:
        return None
    if not isinstance(key, str) or len(key.split()) != 1 or len(key) < CHOSEN_KEY_MIN_CHARS:
        raise _refused(f"'{field}' is not one word of at least {CHOSEN_KEY_MIN_CHARS} characters")
    return key


def _refused(what: str) -> HttpError:
    return HttpError(
        400,
        f"{what[0].upper()}{what[1:]}. Send an object with 'rights', a list of Send and Listen, or "
        "of Manage, Send and Listen; 'primary_key' and 'secondary_key' may be left out.",
    )
