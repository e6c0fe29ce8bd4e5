#!/usr/bin/env python3
"""Measures the daemon's sandboxes beside Docker's, and prints tables in Markdown.

    make bench-daemon [BENCH="exec crowd files restart"]     BENCH_QUICK=1: fewer rounds

Every ratio is of numbers from one run. A peer that is not installed is left out by name.
"""
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import client  # noqa: E402
import run as bench_run  # noqa: E402
from client import Client, Daemon, measure, percentile  # noqa: E402

QUICK = bench_run.QUICK
table = bench_run.table


def cells(name, p50, p99, least, base=None):
    return [name, "%.2f" % p50, "%.2f" % p99, "%.2f" % least,
            "-" if base is None else "1/%.0f" % (base / p50) if p50 < base else "%.2f x" % (p50 / base)]


def row(name, times, base=None):
    return cells(name, percentile(times, 0.5), percentile(times, 0.99), min(times), base)


EXEC = ["POST", "/v1/sandboxes/@/exec", '{"cmd":["/payload"]}', '"stdout":"hello']
CREATE, DESTROY = ["POST", "/v1/sandboxes", "{}", '"id"'], ["DELETE", "/v1/sandboxes/@", "", ""]


def asked(name, d, options, steps, base=None):
    """A row of what a client in C sees, for whom all steps together are one round."""
    m = client.askbench(bench_run.BUILD, d, options, *steps)
    return cells(name, m["p50"] / 1000, m["p99"] / 1000, m["min"] / 1000, base) + ["%.0f" % m["rate"]]


def create(c, **options):
    status, body = c.ask("POST", "/v1/sandboxes", options)
    assert status == 201, body
    return "/v1/sandboxes/" + json.loads(body)["id"]


def destroy(c, path):
    status, body = c.ask("DELETE", path)
    assert status in (200, 202, 204), body


def spawn(argv, count):
    """Milliseconds of a command, so often."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append((time.perf_counter() - begun) * 1000)
    return times


def docker_peers(b):
    """docker run --rm and docker exec of the payload; None where there is no Docker."""
    if not shutil.which("dockerd"):
        return None
    try:
        run = bench_run.docker_without_network(b)
    except OSError as error:
        print("docker is left out:", error)
        return None
    client_argv = run[:3]
    subprocess.run([*client_argv, "run", "-d", "--name", "stays", "--network", "none", "payload",
                    "/payload", "sleep"], check=True, capture_output=True)
    count = 10 if QUICK else 30
    execs = [*client_argv, "exec", "stays", "/payload"]
    try:
        return spawn(run, count), spawn(execs, count)
    except subprocess.CalledProcessError:
        return spawn(run, count), None


def image_of(b):
    """What Docker's image has, as a directory."""
    root = os.path.join(b.dir, "image")
    os.makedirs(root, exist_ok=True)
    shutil.copy(b.payload, root)
    return root


