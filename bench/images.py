#!/usr/bin/env python3
"""Images: pull and unpack beside `skopeo copy` and `umoci unpack`, and how long a start from an image takes.

    bench/images.py [--rounds N] [--source DIRECTORY...]

The image is made of directories of this host. The registry is Debian's docker-registry on loopback. The tools take turns, and
the median counts. Peak memory is that of the largest process of each tool.
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLOCHE = os.path.join(TOP, os.environ.get("B", "build"), "cloche")


def run(*argv, env=None, cwd=None):
    """Seconds, and megabytes of the largest process."""
    start = time.monotonic()
    pid = os.posix_spawnp(argv[0], argv, dict(os.environ, **(env or {})), file_actions=[
        (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(argv)}")
    return time.monotonic() - start, usage.ru_maxrss / 1024


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make_image(top, sources):
    layout = os.path.join(top, "layout")
    run("umoci", "init", "--layout", layout)
    run("umoci", "new", "--image", layout + ":v1")
    bundle = os.path.join(top, "bundle")
    run("umoci", "unpack", "--image", layout + ":v1", bundle)
    root = os.path.join(bundle, "rootfs")
    os.makedirs(os.path.join(root, "bin"))
    shutil.copy("/bin/busybox", os.path.join(root, "bin/true"))
    for source in sources:
        shutil.copytree(source, root + source, symlinks=True, dirs_exist_ok=True)
    run("umoci", "repack", "--image", layout + ":v1", bundle)
    size = int(subprocess.check_output(["du", "-sm", root]).split()[0])
    shutil.rmtree(bundle)
    return layout, size


class Ours:
    def __init__(self, top, name):
        self.state, self.name = os.path.join(top, "state"), name

    def once(self):
        shutil.rmtree(self.state, ignore_errors=True)
        return run(CLOCHE, "image", "pull", self.name, env={"CLOCHE_STATE_DIR": self.state})


class Theirs:
    def __init__(self, top, name):
        self.top, self.name = top, name

    def once(self):
        layout, bundle = os.path.join(self.top, "copied"), os.path.join(self.top, "unpacked")
        for path in (layout, bundle):
            shutil.rmtree(path, ignore_errors=True)
        a = run("skopeo", "--insecure-policy", "copy", "-q", "--src-tls-verify=false", "docker://" + self.name, f"oci:{layout}:v1")
        b = run("umoci", "unpack", "--image", layout + ":v1", bundle)
        return a[0] + b[0], max(a[1], b[1])


def report(name, values, unit):
    print(f"  {name:34} {statistics.median(values):8.2f} {unit}  ({min(values):.2f} to {max(values):.2f})")


def pulls(top, name, rounds):
    tools = {"cloche image pull": Ours(top, name), "skopeo copy + umoci unpack": Theirs(top, name)}
    results = {tool: [] for tool in tools}
    for _ in range(rounds):
        for tool, t in tools.items():
            results[tool].append(t.once())
    for tool, got in results.items():
        report(tool, [seconds for seconds, _ in got], "s ")
        report(tool + ", memory", [memory for _, memory in got], "MB")
    medians = [statistics.median(s for s, _ in got) for got in results.values()]
    print(f"  ratio {medians[0] / medians[1]:.2f}")


def starts(top, name, rounds):
    env = {"CLOCHE_STATE_DIR": os.path.join(top, "state")}
    rows = {"host": [], "image": [], "image, as root inside": []}
    for _ in range(rounds):
        for row, more in (
            ("host", []), ("image", ["--image", name, "--user", "user"]), ("image, as root inside", ["--image", name])
        ):
            rows[row].append(1000 * run(CLOCHE, "run", "--empty", *more, "--", "/bin/true", env=env)[0])
    for row, values in rows.items():
        report(f"start, root of the {row}", values, "ms")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--source", nargs="*", default=["/usr/lib/python3.11", "/usr/share/perl"])
    options = p.parse_args()
    for tool in ("docker-registry", "skopeo", "umoci"):
        if not shutil.which(tool):
            sys.exit(f"skipped: {tool} is not installed")
    with tempfile.TemporaryDirectory(prefix="cloche-bench-images-") as top:
        host = f"127.0.0.1:{free_port()}"
        with open(os.path.join(top, "registry.yml"), "w", encoding="ascii") as out:
            out.write(
                f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {top}/blobs}}}}\n"
                f"http: {{addr: '{host}'}}\n"
            )
        layout, size = make_image(top, [s for s in options.source if os.path.isdir(s)])
        server = subprocess.Popen(["docker-registry", "serve", top + "/registry.yml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while socket.socket().connect_ex(("127.0.0.1", int(host.split(":")[1]))):
                time.sleep(0.05)
            name = host + "/bench:1"
            run("skopeo", "--insecure-policy", "copy", "-q", "--dest-tls-verify=false", f"oci:{layout}:v1", "docker://" + name)
            print(f"an image of {size} MB, {options.rounds} rounds")
            pulls(top, name, options.rounds)
            starts(top, name, options.rounds * 20)
        finally:
            server.kill()
            server.wait()


main()
