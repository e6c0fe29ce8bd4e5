"""The roles of the daemon: what each is allowed, as the kernel tells; and that they come back."""

import os
import signal
import unittest

import cl
import puppet
from puppet import Broker


def status(pid):
    with open("/proc/%d/status" % pid, encoding="utf-8") as lines:
        return dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="utf-8") as text:
        return [int(word) for word in text.read().split()]


@unittest.skipUnless(
    os.access(os.path.join(puppet.BUILD, "cloche-guest"), os.X_OK), "the guest is not built"
)
class Roles(cl.Case):
    def role(self, b, name):
        """The pid of a role once it has locked itself up."""
        found = []

        def ready():
            for pid in children(b.process.pid):
                try:
                    now = status(pid)
                except OSError:
                    continue
                if now["Name"] == "cloche-" + name and now["Seccomp"] == "2":
                    found.append(pid)
                    return True
            if b.process.poll() is not None:
                raise AssertionError("the broker ended: " + b.log())
            return False

        puppet.await_true(ready, "role %s does not come up" % name)
        return found[0]

    def test_rights(self):
        with Broker(self.dir, front=None) as b:
            for name in ("front", "audit"):
                now = status(self.role(b, name))
                with self.subTest(name):
                    for sets in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                        self.assertEqual(int(now[sets], 16), 0, sets)
                    self.assertEqual(now["NoNewPrivs"], "1")
                    if cl.ROOT:
                        ids = now["Uid"].split()
                        self.assertEqual(len(set(ids)), 1)
                        self.assertGreater(int(ids[0]), 0x7FFF0000 - 1)
                        self.assertEqual(now["Groups"].strip(), "")
                    self.assertEqual(now["NSpid"].split()[-1], "1")  # of a namespace of its own

    def test_own_namespaces(self):
        with Broker(self.dir, front=None) as b:
            for name in ("front", "audit"):
                pid = self.role(b, name)
                for kind in ("pid", "mnt", "net", "ipc", "uts"):
                    theirs = os.readlink("/proc/%d/ns/%s" % (pid, kind))
                    self.assertNotEqual(theirs, os.readlink("/proc/self/ns/" + kind))

    @unittest.skipUnless(cl.ROOT, cl.ONLY_ROOT + "looks into another user's process")
    def test_empty_root(self):
        with Broker(self.dir, front=None) as b:
            root = "/proc/%d/root/" % self.role(b, "front")
            others = [n for n in os.listdir(root) if not n.startswith("state.db")]
            self.assertEqual(others, [])
            root = "/proc/%d/root/" % self.role(b, "audit")
            self.assertEqual([n for n in os.listdir(root) if not n.startswith("audit.log")], [])
            self.assertEqual(os.stat(b.state).st_mode & 0o777, 0o700)

    def test_come_back(self):
        with Broker(self.dir, front=None) as b:
            for name in ("front", "audit"):
                with self.subTest(name):
                    before = self.role(b, name)
                    os.kill(before, signal.SIGKILL)
                    puppet.await_true(lambda: not os.path.exists("/proc/%d" % before))
                    self.assertNotEqual(self.role(b, name), before)

    def test_die_with_the_broker(self):
        b = Broker(self.dir, front=None)
        pids = [self.role(b, name) for name in ("front", "audit")]
        b.process.kill()
        b.process.wait()
        for pid in pids:
            puppet.await_true(lambda: self.is_gone(pid))
        b.start()  # sandboxes live on; this one takes along what is in the pool
        self.role(b, "front")
        b.stop()

    def is_gone(self, pid):
        try:
            return status(pid)["State"].startswith(("Z", "X"))
        except OSError:
            return True

    def test_stop(self):
        b = Broker(self.dir, front=None)
        self.role(b, "front")
        self.assertEqual(b.stop(), 0)
        self.assertFalse(os.path.exists(b.socket))

    def test_not_by_hand(self):
        r = cl.command(os.path.join(puppet.BUILD, "cloched"), "role", "front")
        self.assertEqual(r.code, 125)
        self.assertIn("cloche serve", r.err)

    def test_check_config(self):
        good, bad = os.path.join(self.dir, "good"), os.path.join(self.dir, "bad")
        with open(good, "w", encoding="utf-8") as out:
            out.write("max_sandboxes: 3\n")
        with open(bad, "w", encoding="utf-8") as out:
            out.write("max_sandboxs: 3\n")
        r = cl.run("serve", "--check-config", "--config", good)
        self.assertEqual(r.code, 0, r)
        r = cl.run("serve", "--check-config", "--config", bad)
        self.assertEqual(r.code, 125, r)
        self.assertIn("max_sandboxs", r.err)


if __name__ == "__main__":
    unittest.main()
