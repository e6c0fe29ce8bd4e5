#!/usr/bin/env python3
"""Creates a second: from a full pool, without a pool, and with many sandboxes alive; and what each costs in memory.

    make bench-creates [BENCH="pool cold alive"]     CROWD=10000: how many alive; BENCH_QUICK=1: 300

The host must have the memory: about 0.5 MB for each sandbox.
"""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# The runtime directory is in memory, as /run is: ext4 is slow to create files where many were just deleted.
os.environ.setdefault("TMPDIR", "/dev/shm")
import client  # noqa: E402
import run as bench_run  # noqa: E402
from client import Client, Daemon  # noqa: E402

QUICK = bench_run.QUICK
CROWD = int(os.environ.get("CROWD", 300 if QUICK else 3000))
POOL = 64 if QUICK else 400
SMALL = '{"ttl":3600,"memory":"32M","disk":"16M"}'
SETTINGS = "max_sandboxes: 20000\nmemory_total: 4000G\ndisk_total: 4000G\nsandbox: {memory_limit: 32M, disk_limit: 16M}\n"
CREATE, DESTROY = ["POST", "/v1/sandboxes", SMALL, '"id"'], ["DELETE", "/v1/sandboxes/@", "", ""]


def ask(d, clients, rounds, *steps):
    return client.askbench(client.BUILD, d, ["-c", clients, "-n", rounds], *steps)


def cells(name, m):
    return [name, "%.0f" % m["rate"], "%.2f" % (m["p50"] / 1000), "%.2f" % (m["p99"] / 1000)]


def metric(d, name):
    with Client(d.sock) as c:
        text = c.ask("GET", "/metrics")[1].decode()
    return next((float(x.split()[-1]) for x in text.splitlines() if x.startswith(name + " ")), 0)


def available():
    with open("/proc/meminfo", encoding="ascii") as f:
        return int(next(x for x in f if x.startswith("MemAvailable")).split()[1]) / 1024


def section_pool():
    d = Daemon(SETTINGS + "pool_size: %d\n" % POOL).start()
    try:
        end = time.monotonic() + 120
        while metric(d, "cloche_sandboxes_pooled") < POOL and time.monotonic() < end:
            time.sleep(0.1)
        rows = [cells("1 at once", ask(d, 1, POOL // 4, CREATE)), cells("16 at once", ask(d, 16, POOL // 2, CREATE))]
        bench_run.table("Creates from a full pool of %d" % POOL, ["", "a second", "p50 ms", "p99 ms"], rows)
    finally:
        d.stop()


def section_cold():
    d = Daemon(SETTINGS + "pool_size: 0\n").start()
    try:
        rows = [cells("%d at once" % n, ask(d, n, 60 if QUICK else 200, CREATE, DESTROY)) for n in (1, 8, 64)]
        rows += [cells("%d at once, kept" % n, ask(d, n, 60 if QUICK else 200, CREATE)) for n in (8,)]
        bench_run.table("Creates without a pool", ["", "a second", "p50 ms", "p99 ms"], rows)
    finally:
        d.stop()


def section_alive():
    d = Daemon(SETTINGS + "pool_size: 0\n").start()
    rows, alive, first = [], 0, None
    try:
        before = available()
        for level in sorted({100, CROWD // 3, CROWD}):
            ask(d, 8, max(1, level - alive), CREATE)
            alive = level
            m = ask(d, 1, 50, CREATE, DESTROY)
            first = first or m["p50"]
            rows.append([str(level), "%.2f" % (m["p50"] / 1000), "%.2f" % (m["p50"] / first),
                         "%.2f" % (m["p99"] / 1000), "%.2f" % ((before - available()) / level)])
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
        bench_run.table("Create and destroy with so many alive",
                        ["alive", "p50 ms", "x of the first", "p99 ms", "MB each"], rows)
    finally:
        d.stop()


def main():
    wanted = sys.argv[1:] or ["pool", "cold", "alive"]
    for name in wanted:
        globals()["section_" + name]()


main()
