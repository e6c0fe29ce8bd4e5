"""The door that speaks Docker's Engine API, through the docker command and through bare requests."""

import json
import os
import shutil
import socket
import struct
import subprocess
import time
import unittest

import harness
import images

DOCKER = shutil.which("docker")
CONFIG = "docker: true\n"
TOOLS = ("echo", "false", "head", "hostname", "kill", "ln", "md5sum", "mkdir", "nc", "ps", "seq", "sleep", "stty", "tar", "true")
_daemon = None


def daemon():
    global _daemon
    if _daemon is None:
        _daemon = harness.Daemon(config=CONFIG).start()
        _daemon.put("/v1/images?name=bb:1", root_archive())
    return _daemon


def root_archive():
    return images.layer(*images.shell_entries(), *[images.link("bin/" + name, "busybox") for name in TOOLS],
                        images.directory("srv"), images.directory("tmp", mode=0o1777))


def tearDownModule():
    global _daemon
    if _daemon:
        _daemon.stop()
        _daemon.remove()
    _daemon = None


class Door(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.d = daemon()
        cls.path = os.path.join(cls.d.dir, "run", "docker.sock")

    def request(self, method, path, body=None):
        connection = harness.UnixConnection(self.path, harness.DEADLINE)
        self.addCleanup(connection.close)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
        return harness.Response(connection.getresponse())

    def create(self, *cmd, **more):
        name = more.pop("name", None)
        r = self.request("POST", "/v1.47/containers/create" + ("?name=" + name if name else ""),
                         dict({"Image": "bb:1", "Cmd": list(cmd)}, **more))
        self.assertEqual(r.status, 201, r)
        self.addCleanup(self.request, "DELETE", f"/containers/{r.json['Id']}?force=1")
        return r.json["Id"]

    def refused(self, status, text, **more):
        r = self.request("POST", "/containers/create", dict({"Image": "bb:1", "Cmd": ["true"]}, **more))
        self.assertEqual(r.status, status, r)
        self.assertIn(text, r.json["message"])

    def hijack(self, path, body=None):
        """A connection that was taken over, after its head."""
        s = socket.socket(socket.AF_UNIX)
        self.addCleanup(s.close)
        s.settimeout(harness.DEADLINE)
        s.connect(self.path)
        text = json.dumps(body) if body is not None else ""
        s.sendall((f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                   f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}").encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = s.recv(1)
            self.assertTrue(piece, head)
            head += piece
        self.assertTrue(head.startswith(b"HTTP/1.1 101"), head)
        return s


def read_all(s):
    data = b""
    while True:
        piece = s.recv(65536)
        if not piece:
            return data
        data += piece


def frames(data):
    """Pairs of kind and bytes."""
    found = []
    while data:
        kind, size = struct.unpack(">BxxxI", data[:8])
        found.append((kind, data[8:8 + size]))
        data = data[8 + size:]
    return found


def joined(data):
    both = {1: b"", 2: b""}
    for kind, text in frames(data):
        both[kind] += text
    return both


class Requests(Door):
    def test_versions(self):
        for path in ("/_ping", "/v1.24/_ping", "/v1.99/_ping"):
            r = self.request("GET", path)
            self.assertEqual((r.status, r.body), (200, b"OK"))
            self.assertEqual(r.headers["Api-Version"], "1.47")
            self.assertEqual(r.headers["Ostype"], "linux")
        self.assertEqual(self.request("HEAD", "/_ping").body, b"")
        self.assertEqual(self.request("GET", "/version").json["ApiVersion"], "1.47")
        for path in ("/nothing", "/v1.47/nothing", "/v1/sandboxes", "/healthz", "/sandboxes"):
            r = self.request("GET", path)
            self.assertEqual(r.status, 404, path)
        self.assertEqual(self.request("GET", "/v1.47/nothing").json, {"message": "page not found"})

    def test_over_tcp_with_a_token(self):
        key = self.d.token("docker-tcp")
        self.assertEqual(self.d.get("/v1.47/containers/json", token=key).json, [])
        self.assertEqual(self.d.get("/containers/json", token=key).json, [])
        self.assertEqual(self.d.get("/v1.47/containers/json", token="clo_nobody").status, 401)
        self.assertEqual(self.d.get("/v1/sandboxes", token=key).status, 200)
        # The operator's container is nobody else's, by no name.
        own = self.create("sleep", "100", name="mine")
        for what in (own, own[:12], "mine"):
            r = self.d.get(f"/v1.47/containers/{what}/json", token=key)
            self.assertEqual((r.status, r.json["message"]), (404, "No such container: " + what))
        self.assertEqual(self.d.delete(f"/v1.47/containers/{own}?force=1", token=key).status, 404)
        self.assertEqual(self.request("GET", "/containers/mine/json").json["Id"], own)
        # Each token has names of its own.
        self.d.put("/v1/images?name=bb:1", root_archive(), token=key)
        r = self.d.post("/v1.47/containers/create?name=mine", {"Image": "bb:1", "Cmd": ["true"]}, token=key)
        self.assertEqual(r.status, 201, r)
        self.assertIn("uid 1000", "".join(r.json["Warnings"]))
        self.assertEqual(self.d.delete(f"/v1.47/containers/{r.json['Id']}", token=key).status, 204)

    def test_a_life(self):
        box = self.create("/bin/sh", "-c", "cat; echo err >&2; exit 5", name="life", OpenStdin=True, StdinOnce=True)
        self.assertEqual(self.request("GET", f"/containers/{box}/json").json["State"]["Status"], "created")
        s = self.hijack(f"/v1.41/containers/{box}/attach?stdin=1&stdout=1&stderr=1&stream=1")
        # What comes before the start waits for it; a client that half-closes reads on.
        s.sendall(b"early\n")
        self.assertEqual(self.request("POST", f"/containers/{box}/start").status, 204)
        self.assertEqual(self.request("POST", f"/containers/{box[:8]}/start").status, 304)
        s.sendall(b"late\n")
        s.shutdown(socket.SHUT_WR)
        out = joined(read_all(s))
        self.assertEqual(out, {1: b"early\nlate\n", 2: b"err\n"})
        r = self.request("POST", "/containers/life/wait")
        self.assertEqual(r.json["StatusCode"], 5)
        state = self.request("GET", "/containers/life/json").json["State"]
        self.assertEqual((state["Status"], state["Running"], state["ExitCode"]), ("exited", False, 5))
        logs = joined(self.request("GET", "/containers/life/logs?stdout=1&stderr=1").body)
        self.assertEqual(logs, out)
        self.assertEqual(self.request("POST", "/containers/life/stop").status, 304)
        self.assertEqual(self.request("POST", "/containers/life/kill").status, 409)
        self.assertEqual(self.request("DELETE", f"/containers/{box}").status, 204)
        self.assertEqual(self.request("GET", "/containers/life/json").status, 404)
        # The sandbox went with it.
        names = [s["name"] for s in self.d.get("/v1/sandboxes?state=running").json["sandboxes"]]
        self.assertNotIn("life", names)

    def test_a_slow_reader_loses_nothing(self):
        box = self.create("seq", "200000")
        s = self.hijack(f"/containers/{box}/attach?stdout=1&stream=1")
        self.assertEqual(self.request("POST", f"/containers/{box}/start").status, 204)
        harness.until(lambda: s.recv(8, socket.MSG_PEEK), "output")
        self.assertTrue(self.request("GET", f"/containers/{box}/json").json["State"]["Running"])
        self.assertEqual(joined(read_all(s))[1], b"".join(b"%d\n" % n for n in range(1, 200001)))

    def test_logs(self):
        box = self.create("/bin/sh", "-c", "seq 1 50; echo e >&2; printf rest")
        self.request("POST", f"/containers/{box}/start")
        self.request("POST", f"/containers/{box}/wait")

        def logs(query):
            return joined(self.request("GET", f"/containers/{box}/logs?{query}").body)

        self.assertEqual(logs("stdout=1&tail=3")[1], b"49\n50\nrest")
        self.assertEqual(logs("stdout=1&tail=0")[1], b"")
        self.assertEqual(logs("stdout=1&tail=all")[1].count(b"\n"), 50)
        self.assertEqual(logs("stderr=1"), {1: b"", 2: b"e\n"})
        self.assertEqual(logs("stdout=1&since=9999999999")[1], b"")
        line = logs("stdout=1&tail=1&timestamps=1")[1]
        self.assertRegex(line, rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z rest$")
        self.assertEqual(self.request("GET", f"/containers/{box}/logs").status, 400)
        self.assertEqual(self.request("GET", f"/containers/{box}/logs?stdout=1&since=x").status, 400)
        # Started again, both runs are there.
        self.request("POST", f"/containers/{box}/start")
        self.request("POST", f"/containers/{box}/wait")
        self.assertEqual(logs("stdout=1")[1].count(b"50\n"), 2)

    def test_what_weakens_is_refused(self):
        for host, text in (
                ({"Privileged": True}, "token create --root"),
                ({"Devices": [{"PathOnHost": "/dev/null"}]}, "devices"),
                ({"DeviceRequests": [{"Count": -1}]}, "devices"),
                ({"PidMode": "host"}, "namespaces of its own"), ({"IpcMode": "host"}, "namespaces of its own"),
                ({"UTSMode": "host"}, "namespaces of its own"), ({"UsernsMode": "host"}, "namespaces of its own"),
                ({"CgroupnsMode": "host"}, "namespaces of its own"),
                ({"NetworkMode": "host"}, "bridge or none"), ({"NetworkMode": "container:x"}, "bridge or none"),
                ({"CapAdd": ["SYS_ADMIN"]}, "nothing beyond"), ({"CapAdd": ["CHOWN", "cap_net_raw"]}, "net_raw"),
                ({"SecurityOpt": ["seccomp=unconfined"]}, "own profiles"),
                ({"SecurityOpt": ["apparmor=unconfined"]}, "own profiles"),
                ({"MaskedPaths": []}, "systempaths"),
                ({"Binds": ["/:/h"]}, "docker cp"), ({"Binds": ["./a:/h"]}, "docker cp"),
                ({"Binds": ["/var/run/docker.sock:/var/run/docker.sock"]}, "no sandbox gets one"),
                ({"Mounts": [{"Type": "bind", "Source": "/etc", "Target": "/h"}]}, "docker cp"),
                ({"VolumesFrom": ["x"]}, "share nothing"), ({"Sysctls": {"a": "b"}}, "kernel"),
                ({"CgroupParent": "/x"}, "the host's")):
            with self.subTest(host):
                self.refused(403, text, HostConfig=host)
        self.refused(400, "network other not found", HostConfig={"NetworkMode": "other"})
        self.refused(400, "no volume's name", HostConfig={"Binds": [":/cache"]})
        self.refused(400, "not known here", HostConfig={"NewWayOut": True})
        self.refused(404, "No such image: nosuch", Image="nosuch")
        self.refused(400, "no command", Cmd=[])
        self.refused(400, "Memory", HostConfig={"Memory": "lots"})
        self.refused(400, "Cmd", Cmd=[1])
        self.refused(403, "memory", HostConfig={"Memory": 1 << 50})
        # Nothing was left of all these.
        self.assertEqual([c for c in self.request("GET", "/containers/json?all=1").json
                          if c["State"] == "created"], [])

    def test_the_list(self):
        box = self.create("sleep", "100", name="listed", Labels={"a": "b"})

        def names(query="", **filters):
            r = self.request("GET", "/containers/json?" + query + "&filters=" + json.dumps(filters).replace(" ", ""))
            self.assertEqual(r.status, 200, r)
            return [c["Names"][0] for c in r.json]

        self.assertNotIn("/listed", names())
        self.assertIn("/listed", names("all=1"))
        self.assertEqual(names("all=1", name={"liste": True}), ["/listed"])
        self.assertEqual(names("all=True", label=["a=b"]), ["/listed"])
        self.assertEqual(names("all=1", label=["a=c"]), [])
        self.assertEqual(names(status=["created"], id=[box[:10]]), ["/listed"])
        self.request("POST", f"/containers/{box}/start")
        self.assertEqual(names(ancestor=["bb:1"], label=["a"]), ["/listed"])
        self.assertEqual(self.request("GET", '/containers/json?filters={"x":["y"]}').status, 400)
        self.assertEqual(self.request("GET", '/containers/json?filters={"status":["y"]}').status, 400)
        self.assertEqual(self.request("GET", "/containers/json?filters=[1]").status, 400)

    def test_exec(self):
        box = self.create("sleep", "1000", Env=["A=b"], WorkingDir="/srv")
        self.assertEqual(self.request("POST", f"/containers/{box}/exec", {"Cmd": ["true"]}).status, 409)
        self.request("POST", f"/containers/{box}/start")

        def made(*cmd, **more):
            r = self.request("POST", f"/containers/{box}/exec",
                             dict({"Cmd": list(cmd), "AttachStdout": True, "AttachStderr": True}, **more))
            self.assertEqual(r.status, 201, r)
            return r.json["Id"]

        one = made("/bin/sh", "-c", "cat; echo $A; pwd; echo e >&2; exit 3", AttachStdin=True)
        self.assertIsNone(self.request("GET", f"/exec/{one}/json").json["ExitCode"])
        s = self.hijack(f"/exec/{one}/start", {"Detach": False, "Tty": False})
        s.sendall(b"in\n")
        s.shutdown(socket.SHUT_WR)
        self.assertEqual(joined(read_all(s)), {1: b"in\nb\n/srv\n", 2: b"e\n"})
        shown = self.request("GET", f"/exec/{one}/json").json
        self.assertEqual((shown["ExitCode"], shown["Running"], shown["ContainerID"]), (3, False, box))
        self.assertEqual(self.request("POST", f"/exec/{one}/start", {}).status, 409)
        # Without an upgrade the answer has no end but the connection's.
        two = made("echo", "plain")
        self.assertEqual(joined(self.request("POST", f"/exec/{two}/start", {}).body)[1], b"plain\n")
        three = made("touch", "/srv/mark", AttachStdout=False, AttachStderr=False)
        self.assertEqual(self.request("POST", f"/exec/{three}/start", {"Detach": True}).status, 200)
        harness.until(lambda: self.request("GET", f"/exec/{three}/json").json["ExitCode"] == 0, "its end")
        for body, status in (({"Cmd": ["id"], "Privileged": True}, 403), ({"Cmd": []}, 400), ({"Cmd": [1]}, 400),
                             ({"Cmd": ["id"], "WorkingDir": "x" * 5000}, 400), ([], 400)):
            self.assertEqual(self.request("POST", f"/containers/{box}/exec", body).status, status, body)
        for path in (f"/exec/{'0' * 64}/json", "/exec/x/json"):
            self.assertEqual(self.request("GET", path).status, 404)
        # Another token finds neither the container nor its execs.
        key = self.d.token("docker-exec")
        self.assertEqual(self.d.get(f"/v1.47/exec/{one}/json", token=key).status, 404)
        self.assertEqual(self.d.post(f"/v1.47/containers/{box}/exec", {"Cmd": ["id"]}, token=key).status, 404)
        # Only so many are kept, the newest, and those that run.
        last = [made("true") for _ in range(70)]
        self.assertEqual(self.request("GET", f"/exec/{one}/json").status, 404)
        self.assertEqual(self.request("GET", f"/exec/{last[-1]}/json").status, 200)

    def test_exec_ends_with_its_container(self):
        box = self.create("/bin/sh", "-c", "while ! test -e /srv/go; do sleep 0.1; done")
        self.request("POST", f"/containers/{box}/start")
        eid = self.request("POST", f"/containers/{box}/exec", {"Cmd": ["sleep", "1000"]}).json["Id"]
        s = self.hijack(f"/exec/{eid}/start", {})
        end = self.request("POST", f"/containers/{box}/exec", {"Cmd": ["touch", "/srv/go"]}).json["Id"]
        self.request("POST", f"/exec/{end}/start", {"Detach": True})
        self.assertEqual(read_all(s), b"")
        self.assertEqual(self.request("GET", f"/exec/{eid}/json").json["ExitCode"], 137)

    def test_events(self):
        box = self.create("true", name="eventful", Labels={"a": "b"})
        self.request("POST", f"/containers/{box}/start")
        self.request("POST", f"/containers/{box}/wait")
        self.request("DELETE", f"/containers/{box}")
        filters = json.dumps({"container": ["eventful"]}).replace(" ", "")
        text = self.request("GET", f"/events?since=1&until={self.now()}&filters={filters}").body
        events = [json.loads(line) for line in text.splitlines()]
        self.assertEqual([e["Action"] for e in events], ["create", "start", "die", "destroy"])
        self.assertEqual(events[2]["Actor"]["Attributes"]["exitCode"], "0")
        self.assertEqual({e["id"] for e in events}, {box})
        key = self.d.token("docker-events")
        self.assertEqual(self.d.get(f"/v1.47/events?since=1&until={self.now()}", token=key).body, b"")

    def now(self):
        return "%.9f" % time.time()

    def test_bad_input(self):
        for method, path, body in (
                ("POST", "/containers/create", []), ("POST", "/containers/create", {"Image": 1, "Cmd": ["x"]}),
                ("POST", "/containers/create?name=../x", {"Image": "bb:1", "Cmd": ["true"]}),
                ("POST", "/containers/create", {"Image": "bb:1", "Cmd": ["true"], "Env": ["=x"]}),
                ("POST", "/containers/create", {"Image": "bb:1", "Cmd": ["true"], "WorkingDir": "x" * 5000}),
                ("POST", "/containers/create", {"Image": "bb:1", "Cmd": ["true"],
                                                "HostConfig": {"RestartPolicy": {"Name": "often"}}}),
                ("POST", "/containers/create", {"Image": "bb:1", "Cmd": ["true"],
                                                "HostConfig": {"PortBindings": {"80/tcp": [{"HostPort": "x"}]}}}),
                ("POST", "/images/create?fromImage=A%20B", None)):
            r = self.request(method, path, body)
            self.assertEqual(r.status, 400, (path, body, r))
            self.assertTrue(r.json["message"])
        for labels in ({"a": "x" * 300000}, {"a%d" % i: "" for i in range(257)}):
            r = self.request("POST", "/containers/create", {"Image": "bb:1", "Cmd": ["true"], "Labels": labels})
            self.assertEqual(r.status, 429, r)
            self.assertEqual(self.request("POST", "/networks/create", {"Name": "n", "Labels": labels}).status, 429)

    def test_started_while_it_is_to_be_restarted(self):
        """Each end sets a timer; a start before it is due takes its place."""
        made = self.request("POST", "/containers/create?name=again", {
            "Image": "bb:1", "Cmd": ["false"], "HostConfig": {"RestartPolicy": {"Name": "always"}}})
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.request, "DELETE", "/containers/again?force=1")

        def count():
            return self.request("GET", "/containers/again/json").json["RestartCount"]

        self.request("POST", "/containers/again/start")
        harness.until(lambda: count() >= 2, "restarts")
        for _ in range(3):
            self.request("POST", "/containers/again/start")
        seen = count()
        harness.until(lambda: count() > seen, "another restart")
        self.assertEqual(self.d.get("/healthz").status, 200)


@unittest.skipUnless(DOCKER, "the docker command is not installed")
class Command(Door):
    def docker(self, *args, rc=0, **more):
        done = subprocess.run([DOCKER, *args], env=dict(os.environ, DOCKER_HOST="unix://" + self.path), timeout=60,
                              capture_output=True, text=True, **({} if "input" in more else
                                                                 {"stdin": subprocess.DEVNULL}), **more)
        self.assertEqual(done.returncode, rc, done)
        return done

    def out(self, *args, **more):
        return self.docker(*args, **more).stdout

    def test_run(self):
        self.assertEqual(self.out("run", "--rm", "bb:1", "echo", "hi"), "hi\n")
        self.assertEqual(self.docker("run", "--rm", "bb:1", "sh", "-c", "echo e >&2; exit 7", rc=7).stderr, "e\n")
        self.assertEqual(self.out("run", "--rm", "-i", "bb:1", "cat", input="in\n"), "in\n")
        self.assertIn("executable file not found", self.docker("run", "--rm", "bb:1", "nosuch", rc=127).stderr)
        self.assertEqual(self.out("ps", "-aq"), "")
        self.assertEqual(self.out("run", "--rm", "-w", "/srv/deep", "-e", "A=b", "--hostname", "me", "bb:1", "sh", "-c",
                                  "pwd; echo $A; hostname"), "/srv/deep\nb\nme\n")
        self.assertEqual(self.out("run", "--rm", "--read-only", "--tmpfs", "/mnt:size=1m", "-m", "64m", "--cpus", "0.5",
                                  "--pids-limit", "50", "bb:1", "sh", "-c", "touch /srv/x 2>&- || touch /mnt/y && ls /mnt"),
                         "y\n")
        self.assertEqual(self.out("run", "--rm", "-u", "1000", "bb:1", "id", "-u"), "1000\n")
        self.assertEqual(self.out("run", "--rm", "bb:1", "id", "-u"), "0\n")

    def test_detached(self):
        box = self.out("run", "-d", "--name", "web", "bb:1", "sh", "-c", "echo one; sleep 1000").strip()
        self.addCleanup(self.request, "DELETE", f"/containers/{box}?force=1")
        self.assertEqual(self.out("ps", "--format", "{{.Names}} {{.Image}} {{.State}}"), "web bb:1 running\n")
        harness.until(lambda: self.out("logs", "web") == "one\n", "output")
        self.assertIn("already in use", self.docker("run", "--name", "web", "bb:1", "true", rc=125).stderr)
        self.out("pause", "web")
        self.assertEqual(self.out("inspect", "-f", "{{.State.Status}}", "web"), "paused\n")
        self.docker("pause", "web", rc=1)
        self.out("unpause", "web")
        self.out("pause", "web")
        self.out("stop", "-t", "5", "web")
        self.out("start", "web")
        self.out("rename", "web", "web2")
        self.docker("rm", "web2", rc=1)
        self.out("stop", "-t", "5", "web2")
        self.assertEqual(self.out("inspect", "-f", "{{.State.ExitCode}}", "web2"), "143\n")
        self.out("start", "web2")
        self.out("restart", "-t", "0", "web2")
        self.out("kill", "web2")
        self.assertEqual(self.out("wait", "web2"), "137\n")
        self.out("rm", "web2")

    def test_exec_and_files(self):
        box = self.out("run", "-d", "--name", "files", "bb:1", "sleep", "1000").strip()
        self.addCleanup(self.request, "DELETE", f"/containers/{box}?force=1")
        self.assertEqual(self.out("exec", "-e", "X=1", "-w", "/tmp", "files", "sh", "-c", "echo $X; pwd"), "1\n/tmp\n")
        self.assertEqual(self.out("exec", "-i", "files", "cat", input="in\n"), "in\n")
        self.docker("exec", "files", "sh", "-c", "exit 9", rc=9)
        self.assertIn("executable file not found", self.out("exec", "files", "nosuch", rc=127))
        top = os.path.join(self.d.dir, "cp")
        os.makedirs(os.path.join(top, "in", "sub"))
        with open(os.path.join(top, "in", "sub", "a"), "w", encoding="utf-8") as file:
            file.write("text\n")
        self.out("cp", os.path.join(top, "in"), "files:/srv/")
        self.out("cp", os.path.join(top, "in", "sub", "a"), "files:/srv/new")
        self.assertEqual(self.out("exec", "files", "cat", "/srv/in/sub/a", "/srv/new"), "text\ntext\n")
        self.out("cp", "files:/srv/in", os.path.join(top, "out"))
        self.out("cp", "files:/srv/new", os.path.join(top, "new"))
        for path in ("out/sub/a", "new"):
            with open(os.path.join(top, path), encoding="utf-8") as file:
                self.assertEqual(file.read(), "text\n")
        self.out("exec", "files", "ln", "-s", "/srv/in", "/srv/link")
        self.out("cp", "-L", "files:/srv/link", os.path.join(top, "followed"))
        self.assertTrue(os.path.isfile(os.path.join(top, "followed", "sub", "a")))
        self.assertIn("Could not find the file", self.docker("cp", "files:/nosuch", top, rc=1).stderr)
        self.docker("cp", os.path.join(top, "new"), "files:/nosuch/x", rc=1)
        self.assertIn("sleep 1000", self.out("top", "files"))
        self.assertIn("files", self.out("stats", "--no-stream", "files"))
        if harness.ROOT:
            self.out("update", "-m", "128m", "files")
        self.out("kill", "files")
        self.out("cp", "files:/srv/new", os.path.join(top, "later"))
        self.assertIn(box, self.out("container", "prune", "-f"))

    def test_terminal(self):
        main, other = os.openpty()
        self.addCleanup(os.close, main)
        with subprocess.Popen([DOCKER, "run", "--rm", "-it", "bb:1", "sh", "-c", "read x; echo got-$x; exit 4"],
                              env=dict(os.environ, DOCKER_HOST="unix://" + self.path), stdin=other, stdout=other,
                              stderr=other, start_new_session=True) as run:
            os.close(other)
            os.write(main, b"it\n")
            seen = b""
            try:
                while b"got-it\r\n" not in seen:
                    seen += os.read(main, 1024)
            except OSError:
                pass
            self.assertIn(b"got-it\r\n", seen)
            self.assertEqual(run.wait(harness.DEADLINE), 4)

    def test_networks(self):
        self.out("network", "create", "seg")
        self.addCleanup(self.docker, "network", "rm", "seg")
        self.assertIn("already exists", self.docker("network", "create", "seg", rc=1).stderr)
        self.docker("network", "create", "-d", "overlay", "other", rc=1)
        self.assertEqual(self.out("network", "ls", "--format", "{{.Name}}").split(), ["bridge", "none", "seg"])
        box = self.out("run", "-d", "--name", "db", "--network", "seg", "bb:1", "sh", "-c",
                       "while true; do echo pong | nc -l -p 5432; done").strip()
        self.addCleanup(self.request, "DELETE", f"/containers/{box}?force=1")
        self.assertEqual(self.out("run", "--rm", "--network", "seg", "bb:1", "sh", "-c",
                                  "until nc db 5432 </dev/null; do sleep 0.1; done"), "pong\n")
        self.assertEqual(self.out("run", "--rm", "bb:1", "sh", "-c", "nc db 5432 </dev/null; true"), "")
        self.assertIn("has containers", self.docker("network", "rm", "seg", rc=1).stderr)
        self.docker("network", "connect", "seg", "db", rc=1)
        # What clients do that name a network late: create, connect, start.
        late = self.create("sh", "-c", "until nc db 5432 </dev/null; do sleep 0.1; done", HostConfig={})
        self.docker("network", "connect", "nosuch", late, rc=1)
        self.out("network", "connect", "--alias", "late", "seg", late)
        self.docker("network", "connect", "seg", late, rc=1)
        self.assertEqual(self.out("start", "-a", late), "pong\n")
        self.docker("network", "disconnect", "seg", "db", rc=1)

    @unittest.skipUnless(harness.ROOT, "volumes of one's own need root")
    def test_volumes(self):
        self.out("run", "--rm", "-v", "kept:/data", "bb:1", "sh", "-c", "echo text > /data/a")
        self.addCleanup(self.docker, "volume", "rm", "-f", "kept")
        self.assertEqual(self.out("run", "--rm", "-v", "kept:/data:ro", "bb:1", "cat", "/data/a"), "text\n")
        self.assertIn("kept", self.out("volume", "ls", "-q").split())
        self.assertEqual(self.out("volume", "create", "kept"), "kept\n")
        self.assertIn("driver", self.docker("volume", "create", "-d", "nfs", "x", rc=1).stderr.lower())

    def test_ports(self):
        served = ["sh", "-c", "while true; do echo pong | nc -l -p 80; done"]
        box = self.out("run", "-d", "-p", "80", "bb:1", *served).strip()
        self.addCleanup(self.request, "DELETE", f"/containers/{box}?force=1")
        address = self.out("port", box, "80").strip()
        host, _, port = address.rpartition(":")
        self.assertEqual(host, "127.0.0.1")

        def asked():
            with socket.create_connection((host, int(port)), harness.DEADLINE) as s:
                s.shutdown(socket.SHUT_WR)
                return s.recv(100) == b"pong\n"

        harness.until(asked, "an answer")
        self.docker("run", "--rm", "-p", "80/udp", "bb:1", "true", rc=125)
        key = self.d.token("docker-ports")
        r = self.d.post("/v1.47/containers/create", {"Image": "host", "Cmd": ["true"], "HostConfig": {
            "PortBindings": {"80/tcp": [{}]}}}, token=key)
        self.assertEqual((r.status, "publish.ports" in r.json["message"]), (403, True), r)

    def test_restart_policy(self):
        box = self.out("run", "-d", "--restart", "on-failure:2", "bb:1", "false").strip()
        self.addCleanup(self.request, "DELETE", f"/containers/{box}?force=1")

        def restarted():
            shown = self.request("GET", f"/containers/{box}/json").json
            return shown["RestartCount"] == 2 and not shown["State"]["Running"]

        harness.until(restarted, "the second restart")

    def test_images(self):
        archive = os.path.join(self.d.dir, "saved.tar")
        self.addCleanup(self.docker, "rmi", "bb:3")
        self.out("tag", "bb:1", "bb:2")
        self.assertIn("bb:2", self.out("images", "--format", "{{.Repository}}:{{.Tag}}").split())
        self.out("save", "-o", archive, "bb:2")
        self.out("rmi", "bb:2")
        self.docker("inspect", "bb:2", rc=1)
        self.assertIn("Loaded image: bb:2", self.out("load", "-i", archive))
        ids = {self.out("image", "inspect", "-f", "{{.Id}}", name) for name in ("bb:1", "bb:2")}
        self.assertEqual(len(ids), 1)
        self.out("rmi", "bb:2")
        with open(archive, "wb") as tar:
            tar.write(root_archive())
        self.assertIn("sha256:", self.out("import", archive, "bb:3"))
        self.assertRegex(self.out("history", "-q", "bb:3"), "^[0-9a-f]{12}\n$")
        self.assertIn("image_store.registries", self.docker("pull", "nosuch:1", rc=1).stderr)
        self.assertIn("not offered", self.docker("push", "bb:3", rc=1).stderr)
        self.assertIn("not offered", self.docker("search", "x", rc=1).stderr)


SYSTEM_PYTHON = "/usr/bin/python3"
HAS_LIBRARY = os.path.exists(SYSTEM_PYTHON) and subprocess.run([SYSTEM_PYTHON, "-c", "import docker"], check=False,
                                                               stderr=subprocess.DEVNULL).returncode == 0
LIBRARY = """
import docker, io, tarfile
c = docker.DockerClient(base_url="unix://PATH")
assert c.ping()
assert c.containers.run("bb:1", ["echo", "hi"], remove=True) == b"hi\\n"
try:
    c.containers.run("bb:1", ["sh", "-c", "echo bad >&2; exit 3"], remove=True)
    assert False
except docker.errors.ContainerError as e:
    assert (e.exit_status, e.stderr) == (3, b"bad\\n"), e
b = c.containers.run("bb:1", ["sleep", "1000"], detach=True, network_mode="none", mem_limit="128m", cap_drop=["ALL"],
                     environment={"A": "b"}, working_dir="/srv", labels={"from": "python"})
assert [x.id for x in c.containers.list(filters={"label": "from=python"})] == [b.id]
for i in range(20):
    assert b.exec_run(["sh", "-c", "echo $A; pwd; exit 2"]) == (2, b"b\\n/srv\\n"), i
tar = io.BytesIO()
with tarfile.open(fileobj=tar, mode="w") as t:
    f = tarfile.TarInfo("f")
    f.size = 3
    t.addfile(f, io.BytesIO(b"abc"))
assert b.put_archive("/srv", tar.getvalue())
bits, stat = b.get_archive("/srv/f")
assert stat["size"] == 3 and tarfile.open(fileobj=io.BytesIO(b"".join(bits))).extractfile("f").read() == b"abc"
assert b.stats(stream=False)["memory_stats"]["usage"] > 0 and b.top()["Processes"]
b.stop(timeout=5)
assert b.wait()["StatusCode"] == 143
b.remove()
for get in (c.containers.get, c.images.get):
    try:
        get("nosuch")
        assert False
    except docker.errors.NotFound:
        pass
print("done")
"""
COMPOSITION = """
version: "3"
services:
  db:
    image: bb:1
    command: sh -c 'while true; do echo pong | nc -l -p 5432; done'
    restart: always
  web:
    image: bb:1
    depends_on: [db]
    environment: {DB: db}
    command: sh -c 'until nc $$DB 5432 </dev/null; do sleep 0.1; done; exit 3'
"""


class Clients(Door):
    @unittest.skipUnless(HAS_LIBRARY, "python3-docker is not installed")
    def test_python(self):
        done = subprocess.run([SYSTEM_PYTHON, "-c", LIBRARY.replace("PATH", self.path)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.stdout, "done\n", done.stderr)

    @unittest.skipUnless(shutil.which("docker-compose", path="/usr/bin"), "docker-compose is not installed")
    def test_compose(self):
        top = os.path.join(self.d.dir, "shop")
        os.makedirs(top)
        with open(os.path.join(top, "docker-compose.yml"), "w", encoding="utf-8") as out:
            out.write(COMPOSITION)

        def compose(*args):
            return subprocess.run(["/usr/bin/docker-compose", *args], cwd=top, stdin=subprocess.DEVNULL,
                                  env=dict(os.environ, DOCKER_HOST="unix://" + self.path, HOME=top),
                                  capture_output=True, text=True, timeout=60, check=False)

        self.addCleanup(compose, "kill")
        up = compose("up", "-t", "1", "--exit-code-from", "web")
        self.assertEqual(up.returncode, 3, up)
        self.assertIn("pong", up.stdout)
        down = compose("down", "-t", "1")
        self.assertEqual(down.returncode, 0, down)
        self.assertEqual(self.request("GET", "/containers/json?all=1&filters=" + json.dumps(
            {"label": ["com.docker.compose.project=shop"]}).replace(" ", "")).json, [])


class Survival(unittest.TestCase):
    def test_another_front(self):
        """Containers, their logs and their ends outlive the daemon."""
        d = harness.Daemon(config=CONFIG).start()
        self.addCleanup(d.remove)
        self.addCleanup(d.stop)
        d.put("/v1/images?name=bb:1", root_archive())
        case = type("Own", (Door,), {"d": d, "path": os.path.join(d.dir, "run", "docker.sock")})()
        self.addCleanup(case.doCleanups)
        ended = case.create("sh", "-c", "echo over; exit 4", name="ended")
        lives = case.create("sh", "-c", "echo up; cat /srv/go 2>&-; while ! test -e /srv/go; do sleep 0.1; done; exit 6",
                            name="lives")
        for box in (ended, lives):
            self.assertEqual(case.request("POST", f"/containers/{box}/start").status, 204)
        case.request("POST", f"/containers/{ended}/wait")
        d.stop(destroy=False)
        d.start()
        shown = case.request("GET", "/containers/ended/json").json
        self.assertEqual((shown["Id"], shown["State"]["ExitCode"], shown["State"]["Status"]), (ended, 4, "exited"))
        logs = joined(case.request("GET", "/containers/ended/logs?stdout=1").body)
        self.assertEqual(logs[1], b"over\n")
        self.assertEqual(case.request("GET", "/containers/lives/json").json["State"]["Status"], "running")
        box = [s["id"] for s in d.get("/v1/sandboxes").json["sandboxes"] if s["name"] == "lives"][0]
        d.put(f"/v1/sandboxes/{box}/files?path=/srv/go", b"")
        self.assertEqual(case.request("POST", "/containers/lives/wait").json["StatusCode"], 6)


if __name__ == "__main__":
    unittest.main()
