"""What can be wrong with a rule: its text when it is made, a message when it is looked at.

`FilterSyntaxError` is for the person who writes a rule. `FilterError` and `RuleActionError` meet a
message; the subscription dead-letters it under their `reason`, the service's name of the exception
(RUL-4, DLQ-3).
"""

from __future__ import annotations

SHOWN_CHARS_EACH_SIDE = 40
"""How much of a long text is shown around a mistake, so that the caret stays in sight."""


class FilterSyntaxError(ValueError):
    """The text of a filter or action is not one (SQL-11)."""

    def __init__(self, source: str, position: int, found: str, expected: str) -> None:
        self.position = position
        """From 0; `column` is the same for people."""
        self.found = found
        self.expected = expected
        super().__init__(
            f"Column {position + 1}: found {found}, expected {expected}.\n"
            + _with_caret(source, position)
        )

    @property
    def column(self) -> int:
        return self.position + 1


class FilterError(Exception):
    """A filter cannot be decided for a message (SQL-3, SQL-7, SQL-9)."""

    reason = "FilterException"


class RuleActionError(Exception):
    """An action cannot be carried out on a message (ACT-3)."""

    reason = "RuleActionException"


def _with_caret(source: str, position: int) -> str:
    start = max(0, position - SHOWN_CHARS_EACH_SIDE)
    stop = position + SHOWN_CHARS_EACH_SIDE
    # One column each, whatever stands there, or the caret would point beside the mistake.
    shown = "".join(c if c.isprintable() else " " for c in source[start:stop])
    head = "..." if start else ""
    tail = "..." if stop < len(source) else ""
    return f"  {head}{shown}{tail}\n  {' ' * (len(head) + position - start)}^"
