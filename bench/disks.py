#!/usr/bin/env python3
"""Disks of sandboxes: what they cost to create, to write and to fork, beside memory and the bare host.

    bench/disks.py [create work fork]        as root; fork mounts an XFS image of its own

`create` is without a pool for both kinds: a prepared disk against a tmpfs. `work` is the same program everywhere. All figures
are medians of the same run.
"""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "tests", "e2e", "daemon"), os.path.join(HERE, "..", "tests", "e2e")]
import harness  # noqa: E402

ROUNDS = 10 if os.environ.get("BENCH_QUICK") else 40
WORK = r"""
import os, sys, time
top = sys.argv[1]
def timed(what):
    begun = time.monotonic(); what(); return (time.monotonic() - begun) * 1000
def write():
    with open(top + "/big", "wb") as f:
        for _ in range(100): f.write(b"x" * (1 << 20))
        f.flush(); os.fsync(f.fileno())
def read():
    with open(top + "/big", "rb") as f:
        while f.read(1 << 20): pass
def many():
    os.makedirs(top + "/many")
    for i in range(4000):
        with open("%s/many/%d" % (top, i), "w") as f: f.write("small")
    for i in range(4000): os.unlink("%s/many/%d" % (top, i))
    os.rmdir(top + "/many")
def synced():
    for i in range(50):
        with open(top + "/s", "a") as f: f.write("x"); f.flush(); os.fsync(f.fileno())
print(*("%.1f" % timed(w) for w in (write, read, many, synced)))
"""
KINDS = (("memory", ""), ("disk", ""), ("encrypted", "keys: {master: {file: %s}}\n"))


def daemon(settings="", state=None):
    d = harness.Daemon(config="pool_size: 0\n")
    key = os.path.join(d.dir, "master")
    with open(key, "w", encoding="ascii") as f:
        f.write("11" * 32)
    os.chmod(key, 0o400)
    d.config += settings % key if "%s" in settings else settings
    if state:
        state(os.path.join(d.dir, "state"))
    d.start()
    time.sleep(1)
    return d


def box(d, kind, disk="256M"):
    return harness.Box(d, None, disk=disk, memory="1G", disk_type="memory" if kind == "memory" else "disk")


def create():
    print("create, in turns, ms (least, median):")
    daemons = [(kind, daemon(settings), []) for kind, settings in KINDS]
    for i in range(ROUNDS + 1):
        for kind, d, took in daemons:
            begun = time.monotonic()
            one = box(d, kind, "64M")
            if i:
                took.append((time.monotonic() - begun) * 1000)
            one.delete()
        time.sleep(0.15)  # the pool of disks is filled meanwhile
    for kind, d, took in daemons:
        print("  %-10s %6.2f %6.2f" % (kind, min(took), statistics.median(took)))
        d.stop()
        d.remove()


def work():
    print("work, ms:   100 MB written   read   4000 files   50 fsyncs")
    for kind, settings in KINDS:
        d = daemon(settings)
        one = box(d, kind)
        rows = [one.exec("python3", "-c", WORK, "/workspace", timeout="120s").json["stdout"].split()
                for _ in range(3)]
        print("  %-10s" % kind, *("%8.0f" % statistics.median(float(r[i]) for r in rows) for i in range(4)))
        one.delete()
        d.stop()
        d.remove()
    top = tempfile.mkdtemp(dir="/var/tmp")
    rows = [subprocess.run(["python3", "-c", WORK, top], capture_output=True, text=True, check=True).stdout.split()
            for _ in range(3)]
    print("  %-10s" % "bare", *("%8.0f" % statistics.median(float(r[i]) for r in rows) for i in range(4)))
    shutil.rmtree(top)


def mount_xfs(state):
    image = state + ".xfs"
    os.mkdir(state, 0o700)
    with open(image, "wb") as f:
        f.truncate(12 << 30)
    subprocess.run(["/usr/sbin/mkfs.xfs", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, state], check=True)
    os.chmod(state, 0o700)


def fork():
    for name, state in (("XFS", mount_xfs), ("this host", None)):
        d = daemon(state=state)
        print("snapshot, %s, ms (frozen; all):" % name)
        for size in (20, 200) + ((2000,) if state else ()):
            one = box(d, "disk", "%dM" % (size * 5 // 4 + 32))
            one.exec("sh", "-c", "head -c %d /dev/urandom > /workspace/x; sync" % (size << 20), timeout="120s")
            begun = time.monotonic()
            made = one.post("/snapshot", {}).json
            took = (time.monotonic() - begun) * 1000
            print("  %5d MB   %5d %6.0f   shared: %s" % (size, made["frozen_ms"], took, made["shared"]))
            d.delete("/v1/snapshots/" + made["id"])
            one.delete()
        if state:
            print("chain of forks: 100 MB read by the first and the 50th, ms")
            one = box(d, "disk", "200M")
            one.exec("sh", "-c", "head -c 100000000 /dev/urandom > /workspace/x; sync", timeout="120s")
            read = "import time; b = time.monotonic(); len(open('/workspace/x', 'rb').read()); print((time.monotonic() - b) * 1000)"
            for i in range(51):
                if i in (0, 50):
                    one.post("/stop"), one.post("/start")
                    print("  %2d: %s" % (i, one.exec("python3", "-c", read).json["stdout"].strip()))
                if i < 50:
                    one.exec("sh", "-c", "head -c 100000 /dev/urandom | dd of=/workspace/x conv=notrunc bs=1000"
                             " seek=%d 2>/dev/null; sync" % (i * 1900))
                    nxt = one.post("/fork", {"count": 1}).json["sandboxes"][0]["sandbox"]["id"]
                    one.delete()
                    one.path = "/v1/sandboxes/" + nxt
            one.delete()
        d.stop()
        if state:
            harness.until(lambda: not subprocess.run(["umount", os.path.join(d.dir, "state")], check=False).returncode,
                          "the unmount")
        d.remove()


if __name__ == "__main__":
    for section in sys.argv[1:] or ("create", "work", "fork"):
        {"create": create, "work": work, "fork": fork}[section]()
