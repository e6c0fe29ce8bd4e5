#!/usr/bin/env python3
"""Compares two builds of cloche, in turns: is the new one as fast as the old one?

    bench/versions.py [-n PAIRS] OLD_BUILD NEW_BUILD      each a directory with cloche, cloched ...

Measures `cloche run` of a static hello, a warm POST /v1/run of print(42), and exec of echo in a running
sandbox. Both builds take turns (bench/spawnbench.c) in the order old new new old, since the kernel's work
behind one command slows the next. Daemons of one build differ by a tenth and more among each other, so each is
replaced after 400 pairs. For each operation it prints both medians, their ratio, and a 95 % interval of the ratio:
samples are drawn again 2000 times, with replacement. Exit status 1 if an interval lies above 1.03 as a whole.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client import BUILD, Client, Daemon  # noqa: E402

MOST = 1.03
PAYLOAD = os.path.join(BUILD, "bench/payload")
SPAWNBENCH = os.path.join(BUILD, "bench/spawnbench")


def pairs(count, old, new):
    """Samples of both commands, round by round, in microseconds."""
    words = []
    for name, command in (("old", old), ("new", new), ("new", new), ("old", old)):
        words += [name, *command, ","]
    out = subprocess.run([SPAWNBENCH, "-s", "-n", str((count + 1) // 2), "-w", "20", *words[:-1]],
                         check=True, capture_output=True, text=True).stdout
    first, second, third, fourth = ([float(x) for x in line.split("\t")[2:]] for line in out.splitlines())
    return first + fourth, second + third


def interval(old, new, draws=2000):
    """The ratio of medians, and the bounds of its 95 % interval."""
    rng = random.Random(1)
    rounds = range(len(old))
    found = []
    for _ in range(draws):
        picked = rng.choices(rounds, k=len(old))
        found.append(statistics.median(new[i] for i in picked) / statistics.median(old[i] for i in picked))
    found.sort()
    ratio = statistics.median(new) / statistics.median(old)
    return ratio, found[int(0.025 * draws)], found[int(0.975 * draws)]


def run_command(build):
    return [os.path.join(build, "cloche"), "run", "--empty", "--no-daemon", "-v", PAYLOAD + ":/payload:ro", "--",
            "/payload"]


def warm_request(daemon):
    """Waits until the daemon answers from warm sandboxes."""
    body = {"code": "print(42)"}
    with Client(daemon.sock) as c:
        end, warm = time.monotonic() + 60, 0
        while warm < 8:
            status, text = c.ask("POST", "/v1/run", body)
            warm = warm + 1 if status == 200 and json.loads(text)["layers"]["recycled"] else 0
            if time.monotonic() > end:
                raise RuntimeError("the daemon does not get warm: %s" % text[:300])
            time.sleep(0.01)
    return ["ask:", daemon.sock, json.dumps(body), '"stdout":"42\\n"']


def exec_request(daemon):
    with Client(daemon.sock) as c:
        box = json.loads(c.ask("POST", "/v1/sandboxes", {"ttl": "1h"})[1])["id"]
    return ["ask:/v1/sandboxes/%s/exec" % box, daemon.sock, json.dumps({"cmd": ["/bin/echo", "hello"]}),
            '"stdout":"hello\\n"']


def compare_commands(count, builds):
    return pairs(count, *(run_command(build) for build in builds))


def compare_daemons(request):
    """Compares what daemons answer, each pair of daemons for 400 pairs; which one starts first changes."""

    def compare(count, builds):
        old, new = [], []
        for turn in range(0, count, 400):
            daemons = {build: Daemon(build=build).start() for build in builds[::1 if turn % 800 else -1]}
            try:
                samples = pairs(min(400, count - turn), *(request(daemons[build]) for build in builds))
            finally:
                for d in daemons.values():
                    d.stop()
            old += samples[0]
            new += samples[1]
        return old, new

    return compare


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-n", type=int, default=4000, help="pairs of each operation (4000)")
    parser.add_argument("old")
    parser.add_argument("new")
    args = parser.parse_args()
    builds = [os.path.abspath(args.old), os.path.abspath(args.new)]
    slower = False
    print("| operation | pairs | old ms | new ms | ratio | 95 % interval |\n|---|---|---|---|---|---|")
    for name, compare in (("cloche run", compare_commands), ("warm run", compare_daemons(warm_request)),
                          ("exec", compare_daemons(exec_request))):
        old, new = compare(args.n, builds)
        ratio, low, high = interval(old, new)
        slower = slower or low > MOST
        print("| %s | %d | %.3f | %.3f | %.3f | %.3f to %.3f |"
              % (name, len(old), statistics.median(old) / 1000, statistics.median(new) / 1000, ratio, low, high),
              flush=True)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
