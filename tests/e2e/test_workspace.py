"""--workspace, where writes go through, and --apply, which writes back what may be written."""

import json
import os
import stat

import cl


def sh(script):
    return ("--", "sh", "-c", script)


class Workspace(cl.Case):
    def test_file_system_that_cannot_map_ids(self):
        """Files of an overlay are nobody's for root's sandbox; the note says what that means."""
        self.need_root("mounts in a namespace of its own")
        for name in ("low/sub", "up", "wrk", "over"):
            self.mkdir(name)
        script = (
            'cd "$1" && mount -t overlay -o lowerdir=low,upperdir=up,workdir=wrk o over && cd over && '
            '"$2" run --json -- sh -c "echo x > new && echo y > sub/new"'
        )
        r = cl.command("unshare", "-m", "sh", "-c", script, "sh", self.dir, cl.CLOCHE)
        rec = json.loads(r.out)
        if not rec["notes"]:
            self.skipTest("this kernel maps ids on overlays")
        self.assertIn("sub/new: Permission denied", rec["stderr"])
        self.assertRegex(rec["notes"][0], "changed in directories that it has")

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
        code = (
            "import os\n"
            "open('f', 'w').close(); got = []\n"
            "for n, call in enumerate([lambda: os.chmod('f', 0o4755), lambda: os.chmod('f', 0o2755),\n"
            "    lambda: os.fchmod(os.open('f', os.O_RDONLY), 0o6755),\n"
            "    lambda: os.close(os.open('g', os.O_CREAT | os.O_WRONLY, 0o4755)),\n"
            "    lambda: os.mknod('h', 0o104755), lambda: os.mkdir('i', 0o2755)]):\n"
            "    try: call(); got.append(n)\n"
            "    except OSError: pass\n"
            "print(got)"
        )
        r = self.ok("run", "-w", "ws", "--", *cl.py(code))
        for name in os.listdir(self.path("ws")):
            self.assertEqual(os.lstat(self.path("ws", name)).st_mode & 0o6000, 0, name + r.out)

    def test_no_devices(self):
        self.mkdir("ws")
        r = cl.run("run", "-w", "ws", *sh("mknod dev c 1 3; mknod blk b 8 0"))
        self.assertNotEqual(r.code, 0)
        self.assertEqual(os.listdir(self.path("ws")), [])

    def test_no_whiteouts(self):
        """The 0/0 device that RENAME_WHITEOUT leaves would hide files in an overlay of the tree."""
        code = (
            "import ctypes\nopen('a', 'w').close()\n"
            "print(ctypes.CDLL(None).renameat2(-100, b'a', -100, b'b', 4))"
        )
        for level in ("container", "process"):
            self.mkdir(level)
            if level == "process":
                os.chmod(self.path(level), 0o777)
            r = cl.run("run", "--level", level, "-w", level, "--", *cl.py(code))
            self.assertEqual((r.out, os.listdir(self.path(level))), ("-1\n", ["a"]), str(r))

    def test_missing(self):
        self.refused("run", "-w", self.path("none"), "--", "true", says="none")

    def test_a_file(self):
        self.refused("run", "-w", self.write("f"), "--", "true", says="director")

    def test_symlink_is_judged_by_its_target(self):
        self.write("home/.ssh/id", "key")
        os.symlink("home/.ssh", self.path("innocent"))
        self.refused(
            "run",
            "-w",
            self.path("innocent"),
            "--",
            "ls",
            env=cl.caller_env(HOME=self.path("home")),
            says="ssh",
        )

    def test_forbidden(self):
        for path in ("/etc", "/proc", "/", "/dev", "/sys"):
            self.refused("run", "-w", path, "--", "true")

    def test_within_the_root(self):
        """Where the root is the host's, its directories are shown like any other, copy-on-write."""
        for place in ("/usr", "/usr/share"):
            r = self.ok("run", "--", "sh", "-c", "pwd; ls >/dev/null && echo seen", cwd=place)
            self.assertEqual(r.out, place + "\nseen\n")

    def test_control_files_cannot_be_changed(self):
        """In place: what a tool outside would later run is not to be written from inside."""
        self.write("ws/.git/config", "[core]\n")
        self.write("ws/.git/hooks/pre-commit", "#!/bin/sh\n", 0o755)
        self.write("ws/.vscode/tasks.json", "{}")
        self.write("ws/.mcp.json", "{}")
        script = (
            "for f in .git/config .git/hooks/pre-commit .git/hooks/new .vscode/tasks.json "
            ".mcp.json; do echo evil > $f; done; echo fine > ok; echo obj > .git/index; true"
        )
        self.ok("run", "-w", "ws", *sh(script))
        for name in (".git/config", ".git/hooks/pre-commit", ".vscode/tasks.json", ".mcp.json"):
            self.assertNotIn("evil", self.read("ws/" + name), name)
        self.assertFalse(os.path.exists(self.path("ws/.git/hooks/new")))
        self.assertEqual((self.read("ws/ok"), self.read("ws/.git/index")), ("fine\n", "obj\n"))

    def test_every_control_file_that_exists(self):
        """The same names that --apply leaves out, and a .git that is a file."""
        names = (".git", ".gemini/settings.json", ".npmrc", ".pre-commit-config.yaml", "opencode.json", ".vimrc", "AGENTS.md")
        for name in names:
            self.write("ws/" + name, "old")
        script = "for n in %s; do echo new > $n; mv $n $n.x; rm -f $n; done" % " ".join(names)
        cl.run("run", "-w", "ws", *sh(script))
        self.assertEqual([self.read("ws/" + n) for n in names], ["old"] * len(names))
        self.write("ws2/.git/commondir", "..\n")
        cl.run("run", "-w", "ws2", *sh("echo /elsewhere > .git/commondir; mv .git x; mkdir .git; echo evil > .git/config"))
        self.assertEqual((self.read("ws2/.git/commondir"), os.listdir(self.path("ws2"))), ("..\n", [".git"]))
        cl.run("run", "-w", "ws", *sh("mv .gemini x; rm -rf .gemini; mkdir .gemini"))
        self.assertEqual(self.read("ws/.gemini/settings.json"), "old")

    def test_what_git_moves_about(self):
        """What acts only once it is pushed stays writable: branches differ in it."""
        self.write("ws/.github/workflows/ci.yml", "old")
        self.ok("run", "-w", "ws", *sh("rm -r .github; mkdir .github; echo new > .github/x"))
        self.assertEqual(self.read("ws/.github/x"), "new\n")

    def test_no_litter(self):
        """No placeholders of protected paths stay in the user's tree."""
        self.mkdir("ws")
        self.ok("run", "-w", "ws", "--", "true")
        self.assertEqual(os.listdir(self.path("ws")), [])
        self.ok("run", "--", "true")
        self.assertEqual(os.listdir(self.dir), ["ws"])


