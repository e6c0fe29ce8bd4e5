"""The operator's seccomp profile, which holds for every command of every sandbox."""

import hashlib
import os
import shutil

import cl
import harness

PROFILE = "default allow\nerrno EACCES mkdir mkdirat\n"
TRY = "import os\ntry:\n    os.mkdir('/tmp/d'); print('made')\nexcept OSError as e:\n    print(e.errno)"


class OwnProfile(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon("")
        path = os.path.join(cls.daemon.dir, "profile.txt")
        with open(path, "w", encoding="ascii") as file:
            file.write(PROFILE)
        cls.daemon.config += "sandbox: {seccomp: %s}\npool_size: 1\n" % path
        cls.daemon.start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()
        cls.daemon.remove()

    @property
    def d(self):
        return self.daemon

    def run_as(self, warm, **body):
        reply = harness.until(lambda: (lambda r: r if r.status == 200 else None)(
            self.d.post("/v1/run", dict(body, warm="only" if warm else "off"))), "a run")
        name = "own@" + hashlib.sha256(PROFILE.encode()).hexdigest()[:10]
        self.assertTrue(reply.json["layers"]["seccomp"].endswith(" " + name), reply.json["layers"])
        self.assertEqual(bool(reply.json["layers"]["recycled"]), warm)
        return reply.json["stdout"]

    def test_holds_for_runs(self):
        for warm in (False,) if cl.is_sanitized() else (False, True):
            with self.subTest(warm=warm):
                self.assertEqual(self.run_as(warm, code=TRY), "13\n")
                self.assertEqual(self.run_as(warm, cmd=["python3", "-c", TRY]), "13\n")
                self.assertEqual(self.run_as(warm, code=TRY, files=[{"path": "a/b", "content": "x"}]), "13\n")
                if shutil.which("node"):
                    code = "try { require('fs').mkdirSync('/tmp/d') } catch (e) { console.log(e.code) }"
                    self.assertEqual(self.run_as(warm, language="node", code=code), "EACCES\n")

    def test_holds_in_sandboxes(self):
        box = harness.Box(self.d)
        self.addCleanup(box.delete)
        for body in ({"cmd": ["python3", "-c", TRY]}, {"cmd": ["python3", "-c", TRY], "tty": True}, {"code": TRY},
                     {"code": TRY}, {"code": TRY}, {"shell": "python3 -c \"%s\"" % TRY, "session": "s"}):
            with self.subTest(body):
                self.assertEqual(box.post("/exec", body).json["stdout"].strip(), "13")
        self.assertIn(" own@", box.get("").json["layers"]["seccomp"])
        # What clients ask of the guest is not a command.
        self.assertEqual(box.put("/files?path=/tmp/x/y", b"text").status, 200)

    def test_a_profile_that_cannot_be_used(self):
        other = harness.Daemon("sandbox: {seccomp: /nonexistent}\n")
        self.addCleanup(other.remove)
        with self.assertRaises(Exception):
            other.start()
        self.assertIn("sandbox.seccomp", other.read_log())
