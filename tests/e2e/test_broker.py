"""The broker by itself: it boots, pauses, copies, adopts and ends sandboxes, and believes no front."""

import errno
import json
import os
import signal
import socket
import struct
import unittest

import cl
import images
import puppet
from puppet import Broker, new_id


@unittest.skipUnless(os.access(puppet.PROGRAM, os.X_OK), "the puppet front is not built")
class Case(cl.Case):
    def broker(self, **kw):
        return Broker(self.dir, **kw)

    def boot(self, b, *words):
        name = new_id()
        reply = b.ask(" ".join(["boot", name, *words]))
        self.assertEqual(reply["type"], puppet.BOOTED, reply)
        return name

    def refused(self, reply, kind):
        self.assertEqual((reply["type"], reply["kind"]), (puppet.DONE, kind), reply)

    def done(self, reply):
        self.assertEqual((reply["type"], reply["kind"]), (puppet.DONE, 0), reply)

    def boxes(self, b):
        return sorted(n for n in os.listdir(os.path.join(b.runtime, "boxes")))


class Life(Case):
    def test_boot_and_destroy(self):
        with self.broker() as b:
            box = self.boot(b)
            self.assertEqual(b.ask("hello " + box)["type"], 96)
            self.assertEqual(self.boxes(b), [box, box + ".sock"])
            self.done(b.ask("destroy " + box))
            self.assertEqual(self.boxes(b), [])
            self.done(b.ask("destroy " + box))  # idempotent
            self.done(b.ask("destroy " + new_id()))

    def test_same_id_twice(self):
        with self.broker() as b:
            box = self.boot(b)
            self.refused(b.ask("boot " + box), puppet.CONFLICT)

    def test_many_at_once(self):
        with self.broker() as b:
            names = [new_id() for _ in range(20)]
            for name in names:
                b.send("boot " + name)
            for _ in names:
                self.assertEqual(b.news(puppet.BOOTED)["type"], puppet.BOOTED)
            for name in names:
                b.send("destroy " + name)
            for _ in names:
                self.done(b.news(puppet.DONE))
            self.assertEqual(self.boxes(b), [])

    def test_destroyed_while_booting(self):
        with self.broker() as b:
            name = new_id()
            b.send("boot " + name)
            b.send("destroy " + name)
            first, second = b.line(), b.line()
            while first.get("serial") == 0:
                first, second = second, b.line()
            self.assertIn(first["type"], (puppet.BOOTED, puppet.DONE))
            self.assertEqual(second["type"], puppet.DONE)
            puppet.await_true(lambda: self.boxes(b) == [])

    def test_killed_from_outside(self):
        with self.broker() as b:
            box = self.boot(b)
            pid = self.guest_pid(b, box)
            os.kill(pid, signal.SIGKILL)
            self.assertEqual(b.news(puppet.DIED)["id"], box)
            puppet.await_true(lambda: self.boxes(b) == [])

    def guest_pid(self, b, box):
        """From the record; it begins with magic, size, a number, then the provider's blob with the pid."""
        with open(os.path.join(b.runtime, "boxes", box), "rb") as record:
            return struct.unpack("8sIIq", record.read(24))[3]

    def test_stats(self):
        with self.broker() as b:
            box = self.boot(b)
            stats = b.ask("stats " + box)
            self.assertEqual(stats["type"], puppet.STATS_ARE)
            self.assertGreater(stats["disk"], 0)
            self.refused(b.ask("stats " + new_id()), puppet.NOT_FOUND)

    def test_links_get_newer(self):
        with self.broker() as b:
            box = self.boot(b)
            b.ask("hello " + box)
            self.assertEqual(b.ask("connect " + box)["generation"], 2)
            self.assertEqual(b.ask("hello " + box)["type"], 96)

    def test_pause(self):
        with self.broker() as b:
            box = self.boot(b)
            self.done(b.ask("pause " + box))
            self.done(b.ask("pause " + box))
            self.done(b.ask("resume " + box))
            self.assertEqual(b.ask("hello " + box)["type"], 96)
            self.done(b.ask("pause " + box))
            self.done(b.ask("destroy " + box))  # also while it is frozen
            self.assertEqual(self.boxes(b), [])

    def test_pool(self):
        with self.broker() as b:
            box = self.boot(b, "-")
            self.done(b.ask("claim %s abcdefghij" % box))
            self.refused(b.ask("claim %s abcdefghij" % box), puppet.CONFLICT)


