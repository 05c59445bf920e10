"""What hostile clients do. Each attack is a generator: it prepares, yields, and attacks until its time is over.

    python -m hostile.attacks NAME PORT SECONDS

prints `ready` when it is prepared, begins at the first line of standard input, and prints the bytes that it has sent.
"""
from __future__ import annotations

import json
import resource
import sys
import time

from hostile.client import BATCH_FORMAT, Client, Gone, WebSocket, batch_of, message, request, sas, tcp, tls

from busway.amqp import codec
from busway.amqp.events import Attached, Disposed, TransferReceived
from busway.amqp.link import LinkRole
from busway.amqp.performatives import (
    Accepted, Attach, Begin, Coordinator, Declare, Detach, Discharge, Disposition, End, Flow, Modified, Source, Target, Transfer,
    TransactionalState)
from busway.amqp.sections import encode_message
from busway.amqp.types import Symbol, Timestamp

ATTACKS = {}
TOPIC_SUBSCRIPTIONS = 500


class Attack:
    """What an attack is given: the port, and when to stop."""

    def __init__(self, port: int, seconds: float) -> None:
        self.port = port
        self.seconds = seconds
        self.end = 0.0
        self.sent = 0

    def begin(self) -> None:
        self.end = time.time() + self.seconds

    @property
    def goes_on(self) -> bool:
        return time.time() < self.end

    def push(self, sock, data: bytes, bytes_max: int = 1 << 62) -> None:
        """Send this again and again, reading nothing."""
        sock.settimeout(0.2)
        while self.goes_on and self.sent < bytes_max:
            try:
                self.sent += sock.send(data) if hasattr(sock, "send") else (sock.sendall(data), len(data))[1]
            except TimeoutError:
                continue
            except OSError:
                return

    def push_and_read(self, clients: list[Client], data: bytes) -> None:
        """Send this again and again by all of them, and throw away what comes."""
        for client in clients:
            client.sock.settimeout(0.0) if not hasattr(client.sock, "_below") else client.sock._below.settimeout(0.01)
        left = {client: b"" for client in clients}
        while self.goes_on and left:
            idle = True
            for client in list(left):
                try:
                    if not left[client]:
                        left[client] = data
                    if hasattr(client.sock, "send"):
                        count = client.sock.send(left[client])
                    else:
                        client.sock.sendall(left[client])
                        count = len(left[client])
                    self.sent += count
                    left[client] = left[client][count:]
                    idle = False
                except (BlockingIOError, TimeoutError):
                    pass
                except OSError:
                    del left[client]
                    continue
                try:
                    while True:
                        got = client.sock.recv(1 << 20)
                        if not got:
                            del left[client]
                            break
                        idle = False
                except (BlockingIOError, TimeoutError):
                    pass
                except OSError:
                    left.pop(client, None)
            if idle:
                time.sleep(0.001)

    def hold(self) -> None:
        while self.goes_on:
            time.sleep(0.05)


def attack(text: str):
    def register(function):
        ATTACKS[function.__name__] = (text, function)
        return function
    return register


def flow(credit: int, handle: int = 0, **more) -> Flow:
    return Flow(next_incoming_id=0, incoming_window=1 << 30, next_outgoing_id=0, outgoing_window=1 << 30, handle=handle,
                delivery_count=0, link_credit=credit, **more)


@attack("nobody attacks: what the machine itself makes the others wait")
def nothing(it: Attack):
    yield
    it.hold()


# --- What the issue names ------------------------------------------------------------------------


@attack("credit 2^32-1 on a queue of 25,000 messages, read and not settled")
def all_credit(it: Attack):
    client = Client(it.port)
    client.fill("deep", 25_000)
    link = client.receiver("deep")
    yield
    link.set_credit(2**32 - 1)
    client.sock.settimeout(0.2)
    while it.goes_on:
        try:
            client.flush()
            client.sock.recv(1 << 20)
        except TimeoutError:
            pass
        except OSError:
            break
    it.sent = client.sent


@attack("credit 2^32-1 on a queue of 25,000 messages, nothing read")
def all_credit_unread(it: Attack):
    client = Client(it.port)
    client.fill("deep", 25_000)
    link = client.receiver("deep")
    yield
    link.set_credit(2**32 - 1)
    client.flush()
    it.hold()
    it.sent = client.sent


