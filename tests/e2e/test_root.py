"""--user root: uid 0 of a namespace below the sandbox's own."""

import functools
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import zipfile

import cl

NESTED = ["chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "net_bind_service",
          "sys_chroot", "setfcap"]
# What makes set-id files and file capabilities that the host would obey.
MARKS = {"fsetid", "setfcap"}
MASK = "00000000800404fb"

# try_(NAME, CODE) prints "NAME ok" or "NAME ERRNO".
TRY = """
import ctypes, errno, fcntl, os, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def try_(name, what):
    try:
        what()
        print(name, "ok")
    except OSError as e:
        print(name, errno.errorcode[e.errno])
def call(name, *args):
    ctypes.set_errno(0)
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)
CAPS = struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0)
def write(path, text, flags=0):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    os.write(fd, text)
    os.close(fd)
"""


def tries(rec):
    """What TRY printed, as a dictionary."""
    return dict(line.split(" ", 1) for line in rec["stdout"].splitlines())


class Root(cl.Case):
    def root(self, *args, **kw):
        return cl.record("--user", "root", *args, code=kw.pop("code", 0), **kw)

    def snippet(self, code, *options, **kw):
        return self.root(*options, "--", *cl.py(TRY + code), **kw)


class Truth(Root):
    """What the record says is what holds."""

    def test_layers(self):
        rec = self.root("--empty", "--", "/bin/sh", "-c", "id -u; id -g; id -G; grep ^Cap.*: /proc/self/status; "
                        "grep NoNewPrivs /proc/self/status; cat /proc/self/uid_map; echo $HOME $USER")
        layers, lines = rec["layers"], rec["stdout"].split("\n")
        self.assertEqual(lines[0:2], ["0", "0"], rec)
        caps = {line.split()[0]: line.split()[1] for line in lines if line.startswith("Cap")}
        self.assertEqual(caps["CapInh:"], "0" * 16)
        self.assertEqual(caps["CapAmb:"], "0" * 16)
        held = MASK if cl.ROOT else "0" * 16
        self.assertEqual((caps["CapPrm:"], caps["CapEff:"], caps["CapBnd:"]), (held,) * 3)
        self.assertIn("NoNewPrivs:\t1", rec["stdout"])
        self.assertEqual(layers["root_inside"], "nested" if cl.ROOT else "answered")
        self.assertEqual(layers["caps"], NESTED if cl.ROOT else "none")
        self.assertEqual([m for m in layers["missing"] if m not in ("cgroup", "memory", "cpu", "pids")], [], layers)
        self.assertTrue(layers["landlock_abi"] > 0 or not cl.ROOT, layers)
        self.assertTrue(layers["ids"] and layers["no_new_privs"] and layers["user_ns"])
        self.assertTrue(layers["seccomp"].startswith("root@" if cl.ROOT else "answered@"), layers)
        if cl.ROOT:
            self.assertEqual(lines[2], "0", "no other groups")
            self.assertIn("0          0      65535", rec["stdout"])

    def test_ordinary_is_as_before(self):
        for user in ((), ("--user", "user")):
            layers = cl.record("--empty", *user, "--", "/bin/true", code=0)["layers"]
            self.assertEqual(layers["caps"], "none")
            self.assertNotIn("root_inside", layers)
            self.assertTrue(layers["seccomp"].startswith("default@"))

    def test_names(self):
        self.assertEqual(cl.run("run", "--empty", "--user", "0", "--", "id", "-u").out, "0\n")
        self.refused("run", "--empty", "--user", "postgres", "--", "true", says="user: 'postgres'")

    def test_refused(self):
        self.refused("run", "--user", "root", "--root", "overlay", "--empty", "--", "true", says="cloche: user: ")
        self.refused("run", "--user", "root", "--level", "process", "--", "true", says="cloche: user: ")