class Apply(cl.Case):
    CONTROL = (
        ".git/hooks/pre-commit",
        ".git/config",
        ".vscode/tasks.json",
        ".mcp.json",
        ".claude/settings.json",
        ".bashrc",
        ".codex/config.toml",
        ".idea/workspace.xml",
        "sub/.git/hooks/post-checkout",
        "sub/.git/config",
        ".cursor/mcp.json",
        ".envrc",
        ".gitmodules",
        ".profile",
        ".zshrc",
        ".husky/pre-commit",
        "AGENTS.md",
        "sub/CLAUDE.md",
        ".github/workflows/ci.yml",
        ".git/rebase-merge/git-rebase-todo",
        ".hg/hgrc",
    )

    def test_success(self):
        for name in ("changed", "removed", "kept", "dir/inner", "tree/x"):
            self.write(name, "1")
        os.chmod(self.path("kept"), 0o640)
        script = (
            "echo 2 > changed; rm removed; echo 3 > added; mkdir -p new/deep; "
            "echo 4 > new/deep/f; echo 5 > dir/inner; rm -r tree; ln -s changed link; "
            "echo run > tool; chmod 755 tool"
        )
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
        self.ok(
            "run", "--apply", *sh("rm file; mkdir file; echo 2 > file/x; rm -r dir; echo 3 > dir")
        )
        self.assertEqual((self.read("file/x"), self.read("dir")), ("2\n", "3\n"))

    def test_what_the_owner_could_not_do(self):
        """A directory in place of a file, where the owner may not write: the file stays, and it is said."""
        self.write("ws/shut/file", "1")
        if cl.ROOT:
            for name in ("ws", "ws/shut", "ws/shut/file"):
                os.chown(self.path(name), 4242, 4343)
        os.chmod(self.path("ws/shut"), 0o555)
        self.addCleanup(os.chmod, self.path("ws/shut"), 0o755)
        script = "chmod 755 shut; rm shut/file; mkdir shut/file; echo 2 > shut/file/x; chmod 555 shut"
        r = cl.run("run", "--apply", *sh(script), cwd=self.path("ws"))
        self.assertEqual(r.code, 125, str(r))
        self.assertEqual(self.read("ws/shut/file"), "1")

    def test_failure_changes_nothing(self):
        self.write("a", "1")
        for script in ("echo 2 > a; echo 3 > b; exit 1", "echo 2 > a; kill -9 $$"):
            self.assertNotEqual(cl.run("run", "--apply", *sh(script)).code, 0)
            self.assertEqual((os.listdir(self.dir), self.read("a")), (["a"], "1"))

    def test_always(self):
        """--apply=always: an exit status says nothing about what was done before."""
        self.write("a", "1")
        for n, (script, code) in enumerate((("exit 3", 3), ("kill -9 $$", 137), ("sleep 9", 124))):
            r = cl.run("run", "--apply=always", "-t", "500ms", *sh("echo %d > a; %s" % (n, script)))
            self.assertEqual((r.code, self.read("a")), (code, "%d\n" % n), str(r))
        self.refused("run", "--apply=sometimes", "--", "true", says="apply: 'sometimes'")
        self.refused("run", "--apply=always", "--empty", "--", "true", says="apply")

    def test_modes_only_get_tighter(self):
        self.write("secret", "1", 0o600)
        self.write("script", "1", 0o644)
        os.mkdir(self.path("private"), 0o700)
        script = ("echo 2 > new; mv new secret; chmod 666 secret; chmod 777 private script; "
                  "umask 0; echo 3 > open; mkdir wide")
        rec = cl.record("--apply", *sh(script), code=0)
        mode = lambda name: stat.S_IMODE(os.stat(self.path(name)).st_mode)
        self.assertEqual(self.read("secret"), "2\n")
        self.assertEqual([mode(n) for n in ("secret", "private", "script", "open", "wide")],
                         [0o600, 0o700, 0o755, 0o644, 0o755])
        notes = {c["path"]: (c["kind"], c.get("note")) for c in rec["changes"]}
        self.assertEqual(notes["private/"], ("skipped", "its mode is not widened"))
        self.assertEqual(notes["secret"], ("modified", "its mode is not widened"))

    def test_links_that_lead_out(self):
        """Also by way of other links; the caller may name one that is wanted."""
        os.symlink("/usr/share", self.path("mine"))
        script = (
            "mkdir -p a/b; ln -s ../.. a/b/top; ln -s a/b/top/../x sly; ln -s /etc/passwd abs; "
            "ln -s ../x up; ln -s ../fine a/ok; ln -s mine again; mkdir v; ln -s /usr/bin/env v/env"
        )
        rec = cl.record("--apply", "--apply-also", "v", *sh(script), code=0)
        skipped = {c["path"]: c["note"] for c in rec["changes"] if c["kind"] == "skipped"}
        out = "a link that leads out of the workspace"
        self.assertEqual(skipped, {"sly": out, "abs": out, "up": out})
        there = [n for n in ("sly", "abs", "up", "a/ok", "a/b/top", "mine", "v/env")
                 if os.path.islink(self.path(n))]
        self.assertEqual(there, ["a/ok", "a/b/top", "mine", "v/env"])

    def test_a_tree_that_was_cut(self):
        script = "echo 1 > a; mkdir -p %s" % "/".join("d" * 140)
        r = cl.run("run", "--apply", *sh(script))
        self.assertEqual((r.code, self.read("a")), (125, "1\n"), str(r))
        self.assertIn("not all changes could be applied: there are too many", r.err)
        rec = cl.record("--apply", *sh(script.replace("echo 1", "echo 2")), code=125)
        self.assertEqual((rec["changes_incomplete"], rec["changes_truncated"]), (True, False))
        self.assertFalse(cl.record("--apply", *sh("echo 3 > a"), code=0)["changes_incomplete"])

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

    def test_control_files_that_were_named(self):
        script = "mkdir .github; echo 1 | tee AGENTS.md CLAUDE.md .github/x"
        args = ("run", "--apply", "--apply-also", "AGENTS.md", "--apply-also", ".github", *sh(script))
        r = self.ok(*args)
        self.assertIn("cloche: skipped CLAUDE.md: control file: instructions", r.err)
        self.assertEqual(sorted(os.listdir(self.dir)), [".github", "AGENTS.md"])
        for path in ("/x", "../x", "x/"):
            self.refused("run", "--apply", "--apply-also", path, "--", "true", says="apply_also: '%s'" % path)

    def test_control_files_by_another_way(self):
        """Renaming, links and a .git file are ways to the same end."""
        self.write(".git/HEAD", "ref: refs/heads/main\n")
        script = (
            "mv .git x; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; "
            "mkdir h; echo evil > h/pre-commit; mkdir -p s; ln -s ../h s/hooks; "
            "mkdir m; echo 'gitdir: ../h' > m/.git; mkdir -p bare.git/hooks; "
            "echo evil > bare.git/hooks/post-update; mkdir c; ln -s ../h c/.vscode; "
            "mkdir C; echo evil > .GIT; mkdir -p k/.Git/hooks; echo evil > k/.Git/hooks/x"
        )
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
        script = (
            "rm -r d; ln -s %s d; rm l; echo evil > l; rm ldir; mkdir ldir; "
            "echo evil > ldir/f; echo evil > ldir/g" % outside
        )
        self.ok("run", "--apply", *sh(script), cwd=self.path("work"))
        self.assertEqual(os.listdir(outside), ["f"])
        self.assertEqual(self.read("outside/f"), "safe")
        self.assertEqual(self.read("work/l"), "evil\n")

    def test_other_kinds_of_files(self):
        """Pipes and sockets are not written back, and do not make cloche hang."""
        code = (
            "import os, socket\n"
            "os.mkfifo('pipe'); s = socket.socket(socket.AF_UNIX); s.bind('sock')\n"
            "open('ok', 'w').write('x')"
        )
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
        self.assertEqual(
            {c["path"]: c["kind"] for c in rec["changes"]}, {"a": "modified", "b": "added"}
        )

    def test_not_with_empty(self):
        self.refused("run", "--apply", "--empty", "--", "true", says="apply")
