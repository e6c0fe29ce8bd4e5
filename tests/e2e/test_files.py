"""What the command sees of the caller's files, and what becomes of its writes."""

import base64
import json
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
        script = ("echo after > a.txt; rm gone.txt; mkdir d; echo x > d/x; mv a.txt c.txt; "
                  "cat c.txt; ls")
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
        self.assertEqual(self.out("sh", "-c", "cat a.txt; stat -c ' %u %U' a.txt ."),
                         "secret of mine 1000 user\n 1000 user\n")

    def test_no_write_through_by_mmap_or_proc(self):
        self.write("a.txt", "before")
        code = ("import mmap, os\n"
                "f = open('a.txt', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0:6] = b'mapped'; m.flush()\n"
                "open('/proc/self/cwd/a.txt', 'r+').write('throug')\n"
                "print(open('a.txt').read())")
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
        self.assertEqual(self.ok("run", "--", "cat", "/workspace/f", cwd=self.path(name)).out, "text")

    def test_deep_directory(self):
        deep = self.mkdir("/".join(["d" * 60] * 20))
        self.assertEqual(self.ok("run", "--", "pwd", cwd=deep).out, deep + "\n")

    def test_directory_in_home(self):
        """A project inside the home directory is shown; its neighbours are not."""
        home = self.mkdir("home")
        self.write("home/.ssh/id", "key")
        project = self.mkdir("home/project")
        self.write("home/project/a", "text")
        r = self.ok("run", *sh("cat a; cat %s/.ssh/id 2>/dev/null || echo none" % home),
                    cwd=project, env=cl.caller_env(HOME=home))
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
        script = ("echo 2 > changed; rm removed; echo 3 > added; mkdir e; echo 4 > e/f; "
                  "echo 5 > d/deep; rm -r gone; cat kept")
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
        rec = cl.record("--diff", "--", *cl.py(
            "open(b'\\xff\\x1b[31m', 'w'); open('a\\nb', 'w'); open('\u00e4', 'w')"))
        paths = [c["path"] for c in rec["changes"]]
        self.assertEqual(len(paths), 3, paths)
        self.assertIn("\u00e4", paths)
        r = self.ok("run", "--diff", "--", *cl.py("open(b'\\xff\\x1b[31m', 'w'); open('a\\nb', 'w')"))
        self.assertNotIn("\x1b", r.err)
        self.assertNotIn("\nb", r.err)

    def test_many_changes_are_bounded(self):
        rec = cl.record("--diff", "--", *cl.py(
            "[open('f%d' % i, 'w').close() for i in range(20000)]"), timeout=60)
        self.assertGreater(len(rec["changes"]), 100)
        self.assertLessEqual(len(rec["changes"]), 20000)


class Empty(cl.Case):
    def test_nothing_is_shown(self):
        self.write("a.txt", "text")
        r = self.ok("run", "--empty", *sh("ls -A; ls -A /workspace; test ! -e %s && echo none; "
                                          "echo w > w; cat /workspace/w; pwd" % self.path("a.txt")))
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
        self.assertEqual(self.ok("run", "--", "ls", "/usr/bin/env", cwd="/etc").out, "/usr/bin/env\n")

    def test_deleted_directory(self):
        gone = self.mkdir("gone")
        r = cl.command("sh", "-c", 'cd "$1" && rmdir "$1" && exec "$2" run -- echo ran', "sh", gone,
                       cl.CLOCHE)
        self.assertIn(r.code, (0, 125), str(r))
        self.assertIn("cloche: ", r.err)


