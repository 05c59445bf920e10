"""What the commands of this room share: options that stay as they were typed, and how they end."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, NoReturn

from typer.core import TyperCommand, TyperGroup

USAGE_ERROR = 2
"""What is wrong is the user's to put right: a setting, a port in use, a folder that is taken."""


class AsTyped:
    """A command or group whose options stay as they were typed."""

    def get_params(self, context: Any) -> list[Any]:
        options: list[Any] = super().get_params(context)  # type: ignore[misc]
        for option in options:
            option.process_value = partial(take_as_typed, option)
        return options


def take_as_typed(option: Any, context: Any, value: Any) -> Any:
    return value if option.callback is None else option.callback(context, option, value)


class Command(AsTyped, TyperCommand):
    pass


class Group(AsTyped, TyperGroup):
    pass


def refuse(text: str) -> NoReturn:
    """One clear sentence and a status, never a traceback."""
    print(f"busway: {text}", file=sys.stderr)
    sys.exit(USAGE_ERROR)
