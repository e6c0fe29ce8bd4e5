"""`setup` where it cannot do its work; what it does where it can, the suites rest on."""

import os
import shutil

import cl

SETUP = os.path.join(cl.TOP, "setup")


@cl.unittest.skipUnless(os.path.exists(SETUP), cl.ONLY_ROOT + "it is not in the copy")
class Missing(cl.Case):
    def setUp(self):
        super().setUp()
        shutil.copy(SETUP, self.path("setup"))
        self.mkdir("bin")
        for name in ("sh", "dirname", "tr", "cat", "rm", "mktemp", "env", "sed"):
            os.symlink(shutil.which(name, path=cl.SHELL_PATH), self.path("bin/" + name))
        self.fake("dpkg-query", "exit 1")
        self.fake("id", "echo 1000")

    def fake(self, name, does):
        self.write("bin/" + name, "#!/bin/sh\n%s\n" % does, 0o755)

    def build(self):
        return cl.command("sh", "setup", "build", env={"PATH": self.path("bin")})

    def test_neither_root_nor_sudo(self):
        self.fake("apt-get", "exit 0")
        r = self.build()
        self.assertEqual((r.code, r.out), (1, ""), str(r))
        self.assertRegex(r.err, "as root first: apt-get install make gcc ")

    def test_no_apt(self):
        r = self.build()
        self.assertEqual(r.code, 1, str(r))
        self.assertIn("install the likes of: make gcc ", r.err)

    def test_installing_fails(self):
        self.fake("sudo", "shift; echo no such package; exit 100")
        self.fake("apt-get", "exit 0")
        r = self.build()
        self.assertEqual(r.code, 100, str(r))
        self.assertIn("no such package", r.err)
