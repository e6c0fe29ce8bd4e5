"""--mount: what may be shown, how it is judged, where it appears."""

import json
import os
import shutil
import socket
import threading
import time

import cl

SECRET = "the-key-that-must-stay-outside"
HOME_ENTRIES = (".ssh", ".aws", ".gnupg", ".config", ".kube", ".docker", ".netrc")


def sh(script):
    return ("--", "sh", "-c", script)


class Plain(cl.Case):
    def setUp(self):
        super().setUp()
        self.write("src/a.txt", "text")
        self.src = self.path("src")
        self.work = self.mkdir("work")

    def mount(self, spec, script, **kw):
        return cl.run("run", "-v", spec, *sh(script), cwd=kw.pop("cwd", self.work), **kw)

    def test_read_only_by_default(self):
        for spec in (self.src + ":/data", self.src + ":/data:ro"):
            r = self.mount(spec, "cat /data/a.txt; echo x > /data/a.txt")
            self.assertEqual((r.code != 0, r.out), (True, "text"), str(r))
            self.assertIn("Read-only", r.err)
        self.assertEqual(self.read("src/a.txt"), "text")

    def test_read_only_for_everything(self):
        """Metadata of a read-only mount is read-only as well."""
        code = (
            "import os\n"
            "for n, f in enumerate([lambda: os.chmod('/data/a.txt', 0o777), lambda: os.utime('/data/a.txt'),\n"
            "    lambda: os.truncate('/data/a.txt', 0), lambda: os.rename('/data/a.txt', '/data/b'),\n"
            "    lambda: os.unlink('/data/a.txt'), lambda: os.mkdir('/data/d'), lambda: os.link('/data/a.txt', '/data/l'),\n"
            "    lambda: os.setxattr('/data/a.txt', 'user.x', b'1'), lambda: os.symlink('x', '/data/s')]):\n"
            "    try: f(); print('done', n)\n"
            "    except OSError: pass"
        )
        r = cl.run("run", "-v", self.src + ":/data", "--", *cl.py(code), cwd=self.work)
        self.assertEqual((r.code, r.out), (0, ""), str(r))

    def test_writable(self):
        r = self.mount(
            self.src + ":/data:rw", "echo x > /data/b; echo y > /data/a.txt; mkdir /data/d"
        )
        self.assertEqual(r.code, 0, str(r))
        self.assertEqual((self.read("src/a.txt"), self.read("src/b")), ("y\n", "x\n"))
        self.assertEqual(os.stat(self.path("src/b")).st_uid, os.geteuid())

    def test_writable_of_another_owner(self):
        self.need_root()
        os.chown(self.src, 4242, 4343)
        r = self.mount(self.src + ":/data:rw", "echo x > /data/b; stat -c %u /data")
        self.assertEqual((r.code, r.out), (0, "1000\n"), str(r))
        self.assertEqual(os.stat(self.path("src/b")).st_uid, 4242)

    def test_writable_leaves_no_set_id(self):
        r = self.mount(self.src + ":/data:rw", "cp /bin/true /data/t; chmod 4755 /data/t; true")
        self.assertEqual(os.stat(self.path("src/t")).st_mode & 0o6000, 0, str(r))

    def test_several(self):
        self.write("other/b.txt", "more")
        r = self.ok(
            "run",
            "-v",
            self.src + ":/one",
            "--mount",
            self.path("other") + ":/two/deep:ro",
            *sh("cat /one/a.txt /two/deep/b.txt"),
            cwd=self.work
        )
        self.assertEqual(r.out, "textmore")

    def test_file(self):
        r = self.mount(
            self.path("src/a.txt") + ":/data/file.txt",
            "cat /data/file.txt; ls /data; echo x > /data/file.txt",
        )
        self.assertEqual(r.out, "textfile.txt\n", str(r))
        self.assertNotEqual(r.code, 0)

    def test_writable_file(self):
        r = self.mount(self.path("src/a.txt") + ":/data/file.txt:rw", "echo new > /data/file.txt")
        self.assertEqual((r.code, self.read("src/a.txt")), (0, "new\n"), str(r))

    def test_relative(self):
        r = self.mount("../src:/data", "cat /data/a.txt")
        self.assertEqual(r.out, "text", str(r))

    def test_symlink(self):
        os.symlink("src", self.path("link"))
        self.assertEqual(self.mount(self.path("link") + ":/data", "cat /data/a.txt").out, "text")

    def test_inside_the_workspace(self):
        self.assertEqual(self.mount(self.src + ":" + self.work + "/in", "cat in/a.txt").out, "text")
        self.assertEqual(
            os.listdir(self.work), [], "a mount target is no litter in the user's tree"
        )

    def test_targets_are_no_changes(self):
        """Nor files to capture."""
        targets = ("-v", self.src + ":%s/x/in", "-v", self.src + "/a.txt:%s/f", "-v", self.src + ":%s/had")
        args = [a % self.work if "%" in a else a for a in targets]
        os.mkdir(os.path.join(self.work, "had"))
        r = cl.run("run", "--apply", *args, *sh("cat x/in/a.txt f had/a.txt"), cwd=self.work)
        self.assertEqual((r.code, r.out, r.err), (0, "texttexttext", ""), str(r))
        self.assertEqual(os.listdir(self.work), ["had"])
        rec = cl.record(*args, "--capture", "**", "--", "true", cwd=self.work)
        self.assertEqual((rec["changes"], rec["files"]), ([], []))

    def test_targets_in_what_is_written_directly(self):
        """Nothing is made there: a target has to exist."""
        os.mkdir(os.path.join(self.work, "had"))
        self.write("work/f", "")
        other = self.mkdir("other")
        for spec in (
            self.src + ":" + self.work + "/x/in",
            self.src + "/a.txt:" + self.work + "/none",
        ):
            r = cl.run("run", "-w", self.work, "-v", spec, "--", "true", cwd=self.dir)
            self.assertEqual(r.code, 125, str(r))
            self.assertIn("create it first", r.err)
        r = cl.run("run", "-v", other + ":/o:rw", "-v", self.src + ":/o/x", "--", "true", cwd=self.dir)
        self.assertEqual((r.code, os.listdir(other)), (125, []), str(r))
        self.assertEqual(sorted(os.listdir(self.work)), ["f", "had"])
        specs = ("-v", self.src + ":" + self.work + "/had", "-v", self.src + "/a.txt:" + self.work + "/f")
        r = cl.run("run", "-w", self.work, *specs, *sh("cat had/a.txt f"), cwd=self.dir)
        self.assertEqual(r.out, "texttext", str(r))

    def test_below_workspace(self):
        """/workspace leads to the workspace, for targets as well, wherever that is shown."""
        self.write("work/sub/old", "old")
        shown = self.src + ":/workspace/%s"
        for options in (("--diff",), ("--diff", "--empty"), ("--workspace", self.work)):
            with self.subTest(options):
                args = ("run", *options, "-v", shown % "sub:rw")
                r = cl.run(*args, *sh("cat sub/a.txt; echo > sub/b; ls"), cwd=self.work)
                self.assertEqual((r.code, r.out, r.err), (0, "textsub\n", ""), str(r))
                os.unlink(self.path("src/b"))
        for target in ("new", "deep/new"):
            r = self.mount(shown % target, "cat %s/a.txt /workspace/%s/a.txt" % (target, target))
            self.assertEqual((r.code, r.out), (0, "texttext"), str(r))
        rec = cl.record("-v", shown % "deep/new", "-v", shown % "f", "--", "true", cwd=self.work)
        self.assertEqual(rec["changes"], [])
        r = self.mount(self.src + ":/workspace", "cat a.txt")
        self.assertEqual((r.code, r.out), (0, "text"), str(r))
        self.assertEqual(sorted(os.listdir(self.work)), ["sub"])

    def test_workspace_that_turns_out_empty(self):
        """Only while the sandbox is built it is known where the workspace is."""
        home = os.path.join(cl.base_dir(), "home")
        r = self.mount(self.src + ":/workspace/x", "pwd; cat x/a.txt", cwd=home)
        self.assertEqual((r.code, r.out), (0, "/workspace\ntext"), str(r))

    def test_file_system_that_cannot_map_ids(self):
        """An overlay: the note and the remedy are about the mount, not about the workspace."""
        self.need_root("mounts in a namespace of its own")
        for name in ("up", "wrk", "over"):
            self.mkdir(name)
        script = (
            'cd "$1" && mount -t overlay -o lowerdir=src,upperdir=up,workdir=wrk o over && cd work && '
            '"$2" run --json -v "$1/over:/data:$3" -- true'
        )
        answers = []
        for mode in ("ro", "rw"):
            r = cl.command("unshare", "-m", "sh", "-c", script, "sh", self.dir, cl.CLOCHE, mode)
            answers.append(json.loads(r.out))
        if not answers[0]["notes"]:
            self.skipTest("this kernel maps ids on overlays")
        self.assertRegex(answers[0]["notes"][0], "^The file system of what a mount shows cannot map ids")
        self.assertEqual(len(answers[0]["notes"]), 1)
        self.assertIn("read-only", answers[1]["error"]["message"])
        self.assertNotIn("--apply", answers[1]["error"]["message"])

    def test_over_the_image(self):
        """A directory of the image can be covered; one that it lacks cannot be made in it."""
        self.assertEqual(self.mount(self.src + ":/usr/share", "cat /usr/share/a.txt").out, "text")
        self.assertEqual(self.mount(self.src + ":/mnt/data", "cat /mnt/data/a.txt").out, "text")
        r = self.mount(self.src + ":/usr/cloche-e2e", "cat /usr/cloche-e2e/a.txt")
        self.assertIn((r.code, r.out), ((0, "text"), (125, "")), str(r))
        self.assertFalse(os.path.exists("/usr/cloche-e2e"))

    def test_in_home(self):
        self.assertEqual(self.mount(self.src + ":/home/user/data", "cat ~/data/a.txt").out, "text")

    def test_links_inside_do_not_lead_out(self):
        self.write("secret", SECRET)
        os.symlink("../secret", self.path("src/rel"))
        os.symlink(self.path("secret"), self.path("src/abs"))
        self.assertNotIn(SECRET, self.mount(self.src + ":/data", "cat /data/rel /data/abs").out)

    def test_hard_link_out_of_a_read_only_mount(self):
        r = self.mount(self.src + ":/data", "ln /data/a.txt x && echo evil > x")
        self.assertNotEqual(r.code, 0)
        self.assertEqual(self.read("src/a.txt"), "text")

    def test_missing(self):
        self.refused("run", "-v", self.path("none") + ":/data", "--", "true", says="none")

    def test_malformed(self):
        for spec in (
            "",
            "x",
            ":",
            "src:",
            ":/data",
            "src:data",
            "src:/data:rx",
            "src:/data:ro:ro",
            "src:/a/../b",
        ):
            self.refused("run", "-v", spec, "--", "true", cwd=self.dir, says="mount")

    def test_targets_of_the_sandbox(self):
        for target in ("/", "/proc", "/proc/1", "/sys", "/dev", "/dev/shm", "//", "/proc/../proc"):
            self.refused("run", "-v", self.src + ":" + target, "--", "true", says="mount")

    def test_odd_names(self):
        name = "a b,c=d\\e\u00e4"
        self.write(name + "/f", "odd")
        self.assertEqual(self.mount(self.path(name) + ":/data", "cat /data/f").out, "odd")

    def test_no_permission(self):
        self.need_user("root may open everything")
        self.refused("run", "-v", "/root:/data", "--", "ls", "/data")


