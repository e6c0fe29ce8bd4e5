"""The Python guard behind /v1/run; what it refuses is tested without a daemon."""

import harness


class Guard(harness.Case):
    def run_one(self, **body):
        reply = self.d.post("/v1/run", body)
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def test_strict(self):
        self.assertEqual(self.run_one(code="print(6 * 7)", guard="strict")["stdout"], "42\n")
        record = self.run_one(code="x = 1\nimport os\nprint('ran')", guard="strict", args=["a"])
        self.assertEqual((record["status"], record["exit_code"], record["stdout"]), ("exited", 1, ""))
        self.assertTrue(record["stderr"].startswith("cloche guard:"), record["stderr"])
        found = [d for d in record["denials"] if d["what"] == "guard"]
        self.assertEqual([(d["target"], d["rule"], d["count"]) for d in found], [("import os", "guard strict", 1)])
        self.assertIn("Line 2", found[0]["explain"])
        self.assertIn("guard", record["layers"]["denials"])

    def test_lists(self):
        self.assertEqual(self.run_one(code="import json; print(1)", guard="imports", guard_allow=["json"])["stdout"], "1\n")
        self.assertEqual(self.run_one(code="import re", guard="imports", guard_allow=["json"])["exit_code"], 1)
        self.assertEqual(self.run_one(code="import math", guard="strict", guard_deny=["math"])["exit_code"], 1)

    def test_notes_files_and_capture(self):
        record = self.run_one(
            code="import sys, mine\nopen('out', 'w').write(sys.argv[1] + mine.x)", guard="imports",
            args=["a b"], files=[{"path": "mine.py", "content": "x = 'c'"}], capture=["out"])
        self.assertEqual(record["exit_code"], 0, record)
        self.assertEqual([f["path"] for f in record["files"]], ["out"])
        self.assertIn("file (1)", record["guard"])

    def test_never_ignored(self):
        for body in ({"cmd": ["true"]}, {"shell": "true"}, {"code": "true", "language": "bash"}):
            self.assertError(self.d.post("/v1/run", dict(body, guard="strict")), 501, "unsupported", "guard")
        self.assertError(self.d.post("/v1/sandboxes", {"guard": "imports"}), 501, "unsupported", "guard")
        self.assertError(self.d.post("/v1/run", {"code": "1", "guard_allow": ["json"]}), 400, "invalid", "guard_allow")
