"""Sandboxes with a disk of their own: what is written outlives the sandbox, the daemon and the machine."""

import glob
import os
import shutil
import signal
import subprocess
import unittest

import cl
import harness
from harness import until


def has_loops():
    return harness.ROOT and os.path.exists("/dev/loop-control") and shutil.which(
        "mkfs.ext4", path="/usr/sbin:/sbin:/usr/local/sbin") is not None


def backing_files():
    """The files of all loop devices of this machine."""
    files = []
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(path, encoding="utf-8") as f:
                files.append(f.read().strip())
        except OSError:
            pass
    return files


@unittest.skipUnless(has_loops(), "no loop devices, or no mkfs.ext4, or not root")
class Case(harness.Case):
    def disk_box(self, daemon=None, **options):
        options.setdefault("disk", "64M")
        box = harness.Box(daemon or self.d, None, disk_type="disk", **options)
        self.addCleanup(box.delete)
        return box

    def own_daemon(self, config=None):
        d = harness.Daemon(config=config)
        self.addCleanup(d.remove)
        self.addCleanup(d.stop)
        return d.start()

    def state(self, box):
        return box.get("").json["state"]

    def disk_files(self, daemon):
        return os.listdir(os.path.join(daemon.dir, "state", "disks"))

    def loops(self, daemon):
        return [f for f in backing_files() if f.startswith(daemon.dir)]


class Disks(Case):
    def test_says_what_it_is(self):
        box = self.disk_box()
        record = box.exec("true").json
        self.assertEqual(record["layers"]["disk"], "image")
        self.assertNotIn("disk", record["layers"]["missing"])
        self.assertEqual(self.box().exec("true").json["layers"]["disk"], "tmpfs")

    def test_is_full_inside_and_not_outside(self):
        box = self.disk_box(disk="40M")
        record = box.sh("for i in 1 2 3; do head -c 20000000 /dev/zero > /workspace/$i || break; done;"
                        " du -sm /workspace")
        self.assertIn("No space left", record["stderr"])
        used = int(record["stdout"].split()[0])
        self.assertGreaterEqual(used, 40)
        self.assertLess(used, 56)
        box.sh("rm /workspace/?; echo fine > /workspace/y")
        self.assertEqual(box.sh("cat /workspace/y")["stdout"], "fine\n")

    def test_is_larger_than_memory(self):
        box = self.disk_box(disk="300M", memory="64M")
        record = box.exec("dd", "if=/dev/zero", "of=/workspace/x", "bs=1M", "count=250",
                          timeout="120s").json
        self.assertTrue(record["success"], record)
        self.assertError(self.d.post("/v1/sandboxes", {"disk": "300M", "memory": "64M"}), 400,
                         field="disk")

    def test_nothing_is_set_id_and_no_node_works(self):
        box = self.disk_box()
        flags = box.sh("grep ' /workspace ' /proc/self/mountinfo")["stdout"]
        self.assertIn("nosuid", flags)
        self.assertIn("nodev", flags)

    def test_needs_a_sandbox_that_is_kept(self):
        reply = self.d.post("/v1/run", {"cmd": ["true"], "disk_type": "disk"})
        self.assertError(reply, 400, field="disk_type")
        run = cl.run("run", "--disk-type", "disk", "--", "true")
        self.assertEqual(run.code, 125)
        self.assertIn("disk_type", run.err)

    def test_its_size_stays(self):
        box = self.disk_box()
        self.assertError(self.d.request("PATCH", box.path, {"disk": "80M"}), 501, field="disk")

    def test_leaves_nothing(self):
        d = self.own_daemon()
        box = self.disk_box(d)
        box.sh("echo x > /workspace/x")
        self.assertEqual(len(self.loops(d)), 1)
        box.delete()
        until(lambda: not self.loops(d), "the end of its loop device")
        self.assertEqual([f for f in self.disk_files(d) if not f.startswith("pool-")], [])

    def test_apt_like_writes_everywhere(self):
        box = self.disk_box()
        box.sh("mkdir -p /opt/x /data && echo a > /opt/x/a && echo b > /etc/b && echo c > /data/c"
               " && rm -r /usr/share/doc/bash")
        again = box.sh("cat /opt/x/a /etc/b /data/c; ls /usr/share/doc/bash 2>&1 | tail -1")
        self.assertIn("a\nb\nc\n", again["stdout"])
        self.assertIn("No such file", again["stdout"])


class Rootless(harness.Case):
    @unittest.skipIf(harness.ROOT, "a daemon that is not root")
    def test_refused_by_name(self):
        self.assertError(self.d.post("/v1/sandboxes", {"disk_type": "disk"}), 501, "unsupported",
                         field="disk_type")