class Forbidden(cl.Case):
    def setUp(self):
        super().setUp()
        self.home = self.mkdir("home")
        for name in HOME_ENTRIES[:-1]:
            self.write("home/%s/key" % name, SECRET)
        self.write("home/.netrc", SECRET)
        self.write("home/project/a", "fine")
        self.env = cl.caller_env(HOME=self.home)
        self.work = self.mkdir("work")

    def no(self, source, target="/data", **kw):
        kw.setdefault("env", self.env)
        kw.setdefault("cwd", self.work)
        r = self.refused(
            "run", "-v", source + ":" + target, *sh("cat /data /data/* /data/*/*"), **kw
        )
        self.assertNotIn(SECRET, r.out + r.err)
        return r

    def test_system(self):
        for path in (
            "/etc/shadow",
            "/etc/passwd",
            "/etc/sudoers",
            "/root",
            "/proc",
            "/sys",
            "/dev",
            "/proc/self",
            "/proc/1/root",
            "/dev/null",
            "/sys/kernel",
            "/proc/self/root/etc/shadow",
            "/proc/self/cwd",
        ):
            if os.path.lexists(path):
                self.no(path)

    def test_containing(self):
        for path in ("/", "/etc", "/proc/..", "//", "/etc/../etc/."):
            self.no(path)

    def test_home(self):
        for name in HOME_ENTRIES:
            self.no(os.path.join(self.home, name))
            self.no(os.path.join(self.home, name), target="/data:rw")
        self.no(os.path.join(self.home, ".ssh/key"))
        self.no(self.home)
        self.no(self.dir)

    def test_project_in_home(self):
        r = self.ok(
            "run",
            "-v",
            self.path("home/project") + ":/data",
            "--",
            "cat",
            "/data/a",
            env=self.env,
            cwd=self.work,
        )
        self.assertEqual(r.out, "fine")

    def test_other_ways_to_the_same_place(self):
        os.symlink("home/.ssh", self.path("link"))
        os.symlink("link", self.path("link2"))
        self.no(self.path("link"))
        self.no(self.path("link2"))
        self.no("../home/.ssh")
        self.no(self.path("work/../home/.ssh"))
        self.no(self.path("home/project/../.ssh"))
        self.no(self.path("home//./.ssh//"))
        self.no("../link/../.ssh")

    def test_forbidden_place_is_a_link(self):
        """~/.ssh that leads elsewhere forbids the other place, too."""
        shutil.rmtree(self.path("home/.ssh"))
        self.write("vault/key", SECRET)
        os.symlink(self.path("vault"), self.path("home/.ssh"))
        self.no(self.path("vault"))
        self.no(self.path("home/.ssh"))

    def test_hard_link(self):
        os.link(self.path("home/.netrc"), self.path("work/innocent"))
        self.no(self.path("work/innocent"))

    def test_roots_project(self):
        """/root is forbidden, a project in it is not."""
        self.need_root("uses /root")
        project = "/root/cloche-e2e-" + cl.marker()
        os.mkdir(project)
        self.addCleanup(shutil.rmtree, project)
        with open(project + "/a", "w") as f:
            f.write("fine")
        r = self.ok(
            "run",
            "-v",
            project + ":/data",
            "--",
            "cat",
            "/data/a",
            cwd=self.work,
            env=cl.caller_env(HOME="/root"),
        )
        self.assertEqual(r.out, "fine")

    def test_bind_mount_of_a_forbidden_place(self):
        """The same place by another name in the mount table (in a mount namespace of the test's own)."""
        self.need_root("mounts")
        bind = self.mkdir("bind")
        r = cl.command(
            "unshare",
            "-m",
            "sh",
            "-c",
            'mount --bind "$1" "$2" && cd "$4" && exec "$3" run -v "$2":/data -- cat /data/key',
            "sh",
            self.path("home/.ssh"),
            bind,
            cl.CLOCHE,
            self.work,
            env=self.env,
        )
        self.assertEqual(r.code, 125, str(r))
        self.assertNotIn(SECRET, r.out)

    def test_container_sockets(self):
        """With a /run of the test's own: the sockets of engines, and what contains them."""
        self.need_root("mounts")
        script = (
            "mount -t tmpfs t /run && cd %s && %s -c 'import socket, os\n"
            "for n in (\"/run/docker.sock\", \"/run/containerd/containerd.sock\", \"/run/podman/podman.sock\"):\n"
            "    os.makedirs(os.path.dirname(n), exist_ok=True); socket.socket(socket.AF_UNIX).bind(n)\n"
            "' && for p in /run/docker.sock /var/run/docker.sock /run /var/run /run/containerd "
            "/run/containerd/containerd.sock /run/podman/podman.sock /run/podman /var; do "
            "%s run -v $p:/data -- ls -R /data; echo $p $?; done"
        ) % (self.work, cl.PYTHON, cl.CLOCHE)
        r = cl.command("unshare", "-m", "sh", "-c", script, env=self.env)
        lines = r.out.splitlines()
        self.assertEqual(len(lines), 9, str(r))
        for line in lines:
            if not (line.startswith("/var ") and os.path.islink("/var/run")):
                self.assertTrue(line.endswith(" 125"), str(r))

    def test_socket_file(self):
        """Any other unix socket of the host is no mount source either."""
        path = self.path("work/sock")
        s = socket.socket(socket.AF_UNIX)
        s.bind(path)
        self.addCleanup(s.close)
        self.no(path)

    def test_configurable(self):
        self.write("private/key", SECRET)
        self.no_with(["--forbid", self.path("private")], self.path("private"))
        self.no_with(["--forbid", self.path("private")], self.path("private/key"))

    def no_with(self, options, source):
        r = self.refused(
            "run",
            *options,
            "-v",
            source + ":/data",
            *sh("cat /data /data/*"),
            env=self.env,
            cwd=self.work
        )
        self.assertNotIn(SECRET, r.out)

    def test_forbid_is_for_the_workspace_and_files_too(self):
        self.write("private/key", SECRET)
        forbid = ("--forbid", self.path("private"))
        self.refused("run", *forbid, "-w", self.path("private"), "--", "cat", "key", cwd=self.work)
        self.refused(
            "run",
            *forbid,
            "--file",
            "k=" + self.path("private/key"),
            "--",
            "cat",
            "k",
            cwd=self.work
        )
        r = self.ok("run", *forbid, *sh("cat key 2>/dev/null; true"), cwd=self.path("private"))
        self.assertEqual(r.out, "")

    def test_state_directory_is_forbidden(self):
        """Where cloche keeps its state is no mount source."""
        state = self.mkdir("state")
        self.write("state/db", SECRET)
        self.no(state, env=cl.caller_env(HOME=self.home, CLOCHE_STATE_DIR=state))


