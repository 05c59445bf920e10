"""What all commands of the pipeline share: their options, a session, progress, a summary, an end.

Progress goes to the error stream and the summary to the output, so that the latter can be piped.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from socketserver import BaseServer
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

import typer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from busway.remote.connection import Credentials

VARIABLE = "BUSWAY_CONNECTION_STRING"
FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130
TOO_SLOW = "Python worker failed to connect back"
"""What Spark says when it did not wait long enough; no setting makes it wait longer."""

ConnectionString = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help=f"What 'busway connection-string' prints. Or the variable {VARIABLE}, which other "
        "users of this machine do not see.",
    ),
]
HttpEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where the server serves HTTP, if not on the port of the connection string.",
    ),
]


def lake_folder(text: str | None) -> str | None:
    """Refused before anything is asked of a broker, or of Spark, which takes its time."""
    from busway.pipeline.lake.lake import Lake, LakeFolderError

    try:
        return None if text is None else Lake(text).folder
    except LakeFolderError as error:
        refuse(str(error))


LakeFolder = Annotated[
    str,
    typer.Option(
        "--lake",
        metavar="PLACE",
        help="A folder, or s3://bucket/lake, abfss://container@account.../lake, gs://bucket/lake.",
        callback=lake_folder,
    ),
]
Master = Annotated[
    str,
    typer.Option(
        metavar="URL", help="Spark's master: local[*,4], spark://host:7077, ...", show_default=False
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show what Spark logs, and the trace of what goes wrong.")
]


def credentials_of(connection_string: str | None, http_endpoint: str | None) -> Credentials:
    from busway.remote import connection

    if connection_string is not None:
        # Spark's processes are started from this one and look for it there.
        os.environ[VARIABLE] = connection_string
    try:
        return connection.read(connection.found(None), http_endpoint)
    except connection.ConnectionStringError as error:
        refuse(str(error))


def check_spark() -> None:
    """Say at once what a job would miss."""
    from busway.pipeline.spark.doctor import examine

    for each in examine(os.environ):
        if each.needed and not each.well:
            fail(f"{each.what}: {each.told}")


@contextmanager
def spark_session(job: str, master: str, conf: Sequence[str] | None) -> Iterator[SparkSession]:
    """A session for the length of a job."""
    settings = {}
    for each in conf or ():
        name, equals, value = each.partition("=")
        if not equals:
            refuse(f"--conf is '{each}', and must be like spark.executor.memory=2g.")
        settings[name.strip()] = value.strip()
    from busway.pipeline.spark.session import open_session

    with undisturbed() as asked_to_end:
        check_spark()
        say("starting Spark")
        session = open_session(f"busway {job}", master, settings, log_level=_log_level())
    if not _debugging:
        _hush()
    try:
        if asked_to_end:
            raise KeyboardInterrupt
        yield session
    finally:
        _stop(session)


def _hush() -> None:
    """What libraries print of their own when a JVM has ended, or a condition is wrong: what there
    is to say of that is said by us."""
    from pyspark import accumulators
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger().setLevel(logging.CRITICAL)  # py4j logs to the root when a JVM has ended
    for each in vars(accumulators).values():
        if isinstance(each, type) and issubclass(each, BaseServer):
            each.handle_error = lambda *told: None  # type: ignore[method-assign]


def _stop(session: SparkSession) -> None:
    try:
        session.stop()
    except Exception as problem:  # a JVM that is dead cannot be stopped
        if _debugging:
            say(f"Spark did not stop: {problem}")


@contextmanager
def undisturbed() -> Iterator[list[int]]:
    """Signals wait. A start of Spark that is cut off leaves its JVM behind, and a call to the JVM
    that is cut off prints pages.

    What came meanwhile is in the list. Afterwards both signals end a job as Ctrl-C does.
    """
    asked: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        signal.signal(each, lambda number, frame: asked.append(number))
    try:
        yield asked
    finally:
        for each in signals:
            signal.signal(each, signal.default_int_handler)


_debugging = False


def _log_level() -> str:
    """Spark would tell each mistake as some hundred lines, one after the other."""
    return "WARN" if _debugging else "OFF"


def kindly(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose errors are one sentence and a status, and Ctrl-C no traceback; with an
    option that shows all of it."""

    @wraps(command)
    def run(*arguments: Any, debug: bool = False, **options: Any) -> None:
        global _debugging
        _debugging = debug
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a job as Ctrl-C does
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            say("stopped; run it again to go on")
            sys.exit(INTERRUPTED)
        except Exception as error:
            if debug:
                traceback.print_exc()
            fail(known(error) or unexpected(error))

    hints = get_type_hints(command, include_extras=True)
    parameters = [
        each.replace(annotation=hints[name])
        for name, each in inspect.signature(command).parameters.items()
    ]
    option = inspect.Parameter(
        "debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug
    )
    run.__signature__ = inspect.Signature([*parameters, option])  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, "debug": Debug}
    return run


