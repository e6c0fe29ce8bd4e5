"""An internet for the tests: names, DNS, HTTP and HTTPS servers with a CA of their own, reachable only by
what runs inside the laboratory. It works for root and for an ordinary user.

    lab = netlab.shared()                      one for all suites; or netlab.Lab().start() ... stop()
    lab.run("run", "--net", "allow", "--allow", "example.com", "--", "curl", "https://example.com/")
    harness.Daemon(lab=lab)                    a daemon in the laboratory; lab.connect(port) to ports of its host
    lab.ask("queries"), lab.ask("requests")    what reached the servers since the last lab.ask("forget")

Two network namespaces are joined by a veth pair:

  internet  every address is local (so that any name can have any address, also private ones). Servers listen on
            the wildcard address: HTTP on 80, 8080; HTTPS on 443, 8443 (HTTP/2 on 9443 after ask("http2"));
            a TCP service that speaks first on 7000; a TCP echo on 7001, also on 22, 853, 5432 and 185.199.108.66:53;
            UDP echo on 93.184.216.34:7007 and 185.199.108.66:443; DNS, UDP and TCP, on 9.9.9.9:53 and 8.8.8.8:53.
            lab.internet is a command that enters it, for more servers.
  host      where cloche runs. Its addresses are 192.0.2.2 and 2606:2800:ffff::2; on port 8081 of these and of
            127.0.0.1 an HTTP server stands for the host's own services. A mount namespace gives it /etc/resolv.conf, /etc/hosts, and a CA
            bundle with the laboratory's CA, so cloche needs no settings to use all this.

An ordinary user gets both inside a user namespace that maps only that user; commands enter it without capabilities,
so cloche is as rootless there as elsewhere (without subordinate ids).

Paths that the HTTP servers know: / reflects the request as JSON; /echo returns the body; /headers the header lines;
/digest?of=NAME the SHA-256 of a header (Authorization);
/slow?s=1; /large?n=1000000; /redirect?to=URL; /status/404; /chunks; /gzip (the header lines, compressed);
/drip (the header lines, a byte in each packet); /ws echoes WebSocket frames; /git/NAME.git is a repository
lab.dir/git/NAME.git that anybody may push to. Of requests with the header X-Keep, ask("requests") has all header lines
and the body. A file www/HOST/PATH below lab.dir comes before them; what else is asked for in www/HOST/DIRECTORY is
not found. www/HOST/.auth has a header line without which HOST answers 401.
"""

import base64
import ctypes
import gzip
import hashlib
import http.server
import json
import os
import shutil
import signal
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

HOST, HOST6 = "192.0.2.2", "2606:2800:ffff::2"
WEB, EVIL, WEB6 = "93.184.216.34", "185.199.108.66", "2606:2800:220:1::1"
RESOLVER, OTHER_RESOLVER = "9.9.9.9", "8.8.8.8"
HTTP_PORTS, HTTPS_PORTS, H2_PORT = (80, 8080), (443, 8443), 9443
SERVER_FIRST, TCP_ECHO, UDP_ECHO, LOOPBACK = 7000, (7001, 22, 853, 5432), 7007, 8081

SILENT = ".silent.example.org"  # names below it are never answered

