"""`cloche image pull`: from a registry that we are, honest or not, and from the one that Debian packages."""

import base64
import http.server
import json
import os
import signal
import socket
import socketserver
import subprocess
import threading
import unittest

import cl
import images
from images import entry, layer


class Registry(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Blobs and manifests by digest, tags; `seen` has (method, path, headers) of every request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.blobs, self.tags, self.seen = {}, {}, []
        self.auth = None  # "basic" or "bearer"
        self.change = lambda handler, digest, data: False  # True: it has answered
        self.host = "127.0.0.1:%d" % self.server_address[1]
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, *args):
        """A client that has seen enough closes the connection."""

    def push(self, layout, tag):
        for name in os.listdir(os.path.join(layout.path, "blobs/sha256")):
            with open(os.path.join(layout.path, "blobs/sha256", name), "rb") as file:
                self.blobs["sha256:" + name] = file.read()
        index = json.dumps(layout.index).encode()
        self.blobs[images.digest(index)] = index
        self.tags[tag] = images.digest(index)

    def paths(self):
        return [path for _, path, _ in self.seen]

    def stop(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, data=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def is_allowed(self):
        s = self.server
        have = self.headers.get("Authorization", "")
        want = {
            None: have,
            "basic": "Basic " + base64.b64encode(b"me:secret").decode(),
            "bearer": "Bearer good",
        }[s.auth]
        if have == want:
            return True
        challenge = (
            'Basic realm="here"'
            if s.auth == "basic"
            else f'Bearer realm="http://{s.host}/token",service="the service",scope="repository:a/b:pull"'
        )
        self.answer(401, WWW_Authenticate=challenge)
        return False

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.seen.append(("POST", self.path, dict(self.headers, body=body)))
        self.answer(200, b'{"access_token":"good"}' if "refresh_token=identity" in body else b"{}")

    def do_GET(self):
        s = self.server
        s.seen.append(("GET", self.path, dict(self.headers)))
        path = self.path.split("?")[0]
        if path == "/token":
            basic = "Basic " + base64.b64encode(b"me:secret").decode()
            good = self.headers.get("Authorization") == basic
            return self.answer(200 if good else 401, b'{"token":"good"}')
        if path.startswith("/elsewhere/"):
            return self.answer(200, s.blobs[path[11:]])
        if not self.is_allowed():
            return None
        name = path.split("/")[-1]
        name = s.tags.get(name, name)
        if name not in s.blobs:
            return self.answer(404)
        if s.change(self, name, s.blobs[name]):
            return None
        return self.answer(200, s.blobs[name])


@unittest.skipUnless(os.path.exists(images.BUSYBOX), "needs " + images.BUSYBOX)
class Pulling(cl.Case):
    def setUp(self):
        super().setUp()
        self.state = self.mkdir("state")
        self.mkdir("docker")
        self.env = cl.caller_env(CLOCHE_STATE_DIR=self.state, DOCKER_CONFIG=self.path("docker"))
        self.registry = Registry()
        self.addCleanup(self.registry.stop)
        self.layers = [layer(entry("x", data=b"1\n")), layer(entry("big", data=os.urandom(1 << 20)))]
        self.layout = images.Layout(self.mkdir("layout"), self.layers)
        self.registry.push(self.layout, "1")
        self.big = [d for d, b in self.registry.blobs.items() if len(b) > 1 << 20][0]
        self.name = self.registry.host + "/a/b:1"

    def pull(self, name=None, *more):
        return cl.run("image", "pull", *more, name or self.name, env=self.env)

    def good(self, r, name=None):
        self.assertEqual((r.code, r.out), (0, f"{self.layout.id} {name or self.name}\n"), str(r))

    def bad(self, r, says):
        self.assertEqual(r.code, 125, str(r))
        self.assertIn(says, r.err)
        store = os.path.join(self.state, "images")
        self.assertEqual(os.listdir(os.path.join(store, "images")), [])
        self.assertEqual(os.listdir(os.path.join(store, "tmp")), [])


class Pull(Pulling):
    def test_an_image(self):
        self.good(self.pull())
        rows = json.loads(cl.run("image", "ls", "--json", env=self.env).out)["images"]
        self.assertEqual(rows[0]["digest"], self.registry.tags["1"])
        self.assertEqual(rows[0]["layers"], 2)
        before = len(self.registry.seen)
        self.good(self.pull())
        self.assertEqual([p for p in self.registry.paths()[before:] if self.big in p], [])

    def test_by_digest(self):
        name = f"{self.registry.host}/a/b@{self.layout.manifest['digest']}"
        self.good(self.pull(name), name)

    def test_basic(self):
        self.registry.auth = "basic"
        self.bad(self.pull(), "login")
        auth = base64.b64encode(b"me:secret").decode()
        self.write("docker/config.json", json.dumps({"auths": {self.registry.host: {"auth": auth}}}))
        self.good(self.pull())

    def test_bearer_with_a_helper(self):
        self.registry.auth = "bearer"
        self.write("docker/config.json", json.dumps({"credHelpers": {self.registry.host: "test"}}))
        self.write(
            "bin/docker-credential-test",
            '#!/bin/sh\nread -r host\nprintf \'{"ServerURL":"%s","Username":"me","Secret":"secret"}\' "$host"\n',
            0o755,
        )
        self.env["PATH"] = self.path("bin") + ":" + self.env["PATH"]
        self.good(self.pull())
        token = [p for p in self.registry.paths() if p.startswith("/token")][0]
        self.assertIn("service=the%20service", token)
        self.assertIn("scope=repository%3Aa%2Fb%3Apull", token)

    def test_bearer_with_an_identity_token(self):
        self.registry.auth = "bearer"
        auths = {self.registry.host: {"identitytoken": "identity"}}
        self.write("docker/config.json", json.dumps({"auths": auths}))
        self.good(self.pull())

    def redirected(self, path):
        """The big blob is at another host; the caller has a login for the registry."""
        other = Registry()
        self.addCleanup(other.stop)
        other.blobs = self.registry.blobs

        def elsewhere(handler, digest, data):
            if digest != self.big:
                return False
            handler.answer(307, Location=f"http://{other.host}/{path}/{digest}")
            return True

        self.registry.auth = "basic"
        self.registry.change = elsewhere
        auth = base64.b64encode(b"me:secret").decode()
        self.write("docker/config.json", json.dumps({"auths": {self.registry.host: {"auth": auth}}}))
        return other

    def test_a_redirect_gets_no_authorization(self):
        other = self.redirected("elsewhere")
        self.good(self.pull())
        self.assertEqual(len(other.seen), 1)
        self.assertNotIn("Authorization", other.seen[0][2])

    def test_a_redirect_that_asks_for_a_login_gets_none(self):
        other = self.redirected("v2/a/b/blobs")
        other.auth = "bearer"
        self.bad(self.pull(), "status 401")
        self.assertEqual([p.split("/")[1] for p in other.paths()], ["v2"])
        self.assertNotIn("Authorization", other.seen[0][2])

    def cut(self, then):
        """The big blob breaks off in its middle; the next request for it gets an answer by `then`."""
        asked = []

        def change(handler, digest, data):
            if digest != self.big:
                return False
            asked.append(handler.headers.get("Range"))
            if len(asked) > 1:
                return then(handler, data)
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[:700000])
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return True

        self.registry.change = change
        self.good(self.pull())
        return asked

    def test_resumes(self):
        def part(handler, data):
            start = int(handler.headers["Range"][len("bytes=") : -1])
            handler.answer(206, data[start:], Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")
            return True

        asked = self.cut(part)
        self.assertEqual(len(asked), 2)
        self.assertGreater(int(asked[1][len("bytes=") : -1]), 0)

    def test_starts_again(self):
        self.assertEqual(len(self.cut(lambda handler, data: False)), 2)

    def test_a_registry_that_is_busy(self):
        count = []

        def busy(handler, digest, data):
            count.append(digest)
            return len(count) < 3 and handler.answer(503 if len(count) == 1 else 429) is None

        self.registry.change = busy
        self.good(self.pull())

    def lie(self, of, data):
        def change(handler, digest, real):
            if digest != of:
                return False
            handler.answer(200, data(real) if callable(data) else data)
            return True

        self.registry.change = change

    def test_lies(self):
        for of, data, says in (
            (self.big, lambda d: d[:-1] + bytes([d[-1] ^ 1]), "something else"),
            (self.big, lambda d: d + b"x", "more than it said"),
            (self.layout.manifest["digest"], lambda d: d + b" ", "something else"),
            (self.layout.id, lambda d: d.replace(b"linux", b"plan9"), "something else"),
            (self.registry.tags["1"], b"[" * 100000, "no JSON"),
            (self.registry.tags["1"], b" " * (5 << 20), "more than it said"),
            (self.registry.tags["1"], b"{}", "unknown kind"),
        ):
            with self.subTest(says=says, of=of[:20]):
                self.lie(of, data)
                self.bad(self.pull(), says)

    def test_a_layer_of_any_size(self):
        def large(manifest, layout):
            manifest["layers"][1]["size"] = 21 << 30

        self.layout = images.Layout(self.mkdir("large"), self.layers, change=large)
        self.registry.push(self.layout, "1")
        self.bad(self.pull(), "larger than 20 GB")

    def test_an_index_without_end(self):
        loop = dict(self.layout.index)
        data = json.dumps(loop).encode()
        for n in range(6):
            loop["manifests"] = [dict(self.layout.manifest, digest=images.digest(data), size=len(data))]
            self.registry.blobs[images.digest(data)] = data
            data = json.dumps(loop).encode()
        self.registry.blobs[images.digest(data)] = data
        self.registry.tags["1"] = images.digest(data)
        self.bad(self.pull(), "too deep")

    def test_another_platform_only(self):
        other = [dict(self.layout.manifest, platform={"os": "linux", "architecture": "m68k"})]
        data = json.dumps({"schemaVersion": 2, "manifests": other}).encode()
        self.registry.blobs[images.digest(data)] = data
        self.registry.tags["1"] = images.digest(data)
        self.bad(self.pull(), "platform")

    def test_mirrors(self):
        name = "registry.invalid/a/b:1"
        self.good(self.pull(name, "--mirror", self.registry.host), name)
        self.assertIn("?ns=registry.invalid", self.registry.paths()[0])

    def test_plain_http_needs_leave(self):
        """Another host is asked by TLS only."""
        for host in ("registry.invalid", "127.registry.invalid", "localhost.invalid"):
            self.bad(self.pull(host + "/a/b:1"), "https://" + host)
        self.assertEqual(self.registry.seen, [])

    def test_killed(self):
        stopped = threading.Event()
        reached = threading.Event()

        def wait(handler, digest, data):
            if digest != self.big:
                return False
            reached.set()
            stopped.wait(20)
            return True

        self.registry.change = wait
        p = cl.start("image", "pull", self.name, env=self.env)
        self.assertTrue(reached.wait(20))
        p.send_signal(signal.SIGKILL)
        p.communicate()
        stopped.set()
        store = os.path.join(self.state, "images")
        self.assertEqual(os.listdir(os.path.join(store, "images")), [])
        self.registry.change = lambda *args: False
        self.good(self.pull())
        self.assertEqual(os.listdir(os.path.join(store, "tmp")), [])


class Packaged(Pulling):
    """Debian's docker-registry, and what skopeo pushes there."""

    def test_what_skopeo_pushed(self):
        self.need_program("docker-registry")
        self.need_program("skopeo")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            host = "127.0.0.1:%d" % s.getsockname()[1]
        self.write(
            "registry.yml",
            f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {self.path('blobs')}}}}}\n"
            f"http: {{addr: '{host}'}}\n",
        )
        server = subprocess.Popen(
            ["docker-registry", "serve", self.path("registry.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            cl.wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", int(host.split(":")[1]))) == 0)
            with open(os.path.join(self.layout.path, "index.json"), "w", encoding="ascii") as out:
                json.dump(dict(self.layout.index, manifests=self.layout.index["manifests"][1:]), out)
            cl.command(
                "skopeo", "copy", "-q", "--insecure-policy", "--dest-tls-verify=false", f"oci:{self.layout.path}:latest",
                f"docker://{host}/a/b:1", env=dict(os.environ, HOME=self.dir, TMPDIR=self.dir),
            )
            self.good(self.pull(host + "/a/b:1"), host + "/a/b:1")
        finally:
            server.kill()
            server.wait()


del Pulling
