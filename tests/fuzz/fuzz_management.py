"""Mutates management requests and sends them to the real HTTP server.

    python tests/fuzz/fuzz_management.py --seconds 60 --seed 1

The law: no answer is a 5xx, every body of an answer is well-formed XML, and nothing is written to
the log as an error. A request that breaks it is kept in `tests/fuzz/crashes/`.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent.parent))

from tests.http.atom_client import INSTANCE, SCHEMA, description  # noqa: E402
from tests.http.in_process import HttpInProcess  # noqa: E402

CRASHES = HERE / "crashes"

RULES = (
    '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>'
    "SharedAccessKey</ClaimType><Rights><AccessRights>Send</AccessRights></Rights><KeyName>k"
    "</KeyName></AuthorizationRule></AuthorizationRules>"
)
VALUE = (
    "<KeyValueOfstringanyType><Key>@p</Key>"
    f'<Value xmlns:d6p1="{SCHEMA}" i:type="d6p1:int">2</Value></KeyValueOfstringanyType>'
)
RULE = (
    f'<Filter i:type="SqlFilter"><SqlExpression>a = @p</SqlExpression><Parameters>{VALUE}'
    f'</Parameters></Filter><Action p4:type="SqlRuleAction" xmlns:p4="{INSTANCE}"><SqlExpression>'
    "SET a = 1</SqlExpression></Action>"
)
SEEDS = (
    (b"/q", description("Queue", RULES, LockDuration="PT1M", MaxSizeInMegabytes=1024)),
    (b"/q", description("Queue", ForwardTo="sb://host/q2", UserMetadata="x", Status="Active")),
    (b"/t?api-version=2024-05", description("Topic", EnablePartitioning="true")),
    (b"/t/Subscriptions/s", description("Subscription", RequiresSession="false")),
    (
        b"/t/subscriptions/s2",
        description("Subscription", f"<DefaultRuleDescription>{RULE}</DefaultRuleDescription>"),
    ),
    (b"/t/Subscriptions/s/Rules/r?api-version=2017-04", description("Rule", RULE)),
    (
        b"/t/Subscriptions/s/rules/$Default",
        description("Rule", f'<Filter i:type="CorrelationFilter"><To>x</To>{VALUE}</Filter>'),
    ),
    (b"/$Resources/queues?$skip=0&$top=100", b""),
    (b"/t/Subscriptions/s/Rules", b""),
    (b"/$namespaceinfo", b""),
)
FRAGMENTS = (
    *(
        b"<",
        b">",
        b"&",
        b"&amp;",
        b'"',
        b"'",
        b"/",
        b"\x00",
        b"\xff",
        b"\xc3\xa4",
        b"%2F",
        b"%",
        b"?",
    ),
    *(b"<![CDATA[", b"]]>", b"<!--", b"<!DOCTYPE a>", b"<?xml?>", b' xmlns=""', b' i:nil="true"'),
    *(b"true", b"P1D", b"-1", b"99999999999999999999", b"1e9", b"NaN", b"$skip=", b"Subscriptions"),
)
METHODS = ("PUT", "PUT", "PUT", "GET", "DELETE", "POST", "HEAD")


def mutate(chance: random.Random, text: bytes) -> bytes:
    for _ in range(chance.choice((0, 0, 1, 1, 2, 3, 6))):
        at = chance.randrange(len(text) + 1)
        match chance.randrange(4):
            case 0:
                text = text[:at] + chance.choice(FRAGMENTS) + text[at:]
            case 1:
                text = text[:at] + text[at + chance.choice((1, 2, 8, 30)) :]
            case 2:
                text = text[:at] + bytes([chance.randrange(256)]) + text[at + 1 :]
            case _:
                part = text[at : at + chance.randrange(60)]
                text = text[:at] + part * chance.choice((2, 3, 20)) + text[at:]
    return text


def path_of(chance: random.Random, seed: bytes) -> bytes:
    """A target of a request line: no spaces and ends of lines, which would end it."""
    return b"/" + bytes(c for c in mutate(chance, seed)[1:] if c > 32 and c != 127)


def run(http: HttpInProcess, seconds: float, seed: int) -> Iterator[int]:
    chance = random.Random(seed)
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        method = chance.choice(METHODS)
        path, body = chance.choice(SEEDS)
        path, body = path_of(chance, path), mutate(chance, body) if method == "PUT" else b""
        headers = {"If-Match": "*"} if chance.random() < 0.4 else {}
        try:
            answer = http.request(method, path, body, headers)
            answer.check()
        except BaseException:
            request = method.encode() + b" " + path + b"\n\n" + body
            CRASHES.mkdir(exist_ok=True)
            name = f"management-{hashlib.sha256(request).hexdigest()[:12]}.txt"
            (CRASHES / name).write_bytes(request)
            print(f"kept as tests/fuzz/crashes/{name}", file=sys.stderr)
            raise
        yield answer.status


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    statuses: dict[int, int] = {}
    with HttpInProcess() as http:
        for status in run(http, chosen.seconds, chosen.seed):
            statuses[status] = statuses.get(status, 0) + 1
    print(
        f"management: {sum(statuses.values())} requests, seed {chosen.seed}: the law holds "
        f"({', '.join(f'{status}: {count}' for status, count in sorted(statuses.items()))})"
    )


if __name__ == "__main__":
    main()
