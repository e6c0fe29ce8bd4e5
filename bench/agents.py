#!/usr/bin/env python3
"""Many agents at one time: how long they take, whether all answer, and whether everything is as before.

    bench/agents.py [COUNT]          200 agents that sleep for a second, each in a sandbox of its own

If a Docker daemon answers, the same is done with `docker run`; without one that column is left out.
"""
import json
import os
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client import Client, Daemon, percentile, processes_below  # noqa: E402

TASK = "sleep 1; echo $((%d + 1))"


def in_threads(count, one):
    """What one(i) returned, and the milliseconds that each took."""
    out, took = [None] * count, [0.0] * count

    def run(i):
        began = time.monotonic()
        try:
            out[i] = one(i)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            out[i] = error
        took[i] = (time.monotonic() - began) * 1000

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out, took


def show(name, count, one):
    began = time.monotonic()
    out, took = in_threads(count, one)
    seconds = time.monotonic() - began
    lost = [x for i, x in enumerate(out) if x != "%d\n" % (i + 1)]
    print("%-8s %4d agents  %6.2f s in all  p50 %6.0f ms  p99 %6.0f ms  lost %d%s"
          % (name, count, seconds, percentile(took, 0.5), percentile(took, 0.99), len(lost),
             "  first: %.120r" % lost[0] if lost else ""))
    return len(lost)


def agent(d):
    def one(i):
        with Client(d.sock) as c:
            status, body = c.ask("POST", "/mcp/agents/shell", {"task": TASK % i})
        return json.loads(body)["output"] if status == 200 else body
    return one


def docker(i):
    done = subprocess.run(["docker", "run", "--rm", "--network", "none", "alpine", "sh", "-c", TASK % i],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=300)
    return done.stdout.decode()


def has_docker():
    return shutil.which("docker") and subprocess.run(["docker", "info"], stdout=subprocess.DEVNULL,
                                                     stderr=subprocess.DEVNULL, check=False).returncode == 0


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    d = Daemon("pool_size: 0\nmemory_total: 1T\nmax_sandboxes: 1000\n").start()
    try:
        show("warm-up", 2, agent(d))
        before = len(processes_below(d.process.pid))
        lost = show("cloche", count, agent(d))
        end = time.monotonic() + 60
        while len(processes_below(d.process.pid)) > before and time.monotonic() < end:
            time.sleep(0.2)
        print("processes of the daemon: %d before, %d after" % (before, len(processes_below(d.process.pid))))
    finally:
        d.stop()
    if has_docker():
        show("docker", count, docker)
    else:
        print("docker   no daemon answers: left out")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
