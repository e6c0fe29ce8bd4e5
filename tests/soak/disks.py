#!/usr/bin/python3
"""What a sandbox has synced is on its disk, whenever the power fails.

    tests/soak/disks.py [--count N]

A program inside appends lines, each followed by fsync, and prints the number of each line that is acknowledged. At N
random moments the disk's file is copied as it is, and the copies are mounted read-write, so that the journal is
replayed, in a mount namespace of their own. Every line that was printed before a copy began must be in it. What a drive keeps in
its own memory is not modelled.
"""
import argparse
import os
import random
import subprocess
import sys
import threading
import time

import common
from common import harness

WRITER = r"""
import os, sys
f = os.open("/workspace/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
n = 0
while True:
    n += 1
    os.write(f, b"%d\n" % n)
    os.fsync(f)
    if n % 20 == 0:
        d = "/workspace/dir-%d" % n
        os.mkdir(d)
        os.rename(d, d + "-moved")
    sys.stdout.write("%d\n" % n)
    sys.stdout.flush()
"""
LOOK = "mount -o loop,rw,noatime {0} {1} && tail -n 1 {1}/d/ws/log; umount {1}"


def follow(box, seen):
    """Reads what the writer has acknowledged."""
    eid, text = box.start(cmd=["python3", "-c", WRITER]), ""
    with box.stream("GET", "/execs/%d/stream" % eid) as stream:
        for name, data in stream.events():
            if name != "stdout":
                continue
            whole, _, text = (text + data["text"]).rpartition("\n")
            if whole:
                seen["last"] = int(whole.rpartition("\n")[2])


def last_line(copy, at):
    out = subprocess.run(["unshare", "-m", "sh", "-c", LOOK.format(copy, at)],
                         capture_output=True, text=True, check=False).stdout.strip()
    return int(out or 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=50)
    count = parser.parse_args().count
    if not harness.ROOT or not os.path.exists("/dev/loop-control"):
        print("skipped: no loop devices, or not root\n0 passed, 0 failed, 1 skipped")
        return 0
    before = common.look_at_host()
    d = harness.Daemon().start()
    seen, lost, most = {"last": 0}, [], 0
    try:
        box = harness.Box(d, None, disk_type="disk", disk="64M", ttl="1h")
        thread = threading.Thread(target=follow, args=(box, seen), daemon=True)
        thread.start()
        harness.until(lambda: seen["last"] > 10, "the first lines")
        image = os.path.join(d.dir, "state", "disks", box.id + ".img")
        copy, at = os.path.join(d.dir, "copy"), os.path.join(d.dir, "at")
        os.mkdir(at)
        for _ in range(count):
            time.sleep(random.uniform(0.01, 0.3))
            acknowledged = seen["last"]
            subprocess.run(["cp", "--sparse=always", image, copy], check=True)
            found = last_line(copy, at)
            most = max(most, found)
            if found < acknowledged:
                lost.append((acknowledged, found))
        box.delete()
        thread.join(10)
    finally:
        d.stop()
        d.remove()
    left = common.left_since(before)
    print("%d copies, up to line %d; lost: %r; left: %r" % (count, most, lost, left))
    failed = bool(lost) or bool(left)
    print("%d passed, %d failed, 0 skipped" % (not failed, failed))
    return failed


if __name__ == "__main__":
    sys.exit(main())
