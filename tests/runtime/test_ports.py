"""The ports of `busway serve`: what it opens, what it says of them, and how all of them end."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from urllib.parse import quote_plus

import pytest
import websocket

from busway.amqp.events import Closed
from busway.config import Configuration, Settings
from busway.gateway import auth
from busway.runtime.certificates import CertificateFolder
from busway.runtime.data_folder import StartError
from busway.runtime.ports import Ports, open_ports
from busway.testing import Server
from tests.runtime.played import Port
from tests.runtime.test_serve import ENDED_S, refused, serve
from tests.runtime.wire import WAIT_S, RawClient

NO_OTHERS = {"http_port": None, "tls_port": None, "https_port": None}
HTTP = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def started(*arguments: str) -> Iterator[list[str]]:
    """The lines that a server says until it is ready."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_")}
    process = subprocess.Popen(
        serve("--print-connection-string", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean,
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        while not lines or not lines[-1].startswith("ready"):
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            lines.append(line.rstrip("\n"))
        yield lines
    finally:
        process.terminate()
        _, log = process.communicate(timeout=ENDED_S)
        lines.append(log)


@pytest.fixture
def free_port() -> Iterator[Callable[[], int]]:
    """Ports that are given to nobody else for the length of a test, and can be listened on."""
    with ExitStack() as held:

        def hold() -> int:
            own = held.enter_context(socket.socket())
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind(("127.0.0.1", 0))
            return int(own.getsockname()[1])

        yield hold


def with_tls(certificates: CertificateFolder) -> list[str]:
    return ["--tls-cert", str(certificates.server), "--tls-key", str(certificates.server_key)]


def token_for(server: Server) -> str:
    """A shared access signature of the root rule, for everything."""
    key = re.search(r"SharedAccessKey=([^;]+)", server.connection_string)
    assert key is not None
    resource, expiry = quote_plus("https://localhost/"), str(int(time.time()) + 600)
    signature = quote_plus(auth.sign(resource, expiry, key[1]))
    rule = "RootManageSharedAccessKey"
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}"


def address_in_the_network() -> str:
    """One of this machine's that is not its loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine is in no network")
        address = str(unsent.getsockname()[0])
    if address.startswith("127."):
        pytest.skip("this machine is in no network")
    return address


def first_word(port: int, said: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """How a port answers."""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as plain:
        wire = tls.wrap_socket(plain, server_hostname="localhost") if tls else plain
        wire.sendall(said)
        return wire.recv(4)


# --- which there are -----------------------------------------------------------------------------


def test_a_free_port_comes_alone() -> None:
    with started("--memory", "--port", "0") as lines:
        assert re.fullmatch(r"ready on 127\.0\.0\.1:\d+", lines[-1])
        assert len(lines) == 2


def test_every_port_takes_everything(
    certificates: CertificateFolder, trusting: ssl.SSLContext
) -> None:
    ports = ["--port", "0", "--http-port", "0", "--tls-port", "0", "--https-port", "0"]
    with started("--memory", *ports, *with_tls(certificates)) as lines:
        plain, secure, ready = lines
        numbers = [int(number) for number in re.findall(r"\b\d{4,5}\b", ready)]
        assert len(set(numbers)) == 4
        for port in numbers:
            for tls in (None, trusting):
                assert first_word(port, b"AMQP\x00\x01\x00\x00", tls) == b"AMQP"
                assert first_word(port, HTTP, tls) == b"HTTP"
        # With TLS there are two connection strings; the first is the one that was always there.
        assert plain == secure + "UseDevelopmentEmulator=true;"
        assert secure.startswith(f"Endpoint=sb://localhost:{numbers[0]};")


@pytest.mark.parametrize("kind", ["http", "tls"])
async def test_a_port_that_nobody_asked_for_gives_way_to_whoever_has_it(
    open_port: Callable[..., Port],
    free_port: Callable[[], int],
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    """As 5300 and 5671 do by default; here other numbers stand for them."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        usual = {f"{kind}_port": other.getsockname()[1]}
        settings = Settings(**{"port": free_port(), **NO_OTHERS, **usual})
        listener = open_port().listener
        ports = await open_ports(listener, Configuration(settings), has_tls=True)
        assert ports == Ports(main=settings.port)
        assert f"Going on without: port {settings.port} takes the same." in caplog.text
        asked_for = Configuration(replace(settings, port=free_port()), chosen=frozenset(usual))
        with pytest.raises(StartError, match=f"Choose another one with --{kind}-port"):
            await open_ports(listener, asked_for, has_tls=True)


async def test_the_usual_ports_are_opened_where_they_are_free(
    open_port: Callable[..., Port], free_port: Callable[[], int]
) -> None:
    names = ("port", "http_port", "tls_port", "https_port")
    settings = Settings(**{name: free_port() for name in names})
    configuration = Configuration(settings)
    ports = await open_ports(open_port().listener, configuration, has_tls=True)
    assert ports.opened == [getattr(settings, name) for name in names]
    settings = replace(settings, port=0)
    alone = await open_ports(open_port().listener, Configuration(settings), has_tls=True)
    assert alone.opened == [alone.main]


async def test_nothing_is_said_of_443_where_it_is_not_to_be_had(
    open_port: Callable[..., Port],
    free_port: Callable[[], int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Few may listen there, and few clients look there; here another number stands for it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        usual = NO_OTHERS | {"port": free_port(), "https_port": other.getsockname()[1]}
        configuration = Configuration(Settings(**usual))
        ports = await open_ports(open_port().listener, configuration, has_tls=True)
    assert ports == Ports(main=usual["port"])
    assert not [each for each in caplog.records if each.levelno >= logging.INFO]


def test_a_low_port_that_is_not_allowed_is_refused_with_two_ways_to_allow_it(
    certificates: CertificateFolder,
) -> None:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may listen everywhere, and setpriv is not there to take that away")
    first_allowed = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if not first_allowed.exists() or int(first_allowed.read_text()) <= 443:
        pytest.skip("everybody may listen on 443 here")
    unprivileged = ["setpriv", "--bounding-set=-net_bind_service"] if os.geteuid() == 0 else []
    ask = serve("--memory", "--port", "0", "--https-port", "443", *with_tls(certificates))
    said = refused([*unprivileged, *ask])
    assert "Port 443 of 127.0.0.1 cannot be listened on: Permission denied." in said
    assert "setcap cap_net_bind_service=+ep /" in said
    assert "sysctl net.ipv4.ip_unprivileged_port_start=443" in said
    assert "Choose another one with --https-port" in said


def test_clients_that_dial_fixed_ports_get_a_string_with_a_dot(
    certificates: CertificateFolder,
) -> None:
    """An address of this test's own, so that 5671 is free there."""
    number = os.getpid()
    address = f"127.{64 + number // 65_536 % 64}.{number // 256 % 256}.{number % 256}"
    fixed = ["--host", address, "--port", "0", "--tls-port", "5671", "--https-port", "off"]
    with started("--memory", *fixed, *with_tls(certificates)) as lines:
        plain, secure, dotted, ready = lines
        endpoint, rest = secure.split(";", 1)
        assert endpoint.startswith(f"Endpoint=sb://{address}:")
        assert dotted == f"for clients that dial 5671: Endpoint=sb://{address};{rest}"
        assert plain.endswith("UseDevelopmentEmulator=true;")
        assert ready.endswith(", also on 5671")


@pytest.mark.parametrize("flag", ["--http-port", "--tls-port", "--https-port"])
def test_a_port_that_was_asked_for_must_be_had(flag: str, certificates: CertificateFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        said = refused(serve("--memory", "--port", "0", flag, taken, *with_tls(certificates)))
    assert f"Port {taken} of 127.0.0.1 cannot be listened on: Address already in use" in said
    assert f"Choose another one with {flag}" in said


def test_one_port_may_be_asked_for_twice(free_port: Callable[[], int]) -> None:
    port = str(free_port())
    with started("--memory", "--port", port, "--http-port", port) as lines:
        assert lines[-1] == f"ready on 127.0.0.1:{port}"


def test_without_tls_there_is_no_port_for_it() -> None:
    with started("--memory", "--port", "0", "--tls-port", "0") as lines:
        assert re.fullmatch(r"ready on 127\.0\.0\.1:\d+", lines[-1])


def test_a_certificate_that_cannot_be_used_is_refused(certificates: CertificateFolder) -> None:
    key = str(certificates.authority_key)
    said = refused(serve("--memory", "--tls-cert", str(certificates.server), "--tls-key", key))
    assert "is not the key of" in said


def test_tls_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    """`--tls`: made at first start, the same ever after, so that clients trust it once."""
    data = tmp_path / "data"
    seen: list[bytes] = []
    with Server(data=data, arguments=["--tls"]) as server:
        authority = data / "tls" / "authority.pem"
        trusting = ssl.create_default_context(cafile=authority)
        for _ in range(2):
            assert first_word(server.port, b"AMQP\x00\x01\x00\x00", trusting) == b"AMQP"
            seen.append((data / "tls" / "server.pem").read_bytes())
            server.restart()
        assert f"SSL_CERT_FILE={authority}" in server.log
    assert seen[0] == seen[1]


def test_passwords_from_other_machines_are_taken_in_tls_only(
    certificates: CertificateFolder,
) -> None:
    """D-34: SASL PLAIN only in TLS or on the loopback."""
    address = address_in_the_network()
    trusting = ssl.create_default_context(cafile=certificates.authority)
    with Server(arguments=["--host", "0.0.0.0", *with_tls(certificates)]) as server:

        def mechanisms(host: str, tls: bool) -> bytes:
            with socket.create_connection((host, server.port), WAIT_S) as plain:
                name = "localhost"
                wire = trusting.wrap_socket(plain, server_hostname=name) if tls else plain
                wire.sendall(b"AMQP\x03\x01\x00\x00")
                said = b""
                while b"ANONYMOUS" not in said:
                    said += wire.recv(1024)
                return said

        assert b"PLAIN" in mechanisms(address, tls=True)
        assert b"PLAIN" not in mechanisms(address, tls=False)
        assert b"PLAIN" in mechanisms("127.0.0.1", tls=False)


# --- HTTP ----------------------------------------------------------------------------------------


@pytest.fixture
def server(certificates: CertificateFolder) -> Iterator[Server]:
    with Server("orders", arguments=with_tls(certificates)) as running:
        yield running


def test_requests_may_come_one_after_the_other_or_byte_by_byte(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), WAIT_S) as client:
        client.sendall(HTTP * 3)
        for byte in HTTP:
            client.sendall(bytes([byte]))
        client.sendall(HTTP.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        said = b""
        while piece := client.recv(65536):
            said += piece
    assert said.count(b"HTTP/1.1 ") == 5


def test_a_connection_is_kept_for_more_requests(server: Server, trusting: ssl.SSLContext) -> None:
    """P-28."""
    for client in (
        HTTPConnection("localhost", server.port, timeout=WAIT_S),
        HTTPSConnection("localhost", server.port, timeout=WAIT_S, context=trusting),
    ):
        with closing(client):
            sockets = set()
            for _ in range(3):
                client.request("GET", "/health")
                client.getresponse().read()
                sockets.add(client.sock)
            assert len(sockets) == 1
            assert None not in sockets


def test_what_the_first_request_costs_is_reported(
    server: Server, record_property: pytest.RecordProperty, capsys: pytest.CaptureFixture[str]
) -> None:
    """D-33. Reported, not judged: a loaded machine would fail it for no fault of ours."""

    def memory_mb() -> float:
        status = Path(f"/proc/{server.pid}/status")
        if not status.exists():
            pytest.skip("no /proc here to read the memory from")
        (line,) = (row for row in status.read_text().splitlines() if row.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def request_s() -> float:
        began = time.monotonic()
        assert first_word(server.port, HTTP) == b"HTTP"
        return time.monotonic() - began

    before_mb = memory_mb()
    first_s, second_s = request_s(), request_s()
    costs_mb = memory_mb() - before_mb
    record_property("first_request_s", round(first_s, 3))
    record_property("first_request_mb", round(costs_mb, 1))
    with capsys.disabled():
        print(
            f"\n[first request: {first_s * 1000:.0f} ms and {costs_mb:.0f} MB; "
            f"second: {second_s * 1000:.0f} ms]"
        )
    assert costs_mb < 100


# --- the end -------------------------------------------------------------------------------------


def test_it_stops_with_connections_of_all_kinds_open(
    server: Server, certificates: CertificateFolder, trusting: ssl.SSLContext
) -> None:
    idle = HTTPSConnection("localhost", server.port, timeout=WAIT_S, context=trusting)
    with closing(idle), socket.create_connection(("127.0.0.1", server.port)) as silent:
        idle.request("GET", "/health")
        idle.getresponse().read()
        url = f"wss://localhost:{server.port}/$servicebus/websocket"
        web = websocket.create_connection(
            url,
            subprotocols=["AMQPWSB10"],
            timeout=WAIT_S,
            sslopt={"ca_certs": str(certificates.authority)},
        )
        with RawClient(server.port).open() as plain, RawClient.in_websocket(web).open() as inside:
            process = server.process
            process.terminate()
            for client in (plain, inside):
                closed = client.until_closed()
                assert closed.error is not None
                assert closed.error.condition == "amqp:connection:forced"
        assert process.wait(ENDED_S) == 0
        assert idle.sock is not None
        assert idle.sock.recv(1) == b""
        assert silent.recv(1) == b""
    assert isinstance(closed, Closed)
    assert "did not leave in time" not in server.log
    assert "Traceback" not in server.log


def test_who_waits_for_a_message_by_http_is_told_that_it_stops(server: Server) -> None:
    headers = {"Authorization": token_for(server)}
    with closing(HTTPConnection("localhost", server.port, timeout=WAIT_S)) as client:
        client.request("POST", "/orders/messages", body="first", headers=headers)
        assert client.getresponse().read() == b""
        client.request("DELETE", "/orders/messages/head?timeout=0", headers=headers)
        assert client.getresponse().read() == b"first"
        client.request("DELETE", "/orders/messages/head?timeout=60", headers=headers)
        with RawClient(server.port).open():  # answered after the request has been read
            process = server.process
            process.terminate()
        assert client.getresponse().status == 503
        assert process.wait(ENDED_S) == 0
