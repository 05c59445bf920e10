"""Runs Microsoft's own samples against `busway serve --dev-tokens`, and prints a table of them.

    python compliance/samples/run.py                      Python's, from the sdist on PyPI
    python compliance/samples/run.py --js DIR             JavaScript's as well
    python compliance/samples/run.py --only send_queue    some of them
    python compliance/samples/run.py --prepare            only fetch and install what is needed

The samples are Microsoft's and are not kept here. Those for Python come in the sdist of
azure-servicebus. Those for JavaScript are not on npm: DIR is `sdk/servicebus/service-bus/samples/
v7/javascript` of a clone of Azure/azure-sdk-for-js.

They run as they are, each in a process of its own with queues and topics of its own. What each
needs is environment: the variables that it reads, those of `busway env`, and `busway trust` for the
environment that they run in. A name without a port leads to 5671 and 443, so these must be free.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from proxy import Proxy

HERE = Path(__file__).resolve().parent
SDK = "azure-servicebus==7.15.0"
PYTHON_PACKAGES = (SDK, "azure-identity==1.27.0", "aiohttp==3.14.5", "websocket-client==1.9.2")
JS_SDK, JS_BETA = "@azure/service-bus@7.9.5", "@azure/service-bus@7.10.0-beta.2"
JS_FOR_BETA = "deleteMessages.js"
"""It deletes in batches, which the newest release cannot."""
JS_PACKAGES = (
    "@azure/identity@4.14.1",
    "dotenv@17",
    "ws@8",
    "https-proxy-agent@7",
)
SAMPLE_S = 600
"""Two of them sleep for five minutes in all."""
READY_S = 120
PROXY_PORT = 8899
"""That of the sample."""
ROOT_RULE = "RootManageSharedAccessKey"
SESSION = "a-session"
VARIABLE = re.compile(r"(?:os\.environ\[\"|os\.getenv\(\"|process\.env\.)([A-Z_]+)")
SEEDED = ("receive_queue", "receive_iterator", "receive_peek", "receive_subscription")
ENDLESS = {
    "receive_iterator_queue.py": "message 2",
    "receive_iterator_queue_async.py": "message 2",
    "failure_and_recovery.py": "Data 9",
    "sessionRoundRobin.js": "was closed because of idle_timeout",
}
"""They wait for messages for ever: they have run when they have said this."""
JS_SEEDED = ("receiveMessages", "browseMessages", "deleteMessages", "sessionRoundRobin")


@dataclass
class Sample:
    language: str
    path: Path
    folder: Path
    number: int
    result: str = ""
    needs: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.relative_to(self.folder).as_posix()

    @property
    def entity(self) -> str:
        return f"{self.language}-{self.number}"

    @property
    def is_seeded(self) -> bool:
        return self.path.name.startswith(SEEDED if self.language == "python" else JS_SEEDED)


# --- What is needed ------------------------------------------------------------------------------


def prepare_python(build: Path) -> Path:
    """The folder of the samples; their environment is `build/venv`."""
    python = build / "venv" / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", str(build / "venv")])
        run([str(python), "-m", "pip", "install", "-q", *PYTHON_PACKAGES])
    folder = build / "python"
    if not folder.exists():
        sdist = build / "sdist"
        options = ["-q", "--no-deps", "--no-binary", ":all:", "-d", str(sdist)]
        run([str(python), "-m", "pip", "download", *options, SDK])
        with tarfile.open(next(sdist.glob("*.tar.gz"))) as archive:
            archive.extractall(build / "unpacked", filter="data")
        shutil.move(next((build / "unpacked").glob("*/samples")), folder)
    return folder


def prepare_js(build: Path, source: Path | None) -> Path | None:
    folder = build / "js"
    if source is not None and not folder.exists():
        shutil.copytree(source, folder)
        (folder / "package.json").unlink(missing_ok=True)  # it asks for the latest of everything
        run(["npm", "install", "--silent", "--no-save", JS_SDK, *JS_PACKAGES], cwd=folder)
        beta = build / "js-beta"
        beta.mkdir(exist_ok=True)
        run(["npm", "install", "--silent", "--no-save", JS_BETA, *JS_PACKAGES], cwd=beta)
    return folder if folder.exists() else None


def run(command: list[str], cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, cwd=cwd)


def found_samples(python: Path, js: Path | None, only: str) -> list[Sample]:
    files = [("python", path, python) for path in sorted(python.glob("*_samples/*.py"))]
    if js is not None:
        named = [*js.glob("*.js"), *js.glob("advanced/*.js")]
        files += [("js", path, js) for path in sorted(named)]
    every = [
        Sample(language, path, folder, number)
        for number, (language, path, folder) in enumerate(files)
    ]
    return [sample for sample in every if re.search(only, sample.name)]


def configuration(samples: list[Sample]) -> str:
    """A queue, a queue with sessions and a topic for each."""
    tables = []
    for sample in samples:
        name = sample.entity
        tables.append(
            f'[[queues]]\nname = "{name}"\n'
            f'[[queues]]\nname = "{name}-sessions"\nrequires_session = true\n'
            f'[[topics]]\nname = "{name}-topic"\n'
            f'[[topics.subscriptions]]\nname = "subscription"\n'
        )
    return "".join(tables)


# --- The broker ----------------------------------------------------------------------------------


class Broker:
    def __init__(self, build: Path, samples: list[Sample]) -> None:
        self.data = build / "data"
        shutil.rmtree(self.data, ignore_errors=True)
        config = build / "samples.toml"
        config.write_text(configuration(samples))
        self.log = build / "log"
        command = [sys.executable, "-m", "busway", "serve", "--dev-tokens"]
        command += ["--data", str(self.data), "--config", str(config), "--tls-port", "5671"]
        command += ["--https-port", "443", "--log-file", str(self.log)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("ready"):
                return
        raise SystemExit(f"the broker did not start: {self.process.wait()}")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()

    def environment(self) -> dict[str, str]:
        said = busway("env", str(self.data), "--shell", "dotenv")
        return dict(line.split("=", 1) for line in said.splitlines())

    def connection_string(self) -> str:
        text = busway("connection-string", str(self.data), "--tls").strip()
        return text.replace(":5672", "")


def busway(*arguments: str) -> str:
    command = [sys.executable, "-m", "busway", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def seed(samples: list[Sample], connection_string: str) -> None:
    """Messages for those that only receive."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    string = connection_string.replace("localhost", "localhost:5672")
    text = f"{string}UseDevelopmentEmulator=true;"
    with ServiceBusClient.from_connection_string(text) as client:
        for sample in samples:
            if sample.is_seeded:
                with client.get_queue_sender(sample.entity) as sender:
                    sender.send_messages([ServiceBusMessage(f"message {n}") for n in range(3)])
                with client.get_queue_sender(f"{sample.entity}-sessions") as sender:
                    sender.send_messages(ServiceBusMessage("message", session_id=SESSION))
                with client.get_topic_sender(f"{sample.entity}-topic") as sender:
                    sender.send_messages([ServiceBusMessage(f"message {n}") for n in range(3)])