class Walls(Root):
    def test_pid_1_is_out_of_reach(self):
        rec = self.snippet("""
try_("term", lambda: os.kill(1, signal.SIGTERM))
try_("exists", lambda: os.kill(1, 0))
try_("mem", lambda: os.open("/proc/1/mem", os.O_RDWR))
try_("environ", lambda: open("/proc/1/environ", "rb").read())
try_("oom", lambda: write("/proc/1/oom_score_adj", b"5"))
try_("exe", lambda: os.readlink("/proc/1/exe"))
try_("fd", lambda: os.listdir("/proc/1/fd"))
try_("root", lambda: os.listdir("/proc/1/root"))
try_("user_ns", lambda: os.readlink("/proc/1/ns/user"))
try_("limits", lambda: write("/proc/1/limits", b"x"))
try_("affinity", lambda: os.sched_setaffinity(1, {0}))
""", "--empty")
        found = tries(rec)
        if not cl.ROOT:
            # It has the same id, as without root inside; it does what only its keeper says.
            self.assertEqual((found.pop("term"), found.pop("exists")), ("ok", "ok"))
        self.assertEqual(set(found.values()) - {"EACCES", "EPERM"}, set(), rec["stdout"])

    def test_pid_1_has_an_id_that_root_inside_does_not(self):
        self.need_root("without ids to choose from it has the same")
        ids = self.root("--empty", "--", "/bin/sh", "-c", "grep -E '^[UG]id:' /proc/1/status")["stdout"].split()
        self.assertEqual(ids, ["Uid:", *["65534"] * 4, "Gid:", *["65534"] * 4])

    def test_signal_in_the_first_instruction(self):
        self.assertEqual(self.root("--empty", "--", "/bin/sh", "-c", "kill -KILL 1; kill -TERM 1; kill -INT 1; echo on")
                         ["stdout"], "on\n")

    def test_all_capabilities_are_of_the_namespace_below(self):
        rec = self.snippet("""
s = socket.socket()
ifreq = struct.pack("16sh14x", b"lo", 0)
try_("lo-down", lambda: fcntl.ioctl(s, 0x8914, ifreq))
try_("mark", lambda: s.setsockopt(socket.SOL_SOCKET, 36, 5))
try_("transparent", lambda: s.setsockopt(socket.IPPROTO_IP, 19, 1))
try_("device", lambda: os.mknod("/tmp/null", 0o20666, os.makedev(1, 3)))
try_("whiteout", lambda: os.mknod("/tmp/white", 0o20000, 0))
try_("hostname", lambda: socket.sethostname("x"))
try_("mount", lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None))
try_("unshare", lambda: call("unshare", 0x10000000))
try_("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
try_("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
write("/tmp/f", b"", os.O_CREAT)
try_("trusted", lambda: os.setxattr("/tmp/f", "trusted.x", b"1"))
try_("immutable", lambda: fcntl.ioctl(os.open("/tmp/f", os.O_RDONLY), 0x40086602, struct.pack("l", 0x10)))
try_("sysctl", lambda: write("/proc/sys/net/ipv4/ip_forward", b"1"))
try_("nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, -10))
""", "--empty")
        found = tries(rec)
        if not cl.ROOT:
            self.assertEqual(found.pop("device"), "ok", "answered")
            self.assertEqual(found.pop("whiteout"), "ok", "answered")
        allowed = {"EPERM", "EACCES", "EROFS", "EAFNOSUPPORT", "ENOTTY", "EOPNOTSUPP"}
        self.assertEqual({k: v for k, v in found.items() if v not in allowed}, {}, rec["stdout"])

    def test_signals_of_the_caller_arrive(self):
        p = cl.start("run", "--empty", "--user", "root", "--", "/bin/sh", "-c",
                     "trap 'echo got; exit 7' INT; echo ready; while :; do sleep 0.05; done")
        self.assertEqual(p.stdout.readline(), b"ready\n")
        p.send_signal(signal.SIGINT)
        r = cl.finish(p)
        self.assertEqual((r.code, r.out), (7, "got\n"), str(r))

    def test_time_ends_it_with_its_children(self):
        mark = cl.marker()
        r = cl.run("run", "--empty", "--user", "root", "-t", "300ms", "--", "/bin/sh", "-c",
                   "setsid sleep %s & sleep %s" % (mark, mark))
        self.assertEqual(r.code, 124, str(r))
        self.assertFalse(cl.gone(mark))

    def test_processes_of_all_ids_are_counted_together(self):
        self.need_root("only then there are several ids")
        rec = self.snippet("""
n = 0
try:
    for uid in range(6):
        for i in range(10):
            if os.fork() == 0:
                os.setresuid(uid, uid, uid)
                signal.pause()
            n += 1
except OSError as e:
    print(errno.errorcode[e.errno], n < 31)
""", "--empty", "--pids", "30")
        self.assertEqual(rec["stdout"], "EAGAIN True\n", rec)

    def test_rename_across_directories(self):
        self.assertEqual(self.snippet("""
os.makedirs("a/b"); os.mkdir("c"); write("a/b/f", b"x", os.O_CREAT)
try_("rename", lambda: os.rename("a/b/f", "c/f"))
try_("link", lambda: os.link("c/f", "a/g"))
try_("directory", lambda: os.rename("a/b", "c/b"))
""", "--empty")["stdout"], "rename ok\nlink ok\ndirectory ok\n")

    def test_services(self):
        rec = self.snippet("""
try_("port", lambda: socket.socket().bind(("0.0.0.0", 80)))
try_("socket", lambda: socket.socket(socket.AF_UNIX).bind("/tmp/s"))
try_("setuid", lambda: os.setresuid(33, 33, 33))
print("uid", os.getuid())
""", "--empty")
        self.assertEqual(tries(rec), {"port": "ok", "socket": "ok", "setuid": "ok", "uid": "33" if cl.ROOT else "0"})

    def test_denials_are_seen(self):
        rec = self.snippet("""
s = socket.socket()
try_("connect", lambda: s.connect(("198.51.100.7", 80)))
try_("ptrace", lambda: call("ptrace", 16, 1, 0, 0))
""", "--empty")
        self.assertEqual({d["target"] for d in rec["denials"]}, {"198.51.100.7:80", "ptrace"})

    def test_terminal_is_its_own(self):
        r = cl.command("script", "-qec", "%s run --empty --user root --tty -- /bin/sh -c 'stat -c %%u $(tty)'" % cl.CLOCHE,
                       "/dev/null")
        self.assertTrue(r.out.strip().endswith("0"), str(r))