class Snapshots(Case):
    def test_an_id_that_is_given_again(self):
        """A snapshot that waits is for the sandbox that was named, not for the next one of that id."""
        with self.broker(env={"MALLOC_PERTURB_": "165"}) as b:
            others, box = [self.boot(b) for _ in range(30)], self.boot(b)
            first, second, answers = new_id(), new_id(), []
            for other in others:
                b.send("snapshot %s %s" % (new_id(), other))
            for line in ("snapshot %s %s" % (first, box), "destroy " + box):
                b.send(line)
            while not answers or answers[-1]["type"] != puppet.DONE or answers[-1].get("kind"):
                answers.append(b.line())
            b.send("boot " + box)
            while answers[-1]["type"] != puppet.BOOTED:
                answers.append(b.line())
            for line in ("snapshot %s %s" % (second, box), "pause " + box):
                b.send(line)
            while len(answers) < len(others) + 5:
                answers.append(b.line())
            made = [a["id"] for a in answers if a["type"] == puppet.SNAPSHOT_IS]
            self.assertNotIn(first, made)
            self.assertEqual(len(made), len(others) + 1, answers)
            self.assertIsNone(b.process.poll())

    def test_make_list_delete(self):
        with self.broker() as b:
            box, snapshot = self.boot(b), new_id()
            made = b.ask("snapshot %s %s" % (snapshot, box))
            self.assertEqual(made["type"], puppet.SNAPSHOT_IS, made)
            self.assertRegex(made["digest"], "^sha256:[0-9a-f]{64}$")
            self.assertEqual(b.ask("hello " + box)["type"], 96)  # it goes on
            self.assertTrue(b.ask("read " + snapshot)["fd"])
            # another owner's answers like none
            for verb in ("read", "delete"):
                self.refused(b.ask("%s %s abcdefghij" % (verb, snapshot)), puppet.NOT_FOUND)
            self.refused(b.ask("snapshot %s %s" % (snapshot, box)), puppet.CONFLICT)
            self.assertEqual(b.ask("list")["id"], snapshot)
            self.assertEqual(b.line()["type"], puppet.DONE)
            self.done(b.ask("delete " + snapshot))
            self.assertEqual(os.listdir(os.path.join(b.state, "snapshots")), [])

    def test_what_is_no_tar(self):
        with self.broker() as b:
            snapshot = new_id()
            self.assertTrue(b.ask("write " + snapshot)["fd"])
            self.assertEqual(b.ask("pour 10240")["poured"], 10240)
            b.ask("shut")
            self.refused(b.ask("keep " + snapshot), puppet.INVALID)
            self.assertEqual(os.listdir(os.path.join(b.state, "snapshots")), [])

    def sizes(self, b):
        top = os.path.join(b.state, "snapshots")
        return [os.stat(os.path.join(top, name)).st_blocks * 512 for name in sorted(os.listdir(top))]

    def bounded(self, settings):
        path = os.path.join(self.dir, "cloche.yaml")
        with open(path, "w", encoding="utf-8") as out:
            out.write("snapshots: {%s}\n" % settings)
        return self.broker(config=path)

    def test_no_front_fills_the_disk(self):
        """One that does not care for the bound, and never says that it is done."""
        with self.bounded("max_bytes: 2M") as b:
            snapshot = new_id()
            self.assertTrue(b.ask("write " + snapshot)["fd"])
            poured = b.ask("pour 50000000")
            self.assertEqual(poured["errno"], errno.EPIPE, poured)
            self.assertLess(max(self.sizes(b)), 3 << 20)
            b.ask("shut")
            self.refused(b.ask("keep " + snapshot), puppet.LIMIT)
            self.assertEqual(self.sizes(b), [])

    def test_what_is_given_up_is_held_by_nobody(self):
        """Its file is gone although the front keeps what it writes to."""
        with self.bounded("max_bytes: 8M") as b:
            snapshot = new_id()
            b.ask("write " + snapshot)
            self.assertEqual(b.ask("pour 2000000")["errno"], 0)
            self.done(b.ask("delete " + snapshot))
            self.assertEqual(self.sizes(b), [])
            puppet.await_true(lambda: b.ask("pour 2000000")["errno"] == errno.EPIPE)

    def test_all_together(self):
        """Owners that the front invents do not help it."""
        with self.bounded("max_bytes: 2M, max_total: 5M") as b:
            said = [b.ask("write %s owner%d" % (new_id(), i)) for i in range(20)]
            self.assertEqual(said[0]["type"], puppet.SNAPSHOT_IS)
            self.refused(said[-1], puppet.LIMIT)
            # the last one that was let in has what is left
            poured = b.ask("pour 50000000")
            self.assertEqual(poured["errno"], errno.EPIPE, poured)
            self.assertLess(sum(self.sizes(b)), 6 << 20)

    def test_so_many_at_once(self):
        with self.broker() as b:
            said = [b.ask("write %s o%d" % (new_id(), i)) for i in range(40)]
            made = [s for s in said if s["type"] == puppet.SNAPSHOT_IS]
            self.assertTrue(0 < len(made) < 40, len(made))

    def test_a_front_that_dies_leaves_nothing(self):
        with self.broker() as b:
            b.ask("write " + new_id())
            b.ask("pour 100000")
            b.send("quit")
            puppet.await_true(lambda: self.sizes(b) == [])
            b.connect()  # to the next one, which the broker's end is told to


