#!/usr/bin/env python3
"""Runs a daemon whose calls fail and whose processes are killed, under all operations, for some minutes.

    tests/torture/run.py [--minutes 5] [--seed N]        `make torture` builds the programs and calls this

Each round starts the daemon with other failing calls (CLOCHE_FAIL, see fail.c), lets clients work, and
kills or stops its processes at random. Then the daemon is started without faults, and everything that
was acknowledged is checked: files, states, snapshots, removed sandboxes, and the audit log. What was
answered with an error, or with nothing, may have happened or not.
"""
import argparse
import collections
import http.client
import json
import os
import random
import shutil
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(TOP, "tests", "soak")]
import common  # noqa: E402
import cl  # noqa: E402
import harness  # noqa: E402

ROUND_S = 8
CLIENTS = 4
FAULTS = [("write", ("ENOSPC", "EIO")), ("pwrite", ("ENOSPC", "EIO")), ("fsync", ("EIO", "ENOSPC")),
          ("rename", ("ENOSPC", "EIO")), ("openat", ("EMFILE", "ENFILE", "ENOMEM")), ("mkdir", ("ENOSPC",)),
          ("ftruncate", ("EIO",)), ("clone3", ("EAGAIN", "ENOMEM")), ("mount", ("ENOMEM", "EPERM")),
          ("memfd", ("EMFILE", "ENOMEM")), ("socketpair", ("EMFILE",))]
SETTINGS = "role_timeout: 2s\npool_size: 1\nmax_sandboxes: 200\nsandbox: {ttl: 1h, memory_limit: 64M, disk_limit: 8M}\n"


class Sandbox:
    """What is known of one: each member is the set of values that it may have."""

    def __init__(self, name, files=None, by="create"):
        self.id, self.exists, self.states = name, {True}, {"running"}
        self.born = by + time.strftime(" at %T")
        self.files = {k: set(v) for k, v in (files or {}).items()}


class Client(threading.Thread):
    """One of those that work; its sandboxes are its own."""

    def __init__(self, world, number):
        super().__init__()
        self.world, self.number, self.random = world, number, random.Random(world.random.random())
        self.boxes, self.snapshots, self.commands, self.serial = [], {}, set(), 0

    def run(self):
        while not self.world.pausing.is_set():
            try:
                self.step()
            except Exception as error:  # noqa: BLE001
                self.world.complain("client %d: %r" % (self.number, error))

    def ask(self, method, path, body=None):
        """Status and body; status 0: no answer."""
        headers = {}
        if isinstance(body, dict):
            body, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        connection = harness.UnixConnection(self.world.daemon.sock, 20)
        try:
            connection.request(method, path, body=body, headers=headers)
            reply = connection.getresponse()
            status, data = reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            status, data = 0, b""
            time.sleep(0.05)
        finally:
            connection.close()
        self.world.count.add("%s %s" % (method, "ok" if 200 <= status < 300 else "lost" if not status else "refused"))
        return status, data

    def did(self, status):
        return 200 <= status < 300

    def step(self):
        live = [b for b in self.boxes if b.exists == {True} and b.states == {"running"}]
        verbs = [self.create] if len(self.boxes) < 3 else []
        if live:
            verbs += [self.write, self.write, self.execute, self.snapshot, self.stop, self.pause, self.remove, self.fork]
        if len(live) < len(self.boxes):
            verbs += [self.revive]
        verbs += [self.one_shot]
        self.random.choice(verbs)(self.random.choice(live) if live else None)

    def name(self):
        self.serial += 1
        return "c%d-%d-%d" % (self.world.round, self.number, self.serial)

    def create(self, _):
        body = {}
        files = {}
        if self.snapshots and self.random.random() < 0.5:
            body["snapshot"], files = self.random.choice(list(self.snapshots.items()))
        status, data = self.ask("POST", "/v1/sandboxes", body)
        if self.did(status):
            self.boxes.append(Sandbox(json.loads(data)["id"], files, "snapshot" if files else "create"))

    def write(self, box):
        path, text = "/workspace/f%d" % self.random.randrange(4), self.name()
        status, _ = self.ask("PUT", "/v1/sandboxes/%s/files?path=%s" % (box.id, path), text.encode())
        if self.did(status):
            box.files[path] = {text}
        else:  # the guest writes files as a whole
            box.files.setdefault(path, {None}).add(text)

    def execute(self, box):
        mark = self.name()
        status, data = self.ask("POST", "/v1/sandboxes/%s/exec" % box.id, {"cmd": ["echo", mark]})
        if self.did(status):
            self.commands.add(mark)
            if json.loads(data)["stdout"] != mark + "\n":
                self.world.complain("exec answers %r" % data[:200])

    def one_shot(self, _):
        mark = self.name()
        status, data = self.ask("POST", "/v1/run", {"cmd": ["echo", mark]})
        if self.did(status) and json.loads(data)["stdout"] != mark + "\n":
            self.world.complain("run answers %r" % data[:300])

    def snapshot(self, box):
        if len(self.snapshots) > 4:
            name = self.random.choice(list(self.snapshots))
            self.snapshots.pop(name)
            self.ask("DELETE", "/v1/snapshots/" + name)
            return
        known = {k: set(v) for k, v in box.files.items()}
        status, data = self.ask("POST", "/v1/sandboxes/%s/snapshot" % box.id, {})
        if self.did(status):
            self.snapshots[json.loads(data)["id"]] = known

    def fork(self, box):
        if len(self.boxes) > 4:
            return
        status, data = self.ask("POST", "/v1/sandboxes/%s/fork" % box.id, {"count": 1})
        if self.did(status):
            for one in json.loads(data)["sandboxes"]:
                if "sandbox" in one:
                    self.boxes.append(Sandbox(one["sandbox"]["id"], box.files, "fork"))

    def change(self, box, verb, state):
        status, _ = self.ask("POST", "/v1/sandboxes/%s/%s" % (box.id, verb))
        box.states = {state} if self.did(status) else box.states | {state}

    def stop(self, box):
        self.change(box, "stop", "stopped")

    def pause(self, box):
        self.change(box, "pause", "paused")

    def revive(self, _):
        box = self.random.choice(self.boxes)
        status, data = self.ask("GET", "/v1/sandboxes/" + box.id)
        if status == 404 and False in box.exists:
            self.boxes.remove(box)
        if status != 200:
            return
        state = json.loads(data)["state"]
        if state in box.states:
            box.states = {state}
        if state in ("stopped", "paused"):
            self.change(box, "start" if state == "stopped" else "resume", "running")

    def remove(self, box):
        if len(self.boxes) < 3:
            return
        status, _ = self.ask("DELETE", "/v1/sandboxes/" + box.id)
        box.exists = {False} if self.did(status) else box.exists | {False}
        if box.exists == {False}:
            self.boxes.remove(box)
            self.world.removed.append(box.id)


