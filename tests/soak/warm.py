#!/usr/bin/python3
"""Runs thousands of things in warm sandboxes while their processes are killed, then counts what is left.

    tests/soak/warm.py [--count N] [--threads N] [--seed N]      or: make soak-warm SOAK=N

Two rounds: one without faults, in which every answer must be right; one in which interpreters, lanes,
warm sandboxes, tasks and whole warm hosts are killed at random, in which every request must be answered: rightly, or by
an error, or by the signal that hit it, but never by another's output and never by nothing. Then warm runs
must be had again, the daemon must have no more fds than before, and the host must be as it was.
"""

import json
import os
import random
import signal
import sys
import threading
import time

import common
from common import harness
from client import processes_below

FDS_MORE = 24  # of one process over a round
FDS_LANE = 9  # of a lane that waits, in the warm host's pid 1


# ---- what is asked: a body, and what must come of it

def ask_print(n, _):
    return {"code": "print(%d)" % n}, "%d\n" % n


def ask_echo(n, _):
    return {"cmd": ["echo", str(n)]}, "%d\n" % n


def ask_modules(n, _):
    return {"code": "import json, re, random, uuid; print(json.loads('[%d]')[0])" % n}, "%d\n" % n


def ask_children(n, _):
    code = "import os, subprocess, time\nfor i in range(3):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(100)\n" \
           "subprocess.Popen(['sleep', '100'])\nprint(%d)" % n
    return {"code": code}, "%d\n" % n


def ask_files(n, rng):
    return {"shell": "head -c %d /dev/zero > /tmp/f; echo %d > /workspace/g; cat /workspace/g" % (
        rng.choice((0, 1000, 3000000)), n)}, "%d\n" % n


def ask_output(n, rng):
    size = rng.choice((1, 70000, 400000))
    return {"code": "print('%d' * %d)" % (n % 10, size)}, str(n % 10) * size + "\n"


def ask_input(n, rng):
    text = "x%d" % n * rng.choice((1, 20000))
    return {"cmd": ["cat"], "stdin": text}, text


def ask_error(n, _):
    return {"code": "import sys; sys.stdout.write('%d'); sys.exit(3)" % n}, "%d" % n


def ask_timeout(n, _):
    return {"code": "print(%d, flush=True)\nwhile True: pass" % n, "timeout": "300ms"}, "%d\n" % n


def ask_limits(n, rng):
    return {"code": "print(%d)" % n, "memory": rng.choice(("200M", "300M")), "pids": 64}, "%d\n" % n


def ask_denied(n, _):
    return {"code": "import ctypes; ctypes.CDLL(None).unshare(0x10000000); print(%d)" % n}, "%d\n" % n


ASKS = [ask_print] * 6 + [ask_echo] * 6 + [ask_modules] * 2 + [
    ask_children, ask_files, ask_output, ask_input, ask_error, ask_timeout, ask_limits, ask_denied]


# ---- who is killed

def victims(daemon):
    """By kind."""
    all_of = processes_below(daemon.process.pid)
    lanes = {pid for pid, (_, name) in all_of.items() if name.startswith("lane-")}
    hosts = {all_of[pid][0] for pid in lanes if all_of[pid][0] in all_of}
    children = {pid for pid, (parent, _) in all_of.items() if parent in hosts} - lanes
    pythons = sorted(pid for pid in children if all_of[pid][1].startswith("python"))
    return {
        "host": sorted(hosts), "lane": sorted(lanes), "task": sorted(children),
        "sandbox": sorted(pid for pid, (parent, _) in all_of.items() if parent in lanes),
        "interpreter": pythons[:1],
    }


KILLS = ["interpreter"] * 4 + ["lane"] * 4 + ["sandbox"] * 4 + ["task"] * 6 + ["host"]