# What DNS says: a row of addresses, or of rows of which each query gets the next (and the last one again).
NAMES = {
    "example.com": [WEB, WEB6],
    "*.example.com": [WEB],
    "example.org": [WEB],
    "evil.com": [EVIL],
    "*.evil.com": [EVIL],
    "allowed.com": [WEB],
    "*.allowed.com": [WEB],
    "evilallowed.com": [EVIL],
    "allowed.com.evil.com": [EVIL],
    "v4.example.com": [WEB],
    "v6.example.com": [WEB6],
    "loopback.example.com": ["127.0.0.1"],
    "own.example.com": [HOST],
    "private.example.com": ["10.0.0.5"],
    "cgnat.example.com": ["100.64.0.1"],
    "metadata.example.com": ["169.254.169.254"],
    "mapped.example.com": ["::ffff:127.0.0.1"],
    "private6.example.com": ["fd00::5"],
    "mixed.example.com": [WEB, "::1"],
    "rebind.example.com": [[WEB], ["10.0.0.5"]],
    "pypi.org": ["151.101.0.223"],
    "files.pythonhosted.org": ["151.101.0.223"],
    "registry.npmjs.org": ["104.16.0.35"],
    "github.com": ["140.82.121.3"],
    "deb.debian.org": ["151.101.2.132"],
    "api.openai.com": ["104.18.7.192"],
    "api.anthropic.com": ["160.79.104.10"],
}
CERTIFIED = [
    "example.com", "*.example.com", "example.org", "evil.com", "*.evil.com", "allowed.com", "*.allowed.com",
    "evilallowed.com", "allowed.com.evil.com", "pypi.org", "files.pythonhosted.org", "registry.npmjs.org",
    "github.com", "deb.debian.org", "api.openai.com", "api.anthropic.com",
]  # fmt: skip

H2_SERVER = r"""
const http2 = require("http2"), fs = require("fs"), dir = process.argv[1];
const answer = (q, s) => {
  let n = 0;
  q.on("data", (d) => { n += d.length; });
  q.on("end", () => {
    s.writeHead(200, { "content-type": "application/json" });
    s.end(JSON.stringify({ version: q.httpVersion, method: q.method, path: q.url,
      host: q.headers[":authority"] || q.headers.host, headers: q.headers, length: n }));
  });
};
http2.createSecureServer({ key: fs.readFileSync(dir + "/leaf.key"), cert: fs.readFileSync(dir + "/leaf.pem"),
  allowHTTP1: true }, answer).listen(Number(process.argv[2]), "::", () => console.log("ready"));
"""


# ---- the side of the tests


