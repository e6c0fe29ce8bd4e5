"""`cloche image`, and `cloche run --image NAME`: a store that strangers' archives fill."""

import json
import os
import shutil
import signal
import struct
import subprocess
import tarfile
import unittest

import cl
import images
from images import directory, entry, layer, link

SHELL = None


def shell():
    """The same bytes for every test."""
    global SHELL
    if SHELL is None:
        SHELL = layer(*images.shell_entries())
    return SHELL


@unittest.skipUnless(os.path.exists(images.BUSYBOX), "needs " + images.BUSYBOX)
class Images(cl.Case):
    def setUp(self):
        super().setUp()
        self.state = self.mkdir("state")
        self.store = os.path.join(self.state, "images")
        self.env = cl.caller_env(CLOCHE_STATE_DIR=self.state)

    def cloche(self, *args, **kw):
        return cl.run(*args, env=self.env, **kw)

    def image(self, *args, **kw):
        return self.cloche("image", *args, **kw)

    def good(self, r):
        self.assertEqual(r.code, 0, str(r))
        return r.out

    def bad(self, r, says):
        self.assertEqual(r.code, 125, str(r))
        self.assertIn(says, r.err)

    def import_tar(self, name, data, **kw):
        self.write("root.tar", data)
        return self.image("import", self.path("root.tar"), name, **kw)

    def import_layers(self, name, *layers, **more):
        path = self.mkdir("layout-" + name.replace("/", "_").replace(":", "_"))
        made = images.Layout(path, [shell(), *layers], **more)
        self.assertEqual(self.good(self.image("import", path, name)).split()[0], made.id)
        return made

    def sh(self, name, script, *more):
        return self.cloche("run", "--empty", "--image", name, *more, "--", "/bin/sh", "-c", script)

    def listed(self):
        return {row["name"]: row for row in json.loads(self.good(self.image("ls", "--json")))["images"]}

    def layers(self):
        return sorted(os.listdir(os.path.join(self.store, "layers")))

    def is_clean(self):
        self.assertEqual(os.listdir(os.path.join(self.store, "tmp")), [])


