#!/usr/bin/env python3
"""What ten thousand queues cost: creating and listing them over HTTP, memory, a restart, a scrape of the metrics.

    .venv/bin/python bench/entities.py
    .venv/bin/python bench/entities.py --messages 1         # with a message in each, so that each is in its store, too

RSS is the process's own, read from /proc, when it is idle. Start time is from spawn to the `ready` line. *wait* is the
longest that a request for `/health/live` took on another connection meanwhile: how long the server was not listening.
"""
import argparse
import http.client
import multiprocessing
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote_plus
from xml.etree import ElementTree

import peers

KEY = "a-key-for-the-bench-only"
LIMIT_MIB = 400
FORK = multiprocessing.get_context("fork")
ATOM = "{http://www.w3.org/2005/Atom}"
DESCRIPTION = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>')


class Server:
    def __init__(self, folder):
        self.folder = folder
        self.port = peers.free_port()
        self.process = None

    def start(self):
        """Seconds until it is ready."""
        began = time.monotonic()
        self.process = subprocess.Popen(
            [peers.python(), "-m", "busway", "serve", "--port", str(self.port), "--http-port", "off", "--data",
             str(self.folder / "data"), "--key", KEY, "--log-level", "warning"], stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("ready"):
                return time.monotonic() - began
        sys.exit("the server did not start")

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(120)

    def memory(self, name):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
        return 0.0

    def report(self, what, **more):
        figures = {"rss_mib": round(self.memory("VmRSS"), 1), "peak_mib": round(self.memory("VmHWM"), 1), **more}
        print(f"{what:34} " + "  ".join(f"{k} {v:,}" for k, v in figures.items()), flush=True)
        return figures


class Client:
    """One connection that is kept."""

    def __init__(self, port):
        from busway.gateway.auth import sign
        self.http = http.client.HTTPConnection("localhost", port, timeout=300)
        resource, expiry = quote_plus("http://localhost/"), str(int(time.time()) + 86_400)
        self.token = (f"SharedAccessSignature sr={resource}&sig={quote_plus(sign(resource, expiry, KEY))}&se={expiry}"
                      "&skn=RootManageSharedAccessKey")

    def ask(self, method, path, body=None, wanted=(200, 201)):
        self.http.request(method, path, body, {"Authorization": self.token})
        reply = self.http.getresponse()
        data = reply.read()
        if reply.status not in wanted:
            sys.exit(f"{method} {path}: {reply.status} {data[:500]!r}")
        return data


def spread(port, connections, names, work):
    """Call `work(client, name)` for all names, over so many connections; seconds."""
    def run(mine):
        client = Client(port)
        for name in mine:
            work(client, name)
    threads = [threading.Thread(target=run, args=(names[start::connections],)) for start in range(connections)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began


def listed(port, page):
    """How many queues all pages have together, and the seconds for them."""
    client, count, began = Client(port), 0, time.monotonic()
    while True:
        feed = ElementTree.fromstring(
            client.ask("GET", f"/$Resources/queues?api-version=2021-05&$skip={count}&$top={page}"))
        entries = len(feed.findall(ATOM + "entry"))
        count += entries
        if entries < page:
            return count, time.monotonic() - began


def ping(port, begun, done, longest):
    """In a process of its own: this one has its hands full with what it is told."""
    client = Client(port)
    client.ask("GET", "/health/live")
    begun.set()
    while not done.is_set():
        began = time.monotonic()
        client.ask("GET", "/health/live")
        longest.value = max(longest.value, time.monotonic() - began)
        time.sleep(0.001)


def waits(port, work):
    """What `work` gives, its seconds, and the longest that somebody else waited meanwhile (ms)."""
    begun, done, longest = FORK.Event(), FORK.Event(), FORK.Value("d", 0.0)
    pinger = FORK.Process(target=ping, args=(port, begun, done, longest))
    pinger.start()
    begun.wait()
    began = time.monotonic()
    result = work()
    took = time.monotonic() - began
    done.set()
    pinger.join()
    return result, took, longest.value * 1000


def look(server, a):
    """Scrape and page, with somebody else listening."""
    client = Client(server.port)
    client.ask("GET", "/metrics")  # the first one loads what it needs
    quiet = waits(server.port, lambda: time.sleep(1))[2]
    text, took, wait = waits(server.port, lambda: client.ask("GET", "/metrics"))
    series = sum(1 for line in text.splitlines() if not line.startswith(b"#"))
    server.report("metrics", seconds=round(took, 2), wait_ms=round(wait, 1), quiet_ms=round(quiet, 1), series=series,
                  kib=len(text) // 1024)
    _, took, wait = waits(server.port, lambda: client.ask("GET", "/$busway/map?top=1000"))
    server.report("map, a page of 1,000", seconds=round(took, 2), wait_ms=round(wait, 1))
    (count, took), _, wait = waits(server.port, lambda: listed(server.port, a.page))
    server.report(f"listed, pages of {a.page}", seconds=round(took, 2), wait_ms=round(wait, 1), queues=count)
    if count != a.count:
        sys.exit(f"{count:,} queues are listed, not {a.count:,}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=10_000)
    p.add_argument("--connections", type=int, default=4)
    p.add_argument("--messages", type=int, default=0, help="to send to each queue before the restart")
    p.add_argument("--page", type=int, default=100)
    p.add_argument("--workdir", default=str(peers.HERE / "run"), help="put it on the file system to measure")
    a = p.parse_args()
    folder = Path(a.workdir).resolve() / "entities"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = [f"queue-{number:05}" for number in range(a.count)]
    server = Server(folder)
    try:
        server.report("idle, no queues", start_s=round(server.start(), 2))
        took = spread(server.port, a.connections, names,
                      lambda client, name: client.ask("PUT", f"/{name}?api-version=2021-05", DESCRIPTION))
        server.report(f"{a.count:,} created", seconds=round(took, 1), per_s=round(a.count / took))
        for _ in range(a.messages):
            took = spread(server.port, a.connections, names,
                          lambda client, name: client.ask("POST", f"/{name}/messages", "x" * 100))
            server.report("a message sent to each", seconds=round(took, 1), per_s=round(a.count / took))
        look(server, a)
        began = time.monotonic()
        server.stop()
        print(f"{'stopped':34} after_s {time.monotonic() - began:.2f}")
        start_s = server.start()
        idle = server.report("started again, idle", start_s=round(start_s, 2))
        look(server, a)
        used = server.report("idle, after all of that")
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    most = max(idle["rss_mib"], used["rss_mib"])
    verdict = "below" if most < LIMIT_MIB else "NOT below"
    print(f"with {a.count:,} queues: started in {start_s:.1f} s, idle at {most:.0f} MiB, {verdict} {LIMIT_MIB}")
    sys.exit(0 if most < LIMIT_MIB else 1)


if __name__ == "__main__":
    main()