class Workspace(cl.Case):
    def test_writes_through(self):
        self.write("ws/a.txt", "before")
        r = self.ok("run", "-w", "ws", *sh("cat a.txt; echo after > a.txt; echo new > b; pwd"))
        self.assertEqual(r.out, "before" + self.path("ws") + "\n")
        self.assertEqual((self.read("ws/a.txt"), self.read("ws/b")), ("after\n", "new\n"))

    def test_owned_by_the_owner(self):
        self.mkdir("ws")
        self.ok("run", "--workspace", self.path("ws"), *sh("mkdir d; echo x > d/f; ln -s f d/l"))
        for name in ("ws/d", "ws/d/f", "ws/d/l"):
            st = os.lstat(self.path(name))
            self.assertEqual((st.st_uid, st.st_gid), (os.geteuid(), os.getegid()), name)
            if not stat.S_ISLNK(st.st_mode):
                self.assertEqual(st.st_mode & 0o7002, 0, oct(st.st_mode))

    def test_of_another_owner(self):
        self.need_root()
        ws = self.mkdir("ws")
        self.write("ws/private", "theirs", 0o600)
        for path in (ws, self.path("ws/private")):
            os.chown(path, 4242, 4343)
        r = self.ok("run", "-w", ws, *sh("cat private; echo x > new; stat -c %u . private new"))
        self.assertEqual(r.out, "theirs1000\n1000\n1000\n")
        st = os.stat(self.path("ws/new"))
        self.assertEqual((st.st_uid, st.st_gid), (4242, 4343))

    def test_copy_on_write_of_another_owner(self):
        self.need_root()
        ws = self.mkdir("ws")
        self.write("ws/private", "theirs", 0o600)
        for path in (ws, self.path("ws/private")):
            os.chown(path, 4242, 4343)
        os.chmod(ws, 0o700)
        r = self.ok("run", *sh("cat private; echo x > private; cat private"), cwd=ws)
        self.assertEqual(r.out, "theirsx\n")
        self.assertEqual(self.read("ws/private"), "theirs")

    def test_files_of_strangers_in_it(self):
        """A file of a third party keeps its owner and cannot be given away or taken."""
        self.need_root()
        ws = self.mkdir("ws")
        self.write("ws/foreign", "x", 0o600)
        os.chown(self.path("ws/foreign"), 5555, 5555)
        r = cl.run("run", "-w", ws, *sh("cat foreign; chown 0 . ; chown 5555 ."))
        self.assertNotEqual(r.code, 0)
        self.assertNotIn("x", r.out)
        self.assertEqual(os.stat(ws).st_uid, 0)
        self.assertEqual(os.stat(self.path("ws/foreign")).st_uid, 5555)

    def test_no_set_id(self):
        """Rule: nothing inside can leave a set-id file on the host."""
        self.mkdir("ws")
        code = ("import os\n"
                "open('f', 'w').close(); got = []\n"
                "for n, call in enumerate([lambda: os.chmod('f', 0o4755), lambda: os.chmod('f', 0o2755),\n"
                "    lambda: os.fchmod(os.open('f', os.O_RDONLY), 0o6755),\n"
                "    lambda: os.close(os.open('g', os.O_CREAT | os.O_WRONLY, 0o4755)),\n"
                "    lambda: os.mknod('h', 0o104755), lambda: os.mkdir('i', 0o2755)]):\n"
                "    try: call(); got.append(n)\n"
                "    except OSError: pass\n"
                "print(got)")
        r = self.ok("run", "-w", "ws", "--", *cl.py(code))
        for name in os.listdir(self.path("ws")):
            self.assertEqual(os.lstat(self.path("ws", name)).st_mode & 0o6000, 0, name + r.out)

    def test_no_devices(self):
        self.mkdir("ws")
        r = cl.run("run", "-w", "ws", *sh("mknod dev c 1 3; mknod blk b 8 0"))
        self.assertNotEqual(r.code, 0)
        self.assertEqual(os.listdir(self.path("ws")), [])

    def test_missing(self):
        self.refused("run", "-w", self.path("none"), "--", "true", says="none")

    def test_a_file(self):
        self.refused("run", "-w", self.write("f"), "--", "true", says="director")

    def test_symlink_is_judged_by_its_target(self):
        self.write("home/.ssh/id", "key")
        os.symlink("home/.ssh", self.path("innocent"))
        self.refused("run", "-w", self.path("innocent"), "--", "ls",
                     env=cl.caller_env(HOME=self.path("home")), says="ssh")

    def test_forbidden(self):
        for path in ("/etc", "/proc", "/", "/dev", "/sys"):
            self.refused("run", "-w", path, "--", "true")

    def test_control_files_cannot_be_changed(self):
        """In place: what a tool outside would later run is not to be written from inside."""
        self.write("ws/.git/config", "[core]\n")
        self.write("ws/.git/hooks/pre-commit", "#!/bin/sh\n", 0o755)
        self.write("ws/.vscode/tasks.json", "{}")
        self.write("ws/.mcp.json", "{}")
        script = ("for f in .git/config .git/hooks/pre-commit .git/hooks/new .vscode/tasks.json "
                  ".mcp.json; do echo evil > $f; done; echo fine > ok; echo obj > .git/index; true")
        self.ok("run", "-w", "ws", *sh(script))
        for name in (".git/config", ".git/hooks/pre-commit", ".vscode/tasks.json", ".mcp.json"):
            self.assertNotIn("evil", self.read("ws/" + name), name)
        self.assertFalse(os.path.exists(self.path("ws/.git/hooks/new")))
        self.assertEqual((self.read("ws/ok"), self.read("ws/.git/index")), ("fine\n", "obj\n"))

    def test_no_litter(self):
        """No placeholders of protected paths stay in the user's tree."""
        self.mkdir("ws")
        self.ok("run", "-w", "ws", "--", "true")
        self.assertEqual(os.listdir(self.path("ws")), [])
        self.ok("run", "--", "true")
        self.assertEqual(os.listdir(self.dir), ["ws"])


