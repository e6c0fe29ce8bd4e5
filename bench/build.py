#!/usr/bin/env python3
"""`cloche image build` beside `buildah bud`, cold and with all layers cached; and what 50 images that share layers take
on disk.

    bench/build.py [--rounds N] [--source DIRECTORY...]

The base is a shell and directories of this host. The tools take turns, and the median counts. buildah runs without
namespaces of its own (--isolation chroot), which is its quickest way, and is left out if it is not installed.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLOCHE = os.path.join(TOP, os.environ.get("B", "build"), "cloche")
STEPS = """FROM {base}
ENV A=b
RUN echo one > /one
COPY . /app
RUN cp -r /app /again && rm -r /again
WORKDIR /app
RUN echo two > /two
CMD ["/bin/sh"]
"""


def run(*argv, env=None):
    start = time.monotonic()
    r = subprocess.run(argv, env=dict(os.environ, **(env or {})), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if r.returncode:
        sys.exit(f"failed: {' '.join(argv)}\n{r.stderr.decode()[-1000:]}")
    return time.monotonic() - start


def make_root(path, sources):
    os.makedirs(path + "/bin")
    for name in ("tmp", "etc", "run"):
        os.mkdir(os.path.join(path, name))
    shutil.copy("/bin/busybox", path + "/bin/busybox")
    for name in ("sh", "cp", "rm", "echo", "cat"):
        os.symlink("busybox", f"{path}/bin/{name}")
    for source in sources:
        shutil.copytree(source, path + source, symlinks=True, dirs_exist_ok=True)


class Ours:
    name = "cloche image build"

    def __init__(self, top, root):
        self.env = {"CLOCHE_STATE_DIR": top + "/state"}
        run("tar", "-C", root, "-cf", top + "/root.tar", ".")
        run(CLOCHE, "image", "import", top + "/root.tar", "base:1", env=self.env)

    def build(self, context, cold):
        return run(CLOCHE, "image", "build", "-t", "x:1", *(["--no-cache"] if cold else []), context, env=self.env)


class Theirs:
    name = "buildah bud"

    def __init__(self, top, root):
        self.argv = ["buildah", "--root", top + "/b", "--runroot", top + "/r", "--storage-driver", "overlay"]
        made = subprocess.run([*self.argv, "from", "scratch"], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
        run(*self.argv, "add", made, root, "/")
        run(*self.argv, "commit", "-q", "--disable-compression", made, "localhost/base:1")

    def build(self, context, cold):
        return run(*self.argv, "bud", "--isolation", "chroot", "--layers", "--pull-never", "-q", "-t", "x:1",
                   *(["--no-cache"] if cold else []), "-f", context + "/Dockerfile.buildah", context)


def builds(top, root, rounds):
    context = top + "/context"
    shutil.copytree(os.path.join(TOP, "docs"), context)
    for name, base in (("Dockerfile", "base:1"), ("Dockerfile.buildah", "localhost/base:1")):
        with open(os.path.join(context, name), "w", encoding="ascii") as f:
            f.write(STEPS.format(base=base))
    tools = [Ours(top, root)] + ([Theirs(top, root)] if shutil.which("buildah") else [])
    for cold in (True, False):
        got = {t.name: [] for t in tools}
        for _ in range(rounds):
            for t in tools:
                got[t.name].append(t.build(context, cold))
        for name, values in got.items():
            print(f"  {name + (', cold' if cold else ', cached'):30} {statistics.median(values):7.2f} s   {min(values):.2f} .. {max(values):.2f}")
        medians = [statistics.median(v) for v in got.values()]
        if len(medians) == 2:
            print(f"  ratio {medians[0] / medians[1]:.2f}")


def disk_of(path):
    return 1024 * int(subprocess.check_output(["du", "-sk", path]).split()[0])


def overlapping(top, count=50):
    """Images of one base, with a layer that all share and one of their own."""
    env = {"CLOCHE_STATE_DIR": top + "/state"}
    context = top + "/many"
    os.mkdir(context)
    with open(context + "/shared", "wb") as f:
        f.write(os.urandom(2 << 20))
    before = disk_of(top + "/state/images")
    for n in range(count):
        with open(context + "/own", "wb") as f:
            f.write(os.urandom(256 << 10))
        with open(context + "/Dockerfile", "w", encoding="ascii") as f:
            f.write("FROM base:1\nCOPY shared /shared\nCOPY own /own\n")
        run(CLOCHE, "image", "build", "-t", f"many:{n}", context, env=env)
    unique = (2 << 20) + count * (256 << 10)
    took = disk_of(top + "/state/images") - before
    print(f"  {count} images: {took / 2**20:.1f} MB on disk for {unique / 2**20:.1f} MB of their own, ratio {took / unique:.2f}")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--source", nargs="*", default=["/usr/share/perl"])
    options = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="cloche-bench-build-") as top:
        make_root(top + "/root", [s for s in options.source if os.path.isdir(s)])
        builds(top, top + "/root", options.rounds)
        overlapping(top)


main()
