#!/usr/bin/env python3
"""What scheduled messages cost: memory, idle CPU, a restart, and whether those that fall due come (SCH, D-10).

    .venv/bin/python bench/schedules.py

Batches go over AMQP with `x-opt-scheduled-enqueue-time`, due in a year, and are acknowledged when they are durable. Then
nobody does anything for some seconds, and the broker's CPU time is looked at; it is stopped and started on the same data;
and some more messages are scheduled for a few seconds later and received.
"""
import argparse
import shutil
import socket
import sys
import time
from pathlib import Path

import peers
from memory import KEY, Broker

from busway.amqp import codec
from busway.amqp.connection import Connection, ConnectionSettings, Role
from busway.amqp.events import Attached, Closed, Detached, Disposed, TransferReceived
from busway.amqp.link import LinkRole
from busway.amqp.performatives import Accepted, Source, Target
from busway.amqp.sections import BATCH_FORMAT, MESSAGE_ANNOTATIONS, encode_message
from busway.amqp.types import Described, Symbol, Timestamp, ULong
from busway.model.entities import ROOT_RULE_NAME

QUEUE = "bench"
YEAR_MS = 365 * 24 * 3600 * 1000
WINDOW = 8
"""Batches under way."""
LIMIT_MIB = 300
IDLE_CPU_LIMIT = 0.02
"""Of one core: a broker with nothing to do looks at sockets and heartbeats, not at messages."""


class Client:
    """A sender or a receiver on a blocking socket, driven by the AMQP engine."""

    def __init__(self, port, role):
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        settings = ConnectionSettings("schedules", "localhost", credentials=(ROOT_RULE_NAME, KEY))
        self._engine = Connection(settings, role=Role.CLIENT)
        self._engine.open()
        ends = {"target": Target(QUEUE)} if role is LinkRole.SENDER else {"source": Source(QUEUE)}
        ends = {"source": Source("schedules"), "target": Target("schedules"), **ends}
        delete = role is LinkRole.RECEIVER
        self.link = self._engine.begin().attach("link", role, snd_settle_mode=1 if delete else 0, **ends)
        self._tags = 0
        self.accepted = 0
        self.received = 0
        attached = False
        while not attached:
            attached = any(isinstance(event, Attached) for event in self.talk())

    def talk(self):
        """Say what is to be said, hear what comes."""
        self._socket.sendall(self._engine.take_output())
        data = self._socket.recv(1 << 16)
        events = self._engine.receive(data) if data else self._engine.eof()
        for event in events:
            if isinstance(event, Detached | Closed):
                sys.exit(f"cut off: {event.error}")
            if isinstance(event, Disposed):
                if not isinstance(event.state, Accepted):
                    sys.exit(f"a batch was refused: {event.state}")
                self.accepted += len(event.delivery_ids)
            self.received += isinstance(event, TransferReceived)
        return events

    def send(self, batch, times):
        """The same batch so many times; returns when all are acknowledged."""
        self.accepted, sent = 0, 0
        while self.accepted < times:
            while sent < times and sent - self.accepted < WINDOW and self.link.credit:
                self._tags += 1
                self.link.send(batch, self._tags.to_bytes(8, "big"), message_format=BATCH_FORMAT)
                sent += 1
            self.talk()

    def receive(self, count):
        self.link.set_credit(count)
        while self.received < count:
            self.talk()

    def close(self):
        self._socket.close()


def batch_of(count, size, due_ms):
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(due_ms)}
    message = codec.encode_value(Described(ULong(MESSAGE_ANNOTATIONS), annotations))
    message += encode_message(data=bytes(size))
    return (b"\x00\x53\x75" + codec.encode_value(message)) * count


def schedule(broker, count, per_batch, size, due_ms):
    """Messages per second."""
    began = time.monotonic()
    client = Client(broker.port, LinkRole.SENDER)
    client.send(batch_of(per_batch, size, due_ms), count // per_batch)
    client.close()
    return round(count / (time.monotonic() - began))


def idle_cpu(broker, seconds):
    """The part of one core that the broker uses while nobody asks it for anything."""
    before = peers.cpu_s([broker.process.pid])
    time.sleep(seconds)
    return round((peers.cpu_s([broker.process.pid]) - before) / seconds, 4)


def now_ms():
    return int(time.time() * 1000)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=1_000_000)
    p.add_argument("--size", type=int, default=256)
    p.add_argument("--batch", type=int, default=500, help="messages in one transfer")
    p.add_argument("--idle", type=float, default=20.0, help="seconds of looking at an idle broker")
    p.add_argument("--due", type=int, default=10_000, help="so many fall due, after a few seconds")
    p.add_argument("--partitioned", action="store_true", help="16 partitions instead of one")
    p.add_argument("--workdir", default=str(peers.HERE / "run"), help="put it on the file system to measure")
    a = p.parse_args()
    folder = Path(a.workdir).resolve() / "schedules"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    broker = Broker(folder, a.partitioned)
    try:
        broker.report("idle", start_s=round(broker.start(), 2), idle_cpu=idle_cpu(broker, a.idle / 2))
        rate = schedule(broker, a.count, a.batch, a.size, now_ms() + YEAR_MS)
        broker.report(f"{a.count:,} scheduled", msgs_per_s=rate)
        full = broker.report("nobody asks for anything", idle_cpu=idle_cpu(broker, a.idle))
        disk = sum(f.stat().st_size for f in (folder / "data").iterdir())
        began = time.monotonic()
        broker.stop()
        print(f"{'stopped':30} after_s {time.monotonic() - began:.2f}  disk_mib {disk / 2**20:,.0f}")
        again = broker.report("started again", start_s=round(broker.start(), 2), idle_cpu=idle_cpu(broker, a.idle))
        due_ms = now_ms() + 10_000
        schedule(broker, a.due, a.batch, a.size, due_ms)
        receiver = Client(broker.port, LinkRole.RECEIVER)
        receiver.receive(a.due)
        last_ms = now_ms() - due_ms
        receiver.close()
        broker.report(f"{a.due:,} fell due", received=receiver.received, last_after_ms=last_ms)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    peak, cpu = full["peak_mib"], max(full["idle_cpu"], again["idle_cpu"])
    well = peak < LIMIT_MIB and cpu < IDLE_CPU_LIMIT
    print(f"with {a.count:,} messages scheduled: peak {peak:.0f} MiB (limit {LIMIT_MIB}), idle at {cpu:.2%} of a core "
          f"(limit {IDLE_CPU_LIMIT:.0%}): {'well' if well else 'NOT well'}")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