def unexpected(error: BaseException) -> str:
    """For what nobody has thought of: what it was, and where to see more."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[A-Za-z_.]+(Error|Exception): ", line)]
    told = [*raised[-1:], *lines[:1], ""][0][:300]  # a worker's is at the end of its trace
    return f"It failed unexpectedly: {type(error).__name__}: {told} (--debug shows where)"


def known(error: BaseException) -> str | None:
    """The sentence of an error that a user can do something about; None for all others.

    Spark wraps what its Python processes raise into texts; the last line that looks like one of
    ours is the reason.
    """
    from busway.pipeline.spark.doctor import HOW_TO_GET_PACKAGES, PACKAGES

    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] in PACKAGES:
        return f"{error.name} is not installed. {HOW_TO_GET_PACKAGES}"
    if "No space left on device" in str(error):
        return (
            "The disk is full: No space left on device. Nothing is lost; make room, and run it "
            "again."
        )
    if _is_one(error, "py4j.protocol", "Py4JNetworkError") or _is_dead_line(error):
        return (
            "Spark's JVM has ended: it was killed, or ran out of memory. Nothing is lost; run it "
            "again, with more memory if it happens again (--conf spark.driver.memory=4g)."
        )
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"{error.filename} cannot be used: {error.strerror}."
    if _is_one(error, "deltalake.exceptions", "DeltaError"):
        return f"A table of the lake cannot be used: {_first_line(error)}"
    if _is_one(error, "pyspark.errors", "AnalysisException", "ParseException"):
        return f"Spark does not take that: {_first_line(error)}"
    from busway.pipeline.datasource.options import OptionError
    from busway.pipeline.jobs.capture import CaptureError
    from busway.pipeline.jobs.curate import NothingCapturedError
    from busway.pipeline.jobs.export import ExportError
    from busway.pipeline.lake.lake import ConflictError, LakeFolderError
    from busway.pipeline.spark.java import JavaError
    from busway.pipeline.wire.journal import JournalError
    from busway.remote.connection import ConnectionStringError
    from busway.remote.trust import UntrustedError

    ours = (
        CaptureError,
        ConflictError,
        ConnectionStringError,
        NothingCapturedError,
        ExportError,
        JavaError,
        JournalError,
        LakeFolderError,
        OptionError,
        UntrustedError,
    )
    if isinstance(error, ours):
        return str(error)
    if TOO_SLOW in str(error):
        return (
            "Spark gives its Python processes ten seconds to start, and this machine was too busy "
            "for that. Nothing is lost; run it again."
        )
    for line in reversed(str(error).splitlines()):
        module, colon, text = line.strip().partition(": ")
        if colon and module.startswith("busway.") and " " not in module:
            return text
    return None


def _is_dead_line(error: BaseException) -> bool:
    """Whether it comes of a socket to a JVM that is not there any more."""
    if not isinstance(error, ConnectionError):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return any("py4j" in frame.filename or "pyspark" in frame.filename for frame in frames)


def _first_line(error: BaseException) -> str:
    """Libraries print their stack behind it."""
    return str(error).strip().partition("\n")[0]


def _is_one(error: BaseException, module: str, *names: str) -> bool:
    """Whether it is such an error of a library, which need not be loaded for that."""
    library = sys.modules.get(module)
    return any(isinstance(error, getattr(library, name, ())) for name in names)


def number(option: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        refuse(f"{option} is '{text}', and must be a whole number from {least} to {most}.")
    return int(text)


_started = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _started:7.1f} s  {text}", file=sys.stderr, flush=True)


def summarise(values: object, lines: Sequence[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(values, default=str))
    else:
        for line in lines:
            print(line)


def refuse(text: str) -> NoReturn:
    print(f"busway: {text}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


def fail(text: str) -> NoReturn:
    print(f"busway: {text}", file=sys.stderr)
    sys.exit(FAILED)
