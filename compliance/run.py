"""`make compliance`: suites of other clients, each against a Busway server of its own.

What a suite needs and the machine does not have is said, and the suite is skipped; that is no
failure. A suite that ran and failed is one, and so is one that could not be installed.

    python compliance/run.py                 all suites
    python compliance/run.py java proton     some of them
    python compliance/run.py --disk js       with stores on disk instead of in memory
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from dotnet import install as dotnet
from entities import configuration
from partly_ill import partly_ill, switched_by_requests

from busway.runtime.certificates import CertificateFolder
from busway.testing.server import Server

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
SUITE_S = 1800
"""A suite takes one to five minutes, on a busy machine three times that; this long, it hangs."""
NODE_MIN = (20, 14)
JAVA_MIN = (17,)
GO_MIN = (1, 25)
_PID = os.getpid()
OWN_ADDRESS = f"127.{64 + _PID // 65_536 % 64}.{_PID // 256 % 256}.{_PID % 256}"
"""A loopback address on which the well-known ports are free, for tests of who dials them."""


@dataclass(frozen=True)
class Suite:
    name: str
    client: str
    missing: Callable[[], str]
    """What the machine lacks for it, or nothing."""
    install: Callable[[], list[list[str]]]
    """Commands that get what is pinned; they do little when it is there already."""
    test: list[str]
    reports: str
    """Where its reports are, JUnit's XML, TAP or Go's text: a pattern below `compliance/`."""
    output: Path | None = None
    """Where its standard output goes, if that is its report."""
    mode: str = ""
    """How it reaches the server, if it runs once for each way to."""
    wants_ill: bool = False
    """It has tests with a broker of which one store goes and comes (`partly_ill.py`)."""

    @property
    def folder(self) -> Path:
        return HERE / self.name

    @property
    def full_name(self) -> str:
        return f"{self.name}-{self.mode}" if self.mode else self.name


@dataclass(frozen=True)
class Result:
    suite: Suite
    tests: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    note: str = ""

    @property
    def is_failure(self) -> bool:
        return self.tests["failed"] > 0 or self.note.startswith("failed")


# --- what the machine has ------------------------------------------------------------------------


def lacks(*programs: str) -> str:
    missing = [program for program in programs if shutil.which(program) is None]
    return f"{' and '.join(missing)} not found" if missing else ""


def older(command: list[str], least: tuple[int, ...]) -> str:
    """What is wrong with the version that a program tells of itself, or nothing."""
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    version = re.search(r"\d+(\.\d+)*", told)
    numbers = tuple(map(int, version[0].split("."))) if version else ()
    wanted = ".".join(map(str, least))
    return "" if numbers >= least else f"{command[0]} {wanted} or newer is needed"


def node_missing() -> str:
    return lacks("node", "npm") or older(["node", "--version"], NODE_MIN)


def java_missing() -> str:
    return lacks("java", "javac", "mvn") or older(["java", "--version"], JAVA_MIN)


def proton_missing() -> str:
    return lacks("cc")


def go_missing() -> str:
    return lacks("go") or older(["go", "version"], GO_MIN)


def dotnet_missing() -> str:
    return dotnet.missing()


# --- the suites ----------------------------------------------------------------------------------


def install_by_npm(suite: str) -> list[list[str]]:
    wanted = HERE / suite / "package-lock.json"
    installed = HERE / suite / "node_modules/.package-lock.json"
    if installed.exists() and installed.stat().st_mtime > wanted.stat().st_mtime:
        return []
    return [["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"]]


def install_js() -> list[list[str]]:
    return install_by_npm("js")


def install_rhea() -> list[list[str]]:
    return install_by_npm("rhea")


def install_java() -> list[list[str]]:
    return [["mvn", "--batch-mode", "--quiet", "test-compile"]]


def install_proton() -> list[list[str]]:
    venv = BUILD / "proton"
    wanted = (HERE / "proton" / "requirements.txt").read_text()
    stamp = venv / "requirements.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return []
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    requirements = str(HERE / "proton" / "requirements.txt")
    return [
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        [*pip, "--disable-pip-version-check", "-r", requirements],
        ["cp", requirements, str(stamp)],
    ]


def install_go() -> list[list[str]]:
    return [["go", "mod", "download"], ["go", "vet", "./..."]]


def install_dotnet() -> list[list[str]]:
    requirements = str(HERE / "dotnet" / "requirements.txt")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    fetch = [[sys.executable, script] for script in ("install.py", "csharp.py")]
    return [[*pip, "-r", requirements], *fetch]


def dotnet_suite(mode: str) -> Suite:
    report = f"build/dotnet-{mode}.xml"
    return Suite(
        "dotnet",
        "Azure.Messaging.ServiceBus (.NET)",
        dotnet_missing,
        install_dotnet,
        [sys.executable, "-m", "pytest", f"--ways={mode}", f"--junitxml={HERE / report}"],
        report,
        mode=mode,
    )


NODE_TESTS = [
    "node",
    "--test-force-exit",
    "--test-reporter=spec",
    "--test-reporter-destination=stderr",
    "--test-reporter=tap",  # Lines as they come: Node's JUnit report is cut off by a forced exit.
    "--test-reporter-destination=stdout",
    "suite.js",
]

SUITES = (
    Suite(
        "js",
        "@azure/service-bus (Node)",
        node_missing,
        install_js,
        NODE_TESTS,
        "build/js.tap",
        BUILD / "js.tap",
        wants_ill=True,
    ),
    Suite(
        "rhea",
        "rhea (Node)",
        node_missing,
        install_rhea,
        NODE_TESTS,
        "build/rhea.tap",
        BUILD / "rhea.tap",
    ),
    Suite(
        "java",
        "azure-messaging-servicebus (Java)",
        java_missing,
        install_java,
        ["mvn", "--batch-mode", "--quiet", "surefire:test"],
        "java/target/surefire-reports/TEST-*.xml",
        wants_ill=True,
    ),
    Suite(
        "jms",
        "Qpid JMS (Java)",
        java_missing,
        install_java,
        ["mvn", "--batch-mode", "--quiet", "surefire:test"],
        "jms/target/surefire-reports/TEST-*.xml",
    ),
    Suite(
        "proton",
        "Qpid Proton (Python binding)",
        proton_missing,
        install_proton,
        [str(BUILD / "proton/bin/python"), "-m", "pytest", f"--junitxml={BUILD / 'proton.xml'}"],
        "build/proton.xml",
    ),
    Suite(
        "go",
        "azservicebus (Go)",
        go_missing,
        install_go,
        ["go", "test", "-v", "-count=1", "-parallel=16", f"-timeout={SUITE_S}s", "./..."],
        "build/go.txt",
        BUILD / "go.txt",
        wants_ill=True,
    ),
    Suite(
        "pages",
        "quick starts, examples, frameworks",
        lambda: "",
        lambda: [],
        [sys.executable, "-m", "pytest", f"--junitxml={BUILD / 'pages.xml'}"],
        "build/pages.xml",
    ),
    dotnet_suite("plain"),
    dotnet_suite("tls"),
    dotnet_suite("websocket"),
)


def run(suite: Suite, *, on_disk: bool) -> Result:
    if missing := suite.missing():
        print(f"--- {suite.full_name}: skipped, {missing}", flush=True)
        return Result(suite, note=f"skipped: {missing}")
    print(f"--- {suite.full_name}: {suite.client}", flush=True)
    for command in suite.install():
        if subprocess.run(command, cwd=suite.folder, check=False).returncode:
            return Result(suite, note=f"failed to install: {' '.join(command)}")
    for report in HERE.glob(suite.reports):
        report.unlink()
    started = time.monotonic()
    log = BUILD / f"{suite.full_name}.server.log"
    with tempfile.TemporaryDirectory(prefix="busway-compliance-") as folder:
        files = CertificateFolder(Path(folder, "tls"))
        files.make([OWN_ADDRESS])
        server = Server(
            config=configuration(),
            data=Path(folder, "data") if on_disk else None,
            arguments=["--tls-cert", str(files.server), "--tls-key", str(files.server_key)],
        )
        try:
            status = _test(suite, server.start(), files)
            crashed = not server.is_running
        except subprocess.TimeoutExpired:
            return Result(suite, note=f"failed: still running after {SUITE_S} s")
        finally:
            log.write_text(server.log)
            server.close()
    tests = count(HERE.glob(suite.reports))
    note = ""
    if crashed:
        note = f"failed: the server ended, see {log.relative_to(HERE.parent)}"
    elif status and not tests["failed"]:
        note = f"failed: the suite ended with status {status}"
    elif not tests.total():
        note = "failed: no test ran"
    return Result(suite, tests, time.monotonic() - started, note)


def _test(suite: Suite, server: Server, files: CertificateFolder) -> int:
    told = {
        "BUSWAY_CONNECTION_STRING": server.connection_string,
        "BUSWAY_TLS_CONNECTION_STRING": server.tls_connection_string,
        "BUSWAY_AUTHORITY": str(files.authority),
        "BUSWAY_OWN_ADDRESS": OWN_ADDRESS,
        "BUSWAY_TRUST_STORE": str(files.authority_for_java),
        "NODE_EXTRA_CA_CERTS": str(files.authority),
        "SSL_CERT_FILE": str(files.authority),
    }
    with ExitStack() as stack:
        if suite.wants_ill:
            broker = stack.enter_context(partly_ill())
            switch = stack.enter_context(switched_by_requests(broker))
            told |= broker.environment | {"BUSWAY_ILL_SWITCH": switch}
        output = stack.enter_context(suite.output.open("w")) if suite.output else None
        return subprocess.run(
            suite.test,
            cwd=suite.folder,
            env=os.environ | told,
            stdout=output,
            check=False,
            timeout=SUITE_S,
        ).returncode


def count(reports: Iterable[Path]) -> Counter[str]:
    """Tests by what became of them."""
    readers = {".tap": _tap_outcomes, ".txt": _go_outcomes, ".xml": _junit_outcomes}
    return Counter(each for report in reports for each in readers[report.suffix](report))


def _junit_outcomes(report: Path) -> Iterator[str]:
    marks = {"failure": "failed", "error": "failed", "skipped": "skipped"}
    for case in ElementTree.parse(report).iter("testcase"):
        yield next((marks[child.tag] for child in case if child.tag in marks), "passed")


def _tap_outcomes(report: Path) -> Iterator[str]:
    for line in report.read_text().splitlines():
        if line.startswith("not ok "):
            yield "failed"
        elif line.startswith("ok "):
            yield "skipped" if "# SKIP" in line else "passed"


def _go_outcomes(report: Path) -> Iterator[str]:
    """Of the tests that have no tests below them: those do the work."""
    marks = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    found = re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", report.read_text(), re.MULTILINE)
    parents = {name.rpartition("/")[0] for _, name in found}
    for mark, name in found:
        if name not in parents:
            yield marks[mark]


def show(results: list[Result]) -> None:
    print(f"\n{'suite':18}{'client':36}{'passed':>7}{'failed':>7}{'skipped':>8}{'s':>6}")
    for result in results:
        print(
            f"{result.suite.full_name:18}{result.suite.client:36}{result.tests['passed']:7}"
            f"{result.tests['failed']:7}{result.tests['skipped']:8}{result.seconds:6.0f}"
            f"  {result.note}".rstrip()
        )


def main() -> int:
    names = list(dict.fromkeys(suite.name for suite in SUITES))
    parser = argparse.ArgumentParser(description="Run suites of other clients against Busway.")
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {', '.join(names)}")
    parser.add_argument("--disk", action="store_true", help="keep the stores on disk")
    options = parser.parse_args()
    if unknown := set(options.suites) - set(names):
        parser.error(
            f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    BUILD.mkdir(exist_ok=True)
    chosen = [suite for suite in SUITES if not options.suites or suite.name in options.suites]
    results = [run(suite, on_disk=options.disk) for suite in chosen]
    show(results)
    return int(any(result.is_failure for result in results))


if __name__ == "__main__":
    sys.exit(main())