class Host(Root):
    """The host's files: root inside is their owner's stand-in, and nobody else's."""

    def stage(self):
        """A directory of one user, with files of others."""
        top = self.mkdir("ws")
        self.write("ws/own", "own\n", 0o600)
        self.write("ws/tool", "#!/bin/sh\n", 0o755)
        if cl.ROOT:
            self.write("ws/foreign", "foreign\n", 0o600)
            self.write("ws/hosts", "root's\n", 0o600)
            os.mkdir(self.path("ws/closed"), 0o700)
            for name, uid in (("", 4711), ("own", 4711), ("tool", 4711), ("foreign", 4712), ("closed", 4712), ("hosts", 0)):
                os.chown(os.path.join(top, name), uid, uid)
        return top

    ACTS = """
os.chdir("/workspace" if len(sys.argv) < 2 else sys.argv[1])
try_("read-own", lambda: open("own").read())
try_("suid", lambda: os.chmod("tool", 0o4755))
try_("suid-new", lambda: os.close(os.open("new-suid", os.O_CREAT | os.O_WRONLY, 0o4755)))
try_("caps", lambda: os.setxattr("tool", "security.capability", CAPS))
try_("user", lambda: os.chown("own", 33, 33))
try_("make", lambda: write("made", b"x", os.O_CREAT))
for name in ("foreign", "hosts"):
    if os.path.lexists(name):
        try_("read-" + name, lambda: open(name).read())
        try_("take-" + name, lambda: os.chown(name, 0, 0))
        try_("mode-" + name, lambda: os.chmod(name, 0o666))
if os.path.lexists("closed"):
    try_("list-closed", lambda: os.listdir("closed"))
    try_("remove-closed", lambda: os.rename("closed", "gone"))
"""

    def check_host(self, top, owner):
        """Nothing there has set-id bits, capabilities, or a new owner."""
        for path, dirs, names in os.walk(top):
            for name in dirs + names:
                full = os.path.join(path, name)
                st = os.lstat(full)
                self.assertFalse(st.st_mode & (stat.S_ISUID | stat.S_ISGID), full)
                self.assertNotIn("security.capability", os.listxattr(full, follow_symlinks=False), full)
                self.assertIn(st.st_uid, owner, full)

    def check_foreign(self, found):
        for name, answer in found.items():
            if name.split("-")[-1] in ("foreign", "hosts", "closed") and name != "remove-closed":
                self.assertIn(answer, ("EACCES", "EPERM", "EOVERFLOW", "EINVAL", "EROFS"), (name, found))

    def test_direct(self):
        top = self.stage()
        rec = self.snippet(self.ACTS, "--workspace", top)
        found = tries(rec)
        self.check_foreign(found)
        self.assertEqual((found["read-own"], found["make"]), ("ok", "ok"), found)
        self.assertEqual({found[k] for k in ("suid", "suid-new", "caps")}, {"EPERM"}, found)
        self.check_host(top, (4711, 4712, 0) if cl.ROOT else (os.geteuid(),))
        if cl.ROOT:
            self.assertEqual(os.stat(self.path("ws/made")).st_uid, 4711)
            self.assertEqual(os.stat(self.path("ws/own")).st_uid, 4711)
            self.assertNotEqual(found["user"], "ok")
            self.assertEqual(set(NESTED) - set(rec["layers"]["caps"]), MARKS)
            self.assertTrue(rec["layers"]["seccomp"].startswith("root_shared@"))
        else:
            self.assertTrue(rec["layers"]["seccomp"].startswith("answered_shared@"))

    def test_writable_mount(self):
        top = self.stage()
        found = tries(self.root("--empty", "-v", top + ":/mnt/x:rw", "--", *cl.py(TRY + self.ACTS, "/mnt/x")))
        self.check_foreign(found)
        self.assertEqual({found[k] for k in ("suid", "suid-new", "caps")}, {"EPERM"}, found)
        self.check_host(top, (4711, 4712, 0) if cl.ROOT else (os.geteuid(),))

    def test_read_only_mount(self):
        top = self.stage()
        rec = self.root("--empty", "-v", top + ":/mnt/x", "--", *cl.py(TRY + self.ACTS, "/mnt/x"))
        found = tries(rec)
        self.check_foreign(found)
        self.assertEqual(found["read-own"], "ok")
        self.assertEqual({found[k] for k in ("suid", "caps", "make")}, {"EROFS"}, found)

    def test_copy_on_write(self):
        top = self.stage()
        rec = self.snippet(self.ACTS, "--apply", cwd=top)
        found = tries(rec)
        self.check_foreign(found)
        self.assertEqual((found["read-own"], found["suid"]), ("ok", "ok"), found)
        self.check_host(top, (4711, 4712, 0) if cl.ROOT else (os.geteuid(),))
        self.assertTrue(os.path.exists(self.path("ws/made")), rec)
        with open(self.path("ws/own"), encoding="ascii") as f:
            self.assertEqual(f.read(), "own\n")

    def test_same_owner(self):
        """An image and a workspace of one owner: only the image keeps its ids."""
        self.need_root("files of several owners")
        top = self.mkdir("small")
        for program in (os.path.realpath("/bin/sh"), "/usr/bin/cat"):
            cl.copy_program(top, program)
        work = self.mkdir("work")
        for where in (top, work):
            with open(where + "/of-33", "w", encoding="ascii") as f:
                f.write("content\n")
            os.chmod(where + "/of-33", 0o600)
            os.chown(where + "/of-33", 33, 33)
        for options in (("-w", work), ("-v", work + ":/mnt/x", "--empty")):
            rec = self.root("--image", top, "--root", "overlay", *options, "--", os.path.realpath("/bin/sh"), "-c",
                            "/usr/bin/cat /of-33; /usr/bin/cat /workspace/of-33 /mnt/x/of-33 2>/dev/null; true")
            self.assertEqual(rec["stdout"], "content\n", rec)

    def test_capture_has_content_only(self):
        rec = self.root("--empty", "--capture", "f", "--", "/bin/sh", "-c", "echo x > f; chmod 4755 f")
        self.assertEqual([f["path"] for f in rec["files"]], ["f"])
        self.assertNotIn("mode", rec["files"][0])

    def test_suid_and_file_capabilities_give_nothing(self):
        """no_new_privs and nosuid, on each mount that can be written."""
        self.need_root("only then there is another id to come from")
        rec = self.snippet("""
import shutil
for place in ("/tmp", "/var/tmp", "/dev/shm", "/home/user", "/workspace"):
    for how in ("suid", "caps"):
        program = place + "/" + how
        shutil.copy("/usr/bin/id", program)
        os.chmod(program, 0o4755 if how == "suid" else 0o755)
        if how == "caps":
            os.setxattr(program, "security.capability", CAPS)
        pid = os.fork()
        if pid == 0:
            os.setresgid(33, 33, 33); os.setresuid(33, 33, 33)
            os.execv(program, ["id", "-u"])
        os.waitpid(pid, 0)
""", "--empty")
        self.assertEqual(rec["stdout"], "33\n" * 10, rec)


