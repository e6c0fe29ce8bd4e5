"""Signed messages between agents: seed 001's class case by case, its holes, mailboxes, tasks, bounds."""

import base64
import ctypes
import ctypes.util
import hashlib
import hmac
import os
import sqlite3
import subprocess
import threading
import time

import harness
import served

# Seed 001, pattern 7's levels by name.
LEVELS = {"root": 5, "chief": 4, "writer": 3, "reviewer": 3, "helper": 2, "box": 1, "box2": 1, "nobody": 0}


def encode(m):
    """The bytes under the signature, as docs/agents.md has them."""
    out = b"cloche message 1\0"
    for key in ("from", "from_uid", "to", "to_uid", "id", "reply_to"):
        text = (m[key] or "").encode()
        out += len(text).to_bytes(4, "little") + text
    kind = {"message": 0, "task": 1, "reply": 2}[m["kind"]]
    content = m["content"].encode()
    for number in (kind, m["trust"], m["depth"], m["epoch"], m["time_ms"], len(content)):
        out += number.to_bytes(8, "little")
    return out + hashlib.blake2b(content, digest_size=32).digest()


def is_signed(m, public_key):
    """By libsodium itself, with what everybody may know."""
    sodium = ctypes.CDLL(ctypes.util.find_library("sodium") or "libsodium.so.23")
    data = encode(m)
    return sodium.crypto_sign_verify_detached(
        base64.b64decode(m["signature"]), data, ctypes.c_ulonglong(len(data)), bytes.fromhex(public_key)) == 0


class Case(served.Case):
    assertError = harness.Case.assertError

    @classmethod
    def setUpClass(cls):
        cls.daemon = served.Daemon("")
        cls.addClassCleanup(cls.daemon.end)
        key_file = os.path.join(cls.daemon.dir, "master")
        with open(key_file, "w", encoding="utf-8") as f:
            f.write("cd" * 32 + "\n")
        os.chmod(key_file, 0o400)
        cls.daemon.config = "pool_size: 0\nkeys:\n  master: {file: %s}\n" % key_file
        cls.daemon.start()
        for name, trust in LEVELS.items():
            cls.register(name, trust)
        harness.until(lambda: cls.daemon.get("/v1/agents/root/keys").status == 200, "the signer")

    @classmethod
    def register(cls, name, trust=3, outside=True, **more):
        made = cls.daemon.post("/v1/agents", {"id": name, "trust": trust, "outside": outside, **more})
        if made.status != 201:
            raise AssertionError(made)
        return name

    @property
    def d(self):
        return self.daemon

    def fresh(self, *trusts):
        """Agents that no other test uses."""
        Case.count = getattr(Case, "count", 0)
        made = []
        for trust in trusts:
            Case.count += 1
            made.append(self.register("fresh%d" % Case.count, trust))
        return made

    def send(self, sender, to, content="hello", **more):
        return self.d.post("/v1/agents/%s/messages" % sender, {"to": to, "content": content, **more})

    def read(self, name, **query):
        args = "&".join("%s=%s" % item for item in query.items())
        reply = self.d.get("/v1/agents/%s/messages?%s" % (name, args))
        self.assertEqual(reply.status, 200, reply)
        return reply.json["messages"]

    def ack(self, name, through):
        self.assertEqual(self.d.delete("/v1/agents/%s/messages?through=%d" % (name, through)).status, 204)

    def verify(self, name, message):
        reply = self.d.post("/v1/agents/%s/verify" % name, {"message": message})
        self.assertEqual(reply.status, 200, reply)
        return reply.json["why"] or reply.json["valid"]


