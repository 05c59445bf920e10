"""Names that a shell completes: entities of the server at hand, if it answers soon.

    eval "$(busway completion bash)"

A shell waits for this at every Tab, so whatever goes wrong means that nothing is proposed.
"""

from __future__ import annotations

from typing import Any

MOST = "200"


def entity_names(incomplete: str) -> list[str]:
    from urllib.parse import urlencode

    from busway.remote.client import RemoteError
    from busway.remote.console import server_at

    query = urlencode({"entity": f"{incomplete}*", "top": MOST})
    try:
        found: dict[str, Any] = server_at(None).get(f"/$busway/map?{query}")
    except (RemoteError, SystemExit):
        return []
    return [each["name"] for each in found["entities"]]