def section_exec(b):
    count = 200 if QUICK else 1000
    peers = docker_peers(b)
    run_base = percentile(peers[0], 0.5) if peers else None
    exec_base = percentile(peers[1], 0.5) if peers and peers[1] else None
    bwrap = spawn(b.bwrap_small(b.payload), 50) if shutil.which("bwrap") else None
    d = Daemon("images: {payload: %s}\nsandbox: {image: payload}\n" % image_of(b)).start()
    try:
        with Client(d.sock) as c:
            path = create(c, ttl=3600)
            time.sleep(1)
            there = [path + "/exec" if word.endswith("/exec") else word for word in EXEC]
            rows = [asked("exec, %d at once" % n, d, ["-c", n, "-n", count], [there], exec_base)
                    for n in (1, 10, 100)]
            destroy(c, path)
        if peers and peers[1]:
            rows.append(row("docker exec", peers[1]) + ["-"])
        if bwrap:
            rows.append(row("bubblewrap, cold", bwrap) + ["-"])
        table("A command in a running sandbox, ms", ["", "p50", "p99", "min", "docker exec", "a second"], rows)
        cycle = [CREATE, EXEC, DESTROY]
        rows = [asked("create + exec + destroy, %d at once" % n, d, ["-c", n, "-n", count // 2], cycle, run_base)
                for n in (1, 10, 100)]
        rows.append(asked("the same, 20 ms between two", d, ["-b", 20, "-n", count // 5], cycle, run_base))
        if peers:
            rows.append(row("docker run --rm", peers[0]) + ["-"])
        table("A sandbox from birth to death, ms", ["", "p50", "p99", "min", "docker run", "a second"], rows)
    finally:
        d.stop()


def available_kb():
    with open("/proc/meminfo", encoding="ascii") as f:
        return int(next(x for x in f if x.startswith("MemAvailable")).split()[1])


def creates_and_cycles(d):
    """Medians of making a sandbox, and of that and ending it."""
    creates = []

    def once(x):
        begun = time.perf_counter()
        made = create(x, ttl=3600)
        creates.append((time.perf_counter() - begun) * 1000)
        destroy(x, made)

    cycles, _ = measure(d.sock, 200, 1, once)
    return percentile(creates, 0.5), percentile(cycles, 0.5)


def section_crowd(b):
    count = 300 if QUICK else 1000
    d = Daemon("max_sandboxes: 4000\nmax_sandboxes_per_token: 4000\n").start()
    try:
        with Client(d.sock) as c:
            for _ in range(20):
                destroy(c, create(c))
            time.sleep(2)
            alone = creates_and_cycles(d)
            time.sleep(2)
            before = available_kb()
            times, took = measure(d.sock, count, 8, lambda x: create(x, ttl=3600))
            time.sleep(2)
            each = (before - available_kb()) / count
            crowded = creates_and_cycles(d)
            begun = time.perf_counter()
            c.ask("DELETE", "/v1/sandboxes")
            gone = time.perf_counter() - begun
        table("%d sandboxes at once" % count, ["", ""], [
            ["made in", "%.2f s" % took], ["memory of each, all told", "%.0f kB" % each],
            *[["%s, p50: alone / among them" % name, "%.2f / %.2f ms (x%.2f)" % (x, y, y / x)]
              for name, x, y in zip(("create", "create + destroy"), alone, crowded)],
            ["all destroyed in", "%.2f s" % gone]])
    finally:
        d.stop()


def curl(args):
    begun = time.perf_counter()
    subprocess.run(["curl", "-sf", "-o", "/dev/null", *args], check=True)
    return time.perf_counter() - begun


def nginx(b, size):
    """A server of Debian's with the same file; None where it is not installed."""
    if not shutil.which("nginx"):
        return None
    top = os.path.join(b.dir, "nginx")
    os.makedirs(top + "/up")
    subprocess.run(["chmod", "-R", "777", top], check=True)
    conf = os.path.join(top, "conf")
    with open(conf, "w", encoding="ascii") as f:
        f.write("daemon off; pid %s/pid; error_log %s/err; events {}\n"
                "http { access_log off; sendfile on; client_max_body_size 0; client_body_temp_path %s/tmp;\n"
                "server { listen unix:%s/s; root %s; location /up/ { dav_methods PUT; } } }\n" %
                (top, top, top, top, top))
    subprocess.run(["head", "-c", str(size), "/dev/urandom"], check=True,
                   stdout=open(top + "/file", "wb"))
    b.children.append(subprocess.Popen(["nginx", "-c", conf, "-p", top], stderr=subprocess.DEVNULL))
    for _ in range(100):
        if os.path.exists(top + "/s"):
            return top
        time.sleep(0.05)
    return None


def section_files(b):
    size = (200 if QUICK else 1000) << 20
    top = nginx(b, size)
    if not top:
        print("nginx is left out: not installed")
        return
    d = Daemon("ceilings: {memory: 8G, disk: 4G}\n").start()
    try:
        with Client(d.sock) as c:
            path = create(c, ttl=3600, memory="6G", disk="3G")
        ours = "http://localhost%s/files?path=/tmp/f" % path
        theirs = ["--unix-socket", top + "/s"]
        rows = []
        for name, own, other in (
                ("up", ["--unix-socket", d.sock, "-T", top + "/file", ours],
                 [*theirs, "-T", top + "/file", "http://localhost/up/f"]),
                ("down", ["--unix-socket", d.sock, ours], [*theirs, "http://localhost/file"])):
            own_s = min(curl(own) for _ in range(3))
            try:
                other_s = min(curl(other) for _ in range(3))
            except subprocess.CalledProcessError:
                other_s = None
            rows.append([name, "%.0f MB/s" % (size / own_s / 1e6),
                         "%.0f MB/s" % (size / other_s / 1e6) if other_s else "-",
                         "%.2f" % (other_s / own_s) if other_s else "-"])
        table("A file of %d MB through curl" % (size >> 20), ["", "cloche", "nginx", "ratio"], rows)
    finally:
        d.stop()


def section_restart(b):
    count = 100 if QUICK else 500
    d = Daemon("max_sandboxes: 4000\nmax_sandboxes_per_token: 4000\n").start()
    try:
        measure(d.sock, count, 10, lambda x: create(x, ttl=3600))
        d.kill()
        begun = time.perf_counter()
        d.start()
        took = time.perf_counter() - begun
        with Client(d.sock) as c:
            _, body = c.ask("GET", "/v1/sandboxes?limit=1000&state=running")
            alive = len(json.loads(body)["sandboxes"])
        table("Killed with %d sandboxes alive" % count, ["", ""],
              [["serving again after", "%.2f s" % took], ["sandboxes taken up again", alive]])
    finally:
        d.stop()


SECTIONS = {"exec": section_exec, "crowd": section_crowd, "files": section_files, "restart": section_restart}


def main(wanted):
    b = bench_run.Bench()
    try:
        for name in wanted or SECTIONS:
            SECTIONS[name](b)
    finally:
        b.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