class Importing(Images):
    def test_a_root_file_system(self):
        self.good(self.import_tar("box:1", shell()))
        r = self.sh("box:1", "cat /etc/passwd 2>&1; echo x > /new && echo made; id -u")
        self.assertTrue(r.out.endswith("\n0\n"), str(r))
        self.assertNotIn("made", r.out)
        self.assertEqual(list(self.listed()), ["box:1"])
        self.is_clean()

    def test_from_stdin_with_the_same_id(self):
        first = self.good(self.import_tar("one", shell())).split()[0]
        second = self.good(self.image("import", "-", "two", input=shell())).split()[0]
        self.assertEqual(first, second)
        self.assertEqual(len(self.layers()), 1)
        r = self.cloche("run", "--empty", "--image", first, "--", "/bin/pwd")
        self.assertEqual((r.code, r.out), (0, "/workspace\n"), str(r))
        self.assertEqual(self.cloche("run", "--empty", "--image", first[7:20], "--", "/bin/pwd").code, 0)

    def test_a_layout_with_all_that_a_configuration_says(self):
        run = {
            "Env": ["A=b c", "PATH=/bin"],
            "WorkingDir": "/there",
            "Entrypoint": ["/bin/sh", "-c"],
            "Cmd": ["pwd; echo $A; ls"],
        }
        self.import_layers("full", layer(directory("there"), entry("there/x")), run=run)
        r = self.cloche("run", "--empty", "--image", "full")
        self.assertEqual((r.code, r.out), (0, "/there\nb c\nx\n"), str(r))
        r = self.cloche("run", "--empty", "--image", "full", "--env", "A=mine", "--", "sh", "-c", "echo $A")
        self.assertEqual((r.code, r.out), (0, "mine\n"), str(r))
        r = self.cloche("run", "--image", "full", "--", "/bin/pwd", cwd=self.mkdir("work"))
        self.assertEqual((r.code, r.out), (0, self.path("work") + "\n"), str(r))
        shown = json.loads(self.good(self.image("inspect", "full")))
        self.assertEqual(shown["config"], run)
        self.assertNotIn("\x1b", self.good(self.image("history", "full")))

    def test_compression(self):
        for how in ("none", "gzip", "zstd"):
            if how == "zstd" and not shutil.which("zstd"):
                continue
            self.import_layers("c-" + how, compression=how)
        self.assertEqual(len(self.layers()), 1)

    def test_docker_save(self):
        self.write("saved.tar", images.saved([shell(), layer(entry("x", data=b"1\n"))]))
        self.good(self.image("import", self.path("saved.tar")))
        r = self.sh("saved/image:1", "cat /x")
        self.assertEqual((r.code, r.out), (0, "1\n"), str(r))
        self.is_clean()

    def test_removed_names_and_hidden_directories(self):
        lower = layer(
            directory("d"), directory("d/deep"), entry("d/deep/f", data=b"1"), entry("d/gone"),
            entry("d/stays"), directory("e"), entry("e/old"), directory("kind"), entry("kind/f"),
            directory("again"), entry("again/old"),
        )
        upper = layer(
            entry("d/.wh.gone"), entry("d/.wh.deep"), directory("e"), entry("e/new"),
            entry("e/.wh..wh..opq"), entry(".wh.kind"), entry("kind", data=b"now a file\n"),
            entry(".wh.again"), directory("again"), entry("again/new"), entry(".wh..wh.plnk"),
        )
        self.import_layers("marks", lower, upper)
        r = self.sh("marks", "cd /; find d e again | /bin/busybox sort; cat kind; ls -a / | /bin/busybox grep wh")
        self.assertEqual(
            r.out, "again\nagain/new\nd\nd/stays\ne\ne/new\nnow a file\n", str(r)
        )
        r = self.sh("marks", "rm -r /d /e && touch /e && ls -d /d /e", "--root", "overlay")
        self.assertEqual(r.out, "/e\n", str(r))

    def test_kinds_of_entries(self):
        long = "n" * 120 + "/" + "m" * 200
        self.import_layers(
            "kinds",
            layer(
                entry("orig", data=b"same\n"), link("hard", "orig", tarfile.LNKTYPE), directory("n" * 120),
                entry(long, data=b"long\n"), entry("fifo", tarfile.FIFOTYPE), directory("shut", mode=0o500),
                entry("shut/in"), link("soft", "/bin/busybox"),
            ),
            layer(entry("g" * 150, data=b"gnu\n"), form=tarfile.GNU_FORMAT),
        )
        r = self.sh("kinds", f"cat /hard /{long} /{'g' * 150}; stat -c %h /orig; stat -c %F /fifo /soft; ls /shut")
        self.assertEqual(r.out, "same\nlong\ngnu\n2\nfifo\nsymbolic link\nin\n", str(r))

    def test_files_with_holes(self):
        with open(self.path("holes"), "wb") as out:
            for at in (0, 100, 200, 300, 400, 500):
                out.seek(at << 16)
                out.write(b"x" * 4096)
            out.truncate(8 << 20)
        for form in ("gnu", "pax"):
            tar = cl.command("tar", "--sparse", "--format", form, "-C", self.dir, "-c", "holes").raw_out
            self.assertLess(len(tar), 1 << 20)
            self.import_layers("sparse-" + form, tar)
            r = self.sh("sparse-" + form, "/bin/busybox sha256sum < /holes; stat -c %b /holes")
            sum_, blocks = r.out.split("\n")[:2]
            self.assertEqual(sum_, cl.command("sh", "-c", "sha256sum < holes", cwd=self.dir).out.strip())
            self.assertLess(int(blocks), 4096)

    def test_owners(self):
        self.need_root("sets owners")
        made = layer(
            entry("a", uid=33, gid=12), entry("b", uid=0, gid=0), entry("c", uid=70000), directory("d", uid=7),
            link("e", "x", uid=8),
        )
        self.import_layers("owners", made)
        fs = os.path.join(self.store, "layers", images.digest(made)[7:], "fs")
        owners = {n: (os.lstat(os.path.join(fs, n)).st_uid, os.lstat(os.path.join(fs, n)).st_gid) for n in os.listdir(fs)}
        self.assertEqual(
            owners, {"a": (33, 12), "b": (0, 0), "c": (65534, 65534), "d": (7, 0), "e": (8, 0)}
        )
        r = self.sh("owners", "stat -c '%u:%g' /a /b /c /d")
        self.assertEqual(r.out, "33:12\n0:0\n65534:65534\n7:0\n", str(r))
        r = self.sh("owners", "stat -c '%u:%g' /a /b /c /d", "--user", "user")
        self.assertEqual(r.out, "33:12\n1000:1000\n65534:65534\n7:1000\n", str(r))

    def test_the_images_user_is_the_sandboxs(self):
        self.import_layers("user", layer(directory("mine", uid=33, gid=33, mode=0o700)), run={"User": "33:33"})
        r = self.sh("user", "id -u; cd /mine && touch x && ls", "--root", "overlay")
        self.assertEqual((r.code, r.out), (0, "1000\nx\n"), str(r))
        self.assertIn("USER", r.err)
        self.assertEqual(self.sh("user", "id -u", "--user", "root").out, "0\n")

    def test_a_user_by_name(self):
        self.need_root("sets owners")
        passwd = layer(
            directory("etc"), entry("etc/passwd", data=b"root:x:0:0::/:/bin/sh\nme:x:33:34::/:/bin/sh\nmeme:x:1:1::/:\n"),
            directory("mine", uid=33, gid=34, mode=0o700),
        )
        for n, user in enumerate(("me", "me:34", "me:nobody")):
            self.import_layers(f"by{n}", passwd, layer(entry("above")), run={"User": user})
            r = self.sh(f"by{n}", "stat -c %u:%g /mine; ls -a /mine")
            self.assertEqual((r.code, r.out), (0, "1000:1000\n.\n..\n"), str(r))
        self.import_layers("none", passwd, run={"User": "nobody-here"})
        self.assertEqual(self.sh("none", "id -u").out, "1000\n")
        evil = layer(directory("etc"), link("etc/passwd", self.write("passwd", "me:x:7:7::/:\n")))
        self.import_layers("evil", passwd, evil, run={"User": "me"})
        self.assertEqual(self.sh("evil", "stat -c %u:%g /mine").out, "1000:1000\n")

    def test_in_a_policy(self):
        self.import_layers("named:1", layer(entry("x")))
        policy = self.write("p/policy.yaml", "image: named:1\nuser: user\n")
        r = self.cloche("run", "--policy", policy, "--empty", "--", "/bin/sh", "-c", "ls /x; id -u")
        self.assertEqual((r.code, r.out), (0, "/x\n1000\n"), str(r))

    def test_root_inside_unless_another_user_is_asked_for(self):
        for n, run in enumerate(({}, {"User": "root"}, {"User": "0:0"})):
            self.import_layers(f"root{n}", run=run)
            self.assertEqual(self.sh(f"root{n}", "id -u").out, "0\n")
        self.assertEqual(self.sh("root0", "id -u", "--user", "user").out, "1000\n")
        self.assertEqual(cl.record("--image", "root0", "--empty", "--", "/bin/id", env=self.env)["stdout"][:6], "uid=0 ")