def _settled_with_holes(it: Attack, count: int = 2_000) -> Client:
    client = Client(it.port)
    client.fill("deep", count)
    link = client.receiver("deep")
    link.set_credit(count)
    got = [client.wait(TransferReceived, lambda event: event.link is link).delivery_id for _ in range(count)]
    link.settle(got[::2], Accepted(), settled=True)
    client.flush()
    time.sleep(0.5)
    return client


@attack("500 range dispositions over 2,000 deliveries, every second one settled")
def ranges(it: Attack):
    client = _settled_with_holes(it)
    yield
    one = client.frame(Disposition(role=True, first=0, last=1_999, settled=False, state=Accepted()))
    client.sent = 0
    client.raw(one * 500)
    client.sock.settimeout(0.2)
    while it.goes_on:
        try:
            if not client.sock.recv(1 << 20):
                break
        except TimeoutError:
            pass
        except OSError:
            break
    it.sent = client.sent


@attack("range dispositions without end over deliveries that are held, answers unread")
def ranges_held(it: Attack):
    client = Client(it.port)
    client.fill("deep", 2_000)
    link = client.receiver("deep")
    link.set_credit(2_000)
    for _ in range(2_000):
        client.wait(TransferReceived)
    yield
    state = Modified(delivery_failed=True)
    it.push(client.sock, client.frame(Disposition(role=True, first=0, last=1_999, settled=False, state=state)) * 100)


def _attach_detach(client: Client, address: str = "$cbs") -> bytes:
    attach = Attach(name="again", handle=7, role=False, source=Source("me"), target=Target(address), initial_delivery_count=0)
    return client.frame(attach) + client.frame(Detach(7, closed=True))


@attack("attach and detach on one handle without a token, by 4 connections")
def attach_detach_stranger(it: Attack):
    yield
    while it.goes_on:
        try:
            clients = [Client(it.port, known=False, timeout=2.0) for _ in range(4)]
        except (OSError, Gone):
            continue
        it.push_and_read(clients, _attach_detach(clients[0]) * 50)
        for client in clients:
            client.close()


@attack("attach and detach on one handle with a token, by 4 connections")
def attach_detach_known(it: Attack):
    clients = [Client(it.port) for _ in range(4)]
    yield
    it.push_and_read(clients, _attach_detach(clients[0], "deep") * 50)


@attack("a batch of 2,000 tiny messages to a topic of 500 subscriptions")
def fan_out(it: Attack):
    client = Client(it.port)
    link = client.sender("wide")
    yield
    client.sent = 0
    payload = batch_of([message()] * 2_000)
    client.sock.settimeout(max(1.0, it.seconds))
    try:
        print(client.send(link, payload, BATCH_FORMAT), file=sys.stderr)
    except (OSError, Gone) as error:
        print(repr(error), file=sys.stderr)
    it.hold()
    it.sent = client.sent


@attack("batches of 20 messages to a topic of 500 subscriptions, without end")
def fan_out_steady(it: Attack):
    clients = [Client(it.port) for _ in range(2)]
    links = [client.sender("wide") for client in clients]
    yield
    payload = batch_of([message()] * 20)
    client = clients[0]
    frames = b"".join(
        client.frame(Transfer(handle=links[0].handle, delivery_id=n, delivery_tag=b"%d" % n, message_format=BATCH_FORMAT),
                     payload) for n in range(1_000))
    it.push_and_read(clients, frames)


@attack("single messages to a topic of 500 subscriptions, without end")
def fan_out_singles(it: Attack):
    clients = [Client(it.port) for _ in range(2)]
    links = [client.sender("wide") for client in clients]
    yield
    client, payload = clients[0], message()
    it.push_and_read(clients, b"".join(
        client.frame(Transfer(handle=links[0].handle, delivery_id=n, delivery_tag=b"%d" % n), payload) for n in range(1_000)))


@attack("400 messages that become 200,000 copies at the same moment")
def fan_out_scheduled(it: Attack):
    client = Client(it.port)
    link = client.sender("wide")
    due_ms = int((time.time() + 5.0) * 1000)
    annotations = b"\x00\x53\x72" + codec.encode_value({Symbol("x-opt-scheduled-enqueue-time"): Timestamp(due_ms)})
    for _ in range(20):
        client.send(link, batch_of([annotations + message()] * 20), BATCH_FORMAT)
    yield
    it.hold()
    it.sent = client.sent


