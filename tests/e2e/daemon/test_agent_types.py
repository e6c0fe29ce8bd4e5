"""Agent types: the shipped ones with stand-ins, the operator's own, and /mcp/agents/{type} with every status."""

import base64
import json
import os
import subprocess
import time

import harness

_daemon = None

OWN = {
    "argument": "command: [printf, '%s', '{task}']\ntask: argument\n",
    "variable": "command: [sh, -c, 'printf %s \"$AGENT_TASK\"']\ntask: variable\n",
    "stdin": "command: [cat]\ntask: stdin\n",
    "file": "command: [cat, '{task}']\ntask: file\n",
    "answers": "command: [cat]\noutput: json\n",
    "lines": "command: [cat]\noutput: jsonl\n",
    "slow": "command: [sleep, '60']\ntimeout: 500ms\n",
    "fails": "command: [sh, -c, 'printf \"no \\033[31mAKIAABCDEFGHIJKLMNOP\" >&2; exit 3']\n",
    "lacks": "command: [no-such-program]\nneeds: [no-such-program]\nhint: install it\n",
    "small": "command: [sh, -c, 'ulimit -a >/dev/null; cat']\nmemory: 64M\ntimeout: 5s\n",
    "says": "command: [sh, -c, 'echo $AGENT_NAME $AGENT_TYPE $X $Y']\nenv: {X: operator}\n",
    "makes": "command: [sh, -c, 'echo 1 >a.js; echo 2 >b.txt; echo 3 >c.json']\ncapture: ['*.js']\n",
    "broken": "command: []\n",
    "wide": "command: [true]\ntrust: 1\nnet: public\n",
    "odd": "command: [true]\nnonsense: 1\n",
}

# Prints what it was given, as JSON; what the program of a shipped type would be.
STANDIN = """#!/usr/bin/python3
import json, os, sys
files = {a: open(a).read() for a in sys.argv[1:] if os.path.isfile(a)}
print(json.dumps({"argv": sys.argv[1:], "stdin": sys.stdin.read(), "files": files,
                  "env": {k: v for k, v in os.environ.items() if k.isupper()}}))
"""
SWARM = """
class Agent:
    def __init__(self, name, instructions):
        self.name, self.instructions = name, instructions
class Answer:
    def __init__(self, text):
        self.messages = [{"content": text}]
class Swarm:
    def run(self, agent, messages):
        return Answer("%s|%s|%s" % (agent.name, agent.instructions, messages[0]["content"]))
"""
CREW = """
class Agent:
    def __init__(self, role, goal, backstory):
        print("chatter")
        self.role, self.backstory = role, backstory
class Task:
    def __init__(self, description, expected_output, agent):
        self.description = description
class Crew:
    def __init__(self, agents, tasks):
        self.agent, self.task = agents[0], tasks[0]
    def kickoff(self):
        return "%s|%s|%s" % (self.agent.role, self.agent.backstory, self.task.description)
"""
HARD = "it's \"quoted\"\n$(id) `id` ${HOME} {task} %s \\n 'x'; exit 9 \u00fc\u2603"


def setUpModule():
    global _daemon
    _daemon = harness.Daemon()
    types = os.path.join(_daemon.dir, "types")
    os.mkdir(types)
    for name, text in OWN.items():
        with open(os.path.join(types, name + ".yaml"), "w", encoding="utf-8") as f:
            f.write(text)
    _daemon.config = "agents: {types: %s}\n" % types
    _daemon.start()


def tearDownModule():
    _daemon.stop()
    _daemon.remove()


class Agents(harness.Case):
    @property
    def d(self):
        return _daemon

    def run_agent(self, kind, task, **more):
        return self.d.post("/mcp/agents/" + kind, dict(more, task=task))

    def answer(self, kind, task, **more):
        r = self.run_agent(kind, task, **more)
        self.assertEqual(r.status, 200, r)
        return r.json


