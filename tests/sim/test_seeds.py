"""D-35: the same promises over many seeds; a seed that fails is replayed by its number."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from busway.sim.__main__ import SIMULATIONS, Clients, app
from busway.sim.amqp_features_simulation import AmqpFeaturesSimulation
from busway.sim.bugs import BUGS, OF_PLAIN_QUEUES, OF_QUOTAS
from busway.sim.history import Violation
from busway.sim.link_bugs import LINK_BUGS, planted
from busway.sim.links_simulation import LinksSimulation

SEEDS = {
    Clients.DIRECT: 100,
    Clients.AMQP: 100,
    Clients.FEATURES: 40,
    Clients.AMQP_FEATURES: 40,
    Clients.LINKS: 60,
}
GROUPS = 10
"""So that several workers share them; a failure names its seed in any case."""
BUG_SEEDS = 20

WAYS = list(SIMULATIONS)
BUGS_OF = {
    Clients.DIRECT: OF_PLAIN_QUEUES,
    Clients.AMQP: OF_PLAIN_QUEUES,
    Clients.FEATURES: BUGS.keys() - OF_QUOTAS,
    Clients.AMQP_FEATURES: BUGS.keys(),
    Clients.LINKS: OF_PLAIN_QUEUES,
}
BUGS_BY_WAY = [(way, bug) for way in WAYS for bug in BUGS if bug in BUGS_OF[way]]


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("way", WAYS)
def test_every_promise_is_kept_whatever_goes_wrong(way: Clients, group: int) -> None:
    for seed in range(group, SEEDS[way], GROUPS):
        try:
            SIMULATIONS[way](seed).run()
        except BaseException as error:
            options = f"--seed {seed} --clients {way.value} --verbose"
            error.add_note(f"replay it with:  python -m busway.sim {options}")
            raise


@pytest.mark.parametrize("way", WAYS)
def test_a_seed_replays_exactly(way: Clients) -> None:
    first, second = (SIMULATIONS[way](7).run() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("way", WAYS)
def test_seeds_differ(way: Clients) -> None:
    assert SIMULATIONS[way](7).run().digest != SIMULATIONS[way](8).run().digest


@pytest.mark.parametrize(("way", "bug"), BUGS_BY_WAY)
def test_the_checkers_find_a_bug_that_is_there(way: Clients, bug: str) -> None:
    for seed in range(BUG_SEEDS):
        try:
            SIMULATIONS[way](seed, make_broker=BUGS[bug]).run()
        except (Violation, KeyError):
            return  # noticed by a checker, or by a broker whose own tables contradict each other
    pytest.fail(f"{BUG_SEEDS} seeds and no checker noticed {bug}")


@pytest.mark.parametrize("bug", LINK_BUGS)
def test_the_simulation_of_links_finds_a_mend_that_was_taken_out(bug: str) -> None:
    for seed in range(BUG_SEEDS):
        try:
            with planted(bug):
                LinksSimulation(seed).run()
        except (Violation, RecursionError):
            return
    pytest.fail(f"{BUG_SEEDS} seeds and nobody noticed {bug}")


def test_a_small_queue_is_full_and_takes_messages_again() -> None:
    """LIM-4: what the quotas' checker judges does happen."""
    quotas = []
    for seed in range(BUG_SEEDS):
        simulation = AmqpFeaturesSimulation(seed)
        simulation.run()
        quotas.append(simulation.quotas)
    assert sum(each.refused for each in quotas) > 0
    assert sum(each.taken_again for each in quotas) > 0


def test_the_command_says_how_to_replay_a_seed_that_failed() -> None:
    result = CliRunner().invoke(app, ["--seeds", "20", "--bug", "acknowledge-before-commit"])
    assert result.exit_code == 1
    assert "replay it with:  python -m busway.sim --seed" in result.output
    assert "--bug acknowledge-before-commit" in result.output


def test_the_command_runs_seeds_and_is_content() -> None:
    result = CliRunner().invoke(app, ["--seeds", "2", "--steps", "50"])
    assert result.exit_code == 0
    assert "2 of 2 well" in result.output
