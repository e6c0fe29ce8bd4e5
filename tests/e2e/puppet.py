"""The broker alone, with a front on strings (tests/front/puppet.c) in the real one's place.

    with Broker(directory) as b:
        reply = b.ask("boot " + new_id())       one line out, the broker's answer as a dict
        b.news(ADOPTED)                          what it says by itself
"""

import json
import os
import random
import socket
import subprocess
import time

import cl

# Types of messages (wire/ipc.h): the puppet tells them when it greets.
DONE = BOOTED = STATS_ARE = SNAPSHOT_IS = ADOPTED = READY = DIED = PEER = SHUTDOWN = None
INVALID, DENIED, NOT_FOUND, CONFLICT, LIMIT, UNSUPPORTED = 1, 2, 3, 4, 5, 6
PATIENCE = 30
BUILD = os.path.dirname(cl.CLOCHE)
PROGRAM = os.path.join(BUILD, "tests", "front", "puppet")


def new_id():
    return "".join(random.choice("abcdefghijklmnopqrstuvwxyz012345") for _ in range(20))


def await_true(what, say="it does not happen"):
    end = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > end:
            raise AssertionError(say)
        time.sleep(0.01)


def is_dead(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as text:
            return text.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Broker:
    def __init__(self, top, config=None, front=PROGRAM, env=None):
        self.state, self.runtime = os.path.join(top, "state"), os.path.join(top, "run")
        self.config, self.front, self.log_path = config, front, os.path.join(top, "log")
        self.socket = os.path.join(self.runtime, "cloche.sock")
        self.extra_env = env or {}
        self.start()

    def start(self):
        argv = [os.path.join(BUILD, "cloched"), "serve", "--listen", "unix:" + self.socket]
        argv += ["--test-front", self.front] if self.front else []
        argv += ["--config", self.config] if self.config else []
        env = cl.caller_env(
            CLOCHE_STATE_DIR=self.state, CLOCHE_RUNTIME_DIR=self.runtime, CLOCHE_LOG="debug",
            **self.extra_env,
        )
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if self.front:
            self.connect()

    def connect(self):
        """To the puppet, which may not be there yet."""
        path = os.path.join(self.state, "db", "puppet")
        self.buffer, self.told = b"", []

        def ready():
            if self.process.poll() is not None:
                raise AssertionError("the broker ended: " + self.log())
            self.line_socket = socket.socket(socket.AF_UNIX)
            self.line_socket.settimeout(PATIENCE)
            try:
                self.line_socket.connect(path)
                # One that is just being killed takes connections, too, but greets nobody.
                globals().update(self.line()["types"])
                return True
            except (OSError, EOFError, KeyError):
                self.line_socket.close()
                self.buffer = b""
                return False

        await_true(ready, "the puppet does not come up")

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def line(self):
        while b"\n" not in self.buffer:
            data = self.line_socket.recv(65536)
            if not data:
                raise EOFError
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def send(self, text):
        self.line_socket.sendall(text.encode() + b"\n")

    def ask(self, text):
        self.send(text)
        while True:
            message = self.line()
            if message.get("serial") != 0:
                return message
            self.told.append(message)

    def news(self, kind):
        for message in self.told:
            if message["type"] == kind:
                self.told.remove(message)
                return message
        while True:
            message = self.line()
            if message.get("type") == kind:
                return message
            self.told.append(message)

    def kill(self):
        """As a crash does it."""
        self.process.kill()
        self.process.wait()
        self.line_socket.close()

    def stop(self):
        if self.process.poll() is not None:
            return self.process.returncode
        self.process.terminate()
        if self.front:
            try:
                self.news(SHUTDOWN)
                self.send("quit")
            except (EOFError, OSError):
                pass
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            for name in os.listdir(os.path.join(self.runtime, "boxes")):
                if len(name) == 20 and self.process.poll() is None and self.front:
                    self.ask("destroy " + name)
        except (EOFError, OSError):
            pass
        self.stop()
        if self.front:
            self.line_socket.close()
