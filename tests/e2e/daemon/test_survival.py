"""kill -9 of each process of the daemon: sandboxes and their commands go on, nothing is left over."""

import os
import subprocess
import signal
import threading
import time
import unittest

import cl
import harness
from harness import until


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="utf-8") as text:
        return [int(word) for word in text.read().split()]


def comm(pid):
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8") as text:
            return text.read().strip()
    except OSError:
        return ""


class Case(unittest.TestCase):
    config = None

    def setUp(self):
        self.d = harness.Daemon(config=self.config)
        self.d.start()
        self.addCleanup(self.d.remove)
        self.addCleanup(self.end)

    def end(self):
        if self.d.process.poll() is not None:
            self.d.start()
        self.d.stop()

    def role(self, name):
        """The pid of a role that is there now; None if there is none."""
        pids = [p for p in children(self.d.process.pid) if comm(p) == "cloche-" + name]
        return pids[0] if pids else None

    def crash(self):
        self.d.process.kill()
        self.d.process.wait()

    def describe(self, box):
        return self.d.get(box.path).json


class Survival(Case):
    def test_broker(self):
        boxes = [harness.Box(self.d) for _ in range(3)]
        for box in boxes:
            box.sh("echo before > /workspace/file")
        eid = boxes[0].start(
            shell="while [ ! -e /workspace/go ]; do sleep 0.1; done; echo finished; exit 7"
        )
        self.crash()
        self.d.start()
        listed = {s["id"]: s["state"] for s in self.d.get("/v1/sandboxes").json["sandboxes"]}
        self.assertEqual(listed, {box.id: "running" for box in boxes})
        for box in boxes:
            self.assertEqual(box.sh("cat /workspace/file")["stdout"], "before\n")
        boxes[0].sh("touch /workspace/go")
        ended = until(lambda: self.ended(boxes[0], eid), "the end of the command")
        self.assertEqual(ended["exit_code"], 7)

    def ended(self, box, eid):
        found = box.get("/execs/%d" % eid)
        return found.status == 200 and not found.json["running"] and found.json

    def test_a_paused_one_whose_time_was_over_ends_at_once(self):
        """Frozen it cannot end itself; whoever comes back does that before anything else."""
        late, soon, kept = (harness.Box(self.d, ttl=ttl) for ttl in ("2s", "1h", "2s"))
        if late.post("/pause").status == 501:
            self.skipTest("this host cannot pause")
        soon.post("/pause")
        self.crash()
        time.sleep(2.5)  # its time, and more than that
        self.assertTrue(self.lives(late), "a frozen one cannot end itself")
        self.d.start()
        until(lambda: self.d.get(late.path).status == 404 or
              self.describe(late)["state"] == "destroyed", "the end of what is late", 2)
        until(lambda: not self.lives(late), "the end of its processes", 5)
        self.assertEqual(self.describe(soon)["state"], "paused")
        self.assertEqual(soon.post("/resume").json["state"], "running")
        until(lambda: not self.lives(kept), "the end of one that was not frozen", 10)

    def lives(self, box):
        return os.path.exists(os.path.join(self.d.dir, "run", "boxes", box.id))

    def test_crash_again_and_again(self):
        box = harness.Box(self.d)
        for n in range(3):
            self.crash()
            self.d.start()
            self.assertEqual(box.sh("echo %d >> /tmp/n; wc -l < /tmp/n" % n)["stdout"], "%d\n" % (n + 1))

    def test_paused_stays_paused(self):
        box = harness.Box(self.d)
        self.assertEqual(box.post("/pause").status, 200)
        self.crash()
        self.d.start()
        self.assertEqual(self.describe(box)["state"], "paused")
        self.assertEqual(box.post("/resume").status, 200)
        self.assertEqual(box.sh("echo on")["stdout"], "on\n")

    def test_front(self):
        box = harness.Box(self.d)
        box.sh("echo kept > /workspace/f")
        before = until(lambda: self.role("front"))
        os.kill(before, signal.SIGKILL)
        until(lambda: self.role("front") not in (None, before), "a new front")
        until(self.d.is_serving, "serving again")
        self.assertEqual(box.sh("cat /workspace/f")["stdout"], "kept\n")

    def test_audit(self):
        box = harness.Box(self.d)
        before = until(lambda: self.role("audit"))
        os.kill(before, signal.SIGKILL)
        until(lambda: self.role("audit") not in (None, before), "a new audit role")
        until(lambda: box.exec("true").status == 200, "work that is written down again")

    def test_guest(self):
        box = harness.Box(self.d)
        with open(os.path.join(self.d.dir, "run", "boxes", box.id), "rb") as record:
            pid = int.from_bytes(record.read(24)[16:24], "little")
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.gone(box), "the end of the sandbox")
        until(lambda: not self.boxes(box.id), "the end of its record")

    def gone(self, box):
        reply = self.d.get(box.path)
        return reply.status == 404 or reply.json["state"] not in ("running", "starting")

    def boxes(self, ident):
        names = os.listdir(os.path.join(self.d.dir, "run", "boxes"))
        return [n for n in names if n.startswith(ident)]

    def test_under_load(self):
        """What was acknowledged is there afterwards."""
        boxes = [harness.Box(self.d) for _ in range(4)]
        done, stop = [[] for _ in boxes], threading.Event()

        def work(at):
            n = 0
            while not stop.is_set():
                n += 1
                try:
                    r = boxes[at].exec("sh", "-c", "echo %d >> /workspace/log" % n)
                    if r.status == 200 and r.json["success"]:
                        done[at].append(n)
                except (OSError, ValueError, harness.http.client.HTTPException):
                    pass

        threads = [threading.Thread(target=work, args=(at,)) for at in range(len(boxes))]
        for thread in threads:
            thread.start()
        until(lambda: all(len(d) > 3 for d in done), "some work")
        self.crash()
        self.d.start()
        marks = [len(d) for d in done]
        until(lambda: all(len(d) > m + 3 for d, m in zip(done, marks)), "more work")
        stop.set()
        for thread in threads:
            thread.join()
        for box, numbers in zip(boxes, done):
            written = set(map(int, box.sh("cat /workspace/log")["stdout"].split()))
            self.assertEqual(set(numbers) - written, set())


