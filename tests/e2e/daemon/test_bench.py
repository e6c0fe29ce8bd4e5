"""cloche bench: says how long it takes here, and leaves nothing behind."""

import json
import subprocess

import cl


class Bench(cl.Case):
    def bench(self, *args):
        done = subprocess.run([cl.CLOCHE, "bench", "-n", "2", *args], env=cl.caller_env(), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=180)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def test_json(self):
        found = json.loads(self.bench("--json"))
        self.assertGreater(found["machine"]["cores"], 0)
        rows = {(r["what"], r["how"]): r for r in found["rows"]}
        self.assertEqual(len({what for what, _ in rows}), 2)
        for (what, how), row in rows.items():
            if how.startswith(("cloche", "no sandbox")):
                self.assertEqual(row.get("failed"), None, row)
                self.assertLessEqual(row["min_ms"], row["p50_ms"])
                self.assertLessEqual(row["p50_ms"], row["p99_ms"])
            if how == "no sandbox":
                self.assertEqual(row["ratio"], 1)

    def test_table(self):
        text = self.bench()
        for word in ("no sandbox", "cloche code", "cloche run", "print(42)", "Linux"):
            self.assertIn(word, text)

    def test_bad_rounds(self):
        done = subprocess.run([cl.CLOCHE, "bench", "-n", "0"], env=cl.caller_env(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 125, done)
        self.assertIn("rounds", done.stderr)
