#!/usr/bin/env python3
"""Drives our doors with clients that others wrote, unmodified, from npm, and with bad input.

    tests/clients/run.py [PROGRAM...]      all, or those named: e2b.mjs ...

The packages (package.json, pinned) are installed once into build/clients. One daemon is started, as
whoever runs this, on a port of its own; each program gets a token of its own and prints the usual
summary. Without node or npm, or where npm cannot install, what needs them is skipped by name.
"""
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
CLOCHE = os.path.join(BUILD, "cloche")
CLIENTS = os.path.join(TOP, "build", "clients")
SUMMARY = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")
PROGRAMS = sorted(os.path.basename(path) for path in glob.glob(os.path.join(HERE, "*.mjs"))
                  if not path.endswith("/check.mjs")) + ["e2b_bad_input.py"]
SURVIVE = "e2b_survive.mjs"  # in two parts, between which the daemon is killed
PROGRAM_SECONDS = 420
START_SECONDS = 60


def say(text):
    print(text, flush=True)


def install():
    """Puts the packages into build/clients; returns None, or why it cannot."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            return f"{program} is not installed"
    with open(os.path.join(HERE, "package.json"), encoding="utf-8") as text:
        wanted = text.read()
    stamp = os.path.join(CLIENTS, "installed.json")
    os.makedirs(CLIENTS, exist_ok=True)
    if not os.path.exists(stamp) or open(stamp, encoding="utf-8").read() != wanted:
        shutil.copy(os.path.join(HERE, "package.json"), CLIENTS)
        try:
            done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"],
                                  cwd=CLIENTS, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return "npm did not install the packages within 300 s"
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return "npm cannot install the packages: " + (lines[-1] if lines else "no reason given")
        with open(stamp, "w", encoding="utf-8") as text:
            text.write(wanted)
    for path in glob.glob(os.path.join(HERE, "*.mjs")):
        shutil.copy(path, CLIENTS)
    return None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Daemon:
    """One `cloche serve` with directories of its own."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="cloche-clients-")
        self.env = dict(os.environ, CLOCHE_STATE_DIR=os.path.join(self.top, "state"),
                        CLOCHE_RUNTIME_DIR=os.path.join(self.top, "run"))
        self.log = os.path.join(self.top, "log")
        self.url = None
        self.process = None

    def start(self, port=None):
        for _ in range(3):  # a port that was free may be taken by now
            port = port or free_port()
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen([CLOCHE, "serve", "--listen", f"127.0.0.1:{port}"],
                                                env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log)
            self.url = f"http://127.0.0.1:{port}"
            if self.answers():
                return True
            self.stop()
            port = None
        return False

    def crash(self):
        """Killed as by an accident, and started again where it was."""
        port = int(self.url.rsplit(":", 1)[1])
        self.process.kill()
        self.process.wait()
        return self.start(port) and self.url.endswith(f":{port}")

    def answers(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/healthz", timeout=5) as answer:
                    return answer.status == 200
            except OSError:
                time.sleep(0.1)
        return False

    def token(self, name):
        text = subprocess.run([CLOCHE, "token", "create", "--e2b", name], env=self.env, check=True,
                              capture_output=True, text=True, timeout=60).stdout
        key = text.strip().splitlines()[-1]
        # The daemon reads the new list in its own time.
        request = urllib.request.Request(self.url + "/v2/sandboxes", headers={"X-API-Key": key})
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(request, timeout=10).close()
                break
            except OSError:
                time.sleep(0.05)
        return key

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def close(self):
        self.stop()
        shutil.rmtree(self.top, ignore_errors=True)


def environment(daemon, name):
    env = dict(os.environ, E2B_API_KEY=daemon.token(name), E2B_API_URL=daemon.url,
               E2B_SANDBOX_URL=daemon.url, OTHER_API_KEY=daemon.token(name + "-other"),
               CLOCHE=CLOCHE, B=BUILD, NOTES=os.path.join(daemon.top, "notes"))
    env.pop("E2B_DOMAIN", None)
    env.pop("E2B_DEBUG", None)
    return env


def run_once(env, program, *args):
    """Returns passed, failed, skipped."""
    command = ["node", program] if program.endswith(".mjs") else [sys.executable, os.path.join(HERE, program)]
    try:
        text = subprocess.run([*command, *args], cwd=CLIENTS, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=PROGRAM_SECONDS).stdout
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b"").decode("utf-8", "replace")
        text += f"\nFAIL {program}: not done after {PROGRAM_SECONDS} s"
    print(text.rstrip())
    found = SUMMARY.findall(text)
    if not found:
        say(f"FAIL {program}: no summary")
        return 0, 1, 0
    return tuple(map(int, found[-1]))


def run(daemon, program):
    say(f"-- {program}")
    env = environment(daemon, program.split(".")[0])
    if program != SURVIVE:
        return run_once(env, program)
    before = run_once(env, program, "before")
    if not daemon.crash():
        say(f"FAIL {program}: the daemon did not come back")
        return before[0], before[1] + 1, before[2]
    return tuple(a + b for a, b in zip(before, run_once(env, program, "after")))


def run_all(daemon, programs):
    total = [0, 0, 0]
    why = install() if any(p.endswith(".mjs") for p in programs) else None
    for program in programs:
        if why and program.endswith(".mjs"):
            say(f"skipped {program}: {why}")
            total[2] += 1
        else:
            total = [a + b for a, b in zip(total, run(daemon, program))]
    return total


def main(wanted):
    os.makedirs(CLIENTS, exist_ok=True)
    daemon = Daemon()
    total = [0, 1, 0]
    try:
        if daemon.start():
            total = run_all(daemon, wanted or PROGRAMS)
        else:
            say("FAIL the daemon did not start")
        if total[1]:
            say("-- the daemon's log")
            say(open(daemon.log, encoding="utf-8", errors="replace").read()[-20000:])
    finally:
        daemon.close()
    say("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
