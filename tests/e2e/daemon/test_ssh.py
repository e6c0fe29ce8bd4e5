"""`cloche ssh`: OpenSSH's own client reaches a sandbox through the daemon."""

import os
import pwd
import shutil
import subprocess
import unittest

import cl
import harness

SSHD = next((p for p in ("/usr/sbin/sshd", "/usr/bin/sshd") if os.access(p, os.X_OK)), None)
HAVE_CLIENT = all(map(shutil.which, ("ssh", "ssh-keygen", "scp")))


def has_name():
    try:
        return pwd.getpwuid(os.geteuid())
    except KeyError:
        return None


@unittest.skipUnless(SSHD and HAVE_CLIENT, "openssh-server is not installed")
@unittest.skipUnless(has_name(), "ssh does not work for users without a name")
class Ssh(harness.Case):
    def setUp(self):
        self.home = os.path.join(self.d.dir, "ssh-home")
        os.makedirs(self.home, exist_ok=True)

    def run_ssh(self, *words, stdin=b"", program=None, timeout=60):
        env = dict(self.d.env(), CLOCHE_URL="unix:" + self.d.sock, HOME=self.home, CLOCHE_STATE_DIR=self.home)
        return subprocess.run([*(program or [cl.CLOCHE, "ssh"]), *words], env=env, input=stdin, capture_output=True,
                              timeout=timeout, check=False)

    def test_command(self):
        box = self.box()
        done = self.run_ssh(box.id, "-q", 'cat; echo "$USER $(hostname)"; echo err >&2; exit 7', stdin=b"\0in\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, b"\0in\nuser cloche\n", b"err\n"))
        keys = [open(os.path.join(self.home, "ssh", box.id, name), encoding="ascii").read()
                for name in ("key.pub", "known_hosts")]
        again = self.run_ssh(box.id, "true")
        self.assertEqual((again.returncode, again.stderr), (0, b""), "nothing is asked or said")
        self.assertEqual(keys, [open(os.path.join(self.home, "ssh", box.id, name), encoding="ascii").read()
                                for name in ("key.pub", "known_hosts")])
        self.assertEqual(os.stat(os.path.join(self.home, "ssh", box.id, "key")).st_mode & 0o77, 0)

    def test_terminal(self):
        done = self.run_ssh(self.box().id, "-tt", "tty; stty size >/dev/null && echo has a size; exit 3")
        self.assertEqual(done.returncode, 3, done)
        self.assertIn(b"/dev/pts/", done.stdout)
        self.assertIn(b"has a size", done.stdout)

    def test_config(self):
        """What ~/.ssh/config gets is enough for scp and others."""
        box = self.box()
        config = os.path.join(self.d.dir, "ssh_config")
        with open(config, "wb") as out:
            out.write(self.run_ssh("--config", box.id).stdout)
        data = os.urandom(300000)
        with open(os.path.join(self.d.dir, "sent"), "wb") as out:
            out.write(data)
        host = "cloche-" + box.id
        scp = ["scp", "-q", "-F", config]
        done = self.run_ssh(os.path.join(self.d.dir, "sent"), host + ":/workspace/got", program=scp)
        self.assertEqual(done.returncode, 0, done)
        done = self.run_ssh(host + ":/workspace/got", os.path.join(self.d.dir, "back"), program=scp)
        with open(os.path.join(self.d.dir, "back"), "rb") as back:
            self.assertEqual(back.read(), data)

    def test_no_sshd(self):
        """A word about what is missing; a lying answer is not believed."""
        box = self.box()
        box.sh("mkdir -p ~/.cloche-ssh; printf 'ssh-ed25519 AAAA\\n* ssh-rsa BBBB\\n' >~/.cloche-ssh/host.pub")
        done = self.run_ssh(box.id, "-q", "true")
        self.assertNotEqual(done.returncode, 0)
        with open(os.path.join(self.home, "ssh", box.id, "known_hosts"), encoding="ascii") as text:
            self.assertEqual(text.read(), "cloche-%s ssh-ed25519 AAAA\n" % box.id)
        done = self.run_ssh("no-such-box", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"no-such-box", done.stderr)
