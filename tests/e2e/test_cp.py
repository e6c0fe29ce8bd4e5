"""`cloche cp` out of a sandbox whose guest lies: a false daemon sends what no honest guest would."""

import http.server
import io
import json
import os
import socketserver
import stat
import tarfile
import threading

import cl


BOX = "boxboxboxboxboxbox"  # a whole id, which needs no search


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, *args):
        """A client that has seen enough closes the connection."""


class Cp(cl.Case):
    def setUp(self):
        super().setUp()
        case = self
        self.kind, self.body = "directory", b""

        class Answers(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if "/files/tar" in self.path or ("/files?" in self.path and "stat=1" not in self.path):
                    return self.send(case.body, "application/octet-stream")
                return self.send(json.dumps({"type": case.kind}).encode(), "application/json")

            def send(self, body, kind):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def address_string(self):
                return "unix"

            def log_message(self, *args):
                pass

        server = Server(self.path("s"), Answers)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.mkdir("out")
        self.write("secret", "mine")

    def archive(self, *entries):
        """Of (name, type, extra members)."""
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, kind, extra in entries:
                info = tarfile.TarInfo(name)
                info.type, info.mode = kind, 0o644
                data = extra.pop("data", b"")
                for key, value in extra.items():
                    setattr(info, key, value)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        self.body = made.getvalue()

    def cp(self, *args, source=BOX + ":d"):
        args = args or (self.path("out"),)
        return cl.run("cp", source, *args, env=cl.caller_env(CLOCHE_URL="unix:" + self.path("s")))

    def made(self):
        return sorted(
            os.path.relpath(os.path.join(at, name), self.path("out"))
            for at, dirs, files in os.walk(self.path("out"))
            for name in dirs + files
        )

    def test_honest(self):
        self.archive(
            (".", tarfile.DIRTYPE, {"mode": 0o777}),
            ("a", tarfile.DIRTYPE, {"mode": 0o750}),
            ("a/f", tarfile.REGTYPE, {"data": b"text", "mode": 0o755}),
            ("a/l", tarfile.SYMTYPE, {"linkname": "../a/f"}),
            ("a/h", tarfile.LNKTYPE, {"linkname": "a/f"}),
        )
        r = self.cp()
        self.assertEqual((r.code, r.err), (0, ""), str(r))
        self.assertEqual(self.made(), ["d", "d/a", "d/a/f", "d/a/h", "d/a/l"])
        self.assertEqual(self.read("out/d/a/l"), "text")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("out/d/a/f")).st_mode) & 0o700, 0o700)

    def test_names_that_lead_out(self):
        for name in ("/" + self.path("planted"), "../planted", "a/../../planted"):
            with self.subTest(name):
                self.archive((name, tarfile.REGTYPE, {"data": b"x"}))
                r = self.cp()
                self.assertEqual(r.code, 125, str(r))
                self.assertIn("leads out", r.err)
                self.assertFalse(os.path.exists(self.path("planted")))
                self.assertFalse(os.path.exists(self.path("out/planted")))

    def test_hard_links_that_lead_out(self):
        for link in (self.path("secret"), "../../secret", "l/secret"):
            with self.subTest(link):
                os.makedirs(self.path("out/d"), exist_ok=True)
                if link.startswith("l/") and not os.path.lexists(self.path("out/d/l")):
                    os.symlink(self.dir, self.path("out/d/l"))
                self.archive(("h", tarfile.LNKTYPE, {"linkname": link}), ("h", tarfile.REGTYPE, {"data": b"x"}))
                self.assertEqual(self.cp().code, 125)
                self.assertEqual((self.read("secret"), os.stat(self.path("secret")).st_nlink), ("mine", 1))

    def test_special_files_and_modes(self):
        self.archive(
            ("c", tarfile.CHRTYPE, {"devmajor": 1, "devminor": 3}),
            ("b", tarfile.BLKTYPE, {"devmajor": 7, "devminor": 0}),
            ("p", tarfile.FIFOTYPE, {}),
            ("s", tarfile.REGTYPE, {"data": b"#!/bin/sh", "mode": 0o6777}),
            ("d", tarfile.DIRTYPE, {"mode": 0o3777}),
        )
        r = self.cp()
        self.assertEqual(r.code, 0, str(r))
        self.assertEqual(self.made(), ["d", "d/d", "d/s"])
        for name in "cbp":
            self.assertRegex(r.err, "skipped %s: neither" % name)
        for name in ("d", "s"):
            self.assertEqual(os.stat(self.path("out/d", name)).st_mode & 0o7022, 0)

    def test_links_that_lead_out(self):
        """Not made, so that nothing that is copied later, or run here, follows them."""
        self.archive(
            ("abs", tarfile.SYMTYPE, {"linkname": self.dir}),
            ("up", tarfile.SYMTYPE, {"linkname": ".."}),
            ("a/b/c/top", tarfile.SYMTYPE, {"linkname": "../../.."}),
            ("twisted", tarfile.SYMTYPE, {"linkname": "a/b/c/top/.."}),
            ("abs/planted", tarfile.REGTYPE, {"data": b"x"}),
        )
        r = self.cp()
        self.assertEqual(r.code, 0, str(r))
        for name in ("abs", "up", "twisted"):
            self.assertRegex(r.err, "skipped %s: a link that leads out" % name)
            self.assertFalse(os.path.islink(self.path("out/d", name)))
        self.assertEqual(self.read("out/d/abs/planted"), "x")
        self.assertFalse(os.path.exists(self.path("planted")))

    def test_hard_link_to_a_link(self):
        """A link that stays within, deep down, would lead out from the top."""
        self.archive(
            ("a/b/in", tarfile.SYMTYPE, {"linkname": "../../x"}),
            ("moved", tarfile.LNKTYPE, {"linkname": "a/b/in"}),
        )
        r = self.cp()
        self.assertEqual(r.code, 0, str(r))
        self.assertIn("skipped moved: ", r.err)
        self.assertTrue(os.path.islink(self.path("out/d/a/b/in")))
        self.assertFalse(os.path.lexists(self.path("out/d/moved")))

    def test_links_that_are_there(self):
        """Whoever brought them, they are not followed."""
        self.mkdir("victim")
        os.chmod(self.path("victim"), 0o700)
        self.mkdir("out/d/own")
        os.chmod(self.path("out/d/own"), 0o700)
        os.symlink(self.path("victim"), self.path("out/d/dir"))
        os.symlink(self.path("secret"), self.path("out/d/file"))
        self.archive(("dir/x", tarfile.REGTYPE, {"data": b"x"}))
        self.assertEqual(self.cp().code, 125)
        self.archive(("file", tarfile.REGTYPE, {"data": b"x"}), ("own", tarfile.DIRTYPE, {"mode": 0o777}), ("dir", tarfile.DIRTYPE, {"mode": 0o777}))
        self.assertEqual(self.cp().code, 0)
        self.assertEqual((os.listdir(self.path("victim")), self.read("secret")), ([], "mine"))
        for name in ("victim", "out/d/own"):
            self.assertEqual(stat.S_IMODE(os.stat(self.path(name)).st_mode), 0o700)
        # The directory itself is a link.
        os.symlink(self.path("victim"), self.path("out/e"))
        self.assertEqual(self.cp(source=BOX + ":e").code, 125)
        self.assertEqual(os.listdir(self.path("victim")), [])

    def test_file_onto_a_link(self):
        os.mkfifo(self.path("pipe"))
        self.kind, self.body = "file", b"bytes"
        for target in (self.path("pipe"), "/dev/null"):
            with self.subTest(target):
                os.symlink(target, self.path("out/f"))
                for to in ("out", "out/f"):
                    r = self.cp(self.path(to), source=BOX + ":f")
                    self.assertEqual(r.code, 125, str(r))
                os.unlink(self.path("out/f"))
        os.symlink(self.path("secret"), self.path("out/f"))
        self.assertEqual(self.cp(self.path("out/f"), source=BOX + ":f").code, 0)
        self.assertEqual((self.read("secret"), self.read("out/f")), ("mine", "bytes"))
        self.assertEqual(self.cp("/dev/stdout", source=BOX + ":f").out, "bytes")
        self.assertEqual(self.cp("/dev/null", source=BOX + ":f").code, 0)
        self.assertEqual(self.cp(self.path("out"), source=BOX + ":x/..").code, 125)

    def test_broken_archives(self):
        self.archive(("f", tarfile.REGTYPE, {"data": b"x" * 2000}))
        whole = self.body
        for body in (whole[:700], b"x" * 512, whole + b"\0" * (2 << 20), whole[:600] + b"\0" * 100):
            with self.subTest(len(body)):
                self.body = body
                r = self.cp()
                self.assertEqual(r.code, 125, str(r))