@unittest.skipUnless(os.path.exists(images.BUSYBOX), "needs " + images.BUSYBOX)
class Images(Case):
    def setUp(self):
        super().setUp()
        path = os.path.join(self.dir, "image.tar")
        with open(path, "wb") as out:
            out.write(images.saved([images.layer(*images.shell_entries())]))
        env = cl.caller_env(CLOCHE_STATE_DIR=os.path.join(self.dir, "state"))
        self.image = cl.run("image", "import", path, env=env).out.split()[0]
        self.refs = os.path.join(self.dir, "state", "images", "refs")
        self.name_it("mine:1", "tokena")

    def name_it(self, name, owner):
        with open(self.refs, "w", encoding="utf-8") as out:
            out.write(f"{owner} {name} {self.image} - 1\n")

    def test_whose_it_is(self):
        with self.broker() as b:
            box, snapshot = new_id(), new_id()
            for owner in ("tokenb", "@tokena", "*", "-"):
                self.assertEqual(b.ask(f"image {new_id()} {owner} {self.image}")["type"], puppet.DONE, owner)
            for image in ("sha256:" + "0" * 64, "sha256:../../../etc", "dir:../etc", "/etc", "dir:", self.image[7:]):
                self.refused(b.ask(f"image {new_id()} tokena {image}"), puppet.NOT_FOUND)
            self.assertEqual(b.ask(f"image {box} tokena {self.image}")["type"], puppet.BOOTED)
            self.assertEqual(b.ask(f"snapshot {snapshot} {box} tokena")["type"], puppet.SNAPSHOT_IS)
            self.assertEqual(sorted(os.listdir(os.path.join(b.state, "images", "uses"))), sorted([box, snapshot]))
            self.name_it("mine:1", "tokenb")
            self.refused(b.ask(f"image {new_id()} tokena {self.image}"), puppet.NOT_FOUND)
            self.assertEqual(b.ask(f"image {new_id()} tokena {self.image} {snapshot}")["type"], puppet.BOOTED)
            for owner in ("tokenc", "."):
                self.refused(b.ask(f"image {new_id()} {owner} {self.image} {snapshot}"), puppet.NOT_FOUND)
            self.assertTrue(b.ask("delete %s tokena" % snapshot))
            self.refused(b.ask(f"image {new_id()} tokena {self.image} {snapshot}"), puppet.NOT_FOUND)
            self.done(b.ask("destroy " + box))
            self.assertNotIn(box, os.listdir(os.path.join(b.state, "images", "uses")))

    def test_work_that_is_none(self):
        with self.broker() as b:
            self.refused(b.ask("job 99 tokena x ."), puppet.INVALID)
            self.refused(b.ask("job 3 a/x mine:1 other:1"), puppet.INVALID)
            self.refused(b.ask("job 3 - mine:1 other:1"), puppet.INVALID)
            self.refused(b.ask("job 0 tokena debian:12 ."), puppet.DENIED)
            self.refused(b.ask("job 0 . 127.0.0.1:1/x ."), puppet.DENIED)