class Volumes(Case):
    def setUp(self):
        self.volume = os.path.join(cl.base_dir(), "volume-%d" % os.getpid())
        os.makedirs(os.path.join(self.volume, "sub"), exist_ok=True)
        with open(os.path.join(self.volume, "sub", "given"), "w", encoding="utf-8") as out:
            out.write("data\n")
        self.config = (
            "volumes:\n"
            "  shared:\n    path: %s\n    read_only: false\n    tokens: [friend]\n"
            "  fixed:\n    path: %s\n" % (self.volume, self.volume)
        )
        super().setUp()

    def test_read_and_write(self):
        box = harness.Box(self.d, volumes=[{"name": "shared", "path": "/data", "writable": True}])
        self.assertEqual(box.sh("cat /data/sub/given")["stdout"], "data\n")
        self.assertEqual(box.sh("echo new > /data/made; stat -c %U /data/made")["stdout"], "user\n")
        made = os.path.join(self.volume, "made")
        with open(made, encoding="utf-8") as text:
            self.assertEqual(text.read(), "new\n")
        self.assertEqual(os.stat(made).st_uid, os.geteuid())
        os.unlink(made)

    def test_read_only(self):
        box = harness.Box(self.d, volumes=[{"name": "fixed", "path": "/data"}])
        self.assertEqual(box.sh("cat /data/sub/given; echo x > /data/y || echo no")["stdout"], "data\nno\n")

    @unittest.skipUnless(harness.ROOT, "needs root")
    def test_what_is_mounted_later(self):
        """Sandboxes are made in a mount namespace of their makers', which must not fall behind the host's."""
        harness.Box(self.d).delete()
        below = os.path.join(self.volume, "sub")
        subprocess.run(["mount", "-t", "tmpfs", "none", below], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", below], check=True)
        with open(os.path.join(below, "given"), "w", encoding="utf-8") as out:
            out.write("later\n")
        box = harness.Box(self.d, volumes=[{"name": "fixed", "path": "/data", "sub": "sub"}])
        self.assertEqual(box.sh("cat /data/given")["stdout"], "later\n")

    @unittest.skipUnless(harness.ROOT, "needs root")
    def test_what_is_unmounted(self):
        """Nobody may keep it busy, whether or not more sandboxes are made."""
        below, name = os.path.join(self.volume, "sub"), "mounted-%d" % os.getpid()

        def is_seen():
            for pid in children(self.d.process.pid):
                if comm(pid) == "cloche-boot" and os.readlink("/proc/%d/ns/mnt" % pid) != own:
                    with open("/proc/%d/mountinfo" % pid, encoding="utf-8") as mounts:
                        if name in mounts.read():
                            return True
            return False

        own = os.readlink("/proc/self/ns/mnt")
        subprocess.run(["mount", "-t", "tmpfs", name, below], check=True)
        try:
            until(is_seen, "a maker of sandboxes catching up")
        finally:
            subprocess.run(["umount", below], check=True)
        until(lambda: not is_seen(), "the end of all that was mounted there")

    def test_whose(self):
        """A token sees what was given to it; the rest answers as if it were not there."""
        friend, other = self.d.token("friend"), self.d.token("other")
        body = {"volumes": [{"name": "shared", "path": "/data"}]}
        made = self.d.post("/v1/sandboxes", body, token=friend)
        self.assertEqual(made.status, 201, made)
        self.assertEqual(self.d.post("/v1/sandboxes", body, token=other).status, 404)
        listed = [{v["name"] for v in self.d.get("/v1/volumes", token=key).json["volumes"]} for key in (friend, other)]
        self.assertEqual([("shared" in names) for names in listed], [True, False])
        self.assertEqual(
            self.d.post("/v1/sandboxes", {"volumes": [{"name": "x", "path": "/data"}]}, token=other).status,
            404,
        )


if __name__ == "__main__":
    unittest.main()