class Lab:
    def __init__(self, names=None):
        import cl

        self.names = names or {}
        self.dir = tempfile.mkdtemp(prefix="lab-", dir=cl.base_dir())
        os.chmod(self.dir, 0o755)
        self.ca = os.path.join(self.dir, "ca.pem")
        self.enter = os.path.join(self.dir, "enter")
        self.under = (self.enter,)
        self.internet = (os.path.join(self.dir, "enter-internet"),)
        self.lock = threading.Lock()
        self.process = None

    def start(self):
        import cl

        make_certificates(self.dir)
        os.makedirs(os.path.join(self.dir, "www"), exist_ok=True)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            spaces = ["--net", "--mount"]
            if os.geteuid():
                spaces += ["--user", "--map-current-user", "--keep-caps"]
            command = ["/usr/bin/unshare", *spaces, "/usr/bin/python3", os.path.abspath(__file__)]
            self.process = cl.start(
                command=[*command, self.dir, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=self.dir,
                env=cl.caller_env(),
            )
        self.control.settimeout(30)
        try:
            pid = self.receive()["host"]
        except (OSError, ValueError):
            self.process.kill()
            raise AssertionError("no laboratory: " + self.process.communicate()[1].decode())
        write_enter(self.enter, pid)
        write_enter(self.internet[0], self.process.pid)
        if self.names:
            self.ask("names", names=self.names)
        return self

    def stop(self):
        if self.process:
            self.control.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
            self.process.stderr.close()
            self.process = None
        shutil.rmtree(self.dir, ignore_errors=True)

    def receive(self):
        data, fds, _, _ = socket.recv_fds(self.control, 1 << 20, 1)
        if not data:
            raise ValueError("the laboratory ended")
        answer = json.loads(data)
        if fds:
            answer["fd"] = fds[0]
        return answer

    def ask(self, verb, **more):
        """names(names={...}), queries (an answer has room for some thousands; like=[...] picks by parts of names),
        requests, forget, dns(state="up"|"down"|"servfail", ttl=0), http2."""
        with self.lock:
            self.control.send(json.dumps({"verb": verb, **more}).encode())
            answer = self.receive()
        if "error" in answer:
            raise OSError(answer.get("errno", 0), answer["error"])
        return answer.get("fd", answer.get("answer"))

    def connect(self, port, address="127.0.0.1", timeout=30):
        """A connection that begins in the namespace `host`. port: of TCP, or the path of a Unix socket."""
        s = socket.socket(fileno=self.ask("connect", address=address, port=port))
        s.settimeout(timeout)
        return s

    def run(self, *args, **kw):
        """cl.run(), in the laboratory."""
        import cl

        return cl.command(*self.under, *cl.argv(args), **kw)

    def record(self, *args, **kw):
        r = self.run("run", "--json", *args, **kw)
        rec = json.loads(r.out)
        rec["_code"], rec["_err"] = r.code, r.err
        return rec

    def command(self, *args, **kw):
        """Any other program, outside a sandbox: the control of a test."""
        import cl

        return cl.command(*self.under, *args, **kw)

    def publish(self, host, path, data):
        """A file for the web servers."""
        path = os.path.join(self.dir, "www", host, path.lstrip("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(data.encode() if isinstance(data, str) else data)
        return path


def write_enter(path, pid):
    """A program that runs a command in the namespaces of a process."""
    spaces = "--net --mount" + ("" if os.geteuid() == 0 else " --user --preserve-credentials")
    with open(path, "w", encoding="utf-8") as out:
        out.write('#!/bin/sh\nexec /usr/bin/nsenter %s --target %d -- /usr/bin/env --chdir="$PWD" "$@"\n' % (spaces, pid))
    os.chmod(path, 0o755)


_shared = None


def shared():
    """One for all suites; it ends with the process."""
    global _shared
    if _shared is None:
        import atexit

        _shared = Lab().start()
        atexit.register(stop_shared)
    return _shared


def stop_shared():
    global _shared
    if _shared is not None:
        lab, _shared = _shared, None
        lab.stop()


def openssl(directory, *args):
    done = subprocess.run(["openssl", *args], cwd=directory, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise AssertionError("openssl %s: %s" % (" ".join(args), done.stderr))


def make_leaf(directory, name, hosts, ca="ca", days="30"):
    """NAME.key and NAME.pem (with its CA behind), for these names and addresses."""
    with open(os.path.join(directory, name + ".ext"), "w", encoding="ascii") as out:
        out.write("subjectAltName=%s\n" % ",".join(("IP:" if is_address(h) else "DNS:") + h for h in hosts))
    openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", name + ".key", "-out", name + ".csr", "-subj", "/CN=" + hosts[0])  # fmt: skip
    openssl(directory, "x509", "-req", "-in", name + ".csr", "-CA", ca + ".pem", "-CAkey", ca + ".key",
            "-out", name + ".pem", "-extfile", name + ".ext", "-days", days)  # fmt: skip


def is_address(text):
    return ":" in text or text.replace(".", "").isdigit()


def make_ca(directory):
    openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Laboratory CA", "-days", "30",
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip


def make_certificates(directory):
    make_ca(directory)
    make_leaf(directory, "leaf", CERTIFIED + [WEB, EVIL, "10.0.0.5", WEB6])
    make_leaf(directory, "expired", ["expired.example.com"], days="-1")
    make_leaf(directory, "wrong", ["somebody.else"])
    # A whole directory, since a mount inside one that the sandbox shows could not be shown by an ordinary user.
    certs = os.path.join(directory, "certs")
    shutil.copytree("/etc/ssl/certs", certs, symlinks=True)
    with open(os.path.join(directory, "ca.pem"), encoding="ascii") as pem:
        with open(os.path.join(certs, "ca-certificates.crt"), "a", encoding="ascii") as out:
            out.write(pem.read())


# ---- the side of the laboratory


class State:
    def __init__(self, directory):
        self.dir, self.lock = directory, threading.Lock()
        self.names, self.turn, self.dns, self.ttl = dict(NAMES), {}, "up", 0
        self.http2 = None  # its port, once it is there
        self.queries, self.requests, self.bound = [], [], []

    def note(self, row, **what):
        with self.lock:
            if len(row) < 20000:
                row.append(what)

    def addresses(self, name):
        """None: there is no such name."""
        row = self.names.get(name)
        at = name
        while row is None and "." in at:
            at = at.split(".", 1)[1]
            row = self.names.get("*." + at)
        if row and isinstance(row[0], list):
            with self.lock:
                turn = self.turn[name] = self.turn.get(name, -1) + 1
            row = row[min(turn, len(row) - 1)]
        return row


TYPES = {1: "A", 28: "AAAA", 16: "TXT", 12: "PTR", 65: "HTTPS", 64: "SVCB", 10: "NULL", 255: "ANY", 15: "MX"}


def dns_answer(state, query, over):
    """The reply to a query, or None if there is none."""
    labels, at = [], 12
    while at < len(query) and query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]])
        at += 1 + query[at]
    name = b".".join(labels).decode("latin-1").lower()
    kind = struct.unpack_from("!H", query, at + 1)[0]
    state.note(state.queries, name=name, type=TYPES.get(kind, str(kind)), over=over)
    if state.dns == "down" or name.endswith(SILENT):
        return None
    found = None if state.dns == "servfail" else state.addresses(name)
    rows = []
    for address in found or []:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if kind == (28 if ":" in address else 1):
            data = socket.inet_pton(family, address)
            rows.append(struct.pack("!HHHIH", 0xC00C, kind, 1, state.ttl, len(data)) + data)
    code = 2 if state.dns == "servfail" else 3 if found is None else 0
    head = query[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(rows), 0, 0)
    return head + query[12 : at + 5] + b"".join(rows)


class DnsUdp(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        reply = dns_answer(self.server.state, data, "udp")
        if reply:
            sock.sendto(reply, self.client_address)


class DnsTcp(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            reply = dns_answer(self.server.state, self.rfile.read(struct.unpack("!H", head)[0]), "tcp")
            if not reply:
                return
            self.wfile.write(struct.pack("!H", len(reply)) + reply)


class ServerFirst(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"220 ready\r\n")
        line = self.rfile.readline(1000)
        self.wfile.write(b"250 " + line)


class TcpEcho(socketserver.BaseRequestHandler):
    def handle(self):
        while True:
            data = self.request.recv(65536)
            if not data:
                return
            self.request.sendall(data)


class UdpEcho(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(data, self.client_address)


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "laboratory", ""

    def log_message(self, *_):
        pass

    def read_body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            data += self.rfile.read(size)
            self.rfile.readline()
            if not size:
                return data

    def answer(self, code, body, kind="text/plain", **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def serve(self):
        body = self.read_body()
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        seen = {
            "scheme": self.server.scheme, "host": self.headers.get("Host"), "method": self.command, "path": self.path,
            "sni": getattr(self.connection, "asked_for", None), "address": self.connection.getsockname()[0],
            "port": self.connection.getsockname()[1], "peer": self.client_address[0],
        }  # fmt: skip
        kept = {}
        if "X-Keep" in self.headers:
            kept = {"headers": dict(self.headers.items()), "body": body[:4096].decode("latin-1")}
        self.server.state.note(self.server.state.requests, **seen, **kept)
        if self.is_denied(host):
            return
        first = url.path.strip("/").split("/")[0]
        known = getattr(self, "at_" + first, None) if first else None
        if self.serve_file(host, url.path):
            return
        if known:
            known(query, body)
        elif first == "status":
            self.answer(int(url.path.split("/")[2]), b"")
        else:
            more = {"headers": dict(self.headers.items()), "body": body[:4096].decode("latin-1"), "length": len(body)}
            self.answer(200, json.dumps({**seen, **more}).encode(), "application/json")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_PROPFIND = serve

    def serve_file(self, host, path):
        top = os.path.join(self.server.state.dir, "www", host)
        path = os.path.normpath(top + "/" + urllib.parse.unquote(path))
        if os.path.isdir(path):
            path += "/index.html"
        if not path.startswith(top + "/"):
            return False
        if not os.path.isfile(path):
            if not os.path.isdir(os.path.join(top, path[len(top) + 1 :].split("/")[0])):
                return False
            self.answer(404, b"")
            return True
        with open(path, "rb") as f:
            body = f.read()
        kinds = {".html": "text/html", ".json": "application/json"}
        kind = "application/json" if body[:1] == b"{" else "text/event-stream" if body[:6] == b"event:" else None
        self.answer(200, body, kinds.get(os.path.splitext(path)[1]) or kind or "application/octet-stream")
        return True

    def is_denied(self, host):
        """A file .auth of a host has the header that its clients must send."""
        path = os.path.join(self.server.state.dir, "www", host, ".auth")
        if not os.path.isfile(path):
            return False
        with open(path, encoding="ascii") as f:
            name, _, value = f.read().strip().partition(": ")
        if self.headers.get(name) == value:
            return False
        self.answer(401, b"", WWW_Authenticate='Basic realm="laboratory"')
        return True

    def at_echo(self, query, body):
        self.answer(200, body, "application/octet-stream")

    def at_headers(self, query, body):
        self.answer(200, str(self.headers).encode())

    def at_digest(self, query, body):
        value = self.headers.get(query.get("of", "Authorization"), "")
        self.answer(200, hashlib.sha256(value.encode("latin-1")).hexdigest().encode())

    def at_gzip(self, query, body):
        self.answer(200, gzip.compress(str(self.headers).encode()), Content_Encoding="gzip")

    def at_drip(self, query, body):
        """The header lines, a byte in each packet."""
        text = str(self.headers).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        for i in range(len(text)):
            self.wfile.write(text[i : i + 1])

    def at_slow(self, query, body):
        time.sleep(float(query.get("s", 1)))
        self.answer(200, b"slow\n")

    def at_large(self, query, body):
        self.answer(200, b"x" * int(query.get("n", 1000000)))

    def at_redirect(self, query, body):
        self.answer(302, b"", Location=query["to"])

    def at_chunks(self, query, body):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"".join(b"4\r\nabc%d\r\n" % i for i in range(3)) + b"0\r\n\r\n")

    def at_git(self, query, body):
        url = urllib.parse.urlsplit(self.path)
        cgi = {
            "GIT_PROJECT_ROOT": os.path.join(self.server.state.dir, "git"), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": url.path[4:], "QUERY_STRING": url.query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_USER": "somebody", "PATH": "/usr/bin:/bin",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "REMOTE_ADDR": "192.0.2.2",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "CONTENT_LENGTH": str(len(body)),
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=cgi, capture_output=True, timeout=20)
        head, _, page = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        kind = fields.pop("Content-Type", "text/plain")
        self.answer(int(fields.pop("Status", "200").split()[0]), page, kind, **fields)

    def at_ws(self, query, body):
        key = self.headers.get("Sec-WebSocket-Key", "") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[1] & 0x7F > 125:
                return
            mask, data = self.rfile.read(4), self.rfile.read(head[1] & 0x7F)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
            self.wfile.write(bytes([head[0], len(data)]) + data)
            if head[0] & 15 == 8:
                return


class Threaded(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 1024
    context = None

    def __init__(self, address, handler, state, family=socket.AF_INET6):
        self.address_family, self.state, self.scheme = family, state, "http"
        super().__init__(address, handler)

    def finish_request(self, request, client_address):
        """In a thread of its own, so a slow handshake delays nobody else."""
        if self.context is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(30)
        with self.context.wrap_socket(request, server_side=True) as tls:
            super().finish_request(tls, client_address)

    def handle_error(self, request, client_address):
        pass


class Datagrams(socketserver.ThreadingUDPServer):
    daemon_threads = True

    def __init__(self, address, handler, state):
        self.state = state
        super().__init__(address, handler)


def serve(server):
    threading.Thread(target=server.serve_forever, args=(0.5,), daemon=True).start()
    return server


def tls_context(directory):
    def make(name):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        path = os.path.join(directory, name)
        context.load_cert_chain(path + ".pem", path + ".key")
        context.set_alpn_protocols(["http/1.1"])
        return context

    others = {"expired.example.com": make("expired"), "wrong.example.com": make("wrong")}

    def pick(sock, name, _):
        sock.asked_for = name
        if name in others:
            sock.context = others[name]

    context = make("leaf")
    context.sni_callback = pick
    return context


def ip(*args):
    subprocess.run(["ip", *args], check=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"})


def sysctl(name, value):
    with open("/proc/sys/net/" + name, "w", encoding="ascii") as out:
        out.write(value)


def system_call(name, *args):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) == -1:
        raise OSError(ctypes.get_errno(), name)


def die_with_parent():
    system_call("prctl", 1, signal.SIGKILL, 0, 0, 0)


def drop_capabilities():
    """So that a daemon without any may look at this process: it does so with each client of its Unix socket."""
    if os.geteuid():
        system_call("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))


def bind_over(source, target):
    target = os.path.realpath(target)
    if os.path.exists(target):
        system_call("mount", source.encode(), target.encode(), None, 4096, None)  # MS_BIND


def host_side(state, up, control):
    """The namespace where cloche runs."""
    die_with_parent()
    system_call("unshare", 0x40000000 | 0x00020000)  # CLONE_NEWNET, CLONE_NEWNS
    system_call("mount", None, b"/", None, 0x44000, None)  # MS_PRIVATE | MS_REC
    files = {"resolv.conf": "nameserver %s\n" % RESOLVER, "hosts": "127.0.0.1 localhost\n::1 localhost\n"}
    for name, text in files.items():
        path = os.path.join(state.dir, name)
        with open(path, "w", encoding="ascii") as out:
            out.write(text)
        bind_over(path, "/etc/" + name)
    bind_over(os.path.join(state.dir, "certs"), "/etc/ssl/certs")
    up.send(b"made")
    up.recv(1)  # the veth is here
    ip("link", "set", "lo", "up")
    ip("addr", "add", HOST + "/30", "dev", "lab1")
    ip("addr", "add", HOST6 + "/64", "dev", "lab1", "nodad")
    ip("link", "set", "lab1", "up")
    ip("route", "add", "default", "via", "192.0.2.1")
    ip("-6", "route", "add", "default", "via", "2606:2800:ffff::1")
    drop_capabilities()
    for address in ("127.0.0.1", HOST, HOST6):
        serve(Threaded((address, LOOPBACK), Web, state, socket.AF_INET6 if ":" in address else socket.AF_INET))
    up.send(b"up")
    answer_all(control, {"connect": connect_for_test, "requests": lambda _: take(state, state.requests)})


def connect_for_test(request):
    if isinstance(request["port"], str):
        s = socket.socket(socket.AF_UNIX)
        s.connect(request["port"])
        return s
    return socket.create_connection((request["address"], request["port"]), timeout=10)


def take(state, row):
    with state.lock:
        found = list(row)
    return found


def is_like(name, parts):
    return not parts or any(part in name for part in parts)


def answer_all(control, verbs):
    while True:
        data = control.recv(1 << 20)
        if not data:
            os._exit(0)
        request = json.loads(data)
        try:
            answer = verbs[request["verb"]](request)
        except OSError as e:
            control.send(json.dumps({"error": str(e), "errno": e.errno or 0}).encode())
            continue
        if isinstance(answer, socket.socket):
            with answer:
                answer.setblocking(True)
                socket.send_fds(control, [b"{}"], [answer.fileno()])
        else:
            control.send(json.dumps({"answer": answer}).encode())


def internet_servers(state):
    everything = "::"
    for port in HTTP_PORTS:
        serve(Threaded((everything, port), Web, state))
    for port in HTTPS_PORTS:
        server = Threaded((everything, port), Web, state)
        server.scheme, server.context = "https", tls_context(state.dir)
        serve(server)
    serve(Threaded((everything, SERVER_FIRST), ServerFirst, state))
    for port in TCP_ECHO:
        serve(Threaded((everything, port), TcpEcho, state))
    serve(Threaded((EVIL, 53), TcpEcho, state, socket.AF_INET))
    serve(Datagrams((WEB, UDP_ECHO), UdpEcho, state))
    serve(Datagrams((EVIL, 443), UdpEcho, state))
    for address in (RESOLVER, OTHER_RESOLVER):
        serve(Datagrams((address, 53), DnsUdp, state))
        serve(Threaded((address, 53), DnsTcp, state, socket.AF_INET))


def start_http2(state):
    node = shutil.which("node", path="/usr/local/bin:/usr/bin:/bin")
    if not node or state.http2:
        return state.http2
    server = subprocess.Popen(
        [node, "-e", H2_SERVER, state.dir, str(H2_PORT)], stdout=subprocess.PIPE, preexec_fn=die_with_parent
    )
    state.http2 = H2_PORT if server.stdout.readline() else None
    return state.http2


def internet_side(state, control):
    up, down = socket.socketpair()
    asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        control.close()
        up.close()
        asked.close()
        try:
            host_side(state, down, theirs)
        finally:
            os._exit(1)
    down.close()
    theirs.close()
    up.recv(4)
    ip("link", "set", "lo", "up")
    ip("link", "add", "lab0", "type", "veth", "peer", "name", "lab1", "netns", str(pid))
    ip("addr", "add", "192.0.2.1/30", "dev", "lab0")
    ip("addr", "add", "2606:2800:ffff::1/64", "dev", "lab0", "nodad")
    ip("link", "set", "lab0", "up")
    for address in (WEB, EVIL, RESOLVER, OTHER_RESOLVER):
        ip("addr", "add", address + "/32", "dev", "lo")
    ip("route", "add", "local", "default", "dev", "lo", "table", "main")
    ip("-6", "route", "add", "local", "default", "dev", "lo", "table", "main")
    internet_servers(state)
    up.send(b"x")
    if not up.recv(2):
        raise OSError("the namespace `host` could not be made")
    control.send(json.dumps({"host": pid}).encode())

    def forget(_):
        with state.lock:
            del state.queries[:], state.requests[:]
            state.turn.clear()

    def pass_on(request):
        asked.send(json.dumps(request).encode())
        data, fds, _, _ = socket.recv_fds(asked, 1 << 20, 1)
        answer = json.loads(data)
        if "error" in answer:
            raise OSError(answer["errno"], answer["error"])
        return socket.socket(fileno=fds[0]) if fds else answer.get("answer")

    answer_all(
        control,
        {
            "names": lambda q: state.names.update(q["names"]),
            "queries": lambda q: [row for row in take(state, state.queries) if is_like(row["name"], q.get("like"))],
            "requests": lambda _: take(state, state.requests),
            "host_requests": lambda _: pass_on({"verb": "requests"}),
            "forget": forget,
            "dns": lambda q: vars(state).update(dns=q["state"], ttl=q.get("ttl", 0)),
            "http2": lambda _: start_http2(state),
            "connect": pass_on,
        },
    )


def main():
    die_with_parent()
    sysctl("ipv4/ip_unprivileged_port_start", "0")
    control = socket.socket(fileno=int(sys.argv[2]))
    internet_side(State(sys.argv[1]), control)


if __name__ == "__main__":
    main()
