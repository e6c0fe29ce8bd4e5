"""Snapshots, forks, export and import: what comes back is what was there, byte by byte."""

import hashlib
import io
import json
import os
import tarfile
import unittest

import cl
import harness

# Makes a tree of everything that a file system can hold, below the directory that it is given.
PLANT = r"""
import os, sys
top, many = sys.argv[1], int(sys.argv[2])
os.makedirs(top)
os.chdir(top)
def write(path, data, mode=0o644):
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)
write("plain", bytes(range(256)) * 100)
write("empty", b"")
write("program", b"#!/bin/sh\necho ran\n", 0o755)
write("secret", b"only me", 0o600)
os.link("plain", "hard")
os.symlink("plain", "soft")
os.symlink("/nowhere/at/all", "dangling")
os.symlink("x" * 300, "far")
os.mkfifo("fifo")
os.makedirs("a/deep/er/tree")
write("a/deep/er/tree/leaf", b"leaf")
os.link("a/deep/er/tree/leaf", "leaf-too")
os.mkdir("bare", 0o700)
with open("hole", "wb") as f:
    f.write(b"head")
    f.seek(5 << 20)
    f.write(b"middle")
    f.truncate(9 << 20)
for name in ("blank name", "new\nline", "tab\t", "-rf", "*", "quote'\"", "ümläut", "\u65e5\u672c"):
    write(name, name.encode())
write(b"bytes-\xff\xfe", b"no utf-8")
write("long-" + "n" * 245, b"long name")
deep = "p" * 100
os.makedirs("/".join([deep] * 5))
write("/".join([deep] * 5 + ["end"]), b"long path")
os.mkdir("many")
for i in range(many):
    write("many/%05d" % i, b"%d" % i)
for name in ("plain", "a"):
    try:
        os.setxattr(name, "user.colour", b"blue\0\xff")
    except OSError:
        pass
for i, (at, _, names) in enumerate(os.walk(".", topdown=False)):
    for n in names:
        os.utime(os.path.join(at, n), ns=(1, 1500000000123456789 + i), follow_symlinks=False)
    os.utime(at, ns=(1, 1400000000987654321 + i))
"""

# Prints one line for each entry: everything that must come back.
LOOK = r"""
import hashlib, json, os, stat, sys
def entry(path):
    st = os.lstat(path)
    row = [os.fsencode(path).hex(), oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns]
    if not stat.S_ISDIR(st.st_mode):
        row += [st.st_nlink, st.st_size]
    if stat.S_ISREG(st.st_mode):
        with open(path, "rb") as f:
            row.append(hashlib.sha256(f.read()).hexdigest())
        row.append(st.st_blocks * 512 < st.st_size)
    if stat.S_ISLNK(st.st_mode):
        row.append(os.readlink(path))
    else:
        try:
            row.append([(n, os.getxattr(path, n).hex()) for n in sorted(os.listxattr(path))])
        except OSError:
            pass
    return json.dumps(row)
rows = []
for top in sys.argv[1:]:
    rows.append(entry(top))
    for at, dirs, files in os.walk(top):
        rows += [entry(os.path.join(at, n)) for n in dirs + files]
print("\n".join(sorted(rows)))
"""

# An ordinary user's daemon has no layer over the host's files.
TREES = ["/workspace/tree", "/home/user/tree"] + ["/opt/tree"] * harness.ROOT