# --- The samples ---------------------------------------------------------------------------------


def variables(sample: Sample, connection_string: str, key: str) -> dict[str, str]:
    name = sample.entity
    # One makes the queue itself.
    queue = f"{name}-new" if sample.path.name == "administrationClient.js" else name
    return {
        "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": "localhost",
        "SERVICEBUS_FQDN": "localhost",
        "SERVICEBUS_CONNECTION_STR": connection_string,
        "SERVICEBUS_QUEUE_NAME": name,
        "SERVICEBUS_SESSION_QUEUE_NAME": f"{name}-sessions",
        "SERVICEBUS_SESSION_ID": SESSION,
        "SERVICEBUS_TOPIC_NAME": f"{name}-topic",
        "SERVICEBUS_SUBSCRIPTION_NAME": "subscription",
        "SERVICEBUS_SAS_POLICY": ROOT_RULE,
        "SERVICEBUS_SAS_KEY": key,
        "QUEUE_NAME": queue,
        "QUEUE_NAME_WITH_SESSIONS": f"{name}-sessions",
        "TOPIC_NAME": f"{name}-topic",
        "HTTPS_PROXY": f"http://127.0.0.1:{PROXY_PORT}",
    }


def attempt(sample: Sample, build: Path, given: dict[str, str], own: dict[str, str]) -> None:
    text = sample.path.read_text(encoding="utf-8")
    reads = [name for name in dict.fromkeys(VARIABLE.findall(text)) if name in own]
    sample.needs = [f"`{name}`" for name in reads]
    environment = {name: value for name, value in os.environ.items() if "PROXY" not in name.upper()}
    environment |= given | {name: own[name] for name in reads}
    path = sample.path
    if "EnvironmentCredential()" in text:
        sample.needs.append("a real tenant, trusted in `[[issuers]]`: it asks Microsoft's servers")
    if "proxy_port" in text:
        sample.needs.append("a proxy")
    if "HTTPS_PROXY" in text:
        sample.needs.append("a proxy, and `NO_PROXY=localhost` for the token")
        environment["NO_PROXY"] = "localhost"
    if "CUSTOM_ENDPOINT_ADDRESS = " in text or sample.path.name == "proxy_async.py":
        path = filled_in(sample, text, given)
    if sample.path.name == JS_FOR_BETA:
        sample.needs.append(f"`{JS_BETA}`: the newest release has no `purgeMessages`")
        path = Path(shutil.copy(path, build / "js-beta"))
    if sample.language == "python":
        command = [str(build / "venv" / "bin" / "python"), str(path)]
    else:
        command = ["node", str(path)]
    began_s = time.monotonic()
    output, good = outcome(command, path.parent, environment, ENDLESS.get(sample.path.name))
    # Samples for JavaScript catch what goes wrong, and end well.
    good = good and "Traceback" not in output and "rror occurred" not in output
    took_s = time.monotonic() - began_s
    (build / "output").mkdir(exist_ok=True)
    (build / "output" / f"{sample.entity}.txt").write_text(f"{sample.name}\n{output}")
    if good:
        sample.result = "runs" if sample.path.name not in ENDLESS else "runs until it is stopped"
    else:
        sample.result = f"fails: {last_words(output)}"
    print(f"{sample.name}: {sample.result} ({took_s:.0f} s)", file=sys.stderr, flush=True)


