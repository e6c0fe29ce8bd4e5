"""Provider e2b: sandboxes that another service runs. That service is a second daemon of ours, seen
through a proxy that can be told to go wrong at any request."""

import http.client
import http.server
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading

import cl
import harness
from harness import until
from test_restart import is_alive, pids, read

SSE = {"Accept": "text/event-stream"}


class Proxy(http.server.ThreadingHTTPServer):
    """Passes everything on, but for requests that a rule says something else of."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, to):
        super().__init__(("127.0.0.1", 0), Handler)
        self.to, self.rules, self.seen = to, [], []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server_address[1]

    def rule(self, pattern, action):
        self.rules = [(re.compile(pattern), action)]

    def handle_error(self, request, client_address):
        pass  # clients go away in the middle: that is what is tested


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def plain(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def endless(self, body):
        self.send_response(201)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while True:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))

    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self.read_chunks()
        line = "%s %s" % (self.command, self.path)
        self.server.seen.append(line)
        for pattern, action in self.server.rules:
            if pattern.search(line):
                if action(self, body):
                    return
        self.pass_on(body)

    def read_chunks(self):
        body = b""
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            body += self.rfile.read(size)
            self.rfile.readline()
            if size == 0:
                return body

    def ask(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.to, timeout=60)
        headers = {k: v for k, v in self.headers.items()
                   if k.lower() not in ("host", "content-length", "transfer-encoding", "expect")}
        connection.request(self.command, self.path, body=body, headers=headers)
        return connection.getresponse()

    def pass_on(self, body):
        reply = self.ask(body)
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        chunked = reply.getheader("Content-Length") is None and reply.status != 204
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while True:
            try:
                data = reply.read1(65536)
            except (http.client.HTTPException, OSError):
                self.close_connection = True  # it was cut there, so it is here
                return
            if not data:
                break
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PUT = do_DELETE = handle_any


# What a rule may do; true: it has answered.

def refuse(status, message):
    body = json.dumps({"code": status, "message": message}).encode()
    return lambda h, _: h.plain(status, body) or True


def say(body, status=201):
    return lambda h, _: h.plain(status, body) or True


def hang_up(h, _):
    h.close_connection = True
    return True


def do_and_hang_up(h, body):
    h.ask(body).read()
    return hang_up(h, body)


def do_not_end(h, _):
    h.endless(b"x" * 65536)
    return True


def stream(data):
    return lambda h, _: h.plain(200, data, "application/connect+json") or True


def envelope(text, flags=0):
    data = text.encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


class Remote(harness.Case):
    """One pair of daemons for all of them: self.b is the service, self.d uses it."""

    @classmethod
    def setUpClass(cls):
        cls.b = harness.Daemon(config="pool_size: 0\n").start()
        cls.key = cls.b.token("provider", "--e2b")
        cls.proxy = Proxy(cls.b.port)
        path = os.path.join(cls.b.dir, "key")
        with open(path, "w", encoding="utf-8") as out:
            out.write(cls.key + "\n")
        cls.a = harness.Daemon(config=(
            "pool_size: 0\nboot_retries: 0\ne2b:\n  api_url: %s/\n  key_file: %s\n  timeout: 60s\n"
            % (cls.proxy.url, path))).start()

    @classmethod
    def tearDownClass(cls):
        cls.proxy.rules = []
        cls.a.stop()
        cls.b.stop()
        cls.proxy.shutdown()
        cls.proxy.server_close()
        cls.a.remove()
        cls.b.remove()

    @property
    def d(self):
        return self.a

    def setUp(self):
        self.proxy.rules = []
        self.addCleanup(setattr, self.proxy, "rules", [])

    def box(self, token=None, **options):
        return super().box(token, provider="e2b", **options)

    def there(self, box_id=None):
        """What the service has that is alive."""
        return [s for s in self.b.get("/v1/sandboxes?limit=1000").json["sandboxes"]
                if s["state"] in ("running", "paused", "creating")
                and (box_id is None or s["metadata"].get("cloche") == box_id)]

    def role(self, name="remote"):
        for pid in pids():
            args = read("/proc/%d/cmdline" % pid).split(b"\0")
            status = read("/proc/%d/status" % pid).decode("utf-8", "replace")
            if args[1:3] == [b"role", name.encode()] and "\nPPid:\t%d\n" % self.a.process.pid in status:
                return pid
        return None


class Use(Remote):
    def test_what_it_says(self):
        box = self.box(metadata={"k": "v"})
        seen = box.get("").json
        self.assertEqual((seen["provider"], seen["level"], seen["state"], seen["metadata"]),
                         ("e2b", "remote", "running", {"k": "v"}))
        layers = seen["layers"]
        self.assertEqual((layers["level"], layers["seccomp"], layers["cgroup"], layers["memory"]),
                         ("remote", None, "none", "none"))
        self.assertFalse([k for k, v in layers.items() if v is True])
        self.assertIn("seccomp", layers["missing"])
        self.assertIn("user_ns", layers["missing"])
        self.assertIn(self.proxy.url, layers["note"])
        self.assertEqual((seen["limits"]["memory"], seen["network"], seen["image"]), (None,) * 3)
        record = box.sh("true")
        self.assertEqual(record["layers"]["level"], "remote")
        self.assertEqual(len(self.there(box.id)), 1)

    def test_commands(self):
        box = self.box(env={"OUTER": "o"})
        record = box.sh("echo $OUTER $INNER; pwd; cat; echo e >&2; exit 3", env={"INNER": "i"},
                        cwd="/tmp", stdin="in")
        self.assertEqual((record["stdout"], record["stderr"], record["exit_code"]),
                         ("o i\n/tmp\nin", "e\n", 3))
        self.assertEqual(box.exec("pwd").json["stdout"], "/home/user\n")
        late = box.sh("sleep 1000", timeout="300ms")
        self.assertEqual((late["timed_out"], late["status"]), (True, "timeout"))

    def test_much_both_ways(self):
        box, data = self.box(), os.urandom(5000000)
        self.assertEqual(box.put("/files?path=f", data).json["size"], len(data))
        self.assertEqual(box.get("/files?path=f").body, data)
        with box.stream("POST", "/exec", {"shell": "head -c 8000000 /dev/zero"}, SSE) as s:
            sizes = [e[1].get("bytes", 0) or len(e[1].get("text", "")) or
                     len(e[1].get("base64", "")) for e in s.events()]
        self.assertGreater(len(sizes), 10)
        self.assertEqual(box.sh("wc -c <f")["stdout"].strip(), str(len(data)))

    def test_files(self):
        box = self.box()
        self.assertEqual(box.put("/files?path=d/e/f", b"one").status, 200)
        self.assertEqual(box.sh("cat d/e/f")["stdout"], "one")
        self.assertEqual(box.post("/files/move", {"from": "d/e/f", "to": "g"}).status, 200)
        self.assertEqual(box.get("/files?path=g").body, b"one")
        self.assertEqual(box.delete("/files?path=g").status, 204)
        self.assertError(box.get("/files?path=g"), 404)

    def test_background_and_terminal(self):
        box = self.box()
        eid = box.start(interactive=True, shell="read x; echo got $x; exit 4")
        self.assertEqual(box.post("/execs/%d/stdin" % eid, {"text": "this\n"}).status, 204)
        ended = until(lambda: (lambda e: not e["running"] and e)(box.get("/execs/%d" % eid).json))
        self.assertEqual(ended["exit_code"], 4)
        eid = box.start(shell="exec sleep 1000")
        self.assertEqual(box.delete("/execs/%d" % eid).status, 204)
        until(lambda: not box.get("/execs/%d" % eid).json["running"], "its end")
        record = box.sh("stty size; tty", tty=True, rows=31, cols=101)
        self.assertIn("31 101", record["stdout"])
        self.assertIn("/dev/pts/", record["stdout"])

    def test_watch_and_stats(self):
        box = self.box()
        box.sh("mkdir w")
        with box.stream("GET", "/files/watch?path=w") as s:
            events = s.events()
            box.sh("echo x >w/new")
            self.assertIn("new", json.dumps(next(e for e in events if "new" in json.dumps(e))))
        stats = box.get("/stats").json
        self.assertGreater(stats["pids"], 0)
        self.assertGreater(stats["disk_bytes"], 0)
        self.assertEqual(stats["memory_limit_bytes"], 0)

    def test_pause_and_resume(self):
        box = self.box()
        eid = box.start(interactive=True, shell="read x; exit 9")
        self.assertEqual(box.post("/pause", {}).json["state"], "paused")
        self.assertEqual(self.there(box.id)[0]["state"], "paused")
        self.assertError(box.exec("true"), 409)
        self.assertEqual(box.post("/resume", {}).json["state"], "running")
        self.assertEqual(self.there(box.id)[0]["state"], "running")
        self.assertEqual(box.sh("echo up")["stdout"], "up\n")
        self.assertEqual(box.post("/execs/%d/stdin" % eid, {"text": "\n"}).status, 204)
        ended = until(lambda: (lambda e: not e["running"] and e)(box.get("/execs/%d" % eid).json))
        self.assertEqual(ended["exit_code"], 9)

    def test_destroyed_there_as_well(self):
        box = self.box()
        self.assertEqual(len(self.there(box.id)), 1)
        self.assertEqual(box.delete().status, 204)
        self.assertEqual(self.there(box.id), [])

    def test_command_line(self):
        def cloche(*args):
            env = dict(self.a.env(), CLOCHE_URL="unix:" + self.a.sock)
            return subprocess.run([cl.CLOCHE, *args], env=env, capture_output=True, text=True,
                                  timeout=60)

        made = cloche("create", "--provider", "e2b")
        self.assertEqual(made.returncode, 0, made)
        ran = cloche("exec", made.stdout.strip(), "sh", "-c", "echo out; exit 3")
        self.assertEqual((ran.returncode, ran.stdout), (3, "out\n"), ran)
        self.assertEqual(cloche("kill", made.stdout.strip()).returncode, 0)
        refused = cloche("create", "--provider", "e2b", "--memory", "1G")
        self.assertEqual(refused.returncode, 125)
        self.assertIn("memory", refused.stderr)

    def test_what_cannot_be(self):
        box = self.box()
        for what in ("/snapshot", "/fork", "/stop"):
            self.assertError(box.post(what, {}), 501, "unsupported")
        self.assertEqual(box.get("").json["state"], "running")
        self.assertError(self.d.request("PATCH", box.path, {"memory": "1G"}), 501)
        for body, field in (({"require": ["seccomp"]}, "require"), ({"image": "x"}, "image"),
                            ({"memory": "1G"}, "memory"), ({"net": "none"}, "net"),
                            ({"hostname": "h"}, "hostname"),
                            ({"snapshot": "a" * 20}, "snapshot")):
            reply = self.d.post("/v1/sandboxes", dict(body, provider="e2b"))
            with self.subTest(field):
                self.assertError(reply, 501, "unsupported", field)
        self.assertError(self.d.post("/v1/run", {"provider": "e2b", "cmd": ["true"]}), 501,
                         "unsupported", "provider")
        self.assertError(self.b.post("/v1/sandboxes", {"provider": "e2b"}), 501, "unsupported",
                         "provider")


class Faults(Remote):
    def refused(self, pattern, action, says, status=500):
        """A create fails so, and leaves nothing."""
        self.proxy.rule(pattern, action)
        reply = self.d.post("/v1/sandboxes", {"provider": "e2b"})
        self.assertEqual(reply.status, status, reply)
        self.assertRegex(reply.error["message"], says)
        self.proxy.rules = []
        until(lambda: not self.there(), "the end of what was half made")
        return reply

    def test_key_and_template(self):
        self.refused("POST /sandboxes$", refuse(401, "Invalid API key"),
                     "status 401.*key.*Invalid API key", 403)
        self.refused("POST /sandboxes$", refuse(404, "template 'base' not found"),
                     "status 404.*template 'base' not found", 404)
        self.refused("POST /sandboxes$", refuse(429, "slower"), "429", 429)
        self.refused("POST /sandboxes$", refuse(503, "busy"), "503.*busy")
        self.assertNotIn(self.key, self.a.read_log())
        self.assertNotIn(self.key.encode(), read("/proc/%d/cmdline" % self.role()))

    def test_answers_without_sense(self):
        self.refused("POST /sandboxes$", say(b"<html>"), "names no sandbox")
        self.refused("POST /sandboxes$", say(b'{"sandboxID": "../../etc"}'), "names no sandbox")
        self.refused("POST /sandboxes$", say(b'{"sandboxID": 3}'), "names no sandbox")
        self.refused("POST /sandboxes$", do_not_end, "does not end")
        self.refused("POST /sandboxes$", hang_up, "does not answer")

    def test_answer_is_lost(self):
        """It was made all the same, and is found again."""
        self.refused("POST /sandboxes$", do_and_hang_up, "does not answer")
        self.assertTrue([s for s in self.proxy.seen if s.startswith("GET /v2/sandboxes?metadata")])

    def test_half_way(self):
        self.refused("POST /files", refuse(507, "no room"), "507.*no room", 429)
        self.refused("POST /files", hang_up, "put our program into its sandbox")
        start = "POST /process.Process/Start"
        self.refused(start, refuse(500, "no"), "run our program.*500")
        self.refused(start, hang_up, "run our program")
        self.refused(start, stream(b"\7garbage"), "not understood")
        self.refused(start, stream(b"\0\x7f\xff\xff\xff"), "not understood")
        self.refused(start, stream(envelope("{}", 2)), "ended")
        self.refused(start, stream(envelope('{"event":{"start":{"pid":7}}}') + envelope(
            '{"event":{"data":{"stderr":"bm90IGV4ZWN1dGFibGU="}}}') + envelope(
            '{"event":{"end":{"status":"exit status 126"}}}')),
            "exit status 126: not executable")
        self.refused(start, stream(envelope('{"event":{"start":{"pid":7}}}') + envelope(
            '{"event":{"data":{"stdout":"aGVsbG8gd29ybGQK"}}}')), "not our program")
        self.refused(start, stream(envelope('{"event":{"start":{"pid":-7}}}')), "no process")

    def other(self, url):
        """A daemon with another service."""
        key = os.path.join(self.b.dir, "key")
        daemon = harness.Daemon(config="pool_size: 0\nboot_retries: 0\n"
                                "e2b: {api_url: '%s', key_file: %s}\n" % (url, key)).start()
        self.addCleanup(daemon.remove)
        self.addCleanup(daemon.stop)
        return daemon

    def test_certificate_of_nobody(self):
        """TLS and names work behind the walls; a certificate must be known."""
        made = os.path.join(self.b.dir, "tls.pem")
        try:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout",
                            made, "-out", made + ".crt", "-days", "2", "-subj", "/CN=localhost"],
                           check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("openssl makes no certificate here")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made + ".crt", made)
        proxy = Proxy(self.b.port)
        proxy.socket = context.wrap_socket(proxy.socket, server_side=True)
        self.addCleanup(proxy.server_close)
        self.addCleanup(proxy.shutdown)
        daemon = self.other(proxy.url.replace("http://127.0.0.1", "https://localhost"))
        reply = daemon.post("/v1/sandboxes", {"provider": "e2b"})
        self.assertEqual(reply.status, 500, reply)
        self.assertRegex(reply.error["message"], "certificate")
        self.assertEqual(proxy.seen, [])

    def test_service_is_down(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        down = self.other("http://127.0.0.1:%d" % port)
        reply = down.post("/v1/sandboxes", {"provider": "e2b"})
        self.assertEqual(reply.status, 500, reply)
        self.assertRegex(reply.error["message"], "make a sandbox: the E2B service does not answer")
        self.assertEqual(down.post("/v1/run", {"cmd": ["echo", "here"]}).json["stdout"], "here\n")

    def test_ended_from_outside(self):
        box = self.box()
        there = self.there(box.id)[0]["id"]
        self.assertEqual(self.b.delete("/v1/sandboxes/" + there).status, 204)
        failed = until(lambda: (lambda s: s["state"] == "failed" and s)(box.get("").json), "failing")
        self.assertRegex(failed["reason"], "E2B service")
        self.assertError(box.exec("true"), 409)
        self.assertEqual(box.delete().status, 204)

    def test_link_is_cut(self):
        """Another one takes up what goes on."""
        box = self.box()
        eid = box.start(interactive=True, shell="read x; echo still; exit 5")
        self.proxy.rule("SendInput", hang_up)
        box.post("/execs/%d/stdin" % eid, {"text": "lost"})
        self.proxy.rules = []
        self.assertEqual(until(lambda: (lambda r: r.status == 200 and r.json)(
            box.exec("echo", "back")), "a new link")["stdout"], "back\n")
        self.assertEqual(box.post("/execs/%d/stdin" % eid, {"text": "\n"}).status, 204)
        ended = until(lambda: (lambda e: not e["running"] and e)(box.get("/execs/%d" % eid).json))
        self.assertEqual(ended["exit_code"], 5)

    def works(self, box):
        try:
            return box.exec("true").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def test_roles_are_killed(self):
        box = self.box()
        eid = box.start(interactive=True, shell="read x; exit 6")
        for name in ("remote", "front"):
            role = until(lambda: self.role(name), "the role")
            os.kill(role, signal.SIGKILL)
            until(lambda: not is_alive(role) and self.role(name), "another one")
            until(lambda: self.works(box), "a new link")
        self.assertEqual(box.post("/execs/%d/stdin" % eid, {"text": "\n"}).status, 204)
        ended = until(lambda: (lambda e: not e["running"] and e)(box.get("/execs/%d" % eid).json))
        self.assertEqual(ended["exit_code"], 6)

    def test_destroy_while_the_service_is_away(self):
        box = self.box()
        self.proxy.rule("DELETE", hang_up)
        threading.Timer(.5, setattr, (self.proxy, "rules", [])).start()
        self.assertEqual(box.delete().status, 204)
        self.assertEqual(self.there(box.id), [])


class Survival(Remote):
    def test_daemon_is_killed(self):
        box = self.box()
        eid = box.start(interactive=True, shell="read x; exit 8")
        paused = self.box()
        self.assertEqual(paused.post("/pause", {}).status, 200)
        self.a.process.kill()
        self.a.process.wait()
        self.a.start()
        self.assertEqual(box.get("").json["provider"], "e2b")
        until(lambda: box.exec("true").status == 200, "a new link")
        self.assertEqual(box.post("/execs/%d/stdin" % eid, {"text": "\n"}).status, 204)
        ended = until(lambda: (lambda e: not e["running"] and e)(box.get("/execs/%d" % eid).json))
        self.assertEqual(ended["exit_code"], 8)
        self.assertEqual(paused.get("").json["state"], "paused")
        self.assertEqual(paused.post("/resume", {}).status, 200)
        self.assertEqual(paused.sh("echo up")["stdout"], "up\n")