class AllowLists(cl.Case):
    def setUp(self):
        super().setUp()
        for name in ("in/deep", "out", "rw"):
            self.write(name + "/a", "text")
        self.work = self.mkdir("work")

    def mount(self, *args):
        return cl.run("run", *args, "--", "cat", "/data/a", cwd=self.work)

    def test_read_list(self):
        lists = ("--mount-read", self.path("in"))
        self.assertEqual(self.mount(*lists, "-v", self.path("in/deep") + ":/data").out, "text")
        r = self.mount(*lists, "-v", self.path("out") + ":/data")
        self.assertEqual(r.code, 125, str(r))

    def test_write_list(self):
        lists = ("--mount-write", self.path("rw"))
        self.assertEqual(self.mount(*lists, "-v", self.path("rw") + ":/data:rw").out, "text")
        self.assertEqual(self.mount(*lists, "-v", self.path("out") + ":/data:rw").code, 125)

    def test_readable_is_not_writable(self):
        lists = ("--mount-read", self.path("in"), "--mount-write", self.path("rw"))
        self.assertEqual(self.mount(*lists, "-v", self.path("in/deep") + ":/data:rw").code, 125)

    def test_prefix_is_by_component(self):
        self.write("in2/a", "no")
        self.assertEqual(
            self.mount("--mount-read", self.path("in"), "-v", self.path("in2") + ":/data").code, 125
        )

    def test_symlink_out_of_the_list(self):
        os.symlink("../out", self.path("in/link"))
        r = self.mount("--mount-read", self.path("in"), "-v", self.path("in/link") + ":/data")
        self.assertEqual(r.code, 125, str(r))

    def test_forbidden_wins(self):
        home = self.mkdir("home")
        self.write("home/.ssh/a", SECRET)
        r = cl.run(
            "run",
            "--mount-read",
            self.path("home/.ssh"),
            "-v",
            self.path("home/.ssh") + ":/data",
            "--",
            "cat",
            "/data/a",
            env=cl.caller_env(HOME=home),
            cwd=self.work,
        )
        self.assertEqual((r.code, SECRET in r.out), (125, False), str(r))