class Seed(Case):
    """SecureAgentCommunication of seed 001."""

    def test_the_seeds_signature_is_ambiguous(self):
        def sign(sender, recipient, content, stamp, nonce):
            data = f"{sender}:{recipient}:{content}:{stamp}:{nonce}"
            return hmac.new(b"key", data.encode(), hashlib.sha256).hexdigest()

        # Two messages, one signature there; two sequences of bytes here.
        self.assertEqual(sign("a", "b", "pay:1", 1.0, "n"), sign("a", "b:pay", "1", 1.0, "n"))
        whole = {"from": "a", "from_uid": "u", "to": "b", "to_uid": "u", "id": "n", "reply_to": None, "kind": "message",
                 "trust": 1, "depth": 0, "epoch": 0, "time_ms": 1, "content": "x"}
        other = {**whole, "from": "ab", "to": ""}
        self.assertEqual(whole["from"] + whole["to"], other["from"] + other["to"])
        self.assertNotEqual(encode(whole), encode(other))

    def test_create_and_verify(self):
        a, b = self.fresh(3, 3)
        sent = self.send(a, b, "hi: there")
        self.assertEqual(sent.status, 201, sent)
        m, = self.read(b)
        self.assertEqual((m["id"], m["from"], m["to"], m["content"], m["trust"]), (sent.json["id"], a, b, "hi: there", 3))
        key = self.d.get("/v1/agents/%s/keys" % a).json["keys"][0]["public_key"]
        self.assertTrue(is_signed(m, key))
        self.assertIs(self.verify(b, m), True)
        # verify_message's nonce cache, which here outlives the daemon.
        self.assertEqual(self.verify(b, m), "it was seen before")

    def test_wrong_recipient(self):
        a, b, c = self.fresh(3, 3, 3)
        self.send(a, b)
        m, = self.read(b)
        self.assertEqual(self.verify(c, m), "it is for somebody else")
        self.assertNotEqual(self.verify(c, {**m, "to": c}), True)
        uid = self.d.get("/v1/agents/%s" % c).json
        self.assertNotEqual(self.verify(c, {**m, "to": c, "to_uid": uid.get("uid", m["to_uid"])}), True)

    def test_every_field_is_signed(self):
        a, b = self.fresh(3, 3)
        self.send(a, b, "pay 1")
        m, = self.read(b)
        key = self.d.get("/v1/agents/%s/keys" % a).json["keys"][0]["public_key"]
        signature = bytearray(base64.b64decode(m["signature"]))
        signature[0] ^= 1
        for change in (
            {"content": "pay 2"}, {"content": "pay 1 "}, {"content": ""}, {"from": "root"}, {"from_uid": "a" * 20},
            {"id": m["id"] + "x"}, {"trust": 5}, {"trust": 0}, {"time_ms": m["time_ms"] + 1}, {"epoch": 1},
            {"kind": "task", "depth": 1}, {"kind": "reply", "reply_to": "x"}, {"to_uid": "a" * 20},
            {"signature": base64.b64encode(signature).decode()}, {"signature": base64.b64encode(bytes(64)).decode()},
            {"signature": m["signature"][:-4]}, {"signature": ""}, {"signature": None},
        ):
            self.assertNotEqual(self.verify(b, {**m, **change}), True, change)
            if change.get("signature", "x" * 88) and len(change.get("signature", "x" * 88)) == 88:
                self.assertFalse(is_signed({**m, **change}, key), change)
        for gone in m:
            if gone not in ("seq", "time", "reply_to", "content"):
                self.assertNotEqual(self.verify(b, {k: v for k, v in m.items() if k != gone}), True, gone)
        self.assertIs(self.verify(b, m), True)

    def test_too_old_and_of_the_future(self):
        a, b = self.fresh(3, 3)
        self.send(a, b)
        m, = self.read(b)
        now = int(time.time() * 1000)
        self.assertEqual(self.verify(b, {**m, "time_ms": now - 301000}), "it is too old")
        self.assertEqual(self.verify(b, {**m, "time_ms": now + 65000}), "it is of the future")

    def test_sender_that_is_gone_or_was_registered_again(self):
        a, b = self.fresh(3, 3)
        self.send(a, b)
        m, = self.read(b)
        self.d.delete("/v1/agents/" + a)
        self.assertEqual(self.verify(b, m), "nobody registered the sender")
        self.register(a)
        self.assertEqual(self.verify(b, m), "it is of another agent of that name")
        self.assertEqual(self.read(b), [])

    def test_can_communicate(self):
        for x, level in LEVELS.items():
            for y, other in LEVELS.items():
                reply = self.send(x, y)
                rule = self.d.get("/v1/trust?from=%s&to=%s" % (x, y)).json["rule"]
                self.assertEqual(reply.status, 201 if rule["may_talk"] else 403, (x, y, reply))
        self.assertError(self.send("root", "unregistered"), 404, "not_found", "to")
        self.assertError(self.send("unregistered", "root"), 404, "not_found")

    def test_can_delegate(self):
        a3, b3, c2, d4 = self.fresh(3, 3, 2, 4)
        self.assertEqual(self.send(a3, b3, kind="task").status, 201)
        self.assertEqual(self.send(a3, c2, kind="task").status, 201)
        self.assertError(self.send(a3, d4, kind="task"), 403, "denied", "to")


