"""How `busway serve` is told what to do: flags, environment, and a configuration file.

`load` gives a `Configuration`: the settings of the process, and the entities that the file names.
"""

from busway.config.entities import Declared
from busway.config.errors import ConfigError
from busway.config.settings import Configuration, Settings, load

__all__ = ["ConfigError", "Configuration", "Declared", "Settings", "load"]