class Task(Agents):
    def test_the_task_is_data(self):
        for kind in ("argument", "variable", "stdin", "file"):
            for task in (HARD, "-rf", "", "a\n\n", "x" * (30000 if kind == "variable" else 100000)):
                self.assertEqual(self.answer(kind, task)["output"], task, kind)

    def test_nul_and_size(self):
        raw = "a\0b"
        for kind in ("stdin", "file"):
            self.assertEqual(self.answer(kind, raw)["output"], "a?b")
            self.assertEqual(len(self.answer(kind, "x" * (1 << 20), output_limit="2M")["output"]), 1 << 20)
        for kind in ("argument", "variable"):
            self.assertError(self.run_agent(kind, raw), 400, "invalid", "task")
            self.assertError(self.run_agent(kind, "x" * (1 << 20)), 413, "too_large", "task")

    def test_answers_are_parsed(self):
        self.assertEqual(self.answer("answers", '{"a": [1, "x"]}')["output"], {"a": [1, "x"]})
        self.assertEqual(self.answer("lines", '1\n\n{"b": 2}\n')["output"], [1, {"b": 2}])
        for kind in ("answers", "lines"):
            self.assertEqual(self.run_agent(kind, "__import__('os').system('id')").status, 500)

    def test_names_prompts_and_variables(self):
        said = self.answer("says", "", agent_name="writer", env={"X": "caller", "Y": "mine"})
        self.assertEqual(said["output"], "writer says operator mine\n")
        self.assertEqual(self.answer("stdin", "do it", system_prompt="You are x.")["output"], "You are x.\n\ndo it")

    def test_capture(self):
        files = self.answer("makes", "", capture=["*.json"])["record"]["files"]
        self.assertEqual(sorted(f["path"] for f in files), ["a.js", "c.json"])

    def test_limits_only_narrow(self):
        self.assertEqual(self.answer("small", "x", memory="32M")["output"], "x")
        self.assertError(self.run_agent("small", "x", memory="65M"), 403, "denied", "memory")
        self.assertError(self.run_agent("small", "x", timeout=6), 403, "denied", "timeout")
        self.assertError(self.run_agent("small", "x", output_limit="5M"), 403, "denied", "output_limit")
        self.assertError(self.run_agent("small", "x" * (9 << 20)), 413)
        self.assertError(self.run_agent("small", "x", net="public"), 400, "invalid")
        self.assertError(self.run_agent("small", "x", nonsense=1), 400, "invalid")


class Statuses(Agents):
    def test_each(self):
        self.assertError(self.run_agent("no-such", "x"), 400, "invalid", "agent_type")
        self.assertError(self.d.post("/mcp/agents/stdin", {}), 400)
        self.assertError(self.d.request("POST", "/mcp/agents/stdin", "not json"), 400)
        self.assertEqual(self.d.post("/mcp/agents/stdin", {"task": "x"}, token="clo_wrong").status, 401)
        late = self.run_agent("slow", "x")
        self.assertEqual((late.status, late.error["fault"]), (408, "program"))
        failed = self.run_agent("fails", "x")
        self.assertEqual((failed.status, failed.error["fault"]), (500, "program"))
        self.assertEqual(failed.json["stderr"], "no [secret removed]")
        lacks = self.run_agent("lacks", "x")
        self.assertEqual(lacks.status, 500)
        self.assertRegex(lacks.error["message"], "needs in its image: no-such-program. install it")

    def test_bad_types_are_left_out(self):
        names = {t["type"] for t in self.d.get("/v1/agent-types").json["types"]}
        self.assertLessEqual({"shell", "python", "claude-code", "codex", "aider", "openai-swarm", "claude-flow", "crewai"},
                             names)
        for name in ("broken", "wide", "odd"):
            self.assertNotIn(name, names)
            self.assertError(self.run_agent(name, "x"), 400)

    def test_as_the_first_seed_calls_it(self):
        """curl -d calls JSON a form; the token is a bearer."""
        token = self.d.token("seed", "--scopes", "run")
        r = subprocess.run(["curl", "-s", "-H", "Authorization: Bearer " + token, "-X", "POST",
                            "http://127.0.0.1:%d/mcp/agents/stdin" % self.d.port, "-d", '{"task": "Analyze data"}'],
                           stdout=subprocess.PIPE, check=True)
        self.assertEqual(json.loads(r.stdout)["output"], "Analyze data")
        r = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST",
                            "http://127.0.0.1:%d/mcp/agents/stdin" % self.d.port, "-d", '{"task": "Analyze data"}'],
                           stdout=subprocess.PIPE, check=True)
        self.assertEqual(r.stdout, b"401")


