"""What the command sees of the caller's files, and where it can write."""

import os
import stat

import cl


def sh(script):
    return ("--", "sh", "-c", script)


class CurrentDirectory(cl.Case):
    def test_own_path(self):
        self.assertEqual(self.out("pwd"), self.dir + "\n")
        self.write("a.txt", "text")
        self.assertEqual(self.out("cat", "a.txt"), "text")
        self.assertEqual(self.out("cat", self.path("a.txt")), "text")

    def test_workspace_leads_there(self):
        self.write("a.txt", "text")
        self.assertEqual(self.out("cat", "/workspace/a.txt"), "text")
        self.assertEqual(self.out("sh", "-c", "echo new > b; cat /workspace/b"), "new\n")

    def test_writes_are_discarded(self):
        self.write("a.txt", "before")
        self.write("gone.txt", "still here")
        script = (
            "echo after > a.txt; rm gone.txt; mkdir d; echo x > d/x; mv a.txt c.txt; "
            "cat c.txt; ls"
        )
        self.assertEqual(self.out("sh", "-c", script), "after\nc.txt\nd\n")
        self.assertEqual(sorted(os.listdir(self.dir)), ["a.txt", "gone.txt"])
        self.assertEqual(self.read("a.txt"), "before")

    def test_modes_and_times_stay(self):
        path = self.write("tool", "#!/bin/sh\n", 0o750)
        os.utime(path, (1e9, 1e9))
        self.out("sh", "-c", "chmod 777 tool; touch tool; stat -c %a tool")
        st = os.stat(path)
        self.assertEqual((stat.S_IMODE(st.st_mode), st.st_mtime), (0o750, 1e9))

    def test_owner_is_the_user_inside(self):
        self.write("a.txt", "secret of mine", 0o600)
        self.assertEqual(
            self.out("sh", "-c", "cat a.txt; stat -c ' %u %U' a.txt ."),
            "secret of mine 1000 user\n 1000 user\n",
        )

    def test_no_write_through_by_mmap_or_proc(self):
        self.write("a.txt", "before")
        code = (
            "import mmap, os\n"
            "f = open('a.txt', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0:6] = b'mapped'; m.flush()\n"
            "open('/proc/self/cwd/a.txt', 'r+').write('throug')\n"
            "print(open('a.txt').read())"
        )
        self.assertEqual(self.out(*cl.py(code)), "throug\n")
        self.assertEqual(self.read("a.txt"), "before")

    def test_siblings_are_not_seen(self):
        """Only this directory: not its parents' other entries."""
        self.mkdir("sub")
        self.write("outside.txt", "no")
        r = self.ok("run", *sh("ls -a ..; cat ../outside.txt || true"), cwd=self.path("sub"))
        self.assertNotIn("outside.txt", r.out)
        self.assertNotIn("no", r.out.split("\n"))

    def test_below_a_symlink(self):
        """A directory reached through a symbolic link is shown; the link's own name may be gone."""
        self.mkdir("real")
        self.write("real/a.txt", "text")
        os.symlink("real", self.path("link"))
        env = cl.caller_env(PWD=self.path("link"))
        r = self.ok("run", *sh("cat a.txt; cat /workspace/a.txt"), cwd=self.path("link"), env=env)
        self.assertEqual(r.out, "texttext")

    def test_pwd_is_no_authority(self):
        """A lying PWD does not change what is shown."""
        self.write("a.txt", "text")
        r = self.ok("run", *sh("cat a.txt; pwd"), env=cl.caller_env(PWD="/etc"))
        self.assertEqual(r.out, "text" + self.dir + "\n")

    def test_odd_names(self):
        name = "a b:c,d\\e\n\u00e4"
        self.mkdir(name)
        self.write(name + "/f", "text")
        self.assertEqual(self.ok("run", "--", "cat", "f", cwd=self.path(name)).out, "text")
        self.assertEqual(
            self.ok("run", "--", "cat", "/workspace/f", cwd=self.path(name)).out, "text"
        )

    def test_deep_directory(self):
        deep = self.mkdir("/".join(["d" * 60] * 20))
        self.assertEqual(self.ok("run", "--", "pwd", cwd=deep).out, deep + "\n")

    def test_directory_in_home(self):
        """A project inside the home directory is shown; its neighbours are not."""
        home = self.mkdir("home")
        self.write("home/.ssh/id", "key")
        project = self.mkdir("home/project")
        self.write("home/project/a", "text")
        r = self.ok(
            "run",
            *sh("cat a; cat %s/.ssh/id 2>/dev/null || echo none" % home),
            cwd=project,
            env=cl.caller_env(HOME=home)
        )
        self.assertEqual(r.out, "textnone\n")

    def test_nested_mounts_and_symlinks_to_the_outside(self):
        """A link in the tree that leads out of it leads nowhere, or into the sandbox's own root."""
        secret = self.write("outside/secret", "key")
        work = self.mkdir("work")
        os.symlink("../outside/secret", os.path.join(work, "rel"))
        os.symlink(secret, os.path.join(work, "abs"))
        r = cl.run("run", *sh("cat rel abs"), cwd=work)
        self.assertNotEqual(r.code, 0)
        self.assertNotIn("key", r.out)

    def test_unwritable_file_of_the_owner(self):
        self.write("ro", "x", 0o444)
        r = cl.run("run", *sh("echo y > ro"))
        self.assertNotEqual(r.code, 0, str(r))
        self.assertIn("denied", r.err)

    def test_diff_lists_changes(self):
        for name in ("changed", "removed", "kept"):
            self.write(name, "1")
        r = self.ok("run", "--diff", *sh("echo 2 > changed; rm removed; echo 3 > added; cat kept"))
        self.assertEqual(r.out, "1")
        for name in ("changed", "removed", "added"):
            self.assertRegex(r.err, r"(?m)\b%s\b" % name)
        self.assertNotIn("kept", r.err)
        self.assertEqual(sorted(os.listdir(self.dir)), ["changed", "kept", "removed"])

    def test_changes_in_the_record(self):
        for name in ("changed", "removed", "kept", "d/deep", "gone/x"):
            self.write(name, "1")
        script = (
            "echo 2 > changed; rm removed; echo 3 > added; mkdir e; echo 4 > e/f; "
            "echo 5 > d/deep; rm -r gone; cat kept"
        )
        rec = cl.record("--diff", *sh(script))
        kinds = {c["path"]: c["kind"] for c in rec["changes"]}
        self.assertEqual(kinds.get("changed"), "modified")
        self.assertEqual(kinds.get("removed"), "deleted")
        self.assertEqual(kinds.get("added"), "added")
        self.assertEqual(kinds.get("e/f"), "added")
        self.assertEqual(kinds.get("d/deep"), "modified")
        self.assertEqual(kinds.get("gone/"), "deleted")
        self.assertNotIn("kept", kinds)

    def test_changes_only_when_asked_for_or_none(self):
        """Without --diff or --apply the list may be empty, but never wrong."""
        self.write("kept", "1")
        rec = cl.record("--", "cat", "kept")
        self.assertEqual(rec["changes"], [])

    def test_odd_names_in_changes(self):
        rec = cl.record(
            "--diff",
            "--",
            *cl.py("open(b'\\xff\\x1b[31m', 'w'); open('a\\nb', 'w'); open('\u00e4', 'w')")
        )
        paths = [c["path"] for c in rec["changes"]]
        self.assertEqual(len(paths), 3, paths)
        self.assertIn("\u00e4", paths)
        r = self.ok(
            "run", "--diff", "--", *cl.py("open(b'\\xff\\x1b[31m', 'w'); open('a\\nb', 'w')")
        )
        self.assertNotIn("\x1b", r.err)
        self.assertNotIn("\nb", r.err)

    def test_many_changes_are_bounded(self):
        rec = cl.record(
            "--diff",
            "--",
            *cl.py("[open('f%d' % i, 'w').close() for i in range(20000)]"),
            timeout=60
        )
        self.assertGreater(len(rec["changes"]), 100)
        self.assertLessEqual(len(rec["changes"]), 20000)


