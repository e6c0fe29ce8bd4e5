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


class Keyed(Case):
    """Daemons with a master key."""

    def key_daemon(self, key="11" * 32, more=""):
        d = harness.Daemon()
        self.addCleanup(d.remove)
        self.addCleanup(d.stop)
        self.settings(d, self.key_file(d, "master", key), more)
        return d.start()

    def key_file(self, d, name, key):
        path = os.path.join(d.dir, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(key + "\n")
        os.chmod(path, 0o400)
        return path

    def settings(self, d, key_file, more=""):
        d.config = "keys: {master: {file: %s}%s}\n" % (key_file, more)

    def keys(self, d):
        with open(os.path.join(d.dir, "state", "keys", "keyring"), "rb") as f:
            ring = f.read()
        rows = [ring[i:i + 256] for i in range(64, len(ring), 256)]
        return [r[4:36].rstrip(b"\0") for r in rows if r[0] == 5]


class Encrypted(Keyed):
    MARK = "a text that must not be found on any disk"

    def when_ready(self, d, **options):
        """The signer may need a moment after a start."""
        return until(lambda: self.try_box(d, options), "the signer")

    def try_box(self, d, options):
        try:
            return self.disk_box(d, **options)
        except AssertionError as error:
            if "not at hand" in str(error):
                return None
            raise

    def contents(self, d):
        found = b""
        for folder in ("disks", "snapshots"):
            for path in glob.glob(os.path.join(d.dir, "state", folder, "*.img")):
                with open(path, "rb") as f:
                    found += f.read()
        return found

    def test_nothing_is_readable_on_the_host(self):
        d = self.key_daemon()
        box = self.when_ready(d)
        record = box.sh("echo '%s' > /workspace/namedsecretly; sync" % self.MARK)
        self.assertEqual(record["layers"]["encrypted"], "fscrypt")
        for name in (self.MARK.encode(), b"namedsecretly"):
            self.assertNotIn(name, self.contents(d))
        self.assertEqual(len(self.keys(d)), 1)
        box.post("/stop")
        self.assertEqual(box.post("/start").json["state"], "running")
        self.assertEqual(box.sh("cat /workspace/namedsecretly")["stdout"], self.MARK + "\n")
        box.delete()
        until(lambda: not self.keys(d), "the end of the key")

    def test_without_a_master_it_says_so(self):
        box = self.disk_box()
        record = box.sh("echo '%s' > /workspace/x; sync" % self.MARK)
        self.assertEqual(record["layers"]["encrypted"], "none")
        self.assertNotIn("encrypted", self.box().sh("true")["layers"])
        d = self.own_daemon("disks: {encrypt: true}\n")
        reply = d.post("/v1/sandboxes", {"disk_type": "disk", "disk": "64M"})
        self.assertEqual(reply.status, 500, reply)
        self.assertIn("keys.master", reply.error["message"])
        self.assertEqual([f for f in self.disk_files(d) if f.endswith(".img")], [])

    def test_off(self):
        d = self.key_daemon()
        d.stop()
        d.config += "disks: {encrypt: false}\n"
        d.start()
        self.assertEqual(self.disk_box(d).sh("true")["layers"]["encrypted"], "none")

    def test_a_snapshot_has_the_key_until_it_is_gone(self):
        d = self.key_daemon()
        box = self.when_ready(d)
        box.sh("echo '%s' > /workspace/x; echo etc > /etc/x" % self.MARK)
        made = box.post("/snapshot", {"name": "s"}).json
        self.assertNotIn(self.MARK.encode(), self.contents(d))
        box.delete()
        self.assertEqual(len(self.keys(d)), 1)
        for kind in ("disk", "memory"):
            other = harness.Box(d, None, disk_type=kind, disk="64M", snapshot=made["id"])
            self.assertEqual(other.sh("cat /workspace/x /etc/x")["stdout"], self.MARK + "\netc\n")
            other.delete()
        self.assertEqual(len(self.keys(d)), 1)
        d.delete("/v1/snapshots/" + made["id"])
        until(lambda: not self.keys(d), "the end of the key")

    def test_another_master_opens_nothing_and_spoils_nothing(self):
        d = self.key_daemon()
        box = self.when_ready(d, ttl="1h")
        box.sh("echo '%s' > /workspace/x" % self.MARK)
        box.post("/stop")
        d.stop(destroy=False)
        first = self.contents(d)
        other = self.key_file(d, "other", "22" * 32)
        self.settings(d, other)
        d.start()
        until(lambda: "another key" in d.read_log(), "the signer's refusal")
        reply = box.post("/start")
        self.assertNotEqual(reply.status, 200, reply)
        self.assertEqual(self.state(box), "stopped")
        self.assertTrue(self.contents(d) == first)
        # Wrapped again: the new master opens what the old one had.
        d.stop(destroy=False)
        self.settings(d, other, ", previous: {file: %s}" % os.path.join(d.dir, "master"))
        d.start()
        until(lambda: box.post("/start").status == 200, "the start")
        self.assertEqual(box.sh("cat /workspace/x")["stdout"], self.MARK + "\n")

    def test_the_disk_of_another_does_not_open(self):
        d = self.key_daemon()
        boxes = [self.when_ready(d, ttl="1h") for _ in range(2)]
        for i, box in enumerate(boxes):
            box.sh("echo %d > /workspace/x" % i)
            box.post("/stop")
        images = glob.glob(os.path.join(d.dir, "state", "snapshots", "*.img"))
        self.assertEqual(len(images), 2)
        def swap():
            os.rename(images[0], images[0] + ".away")
            os.rename(images[1], images[0])
            os.rename(images[0] + ".away", images[1])
        swap()
        for box in boxes:
            reply = box.post("/start")
            self.assertError(reply, 403, "denied")
            self.assertIn("not the one of this disk", reply.error["message"])
            self.assertEqual(self.state(box), "stopped")
        swap()
        for i, box in enumerate(boxes):
            self.assertEqual(box.post("/start").status, 200)
            self.assertEqual(box.sh("cat /workspace/x")["stdout"], "%d\n" % i)

    def test_a_flipped_bit_of_the_keyring(self):
        d = self.key_daemon()
        box = self.when_ready(d, ttl="1h")
        box.post("/stop")
        d.stop(destroy=False)
        path = os.path.join(d.dir, "state", "keys", "keyring")
        with open(path, "rb") as f:
            ring = bytearray(f.read())
        at = next(i for i in range(64, len(ring), 256) if ring[i] == 5) + 110
        ring[at] ^= 1
        with open(path, "wb") as f:
            f.write(ring)
        d.start()
        reply = until(lambda: (r := box.post("/start")).status != 200 and
                      "not at hand" not in r.error["message"] and r, "an answer")
        self.assertIn("does not open", reply.error["message"])
        self.assertEqual(self.state(box), "stopped")
        ring[at] ^= 1
        d.stop(destroy=False)
        with open(path, "wb") as f:
            f.write(ring)
        d.start()
        until(lambda: box.post("/start").status == 200, "the start")

    def test_a_key_that_nobody_uses_is_erased_at_the_next_start(self):
        d = self.key_daemon()
        kept, lost = self.when_ready(d, ttl="1h"), self.when_ready(d)
        kept.sh("echo x > /workspace/x; sync")
        self.assertEqual(len(self.keys(d)), 2)
        self.killed(d)
        for path in glob.glob(os.path.join(d.dir, "state", "disks", lost.id + ".*")):
            os.unlink(path)
        d.start()
        until(lambda: len(self.keys(d)) == 1, "the end of one key")
        self.assertEqual(kept.post("/start").status, 200)
        self.assertEqual(kept.sh("cat /workspace/x")["stdout"], "x\n")


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


@unittest.skipUnless(shutil.which("mkfs.xfs", path="/usr/sbin:/sbin"), "no mkfs.xfs")
class Reflink(Case):
    def xfs_daemon(self):
        d = harness.Daemon()
        self.addCleanup(d.remove)
        state, image = os.path.join(d.dir, "state"), os.path.join(d.dir, "xfs")
        os.mkdir(state, 0o700)
        with open(image, "wb") as f:
            f.truncate(2 << 30)
        subprocess.run(["/usr/sbin/mkfs.xfs", "-q", image], check=True)
        if subprocess.run(["mount", "-o", "loop", image, state], check=False).returncode:
            self.skipTest("no XFS can be mounted")
        self.addCleanup(lambda: until(lambda: not subprocess.run(
            ["umount", state], check=False, stderr=subprocess.DEVNULL).returncode, "the unmount"))
        self.addCleanup(d.stop)
        os.chmod(state, 0o700)
        return d.start()

    def free(self, d):
        fs = os.statvfs(os.path.join(d.dir, "state"))
        return fs.f_bfree * fs.f_frsize

    def test_blocks_are_shared(self):
        d = self.xfs_daemon()
        box = self.disk_box(d, disk="200M")
        box.sh("head -c 90000000 /dev/urandom > /workspace/x; sync; sha256sum /workspace/x > /workspace/sum")
        before = self.free(d)
        made = box.post("/snapshot", {}).json
        self.assertTrue(made["shared"], made)
        self.assertLess(before - self.free(d), 40 << 20)
        box.sh("echo other > /workspace/x")
        other = harness.Box(d, None, disk_type="disk", disk="200M", snapshot=made["id"])
        self.addCleanup(other.delete)
        self.assertIn("OK", other.sh("sha256sum -c /workspace/sum")["stdout"])

    def test_a_chain_of_forks(self):
        d = self.xfs_daemon()
        box = self.disk_box(d, disk="40M")
        for i in range(5):
            box.sh("echo %d >> /workspace/log" % i)
            fork = box.post("/fork", {"count": 1}).json["sandboxes"][0]["sandbox"]["id"]
            box.delete()
            box.path = "/v1/sandboxes/" + fork
        self.assertEqual(box.sh("cat /workspace/log")["stdout"], "0\n1\n2\n3\n4\n")


if __name__ == "__main__":
    harness.main()
