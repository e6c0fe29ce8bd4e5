"""The hostile client of bench/fair.py, and what it does: the cases.

A case is a function with the decorator @case; it gets a Hostile, prepares, calls ready(), and goes on until it is
killed.
"""
import base64
import http.client
import json
import os
import signal
import socket
import struct
import threading
import time
import zlib

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Tenant:
    """A client over TCP with a token, on one connection that is kept."""

    def __init__(self, port, key):
        self.port, self.key = port, key
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method, path, body=None, headers=None):
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        headers = {"Authorization": "Bearer " + self.key, **(headers or {})}
        self.connection.request(method, path, data, headers)
        reply = self.connection.getresponse()
        return reply.status, reply.read()

    def box(self, **options):
        status, body = self.ask("POST", "/v1/sandboxes", {"ttl": 3600, **options})
        assert status == 201, body
        return "/v1/sandboxes/" + json.loads(body)["id"]


def connect(port):
    """A connection of the hostile client. Its buffers are small: see bench/fair.py."""
    s = socket.create_connection(("127.0.0.1", port), timeout=120)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        s.setsockopt(socket.SOL_SOCKET, option, 128 << 10)
    return s


class Hostile:
    """What a case needs; in a process of its own."""

    def __init__(self, port, key, sign):
        self.port, self.key, self.sign, self.kept = port, key, sign, []

    def ready(self):
        """Measuring may begin."""
        if self.sign is not None:
            os.write(self.sign, b"r")
            self.sign = None

    def hold(self):
        self.ready()
        while True:
            signal.pause()

    def tenant(self):
        t = Tenant(self.port, self.key)
        t.connection.sock = connect(self.port)
        return t

    def auth(self):
        return "Authorization: Bearer " + self.key

    @staticmethod
    def head(first, *lines):
        return "\r\n".join((first + " HTTP/1.1", "Host: localhost") + lines + ("", "")).encode()

    def connect(self):
        s = connect(self.port)
        self.kept.append(s)
        return s

    def send(self, s, data):
        """As much as goes at once."""
        try:
            s.setblocking(False)
            return s.send(data)
        except OSError:
            return 0

    def many(self, count, data):
        """So many connections that each sent this."""
        for _ in range(count):
            try:
                self.send(self.connect(), data)
            except OSError:
                time.sleep(0.01)

    def trickle(self, data, count=1500):
        """Connections that begin with data and go on with a byte now and then; what is closed is opened again."""
        self.many(count, data)
        self.ready()
        while True:
            for i, s in enumerate(self.kept):
                if not self.send(s, b"x"):
                    s.close()
                    try:
                        fresh = connect(self.port)
                        self.kept[i] = fresh
                        self.send(fresh, data)
                    except OSError:
                        pass
            time.sleep(0.5)

    def again(self, act, at_once=8):
        """act(tenant) again and again, by so many at once."""
        def worker():
            t = self.tenant()
            while True:
                try:
                    act(t)
                except (OSError, http.client.HTTPException):
                    t = self.tenant()

        for _ in range(at_once):
            threading.Thread(target=worker, daemon=True).start()
        time.sleep(0.5)
        self.hold()

    def flood(self, data, at_once=8, read=True):
        """The same bytes as fast as they are taken."""
        def worker():
            while True:
                try:
                    with connect(self.port) as s:
                        while True:
                            s.sendall(data)
                            if not read or not s.recv(1 << 20):
                                break
                except OSError:
                    pass

        for _ in range(at_once):
            threading.Thread(target=worker, daemon=True).start()
        time.sleep(0.3)
        self.hold()


# ---- strangers: without a token


