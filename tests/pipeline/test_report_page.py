"""The report as a person sees it: opened in a real browser, from a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from busway.pipeline.figures import report
from tests.browser import browser
from tests.pipeline.test_report import HOSTILE, NOON, figures

TITLES = ["Throughput", "Waiting", "Partitions over time", "Skew", "Top keys", "Dead letters",
          "Duplicates", "Order of sessions"]  # fmt: skip


@pytest.fixture(scope="module")
def window() -> Iterator[Chrome]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    one, other = figures(), figures(entity=HOSTILE)
    joined = report.Figures(
        *(getattr(one, name) + getattr(other, name) for name in report.Figures.__slots__)
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report.page(joined, NOON, "./lake"), encoding="utf-8")
    return path


def requested(window: Chrome) -> list[str]:
    """What the browser asked for since it was last asked about it."""
    events = [json.loads(entry["message"])["message"] for entry in window.get_log("performance")]
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]


def box(element: Any) -> tuple[float, float]:
    return element.rect["width"], element.rect["height"]


def test_it_opens_with_every_chart_drawn_and_nothing_fetched(window: Chrome, page: Path) -> None:
    requested(window)
    window.get(page.as_uri())
    assert {urlsplit(url).scheme for url in requested(window)} == {"file"}
    assert window.get_log("browser") == []
    sections = window.find_elements(By.CSS_SELECTOR, "main section")
    assert {section.find_element(By.TAG_NAME, "h2").text for section in sections} == {
        "orders",
        HOSTILE,
    }
    for section in sections:
        assert [each.text for each in section.find_elements(By.TAG_NAME, "h3")] == TITLES
        charts = section.find_elements(By.TAG_NAME, "svg")
        assert len(charts) == 7
        assert all(min(box(chart)) > 20 for chart in charts)


def test_what_is_pointed_at_tells_its_value(window: Chrome, page: Path) -> None:
    window.get(page.as_uri())
    first = window.find_element(By.CSS_SELECTOR, "circle.dot title")
    assert first.get_attribute("textContent") == "enqueued: 5 events/min, 2026-11-16 12:00 UTC"


def test_the_contents_lead_to_each_entity(window: Chrome, page: Path) -> None:
    window.get(page.as_uri())
    links = window.find_elements(By.CSS_SELECTOR, "nav a")
    assert len(links) == 2
    links[1].click()
    shown = window.execute_script(
        "return document.querySelector(location.hash).getBoundingClientRect().top"
    )
    assert -1 < shown < window.execute_script("return innerHeight")


@pytest.mark.parametrize("width", [1200, 500])
def test_it_is_never_wider_than_its_window(window: Chrome, page: Path, width: int) -> None:
    window.set_window_size(width, 900)
    window.get(page.as_uri())
    assert window.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_in_the_dark_it_is_dark(page: Path) -> None:
    def background(window: Chrome) -> str:
        window.get(page.as_uri())
        return str(window.execute_script("return getComputedStyle(document.body).backgroundColor"))

    with browser(dark=True) as dark, browser() as light:
        assert (background(light), background(dark)) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")
