"""The roles of the daemon: what each is allowed, as the kernel tells; and that they come back."""

import errno
import os
import signal
import socket
import unittest

import cl
import inject
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
class Case(cl.Case):
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


class Roles(Case):
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
            others = [n for n in os.listdir(root) if not n.startswith(("state.db", ".reserve"))]
            self.assertEqual(others, [])
            root = "/proc/%d/root/" % self.role(b, "audit")
            self.assertEqual([n for n in os.listdir(root) if not n.startswith(("audit.log", ".reserve"))], [])
            self.assertEqual(os.stat(b.state).st_mode & 0o777, 0o700)

    def test_come_back(self):
        with Broker(self.dir, front=None) as b:
            for name in ("front", "audit"):
                with self.subTest(name):
                    before = self.role(b, name)
                    os.kill(before, signal.SIGKILL)
                    puppet.await_true(lambda: not os.path.exists("/proc/%d" % before))
                    self.assertNotEqual(self.role(b, name), before)

    @unittest.skipUnless(cl.ROOT, cl.ONLY_ROOT + "looks into another user's process")
    def test_environment(self):
        """The operator's environment may hold secrets; roles get what they need of it."""
        known = {"CLOCHE_LOG", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LANG", "TZ", "CLOCHE_TEST_TIME"}
        with Broker(self.dir, front=None, env={"CLOCHE_SECRET": "x", "SECRET": "x"}) as b:
            for name in ("front", "audit"):
                with open("/proc/%d/environ" % self.role(b, name), "rb") as text:
                    names = {line.partition(b"=")[0].decode() for line in text.read().split(b"\0") if line}
                self.assertEqual(names - known, set(), name)

    def test_die_with_the_broker(self):
        """Even if they stand still: nobody waits for them to notice."""
        b = Broker(self.dir, front=None)
        pids = [self.role(b, name) for name in ("front", "audit")]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
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


E = errno
# Nobody's: what no role may do, whatever it needs for its own work.
NEVER = {
    "execve": (b"/bin/true", 0, 0), "execveat": (-100, b"/bin/true", 0, 0, 0), "fork": (), "vfork": (),
    "clone": (17, 0, 0, 0, 0), "clone3": (0, 0), "kill": (1, 9), "tkill": (1, 9), "ptrace": (16, 1, 0, 0),
    "process_vm_readv": (1, 0, 0, 0, 0, 0), "process_vm_writev": (1, 0, 0, 0, 0, 0), "pidfd_open": (1, 0),
    "pidfd_getfd": (0, 0, 0), "mount": (b"x", b"/", b"tmpfs", 0, 0), "umount2": (b"/", 2), "pivot_root": (b"/", b"/"),
    "chroot": (b"/",), "unshare": (0x10000000,), "setns": (3, 0), "open_tree": (-100, b"/", 0),
    "move_mount": (-1, b"", -1, b"", 0), "fsopen": (b"tmpfs", 0), "setuid": (0,), "setgid": (0,), "capset": (0, 0),
    "mknod": (b"/null", 0o20666, 259), "mknodat": (-100, b"/null", 0o20666, 259), "bpf": (0, 0, 0),
    "perf_event_open": (0, 0, -1, -1, 0), "userfaultfd": (0,), "io_uring_setup": (1, 0), "keyctl": (0, 0, 0, 0, 0),
    "add_key": (b"user", b"k", b"v", 1, -3), "init_module": (0, 0, b""), "kexec_load": (0, 0, 0, 0), "reboot": (0, 0, 0, 0),
    "swapon": (b"/x", 0), "sethostname": (b"x", 1), "settimeofday": (0, 0), "open_by_handle_at": (-100, 0, 0),
    "personality": (0x40000,), "shmget": (0, 4096, 0o1000), "msgget": (0, 0o1000), "fanotify_init": (0, 0),
    "bind": (0, 0, 0), "listen": (0, 1), "symlink": (b"/etc", b"/out"),
}
REMOTE_NEEDS = ("bind",)  # the resolver
CONNECTS = {"socket": (2, 1, 0), "connect": (0, 0, 0)}
# In its own root nothing of the host is to be seen.
HOST_PATHS = (b"/etc/passwd", b"/proc/self/status", b"/proc/1/root", b"/dev/null", b"/usr", b"/sys", b"/run", b"/tmp",
              b"/../etc/passwd")


@unittest.skipUnless(inject.SUPPORTED, cl.ONLY_ROOT + "makes calls inside other processes (x86-64)")
class Refusals(Case):
    """Each call is made in the role's own process, behind everything that confines it."""

    def refuses(self, t, calls, errnos=(E.EPERM, E.ENOSYS)):
        for name, args in calls.items():
            with self.subTest(name):
                got = t.call(name, *args)
                self.assertIn(-got, errnos, "%s gave %d" % (name, got))

    def sees_no_host(self, t):
        for path in HOST_PATHS:
            with self.subTest(path=path):
                self.assertIn(-t.call("openat", -100, path, 0), (E.ENOENT, E.EACCES, E.EPERM), path)

    def works(self, t, pid):
        """The control: a call that is allowed is made in that process."""
        self.assertEqual(t.call("getpid"), 1)

    def test_front(self):
        canary = self.canary()
        with Broker(self.dir, front=None) as b:
            pid = self.role(b, "front")
            puppet.await_true(lambda: os.path.exists(b.socket))
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(b.socket)
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertIn(b"200", client.recv(65536))
                with inject.Tracee(pid) as t:
                    self.works(t, pid)
                    self.refuses(t, {**NEVER, **CONNECTS, "socketpair": (2, 1, 0, b"12345678")})
                    self.sees_no_host(t)
                    # Landlock: a directory of the host's that got in by an open door.
                    inner = t.receive(client, canary)
                    self.assertEqual(t.call("openat", inner, b"canary", 0), -E.EACCES)
                    self.assertEqual(t.call("openat", inner, b"new", 0o101, 0o600), -E.EACCES)
                    self.assertGreaterEqual(t.call("openat", -100, b"/own", 0o102, 0o600), 0)
            self.assertEqual(self.role(b, "front"), pid)  # it goes on
            os.unlink(os.path.join(b.state, "db", "own"))

    def test_signer(self):
        """It has every key: nothing but its two files is to be had, and no way out but the broker."""
        key, config = os.path.join(self.dir, "master"), os.path.join(self.dir, "cloche.yaml")
        with open(key, "w", encoding="ascii") as out:
            out.write("ab" * 32)
        os.chmod(key, 0o400)
        with open(config, "w", encoding="utf-8") as out:
            out.write("keys:\n  master: {file: %s}\n" % key)
        with Broker(self.dir, config=config, front=None) as b:
            pid = self.role(b, "signer")
            with inject.Tracee(pid) as t:
                self.works(t, pid)
                self.refuses(t, {**NEVER, **CONNECTS, "socketpair": (1, 1, 0, b"12345678")})
                self.sees_no_host(t)
                for path in (key, b.state, os.path.join(b.state, "db", "state.db"), os.path.join(b.state, "agents")):
                    self.assertIn(-t.call("openat", -100, path.encode(), 0), (E.ENOENT, E.EACCES, E.EPERM), path)
            self.assertEqual(self.role(b, "signer"), pid)  # it goes on

    def canary(self):
        """A directory that everybody can read and write."""
        path = os.path.join(self.dir, "canary-dir")
        os.mkdir(path)
        with open(os.path.join(path, "canary"), "w", encoding="ascii") as out:
            out.write("seen")
        os.chmod(os.path.join(path, "canary"), 0o666)
        os.chmod(path, 0o777)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, fd)
        return fd

    def test_audit(self):
        """Its directory is the operator's, beside which others can read."""
        log = os.path.join(self.dir, "canary-dir", "log")
        self.canary()
        os.mkdir(log)
        os.chown(log, 12345, 12345)
        config = os.path.join(self.dir, "config")
        with open(config, "w", encoding="utf-8") as out:
            out.write("audit: {file: %s/a.log}\n" % log)
        with Broker(self.dir, config=config, front=None) as b:
            pid = self.role(b, "audit")
            with inject.Tracee(pid) as t:
                self.works(t, pid)
                self.refuses(t, {**NEVER, **CONNECTS, "socketpair": (1, 1, 0, b"12345678")})
                self.sees_no_host(t)
                self.assertGreaterEqual(t.call("openat", 6, b"a.log", 0), 0)
                self.assertEqual(t.call("openat", 6, b"../canary", 0), -E.EACCES)  # Landlock
                self.assertEqual(t.call("openat", 6, b"../new", 0o101, 0o600), -E.EACCES)
            self.assertEqual(self.role(b, "audit"), pid)

    def test_remote(self):
        """It connects out, and reads what that needs, and nothing else of the host."""
        key, config = os.path.join(self.dir, "key"), os.path.join(self.dir, "config")
        with open(key, "w", encoding="ascii") as out:
            out.write("e2b_" + "0" * 40)
        with open(config, "w", encoding="utf-8") as out:
            out.write("e2b: {api_url: 'http://127.0.0.1:1', key_file: %s}\n" % key)
        os.chmod(self.dir, 0o755)
        canary = os.path.join(self.dir, "canary-dir", "canary").encode()
        self.canary()
        with Broker(self.dir, config=config, front=None) as b:
            pid = self.role(b, "remote")
            with inject.Tracee(pid) as t:
                self.works(t, pid)
                self.refuses(t, {k: v for k, v in NEVER.items() if k not in REMOTE_NEEDS})
                for path in (b"/etc/passwd", b"/proc/self/status", b"/proc/1/environ", b"/usr/bin/env", canary,
                             key.encode(), b"/", b"/root", b"/tmp"):
                    with self.subTest(path=path):
                        self.assertIn(-t.call("openat", -100, path, 0), (E.EACCES, E.ENOENT), path)
                self.assertEqual(t.call("openat", -100, os.path.dirname(canary) + b"/new", 0o101, 0o600), -E.EACCES)
                for kind in ((1, 1, 0), (2, 3, 1), (16, 3, 9), (17, 3, 0)):  # Unix, raw, netlink, packet
                    self.assertEqual(t.call("socket", *kind), -E.EAFNOSUPPORT, kind)
                self.assertGreaterEqual(t.call("socket", 2, 1, 0), 0)
            self.assertEqual(self.role(b, "remote"), pid)


if __name__ == "__main__":
    unittest.main()
