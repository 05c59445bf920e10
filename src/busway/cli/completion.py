"""`busway completion`: the lines that make a shell complete commands, options and names."""

from __future__ import annotations

from typing import Annotated

import typer

from busway.cli.options import Command, refuse

HELP = """Print what a shell needs to complete commands, options and names of entities.

\b
  eval "$(busway completion bash)"           in ~/.bashrc
  eval "$(busway completion zsh)"            in ~/.zshrc, after compinit
  busway completion fish >~/.config/fish/completions/busway.fish

Names of entities are those of the server that BUSWAY_CONNECTION_STRING names, or that runs on
./data.
"""
SHELLS = ("bash", "zsh", "fish", "powershell")
VARIABLE = "_BUSWAY_COMPLETE"


def add_to(app: typer.Typer) -> None:
    app.command("completion", cls=Command, help=HELP)(completion)


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"One of {', '.join(SHELLS)}.")],
) -> None:
    from typer._completion_shared import get_completion_script

    if shell not in SHELLS:
        refuse(f"There is nothing for '{shell}'. There is for {', '.join(SHELLS)}.")
    print(get_completion_script(prog_name="busway", complete_var=VARIABLE, shell=shell))


def prepare() -> None:
    """A shell asks: answer in the form that the lines above expect."""
    import os

    if VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
