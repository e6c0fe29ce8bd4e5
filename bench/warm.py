#!/usr/bin/env python3
"""Measures warm sandboxes beside bare Python, bubblewrap and Docker, and prints tables in Markdown.

    make bench-warm [BENCH="python node command clients burst saturated memory kernels cli"]
    BENCH_QUICK=1 make bench-warm                  fewer rounds
    BENCH_DOCKER=0                                 without a Docker daemon of our own

Everything that a client does is counted: POST /v1/run over the Unix socket until the whole record is
there. Contestants of one table took turns in one run (bench/spawnbench.c); ratios are of such numbers
only. Lines of numpy have numpy among the modules that are loaded ahead; all others the daemon's
defaults. The last table holds the figures against what was aimed at.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run as bench_run  # noqa: E402
import client  # noqa: E402
from client import Client, Daemon, percentile, processes_below  # noqa: E402

QUICK, table = bench_run.QUICK, bench_run.table
CORES = os.cpu_count() or 1
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"
HELLO = "hello\\n"  # as JSON has it

PRINT = ("print(42)", "42\\n")
TEXT = ("import json, re\nprint(json.dumps(re.findall('[a-z]+', 'one two')))", '[\\"one\\", \\"two\\"]\\n')
NUMPY = ("import numpy as np\nprint(np.arange(10).sum())", "45\\n")

aims = []  # (what, measured, aim, met)


def aim(what, measured, most, text="%.3f"):
    aims.append((what, text % measured, "<= " + text % most, measured <= most))


def aim_least(what, measured, least):
    aims.append((what, "%.1f" % measured, ">= %.1f" % least, measured >= least))


def body(**fields):
    return json.dumps(fields)


def expect(text):
    return '"stdout":"%s"' % text


class Bench(bench_run.Bench):
    def __init__(self):
        super().__init__()
        self.daemons = []

    def daemon(self, config="", kinds=({"code": "pass"}, {"cmd": ["true"]})):
        """A daemon that is warm for these."""
        d = Daemon(config).start()
        self.daemons.append(d)
        with Client(d.sock) as c:
            end = time.monotonic() + 30
            warm = 0
            while warm < 8:
                replies = [c.ask("POST", "/v1/run", what) for what in kinds]
                records = [json.loads(text) for status, text in replies if status == 200]
                is_warm = len(records) == len(kinds) and all(r["layers"]["recycled"] for r in records)
                warm = warm + 1 if is_warm else 0
                if time.monotonic() > end:
                    raise RuntimeError("it does not get warm: %s" % replies)
                time.sleep(0.01)
        return d

    def ask(self, d, request, answer):
        return ["ask:", d.sock, request, expect(answer)]

    def code(self, d, snippet):
        return self.ask(d, body(code=snippet[0]), snippet[1])

    def askbench(self, d, options, request, answer):
        return client.askbench(bench_run.BUILD, d, options, ["POST", "/v1/run", request, expect(answer)])

    def stop_daemons(self):
        for d in self.daemons:
            d.stop()
        self.daemons = []

    def close(self):
        self.stop_daemons()
        super().close()


def rounds(quick, full):
    return ["-n", str(quick if QUICK else full)]


def docker(bench):
    """`docker run` of the payload, or None."""
    if os.environ.get("BENCH_DOCKER") == "0" or not bench_run.ROOT or not shutil.which("dockerd"):
        return None
    try:
        argv = bench_run.docker_without_network(bench)
        why = bench_run.works(bench, argv)
    except (OSError, subprocess.CalledProcessError) as error:
        why = str(error)
    if why:
        print("left out: docker run:", why)
        return None
    return argv


def has_numpy():
    return subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode == 0


# ---- sections ----------------------------------------------------------------------------------


def show(title, found, base):
    rows = [(name, int(n), "%.2f" % (low / 1000), "%.2f" % (p50 / 1000), "%.2f" % (p99 / 1000),
             bench_run.ratio(p50, found[base][2]) if base in found else "-")
            for name, (n, low, p50, p99) in found.items()]
    table(title, ["", "runs", "min ms", "p50 ms", "p99 ms", "x " + base], rows)


def section_node(b):
    """JavaScript against a bare interpreter. The pause lets the next interpreter start."""
    node = shutil.which("node")
    if not node:
        print("left out: no node here")
        return
    d = b.daemon(kinds=({"code": "1", "language": "node"},))
    request, bare, warm = {"code": "console.log(42)", "language": "node"}, [], []
    with Client(d.sock) as c:
        for _ in range(10 if QUICK else 60):
            time.sleep(0.3)
            start = time.perf_counter()
            status, text = c.ask("POST", "/v1/run", request)
            warm.append((time.perf_counter() - start) * 1000)
            if status != 200 or not json.loads(text)["layers"]["recycled"]:
                raise RuntimeError("it ran cold: %s" % text)
            start = time.perf_counter()
            subprocess.run([node, "-e", "console.log(42)"], stdout=subprocess.DEVNULL, check=True)
            bare.append((time.perf_counter() - start) * 1000)
    rows = [(name, len(t), "%.2f" % min(t), "%.2f" % percentile(t, 0.5), "%.2f" % percentile(t, 0.99))
            for name, t in (("bare node", bare), ("warm, console.log(42)", warm))]
    table("JavaScript, one client", ["", "runs", "min ms", "p50 ms", "p99 ms"], rows)
    aim("console.log(42) / bare node", percentile(warm, 0.5) / percentile(bare, 0.5), 0.10)


def section_python(b):
    """Snippets against a bare interpreter."""
    d = b.daemon()
    rows = [("bare python3", 1, [PYTHON, "-c", PRINT[0]]), ("warm, print(42)", 1, b.code(d, PRINT)),
            ("bare python3, json and re", 1, [PYTHON, "-c", TEXT[0]]), ("warm, json and re", 1, b.code(d, TEXT)),
            ("cold: cloche code --empty", 1, [b.cloche, "code", "--empty", "--no-daemon", "-e", PRINT[0]])]
    found = docker(b)
    if found:
        rows.append(("docker run, static hello", 10, found))
    found = b.spawnbench(rounds(60, 500), rows)
    show("Python, one client", found, "bare python3")
    p50 = {name: numbers[2] for name, numbers in found.items()}
    aim("print(42) / bare python3", p50["warm, print(42)"] / p50["bare python3"], 0.10)
    aim("json and re / bare python3", p50["warm, json and re"] / p50["bare python3, json and re"], 0.15)
    if "docker run, static hello" in p50:
        aim("print(42) / docker run", p50["warm, print(42)"] / p50["docker run, static hello"], 1 / 200, "%.4f")
    if not has_numpy():
        print("left out: numpy: not installed for", PYTHON)
        return
    preloaded = b.daemon("warm: {preload: [json, re, numpy]}\n")
    found = b.spawnbench(rounds(30, 200), [
        ("bare python3, numpy", 1, [PYTHON, "-c", NUMPY[0]]), ("warm, numpy", 1, b.code(preloaded, NUMPY))])
    show("numpy, loaded ahead", found, "bare python3, numpy")
    aim("numpy / bare python3", found["warm, numpy"][2] / found["bare python3, numpy"][2], 0.05)


def section_command(b):
    """A static program of a few kilobytes, in an image that holds it, against bubblewrap."""
    image = os.path.join(b.dir, "image")
    os.makedirs(image + "/bin")
    shutil.copy(b.payload, image + "/bin/payload")
    d = b.daemon("images: {tiny: %s}\nsandbox: {image: tiny}\n" % image, [{"cmd": ["/bin/payload"]}])
    rows = [("floor: vfork+exec", 1, [b.payload]),
            ("warm", 1, b.ask(d, body(cmd=["/bin/payload"]), HELLO)),
            ("cold: cloche run", 1, b.run(b.payload))]
    if shutil.which("bwrap"):
        rows.append(("bubblewrap", 1, b.bwrap_small(b.payload)))
    found = b.spawnbench(rounds(100, 1000), rows)
    show("A static hello, one client", found, "bubblewrap")
    if "bubblewrap" in found:
        aim("hello / bubblewrap", found["warm"][2] / found["bubblewrap"][2], 0.15)


def section_clients(b):
    """Each client asks as soon as it has its answer."""
    d = b.daemon()
    for name, request, answer in (("print(42)", body(code=PRINT[0]), PRINT[1]),
                                  ("echo hello", body(cmd=["/bin/echo", "hello"]), HELLO)):
        rows = []
        for clients in (1, 2, 8, 64):
            m = b.askbench(d, ["-c", clients, "-n", 400 if QUICK else 4000], request, answer)
            rows.append([clients, "%.2f" % (m["p50"] / 1000), "%.2f" % (m["p99"] / 1000),
                         "%.2f" % (m["max"] / 1000), "%.0f" % m["rate"]])
            if clients == 2 and name == "print(42)":
                aim("p99 / p50, 2 clients", m["p99"] / m["p50"], 5, "%.1f")
        table("%s, back to back" % name, ["clients", "p50 ms", "p99 ms", "max ms", "a second"], rows)


def section_burst(b):
    """As many at one moment as there are slots, in turns with one alone; then a hundred."""
    d = b.daemon()
    request, answer = body(code=PRINT[0]), PRINT[1]
    burst, one = b.askbench(d, ["-c", 4, "-n", 80 if QUICK else 800, "-b", 60, "-1"], request, answer)
    crowd = b.askbench(d, ["-c", 100, "-n", 200 if QUICK else 1000, "-b", 200], request, answer)
    rows = [[name, "%.2f" % (m["p50"] / 1000), "%.2f" % (m["p99"] / 1000), "%.2f" % (m["max"] / 1000),
             bench_run.ratio(m["p99"], one["p50"]), "%.1f %%" % (100 * m["within"]) if m is not crowd else "-"]
            for name, m in (("1", one), ("4, as many as slots", burst), ("100", crowd))]
    table("print(42), at one moment, after a pause",
          ["at once", "p50 ms", "p99 ms", "max ms", "p99 / p50 of 1", "within 3 x p50 of 1"], rows,
          "All of them were answered, and rightly.")
    aim("burst of 4: p99 / p50 of one", burst["p99"] / one["p50"], 3, "%.1f")


def section_saturated(b):
    """Runs a second on all cores, side by side."""
    d = b.daemon()
    streams = 2 * CORES
    slices = ["-j", str(streams), "-n", "3" if QUICK else "7", "-t", "1" if QUICK else "3"]
    found = b.spawnbench(slices, [("bare python3 -c 'print(42)'", 1, [PYTHON, "-c", PRINT[0]]),
                                  ("warm", 1, b.code(d, PRINT))])
    base = found["bare python3 -c 'print(42)'"][1]
    table("Saturated: %d clients, %d cores" % (streams, CORES), ["", "runs/s", "x bare python3"],
          [(name, "%.0f" % rate, "%.1f" % (rate / base)) for name, (_, rate) in found.items()])
    aim_least("saturated runs/s / bare python3's", found["warm"][1] / base, 5)


def private_kb(pid):
    try:
        with open("/proc/%d/smaps_rollup" % pid, encoding="ascii") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("Private"))
    except OSError:
        return 0


def section_memory(b):
    """Of one slot that waits: its processes' own pages, and what its cgroup is charged for."""
    d = b.daemon()
    time.sleep(1)
    found = processes_below(d.process.pid)
    slots = [pid for pid, (_, name) in found.items() if name.startswith("slot-")]
    cells = [pid for pid, (parent, _) in found.items() if parent in slots]
    pythons = [pid for pid, (parent, name) in found.items() if name.startswith("python")]
    # The interpreter that the others were forked from is the oldest.
    tenants = sorted(pythons)[1:]
    own = percentile([private_kb(p) for p in slots], 0.5) + percentile([private_kb(p) for p in cells], 0.5)
    tenant = percentile([private_kb(p) for p in tenants], 0.5) if tenants else 0
    rows = [["private pages: slot and its cell", "%.0f kB" % own],
            ["private pages: a Python that waits", "%.0f kB" % tenant],
            ["the interpreter they share", "%.0f kB" % (private_kb(min(pythons)) if pythons else 0)]]
    charged = []
    for path in glob.glob("/sys/fs/cgroup/memory/**/cloche-box-*-*", recursive=True):
        if not path.rpartition("-")[2].isdigit():
            continue
        try:
            with open(path + "/tasks", encoding="ascii") as f:
                tasks = {int(x) for x in f}
            with open(path + "/memory.usage_in_bytes", encoding="ascii") as f:
                usage = int(f.read()) / 1024
        except OSError:
            continue
        if tasks & set(tenants):
            charged.append(usage)
    if charged:
        rows.append(["charged to a Python slot's cgroup (kernel memory as well)",
                     "%.0f kB" % percentile(charged, 0.5)])
    table("Memory of a slot that waits", ["", ""], rows)
    aim("an idle Python slot, MB", max([own + tenant] + ([percentile(charged, 0.5)] if charged else [])) / 1024, 1, "%.2f")