@attack("transactions of 20 messages to a topic of 500 subscriptions, one after the other")
def fan_out_transactions(it: Attack):
    client = Client(it.port)
    control = client.session.attach("txn", LinkRole.SENDER, source=Source("me"), target=Coordinator())
    client.wait(Attached, lambda event: event.link is control)
    link = client.sender("wide")
    yield
    client.sock.settimeout(max(1.0, it.seconds))
    payload = batch_of([message()] * 20)
    try:
        while it.goes_on:
            declared = client.send(control, b"\x00\x53\x77" + codec.encode_value(Declare()))
            client.tags += 1
            number = link.send(payload, b"%d" % client.tags, message_format=BATCH_FORMAT,
                               state=TransactionalState(declared.txn_id))
            client.wait(Disposed, lambda event: number in event.delivery_ids and event.link is link)
            client.send(control, b"\x00\x53\x77" + codec.encode_value(Discharge(declared.txn_id, False)))
    except (OSError, Gone) as error:
        print(repr(error), file=sys.stderr)
    it.sent = client.sent


@attack("a batch of 25,000 messages")
def large_batch(it: Attack):
    client = Client(it.port)
    link = client.sender("deep")
    yield
    client.sent = 0
    payload = batch_of([b"\x00\x53\x77\x40"] * 25_000)
    try:
        print(client.send(link, payload, BATCH_FORMAT), file=sys.stderr)
    except (OSError, Gone) as error:
        print(repr(error), file=sys.stderr)
    it.hold()
    it.sent = client.sent


@attack("batches of 4,000 messages without end, by 4 connections")
def large_batches(it: Attack):
    clients = [Client(it.port) for _ in range(4)]
    for client in clients:
        client.sender("deep")
    yield
    payload = batch_of([message()] * 4_000)
    client = clients[0]
    pieces = [payload[n : n + 60_000] for n in range(0, len(payload), 60_000)]
    frames = b""
    for n in range(20):
        frames += b"".join(
            client.frame(Transfer(handle=0, delivery_id=n if i == 0 else None, delivery_tag=b"%d" % n if i == 0 else None,
                                  message_format=BATCH_FORMAT if i == 0 else None, more=i < len(pieces) - 1), piece)
            for i, piece in enumerate(pieces))
    it.push_and_read(clients, frames)


@attack("15 strangers with 60 unfinished deliveries of 1 MB each on $cbs")
def unfinished(it: Attack):
    clients = []
    yield
    for _ in range(15):
        if not it.goes_on:
            break
        try:
            client = Client(it.port, known=False, timeout=3.0)
            clients.append(client)
            for handle in range(60):
                client.raw(client.frame(Attach(name=f"l{handle}", handle=handle, role=False, source=Source("me"),
                                               target=Target("$cbs"), initial_delivery_count=0)))
            for handle in range(60):
                piece = b"x" * 60_000
                for n in range(17):
                    client.raw(client.frame(Transfer(handle=handle, delivery_id=handle, delivery_tag=b"t", more=True), piece))
        except (OSError, Gone):
            pass
    it.hold()
    it.sent = sum(client.sent for client in clients)


@attack("8 clients with a token and 60 unfinished deliveries of 1 MB each")
def unfinished_known(it: Attack):
    clients = [Client(it.port) for _ in range(8)]
    for client in clients:
        for _ in range(60):
            client.sender("deep")
    yield
    for client in clients:
        client.sent = 0
        client.sock.settimeout(3.0)
        try:
            for handle in range(60):
                piece = b"x" * 60_000
                for n in range(4):
                    client.raw(client.frame(Transfer(handle=handle, delivery_id=handle, delivery_tag=b"t", more=True), piece))
        except (OSError, Gone):
            pass
    it.hold()
    it.sent = sum(client.sent for client in clients)


def _peeks(it: Attack, client: Client, count: int) -> bytes:
    link, _, me = client.requests("deep/$management")
    body = {"from-sequence-number": 0, "message-count": 250}
    payload = request({"operation": "com.microsoft:peek-message"}, body, me, 1)
    return b"".join(client.frame(Transfer(handle=link.handle, delivery_id=n, delivery_tag=b"t", settled=True), payload)
                    for n in range(count))


