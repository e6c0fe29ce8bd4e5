"""Images in the daemon: whose they are, what of their configuration holds, what is in use, and hostile ones."""

import io
import json
import os
import tarfile
import unittest

import cl
import harness
import images
from images import directory, entry, layer
from test_pull import Registry

USER = {"Env": ["PATH=/bin", "GREETING=hello\nthere", "HOME=/srv"], "WorkingDir": "/srv", "User": "7:7",
        "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["echo ran; pwd"]}
ROOT_USER = {"Env": ["PATH=/bin"], "Cmd": ["/bin/id"]}


def tree(text):
    return layer(*images.shell_entries(), directory("srv", uid=7, gid=7), directory("etc"),
                 entry("srv/mine", data=text.encode(), uid=7, gid=7, mode=0o600))


def archive(text="x\n", run=None, tags=()):
    return images.saved([tree(text)], USER if run is None else run, tags)


@unittest.skipUnless(os.path.exists(images.BUSYBOX), "needs " + images.BUSYBOX)
class Images(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.registry = Registry()
        cls.daemon = harness.Daemon(
            "images: {offered: 'offered:1'}\nimage_store: {registries: ['%s'], max_count: 6}\n" % cls.registry.host)
        cls.daemon.start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()
        cls.daemon.remove()
        cls.registry.stop()

    @property
    def d(self):
        return self.daemon

    def put(self, data, name=None, token=None):
        return self.d.put("/v1/images" + (f"?name={name}" if name else ""), data, token=token)

    def have(self, name, token=None, **how):
        r = self.put(archive(**how), name, token)
        self.assertEqual(r.status, 201, r)
        self.addCleanup(self.d.delete, f"/v1/images?image={name}", token=token)
        return r.json["images"][0]["id"]

    def names(self, token=None):
        return [i["name"] for i in self.d.get("/v1/images", token=token).json["images"]]

    def run_in(self, image, *cmd, token=None, **more):
        body = dict(more, image=image)
        if cmd:
            body["cmd"] = list(cmd)
        r = self.d.post("/v1/run", body, token=token)
        self.assertEqual(r.status, 200, r)
        return r.json

    def store(self, *names):
        return os.path.join(self.d.dir, "state", "images", *names)


class Holds(Images):
    def test_configuration(self):
        key = self.d.token("holds")
        self.have("cfg:1", key)
        r = self.run_in("cfg:1", "/bin/sh", "-c", "echo $GREETING; pwd; cat mine; id -u; touch /srv/new; ls",
                        token=key, root="overlay")
        self.assertEqual(r["stdout"].split(), "hello there /srv x 1000 mine new".split(), r)
        self.assertEqual(self.run_in("cfg:1", token=key)["stdout"], "ran\n/srv\n")
        self.assertEqual(self.run_in("cfg:1", "/bin/env", token=key, env={"GREETING": "mine"})["stdout"]
                         .count("GREETING=mine"), 1)
        box = self.box(key, image="cfg:1")
        self.assertEqual(box.sh("echo $GREETING; pwd")["stdout"], "hello there\n/srv\n")
        self.assertIn("uid 1000", box.get("").json["notes"][0])
        self.assertTrue(box.get("").json["image_id"].startswith("sha256:"))

    def box(self, token=None, **options):
        box = harness.Box(self.d, token, **options)
        self.addCleanup(box.delete)
        return box

    def test_the_user_has_a_name(self):
        """Also in forks; it is no change of the image."""
        accounts = layer(*images.shell_entries(), directory("etc"), entry("etc/passwd", data=b"root:x:0:0::/:/bin/sh\n"),
                         entry("etc/group", data=b"root:x:0:\n"))
        key = self.d.token("named")
        self.assertEqual(self.put(images.saved([accounts], {"Env": ["PATH=/bin"]}), "named:1", key).status, 201)
        for root in "overlay", "ro":
            with self.subTest(root):
                box = self.box(key, image="named:1", root=root)
                fork = self.d.post("/v1/sandboxes/%s/fork" % box.id, {}, token=key)
                self.assertEqual(fork.status, 201, fork)
                other = fork.json["sandboxes"][0]["sandbox"]["id"]
                for one in box.id, other:
                    r = self.d.post("/v1/sandboxes/%s/exec" % one, {"shell": "cat /etc/passwd /etc/group"}, token=key)
                    self.assertEqual(r.json["stdout"].split()[1::2], ["user:x:1000:1000:user:/home/user:/bin/sh", "user:x:1000:"], r)
                self.d.delete("/v1/sandboxes/" + other, token=key)

    def test_a_root_user_needs_the_right(self):
        for options, uid in (((), "1000"), (("--root",), "0")):
            key = self.d.token("user" + uid, *options)
            self.have("r:1", key, run=ROOT_USER)
            r = self.run_in("r:1", token=key)
            self.assertIn(f"uid={uid}", r["stdout"], r)
            self.assertIn("uid=1000", self.run_in("r:1", token=key, user="user")["stdout"])
            box = self.box(key, image="r:1")
            self.assertEqual(box.sh("id -u")["stdout"], uid + "\n")
            self.assertEqual("notes" in box.get("").json, uid == "1000")

    def test_a_name_that_moves_moves_nothing(self):
        key = self.d.token("moves")
        first = self.have("m:1", key, text="one\n")
        box = self.box(key, image="m:1")
        second = self.have("m:1", key, text="two\n")
        self.assertNotEqual(first, second)
        self.assertEqual(box.sh("cat /srv/mine; echo kept > /srv/kept")["stdout"], "one\n")
        self.assertEqual(self.run_in("m:1", "cat", "/srv/mine", token=key)["stdout"], "two\n")
        self.assertError(self.d.post("/v1/run", {"image": first, "cmd": ["id"]}, token=key), 404, "not_found")
        self.assertEqual(self.d.post("/v1/images/prune", {}).status, 200)
        fork = box.post("/fork", {"count": 1}).json["sandboxes"][0]["sandbox"]["id"]
        snapshot = box.post("/snapshot", {"name": "of-one"}).json
        self.assertEqual(snapshot["image"], first)
        self.assertEqual(box.post("/stop", {}).status, 200)
        self.assertEqual(self.d.post("/v1/images/prune", {}).status, 200)
        self.d.stop(destroy=False)
        self.d.start()
        self.assertEqual(self.d.post("/v1/images/prune", {}).status, 200)
        self.assertEqual(box.post("/start", {}).status, 200)
        again = self.box(key, snapshot=snapshot["id"])
        for b in (box, again):
            self.assertEqual(b.sh("cat /srv/mine /srv/kept")["stdout"], "one\nkept\n")
        r = self.d.post(f"/v1/sandboxes/{fork}/exec", {"cmd": ["cat", "/srv/mine"]}, token=key)
        self.assertEqual(r.json["stdout"], "one\n", r)
        # Another token cannot have it by naming the snapshot, nor by its id.
        other = self.d.token("moves-other")
        for body in ({"image": first}, {"image": first, "snapshot": snapshot["id"]}):
            self.assertEqual(self.d.post("/v1/sandboxes", body, token=other).status, 404)
        for b in (box, again):
            self.assertEqual(b.delete().status, 204)
        self.d.delete(f"/v1/sandboxes/{fork}", token=key)
        self.assertTrue(os.path.exists(self.store("images", first[7:])))
        self.assertEqual(self.d.delete("/v1/snapshots/" + snapshot["id"], token=key).status, 204)
        self.d.post("/v1/images/prune", {})
        self.assertFalse(os.path.exists(self.store("images", first[7:])))

    @harness.needs_warm
    def test_warm(self):
        key = self.d.token("warm")
        self.have("w:1", key)

        def warm():
            r = self.d.post("/v1/run", {"image": "w:1", "cmd": ["/bin/sh", "-c", "cat mine; echo $GREETING"],
                                        "warm": "only"}, token=key)
            return r.json if r.status == 200 else None

        r = harness.until(warm, "a warm run")
        self.assertEqual(r["stdout"], "x\nhello there\n")
        self.have("w:1", key, text="new\n")
        self.assertEqual(harness.until(warm, "a warm run")["stdout"], "new\nhello there\n")

    def test_what_the_operator_offers(self):
        key = self.d.token("offer")
        self.assertError(self.d.post("/v1/run", {"image": "offered", "cmd": ["id"]}, token=key), 404, field="image")
        self.have("offered:1")
        self.assertEqual(self.run_in("offered", "cat", "/srv/mine", token=key)["stdout"], "x\n")
        self.assertIn("offered", self.names(key))
        self.assertError(self.d.post("/v1/run", {"image": "offered:1", "cmd": ["id"]}, token=key), 404)
        self.assertError(self.d.delete("/v1/images?image=offered", token=key), 404)

    def test_the_command_line_of_the_operator(self):
        self.have("both:1")
        r = cl.run("image", "ls", "--json", env=self.d.env())
        self.assertIn("both:1", [i["name"] for i in json.loads(r.out)["images"]])
        cl.run("image", "tag", "both:1", "both:2", env=self.d.env())
        harness.until(lambda: "both:2" in self.names(), "the new name")
        cl.run("image", "rm", "both:2", env=self.d.env())
        harness.until(lambda: "both:2" not in self.names(), "its end")


class Owners(Images):
    def test_names_are_ones_own(self):
        a, b = self.d.token("a"), self.d.token("b")
        id_a = self.have("same:1", a, text="of a\n")
        self.have("same:1", b, text="of b\n")
        self.assertEqual(self.run_in("same:1", "cat", "/srv/mine", token=a)["stdout"], "of a\n")
        self.assertEqual(self.run_in("same:1", "cat", "/srv/mine", token=b)["stdout"], "of b\n")
        self.assertEqual(self.d.delete("/v1/images?image=same:1", token=b).status, 200)
        self.assertNotIn("same:1", self.names(b))
        for what in (id_a, id_a[7:19], "same:1"):
            self.assertError(self.d.post("/v1/sandboxes", {"image": what}, token=b), 404, field="image")
            self.assertEqual(self.d.get("/v1/images/inspect?image=" + what, token=b).status, 404)
            self.assertEqual(self.d.get("/v1/images/tar?image=" + what, token=b).status, 404)
            self.assertEqual(self.d.delete("/v1/images?image=" + what, token=b).status, 404)
            self.assertEqual(self.d.post("/v1/images/tag", {"image": what, "name": "mine"}, token=b).status, 404)
        self.assertEqual(self.d.get("/v1/images/inspect?image=" + id_a[:19], token=a).json["id"], id_a)
        owners = {i["name"]: i.get("owner") for i in self.d.get("/v1/images").json["images"]}
        self.assertTrue(owners["same:1"])

    def test_a_layer_of_another_has_to_be_brought(self):
        a, b = self.d.token("layer-a"), self.d.token("layer-b")
        self.have("secret:1", a, text="secret of a\n")
        path = os.path.join(self.d.dir, "stolen")
        os.makedirs(path)
        # A layout whose configuration names the layer of a, and whose blob is another one.
        stolen = images.Layout(path, [tree("secret of a\n")], USER, "none")
        other = layer(entry("nothing"))
        manifest = json.loads(open(os.path.join(path, "blobs/sha256", stolen.manifest["digest"][7:]), "rb").read())
        manifest["layers"] = [stolen.add(other, images.LAYER)]
        top = stolen.add(json.dumps(manifest).encode(), images.MANIFEST)
        stolen.write("index.json", json.dumps(dict(stolen.index, manifests=[top])).encode())
        os.unlink(os.path.join(path, "blobs/sha256", images.digest(tree("secret of a\n"))[7:]))
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            tar.add(path, ".")
        self.assertError(self.put(out.getvalue(), "stolen:1", b), 400)
        self.assertNotIn("stolen:1", self.names(b))
        # Who brings it has it, and the files are there once.
        before = os.listdir(self.store("layers"))
        self.have("brought:1", b, text="secret of a\n")
        self.assertEqual(os.listdir(self.store("layers")), before)

    def test_scopes(self):
        key = self.d.token("reader", "--scopes", "read")
        self.assertEqual(self.d.get("/v1/images", token=key).status, 200)
        self.assertEqual(self.put(archive(), "x:1", key).status, 403)
        self.assertEqual(self.d.post("/v1/images/pull", {"name": "x"}, token=key).status, 403)
        self.assertEqual(self.d.delete("/v1/images?image=x", token=key).status, 403)
        usual = self.d.token("usual")
        self.assertEqual(self.d.post("/v1/images/prune", {}, token=usual).status, 403)

    def test_how_many(self):
        key = self.d.token("many")
        for i in range(6):
            self.have(f"n:{i}", key)
        self.assertError(self.put(archive(), "n:7", key), 429, "limit")
        self.assertError(self.d.post("/v1/images/tag", {"image": "n:0", "name": "n:8"}, token=key), 429, "limit")


    def test_a_name_that_moves_leaves_nothing(self):
        key = self.d.token("moving")
        self.d.post("/v1/images/prune", {})
        before = set(os.listdir(self.store("layers")))
        for i in range(4):
            self.have("moving:1", key, text=f"{i}" * 1000)
            harness.until(lambda: len(set(os.listdir(self.store("layers"))) - before) == 1, "the old one's end")
        self.have("small:1", key, text="small")
        r = self.d.post("/v1/images/tag", {"image": "small:1", "name": "moving:1"}, token=key)
        self.assertEqual(r.status, 201, r)
        harness.until(lambda: len(set(os.listdir(self.store("layers"))) - before) == 1, "the old one's end")
        self.assertEqual(self.d.delete("/v1/images?image=small:1", token=key).status, 200)
        self.assertEqual(self.d.delete("/v1/images?image=moving:1", token=key).status, 200)
        self.assertEqual(set(os.listdir(self.store("layers"))), before)


class Room(harness.Case):
    """A store that is nearly full."""

    def setUp(self):
        self.daemon = harness.Daemon("image_store: {max_total: 8M}\n")
        self.daemon.start()
        self.addCleanup(self.daemon.remove)
        self.addCleanup(self.daemon.stop)

    def put(self, size, name, token):
        data = images.saved([layer(entry("x", data=os.urandom(size)))], {}, (name,))
        return self.daemon.put("/v1/images", data, token=token)

    def test_shares(self):
        a, b = self.daemon.token("room-a"), self.daemon.token("room-b")
        store = os.path.join(self.daemon.dir, "state", "images")
        self.assertError(self.put(7 << 20, "a:0", a), 429, "limit")
        harness.until(lambda: os.listdir(os.path.join(store, "layers")) == [], "no leftovers")
        # A process that is just ending still counts.
        harness.until(lambda: self.put(1 << 20, "a:0", a).status == 201, "room for one")
        said = [201] + [self.put(1 << 20, f"a:{i}", a).status for i in range(1, 9)]
        self.assertEqual(said[-1], 429)
        # Another one finds something, and what was refused left nothing.
        harness.until(lambda: self.put(100 << 10, "b:1", b).status == 201, "room for another")
        count = said.count(201) + 1
        harness.until(lambda: len(os.listdir(os.path.join(store, "layers"))) == count, "no leftovers")
        self.assertEqual(os.listdir(os.path.join(store, "tmp")), [])
        self.assertEqual(self.daemon.delete("/v1/images?image=a:0", token=a).status, 200)
        harness.until(lambda: self.put(900 << 10, "a:9", a).status == 201, "room again")


class Archives(Images):
    def test_there_and_back(self):
        self.have("round:1")
        info = self.d.get("/v1/images/inspect?image=round:1").json
        self.assertEqual((info["workdir"], info["user"], info["cmd"]), ("/srv", "7:7", USER["Cmd"]))
        tar = self.d.get("/v1/images/tar?image=round:1")
        self.assertEqual(tar.status, 200)
        again = self.put(tar.body, "round:2")
        self.assertEqual(again.json["images"], [{"id": info["id"], "name": "round:2"}], again)
        self.assertEqual(self.d.delete("/v1/images?image=" + info["id"]).status, 200)
        self.assertNotIn("round:2", self.names())

    def test_bad_archives(self):
        key = self.d.token("bad")
        for data in (b"", b"no tar", archive()[:30000], archive(run={"Env": ["A=\0b"]}), archive(run={"Env": ["A=" + "x" * (70 << 10)]})):
            r = self.put(data, "bad:1", key)
            self.assertIn(r.status, (400, 429, 501), r)
        self.assertError(self.put(archive(), None, key), 400, "invalid", "name")
        self.assertNotIn("bad:1", self.names(key))
        self.assertEqual(os.listdir(self.store("tmp")), [])

    def test_hostile_configurations(self):
        key = self.d.token("hostile")
        hostile = [
            ({"WorkingDir": "/proc/self/fd/7"}, ["/bin/id"]),
            ({"WorkingDir": "/proc/1/root"}, ["/bin/id"]),
            ({"WorkingDir": "not/absolute"}, ["/bin/id"]),
            ({"Env": ["no equals"]}, ["/bin/id"]),
            ({"User": "../../etc/passwd"}, ["/bin/id"]),
            ({"User": "4294967295:0"}, ["/bin/id"]),
            ({"User": "-1"}, ["/bin/id"]),
            ({"Env": ["LD_PRELOAD=/evil.so", "BASH_ENV=/evil", "PATH=/nowhere"]}, ["/bin/id"]),
            ({"Env": ["=x", "A B=1", "=" * 100]}, ["/bin/id"]),
            ({"Entrypoint": ["/proc/self/exe", "; rm -rf /"]}, None),
            ({"Entrypoint": [""]}, None),
        ]
        for i, (run, cmd) in enumerate(hostile):
            r = self.put(archive(run=run), "hostile:1", key)
            if r.status != 201:
                self.assertIn(r.status, (400, 501), r)
                continue
            for root in ("ro", "overlay"):
                body = {"image": "hostile:1", "root": root}
                if cmd:
                    body["cmd"] = cmd
                r = self.d.post("/v1/run", body, token=key)
                self.assertIn(r.status, (200, 400, 403, 404), (run, r))
                if r.status == 200 and "uid=" in r.json["stdout"]:
                    self.assertIn("uid=1000", r.json["stdout"], run)
        self.assertEqual(self.d.get("/healthz").status, 200)

    def test_a_client_that_goes_away(self):
        key = self.d.token("gone")
        data = archive(text="y" * 3000000)
        connection = self.d.connect(key)
        connection.putrequest("PUT", "/v1/images?name=gone:1")
        connection.putheader("Content-Length", str(len(data)))
        connection.putheader("Authorization", "Bearer " + key)
        connection.endheaders()
        connection.send(data[: len(data) // 2])
        connection.close()
        self.have("after:1", key)
        self.assertNotIn("gone:1", self.names(key))
        harness.until(lambda: os.listdir(self.store("tmp")) == [] or self.have("after:1", key) == 0, "a clean store")


class Pulls(Images):
    def setUp(self):
        super().setUp()
        path = os.path.join(self.d.dir, "layout" + self.id().rpartition(".")[2])
        os.makedirs(path)
        self.layout = images.Layout(path, [tree("pulled\n")], USER)
        self.registry.push(self.layout, "1")

    def test_from_a_registry(self):
        key = self.d.token("pulls")
        name = self.registry.host + "/a/b:1"
        r = self.d.post("/v1/images/pull", {"name": name}, token=key)
        self.assertEqual((r.status, r.json["images"]), (201, [{"id": self.layout.id, "name": name}]), r)
        self.assertEqual(self.run_in(name, "cat", "mine", token=key)["stdout"], "pulled\n")
        with self.d.stream("POST", "/v1/images/pull", {"name": name},
                           {"Accept": "text/event-stream"}, token=key) as s:
            events = list(s.events())
        self.assertEqual(events[-1][0], "done", events)

    def test_refused(self):
        key = self.d.token("pulls-not")
        for name in ("debian:12", "127.0.0.1:1/a/b", "localhost/a"):
            self.assertError(self.d.post("/v1/images/pull", {"name": name}, token=key), 403, "denied", "name")
            self.assertError(self.d.post("/v1/images/pull", {"name": name}), 403, "denied", "name")
        for name in ("", "../x", "a" * 500, self.registry.host + "/../x"):
            self.assertEqual(self.d.post("/v1/images/pull", {"name": name}, token=key).status, 400, name)
        self.assertEqual(self.d.post("/v1/images/pull", {"name": self.registry.host + "/a/b:no"},
                                     token=key).status, 404)


if __name__ == "__main__":
    unittest.main()
