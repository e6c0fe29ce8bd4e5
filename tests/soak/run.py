#!/usr/bin/python3
"""Makes, uses and destroys thousands of sandboxes, breaks things meanwhile, then counts what is left.

    tests/soak/run.py [--count N] [--threads N] [--seed N] [--no-faults]      or: make soak SOAK=N

Three rounds: one to warm up, one to see whether memory and fds of the daemon grow, one with faults
(roles, broker and guests killed with -9, clients that go away, requests that make no sense). At the
end everything is destroyed and the counts must be those of the start. Prints a table; exit status 1
if anything is left or was lost.
"""

import importlib.util
import os
import random
import signal
import sys
import threading
import time

import common
from common import E2E, Count, harness

_spec = importlib.util.spec_from_file_location(
    "restart", os.path.join(E2E, "daemon", "test_restart.py"))
restart = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(restart)

GROWTH_KB = 24 << 10  # of the daemon's memory over the second round
PREPARED = 8  # sandboxes that the daemon keeps for itself, at most
EXPECTED = (OSError, AssertionError, ValueError, KeyError, harness.http.client.HTTPException)


# ---- what clients do

def use_exec(d, box, _):
    assert box.sh("echo $((6 * 7))")["stdout"] == "42\n"


def use_files(d, box, rng):
    data = rng.randbytes(rng.choice((0, 1, 5000, 300000)))
    assert box.put("/files?path=/workspace/f", data).status < 300
    assert box.get("/files?path=/workspace/f").body == data


def use_background(d, box, _):
    box.start(shell="sleep 1000")


def use_pause(d, box, _):
    if box.post("/pause").status == 200:
        assert box.post("/resume").status == 200


def use_stop(d, box, _):
    box.sh("echo kept > /workspace/kept")
    assert box.post("/stop").status == 200
    assert box.post("/start").status == 200
    assert box.sh("cat /workspace/kept")["stdout"] == "kept\n"


def use_fork(d, box, _):
    for made in box.post("/fork", {"count": 2}).json["sandboxes"]:
        d.delete("/v1/sandboxes/" + made["sandbox"]["id"])


def use_full_disk(d, box, _):
    record = box.sh("head -c 60M /dev/zero > /workspace/big; rm -f /workspace/big; true")
    assert record["status"] == "exited"


def use_run(d, _, __):
    assert d.post("/v1/run", {"cmd": ["true"]}).json["success"]


USES = [use_exec] * 4 + [use_files] * 2 + [use_run] * 3 + [
    use_background, use_pause, use_stop, use_fork, use_full_disk]

# ---- what goes wrong


def fault_front(d, _, __):
    for pid in d.roles("front"):
        os.kill(pid, signal.SIGKILL)


def fault_audit(d, _, __):
    for pid in d.roles("audit"):
        os.kill(pid, signal.SIGKILL)


def fault_everything(d, _, __):
    d.kill_all()
    d.start()


def fault_client_leaves(d, box, _):
    with box.stream("POST", "/exec", {"shell": "sleep 1000"},
                    headers={"Accept": "text/event-stream"}):
        pass


def fault_nonsense(d, box, rng):
    with d.raw(unix=True) as s:
        s.sendall(b"POST %s/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\n{"
                  % box.path.encode() + rng.randbytes(500))


FAULTS = [fault_front, fault_audit, fault_everything] + [fault_client_leaves] * 4 + \
         [fault_nonsense] * 4


class Worker(threading.Thread):
    def __init__(self, soak, number):
        super().__init__()
        self.soak, self.rng = soak, random.Random("%d-%d" % (soak.seed, number))
        self.start()

    def run(self):
        while self.soak.take():
            try:
                self.one()
                self.soak.count.add("done")
            except EXPECTED as error:
                self.soak.failed(error)
                harness.until(self.soak.d.is_up, "its coming back", 60)

    def one(self):
        d = self.soak.d
        box = harness.Box(d, ttl="300s", disk="32M", memory="128M")
        self.soak.count.add("made")
        try:
            for _ in range(self.rng.randint(1, 3)):
                self.rng.choice(USES)(d, box, self.rng)
        finally:
            box.delete()


