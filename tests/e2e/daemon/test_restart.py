"""Killed with -9 at any moment, the daemon loses nothing that it acknowledged; sandboxes go on."""

import datetime
import contextlib
import json
import os
import signal
import sqlite3
import struct
import subprocess
import threading

import cl
import harness
from harness import until


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_alive(pid):
    stat = read("/proc/%d/stat" % pid).decode("utf-8", "replace").rpartition(")")[2].split()
    return bool(stat) and stat[0] != "Z"


class Daemon(harness.Daemon):
    """One that is killed and started again."""

    def roles(self, name):
        """Its roles: children of the broker whose arguments say so and name our directory."""
        found = []
        for pid in pids():
            args = read("/proc/%d/cmdline" % pid).split(b"\0")
            if args[1:3] == [b"role", name.encode()] and \
                    any(self.dir.encode() in a for a in args[3:]):
                found.append(pid)
        return found

    def all(self):
        return [self.process.pid] + self.roles("front") + self.roles("audit")

    def kill_all(self):
        """Everything at once, the broker first."""
        victims = self.all()
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        until(lambda: not any(is_alive(pid) for pid in victims), "the end of all roles")

    def is_up(self):
        try:
            return self.get("/healthz").status == 200
        except (OSError, harness.http.client.HTTPException):
            return False

    def records(self):
        """Ids of sandboxes that the broker has written down."""
        boxes = os.path.join(self.dir, "run", "boxes")
        names = os.listdir(boxes) if os.path.isdir(boxes) else []
        return {n for n in names if len(n) == 20 and n.isalnum()}

    def rewrite(self, box, change):
        """Changes the record of a sandbox while no daemon runs."""
        path = os.path.join(self.dir, "run", "boxes", box.id)
        with open(path, "r+b") as f:
            old = f.read()
            f.seek(0)
            f.truncate()
            f.write(change(old))
        return old


def as_0_1(record):
    """A record in the format of version 0.1.0 (provider/record_0_1.h)."""
    head, blob, info = record[:16], record[16:16 + 1024], record[16 + 1024:]
    assert head[:8] == b"cloche2\0", head
    pid, scratch, start, pid_ns, mount_ns, id_base, _ = struct.unpack_from("=q4Q2I", blob)
    table = blob[48:].split(b"\0")[0] + b"\0"
    size = 8 + 8 + 16 + 24 + len(info) + 64 + len(table)
    return struct.pack("=8s2Iq4Q", b"cloche1", size, id_base, pid, scratch, start, pid_ns, mount_ns) + \
        info + bytes(64) + table