@case
def slow_heads(h):
    h.trickle(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")


@case
def slow_refused_bodies(h):
    h.trickle(h.head("POST /v1/run", "Content-Length: 60000"))


@case
def idle_connections(h):
    h.many(4000, b"")
    h.hold()


@case
def large_unfinished_heads(h):
    h.trickle(b"GET / HTTP/1.1\r\nX: " + b"a" * 16000, 1000)


@case
def connections_at_full_speed(h):
    h.flood(b"", read=False)


@case
def unread_answers(h):
    h.many(500, h.head("GET /openapi.json") * 200)
    h.hold()


@case
def many_header_fields(h):
    h.flood(h.head("GET /healthz", *("X%d: a" % i for i in range(120))) * 20)


@case
def malformed_requests(h):
    h.flood(b"GET / HTTP/1.1\nHost: localhost\n\n")


@case
def token_guesses(h):
    h.flood(h.head("GET /v1/sandboxes", "Authorization: Bearer cl_wrong") * 50)


@case
def unknown_paths(h):
    h.flood(h.head("GET /" + "a/" * 2000 + "?" + "a=b&" * 60) * 5)


@case
def descriptions(h):
    h.flood(h.head("GET /openapi.json") * 20)


@case
def refused_large_bodies(h):
    h.flood(h.head("POST /v1/run", "Content-Length: 100000000") + b"x" * (4 << 20))


@case
def e2b_bodies_without_access(h):
    h.flood(h.head("POST /process.Process/List", "E2b-Sandbox-Id: nosuch", "E2b-Sandbox-Port: 49983",
                   "X-Access-Token: wrong", "Content-Type: application/json", "Content-Length: 16000000")
            + b"[" * (1 << 20))


# ---- another tenant: with a token


@case
def slow_bodies(h):
    h.trickle(h.head("POST /v1/run", h.auth(), "Content-Length: 1000000"), 800)


@case
def announced_bodies(h):
    """Nearly complete, 15 MB each."""
    body = b'{"code":"' + b"x" * (15 << 20)
    for _ in range(40):
        s = h.connect()
        try:
            s.settimeout(5)
            s.sendall(h.head("POST /v1/run", h.auth(), "Content-Length: 16000000") + body)
        except OSError:
            pass
    h.hold()


@case
def big_json(h):
    body = b'{"cmd":["true"],"x":[' + b"1," * (7 << 20) + b"1]}"
    h.again(lambda t: t.ask("POST", "/v1/run", body), 4)


@case
def big_strings(h):
    body = b'{"cmd":["true"],"x":"' + b"a" * (15 << 20) + b'"}'
    h.again(lambda t: t.ask("POST", "/v1/run", body), 4)


@case
def big_inputs(h):
    """As long a string, and it is used."""
    path = h.tenant().box()
    body = b'{"cmd":["true"],"stdin":"' + b"a" * (15 << 20) + b'"}'
    h.again(lambda t: t.ask("POST", path + "/exec", body), 4)


@case
def deep_json(h):
    body = b"[" * (1 << 20)
    h.again(lambda t: t.ask("POST", "/v1/sandboxes", body), 4)


@case
def lists_sent_ahead(h):
    h.flood(h.head("GET /v1/sandboxes", h.auth()) * 100)


@case
def lists_from_many_connections(h):
    h.again(lambda t: t.ask("GET", "/v1/sandboxes"), 64)


@case
def long_lists(h):
    t = h.tenant()
    for _ in range(150):
        t.box(memory="16M", disk="8M")
    h.again(lambda t: t.ask("GET", "/v1/sandboxes?limit=1000"), 4)


@case
def big_uploads(h):
    path = h.tenant().box(disk="256M")
    data = b"x" * (32 << 20)
    h.again(lambda t: t.ask("PUT", path + "/files?path=big", data), 4)


@case
def uploads_in_tiny_chunks(h):
    path = h.tenant().box(disk="64M")
    h.flood(h.head("PUT %s/files?path=tiny" % path, h.auth(), "Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 100000
            + b"0\r\n\r\n", 4)


@case
def downloads(h):
    t = h.tenant()
    path = t.box(disk="256M")
    t.ask("PUT", path + "/files?path=big", b"x" * (32 << 20))
    h.again(lambda t: t.ask("GET", path + "/files?path=big"), 4)


@case
def unread_downloads(h):
    t = h.tenant()
    path = t.box(disk="256M")
    t.ask("PUT", path + "/files?path=big", b"x" * (64 << 20))
    h.many(200, h.head("GET %s/files?path=big" % path, h.auth()))
    h.hold()


@case
def unread_events(h):
    path = h.tenant().box()
    body = json.dumps({"shell": "yes | head -c 200000000"}).encode()
    h.many(20, h.head("POST %s/exec" % path, h.auth(), "Accept: text/event-stream", "Content-Length: %d" % len(body))
           + body)
    h.hold()


@case
def unread_output(h):
    path = h.tenant().box()
    body = json.dumps({"shell": "head -c 8000000 /dev/zero"}).encode()
    h.many(40, h.head("POST %s/exec" % path, h.auth(), "Content-Length: %d" % len(body)) + body)
    h.hold()


@case
def loud_commands(h):
    path = h.tenant().box()
    h.again(lambda t: t.ask("POST", path + "/exec", {"shell": "head -c 4000000 /dev/zero"}), 4)


@case
def many_events(h):
    path = h.tenant().box()
    h.again(lambda t: t.ask("POST", path + "/exec", {"shell": "for i in $(seq 2000); do echo $i; done"},
                            {"Accept": "text/event-stream"}), 4)


@case
def websocket_frames(h):
    """Single bytes to a terminal, each a frame."""
    path = h.tenant().box()
    mask = b"\1\2\3\4"
    frame = struct.pack("!BB", 0x82, 0x81) + mask + bytes([ord("x") ^ mask[0]])
    opening = h.head("GET %s/exec?tty=true&cmd=cat" % path, h.auth(), "Connection: Upgrade", "Upgrade: websocket",
                     "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + base64.b64encode(b"x" * 16).decode())

    def worker():
        while True:
            try:
                with connect(h.port) as s:
                    s.sendall(opening)
                    s.recv(4096)
                    s.settimeout(1)
                    while True:
                        s.sendall(frame * 10000)
            except OSError:
                time.sleep(0.05)

    for _ in range(8):
        threading.Thread(target=worker, daemon=True).start()
    time.sleep(0.5)
    h.hold()


@case
def many_runs(h):
    h.again(lambda t: t.ask("POST", "/v1/run", {"cmd": ["true"]}), 32)


@case
def many_execs(h):
    path = h.tenant().box()
    h.again(lambda t: t.ask("POST", path + "/exec", {"cmd": ["true"]}), 32)


@case
def searches(h):
    path = h.tenant().box()
    h.again(lambda t: t.ask("POST", path + "/files/search", {"path": "/usr", "content": "nosuchtext"}), 8)


@case
def mcp_sessions(h):
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}
    h.again(lambda t: t.ask("POST", "/mcp", body, {"Accept": "application/json, text/event-stream"}), 8)


@case
def big_messages(h):
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"a" * (15 << 20) + b'"}}'
    h.again(lambda t: t.ask("POST", "/mcp", body, {"Accept": "application/json, text/event-stream",
                                                   "Content-Type": "application/json"}), 4)


@case
def spinning_commands(h):
    path = h.tenant().box(cpus=1)
    h.again(lambda t: t.ask("POST", path + "/exec", {"shell": "while :; do :; done", "timeout": 5}), 2)


# ---- what comes from inside, and what keeps the manager busy


class Interpreter:
    """A sandbox of the E2B door with its ports."""

    def __init__(self, h, template="base"):
        self.h, self.t = h, h.tenant()
        status, body = self.t.ask("POST", "/sandboxes", {"templateID": template, "timeout": 3000, "secure": True},
                                  {"X-API-Key": h.key, "Content-Type": "application/json"})
        assert status == 201, body
        self.sandbox = json.loads(body)

    def headers(self, port):
        return {"E2b-Sandbox-Id": self.sandbox["sandboxID"], "E2b-Sandbox-Port": str(port),
                "X-Access-Token": self.sandbox["envdAccessToken"], "Content-Type": "application/json"}

    def execute(self, t, code):
        return t.ask("POST", "/execute", {"code": FORGE + code}, self.headers(49999))


# Finds the descriptor of the kernel's protocol, as hostile code would.
FORGE = """
import fcntl, os
fd = next(f for f in range(100, 130) if os.path.exists('/proc/self/fd/%d' % f) and fcntl.fcntl(f, fcntl.F_GETFL) & 3)
def put(b):
    while b:
        b = b[os.write(fd, b):]
"""


@case
def contexts_without_newline(h):
    box = Interpreter(h, "code-interpreter-v1")
    h.again(lambda t: box.execute(t, "put(b'x' * ((9 << 20) - 70000))\nfor _ in range(60000): put(b'x')\n"
                                     "put(bytes([10]))\n"), 2)


@case
def contexts_with_long_lines(h):
    box = Interpreter(h, "code-interpreter-v1")
    h.again(lambda t: box.execute(t, "line = b'{\"id\": 1, \"type\": \"result\", \"data\": [' + b'0,' * (4 << 20) + b'0]}'"
                                     " + bytes([10])\nfor _ in range(8): put(line)\n"), 2)


@case
def contexts_with_tiny_lines(h):
    box = Interpreter(h, "code-interpreter-v1")
    h.again(lambda t: box.execute(t, "for _ in range(200): put(b'{\"id\":1,\"type\":\"stdout\",\"text\":\"\"}\\n' * 2000)\n"), 2)


@case
def gzip_bombs(h):
    box = Interpreter(h)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = packer.compress(b'--B\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n')
    for _ in range(60):
        body += packer.compress(bytes(1 << 20))
    body += packer.compress(b"\r\n--B--\r\n") + packer.flush()
    headers = {**box.headers(49983), "Content-Encoding": "gzip", "Content-Type": "multipart/form-data; boundary=B"}
    h.again(lambda t: t.ask("POST", "/files?path=/tmp/x&username=user", body, headers), 4)


@case
def stalled_imports(h):
    h.many(32, h.head("PUT /v1/snapshots/stalled/tar", h.auth(), "Content-Length: 200000000") + bytes(512))
    h.hold()


@case
def snapshot_floods(h):
    t = h.tenant()
    boxes = [t.box() for _ in range(8)]

    def snap(t):
        for box in boxes:
            _, body = t.ask("POST", box + "/snapshot", {})
            if b'"id"' in body:
                t.ask("DELETE", "/v1/snapshots/" + json.loads(body)["id"])

    h.again(snap, 8)


@case
def create_bursts(h):
    def cycle(t):
        status, body = t.ask("POST", "/v1/sandboxes", {"ttl": 60, "memory": "64M", "hostname": "other"})
        if status == 201:
            t.ask("DELETE", "/v1/sandboxes/" + json.loads(body)["id"])

    h.again(cycle, 64)


@case
def busy_streams(h):
    """Fifty commands whose output is read as fast as it comes."""
    path = h.tenant().box()
    h.again(lambda t: t.ask("POST", path + "/exec", {"shell": "yes | head -c 3000000"}, {"Accept": "text/event-stream"}), 50)


@case
def huge_directories(h):
    t = h.tenant()
    path = t.box(disk="256M")
    t.ask("POST", path + "/exec", {"shell": "mkdir many; cd many; seq 30000 | xargs touch"})
    h.again(lambda t: t.ask("GET", path + "/files?path=many&list=1"), 4)


@case
def watch_floods(h):
    t = h.tenant()
    path = t.box()
    h.many(8, h.head("GET %s/files/watch?path=." % path, h.auth(), "Accept: text/event-stream"))
    t.ask("POST", path + "/exec", {"shell": "while :; do touch a b c; rm a b c; done", "background": True})
    h.hold()


@case
def searches_of_big_trees(h):
    t = h.tenant()
    path = t.box(disk="256M")
    t.ask("POST", path + "/exec", {"shell": "mkdir many; cd many; for i in $(seq 200); do seq 2000 > $i; done"})
    h.again(lambda t: t.ask("POST", path + "/files/search", {"path": "many", "content": "1", "limit": 10000}), 4)


@case
def stats_polling(h):
    t = h.tenant()
    for _ in range(40):
        t.box(memory="64M")
    h.again(lambda t: t.ask("GET", "/v1/stats"), 16)


@case
def unread_event_feeds(h):
    path = h.tenant().box()
    h.many(100, h.head("GET /v1/events", h.auth(), "Accept: text/event-stream"))
    h.again(lambda t: t.ask("PATCH", path, {"metadata": {"a": "x" * 1000}}), 4)



@case
def kernel_restarts(h):
    box = Interpreter(h, "code-interpreter-v1")
    h.again(lambda t: (t.ask("POST", "/contexts", {"language": "python"}, box.headers(49999)),
                       t.ask("POST", "/contexts/python/restart", None, box.headers(49999))), 2)


@case
def huge_e2b_directories(h):
    box = Interpreter(h)
    box.t.ask("POST", "/v1/sandboxes/%s/exec" % box.sandbox["sandboxID"],
              {"shell": "mkdir /tmp/many; cd /tmp/many; seq 15000 | xargs touch"})
    h.again(lambda t: t.ask("POST", "/filesystem.Filesystem/ListDir", {"path": "/tmp/many"}, box.headers(49983)), 4)