class Exporting(Images):
    def export(self, name, *more):
        self.good(self.image("export", *more, name, self.path("out.tar")))
        with tarfile.open(self.path("out.tar")) as tar:
            return {n: tar.extractfile(n).read() for n in tar.getnames()}

    def test_the_same_image_comes_back(self):
        with open(self.path("holes"), "wb") as out:
            out.truncate(8 << 20)
            out.write(b"x" * 5000)
        sparse = cl.command("tar", "--sparse", "--format", "gnu", "-C", self.dir, "-c", "holes").raw_out
        kinds = layer(
            directory("d", mode=0o2755, uid=7), entry("d/su", mode=0o6755, data=b"s"), link("d/l", "su"),
            link("d/h", "d/su", tarfile.LNKTYPE), entry("disk", tarfile.BLKTYPE, devmajor=8), entry("d/.wh.gone"),
            entry("n" * 200, data=os.urandom(3000), uid=100000, pax_headers={"SCHILY.xattr.security.x": "1"}),
            entry("zeros", data=b"\0" * 100000), entry("empty"),
        )
        made = self.import_layers("there/and:back", kinds, sparse)
        files = self.export("there/and:back")
        for name, data in files.items():
            if name.startswith("blobs/"):
                self.assertEqual(images.digest(data)[7:], os.path.basename(name))
        for one in (shell(), kinds, sparse):
            self.assertEqual(files["blobs/sha256/" + images.digest(one)[7:]], one)
        self.good(self.image("rm", "there/and:back"))
        r = self.image("import", self.path("out.tar"))
        self.assertEqual(self.good(r), f"{made.id} there/and:back\n")

    def test_others_take_it(self):
        self.need_program("skopeo")
        made = self.import_layers("demo:1", layer(entry("x")))
        self.export("demo:1")
        self.good(self.image("export", "--dir", made.id, self.path("out")))
        # Its oci-archive needs root.
        for source in ("docker-archive:out.tar", "oci:out") + (("oci-archive:out.tar",) if cl.ROOT else ()):
            r = cl.command(
                "skopeo", "inspect", "--config", "--raw", source, cwd=self.dir, env=dict(os.environ, HOME=self.dir, TMPDIR=self.dir)
            )
            self.assertEqual(images.digest(r.raw_out), made.id, str(r))

    def test_what_cannot_be_had_again(self):
        self.import_layers("twice", layer(entry("x", data=b"1" * 600), entry("x", data=b"2" * 600)))
        r = self.image("export", "twice", self.path("out.tar"))
        self.bad(r, "cannot be written as it was")
        self.assertEqual([n for n in os.listdir(self.dir) if n.startswith("out")], [])

    def test_a_layer_that_was_changed(self):
        made = layer(entry("x", data=b"as it was\n"))
        self.import_layers("changed", made)
        fs = os.path.join(self.store, "layers", images.digest(made)[7:], "fs")
        with open(os.path.join(fs, "x"), "w", encoding="ascii") as out:
            out.write("otherwise\n")
        self.bad(self.image("export", "changed", "-"), "cannot be written as it was")
        os.unlink(os.path.join(fs, "x"))
        os.symlink("/etc/passwd", os.path.join(fs, "x"))
        self.bad(self.image("export", "changed", "-"), "cannot")