class Empty(cl.Case):
    def test_nothing_is_shown(self):
        self.write("a.txt", "text")
        r = self.ok(
            "run",
            "--empty",
            *sh(
                "ls -A; ls -A /workspace; test ! -e %s && echo none; "
                "echo w > w; cat /workspace/w; pwd" % self.path("a.txt")
            )
        )
        lines = r.out.splitlines()
        self.assertEqual(lines[:2], ["none", "w"], str(r))

    def test_not_with_workspace(self):
        self.refused("run", "--empty", "--workspace", self.dir, "--", "true", says="empty")


class ForbiddenDirectory(cl.Case):
    def check_empty(self, cwd, env=None, tell=None):
        r = self.ok("run", *sh("ls -A /workspace; ls -A ."), cwd=cwd, env=env)
        self.assertEqual(r.out, "", "shown: %s" % r)
        self.assertRegex(r.err, r"(?m)^cloche: .*(empty|forbidden|not shown)", str(r))
        return r

    def test_home_with_keys(self):
        self.write("home/.ssh/id_rsa", "key")
        self.write("home/.aws/credentials", "key")
        self.check_empty(self.path("home"), cl.caller_env(HOME=self.path("home")))

    def test_keys_themselves(self):
        self.write("home/.ssh/id_rsa", "key")
        self.check_empty(self.path("home/.ssh"), cl.caller_env(HOME=self.path("home")))

    def test_below_keys(self):
        self.write("home/.ssh/deep/id_rsa", "key")
        self.check_empty(self.path("home/.ssh/deep"), cl.caller_env(HOME=self.path("home")))

    def test_parent_of_home(self):
        self.write("home/.ssh/id_rsa", "key")
        self.check_empty(self.dir, cl.caller_env(HOME=self.path("home")))

    def test_system_directories(self):
        for cwd in ("/", "/etc", "/proc", "/sys", "/dev", "/proc/self"):
            self.check_empty(cwd)

    def test_root(self):
        self.need_root("enters /root")
        self.check_empty("/root", cl.caller_env(HOME="/root"))

    def test_record_has_the_note(self):
        r = cl.run("run", "--json", "--", "true", cwd="/etc")
        self.assertRegex(r.out + r.err, "empty|forbidden|not shown")

    def test_usr_is_shown_anyway(self):
        """The command still runs, and a directory of the image is simply there."""
        self.assertEqual(
            self.ok("run", "--", "ls", "/usr/bin/env", cwd="/etc").out, "/usr/bin/env\n"
        )

    def test_deleted_directory(self):
        gone = self.mkdir("gone")
        r = cl.command(
            "sh", "-c", 'cd "$1" && rmdir "$1" && exec "$2" run -- echo ran', "sh", gone, cl.CLOCHE
        )
        self.assertIn(r.code, (0, 125), str(r))
        self.assertIn("cloche: ", r.err)


