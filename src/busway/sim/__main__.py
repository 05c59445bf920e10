"""`python -m busway.sim`: many seeds, one after the other; the first that fails is told how to
replay it exactly, and the exit code is 1."""

from __future__ import annotations

import sys
import time
import traceback
from enum import StrEnum
from typing import Annotated

import typer

from busway.broker.broker import Broker
from busway.sim.amqp_features_simulation import AmqpFeaturesSimulation
from busway.sim.amqp_simulation import AmqpSimulation
from busway.sim.bugs import BUGS
from busway.sim.features_simulation import FeaturesSimulation
from busway.sim.link_bugs import LINK_BUGS, planted
from busway.sim.links_simulation import LinksSimulation
from busway.sim.simulation import STEPS, Result, Simulation


class Clients(StrEnum):
    DIRECT = "direct"
    """On the brokers' own seam."""
    AMQP = "amqp"
    """Over connections, a network and a gateway."""
    FEATURES = "features"
    """As direct ones, with sessions, schedules, duplicates, forwarding, transactions, topics."""
    AMQP_FEATURES = "amqp-features"
    """All of that over connections, and quotas."""
    LINKS = "links"
    """All of that again, on links, sessions and connections that come and go."""
    ALL = "all"


SIMULATIONS: dict[Clients, type[Simulation]] = {
    Clients.DIRECT: Simulation,
    Clients.AMQP: AmqpSimulation,
    Clients.FEATURES: FeaturesSimulation,
    Clients.AMQP_FEATURES: AmqpFeaturesSimulation,
    Clients.LINKS: LinksSimulation,
}

ALL_BUGS = (*BUGS, *LINK_BUGS)

app = typer.Typer(add_completion=False)


@app.command()
def main(
    seeds: Annotated[int, typer.Option(help="How many seeds to run.")] = 100,
    seed: Annotated[int | None, typer.Option(help="Run this one seed only.")] = None,
    first: Annotated[int, typer.Option(help="The first of many seeds.")] = 0,
    clients: Annotated[Clients, typer.Option(help="How clients reach brokers.")] = Clients.ALL,
    steps: Annotated[int, typer.Option(help="How much the clients of a seed do.")] = STEPS,
    verbose: Annotated[bool, typer.Option(help="Print every event.")] = False,
    bug: Annotated[str | None, typer.Option(help=f"Put in a bug: {', '.join(ALL_BUGS)}.")] = None,
) -> None:
    """Simulate brokers, stores and clients in virtual time, with faults; check every promise."""
    if bug is not None and bug not in ALL_BUGS:
        typer.echo(f"There is no bug '{bug}'; there are: {', '.join(ALL_BUGS)}.", err=True)
        raise typer.Exit(2)
    chosen = range(first, first + seeds) if seed is None else range(seed, seed + 1)
    ways = list(SIMULATIONS) if clients is Clients.ALL else [clients]
    began_s = time.monotonic()
    events = 0
    for count, each in enumerate(chosen, 1):
        for way in ways:
            result = _run(each, way, steps, verbose, bug)
            events += result.events
            if seed is not None:
                print(f"seed {seed}, {way.value} clients: digest {result.digest}")
        is_last = count == len(chosen)
        if is_last or sys.stderr.isatty():
            elapsed_s = time.monotonic() - began_s
            line = f"seed {each}: {count} of {len(chosen)} well, {events} events, {elapsed_s:.1f} s"
            print(line, end="\n" if is_last else "\r", file=sys.stderr, flush=True)


def _run(seed: int, way: Clients, steps: int, verbose: bool, bug: str | None) -> Result:
    make_broker = BUGS.get(bug or "", Broker)
    tell = print if verbose else None
    try:
        with planted(bug):
            return SIMULATIONS[way](seed, steps=steps, make_broker=make_broker, tell=tell).run()
    except Exception as error:
        if not isinstance(error, AssertionError) or not str(error):
            traceback.print_exception(error)
        options = [f"--seed {seed}", f"--clients {way.value}"]
        if steps != STEPS:
            options.append(f"--steps {steps}")
        if bug is not None:
            options.append(f"--bug {bug}")
        command = f"python -m busway.sim {' '.join(options)} --verbose"
        print(f"\nseed {seed} failed: {type(error).__name__}: {error}", file=sys.stderr)
        print(f"replay it with:  {command}", file=sys.stderr)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    app()