class Names(Images):
    def test_tag_rm_prune(self):
        self.import_layers("one:1", layer(entry("only-in-one")))
        self.import_layers("two")
        self.assertEqual(len(self.layers()), 2)
        self.good(self.image("tag", "one:1", "docker.io/library/other"))
        self.assertEqual(sorted(self.listed()), ["one:1", "other:latest", "two:latest"])
        self.good(self.image("rm", "one:1"))
        self.assertEqual(self.sh("other", "ls /only-in-one").out, "/only-in-one\n")
        self.good(self.image("rm", "other:latest"))
        self.assertEqual(len(self.layers()), 1)
        self.bad(self.sh("other", "true"), "no image")
        self.good(self.image("rm", "two"))
        self.assertEqual((self.listed(), self.layers()), ({}, []))
        self.assertEqual(os.listdir(os.path.join(self.store, "configs")), [])

    def test_a_name_that_moves(self):
        self.import_layers("name", layer(entry("first")))
        self.import_layers("name", layer(entry("second")))
        self.assertEqual(self.sh("name", "ls -d /first /second 2>/dev/null").out, "/second\n")
        self.assertEqual(len(self.layers()), 3)
        self.good(self.image("prune"))
        self.assertEqual(len(self.layers()), 2)

    def test_not_names(self):
        for name in ("UPPER", "a b", "../x", "a:b:c", "x@sha256:12", "-x/y", "a//b", "a" * 300, "x:" + "t" * 129):
            with self.subTest(name):
                r = self.import_tar(name, shell())
                self.assertEqual(r.code, 125, str(r))
        self.assertEqual(self.listed(), {})

    def test_unknown(self):
        self.bad(self.image("rm", "none"), "no image")
        self.bad(self.cloche("run", "--image", "none:1", "--", "true"), "no image")

    def test_in_use(self):
        self.import_layers("busy", layer(entry("late", data=b"still here\n")))
        p = cl.start(
            "run", "--empty", "--image", "busy", "--", "/bin/sh", "-c", "echo up; read x; cat /late",
            env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        try:
            self.assertEqual(p.stdout.readline(), b"up\n")
            self.good(self.image("rm", "busy"))
            self.good(self.image("prune"))
            self.assertEqual((self.listed(), len(self.layers())), ({}, 2))
            self.assertEqual(p.communicate(b"go\n", timeout=20)[0], b"still here\n")
        finally:
            p.kill()
            p.wait()
        self.good(self.image("prune"))
        self.assertEqual(self.layers(), [])

    def test_a_store_of_somebody_else(self):
        self.import_layers("mine")
        os.chmod(self.store, 0o777)
        self.bad(self.sh("mine", "true"), "must belong to the caller alone")


class Hostile(Images):
    """What known flaws in other unpackers let through (names of CVEs where there is one)."""

    def setUp(self):
        super().setUp()
        self.victim = self.mkdir("victim")
        self.write("victim/file", "untouched\n")

    def refused(self, *entries, says=None):
        r = self.import_tar("evil", layer(*entries))
        self.assertEqual(r.code, 125, str(r))
        if says:
            self.assertIn(says, r.err)
        self.untouched()
        self.assertEqual((self.listed(), self.layers()), ({}, []))
        self.is_clean()

    def untouched(self):
        self.assertEqual(os.listdir(self.victim), ["file"])
        self.assertEqual(self.read("victim/file"), "untouched\n")
        self.assertEqual(os.stat(self.path("victim/file")).st_nlink, 1)

    def test_names_that_lead_out(self):
        self.refused(entry("../../victim/x"), says="leads out")
        self.refused(entry("a/../../../victim/x"), says="leads out")
        self.refused(link("x", "../../victim/file", tarfile.LNKTYPE), says="leads out")

    def test_through_links(self):
        """CVE-2021-29136 (umoci), CVE-2025-11395 (podman load), CVE-2021-23177 (libarchive)."""
        for target in (self.victim, "/", "..", "../../../../" + self.victim):
            self.refused(link("l", target), entry("l/x"))
            self.refused(link("l", target), directory("l/d"))
            self.refused(link("l", target), entry("l/.wh.file"))
            self.refused(link("l", target), entry("l/.wh..wh..opq"))
            self.refused(link("l", target), link("h", "l/file", tarfile.LNKTYPE))
            self.refused(link("l", target), link("l/h", "l", tarfile.LNKTYPE))

    def test_a_link_in_place_of_the_root(self):
        """CVE-2021-29136: "." as a link."""
        self.refused(link(".", self.victim), entry("x"))
        self.refused(link("./", self.victim), entry("x"))

    def test_a_directory_that_becomes_a_link(self):
        """CVE-2026-17106 (go-archive): the name is judged, then swapped."""
        self.refused(directory("d"), entry("d/x"), link("d", self.victim), entry("d/y"))

    def test_a_link_that_becomes_a_file(self):
        """What is written replaces the link, and does not go through it."""
        self.good(
            self.import_tar(
                "fine", layer(link("l", self.path("victim/file")), entry("l", data=b"new"), directory("m"))
            )
        )
        self.untouched()

    def test_a_hard_link_to_a_link(self):
        """CVE-2021-31566 (libarchive): attributes set through it."""
        self.good(
            self.import_tar(
                "fine",
                layer(
                    link("l", self.path("victim/file")), link("h", "l", tarfile.LNKTYPE), entry("h", mode=0o777, data=b"x")
                ),
            )
        )
        self.untouched()

    def test_marks(self):
        for name in (".wh.", ".wh..", ".wh...", "a/.wh...", ".wh.d/x"):
            self.refused(directory("a"), entry(name))

    def test_absolute_names_stay_inside(self):
        self.good(self.import_tar("fine", layer(entry(self.victim + "/x"))))
        self.untouched()

    def test_devices_set_ids_and_attributes(self):
        pax = {
            "SCHILY.xattr.security.capability": "\x01\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            "SCHILY.xattr.trusted.overlay.redirect": "/etc",
            "SCHILY.xattr.user.overlay.redirect": "/etc",
            "SCHILY.xattr.user.overlay.opaque": "y",
            "SCHILY.xattr.user.mine": "1",
        }
        data = layer(
            entry("disk", tarfile.BLKTYPE, devmajor=8, devminor=0), entry("mem", tarfile.CHRTYPE, devmajor=1, devminor=1),
            entry("whiteout", tarfile.CHRTYPE, devmajor=0, devminor=0), entry("su", mode=0o6755), entry("x", pax_headers=pax),
            directory("sgid", mode=0o2755),
        )
        r = self.import_tar("kinds", data)
        self.good(r)
        self.assertIn("3 device nodes", r.err)
        self.assertIn("1 files lost", r.err)
        self.assertIn("4 extended attributes", r.err)
        fs = os.path.join(self.store, "layers", images.digest(data)[7:], "fs")
        self.assertEqual(sorted(os.listdir(fs)), ["sgid", "su", "x"])
        self.assertEqual(os.stat(os.path.join(fs, "su")).st_mode & 0o6000, 0)
        self.assertEqual(os.listxattr(os.path.join(fs, "x")), ["user.mine"])

    def test_bounds(self):
        self.refused(*(directory("/".join("d" * n)) for n in range(1, 131)), says="inside one another")
        info, _ = entry("big")
        info.size = 30 << 30
        self.write("root.tar", info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024)
        self.bad(self.image("import", self.path("root.tar"), "evil"), "too many bytes")
        self.refused(entry("odd", b"Q"), says="unknown kind")

    def test_malformed(self):
        good = layer(entry("a", data=b"x" * 5000))
        for name, data in (
            ("cut", good[:3000]), ("sum", b"x" + good[1:]), ("empty", b""), ("gzip", images.compress(good, "gzip")[:-9]),
            ("after", good + b"\x01" * (17 << 20)),
        ):
            with self.subTest(name):
                self.assertEqual(self.import_tar("evil", data).code, 125)
        self.assertEqual(self.listed(), {})
        self.is_clean()

    def test_a_map_of_holes_that_lies(self):
        for offset, size, real in ((1 << 40, 512, 512), (0, 1 << 40, 1 << 41), (4096, 512, 4096)):
            info, _ = entry("s")
            info.type, info.size = b"S", 512
            h = bytearray(info.tobuf(tarfile.GNU_FORMAT))
            h[386:410] = struct.pack(">I", 0x80000000) + offset.to_bytes(8, "big") + struct.pack(">I", 0x80000000) + size.to_bytes(8, "big")
            h[483:495] = struct.pack(">I", 0x80000000) + real.to_bytes(8, "big")
            h[148:156] = b"        "
            h[148:156] = b"%06o\0 " % sum(h)
            self.write("root.tar", bytes(h) + b"\0" * 2048)
            self.bad(self.image("import", self.path("root.tar"), "evil"), "malformed")

    def test_a_layout_that_lies(self):
        def two(m, l):
            m["layers"] = m["layers"] * 2

        def other(m, l):
            m["layers"] = [l.add(layer(entry("not me")), images.LAYER)]

        def config(m, l):
            l.write("blobs/sha256/" + m["config"]["digest"][7:], b"{}")

        def platform(m, l):
            m["config"] = l.add(b'{"os":"plan9","architecture":"x","rootfs":{"diff_ids":[]}}', images.CONFIG)

        def path(m, l):
            m["layers"][0]["digest"] = "sha256:../../../../../../../../../../etc/passwd"

        def outside(m, l):
            name = os.path.join(l.path, "blobs/sha256", m["layers"][0]["digest"][7:])
            os.rename(name, self.path("elsewhere"))
            os.symlink(self.path("elsewhere"), name)

        for n, (change, says) in enumerate(
            ((two, "2 layers"), (other, "damaged"), (config, "another digest"), (platform, "another platform"),
             (path, "malformed"), (outside, "cannot be opened"))
        ):
            with self.subTest(change.__name__):
                where = self.mkdir(f"lies{n}")
                images.Layout(where, [layer(entry("a"))], change=change)
                self.bad(self.image("import", where, "evil"), says)
                self.assertEqual(self.listed(), {})
        self.is_clean()

    def test_what_is_mounted_over(self):
        """CVE-2021-30465 (runc): mount points of the image that are links."""
        self.import_layers(
            "links", layer(*(link(n, self.victim) for n in ("proc", "dev", "tmp", "home", "workspace", "run", "etc")))
        )
        r = self.sh("links", "echo x > /tmp/x; ls /proc/self/status")
        self.assertIn(r.code, (0, 125), str(r))
        self.untouched()


class Broken(Images):
    """Whatever ends an import, nothing half-made is seen, and the next one cleans up."""

    def test_killed(self):
        self.import_layers("old")
        tar = layer(*(entry(f"f{n}", data=b"x" * 4000) for n in range(400)))
        for part in (0, 100, 5000, len(tar) // 2, len(tar) - 1):
            p = cl.start("image", "import", "-", "new", env=self.env, stdin=subprocess.PIPE)
            p.stdin.write(tar[:part])
            p.stdin.flush()
            if part > 4096:
                tmp = os.path.join(self.store, "tmp")
                cl.wait_for(lambda: any("f0" in f for _, _, f in os.walk(tmp)))
            p.send_signal(signal.SIGKILL)
            p.communicate()
            self.assertEqual(list(self.listed()), ["old:latest"])
            self.assertEqual(len(self.layers()), 1)
        self.good(self.image("import", "-", "new", input=tar))
        self.assertEqual(sorted(self.listed()), ["new:latest", "old:latest"])
        self.is_clean()

    def test_removing_waits_for_no_import(self):
        self.import_layers("old")
        p = cl.start("image", "import", "-", "new", env=self.env, stdin=subprocess.PIPE)
        try:
            tmp = os.path.join(self.store, "tmp")
            cl.wait_for(lambda: os.path.exists(tmp) and any(os.listdir(os.path.join(tmp, d)) for d in os.listdir(tmp)))
            self.bad(self.image("prune"), "being made right now")
            self.assertEqual(self.sh("old", "echo fine").out, "fine\n")
        finally:
            p.kill()
            p.communicate()

    def test_a_full_disk(self):
        self.need_root("mounts a small file system")
        self.write("root.tar", layer(entry("x", data=b"x" * (6 << 20))))
        script = (
            'mount -t tmpfs -o size=4M none "$1" && ! "$0" image import "$2" full && '
            '"$0" image ls --json && ls "$1"/images/tmp "$1"/images/layers'
        )
        r = cl.command(
            "unshare", "-m", "sh", "-c", script, cl.CLOCHE, self.state, self.path("root.tar"), env=self.env
        )
        self.assertEqual(r.code, 0, str(r))
        self.assertIn("No space left", r.err)
        empty = f"{self.store}/layers:\n\n{self.store}/tmp:\n"
        self.assertEqual(r.out, '{"images":[]}\n' + empty)

    def test_a_store_that_is_damaged(self):
        self.import_layers("old")
        refs = os.path.join(self.store, "refs")
        with open(refs, "a", encoding="ascii") as out:
            out.write("of a newer version\n")
        self.bad(self.image("prune"), "unknown here")
        self.bad(self.image("import", self.mkdir("x"), "y"), "no OCI layout")
        self.assertEqual(len(self.layers()), 1)


del Images