class Soak:
    def __init__(self, options):
        self.threads, self.seed = options.threads, options.seed
        self.d = restart.Daemon(config="pool_size: 2\n")
        self.count, self.left, self.lock = Count(), 0, threading.Lock()
        self.breaking, self.complaints = False, []

    def take(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def failed(self, error):
        """While things are being broken, requests may fail; otherwise none does."""
        self.count.add("failed")
        if not self.breaking:
            self.complaints.append(repr(error)[:500])

    def round(self, count, faults=False):
        self.left, self.breaking = count, faults
        rng = random.Random(self.seed)
        workers = [Worker(self, n) for n in range(self.threads)]
        while any(w.is_alive() for w in workers):
            workers[0].join(0.2)
            if faults and rng.random() < 0.3:
                self.break_something(rng)
        for w in workers:
            w.join()
        self.breaking = False

    def break_something(self, rng):
        fault = rng.choice(FAULTS)
        try:
            box = harness.Box(self.d, ttl="300s", disk="32M", memory="128M")
            fault(self.d, box, rng)
            harness.until(self.d.is_up, "its coming back")
        except EXPECTED as error:
            harness.until(self.d.is_up, "its coming back")
            self.count.add("fault not done: " + type(error).__name__)
        self.count.add(fault.__name__)

    def settle(self):
        """Destroys all, and waits until only the pool is there."""
        harness.until(self.d.is_up, "its coming back")
        harness.until(lambda: self.d.delete("/v1/sandboxes").status == 200, "the end of all")
        for snapshot in self.d.get("/v1/snapshots").json["snapshots"]:
            self.d.delete("/v1/snapshots/" + snapshot["id"])
        harness.until(lambda: len(self.d.records()) <= PREPARED, "the end of all sandboxes", 60)

    def sizes(self):
        """Memory in kB and open fds of broker, front and audit."""
        rows = {}
        for name, found in (("broker", [self.d.process.pid]), ("front", self.d.roles("front")),
                            ("audit", self.d.roles("audit"))):
            for pid in found:
                status = restart.read("/proc/%d/status" % pid).decode().splitlines()
                rss = next((int(x.split()[1]) for x in status if x.startswith("VmRSS")), 0)
                rows[name] = (rss, len(os.listdir("/proc/%d/fd" % pid)))
        return rows


def check_growth(soak, before, after):
    for name, (rss, fds) in after.items():
        print("  %-8s memory %6d -> %6d kB, fds %3d -> %3d"
              % (name, before[name][0], rss, before[name][1], fds))
        if rss - before[name][0] > GROWTH_KB:
            soak.complaints.append("%s grew by %d kB" % (name, rss - before[name][0]))
        if fds - before[name][1] > 16:
            soak.complaints.append("%s holds %d more fds" % (name, fds - before[name][1]))


def state_files(d):
    return sorted(os.path.join(top, n) for top, _, names in os.walk(d.dir)
                  for n in names if "/boxes" in top or "/snapshots" in top)


def run(options):
    before = common.look_at_host()
    soak = Soak(options)
    begun = time.monotonic()
    soak.d.start()
    try:
        soak.round(max(options.count // 10, 20))
        soak.settle()
        first = soak.sizes()
        soak.round(options.count)
        soak.settle()
        print("after %d sandboxes:" % soak.count.get("made"))
        check_growth(soak, first, soak.sizes())
        if not options.no_faults:
            soak.round(options.count, faults=True)
            soak.settle()
    finally:
        soak.d.stop()
        for threads_left in [t for t in threading.enumerate() if isinstance(t, Worker)]:
            threads_left.join(60)
    left = common.left_since(before)
    left += ["file " + x for x in state_files(soak.d)]
    soak.d.remove()
    soak.count.add("seconds", round(time.monotonic() - begun))
    return common.report(soak.count.numbers, soak.complaints, left, "%d sandboxes" % soak.count.get("made"))


if __name__ == "__main__":
    sys.exit(common.main(__doc__, run, 1000, 4, ["--no-faults"]))
