"""Programs as people use them, inside a sandbox with a network: none of them knows of it, and none has a setting for it.

Each is tried with what a rule allows, with what none does, and, where it speaks HTTPS, with its connection inspected.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
import zipfile

import cl
import netlab

SSH_PORT, POSTGRES_PORT, REDIS_PORT, GRPC_PORT = 2222, 5433, 6379, 7051
NAMES = {"ssh.example.com": [netlab.WEB], "db.example.com": [netlab.WEB], "redis.example.com": [netlab.WEB]}
TRUST = "/etc/ssl/certs/ca-certificates.crt"

URLLIB = """
import sys, urllib.request
for url in sys.argv[1:]:
    print(urllib.request.urlopen(url, timeout=10).read().decode())
"""
REQUESTS = """
import sys, requests
for url in sys.argv[1:]:
    print(requests.get(url, timeout=10).text)
"""
FETCH = """
(async () => { for (const url of process.argv.slice(1)) console.log(await (await fetch(url)).text()); })()
  .catch((e) => { console.error(String(e), String(e.cause)); process.exit(1); });
"""
JAVA = """
import java.net.*; import java.io.*;
public class Get { public static void main(String[] a) throws Exception {
  for (String url : a) {
    URLConnection c = new URL(url).openConnection();
    c.setConnectTimeout(10000); c.setReadTimeout(10000);
    System.out.println(new String(c.getInputStream().readAllBytes())); } } }
"""
WEBSOCKET = r"""
import socket, ssl, sys
s = socket.create_connection(("example.com", int(sys.argv[1])), 10)
if sys.argv[1] == "443":
    s = ssl.create_default_context().wrap_socket(s, server_hostname="example.com")
s.sendall(b"GET /ws HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n")
f = s.makefile("rb")
print(f.readline().split()[1].decode())
while f.readline() != b"\r\n":
    pass
