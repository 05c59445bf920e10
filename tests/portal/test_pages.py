"""The portal as a person uses it: in a real browser, at a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from busway.testing import Server
from tests.browser import browser
from tests.http.asking import ask, make, manager
from tests.portal.using import (
    click,
    depth,
    fill,
    go,
    open_portal,
    send,
    sign_in,
    until,
    wait_for,
)

CONFIG = """
[[queues]]
name = "orders"

[[queues]]
name = "spread"
enable_partitioning = true

[[queues]]
name = "sessions"
requires_session = true

[[topics]]
name = "events"

[[topics.subscriptions]]
name = "large"
rules = [{ name = "large", sql_filter = "amount > 100 AND sys.Label = 'order'" }]
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(config=CONFIG, arguments=["--allow-faults"]) as running:
        yield running


@pytest.fixture(scope="module")
def window(server: Server) -> Iterator[Chrome]:
    """Signed in."""
    with browser() as opened:
        open_portal(opened, server)
        wait_for(opened, "table.list tbody tr")
        yield opened


def test_who_has_the_wrong_key_is_told(server: Server) -> None:
    with browser() as stranger:
        stranger.get(f"http://localhost:{server.port}/portal/")
        sign_in(stranger, "a wrong key")
        assert (
            "Is it the connection string of this server?"
            in wait_for(stranger, ".problem", "connection string").text
        )
        assert stranger.find_elements(By.CSS_SELECTOR, "table") == []
        key = stranger.execute_script("return JSON.stringify([localStorage, sessionStorage])")
        assert "wrong" not in key


def test_p_9_a_new_queue_is_partitioned_unless_told_otherwise(
    server: Server, window: Chrome
) -> None:
    go(window, server, "")
    click(window, ".title button", "Create queue")
    fill(window, "Name", "made-here")
    box = window.find_element(By.XPATH, "//label[text()='Enable partitioning']/../input")
    assert box.is_selected()
    click(window, "dialog button.primary", "Create")
    assert "made-here" in wait_for(window, "h1", "made-here").text
    click(window, ".tabs a", "Partition map")
    wait_for(window, ".cell .depth", "0")
    assert len(window.find_elements(By.CSS_SELECTOR, ".cell")) == 16
    # P-15: the maximum size is that of all partitions together.
    click(window, ".tabs a", "Overview")
    shown = wait_for(window, ".figures", "Maximum size").text
    assert "16.0 GiB\n1.0 GiB \u00d7 16" in shown
    click(window, "button.danger", "Delete")
    click(window, "dialog button.danger", "Delete")
    wait_for(window, "h1", "Entities")
    reply = ask(server, "GET", "/made-here/$explorer", token=manager(server))
    assert reply.status == 404


def test_a_message_is_sent_looked_at_and_dead_lettered(server: Server, window: Chrome) -> None:
    go(window, server, "entity/orders/explorer")
    click(window, "button.primary", "Send message")
    fill(window, "Body", '{"amount": 5}')
    fill(window, "Message id", "m-1")
    fill(window, "Application properties", '{"colour": "blå"}')
    click(window, "dialog button.primary", "Send")
    wait_for(window, "table.list td", "m-1")
    click(window, "table.list button.link")
    assert '"amount": 5' in wait_for(window, ".detail pre", "amount").text
    assert "blå (string)" in window.find_element(By.CSS_SELECTOR, ".detail").text
    click(window, "button", "Receive and lock one")
    wait_for(window, ".detail .badge", "locked for you")
    click(window, ".detail button", "Dead-letter")
    fill(window, "Reason", "no address")
    click(window, "dialog button.primary", "Dead-letter")
    wait_for(window, ".empty", "No messages")
    assert depth(server, "orders")["dead_letter"] == 1
    click(window, ".chip", "Dead letters")
    assert "no address" in wait_for(window, "table.list", "m-1").text
    click(window, "button", "Resubmit all")
    click(window, "dialog button.primary", "Resubmit")
    wait_for(window, ".empty", "No dead letters")
    assert depth(server, "orders")["active"] == 1
    click(window, ".chip", "Active")
    wait_for(window, "table.list td", "m-1")
    click(window, "button.danger", "Purge")
    assert "1 messages are deleted" in wait_for(window, "dialog p", "deleted").text
    click(window, "dialog button.danger", "Purge")
    wait_for(window, ".empty", "No messages")
    assert depth(server, "orders")["messages"] == 0


