#!/usr/bin/env python3
"""Measures the network of sandboxes beside its peers and prints tables in Markdown.

    make bench-net [BENCH="stream http start rules idle"]     all sections, or those named; BENCH_QUICK=1: fewer rounds

The servers are in the laboratory of the tests (tests/e2e/netlab.py), one veth away. Ways to reach them take turns;
compare only inside one table. A peer that is not installed is left out by name: passt, slirp4netns, mitmproxy, squid;
nginx, ab (apache2-utils) and h2load (nghttp2-client) are needed for HTTP.
"""
import json
import os
import re
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
BUILD = os.path.abspath(os.path.join(TOP, os.environ.get("B", "build")))
os.environ.setdefault("CLOCHE", os.path.join(BUILD, "cloche"))
sys.path[:0] = [HERE, os.path.join(TOP, "tests", "e2e")]
import netlab  # noqa: E402
import run as bench_run  # noqa: E402
from client import Client, Daemon  # noqa: E402

QUICK = bench_run.QUICK
PORT, HTTP, HTTPS = 7100, 7180, 7443
ROUNDS = 3 if QUICK else 7
HOST = "example.com"
CLOCHE = os.environ["CLOCHE"]
AS_USER = ["setpriv", "--reuid", str(bench_run.USER_ID), "--regid", str(bench_run.USER_ID), "--clear-groups"]
DIR = tempfile.mkdtemp(prefix="cloche-bench-")  # with programs that anybody may run
NETBENCH = os.path.join(DIR, "netbench")

def command(argv, lab, seconds=120, **kw):
    done = subprocess.run([*lab.under, *argv], capture_output=True, text=True, timeout=seconds, cwd=DIR, **kw)
    if done.returncode:
        raise RuntimeError("%s: %s" % (" ".join(argv[:12]), (done.stderr or done.stdout).strip()[-400:]))
    return done.stdout


def sandbox(*options):
    return [CLOCHE, "run", "--timeout", "300s", "--cpus", "2", *options, "--"]


def slirp(lab, argv):
    """slirp4netns gives a network to a namespace that is there already."""
    script = (
        "unshare --net --user --map-root-user --mount sh -c 'echo $$ >&3; read x <&4; exec \"$@\"' sh \"$@\" 3>$P/up 4<$P/go & "
        "read pid <$P/up; slirp4netns --configure --mtu=65520 --disable-host-loopback -r 5 $pid tap0 5>$P/ready >/dev/null 2>&1 & "
        "s=$!; read ok <$P/ready; echo >$P/go; wait %1; rc=$?; kill $s; exit $rc"
    )
    pipes = tempfile.mkdtemp(dir=lab.dir)
    for name in ("up", "go", "ready"):
        os.mkfifo(os.path.join(pipes, name))
    script = script.replace("5>$P/ready", "5<>$P/ready").replace("4<$P/go", "4<>$P/go").replace("3>$P/up", "3<>$P/up")
    return ["env", "P=" + pipes, "bash", "-c", script.replace("read ok <$P/ready", "read -N1 ok <$P/ready"), "bash", *argv]


def may_tun(lab):
    """Inside the laboratory everybody may use /dev/net/tun, if it can be made so there."""
    node = os.path.join(DIR, "tun")
    if os.geteuid() == 0 and not os.path.exists(node):
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(10, 200))
        os.chmod(node, 0o666)
        subprocess.run([*lab.under, "mount", "--bind", node, "/dev/net/tun"], check=True)
    return os.geteuid() == 0 or os.stat("/dev/net/tun").st_mode & 0o006 == 0o006


def ways(lab):
    """Rows of name and a function that makes an argv of one."""
    rows = [("direct", lambda argv: argv),
            ("cloche --net allow", lambda argv: sandbox("--net", "allow", "--allow", HOST) + argv),
            ("cloche --net public", lambda argv: sandbox("--net", "public") + argv)]
    if not shutil.which("pasta"):
        print("pasta is not installed\n")
    elif not may_tun(lab):
        print("pasta needs a /dev/net/tun that everybody may use\n")
    else:
        # As root it becomes nobody, who cannot make its namespace here. At first the gateway does not answer.
        wait = ["sh", "-c", 'sleep 0.5; exec "$@"', "sh"]
        rows.append(("pasta", lambda argv: [*AS_USER, "pasta", "--config-net", "--quiet", "--", *wait, *argv]))
    if shutil.which("slirp4netns"):
        rows.append(("slirp4netns", lambda argv: slirp(lab, argv)))
    else:
        print("slirp4netns is not installed\n")
    return rows