class Mail(Case):
    def test_sent_again_is_refused(self):
        a, b, c = self.fresh(3, 3, 3)
        self.assertEqual(self.send(a, b, id="one").status, 201)
        self.assertError(self.send(a, b, id="one"), 409, "conflict", "id")
        self.assertError(self.send(a, c, "other", id="one"), 409, "conflict", "id")
        self.assertEqual(self.send(c, b, id="one").status, 201)  # another sender's own
        self.ack(b, self.read(b)[-1]["seq"])
        self.assertError(self.send(a, b, id="one"), 409, "conflict", "id")
        self.daemon.stop(destroy=False)
        self.daemon.start()
        self.assertError(self.send(a, b, id="one"), 409, "conflict", "id")

    def test_given_until_it_is_acknowledged(self):
        a, b = self.fresh(3, 3)
        for i in range(5):
            self.send(a, b, str(i))
        all_five = self.read(b)
        self.assertEqual([m["content"] for m in all_five], list("01234"))
        self.assertEqual(self.read(b), all_five)
        self.assertEqual(self.read(b, after=all_five[2]["seq"]), all_five[3:])
        self.assertEqual(self.read(b, limit=2), all_five[:2])
        self.ack(b, all_five[2]["seq"])
        self.assertEqual(self.read(b), all_five[3:])
        self.daemon.kill()
        self.daemon.start()
        harness.until(lambda: self.d.get("/v1/agents/%s/messages" % b).status == 200, "the signer")
        self.assertEqual(self.read(b), all_five[3:])

    def test_waiting(self):
        a, b = self.fresh(3, 3)
        begun = time.monotonic()
        self.assertEqual(self.read(b, wait="0.3"), [])
        self.assertGreater(time.monotonic() - begun, 0.25)
        got = []
        waiting = threading.Thread(target=lambda: got.extend(self.read(b, wait="30")))
        waiting.start()
        self.send(a, b, "at last")
        waiting.join(30)
        self.assertEqual([m["content"] for m in got], ["at last"])

    def test_an_answer_is_bounded(self):
        a, b = self.fresh(3, 3)
        for i in range(12):
            self.send(a, b, "\u0001" * 65000)
        first = self.read(b)
        self.assertLess(len(first), 6)
        rest = self.read(b, after=first[-1]["seq"])
        self.assertEqual(len(rest) < 6 and rest[0]["seq"] > first[-1]["seq"], True)

    def test_bad_input(self):
        a, b = self.fresh(3, 3)
        for body, field, status in (
            ({"content": "x"}, "to", 400), ({"to": b}, "content", 400), ({"to": b, "content": 1}, "content", 400),
            ({"to": b, "content": "x", "id": "a b"}, "id", 400), ({"to": b, "content": "x", "id": ""}, "id", 400),
            ({"to": b, "content": "x", "id": "x" * 64}, "id", 400), ({"to": b, "content": "x", "kind": "order"}, "kind", 400),
            ({"to": b, "content": "x", "kind": "reply"}, "reply_to", 400), ({"to": b, "content": "x", "reply_to": "y"}, "reply_to", 400),
            ({"to": b, "content": "x" * 65537}, "content", 413), ({"to": "x" * 64, "content": "x"}, "to", 400),
            ({"to": b, "content": "x", "trust": 5}, "trust", 400), ({"to": b, "content": "x", "from": "root"}, "from", 400),
        ):
            reply = self.d.post("/v1/agents/%s/messages" % a, body)
            self.assertEqual((reply.status, reply.error["field"]), (status, field), (str(body)[:80], reply))
        self.assertEqual(self.send(a, b, "x" * 65536).status, 201)
        self.assertEqual(self.send(a, b, "").status, 201)
        self.assertEqual(self.send(a, b, "\u00fcber \U0001f514 \"\\\n").status, 201)
        self.assertEqual([m["content"] for m in self.read(b)][1:], ["", "\u00fcber \U0001f514 \"\\\n"])
        for junk in ("x", [], {}, {"from": a}, None):
            reply = self.d.post("/v1/agents/%s/verify" % b, {"message": junk})
            self.assertIn(reply.status, (200, 400), junk)
            self.assertFalse(reply.status == 200 and reply.json["valid"])

    def test_other_owners(self):
        key = self.daemon.token("tenant", "--trust", "5")
        owner = [t["id"] for t in self.d.get("/v1/tokens").json["tokens"] if t["name"] == "tenant"][0]
        self.register("theirs", 5, owner=owner)
        self.assertError(self.send("root", "theirs"), 404, "not_found", "to")
        for ask, path in ((self.d.get, "messages"), (self.d.get, "keys"), (self.d.delete, "messages?through=9")):
            self.assertError(ask("/v1/agents/root/" + path, token=key), 404, "not_found")
        self.assertError(self.d.post("/v1/agents/root/messages", {"to": "writer", "content": "x"}, token=key), 404, "not_found")
        mine = self.d.post("/v1/agents/theirs/messages", {"to": "theirs", "content": "x"}, token=key)
        self.assertEqual(mine.status, 201, mine)

    def test_mailbox_is_bounded(self):
        a, b, other = self.fresh(3, 3, 3)
        for i in range(768):
            sent = self.send(a, b)
            self.assertEqual(sent.status, 201, (i, sent))
        full = self.send(a, b)
        self.assertError(full, 429, "limit", "to")
        # One that floods it does not shut out the others, nor the answers that it asked for.
        for _ in range(32):
            self.assertEqual(self.send(other, b).status, 201)
        self.assertError(self.send(other, b), 429, "limit", "to")
        self.ack(b, self.read(b, limit=33)[-1]["seq"])
        self.assertEqual(self.send(a, b).status, 201)
        self.assertError(self.send(a, b), 429, "limit", "to")
        self.daemon.stop(destroy=False)
        self.daemon.start()
        harness.until(lambda: self.send(a, b).status != 503, "the signer")
        self.assertError(self.send(a, b), 429, "limit", "to")

    def test_an_agent_without_a_sandbox_says_nothing(self):
        self.register("inside", 3, outside=False)
        self.assertError(self.send("inside", "writer"), 403, "denied")
        self.assertEqual(self.send("writer", "inside").status, 201)
        box = self.d.post("/v1/sandboxes", {"agent": "inside"}).json["id"]
        self.assertEqual(self.send("inside", "writer").status, 201)
        self.d.post("/v1/sandboxes/%s/pause" % box)
        self.assertError(self.send("inside", "writer"), 403, "denied")
        self.d.delete("/v1/sandboxes/" + box)
        self.assertError(self.send("inside", "writer"), 403, "denied")

    def test_rotation(self):
        a, b = self.fresh(3, 3)
        self.send(a, b, "old")
        old, = self.read(b)
        rotated = self.d.request("PATCH", "/v1/agents/" + a, {"rotate": True})
        self.assertEqual((rotated.status, rotated.json["epoch"]), (200, 1), rotated)
        keys = {k["epoch"]: k["public_key"] for k in self.d.get("/v1/agents/%s/keys" % a).json["keys"]}
        self.assertEqual(len(set(keys.values())), 2, keys)
        self.send(a, b, "new")
        both = self.read(b)
        self.assertEqual([m["epoch"] for m in both], [0, 1])
        for m in both:
            self.assertTrue(is_signed(m, keys[m["epoch"]]))
            self.assertFalse(is_signed(m, keys[1 - m["epoch"]]))
        self.assertIs(self.verify(b, old), True)
        # Twice: the first key counts no longer.
        self.d.request("PATCH", "/v1/agents/" + a, {"rotate": True})
        self.assertEqual([m["content"] for m in self.read(b)], ["new"])

    def test_a_lower_level_is_heard_no_more(self):
        a, b = self.fresh(3, 2)
        self.send(a, b, "while I may")
        self.d.request("PATCH", "/v1/agents/" + a, {"trust": 1})
        self.assertEqual(self.read(b), [])
        self.d.request("PATCH", "/v1/agents/" + a, {"trust": 3})
        self.assertEqual(self.read(b), [])

    def test_what_is_changed_in_the_database_is_refused(self):
        a, b = self.fresh(3, 3)
        for text in ("one", "two", "three"):
            self.send(a, b, text)
        self.daemon.stop(destroy=False)
        db = sqlite3.connect(os.path.join(self.daemon.state, "db", "state.db"))
        db.execute("UPDATE mail SET content = CAST('2' AS BLOB) WHERE CAST(content AS TEXT) = 'two'")
        # A row is copied into another's mailbox, and a third one is repeated.
        db.execute("INSERT INTO mail SELECT NULL, (SELECT box FROM mail LIMIT 1) || 'x', sender, sender_uid, recipient, id,"
                   " reply_to, kind, trust, depth, epoch, time, expires, content, signature FROM mail"
                   " WHERE CAST(content AS TEXT) = 'one'")
        db.commit()
        db.close()
        self.daemon.start()
        harness.until(lambda: self.d.get("/v1/agents/%s/messages" % a).status == 200, "the signer")
        reply = self.d.get("/v1/agents/%s/messages" % b).json
        self.assertEqual(([m["content"] for m in reply["messages"]], reply["refused"]), (["one", "three"], 1))
        self.assertEqual(self.d.get("/v1/agents/%s/messages" % b).json["refused"], 0)


