"""--tools: the tool chains that the caller's PATH names, read-only, and nothing beside them."""

import os

import cl


class Tools(cl.Case):
    def setUp(self):
        super().setUp()
        self.home = self.mkdir("home")
        prefix = "home/.nvm/versions/node/v9.9.9"
        self.write(prefix + "/bin/mytool", '#!/bin/sh\ncat "$(dirname "$0")/../lib/data"\n', 0o755)
        self.write(prefix + "/lib/data", "from the tool chain\n")
        self.write("home/.ssh/id", "key")
        self.bin = self.path(prefix, "bin")
        self.work = self.mkdir("work")
        self.env = cl.caller_env(HOME=self.home, PATH=self.bin + ":" + cl.SHELL_PATH)

    def tool(self, *args):
        return cl.run("run", *args, cwd=self.work, env=self.env)

    def test_off_by_default(self):
        self.assertEqual(self.tool("--", "mytool").code, 127)

    def test_found_by_name(self):
        r = self.tool("--tools", "--", "mytool")
        self.assertEqual((r.code, r.out), (0, "from the tool chain\n"), str(r))

    def test_odd_names_in_path(self):
        """What cannot be shown by its name is left out, and does not stop the run."""
        odd = self.bin + "/../bin"
        for path, code in ((odd, 127), (self.bin + "//", 0), (odd + ":" + self.bin + "/.", 0)):
            env = cl.caller_env(HOME=self.home, PATH=path + ":" + cl.SHELL_PATH)
            r = cl.run("run", "--tools", "--", "mytool", cwd=self.work, env=env)
            self.assertEqual(r.code, code, str(r))

    def test_in_front_of_the_system(self):
        """The order of the caller's PATH is kept."""
        self.write("home/.nvm/versions/node/v9.9.9/bin/id", "#!/bin/sh\necho mine\n", 0o755)
        self.assertEqual(self.tool("--tools", "--", "id").out, "mine\n")

    def test_read_only(self):
        r = self.tool("--tools", "--", "sh", "-c", "echo x >> %s/mytool" % self.bin)
        self.assertNotEqual(r.code, 0, str(r))
        self.assertNotIn("x\n", self.read("home/.nvm/versions/node/v9.9.9/bin/mytool"))

    def test_keys_stay_outside(self):
        r = self.tool(
            "--tools", "--", "sh", "-c", "cat %s/.ssh/id; ls -A %s" % (self.home, self.home)
        )
        self.assertNotIn("key", r.out)
        self.assertNotIn(".ssh", r.out)

    def test_tokens_of_a_prefix_stay_outside(self):
        self.write("home/.cargo/bin/cargo-x", "#!/bin/sh\necho cargo\n", 0o755)
        self.write("home/.cargo/credentials.toml", "token = 'key'\n")
        env = cl.caller_env(HOME=self.home, PATH=self.path("home/.cargo/bin") + ":" + cl.SHELL_PATH)
        r = cl.run(
            "run",
            "--tools",
            "--",
            "sh",
            "-c",
            "cargo-x; cat %s/.cargo/credentials.toml" % self.home,
            cwd=self.work,
            env=env,
        )
        self.assertIn("cargo\n", r.out, str(r))
        self.assertNotIn("key", r.out, str(r))

    def test_rustup_finds_its_tool_chains(self):
        """The programs in ~/.cargo/bin look for them in HOME, which is another one inside."""
        self.write("home/.cargo/bin/cargo-x", "#!/bin/sh\ncat ${RUSTUP_HOME:-~/.rustup}/settings.toml\n", 0o755)
        self.write("home/.rustup/settings.toml", "stable\n")
        env = cl.caller_env(HOME=self.home, PATH=self.path("home/.cargo/bin") + ":" + cl.SHELL_PATH)
        r = cl.run("run", "--tools", "--", "cargo-x", cwd=self.work, env=env)
        self.assertEqual(r.out, "stable\n", str(r))
        r = cl.run("run", "--tools", "--env", "RUSTUP_HOME=/mine", "--", "env", cwd=self.work, env=env)
        self.assertIn("RUSTUP_HOME=/mine\n", r.out)

    def test_forbidden_places_on_the_path(self):
        """A PATH that names a forbidden or odd place does not open it."""
        self.write("home/.ssh/bin/evil", "#!/bin/sh\necho evil\n", 0o755)
        for bad in (self.path("home/.ssh/bin"), self.home, "/", "/proc/self/cwd", "..", ""):
            env = cl.caller_env(HOME=self.home, PATH=bad + ":" + cl.SHELL_PATH)
            r = cl.run(
                "run",
                "--tools",
                "--",
                "sh",
                "-c",
                "evil; cat %s/.ssh/id; true" % self.home,
                cwd=self.work,
                env=env,
            )
            self.assertIn(r.code, (0, 125), str(r))
            self.assertNotIn("evil\n", r.out, str(r))
            self.assertNotIn("key", r.out)

    def with_path(self, entry, *args, cwd=None):
        env = cl.caller_env(HOME=self.home, PATH=self.path(entry) + ":" + cl.SHELL_PATH)
        return cl.run("run", "--tools", *args, cwd=cwd or self.work, env=env)

    def test_in_the_workspace(self):
        """It is there already: in PATH, and as writable as the rest."""
        self.write("work/bin/mine", "#!/bin/sh\necho mine\n", 0o755)
        self.write("work/.venv/bin/venv", "#!/bin/sh\necho venv\n", 0o755)
        script = "echo > new && echo > .venv/x && mine && venv"
        for options in ((), ("--workspace", self.work)):
            with self.subTest(options):
                env = cl.caller_env(HOME=self.home)
                env["PATH"] = ":".join((self.path("work/bin"), self.path("work/.venv/bin"), cl.SHELL_PATH))
                r = cl.run("run", "--tools", *options, "--", "sh", "-c", script, cwd=self.work, env=env)
                self.assertEqual((r.code, r.out), (0, "mine\nvenv\n"), str(r))
        self.assertEqual(self.read("work/.venv/x"), "\n")

    def test_around_the_workspace(self):
        """The prefix of a tool chain does not cover the workspace that lies in it."""
        self.write("work/bin/mine", "#!/bin/sh\necho mine\n", 0o755)
        inner = self.mkdir("work/src")
        r = self.with_path("work/bin", "--", "sh", "-c", "echo > new && ls && mine", cwd=inner)
        self.assertEqual((r.code, r.out), (0, "new\nmine\n"), str(r))
        self.assertEqual(os.listdir(inner), [])

    def test_workspace_that_turns_out_empty(self):
        r = cl.run("run", "--tools", "--", "sh", "-c", "mytool; pwd", cwd=self.home, env=self.env)
        self.assertEqual(r.out, "from the tool chain\n/workspace\n", str(r))

    def test_links_of_the_caller(self):
        """They are followed: that is how version managers work."""
        chain = self.path("home/.nvm/versions/node/v9.9.9")
        os.symlink(chain, self.path("home/one"))
        os.symlink("./../home/one", self.path("home/two"))
        for entry in ("home/one/bin", "home/two/bin"):
            r = self.with_path(entry, "--", "mytool")
            self.assertEqual((r.code, r.out), (0, "from the tool chain\n"), str(r))

    def test_links_that_code_inside_may_have_made(self):
        """In the workspace or the current directory they stop the run."""
        secret = self.path("secret")
        self.write("secret/bin/evil", "#!/bin/sh\necho evil\n", 0o755)
        self.write("secret/key", "key")
        os.symlink(secret, self.path("work/.venv"))
        os.symlink("../work", self.path("home/project"))
        os.symlink("project/../home/project/.venv", self.path("home/venv"))
        other = self.mkdir("other")
        for entry in ("work/.venv/bin", "home/project/.venv/bin", "home/venv/bin"):
            script = "cat {0}/../key {0}/evil; evil".format(self.path(entry))
            for options, cwd in (((), self.work), (("--empty",), self.work), (("-w", self.work), other)):
                with self.subTest(entry=entry, options=options):
                    r = self.with_path(entry, *options, "--", "sh", "-c", script, cwd=cwd)
                    self.assertEqual((r.code, r.out), (125, ""), str(r))
                    self.assertIn("leads through a link in the workspace", r.err)
        r = self.with_path("work/.venv/bin", "--level", "process", "--", "cat", secret + "/key")
        self.assertEqual((r.code, r.out), (125, ""), str(r))

    def test_interpreter_in_the_record(self):
        self.write(
            "home/.pyenv/versions/3.99/bin/python3",
            '#!/bin/sh\nexec /usr/bin/python3 "$@"\n',
            0o755,
        )
        env = cl.caller_env(
            HOME=self.home, PATH=self.path("home/.pyenv/versions/3.99/bin") + ":" + cl.SHELL_PATH
        )
        rec = cl.record("--tools", "-e", "print(1)", verb="code", cwd=self.work, env=env)
        self.assertEqual(rec["stdout"], "1\n")
        self.assertTrue(
            rec["interpreter"].startswith(self.path("home/.pyenv/versions/3.99/bin/python3")),
            rec["interpreter"],
        )
        rec = cl.record("-e", "print(1)", verb="code", cwd=self.work, env=env)
        self.assertTrue(rec["interpreter"].startswith("/usr/bin/python3"), rec["interpreter"])
