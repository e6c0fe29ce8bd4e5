"""Commands in a sandbox: plain, streamed, in the background, re-attached, on a terminal."""

import base64
import hashlib
import json
import unittest

import harness

SSE = {"Accept": "text/event-stream"}


class Plain(harness.Case):
    def test_result(self):
        box = self.box()
        record = box.exec("sh", "-c", "echo out; echo err >&2; exit 7").json
        self.assertEqual(
            (record["stdout"], record["stderr"], record["exit_code"]), ("out\n", "err\n", 7)
        )

    def test_long_input(self):
        box = self.box()
        for _ in range(4):
            record = box.exec("wc", "-c", stdin="y" * (3 << 20)).json
            self.assertEqual(record["stdout"].strip(), str(3 << 20))

    def test_files_stay_between_commands(self):
        box = self.box()
        box.sh("echo x > f")
        self.assertEqual(box.sh("cat f")["stdout"], "x\n")

    def test_env_cwd_stdin(self):
        box = self.box(env={"OUTER": "o"})
        record = box.sh("echo $OUTER $INNER; pwd; cat", env={"INNER": "i"}, cwd="/tmp", stdin="in")
        self.assertEqual(record["stdout"], "o i\n/tmp\nin")

    def test_what_is_not_there_is_named(self):
        box = self.box()
        for field, value, status, kind in (("cwd", "/nowhere", 404, "not_found"),
                                           ("user", "nobody-else", 400, "invalid")):
            for what in ({"cmd": ["true"]}, {"shell": "true"}, {"code": "1"}):
                with self.subTest(field, what=what):
                    error = self.assertError(box.exec(**what, **{field: value}), status, kind, field)
                    self.assertIn(value, error["message"])

    def test_what_programs_need_of_the_system(self):
        """The same of /etc and /var/lib as for `cloche run`, whether the root can be written or not."""
        look = "find /etc /var -maxdepth 3 -not -path '*/certs/*' | sort; cat /etc/php/*/cli/conf.d/* 2>/dev/null; true"
        plain = harness.cl.run("run", "--empty", "--", "sh", "-c", look, cwd="/").out
        self.assertIn("/etc/passwd\n", plain)
        for root in ("ro", "overlay") if harness.ROOT else ("ro",):
            with self.subTest(root):
                self.assertEqual(self.box(root=root).sh(look)["stdout"], plain)

    def test_binary(self):
        data = bytes(range(256)) * 300
        box = self.box()
        record = box.exec("cat", stdin_base64=harness.b64(data), encoding="base64").json
        self.assertEqual(base64.b64decode(record["stdout"]), data)

    def test_session_keeps_directory_and_variables(self):
        box = self.box()
        self.assertEqual(box.sh("cd /tmp; export A=5", session="s")["exit_code"], 0)
        self.assertEqual(box.sh("pwd; echo $A", session="s")["stdout"], "/tmp\n5\n")
        self.assertEqual(box.sh("pwd")["stdout"], "/workspace\n")

    def test_timeout(self):
        record = self.box().exec("sleep", "1000", timeout="200ms").json
        self.assertEqual((record["status"], record["timed_out"]), ("timeout", True), record)

    def test_timeout_reaches_those_that_hide(self):
        """They fork twice, leave the session and try to change the mark by which they are found."""
        box = self.box()
        code = (
            "import os, resource, time\n"
            "def lower():\n"
            "    try: resource.setrlimit(resource.RLIMIT_RTTIME, (1 << 40, 1 << 40))\n"
            "    except (OSError, ValueError) as e: return type(e).__name__\n"
            "if os.fork(): time.sleep(1000)\n"
            "tried = lower()\n"
            "os.setsid()\n"
            "if os.fork(): os._exit(0)\n"
            "os.setsid()\n"
            "if os.fork(): os._exit(0)\n"
            "for fd in range(3): os.close(fd)\n"
            "open('/tmp/pid', 'w').write('%d %s' % (os.getpid(), tried))\n"
            "time.sleep(1000)\n"
        )
        record = box.exec("python3", "-c", code, timeout="1s").json
        self.assertEqual(record["status"], "timeout", record)
        pid = box.sh("cat /tmp/pid")["stdout"].split(" ", 1)
        self.assertNotEqual(pid[0], "", "the child did not get that far")
        left = box.sh("for i in 1 2 3 4 5; do kill -0 %s 2>/dev/null || exit 0; sleep 0.1; done; exit 1" % pid[0])
        self.assertEqual(left["exit_code"], 0, pid)

    def test_a_mark_stays(self):
        """Neither call changes the limit that is the mark; reading it and other limits works."""
        code = (
            "import ctypes, platform\n"
            "call, new = ctypes.CDLL(None).syscall, (ctypes.c_long * 2)(1 << 30, 1 << 30)\n"
            "setrlimit, prlimit = (160, 302) if platform.machine() == 'x86_64' else (164, 261)\n"
            "print(call(setrlimit, 15, new), call(prlimit, 0, 15, new, None),\n"
            "      call(prlimit, 0, 15, None, new), call(setrlimit, 4, (ctypes.c_long * 2)(0, 1)))"
        )
        self.assertEqual(self.box().exec("python3", "-c", code).json["stdout"], "-1 -1 0 0\n")

    def test_not_found(self):
        self.assertEqual(self.box().exec("/no/such").json["exit_code"], 127)

    def test_many_at_once(self):
        box = self.box()
        connections = []
        for i in range(8):
            connection = self.d.connect()
            connection.request("POST", box.path + "/exec",
                               json.dumps({"cmd": ["echo", str(i)]}))
            connections.append(connection)
        for i, connection in enumerate(connections):
            self.assertEqual(harness.Response(connection.getresponse()).json["stdout"],
                             "%d\n" % i)
            connection.close()

    def test_refusals(self):
        box = self.box()
        rows = [
            ({}, "cmd"),
            ({"cmd": []}, "cmd"),
            ({"cmd": [""]}, "cmd"),
            ({"cmd": ["a"], "shell": "b"}, "cmd"),
            ({"cmd": ["a", 1]}, "cmd"),
            ({"cmd": ["a"], "bogus": 1}, "bogus"),
            ({"cmd": ["a"], "on_disconnect": "x"}, "on_disconnect"),
            ({"cmd": ["a"], "timeout": "x"}, "timeout"),
            ({"cmd": ["a"], "env": ["novalue"]}, "env"),
            ({"cmd": ["a"], "rows": 99999999}, "rows"),
        ]
        for body, field in rows:
            with self.subTest(body=body):
                self.assertError(box.post("/exec", body), 400, "invalid", field)


