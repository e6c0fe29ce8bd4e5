"""The door that speaks Docker's Engine API, through the docker command and through bare requests."""

import json
import os
import shutil
import socket
import struct
import subprocess
import unittest

import harness
import images

DOCKER = shutil.which("docker")
CONFIG = "docker: true\n"
TOOLS = ("echo", "false", "head", "hostname", "kill", "md5sum", "mkdir", "ps", "seq", "sleep", "stty", "tar", "true")
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
        r = self.request("POST", f"/containers/life/wait")
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
        self.refused(404, "there is no volume", HostConfig={"Binds": ["cache:/cache"]})
        self.refused(404, "network other not found", HostConfig={"NetworkMode": "other"})
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
        self.assertEqual(self.request("GET", "/containers/json?filters=[1]").status, 400)

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
        r = self.request("POST", "/containers/create", {"Image": "bb:1", "Cmd": ["true"], "Labels": {"a": "x" * 300000}})
        self.assertEqual(r.status, 429, r)


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
        self.out("rename", "web", "web2")
        self.docker("rm", "web2", rc=1)
        self.out("stop", "-t", "5", "web2")
        self.assertEqual(self.out("inspect", "-f", "{{.State.ExitCode}}", "web2"), "143\n")
        self.out("start", "web2")
        self.out("restart", "-t", "0", "web2")
        self.out("kill", "web2")
        self.assertEqual(self.out("wait", "web2"), "137\n")
        self.out("rm", "web2")

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
