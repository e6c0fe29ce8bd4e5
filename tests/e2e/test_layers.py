"""--require and --optional, and layers that are what the record says."""

import os

import cl

CONTAINER = (
    "user_ns",
    "pid_ns",
    "mount_ns",
    "net_ns",
    "ipc_ns",
    "uts_ns",
    "cgroup_ns",
    "root",
    "ids",
    "caps",
    "no_new_privs",
    "seccomp",
    "fds",
    "disk",
    "network",
)


class Require(cl.Case):
    def test_had(self):
        for layer in CONTAINER + ("landlock",):
            self.ok("run", "--require", layer, "--", "true")

    def test_several(self):
        args = [a for layer in CONTAINER for a in ("--require", layer)]
        self.ok("run", *args, "--", "true")

    def test_unknown(self):
        r = self.refused("run", "--require", "nonsense", "--", "echo", "ran", says="nonsense")
        self.assertIn("seccomp", r.err)
        self.refused("run", "--optional", "nonsense", "--", "echo", "ran", says="nonsense")

    def test_both(self):
        self.refused("run", "--require", "seccomp", "--optional", "seccomp", "--", "true")

    def test_cgroup_layers(self):
        """Had, or refused before anything runs; the record agrees with the answer."""
        missing = cl.record("--", "true")["layers"]["missing"]
        for layer in ("cgroup", "memory", "cpu", "pids"):
            mark = self.path("ran")
            r = cl.run("run", "--require", layer, "-w", self.dir, "--", "touch", mark)
            if layer in missing:
                self.assertEqual(r.code, 125, str(r))
                self.assertIn(layer, r.err)
                self.assertFalse(os.path.exists(mark), "it ran before it was refused")
            else:
                self.assertEqual(r.code, 0, str(r))

    def test_process_level_cannot(self):
        for layer in ("pid_ns", "net_ns", "root", "mount_ns"):
            self.refused(
                "run", "--level", "process", "--require", layer, "--", "echo", "ran", says=layer
            )

    def test_nothing_missing_for_root(self):
        self.need_root("cgroup limits need root here")
        self.assertEqual(cl.record("--", "true")["layers"]["missing"], [])


class True_(cl.Case):
    """Namespaces that are claimed differ from the host's."""

    def test_namespaces(self):
        kinds = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")
        inside = self.out(
            "sh", "-c", "for n in %s; do readlink /proc/self/ns/$n; done" % " ".join(kinds)
        ).split()
        for kind, link in zip(kinds, inside):
            self.assertNotEqual(link, os.readlink("/proc/self/ns/" + kind), kind)

    def test_a_disk_of_the_host_is_not_bounded(self):
        self.assertEqual(cl.record("--", "true")["layers"]["disk"], "tmpfs")
        self.assertEqual(cl.record("--workspace", self.mkdir("ws"), "--", "true")["layers"]["disk"], "none")

    def test_between_two_runs(self):
        one = self.out(
            "sh",
            "-c",
            "readlink /proc/self/ns/ipc; echo x > /dev/shm/shared; ipcmk -M 4096 >/dev/null",
        )
        two = self.out("sh", "-c", "ls /dev/shm; ipcs -m | grep -c 0x || true")
        self.assertEqual(two, "0\n")
        self.assertTrue(one)

    def test_cgroup_path_is_hidden(self):
        for line in self.out("cat", "/proc/self/cgroup").splitlines():
            self.assertTrue(line.endswith(":/"), line)

    def test_missing_is_a_list_of_layers(self):
        known = set(CONTAINER) | {"landlock", "cgroup", "memory", "cpu", "pids", "time_ns"}
        for level in ("container", "process"):
            missing = cl.record("--level", level, "--", "true")["layers"]["missing"]
            self.assertEqual(set(missing) - known, set())