class Restart(harness.Case):
    @property
    def d(self):
        return self.own

    def setUp(self):
        # No pool: what is alive is what was asked for.
        self.own = Daemon(config="pool_size: 0\n").start()
        self.addCleanup(self.own.remove)
        self.addCleanup(self.own.stop)

    def busy_box(self):
        """A sandbox with a command in the background that counts."""
        box = harness.Box(self.d, metadata={"a": "b"}, name="busy", ttl="600s")
        eid = box.start(shell="i=0; while :; do i=$((i+1)); echo $i > /tmp/n; sleep 0.02; done")
        until(lambda: self.count(box), "its counting")
        return box, eid

    def count(self, box):
        return int(box.sh("cat /tmp/n")["stdout"].strip() or 0)

    def assertGoesOn(self, box, eid, before):
        described = box.get("").json
        self.assertEqual((described["state"], described["name"], described["metadata"]),
                         ("running", "busy", {"a": "b"}))
        until(lambda: self.count(box) > before, "its counting on")
        execs = {e["id"]: e for e in box.get("/execs").json}
        self.assertTrue(execs[eid]["running"], execs)

    def test_front_is_killed(self):
        box, eid = self.busy_box()
        for _ in range(3):
            before, front = self.count(box), self.d.roles("front")
            self.assertEqual(len(front), 1)
            os.kill(front[0], signal.SIGKILL)
            until(lambda: self.d.roles("front") not in ([], front), "a new front")
            until(self.d.is_up, "its serving")
            self.assertGoesOn(box, eid, before)

    def test_audit_is_killed(self):
        box, eid = self.busy_box()
        before, audit = self.count(box), self.d.roles("audit")
        os.kill(audit[0], signal.SIGKILL)
        until(lambda: self.d.roles("audit") not in ([], audit), "a new audit role")
        until(lambda: self.d.is_up() and box.exec("true").status == 200, "its serving")
        self.assertGoesOn(box, eid, before)

    def test_broker_is_killed(self):
        box, eid = self.busy_box()
        before, roles = self.count(box), self.d.roles("front") + self.d.roles("audit")
        self.d.process.kill()
        self.d.process.wait()
        until(lambda: not any(is_alive(pid) for pid in roles), "the roles' following it")
        self.d.start()
        self.assertGoesOn(box, eid, before)

    def test_everything_is_killed(self):
        box, eid = self.busy_box()
        ending = box.start(shell="while [ ! -e /tmp/go ]; do sleep 0.05; done; echo said; exit 7")
        box.sh("(sleep 1; touch /tmp/go) >/dev/null 2>&1 &")
        box.sh("echo kept > /workspace/f")
        before = self.count(box)
        self.d.kill_all()
        self.d.start()
        self.assertGoesOn(box, eid, before)
        self.assertEqual(box.sh("cat /workspace/f")["stdout"], "kept\n")
        # What ended meanwhile has a status and its output.
        ended = until(lambda: next((e for e in box.get("/execs").json
                                    if e["id"] == ending and not e["running"]), None), "its end")
        self.assertEqual(ended["exit_code"], 7)
        with box.stream("GET", "/execs/%d/stream" % ending,
                        headers={"Accept": "text/event-stream"}) as stream:
            events = list(stream.events())
        self.assertIn("said\n", [e[1].get("text") for e in events])

    def test_records_of_0_1(self):
        """Sandboxes of version 0.1.0 are adopted, and what there is of them ends with them."""
        (box, eid), transient = self.busy_box(), harness.Box(self.d)
        paused = harness.Box(self.d)
        can_pause = paused.post("/pause").status == 200
        before = self.count(box)
        self.d.kill_all()
        for one in (box, paused):
            self.d.rewrite(one, as_0_1)
        # It says that it was to end with its daemon, and ends.
        at = 16 + 1024 + 24 + 24 + 8 + 1
        self.d.rewrite(transient, lambda r: as_0_1(r[:at] + b"\1" + r[at + 1:]))
        self.d.start()
        self.assertGoesOn(box, eid, before)
        self.assertEqual(paused.get("").json["state"], "paused" if can_pause else "running")
        if can_pause:
            self.assertEqual(paused.post("/resume").status, 200)
        self.assertEqual(paused.sh("echo on")["stdout"], "on\n")
        self.assertEqual(transient.get("").json["state"], "failed")
        until(lambda: self.d.records() == {box.id, paused.id}, "the end of the transient one")
        # From now on its record is one of today.
        self.d.kill_all()
        self.d.start()
        self.assertGoesOn(box, eid, before)
        for one in (box, paused):
            self.assertEqual(one.delete().status, 204)
        until(lambda: not self.d.records() and not self.listeners(box), "their end")

    def test_record_of_an_unknown_version(self):
        """The sandbox goes on, untouched, until a version of cloche comes that knows its record."""
        box, eid = self.busy_box()
        before = self.count(box)
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in self.guests(box)])
        self.d.kill_all()
        known = self.d.rewrite(box, lambda r: b"cloche9\0" + r[8:])
        unknown = self.d.rewrite(box, lambda r: r)
        self.d.start()
        left = [line for line in self.d.read_log().splitlines() if "left alone" in line]
        self.assertTrue(any(box.id in line for line in left), left)
        noted = self.d.get("/v1/audit?target=" + box.id).json
        self.assertIn("sandbox.keep", repr(noted))
        described = box.get("").json
        self.assertEqual(described["state"], "failed")
        self.assertIn("another version", described["reason"])
        self.assertError(box.exec("true"), 409, "conflict")
        # It does not end along with all others, and others are made beside it.
        self.assertEqual(harness.Box(self.d).sh("echo next")["stdout"], "next\n")
        self.assertEqual(self.d.delete("/v1/sandboxes").status, 200)
        self.d.stop()
        self.assertTrue(self.listeners(box))
        self.assertEqual(self.d.rewrite(box, lambda r: known), unknown)
        self.d.start()
        self.assertGoesOn(box, eid, before)

    def test_damaged_record(self):
        """It is kept and named, and its owner can destroy it."""
        for change in (lambda r: r[:100], lambda r: r[:8] + b"x" * (len(r) - 8)):
            box = harness.Box(self.d)
            self.d.kill_all()
            good = self.d.rewrite(box, change)
            self.d.start()
            self.assertTrue(self.listeners(box))
            self.assertIn("damaged", box.get("").json["reason"])
            self.assertEqual(box.get("").json["state"], "failed")
            reply = box.delete()
            if reply.status == 409:
                # Without a cgroup nothing leads to its processes.
                self.assertIn("by hand", repr(reply.error))
                self.assertTrue(self.listeners(box))
                self.d.kill_all()
                self.d.rewrite(box, lambda r: good)
                self.d.start()
                reply = box.delete()
            self.assertEqual(reply.status, 204)
            until(lambda: not self.listeners(box) and not self.d.records(), "its end")

    def test_adoption_compares_the_process(self):
        """A pid that was reused, another namespace: not the sandbox of the record, and nobody is killed for it."""
        for at in (16, 24, 32):  # start time, pid namespace, mount namespace in struct ns_blob
            box = harness.Box(self.d)
            stranger = subprocess.Popen(["sleep", "1000"])
            self.addCleanup(stranger.wait)
            self.addCleanup(stranger.kill)
            self.d.kill_all()

            def change(record):
                start = 16 + at
                return record[:start] + bytes(8) + record[start + 8:]

            good = self.d.rewrite(box, change)
            self.d.start()
            reply = box.get("")
            self.assertIn(reply.json["state"] if reply.status == 200 else "gone",
                          ("destroyed", "failed", "gone"))
            self.assertIn("reaped", self.d.read_log())
            self.assertNotIn("sandbox adopted\",\"id\":\"" + box.id, self.d.read_log())
            self.assertIsNone(stranger.poll())
            # Without a cgroup it is left to its TTL.
            with contextlib.suppress(ProcessLookupError):
                os.kill(struct.unpack_from("=q", good, 16)[0], signal.SIGKILL)

    def start_with_files(self, most, boxes):
        """A daemon that may have so many files open; what it says of each sandbox."""
        before = len(self.d.read_log())
        with open(self.d.log, "ab") as log:
            self.d.process = subprocess.Popen(
                ["prlimit", "--nofile=%d" % most, harness.CLOCHED, "serve", "--listen", "unix:" + self.d.sock],
                env=self.d.env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def judged():
            lines = [x for x in self.d.read_log()[before:].splitlines()
                     if any('"sandbox %s"' % w in x for w in ("adopted", "reaped", "left alone"))]
            return lines if len(lines) >= boxes else self.d.process.poll() is not None and [""]
        said = until(judged, "a look at each sandbox")
        self.d.kill_all()
        return "\n".join(said)

    def test_adoption_while_files_are_short(self):
        """No sandbox ends because a daemon could not look at it."""
        boxes = [harness.Box(self.d) for _ in range(6)]
        for box in boxes:
            box.sh("echo mine > /workspace/f")
        self.d.kill_all()
        said = "".join(self.start_with_files(most, len(boxes)) for most in range(20, 40, 2))
        self.assertIn("left alone", said)
        self.assertNotIn("reaped", said)
        self.d.start()
        for box in boxes:
            self.assertEqual(box.sh("cat /workspace/f")["stdout"], "mine\n")

    def test_a_stopped_one_expires_after_a_restart(self):
        late, later = harness.Box(self.d, ttl="3s"), harness.Box(self.d, ttl="1h")
        for box in (late, later):
            self.assertEqual(box.post("/stop").status, 200)
        self.d.kill_all()
        self.d.start()
        self.assertEqual(late.get("").json["state"], "stopped")
        until(lambda: late.get("").status == 404 or late.get("").json["state"] == "destroyed",
              "the end of its time")
        self.assertEqual(later.get("").json["state"], "stopped")

    def test_states_survive(self):
        stopped, running = harness.Box(self.d), harness.Box(self.d)
        stopped.sh("echo kept > /workspace/f")
        self.assertEqual(stopped.post("/stop").status, 200)
        can_pause = running.post("/pause").status == 200
        gone = harness.Box(self.d)
        gone.delete()
        self.d.kill_all()
        self.d.start()
        self.assertEqual(running.get("").json["state"], "paused" if can_pause else "running")
        self.assertEqual(stopped.get("").json["state"], "stopped")
        self.assertEqual(stopped.post("/start").status, 200)
        self.assertEqual(stopped.sh("cat /workspace/f")["stdout"], "kept\n")
        self.assertEqual(gone.get("").status, 404)
        if can_pause:
            self.assertEqual(running.post("/resume").status, 200)
        self.assertEqual(running.sh("echo on")["stdout"], "on\n")

    def test_time_runs_without_a_daemon(self):
        box = harness.Box(self.d, ttl="2s")
        eid = box.start(shell="sleep 1000")
        self.assertTrue(eid)
        self.assertTrue(self.listeners(box))
        self.d.kill_all()
        until(lambda: not self.listeners(box), "the end of its time")
        self.d.start()
        reply = box.get("")
        self.assertIn(reply.json["state"] if reply.status == 200 else "gone",
                      ("destroyed", "failed", "gone"))
        until(lambda: not self.d.records(), "its debris being reaped")

    def listeners(self, box):
        """Inodes of the socket that its pid 1 listens on; it goes with that process."""
        needle = b"/%s.sock" % box.id.encode()
        lines = read("/proc/net/unix").splitlines()
        return {line.split()[6] for line in lines if line.endswith(needle)}

    def guests(self, box):
        """The host's pid of its pid 1, as far as one may look."""
        inodes = self.listeners(box)
        found = []
        for pid in pids():
            if read("/proc/%d/comm" % pid).strip() != b"cloche-guest":
                continue
            try:
                names = [os.readlink("/proc/%d/fd/%s" % (pid, fd))
                         for fd in os.listdir("/proc/%d/fd" % pid)]
            except OSError:
                continue
            if any(n[8:-1].encode() in inodes for n in names if n.startswith("socket:[")):
                found.append(pid)
        return found

    def test_guest_is_killed(self):
        box = harness.Box(self.d)
        guests = self.guests(box)
        if not guests:
            self.skipTest("its pid 1 cannot be found from here")
        for pid in guests:
            os.kill(pid, signal.SIGKILL)
        until(lambda: box.get("").json["state"] == "failed", "its failing")
        self.assertTrue(box.get("").json["reason"])
        self.assertError(box.exec("true"), 409, "conflict")
        until(lambda: not self.d.records(), "its debris being reaped")
        self.assertEqual(harness.Box(self.d).sh("echo next")["stdout"], "next\n")

    def database(self):
        return os.path.join(self.d.dir, "state", "db", "state.db")

    def damage(self):
        # The front may have closed its database in time, which leaves no -wal.
        for name in filter(os.path.exists, (self.database(), self.database() + "-wal")):
            with open(name, "r+b") as f:
                f.write(b"no database" * 1000)

    def delete_database(self):
        for end in ("", "-wal", "-shm"):
            if os.path.exists(self.database() + end):
                os.unlink(self.database() + end)

    def test_lost_database_with_long_rows(self):
        """What does not fit into one message to the broker comes back, too."""
        env = {"NAME_%d" % i: "%d" % i * 500 for i in range(40)}
        box = harness.Box(self.d, metadata={"k": "v" * 3000}, env=env)
        self.assertEqual(box.get("/stats").status, 200)
        self.d.kill_all()
        self.delete_database()
        self.d.start()
        self.assertEqual(box.get("").json["metadata"], {"k": "v" * 3000})
        self.assertEqual(box.sh("echo $NAME_7$NAME_39")["stdout"], "7" * 500 + "39" * 500 + "\n")

    def test_lost_database(self):
        """Everything is brought back from what the broker has, also the second time."""
        token = self.d.token("owner")
        more = {"metadata": {"k": "v"}, "env": {"E": "e"}, "ttl": "1h"}
        running = harness.Box(self.d, token=token, name="runs", **more)
        stopped = harness.Box(self.d, token=token, name="stops", **more)
        own = harness.Box(self.d)
        running.sh("echo runs > /workspace/f")
        stopped.sh("echo stops > /workspace/f")
        self.assertEqual(stopped.post("/stop").status, 200)
        self.assertEqual(self.patch(stopped, token, {"metadata": {"k": "later"}}).status, 200)
        for lose in (self.damage, self.delete_database):
            before = {b.id: self.d.get("/v1/sandboxes/" + b.id, token=token).json
                      for b in (running, stopped)}
            # The broker answers in order: after this it has the copies of all rows.
            self.assertEqual(self.d.get(running.path + "/stats", token=token).status, 200)
            self.d.kill_all()
            lose()
            self.d.start()
            for box in (running, stopped):
                after = self.d.get("/v1/sandboxes/" + box.id, token=token).json
                for key in ("id", "name", "state", "metadata", "created_at", "expires_at", "limits",
                            "image", "idle_timeout", "on_timeout"):
                    if key == "expires_at":
                        times = [datetime.datetime.fromisoformat(o[key].rstrip("Z"))
                                 for o in (before[box.id], after)]
                        self.assertLess(abs((times[1] - times[0]).total_seconds()), 60)
                    else:
                        self.assertEqual(before[box.id][key], after[key], key)
            self.assertEqual(before[stopped.id]["metadata"], {"k": "later"})
            self.assertEqual(own.get("").json["state"], "running")
            self.assertEqual(self.d.get(own.path, token=token).status, 404, "it is the operator's")
            self.assertEqual(running.sh("cat /workspace/f; echo $E")["stdout"], "runs\ne\n")
        self.assertIn("begun anew", self.d.read_log())
        kept = [n for n in os.listdir(os.path.dirname(self.database())) if "damaged" in n]
        self.assertTrue(kept, "the damaged file")
        self.assertEqual(stopped.post("/start").status, 200)
        self.assertEqual(stopped.sh("cat /workspace/f")["stdout"], "stops\n")
        # What is destroyed stays gone, whatever happens to the database.
        for box in (running, stopped, own):
            self.assertEqual(box.delete().status, 204)
        self.d.kill_all()
        self.delete_database()
        self.d.start()
        self.assertEqual(self.d.get("/v1/sandboxes").json["sandboxes"], [])
        self.assertEqual(self.d.records(), set())
        left = os.listdir(os.path.join(self.d.dir, "run", "boxes")) + \
            os.listdir(os.path.join(self.d.dir, "state", "snapshots"))
        self.assertEqual(left, [])

    def test_damaged_row(self):
        """A sandbox whose row makes no sense, and of whose row there is no copy, is not swept."""
        token = self.d.token("owner")
        running, stopped = (harness.Box(self.d, token=token) for _ in range(2))
        for box in (running, stopped):
            box.sh("echo mine > /workspace/f")
        self.assertEqual(stopped.post("/stop").status, 200)
        self.d.kill_all()
        with sqlite3.connect(self.database()) as db:
            db.execute("UPDATE sandboxes SET options = 'nonsense'")
        db.close()
        for where in ("run/boxes", "state/snapshots"):
            for name in os.listdir(os.path.join(self.d.dir, where)):
                if name.endswith(".row"):
                    os.unlink(os.path.join(self.d.dir, where, name))
        self.d.start()
        self.assertEqual(stopped.post("/start").status, 200)
        for box in (running, stopped):
            self.assertEqual(box.sh("cat /workspace/f")["stdout"], "mine\n")
        self.assertEqual(self.d.get(running.path).status, 200)

    def doctor(self, status):
        ran = subprocess.run([cl.CLOCHE, "doctor", "--state", "--json"], env=self.d.env(),
                             capture_output=True, text=True)
        self.assertEqual(ran.returncode, status, ran)
        return {f["subject"]: f for f in json.loads(ran.stdout)["findings"]}

    def test_doctor(self):
        box, stopped, broken = (harness.Box(self.d) for _ in range(3))
        self.assertEqual(stopped.post("/stop").status, 200)
        found = self.doctor(0)
        self.assertIn("a daemon runs", found["database"]["text"])
        self.assertEqual(found["sandbox " + box.id]["verdict"], "ok")
        self.assertTrue([s for s in found if s.startswith("snapshot ")])
        self.d.kill_all()
        self.assertIn("3 sandboxes", self.doctor(0)["database"]["text"])
        good = self.d.rewrite(broken, lambda r: r[:50])
        self.damage()
        found = self.doctor(1)
        self.assertEqual(found["database"]["verdict"], "repaired")
        self.assertFalse(os.path.exists(self.database()))
        self.assertEqual(found["sandbox " + broken.id]["verdict"], "problem")
        self.assertEqual(self.doctor(1)["database"]["verdict"], "note")
        self.d.rewrite(broken, lambda r: good)
        with open(os.path.join(self.d.dir, "run", "boxes", "a" * 20), "wb") as out:
            out.write(b"nothing that could be a record")
        self.assertEqual(self.doctor(1)["sandbox " + "a" * 20]["verdict"], "repaired")
        self.doctor(0)
        self.d.start()
        states = {s["id"]: s["state"] for s in self.d.get("/v1/sandboxes").json["sandboxes"]}
        self.assertEqual(states, {box.id: "running", stopped.id: "stopped", broken.id: "running"})

    def patch(self, box, token, body):
        return self.d.request("PATCH", box.path, body, token=token)

    def test_database_of_a_later_version(self):
        """The daemon does not start, and touches nothing."""
        running, stopped = harness.Box(self.d), harness.Box(self.d)
        stopped.sh("echo kept > /workspace/f")
        self.assertEqual(stopped.post("/stop").status, 200)
        self.d.kill_all()
        db = sqlite3.connect(self.database())
        db.execute("PRAGMA user_version = 999")
        db.close()
        with self.assertRaises(AssertionError):
            self.d.start()
        self.assertEqual(self.d.process.wait(20), 78)
        self.assertIn("schema 999", self.d.read_log())
        self.assertTrue(self.listeners(running))
        db = sqlite3.connect(self.database())
        self.assertEqual(db.execute("SELECT count(*) FROM sandboxes").fetchone(), (2,))
        db.execute("PRAGMA user_version = 1")
        db.close()
        self.d.start()
        self.assertEqual(running.sh("echo on")["stdout"], "on\n")
        self.assertEqual(stopped.post("/start").status, 200)
        self.assertEqual(stopped.sh("cat /workspace/f")["stdout"], "kept\n")


class Load:
    """Makes, uses and destroys sandboxes, and notes what was acknowledged."""

    def __init__(self, daemon):
        self.daemon, self.stop = daemon, False
        self.alive, self.written, self.lock = set(), {}, threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(n,)) for n in range(4)]
        for t in self.threads:
            t.start()

    def work(self, n):
        turn = 0
        while not self.stop:
            turn += 1
            try:
                self.one("%d-%d" % (n, turn), destroys=turn % 3 == 0)
            except (OSError, AssertionError, ValueError, harness.http.client.HTTPException):
                pass

    def one(self, name, destroys):
        box = harness.Box(self.daemon, name=name, ttl="600s")
        with self.lock:
            self.alive.add(box.id)
        reply = box.put("/files?path=/workspace/f", name.encode())
        if reply.status < 300:
            with self.lock:
                self.written[box.id] = name.encode()
        if destroys:
            with self.lock:
                self.alive.discard(box.id)
                self.written.pop(box.id, None)
            box.delete()

    def end(self):
        self.stop = True
        for t in self.threads:
            t.join(120)


class UnderLoad(Restart):
    """Only its own test."""

    def test_nothing_acknowledged_is_lost(self):
        for turn in range(3):
            load = Load(self.d)
            until(lambda: len(load.alive) >= 10, "some sandboxes")
            self.d.kill_all()
            load.end()
            self.d.start()
            listed = self.d.get("/v1/sandboxes?limit=1000").json["sandboxes"]
            running = {s["id"] for s in listed if s["state"] == "running"}
            self.assertEqual(load.alive - running, set(), self.d.read_log()[-3000:])
            for sandbox, text in load.written.items():
                got = self.d.get("/v1/sandboxes/%s/files?path=/workspace/f" % sandbox)
                self.assertEqual((got.status, got.body), (200, text), turn)
            # And nothing is there that nobody knows of.
            until(lambda: self.d.records() <= running, "the end of what is nobody's")
            self.d.delete("/v1/sandboxes")
        self.assertEqual(self.d.records(), set())


for _name in [n for n in vars(Restart) if n.startswith("test_")]:
    setattr(UnderLoad, _name, None)