s.sendall(b"\x81\x85\0\0\0\0hello")
print(f.read(7)[2:].decode())
"""
GRPC_SERVER = r"""
import concurrent.futures, grpc, sys
class All(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method == "/lab.Echo/Many":
            return grpc.stream_stream_rpc_method_handler(lambda all, c: (b"<" + x + b">" for x in all))
        return grpc.unary_unary_rpc_method_handler(lambda x, c: b"<" + x + b">")
s = grpc.server(concurrent.futures.ThreadPoolExecutor(4), [All()])
key, leaf = (open(sys.argv[1] + "/leaf." + end, "rb").read() for end in ("key", "pem"))
s.add_insecure_port("[::]:" + sys.argv[2])
s.add_secure_port("[::]:" + sys.argv[3], grpc.ssl_server_credentials([(key, leaf)]))
s.start()
s.wait_for_termination()
"""
GRPC = r"""
import grpc, sys
at, tls = sys.argv[1], len(sys.argv) > 2
c = grpc.secure_channel(at, grpc.ssl_channel_credentials(open(sys.argv[2], "rb").read())) if tls else grpc.insecure_channel(at)
for call in (lambda: c.unary_unary("/lab.Echo/One")(b"one", timeout=10),
             lambda: b"".join(c.stream_stream("/lab.Echo/Many")(iter([b"a", b"b"]), timeout=10))):
    try:
        print(call().decode())
    except grpc.RpcError as e:
        print(e.code().name)
        print(e.details(), file=sys.stderr)
"""

# Programs that print what is at each of their arguments, or fail. Java has trust of its own, see below.
CLIENTS = {
    "curl": ("curl", ["curl", "-sSf", "-m", "10", "-w", "\\n"]),
    "wget": ("wget", ["sh", "-c", 'for a; do wget -qO- -t 1 -T 10 "$a" || exit; echo; done', ""]),
    "urllib": ("python3", ["/usr/bin/python3", "-c", URLLIB]),
    "requests": ("python3", ["/usr/bin/python3", "-c", REQUESTS]),
    "fetch": ("node", ["node", "-e", FETCH]),
}


def brief(rec):
    return {k: rec.get(k) for k in ("error", "status", "exit_code", "stdout", "stderr", "denials", "limits_hit") if rec.get(k)}


class Case(cl.Case):
    def setUp(self):
        super().setUp()
        self.lab = netlab.shared()
        self.lab.ask("names", names=NAMES)
        self.lab.ask("forget")
        self.lab.ask("dns", state="up")

    def record(self, *args, timeout=60, **kw):
        return self.lab.record("-t", "50s", *args, cwd=self.dir, timeout=timeout, **kw)

    def inside(self, options, *command, **kw):
        """The record of a command that must succeed."""
        rec = self.record(*options, "--", *command, **kw)
        self.assertEqual(rec.get("exit_code"), 0, brief(rec))
        return rec

    def not_inside(self, options, *command, wanted, **kw):
        """The record of a command that must fail, by itself and soon; wanted: the rule that would have helped."""
        rec = self.record(*options, "--", *command, **kw)
        self.assertNotIn(rec.get("exit_code"), (0, None), brief(rec))
        self.assertFalse(rec["timed_out"], brief(rec))
        said = [d["explain"] for d in rec["denials"]]
        self.assertTrue([s for s in said if s.endswith("--allow " + wanted)], brief(rec))
        return rec

    def client(self, name):
        program, command = CLIENTS[name]
        self.need_program(program)
        if name == "requests" and self.lab.command("/usr/bin/python3", "-c", "import requests").code:
            self.skipTest("python3-requests is not installed")
        return command

    def pages(self, rec):
        """What the web servers reflected."""
        found, at, text = [], 0, rec["stdout"]
        while "{" in text[at:]:
            page, at = json.JSONDecoder().raw_decode(text, text.index("{", at))
            found.append(page)
        return found

    def serve(self, *command, port, greeting=False, **kw):
        """Starts a server in the laboratory's internet and waits for its port."""
        p = cl.start(command=[*self.lab.internet, *command], **kw)
        self.addCleanup(self.end_server, p)
        end = time.monotonic() + 15
        while True:
            with contextlib.suppress(OSError), self.lab.connect(port, netlab.WEB, timeout=5) as s:
                if not greeting or s.recv(1):
                    return
            if p.poll() is not None or time.monotonic() > end:
                p.kill()
                raise AssertionError("%r: %r" % (command, p.communicate()))
            time.sleep(0.05)

    def end_server(self, p):
        p.terminate()
        try:
            p.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()


class Clients(Case):
    """HTTP and HTTPS by name, without a proxy setting."""

    def check(self, name):
        command = self.client(name)
        trust = ["--env", "NODE_EXTRA_CA_CERTS=" + TRUST, "--env", "REQUESTS_CA_BUNDLE=" + TRUST]
        rec = self.inside([*trust, "--allow", "example.com"], *command, "http://example.com/a", "https://example.com/b")
        self.assertEqual([(p["scheme"], p["host"], p["path"]) for p in self.pages(rec)],
                         [("http", "example.com", "/a"), ("https", "example.com", "/b")])  # fmt: skip
        self.assertEqual(rec["denials"], [])
        self.not_inside(["--allow", "example.com:80"], *command, "https://evil.com/", wanted="evil.com")
        self.not_inside(["--allow", "example.com:80"], *command, "https://example.com/", wanted="example.com:443")
        self.assertEqual([r for r in self.lab.ask("requests") if r["host"] == "evil.com" or r["path"] == "/"], [])

    def check_inspected(self, name):
        """Methods and paths of HTTPS: the program trusts the sandbox's CA by itself."""
        command = self.client(name)
        rules = ["--allow", "example.com:443 GET /v1"]
        rec = self.inside(rules, *command, "https://example.com/v1/a")
        self.assertEqual([p["path"] for p in self.pages(rec)], ["/v1/a"])
        rec = self.record(*rules, "--", *command, "https://example.com/v2")
        self.assertNotIn('"scheme"', rec["stdout"])
        self.assertIn("/v2", json.dumps(rec["denials"]), brief(rec))
        self.assertEqual([r["path"] for r in self.lab.ask("requests")], ["/v1/a"])


for _name in CLIENTS:
    setattr(Clients, "test_" + _name, lambda self, n=_name: self.check(n))
    setattr(Clients, "test_%s_inspected" % _name, lambda self, n=_name: self.check_inspected(n))


class Java(Case):
    def setUp(self):
        super().setUp()
        self.need_program("javac")
        self.write("Get.java", JAVA)
        subprocess.run(["javac", "Get.java"], cwd=self.dir, check=True, timeout=60)

    def test_java(self):
        run = ["java", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m", "-cp", ".", "Get"]
        rec = self.inside(["--allow", "example.com"], *run, "http://example.com/a")
        self.assertEqual(self.pages(rec)[0]["path"], "/a")
        self.not_inside(["--allow", "example.com"], *run, "http://evil.com/", wanted="evil.com")

    def test_java_inspected(self):
        run = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", ".", "Get"]
        rec = self.inside(["--allow", "example.com inspect"], *run, "https://example.com/b")
        self.assertEqual(self.pages(rec)[0]["path"], "/b")


class Methods(Case):
    """curl, whose messages say most."""

    def curl(self, *args):
        self.need_program("curl")
        return ["curl", "-sS", "-m", "10", *args]

    def test_by_method(self):
        rules = ["--allow", "example.com:80 GET,HEAD"]
        self.inside(rules, *self.curl("-f", "http://example.com/a"))
        rec = self.inside(rules, *self.curl("-d", "x", "http://example.com/b"))
        self.assertIn("Refused by the sandbox's network", rec["stdout"])
        self.assertIn("--allow 'example.com:80 POST", rec["stdout"])
        self.assertIn("POST /b", rec["denials"][0]["explain"])
        self.assertEqual([r["path"] for r in self.lab.ask("requests")], ["/a"])

    def test_by_method_over_https(self):
        rules = ["--allow", "example.com:443 GET"]
        self.inside(rules, *self.curl("-f", "https://example.com/a"))
        rec = self.inside(rules, *self.curl("-d", "x", "https://example.com/b"))
        self.assertIn("Refused by the sandbox's network", rec["stdout"])
        self.assertIn("POST /b", json.dumps(rec["denials"]))
        self.assertEqual([(r["path"], r["scheme"]) for r in self.lab.ask("requests")], [("/a", "https")])

    def test_explicit_proxies(self):
        """Programs that have a proxy setting may use it."""
        for proxy in ("http://198.19.255.254:3128", "socks5h://198.19.255.254:1080"):
            rec = self.inside(["--allow", "example.com"], *self.curl("-f", "-x", proxy, "http://example.com/p", "https://example.com/q"))
            self.assertEqual([p["path"] for p in self.pages(rec)], ["/p", "/q"])
            self.not_inside(["--allow", "example.com"], *self.curl("-x", proxy, "https://evil.com/"), wanted="evil.com:443")

    def test_http2(self):
        self.need_program("node")
        port = self.lab.ask("http2")
        url = "https://example.com:%d/x" % port
        for rule in ("example.com:%d" % port, "example.com:%d inspect" % port):
            rec = self.inside(["--allow", rule], *self.curl("-f", "--http2", url))
            self.assertEqual(json.loads(rec["stdout"])["version"], "2.0", rule)
        rec = self.inside(["--allow", "example.com:%d GET" % port], *self.curl("--http2", "-d", "x", url))
        self.assertIn("Refused by the sandbox's network", rec["stdout"])
        self.assertIn("POST /x", json.dumps(rec["denials"]))

    def test_grpc(self):
        """With TLS and without; by name, and by method."""
        if self.lab.command("/usr/bin/python3", "-c", "import grpc").code:
            self.skipTest("python3-grpcio is not installed")
        plain, tls = "example.com:%d" % GRPC_PORT, "example.com:%d" % (GRPC_PORT + 1)
        self.serve("/usr/bin/python3", "-c", GRPC_SERVER, self.lab.dir, str(GRPC_PORT), str(GRPC_PORT + 1), port=GRPC_PORT)
        call = lambda rule, at, *more: self.inside(["--allow", rule], "/usr/bin/python3", "-c", GRPC, at, *more)["stdout"].split()
        for rule, *args in ((plain, plain), (tls, tls, TRUST), (tls + " inspect", tls, TRUST)):
            self.assertEqual(call(rule, *args), ["<one>", "<a><b>"], rule)
        for at, *more in ((plain,), (tls, TRUST)):
            self.assertEqual(call(at + " POST /lab.Echo/One", at, *more), ["<one>", "PERMISSION_DENIED"], at)
        self.assertEqual(call("example.com:1", plain), ["UNAVAILABLE"] * 2)
        # The name that a channel gives itself is not that of its connection.
        other = GRPC.replace("insecure_channel(at)", "insecure_channel(at, [('grpc.default_authority', 'evil.com')])")
        rec = self.inside(["--allow", plain], "/usr/bin/python3", "-c", other, plain)
        self.assertEqual(rec["stdout"].split(), ["PERMISSION_DENIED"] * 2)
        self.assertIn("the request is for", json.dumps(rec["denials"]))
        self.assertIn("Refused by the sandbox's network: the request is for \"evil.com", rec["stderr"])
        # The server speaks first, but not to the client.
        early = "import select, socket; s = socket.create_connection(('example.com', %d)); print(select.select([s], [], [], 0.5)[0])"
        rec = self.record("--allow", plain, "--", *cl.py(early % GRPC_PORT))
        self.assertEqual(rec["stdout"], "[]\n")

    def test_websocket(self):
        for rule, port in (("example.com:80", 80), ("example.com:443", 443), ("example.com:443 inspect", 443)):
            rec = self.inside(["--allow", rule], "/usr/bin/python3", "-c", WEBSOCKET, str(port))
            self.assertEqual(rec["stdout"], "101\nhello\n", rule)

    def test_budgets(self):
        url = "http://example.com/"
        for option, amount, command, reason in (
            ("--net-tx", "20k", ["-f", "--data-binary", "@large", url + "echo"], "tx"),
            ("--net-rx", "20k", ["-f", url + "large?n=200000", "-o", "/dev/null"], "rx"),
            ("--net-requests", "4", ["-f", *[url + str(i) for i in range(6)]], "requests"),
            ("--net-connections", "2", ["-f", "-H", "Connection: close", *[url + str(i) for i in range(4)]], "connections"),
            ("--net-names", "2", ["-f", *["http://n%d.example.com/" % i for i in range(4)]], "names"),
        ):
            with self.subTest(option):
                self.write("large", b"x" * 100000)
                rules = ["--allow", "example.com", "--allow", "*.example.com", option, amount]
                rec = self.record(*rules, "--", *self.curl(*command))
                self.assertNotIn(rec.get("exit_code"), (0, None), brief(rec))
                self.assertTrue([d for d in rec["denials"] if reason in d["explain"]], brief(rec))
                self.inside(rules, *self.curl("-f", url))

    def test_rate(self):
        """A bucket holds a tenth of a second's worth, so the rest takes its time."""
        begun = time.monotonic()
        self.inside(["--allow", "example.com", "--net-rate", "1MB"], *self.curl("-f", "-o", "/dev/null", "http://example.com/large?n=800000"))
        self.assertGreater(time.monotonic() - begun, 0.5)


class Git(Case):
    def setUp(self):
        super().setUp()
        self.need_program("git")
        self.repository = os.path.join(self.lab.dir, "git", "%s.git" % self.id().split(".")[-1])
        work = self.mkdir("work")
        self.write("work/file", "content\n")
        env = cl.caller_env(GIT_CONFIG_GLOBAL="/dev/null")
        who = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
        for command in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "first"],
                        ["clone", "-q", "--bare", ".", self.repository]):  # fmt: skip
            subprocess.run(["git", *command], cwd=work, env=env, check=True, timeout=30)
        subprocess.run(["git", "config", "http.receivepack", "true"], cwd=self.repository, check=True)
        self.addCleanup(shutil.rmtree, self.repository)
        self.url = "%s://github.com/git/" + os.path.basename(self.repository)

    def git(self, *args):
        return ["env", "GIT_TERMINAL_PROMPT=0", "git", *args]

    def test_clone_and_push(self):
        for scheme in ("http", "https"):
            push = "git clone -q %s c && cd c && cat file && git -c user.name=n -c user.email=e@example.com commit " \
                   "-q --allow-empty -m %s && git push -q origin main && rm -rf ../c" % (self.url % scheme, scheme)  # fmt: skip
            rec = self.inside(["--allow", "github", "--allow", "github.com:80"], "sh", "-c", push)
            self.assertEqual(rec["stdout"], "content\n")
        log = subprocess.run(["git", "log", "--format=%s"], cwd=self.repository, capture_output=True, text=True)
        self.assertEqual(log.stdout, "https\nhttp\nfirst\n")
        rec = self.not_inside(["--allow", "example.com"], *self.git("clone", "-q", self.url % "https", "d"), wanted="github.com")
        self.assertIn("Could not resolve host", rec["stderr"])

    def test_clone_but_no_push(self):
        """By method and path, which opens TLS; git trusts the sandbox's CA."""
        rules = ["--allow", "github.com:443 GET", "--allow", "github.com:443 POST " + "/git/%s/git-upload-pack" % os.path.basename(self.repository)]
        push = "git clone -q %s c && cat c/file && cd c && git -c user.name=n -c user.email=e@example.com commit " \
               "-q --allow-empty -m x && git push -q origin main" % (self.url % "https")  # fmt: skip
        rec = self.record(*rules, "--", "sh", "-c", push)
        self.assertEqual(rec["stdout"], "content\n", brief(rec))
        self.assertNotEqual(rec["exit_code"], 0)
        self.assertIn("git-receive-pack", json.dumps(rec["denials"]))


