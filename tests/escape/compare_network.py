#!/usr/bin/env python3
"""Attacks on the network of cloche and of others, as a table of what gets through.

    tests/escape/compare_network.py [--without NAME...] [-v] [ROW...]

The tries are those of tests/e2e/netattack.py, in the laboratory of tests/e2e/netlab.py: each contestant is told to allow
allowed.com and *.example.com and nothing else, as far as it can be told. Needs root. A contestant that is not installed is
left out, by name. Environment: B, the build directory; SRT, the program of npm's @anthropic-ai/sandbox-runtime.
The table goes to stdout and to compare-network.md in the build directory.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
os.environ.setdefault("CLOCHE", os.path.join(BUILD, "cloche"))
sys.path.insert(0, os.path.join(TOP, "tests", "e2e"))
sys.dont_write_bytecode = True
import cl  # noqa: E402
import netattack  # noqa: E402
import netlab  # noqa: E402

ATTACK = ["/usr/bin/python3", netattack.__file__, "allow"]
PROXY = "10.200.0.1"
TIMEOUT = 600
# Not compared: they are about other things than the rules.
SKIPPED = {"inherited", "other-sockets"}

SQUID = """
http_port %s:3128
acl allowed dstdomain -n allowed.com
acl below dstdom_regex -n -i \\.example\\.com$
acl tls port 443
acl CONNECT method CONNECT
http_access deny CONNECT !tls
http_access allow allowed
http_access allow below
http_access deny all
dns_nameservers %s
visible_hostname lab
cache deny all
access_log none
cache_log stdio:%s/cache.log
pid_filename none
coredump_dir %s
shutdown_lifetime 1 seconds
"""
# What is checked: the name that CONNECT asks for, and of each request both the host and the Host header.
ADDON = """
from mitmproxy import http

def listed(host):
    return host == "allowed.com" or host.endswith(".example.com")

class Allow:
    def http_connect(self, flow):
        if not listed(flow.request.host):
            flow.response = http.Response.make(403)

    def request(self, flow):
        if not listed(flow.request.host) or not listed(flow.request.pretty_host):
            flow.response = http.Response.make(403)

addons = [Allow()]
"""


def need(*programs):
    for program in programs:
        if not shutil.which(program, path=cl.SHELL_PATH):
            raise LookupError("%s is not installed" % program)


class Contest:
    def __init__(self, lab):
        self.lab, self.dir, self.started = lab, cl.base_dir(), []

    def start(self, *command, **kw):
        kw.setdefault("stdout", subprocess.DEVNULL)
        kw.setdefault("stderr", subprocess.DEVNULL)
        p = cl.start(command=[*self.lab.under, *command], cwd=self.dir, **kw)
        self.started.append(p)
        return p

    def stop(self):
        while self.started:
            p = self.started.pop()
            p.terminate()
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def attack(self, *prefix, rows, env=None):
        env = cl.caller_env(NETATTACK_TIMEOUT="3", **(env or {}))
        return self.lab.command(*prefix, *ATTACK, *rows, cwd=self.dir, env=env, timeout=TIMEOUT)

    # ---- contestants: each returns the result of the attacks

    def cloche(self, rows):
        given = []
        for rule in netattack.POLICIES["allow"]["allow"]:
            given += ["--allow", rule]
        for name, value in (("http_proxy", "http://198.19.255.254:3128"), ("all_proxy", "socks5://198.19.255.254:1080"),
                            ("NETATTACK_TIMEOUT", "3")):  # fmt: skip
            given += ["--env", "%s=%s" % (name, value)]
        return self.lab.run("run", *given, "--", "/usr/bin/python3", "-c", netattack.program(), "allow", *rows, cwd=self.dir, timeout=TIMEOUT)

    def srt(self, rows):
        """npm's sandbox-runtime: bubblewrap without a network, proxies on Unix sockets, variables that name them."""
        program = os.environ.get("SRT") or shutil.which("srt", path=cl.SHELL_PATH)
        if not program:
            raise LookupError("srt is not installed")
        need("node", "bwrap", "socat", "rg")
        settings = {
            "network": {"allowedDomains": ["allowed.com", "*.example.com"], "deniedDomains": []},
            "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
        }
        path = self.write("srt.json", json.dumps(settings))
        done = self.lab.command("node", program, "--settings", path, *ATTACK, *rows, cwd=self.dir, timeout=TIMEOUT,
                                env=cl.caller_env(NETATTACK_TIMEOUT="3"))  # fmt: skip
        return done

    def box(self):
        """A namespace that reaches nothing but PROXY; returns the command that enters it."""
        p = self.start("unshare", "--net", "sleep", "100000")
        net = os.readlink("/proc/%d/ns/net" % self.lab.process.pid)
        enter = ["nsenter", "--net", "--target", str(p.pid), "--"]
        cl.wait_for(lambda: os.readlink("/proc/%d/ns/net" % p.pid) != net and "sleep" in open("/proc/%d/comm" % p.pid).read())
        for command in (["ip", "link", "add", "box0", "type", "veth", "peer", "name", "box1", "netns", str(p.pid)],
                        ["ip", "addr", "add", PROXY + "/30", "dev", "box0"], ["ip", "link", "set", "box0", "up"],
                        [*enter, "ip", "addr", "add", "10.200.0.2/30", "dev", "box1"], [*enter, "ip", "link", "set", "box1", "up"],
                        [*enter, "ip", "link", "set", "lo", "up"]):  # fmt: skip
            done = self.lab.command(*command, cwd=self.dir)
            if done.code:
                raise AssertionError(str(done))
        return enter

    def by_proxy(self, rows, *command, **kw):
        enter = self.box()
        self.start(*command, **kw)
        if not cl.wait_for(self.proxy_answers, timeout=30, step=0.2):
            raise AssertionError("%r does not answer" % (command,))
        at = "http://%s:3128" % PROXY
        return self.attack(*enter, rows=rows, env={"http_proxy": at, "https_proxy": at})

    def proxy_answers(self):
        try:
            self.lab.connect(3128, PROXY).close()
        except OSError:
            return False
        return True

    def squid(self, rows):
        need("squid")
        logs = os.path.join(self.dir, "squid")
        os.makedirs(logs, exist_ok=True)
        shutil.chown(logs, "proxy")
        return self.by_proxy(rows, "squid", "-N", "-f", self.write("squid.conf", SQUID % (PROXY, netlab.RESOLVER, logs, logs)))

    def mitmproxy(self, rows):
        need("mitmdump")
        return self.by_proxy(
            rows, "mitmdump", "-q", "--listen-host", PROXY, "-p", "3128", "-s", self.write("addon.py", ADDON),
            "--set", "confdir=%s/mitm" % self.dir, "--set", "ssl_verify_upstream_trusted_ca=" + self.lab.ca,
        )  # fmt: skip

    def pasta(self, rows):
        need("pasta")
        return self.attack("pasta", "-q", "-f", "--config-net", "--runas", "0", "--", rows=rows)

    def slirp4netns(self, rows):
        need("slirp4netns")
        p = self.start("unshare", "--net", "sleep", "100000")
        cl.wait_for(lambda: "sleep" in open("/proc/%d/comm" % p.pid).read())
        ready, theirs = os.pipe()
        self.start("slirp4netns", "--configure", "--disable-dns", "--ready-fd", str(theirs), str(p.pid), "tap0", pass_fds=[theirs])
        os.close(theirs)
        with os.fdopen(ready) as f:
            if not f.read(1):
                raise LookupError("slirp4netns could not start; it needs /dev/net/tun")
        return self.attack("nsenter", "--net", "--target", str(p.pid), "--", rows=rows)