class Apply(cl.Case):
    CONTROL = (".git/hooks/pre-commit", ".git/config", ".vscode/tasks.json", ".mcp.json",
               ".claude/settings.json", ".bashrc", ".codex/config.toml", ".idea/workspace.xml",
               "sub/.git/hooks/post-checkout", "sub/.git/config", ".cursor/mcp.json", ".envrc",
               ".gitmodules", ".profile", ".zshrc", ".husky/pre-commit")

    def test_success(self):
        for name in ("changed", "removed", "kept", "dir/inner", "tree/x"):
            self.write(name, "1")
        os.chmod(self.path("kept"), 0o640)
        script = ("echo 2 > changed; rm removed; echo 3 > added; mkdir -p new/deep; "
                  "echo 4 > new/deep/f; echo 5 > dir/inner; rm -r tree; ln -s changed link; "
                  "echo run > tool; chmod 755 tool")
        r = self.ok("run", "--apply", *sh(script))
        self.assertEqual(r.out, "")
        self.assertEqual(self.read("changed"), "2\n")
        self.assertEqual(self.read("added"), "3\n")
        self.assertEqual(self.read("new/deep/f"), "4\n")
        self.assertEqual(self.read("dir/inner"), "5\n")
        self.assertEqual(self.read("kept"), "1")
        self.assertFalse(os.path.lexists(self.path("removed")))
        self.assertFalse(os.path.lexists(self.path("tree")))
        self.assertEqual(os.readlink(self.path("link")), "changed")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("tool")).st_mode), 0o755)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("kept")).st_mode), 0o640)
        for name in ("changed", "added", "new", "new/deep/f", "link"):
            self.assertEqual(os.lstat(self.path(name)).st_uid, os.geteuid(), name)

    def test_directory_replaced(self):
        """A directory removed and made again holds only what is new (an opaque directory)."""
        self.write("d/old", "1")
        self.ok("run", "--apply", *sh("rm -r d; mkdir d; echo 2 > d/new"))
        self.assertEqual(os.listdir(self.path("d")), ["new"])

    def test_directory_renamed(self):
        self.write("d/f", "1")
        self.ok("run", "--apply", *sh("mv d e"))
        self.assertEqual(os.listdir(self.dir), ["e"])
        self.assertEqual(self.read("e/f"), "1")

    def test_kind_changed(self):
        self.write("file", "1")
        self.write("dir/f", "1")
        self.ok("run", "--apply", *sh("rm file; mkdir file; echo 2 > file/x; rm -r dir; echo 3 > dir"))
        self.assertEqual((self.read("file/x"), self.read("dir")), ("2\n", "3\n"))

    def test_failure_changes_nothing(self):
        self.write("a", "1")
        for script in ("echo 2 > a; echo 3 > b; exit 1", "echo 2 > a; kill -9 $$"):
            self.assertNotEqual(cl.run("run", "--apply", *sh(script)).code, 0)
            self.assertEqual((os.listdir(self.dir), self.read("a")), (["a"], "1"))

    def test_timeout_changes_nothing(self):
        self.write("a", "1")
        r = cl.run("run", "--apply", "-t", "300ms", *sh("echo 2 > a; sleep 9"))
        self.assertEqual((r.code, self.read("a")), (124, "1"))

    def test_control_files(self):
        for name in self.CONTROL[:4]:
            self.write(name, "mine")
        script = "".join("mkdir -p $(dirname %s); echo evil > %s; " % (n, n) for n in self.CONTROL)
        rec = cl.record("--apply", *sh(script + "echo fine > ok"), code=0)
        for name in self.CONTROL:
            path = self.path(name)
            self.assertTrue(not os.path.exists(path) or "evil" not in self.read(name), name)
        self.assertEqual(self.read("ok"), "fine\n")
        kinds = {c["path"]: c["kind"] for c in rec["changes"]}
        self.assertEqual(kinds.get("ok"), "added")
        self.assertIn("skipped", kinds.values())

    def test_control_files_by_another_way(self):
        """Renaming, links and a .git file are ways to the same end."""
        self.write(".git/HEAD", "ref: refs/heads/main\n")
        script = ("mv .git x; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; "
                  "mkdir h; echo evil > h/pre-commit; mkdir -p s; ln -s ../h s/hooks; "
                  "mkdir m; echo 'gitdir: ../h' > m/.git; mkdir -p bare.git/hooks; "
                  "echo evil > bare.git/hooks/post-update; mkdir c; ln -s ../h c/.vscode; "
                  "mkdir C; echo evil > .GIT; mkdir -p k/.Git/hooks; echo evil > k/.Git/hooks/x")
        self.ok("run", "--apply", *sh(script))
        for name in (".git/hooks/pre-commit", "m/.git", "c/.vscode"):
            self.assertFalse(os.path.lexists(self.path(name)), name)

    def test_control_files_are_not_removed(self):
        self.write(".git/hooks/pre-commit", "mine", 0o755)
        self.write(".git/config", "mine")
        self.write(".mcp.json", "mine")
        self.ok("run", "--apply", *sh("rm -rf .git/hooks .git/config .mcp.json"))
        for name in (".git/hooks/pre-commit", ".git/config", ".mcp.json"):
            self.assertEqual(self.read(name), "mine")

    def test_set_id_is_dropped(self):
        self.write("tool", "#!/bin/sh\n", 0o4755)
        self.ok("run", "--apply", *sh("echo changed > tool2; cat tool2 > tool; true"))
        for name in ("tool", "tool2"):
            self.assertEqual(os.stat(self.path(name)).st_mode & 0o6000, 0, name)

    def test_nothing_outside(self):
        """Links put in the way do not carry writes out of the tree."""
        outside = self.mkdir("outside")
        self.write("outside/f", "safe")
        self.write("work/d/f", "1")
        os.symlink(os.path.join(outside, "f"), self.path("work/l"))
        os.symlink(outside, self.path("work/ldir"))
        script = ("rm -r d; ln -s %s d; rm l; echo evil > l; rm ldir; mkdir ldir; "
                  "echo evil > ldir/f; echo evil > ldir/g" % outside)
        self.ok("run", "--apply", *sh(script), cwd=self.path("work"))
        self.assertEqual(os.listdir(outside), ["f"])
        self.assertEqual(self.read("outside/f"), "safe")
        self.assertEqual(self.read("work/l"), "evil\n")

    def test_other_kinds_of_files(self):
        """Pipes and sockets are not written back, and do not make cloche hang."""
        code = ("import os, socket\n"
                "os.mkfifo('pipe'); s = socket.socket(socket.AF_UNIX); s.bind('sock')\n"
                "open('ok', 'w').write('x')")
        self.ok("run", "--apply", "--", *cl.py(code), timeout=15)
        self.assertTrue(os.path.exists(self.path("ok")))
        self.assertFalse(os.path.lexists(self.path("sock")))

    def test_hard_links(self):
        self.write("a", "1")
        self.ok("run", "--apply", *sh("ln a b; echo 2 >> b"))
        self.assertEqual((self.read("a"), self.read("b")), ("12\n", "12\n"))

    def test_changed_meanwhile(self):
        """Sizes up to the limit are written whole."""
        self.ok("run", "--apply", *sh("head -c 30000000 /dev/urandom > big; sha256sum < big > sum"))
        r = cl.command("sh", "-c", "sha256sum < big | cmp - sum")
        self.assertEqual(r.code, 0, str(r))

    def test_with_workspace(self):
        """--workspace DIR --apply: copy-on-write of DIR, applied on success."""
        self.write("ws/a", "1")
        r = cl.run("run", "-w", "ws", "--apply", *sh("echo 2 > a; exit 1"))
        self.assertEqual((r.code, self.read("ws/a")), (1, "1"), str(r))
        r = cl.run("run", "-w", "ws", "--apply", *sh("echo 2 > a"))
        self.assertEqual((r.code, self.read("ws/a")), (0, "2\n"), str(r))

    def test_record(self):
        self.write("a", "1")
        rec = cl.record("--apply", *sh("echo 2 > a; echo 3 > b"))
        self.assertEqual({c["path"]: c["kind"] for c in rec["changes"]},
                         {"a": "modified", "b": "added"})

    def test_not_with_empty(self):
        self.refused("run", "--apply", "--empty", "--", "true", says="apply")