@attack("peeks behind a closed session window")
def peeks_window(it: Attack):
    client = Client(it.port)
    client.fill("deep", 500, size=1_000, batch=100)
    frames = _peeks(it, client, 200)
    yield
    closed = Flow(next_incoming_id=0, incoming_window=0, next_outgoing_id=0, outgoing_window=1 << 30)
    client.raw(client.frame(closed))
    it.push(client.sock, frames, 100_000_000)


@attack("peeks whose replies are not read from the socket")
def peeks_unread(it: Attack):
    client = Client(it.port)
    client.fill("deep", 500, size=1_000, batch=100)
    frames = _peeks(it, client, 200)
    yield
    it.push(client.sock, frames, 100_000_000)


@attack("peeks without credit for their replies")
def peeks_no_credit(it: Attack):
    client = Client(it.port)
    client.fill("deep", 500, size=1_000, batch=100)
    links = client.requests("deep/$management")
    links[1].set_credit(0)
    client.flush()
    body = {"from-sequence-number": 0, "message-count": 250}
    payload = request({"operation": "com.microsoft:peek-message"}, body, links[2], 1)
    frames = b"".join(
        client.frame(Transfer(handle=links[0].handle, delivery_id=n, delivery_tag=b"t", settled=True), payload)
        for n in range(200))
    yield
    it.push(client.sock, frames, 100_000_000)


@attack("flows with echo behind a closed session window")
def echo_window(it: Attack):
    client = Client(it.port)
    client.fill("deep", 1_000)
    link = client.receiver("deep")
    yield
    closed = dict(next_incoming_id=0, incoming_window=0, next_outgoing_id=0, outgoing_window=1 << 30)
    client.raw(client.frame(Flow(**closed)))
    echo = Flow(**closed, handle=link.handle, delivery_count=0, link_credit=100, echo=True)
    it.push(client.sock, client.frame(echo) * 2_000)


@attack("5,200 opens without a token, kept open")
def opens(it: Attack):
    _many_files()
    hello = _hello()
    socks = []
    yield
    while it.goes_on and len(socks) < 5_200:
        try:
            sock = tcp(it.port, 1.0)
            sock.sendall(hello)
            it.sent += len(hello)
            socks.append(sock)
        except OSError:
            time.sleep(0.01)
    it.hold()
    print(len(socks), "opened", file=sys.stderr)


# --- Slow ones -----------------------------------------------------------------------------------


def _many_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _hello() -> bytes:
    from busway.amqp.performatives import Open, SaslInit
    return (b"AMQP\x03\x01\x00\x00" + codec.encode_sasl_frame(SaslInit(mechanism="ANONYMOUS")) + b"AMQP\x00\x01\x00\x00"
            + codec.encode_frame(0, Open(container_id="stranger", hostname="localhost"))
            + codec.encode_frame(0, Begin(remote_channel=None, next_outgoing_id=0, incoming_window=10, outgoing_window=10)))


def _slow(it: Attack, first: bytes, count: int, secure: bool = False):
    _many_files()
    socks, at = [], {}
    yield
    while it.goes_on:
        if len(socks) < count:
            try:
                sock = tls(it.port, 2.0) if secure else tcp(it.port, 2.0)
                sock.setblocking(False)
                socks.append(sock)
                at[sock] = 0
            except OSError:
                time.sleep(0.005)
        for sock in list(socks[-50:]) if len(socks) < count else list(socks):
            try:
                n = at[sock] % len(first)
                it.sent += sock.send(first[n : n + 1])
                at[sock] += 1
            except (BlockingIOError, OSError):
                continue
    print(len(socks), "opened", file=sys.stderr)


@attack("AMQP, a byte at a time, by 3,000 connections")
def slow_amqp(it: Attack):
    yield from _slow(it, _hello(), 3_000)


@attack("TLS handshakes, a byte at a time, by 3,000 connections")
def slow_tls(it: Attack):
    yield from _slow(it, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500, 3_000)


@attack("TLS handshakes without end, one after the other")
def handshakes(it: Attack):
    yield
    while it.goes_on:
        try:
            tls(it.port, 2.0).close()
            it.sent += 600
        except OSError:
            pass


