"""The Python client against a real daemon."""

import asyncio
import os
import sys
import types
from collections import namedtuple
from unittest import mock

import cl
import harness

sys.path.insert(0, os.path.join(cl.TOP, "clients", "python"))

from cloche import AsyncSandboxManager, ClocheError, SandboxConfig  # noqa: E402
from cloche import SandboxManager, SandboxRunner, connect  # noqa: E402


class Client(harness.Case):
    def setUp(self):
        self.connection = connect("unix:" + self.d.sock)
        self.manager = SandboxManager(connection=self.connection)

    def make(self, **options):
        box = self.manager.create(**options)
        self.addCleanup(self.drop, box)
        return box

    @staticmethod
    def drop(box):
        try:
            box.destroy()
        except ClocheError as error:
            if error.kind != "not_found":
                raise

    def test_runner(self):
        runner = SandboxRunner(SandboxConfig(env={"A": "x"}), self.connection)
        self.assertEqual(str(asyncio.run(runner.run_code("print(42)"))), "42\n")
        result = runner.run_code_sync("import os; open('o', 'w').write(os.environ['A'] + input())",
                                      stdin="y", capture=["o"])
        self.assertEqual((result.success, result.files), (True, {"o": b"xy"}), result.record)
        result = runner.run_command_sync("cat f; exit 3", files={"f": "in"})
        self.assertEqual((result.stdout, result.exit_code), ("in", 3))

    def test_verification(self):
        runner = SandboxRunner(SandboxConfig(memory_limit="64M"), self.connection)
        result = runner.run_code_sync("import socket\nsocket.create_connection(('192.0.2.1', 80), 5)\nprint('up')")
        self.assertEqual((result.success, result.stdout), (False, ""))
        result = runner.run_code_sync("x = bytearray(10 ** 9)\nprint(len(x))")
        self.assertEqual((result.success, result.stdout), (False, ""))
        result = SandboxRunner(SandboxConfig(timeout_seconds=1), self.connection).run_code_sync("while True: pass")
        self.assertTrue(result.timed_out)

    def test_sandbox(self):
        box = self.make(memory="256M", metadata={"suite": "client"})
        box.write_file("dir/file.bin", b"\x00\xff")
        self.assertEqual(box.read_file("dir/file.bin"), b"\x00\xff")
        self.assertEqual(box.execute("wc -c <dir/file.bin; pwd").stdout.split()[0], "2")
        self.assertEqual([entry["name"] for entry in box.list_files("dir")], ["file.bin"])
        result = box.execute(["sh", "-c", "echo $A; pwd; cat"], env={"A": "1"}, cwd="/tmp", stdin="in")
        self.assertEqual(result.stdout, "1\n/tmp\nin")
        self.assertTrue(box.execute("sleep 100", timeout=0.5).timed_out)
        box.delete_file("dir/file.bin")
        with self.assertRaises(ClocheError) as caught:
            box.read_file("dir/file.bin")
        self.assertEqual(caught.exception.kind, "not_found")
        self.assertIn("memory_bytes", box.get_stats())
        self.assertTrue(box.health_check())
        self.assertEqual(box.info()["state"], "running")

    def test_input(self):
        """Bytes of any kind, and more of them than a request may have."""
        box = self.make()
        hexed = box.execute(["od", "-An", "-tx1"], stdin=b"\xff\x00\xfe\n").stdout
        self.assertEqual(hexed.split(), ["ff", "00", "fe", "0a"])
        self.assertEqual(box.execute("cat", stdin="\u00e9").stdout, "\u00e9")
        self.assertEqual(box.execute(["wc", "-c"], stdin=b"").stdout, "0\n")
        big = b"0123456789abcde\n" * (50 << 16)
        for command in ("wc -c; ls -A /tmp; exit 3", ["sh", "-c", "wc -c; ls -A /tmp; exit 3"]):
            result = box.execute(command, stdin=big)
            self.assertEqual((result.stdout, result.stderr, result.exit_code), ("%d\n" % len(big), "", 3))
            big = big[:20 << 20]
        with self.assertRaises(ClocheError):
            box.execute("cat", stdin=big[:5 << 20], cwd="/nowhere")
        self.assertEqual(box.execute("ls -A /tmp").stdout, "", "the input is not left behind")

    def test_arguments(self):
        """A megabyte of them in all; one has at most what Linux takes."""
        box = self.make()
        result = box.execute(["sh", "-c", 'printf %s "$@" | wc -c', "sh"] + ["x" * 65536] * 16)
        self.assertEqual(result.stdout, "1048576\n", result.record)
        self.assertEqual(box.execute(["sh", "-c", "echo $#", "sh"] + ["x"] * 10000).stdout, "10000\n")
        result = box.execute(["sh", "-c", "echo ${#1}", "sh", "x" * 131071])
        self.assertEqual(result.stdout, "131071\n")
        for name, options in (("cmd", {"command": ["echo", "x" * 131072]}),
                              ("shell", {"command": "echo " + "x" * 131072}),
                              ("env", {"command": "true", "env": {"A": "x" * 131072}})):
            with self.assertRaises(ClocheError) as caught:
                box.execute(**options)
            self.assertEqual((caught.exception.kind, caught.exception.field), ("invalid", name))
            self.assertIn("MAX_ARG_STRLEN", caught.exception.message)

    def test_permissions(self):
        """A file that the user inside may not write is not replaced, either."""
        box = self.make()
        box.execute("echo old >f; chmod 0444 f; echo own >g; mkdir d")
        for path, kind in (("f", "denied"), ("d", "invalid")):
            with self.assertRaises(ClocheError) as caught:
                box.write_file(path, "new")
            self.assertEqual(caught.exception.kind, kind, caught.exception)
        box.write_file("g", "new")
        self.assertEqual(box.execute("cat f g; stat -c %a f").stdout, "old\nnew444\n")

    def test_user(self):
        box = self.make()
        self.assertEqual(box.execute("id -un", user="user").stdout, "user\n")
        with self.assertRaises(ClocheError) as caught:
            box.execute("id", user="nobody-like-that")
        error = caught.exception
        self.assertEqual((error.status, error.kind, error.field), (400, "invalid", "user"))
        self.assertIn("nobody-like-that", error.message)

    def test_inspect(self):
        """The example for inspect_ai, held to what inspect_ai wants of a sandbox."""
        stub = {"ExecResult": namedtuple("ExecResult", "success returncode stdout stderr"),
                "OutputLimitExceededError": type("OutputLimitExceededError", (Exception,), {}),
                "SandboxEnvironment": object, "sandboxenv": lambda name: lambda cls: cls}
        modules = {"inspect_ai": types.ModuleType("inspect_ai"), "inspect_ai.util": types.ModuleType("util")}
        modules["inspect_ai.util"].__dict__.update(stub)
        sys.path.insert(0, os.path.join(cl.TOP, "adapters"))
        self.addCleanup(sys.path.remove, os.path.join(cl.TOP, "adapters"))
        with mock.patch.dict(sys.modules, modules), mock.patch.dict(os.environ, CLOCHE_URL="unix:" + self.d.sock):
            import inspect_sandbox
            asyncio.run(self.use_inspect(inspect_sandbox, stub))

    async def use_inspect(self, module, stub):
        kind = module.ClocheSandboxEnvironment
        boxes = await kind.sample_init("task", None, {})
        box = boxes["default"]
        try:
            await self.check_inspect_files(box, module, stub)
            await self.check_inspect_exec(box)
        finally:
            await kind.sample_cleanup("task", None, boxes, False)

    async def check_inspect_files(self, box, module, stub):
        for name, contents in (("a.txt", "great \u00e9\u6f22\n"), ("with space", ""), ("/tmp/n/e/s/t", "x"),
                               ("lines", "a\r\nb\n"), ("big", "x" * (20 << 20))):
            await box.write_file(name, contents)
            self.assertEqual(await box.read_file(name), contents)
        await box.write_file("b", b"\xc3\x28\x00")
        self.assertEqual(await box.read_file("b", text=False), b"\xc3\x28\x00")
        with self.assertRaises(UnicodeDecodeError):
            await box.read_file("b")
        await box.exec(["sh", "-c", "mkdir d; chmod 0444 a.txt; echo >secret; chmod 0 secret"])
        for call, error, text in ((box.read_file("none"), FileNotFoundError, "none"),
                                  (box.read_file("d"), IsADirectoryError, "directory"),
                                  (box.read_file("secret"), PermissionError, "secret"),
                                  (box.write_file("a.txt", "new"), PermissionError, "a.txt"),
                                  (box.write_file("a.txt", b"new"), PermissionError, "a.txt"),
                                  (box.write_file("d", "new"), IsADirectoryError, "directory")):
            with self.assertRaisesRegex(error, text):
                await call
        with mock.patch.object(module, "READ_MAX", 1 << 20):
            with self.assertRaises(stub["OutputLimitExceededError"]):
                await box.read_file("big")

    async def check_inspect_exec(self, box):
        good = await box.exec(["sh", "-c", "echo out; echo err >&2"])
        self.assertEqual(tuple(good), (True, 0, "out\n", "err\n"))
        self.assertEqual((await box.exec(["sh", "-c", "kill -TERM $$"])).returncode, 143)
        self.assertEqual((await box.exec(["sh", "-c", "exit 7"]))[:2], (False, 7))
        self.assertEqual((await box.exec(["cat"], input=b"\xf0\x9f\x98\x80")).stdout, "\U0001f600")
        self.assertEqual((await box.exec(["pwd"], cwd="/tmp")).stdout, "/tmp\n")
        self.assertEqual((await box.exec(["sh", "-c", "echo $A"], env={"A": "1"})).stdout, "1\n")
        with self.assertRaises(TimeoutError):
            await box.exec(["sleep", "9"], timeout=1)
        await box.write_file("plain", "echo hi")
        with self.assertRaises(PermissionError):
            await box.exec(["./plain"])
        self.assertFalse((await box.exec(["no-such-command"])).success)
        self.assertIn("nonexistent", (await box.exec(["id"], user="nonexistent")).stderr)

    def test_manager(self):
        first, second = self.make(metadata={"n": "1"}), self.make(metadata={"n": "2"})
        self.assertTrue({first.id, second.id} <= {box.id for box in self.manager.list()})
        self.assertEqual([box.id for box in self.manager.list(metadata={"n": "2"})], [second.id])
        self.assertEqual(self.manager.get(first.id).id, first.id)
        self.assertIn(first.id, self.manager.stats())
        self.assertIs(self.manager.health_check_all()[first.id], True)
        self.manager.destroy(first.id)
        with self.assertRaises(ClocheError) as caught:
            self.manager.get(first.id)
        self.assertEqual(caught.exception.kind, "not_found")

    def test_stop_keeps_files(self):
        box = self.make()
        box.write_file("f", "kept")
        box.stop()
        self.assertFalse(box.health_check())
        box.start()
        self.assertEqual(box.read_text("f"), "kept")

    def test_async(self):
        async def go():
            manager = AsyncSandboxManager(connection=self.connection)
            async with await manager.create() as box:
                await box.write_file("f", "x")
                results = await asyncio.gather(*(box.execute("cat f; echo %d" % i) for i in range(3)))
                return [result.stdout for result in results]

        self.assertEqual(asyncio.run(go()), ["x0\n", "x1\n", "x2\n"])

    def test_token_over_tcp(self):
        url = "http://127.0.0.1:%d" % self.d.port
        with self.assertRaises(ClocheError) as caught:
            SandboxManager(connection=connect(url, token="wrong")).create()
        self.assertEqual(caught.exception.status, 401)
        runner = SandboxRunner(connection=connect(url, token=self.d.token("client")))
        self.assertEqual(runner.run_command_sync("echo tcp").stdout, "tcp\n")

    def test_errors(self):
        with self.assertRaises(ClocheError) as caught:
            self.manager.create(memory="12Q")
        self.assertEqual((caught.exception.kind, caught.exception.field), ("invalid", "memory"))
        with self.assertRaises(ClocheError) as caught:
            self.manager.create(nonsense=1)
        self.assertEqual(caught.exception.status, 400)