def section_kernels(b):
    """Contexts of the code interpreter, through its own HTTP interface."""
    import http.client

    d = Daemon().start()
    b.daemons.append(d)
    key = subprocess.run([b.cloche, "token", "create", "--e2b", "bench"], capture_output=True, text=True, check=True,
                         env=dict(os.environ, CLOCHE_STATE_DIR=os.path.join(d.dir, "state"),
                                  CLOCHE_RUNTIME_DIR=os.path.join(d.dir, "run"))).stdout.strip().splitlines()[-1]
    port = int([json.loads(line)["address"] for line in d.log().splitlines()
                if '"listening"' in line and "127.0.0.1" in line][-1].rpartition(":")[2])

    def ask(path, what, **headers):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        c.request("POST", path, json.dumps(what), {"X-API-Key": key, "Content-Type": "application/json", **headers})
        reply = c.getresponse()
        text = reply.read()
        c.close()
        if reply.status not in (200, 201):
            raise RuntimeError("%s: %d %s" % (path, reply.status, text[:200]))
        return json.loads(text) if path != "/execute" else text

    time.sleep(0.5)
    box = ask("/sandboxes", {"templateID": "code-interpreter-v1", "timeout": 600, "secure": True})
    inside = {"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": "49999", "X-Access-Token": box["envdAccessToken"]}
    begun = time.perf_counter()
    ask("/execute", {"code": "1+1"}, **inside)
    first = (time.perf_counter() - begun) * 1000
    time.sleep(3)  # for what is loaded behind the first
    times = []
    for _ in range(10):
        begun = time.perf_counter()
        ask("/contexts", {"language": "python"}, **inside)
        times.append((time.perf_counter() - begun) * 1000)
        time.sleep(0.2)
    bare = b.spawnbench(["-n", "10"], [("kernel", 1, [PYTHON, "-c", "import asyncio, json, ast, inspect, subprocess"])])
    table("Code interpreter", ["", "ms"], [
        ["first execution after create", "%.1f" % first], ["a new context, p50", "%.1f" % percentile(times, 0.5)],
        ["a new context, worst of 10", "%.1f" % max(times)],
        ["for comparison: python3 with the modules a kernel needs", "%.1f" % (bare["kernel"][2] / 1000)]])


