"""`make pictures`: the pictures of the portal in `docs/images`, of a real server with some traffic.

    python -m tests.portal.pictures [FOLDER] [WIDTHS] [SCHEMES]

Other widths than 1280 and the dark scheme get names of their own, to be looked at:
`python -m tests.portal.pictures /tmp/looked-at 390,1280,1920 light,dark`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from busway.testing import Server
from tests.browser import browser
from tests.http.asking import make
from tests.portal.using import click, fill, go, open_portal, until, wait_for

ROOT = Path(__file__).parent.parent.parent
WIDTH, HEIGHT, PHONE = 1280, 900, 500
QUEUE = "orders-partitioned"
SAMPLES = 12
"""Looks at the queue before charts are taken: a line needs some points."""


@contextmanager
def traffic(server: Server) -> Iterator[None]:
    """Somebody sends to all entities and receives from the partitioned queue, some dead letters."""
    stop = threading.Event()
    work = [
        threading.Thread(target=each, args=(server.connection_string, stop))
        for each in (_send, _receive)
    ]
    for each in work:
        each.start()
    try:
        yield
    finally:
        stop.set()
        for each in work:
            each.join()


def _order(number: int) -> ServiceBusMessage:
    amount = number * 7 % 2000
    body = json.dumps({"order": number, "amount": amount, "customer": {"city": "Ulm"}})
    return ServiceBusMessage(
        body,
        subject="order",
        message_id=f"order-{number}",
        content_type="application/json",
        application_properties={"amount": amount},
    )


def _send(connection_string: str, stop: threading.Event) -> None:
    number = 0
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender(QUEUE) as spread,
        client.get_queue_sender("orders") as plain,
        client.get_topic_sender("events") as events,
    ):
        while not stop.wait(0.1):
            number += 1
            try:
                for turn in range(3):
                    spread.send_messages(_order(3 * number + turn))
                pinned = _order(number)
                pinned.partition_key = f"customer {number}"
                spread.send_messages(pinned)
                if number % 10 == 0:
                    plain.send_messages(_order(number))
                    events.send_messages(_order(number))
            except ServiceBusError:
                continue  # the store of its key is away: that is what the picture shows


def _receive(connection_string: str, stop: threading.Event) -> None:
    handled = 0
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        while not stop.is_set():
            for message in receiver.receive_messages(20, max_wait_time=1):
                handled += 1
                try:
                    if handled % 25 == 0:
                        receiver.dead_letter_message(message, reason="no address")
                    else:
                        receiver.complete_message(message)
                except ServiceBusError:
                    continue


class Camera:
    def __init__(self, window: Chrome, folder: Path, widths: list[int], schemes: list[str]) -> None:
        self._window = window
        self._folder = folder
        self._looks = [(width, scheme) for width in widths for scheme in schemes]

    def take(self, name: str) -> None:
        for width, scheme in self._looks:
            emulated = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            self._window.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
            screen = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1}
            screen["mobile"] = width < PHONE
            self._window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
            drawn = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
            self._window.execute_async_script(drawn)
            more = [f"-{width}"] * (width != WIDTH) + [f"-{scheme}"] * (scheme != "light")
            self._window.save_screenshot(str(self._folder / f"portal-{name}{''.join(more)}.png"))


def take_all(server: Server, window: Chrome, camera: Camera) -> None:
    entity = f"entity/{QUEUE}"
    points = "return document.querySelector('.chart polyline')?.points.numberOfItems ?? 0"
    go(window, server, entity)
    until(window, lambda _: window.execute_script(points) >= SAMPLES)
    camera.take("overview")
    click(window, ".places a", "Entities")
    wait_for(window, "main tbody tr", "events")
    camera.take("namespace")
    go(window, server, f"{entity}/partitions")
    until(window, lambda _: "0/s" not in wait_for(window, ".cell .small", "in").text)
    camera.take("map")
    make(server, "store-1", "gone")
    try:
        wait_for(window, ".events", "their keys pin")
        camera.take("store-gone")
    finally:
        make(server, "store-1", "none")
    go(window, server, f"{entity}/explorer?state=dead-letter")
    click(window, "main tbody button.link")
    wait_for(window, ".detail pre", "order")
    camera.take("explorer")
    go(window, server, "entity/events%2FSubscriptions%2Flarge-orders/rules")
    wait_for(window, "main table", "large")
    fill(window, "Subject (sys.Label)", "order")
    fill(window, "Application properties", '{"amount": 500}')
    click(window, ".try button", "Try")
    wait_for(window, ".try .card", "does not get it")
    window.execute_script("document.activeElement.blur()")
    camera.take("rules")
    for place in ("health", "connections", "keys", "captures"):
        if len(sys.argv) > 1:  # for those who look at everything
            go(window, server, place)
            until(window, lambda _: window.find_elements(By.CSS_SELECTOR, "main h1"))
            wait_for(window, "main table, main .empty")
            camera.take(place)


def main() -> None:
    given = [*sys.argv[1:], *["docs/images", str(WIDTH), "light"][len(sys.argv) - 1 :]]
    folder = (ROOT / given[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    config = (ROOT / "examples" / "tour.toml").read_text()
    with (
        Server(config=config, arguments=["--allow-faults"]) as server,
        traffic(server),
        browser() as window,
    ):
        open_portal(window, server)
        widths = [int(each) for each in given[1].split(",")]
        take_all(server, window, Camera(window, folder, widths, given[2].split(",")))
    print(f"The pictures are in {folder}.")


if __name__ == "__main__":
    main()
