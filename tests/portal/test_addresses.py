"""Every view has an address; the keyboard is enough; long lists and large bodies stay fast."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from azure.servicebus import ServiceBusMessage
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from busway.testing import Server
from tests.browser import browser
from tests.http.asking import ask, manager
from tests.portal.using import (
    click,
    depth,
    fill,
    go,
    open_portal,
    send,
    texts,
    until,
    wait_for,
)

MANY = 2_000
CONFIG = """
[[queues]]
name = "orders"

[[topics]]
name = "events"

[[topics.subscriptions]]
name = "all"
""" + "".join(f'[[queues]]\nname = "many-{number:05}"\n' for number in range(MANY))
SHOWN_MAX = 200
PAGE = 100


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(config=CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def window(server: Server) -> Iterator[Chrome]:
    with browser() as opened:
        open_portal(opened, server)
        yield opened


def focused(window: Chrome) -> str:
    text = window.execute_script("return document.activeElement.innerText")
    return str(text)


def test_a_long_list_comes_in_pages_and_is_searched_at_the_server(
    server: Server, window: Chrome
) -> None:
    go(window, server, "")
    until(window, lambda _: len(texts(window, "main tbody tr")) == PAGE)
    assert len(texts(window, ".entities a")) == SHOWN_MAX
    wait_for(window, ".entities .hint", f"and {MANY + 3 - SHOWN_MAX:,} more")
    click(window, "main button", "Next")
    wait_for(window, "main .hint", f"{PAGE + 1:,} to {2 * PAGE:,} of {MANY + 3:,}")
    assert window.current_url.endswith("#/?page=1")
    wait_for(window, ".side input").send_keys(f"many-{MANY - 1:05}")
    until(window, lambda _: len(texts(window, ".entities a")) == 1)
    click(window, ".entities a")
    wait_for(window, "h1", f"many-{MANY - 1:05}")


def test_the_order_of_a_list_is_in_its_address(server: Server, window: Chrome) -> None:
    send(server, "many-01234", ServiceBusMessage("x"), ServiceBusMessage("y"))
    go(window, server, "")
    click(window, "main th button", "Active")
    until(window, lambda _: texts(window, "main tbody tr th")[0].startswith("many-01234"))
    address = window.current_url
    assert "sort=active" in address
    window.get("about:blank")
    window.get(address)
    until(window, lambda _: (texts(window, "main tbody tr th") or [""])[0].startswith("many-01234"))
    ask(server, "DELETE", "/many-01234/$explorer/messages", token=manager(server))


def test_reload_and_back_lead_where_one_was(server: Server, window: Chrome) -> None:
    send(server, "orders", ServiceBusMessage("one", message_id="m-1"))
    go(window, server, "entity/orders")
    wait_for(window, ".figures", "Status")
    click(window, ".tabs a", "Explorer")
    click(window, "table.list button.link")
    wait_for(window, ".detail h2", "m-1")
    window.refresh()  # the address has the message in it
    wait_for(window, ".detail h2", "m-1")
    click(window, ".tabs a", "Settings")
    wait_for(window, "table.settings", "Lock duration")
    window.back()
    wait_for(window, ".detail h2", "m-1")
    window.back()
    wait_for(window, ".figures", "Status")
    ask(server, "DELETE", "/orders/$explorer/messages", token=manager(server))


def test_the_keyboard_is_enough(server: Server, window: Chrome) -> None:
    go(window, server, "")
    wait_for(window, ".badge", "connected")
    ActionChains(window).send_keys("/").perform()
    ActionChains(window).send_keys("events").perform()
    until(window, lambda _: len(texts(window, ".entities a")) == 2)
    ActionChains(window).send_keys(Keys.TAB).perform()
    assert focused(window).startswith("events")
    ActionChains(window).send_keys(Keys.ENTER).perform()
    wait_for(window, "h1", "events")
    # What is redrawn every two seconds keeps the focus: the same element, asked again.
    go(window, server, "")
    wait_for(window, "main tbody tr")
    link = wait_for(window, "main tbody tr a", "many-00007")
    window.execute_script("arguments[0].focus()", link)
    drawn = (
        "return performance.getEntriesByType('resource')"
        ".filter((each) => each.name.includes('/$busway/')).length"
    )
    before = window.execute_script(drawn)
    until(window, lambda _: window.execute_script(drawn) >= before + 4)
    assert focused(window) == "many-00007"
    # A dialog is left with Escape, and nothing has happened.
    click(window, "main button", "Create queue")
    wait_for(window, "dialog")
    ActionChains(window).send_keys(Keys.ESCAPE).perform()
    until(window, lambda _: not window.find_elements(By.TAG_NAME, "dialog"))
    # The first stop of the keyboard leads past the navigation.
    window.execute_script("document.activeElement.blur(); document.querySelector('.skip').focus()")
    ActionChains(window).send_keys(Keys.ENTER).perform()
    assert window.execute_script("return document.activeElement.id") == "main"
    wait_for(window, "main h1", "Entities")


def test_a_large_body_is_loaded_when_it_is_asked_for(server: Server, window: Chrome) -> None:
    body = "é" * 120_000 + "end"
    send(server, "orders", ServiceBusMessage(body))
    go(window, server, "entity/orders/explorer")
    click(window, "table.list button.link")
    length = "return document.querySelector('.detail pre')?.textContent.length"
    until(window, lambda _: window.execute_script(length) == len(body))
    click(window, ".detail button", "Hex")
    until(
        window,
        lambda _: window.execute_script(
            "return document.querySelector('.detail pre').textContent.endsWith('download')"
        ),
    )
    ask(server, "DELETE", "/orders/$explorer/messages", token=manager(server))


def test_scheduled_messages_are_purged_with_a_count_first(server: Server, window: Chrome) -> None:
    go(window, server, "entity/orders/explorer")
    click(window, "button.primary", "Send message")
    fill(window, "Body", "later")
    fill(window, "Copies", "3")
    # A date control is typed into in the order of a locale: it is set as the browser would.
    window.execute_script(
        "document.querySelector('[type=datetime-local]').value = '2090-01-01T10:00'"
    )
    click(window, "dialog button.primary", "Send")
    until(window, lambda _: depth(server, "orders")["scheduled"] == 3)
    go(window, server, "entity/orders/explorer?state=scheduled")
    until(window, lambda _: len(texts(window, "main tbody tr")) == 3)
    click(window, "button.danger", "Purge")
    assert "3 messages are deleted" in wait_for(window, "dialog p", "deleted").text
    click(window, "dialog button.danger", "Purge")
    wait_for(window, ".empty", "Nothing is scheduled")
    assert depth(server, "orders")["scheduled"] == 0


def test_chosen_dead_letters_and_single_ones_are_resubmitted(
    server: Server, window: Chrome
) -> None:
    for number in range(3):
        ask(server, "POST", "/orders/messages", f"{number}", token=manager(server))
        got = ask(server, "POST", "/orders/messages/head?timeout=5", token=manager(server))
        properties = got.headers["brokerproperties"]
        lock = properties.partition('"LockToken":')[2].split('"')[1]
        settled = {"lock_token": lock, "settlement": "dead-letter"}
        path = "/orders/$explorer/messages/settle"
        assert ask(server, "POST", path, settled, token=manager(server)).status == 200
    go(window, server, "entity/orders/explorer?state=dead-letter")
    until(window, lambda _: len(texts(window, "main tbody tr")) == 3)
    click(window, "main tbody input")
    click(window, "main button", "Resubmit chosen")
    click(window, "dialog button.primary", "Resubmit")
    until(window, lambda _: len(texts(window, "main tbody tr")) == 2)
    click(window, "main tbody button.link")
    click(window, ".detail button", "Resubmit")
    click(window, "dialog button.primary", "Resubmit")
    until(window, lambda _: len(texts(window, "main tbody tr")) == 1)
    found = depth(server, "orders")
    assert (found["active"], found["dead_letter"]) == (2, 1)
    for place in ("", "/$DeadLetterQueue"):
        ask(server, "DELETE", f"/orders{place}/$explorer/messages", token=manager(server))


def test_rules_are_created_changed_and_deleted(server: Server, window: Chrome) -> None:
    go(window, server, f"entity/{quote('events/Subscriptions/all', safe='')}/rules")
    click(window, "main button", "Create rule")
    fill(window, "Name", "red")
    click(window, "dialog button", "Correlation filter")
    fill(window, "Subject", "order")
    fill(window, "Application properties", '{"colour": "red", "amount": 5}')
    click(window, "dialog button.primary", "Create")
    wait_for(window, "table.list code", "Label = 'order' AND colour = 'red' AND amount = 5")
    row = wait_for(window, "table.list tr", "red")
    row.find_element(By.XPATH, ".//button[text()='Edit']").click()
    click(window, "dialog button", "SQL filter")
    fill(window, "SQL filter", "amount > 7")
    click(window, "dialog button.primary", "Save")
    row = wait_for(window, "table.list tr", "amount > 7")
    row.find_element(By.XPATH, ".//button[text()='Delete']").click()
    click(window, "dialog button.danger", "Delete")
    until(window, lambda _: "red" not in "".join(texts(window, "table.list th")))


@pytest.mark.parametrize(
    ("arguments", "reason", "is_ticked"),
    [
        (["--tier", "premium"], "this Premium namespace was made without partitions", False),
        (
            ["--tier", "premium", "--namespace-partitions", "2"],
            "in this Premium namespace every entity has 2 partitions",
            True,
        ),
    ],
)
def test_p_11_where_the_tier_leaves_no_choice_the_box_is_grey_and_says_why(
    window: Chrome, arguments: list[str], reason: str, is_ticked: bool
) -> None:
    with Server(config='[[queues]]\nname = "q"\n', arguments=arguments) as premium:
        open_portal(window, premium)
        wait_for(window, "main tbody tr")
        click(window, ".title button", "Create queue")
        wait_for(window, "dialog small", reason)
        box = window.find_element(By.XPATH, "//label[text()='Enable partitioning']/../input")
        assert (box.is_enabled(), box.is_selected()) == (False, is_ticked)
