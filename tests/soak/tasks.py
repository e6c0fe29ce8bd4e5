#!/usr/bin/env python3
"""A file of many tasks, whose run is killed again and again, and the daemon with it: each task has one result in the end.

    tests/soak/tasks.py [--count 10000] [--kills 4]
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(TOP, "tests/e2e/daemon"), os.path.join(TOP, "tests/e2e")]
import harness  # noqa: E402
import served  # noqa: E402

LIMIT = 3600


class Tasks:
    def __init__(self, count, kills):
        self.count, self.kills = count, kills
        self.daemon = served.Daemon("pool_size: 0\n")
        self.file = os.path.join(self.daemon.dir, "tasks.jsonl")
        self.journal = os.path.join(self.daemon.dir, "journal")
        with open(self.file, "w", encoding="utf-8") as f:
            for i in range(count):
                f.write(json.dumps("echo %d" % i if i % 100 else {"task": "exit 7"}) + "\n")

    def begin(self):
        with open(os.path.join(self.daemon.dir, "said"), "ab") as said:
            return subprocess.Popen([served.CLOCHE, "agent", "run", "--tasks", self.file, "--journal", self.journal,
                                     "--parallel", "16", "shell"], env=self.daemon.client_env(), stderr=said)

    def entries(self):
        """Whole lines; one that a kill cut off is no result."""
        if not os.path.exists(self.journal):
            return []
        found = []
        with open(self.journal, encoding="utf-8") as f:
            for line in f:
                try:
                    found.append(json.loads(line))
                except ValueError:
                    pass
        return found

    def run(self):
        self.daemon.start()
        begun = time.monotonic()
        for i in range(self.kills):
            p, want = self.begin(), self.count * (i + 1) // (self.kills + 2)
            harness.until(lambda: len(self.entries()) > want, deadline=LIMIT)
            if i % 2:  # every second time the daemon dies first
                self.daemon.kill()
                p.wait(LIMIT)
                self.daemon.start()
            else:
                p.send_signal(signal.SIGKILL)
                p.wait()
        status = self.begin().wait(LIMIT)
        return status, time.monotonic() - begun

    def judge(self, status, seconds):
        entries = self.entries()
        lines = [e["line"] for e in entries]
        wrong = [e for e in entries if (e["result"]["stdout"] != "%d\n" % (e["line"] - 1)
                                        if (e["line"] - 1) % 100 else e["result"]["exit_code"] != 7)]
        missing = set(range(1, self.count + 1)) - set(lines)
        print("%d tasks, %d kills, %.0f s: %d missing, %d twice, %d wrong, last status %d"
              % (self.count, self.kills, seconds, len(missing), len(lines) - len(set(lines)), len(wrong), status))
        return not missing and len(lines) == len(set(lines)) and not wrong and status == 1


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--count", type=int, default=10000)
    options.add_argument("--kills", type=int, default=4)
    o = options.parse_args()
    tasks = Tasks(o.count, o.kills)
    try:
        good = tasks.judge(*tasks.run())
    finally:
        tasks.daemon.end()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
