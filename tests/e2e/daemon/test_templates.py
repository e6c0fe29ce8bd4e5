"""Templates of E2B's door, as its clients send them: builds, whose they are, and what is left of them."""

import os
import unittest

import harness
import images
from images import directory, entry, layer, link

HASH = "5a" * 32
BUILD = "/v2/templates/%s/builds/%s"


def base():
    entries = images.shell_entries() + [link("bin/" + n, "busybox") for n in ("echo", "chown", "test", "wget")]
    return layer(*entries, directory("etc"), directory("run"), directory("root", mode=0o700),
                 entry("etc/passwd", data=b"root:x:0:0::/root:/bin/sh"), directory("tmp", mode=0o1777))


def run_step(line, user=None, **more):
    return dict(type="RUN", args=[line] + ([user] if user else []), **more)


@unittest.skipUnless(os.path.exists(images.BUSYBOX), "needs " + images.BUSYBOX)
class Templates(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon().start()
        cls.key = cls.daemon.token("builder", "--e2b", "--root")
        done = cls.daemon.put("/v1/images?name=tool:1", images.saved([base()], {"Env": ["PATH=/bin"]}),
                              token=cls.key)
        assert done.status == 201, done

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()
        cls.daemon.remove()

    @property
    def d(self):
        return self.daemon

    def call(self, method, path, body=None, key=None, status=None):
        r = self.d.request(method, path, body, token=key or self.key)
        if status:
            self.assertEqual(r.status, status, r)
        return r

    def announce(self, name, **more):
        r = self.call("POST", "/v3/templates", dict(more, name=name), status=202).json
        return r["templateID"], r["buildID"]

    def upload(self, template, data, hash=HASH):
        r = self.call("GET", f"/templates/{template}/files/{hash}", status=201).json
        if not r["present"]:
            path = r["url"].split("/", 3)[3]
            done = self.d.request("PUT", "/" + path, data, token=None)
            self.assertEqual(done.status, 200, done)
        return r["present"]

    def build(self, name, steps, files=None, say=None, **more):
        """Returns the last status, with all of the log as text."""
        template, build = self.announce(name, **(say or {}))
        if files is not None:
            self.upload(template, files)
        started = self.call("POST", BUILD % (template, build), dict({"fromImage": "tool:1"}, steps=steps, **more))
        self.assertEqual((started.status, started.body), (202, b""), started)
        log = []

        def status():
            s = self.call("GET", f"/templates/{template}/builds/{build}/status?logsOffset={len(log)}", status=200).json
            log.extend(s["logEntries"])
            return s if s["status"] in ("ready", "error") and not s["logEntries"] else None

        s = harness.until(status, "the build's end", 60)
        s["log"] = "\n".join(e["message"] for e in log)
        return s

    def built(self, *args, **more):
        s = self.build(*args, **more)
        self.assertEqual(s["status"], "ready", s)
        self.addCleanup(self.call, "DELETE", "/templates/" + s["templateID"])
        return s

    def inside(self, name, line, key=None):
        body = {"cmd": ["/bin/sh", "-c", line], "image": name, "root": "overlay", "user": "root"}
        r = self.d.post("/v1/run", body, token=key or self.key)
        self.assertEqual(r.status, 200, r)
        return r.json["stdout"]

    def stored(self, what):
        return set(os.listdir(os.path.join(self.d.dir, "state", "images", what)))


class Build(Templates):
    def test_steps_and_files(self):
        files = layer(directory("app"), entry("app/manifest.json", data=b"[]"), entry("app/tool", data=b"x", mode=0o755))
        s = self.built("all", [
            dict(type="COPY", args=["app", "/srv/app", "", ""], filesHash=HASH),
            dict(type="ENV", args=["A", "one \"two\"", "B", "$A'"]),
            run_step("echo \"$B\" > said; echo seen"), run_step("echo by root > /etc/mine", "root"),
            dict(type="WORKDIR", args=["/srv"])], files=files)
        self.assertIn("seen", s["log"].split("\n"))
        self.assertEqual(self.inside("all", "cat /srv/app/manifest.json /srv/app/tool /home/user/said /etc/mine; pwd; "
                                     "echo $B"), "[]xone \"two\"'\nby root\n/srv\none \"two\"'\n")
        self.assertEqual(self.inside("all", "cat /etc/passwd").split("\n")[1], "user:x:1000:1000::/home/user:/bin/sh")
        if os.geteuid() == 0:
            self.assertEqual(self.inside("all", "stat -c %u /home/user /home/user/said /srv/app /srv/app/tool /etc/mine"),
                             "1000\n1000\n1000\n1000\n0\n")

    def test_nothing_is_left_of_what_failed(self):
        before = {what: self.stored(what) for what in ("images", "layers", "tmp")}
        s = self.build("gone", [run_step("echo some > some"), run_step("echo why >&2; exit 9"), run_step("echo never")])
        self.assertEqual((s["status"], s["reason"]["step"]), ("error", "2"), s)
        self.assertIn("exit status 9", s["reason"]["message"])
        self.assertIn("why", s["log"].split("\n"))
        self.assertNotIn("never", s["log"])
        self.call("GET", "/templates/aliases/gone", status=404)
        for what, names in before.items():
            self.assertEqual(self.stored(what), names, what)

    def test_steps_are_taken_again(self):
        steps = [run_step("echo ran > x; echo ran"), run_step("cat x")]
        self.assertIn("ran", self.built("again", steps)["log"].split("\n"))
        self.assertNotIn("ran", self.built("again", steps)["log"].split("\n"))
        forced = self.built("again", [steps[0], dict(steps[1], force=True)])["log"].split("\n")
        self.assertEqual(forced.count("ran"), 1, forced)

    def test_uploads_go_with_what_needs_them(self):
        one, two = layer(entry("f", data=b"1")), layer(entry("f", data=b"2"))
        copy = dict(type="COPY", args=["f", "/f", "root", "0640"])
        s = self.built("up", [dict(copy, filesHash=HASH)], files=one)
        self.assertEqual(self.inside("up", "stat -c '%u %a' /f").split(), ["0", "640"])
        template, build = self.announce("up")
        self.assertTrue(self.upload(template, one))
        self.assertFalse(self.upload(template, two, "5b" * 32))
        self.built("up", [dict(copy, filesHash="5b" * 32)])
        self.assertEqual(self.inside("up", "cat /f"), "2")
        names = [i["name"] for i in self.d.get("/v1/images", token=self.key).json["images"]]
        harness.until(lambda: self.call("GET", f"/templates/{s['templateID']}/files/{HASH}").json["present"] is False,
                      f"the old files to go: {names}")

    def test_services_of_a_sandbox(self):
        self.built("served", [], startCmd="echo $$ > /tmp/pid; exec sleep 1000", readyCmd="test -s /tmp/pid",
                   say={"memoryMB": 300})
        made = self.call("POST", "/sandboxes", {"templateID": "served", "timeout": 60}, status=201).json
        self.addCleanup(self.call, "DELETE", "/sandboxes/" + made["sandboxID"])
        self.assertEqual(self.call("GET", "/sandboxes/" + made["sandboxID"]).json["memoryMB"], 300)
        r = self.call("POST", f"/v1/sandboxes/{made['sandboxID']}/exec",
                      {"cmd": ["/bin/sh", "-c", "cat /proc/$(cat /tmp/pid)/cmdline"]}).json
        self.assertEqual(r["stdout"], "sleep\x001000\x00", r)

    def test_its_home_stays(self):
        self.built("kept", [run_step("echo of the template > both; echo 1 > gone")])
        made = self.call("POST", "/sandboxes", {"templateID": "kept", "timeout": 60}, status=201).json["sandboxID"]
        self.addCleanup(self.call, "DELETE", "/sandboxes/" + made)

        def sh(line):
            r = self.call("POST", f"/v1/sandboxes/{made}/exec", {"cmd": ["/bin/sh", "-c", line]}).json
            return r["stdout"] + r["stderr"]

        sh("cd /home/user; echo mine > mine; rm gone; echo more >> both")
        for _ in range(2):
            self.assertEqual(sh("cd /home/user; cat both mine; ls"), "of the template\nmore\nmine\nboth\nmine\n")
            self.call("POST", f"/v1/sandboxes/{made}/stop", status=200)
            self.call("POST", f"/v1/sandboxes/{made}/start", status=200)

    def test_no_more_than_the_token_may(self):
        narrow = self.d.token("narrow", "--e2b", "--root", "--net", "none")
        self.d.put("/v1/images?name=tool:1", images.saved([base()], {"Env": ["PATH=/bin"]}), token=narrow)
        old, self.key = self.key, narrow
        self.addCleanup(setattr, self, "key", old)
        s = self.built("net", [run_step("wget -T 5 -q -O- http://192.0.2.1/ || echo refused")])
        self.assertIn("refused", s["log"].split("\n"))


class Refused(Templates):
    def start(self, body, status, says, name="refused"):
        template, build = self.announce(name)
        r = self.call("POST", BUILD % (template, build), body)
        self.assertEqual(r.status, status, r)
        self.assertIn(says, r.json["message"])

    def test_bodies(self):
        for steps, says in (([{"type": "COPY", "args": ["a", "b"]}], "filesHash"),
                            ([{"type": "COPY", "args": ["a", "b"], "filesHash": HASH}], "not uploaded"),
                            ([{"type": "FROM", "args": ["x"]}], "type"), ([{"type": "RUN", "args": [1]}], "args"),
                            ([{"type": "RUN", "args": []}], "args"), (["RUN"], "type"), ("RUN", "steps"),
                            ([{"type": "RUN", "args": ["x"]}] * 1000, "steps")):
            self.start({"fromImage": "tool:1", "steps": steps}, 400, says)
        self.start({"steps": []}, 400, "fromImage")
        self.start({"fromImage": "tool:1", "fromImageRegistry": {"type": "registry"}}, 501, "fromImageRegistry")
        self.start({"fromImage": "tool:1", "startCmd": "x" * 5000}, 400, "startCmd")
        self.start({"fromTemplate": "base"}, 501, "host")

    def test_names(self):
        for name, status in (("Upper", 400), ("a b", 400), ("base", 409), ("../x", 400), ("x:" + "t" * 200, 400),
                             ("cloche/upload/x", 409), ("", 400), (7, 400)):
            r = self.call("POST", "/v3/templates", {"name": name})
            self.assertEqual(r.status, status, (name, r))
        self.call("POST", "/v3/templates", {"name": "x", "memoryMB": 1 << 40}, status=400)
        r = self.call("POST", "/v3/templates", {"name": "x"}, key=self.d.token("no-root", "--e2b"))
        self.assertEqual(r.status, 403, r)

    def test_what_others_have(self):
        other = self.d.token("stranger", "--e2b", "--root")
        mine = self.built("private", [run_step("echo secret > secret")])
        image = self.d.get("/v1/images/inspect?image=private", token=self.key).json["id"]
        for base_image in ({"fromTemplate": "private"}, {"fromTemplate": mine["templateID"]}, {"fromImage": image}):
            theirs = self.call("POST", "/v3/templates", {"name": "theirs"}, key=other).json
            template, build = theirs["templateID"], theirs["buildID"]
            r = self.call("POST", BUILD % (template, build), dict(base_image, steps=[]), key=other)
            self.assertIn(r.status, (404, 202), r)
            if r.status == 202:
                harness.until(lambda: self.call("GET", f"/templates/{template}/builds/{build}/status",
                                                key=other).json["status"] == "error", "the refusal", 30)
        for method, path in (("GET", f"/templates/{mine['templateID']}/builds/{mine['buildID']}/status"),
                             ("GET", "/templates/aliases/private"), ("GET", "/templates/private/tags"),
                             ("GET", f"/templates/{mine['templateID']}/files/{HASH}"),
                             ("DELETE", "/templates/" + mine["templateID"])):
            self.assertEqual(self.call(method, path, key=other).status, 404, path)
        self.assertEqual(self.call("GET", "/templates", key=other).json, [])
        self.call("GET", "/templates/aliases/private", status=200)

    def test_uploads_that_are_none(self):
        template, _ = self.announce("evil")
        path = self.call("GET", f"/templates/{template}/files/{HASH}").json["url"].split("/", 3)[3]
        bad = layer(entry("../../out", data=b"x"))
        for data in (bad, b"no tar", layer(link("a", "/etc"), entry("a/passwd", data=b"x"))):
            r = self.d.request("PUT", "/" + path, data, token=None)
            self.assertGreaterEqual(r.status, 400, r)
        for key in ("key=" + "0" * 32, "key=", ""):
            r = self.d.request("PUT", "/" + path.split("?")[0] + "?" + key, bad, token=self.key)
            self.assertEqual(r.status, 403, r)
        self.assertFalse(self.call("GET", f"/templates/{template}/files/{HASH}").json["present"])

    def test_many_are_forgotten_oldest_first(self):
        first = self.announce("many")
        for _ in range(16):
            last = self.announce("many")
        self.call("GET", "/templates/%s/builds/%s/status" % first, status=404)
        self.assertEqual(self.call("GET", "/templates/%s/builds/%s/status" % last).json["status"], "waiting")


if __name__ == "__main__":
    unittest.main()
