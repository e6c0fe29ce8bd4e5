"""The daemon as the command line sees it: one for each class of tests, with its own settings.

    class X(served.Case):
        settings = "pool_size: 0\\n"             of cloche.conf.yaml
    self.cloche("ps")                           runs the command line against it
    self.cloche("ps", env=self.over_tcp())      over TCP, where a token is needed
"""
import os
import signal
import subprocess
import unittest

import cl
import harness

CLOCHE = cl.CLOCHE
TOP = cl.TOP
LIMIT = 60


class Done:
    def __init__(self, p):
        self.code, self.raw, self.err = p.returncode, p.stdout, p.stderr.decode("utf-8", "replace")
        self.out = p.stdout.decode("utf-8", "replace")

    def __str__(self):
        return f"exit {self.code}\nstdout: {self.out[-2000:]}\nstderr: {self.err[-2000:]}"


def wait_for(what):
    return harness.until(what, deadline=LIMIT)


class Daemon(harness.Daemon):
    def __init__(self, settings):
        super().__init__(config=settings)
        self.state = os.path.join(self.dir, "state")
        self.settings_file = os.path.join(self.dir, "cloche.yaml")

    def write_settings(self, text):
        with open(self.settings_file + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.rename(self.settings_file + ".new", self.settings_file)

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def client_env(self, more=None):
        return {**self.env(), "CLOCHE_URL": "unix:" + self.sock, **(more or {})}

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        try:
            self.stop()
        finally:
            self.remove()


class Case(unittest.TestCase):
    settings = "pool_size: 0\n"

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(cls.settings)
        cls.addClassCleanup(cls.daemon.end)
        cls.prepare()
        cls.daemon.start()

    @classmethod
    def prepare(cls):
        """Before the daemon starts."""

    def cloche(self, *args, stdin=b"", env=None, ok=None):
        """ok: the exit status that it must have; None: any."""
        p = subprocess.run([CLOCHE, *args], input=stdin, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, timeout=2 * LIMIT, check=False,
                           env=self.daemon.client_env(env))
        done = Done(p)
        if ok is not None:
            self.assertEqual(done.code, ok, f"cloche {' '.join(args)}: {done}")
        return done

    def create(self, *args, env=None):
        box = self.cloche("create", *args, env=env, ok=0).out.strip()
        self.assertRegex(box, "^[a-z0-9]{16,}$")
        self.addCleanup(self.cloche, "rm", box, env=env)
        return box

    def token(self, name, *options):
        """Makes one: its key, and the environment of a client over TCP that has it."""
        key = self.daemon.token(name, *options)
        return key, {**self.over_tcp(), "CLOCHE_TOKEN": key}

    def over_tcp(self):
        return {"CLOCHE_URL": f"http://127.0.0.1:{self.daemon.port}"}