class Restart(Case):
    def test_adopted(self):
        with self.broker() as b:
            boxes = sorted(self.boot(b) for _ in range(3))
            for box in boxes:
                self.assertEqual(b.ask("hello " + box)["type"], 96)
            b.kill()
            b.start()
            adopted = sorted(b.news(puppet.ADOPTED)["id"] for _ in boxes)
            self.assertEqual(adopted, boxes)
            b.news(puppet.READY)
            for box in boxes:
                self.assertEqual(b.ask("hello " + box)["type"], 96)

    def test_records_of_other_sizes(self):
        """One with room behind its end is as good; one that was cut is left alone until it can be read."""
        with self.broker() as b:
            long, cut = self.boot(b), self.boot(b)
            for box in (long, cut):
                self.assertEqual(b.ask("hello " + box)["type"], 96)
            # Without a cgroup nothing else tells where it is.
            pid = Life.guest_pid(self, b, cut)
            b.kill()
            os.kill(pid, signal.SIGKILL)
            with open(os.path.join(b.runtime, "boxes", long), "r+b") as record:
                size = len(record.read()) + 1000
                record.write(bytes(1000))
                record.seek(8)
                record.write(struct.pack("I", size))
            with open(os.path.join(b.runtime, "boxes", cut), "r+b") as record:
                whole = record.read()
                record.truncate(len(whole) - 1)
            # Twice: it was written anew when it was taken up.
            for _ in range(2):
                b.start()
                self.assertEqual(b.news(puppet.ADOPTED)["id"], long)
                b.news(puppet.READY)
                self.assertEqual(b.ask("hello " + long)["type"], 96)
                b.kill()
            self.assertIn("left alone", b.log())
            self.assertIn(cut, self.boxes(b))
            self.put_back(b, cut, whole)
            puppet.await_true(lambda: self.boxes(b) == [long, long + ".sock"])

    def put_back(self, b, box, whole):
        """The record as it was, for the next broker."""
        with open(os.path.join(b.runtime, "boxes", box), "wb") as record:
            record.write(whole)
        b.start()
        b.news(puppet.READY)

    def test_record_of_0_1_that_makes_no_sense(self):
        """It is left alone, and the log says so (daemon/test_restart.py has one that makes sense)."""
        with self.broker() as b:
            box = self.boot(b)
            pid = Life.guest_pid(self, b, box)
            b.kill()
            os.kill(pid, signal.SIGKILL)
            with open(os.path.join(b.runtime, "boxes", box), "r+b") as record:
                whole = record.read()
                record.seek(0)
                record.write(b"cloche1\0")
            b.start()
            b.news(puppet.READY)
            self.assertIn("left alone", b.log())
            self.assertIn(box, self.boxes(b))
            b.kill()
            self.put_back(b, box, whole)
            puppet.await_true(lambda: self.boxes(b) == [])

    def test_debris(self):
        with self.broker() as b:
            dead, alive = self.boot(b), self.boot(b)
            for box in (dead, alive):
                self.assertEqual(b.ask("hello " + box)["type"], 96)
            pid = Life.guest_pid(self, b, dead)
            b.kill()
            os.kill(pid, signal.SIGKILL)
            puppet.await_true(lambda: puppet.is_dead(pid))
            for name in (new_id() + ".sock", new_id() + ".new", new_id()):
                with open(os.path.join(b.runtime, "boxes", name), "w", encoding="utf-8"):
                    pass
            b.start()
            self.assertEqual(b.news(puppet.ADOPTED)["id"], alive)
            b.news(puppet.READY)
            puppet.await_true(lambda: self.boxes(b) == [alive, alive + ".sock"])
            self.assertIn("sandbox reaped", b.log())

    def test_nobody_was_told(self):
        """A sandbox that no front has spoken to ends with the broker that made it."""
        with self.broker() as b:
            self.boot(b)
            b.kill()
            b.start()
            b.news(puppet.READY)
            puppet.await_true(lambda: self.boxes(b) == [])

    def test_somebody_elses_pid(self):
        """A record whose pid is another process by now is debris, and that process lives on."""
        with self.broker() as b:
            box = self.boot(b)
            pid = Life.guest_pid(self, b, box)
            b.kill()
            os.kill(pid, signal.SIGKILL)
            path = os.path.join(b.runtime, "boxes", box)
            with open(path, "r+b") as record:
                record.seek(16)
                record.write(struct.pack("q", os.getpid()))
            b.start()
            b.news(puppet.READY)
            puppet.await_true(lambda: self.boxes(b) == [])

    def test_runs_end_with_their_front(self):
        """The client that waits for a run is lost with its front; nobody else ever hears of it."""
        with self.broker() as b:
            for end in (lambda: (b.line_socket.close(), b.connect()), lambda: (b.kill(), b.start())):
                kept, run = self.boot(b), new_id()
                self.assertEqual(b.ask("once " + run)["type"], puppet.BOOTED)
                for box in (kept, run):  # known to a front
                    self.assertEqual(b.ask("hello " + box)["type"], 96)
                end()
                self.assertEqual(b.news(puppet.ADOPTED)["id"], kept)
                puppet.await_true(lambda: run not in self.boxes(b))
                self.done(b.ask("destroy " + kept))
            self.assertEqual(self.boxes(b), [])

    def boot_workers(self, b):
        found = []
        for task in os.listdir("/proc/%d/task" % b.process.pid):
            with open("/proc/%d/task/%s/children" % (b.process.pid, task), encoding="ascii") as f:
                found += map(int, f.read().split())
        return [pid for pid in found if os.readlink("/proc/%d/exe" % pid).endswith("cloche-boot")]

    def test_an_answer_for_an_earlier_front(self):
        """It is for nobody: the next front counts its requests anew."""
        with self.broker() as b:
            workers = self.boot_workers(b)
            self.assertTrue(workers)
            for pid in workers:
                os.kill(pid, signal.SIGSTOP)
            b.send("boot " + new_id())
            self.refused(b.ask("stats " + new_id()), puppet.NOT_FOUND)  # so the broker has the other one, too
            b.line_socket.close()
            b.connect()
            b.news(puppet.READY)
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            puppet.await_true(lambda: "sandbox not booted" in b.log())
            self.refused(b.ask("stats " + new_id()), puppet.NOT_FOUND)

    def test_state_of_somebody_else(self):
        self.need_root()
        state = self.mkdir("theirs")
        os.chown(state, 12345, 12345)
        r = cl.command(os.path.join(puppet.BUILD, "cloched"), "serve",
                       env=cl.caller_env(CLOCHE_STATE_DIR=state, CLOCHE_RUNTIME_DIR=self.path("run")))
        self.assertEqual(r.code, 125, r)
        self.assertIn("belongs to somebody else", r.err)

    def test_one_daemon_per_state(self):
        with self.broker() as b:
            r = cl.command(
                os.path.join(puppet.BUILD, "cloched"),
                "serve",
                env=cl.caller_env(CLOCHE_STATE_DIR=b.state, CLOCHE_RUNTIME_DIR=b.runtime + "2"),
            )
            self.assertEqual(r.code, 125)
            self.assertIn("another daemon", r.err)

    def test_new_front(self):
        """A front that dies comes back, and hears of all there is."""
        with self.broker() as b:
            box = self.boot(b)
            b.line_socket.close()  # the puppet ends
            b.connect()
            self.assertEqual(b.news(puppet.ADOPTED)["id"], box)
            self.assertEqual(b.ask("hello " + box)["type"], 96)