def test_rules_are_tried_and_say_why_not(server: Server, window: Chrome) -> None:
    go(window, server, "entity/events/rules")
    wait_for(window, ".try button")
    fill(window, "Application properties", '{"amount": 500}')
    click(window, ".try button", "Try")
    shown = wait_for(window, ".try .card", "large")
    assert "does not get it" in shown.text
    assert "sys.Label = 'order' is unknown" in shown.text


def test_p_43_a_store_that_is_gone_shows_at_once(server: Server, window: Chrome) -> None:
    go(window, server, "entity/spread/partitions")
    wait_for(window, ".cell", "store-0")
    card = wait_for(window, ".stores .card", "store-1")
    try:
        next(
            each for each in card.find_elements(By.TAG_NAME, "button") if each.text == "Gone"
        ).click()
        wait_for(window, ".hint", "8 of 16 partitions are unavailable")
        assert len(window.find_elements(By.CSS_SELECTOR, ".cell.away")) == 8
        wait_for(window, ".entities .badge", "Limited")
    finally:
        make(server, "store-1", "none")
    wait_for(window, ".hint", "All 16 partitions are available")


def test_sessions_and_their_state_are_shown(server: Server, window: Chrome) -> None:
    send(server, "sessions", ServiceBusMessage("x", session_id="order 7"))
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("sessions", session_id="order 7") as receiver,
    ):
        receiver.session.set_state(b"packed")
    go(window, server, "entity/sessions/sessions")
    wait_for(window, "table.list th", "order 7")
    click(window, "table.list button.link", "State")
    assert wait_for(window, "dialog pre").text == "packed"
    click(window, "dialog button", "Close")


PLACES = [
    "",
    "health",
    "connections",
    "keys",
    "captures",
    "entity/spread",
    "entity/spread/partitions",
    "entity/spread/settings",
    "entity/orders/explorer",
    "entity/events/subscriptions",
    "entity/events/rules",
    "entity/events%2FSubscriptions%2Flarge/rules",
    "entity/sessions/sessions",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_tool_for_accessibility_finds_nothing_serious(
    server: Server, window: Chrome, place: str
) -> None:
    go(window, server, place)
    wait_for(window, ".badge", "connected")
    until(window, lambda _: len(window.find_element(By.TAG_NAME, "main").text) > 9)
    assert "This cannot be shown" not in window.find_element(By.TAG_NAME, "main").text
    window.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text())
    found = window.execute_async_script(
        "const done = arguments[0]; axe.run(document).then((all) => done(JSON.stringify("
        "all.violations.map((each) => [each.impact, each.id, each.nodes.map((n) => n.html)]))))"
    )
    serious = [each for each in json.loads(found) if each[0] in ("serious", "critical")]
    assert serious == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_no_page_is_wider_than_its_window(
    server: Server, window: Chrome, width: int, dark: bool
) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        for place in ("", "entity/spread", "entity/spread/partitions", "entity/orders/explorer"):
            go(window, server, place)
            wait_for(window, ".badge", "connected")
            wait_for(window, "main h1")
            widest = window.execute_script("return document.documentElement.scrollWidth")
            assert widest <= width, place
    finally:
        window.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_browser_has_nothing_to_complain_about(server: Server, window: Chrome) -> None:
    window.get_log("browser")
    go(window, server, "")
    wait_for(window, "table.list tbody tr")
    assert [each for each in window.get_log("browser") if each["level"] == "SEVERE"] == []