class Keep(Case):
    FILES = ("mkdir -p /opt/x /data; echo opt > /opt/x/f; echo etc > /etc/f; echo data > /data/f;"
             " echo work > /workspace/f; echo home > ~/f; echo tmp > /tmp/f;"
             " rm -f /usr/share/doc/base-files/README")
    LOOK = ("cat /opt/x/f /etc/f /data/f /workspace/f ~/f; ls /tmp;"
            " ls /usr/share/doc/base-files | grep -x README; stat -c %u /workspace/f /opt/x/f")
    SEEN = "opt\netc\ndata\nwork\nhome\n1000\n1000\n"

    def test_stop_and_start_copy_nothing(self):
        box = self.disk_box()
        box.sh(self.FILES)
        for _ in range(3):
            self.assertEqual(box.post("/stop").json["state"], "stopped")
            self.assertEqual(box.post("/start").json["state"], "running")
            self.assertEqual(box.sh(self.LOOK)["stdout"], self.SEEN)
        box.sh("rm /etc/f; echo new > /etc/g")
        box.post("/stop")
        box.post("/start")
        self.assertEqual(box.sh("ls /etc/f /etc/g 2>/dev/null")["stdout"], "/etc/g\n")

    def test_stopped_is_not_mounted(self):
        d = self.own_daemon()
        box = self.disk_box(d)
        box.sh("echo x > /workspace/x")
        box.post("/stop")
        until(lambda: not self.loops(d), "the unmount")
        box.post("/start")
        self.assertEqual(box.sh("cat /workspace/x")["stdout"], "x\n")
        box.post("/stop")
        box.delete()
        self.assertEqual(os.listdir(os.path.join(d.dir, "state", "snapshots")), [])

    def killed(self, d):
        """As a reboot: no process is left, and neither is the runtime directory."""
        pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
        own = [d.process.pid]
        for pid in pids:
            try:
                with open("/proc/%d/cgroup" % pid, encoding="utf-8") as f:
                    if "cloche-box-%s-" % d.tag() in f.read():
                        own.append(pid)
            except OSError:
                pass
        for pid in own:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        d.process.wait()
        for path in glob.glob("/sys/fs/cgroup/freezer/**/cloche-box-%s-*/freezer.state" % d.tag(),
                              recursive=True):
            with open(path, "w", encoding="utf-8") as f:
                f.write("THAWED")
        until(lambda: not self.loops(d), "the end of all mounts")
        shutil.rmtree(os.path.join(d.dir, "run"))

    def test_reboot(self):
        d = self.own_daemon()
        boxes = {}
        for state in ("running", "paused", "stopped"):
            box = boxes[state] = self.disk_box(d, name=state, ttl="1h")
            box.sh(self.FILES + "; sync")
            if state == "paused":
                self.assertEqual(box.post("/pause").json["state"], "paused")
            if state == "stopped":
                box.post("/stop")
        memory = harness.Box(d)
        self.killed(d)
        d.start()
        for state, box in boxes.items():
            self.assertEqual(self.state(box), "stopped", state)
            self.assertEqual(box.get("").json["name"], state)
            self.assertEqual(box.post("/start").json["state"], "running", state)
            self.assertEqual(box.sh(self.LOOK)["stdout"], self.SEEN, state)
        self.assertEqual(self.state(memory), "failed")

    def test_a_daemon_that_is_killed(self):
        d = self.own_daemon()
        box = self.disk_box(d)
        box.sh(self.FILES)
        d.process.kill()
        d.process.wait()
        d.start()
        until(lambda: self.state(box) == "running", "its adoption")
        self.assertEqual(box.sh("cat /workspace/f")["stdout"], "work\n")
        box.post("/stop")
        box.post("/start")
        self.assertEqual(box.sh(self.LOOK)["stdout"], self.SEEN)

    def test_leftovers_are_removed(self):
        d = self.own_daemon()
        self.disk_box(d).delete()
        d.stop()
        disks = os.path.join(d.dir, "state", "disks")
        for name in ("pool-3.part", "a" * 20 + ".img", "b" * 20 + ".part"):
            with open(os.path.join(disks, name), "wb"):
                pass
        d.start()
        self.assertEqual(os.listdir(disks), [])


class Forks(Case):
    def test_fork_and_snapshot(self):
        box = self.disk_box()
        box.sh(Keep.FILES)
        made = box.post("/snapshot", {"name": "one"})
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.d.delete, "/v1/snapshots/" + made.json["id"])
        self.assertEqual(made.json["kind"], "disk")
        self.assertIn("frozen_ms", made.json)
        self.assertIsInstance(made.json["shared"], bool)
        box.sh("echo later > /workspace/f")
        for options in ({"disk_type": "disk", "disk": "64M"}, {"disk_type": "disk", "disk": "96M"},
                        {"disk": "64M"}):
            other = harness.Box(self.d, None, snapshot=made.json["id"], **options)
            self.addCleanup(other.delete)
            self.assertEqual(other.sh(Keep.LOOK)["stdout"], Keep.SEEN, options)
        forks = box.post("/fork", {"count": 2}).json["sandboxes"]
        for fork in forks:
            self.addCleanup(self.d.delete, "/v1/sandboxes/" + fork["sandbox"]["id"])
            reply = self.d.post("/v1/sandboxes/%s/exec" % fork["sandbox"]["id"],
                                {"cmd": ["cat", "/workspace/f", "/etc/f"]})
            self.assertEqual(reply.json["stdout"], "later\netc\n")
        self.assertEqual(box.sh("echo on > /workspace/g; cat /workspace/g")["stdout"], "on\n")

    def test_another_root_is_refused(self):
        box = self.disk_box()
        made = box.post("/snapshot", {}).json
        self.addCleanup(self.d.delete, "/v1/snapshots/" + made["id"])
        reply = self.d.post("/v1/sandboxes", {"disk_type": "disk", "disk": "64M", "root": "ro",
                                              "snapshot": made["id"]})
        self.assertError(reply, 409, field="snapshot")

    def test_a_tar_becomes_a_disk(self):
        box = self.box()
        box.sh(Keep.FILES)
        made = box.post("/snapshot", {}).json
        self.addCleanup(self.d.delete, "/v1/snapshots/" + made["id"])
        other = self.disk_box(snapshot=made["id"])
        self.assertEqual(other.sh(Keep.LOOK)["stdout"], Keep.SEEN)
        other.post("/stop")
        other.post("/start")
        self.assertEqual(other.sh(Keep.LOOK)["stdout"], Keep.SEEN)


if __name__ == "__main__":
    harness.main()