class Writable(cl.Case):
    def test_home(self):
        self.assertEqual(self.out("sh", "-c", "cd; pwd; mkdir -p .cache/x; echo w > .cache/x/f; cat .cache/x/f"),
                         "/home/user\nw\n")

    def test_temporary_places(self):
        for place in ("/tmp", "/var/tmp", "/dev/shm"):
            self.assertEqual(self.out("sh", "-c", "ls -A %s | grep -v cloche; echo w > %s/f; cat %s/f" % (
                place, place, place)), "w\n", place)

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
        script = ("echo x > /usr/bin/cloche-e2e-x && echo y > /etc/cloche-e2e-y && mkdir /cloche-e2e-z && "
                  "rm /usr/bin/env && ls /usr/bin/cloche-e2e-x")
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
        self.assertEqual(self.out("sh", "-c", "ls ~/f /tmp/f /dev/shm/f f 2>/dev/null; echo end"), "end\n")


class Workdir(cl.Case):
    def test_absolute(self):
        self.assertEqual(self.ok("run", "--workdir", "/tmp", "--", "pwd").out, "/tmp\n")
        self.mkdir("sub")
        self.assertEqual(self.ok("run", "--workdir", self.path("sub"), "--", "pwd").out,
                         self.path("sub") + "\n")

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