class Packages(Case):
    """From mirrors that the laboratory has for the real names."""

    def test_pip(self):
        self.need_program("pip3")
        wheel = io.BytesIO()
        with zipfile.ZipFile(wheel, "w") as z:
            z.writestr("labpkg.py", "VALUE = 7\n")
            z.writestr("labpkg-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: labpkg\nVersion: 1.0\n")
            z.writestr("labpkg-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            z.writestr("labpkg-1.0.dist-info/RECORD", "")
        file = "labpkg-1.0-py3-none-any.whl"
        digest = hashlib.sha256(wheel.getvalue()).hexdigest()
        self.lab.publish("files.pythonhosted.org", "packages/" + file, wheel.getvalue())
        self.lab.publish("pypi.org", "simple/labpkg/index.html",
                         '<a href="https://files.pythonhosted.org/packages/%s#sha256=%s">%s</a>' % (file, digest, file))  # fmt: skip
        pip = ["/usr/bin/python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "0",
               "--no-cache-dir", "--root-user-action=ignore", "--target", "t", "labpkg"]  # fmt: skip
        use = ["sh", "-c", '"$@" && PYTHONPATH=t python3 -S -c "import labpkg; print(labpkg.VALUE)"', "", *pip]
        self.assertEqual(self.inside(["--allow", "pypi"], *use)["stdout"], "7\n")
        self.not_inside(["--allow", "npm"], *pip, wanted="pypi.org")
        self.assertEqual(self.inside(["--allow", "pypi.org inspect", "--allow", "files.pythonhosted.org inspect"], *use)["stdout"], "7\n")

    def test_npm(self):
        self.need_program("npm")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as t:
            for name, text in (("package.json", '{"name":"labpkg","version":"1.0.0","main":"i.js"}'), ("i.js", "module.exports = 7;")):
                member = tarfile.TarInfo("package/" + name)
                member.size = len(text)
                t.addfile(member, io.BytesIO(text.encode()))
        at = "https://registry.npmjs.org/files/labpkg-1.0.0.tgz"
        self.lab.publish("registry.npmjs.org", "files/labpkg-1.0.0.tgz", packed.getvalue())
        version = {"name": "labpkg", "version": "1.0.0",
                   "dist": {"tarball": at, "shasum": hashlib.sha1(packed.getvalue()).hexdigest()}}  # fmt: skip
        self.lab.publish("registry.npmjs.org", "labpkg/index.html",
                         json.dumps({"name": "labpkg", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))  # fmt: skip
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=0",
               "--cache", "cache", "labpkg"]  # fmt: skip
        use = ["sh", "-c", '"$@" && node -p "require(\'labpkg\')"', "", *npm]
        trust = ["--env", "NODE_EXTRA_CA_CERTS=" + TRUST]
        self.assertTrue(self.inside([*trust, "--allow", "npm"], *use)["stdout"].endswith("7\n"))
        self.not_inside([*trust, "--allow", "pypi"], *npm, wanted="registry.npmjs.org")
        self.assertTrue(self.inside(["--allow", "registry.npmjs.org inspect"], *use)["stdout"].endswith("7\n"))

    def test_apt(self):
        for program in ("apt-get", "dpkg-deb"):
            self.need_program(program)
        self.write("deb/DEBIAN/control", "Package: labpkg\nVersion: 1.0\nArchitecture: all\nMaintainer: n <e@example.com>\n"
                                         "Description: nothing\n")  # fmt: skip
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", "deb", "labpkg.deb"], cwd=self.dir, check=True,
                       capture_output=True, timeout=30)  # fmt: skip
        with open(self.path("labpkg.deb"), "rb") as f:
            deb = f.read()
        self.lab.publish("deb.debian.org", "debian/pool/labpkg.deb", deb)
        index = "Package: labpkg\nVersion: 1.0\nArchitecture: all\nFilename: pool/labpkg.deb\nSize: %d\nSHA256: %s\n\n" % (
            len(deb), hashlib.sha256(deb).hexdigest())  # fmt: skip
        here = "debian/dists/lab/"
        self.lab.publish("deb.debian.org", here + "main/binary-all/Packages", index)
        self.lab.publish("deb.debian.org", here + "Release", "Suite: lab\nCodename: lab\nArchitectures: all\nComponents: main\nSHA256:\n"
                         " %s %d main/binary-all/Packages\n" % (hashlib.sha256(index.encode()).hexdigest(), len(index)))  # fmt: skip
        self.write("sources.list", "deb [trusted=yes arch=all] http://deb.debian.org/debian lab main\n")
        apt = ("mkdir -p s/lists/partial c/archives/partial && touch s/status && set -- -q -o Dir::State=$PWD/s -o "
               "Dir::State::status=$PWD/s/status -o Dir::Cache=$PWD/c -o Dir::Etc::sourcelist=$PWD/sources.list -o "
               "Dir::Etc::sourceparts=/none -o APT::Sandbox::User=$(id -un 2>/dev/null || echo root) -o Acquire::Retries=0 && "
               "apt-get \"$@\" update && apt-get \"$@\" download labpkg && ls labpkg_*.deb")  # fmt: skip
        self.inside(["--allow", "debian"], "sh", "-c", "rm -f labpkg_*; " + apt)
        # apt takes a source that it cannot reach for a warning.
        self.not_inside(["--allow", "pypi"], "sh", "-c", apt.replace("update", "update -o APT::Update::Error-Mode=any"),
                        wanted="deb.debian.org")  # fmt: skip


