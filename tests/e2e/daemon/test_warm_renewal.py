"""Warm interpreters give way when what they are made of changes."""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

import harness  # noqa: E402
import cl  # noqa: E402

CONFIG = """
images:
  mine: %s
sandbox:
  image: mine
warm:
  slots: 2
  preload: [marker]
"""
IMAGES_CONFIG = """
images:
  mine: %s
warm:
  slots: 2
  preload: [marker]
"""
HOST_CONFIG = """
warm:
  slots: 2
  preload: [marker]
"""

# What a program of the tests may import.
LIST = """
import sys, json, os, re, traceback, types, importlib.machinery, atexit, threading, encodings.utf_8
import encodings.latin_1, encodings.ascii
print(json.dumps([m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)]))
"""


def make_image(root):
    """The smallest one that Python starts in, with a module of our own."""
    python = os.path.realpath("/usr/bin/python3")
    cl.copy_program(root, python)
    os.symlink(os.path.basename(python), os.path.join(root, "usr/bin/python3"))
    listed = subprocess.run([python, "-I", "-c", LIST], capture_output=True, text=True, check=True)
    for path in json.loads(listed.stdout):
        if not path.startswith("/usr/"):
            continue
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        shutil.copy(path, root + path)
    return os.path.join(root, "usr/lib/python%d.%d" % sys.version_info[:2])


class Steps:
    """What a daemon's runs see while a module changes; self.daemon and self.modules are given."""

    asked = {}

    def write(self, name, text):
        with open(os.path.join(self.modules, name), "w", encoding="utf-8") as file:
            file.write(text)

    def value(self):
        """Of the module, and whether the run was warm."""
        reply = self.daemon.post("/v1/run", dict(self.asked, code="import marker; print(marker.VALUE)"))
        assert reply.status == 200 and reply.json["exit_code"] == 0, reply
        is_warm, notes = bool(reply.json["layers"]["recycled"]), reply.json["notes"]
        assert is_warm == (not any(n.startswith("Ran cold: ") for n in notes)), reply
        return int(reply.json["stdout"]), is_warm

    def follow(self, value):
        """From now on runs have this value: soon, and warm again."""
        harness.until(lambda: self.value() == (value, True), "a warm run with %d" % value)
        seen = [self.value() for _ in range(6)]
        assert seen == [(value, True)] * 6, seen

    def run(self):
        self.follow(1)
        self.write("marker.py", "VALUE = 2\n")
        self.follow(2)
        # As package managers do it: another file takes its place.
        self.write("new.py", "VALUE = 3\n")
        os.rename(os.path.join(self.modules, "new.py"), os.path.join(self.modules, "marker.py"))
        self.follow(3)
        # A package shadows the module: only the directory has changed.
        os.mkdir(os.path.join(self.modules, "marker"))
        self.write("marker/__init__.py", "VALUE = 4\n")
        self.follow(4)


@harness.needs_warm
class Renewal(unittest.TestCase):
    def test_of_an_image(self):
        steps = Steps()
        steps.daemon = harness.Daemon()
        root = os.path.join(steps.daemon.dir, "image")
        steps.modules = make_image(root)
        steps.write("marker.py", "VALUE = 1\n")
        steps.daemon.config = CONFIG % root
        steps.daemon.start()
        try:
            steps.run()
        finally:
            steps.daemon.stop()
            steps.daemon.remove()

    def test_of_an_image_that_is_asked_for(self):
        """It has interpreters of its own, beside the host's; and others when the settings mean another one."""
        steps = Steps()
        steps.daemon, steps.asked = harness.Daemon(), {"image": "mine"}
        roots = [os.path.join(steps.daemon.dir, name) for name in ("one", "two")]
        for value, root in enumerate(roots, 5):
            steps.modules = make_image(root)
            steps.write("marker.py", "VALUE = %d\n" % value)
        steps.daemon.config = IMAGES_CONFIG % roots[0]
        steps.daemon.start()
        try:
            steps.follow(5)
            self.assertIn("ModuleNotFoundError", self.of_host(steps.daemon))
            with open(os.path.join(steps.daemon.dir, "cloche.yaml"), "w", encoding="utf-8") as file:
                file.write(IMAGES_CONFIG % roots[1])
            steps.daemon.process.send_signal(signal.SIGHUP)
            steps.follow(6)
            unknown = steps.daemon.post("/v1/run", {"code": "pass", "image": "nowhere"})
            self.assertEqual((unknown.status, unknown.error["field"]), (404, "image"), unknown)
        finally:
            steps.daemon.stop()
            steps.daemon.remove()

    def of_host(self, daemon):
        def ask():
            record = daemon.post("/v1/run", {"code": "import marker"}).json
            return record["layers"]["recycled"] and record["stderr"]

        return harness.until(ask, "a warm run of the host's Python")

    @unittest.skipUnless(harness.ROOT, cl.ONLY_ROOT + "mounts over a directory of the host's Python")
    def test_of_the_host(self):
        """In a mount namespace of its own: nothing of the host changes."""
        inside = subprocess.run(
            ["unshare", "-m", "--propagation", "private", sys.executable, os.path.abspath(__file__)],
            capture_output=True, text=True, timeout=180,
        )
        if inside.returncode == 77:
            self.skipTest(inside.stdout.strip())
        self.assertEqual((inside.returncode, inside.stdout), (0, "followed\n"), inside.stderr)


def inside():
    places = glob.glob("/usr/local/lib/python3*/dist-packages")
    if not places:
        print("there is no directory for local modules")
        sys.exit(77)
    steps = Steps()
    steps.daemon = harness.Daemon(config=HOST_CONFIG)
    steps.modules = os.path.join(steps.daemon.dir, "modules")
    os.mkdir(steps.modules)
    os.chmod(steps.modules, 0o755)
    for place in places:
        subprocess.run(["mount", "--bind", steps.modules, place], check=True)
    steps.write("marker.py", "VALUE = 1\n")
    steps.daemon.start()
    try:
        steps.run()
    finally:
        steps.daemon.stop()
        steps.daemon.remove()
    print("followed")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    inside()