def outcome(
    command: list[str], folder: Path, environment: dict[str, str], last: str | None
) -> tuple[str, bool]:
    """What a sample says, and whether it ended well; `last` is what an endless one says."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    timer = threading.Timer(SAMPLE_S, process.kill)
    timer.start()
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if last is not None and last in line:
            process.terminate()
            break
    process.communicate()
    in_time = timer.is_alive()
    timer.cancel()
    if not in_time:
        lines.append(f"no end within {SAMPLE_S} s")
    good = last is not None and last in "".join(lines[-1:])
    return "".join(lines), in_time and (good or process.returncode == 0)


def filled_in(sample: Sample, text: str, given: dict[str, str]) -> Path:
    """What no variable can give."""
    if sample.path.name == "proxy_async.py":
        sample.needs.append("`http://` before the proxy's name in it, without which aiohttp fails")
        text = text.replace('"127.0.0.1"', '"http://127.0.0.1"')
    else:
        sample.needs.append("its two placeholders: `sb://localhost:5671` and `authority.pem`")
        place = "sb://<custom_endpoint_hostname>:<custom_endpoint_port>"
        text = text.replace(place, "sb://localhost:5671")
        text = text.replace("<your_custom_ca_bundle_file_path>", given["NODE_EXTRA_CA_CERTS"])
    path = sample.path.with_name(f"filled_in_{sample.path.name}.txt")
    path.write_text(text, encoding="utf-8")
    return path


def last_words(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return (lines[-1] if lines else "without a word")[:200].replace("|", "/")


def table(samples: list[Sample]) -> str:
    rows = ["| sample | result | had to be set |", "|---|---|---|"]
    for sample in samples:
        rows.append(f"| `{sample.name}` | {sample.result} | {', '.join(sample.needs) or '-'} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--js", type=Path, metavar="DIR", help="samples for JavaScript")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose names match it")
    parser.add_argument("--prepare", action="store_true", help="only fetch and install")
    parser.add_argument("--build", type=Path, default=HERE / "build", metavar="DIR")
    parser.add_argument("--at-once", type=int, default=3, metavar="N")
    options = parser.parse_args()
    build: Path = options.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    python, js = prepare_python(build), prepare_js(build, options.js)
    if options.prepare:
        return 0
    samples = found_samples(python, js, options.only)
    broker, proxy = Broker(build, samples), Proxy(PROXY_PORT)
    try:
        busway("trust", str(broker.data), "--python", str(build / "venv"))
        given, string = broker.environment(), broker.connection_string()
        key = re.search(r"SharedAccessKey=([^;]+)", string)
        assert key is not None
        seed(samples, string)
        with ThreadPoolExecutor(options.at_once) as pool:
            for sample in samples:
                own = variables(sample, string, key[1])
                pool.submit(attempt, sample, build, given, own)
    finally:
        proxy.close()
        broker.close()
        busway("trust", "--remove", "--python", str(build / "venv"))
    print(table(samples))
    failed = [sample for sample in samples if not sample.result.startswith("runs")]
    print(f"\n{len(samples) - len(failed)} of {len(samples)} run.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