NOTES = {
    "mitmproxy": "opens TLS itself, so that a hello is always answered: what is counted is who got the request",
}


def verdicts(lab, done):
    if done.code and not done.out:
        raise AssertionError(str(done))
    seen = {q["name"] for q in lab.ask("queries", like=netattack.MARKERS)}
    found = {}
    for line in done.out.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        results = found[row["row"]] = {}
        for variant, (verdict, detail) in row["results"].items():
            if verdict == "ask":
                came = [name for name in seen if detail in name]
                verdict, detail = ("through", "asked for " + came[0]) if came else ("refused", "")
            results[variant] = verdict, detail
    return found


def cell(name, contestant, results):
    if results is None:
        return "?"
    if contestant == "mitmproxy" and name in ("other-sni", "sni-in-tunnels", "names-as-sni"):
        results = {k: v for k, v in results.items() if "host" in k}
    tried = {k: v for k, v in results.items() if v[0] != "cannot"}
    through = [k for k, v in tried.items() if v[0] == "through"]
    hung = [k for k, v in tried.items() if v[0] == "hung"]
    if not tried:
        return "-"
    if name in netattack.WORKS:
        return "%d of %d" % (len(through), len(results))
    text = "**%d of %d**" % (len(through), len(tried)) if through else "refused"
    return text + (", %d hang" % len(hung) if hung else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--without", nargs="+", default=[], help="contestants to leave out")
    parser.add_argument("-v", dest="verbose", action="store_true", help="what got through, one by one")
    parser.add_argument("rows", nargs="*")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("compare_network.py: needs root")
    rows = options.rows or [n for n, r in netattack.ROWS.items() if r["policy"] == "allow" and n not in SKIPPED]
    lab = netlab.shared()
    lab.ask("names", names=netattack.NAMES)
    contestants, table = [], {}
    for name in ("cloche", "srt", "squid", "mitmproxy", "pasta", "slirp4netns"):
        if name in options.without:
            continue
        contest, begun = Contest(lab), time.monotonic()
        lab.ask("forget")
        try:
            found = verdicts(lab, getattr(contest, name)(rows))
        except LookupError as e:
            print("left out: %s: %s" % (name, e), file=sys.stderr)
            continue
        finally:
            contest.stop()
        print("%s: %.0f s" % (name, time.monotonic() - begun), file=sys.stderr)
        contestants.append(name)
        for row, results in found.items():
            table[row, name] = results
            for variant, (verdict, detail) in results.items():
                if options.verbose and (verdict in ("through", "hung")) != (row in netattack.WORKS):
                    print("  %s %s: %s: %s %s" % (name, row, variant, verdict, detail), file=sys.stderr)
    lines = ["| attack | " + " | ".join(contestants) + " |", "|---" * (len(contestants) + 1) + "|"]
    for row in sorted(rows, key=lambda r: (r not in netattack.WORKS)):
        cells = [cell(row, name, table.get((row, name))) for name in contestants]
        lines.append("| %s | %s |" % (netattack.ROWS[row]["title"], " | ".join(cells)))
    text = "\n".join(lines) + "\n"
    print(text)
    with open(os.path.join(BUILD, "compare-network.md"), "w", encoding="utf-8") as out:
        out.write(text)


if __name__ == "__main__":
    main()