class Tasks(Case):
    def task(self, sender, to, **more):
        return self.send(sender, to, "do it", kind="task", **more)

    def test_there_and_back(self):
        a, b = self.fresh(3, 1)
        task = self.task(a, b).json["id"]
        got, = self.read(b)
        self.assertEqual((got["kind"], got["depth"], got["trust"]), ("task", 1, 3))
        # By trust levels it could not talk up; it was asked.
        self.assertError(self.send(b, a), 403, "denied", "to")
        for wrong in ("nosuch", task + "x"):
            self.assertError(self.send(b, a, kind="reply", reply_to=wrong), 404, "not_found", "reply_to")
        answer = self.send(b, a, "done", kind="reply", reply_to=task)
        self.assertEqual(answer.status, 201, answer)
        self.assertError(self.send(b, a, "again", kind="reply", reply_to=task), 404, "not_found", "reply_to")
        back, = self.read(a)
        self.assertEqual((back["kind"], back["reply_to"], back["trust"]), ("reply", task, 1))

    def test_only_who_was_asked_answers(self):
        a, b, c = self.fresh(3, 1, 1)
        task = self.task(a, b, id="job").json["id"]
        self.assertError(self.send(c, a, kind="reply", reply_to=task), 404, "not_found", "reply_to")
        self.assertError(self.send(b, c, kind="reply", reply_to=task), 404, "not_found", "reply_to")

    def test_cycles(self):
        a, b, c = self.fresh(3, 3, 3)
        self.assertError(self.task(a, a), 409, "conflict", "to")
        first = self.task(a, b).json["id"]
        self.assertError(self.task(b, a), 409, "conflict", "to")
        self.assertEqual(self.task(b, c).status, 201)
        self.assertError(self.task(c, a), 409, "conflict", "to")
        self.assertError(self.task(c, b), 409, "conflict", "to")
        self.assertEqual(self.send(b, a, "done", kind="reply", reply_to=first).status, 201)
        self.assertEqual(self.task(c, a).status, 201)

    def test_depth(self):
        chain = self.fresh(*[3] * 10)
        for i in range(8):
            made = self.task(chain[i], chain[i + 1])
            self.assertEqual(made.status, 201, (i, made))
        self.assertError(self.task(chain[8], chain[9]), 429, "limit", "to")
        self.assertEqual([self.read(name)[0]["depth"] for name in chain[1:9]], list(range(1, 9)))


class NoMaster(served.Case):
    assertError = harness.Case.assertError

    def test_without_a_master_key(self):
        daemon = served.Daemon("pool_size: 0\n")
        self.addCleanup(daemon.end)
        daemon.start()
        for name in ("a", "b"):
            self.assertEqual(daemon.post("/v1/agents", {"id": name, "trust": 3, "outside": True}).status, 201)
        refused = daemon.post("/v1/agents/a/messages", {"to": "b", "content": "x"})
        self.assertError(refused, 501, "unsupported")
        self.assertIn("keys.master", refused.error["message"])


class Killed(served.Case):
    def test_none_lost_none_twice(self):
        """The short form of tests/soak/mail.py."""
        done = subprocess.run([os.path.join(served.TOP, "tests/soak/mail.py"), "--count", "1000", "--agents", "10", "--kills", "1"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("0 lost, 0 twice, 0 strange, 100 replays refused", done.stdout)
