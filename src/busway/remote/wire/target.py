"""Where messages are to go: asked for before the first one is sent.

A job that finds out after an hour that its target knows no duplicates, or wants sessions, has done
harm by then. What an entity is like, the broker tells whoever may manage it.
"""

from __future__ import annotations

import http.client
import logging
import random
import re
import time
from dataclasses import dataclass
from urllib.parse import quote
from xml.etree.ElementTree import Element

from busway.model.durations import parse_iso
from busway.remote.connection import Pass
from busway.remote.trust import dial

log = logging.getLogger(__name__)

SERVICE = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
KINDS = {
    "QueueDescription": "queue",
    "TopicDescription": "topic",
    "SubscriptionDescription": "subscription",
}
REQUEST_WAIT_S = 30.0
PATIENCE_S = 60.0
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
BUSY = (408, 429, 500, 502, 503, 504)


class TargetError(Exception):
    """Messages cannot go there, and what to do about it."""


class NotToldError(TargetError):
    """The key may not read what the entity is like."""


@dataclass(frozen=True, slots=True)
class EntityDescription:
    path: str
    kind: str
    """queue, topic or subscription"""
    requires_session: bool
    requires_duplicate_detection: bool
    window_s: float
    """How long a broker remembers message ids."""
    lock_s: float
    created_at: str


def describe(entity: str, allowed: Pass, *, patience_s: float = PATIENCE_S) -> EntityDescription:
    """What is there. Raises `TargetError`, and `NotToldError` where that is a secret."""
    until, pause_s = time.monotonic() + patience_s, FIRST_PAUSE_S
    while True:
        try:
            status, body = _get(entity, allowed)
            break
        except (OSError, http.client.HTTPException) as problem:
            if time.monotonic() + pause_s > until:
                raise TargetError(
                    f"The broker at {allowed.endpoint} cannot be reached "
                    f"({problem or type(problem).__name__}). Is it running, and is this its port "
                    "for HTTP?"
                ) from problem
            log.info("asking the broker again in %.1f s: %s", pause_s, problem)
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
    return _read(entity, allowed, status, body)


def _get(entity: str, allowed: Pass) -> tuple[int, bytes]:
    connection = dial(allowed.endpoint, REQUEST_WAIT_S)
    try:
        url = f"/{quote(entity, safe='/')}?api-version=2021-05"
        connection.request("GET", url, headers={"Authorization": allowed.token})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status in BUSY:
        raise ConnectionError(f"the broker answered {response.status}")
    return response.status, body


def _read(entity: str, allowed: Pass, status: int, body: bytes) -> EntityDescription:
    if status in (401, 403):
        raise NotToldError(
            f"The broker does not tell this key what '{entity}' is like: that takes the right to "
            "manage it."
        )
    if status == 404:
        raise TargetError(f"There is no queue or topic '{entity}' at {allowed.endpoint}.")
    described = _description(body) if status == 200 else None
    if described is None:
        raise TargetError(f"'{entity}' at {allowed.endpoint}: {_told(body) or status}")
    kind = KINDS[described.tag.removeprefix(SERVICE)]
    return EntityDescription(
        entity,
        kind,
        _text(described, "RequiresSession") == "true",
        _text(described, "RequiresDuplicateDetection") == "true",
        _seconds(described, "DuplicateDetectionHistoryTimeWindow"),
        _seconds(described, "LockDuration"),
        _text(described, "CreatedAt"),
    )


def _description(body: bytes) -> Element | None:
    from defusedxml.ElementTree import fromstring

    root: Element = fromstring(body)
    return next((each for each in root.iter() if each.tag.removeprefix(SERVICE) in KINDS), None)


def _text(described: Element, name: str) -> str:
    return described.findtext(f"{SERVICE}{name}") or ""


def _seconds(described: Element, name: str) -> float:
    """Zero for what this kind of entity does not have."""
    text = _text(described, name)
    return (parse_iso(text) or 0) / 1000 if text else 0.0


def _told(body: bytes) -> str:
    detail = re.search(r"<Detail>(.*?)</Detail>", body.decode(errors="replace"), re.DOTALL)
    text = re.sub(r"^SubCode=\d+\. ", "", detail[1]) if detail else ""
    return text.partition(" TrackingId:")[0]


def check(entity: str, allowed: Pass, *, once: bool) -> EntityDescription | None:
    """Whether messages can be sent there, and each stored once if that is asked for.

    None if that is not asked for, and the key may not know.
    """
    try:
        target = describe(entity, allowed)
    except NotToldError as error:
        if not once:
            return None
        raise NotToldError(
            f"{error} So nobody can say whether it detects duplicates. Use a key with that right, "
            "or go on without knowing: then a message that has to be sent again may be stored "
            "twice."
        ) from error
    if target.kind == "subscription":
        raise TargetError(f"'{entity}' is a subscription. Send to its topic.")
    if once and not target.requires_duplicate_detection:
        raise TargetError(
            f"'{entity}' does not detect duplicates, so that a message that has to be sent again "
            f"is stored twice. Create the {target.kind} with duplicate detection (it cannot be "
            "switched on later), or accept duplicates."
        )
    return target