class Protocols(Case):
    """What is not HTTP, by name and port."""

    def test_dig(self):
        self.need_program("dig")
        for server in ([], ["@9.9.9.9"]):
            rec = self.inside(["--net", "public"] if server else ["--allow", "example.com"],
                              "dig", "+short", "+tries=1", "+time=5", *server, "example.com")  # fmt: skip
            self.assertRegex(rec["stdout"], r"^198\.1[89]\.\d+\.\d+\n$")
        rec = self.inside(["--allow", "example.com"], "dig", "+tries=1", "+time=5", "evil.com")
        self.assertIn("NXDOMAIN", rec["stdout"])
        self.assertEqual(rec["denials"][0]["target"], "evil.com")
        self.assertEqual(self.lab.ask("queries"), [])

    def test_redis(self):
        for program in ("redis-server", "redis-cli"):
            self.need_program(program)
        self.serve("redis-server", "--port", str(REDIS_PORT), "--protected-mode", "no", "--save", "", "--daemonize", "no",
                   port=REDIS_PORT)  # fmt: skip
        cli = ["redis-cli", "-h", "redis.example.com", "-p", str(REDIS_PORT)]
        rec = self.inside(["--allow", "redis.example.com:%d" % REDIS_PORT], "sh", "-c",
                          '"$@" set k v && "$@" get k', "", *cli)  # fmt: skip
        self.assertEqual(rec["stdout"], "OK\nv\n")
        self.not_inside(["--allow", "redis.example.com:1"], *cli, "get", "k", wanted="redis.example.com:%d" % REDIS_PORT)

    def test_ssh(self):
        self.need_root("starts sshd")
        for program in ("sshd", "ssh", "ssh-keygen"):
            self.need_program(program)
        for name in ("host", "id"):
            subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", self.path(name)], check=True, timeout=20)
        sshd = "mount -t tmpfs none /run && mkdir /run/sshd && exec %s -D -e -p %d -h %s -o AuthorizedKeysFile=%s " \
               "-o StrictModes=no -o PermitRootLogin=yes -o UsePAM=no -o PidFile=none -f /dev/null"  # fmt: skip
        self.serve("unshare", "--mount", "sh", "-c", sshd % (self.need_program("sshd"), SSH_PORT, self.path("host"), self.path("id.pub")),
                   port=SSH_PORT, greeting=True)  # fmt: skip
        os.chmod(self.path("id"), 0o600)
        ssh = ["ssh", "-F", "/dev/null", "-i", "id", "-p", str(SSH_PORT), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
               "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "root@ssh.example.com", "echo from the other side"]  # fmt: skip
        rec = self.inside(["--allow", "ssh.example.com:%d" % SSH_PORT], *ssh)
        self.assertEqual(rec["stdout"], "from the other side\n")
        self.not_inside(["--allow", "ssh.example.com:443"], *ssh, wanted="ssh.example.com:%d" % SSH_PORT)

    def test_psql(self):
        self.need_root("has a server started by another user")
        self.need_program("psql")
        homes = [d for d in sorted(os.listdir("/usr/lib/postgresql"))] if os.path.isdir("/usr/lib/postgresql") else []
        binaries = "/usr/lib/postgresql/%s/bin" % homes[-1] if homes else ""
        if not os.access(binaries + "/initdb", os.X_OK):
            self.skipTest("postgresql is not installed")
        data = self.mkdir("data")
        shutil.chown(data, "nobody")
        who = ["setpriv", "--reuid", "nobody", "--clear-groups"]
        subprocess.run([*who, binaries + "/initdb", "-N", "-D", data, "-A", "trust", "-U", "me"], check=True, timeout=60,
                       capture_output=True, cwd="/")  # fmt: skip
        with open(data + "/pg_hba.conf", "a", encoding="ascii") as out:
            out.write("host all all all trust\n")
        self.serve(*who, binaries + "/postgres", "-D", data, "-p", str(POSTGRES_PORT), "-c", "listen_addresses=*",
                   "-c", "unix_socket_directories=", port=POSTGRES_PORT)  # fmt: skip
        psql = ["psql", "-h", "db.example.com", "-p", str(POSTGRES_PORT), "-U", "me", "-d", "postgres", "-Atc", "select 6 * 7"]
        rec = self.inside(["--allow", "db.example.com:%d" % POSTGRES_PORT], *psql)
        self.assertEqual(rec["stdout"], "42\n")
        self.not_inside(["--allow", "db.example.com:5432"], *psql, wanted="db.example.com:%d" % POSTGRES_PORT)


class Browser(Case):
    def test_chromium(self):
        self.need_program("chromium")
        chromium = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=profile",
                    "--ignore-certificate-errors", "--no-first-run", "--timeout=20000", "--virtual-time-budget=5000", "--dump-dom"]  # fmt: skip
        rec = self.inside(["--allow", "example.com", "--memory", "2G", "--pids", "500"], *chromium, "https://example.com/page")
        self.assertIn("/page", rec["stdout"])
        rec = self.record("--allow", "example.com", "--memory", "2G", "--pids", "500", "--", *chromium, "https://evil.com/page")
        self.assertNotIn('"/page"', rec["stdout"])
        self.assertIn("evil.com", [d["target"] for d in rec["denials"]])