# ---- programs of an image ----

PROGRAMS = """bash sh cat cp mv rm ln ls mkdir mktemp chmod chown touch true tar gzip sed grep find sort tail id env
    dirname basename readlink stat sleep tr cut head uname date rmdir diff dpkg dpkg-deb dpkg-query dpkg-split
    dpkg-trigger apt-get apt-cache apt-config sync su getent useradd groupadd userdel ldconfig start-stop-daemon
    xz zstd nologin python3 node redis-server setpriv""".split()
CONFIG = ["/etc/apt/apt.conf.d", "/etc/dpkg", "/etc/login.defs", "/etc/pam.d", "/etc/pam.conf", "/etc/security",
          "/etc/default/useradd", "/etc/nsswitch.conf", "/usr/lib/apt", "/usr/share/dpkg", "/usr/lib/dpkg",
          "/usr/share/perl5/Dpkg"]
PACKAGE = """Package: %s
Version: 1.0
Architecture: all
Maintainer: nobody <nobody@example.com>
Description: for a test
"""


def copy_library_dir(root, path):
    """A directory of shared objects (PAM's modules)."""
    for name in os.listdir(path):
        if ".so" in name:
            cl.copy_program(root, os.path.join(path, name))


@functools.cache
def debian():
    """A small Debian root, made of the host's programs; None where the host is no Debian."""
    if not shutil.which("dpkg") or not shutil.which("apt-get", path=cl.SHELL_PATH):
        return None
    root = tempfile.mkdtemp(prefix="debian-", dir=cl.base_dir())
    os.chmod(root, 0o755)
    for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64"):
        os.makedirs(os.path.join(root, name))
    for name in ("bin", "sbin", "lib", "lib64"):
        os.symlink("usr/" + name, os.path.join(root, name))
    for name in PROGRAMS:
        path = shutil.which(name, path=cl.SHELL_PATH)
        if path:
            cl.copy_program(root, os.path.realpath(path))
            if os.path.realpath(path) != path and not os.path.lexists(root + path):
                os.symlink(os.path.realpath(path), root + path)
    for path in CONFIG:
        if os.path.isdir(path):
            shutil.copytree(path, root + path, symlinks=True, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("opasswd"))
        elif os.path.exists(path):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            shutil.copy(path, root + path)
    for path, dirs, names in os.walk(root + "/usr/lib/apt"):
        for name in names:
            cl.copy_program(root, os.path.join(path, name)[len(root):])
    for where in ("/usr/lib/x86_64-linux-gnu/security", "/usr/lib/aarch64-linux-gnu/security"):
        if os.path.isdir(where):
            copy_library_dir(root, where)
    for name in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/lib/apt/lists/partial",
                 "var/cache/apt/archives/partial", "var/log/apt", "etc/apt/sources.list.d", "etc/apt/preferences.d",
                 "etc/apt/trusted.gpg.d", "root", "home", "run", "var/mail", "var/tmp", "tmp"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    users = "root:x:0:0:root:/root:/bin/bash\n_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n" \
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    for name, text in (("etc/passwd", users), ("etc/group", "root:x:0:\nmail:x:8:\nnogroup:x:65534:\n"),
                       ("etc/shadow", "root:*:1::::::\n_apt:*:1::::::\n"), ("etc/gshadow", "root:*::\nnogroup:*::\n"),
                       ("var/lib/dpkg/status", ""), ("var/lib/dpkg/available", ""), ("etc/debian_version", "12.0\n"),
                       ("etc/apt/sources.list", "deb [trusted=yes] file:/repo ./\n")):
        with open(os.path.join(root, name), "w", encoding="ascii") as f:
            f.write(text)
    for name in os.listdir(root + "/etc/apt/apt.conf.d"):
        os.unlink(os.path.join(root, "etc/apt/apt.conf.d", name))
    return root