class Snapshots(harness.Case):
    def python(self, box, program, *args):
        record = box.exec("python3", "-c", program, *args, timeout="120s").json
        self.assertTrue(record["success"], record)
        return record["stdout"]

    def planted(self, many=300, **options):
        box = self.box(output_limit="16M", disk="512M", **options)
        for i, top in enumerate(TREES):
            self.python(box, PLANT, top, str(many if i == 0 else 20))
        # Something of the image's own, gone and changed.
        if harness.ROOT:
            box.sh("rm /usr/share/doc/base-files/README; rm -rf /usr/share/doc/bash;"
                   " mkdir -p /usr/share/doc/bash && echo new > /usr/share/doc/bash/only")
        return box

    def look(self, box):
        rows = self.python(box, LOOK, *TREES)
        more = box.sh("ls /usr/share/doc/base-files /usr/share/doc/bash")["stdout"]
        return rows + more

    def assertSame(self, one, other):
        if one == other:
            return
        a, b = set(one.splitlines()), set(other.splitlines())
        self.fail("lost:\n%s\nnew:\n%s" % ("\n".join(sorted(a - b)[:10]),
                                           "\n".join(sorted(b - a)[:10])))

    def snapshot(self, box, name=""):
        reply = box.post("/snapshot", {"name": name})
        self.assertEqual(reply.status, 201, reply)
        self.addCleanup(self.d.delete, "/v1/snapshots/" + reply.json["id"])
        return reply.json

    def test_comes_back_byte_by_byte(self):
        box = self.planted(many=10000)
        before = self.look(box)
        self.assertGreater(len(before.splitlines()), 10000)
        taken = self.snapshot(box, "whole")
        self.assertRegex(taken["digest"], r"^sha256:[0-9a-f]{64}$")
        self.assertIn("/tmp", taken["excluded"])
        self.assertIn("tmpfs", taken["excluded"])
        self.assertSame(before, self.look(box))
        again = self.box(snapshot=taken["id"], output_limit="16M", disk="512M")
        self.assertSame(before, self.look(again))
        # And a copy of the copy.
        third = self.box(snapshot=self.snapshot(again)["id"], output_limit="16M", disk="512M")
        self.assertSame(before, self.look(third))

    @unittest.skipUnless(harness.ROOT, cl.ONLY_ROOT + ": the root can be written")
    def test_keeps_what_was_changed_beside_the_home(self):
        box = self.box()
        look = "cat /etc/mine /etc/hosts /new/deep/f /usr/local/x; ls -a /etc | wc -l; id -un"
        box.sh("echo a >/etc/mine; cp /etc/hosts /tmp/h; echo 127.9.9.9 z >>/tmp/h; rm /etc/hosts; "
               "cp /tmp/h /etc/hosts; mkdir -p /new/deep; echo b >/new/deep/f; echo c >/usr/local/x")
        before = box.sh(look)
        made = box.post("/snapshot", {"name": "beside"})
        self.assertIn(made.status, (200, 201), made)
        self.addCleanup(self.d.delete, "/v1/snapshots/" + made.json["id"])
        again = self.box(snapshot=made.json["id"]).sh(look)
        self.assertEqual(before["exit_code"], 0, before)
        self.assertEqual(again["stdout"], before["stdout"])

    def test_stop_and_start(self):
        box = self.planted()
        before = self.look(box)
        self.assertEqual(box.post("/stop").status, 200)
        self.assertEqual(box.post("/start").status, 200)
        self.assertSame(before, self.look(box))

    def test_fork(self):
        box = self.planted(env={"COLOUR": "blue"}, metadata={"of": "origin"})
        before = self.look(box)
        box.start(shell="sleep 1000")
        reply = box.post("/fork", {"count": 3})
        self.assertEqual(reply.status, 201, reply)
        forks = [f["sandbox"] for f in reply.json["sandboxes"]]
        self.assertEqual(len({f["id"] for f in forks} | {box.id}), 4)
        for f in forks:
            copy = harness.Box.__new__(harness.Box)
            copy.daemon, copy.token, copy.id = self.d, None, f["id"]
            copy.path = "/v1/sandboxes/" + f["id"]
            self.addCleanup(copy.delete)
            self.assertEqual(f["metadata"], {"of": "origin"})
            self.assertSame(before, self.look(copy))
            self.assertEqual(copy.sh("echo $COLOUR; echo mine > /workspace/own")["stdout"],
                             "blue\n")
        self.assertEqual(box.sh("ls /workspace")["stdout"], "tree\n")
        # What was made for it in between is gone.
        self.assertEqual([s for s in self.d.get("/v1/snapshots").json["snapshots"]
                          if s["sandbox"] == box.id], [])

    def test_export_and_import(self):
        box = self.planted()
        before = self.look(box)
        taken = self.snapshot(box, "out")
        tar = self.d.get("/v1/snapshots/%s/tar" % taken["id"])
        self.assertEqual(tar.status, 200)
        self.assertEqual("sha256:" + hashlib.sha256(tar.body).hexdigest(), taken["digest"])
        with tarfile.open(fileobj=io.BytesIO(tar.body)) as archive:
            self.assertTrue(any(m.name.endswith("tree/plain") for m in archive.getmembers()))
        kept = self.d.put("/v1/snapshots/in/tar", tar.body)
        self.assertIn(kept.status, (200, 201), kept)
        self.addCleanup(self.d.delete, "/v1/snapshots/" + kept.json["id"])
        self.assertEqual(kept.json["digest"], taken["digest"])
        again = self.box(snapshot=kept.json["id"], output_limit="16M", disk="512M")
        self.assertSame(before, self.look(again))

    def test_export_of_what_the_socket_takes_at_once(self):
        """Nothing but the first piece asks for the next one if it was sent as a whole."""
        key = self.d.token("export")
        box = self.box(key)
        box.sh("head -c 4M /dev/urandom > /workspace/f")
        taken = box.post("/snapshot").json
        path = "/v1/snapshots/%s/tar" % taken["id"]
        self.addCleanup(self.d.delete, path[:-4], token=key)
        for _ in range(5):  # over TCP, where a socket takes more than our window
            self.assertEqual(len(self.d.get(path, token=key).body), taken["size_bytes"])
            self.assertEqual(len(box.get("/files?path=f").body), 4 << 20)

    def test_import_refuses_what_could_harm(self):
        def tar(**kind):
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
                entry = tarfile.TarInfo(kind.pop("name", "workspace/x"))
                for key, value in kind.items():
                    setattr(entry, key, value)
                archive.addfile(entry, io.BytesIO(b"x" * entry.size))
            return out.getvalue()

        device = dict(type=tarfile.CHRTYPE, devmajor=1, devminor=3)
        for bad in (tar(**device), tar(mode=0o4755, size=1), b"no archive at all" * 100):
            reply = self.d.put("/v1/snapshots/bad/tar", bad)
            self.assertGreaterEqual(reply.status, 400, reply)
            self.assertLess(reply.status, 500, reply)
        self.assertNotIn("bad", json.dumps(self.d.get("/v1/snapshots").json))

    def parts(self):
        return [n for n in os.listdir(os.path.join(self.d.dir, "state", "snapshots"))
                if n.endswith(".part")]

    def begin_import(self, key, size):
        """An upload of unknown length, so much of it."""
        s = self.d.raw()
        self.addCleanup(s.close)
        s.sendall(b"PUT /v1/snapshots/half/tar HTTP/1.1\r\nHost: localhost\r\n"
                  b"Authorization: Bearer " + key.encode() + b"\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")
        s.sendall(b"%x\r\n" % size + b"x" * size + b"\r\n")
        return s

    def test_given_up_import_leaves_nothing(self):
        key = self.d.token("snap-half")
        s = self.begin_import(key, 4096)
        harness.until(self.parts, "the beginning of an import")
        s.close()
        harness.until(lambda: not self.parts(), "the end of an import")

    def test_import_is_bounded_while_it_comes(self):
        d = harness.Daemon(config="snapshots:\n  max_bytes: 64K\n")
        self.addCleanup(d.remove)
        d.start()
        self.addCleanup(d.stop)
        files = os.path.join(d.dir, "state", "snapshots")
        try:
            reply = d.request("PUT", "/v1/snapshots/big/tar", iter([b"x" * 4096] * 64))
            self.assertEqual(reply.status, 413, reply)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was refused before all of it was sent
        harness.until(lambda: os.listdir(files) == [], "the end of an import")

    def test_of_an_admin_token(self):
        """What such a token stops or copies it gets back, though it is not the operator."""
        box = self.box(token=self.d.token("snap-admin", "--scopes", "run,files,read,admin"))
        box.sh("echo here > /workspace/f")
        self.assertEqual(box.post("/stop").json["state"], "stopped")
        self.assertEqual(box.post("/start").json["state"], "running")
        taken = box.post("/snapshot").json
        again = self.box(token=box.token, snapshot=taken["id"])
        self.assertEqual(again.sh("cat /workspace/f")["stdout"], "here\n")
        gone = self.d.delete("/v1/snapshots/" + taken["id"], token=box.token)
        self.assertEqual(gone.status, 204, gone)

    def test_of_others_for_the_operator(self):
        """Who sees all can also clean up: what a revoked token left, say."""
        key = self.d.token("snap-left")
        box = self.box(token=key)
        box.sh("echo theirs > /workspace/f")
        mine = self.snapshot(self.box(), "left")
        taken = [box.post("/snapshot", {"name": "left"}).json["id"] for _ in range(2)]
        admin = self.d.token("snap-any", "--scopes", "admin")
        stranger = self.d.token("snap-stranger")
        path = "/v1/snapshots/" + taken[0]
        self.assertEqual(self.d.get(path + "/tar", token=stranger).status, 404)
        self.assertEqual(self.d.delete(path, token=stranger).status, 404)
        self.assertEqual(self.d.get(path + "/tar", token=admin).status, 200)
        self.assertEqual(self.d.delete(path, token=admin).status, 204)
        # A name is one's own, whoever else has it, and be it newer.
        self.assertEqual(self.box(snapshot="left").sh("cat f")["exit_code"], 1)
        self.assertNotIn(b"theirs", self.d.get("/v1/snapshots/left/tar").body)
        self.assertEqual(self.d.delete("/v1/snapshots/left", token=admin).status, 404)
        self.assertEqual(self.d.delete("/templates/left", headers={"X-API-Key": admin}).status, 404)
        self.assertEqual(self.d.delete("/v1/snapshots/left").status, 204)
        left = [s["id"] for s in self.d.get("/v1/snapshots").json["snapshots"] if s["name"] == "left"]
        self.assertEqual(left, taken[1:])
        self.assertNotIn(mine["id"], left)
        self.assertEqual(self.d.delete("/v1/snapshots/" + taken[1]).status, 204)

    def test_names_are_text(self):
        for name in ("%ff", "a%c3", "%c3%28", "%0a", "%7f", ".x", "a%2Fb"):
            self.assertError(self.d.put("/v1/snapshots/%s/tar" % name), 400, "invalid", "name")

    def test_by_name(self):
        """The newest of that name, of one's own."""
        box = self.box()
        for word in ("old", "new"):
            box.sh("echo %s > /workspace/f" % word)
            self.snapshot(box, "by-name")
        self.assertEqual(self.box(snapshot="by-name").sh("cat f")["stdout"], "new\n")
        self.assertEqual(self.d.get("/v1/snapshots/by-name/tar").status, 200)
        other = self.d.token("by-name-other")
        self.assertError(self.d.post("/v1/sandboxes", {"snapshot": "by-name"}, token=other), 404, "not_found")
        self.assertEqual(self.d.delete("/v1/snapshots/by-name").status, 204)
        self.assertEqual(self.box(snapshot="by-name").sh("cat f")["stdout"], "old\n")
        self.assertEqual(self.d.delete("/v1/snapshots/by-name").status, 204)
        self.assertEqual(self.d.delete("/v1/snapshots/by-name").status, 404)

    def test_of_a_paused_one(self):
        box = self.box()
        box.sh("echo here > /workspace/f")
        if box.post("/pause").status == 501:
            self.skipTest("this host cannot pause")
        taken = self.snapshot(box)
        self.assertEqual(box.get("").json["state"], "paused")
        again = self.box(snapshot=taken["id"])
        self.assertEqual(again.sh("cat /workspace/f")["stdout"], "here\n")

    def test_belong_to_somebody(self):
        a, b = self.d.token("snap-a"), self.d.token("snap-b")
        box = self.box(token=a)
        taken = box.post("/snapshot", {"name": "mine"}).json
        self.addCleanup(self.d.delete, "/v1/snapshots/" + taken["id"])
        unknown = "/v1/snapshots/" + "a" * 20
        for path in ("", "/tar"):
            method = "GET" if path else "DELETE"
            foreign = self.d.request(method, "/v1/snapshots/%s%s" % (taken["id"], path), token=b)
            nobody = self.d.request(method, unknown + path, token=b)
            self.assertEqual((foreign.status, foreign.body), (nobody.status, nobody.body))
        self.assertEqual(self.d.get("/v1/snapshots", token=b).json["snapshots"], [])
        made = self.d.post("/v1/sandboxes", {"snapshot": taken["id"]}, token=b)
        self.assertEqual(made.status, 404, made)
        self.assertIn(self.d.delete("/v1/snapshots/" + taken["id"], token=a).status, (200, 204))
