"""One tenant keeps the daemon busy; another must hardly notice. Waits are compared with each other, never with a
clock's idea of fast: the attacks here made others wait for seconds."""

import http.client
import threading
import time
import unittest
import zlib

import harness
import test_kernels

# Finds the descriptor of the kernel's protocol, as hostile code would.
FORGE = """
import fcntl, os
fd = next(f for f in range(100, 130) if os.path.exists('/proc/self/fd/%d' % f) and fcntl.fcntl(f, fcntl.F_GETFL) & 3)
def put(b):
    while b:
        b = b[os.write(fd, b):]
"""


class Waits(threading.Thread):
    """How long another tenant's small requests take meanwhile."""

    def __init__(self, daemon, key):
        super().__init__(daemon=True)
        self.port, self.key, self.over, self.all = daemon.port, key, False, []
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.over:
            begun = time.monotonic()
            connection.request("GET", "/v1/sandboxes", headers={"Authorization": "Bearer " + self.key})
            connection.getresponse().read()
            self.all.append(time.monotonic() - begun)
            time.sleep(0.002)
        connection.close()

    def worst(self):
        self.over = True
        self.join()
        return max(self.all)


class Fair(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon(config="snapshots:\n  max_total: 64M\n").start()
        cls.addClassCleanup(cls.daemon.remove)
        cls.addClassCleanup(cls.daemon.stop)
        cls.key = cls.daemon.token("busy", "--e2b")
        cls.other = cls.daemon.token("other")

    def assert_fair(self, attack):
        """Most of an attack's work once was one piece, in which nobody else was served."""
        waits = Waits(self.daemon, self.other)
        begun = time.monotonic()
        attack()
        took = time.monotonic() - begun
        self.assertLess(waits.worst(), max(0.3, took / 8))

    def execute(self, box, code):
        status, text = box.port("POST", "/execute", {"code": FORGE + code})
        self.assertEqual(status, 200, text)
        self.assertIn("end_of_execution", text)

    def test_an_unfinished_line_is_looked_at_once(self):
        box = test_kernels.Box(self.daemon, self.key)
        self.addCleanup(box.end)
        code = "put(b'x' * ((9 << 20) - 70000))\nfor _ in range(60000): put(b'x')\nput(bytes([10]))\n"
        self.assert_fair(lambda: self.execute(box, code))

    def test_long_lines_are_not_built(self):
        box = test_kernels.Box(self.daemon, self.key)
        self.addCleanup(box.end)
        code = (
            "import inspect\nline = b'{\"id\": %d, \"type\": \"result\", \"data\": [' % {id} + b'0,' * (4 << 20)"
            " + b'0]}\\n'\nfor _ in range(3): put(line)\n"
        )
        # The id of an execution is the kernel's business; any number will do to have the line read.
        self.assert_fair(lambda: self.execute(box, code.replace("{id}", "1")))

    def test_a_long_result_arrives_whole(self):
        box = test_kernels.Box(self.daemon, self.key)
        self.addCleanup(box.end)
        value = box.run("'ab' * 100000")[1]
        self.assertEqual(value, "ab" * 100000)
        printed = box.run("print('\\u00e9' * 60000)")[0]
        self.assertEqual(printed, "\u00e9" * 60000 + "\n")

    def upload(self, box, name, mb):
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        head = '--B\r\nContent-Disposition: form-data; name="%s"; filename="f"\r\n\r\n' % name
        body = packer.compress(head.encode())
        for _ in range(mb):
            body += packer.compress(bytes(1 << 20))
        body += packer.compress(b"\r\n--B--\r\n") + packer.flush()
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=60)
        connection.request("POST", "/files?path=/tmp/x&username=user", body, {
            "Content-Encoding": "gzip", "Content-Type": "multipart/form-data; boundary=B",
            "E2b-Sandbox-Id": box.id, "E2b-Sandbox-Port": "49983",
            "X-Access-Token": box.sandbox["envdAccessToken"],
        })
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply.status, text

    def test_gzip_bombs_are_refused(self):
        box = test_kernels.Box(self.daemon, self.key, "base")
        self.addCleanup(box.end)
        for name, mb, expect in (("other", 80, 413), ("file", 80, 413), ("file", 8, 200)):
            with self.subTest(name=name, mb=mb):
                answers = []
                self.assert_fair(lambda name=name, mb=mb: answers.append(self.upload(box, name, mb)))
                self.assertEqual(answers[0][0], expect, answers)


if __name__ == "__main__":
    unittest.main()
