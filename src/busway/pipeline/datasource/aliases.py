"""What users of Kafka's and Event Hubs' connectors write, and what it is called here.

A name that means the same is taken, with a hint in the log. One that has no like here is refused
with what to do instead.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from busway.pipeline.datasource.options import OptionError

log = logging.getLogger(__name__)

ALIASES = {
    "subscribe": "entity",
    "topic": "entity",
    "eventhubs.name": "entity",
    "startingOffsets": "startingPosition",
    "endingOffsets": "endingPosition",
    "eventhubs.startingPosition": "startingPosition",
    "eventhubs.endingPosition": "endingPosition",
    "maxOffsetsPerTrigger": "maxEventsPerTrigger",
    "minOffsetsPerTrigger": "minEventsPerTrigger",
    "eventhubs.maxEventsPerTrigger": "maxEventsPerTrigger",
    "minPartitions": "tasks",
    "kafka.group.id": "consumer",
    "groupIdPrefix": "consumer",
    "eventhubs.consumerGroup": "consumer",
}
INSTEAD = {
    "kafka.bootstrap.servers": "where the broker is stands in the connection string, in the "
    "variable BUSWAY_CONNECTION_STRING or where credentialsFrom says",
    "eventhubs.connectionString": "put the connection string into the variable "
    "BUSWAY_CONNECTION_STRING, or say with credentialsFrom where it is: Spark shows options in "
    "plans and logs",
    "subscribePattern": "a source reads one entity; 'busway pipeline capture' takes patterns",
    "assign": "a condition on the column 'partition' narrows what is read",
    "startingTimestamp": "write the time as startingPosition, 2026-11-16T12:00:00Z",
    "startingOffsetsByTimestamp": "write the time as startingPosition, 2026-11-16T12:00:00Z",
    "includeHeaders": "application properties are the column 'application_properties'",
}
_ALIASES = {name.lower(): (name, own) for name, own in ALIASES.items()}
_INSTEAD = {name.lower(): (name, told) for name, told in INSTEAD.items()}


def renamed(given: Mapping[str, str]) -> dict[str, str]:
    """The options by their own names. Raises `OptionError`."""
    there = {name.lower() for name in given}
    options: dict[str, str] = {}
    for name, value in given.items():
        key = name.lower()
        if key in _INSTEAD:
            alias, told = _INSTEAD[key]
            raise OptionError(f"'{alias}' is no option here: {told}.")
        if key not in _ALIASES:
            options[name] = value
            continue
        alias, own = _ALIASES[key]
        if own.lower() in there or own in options:
            raise OptionError(
                f"'{alias}' is called '{own}' here, and both are given. Leave it out."
            )
        log.warning("'%s' is called '%s' here", alias, own)
        options[own] = value
    return options
