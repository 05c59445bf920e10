"""A new user's first minutes at the portal, as the tutorial tells them: create a partitioned queue,
use it with the SDK, take a store away and watch, bring it back, send a dead letter back, capture.

Words that the tutorial tells people to click are looked up in it here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from busway.testing import Server
from tests.browser import browser
from tests.http.asking import ask, manager
from tests.portal.using import click, depth, fill, open_portal, until, wait_for

ROOT = Path(__file__).parent.parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial" / "first-ten-minutes.md").read_text()
KEYS = [f"customer {number}" for number in range(64)]
REPORT = "<!doctype html><title>Report</title><h1>All that was captured</h1>"


@pytest.fixture
def server() -> Iterator[Server]:
    config = (ROOT / "examples" / "tour.toml").read_text()
    with Server(config=config, arguments=["--allow-faults"]) as running:
        yield running


@pytest.fixture
def window(server: Server) -> Iterator[Chrome]:
    with browser() as opened:
        open_portal(opened, server)
        yield opened


def shown_in_tutorial(*words: str) -> None:
    for each in words:
        assert each in TUTORIAL, f"the tutorial does not say '{each}'"


def test_the_first_ten_minutes(server: Server, window: Chrome) -> None:
    # Create a partitioned queue.
    shown_in_tutorial("Create queue", "Enable partitioning", "parcels")
    click(window, "main button", "Create queue")
    fill(window, "Name", "parcels")
    click(window, "dialog button.primary", "Create")
    wait_for(window, "h1", "parcels")

    # The page has the program; it runs as it is shown, with the connection string that is shown.
    shown_in_tutorial("Show key", "Connect")
    click(window, "main button", "Show key")
    exported = wait_for(window, "pre", "SharedAccessKey=").text
    connection_string = exported.partition("'")[2].rpartition("'")[0]
    assert f"sb://localhost:{server.port};" in connection_string
    program = wait_for(window, "pre", "ServiceBusClient").text
    printed: list[str] = []
    environment: dict[str, object] = {"print": lambda text: printed.append(str(text))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUSWAY_CONNECTION_STRING", connection_string)
        exec(compile(program, "portal", "exec"), environment)
    assert printed == ["hello"]
    wait_for(window, ".figures", "of 1 messages")

    # Break a store and watch: messages without a key go on, some with a key are refused.
    shown_in_tutorial("Partition map", "Gone", "Limited", "What happened", "Well")
    click(window, ".tabs a", "Partition map")
    until(window, lambda _: len(window.find_elements(By.CSS_SELECTOR, ".cell")) == 16)
    click(window, "[aria-label='Make store-1'] button", "Gone")
    wait_for(window, ".hint", "4 of 16 partitions are unavailable")
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender("parcels") as sender,
    ):
        for number in range(16):
            sender.send_messages(ServiceBusMessage(f"parcel {number}"))
        refused = 0
        for key in KEYS:
            try:
                sender.send_messages(ServiceBusMessage("to a customer", partition_key=key))
            except ServiceBusError:
                refused += 1
    assert 0 < refused < len(KEYS)
    wait_for(window, ".events", "without a key went to another partition")
    wait_for(window, ".events", "because their keys pin")
    click(window, "[aria-label='Make store-1'] button", "Well")
    wait_for(window, ".hint", "All 16 partitions are available")

    # Put one aside, look at it, send it back.
    shown_in_tutorial("Explorer", "Receive and lock one", "Dead-letter", "Resubmit all")
    click(window, ".tabs a", "Explorer")
    wait_for(window, "main tbody tr")
    before = depth(server, "parcels")["active"]
    click(window, "main button", "Receive and lock one")
    wait_for(window, ".detail .badge", "locked for you")
    click(window, ".detail button", "Dead-letter")
    fill(window, "Reason", "no address")
    click(window, "dialog button.primary", "Dead-letter")
    until(window, lambda _: depth(server, "parcels")["dead_letter"] == 1)
    click(window, ".chip", "Dead letters")
    wait_for(window, "main tbody tr", "no address")
    click(window, "main button", "Resubmit all")
    click(window, "dialog button.primary", "Resubmit")
    wait_for(window, ".empty", "No dead letters")
    assert depth(server, "parcels")["active"] == before

    # Capture; the report that the pipeline publishes is opened from here.
    shown_in_tutorial("Captures", "Capture an entity", "--publish", "Open")
    click(window, ".places a", "Captures")
    click(window, ".title button", "Capture an entity")
    fill(window, "Queue, topic or topic/Subscriptions/name", "parcels")
    click(window, "dialog button.primary", "Capture")
    wait_for(window, "main tbody tr", "parcels")
    assert (
        ask(server, "PUT", "/$busway/report", {"page": REPORT}, token=manager(server)).status == 200
    )
    wait_for(window, "main .card", "Latest report")
    click(window, "main .card button", "Open")
    until(window, lambda _: len(window.window_handles) == 2)
    window.switch_to.window(window.window_handles[1])
    assert wait_for(window, "h1", "All that was captured")
