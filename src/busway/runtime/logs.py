"""Log lines for people and for machines, with the same fields: connection, link, peer.

A line of a module names what it is about by `extra={"connection": ..., "link": ...}`; both formats
write every such field. Logs go to standard error or to a file: standard output is for the
connection string and the `ready` line, which scripts read.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

log = logging.getLogger(__name__)

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the line is about: everything given by `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _ORDINARY}


def time_of(record: logging.LogRecord, formatter: logging.Formatter) -> str:
    """UTC with milliseconds, as RFC 3339 has it."""
    seconds = formatter.formatTime(record, "%Y-%m-%dT%H:%M:%S")
    return f"{seconds}.{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """`12:00:00.000Z info  listener  connection opened  connection=c1 peer=127.0.0.1:4711`"""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        room = record.name.removeprefix("busway.")
        line = f"{time_of(record, self)} {record.levelname.lower():7} {room}: {record.getMessage()}"
        named = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        if named:
            line += f"  {named}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One object per line."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        import json

        line: dict[str, Any] = {
            "time": time_of(record, self),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class LogFile(logging.FileHandler):
    """A file that is opened anew when it has been moved away (SIGHUP, as `logrotate` sends it)."""

    def reopen(self) -> None:
        try:
            fresh = self._open()
        except OSError as error:
            log.error(
                "the log goes on in the old file: %s cannot be opened: %s",
                self.baseFilename,
                error.strerror,
            )
            return
        old = self.setStream(fresh)
        if old is not None:
            old.close()


def reopen() -> None:
    """Open log files anew."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogFile):
            handler.reopen()


def set_up(level: str, style: str, file: str | None = None) -> None:
    """Send all logs of this process to a file, or to standard error. Raises `OSError`."""
    handler = logging.StreamHandler(sys.stderr) if file is None else LogFile(file, encoding="utf-8")
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # The event loop's own remarks are of no use below this level.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
