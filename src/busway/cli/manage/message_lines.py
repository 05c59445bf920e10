"""Messages for a person: a line for each, or all of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from busway.cli.manage import showing

BODY_SHOWN = 60
HEAD = ["sequence number", "state", "enqueued", "message id", "session", "subject", "body"]
FACTS = (
    "session_id", "subject", "partition_key", "correlation_id", "content_type", "to", "reply_to",
    "time_to_live", "scheduled_enqueue_time", "locked_until", "dead_letter_reason",
    "dead_letter_error_description", "dead_letter_source",
)  # fmt: skip


def body_of(message: dict[str, Any]) -> str:
    import json

    if "body" in message:
        body = message["body"]
        return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    encoded = message.get("body_base64")
    return "" if encoded is None else f"(base64) {encoded}"


def body_bytes(message: dict[str, Any]) -> bytes:
    from base64 import b64decode

    encoded = message.get("body_base64")
    if encoded is None:
        return body_of(message).encode()
    return b"".join(
        b64decode(each) for each in ([encoded] if isinstance(encoded, str) else encoded)
    )


def preview(text: str) -> str:
    line = " ".join(text.split())
    shown = "".join(c if c.isprintable() else "." for c in line)
    return shown if len(shown) <= BODY_SHOWN else shown[: BODY_SHOWN - 1] + "…"


def listed(messages: Sequence[dict[str, Any]]) -> None:
    rows = [
        [
            str(each["sequence_number"]),
            each["state"],
            showing.instant(each["enqueued_time"]),
            preview(_id(each.get("message_id"))),
            preview(each.get("session_id") or "-"),
            preview(each.get("subject") or "-"),
            preview(body_of(each)),
        ]
        for each in messages
    ]
    showing.tabulate(HEAD, rows, right=["sequence number"])


def whole(message: dict[str, Any]) -> None:
    """What a terminal could take for a command is shown as dots."""
    print(
        f"{message['sequence_number']}  {showing.instant(message['enqueued_time'])}  "
        f"delivered {message['delivery_count']} times before  "
        f"id {_safe(_id(message.get('message_id')))}"
    )
    for name in FACTS:
        if message.get(name) is not None:
            print(f"  {name.replace('_', ' ')}: {_safe(str(message[name]))}")
    for name, value in message.get("application_properties", {}).items():
        shown = f"{value[1]} ({value[0]})" if isinstance(value, list) else value
        print(f"  {_safe(name)} = {_safe(str(shown))}")
    for line in body_of(message).splitlines():
        print(f"  | {_safe(line)}")


def _id(value: Any) -> str:
    return str(value[1]) if isinstance(value, list) else str(value or "-")


def _safe(text: str) -> str:
    return "".join(c if c.isprintable() else "." for c in text)
