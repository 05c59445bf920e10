"""The table of errors: condition on the wire, HTTP status, sub-code, text, whether to try again.

The texts are the service's own (amqp.md section 15); a client library matches some of them by
regular expression, so they are data, not prose.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorKind:
    name: str
    condition: str
    status: int
    sub_code: int
    text: str
    """With `{fields}` that `BusError` fills."""
    retryable: bool = False


class BusError(Exception):
    """An error that a client is told about."""

    def __init__(self, kind: ErrorKind, *, refused: bool = False, **fields: object) -> None:
        self.kind = kind
        self.text = kind.text.format(**fields)
        self.refused = refused
        """Certainly nothing was stored: an unkeyed send may try another partition (D-4)."""
        super().__init__(self.text)

    @property
    def condition(self) -> str:
        return self.kind.condition