class Programs(Root):
    """Package managers, users, services."""

    def setUp(self):
        super().setUp()
        self.image = debian()
        if not self.image:
            self.skipTest("the host's programs are not Debian's")

    def package(self, name, files, postinst):
        top = self.mkdir("p/" + name)
        for path, (text, mode) in files.items():
            self.write(os.path.join("p", name, path), text, mode)
            os.chmod(os.path.join(top, path), mode)
        self.write("p/%s/DEBIAN/control" % name, PACKAGE % name)
        self.write("p/%s/DEBIAN/postinst" % name, "#!/bin/sh\nset -e\n" + postinst, 0o755)
        os.makedirs(self.path("repo"), exist_ok=True)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", top, self.path("repo", name + ".deb")],
                       check=True, stdout=subprocess.DEVNULL)

    def inside(self, script, *options, **kw):
        more = () if cl.ROOT else ("--file", "apt.conf=" + self.write("apt.conf", 'APT::Sandbox::User "root";\n'),
                                   "--env", "APT_CONFIG=/workspace/apt.conf")
        return self.root("--image", self.image, "--root", "overlay", "--empty", *more, *options, "--", "/bin/sh", "-ec",
                         script, **kw)

    def repository(self):
        self.package("tool-suid", {"usr/bin/tool-suid": ("#!/bin/sh\necho ran\n", 0o4755)},
                     "useradd -r -M -s /usr/sbin/nologin svc\nmkdir -p /var/lib/svc\nchown svc: /var/lib/svc\n"
                     "chown root:svc /usr/bin/tool-suid\nchmod 4750 /usr/bin/tool-suid\n")
        self.need_program("dpkg-scanpackages")
        with open(self.path("repo/Packages"), "wb") as f:
            subprocess.run(["dpkg-scanpackages", "."], cwd=self.path("repo"), stdout=f, stderr=subprocess.DEVNULL,
                           check=True)
        return "%s:/repo" % self.path("repo")

    def test_apt_get_install(self):
        rec = self.inside("apt-get update >/dev/null && apt-get install -y tool-suid >/tmp/log 2>&1 || { cat /tmp/log; "
                          "exit 1; }; tool-suid; stat -c '%a %U %G' /usr/bin/tool-suid /var/lib/svc",
                          "-v", self.repository())
        self.assertEqual(rec["stdout"], "ran\n4750 root svc\n755 svc svc\n" if cl.ROOT
                         else "ran\n4750 root root\n755 root root\n", rec)

    def test_with_a_writable_mount_set_id_stays_refused(self):
        rec = self.inside("dpkg -i /repo/tool-suid.deb && exit 1; stat -c %a /usr/bin/tool-suid || true",
                          "-v", self.repository(), "-v", self.mkdir("rw") + ":/mnt/rw:rw")
        self.assertNotIn("4", rec["stdout"][:1], rec)
        self.assertTrue(any("Set-user-id" in d["explain"] for d in rec["denials"]), rec["denials"])

    def test_users(self):
        rec = self.inside("useradd -m bob; id -u bob; stat -c %U /home/bob; su bob -c 'id -u; touch ~/f'; "
                          "stat -c %U /home/bob/f; userdel -r bob || echo left")
        self.assertEqual(rec["stdout"], "1000\nbob\n1000\nbob\n" if cl.ROOT else "1000\nroot\n0\nroot\nleft\n", rec)

    def test_nothing_is_left_in_the_image(self):
        self.inside("touch /usr/bin/new; chmod 4755 /usr/bin/new; chown 33:33 /etc/passwd")
        self.assertFalse(os.path.lexists(self.image + "/usr/bin/new"))
        self.assertEqual(os.stat(self.image + "/etc/passwd").st_uid, os.geteuid())

    def test_image_of_one_user_with_files_of_others(self):
        """An image keeps its ids, also when it is not root's."""
        self.need_root("files of several owners")
        top = self.mkdir("small")
        cl.copy_program(top, os.path.realpath("/bin/sh"))
        cl.copy_program(top, "/usr/bin/stat")
        os.makedirs(top + "/bin", exist_ok=True)
        if not os.path.exists(top + "/bin/sh"):
            os.symlink(os.path.realpath("/bin/sh"), top + "/bin/sh")
        self.write("small/of-33", "x", 0o600)
        os.chown(self.path("small/of-33"), 33, 33)
        rec = self.root("--image", top, "--root", "overlay", "--empty", "--", "/bin/sh", "-c",
                        "/usr/bin/stat -c %u /of-33 /")
        self.assertEqual(rec["stdout"], "33\n0\n", rec)

    def test_system_wide_pip(self):
        self.need_program("pip3")
        wheel = self.path("repo/made_here-1.0-py3-none-any.whl")
        os.makedirs(self.path("repo"))
        with zipfile.ZipFile(wheel, "w") as z:
            info = "made_here-1.0.dist-info/"
            z.writestr("made_here.py", "print('imported')\n")
            z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: made-here\nVersion: 1.0\n")
            z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            z.writestr(info + "RECORD", "made_here.py,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n" % (info, info, info))
        rec = self.inside("python3 -m pip install --no-index --break-system-packages -q --root-user-action=ignore "
                          "/repo/*.whl >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }; cd /; python3 -c 'import made_here'",
                          "-v", self.path("repo") + ":/repo", *self.shown("/usr/lib/python3", subprocess.check_output(
                              [cl.PYTHON, "-I", "-c", "import os; print(os.path.dirname(os.__file__), end='')"], text=True)))
        self.assertEqual(rec["stdout"], "imported\n", rec)

    def shown(self, *paths):
        """Mounts of the host's own libraries."""
        return [x for path in paths if os.path.isdir(path) for x in ("-v", "%s:%s" % (path, path))]

    def test_global_npm(self):
        self.need_program("npm")
        os.makedirs(self.path("n/bin"))
        self.write("n/package.json", '{"name": "made-here", "version": "1.0.0", "bin": {"made-here": "bin/x.js"}}')
        self.write("n/bin/x.js", "#!/usr/bin/env node\nconsole.log('ran')\n", 0o755)
        subprocess.run(["tar", "-C", self.dir, "--transform", "s,^n,package,", "-czf", self.path("made-here.tgz"), "n"],
                       check=True)
        rec = self.inside("%s install -g --prefix /usr/local --offline /made-here.tgz >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }; made-here"
                          % os.path.realpath(shutil.which("npm", path=cl.SHELL_PATH)), "-v",
                          self.path("made-here.tgz") + ":/made-here.tgz",
                          *self.shown("/usr/share/nodejs", "/usr/share/node_modules", "/usr/lib/node_modules/npm"))
        self.assertEqual(rec["stdout"], "ran\n", rec)

    def test_redis_drops_its_rights(self):
        """As the entrypoints of images do: root takes the directory, then starts the server as its user."""
        self.need_program("redis-server")
        rec = self.inside("mkdir -p /srv/data; chown 999:999 /srv/data; cd /srv/data; setpriv --reuid 999 --regid 999 "
                          "--clear-groups redis-server --port 0 --unixsocket /srv/data/s --daemonize yes --pidfile "
                          "/srv/data/pid >/dev/null; while ! test -S s; do sleep 0.05; done; stat -c %u s")
        self.assertEqual(rec["stdout"], "999\n" if cl.ROOT else "0\n", rec)
