"""`cloche agent run`: one task, a file of tasks with a journal, and budgets."""

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import tempfile
import termios
import time

import harness
import served


class Run(served.Case):
    def agent(self, *args, **how):
        return self.cloche("agent", "run", *args, **how)

    def begin(self, *args):
        p = subprocess.Popen([served.CLOCHE, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env=self.daemon.client_env())
        self.addCleanup(lambda: (p.kill(), p.wait()))
        return p

    def place(self):
        d = tempfile.TemporaryDirectory(prefix="cloche-agents-")
        self.addCleanup(d.cleanup)
        return d.name

    def tasks(self, *lines):
        path = os.path.join(self.place(), "tasks.jsonl")
        with open(path, "w", encoding="utf-8") as f:
            for line in lines:
                f.write((line if isinstance(line, str) and line.startswith("!") else json.dumps(line)) + "\n")
        return path

    def entries(self, path):
        with open(path, encoding="utf-8") as f:
            return [json.loads(line) for line in f if line.endswith("\n")]

    def test_one(self):
        self.assertEqual(self.agent("shell", "echo $AGENT_NAME; echo \"it's\"", "--name", "w", ok=0).out, "w\nit's\n")
        self.assertEqual(self.agent("python", "-", stdin=b"print(6*7)", ok=0).out, "42\n")
        whole = json.loads(self.agent("--json", "shell", "echo x; cp /etc/hosts h.txt", "--capture", "*.txt", ok=0).out)
        self.assertEqual((whole["output"], whole["record"]["files"][0]["path"]), ("x\n", "h.txt"))
        r = self.agent("shell", "echo why >&2; exit 3", ok=3)
        self.assertIn("why\ncloche: the agent failed with exit status 3", r.err)
        self.assertIn("time was up", self.agent("-t", "300ms", "shell", "sleep 9", ok=124).err)
        self.assertIn("there is no 'nope'", self.agent("nope", "x", ok=125).err)
        self.assertIn("needs in its image: codex", self.agent("codex", "x", ok=1).err)
        self.assertIn("claude-code", self.cloche("agent", "ls", ok=0).out)

    def test_a_terminal_gets_clean_text(self):
        self.assertEqual(self.agent("shell", "printf 'a\\033]0;x\\007b\\n'", ok=0).out, "ab\n")

    def test_tasks_and_their_journal(self):
        path = self.tasks("echo 1", {"task": "echo 2 >&2; exit 5"}, "echo 3", {"task": "echo 4", "memory": "32M"})
        journal = os.path.join(os.path.dirname(path), "journal")
        r = self.agent("--tasks", path, "--journal", journal, "--parallel", "3", "shell", ok=1)
        self.assertIn("4 tasks: 0 done before, 3 succeeded, 1 failed", r.err)
        got = {e["line"]: e["result"] for e in self.entries(journal)}
        self.assertEqual([got[i]["stdout"] for i in (1, 3, 4)], ["1\n", "3\n", "4\n"])
        self.assertEqual(got[2]["exit_code"], 5)
        # Nothing is run again; a changed line is.
        r = self.agent("--tasks", path, "--journal", journal, "shell", ok=0)
        self.assertIn("4 done before, 0 succeeded, 0 failed", r.err)
        with open(path, "a", encoding="utf-8") as f:
            f.write('"echo 5"\n')
        r = self.agent("--tasks", path, "--journal", journal, "shell", ok=0)
        self.assertIn("4 done before, 1 succeeded", r.err)
        self.assertEqual(len(self.entries(journal)), 5)

    def test_killed_and_resumed(self):
        """What was acknowledged in the journal stays, nothing is lost, nothing is run twice."""
        path = self.tasks(*["echo %d" % i for i in range(120)])
        journal = os.path.join(os.path.dirname(path), "journal")
        p = self.begin("agent", "run", "--tasks", path, "--journal", journal, "shell")
        harness.until(lambda: os.path.exists(journal) and len(self.entries(journal)) > 10)
        p.send_signal(signal.SIGKILL)
        p.wait()
        had = len(self.entries(journal))
        with open(journal, "a", encoding="utf-8") as f:
            f.write('{"line": 119, "key": "cut')  # a line that a crash cut off
        r = self.agent("--tasks", path, "--journal", journal, "shell", ok=0)
        self.assertIn("%d done before, %d succeeded, 0 failed" % (had, 120 - had), r.err)
        lines = [e for e in open(journal, encoding="utf-8") if e.endswith("}\n")]
        got = sorted(json.loads(e)["line"] for e in lines)
        self.assertEqual(got, list(range(1, 121)))

    def test_a_line_for_each_that_ends(self):
        path = self.tasks("echo 1", "exit 3", {"task": "sleep 9", "timeout": "300ms"})
        err = self.agent("--tasks", path, "--parallel", "1", "shell", ok=1).err
        self.assertRegex(err, r"line 1: ok, [\d.]+ s \(1 of 3\)\ncloche: line 2: exit status 3, .*\n"
                              r"cloche: line 3: timeout, .*\(3 of 3\)\n")
        self.assertNotIn("\033", err)

    def test_a_terminal_has_a_table(self):
        """A row with a bar for each that runs, one for all; cleaned, and no wider than the terminal."""
        path = self.tasks({"task": "sleep 0.7", "agent_name": "a\033[31mgent" + "x" * 99}, "true")
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        p = subprocess.Popen([served.CLOCHE, "agent", "run", "--tasks", path, "--parallel", "1", "-t", "30s", "shell"],
                             stdout=subprocess.DEVNULL, stderr=slave, env=self.daemon.client_env())
        os.close(slave)
        seen = b""
        try:
            while True:
                seen += os.read(master, 65536)
        except OSError:
            pass  # the end of a terminal's output
        os.close(master)
        self.assertEqual(p.wait(30), 0)
        text = seen.decode()
        self.assertRegex(text, r"\033\[2A\r     1 a\?\[31mgentx+ +\[#*\.+\]")
        self.assertRegex(text, r"\[\.+\] 0/2  running 1  ok 0  failed 0")
        self.assertRegex(text, r"\[#+\] 2/2  running 0  ok 2  failed 0")
        self.assertNotIn("\033[31m", text)
        for line in text.split("\n"):
            self.assertLess(len(re.sub(r"\033\[\d*[AKJ]|\r", "", line)), 60 + 20 * line.startswith("cloche:"), line)

    def test_ps_logs_and_kill(self):
        p = self.begin("agent", "run", "--name", "watched", "shell", "printf 'a\\033[31mb\\n'; sleep 60")

        def mine():
            rows = json.loads(self.cloche("agent", "ps", "--json", ok=0).out)
            rows = rows["runs"] if isinstance(rows, dict) else rows
            return [r for r in rows if r["name"] == "watched"]

        harness.until(lambda: mine() and "ab" in self.cloche("agent", "logs", mine()[0]["id"], ok=0).out)
        run = mine()[0]
        self.assertEqual((run["state"], run["type"], run["exit_code"]), ("running", "shell", None))
        self.cloche("agent", "kill", run["id"], ok=0)
        self.assertEqual(p.wait(30), 125)
        harness.until(lambda: mine()[0]["state"] == "killed")
        self.cloche("agent", "run", "--name", "watched", "shell", "echo out; echo err >&2; exit 4", ok=4)
        run = mine()[-1]
        self.assertEqual((run["state"], run["exit_code"]), ("exited", 4))
        self.assertEqual(self.cloche("agent", "logs", run["id"], ok=0).out, "out\nerr\n")
        self.assertEqual(self.cloche("agent", "kill", "nobody", ok=125).code, 125)
        self.assertIn("watched", self.cloche("agent", "ps", ok=0).out)

    def test_runs_of_others(self):
        self.agent("--name", "operators", "shell", "echo 1", ok=0)
        env = self.token("other")[1]
        rows = json.loads(self.cloche("agent", "ps", "--json", env=env, ok=0).out)
        self.assertEqual(rows["runs"] if isinstance(rows, dict) else rows, [])

    def test_one_writer(self):
        path = self.tasks("sleep 3")
        journal = os.path.join(os.path.dirname(path), "journal")
        p = self.begin("agent", "run", "--tasks", path, "--journal", journal, "shell")
        harness.until(lambda: os.path.exists(journal))
        time.sleep(0.3)
        self.assertIn("another run writes to it", self.agent("--tasks", path, "--journal", journal, "shell", ok=125).err)
        p.kill()
        p.wait()

    def test_bad_lines_start_nothing(self):
        for bad in ("!not json", {"no": "task"}, 5):
            path = self.tasks("echo 1", bad)
            r = self.agent("--tasks", path, "shell", ok=125)
            self.assertIn("line 2", r.err)
            self.assertEqual(r.out, "")

    def test_a_budget_of_all(self):
        burn = "python3 -c 'import time\nwhile time.process_time() < 0.4: pass'"
        path = self.tasks(*[burn] * 6)
        r = self.agent("--tasks", path, "--budget", "cpu=1s", "--parallel", "1", "shell", ok=124)
        self.assertIn("cpu of all tasks together is used up", r.err)
        self.assertLess(len(r.out.splitlines()), 6)
        self.assertIn("nope", self.agent("--tasks", path, "--budget", "nope=1", "shell", ok=125).err)
        few = self.tasks("echo 1", "echo 2", "echo 3")
        r = self.agent("--tasks", few, "--budget", "tasks=2", "--budget", "name=few", "--parallel", "1", "shell", ok=124)
        self.assertIn("2 succeeded, 0 failed; ended: budget: tasks of all tasks together is used up, of few", r.err)
        self.assertIn("0 succeeded", self.agent("--tasks", few, "--budget", "name=few", "shell", ok=124).err)