class Shipped(Agents):
    def given(self, kind, program, task=HARD, **more):
        out = self.answer(kind, task, files=[{"path": "bin/" + program, "content": STANDIN, "mode": "755"}],
                          env={"PATH": "/workspace/bin:/usr/bin:/bin"}, **more)["output"]
        if isinstance(out, str):
            out = json.loads(out)
        return out[0] if isinstance(out, list) else out

    def test_shell_and_python(self):
        self.assertEqual(self.answer("shell", "echo $((6*7)); cat <<'E'\nit's\nE")["output"], "42\nit's\n")
        self.assertEqual(self.answer("python", "print('a', 6 * 7)")["output"], "a 42\n")
        self.assertEqual(self.run_agent("python", "raise SystemExit(3)").status, 500)

    def test_claude_code(self):
        got = self.given("claude-code", "claude", system_prompt="Be $(terse).")
        self.assertEqual(got["stdin"], HARD)
        self.assertEqual(got["argv"], ["--append-system-prompt", "Be $(terse).", "--print", "--output-format", "json",
                                       "--dangerously-skip-permissions"])
        self.assertEqual((got["env"]["IS_SANDBOX"], got["env"]["AGENT_TYPE"]), ("1", "claude-code"))

    def test_codex(self):
        got = self.given("codex", "codex")
        self.assertEqual((got["stdin"], got["argv"][0], got["argv"][-1]), (HARD, "exec", "-"))

    def test_aider(self):
        got = self.given("aider", "aider")
        self.assertEqual(got["files"], {got["argv"][-1]: HARD})
        self.assertEqual(got["argv"][-2], "--message-file")

    def test_claude_flow(self):
        got = self.given("claude-flow", "claude-flow")
        self.assertEqual(got["argv"], ["swarm", HARD, "--headless", "--json-output"])

    def test_libraries(self):
        for kind, module, text in (("openai-swarm", "swarm", SWARM), ("crewai", "crewai", CREW)):
            got = self.answer(kind, HARD, files=[{"path": module + ".py", "content": text}], agent_name="n",
                              env={"PYTHONPATH": "/workspace"}, system_prompt="Be brief.")
            self.assertEqual(got["output"], {"result": "n|Be brief.|" + HARD})
            missing = self.run_agent(kind, "x")
            self.assertEqual(missing.status, 500)
            self.assertIn("lacks the Python module: " + module, missing.json["stderr"])


class Many(Agents):
    def test_a_batch_of_agents(self):
        tasks = [{"agent_type": "python", "task": "import time; time.sleep(0.3); print(%d)" % i} for i in range(4)]
        tasks.insert(2, {"agent_type": "no-such", "task": "x"})
        began = time.monotonic()
        r = self.d.post("/v1/run/batch", {"tasks": tasks, "parallel": 5})
        took = time.monotonic() - began
        self.assertEqual(r.status, 200, r)
        out = [t["result"]["stdout"] if "result" in t else t["error"]["field"] for t in r.json]
        self.assertEqual(out, ["0\n", "1\n", "agent_type", "2\n", "3\n"])
        self.assertLess(took, 15)

    def test_base64_is_not_a_way_around(self):
        r = self.d.post("/v1/run", {"agent_type": "stdin", "task": "x", "cmd": ["id"]})
        self.assertError(r, 400, "invalid")
        self.assertEqual(base64.b64decode("eA=="), b"x")
