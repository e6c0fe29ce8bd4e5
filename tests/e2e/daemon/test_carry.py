"""A whole sandbox from one daemon to another: `cloche export` and `import`."""

import json
import os
import shutil
import subprocess

import served

FILES = ("mkdir -p ~/d; echo home > ~/d/f; ln -s f ~/d/l; echo work > /workspace/f; chmod 700 /workspace/f;"
         " head -c 300000 /dev/urandom > /workspace/large; sha256sum < /workspace/large")
LOOK = "cat ~/d/l /workspace/f; stat -c %a /workspace/f; sha256sum < /workspace/large"


class Carry(served.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.other = served.Daemon("pool_size: 0\n")
        cls.addClassCleanup(cls.other.end)
        cls.other.start()
        cls.box = cls.daemon.post("/v1/sandboxes", {
            "name": "carried", "metadata": {"a": "b"}, "memory": "300M", "pids": 77, "on_timeout": "pause",
            "env": {"TOKEN": "not carried"}}).json["id"]
        cls.sum = cls.daemon.post("/v1/sandboxes/%s/exec" % cls.box, {"shell": FILES}).json["stdout"]

    def setUp(self):
        self.dir = os.path.join(self.daemon.dir, "files")
        os.makedirs(self.dir)
        self.addCleanup(shutil.rmtree, self.dir)
        self.key = self.file("key", b"0123456789abcdef" * 4)

    def file(self, name, data):
        path = os.path.join(self.dir, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def content(self, path):
        with open(path, "rb") as f:
            return f.read()

    def export(self, *options):
        path = os.path.join(self.dir, "export")
        self.cloche("export", *options, self.box, path, ok=0)
        self.assertEqual(self.daemon.get("/v1/snapshots").json["snapshots"], [])
        return path

    def carry(self, path, *options, ok=None, stdin=b""):
        return self.cloche("import", *options, path, env=self.other.client_env(), ok=ok, stdin=stdin)

    def assert_nothing_there(self):
        boxes = self.other.get("/v1/sandboxes").json["sandboxes"]
        self.assertEqual([b["id"] for b in boxes if b["state"] not in ("destroyed", "failed")], [])
        self.assertEqual(self.other.get("/v1/snapshots").json["snapshots"], [])

    def assert_refused(self, path, pattern, *options):
        done = self.carry(path, *options, ok=125)
        self.assertRegex(done.err, pattern)
        self.assertEqual(done.out, "")
        self.assert_nothing_there()

    def test_there(self):
        for options in ((), ("--key-file", self.key), ("--passphrase-file", self.file("pass", b"a few words\n"))):
            with self.subTest(options=options):
                path = self.export(*options)
                if options:
                    self.assertNotIn(b"carried", self.content(path))
                box = self.carry(path, *options, "--ttl", "1h", ok=0).out.strip()
                made = self.other.get("/v1/sandboxes/" + box).json
                self.assertEqual((made["name"], made["metadata"], made["limits"]["memory"], made["limits"]["pids"],
                                  made["on_timeout"], made["network"]),
                                 ("carried", {"a": "b"}, 300 << 20, 77, "pause", "none"))
                seen = self.other.post("/v1/sandboxes/%s/exec" % box, {"shell": LOOK + "; echo $TOKEN"}).json
                self.assertEqual(seen["stdout"], "home\nwork\n700\n" + self.sum + "\n")
                self.other.delete("/v1/sandboxes/" + box)
                self.assert_nothing_there()
                os.unlink(path)

    def test_no_network_by_trust(self):
        """Whoever wrote the file does not get what the importer's token would."""
        key = self.other.token("trusted", "--trust", "4")
        env = dict(self.other.client_env(), CLOCHE_TOKEN=key, CLOCHE_URL="http://127.0.0.1:%d" % self.other.port)
        box = self.cloche("import", self.export(), env=env, ok=0).out.strip()
        self.addCleanup(self.other.delete, "/v1/sandboxes/" + box)
        self.assertEqual(self.other.get("/v1/sandboxes/" + box).json["network"], "none")

    def test_through_a_pipe(self):
        out = subprocess.run([served.CLOCHE, "export", "--key-file", self.key, self.box], stdout=subprocess.PIPE,
                             env=self.daemon.client_env(), check=True, timeout=60).stdout
        box = self.carry("-", "--key-file", self.key, "--name", "another", ok=0, stdin=out).out.strip()
        self.assertEqual(self.other.get("/v1/sandboxes/" + box).json["name"], "another")
        self.other.delete("/v1/sandboxes/" + box)

    def test_the_key_matters(self):
        path = self.export("--key-file", self.key)
        other = self.file("other", b"x" * 64)
        self.assert_refused(path, "key is another one", "--key-file", other)
        self.assert_refused(path, "needs --key-file")
        self.assert_refused(path, "needs --key-file", "--passphrase-file", other)
        self.assert_refused(path, "not both", "--key-file", self.key, "--passphrase-file", other)
        self.assert_refused(path, "too short", "--key-file", self.file("short", b"x" * 31))
        self.assert_refused(path, "cannot read", "--key-file", self.key + ".none")
        os.unlink(path)
        self.assert_refused(self.export(), "has no key", "--key-file", self.key)

    def test_what_was_changed_leaves_nothing(self):
        path = self.export("--key-file", self.key)
        whole = self.content(path)
        for at in (16, 20, 40, 60, 100, 70000, len(whole) // 2, len(whole) - 1):
            with self.subTest(flipped=at):
                changed = bytearray(whole)
                changed[at] ^= 1
                self.assert_refused(self.file("changed", bytes(changed)),
                                    "changed|cut off|not an export|needs --|none of", "--key-file", self.key)
        for length in (0, 10, 33, 57, 80, 70000, len(whole) - 65536, len(whole) - 1):
            with self.subTest(length=length):
                self.assert_refused(self.file("cut", whole[:length]), "cut off|not an export", "--key-file", self.key)
        self.assert_refused(self.file("long", whole + b"x"), "changed|goes on", "--key-file", self.key)

    def hostile(self, description, tar=b"\0" * 1024):
        """An export as somebody else could write it, without a key."""
        text = json.dumps(description).encode() if not isinstance(description, bytes) else description
        return self.file("hostile", self.sealed(len(text).to_bytes(4, "little") + text + tar))

    def sealed(self, clear):
        import ctypes
        import ctypes.util
        sodium = ctypes.CDLL(ctypes.util.find_library("sodium") or "libsodium.so.23")
        head = b"cloche-export-1\n" + bytes([0]) + b"s" * 16
        key, none = ctypes.create_string_buffer(32), b"an export without a key"
        sodium.crypto_generichash(key, ctypes.c_size_t(32), none, ctypes.c_ulonglong(len(none)), head[17:],
                                  ctypes.c_size_t(16))
        state = ctypes.create_string_buffer(sodium.crypto_secretstream_xchacha20poly1305_statebytes())
        first = ctypes.create_string_buffer(24)
        sodium.crypto_secretstream_xchacha20poly1305_init_push(state, first, key)
        out = head + first.raw
        pieces = [clear[i:i + 65536] for i in range(0, len(clear), 65536)]
        for i, piece in enumerate(pieces):
            closed = ctypes.create_string_buffer(len(piece) + 17)
            sodium.crypto_secretstream_xchacha20poly1305_push(
                state, closed, None, piece, ctypes.c_ulonglong(len(piece)), head if i == 0 else None,
                ctypes.c_ulonglong(len(head) if i == 0 else 0), ctypes.c_ubyte(3 if i == len(pieces) - 1 else 0))
            out += closed.raw
        return out

    def test_hostile_descriptions(self):
        for description, pattern in (
                (b"no json", "none of a sandbox"), ([], "none of a sandbox"), ({}, "none of a sandbox"),
                ({"create": []}, "none of a sandbox"), (b'{"create": {}, "create": {}}', "none of a sandbox"),
                ({"create": {"volumes": [{"name": "x", "path": "/x"}]}}, "'volumes'"),
                ({"create": {"net": "public"}}, "'net'"), ({"create": {"user": "root"}}, "'user'"),
                ({"create": {"memory": "999T"}}, "memory"),
                ({"create": {"image": "none"}, "image_id": "sha256:0"}, "none")):
            with self.subTest(description=description):
                self.assert_refused(self.hostile(description), pattern)
        self.assert_refused(self.file("hostile", self.sealed(b"\xff\xff\xff\x7f" + b"x" * 100)), "too long")
        self.assert_refused(self.file("hostile", self.sealed(b"\x01")), "no description")

    def test_hostile_files(self):
        import io
        import tarfile
        for name, kind, link in (("ws/../../x", tarfile.REGTYPE, ""), ("/etc/x", tarfile.REGTYPE, ""),
                                 ("ws/null", tarfile.CHRTYPE, ""), ("ws/disk", tarfile.BLKTYPE, ""),
                                 ("ws/l", tarfile.LNKTYPE, "../../etc/passwd")):
            with self.subTest(name=name):
                out = io.BytesIO()
                with tarfile.open(fileobj=out, mode="w") as tar:
                    entry = tarfile.TarInfo(name)
                    entry.type, entry.linkname, entry.devmajor, entry.devminor = kind, link, 1, 3
                    tar.addfile(entry)
                self.assert_refused(self.hostile({"create": {}}, out.getvalue()), "cannot be restored|tar")

    def test_a_daemon_that_is_killed(self):
        path = self.export("--key-file", self.key)
        reader, writer = os.pipe()
        command = subprocess.Popen([served.CLOCHE, "import", "--key-file", self.key], stdin=reader,
                                   env=self.other.client_env(), stderr=subprocess.PIPE)
        os.close(reader)
        with open(writer, "wb") as out:
            out.write(self.content(path)[:200000])
            out.flush()
            folder = os.path.join(self.other.dir, "state", "snapshots")
            served.harness.until(lambda: os.listdir(folder), "an unfinished snapshot")
            self.other.kill()
        self.assertEqual(command.wait(60), 125, command.stderr.read())
        command.stderr.close()
        self.other.start()
        self.assertEqual(os.listdir(folder), [])
        self.assert_nothing_there()