class Soak:
    def __init__(self, options):
        self.options = options
        self.daemon = harness.Daemon(config="warm:\n  slots: 3\n")
        self.lock, self.counts, self.complaints = threading.Lock(), {}, []
        self.breaking, self.left, self.number = False, 0, 0

    def add(self, name):
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + 1

    def complain(self, text):
        self.add("complaints")
        with self.lock:
            self.complaints.append(text[:400])

    def take(self):
        with self.lock:
            self.left -= 1
            self.number += 1
            return self.number if self.left >= 0 else None

    # ---- one request

    def one(self, n, rng, token):
        if rng.random() < 0.02:
            self.leave(n)
            return
        body, wanted = rng.choice(ASKS)(n, rng)
        try:
            reply = self.daemon.post("/v1/run", body, token=token)
        except Exception as error:  # no answer is the one thing that must not be
            self.complain("%d %.100s: no answer: %r" % (n, body, error))
            return
        self.judge(n, body, wanted, reply)

    def judge(self, n, body, wanted, reply):
        if reply.status != 200:
            self.add("errors")
            if not self.breaking or reply.status < 500 or not reply.error["message"]:
                self.complain("%d %.100s: %r" % (n, body, reply))
            return
        record = reply.json
        self.add("warm" if record["layers"]["recycled"] else "cold")
        if record["stdout"] == wanted:
            self.add("right")
            return
        was_hit = record["signal"] == 9 or record["status"] in ("killed", "oom")
        if self.breaking and was_hit and wanted.startswith(record["stdout"]):
            self.add("hit")
            return
        self.complain("%d %.100s: %s" % (n, body, json.dumps(record)[:300]))

    def leave(self, n):
        """A client that does not wait."""
        self.add("left")
        with self.daemon.raw(unix=True) as s:
            body = json.dumps({"code": "import time; print(%d); time.sleep(100)" % n}).encode()
            s.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.01)

    # ---- rounds

    def worker(self, number, tokens):
        rng = random.Random("%d-%d" % (self.options.seed, number))
        while True:
            n = self.take()
            if n is None:
                return
            self.one(n, rng, rng.choice(tokens))

    def round(self, count, tokens, breaking):
        self.left, self.breaking = count, breaking
        workers = [threading.Thread(target=self.worker, args=(i, tokens)) for i in range(self.options.threads)]
        for w in workers:
            w.start()
        rng = random.Random(self.options.seed)
        while any(w.is_alive() for w in workers):
            workers[0].join(0.05)
            if breaking and rng.random() < 0.5:
                self.kill_one(rng)
        for w in workers:
            w.join()

    def kill_one(self, rng):
        kind = rng.choice(KILLS)
        found = victims(self.daemon)[kind]
        if not found:
            return
        try:
            os.kill(rng.choice(found), signal.SIGKILL)
            self.add("killed: " + kind)
        except ProcessLookupError:
            pass

    def is_warm(self, token):
        replies = [self.daemon.post("/v1/run", body, token=token) for body in ({"code": "pass"}, {"cmd": ["true"]})]
        return all(r.status == 200 and r.json["layers"]["recycled"] for r in replies)

    def get_warm(self, tokens):
        for token in tokens:
            harness.until(lambda t=token: self.is_warm(t), "warm runs", 120)

    def fds(self):
        """Of the daemon's processes and the warm hosts' pid 1, by name; the most of each. Those of lanes, which come
        and go with the load, do not count."""
        most, all_of = {}, processes_below(self.daemon.process.pid)
        for pid, (_, name) in list(all_of.items()) + [(self.daemon.process.pid, (0, "broker"))]:
            if not name.startswith(("cloche-", "broker")) or name == "cloche-init":
                continue
            lanes = sum(parent == pid and who.startswith("lane-") for parent, who in all_of.values())
            try:
                most[name] = max(most.get(name, 0), len(os.listdir("/proc/%d/fd" % pid)) - FDS_LANE * lanes)
            except OSError:
                pass
        return most

    def check_fds(self, before, when):
        for name, count in self.fds().items():
            print("  %-14s fds %3d -> %3d %s" % (name, before.get(name, count), count, when))
            if count - before.get(name, count) > FDS_MORE:
                self.complain("%s holds %d more fds %s" % (name, count - before[name], when))


def run(options):
    before = common.look_at_host()
    soak, begun = Soak(options), time.monotonic()
    soak.daemon.start()
    try:
        tokens = [None, soak.daemon.token("soak-one"), soak.daemon.token("soak-two")]
        soak.get_warm(tokens)
        soak.round(max(options.count // 10, 20), tokens, False)
        fds = soak.fds()
        soak.round(options.count, tokens, False)
        soak.check_fds(fds, "without faults")
        soak.round(options.count, tokens, True)
        soak.get_warm(tokens)
        soak.check_fds(fds, "with faults")
    finally:
        soak.daemon.stop()
    left = common.left_since(before)
    soak.daemon.remove()
    soak.counts["seconds"] = round(time.monotonic() - begun)
    return common.report(soak.counts, soak.complaints, left, "%d runs" % soak.number)


if __name__ == "__main__":
    sys.exit(common.main(__doc__, run, 2000, 6))