def start_server(lab, argv, expect=None):
    p = subprocess.Popen([*lab.internet, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=DIR)
    if expect:
        line = p.stdout.readline()
        if expect not in line:
            raise RuntimeError("%s: %s" % (argv[0], line))
    return p


def stop(p):
    if p and p.poll() is None:
        p.send_signal(signal.SIGTERM)
        try:
            p.wait(5)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
    if p:
        p.stdout.close()


def median(numbers):
    return statistics.median(numbers) if numbers else float("nan")


# ---- one connection


def section_stream(lab):
    server = start_server(lab, [NETBENCH, "serve", str(PORT)], "ready")
    connects, megabytes = (500, 200) if QUICK else (2000, 1000)
    rows, found, lost = ways(lab), {}, {}
    try:
        for turn in range(ROUNDS):
            for name, wrap in rows:
                if lost.get(name, 0) > 2:
                    continue
                try:
                    got = [command(wrap([NETBENCH, what, netlab.WEB if name == "slirp4netns" else HOST, str(PORT), str(n)]), lab)
                           for what, n in (("connect", connects), ("down", megabytes), ("up", megabytes))]
                except (RuntimeError, subprocess.TimeoutExpired) as e:
                    print("%s: %s\n" % (name, str(e)[:300]))
                    lost[name] = lost.get(name, 0) + 1
                    continue
                p50, p99 = map(float, got[0].split())
                found.setdefault(name, []).append((p50, p99, float(got[1]), float(got[2])))
    finally:
        stop(server)
    base = [median(c) for c in zip(*(found.get("pasta") or found["direct"]))]
    table = []
    for name, turns in found.items():
        if turns:
            mine = [median(c) for c in zip(*turns)]
            table.append([name, "%.0f" % mine[0], "%.0f" % mine[1], "%.0f" % mine[2], "%.0f" % mine[3],
                          "%.2f" % (mine[0] / base[0]), "%.2f" % (mine[2] / base[2]), "%.2f" % (mine[3] / base[3])])
    bench_run.table("One connection (ratios against %s)" % ("pasta" if found.get("pasta") else "direct"),
                    ["", "connect + 1 byte p50 us", "p99", "down MB/s", "up MB/s", "connect", "down", "up"], table)


# ---- HTTP


NGINX = """daemon off; error_log stderr crit; pid %(dir)s/nginx.pid; worker_processes 1; user root;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 10000000; client_body_temp_path %(dir)s; proxy_temp_path %(dir)s;
 fastcgi_temp_path %(dir)s; uwsgi_temp_path %(dir)s; scgi_temp_path %(dir)s;
 server { listen [::]:%(http)d ipv6only=off; listen [::]:%(https)d ssl ipv6only=off; ssl_certificate %(dir)s/leaf.pem;
  ssl_certificate_key %(dir)s/leaf.key; location / { return 200 "hello\\n"; } } }
"""
MITM = """from mitmproxy import http
def request(flow):
    if flow.request.pretty_host != "%s":
        flow.response = http.Response.make(403)
""" % HOST
SQUID = """http_port 127.0.0.1:7231
acl Safe_ports port 1-65535
acl ok dstdomain %s
http_access allow ok
http_access deny all
cache deny all
access_log none
cache_log /dev/null
pid_filename %s/squid.pid
coredump_dir %s
shutdown_lifetime 1 seconds
"""


def memory_of(pids):
    """Peak of the resident memory, in MB."""
    total = 0
    for pid in pids:
        try:
            with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as f:
                total += next((int(line.split()[1]) for line in f if line.startswith("VmHWM")), 0)
        except OSError:
            pass
    return total / 1024


def below(pid):
    """This process and all that descend from it."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as f:
                    parents[int(name)] = int(f.read().rpartition(")")[2].split()[1])
            except OSError:
                pass
    found, new = {pid}, {pid}
    while new:
        new = {p for p, parent in parents.items() if parent in new} - found
        found |= new
    return found


def name_of(pid):
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as f:
            return f.read().strip()
    except OSError:
        return ""


def load(lab, wrap, options, url, count):
    """Requests a second, and the peak memory of cloche-egress below the command, if there is one."""
    argv = [*lab.under, *wrap(["ab", "-q", "-k", "-c", "16", "-n", str(count), *options, url])]
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=DIR)
    peak = 0
    while True:
        try:
            out, err = p.communicate(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            peak = max(peak, memory_of([x for x in below(p.pid) if name_of(x) == "cloche-egress"]))
    rate = re.search(r"Requests per second:\s+([\d.]+)", out)
    failed = re.search(r"(Failed requests|Non-2xx responses):\s+([1-9]\d*)", out)
    if p.returncode or not rate or failed:
        raise RuntimeError("ab: %s %s" % (failed and failed.group(0), (err or out)[-300:]))
    return float(rate.group(1)), peak


def load_mitm(lab, url, count):
    """mitmproxy ends the connections of ab, whose requests are HTTP/1.0, so it stands in front of the server here."""
    out = command(["h2load", "--h1", "-c", "16", "-n", str(count), "--header=:authority: " + HOST, url], lab)
    rate, done = re.search(r"([\d.]+) req/s", out), re.search(r"status codes: (\d+) 2xx", out)
    if not rate or int(done.group(1)) != count:
        raise RuntimeError("h2load: " + out[-300:])
    return float(rate.group(1))


def proxies(lab):
    """Rows of name, kinds of URLs, command and port."""
    rows = []
    if shutil.which("mitmdump") and shutil.which("h2load"):
        script = os.path.join(lab.dir, "allow.py")
        with open(script, "w", encoding="ascii") as f:
            f.write(MITM)
        for name, kind, port, to in (("mitmproxy", "http", 7230, HTTP), ("mitmproxy, inspected", "https", 7232, HTTPS)):
            rows.append((name, [kind], ["mitmdump", "-q", "--mode", "reverse:%s://%s:%d" % (kind, HOST, to), "-p", str(port), "-s", script,
                                        "--set", "confdir=" + lab.dir + "/mitm", "--set", "ssl_verify_upstream_trusted_ca=" + lab.ca], port))
    else:
        print("mitmproxy is not installed\n")
    if shutil.which("squid"):
        settings = os.path.join(lab.dir, "squid.conf")
        with open(settings, "w", encoding="ascii") as f:
            f.write(SQUID % (HOST, lab.dir, lab.dir))
        rows.append(("squid", ["http", "https"], ["squid", "-N", "-f", settings], 7231))
    else:
        print("squid is not installed\n")
    return rows


def await_port(lab, port):
    for _ in range(300):
        try:
            lab.connect(port).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("nothing listens on port %d" % port)


def section_http(lab):
    if not shutil.which("ab") or not shutil.which("nginx"):
        print("nginx or ab is not installed\n")
        return
    settings = os.path.join(lab.dir, "nginx.conf")
    with open(settings, "w", encoding="ascii") as f:
        f.write(NGINX % {"dir": lab.dir, "http": HTTP, "https": HTTPS})
    server = start_server(lab, ["nginx", "-c", settings])
    running, found = [], {}
    count = 2000 if QUICK else 10000
    urls = {"http": "http://%s:%d/" % (HOST, HTTP), "https": "https://%s:%d/" % (HOST, HTTPS)}
    allow, inspect = "%s" % HOST, "%s inspect" % HOST
    try:
        rows = [("direct", "http", lambda a: a, [], None), ("cloche", "http", lambda a: sandbox("--allow", allow) + a, [], None),
                ("direct", "https", lambda a: a, [], None), ("cloche", "https", lambda a: sandbox("--allow", allow) + a, [], None),
                ("cloche, inspected", "https", lambda a: sandbox("--allow", inspect) + a, [], None)]
        for name, kinds, argv, port in proxies(lab):
            p = subprocess.Popen([*lab.under, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=DIR)
            running.append(p)
            rows += [(name, kind, lambda a: a, ["-X", "127.0.0.1:%d" % port], p) for kind in kinds]
        for port in [r[3][1].rpartition(":")[2] for r in rows if r[3]]:
            await_port(lab, int(port))
        for _ in range(ROUNDS):
            for name, kind, wrap, options, p in rows:
                if found.get((kind, name), 0) is None:
                    continue
                try:
                    if name.startswith("mitm"):
                        rate, peak = load_mitm(lab, "%s://%s/" % (kind, options[1]), count // 10), 0
                    else:
                        rate, peak = load(lab, wrap, options, urls[kind], count)
                    found.setdefault((kind, name), []).append((rate, memory_of(below(p.pid)) if p else peak))
                except (RuntimeError, subprocess.TimeoutExpired) as e:
                    print("%s %s: %s\n" % (name, kind, str(e)[:300]))
                    found[(kind, name)] = None
    finally:
        for p in [*running, server]:
            stop(p)
    table = []
    for (kind, name), turns in sorted(found.items()):
        if turns:
            rate, peak = (median(c) for c in zip(*turns))
            table.append([kind, name, "%.0f" % rate, "%.1f" % peak if peak else ""])
    bench_run.table("Small requests, 16 connections that are kept", ["", "", "requests a second", "memory of the filter, MB"], table)


# ---- starting, rules, idle networks


def section_start(lab):
    b = bench_run.Bench()
    for name in ("cloche-egress", "cloche-seccomp"):
        if os.path.exists(os.path.join(BUILD, name)):
            shutil.copy(os.path.join(BUILD, name), b.dir)
    rounds = 100 if QUICK else 1000
    rows = [(name, 1, [b.cloche, "run", *options, "--", b.payload])
            for name, options in (("none", ["--net", "none"]), ("allow", ["--allow", HOST]), ("public", ["--net", "public"]))]
    found = b.spawnbench(["-n", str(rounds)], rows)
    base = median(found["none"])
    bench_run.table("Start of a run that uses no network, %d rounds" % rounds, ["--net", "p50 ms", "over none, ms"],
                    [[n, "%.2f" % (median(v) / 1000), "%.2f" % ((median(v) - base) / 1000)] for n, v in found.items()])
    server = start_server(lab, [NETBENCH, "serve", str(PORT)], "ready")
    try:
        first = []
        for _ in range(10 if QUICK else 50):
            argv = sandbox("--allow", HOST) + [NETBENCH, "connect", HOST, str(PORT), "1"]
            begun = time.monotonic()
            command(argv, lab)
            first.append(time.monotonic() - begun)
    finally:
        stop(server)
    print("A run that connects twice, with the start of cloche-egress: %.1f ms\n" % (1000 * median(first)))
    shutil.rmtree(b.dir, ignore_errors=True)


def section_rules(lab):
    server = start_server(lab, [NETBENCH, "serve", str(PORT)], "ready")
    found = {}
    try:
        for count in (10, 10000):
            path = os.path.join(lab.dir, "rules-%d.yaml" % count)
            with open(path, "w", encoding="ascii") as f:
                json.dump({"net": "allow", "allow": [HOST] + ["host-%d.example.net" % i for i in range(count - 1)]}, f)
        for _ in range(ROUNDS):
            for count in (10, 10000):
                out = command(sandbox("--policy", os.path.join(lab.dir, "rules-%d.yaml" % count))
                              + [NETBENCH, "connect", HOST, str(PORT), "500" if QUICK else "2000"], lab)
                found.setdefault(count, []).append(float(out.split()[0]))
    finally:
        stop(server)
    bench_run.table("Connect + 1 byte, by the number of rules", ["rules", "p50 us"], [[str(c), "%.0f" % median(v)] for c, v in found.items()])


def resident(pids, name):
    total = 0
    for pid in pids:
        if name_of(pid).startswith(name):
            with open("/proc/%d/smaps_rollup" % pid, encoding="ascii") as f:
                total += next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total


def slab():
    """What the kernel has in small pieces and cannot give back, in kB; a network namespace is made of them."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("SUnreclaim:"))


def section_idle(lab):
    crowd = 100 if QUICK else 1000
    d = Daemon("max_sandboxes: 20000\nmemory_total: 4000G\ndisk_total: 4000G\nnetwork: {mode: public}\n").start()
    body = {"ttl": 3600, "memory": "32M", "disk": "16M"}
    found, ms = {}, {}
    try:
        with Client(d.sock) as c:
            for net in ("none", "none", "public"):  # the first crowd fills the kernel's caches
                c.ask("POST", "/v1/sandboxes", dict(body, net=net))
                before = {n: resident(below(d.process.pid), n) for n in ("cloche-egress", "cloched")}
                kernel, begun = slab(), time.monotonic()
                for _ in range(crowd):
                    status, text = c.ask("POST", "/v1/sandboxes", dict(body, net=net))
                    if status != 201:
                        raise RuntimeError("create: %d %s" % (status, text[:300]))
                ms[net] = (time.monotonic() - begun) * 1000 / crowd
                found[net] = {n: (resident(below(d.process.pid), n) - before[n]) / crowd for n in before}
                found[net]["kernel"] = (slab() - kernel) / crowd
                c.ask("DELETE", "/v1/sandboxes")
    finally:
        d.stop()
    bench_run.table("%d idle sandboxes, each" % crowd, ["net", "create ms", "cloche-egress kB", "broker, front, audit kB", "kernel's slab kB"],
                    [[n, "%.2f" % ms[n], "%.1f" % found[n]["cloche-egress"], "%.1f" % found[n]["cloched"], "%.0f" % found[n]["kernel"]]
                     for n in found])


SECTIONS = {"stream": section_stream, "http": section_http, "start": section_start, "rules": section_rules, "idle": section_idle}


def main():
    names = sys.argv[1:] or list(SECTIONS)
    unknown = [n for n in names if n not in SECTIONS]
    if unknown:
        sys.exit("net.py: no section '%s'; there are %s" % (unknown[0], ", ".join(SECTIONS)))
    lab = netlab.Lab().start()
    lab.ask("dns", state="up", ttl=60)
    try:
        os.chmod(DIR, 0o755)
        shutil.copy(os.path.join(BUILD, "bench", "netbench"), DIR)
        for name in names:
            SECTIONS[name](lab)
    finally:
        lab.stop()
        shutil.rmtree(DIR, ignore_errors=True)


if __name__ == "__main__":
    main()
