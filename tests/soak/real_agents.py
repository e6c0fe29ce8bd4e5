#!/usr/bin/env python3
"""The real programs behind shipped agent types, from npm: they start inside, and know the options that the type gives them.

    tests/soak/real_agents.py

Needs npm and its registry; what cannot be installed is skipped with the reason. No account, no service: only --version and
--help.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLOCHE = os.path.join(TOP, "build", "cloche")
INSTALL_LIMIT, LIMIT = 600, 120
# Type, package, the program, and the words that make it print its options.
PROGRAMS = (
    ("claude-code", "@anthropic-ai/claude-code", "claude", ["--help"]),
    ("codex", "@openai/codex", "codex", ["exec", "--help"]),
)


def install(package, to):
    """None, or why not."""
    if not shutil.which("npm"):
        return "npm is not installed"
    try:
        r = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", to, package],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=INSTALL_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return "npm took longer than %d s" % INSTALL_LIMIT
    return None if r.returncode == 0 else r.stdout.decode("utf-8", "replace").strip().splitlines()[-1]


def inside(place, program, *words):
    """What it prints in a sandbox that sees nothing else, and has no network."""
    r = subprocess.run([CLOCHE, "run", "--empty", "--memory", "4G", "--pids", "256", "--timeout", "100s",
                        "--mount", place + ":/mnt/agents", "--", "/mnt/agents/node_modules/.bin/" + program, *words],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
    return r.returncode, r.stdout.decode("utf-8", "replace")


def options_of(kind):
    with open(os.path.join(TOP, "policies", "agents", kind + ".yaml"), encoding="utf-8") as f:
        lines = [line for line in f if line.startswith(("command:", "system:"))]
    return re.findall(r"--[a-z][a-z-]+", " ".join(lines))


def look_at(kind, package, program, help_words):
    """What is wrong, as lines; None: it cannot be installed."""
    with tempfile.TemporaryDirectory(prefix="cloche-real-") as place:
        os.chmod(place, 0o755)
        why = install(package, place)
        if why:
            print("skipped %s: %s" % (kind, why))
            return None
        wrong = []
        code, version = inside(place, program, "--version")
        if code != 0 or not re.search(r"\d+\.\d+\.\d+", version):
            wrong.append("--version: status %d: %.300s" % (code, version))
        code, text = inside(place, program, *help_words)
        wrong += ["has no option " + o for o in options_of(kind) if o not in text]
        print("%s %s: %s" % ("failed " if wrong else "ok", kind, "; ".join(wrong) or version.strip()))
        return wrong


def main():
    results = [look_at(*row) for row in PROGRAMS]
    counts = [sum(r == [] for r in results), sum(bool(r) for r in results), sum(r is None for r in results)]
    print("%d passed, %d failed, %d skipped" % tuple(counts))
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
