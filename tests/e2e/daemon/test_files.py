"""Files of a sandbox: whole, in parts, by name, as trees, watched."""

import http.client
import io
import os
import tarfile
import threading
import unittest

import harness
from harness import quote


class Files(harness.Case):
    def test_long_bodies_go_past_the_http_library(self):
        box, data = self.box(), os.urandom(3 << 20)
        path = "/files?path=/tmp/long"
        self.assertLess(box.put(path, data).status, 300)
        self.assertEqual(box.get(path).body, data)
        part = box.get(path, headers={"Range": "bytes=7-%d" % ((2 << 20) + 6)})
        self.assertEqual((part.status, part.body), (206, data[7:(2 << 20) + 7]))
        head = self.d.request("HEAD", box.path + path)
        self.assertEqual((head.status, head.headers["Content-Length"], head.body), (200, str(len(data)), b""))
        # Who leaves in the middle harms nobody.
        for _ in range(4):
            with self.d.stream("GET", box.path + path) as stream:
                stream.reply.read(1000)
        self.assertEqual(box.get(path).body, data)

    def test_write_and_read(self):
        box, data = self.box(), os.urandom(300000)
        reply = box.put("/files?path=d/f.bin", data)
        self.assertEqual((reply.status, reply.json["size"]), (200, len(data)), reply)
        got = box.get("/files?path=d/f.bin")
        self.assertEqual((got.status, got.body), (200, data))
        self.assertEqual(box.sh("stat -c '%U %a' d/f.bin")["stdout"], "user 644\n")
        self.assertEqual(box.get("/files?path=/workspace/d/f.bin").body, data)

    def test_empty_file(self):
        box = self.box()
        self.assertEqual(box.put("/files?path=e", b"").json["size"], 0)
        got = box.get("/files?path=e")
        self.assertEqual((got.status, got.body), (200, b""))

    def test_chunked_upload(self):
        box = self.box()
        pieces = [b"x" * 70000, b"y" * 3, b"z" * 100000]
        connection = self.d.connect()
        connection.request("PUT", box.path + "/files?path=c", body=iter(pieces),
                           encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        reply = harness.Response(connection.getresponse())
        connection.close()
        self.assertEqual((reply.status, reply.json["size"]), (200, 170003))
        self.assertEqual(box.get("/files?path=c").body, b"".join(pieces))

    def test_mode(self):
        box = self.box()
        box.put("/files?path=m&mode=700", b"#!/bin/sh\necho ran\n")
        self.assertEqual(box.exec("./m").json["stdout"], "ran\n")
        self.assertError(box.put("/files?path=m&mode=9", b""), 400, "invalid", "mode")

    def test_ranges(self):
        box = self.box()
        box.put("/files?path=r", b"0123456789")
        rows = [("0-3", b"0123", "bytes 0-3/10"), ("4-", b"456789", "bytes 4-9/10"),
                ("-3", b"789", "bytes 7-9/10"), ("8-99", b"89", "bytes 8-9/10")]
        for text, data, span in rows:
            got = box.get("/files?path=r", headers={"Range": "bytes=" + text})
            self.assertEqual((got.status, got.body, got.headers["Content-Range"]),
                             (206, data, span))
        got = box.get("/files?path=r", headers={"Range": "bytes=10-"})
        self.assertEqual((got.status, got.headers["Content-Range"]), (416, "bytes */10"))
        for odd in ("bytes=5-2", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4"):
            got = box.get("/files?path=r", headers={"Range": odd})
            self.assertEqual((got.status, got.body), (200, b"0123456789"))

    def test_head_says_the_size_only(self):
        box = self.box()
        box.sh("head -c 3000000 /dev/zero > h; echo small > s")
        for name, size in (("h", 3000000), ("s", 6)):
            got = self.d.request("HEAD", box.path + "/files?path=" + name)
            self.assertEqual((got.status, got.body), (200, b""))
            self.assertEqual(got.headers["Content-Length"], str(size))

    def test_resumed_upload(self):
        box = self.box()
        box.put("/files?path=o", b"aaaa")
        self.assertEqual(box.put("/files?path=o&offset=4", b"bbbb").status, 200)
        self.assertEqual(box.put("/files?path=o&offset=2", b"cc").status, 200)
        self.assertEqual(box.get("/files?path=o").body, b"aaccbbbb")

    def test_large_file_and_flat_memory(self):
        size = 48 << 20
        box = self.box(disk="256M", memory="1G")
        piece = os.urandom(1 << 20)
        connection = self.d.connect()
        connection.request("PUT", box.path + "/files?path=big",
                           body=(piece for _ in range(size >> 20)),
                           headers={"Content-Length": str(size)})
        self.assertEqual(harness.Response(connection.getresponse()).json["size"], size)
        connection.close()
        with box.stream("GET", "/files?path=big") as s:
            left = size
            while left:
                part = s.reply.read(1 << 20)
                self.assertEqual(part, piece)
                left -= len(part)

    def test_disk_full_is_an_error(self):
        box = self.box(disk="4M")
        reply = None
        try:
            reply = box.put("/files?path=big", os.urandom(16 << 20))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the answer came while we were still sending
        if reply is not None:
            self.assertGreaterEqual(reply.status, 400, reply)
        self.assertError(box.get("/files?path=big"), 404)

    def test_upload_that_breaks_off_leaves_nothing(self):
        box = self.box()
        with self.d.raw(unix=True) as s:
            s.sendall(b"PUT %s/files?path=half HTTP/1.1\r\nHost: localhost\r\n"
                      b"Content-Length: 1000000\r\n\r\n%s" % (box.path.encode(), b"x" * 1000))
        self.assertEqual(box.sh("true")["exit_code"], 0)
        self.assertError(box.get("/files?path=half"), 404)

    def test_stat_list_depth(self):
        box = self.box()
        box.sh("mkdir -p a/b/c; echo x > a/f; ln -s f a/l; touch 'a/odd name\n'")
        st = box.get("/files?path=a/f&stat=1").json
        self.assertEqual((st["type"], st["size"], st["owner"]), ("file", 2, "user"))
        names = {e["name"]: e for e in box.get("/files?path=a&list=1").json["entries"]}
        self.assertEqual(set(names), {"b", "f", "l", "odd name\n"})
        self.assertEqual((names["l"]["type"], names["l"]["target"]), ("link", "f"))
        deep = [e["path"] for e in box.get("/files?path=a&list=1&depth=9").json["entries"]]
        self.assertIn("/workspace/a/b/c", deep)
        self.assertError(box.get("/files?path=nosuch&list=1"), 404)
        for path in (".", "./", "./.", "/workspace/./", "./a/./b"):
            entries = box.get("/files?path=%s&list=1" % path).json["entries"]
            self.assertNotIn("./", "".join(e["path"] + "|" for e in entries), path)
        self.assertError(box.get("/files?path=a"), 400)

    def test_large_directory(self):
        box = self.box()
        box.sh("mkdir m; cd m; seq 3000 | xargs touch")
        entries = box.get("/files?path=m&list=1").json["entries"]
        self.assertEqual(len({e["name"] for e in entries}), 3000)

    def test_mkdir_move_chmod_delete(self):
        box = self.box()
        self.assertEqual(box.post("/files/mkdir", {"path": "x/y"}).status, 201)
        self.assertEqual(box.post("/files/mkdir", {"path": "x/y"}).status, 200)
        self.assertError(box.post("/files/mkdir", {"path": "x/y", "parents": False}), 409)
        box.put("/files?path=x/f", b"1")
        moved = box.post("/files/move", {"from": "x/f", "to": "x/y/g"})
        self.assertEqual((moved.status, moved.json["path"]), (200, "/workspace/x/y/g"))
        box.put("/files?path=x/f", b"2")
        self.assertError(box.post("/files/move", {"from": "x/f", "to": "x/y/g"}), 409)
        box.post("/files/move", {"from": "x/f", "to": "x/y/g", "overwrite": True})
        self.assertEqual(box.get("/files?path=x/y/g").body, b"2")
        self.assertEqual(box.post("/files/chmod", {"path": "x/y/g", "mode": "600"}).status, 204)
        self.assertEqual(box.get("/files?path=x/y/g&stat=1").json["mode"], "0600")
        self.assertGreaterEqual(box.delete("/files?path=x").status, 400)
        self.assertEqual(box.delete("/files?path=x&recursive=1").status, 204)
        self.assertError(box.get("/files?path=x&stat=1"), 404)
        self.assertError(box.delete("/files?path=x"), 404)

    def test_search(self):
        box = self.box()
        box.sh("mkdir -p s/t; echo 'needle here' > s/t/a.txt; echo hay > s/b.txt; echo n > s/c.md")
        found = box.post("/files/search", {"path": "s", "glob": "**/*.txt"}).json["results"]
        self.assertEqual({r["path"] for r in found}, {"/workspace/s/t/a.txt", "/workspace/s/b.txt"})
        found = box.post("/files/search", {"path": "s", "content": "needle"}).json["results"]
        self.assertEqual([(r["path"], r["line"]) for r in found], [("/workspace/s/t/a.txt", 1)])
        found = box.post("/files/search", {"content": "^n.*e$", "regex": True}).json["results"]
        self.assertEqual(len(found), 1)
        cut = box.post("/files/search", {"path": "s", "max": 1}).json
        self.assertEqual((len(cut["results"]), cut["truncated"]), (1, True))

    def test_tar_both_ways(self):
        box = self.box()
        box.sh("mkdir -p t/d; echo one > t/d/f; ln -s d/f t/l; chmod 750 t/d")
        tar = box.get("/files/tar?path=t")
        self.assertEqual(tar.status, 200)
        names = {m.name: m for m in tarfile.open(fileobj=io.BytesIO(tar.body))}
        self.assertIn("d/f", names)
        self.assertEqual(names["l"].linkname, "d/f")
        self.assertEqual(box.put("/files/tar?path=u", tar.body).status, 200)
        self.assertEqual(box.sh("cat u/l; stat -c %a u/d")["stdout"], "one\n750\n")

    def test_hostile_tar_stays_inside(self):
        box, out = self.box(), io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name in ("../../up", "/tmp/abs"):
                info = tarfile.TarInfo(name)
                info.size = 1
                tar.addfile(info, io.BytesIO(b"x"))
            link = tarfile.TarInfo("out")
            link.type, link.linkname = tarfile.SYMTYPE, "/tmp"
            tar.addfile(link)
            info = tarfile.TarInfo("out/through")
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
        box.put("/files/tar?path=in", out.getvalue())
        self.assertEqual(box.sh("ls /up /tmp/abs /tmp/through 2>/dev/null")["stdout"], "")
        bad = box.put("/files/tar?path=in", b"not a tar at all" * 64)
        self.assertGreaterEqual(bad.status, 400, bad)

    def test_watch(self):
        box = self.box()
        box.sh("mkdir w")
        with box.stream("GET", "/files/watch?path=w") as s:
            events = s.events()
            self.assertEqual(next(events)[0], "start")
            box.sh("echo x > w/new")
            for name, data in events:
                self.assertEqual(name, "change")
                if data["path"].endswith("new"):
                    break

    def test_outside_paths_are_those_inside(self):
        box = self.box()
        self.assertNotIn(b"root:$", box.get("/files?path=/etc/shadow").body)
        self.assertGreaterEqual(box.get("/files?path=/etc/shadow").status, 400)
        self.assertGreaterEqual(box.put("/files?path=/usr/bin/x/y/z", b"").status, 200)
        self.assertGreaterEqual(box.get("/files?path=" + quote("/proc/1/root/etc")).status, 400)

    def test_refusals(self):
        box = self.box()
        self.assertError(box.get("/files"), 400, "invalid", "path")
        self.assertError(box.get("/files?path="), 400, "invalid", "path")
        self.assertError(box.get("/files?path=%00"), 400)
        self.assertError(box.get("/files?path=" + "a" * 5000), 400)
        self.assertError(box.get("/files?path=nosuch"), 404, "not_found")
        self.assertError(box.get("/files?path=.&list=1&depth=x"), 400, "invalid", "depth")
        self.assertError(box.put("/files?path=f&offset=x"), 400, "invalid", "offset")
        self.assertError(box.post("/files/move", {"from": "a"}), 400, "invalid", "to")
        self.assertError(box.post("/files/mkdir", {"path": 1}), 400, "invalid", "path")

    def test_slow_reader_does_not_hold_others_up(self):
        box = self.box(disk="64M")
        box.sh("head -c 20000000 /dev/zero > z")
        with box.stream("GET", "/files?path=z") as s:
            self.assertEqual(s.status, 200)
            self.assertEqual(box.sh("echo fine")["stdout"], "fine\n")
            self.assertEqual(len(s.reply.read()), 20000000)

    def test_downloads_and_commands_share_a_link(self):
        box, wrong = self.box(memory="256M"), []
        files = {"d%d" % i: os.urandom((2 << 20) + 77 * i) for i in range(3)}
        for name, data in files.items():
            box.put("/files?path=" + name, data)

        def download(name, data):
            for start in (0, 1, 4095, 70001):
                got = box.get("/files?path=" + name, headers={"Range": "bytes=%d-" % start})
                if got.body != data[start:]:
                    wrong.append((name, start, got.status))

        threads = [threading.Thread(target=download, args=item) for item in files.items()]
        for t in threads:
            t.start()
        said = [box.exec("head", "-c", "100000", "/dev/zero").json["stdout"] for _ in range(20)]
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])
        self.assertEqual({len(text) for text in said}, {100000})

    def test_file_that_shrinks_while_it_is_read(self):
        box = self.box(disk="64M")
        box.sh("head -c 30000000 /dev/zero > z")
        with box.stream("GET", "/files?path=z") as s:
            s.reply.read(1000)
            box.sh(": > z")
            with self.assertRaises(http.client.IncompleteRead):
                s.reply.read()
        self.assertEqual(box.sh("echo fine")["stdout"], "fine\n")

    def test_file_without_pages_is_read(self):
        got = self.box().get("/files?path=/proc/meminfo")
        self.assertEqual(got.status, 200)
        self.assertIn(b"MemTotal:", got.body)

    def test_parallel_uploads(self):
        box, failures = self.box(), []

        def upload(i):
            try:
                data = bytes([i]) * 500000
                box.put("/files?path=p%d" % i, data)
                if box.get("/files?path=p%d" % i).body != data:
                    failures.append(i)
            except (OSError, http.client.HTTPException) as error:
                failures.append((i, error))

        threads = [threading.Thread(target=upload, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