class Streamed(harness.Case):
    def events(self, box, **body):
        with box.stream("POST", "/exec", body, SSE) as s:
            self.assertEqual(s.status, 200)
            return list(s.events())

    def test_order_and_seq(self):
        events = self.events(self.box(), shell="echo a; echo b; exit 4")
        self.assertEqual(events[0][0], "start")
        self.assertEqual(events[-1][0], "exit")
        self.assertEqual(events[-1][1]["exit_code"], 4)
        at, text = 0, ""
        for name, data in events[1:-1]:
            self.assertEqual((name, data["seq"]), ("stdout", at))
            text += data["text"]
            at += len(data["text"])
        self.assertEqual(text, "a\nb\n")

    def test_stderr_and_bytes(self):
        events = self.events(self.box(), shell="printf '\\377\\376' >&2")
        self.assertEqual([(n, d.get("base64")) for n, d in events if n == "stderr"],
                         [("stderr", "//4=")])

    def test_stdin(self):
        events = self.events(self.box(), cmd=["wc", "-c"], stdin="x" * 600000)
        out = "".join(d["text"] for n, d in events if n == "stdout")
        self.assertEqual(out.strip(), "600000")

    def test_much_output(self):
        box, total = self.box(), 0
        with box.stream("POST", "/exec", {"shell": "head -c 5000000 /dev/zero | tr '\\0' x"},
                        SSE) as s:
            for name, data in s.events():
                total += len(data.get("text", ""))
        self.assertEqual(total, 5000000)

    def test_command_that_is_not_there(self):
        events = self.events(self.box(), cmd=["/no/such"])
        self.assertEqual(events[-1][0], "exit", events)
        self.assertEqual(events[-1][1]["exit_code"], 127)

    def test_client_that_goes_away_ends_the_command(self):
        box = self.box()
        with box.stream("POST", "/exec", {"shell": "echo up; exec sleep 1000"}, SSE) as s:
            events = s.events()
            eid = next(events)[1]["id"]
            next(events)
        harness.until(lambda: not box.get("/execs/%d" % eid).json["running"], "its end")

    def test_client_that_goes_away_may_leave_it(self):
        box = self.box()
        body = {"shell": "echo up; exec sleep 1000", "on_disconnect": "keep"}
        with box.stream("POST", "/exec", body, SSE) as s:
            events = s.events()
            eid = next(events)[1]["id"]
            next(events)
        box.sh("true")
        self.assertTrue(box.get("/execs/%d" % eid).json["running"])

    def test_client_that_goes_away_in_a_plain_one(self):
        box = self.box()
        body = json.dumps({"shell": "echo $$ > pid; exec sleep 1000", "tag": "gone"}).encode()
        with self.d.raw(unix=True) as s:
            s.sendall(b"POST %s/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                      % (box.path.encode(), len(body), body))
            harness.until(lambda: box.get("/files?path=pid").body.strip(), "its start")
        harness.until(
            lambda: not any(e["running"] for e in box.get("/execs").json if e["tag"] == "gone"),
            "its end",
        )


class Background(harness.Case):
    def test_exec_object_and_list(self):
        box = self.box()
        eid = box.start(shell="echo hi; exec sleep 1000", tag="t")
        mine = box.get("/execs/%d" % eid).json
        self.assertEqual((mine["id"], mine["running"], mine["tag"]), (eid, True, "t"))
        self.assertIn(eid, [e["id"] for e in box.get("/execs").json])
        self.assertEqual(box.delete("/execs/%d" % eid).status, 204)
        harness.until(lambda: not box.get("/execs/%d" % eid).json["running"], "its end")
        self.assertEqual(box.get("/execs/%d" % eid).json["signal"], 9)

    def test_reattach_from(self):
        box = self.box()
        eid = box.start(shell="echo hello; cat; echo bye", interactive=True)
        with box.stream("GET", "/execs/%d/stream?from=3" % eid) as s:
            events = s.events()
            self.assertEqual(next(events)[0], "start")
            self.assertEqual(next(events), ("stdout", {"seq": 3, "text": "lo\n"}))
            self.assertEqual(box.post("/execs/%d/stdin" % eid, {"text": "typed\n"}).status, 204)
            self.assertEqual(next(events)[1]["text"], "typed\n")
            self.assertEqual(box.post("/execs/%d/close_stdin" % eid).status, 204)
            rest = list(events)
        self.assertEqual(rest[0][1]["text"], "bye\n")
        self.assertEqual(rest[-1][0], "exit")

    def test_stdin_at_the_start(self):
        box = self.box()
        eid = box.start(cmd=["wc", "-c"], stdin="y" * 100000)
        with box.stream("GET", "/execs/%d/stream" % eid) as s:
            out = "".join(d["text"] for n, d in s.events() if n == "stdout")
        self.assertEqual(out.strip(), "100000")

    def test_input_as_it_comes(self):
        """Binary, longer than any JSON body, and at the pace of the command."""
        box = harness.Box(self.d)
        eid = box.start(shell="exec python3 -c 'import sys, time, hashlib; h = hashlib.sha256(); b = sys.stdin.buffer\n"
                              "while p := b.read(1 << 20): h.update(p)\nprint(h.hexdigest())'", interactive=True)
        data = bytes(range(256)) * (20 << 12)
        reply = box.put("/execs/%d/stdin" % eid, data)
        self.assertEqual(reply.status, 204, reply)
        with box.stream("GET", "/execs/%d/stream" % eid) as s:
            out = "".join(d["text"] for n, d in s.events() if n == "stdout")
        self.assertEqual(out.split()[0], hashlib.sha256(data).hexdigest())

    def test_input_that_nobody_reads(self):
        box = harness.Box(self.d)
        eid = box.start(shell="read x; exit 3", interactive=True)
        reply = box.put("/execs/%d/stdin" % eid, b"y\n" * (4 << 20))
        self.assertIn("ended before", self.assertError(reply, 409, "conflict")["message"])
        eid = box.post("/exec", {"cmd": ["sleep", "100"], "background": True}).json["id"]
        self.assertIn("interactive", self.assertError(box.put("/execs/%d/stdin" % eid, b""), 409, "conflict")["message"])
        self.assertError(box.put("/execs/4711/stdin", b"x"), 404, "not_found")

    def test_input_that_was_not_asked_for(self):
        box = harness.Box(self.d)
        eid = box.post("/exec", {"cmd": ["sleep", "100"], "background": True}).json["id"]
        reply = box.post("/execs/%d/stdin" % eid, {"text": "x"})
        self.assertIn("interactive", self.assertError(reply, 409, "conflict")["message"])

    def test_signal_by_number(self):
        box = harness.Box(self.d)
        for signal in (9, "9", "SIGKILL"):
            eid = box.post("/exec", {"cmd": ["sleep", "100"], "background": True}).json["id"]
            self.assertEqual(box.post("/execs/%d/signal" % eid, {"signal": signal}).status, 204)
        self.assertError(box.post("/execs/%d/signal" % eid, {"signal": 999}), 400, "invalid", "signal")
        self.assertError(box.post("/execs/%d/signal" % eid, {"signal": -1}), 400, "invalid", "signal")

    def test_signal(self):
        box = self.box()
        eid = box.start(shell="trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
        with box.stream("GET", "/execs/%d/stream" % eid) as s:
            events = s.events()
            next(events)
            self.assertEqual(next(events)[1]["text"], "ready\n")
            self.assertEqual(box.post("/execs/%d/signal" % eid, {"signal": "USR1"}).status, 204)
            self.assertEqual(list(events)[-1][1]["exit_code"], 5)
        self.assertError(box.post("/execs/%d/signal" % eid, {"signal": "BOGUS"}), 400)

    def test_terminal(self):
        box = self.box()
        body = {"shell": "stty size; read x; stty size", "tty": True, "rows": 30, "cols": 100}
        with box.stream("POST", "/exec", body, SSE) as s:
            events = s.events()
            eid = next(events)[1]["id"]
            self.assertEqual(next(events)[1]["text"].strip(), "30 100")
            self.assertEqual(
                box.post("/execs/%d/resize" % eid, {"rows": 40, "cols": 120}).status, 204
            )
            self.assertEqual(box.post("/execs/%d/stdin" % eid, {"text": "\n"}).status, 204)
            rest = "".join(d["text"] for n, d in events if n == "stdout")
        self.assertIn("40 120", rest)

    def test_logs(self):
        box = self.box()
        eid = box.start(shell="echo one; echo two >&2; exec sleep 1000")
        harness.until(
            lambda: "two" in box.get("/logs?exec=%d" % eid).json["logs"][0]["text"], "its output"
        )
        log = box.get("/logs?exec=%d&bytes=4" % eid).json["logs"][0]
        self.assertEqual((log["text"], log["truncated"]), ("two\n", True))
        self.assertIn(eid, [row["id"] for row in box.get("/logs").json["logs"]])
        self.assertError(box.get("/logs?exec=99999"), 404)

    def test_unknown_commands(self):
        box = self.box()
        for name in ("99999", "x", "-1", "99999999999999999999"):
            self.assertError(box.get("/execs/" + name), 404)
            self.assertError(box.delete("/execs/" + name), 404)
        self.assertError(box.get("/execs/99999/stream"), 404)


if __name__ == "__main__":
    unittest.main()
