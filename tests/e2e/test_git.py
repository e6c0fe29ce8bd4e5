"""git inside: the repository around the directory is shown, and commits come back with --apply."""

import os
import subprocess

import cl

IDENTITY = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")
COMMIT = "git -c user.name=I -c user.email=i@example.org commit -q"


def sh(script):
    return ("--", "sh", "-c", script)


class Git(cl.Case):
    def setUp(self):
        super().setUp()
        self.need_program("git")

    def git(self, where, *args):
        """git on the host, which must succeed."""
        r = subprocess.run(
            ["git", *IDENTITY, *args],
            cwd=self.path(where),
            env=cl.caller_env(GIT_CONFIG_NOSYSTEM="1"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        self.assertEqual(r.returncode, 0, r.stderr.decode())
        return r.stdout.decode()

    def repository(self, name="repo"):
        self.mkdir(name)
        self.git(name, "init", "-q", "-b", "main", ".")
        self.write(name + "/top", "top\n")
        self.write(name + "/sub/deep/file", "file\n")
        self.git(name, "add", ".")
        self.git(name, "commit", "-q", "-m", "first")
        return self.path(name)

    def healthy(self, where, count):
        """The repository outside is whole, has this many commits, and nothing is left to commit."""
        self.git(where, "fsck", "--strict")
        self.assertEqual(len(self.git(where, "log", "--oneline").splitlines()), count)
        self.assertEqual(self.git(where, "status", "--porcelain"), "")


class Shown(Git):
    def test_subdirectory(self):
        repo = self.repository()
        deep = self.path("repo/sub/deep")
        script = "pwd; readlink /workspace; git status --short; git log --format=%s; cat ../../top"
        r = self.ok("run", *sh(script), cwd=deep)
        self.assertEqual(r.out, deep + "\n" + deep + "\nfirst\ntop\n")
        self.assertEqual(r.err, "")
        r = self.ok("run", *sh("echo x >> ../../top; git diff --name-only; git add -A; git status -s"), cwd=deep)
        self.assertEqual(r.out, "top\nM  ../../top\n")
        self.assertEqual(self.read("repo/top"), "top\n")
        self.healthy(repo, 1)

    def test_paths_are_told_from_the_directory(self):
        self.repository()
        self.write("data", "data")
        script = "cat /workspace/in/x; echo o > out; echo t > ../../top; echo n > ../new; pwd"
        rec = cl.record("--diff", "--file", "in/x=" + self.path("data"), "--capture", "*", "--capture", "in/*", "--workdir", ".", *sh(script), cwd=self.path("repo/sub/deep"), code=0)
        self.assertEqual({c["path"] for c in rec["changes"]}, {"../new", "out", "../../top"})
        self.assertEqual({f["path"] for f in rec["files"]}, {"file", "out", "in/x"})

    def test_capture_follows_what_hides_the_directory(self):
        self.repository()
        cwd = self.path("repo/sub/deep")
        rec = cl.record("--capture", "*", *sh("cd ../..; rm -r sub; mkdir -p sub/deep; echo n > sub/deep/new"), cwd=cwd, code=0)
        self.assertEqual([f["path"] for f in rec["files"]], ["new"])
        rec = cl.record("--capture", "*", *sh("cd ../..; rm -r sub; ln -s /etc sub"), cwd=cwd, code=0)
        self.assertEqual(rec["files"], [])

    def test_linked_worktree(self):
        self.repository()
        self.git("repo", "worktree", "add", "-q", "../tree")
        self.git("repo", "worktree", "add", "-q", "-b", "inner", "inner/tree")
        for tree in ("tree", "tree/sub/deep", "repo/inner/tree", "repo/inner/tree/sub"):
            with self.subTest(tree):
                r = self.ok("run", *sh("pwd; git status --short; git log --format=%s"), cwd=self.path(tree))
                self.assertEqual(r.out, self.path(tree) + "\nfirst\n")
        # The other work tree is not shown.
        r = cl.run("run", *sh("ls -A ../repo"), cwd=self.path("tree"))
        self.assertEqual(r.out, ".git\n")

    def test_bare_repository_and_its_worktree(self):
        self.repository()
        self.git(".", "clone", "-q", "--bare", "repo", "bare.git")
        self.assertEqual(self.out("git", "log", "--format=%s", cwd=self.path("bare.git")), "first\n")
        self.git("bare.git", "worktree", "add", "-q", "tree")
        r = self.ok("run", "--apply", *sh("git status -s; echo x > top; %s -am second" % COMMIT), cwd=self.path("bare.git/tree"))
        self.assertEqual(r.out, "")
        self.healthy("bare.git/tree", 2)

    def test_submodule(self):
        self.repository("lib")
        self.repository()
        self.git("repo", "submodule", "--quiet", "add", self.path("lib"), "sub/lib")
        self.git("repo", "commit", "-q", "-m", "with lib")
        self.git("repo", "worktree", "add", "-q", "../tree")
        self.git("tree", "submodule", "--quiet", "update", "--init")
        for lib in ("repo/sub/lib", "repo/sub/lib/sub/deep", "tree/sub/lib"):
            with self.subTest(lib):
                self.assertEqual(self.out("sh", "-c", "git status -s; git log --format=%s", cwd=self.path(lib)), "first\n")
        self.ok("run", "--apply", *sh("echo x > top; %s -am second" % COMMIT), cwd=self.path("repo/sub/lib"))
        self.healthy("repo/sub/lib", 2)
        self.assertEqual(self.git("repo", "status", "--porcelain"), " M sub/lib\n")

    def test_workspace_that_is_written_to(self):
        self.repository()
        deep = self.path("repo/sub/deep")
        script = "pwd; git status -s; echo new > file; echo lost > ../../top; git status -s"
        r = self.ok("run", "--workspace", deep, *sh(script))
        self.assertEqual(r.out, deep + "\n M file\n M ../../top\n")
        self.assertIn("commits, is discarded", r.err)
        self.assertEqual((self.read("repo/sub/deep/file"), self.read("repo/top")), ("new\n", "top\n"))
        self.ok("run", "--apply", "--workspace", deep, *sh("echo kept > ../../top; %s -am second" % COMMIT))
        self.healthy("repo", 2)
        self.git("repo", "worktree", "add", "-q", "../tree")
        self.assertEqual(self.ok("run", "-w", self.path("tree"), "--", "git", "log", "--format=%s").out, "second\nfirst\n")

    def test_level_process(self):
        self.repository()
        self.git("repo", "worktree", "add", "-q", "../tree")
        for where in ("repo/sub/deep", "tree", "tree/sub"):
            with self.subTest(where):
                r = self.ok("run", "--level", "process", *sh("pwd; git status -s; git log --format=%s"), cwd=self.path(where))
                self.assertEqual(r.out, self.path(where) + "\nfirst\n")

    def test_variables_of_the_caller(self):
        self.repository()
        self.repository("other")
        env = cl.caller_env(GIT_DIR=self.path("other/.git"), GIT_WORK_TREE=self.path("other"))
        r = cl.run("run", *sh("git rev-parse --show-toplevel; env | grep -c GIT_DIR"), cwd=self.path("repo/sub"), env=env)
        self.assertEqual(r.out, self.path("repo") + "\n0\n")

    def test_file_system_that_cannot_map_ids(self):
        """There the files are nobody's inside, which git alone would refuse."""
        self.need_root("mounts in a namespace of its own")
        self.repository("low")
        for name in ("up", "wrk", "over"):
            self.mkdir(name)
        script = 'cd "$1" && mount -t overlay -o lowerdir=low,upperdir=up,workdir=wrk o over && cd over/sub && "$2" run -- git log --format=%s'
        r = cl.command("unshare", "-m", "sh", "-c", script, "sh", self.dir, cl.CLOCHE)
        self.assertEqual(r.out, "first\n", str(r))

    def test_no_git(self):
        self.repository()
        r = cl.run("run", "--no-git", *sh("git status; ls -A ../.."), cwd=self.path("repo/sub/deep"))
        self.assertIn("not a git repository", r.err)
        self.assertEqual(r.out, "sub\n")
        self.write("p.yaml", "no_git: true\n")
        r = cl.run("run", "--policy", self.path("p.yaml"), "--", "git", "status", cwd=self.path("repo/sub"))
        self.assertEqual(r.code, 128, str(r))

    def test_explained(self):
        self.repository()
        self.git("repo", "worktree", "add", "-q", "../tree")
        self.write("p.yaml", "timeout: 60s\n")
        self.write("n.yaml", "no_git: true\n")
        policy = ("policy", "explain", self.path("p.yaml"))
        self.assertIn("the rest of the git repository " + self.path("repo"), self.ok(*policy, cwd=self.path("repo/sub")).out)
        self.assertIn(self.path("repo/.git"), self.ok(*policy, cwd=self.path("tree")).out)
        self.assertNotIn("git", self.ok(*policy, cwd=self.dir).out)
        self.assertNotIn("git repository " + self.path("repo"), self.ok("policy", "explain", self.path("n.yaml"), cwd=self.path("repo/sub")).out)
        self.write("repo/x/.git", "gitdir: /etc\n")
        self.assertRegex(self.ok(*policy, cwd=self.path("repo/x")).out, "does not (lie in|lead back)")


class Applied(Git):
    CONTROL = """
        cd "$(git rev-parse --git-common-dir)"
        echo '[core] fsmonitor = /bin/false' >> config; echo x > hooks/pre-commit; chmod +x hooks/pre-commit
        mkdir -p info remotes branches; echo '* filter=x' > info/attributes
        echo 'URL: x' > remotes/origin; echo x > branches/b
    """
    SKIPPED = ("config", "hooks/pre-commit", "info/attributes", "remotes/origin", "branches/b")

    def check(self, where, common):
        config = self.read(common + "/config")
        script = "cd $(git rev-parse --show-toplevel); git mv top sub/moved; echo x > new; git add -A; %s -m second" % COMMIT
        r = self.ok("run", "--apply", *sh(script + self.CONTROL), cwd=self.path(where))
        self.healthy(where, 2)
        self.assertEqual(self.read(common + "/config"), config)
        for name in self.SKIPPED:
            self.assertRegex(r.err, r"skipped \S*/%s: " % name)
            if name != "config":
                self.assertFalse(os.path.exists(self.path(common, name)), name)
        for dirpath, _, names in os.walk(self.path(common)):
            for name in names:
                st = os.lstat(os.path.join(dirpath, name))
                self.assertEqual(st.st_uid, os.stat(self.dir).st_uid, name)

    def test_commit_in_a_subdirectory(self):
        self.repository()
        self.check("repo/sub", "repo/.git")

    def test_commit_in_a_worktree(self):
        self.repository()
        self.git("repo", "worktree", "add", "-q", "../tree")
        self.check("tree", "repo/.git")
        self.assertEqual(self.git("repo", "log", "--format=%s", "tree"), "second\nfirst\n")
        self.healthy("repo", 1)

    def test_pointers_of_worktrees_stay(self):
        self.repository()
        self.git("repo", "worktree", "add", "-q", "../tree")
        before = self.read("repo/.git/worktrees/tree/gitdir")
        script = "cd $(git rev-parse --git-dir); echo /etc > gitdir; echo /etc > commondir; echo x > ORIG_HEAD"
        self.ok("run", "--apply", *sh(script), cwd=self.path("tree"))
        self.assertEqual(self.read("repo/.git/worktrees/tree/gitdir"), before)
        self.assertEqual(self.read("repo/.git/worktrees/tree/commondir"), "../..\n")
        self.assertEqual(self.read("repo/.git/worktrees/tree/ORIG_HEAD"), "x\n")

    def test_also_is_named_from_the_directory(self):
        self.repository()
        script = "echo x > AGENTS.md; echo x > ../AGENTS.md"
        self.ok("run", "--apply", "--apply-also", "AGENTS.md", *sh(script), cwd=self.path("repo/sub"))
        self.assertTrue(os.path.exists(self.path("repo/sub/AGENTS.md")))
        self.assertFalse(os.path.exists(self.path("repo/AGENTS.md")))

    def test_reference_that_moved_meanwhile(self):
        """Commits made outside while the command runs are not lost."""
        self.repository()
        self.mkdir("flags")
        script = COMMIT + " --allow-empty -m inside; touch /flags/begun; while [ ! -e /flags/go ]; do sleep 0.02; done"
        child = subprocess.Popen([cl.CLOCHE, "run", "--apply", "--mount", self.path("flags") + ":/flags:rw", *sh(script)], cwd=self.path("repo"), stderr=subprocess.PIPE, env=cl.caller_env())
        cl.wait_for(lambda: os.path.exists(self.path("flags/begun")))
        self.git("repo", "commit", "-q", "--allow-empty", "-m", "outside")
        self.write("flags/go", "")
        err = child.communicate(timeout=60)[1].decode()
        self.assertEqual(child.returncode, 125, err)
        self.assertIn("skipped .git/refs/heads/main: the reference was changed outside", err)
        self.assertIn("outside", self.git("repo", "log", "--oneline"))
        self.git("repo", "fsck", "--strict")

    def test_nothing_after_a_failure(self):
        self.repository()
        r = cl.run("run", "--apply", *sh("echo x > top; %s -am second; exit 3" % COMMIT), cwd=self.path("repo/sub"))
        self.assertEqual(r.code, 3)
        self.healthy("repo", 1)


class Refused(Git):
    def alone(self, where, says, secret="../repo", options=()):
        """Only the directory is shown, with a note; `secret`, which a hostile .git wants, is not."""
        r = cl.run("run", *options, *sh("pwd; cat %s/top %s/HEAD %s/.git/HEAD 2>&1 | grep -c 'No such file\\|Not a dir'" % ((secret,) * 3)), cwd=self.path(where))
        self.assertEqual(r.out, self.path(where) + "\n3\n", str(r))
        self.assertRegex(r.err, says)
        r = cl.run("run", "--apply", *options, *sh("mkdir -p %s/.git; echo x > %s/.git/planted" % (secret, secret)), cwd=self.path(where))
        self.assertFalse(os.path.exists(self.path(where, secret, ".git/planted")))

    def test_git_files_that_lead_elsewhere(self):
        repo = self.repository()
        self.git("repo", "worktree", "add", "-q", "../tree")
        self.mkdir("trap/real")
        os.symlink(repo, self.path("trap/link"))
        for text in ("/etc", repo + "/.git", "../repo/.git", "link/.git", repo + "/.git/worktrees/tree", "link/.git/worktrees/tree", "/dev/zero", "nowhere", ""):
            with self.subTest(text):
                self.write("trap/.git", "gitdir: %s\n" % text)
                self.alone("trap", "does not lead back|belongs to another user")
                self.alone("trap/real", "does not lead back|belongs to another user", "../../repo")
        self.write("trap/.git", b"gitdir: /etc\0x\n")
        self.alone("trap", "does not lead back")

    def test_worktree_made_in_the_tree(self):
        """A git directory in the tree points back, but its commondir leads out."""
        repo = self.repository()
        self.write("trap/fake/worktrees/t/gitdir", self.path("trap/.git") + "\n")
        self.write("trap/fake/worktrees/t/HEAD", "ref: refs/heads/main\n")
        for text in (repo + "/.git", "../../../../repo/.git"):
            with self.subTest(text):
                self.write("trap/fake/worktrees/t/commondir", text + "\n")
                self.write("trap/.git", "gitdir: fake/worktrees/t\n")
                r = cl.run("run", *sh("cat ../repo/.git/HEAD"), cwd=self.path("trap"))
                self.assertEqual((r.code, r.out), (1, ""))
        # The same beside the tree, as another directory of the caller's that code inside wrote to.
        os.rename(self.path("trap/fake"), self.path("fake"))
        self.write("trap/.git", "gitdir: ../fake/worktrees/t\n")
        self.alone("trap", "does not lead back")

    def test_worktree_whose_common_directory_is_another(self):
        self.repository()
        self.repository("other")
        self.git("repo", "worktree", "add", "-q", "../tree")
        for text in ("../../../../other/.git", self.path("other/.git"), "nowhere"):
            with self.subTest(text):
                self.write("repo/.git/worktrees/tree/commondir", text + "\n")
                self.alone("tree", "does not lead back")
                self.alone("tree", "does not lead back", "../other")

    def test_links(self):
        repo = self.repository()
        self.mkdir("trap")
        os.symlink(repo + "/.git", self.path("trap/.git"))
        self.alone("trap", "neither a directory nor a file")
        os.unlink(self.path("trap/.git"))
        self.git("repo", "worktree", "add", "-q", "../tree")
        self.write("trap/pointer", self.read("tree/.git"))
        os.symlink("pointer", self.path("trap/.git"))
        self.alone("trap", "neither a directory nor a file")

    def test_submodule_elsewhere(self):
        self.repository()
        self.repository("outer")
        self.write("outer/mod/.git", "gitdir: ../../repo/.git\n")
        self.alone("outer/mod", "does not lie in the repository around", "../../repo")

    def test_home_and_forbidden_places(self):
        self.repository()
        env = cl.caller_env(HOME=self.path("repo"))
        self.write("repo/.ssh/id", "secret")
        r = cl.run("run", *sh("ls -A .. ; git status"), cwd=self.path("repo/sub"), env=env)
        self.assertEqual((r.code, r.out), (128, "sub\n"))
        self.assertIn("never shown", r.err)
        r = cl.run("run", "--forbid", self.path("repo/top"), *sh("cat ../top"), cwd=self.path("repo/sub"))
        self.assertEqual((r.code, r.out), (1, ""))
        r = cl.run("run", "--mount-read", self.path("repo/sub"), *sh("cat ../top"), cwd=self.path("repo/sub"))
        self.assertEqual((r.code, r.out), (1, ""))
        # The git directory of a worktree counts like the tree.
        self.git("repo", "worktree", "add", "-q", "../tree")
        self.alone("tree", "never shown", options=("--forbid", self.path("repo/.git/objects")))

    def test_of_another_user(self):
        self.need_root()
        self.repository()
        sub = self.path("repo/sub")
        subprocess.run(["chown", "-R", "4242:4242", self.path("repo/.git")], check=True)
        self.alone("repo/sub", "another user", "..")
        subprocess.run(["chown", "-R", "4242:4242", self.path("repo")], check=True)
        self.assertEqual(self.out("git", "log", "--format=%s", cwd=sub), "first\n")
        self.ok("run", "--apply", *sh("echo x > ../top; %s -am second" % COMMIT), cwd=sub)
        for path, _, names in os.walk(self.path("repo")):
            for name in names:
                self.assertEqual(os.lstat(os.path.join(path, name)).st_uid, 4242, name)
        os.chown(sub, 0, 0)
        self.alone("repo/sub", "another user", "..")

    def test_no_repository(self):
        self.mkdir("plain/.git")
        self.mkdir("plain/sub")
        r = cl.run("run", *sh("ls -A ..; env | grep -c GIT_"), cwd=self.path("plain/sub"))
        self.assertEqual((r.out, r.err), ("sub\n0\n", ""))

