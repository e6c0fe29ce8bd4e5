"""Sandboxes of the daemon with root inside: a right of the token."""

import io
import tarfile

import cl
import harness

PROBE = """
import ctypes, errno, os, signal, socket, fcntl, struct
libc = ctypes.CDLL(None, use_errno=True)
def try_(name, what):
    try:
        what()
        print(name, "ok")
    except OSError as e:
        print(name, errno.errorcode[e.errno])
try_("mem", lambda: os.open("/proc/1/mem", os.O_RDWR))
try_("environ", lambda: open("/proc/1/environ", "rb").read())
try_("exe", lambda: os.readlink("/proc/1/exe"))
try_("fd", lambda: os.listdir("/proc/1/fd"))
try_("root", lambda: os.listdir("/proc/1/root"))
try_("oom", lambda: open("/proc/1/oom_score_adj", "w"))
s = socket.socket()
try_("lo-down", lambda: fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0)))
try_("sysctl", lambda: open("/proc/sys/net/ipv4/ip_forward", "w"))
try_("device", lambda: os.mknod("/tmp/null", 0o20666, os.makedev(1, 3)))
for sig in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    try:
        os.kill(1, sig)
    except OSError:
        pass
"""


class Right(harness.Case):
    def test_a_token_without_it(self):
        key = self.d.token("no-root")
        for path, body in (("/v1/sandboxes", {"root": "ro", "user": "root"}),
                           ("/v1/run", {"cmd": ["id"], "user": "root"})):
            self.assertError(self.d.post(path, body, token=key), 403, "denied", "user")
        self.assertEqual(self.d.post("/v1/run", {"cmd": ["id", "-u"]}, token=key).json["stdout"], "1000\n")

    def test_a_token_with_it(self):
        key = self.d.token("with-root", "--root")
        record = self.d.post("/v1/run", {"cmd": ["id", "-u"], "user": "root"}, token=key).json
        self.assertEqual(record["stdout"], "0\n", record)

    def test_refused(self):
        self.assertError(self.d.post("/v1/sandboxes", {"root": "overlay", "user": "root"}), 400, field="user")
        self.assertError(self.d.post("/v1/sandboxes", {"root": "ro", "user": "postgres"}), 501, field="user")


class Inside(harness.Case):
    def root(self):
        return self.box(root="ro", user="root")

    def test_layers_are_what_holds(self):
        box = self.root()
        layers = box.get("").json["layers"]
        text = box.sh("id -u; grep -E '^(Cap|NoNewPrivs)' /proc/self/status; cat /proc/self/uid_map")["stdout"]
        held = "00000000800404fb" if cl.ROOT else "0" * 16
        self.assertTrue(text.startswith("0\n"), text)
        for name in ("CapPrm", "CapEff", "CapBnd"):
            self.assertIn("%s:\t%s\n" % (name, held), text)
        self.assertIn("NoNewPrivs:\t1", text)
        self.assertEqual(layers["root_inside"], "nested" if cl.ROOT else "answered", layers)
        self.assertEqual(layers["caps"], ["chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid",
                                          "net_bind_service", "sys_chroot", "setfcap"] if cl.ROOT else "none")
        self.assertTrue(layers["seccomp"].startswith("root@" if cl.ROOT else "answered@"), layers)

    def test_the_guest_is_out_of_reach(self):
        box = self.root()
        found = dict(x.split() for x in box.exec(*cl.py(PROBE)).json["stdout"].splitlines())
        if not cl.ROOT:
            self.assertEqual(found.pop("device"), "ok", "answered")
            # Its own id owns them; neither gives more than the end of this sandbox.
            found.pop("fd")
            found.pop("oom")
        self.assertEqual(set(found.values()) - {"EACCES", "EPERM", "EROFS"}, set(), found)
        self.assertEqual(box.sh("echo alive")["stdout"], "alive\n")

    def test_files_and_users(self):
        box = self.root()
        self.assertEqual(box.put("/files?path=/tmp/f", b"x").status // 100, 2)
        text = box.sh("stat -c %u /tmp/f; chown 33:33 /tmp/f; stat -c %u /tmp/f; echo $USER")["stdout"]
        self.assertEqual(text, "0\n33\nroot\n" if cl.ROOT else "0\n0\nroot\n")
        self.assertEqual(box.get("/files?path=/tmp/f").body, b"x")
        self.assertEqual(box.sh("id -u; echo $USER", user="user")["stdout"], "1000\nuser\n" if cl.ROOT else "0\nuser\n")

    def test_denials_are_told_by_its_own_filter(self):
        box = self.root()
        record = box.exec(*cl.py("import os\ntry: os.unshare(0x10000000)\nexcept AttributeError:\n import ctypes\n"
                                 " ctypes.CDLL(None).unshare(0x10000000)\nexcept OSError: pass")).json
        self.assertEqual([d["target"] for d in record["denials"]], ["unshare"], record)

    def test_it_stays_root_over_a_stop(self):
        box = self.root()
        self.assertEqual(box.post("/stop").status // 100, 2)
        self.assertEqual(box.post("/start").status // 100, 2)
        self.assertEqual(box.sh("id -u")["stdout"], "0\n")

    def test_others_are_not(self):
        self.assertEqual(self.box(root="ro").sh("id -u")["stdout"], "1000\n")

    def test_snapshots_and_tars_are_stripped(self):
        box = self.root()
        box.exec(*cl.py("import os, struct\nopen('/workspace/f', 'w').close()\nos.chmod('/workspace/f', 0o6755)\n"
                        "os.mkdir('/workspace/d')\nos.chmod('/workspace/d', 0o2755)\n"
                        "try: os.setxattr('/workspace/f', 'security.capability', "
                        "struct.pack('<5I', 0x02000001, 128, 0, 0, 0))\nexcept OSError: pass"))
        self.assertEqual(box.sh("stat -c %a /workspace/f")["stdout"], "6755\n")
        with tarfile.open(fileobj=io.BytesIO(box.get("/files/tar?path=/workspace").body)) as tar:
            members = tar.getmembers()
        self.assertEqual({m.mode & 0o6000 for m in members}, {0}, members)
        self.assertEqual([k for m in members for k in m.pax_headers if "capability" in k], [])
        made = box.post("/snapshot", {"name": "marked"}).json
        self.addCleanup(self.d.delete, "/v1/snapshots/" + made["id"])
        for options in ({}, {"user": "root"}):
            again = self.box(root="ro", snapshot=made["id"], **options)
            text = again.exec(*cl.py("import os\nfor n in 'fd':\n p = '/workspace/' + n\n"
                                     " print(oct(os.stat(p).st_mode & 0o6777), os.listxattr(p))")).json["stdout"]
            self.assertEqual(text, "0o755 []\n0o755 []\n", options)