class World:
    def __init__(self, seed, count):
        self.random, self.count, self.round = random.Random(seed), count, 0
        self.complaints, self.removed, self.pausing = [], collections.deque(maxlen=200), threading.Event()
        self.daemon = harness.Daemon(SETTINGS)
        self.clients = []

    def complain(self, what):
        self.complaints.append("round %d (%s): %s" % (self.round, self.fault, what))
        print("  FAILED " + self.complaints[-1], flush=True)

    def start(self, fault):
        """A daemon that cannot start because of the faults is an answer, too."""
        self.fault = fault
        self.daemon.extra_env = {"CLOCHE_FAIL": fault} if fault else {}
        try:
            self.daemon.start()
        except AssertionError as error:
            if not fault:
                raise
            self.count.add("starts that failed")
            self.end_daemon(signal.SIGKILL)
            if "the daemon ended" not in str(error):
                self.complain("the daemon neither started nor ended")
            self.start("")

    def end_daemon(self, sig):
        if self.daemon.process.poll() is None:
            self.daemon.process.send_signal(sig)
            self.daemon.process.wait(60)

    def choose_fault(self):
        rules = []
        for kind, errors in self.random.sample(FAULTS, self.random.randrange(4)):
            error = self.random.choice(errors)
            often = self.random.choice(("%d" % self.random.randrange(1, 300), "%%%d" % self.random.choice((50, 200, 1000))))
            rules.append("%s:%s:%s" % (kind, often, error))
        return ",".join(rules)

    def processes(self):
        """The daemon's own: broker, roles, boot workers; not the sandboxes, which nobody would forgive."""
        top = self.daemon.process.pid
        found = [(top, "broker")]
        try:
            with open("/proc/%d/task/%d/children" % (top, top), encoding="ascii") as text:
                for pid in text.read().split():
                    with open("/proc/%s/comm" % pid, encoding="utf-8", errors="replace") as comm:
                        name = comm.read().strip()
                    if name in ("cloche-front", "cloche-audit", "cloche-boot"):
                        found.append((int(pid), name))
        except OSError:
            pass
        return found

    def hurt(self):
        found = self.processes()
        name = self.random.choice(sorted({name for _, name in found}))
        pid = self.random.choice([pid for pid, of in found if of == name])
        sig = signal.SIGKILL
        if name in ("cloche-front", "cloche-audit") and self.random.random() < 0.2:
            sig = signal.SIGSTOP  # the broker ends it
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            return
        self.count.add("%s %s" % (signal.Signals(sig).name, name))
        with open(self.daemon.log, "a", encoding="utf-8") as log:
            log.write("torture: %s %s %s %d\n" % (time.strftime("%T"), signal.Signals(sig).name, name, pid))
        if name == "broker":
            self.daemon.process.wait()
            self.start(self.choose_fault())

    def work(self):
        for client in self.clients:
            client.start()
        until = time.monotonic() + ROUND_S
        while time.monotonic() < until:
            time.sleep(self.random.uniform(0.2, 2))
            if self.daemon.process.poll() is not None:
                said = [x for x in self.daemon.read_log().splitlines() if '"broker"' in x or not x.startswith("{")]
                self.complain("the daemon ended by itself with %d: %s" % (self.daemon.process.returncode, said[-3:]))
                self.start("")
            elif self.random.random() < 0.7:
                self.hurt()
        self.pausing.set()
        for client in self.clients:
            client.join()
        self.pausing.clear()

    def run_round(self):
        self.round += 1
        self.start(self.choose_fault())
        self.clients = [self.again(c, i) for i, c in enumerate(self.clients or [None] * CLIENTS)]
        self.work()
        fault = self.fault
        self.end_daemon(self.random.choice((signal.SIGTERM, signal.SIGKILL)))
        self.start("")
        self.fault = "after " + fault
        for client in self.clients:
            self.check_client(client)
        self.check_audit()
        for name in self.removed:
            if self.get(name) is not None:
                self.complain("a sandbox that was removed is there again: " + name)
        self.end_daemon(signal.SIGTERM)

    def again(self, old, number):
        """A thread runs once; what the client knows goes on."""
        client = Client(self, number)
        if old:
            client.boxes, client.snapshots = old.boxes, old.snapshots
        return client

    # ---- checks

    def get(self, box):
        reply = self.daemon.get("/v1/sandboxes/" + box)
        return reply.json if reply.status == 200 else None

    def check_client(self, client):
        for box in list(client.boxes):
            now = self.get(box.id)
            if now is None or now["state"] in ("failed", "destroyed"):
                if False not in box.exists:
                    self.complain("sandbox %s (%s) is lost: %r" % (
                        box.id, box.born, now and (now["state"], now.get("reason"))))
                client.boxes.remove(box)
                continue
            box.exists = {True}
            if now["state"] not in box.states:
                self.complain("sandbox %s is %s, not %s" % (box.id, now["state"], box.states))
            box.states = {now["state"]}
            self.check_files(box, now["state"])
        for name, files in list(client.snapshots.items()):
            made = self.daemon.post("/v1/sandboxes", {"snapshot": name})
            if made.status != 201:
                self.complain("snapshot %s is lost: %r" % (name, made))
                client.snapshots.pop(name)
                continue
            self.compare(made.json["id"], files, "snapshot " + name)
            self.daemon.delete("/v1/sandboxes/" + made.json["id"])

    def check_files(self, box, state):
        verbs = {"stopped": "start", "paused": "resume"}
        if state in verbs:
            reply = self.daemon.post("/v1/sandboxes/%s/%s" % (box.id, verbs[state]))
            if reply.status != 200:
                self.complain("sandbox %s cannot be revived: %r" % (box.id, reply))
                return
            box.states = {"running"}
        self.compare(box.id, box.files, "sandbox " + box.id)

    def compare(self, box, files, what):
        for path, texts in files.items():
            reply = self.daemon.get("/v1/sandboxes/%s/files?path=%s" % (box, path))
            text = reply.body.decode() if reply.status == 200 else None
            if text not in texts:
                self.complain("%s: %s has %r, not %s" % (what, path, text, texts))
            texts.clear()
            texts.add(text)

    def check_audit(self):
        seen, after = set(), 0
        while after is not None:
            page = self.daemon.get("/v1/audit?limit=10000&after=%d" % after).json
            seen |= {r["why"] for r in page["records"] if r["what"] == "exec"}
            after = page["next"]
        for client in self.clients:
            for mark in client.commands:
                if "echo " + mark not in seen:
                    self.complain("the audit log has nothing of " + mark)
        verified = cl.command(cl.CLOCHE, "audit", "verify", *self.audit_files())
        if verified.code:
            self.complain("audit verify: %s" % verified.err)

    def audit_files(self):
        top = os.path.join(self.daemon.dir, "state", "audit")
        return [os.path.join(top, name) for name in sorted(os.listdir(top)) if name.startswith("audit.log")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    before = common.look_at_host()
    count = common.Count()
    world = World(options.seed, count)
    until = time.monotonic() + 60 * options.minutes
    print("seed %d" % options.seed, flush=True)
    try:
        while time.monotonic() < until or not world.round:
            world.run_round()
            print("  round %d: %d complaints" % (world.round, len(world.complaints)), flush=True)
    finally:
        world.fault = ""
        world.start("")
        world.daemon.stop()
        if world.complaints:
            shutil.copy(world.daemon.log, os.path.join(os.path.dirname(cl.CLOCHE), "log"))
        world.daemon.remove()
    left = common.left_since(before)
    bad = len({text.split(":")[0] for text in world.complaints}) + bool(left)
    common.report(count.numbers, world.complaints, left, "torture: %d rounds" % world.round)
    print("%d passed, %d failed, 0 skipped" % (world.round, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
