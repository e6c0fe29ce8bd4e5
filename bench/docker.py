#!/usr/bin/env python3
"""The Docker door beside a Docker engine: `docker run --rm`, and the same and `exec` without the command's own time.

    bench/docker.py [--rounds N] [--engine unix:///PATH] [--at-once N]

Starts a daemon of its own, with an image of one static busybox. The engine, if one is named, gets the same image. Both take
turns, and the median counts. `docker run` is the unmodified command, whose own start is a part of every figure (`docker --version`
is the first row); the others are the requests that it makes, over the socket: create, start, wait, remove; and an exec with its
output.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("CLOCHE", os.path.join(TOP, os.environ.get("B", "build"), "cloche"))
sys.path[:0] = [os.path.join(TOP, "tests", "e2e", "daemon"), os.path.join(TOP, "tests", "e2e")]
sys.dont_write_bytecode = True

import harness  # noqa: E402
import images  # noqa: E402

IMAGE = "bench/busybox:1"


class Engine:
    def __init__(self, path):
        self.path = path

    def command(self, *args, **more):
        return subprocess.run(["docker", *args], env=dict(os.environ, DOCKER_HOST="unix://" + self.path), check=True,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL if "input" not in more else None,
                              **more).stdout

    def request(self, method, path, body=None):
        connection = harness.UnixConnection(self.path, 60)
        text = None if body is None else json.dumps(body)
        connection.request(method, "/v1.41" + path, text, {"Content-Type": "application/json"} if text else {})
        reply = harness.Response(connection.getresponse())
        connection.close()
        if reply.status >= 400:
            sys.exit(f"{method} {path}: {reply}")
        return reply

    def have(self, archive):
        self.command("import", "-", IMAGE, input=archive)

    def create(self, *cmd):
        return self.request("POST", "/containers/create", {
            "Image": IMAGE, "Cmd": list(cmd), "HostConfig": {"NetworkMode": "none"}}).json["Id"]

    def remove(self, box):
        self.request("DELETE", f"/containers/{box}?force=1")

    # ---- what is measured

    def run_command(self):
        if self.command("run", "--rm", "--network", "none", IMAGE, "echo", "hi") != b"hi\n":
            sys.exit("wrong output")

    def run_requests(self):
        box = self.create("true")
        self.request("POST", f"/containers/{box}/start")
        self.request("POST", f"/containers/{box}/wait")
        self.remove(box)

    def exec_requests(self):
        eid = self.request("POST", f"/containers/{self.box}/exec", {
            "Cmd": ["echo", "hi"], "AttachStdout": True}).json["Id"]
        if b"hi" not in self.request("POST", f"/exec/{eid}/start", {}).body:
            sys.exit("wrong output")

    def exec_command(self):
        self.command("exec", self.box, "true")


def timed(call):
    begun = time.monotonic()
    call()
    return (time.monotonic() - begun) * 1000


def at_once(engine, count):
    """How long so many containers take, one thread each."""
    threads = [threading.Thread(target=engine.run_requests) for _ in range(count)]

    def whole():
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    return timed(whole)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--engine", default="")
    parser.add_argument("--at-once", type=int, default=20)
    args = parser.parse_args()
    archive = images.layer(*images.shell_entries(), *[images.link("bin/" + n, "busybox") for n in ("true", "echo")])
    daemon = harness.Daemon(config="docker: true\n").start()
    engines = {"cloche": Engine(os.path.join(daemon.dir, "run", "docker.sock"))}
    if args.engine:
        engines["engine"] = Engine(args.engine.removeprefix("unix://"))
    try:
        for e in engines.values():
            e.have(archive)
            e.box = e.create("sleep", "1000")
            e.request("POST", f"/containers/{e.box}/start")
        print("| ms, median | " + " | ".join(engines) + " |\n|---|" + "---|" * len(engines))
        version = statistics.median(timed(lambda: subprocess.run(["docker", "--version"], stdout=subprocess.DEVNULL,
                                                                 check=True)) for _ in range(args.rounds))
        print(f"| `docker --version` | {version:.1f} |")
        for title, what in (("`docker run --rm`", "run_command"), ("`docker exec`", "exec_command"),
                            ("create, start, wait, remove", "run_requests"), ("exec with output", "exec_requests")):
            times = {name: [] for name in engines}
            for _ in range(args.rounds):
                for name, e in engines.items():
                    times[name].append(timed(getattr(e, what)))
            print(f"| {title} | " + " | ".join(f"{statistics.median(t):.1f}" for t in times.values()) + " |")
        print(f"| {args.at_once} at once | " + " | ".join(f"{at_once(e, args.at_once):.0f}" for e in engines.values()) +
              " |")
    finally:
        for e in engines.values():
            if hasattr(e, "box"):
                e.remove(e.box)
        daemon.stop()
        daemon.remove()


main()
