"""The seeds' scenarios with the Python client: agents, swarms, capture, limits, cancelling."""

import asyncio
import json
import os
import subprocess
import sys
import time

import cl
import harness

sys.path.insert(0, os.path.join(cl.TOP, "clients", "python"))

from cloche import ClocheError, SandboxedAgentExecutor, SandboxManager, connect  # noqa: E402


class Executor(harness.Case):
    def setUp(self):
        self.connection = connect("unix:" + self.d.sock)
        self.executor = SandboxedAgentExecutor(self.connection, agent_type="shell")

    def do(self, coroutine):
        return asyncio.run(coroutine)

    def test_an_agent_with_capture(self):
        result = self.do(self.executor.execute("echo hello from $AGENT_NAME; echo '{}' >a.json; echo 1 >b.js; echo 2 >c.txt", {
            "agentName": "backend-dev", "systemPrompt": "# You are a backend developer.", "autoCleanup": True,
            "sandboxConfig": {"provider": "docker", "limits": {"memoryMB": 256, "cpuCores": 0.5}},
            "captureFiles": True, "capturePatterns": ["*.js", "*.json"]}))
        self.assertEqual(result.output, "hello from backend-dev\n")
        self.assertEqual(result.files, {"a.json": b"{}\n", "b.js": b"1\n"})

    def test_a_swarm_takes_as_long_as_its_slowest(self):
        names = ("researcher", "coder", "tester", "reviewer")
        tasks = [{"task": "sleep %s; echo $AGENT_NAME" % (0.5 + i / 4), "config": {"agentName": name}}
                 for i, name in enumerate(names)]
        began = time.monotonic()
        results = self.do(self.executor.executeParallel(tasks))
        took = time.monotonic() - began
        self.assertEqual([r.output for r in results], [n + "\n" for n in names])
        self.assertLess(took, 0.9 * sum(0.5 + i / 4 for i in range(4)) + 10)

    def test_one_that_fails_does_not_stop_the_rest(self):
        results = self.do(self.executor.execute_parallel([{"task": "echo 1"}, {"task": "exit 4"}, {"task": "echo 3"},
                                                          {"task": "x", "config": {"agentType": "nope"}}]))
        self.assertEqual([r.success for r in results], [True, False, True, False])
        self.assertEqual((results[1].fault, results[3].fault), ("program", "caller"))
        with self.assertRaises(ClocheError):
            self.do(self.executor.execute("exit 4"))

    def test_as_they_end(self):
        async def order():
            return [i async for i, _ in self.executor.as_completed([{"task": "sleep 1.5"}, {"task": "true"}])]

        self.assertEqual(self.do(order()), [1, 0])

    def test_concurrency_is_bounded(self):
        self.executor.concurrency = 2

        async def most():
            swarm = asyncio.ensure_future(self.executor.execute_parallel([{"task": "sleep 0.3"}] * 6))
            seen = 0
            while not swarm.done():
                seen = max(seen, len(self.executor.listActive()))
                await asyncio.sleep(0.02)
            return seen

        self.assertEqual(self.do(most()), 2)

    def test_cancelling_all(self):
        async def cancelled():
            swarm = asyncio.ensure_future(self.executor.execute_parallel([{"task": "sleep 60", "config": {"agentName": "s"}}] * 3))
            while len(self.executor.listActive()) < 3:
                await asyncio.sleep(0.02)
            first = self.executor.listActive()[0]
            self.assertEqual(self.executor.getContext(first["id"])["agentName"], "s")
            self.assertIsNone(self.executor.getContext(999))
            await asyncio.sleep(0.3)
            self.assertEqual(await self.executor.cleanupAll(), 3)
            return await swarm

        began = time.monotonic()
        results = self.do(cancelled())
        self.assertLess(time.monotonic() - began, 45)
        self.assertFalse(any(r.success for r in results))
        self.assertEqual(self.executor.listActive(), [])

    def test_only_our_fault_is_tried_again(self):
        calls = []

        class Broken:
            is_daemon = True

            def __init__(self, fault, times):
                self.fault, self.times = fault, times

            def json(self, *_args, **_options):
                calls.append(self.fault)
                if len(calls) <= self.times:
                    error = ClocheError("busy")
                    error.fault = self.fault
                    raise error
                return {"output": "x", "record": {}}

        for fault, times, want in (("cloche", 2, 3), ("program", 9, 1), ("caller", 9, 1), ("cloche", 9, 3)):
            calls.clear()
            self.do(SandboxedAgentExecutor(Broken(fault, times)).try_execute("x"))
            self.assertEqual(len(calls), want)

    def test_wrong_configs(self):
        for config in ({"nonsense": 1}, {"sandboxConfig": {"image": "x"}}, {"limits": {"x": 1}}):
            with self.assertRaises(ClocheError):
                self.do(self.executor.execute("true", config))

    def test_the_second_seeds_sandboxes(self):
        """execute, files, stats, health."""
        manager = SandboxManager(connection=self.connection)
        with manager.create(memory="512M") as box:
            self.assertTrue(box.execute(["python3", "--version"]).success)
            box.write_file("/workspace/app.py", "print('Hello!')")
            self.assertEqual(box.execute(["python3", "/workspace/app.py"]).stdout, "Hello!\n")
            self.assertGreater(box.get_stats()["memory_bytes"], 0)
            self.assertTrue(box.health_check())

    def test_the_third_seeds_flow(self):
        """Make, copy a script in, run it, read the result, clean up; no way out of the directory."""
        manager = SandboxManager(connection=self.connection)
        before = len(manager.list())
        with manager.create() as box:
            box.write_file("script.py", "open('out.json', 'w').write('{\"a\": 1}')")
            self.assertTrue(box.execute("python3 script.py").success)
            self.assertEqual(json.loads(box.read_text("out.json")), {"a": 1})
            self.assertFalse(box.execute("cat ../../../etc/shadow").success)
        self.assertEqual(len(manager.list()), before)

    def test_the_example(self):
        env = dict(os.environ, PYTHONPATH=os.path.join(cl.TOP, "clients", "python"), CLOCHE_URL="unix:" + self.d.sock)
        r = subprocess.run([sys.executable, os.path.join(cl.TOP, "examples", "agents.py")], env=env, check=True,
                           stdout=subprocess.PIPE)
        self.assertEqual(r.stdout.decode().splitlines()[:2], ["researcher: The answer is 42", "writer: THE ANSWER IS 42"])
