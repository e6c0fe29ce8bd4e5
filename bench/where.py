#!/usr/bin/env python3
"""Says where the time of a warm run goes, in microseconds: medians of requests of one client.

    B=build bench/where.py [ROUNDS]        400 unless said

Four instants of a POST /v1/run are taken by clocks that client and sandbox share (CLOCK_REALTIME): the
request is sent, the user's code begins, it ends, the whole record is there. What a request costs that
does less (no run at all; refused after its body was read; a call to a sandbox that runs) is measured
beside it, in turns. docs/performance.md explains the lines.
"""
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import warm  # noqa: E402
from client import Client, percentile  # noqa: E402

STAMPS = "import time; a = time.time_ns()\nprint(a, time.time_ns())"


def median(values):
    return percentile(values, 0.5) if values else float("nan")


class Where:
    def __init__(self, bench, rounds):
        self.bench, self.rounds = bench, rounds
        image = os.path.join(bench.dir, "image")
        os.makedirs(image + "/bin")
        shutil.copy(bench.payload, image + "/bin/payload")
        self.python = Client(bench.daemon().sock)
        tiny = bench.daemon("images: {tiny: %s}\nsandbox: {image: tiny}\n" % image, [{"cmd": ["/bin/payload"]}])
        self.command = Client(tiny.sock)
        made = json.loads(self.python.ask("POST", "/v1/sandboxes", {"ttl": "1h"})[1])
        self.sandbox = "/v1/sandboxes/" + made["id"]
        self.times = {}

    def note(self, name, us):
        self.times.setdefault(name, []).append(us)

    def ask(self, name, method, path, body=None, status=200):
        begun = time.time_ns()
        got, _ = self.python.ask(method, path, body)
        self.note(name, (time.time_ns() - begun) / 1000)
        assert got == status, (name, got)

    def run(self, client, kind, body):
        """The four instants, and what the record itself says."""
        sent = time.time_ns()
        status, text = client.ask("POST", "/v1/run", body)
        there = time.time_ns()
        record = json.loads(text)
        assert status == 200 and record["layers"]["recycled"], text
        stamps = [int(x) for x in record["stdout"].split()]
        self.note(kind + " all", (there - sent) / 1000)
        self.note(kind + " to code", (stamps[0] - sent) / 1000)
        self.note(kind + " code", (stamps[-1] - stamps[0]) / 1000)
        self.note(kind + " from code", (there - stamps[-1]) / 1000)
        self.note(kind + " setup", record["setup_ms"] * 1000)
        self.note(kind + " duration", record["duration_ms"] * 1000)
        self.note(kind + " cpu", record["cpu_ms"] * 1000)

    def measure(self):
        for _ in range(self.rounds):
            self.ask("http", "GET", "/healthz")
            self.ask("refused", "POST", "/v1/run", {"code": "print(42)", "warm": "hot"}, 400)
            self.ask("guest", "GET", self.sandbox + "/execs")
            self.run(self.python, "python", {"code": STAMPS})
            self.run(self.command, "command", {"cmd": ["/bin/payload", "now"]})
            time.sleep(0.004)  # for the next cell: it is made behind

    def show(self):
        m = {name: median(values) for name, values in self.times.items()}
        rows = [
            ("a request that asks for nothing (GET /healthz)", m["http"]),
            ("... whose body is read, and refused (POST /v1/run, 400)", m["refused"]),
            ("... that asks a running sandbox (GET execs)", m["guest"]),
        ]
        warm.table("Requests that run nothing, us", ["", "p50"], [(n, "%.0f" % v) for n, v in rows])
        rows = [(name, "%.0f" % m["python " + key], "%.0f" % m["command " + key]) for name, key in (
            ("all, as the client sees it", "all"), ("1. sent, until the code's first line", "to code"),
            ("2. the code itself", "code"), ("3. its last line, until the record is there", "from code"),
            ("the record: setup_ms, until the guest has handed it over", "setup"),
            ("the record: duration_ms, until everything in the cell is dead", "duration"),
            ("the record: cpu_ms", "cpu"))]
        warm.table("A warm run, us", ["", "print", "static program"], rows)


def floors(bench):
    found = bench.spawnbench(["-n", "100"], [
        ("vfork+exec, static", 1, [bench.payload]), ("python3 -c pass", 1, [warm.PYTHON, "-c", "pass"]),
        ("python3 -I -S -c pass", 1, [warm.PYTHON, "-I", "-S", "-c", "pass"])])
    warm.table("Floors, us", ["", "p50"], [(name, "%.0f" % n[2]) for name, n in found.items()])


def main(rounds):
    b = warm.Bench()
    try:
        w = Where(b, rounds)
        w.measure()
        w.show()
        floors(b)
    finally:
        b.close()
    return 0


if __name__ == "__main__":
    if subprocess.run(["test", "-x", os.path.join(warm.bench_run.BUILD, "bench/askbench")]).returncode:
        sys.exit("first: make bench-warm BENCH=memory (it builds what is needed)")
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 400))