class Race(cl.Case):
    def test_symlink_swapped_during_the_start(self):
        """A link that flips between an allowed and a forbidden place never shows the latter."""
        home = self.mkdir("home")
        self.write("home/.ssh/key", SECRET)
        self.write("fine/key", "fine")
        work = self.mkdir("work")
        link, stop = self.path("link"), threading.Event()
        os.symlink("fine", link)

        def flip():
            targets, n = (self.path("home/.ssh"), self.path("fine")), 0
            while not stop.is_set():
                temporary = self.path("link%d" % (n % 2))
                os.symlink(targets[n % 2], temporary)
                os.rename(temporary, link)
                n += 1

        flipper = threading.Thread(target=flip)
        flipper.start()
        seen, runs = set(), 0
        end = time.monotonic() + 120
        try:
            # On a busy machine the other thread may stand still for a while.
            while runs < 60 or (seen != {0, 125} and time.monotonic() < end):
                runs += 1
                r = cl.run(
                    "run",
                    "-v",
                    link + ":/data",
                    "--",
                    "cat",
                    "/data/key",
                    cwd=work,
                    env=cl.caller_env(HOME=home),
                )
                self.assertNotIn(SECRET, r.out)
                self.assertIn((r.code, r.out), ((0, "fine"), (125, "")), str(r))
                seen.add(r.code)
        finally:
            stop.set()
            flipper.join()
        self.assertEqual(seen, {0, 125}, "the race was not run both ways")

    def test_directory_swapped_during_the_start(self):
        """The same with a parent directory of the workspace."""
        home = self.mkdir("home")
        self.write("home/.ssh/sub/key", SECRET)
        self.write("a/sub/key", "fine")
        work = self.mkdir("work")
        stop = threading.Event()

        def flip():
            while not stop.is_set():
                os.rename(self.path("a"), self.path("b"))
                os.symlink(self.path("home/.ssh"), self.path("a"))
                os.unlink(self.path("a"))
                os.rename(self.path("b"), self.path("a"))

        flipper = threading.Thread(target=flip)
        flipper.start()
        try:
            for _ in range(40):
                r = cl.run(
                    "run",
                    "-w",
                    self.path("a/sub"),
                    "--",
                    "cat",
                    "key",
                    cwd=work,
                    env=cl.caller_env(HOME=home),
                )
                self.assertNotIn(SECRET, r.out)
                self.assertIn(r.code, (0, 125), str(r))
        finally:
            stop.set()
            flipper.join()
