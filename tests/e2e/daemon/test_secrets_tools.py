"""git, pip and npm inside a sandbox, with placeholders, against servers that want the real tokens."""

import glob
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import unittest
import zipfile

import harness
import netlab

TOKEN = "ghp-REAL-token-0123456789abcdef"
_daemon = None
_lab = None


def setUpModule():
    global _daemon, _lab
    _lab = netlab.Lab().start()
    _daemon = harness.Daemon(lab=_lab)
    key = os.path.join(_daemon.dir, "master")
    with open(key, "w", encoding="ascii") as out:
        out.write("ab" * 32)
    os.chmod(key, 0o400)
    _daemon.config = "pool_size: 0\nkeys: {master: {file: %s}}\n" % key
    _daemon.start()
    harness.until(lambda: _daemon.put("/v1/secrets/first", {"value": "x"}).status == 200, "the signer")


def tearDownModule():
    _daemon.stop()
    _daemon.remove()
    _lab.stop()


class Tools(harness.Case):
    @property
    def d(self):
        return _daemon

    def use(self, name, auth, server, **rule):
        self.assertEqual(self.d.put("/v1/secrets/" + name, {"value": TOKEN, **rule}).status, 200)
        _lab.publish(server, ".auth", auth)
        return self.box(secrets=[name], memory="1G")

    def sh(self, box, line):
        r = box.sh(line)
        self.assertEqual(r["exit_code"], 0, r)
        self.assertNotIn(TOKEN, json.dumps(r))
        return r["stdout"]

    def test_git(self):
        """A private repository is cloned and pushed to; the token is in the URL, as many tools put it there."""
        if not os.path.exists("/usr/lib/git-core/git-http-backend"):
            self.skipTest("git's server is not installed")
        box = self.use("GITHUB_TOKEN", "Authorization: Basic " + harness.b64(b"x-access-token:" + TOKEN.encode()),
                       "github.com")
        bare = os.path.join(_lab.dir, "git", "one.git")
        for args in (("init", "-q", "--bare", "-b", "main", bare), ("-C", bare, "config", "http.receivepack", "true")):
            subprocess.run(["git", *args], check=True)
        self.sh(box, """set -e; cd /tmp; git init -q -b main one; cd one; echo text >file; git add file
            git -c user.name=a -c user.email=a@b commit -qm first
            git push -q "https://x-access-token:$GITHUB_TOKEN@github.com/git/one.git" main""")
        self.assertEqual(subprocess.run(["git", "-C", bare, "-c", "safe.directory=*", "show", "main:file"],
                                        capture_output=True, check=True).stdout, b"text\n")
        again = self.sh(box, 'cd /tmp; git clone -q "https://x-access-token:$GITHUB_TOKEN@github.com/git/one.git" two && '
                             "cat two/file two/.git/config; env")
        self.assertIn("text", again)
        r = box.sh("GIT_TERMINAL_PROMPT=0 git clone -q https://x-access-token:wrong@github.com/git/one.git /tmp/three")
        self.assertNotEqual(r["exit_code"], 0)

    def test_pip(self):
        wheels = glob.glob("/usr/share/python-wheels/pip-*.whl")
        if not wheels:
            self.skipTest("there is no pip")
        box = self.use("PYPI_TOKEN", "Authorization: Basic " + harness.b64(b"__token__:" + TOKEN.encode()), "pypi.org",
                       hosts=["pypi.org"], header="basic")
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as z:
            z.writestr("demo.py", "answer = 42\n")
            z.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
            z.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            z.writestr("demo-1.0.dist-info/RECORD", "")
        name = "demo-1.0-py3-none-any.whl"
        _lab.publish("pypi.org", "simple/demo/index.html", f'<a href="/files/{name}">{name}</a>')
        _lab.publish("pypi.org", "files/" + name, data.getvalue())
        out = self.sh(box, f"/usr/bin/python3 {wheels[0]}/pip install -q --no-input --disable-pip-version-check --target /tmp/t "
                           '--index-url "https://__token__:$PYPI_TOKEN@pypi.org/simple/" demo && '
                           "PYTHONPATH=/tmp/t /usr/bin/python3 -c 'import demo; print(demo.answer)'")
        self.assertEqual(out.split()[-1], "42")

    def test_npm(self):
        if not shutil.which("npm", path="/usr/bin:/usr/local/bin"):
            self.skipTest("there is no npm")
        box = self.use("NPM_TOKEN", "Authorization: Bearer " + TOKEN, "registry.npmjs.org")
        package = json.dumps({"name": "demo", "version": "1.0.0", "main": "index.js"}).encode()
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as tar:
            for name, text in (("package/package.json", package), ("package/index.js", b"module.exports = 42\n")):
                info = tarfile.TarInfo(name)
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))
        tarball = data.getvalue()
        version = {**json.loads(package), "dist": {"tarball": "https://registry.npmjs.org/demo/-/demo-1.0.0.tgz",
                                                   "shasum": hashlib.sha1(tarball).hexdigest()}}
        _lab.publish("registry.npmjs.org", "demo/index.html",
                     json.dumps({"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))
        _lab.publish("registry.npmjs.org", "demo/-/demo-1.0.0.tgz", tarball)
        out = self.sh(box, "mkdir /tmp/p && cd /tmp/p && echo '//registry.npmjs.org/:_authToken=${NPM_TOKEN}' >.npmrc && "
                           "npm install --no-audit --no-fund --no-progress demo >&2 && node -p 'require(\"demo\")'")
        self.assertEqual(out.strip(), "42")


if __name__ == "__main__":
    unittest.main()
