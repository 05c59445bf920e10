"""The page about the lake has every table and column as they are."""

from __future__ import annotations

from tools import lake_page


def test_the_page_is_up_to_date() -> None:
    written = lake_page.PAGE.read_text(encoding="utf-8")
    assert written == lake_page.page(), f"run: {lake_page.COMMAND}"
