"""The hands of a person at the portal: sign in, go somewhere, click, type, wait until it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from busway.testing import Server
from tests.http.asking import ask, manager

WAIT_S = 60
"""Generous: a page takes well under a second, a loaded machine may not."""


def until(window: Chrome, condition: Callable[[Chrome], Any]) -> Any:
    """What the condition says once it says something. A page may be redrawn while it is read."""
    waiting = WebDriverWait(window, WAIT_S, ignored_exceptions=[StaleElementReferenceException])
    return waiting.until(condition)


def wait_for(window: Chrome, selector: str, text: str = "") -> WebElement:
    """The first element there that shows this text."""

    def found(_: Chrome) -> WebElement | None:
        shown = window.find_elements(By.CSS_SELECTOR, selector)
        return next((each for each in shown if text in each.text), None)

    element = until(window, found)
    assert isinstance(element, WebElement)
    return element


def open_portal(window: Chrome, server: Server) -> None:
    """Signed in."""
    window.get(f"http://localhost:{server.port}/")
    sign_in(window, server.connection_string)
    wait_for(window, "main h1", "Entities")


def sign_in(window: Chrome, text: str) -> None:
    wait_for(window, "input[type=password]").send_keys(text)
    window.find_element(By.CSS_SELECTOR, ".sign-in button").click()


def go(window: Chrome, server: Server, place: str) -> None:
    """As an address that somebody has sent."""
    window.get("about:blank")
    window.get(f"http://localhost:{server.port}/portal/#/{place}")


def click(window: Chrome, selector: str, text: str = "") -> None:
    def clicked(_: Chrome) -> bool:
        wait_for(window, selector, text).click()
        return True

    until(window, clicked)


def fill(window: Chrome, label: str, text: str) -> None:
    fields = window.find_elements(By.CSS_SELECTOR, "dialog .field")
    for each in fields or window.find_elements(By.CSS_SELECTOR, ".try .field"):
        if each.find_element(By.TAG_NAME, "label").text == label:
            control = each.find_element(By.CSS_SELECTOR, "input, textarea, select")
            control.clear()
            control.send_keys(text)
            return
    raise AssertionError(f"there is no field '{label}'")


def texts(window: Chrome, selector: str) -> list[str]:
    """Of all that are there, read at one moment."""
    script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)"
    found = window.execute_script(script, selector)
    assert isinstance(found, list)
    return found


def send(server: Server, queue: str, *messages: ServiceBusMessage) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for message in messages:
            sender.send_messages(message)


def depth(server: Server, path: str) -> dict[str, int]:
    reply = ask(server, "GET", f"/{path}/$explorer", token=manager(server))
    found = reply.json["depth"]
    assert isinstance(found, dict)
    return found