class Files(cl.Case):
    def test_file_in(self):
        self.write("outside/data.csv", "1,2\n")
        work = self.mkdir("work")
        r = self.ok("run", "--file", "in/data.csv=../outside/data.csv", *sh(
            "cat in/data.csv /workspace/in/data.csv; echo more >> in/data.csv"), cwd=work)
        self.assertEqual(r.out, "1,2\n1,2\n")
        self.assertEqual(self.read("outside/data.csv"), "1,2\n")
        self.assertEqual(os.listdir(work), [])

    def test_file_in_with_empty(self):
        self.write("data", "x")
        r = self.ok("run", "--empty", "--file", "d=data", *sh("cat d"))
        self.assertEqual(r.out, "x")

    def test_file_name_must_stay_inside(self):
        self.write("data", "x")
        for name in ("../up", "/etc/passwd", "a/../../b", "", "..", "."):
            self.refused("run", "--file", name + "=data", "--", "true")

    def test_file_missing_or_forbidden(self):
        self.refused("run", "--file", "a=none", "--", "true", says="none")
        self.refused("run", "--file", "a=/etc/shadow", "--", "cat", "a")
        self.refused("run", "--file", "a=/etc", "--", "true")
        self.refused("run", "--file", "nothing", "--", "true")

    def test_capture(self):
        rec = cl.record("--capture", "*.csv", "--capture", "out/*", "--", "sh", "-c",
                        "echo 1,2 > a.csv; printf '\\377\\0' > b.csv; mkdir out; echo t > out/t.txt; echo n > c.txt")
        files = {f["path"]: f for f in rec["files"]}
        self.assertEqual(sorted(files), ["a.csv", "b.csv", "out/t.txt"])
        self.assertEqual(base64.b64decode(files["a.csv"]["content_base64"]), b"1,2\n")
        self.assertEqual(base64.b64decode(files["b.csv"]["content_base64"]), b"\xff\0")
        self.assertEqual(files["b.csv"]["size"], 2)

    def test_capture_of_links_and_pipes(self):
        """Only regular files of the workspace: no link out, no pipe to hang on, no device."""
        self.write("outside/secret", "key")
        work = self.mkdir("work")
        os.symlink("../outside/secret", os.path.join(work, "was-here"))
        rec = cl.record("--capture", "*", "--", "sh", "-c",
                        "ln -s /etc/passwd link; ln -s %s abs; mkfifo pipe; ln -s ../outside dir; "
                        "ln -s /proc/self/environ env; echo ok > ok" % self.path("outside/secret"),
                        cwd=work, timeout=15)
        self.assertEqual([f["path"] for f in rec["files"]], ["ok"])

    def test_capture_below_a_link(self):
        self.write("outside/secret", "key")
        work = self.mkdir("work")
        rec = cl.record("--capture", "d/*", "--", "sh", "-c", "ln -s %s d" % self.path("outside"), cwd=work)
        self.assertEqual(rec["files"], [])

    def test_capture_is_bounded(self):
        rec = cl.record("--capture", "*", "--", "sh", "-c",
                        "head -c 400000000 /dev/zero > big; truncate -s 400M sparse; echo x > small",
                        timeout=60)
        total = sum(len(f.get("content_base64") or "") for f in rec["files"])
        self.assertLess(total, 200 << 20)
        self.assertIn("small", [f["path"] for f in rec["files"]])

    def test_capture_many(self):
        rec = cl.record("--capture", "*", "--", *cl.py("[open('f%d' % i, 'w') for i in range(900)]"))
        self.assertLessEqual(len(rec["files"]), 900)
        self.assertGreater(len(rec["files"]), 0)

    def test_capture_after_failure(self):
        rec = cl.record("--capture", "log", "--", "sh", "-c", "echo why > log; exit 3", code=3)
        self.assertEqual([f["path"] for f in rec["files"]], ["log"])

    def test_capture_needs_json(self):
        self.refused("run", "--capture", "*", "--", "true", says="json")

    def test_capture_does_not_leave_the_workspace(self):
        for glob in ("../*", "/etc/passwd", "a/../../*"):
            r = cl.run("run", "--json", "--capture", glob, "--", "true")
            self.assertIn(r.code, (0, 125), str(r))
            if r.code == 0:
                self.assertEqual(json.loads(r.out)["files"], [])


