"""`make wheel`: whether an installed wheel has everything, tried from outside of the clone.

The codec must be the compiled one and the loop uvloop; a server of it takes a message by the SDK,
and gives out the portal and its metrics.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import busway
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from busway.testing import Server


def check(what: str, holds: bool) -> None:
    print(f"{'ok    ' if holds else 'FAILED'}  {what}")
    if not holds:
        sys.exit(1)


place = Path(busway.__file__)
check(f"it is the installed one: {place}", "site-packages" in place.parts)
told = subprocess.run(
    [Path(sys.executable).with_name("busway"), "version"],
    capture_output=True,
    text=True,
    check=True,
).stdout.split()
facts = dict(zip(told[::2], told[1::2], strict=True))
check(f"the codec is compiled: {facts['codec']}", facts["codec"] == "cython")
check(f"the loop is uvloop: {facts['loop']}", facts["loop"] == "uvloop")
with Server("orders", arguments=["--metrics", "open"]) as server:
    check("the server says so, too", "codec cython, loop uvloop" in server.log)
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with client.get_queue_receiver("orders", max_wait_time=60) as receiver:
            message = next(receiver)
            receiver.complete_message(message)
    check("a message goes in and out", str(message) == "x")
    for path, word in (("/portal/", b"<html"), ("/portal/app.js", b"import"), ("/metrics", b"busway_")):
        with urllib.request.urlopen(f"http://localhost:{server.port}{path}", timeout=60) as reply:
            check(f"it has {path}", word in reply.read())
