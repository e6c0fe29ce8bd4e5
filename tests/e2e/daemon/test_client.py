"""The Python client against a real daemon."""

import asyncio
import os
import sys

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