class Image(cl.Case):
    def setUp(self):
        super().setUp()
        self.root = self.mkdir("image")
        for program in ("/bin/sh", "/bin/cat", "/bin/ls", "/usr/bin/id", "/usr/bin/touch"):
            cl.copy_program(self.root, program)
        self.write("image/etc/marker", "from the image\n")
        self.work = self.mkdir("work")
        self.write("work/a", "mine\n")

    def image(self, script, *more):
        return cl.run("run", "--image", self.root, *more, "--", "/bin/sh", "-c", script, cwd=self.work)

    def test_runs(self):
        r = self.image("cat /etc/marker a; id -u; ls /home /usr/share 2>/dev/null; echo x > /tmp/x; cat /tmp/x")
        self.assertEqual(r.code, 0, str(r))
        self.assertTrue(r.out.startswith("from the image\nmine\n1000\n"), str(r))

    def test_read_only(self):
        r = self.image("echo x > /etc/marker || touch /new")
        self.assertNotEqual(r.code, 0, str(r))
        self.assertEqual(self.read("image/etc/marker"), "from the image\n")

    def test_overlay(self):
        self.need_root("the image's files belong to root")
        r = self.image("echo x > /etc/marker && touch /new && cat /etc/marker", "--root", "overlay")
        self.assertEqual((r.code, r.out), (0, "x\n"), str(r))
        self.assertEqual(self.read("image/etc/marker"), "from the image\n")
        self.assertFalse(os.path.exists(self.path("image/new")))

    def test_no_litter(self):
        before = sorted(os.path.join(t, n) for t, d, f in os.walk(self.root) for n in d + f)
        self.image("true")
        after = sorted(os.path.join(t, n) for t, d, f in os.walk(self.root) for n in d + f)
        self.assertEqual(before, after)

    def test_hostile_links(self):
        """Mount targets of the image that are links must not lead onto the host."""
        victim = self.mkdir("victim")
        for name in ("proc", "dev", "tmp", "home", "workspace"):
            os.symlink(victim, os.path.join(self.root, name))
        r = self.image("cat a; echo x > /tmp/x; ls /proc/self/status")
        self.assertIn(r.code, (0, 125), str(r))
        if r.code == 0:
            self.assertTrue(r.out.startswith("mine\n"), str(r))
        self.assertEqual(os.listdir(victim), [])

    def test_missing(self):
        self.refused("run", "--image", self.path("none"), "--", "true", says="none")

    def test_name_is_not_a_path(self):
        self.refused("run", "--image", "debian:12", "--", "true", says="debian:12")

    def test_forbidden(self):
        self.refused("run", "--image", "/", "--", "true")