def section_cli(b):
    """The command line, which asks a daemon of this user's if there is one."""
    d = b.daemon()
    os.environ["CLOCHE_URL"] = "unix:" + d.sock
    code = ["code", "--empty", "-e", PRINT[0]]
    for _ in range(20):  # limits of its own: asked for again, they are made ready
        subprocess.run([b.cloche, *code], stdin=subprocess.DEVNULL, capture_output=True, check=True)
        time.sleep(0.05)
    found = b.spawnbench(rounds(40, 300), [
        ("bare python3", 1, [PYTHON, "-c", PRINT[0]]), ("cloche code --empty, with a daemon", 1, [b.cloche, *code]),
        ("cloche code --empty --no-daemon", 1, [b.cloche, "code", "--empty", "--no-daemon", "-e", PRINT[0]])])
    del os.environ["CLOCHE_URL"]
    show("The command line", found, "bare python3")


SECTIONS = {"python": section_python, "node": section_node, "command": section_command, "clients": section_clients,
            "burst": section_burst, "saturated": section_saturated, "memory": section_memory,
            "kernels": section_kernels, "cli": section_cli}


def main(wanted):
    b = Bench()
    try:
        for name in wanted or SECTIONS:
            SECTIONS[name](b)
            b.stop_daemons()  # the next one has the machine for itself
    finally:
        b.close()
    if aims:
        table("What was aimed at", ["", "measured", "aim", ""],
              [(what, measured, most, "met" if met else "**missed**") for what, measured, most, met in aims])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