@attack("HTTP heads, a byte at a time, by 3,000 connections")
def slow_http(it: Attack):
    yield from _slow(it, b"GET /$servicebus/x HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 1000, 3_000)


@attack("HTTP bodies that never come, by 1,000 connections")
def slow_bodies(it: Attack):
    yield from _slow(it, b"POST /deep/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n"
                     + f"Authorization: {sas()}\r\n\r\n".encode() + b"x" * 200_000, 1_000)


@attack("WebSockets that stay silent, by 3,000 connections")
def silent_websockets(it: Attack):
    _many_files()
    socks = []
    head = (b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n")
    yield
    while it.goes_on and len(socks) < 3_000:
        try:
            sock = tcp(it.port, 1.0)
            sock.sendall(head)
            it.sent += len(head)
            socks.append(sock)
        except OSError:
            time.sleep(0.005)
    it.hold()


# --- Many small things ---------------------------------------------------------------------------


@attack("empty frames by the million, by 8 connections")
def empty_frames(it: Attack):
    clients = [Client(it.port) for _ in range(8)]
    yield
    it.push_and_read(clients, codec.encode_frame(0, None) * 20_000)


@attack("link flows by the million, by 8 connections")
def flows(it: Attack):
    clients = [Client(it.port) for _ in range(8)]
    handles = [client.receiver("empty").handle for client in clients]
    yield
    it.push_and_read(clients, clients[0].frame(flow(100, handles[0])) * 2_000)


@attack("flows with echo, answers read, by 8 connections")
def echoes(it: Attack):
    clients = [Client(it.port) for _ in range(8)]
    yield
    echo = Flow(next_incoming_id=0, incoming_window=1 << 30, next_outgoing_id=0, outgoing_window=1 << 30, echo=True)
    it.push_and_read(clients, clients[0].frame(echo) * 2_000)


@attack("link flows by the million over TLS, by 4 connections")
def flows_tls(it: Attack):
    clients = [Client(it.port, face="tls") for _ in range(4)]
    handles = [client.receiver("empty").handle for client in clients]
    yield
    it.push_and_read(clients, clients[0].frame(flow(100, handles[0])) * 2_000)


@attack("link flows by the million over WebSocket, by 4 connections")
def flows_websocket(it: Attack):
    clients = [Client(it.port, face="websocket") for _ in range(4)]
    handles = [client.receiver("empty").handle for client in clients]
    yield
    it.push_and_read(clients, clients[0].frame(flow(100, handles[0])) * 1_000)


@attack("begin and end without end, by 4 connections")
def begin_end(it: Attack):
    clients = [Client(it.port) for _ in range(4)]
    yield
    begin = Begin(remote_channel=None, next_outgoing_id=0, incoming_window=10, outgoing_window=10)
    client = clients[0]
    it.push_and_read(clients, (client.frame(begin, channel=9) + client.frame(End(), channel=9)) * 500)


@attack("messages of 10 bytes as fast as they go, by 8 connections")
def small_sends(it: Attack):
    clients = [Client(it.port) for _ in range(8)]
    for client in clients:
        client.sender("deep")
    yield
    client = clients[0]
    it.push_and_read(clients, b"".join(
        client.frame(Transfer(handle=0, delivery_id=n, delivery_tag=b"t", settled=True), message()) for n in range(1_000)))


@attack("rejected messages as fast as they go, by 8 connections")
def bad_sends(it: Attack):
    clients = [Client(it.port) for _ in range(8)]
    for client in clients:
        client.sender("deep")
    yield
    client = clients[0]
    it.push_and_read(clients, b"".join(
        client.frame(Transfer(handle=0, delivery_id=n, delivery_tag=b"t", settled=False), b"\x00\x53\x99") for n in range(1_000)))


@attack("transactions declared and never discharged")
def transactions(it: Attack):
    client = Client(it.port)
    link = client.session.attach("txn", LinkRole.SENDER, source=Source("me"), target=Coordinator())
    client.wait(Attached)
    yield
    payload = b"\x00\x53\x77" + codec.encode_value(Declare())
    it.push_and_read([client], b"".join(
        client.frame(Transfer(handle=link.handle, delivery_id=n, delivery_tag=b"t"), payload) for n in range(2_000)))


@attack("put-token with wrong keys, by 4 connections after the other")
def wrong_tokens(it: Attack):
    yield
    while it.goes_on:
        try:
            clients = [Client(it.port, known=False, timeout=2.0) for _ in range(4)]
            links = [client.requests("$cbs") for client in clients]
        except (OSError, Gone):
            continue
        token = sas().replace("sig=", "sig=x")
        payload = request({"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": "sb://localhost/"},
                          token, links[0][2], 1)
        client = clients[0]
        it.push_and_read(clients, b"".join(
            client.frame(Transfer(handle=links[0][0].handle, delivery_id=n, delivery_tag=b"t", settled=True), payload)
            for n in range(100)))
        for client in clients:
            client.close()


@attack("put-token with the right key, again and again, by 4 connections")
def right_tokens(it: Attack):
    clients = [Client(it.port) for _ in range(4)]
    links = [client.requests("$cbs") for client in clients]
    yield
    payload = request({"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": "sb://localhost/"},
                      sas(), links[0][2], 1)
    client = clients[0]
    it.push_and_read(clients, b"".join(
        client.frame(Transfer(handle=links[0][0].handle, delivery_id=n, delivery_tag=b"t", settled=True), payload)
        for n in range(100)))


def _manage(it: Attack, clients: list[Client], node: str, operation: str, body) -> bytes:
    links = [client.requests(f"{node}/$management") for client in clients]
    payload = request({"operation": f"com.microsoft:{operation}"}, body, links[0][2], 1)
    return b"".join(clients[0].frame(
        Transfer(handle=links[0][0].handle, delivery_id=n, delivery_tag=b"t", settled=True), payload) for n in range(200))


@attack("requests to peek 250 messages, replies read, by 4 connections")
def peeks(it: Attack):
    clients = [Client(it.port) for _ in range(4)]
    clients[0].fill("deep", 2_000, size=1_000, batch=100)
    frames = _manage(it, clients, "deep", "peek-message", {"from-sequence-number": 0, "message-count": 250})
    yield
    it.push_and_read(clients, frames)


@attack("requests to list the sessions of a queue, by 4 connections")
def list_sessions(it: Attack):
    clients = [Client(it.port) for _ in range(4)]
    body = {"last-updated-time": 0, "skip": 0, "top": 1_000}
    frames = _manage(it, clients, "sessions", "get-message-sessions", body)
    yield
    it.push_and_read(clients, frames)


@attack("requests to delete 500 messages of an empty queue, by 4 connections")
def delete_batches(it: Attack):
    clients = [Client(it.port) for _ in range(4)]
    frames = _manage(it, clients, "empty", "batch-delete-messages", {"message-count": 500})
    yield
    it.push_and_read(clients, frames)


@attack("receivers that wait for any session, attached and gone, by 4 connections")
def session_waits(it: Attack):
    clients = [Client(it.port) for _ in range(4)]
    yield
    client = clients[0]
    attach = Attach(name="wait", handle=7, role=True,
                    source=Source("sessions", filter={Symbol("com.microsoft:session-filter"): None}), target=Target("me"))
    it.push_and_read(clients, (client.frame(attach) + client.frame(Detach(7, closed=True))) * 50)


@attack("attaches with an unsettled map and properties of 60 kB, by 4 connections")
def giant_attaches(it: Attack):
    clients = [Client(it.port) for _ in range(4)]
    yield
    client = clients[0]
    large = {Symbol(f"key-{n}"): "x" * 20 for n in range(900)}
    unsettled = {b"%06d" % n: Accepted() for n in range(1_500)}
    attach = Attach(name="giant", handle=7, role=False, source=Source("me"), target=Target("deep"), properties=large,
                    unsettled=unsettled, initial_delivery_count=0)
    it.push_and_read(clients, client.frame(attach) + client.frame(Detach(7, closed=True)))


@attack("messages with deeply nested values, by 4 connections")
def nested(it: Attack):
    clients = [Client(it.port) for _ in range(4)]
    for client in clients:
        client.sender("deep")
    yield
    deep = b"\x45"
    for _ in range(6_000):
        deep = b"\xd0" + (len(deep) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + deep
    payload = (b"\x00\x53\x72\xd1" + (4 + 5 + len(deep)).to_bytes(4, "big") + b"\x00\x00\x00\x02" + b"\xa3\x03x-a" + deep
               + b"\x00\x53\x77\x40")
    client = clients[0]
    it.push_and_read(clients, client.frame(Transfer(handle=0, delivery_id=1, delivery_tag=b"t"), payload) * 5)


@attack("rules full of LIKE, and messages of 30 kB for them")
def like_rules(it: Attack):
    client = Client(it.port)
    link = client.sender("patterns")
    yield
    text = "a" * 30_000
    payload = encode_message(properties=None, application_properties={"p": text}, body=b"x")
    it.push_and_read([client], client.frame(
        Transfer(handle=link.handle, delivery_id=1, delivery_tag=b"t", settled=True), payload) * 50)


# --- HTTP ----------------------------------------------------------------------------------------


def _pipelined(it: Attack, text: bytes, connections: int = 8):
    socks = [tcp(it.port, 5.0) for _ in range(connections)]

    class Plain:
        def __init__(self, sock): self.sock = sock

    yield
    it.push_and_read([Plain(sock) for sock in socks], text * 100)


@attack("HTTP requests without a token, pipelined, by 8 connections")
def http_strangers(it: Attack):
    yield from _pipelined(it, b"GET /deep HTTP/1.1\r\nHost: localhost\r\n\r\n")


@attack("HTTP requests without a token, pipelined, by 240 connections")
def http_strangers_many(it: Attack):
    yield from _pipelined(it, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 240)


@attack("HTTP connections without a token that ask once and stay, by 3,000")
def http_keep_alive(it: Attack):
    _many_files()
    socks = []
    yield
    text = b"GET /deep HTTP/1.1\r\nHost: localhost\r\n\r\n"
    while it.goes_on and len(socks) < 3_000:
        try:
            sock = tcp(it.port, 1.0)
            sock.sendall(text)
            it.sent += len(text)
            socks.append(sock)
        except OSError:
            time.sleep(0.005)
    it.hold()


@attack("WebSockets without a token, each with a message of 900 kB that does not end, by 300")
def websocket_unfinished(it: Attack):
    _many_files()
    yield
    socks = []
    while it.goes_on and len(socks) < 300:
        try:
            below = tcp(it.port, 1.0)
            WebSocket(below)
            below.sendall(b"\x82\xff" + (900_000).to_bytes(8, "big") + bytes(4))
            below.setblocking(False)
            socks.append(below)
        except (OSError, Gone):
            time.sleep(0.005)
    piece = bytes(100_000)
    while it.goes_on:
        for sock in list(socks):
            try:
                it.sent += sock.send(piece)
            except BlockingIOError:
                continue
            except OSError:
                socks.remove(sock)
        time.sleep(0.01)


@attack("attach and detach without a token over WebSocket, by 4 connections after the other")
def websocket_strangers(it: Attack):
    yield
    while it.goes_on:
        try:
            clients = [Client(it.port, known=False, face="websocket", timeout=2.0) for _ in range(4)]
        except (OSError, Gone):
            continue
        it.push_and_read(clients, _attach_detach(clients[0]) * 50)
        for client in clients:
            client.close()


@attack("HTTP sends with a token, pipelined, by 8 connections")
def http_sends(it: Attack):
    yield from _pipelined(it, b"POST /deep/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
                          + f"Authorization: {sas()}\r\n\r\nbody".encode())


@attack("HTTP lists of a topic's 500 subscriptions, pipelined, by 8 connections")
def http_lists(it: Attack):
    yield from _pipelined(it, b"GET /wide/Subscriptions?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n"
                          + f"Authorization: {sas()}\r\n\r\n".encode())


@attack("HTTP batches of 5,000 messages, by 4 connections")
def http_batches(it: Attack):
    body = json.dumps([{"Body": "x"}] * 5_000).encode()
    yield from _pipelined(it, b"POST /deep/messages HTTP/1.1\r\nHost: localhost\r\n"
                          + f"Content-Type: application/vnd.microsoft.servicebus.json\r\nContent-Length: {len(body)}\r\n"
                          f"Authorization: {sas()}\r\n\r\n".encode() + body, 4)


@attack("HTTP bodies of 200 kB for a wrong token, by 8 connections")
def http_bodies(it: Attack):
    yield from _pipelined(it, b"POST /deep/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n"
                          b"Authorization: SharedAccessSignature sr=x&sig=y&se=1&skn=z\r\n\r\n" + b"x" * 200_000)


def main() -> None:
    name, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    it = Attack(port, seconds)
    steps = ATTACKS[name][1](it)
    next(steps)
    print("ready", flush=True)
    sys.stdin.readline()
    it.begin()
    for _ in steps:
        pass
    print(json.dumps({"sent": it.sent}), flush=True)


if __name__ == "__main__":
    main()
