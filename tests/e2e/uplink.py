"""cloche-egress without a sandbox (tests/front/uplink.c): a network namespace whose only way out is the program,
inside of the laboratory of netlab.py.

    with Uplink("--allow", "example.com:443") as up:
        up.do("return tcp('example.com', 443).getpeername()[0]")    Python, inside; see INSIDE
        up.record(phase="denied", name="evil.com")                   waits for an attempt that fits
        up.order("deny example.com", "apply")
"""

import json
import os
import select
import subprocess
import threading

import cl
import netlab

BUILD = os.path.dirname(cl.CLOCHE)
PROGRAM, EGRESS = os.path.join(BUILD, "tests", "front", "uplink"), os.path.join(BUILD, "cloche-egress")
PATIENCE = 20
PHASES = {1: "opened", 2: "denied", 3: "closed", 4: "failed", 5: "lookup"}
RECORD = ("id", "phase", "udp", "serial", "name", "address", "port", "rule", "why", "remedy", "tx", "rx", "count")
NUMBERS = ("udp", "serial", "port", "tx", "rx", "count", "connections", "open", "denied", "phase")
METER = ("id", "tx", "rx", "connections", "open", "denied")

# The names that code inside may use. Each of its snippets is the body of a function; errors of the system come back.
INSIDE = r"""
import errno, json, os, select, socket, ssl, struct, sys, time, traceback
kept, TLS = {}, os.environ.get("LAB_CA")

def tcp(host, port, timeout=10):
    return socket.create_connection((host, port), timeout)

def udp(host, port, timeout=10, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(timeout)
    s.connect((host, port))
    return s

def all_of(s, most=1 << 20):
    data = b""
    while len(data) < most:
        more = s.recv(65536)
        if not more:
            break
        data += more
    return data

def echo(s, data=b"hello"):
    s.sendall(data)
    got = b""
    while len(got) < len(data):
        more = s.recv(65536)
        if not more:
            break
        got += more
    return got.decode("latin-1")

def code_of(call, *args):
    try:
        call(*args)
    except socket.timeout:
        return "timeout"
    except socket.gaierror as e:
        return {socket.EAI_NONAME: "NONAME", socket.EAI_AGAIN: "AGAIN"}.get(e.errno, e.errno)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
    return "ok"

for line in sys.stdin:
    try:
        scope = dict(globals())
        exec("def f():\n" + "".join("  " + l + "\n" for l in json.loads(line).split("\n")), globals())
        answer = {"is": f()}
    except BaseException:
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
"""


class Uplink:
    def __init__(self, *options, lab=None, env=None):
        self.lab = lab or netlab.shared()
        self.seen, self.news = [], threading.Condition()
        self.events, theirs = os.pipe()
        orders, self.orders = os.pipe()
        command = [*self.lab.under, PROGRAM, EGRESS, *map(str, options), "--dns", netlab.RESOLVER]
        command += ["--events", str(theirs), "--orders", str(orders), "--", *cl.py(INSIDE)]
        self.p = cl.start(
            command=command, pass_fds=[theirs, orders], stdin=subprocess.PIPE, stderr=None,
            env=cl.caller_env(**(env or {})),
        )  # fmt: skip
        os.close(theirs)
        os.close(orders)
        # Somebody must read them all the time: while they wait, egress opens nothing.
        self.reader = threading.Thread(target=self.read_events, daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Closes everything; what it told until then is in self.seen."""
        if not self.p:
            return
        self.p.stdin.close()
        try:
            self.p.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.p.pid, 9)
            self.p.wait()
        self.p.stdout.close()
        self.p = None
        self.reader.join(PATIENCE)
        os.close(self.orders)

    def begin(self, code):
        self.p.stdin.write((json.dumps(code) + "\n").encode())
        self.p.stdin.flush()

    def finish(self, timeout=PATIENCE):
        if not select.select([self.p.stdout], [], [], timeout)[0]:
            raise AssertionError("no answer from inside")
        line = self.p.stdout.readline()
        if not line:
            raise AssertionError("uplink ended: %s" % self.p.wait(5))
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError("inside: " + answer["error"])
        return answer["is"]

    def do(self, code, timeout=PATIENCE):
        self.begin(code)
        return self.finish(timeout)

    def order(self, *lines):
        os.write(self.orders, "".join(line + "\n" for line in lines).encode())

    def read_events(self):
        with open(self.events, encoding="utf-8", errors="replace") as events:
            for line in events:
                words = line.rstrip("\n").split("\t")
                row = dict(zip(RECORD if words[0] in ("record", "ask") else METER, words[1:]), what=words[0])
                row.update((key, int(row[key])) for key in NUMBERS if key in row)
                row["phase"] = PHASES.get(row.get("phase"))
                with self.news:
                    self.seen.append(row)
                    self.news.notify_all()

    def await_event(self, **wanted):
        """The first event that fits, which is taken out; waits for it."""

        def take():
            for row in self.seen:
                if all(row.get(k) == v for k, v in wanted.items()):
                    self.seen.remove(row)
                    return row

        with self.news:
            row = self.news.wait_for(take, PATIENCE)
        if not row:
            raise AssertionError("no event %r but %r" % (wanted, self.seen[-20:]))
        return row

    def record(self, **wanted):
        return self.await_event(what="record", **wanted)

    def pid(self):
        """Of the egress program."""
        return self.do("return int(os.environ['EGRESS_PID'])")
