"""`python -m busway.sim`: many seeds, one after the other; the first that fails is told how to
replay it exactly, and the exit code is 1."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from typing import Annotated

import typer

from busway.broker.broker import Broker
from busway.sim.bugs import BUGS
from busway.sim.simulation import STEPS, Simulation

app = typer.Typer(add_completion=False)


@app.command()
def main(
    seeds: Annotated[int, typer.Option(help="How many seeds to run.")] = 100,
    seed: Annotated[int | None, typer.Option(help="Run this one seed only.")] = None,
    first: Annotated[int, typer.Option(help="The first of many seeds.")] = 0,
    steps: Annotated[int, typer.Option(help="How much the clients of a seed do.")] = STEPS,
    verbose: Annotated[bool, typer.Option(help="Print every event.")] = False,
    bug: Annotated[str | None, typer.Option(help=f"Put in a bug: {', '.join(BUGS)}.")] = None,
) -> None:
    """Simulate brokers, stores and clients in virtual time, with faults; check every promise."""
    if bug is not None and bug not in BUGS:
        typer.echo(f"There is no bug '{bug}'; there are: {', '.join(BUGS)}.", err=True)
        raise typer.Exit(2)
    if not verbose:
        logging.disable(logging.CRITICAL)  # faults are what this is about
    chosen = range(first, first + seeds) if seed is None else range(seed, seed + 1)
    began_s = time.monotonic()
    events = 0
    for count, each in enumerate(chosen, 1):
        make_broker = Broker if bug is None else BUGS[bug]
        tell = print if verbose else None
        try:
            result = Simulation(each, steps=steps, make_broker=make_broker, tell=tell).run()
        except Exception as error:
            _report(each, steps, bug, error)
            raise typer.Exit(1) from None
        events += result.events
        if count == len(chosen) or sys.stderr.isatty():
            elapsed_s = time.monotonic() - began_s
            line = f"seed {each}: {count} of {len(chosen)} well, {events} events, {elapsed_s:.1f} s"
            end = "\n" if count == len(chosen) else "\r"
            print(line, end=end, file=sys.stderr, flush=True)
    if seed is not None:
        print(f"seed {seed}: digest {result.digest}")


def _report(seed: int, steps: int, bug: str | None, error: Exception) -> None:
    if not isinstance(error, AssertionError) or not str(error):
        traceback.print_exception(error)
    options = [f"--seed {seed}"]
    if steps != STEPS:
        options.append(f"--steps {steps}")
    if bug is not None:
        options.append(f"--bug {bug}")
    print(f"\nseed {seed} failed: {type(error).__name__}: {error}", file=sys.stderr)
    print(f"replay it with:  python -m busway.sim {' '.join(options)} --verbose", file=sys.stderr)


if __name__ == "__main__":
    app()
