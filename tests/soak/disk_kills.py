#!/usr/bin/python3
"""The daemon is killed again and again while sandboxes with encrypted disks are made, stopped, started, copied, destroyed.

    tests/soak/disk_kills.py [--seconds N]

After each kill a new daemon must bring back every sandbox that was acknowledged, with what it had synced. In the end no
disk, snapshot, key or loop device is left.
"""
import argparse
import glob
import http.client
import os
import random
import sys
import threading
import time

import common
from common import harness


class Client:
    """Does things at random; `boxes` has the last number that each sandbox is known to have synced."""

    def __init__(self, d):
        self.d, self.boxes, self.over = d, {}, False

    def run(self):
        while not self.over:
            try:
                self.step(random.choice(["new", "write", "stop", "start", "snapshot", "destroy"]))
            except (OSError, ValueError, http.client.HTTPException):
                time.sleep(0.05)  # the daemon was killed

    def step(self, what):
        if what == "new" and len(self.boxes) < 4:
            reply = self.d.post("/v1/sandboxes", {"disk_type": "disk", "disk": "32M", "ttl": "1h"})
            if reply.status == 201:
                self.boxes[reply.json["id"]] = 0
        if what == "new" or not self.boxes:
            return
        box = random.choice(list(self.boxes))
        path = "/v1/sandboxes/" + box
        if what == "write":
            n = self.boxes[box] + 1
            reply = self.d.post(path + "/exec", {"shell": "echo %d > /workspace/n && sync" % n})
            if reply.status == 200 and reply.json["success"]:
                self.boxes[box] = n
        elif what == "destroy" and len(self.boxes) > 2:
            del self.boxes[box]
            self.d.delete(path)
        elif what == "snapshot":
            reply = self.d.post(path + "/snapshot", {})
            if reply.status == 201:
                self.d.delete("/v1/snapshots/" + reply.json["id"])
        elif what != "destroy":
            self.d.post(path + "/" + what)


def look(d, box, least):
    """None, or what is wrong with a sandbox after a kill."""
    path = "/v1/sandboxes/" + box
    state = harness.until(lambda: (r := d.get(path)).status != 200 and "gone" or
                          r.json["state"] in ("running", "stopped", "failed") and r.json["state"], "its state")
    if state == "stopped":
        harness.until(lambda: d.post(path + "/start").status == 200, "its start")
    elif state != "running":
        return "%s is %s" % (box, state)
    reply = d.post(path + "/exec", {"shell": "cat /workspace/n 2>/dev/null || echo 0"})
    found = int(reply.json["stdout"].strip() or 0)
    return None if found >= least else "%s has lost %d, has %d" % (box, least, found)


def left_over(d):
    state = os.path.join(d.dir, "state")
    with open(os.path.join(state, "keys", "keyring"), "rb") as f:
        ring = f.read()
    names = [n for n in os.listdir(state + "/disks") if not n.startswith("pool-")] + os.listdir(state + "/snapshots")
    keys = ["a key"] * sum(ring[i] == 5 for i in range(64, len(ring), 256))
    return names + keys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=120)
    seconds = parser.parse_args().seconds
    if not harness.ROOT or not os.path.exists("/dev/loop-control"):
        print("skipped: no loop devices, or not root\n0 passed, 0 failed, 1 skipped")
        return 0
    common.look_at_host()
    d = harness.Daemon()
    key = os.path.join(d.dir, "master")
    with open(key, "w", encoding="ascii") as f:
        f.write("11" * 32)
    os.chmod(key, 0o400)
    d.config = "pool_size: 0\nkeys: {master: {file: %s}}\n" % key
    d.start()
    client, kills, wrong, end = Client(d), 0, [], time.monotonic() + seconds
    while time.monotonic() < end:
        client.over = False
        thread = threading.Thread(target=client.run)
        thread.start()
        time.sleep(random.uniform(0.3, 2.5))
        d.process.kill()
        d.process.wait()
        kills, client.over = kills + 1, True
        thread.join()
        d.start()
        wrong += filter(None, [look(d, box, least) for box, least in client.boxes.items()])
    d.delete("/v1/sandboxes")
    left = cl_wait(lambda: not left_over(d)) or left_over(d)
    d.stop()
    time.sleep(1)
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        with open(path, encoding="utf-8") as f:
            if d.dir in f.read():
                left.append(path)
    d.remove()
    print("%d kills; wrong: %r; left: %r" % (kills, wrong, left))
    failed = bool(wrong) or bool(left)
    print("%d passed, %d failed, 0 skipped" % (not failed, failed))
    return failed


def cl_wait(look_at):
    """[] as soon as it is true; None if it does not become true."""
    return [] if common.cl.wait_for(look_at, 20) else None


if __name__ == "__main__":
    sys.exit(main())
