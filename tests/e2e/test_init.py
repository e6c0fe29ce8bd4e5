"""`cloche init`: a policy for a project, and settings of coding agents that work."""

import json
import os
import subprocess

import cl


class Init(cl.Case):
    def setUp(self):
        super().setUp()
        self.project = self.mkdir("project")
        self.home = self.mkdir("home")

    def put(self, name, text=""):
        path = os.path.join(self.project, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)

    def get(self, name):
        with open(os.path.join(self.project, name), encoding="utf-8") as text:
            return text.read()

    def init(self, *options):
        return cl.run("init", *options, self.project, env=cl.caller_env(HOME=self.home))

    def policy(self):
        """It is the caller's own: a project may come from strangers."""
        folder = os.path.join(self.home, ".config/cloche/projects")
        name, = os.listdir(folder)
        self.assertTrue(name.endswith("-project.yaml"), name)
        return os.path.join(folder, name)

    def policy_text(self):
        with open(self.policy(), encoding="utf-8") as text:
            return text.read()

    def files(self):
        return sorted(os.path.relpath(os.path.join(top, name), self.project)
                      for top, _, names in os.walk(self.project) for name in names)

    def test_shows_and_writes_nothing(self):
        self.put("package.json", "{}")
        r = self.init()
        self.assertEqual(r.code, 0, r)
        for text in ("+net: allow", "+  - npm", ".config/cloche/projects/", "Nothing was written", "--client"):
            self.assertIn(text, r.out)
        self.assertEqual(self.files(), ["package.json"])

    def test_policy_of_a_project(self):
        self.put("requirements-dev.txt")
        self.put("pyproject.toml")
        self.put("Cargo.toml")
        self.assertEqual(self.init("--yes").code, 0)
        text = self.policy_text()
        self.assertEqual([line.split()[1] for line in text.splitlines() if line.startswith("  - ")], ["pypi", "crates"])
        path = self.policy()
        self.assertEqual(cl.run("policy", "check", path).code, 0)
        with open(path, "w", encoding="utf-8") as out:
            out.write("net: none\n")
        r = self.init("--yes", "--client", "cursor")
        self.assertEqual((r.code, self.policy_text()), (0, "net: none\n"), "an own policy stays")
        self.assertNotIn("package managers", r.out)

    def test_project_without_packages(self):
        self.assertEqual(self.init("--yes").code, 0)
        self.assertIn("\nnet: none\n", self.policy_text())

    def test_settings_work(self):
        """What is written is what the agent runs: its command comes back rewritten, with this policy."""
        self.put(".claude/settings.json", json.dumps(
            {"model": "x", "hooks": {"PreToolUse": [{"matcher": "Write", "hooks": []},
                                                    {"matcher": "Bash", "hooks": [{"command": "cloche hook --old"}]}]}}))
        for name in (".cursor", ".gemini", ".vscode"):
            os.makedirs(os.path.join(self.project, name))
        self.assertEqual(self.init("--yes").code, 0)
        settings = json.loads(self.get(".claude/settings.json"))
        self.assertEqual((settings["model"], len(settings["hooks"]["PreToolUse"])), ("x", 2), "others stay, ours is replaced")
        commands = {
            "PreToolUse": settings["hooks"]["PreToolUse"][1]["hooks"][0]["command"],
            "preToolUse": json.loads(self.get(".cursor/hooks.json"))["hooks"]["preToolUse"][0]["command"],
            "BeforeTool": json.loads(self.get(".gemini/settings.json"))["hooks"]["BeforeTool"][0]["hooks"][0]["command"]}
        tools = {"PreToolUse": "Bash", "preToolUse": "Shell", "BeforeTool": "run_shell_command"}
        env = cl.caller_env(HOME=self.home, CLAUDE_PROJECT_DIR=self.project,
                            PATH=os.path.dirname(cl.CLOCHE) + ":" + os.environ["PATH"])
        for event, command in commands.items():
            asked = {"hook_event_name": event, "session_id": "s", "cwd": self.project, "tool_name": tools[event],
                     "tool_input": {"command": "touch made"}}
            done = subprocess.run(["sh", "-c", command], env=env, cwd=self.project, input=json.dumps(asked), text=True,
                                  capture_output=True, check=True, timeout=60)
            line = json.dumps(json.loads(done.stdout))
            self.assertIn(self.policy(), line)
            self.assertIn("cloche run ", line)
        rewritten = json.loads(done.stdout)["hookSpecificOutput"]["tool_input"]["command"]
        done = subprocess.run(["sh", "-c", rewritten], env=env, cwd=self.project, capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertIn("made", self.files(), done)
        self.assertEqual(json.loads(self.get(".vscode/mcp.json"))["servers"]["cloche"]["command"], "cloche")
        again = self.init()
        self.assertEqual((again.code, again.out), (0, "All of it was tried, and works here.\n"))

    def test_settings_that_are_not_understood(self):
        for text, why in (("{ // a comment\n}", ".claude/settings.json:1"), ('{"hooks": []}', "something else"),
                          ('{"hooks": {"PreToolUse": 1}}', "something else")):
            self.put(".claude/settings.json", text)
            r = self.init("--yes")
            self.assertEqual(r.code, 125, r)
            self.assertIn(why, r.err)
            self.assertEqual(self.files(), [".claude/settings.json"])
            self.assertEqual(self.get(".claude/settings.json"), text)

    def test_a_hook_that_does_not_work(self):
        """A policy that no run can have: nothing is written."""
        self.assertEqual(self.init("--yes").code, 0)
        with open(self.policy(), "w", encoding="utf-8") as out:
            out.write("net: none\ninterceptor: [/no/such/program]\n")
        r = self.init("--yes", "--client", "cursor")
        self.assertEqual(r.code, 125, r)
        self.assertIn("cursor does not work here, nothing was written", r.err)
        self.assertEqual(self.files(), [])

    def test_a_policy_of_the_project(self):
        """What a clone brings along governs nothing."""
        self.put(".cloche/policy.yaml", "net: public\napply_also: [.envrc]\n")
        self.assertEqual(self.init("--yes", "--client", "cursor").code, 0)
        self.assertIn("\nnet: none\n", self.policy_text())
        self.assertNotIn(".cloche/policy.yaml", self.get(".cursor/hooks.json"))

    def test_links_are_not_followed(self):
        """A command that ran before may have left them."""
        outside = self.mkdir("outside")
        os.symlink(outside, os.path.join(self.project, ".cursor"))
        r = self.init("--yes", "--client", "cursor")
        self.assertEqual((r.code, os.listdir(outside)), (125, []), r)
        self.assertIn("symbolic link", r.err)
        self.assertEqual(self.files(), [])

    def test_clients_by_name(self):
        self.assertEqual(self.init("--yes", "--client", "codex").code, 0)
        with open(os.path.join(self.home, ".codex/hooks.json"), encoding="utf-8") as text:
            self.assertIn("cloche hook --policy", text.read())
        r = self.init("--client", "emacs")
        self.assertEqual(r.code, 125)
        self.assertIn("client: 'emacs'", r.err)
        r = cl.run("init", os.path.join(self.project, "no-such"), env=cl.caller_env(HOME=self.home))
        self.assertEqual(r.code, 125)
        self.assertIn("no-such", r.err)
