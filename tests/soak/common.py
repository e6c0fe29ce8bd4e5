"""What the soak tests share: counting, looking for what is left behind, and the command line."""
import argparse
import os
import shutil
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
E2E = os.path.join(TOP, "tests", "e2e")
sys.path[:0] = [os.path.join(E2E, "daemon"), E2E, os.path.join(TOP, "bench")]
sys.dont_write_bytecode = True

import cl  # noqa: E402
import harness  # noqa: E402
import leaks  # noqa: E402


class Count:
    """Things that happened, by name."""

    def __init__(self):
        self.lock, self.numbers = threading.Lock(), {}

    def add(self, name, by=1):
        with self.lock:
            self.numbers[name] = self.numbers.get(name, 0) + by

    def get(self, name):
        return self.numbers.get(name, 0)


def look_at_host():
    """What is there before the daemon starts."""
    leaks.adopt_orphans()
    os.chmod(cl.base_dir(), 0o755)
    return leaks.Snapshot()


def left_since(before):
    return [x for x in before.leaks(grace=harness.DEADLINE) if not x.startswith("file ")]


def report(numbers, complaints, left, summary):
    """Says what happened; returns the exit status."""
    for name in sorted(numbers):
        print("  %-28s %6d" % (name, numbers[name]))
    for line in complaints[:20]:
        print("  FAILED %s" % line)
    for line in left[:50]:
        print("  LEFT %s" % line)
    print("%s, %d complaints, %d left over" % (summary, len(complaints), len(left)))
    return 1 if complaints or left else 0


def main(doc, run, count, threads, flags=()):
    parser = argparse.ArgumentParser(description=doc.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--threads", type=int, default=threads)
    parser.add_argument("--seed", type=int, default=1)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    try:
        return run(parser.parse_args())
    finally:
        shutil.rmtree(os.environ.get("CLOCHE_E2E_DIR", "/nowhere"), ignore_errors=True)