class Hostile(Case):
    def test_garbage(self):
        with self.broker() as b:
            for text in ("00", "ff" * 100, "01000000" + "00" * 6000, "63000000" + "00" * 600):
                b.news(puppet.READY)
                b.send("raw " + text)
                with self.assertRaises((EOFError, OSError)):
                    while True:  # news may be on the way
                        b.line()
                b.connect()
            b.news(puppet.READY)
            self.done(b.ask("destroy " + new_id()))

    def test_request_without_a_number(self):
        """Only news have serial 0; a front that asks so does not keep to the protocol."""
        with self.broker() as b:
            box = self.boot(b)
            b.send("news destroy " + box)
            with self.assertRaises((EOFError, OSError)):
                while True:
                    b.line()
            b.connect()
            self.assertEqual(b.news(puppet.ADOPTED)["id"], box)

    def test_claim_with_a_volume(self):
        config = os.path.join(self.dir, "conf.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write("volumes: {data: {path: %s, tokens: ['*']}}\n" % self.mkdir("data"))
        with self.broker(config=config) as b:
            self.refused(b.ask("grab %s abcdefghij data /data" % self.boot(b, "-")), puppet.CONFLICT)

    def test_above_the_ceiling(self):
        config = os.path.join(self.dir, "conf.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write("ceilings:\n  memory: 512M\nsandbox:\n  memory_limit: 256M\nmax_sandboxes: 2\n")
        with self.broker(config=config) as b:
            self.refused(b.ask("boot %s . %d" % (new_id(), 1 << 30)), puppet.DENIED)
            box = self.boot(b)
            self.refused(b.ask("update %s %d" % (box, 1 << 30)), puppet.DENIED)
            self.boot(b)
            self.refused(b.ask("boot " + new_id()), puppet.LIMIT)

    def test_the_pool_is_no_way_around(self):
        """What is claimed from the pool counts like what is booted."""
        config = os.path.join(self.dir, "conf.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write("max_sandboxes: 2\n")
        with self.broker(config=config) as b:
            self.boot(b)
            first, second = self.boot(b, "-"), self.boot(b, "-")
            self.refused(b.ask("claim %s -" % first), puppet.INVALID)
            self.done(b.ask("claim %s abcdefghij" % first))
            self.refused(b.ask("claim %s abcdefghij" % second), puppet.LIMIT)

    def test_above_the_total(self):
        """Memory of all together: booted, claimed from the pool, and grown. What ends makes room."""
        config = os.path.join(self.dir, "conf.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write("memory_total: 1000M\nsandbox:\n  memory_limit: 256M\n")
        with self.broker(config=config) as b:
            first, second = (self.boot(b, ".", "%d" % (m << 20)) for m in (400, 500))
            self.refused(b.ask("boot %s . %d" % (new_id(), 400 << 20)), puppet.LIMIT)
            self.refused(b.ask("update %s %d" % (first, 700 << 20)), puppet.LIMIT)
            if os.geteuid() == 0:  # limits of a sandbox without a cgroup stay
                self.done(b.ask("update %s %d" % (first, 450 << 20)))
            pooled = self.boot(b, "-")
            self.refused(b.ask("claim %s abcdefghij" % pooled), puppet.LIMIT)
            self.done(b.ask("destroy " + second))
            self.done(b.ask("claim %s abcdefghij" % pooled))

    def test_above_the_total_of_a_token(self):
        with self.broker() as b:
            made = cl.run("token", "create", "--memory-total", "500M", "--json", "small",
                          env=cl.caller_env(CLOCHE_STATE_DIR=b.state, CLOCHE_RUNTIME_DIR=b.runtime))
            self.assertEqual(made.code, 0, made)
            token = json.loads(made.out)["id"]
            box = new_id()
            # The broker reads its tokens again a moment later.
            self.assertTrue(cl.wait_for(lambda: self.is_refused_at(b, token, 600 << 20)))
            self.assertEqual(b.ask("boot %s %s %d" % (box, token, 400 << 20))["type"], puppet.BOOTED)
            self.refused(b.ask("boot %s %s %d" % (new_id(), token, 200 << 20)), puppet.LIMIT)
            self.boot(b, ".", "%d" % (200 << 20))

    def is_refused_at(self, b, token, memory):
        name = new_id()
        reply = b.ask("boot %s %s %d" % (name, token, memory))
        if reply["type"] == puppet.BOOTED:
            b.ask("destroy " + name)
        return reply["type"] == puppet.DONE and reply["kind"] == puppet.LIMIT

    def test_above_the_ceiling_of_a_token(self):
        with self.broker() as b:
            made = cl.run(
                "token", "create", "--memory", "300M", "small",
                env=cl.caller_env(CLOCHE_STATE_DIR=b.state, CLOCHE_RUNTIME_DIR=b.runtime),
            )
            self.assertEqual(made.code, 0, made)
            owner = made.out.strip().split("\n")[-1].split("_")[1]

            def is_known():
                name = new_id()
                reply = b.ask("boot %s %s %d" % (name, owner, 301 << 20))
                if reply["type"] == puppet.BOOTED:
                    self.done(b.ask("destroy " + name))
                return reply["type"] == puppet.DONE and reply["kind"] == puppet.DENIED

            puppet.await_true(is_known)
            box = self.boot(b, owner)
            self.refused(b.ask("update %s %d" % (box, 301 << 20)), puppet.DENIED)

    def test_unfinished_snapshots_count(self):
        config = os.path.join(self.dir, "conf.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write("snapshots:\n  max_count: 2\n")
        with self.broker(config=config) as b:
            files = os.path.join(b.state, "snapshots")
            first, second = new_id(), new_id()
            for name in (first, second):
                self.assertTrue(b.ask("write %s abcdefghij" % name)["fd"])
            self.refused(b.ask("write %s abcdefghij" % new_id()), puppet.LIMIT)
            for verb in ("delete", "keep"):  # another owner's
                self.refused(b.ask("%s %s klmnopqrst" % (verb, first)), puppet.NOT_FOUND)
            self.done(b.ask("delete %s abcdefghij" % first))
            self.assertEqual(os.listdir(files), [second + ".part"])
            b.line_socket.close()  # who was to write the other one has gone
            b.connect()
            b.news(puppet.READY)
            self.assertEqual(os.listdir(files), [])

    def test_guest_with_other_files(self):
        """Who took pid 1 over cannot have the broker work on another directory than its own."""
        guest = os.path.join(os.path.dirname(puppet.PROGRAM), "changeling")
        if not os.access(guest, os.X_OK) or cl.is_sanitized():
            self.skipTest("it is not built, or not such that it runs inside")
        with self.broker(env={"CLOCHE_GUEST": guest}) as b:
            box = self.boot(b)

            def is_found_out():
                reply = b.ask("snapshot %s %s" % (new_id(), box))
                return (reply["type"], reply.get("kind")) == (puppet.DONE, puppet.CONFLICT)

            puppet.await_true(is_found_out)
            self.assertEqual(b.ask("stats " + box)["disk"], 0)
            self.done(b.ask("destroy " + box))

    def test_no_host_path(self):
        secret = os.path.join(self.dir, "secret")
        volume = os.path.join(self.dir, "volume")
        os.makedirs(secret)
        os.makedirs(os.path.join(volume, "in"))
        os.symlink(secret, os.path.join(volume, "way-out"))
        config = os.path.join(self.dir, "conf.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write("volumes:\n  data:\n    path: %s\n    read_only: false\n" % volume)
        with self.broker(config=config) as b:
            for name, sub, target, kind in (
                ("/etc", ".", "/mnt/x", puppet.NOT_FOUND),
                ("data", "..", "/mnt/x", puppet.NOT_FOUND),
                ("data", "../secret", "/mnt/x", puppet.NOT_FOUND),
                ("data", "way-out", "/mnt/x", puppet.NOT_FOUND),
                ("data", "/etc", "/mnt/x", puppet.INVALID),
                ("data", ".", "/proc/x", puppet.DENIED),
                ("data", ".", "/mnt/../usr", puppet.INVALID),
            ):
                self.refused(b.ask("volume %s %s %s %s" % (new_id(), name, sub, target)), kind)
            reply = b.ask("volume %s data in /mnt/x" % new_id())
            self.assertEqual(reply["type"], puppet.BOOTED, reply)

    def test_tmpfs_is_checked_again(self):
        with self.broker() as b:
            for path, size in (("/mnt/t", 1 << 40), ("/mnt/t", 0), ("/", 1 << 20), ("/proc/x", 1 << 20),
                               ("/mnt/../usr", 1 << 20), ("t", 1 << 20)):
                self.refused(b.ask("tmpfs %s %s %d" % (new_id(), path, size)), puppet.INVALID)
            reply = b.ask("tmpfs %s /mnt/t %d" % (new_id(), 1 << 20))
            self.assertEqual(reply["type"], puppet.BOOTED, reply)

    def test_root_inside_is_a_right_of_the_token(self):
        with self.broker() as b:
            self.refused(b.ask("root %s abcdefghij" % new_id()), puppet.DENIED)
            reply = b.ask("root %s ." % new_id())
            self.assertEqual(reply["type"], puppet.BOOTED, reply)

    def test_bad_ids(self):
        with self.broker() as b:
            for name in ("../../../../etc/passwd", "x", "ABCDEFGHIJKLMNOPQRST"):
                self.refused(b.ask("boot " + name), puppet.INVALID)
                self.done(b.ask("destroy " + name))
                for verb in ("stats", "pause", "resume", "connect"):
                    self.refused(b.ask("%s %s" % (verb, name)), puppet.NOT_FOUND)
                for verb in ("read", "delete", "keep"):
                    self.refused(b.ask("%s %s" % (verb, name)), puppet.NOT_FOUND)
                self.refused(b.ask("write " + name), puppet.INVALID)


class Agents(Case):
    """A hostile front has messages signed: only in the name of agents that run, of now, and with their own trust."""

    def start(self):
        key = os.path.join(self.dir, "master")
        with open(key, "w", encoding="utf-8") as f:
            f.write("ab" * 32)
        os.chmod(key, 0o400)
        config = os.path.join(self.dir, "cloche.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write("keys:\n  master: {file: %s}\n" % key)
        b = self.broker(config=config)
        self.done(b.ask("agent loud 3 1 ."))
        self.done(b.ask("agent low 1 1 ."))
        self.done(b.ask("agent asleep 3 0 ."))
        puppet.await_true(lambda: b.ask("sign loud low 0 0")["kind"] == 0, "the signer does not come")
        return b

    def test_what_is_not_its_own_to_say(self):
        with self.start() as b:
            told = b.ask("sign loud low 0 0")
            self.assertEqual((told["trust"], told["epoch"]), (3, 0), told)
            self.assertNotEqual(told["uid"], "a" * 20)
            self.assertEqual(b.ask("verify")["kind"], 0)
            self.refused(b.ask("verify changed"), puppet.DENIED)

    def test_refused(self):
        with self.start() as b:
            for words, kind in (
                ("asleep low 0 0", puppet.DENIED),    # no sandbox of it runs
                ("nobody low 0 0", puppet.DENIED),    # is not registered
                ("low loud 0 0", puppet.DENIED),      # trust levels
                ("low loud 1 0", puppet.DENIED),
                ("loud nobody 0 0", puppet.NOT_FOUND),
                ("loud low 0 -61000", puppet.INVALID),  # not of this time
                ("loud low 0 61000", puppet.INVALID),
                ("loud low 2 0", puppet.INVALID),     # a reply to nothing
                ("loud low 7 0", puppet.INVALID),     # no kind
                ("loud ../low 0 0", puppet.INVALID),
            ):
                with self.subTest(words):
                    self.refused(b.ask("sign " + words), kind)

    def test_registered_above_its_owner(self):
        with self.start() as b:
            self.refused(b.ask("agent proud 5 1 nosuchtoken"), puppet.DENIED)
            self.refused(b.ask("agent odd 6 1 ."), puppet.INVALID)
            self.refused(b.ask("agent loud 5 1 ."), puppet.CONFLICT)
            self.done(b.ask("agent theirs 0 1 nosuchtoken"))
            self.refused(b.ask("sign loud theirs 0 0"), puppet.NOT_FOUND)


class Peers(Case):
    def test_sandbox_is_refused(self):
        """Who lives in other namespaces gets no answer, even with the operator's uid (rule 7)."""
        with self.broker() as b:
            code = (
                "import socket,sys; s=socket.socket(socket.AF_UNIX); s.settimeout(20);"
                "s.connect(sys.argv[1]); sys.exit(9 if s.recv(1) == b'' else 1)"
            )
            r = cl.command("unshare", "-Urm", cl.PYTHON, "-c", code, b.socket)
            if r.code not in (9, 1) and "Operation not permitted" in r.err:
                self.skipTest("no user namespaces for unshare here")
            self.assertEqual(r.code, 9, r)
            puppet.await_true(lambda: "peer refused" in b.log())

    def test_own_peer_is_passed_on(self):
        with self.broker() as b:
            b.news(puppet.READY)
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(b.socket)
                self.assertEqual(b.news(puppet.PEER)["type"], puppet.PEER)


if __name__ == "__main__":
    unittest.main()
