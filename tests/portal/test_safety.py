"""What strangers write into messages and names stays text, and nobody acts without a key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from busway.testing import Server
from tests.browser import browser
from tests.http.asking import ask, manager
from tests.portal.using import click, go, open_portal, send, sign_in, wait_for

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
XML = "<a xmlns='http://www.w3.org/1999/xhtml'><script>document.title='owned'</script><b>7</b></a>"
CONFIG = """
[[queues]]
name = "orders"

[[queues]]
name = "sessions"
requires_session = true

[[topics]]
name = "events"

[[topics.subscriptions]]
name = "all"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(config=CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def window(server: Server) -> Iterator[Chrome]:
    with browser() as opened:
        open_portal(opened, server)
        yield opened


def is_unharmed(window: Chrome) -> None:
    assert window.title != "owned"
    assert window.find_elements(By.CSS_SELECTOR, "main img, main script, dialog img") == []


def test_what_a_message_holds_is_never_read_as_html(server: Server, window: Chrome) -> None:
    hostile = ServiceBusMessage(
        HOSTILE,
        message_id=HOSTILE,
        subject=HOSTILE,
        correlation_id=HOSTILE,
        application_properties={HOSTILE: HOSTILE},
    )
    send(server, "orders", hostile)
    go(window, server, "entity/orders/explorer")
    click(window, "table.list button.link")
    assert HOSTILE in wait_for(window, ".detail pre", "<img").text
    assert f"{HOSTILE} (string)" in window.find_element(By.CSS_SELECTOR, ".detail").text
    is_unharmed(window)
    ask(server, "DELETE", "/orders/$explorer/messages", token=manager(server))


def test_xml_is_shown_in_order_and_never_run(server: Server, window: Chrome) -> None:
    send(server, "orders", ServiceBusMessage(XML))
    go(window, server, "entity/orders/explorer")
    click(window, "table.list button.link")
    assert "  <b>7</b>" in wait_for(window, ".detail pre", "<b>").text
    click(window, ".detail button", "Hex")
    assert "00000000  3c 61 20" in wait_for(window, ".detail pre", "00000000").text
    is_unharmed(window)
    ask(server, "DELETE", "/orders/$explorer/messages", token=manager(server))


def test_a_session_and_its_state_stay_text(server: Server, window: Chrome) -> None:
    send(server, "sessions", ServiceBusMessage("x", session_id=HOSTILE))
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("sessions", session_id=HOSTILE) as receiver,
    ):
        receiver.session.set_state(HOSTILE.encode())
    go(window, server, "entity/sessions/sessions")
    wait_for(window, "table.list th", "<img")
    click(window, "table.list button.link", "State")
    assert wait_for(window, "dialog pre", "<img").text == HOSTILE
    is_unharmed(window)
    click(window, "dialog button", "Close")
    click(window, "table.list a", "Messages")
    assert HOSTILE in wait_for(window, "p.hint", "Only session").text
    is_unharmed(window)


def test_a_rule_of_any_text_and_an_address_of_any_text_stay_text(
    server: Server, window: Chrome
) -> None:
    go(window, server, "entity/events%2FSubscriptions%2Fall/rules")
    wait_for(window, "table.list th", "$Default")
    script = """
    const [text, done] = arguments;
    import("/portal/management.js").then(async (management) => {
      const filter = { sql: `colour = '${text}'` };
      await management.putRule("/events/Subscriptions/all", "odd", filter, null);
      done(true);
    });
    """
    assert window.execute_async_script(script, HOSTILE.replace("'", "''"))
    go(window, server, "entity/events%2FSubscriptions%2Fall/rules")
    assert "<img" in wait_for(window, "table.list code", "<img").text
    is_unharmed(window)
    go(window, server, "entity/%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D'owned'%22%3E")
    wait_for(window, "h1", "This cannot be shown")
    is_unharmed(window)


def test_no_request_changes_anything_without_a_token_in_a_header(
    server: Server, window: Chrome
) -> None:
    """A page of somebody else's can make a browser send requests, and not this header."""
    go(window, server, "entity/orders/explorer")
    click(window, "button.primary", "Send message")
    wait_for(window, "dialog h2", "Send to orders")
    script = """
    const done = arguments[0];
    const asked = [];
    const real = window.fetch;
    window.fetch = (path, options) => {
      const { method, headers, credentials } = options;
      asked.push([method, headers.Authorization?.slice(0, 21) ?? null, credentials]);
      return real(path, options);
    };
    document.querySelector("dialog form").requestSubmit();
    const look = setInterval(() => {
      if (document.querySelector("dialog")) return;
      clearInterval(look);
      window.fetch = real;
      done(asked);
    }, 20);
    """
    asked = window.execute_async_script(script)
    assert "POST" in {method for method, _, _ in asked}
    assert {header for _, header, _ in asked} == {"SharedAccessSignature"}
    assert {credentials for _, _, credentials in asked} == {"omit"}
    for method, path in [
        ("POST", "/orders/messages"),
        ("DELETE", "/orders/$explorer/messages"),
        ("PUT", "/made?api-version=2021-05"),
        ("POST", "/$busway/stores/store-0/fault"),
        ("POST", "/$busway/report/link"),
    ]:
        assert ask(server, method, path, {}).status == 401, path


def test_a_page_may_run_no_script_that_is_not_a_file_of_the_server(
    server: Server, window: Chrome
) -> None:
    go(window, server, "")
    wait_for(window, ".badge", "connected")
    ran = window.execute_script("""
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        const frame = document.createElement("div");
        frame.innerHTML = "<p style='color: red'>x</p>";
        document.body.append(frame);
        return [window.ran ?? null, getComputedStyle(frame.firstChild).color];
    """)
    assert ran[0] is None
    assert ran[1] != "rgb(255, 0, 0)"


def test_signing_out_leaves_nothing_in_the_tab(server: Server, window: Chrome) -> None:
    go(window, server, "entity/orders/explorer")
    wait_for(window, "h1", "orders")
    kept = "return JSON.stringify(sessionStorage) + JSON.stringify(localStorage) + document.cookie"
    assert "SharedAccessKey" in window.execute_script(kept)
    click(window, "header button", "Sign out")
    wait_for(window, ".sign-in button", "Sign in")
    assert window.execute_script(kept) == "{}{}"
    assert "orders" not in window.current_url + window.title
    assert "orders" not in window.find_element(By.TAG_NAME, "body").text
    go(window, server, "entity/orders/explorer")
    wait_for(window, ".sign-in button", "Sign in")
    assert window.find_elements(By.CSS_SELECTOR, "table") == []
    go(window, server, "")
    sign_in(window, server.connection_string)
    wait_for(window, "main h1", "Entities")
