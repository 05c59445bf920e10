"""The files of the portal, as a browser asks for them."""

from __future__ import annotations

import re

import pytest

from busway.testing import Server
from tests.http.asking import ask, manager

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FIRST_LOAD_BYTES_MAX = 300_000


def test_a_browser_at_the_root_is_led_to_the_portal(managed: Server) -> None:
    reply = ask(managed, "GET", "/", headers=BROWSER)
    assert (reply.status, reply.headers["location"]) == (302, "/portal/")
    assert ask(managed, "GET", "/portal").headers["location"] == "/portal/"


def test_everybody_else_at_the_root_gets_the_service(managed: Server) -> None:
    assert ask(managed, "GET", "/").status == 401
    assert ask(managed, "GET", "/", token=manager(managed), headers=BROWSER).status == 200


def test_the_page_may_run_files_of_this_server_only(managed: Server) -> None:
    reply = ask(managed, "GET", "/portal/")
    assert reply.status == 200
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert re.findall(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", reply.text) == []


def test_all_that_the_page_loads_is_there_and_small(managed: Server) -> None:
    """Follows every link and import, as a browser would."""
    seen: dict[str, int] = {}
    waiting = ["/portal/"]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        reply = ask(managed, "GET", path)
        assert reply.status == 200, path
        seen[path] = len(reply.body)
        folder = path.rpartition("/")[0]
        for found in re.findall(r'(?:src|href)="(/portal/[^"]+)"|from "(\.[^"]+)"', reply.text):
            name = found[0] or f"{folder}/{found[1]}"
            while "/./" in name or "/../" in name:
                name = re.sub(r"/[^/]+/\.\./|/\./", "/", name, count=1)
            waiting.append(name)
    assert "/portal/views/explorer.js" in seen
    assert sum(seen.values()) < FIRST_LOAD_BYTES_MAX


def test_a_file_that_has_not_changed_is_not_sent_again(managed: Server) -> None:
    first = ask(managed, "GET", "/portal/app.js")
    again = ask(managed, "GET", "/portal/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/portal/nothing.js",
        "/portal/../server.py",
        "/portal/..%2fserver.py",
        "/portal/%2e%2e/http/server.py",
        "/portal/__init__.py",
        "/portal/views",
        "/portal/.hidden.js",
    ],
)
def test_nothing_but_the_portals_files_is_served(managed: Server, path: str) -> None:
    assert ask(managed, "GET", path).status in (401, 404)


def test_a_queue_may_be_called_portal(managed: Server) -> None:
    path = "/portal?api-version=2021-05"
    assert ask(managed, "GET", path, token=manager(managed)).status in (200, 404)
    sent = ask(managed, "POST", "/portal/messages", "x", token=manager(managed))
    assert sent.status == 410  # there is no such queue here, and it is no page either


def test_files_come_compressed_to_those_who_can_read_that(managed: Server) -> None:
    plain = ask(managed, "GET", "/portal/style.css")
    packed = ask(managed, "GET", "/portal/style.css", headers={"Accept-Encoding": "gzip, br"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.body == plain.body
    assert int(packed.headers["content-length"]) < len(plain.body) / 2
    assert packed.headers["vary"] == "Accept-Encoding"
    assert packed.headers["etag"] == plain.headers["etag"]
