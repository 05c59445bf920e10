"""Clients that behave: one that sends and receives a message again and again, one that comes anew each time.

    python -m hostile.canary PORT messages|connections

Waits are written as one JSON list of [when, seconds] when standard input ends; a wait that is still going on then, and
one that ended with an error, count as long as they lasted.
"""
import json
import os
import select
import sys
import time

from hostile.client import Client, Gone, message

from busway.amqp.events import TransferReceived
from busway.amqp.performatives import Accepted

PAUSE_S = {"messages": 0.004, "connections": 0.05}


def main() -> None:
    port, mode = int(sys.argv[1]), sys.argv[2]
    waits, errors = [], []
    client = sender = receiver = None
    began = time.time()
    os.set_blocking(0, False)
    print("ready" if mode == "connections" else "", end="", flush=True)
    said = mode == "connections"
    while not select.select([0], [], [], PAUSE_S[mode])[0]:
        began = time.time()
        try:
            if mode == "messages":
                if client is None:
                    client = Client(port, timeout=20.0)
                    sender, receiver = client.sender("canary"), client.receiver("canary")
                    receiver.set_credit(100_000)
                    client.flush()
                began = time.time()
                client.send(sender, message(b"canary"))
                event = client.wait(TransferReceived, lambda event: event.link is receiver)
                receiver.settle([event.delivery_id], Accepted(), settled=True)
                client.flush()
                if not said:
                    said = True
                    print("ready", end="", flush=True)
            else:
                one = Client(port, known=False, timeout=20.0)
                one.put_token()
                one.send(one.sender("arrivals"), message(b"new"))
                one.close()
        except (OSError, Gone, AssertionError) as error:
            errors.append(f"{type(error).__name__}: {error}")
            client = None
        waits.append([began, time.time() - began])
    json.dump({"waits": waits, "errors": errors}, sys.stdout)


main()
