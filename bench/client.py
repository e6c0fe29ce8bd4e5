"""A daemon of one's own and a client that costs little, for benches of the daemon."""
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))


class Daemon:
    """`cloched serve` with directories of its own; config is YAML."""

    def __init__(self, config="", build=BUILD):
        self.build = build
        self.dir = tempfile.mkdtemp(prefix="cloche-bench-d-")
        os.chmod(self.dir, 0o755)
        # As /run: a tmpfs.
        self.runtime = tempfile.mkdtemp(prefix="cloche-bench-d-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        os.chmod(self.runtime, 0o755)
        self.sock = os.path.join(self.dir, "s")
        self.config = os.path.join(self.dir, "config.yaml")
        # The benches ask faster than any honest client.
        rates = "rate_limits:\n" + "".join("  %s_%s: 1000000\n" % (who, what) for who in ("token", "address")
                                           for what in ("per_minute", "burst"))
        with open(self.config, "w", encoding="utf-8") as f:
            f.write(rates + config)
        self.process = None

    def start(self):
        env = dict(os.environ, CLOCHE_STATE_DIR=os.path.join(self.dir, "state"),
                   CLOCHE_RUNTIME_DIR=os.path.join(self.runtime, "run"))
        with open(os.path.join(self.dir, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(self.build, "cloched"), "serve", "--config", self.config,
                 "--listen", "unix:" + self.sock, "--listen", "127.0.0.1:0"],
                env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + 30
        while True:
            try:
                with Client(self.sock) as c:
                    if c.ask("GET", "/healthz")[0] == 200:
                        return self
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the daemon does not start: " + self.log()[-800:])
            time.sleep(0.005)

    def log(self):
        with open(os.path.join(self.dir, "log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def kill(self):
        """The broker at once; the roles end by themselves."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            with Client(self.sock) as c:
                c.ask("DELETE", "/v1/sandboxes")
            self.process.terminate()
            self.process.wait(60)
        shutil.rmtree(self.dir, ignore_errors=True)
        shutil.rmtree(self.runtime, ignore_errors=True)


class Client:
    """One connection that is kept."""

    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(120)
        self.s.connect(path)
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def ask(self, method, path, body=None):
        """Status and body of the answer."""
        data = b"" if body is None else json.dumps(body).encode()
        head = "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" \
               "Content-Length: %d\r\n\r\n" % (method, path, len(data))
        self.s.sendall(head.encode() + data)
        got = self.rest
        while b"\r\n\r\n" not in got:
            got += self.more()
        head, _, rest = got.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(x.split(b":")[1]) for x in lines if x.startswith(b"content-length")), 0)
        while len(rest) < length:
            rest += self.more()
        self.rest = rest[length:]
        return int(lines[0].split()[1]), rest[:length]

    def more(self):
        part = self.s.recv(262144)
        if not part:
            raise OSError("the daemon closed the connection")
        return part


def askbench(build, d, options, *steps):
    """bench/askbench.c: each step is a method, a path, a body and what must be in the answer; microseconds.
    With the option -1 a pair: of those that asked at one moment, and alone.
    `within` is the share of answers within 3 x the median (of those alone)."""
    argv = [os.path.join(build, "bench/askbench"), *map(str, options), d.sock]
    done = subprocess.run([*argv, *(word for step in steps for word in step)], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise RuntimeError("askbench: " + done.stderr[-300:])
    found = [dict(zip(("count", "min", "p50", "p99", "max", "rate", "within"), map(float, line.split("\t"))))
             for line in done.stdout.splitlines()]
    return found if "-1" in options else found[0]


def processes_below(top):
    """Everything below a process: pid -> (parent, name)."""
    known, found = {}, {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
                head, _, tail = f.read().rpartition(")")
        except OSError:
            continue
        known[pid] = (int(tail.split()[1]), head.partition("(")[2])
    for pid, (above, _) in known.items():
        while above in known and above != top:
            above = known[above][0]
        if above == top:
            found[pid] = known[pid]
    return found


def percentile(times, share):
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measure(sock, count, at_once, do):
    """do(client) so often, by so many at once: milliseconds of each, and the whole in seconds."""
    times, errors, lock = [], [], threading.Lock()

    def worker(rounds):
        own = []
        try:
            with Client(sock) as c:
                for _ in range(rounds):
                    begun = time.perf_counter()
                    do(c)
                    own.append((time.perf_counter() - begun) * 1000)
        except (OSError, AssertionError) as error:
            errors.append(error)
        with lock:
            times.extend(own)

    threads = [threading.Thread(target=worker, args=(max(1, count // at_once),)) for _ in range(at_once)]
    begun = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return times, time.perf_counter() - begun
