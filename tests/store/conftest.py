"""Every store behind the same tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from busway.store.base import MessagingStore
from tests.store.places import PLACES, NewHandle, Owner, two_sub_queues


@pytest.fixture(params=list(PLACES))
def new_handle(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewHandle]:
    """Gives handles on one and the same place, and closes them all at the end."""
    new = PLACES[request.param](tmp_path)
    handles: list[MessagingStore] = []

    def remembering() -> MessagingStore:
        handles.append(new())
        return handles[-1]

    yield remembering
    for handle in handles:
        handle.close()


@pytest.fixture
def owner(new_handle: NewHandle) -> Owner:
    """The owner of a store with two empty sub-queues, after batch 1."""
    owner = Owner(new_handle())
    owner.commit(**two_sub_queues())
    return owner