class Writable(cl.Case):
    def test_home(self):
        self.assertEqual(
            self.out("sh", "-c", "cd; pwd; mkdir -p .cache/x; echo w > .cache/x/f; cat .cache/x/f"),
            "/home/user\nw\n",
        )

    def test_temporary_places(self):
        for place in ("/tmp", "/var/tmp", "/dev/shm"):
            self.assertEqual(
                self.out(
                    "sh",
                    "-c",
                    "ls -A %s | grep -v cloche; echo w > %s/f; cat %s/f" % (place, place, place),
                ),
                "w\n",
                place,
            )

    def test_system_is_read_only(self):
        for place in ("/usr", "/usr/bin", "/etc", "/opt", "/bin", "/lib"):
            if not os.path.isdir(place):
                continue
            r = cl.run("run", *sh("touch %s/cloche-e2e-x" % place))
            self.assertNotEqual(r.code, 0, place)
            self.assertFalse(os.path.exists(place + "/cloche-e2e-x"))
        r = cl.run("run", *sh("echo x >> /usr/bin/env"))
        self.assertNotEqual(r.code, 0)

    def test_root_overlay(self):
        self.need_root("the image's files belong to root")
        script = (
            "echo x > /usr/bin/cloche-e2e-x && echo y > /etc/cloche-e2e-y && mkdir /cloche-e2e-z && "
            "rm /usr/bin/env && ls /usr/bin/cloche-e2e-x"
        )
        r = self.ok("run", "--root", "overlay", *sh(script))
        self.assertEqual(r.out, "/usr/bin/cloche-e2e-x\n")
        self.assertTrue(os.path.exists("/usr/bin/env"))
        self.assertFalse(os.path.exists("/usr/bin/cloche-e2e-x"))
        self.assertFalse(os.path.exists("/cloche-e2e-z"))

    def test_root_overlay_as_a_user(self):
        self.need_user("root gets it")
        self.refused("run", "--root", "overlay", "--", "true", says="root: overlay")

    def test_nothing_is_kept_between_runs(self):
        self.out("sh", "-c", "echo x > ~/f; echo x > /tmp/f; echo x > /dev/shm/f; echo x > f")
        self.assertEqual(
            self.out("sh", "-c", "ls ~/f /tmp/f /dev/shm/f f 2>/dev/null; echo end"), "end\n"
        )


class Workdir(cl.Case):
    def test_absolute(self):
        self.assertEqual(self.ok("run", "--workdir", "/tmp", "--", "pwd").out, "/tmp\n")
        self.mkdir("sub")
        self.assertEqual(
            self.ok("run", "--workdir", self.path("sub"), "--", "pwd").out, self.path("sub") + "\n"
        )

    def test_relative_to_the_workspace(self):
        self.mkdir("sub")
        r = self.ok("run", "--workdir", "sub", "--", "pwd")
        self.assertIn(r.out, (self.path("sub") + "\n", "/workspace/sub\n"))

    def test_missing(self):
        self.refused("run", "--workdir", "/no/such/dir", "--", "true", says="/no/such/dir")

    def test_not_the_hosts(self):
        """It is a path of the sandbox: a directory that only the host has is missing."""
        self.mkdir("out")
        self.mkdir("in")
        self.refused("run", "--workdir", self.path("out"), "--", "true", cwd=self.path("in"))
