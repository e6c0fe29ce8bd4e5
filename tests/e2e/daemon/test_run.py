"""POST /v1/run and /v1/run/batch: one request, one sandbox, one result."""

import base64
import concurrent.futures
import json
import os
import socket
import time
import re
import unittest

import cl
import harness


class Run(harness.Case):
    def run_one(self, status=200, **body):
        reply = self.d.post("/v1/run", body)
        self.assertEqual(reply.status, status, reply)
        return reply.json

    def test_command(self):
        record = self.run_one(cmd=["sh", "-c", "echo out; echo err >&2; exit 3"])
        self.assertEqual(record["stdout"], "out\n")
        self.assertEqual(record["stderr"], "err\n")
        self.assertEqual(record["exit_code"], 3)
        self.assertEqual(record["status"], "exited")
        self.assertFalse(record["success"])

    def test_record_has_the_fields_of_the_contract(self):
        record = self.run_one(cmd=["true"])
        for name, types in cl.RECORD_FIELDS.items():
            self.assertIn(name, record)
            value = record[name]
            ok = (None in types) if value is None else isinstance(value, tuple(filter(None, types)))
            self.assertTrue(ok, "%s is %r" % (name, value))

    @harness.needs_warm
    def test_what_it_used_at_most(self):
        """Of one with a sandbox to itself; how many processes a warm one had is not known, and not made up."""
        line = "head -c 3000000 /dev/zero >/tmp/f; sleep 0.1 & sleep 0.1 & wait"
        alone = self.run_one(shell=line, require=["seccomp"])
        self.assertEqual(alone["layers"]["recycled"], [])
        self.assertTrue(3000000 <= alone["disk_bytes"] < 50000000, alone["disk_bytes"])
        if alone["layers"]["cgroup"] == "none":
            self.assertIsNone(alone["pids_peak"])
        elif alone["pids_peak"] is not None:  # older kernels do not say
            self.assertTrue(3 <= alone["pids_peak"] < 20, alone["pids_peak"])
        warm = harness.until(
            lambda: (lambda r: r if r["layers"]["recycled"] else None)(self.run_one(shell=line)), "a warm run")
        self.assertIsNone(warm["pids_peak"])
        self.assertTrue(3000000 <= warm["disk_bytes"] < 50000000, warm["disk_bytes"])

    def test_code(self):
        self.assertEqual(self.run_one(code="print(6 * 7)")["stdout"], "42\n")
        self.assertEqual(
            self.run_one(code='echo "$1"', language="bash", args=["a b"])["stdout"], "a b\n"
        )

    def test_code_imports_what_lies_in_the_workspace(self):
        record = self.run_one(
            code="import mine; print(mine.x)", files=[{"path": "mine.py", "content": "x = 5"}]
        )
        self.assertEqual(record["stdout"], "5\n", record)

    def test_shell(self):
        self.assertEqual(self.run_one(shell="echo $((1+1))")["stdout"], "2\n")

    def test_stdin(self):
        self.assertEqual(self.run_one(cmd=["cat"], stdin="hello")["stdout"], "hello")
        data = bytes(range(256))
        record = self.run_one(cmd=["cat"], stdin_base64=harness.b64(data), encoding="base64")
        self.assertEqual(base64.b64decode(record["stdout"]), data)

    def test_no_stdin_is_empty(self):
        self.assertEqual(self.run_one(cmd=["cat"])["stdout"], "")

    def test_files_in_and_out(self):
        record = self.run_one(
            shell="cat in/a b > out.txt; wc -c < out.txt > sub.log; stat -c %a b",
            files=[
                {"path": "in/a", "content": "A"},
                {"path": "b", "content_base64": harness.b64(b"B\x00"), "mode": "600"},
            ],
            capture=["*.txt", "*.log"],
        )
        files = {f["path"]: base64.b64decode(f["content_base64"]) for f in record["files"]}
        self.assertEqual(files, {"out.txt": b"AB\x00", "sub.log": b"3\n"}, record)
        self.assertEqual(record["stdout"], "600\n")

    def test_env_and_cwd(self):
        record = self.run_one(shell="echo $A; pwd", env={"A": "x y"}, cwd="/tmp")
        self.assertEqual(record["stdout"], "x y\n/tmp\n")
        self.assertEqual(self.run_one(shell="echo $A", env=["A=1"])["stdout"], "1\n")

    def test_timeout(self):
        record = self.run_one(cmd=["sleep", "1000"], timeout="300ms")
        self.assertEqual(record["status"], "timeout", record)
        self.assertTrue(record["timed_out"])

    def test_signal(self):
        record = self.run_one(shell="kill -9 $$")
        self.assertEqual((record["status"], record["signal"]), ("signaled", 9), record)

    def test_command_that_is_not_there(self):
        self.assertEqual(self.run_one(cmd=["/no/such"])["exit_code"], 127)

    def test_output_is_cut(self):
        record = self.run_one(shell="head -c 300000 /dev/zero | tr '\\0' x", output_limit=1000)
        self.assertTrue(record["stdout_truncated"])
        self.assertLess(len(record["stdout"]), 5000)

    def test_layers_and_network(self):
        record = self.run_one(shell="cat /proc/net/route | wc -l; ls /home")
        self.assertEqual(record["layers"]["level"], "container")
        self.assertIn("user", record["stdout"])

    def test_runs_leave_no_sandbox(self):
        before = self.d.get("/v1/sandboxes").json["sandboxes"]
        self.run_one(cmd=["true"])
        self.assertEqual(len(self.d.get("/v1/sandboxes").json["sandboxes"]), len(before))

    def test_refusals(self):
        rows = [
            ({}, 400, "invalid", "cmd"),
            ({"cmd": []}, 400, "invalid", "cmd"),
            ({"cmd": ["true"], "code": "1"}, 400, "invalid", "cmd"),
            ({"cmd": "true"}, 400, "invalid", "cmd"),
            ({"cmd": ["true"], "bogus": 1}, 400, "invalid", "bogus"),
            ({"cmd": ["true"], "memory": "12Q"}, 400, "invalid", "memory"),
            ({"cmd": ["true"], "timeout": -1}, 400, "invalid", "timeout"),
            ({"cmd": ["true"], "level": "vm"}, 501, "unsupported", "level"),
            ({"cmd": ["true"], "level": "process"}, 501, "unsupported", "level"),
            ({"cmd": ["true"], "mount": ["/etc:/x"]}, 403, "denied", "mount"),
            ({"cmd": ["true"], "workspace": "/root"}, 403, "denied", "workspace"),
            ({"code": "1", "language": "cobol"}, 400, "invalid", "language"),
            ({"cmd": ["true"], "env": {"A=B": "1"}}, 400, "invalid", "env"),
            ({"cmd": ["true"], "files": [{"path": "a"}]}, 400, "invalid", "content"),
            ({"cmd": ["true"], "stdin_base64": "%%%"}, 400, "invalid", "stdin_base64"),
            ({"cmd": ["true"], "volumes": [{"name": "v", "path": "/v", "bogus": 1}]}, 400, "invalid", "bogus"),
            ({"cmd": ["true"], "image": "/etc"}, None, None, None),
        ]
        for body, status, kind, field in rows:
            with self.subTest(body=body):
                reply = self.d.post("/v1/run", body)
                if status:
                    self.assertError(reply, status, kind, field)
                else:
                    self.assertGreaterEqual(reply.status, 400, reply)

    def test_client_that_goes_away_ends_its_run(self):
        seconds = "10%d" % (time.monotonic_ns() % 10**9)
        body = json.dumps({"cmd": ["sleep", seconds]}).encode()
        with self.d.raw(unix=True) as s:
            s.sendall(
                b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                % (len(body), body)
            )
            harness.until(lambda: sleeps(seconds), "the run's start")
        harness.until(lambda: not sleeps(seconds), "the run's end")


def sleeps(seconds):
    """Is there a process `sleep SECONDS` on this host, inside whatever?"""
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as f:
                if f.read() == b"sleep\0%s\0" % seconds.encode():
                    return True
        except OSError:
            pass
    return False


class Ceilings(harness.Case):
    def test_the_field_that_was_given_is_named(self):
        reply = self.d.post("/v1/run", {"cmd": ["true"], "timeout": "999h"})
        self.assertError(reply, 400, "invalid", "timeout")


class Batch(harness.Case):
    def test_results_in_order(self):
        tasks = [{"shell": "echo %d" % i} for i in range(10)]
        reply = self.d.post("/v1/run/batch", {"tasks": tasks, "parallel": 4})
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual([r["result"]["stdout"] for r in reply.json],
                         ["%d\n" % i for i in range(10)])

    def test_errors_stand_between_results(self):
        tasks = [{"shell": "echo a"}, {"shell": "echo b", "memory": "0"}, {"shell": "exit 3"}]
        reply = self.d.post("/v1/run/batch", {"tasks": tasks})
        self.assertEqual(reply.status, 200, reply)
        first, second, third = reply.json
        self.assertEqual(first["result"]["stdout"], "a\n")
        self.assertEqual(second["error"]["field"], "memory")
        self.assertEqual(third["result"]["exit_code"], 3)

    def test_lines_as_they_end(self):
        tasks = [{"shell": "echo %d" % i} for i in range(5)]
        with self.d.stream("POST", "/v1/run/batch", {"tasks": tasks, "parallel": 2},
                           {"Accept": "application/x-ndjson"}) as s:
            rows = [json.loads(line) for line in s.lines()]
        self.assertEqual(sorted(r["index"] for r in rows), list(range(5)))
        for row in rows:
            self.assertEqual(row["result"]["stdout"], "%d\n" % row["index"])

    def test_events_of_each(self):
        """Progress: each start and end, then what it came to. What never began has only an end."""
        tasks = [{"shell": "echo 0", "timeout": "7s"}, {"shell": "exit 3"}, {"shell": "x", "memory": "0"}]
        with self.d.stream("POST", "/v1/run/batch", {"tasks": tasks, "parallel": 1},
                           {"Accept": "text/event-stream"}) as s:
            events = list(s.events())
        self.assertEqual([(name, e.get("index")) for name, e in events],
                         [("start", 0), ("end", 0), ("start", 1), ("end", 1), ("end", 2), ("done", None)])
        self.assertEqual(events[0][1]["timeout_ms"], 7000)
        self.assertEqual(events[1][1]["result"]["stdout"], "0\n")
        self.assertEqual(events[4][1]["error"]["field"], "memory")
        done = events[-1][1]
        self.assertEqual((done["tasks"], done["succeeded"], done["failed"], done["reason"]), (3, 1, 2, None))
        self.assertGreater(done["used"]["cpu_ms"], 0)

    def test_events_of_a_budget(self):
        burn = "import time\nwhile time.process_time() < 0.4: pass"
        tasks = [{"cmd": ["python3", "-c", burn], "warm": "off"}] * 3
        with self.d.stream("POST", "/v1/run/batch", {"tasks": tasks, "parallel": 1, "budget": {"cpu": "300ms"}},
                           {"Accept": "text/event-stream"}) as s:
            events = list(s.events())
        self.assertEqual([e["error"]["field"] for name, e in events if name == "end" and "error" in e], ["budget"] * 2)
        self.assertIn("cpu of all tasks together", events[-1][1]["reason"])

    def named(self, what, token=None, **budget):
        r = self.d.post("/v1/run/batch", {"tasks": what, "parallel": 1, "budget": budget}, token=token)
        self.assertEqual(r.status, 200, r)
        return ["result" if "result" in t else t["error"]["message"] for t in r.json]

    def test_a_budget_with_a_name(self):
        """It holds for all batches of a tenant that name it, one after the other and at one time."""
        one = {"shell": "true"}
        self.assertEqual(self.named([one] * 2, name="across", tasks=3), ["result"] * 2)
        said = self.named([one] * 3, name="across", tasks=100)  # more cannot be asked for
        self.assertEqual(said[0], "result")
        self.assertIn("tasks of all tasks together is used up, of across", said[1])
        self.assertEqual(self.named([one], name="across")[0], said[2])
        self.assertEqual(self.named([one], name="other", tasks=1), ["result"])
        token = self.d.token("elsewhere", "--scopes", "run,read")
        self.assertEqual(self.named([one], token, name="across", tasks=1), ["result"])
        self.assertError(self.d.post("/v1/run/batch", {"tasks": [one], "budget": {"name": "a/b"}}), 400, "invalid", "name")

    def test_a_budget_ends_batches_beside_it(self):
        slow = {"tasks": [{"shell": "sleep 60", "timeout": "8s"}] * 2, "budget": {"name": "beside", "tasks": 1}}
        with self.d.stream("POST", "/v1/run/batch", slow, {"Accept": "text/event-stream"}) as s:
            events = s.events()
            self.assertEqual(next(events)[0], "start")
            self.assertEqual(self.named([{"shell": "true"}], name="beside"), ["result"])
            rest = list(events)
        self.assertEqual({e["error"]["field"] for name, e in rest if name == "end"}, {"budget"})
        self.assertIn("beside", rest[-1][1]["reason"])

    def test_budgets_are_bounded(self):
        token = self.d.token("many", "--scopes", "run,read")
        for i in range(64):
            self.assertEqual(self.named([], token, name="b%d" % i), [])
        r = self.d.post("/v1/run/batch", {"tasks": [], "budget": {"name": "one-more"}}, token=token)
        self.assertError(r, 429, "limit", "name")

    def test_nothing_to_do(self):
        with self.d.stream("POST", "/v1/run/batch", {"tasks": []}, {"Accept": "text/event-stream"}) as s:
            self.assertEqual([name for name, _ in s.events()], ["done"])
        reply = self.d.post("/v1/run/batch", {"tasks": []})
        self.assertEqual((reply.status, reply.json), (200, []))

    def test_refusals(self):
        self.assertError(self.d.post("/v1/run/batch", {}), 400, "invalid", "tasks")
        self.assertError(self.d.post("/v1/run/batch", {"tasks": [1]}), 400, "invalid", "tasks")
        reply = self.d.post("/v1/run/batch", {"tasks": [{"cmd": ["true"], "bogus": 1}]})
        self.assertError(reply, 400, "invalid", "bogus")


MB = 1 << 20
PRINT = "head -c %d /dev/zero | tr '\\0' x"


class OutputBudget(harness.Case):
    """What the daemon keeps of all output at one time is bounded; who comes too late is told."""

    @classmethod
    def setUpClass(cls):
        cls.own = harness.Daemon(config="output_budget: 6M\nsandbox:\n  output_limit: 2M\n").start()

    @classmethod
    def tearDownClass(cls):
        cls.own.stop()

    def body(self, size, lasts=0):
        return {"cmd": ["sh", "-c", PRINT % size + "; sleep %d; echo end >&2; exit 3" % lasts]}

    def run_one(self, size, lasts=0):
        reply = self.own.post("/v1/run", self.body(size, lasts))
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def is_cut(self, record):
        """Whether less was kept than asked for; it must say so, and be right in all else."""
        self.assertEqual((record["exit_code"], record["stderr"]), (3, "end\n"))
        said = any("output_budget" in note for note in record["notes"])
        self.assertEqual(record["stdout_truncated"], said)
        self.assertEqual("output_limit" in record["limits_hit"], said)
        if said:
            self.assertGreaterEqual(len(record["stdout"]), 4096)
        return said

    def all_is_given_back(self):
        record = harness.until(lambda: (lambda r: None if self.is_cut(r) else r)(self.run_one(MB)),
                               "the budget to be there again")
        self.assertEqual(len(record["stdout"]), MB)

    def test_several_at_once(self):
        self.run_one(10)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            records = list(pool.map(lambda _: self.run_one(2 * MB, 1), range(8)))
        cut = [self.is_cut(record) for record in records]
        self.assertTrue(any(cut), "8 times 2 MB fit into 6 MB")
        self.all_is_given_back()

    def test_answers_that_nobody_reads(self):
        waiting = []
        text = json.dumps(self.body(2 * MB)).encode()
        for _ in range(4):
            s = self.own.raw(unix=True)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
            # One after the other: of several at once each may be cut, and then all give back most.
            self.assertTrue(s.recv(1))
            waiting.append(s)
        self.assertTrue(self.is_cut(self.run_one(2 * MB)))
        for s in waiting:
            s.close()
        self.all_is_given_back()

    def test_what_grows_in_the_record(self):
        record = self.own.post("/v1/run", {"cmd": ["sh", "-c", "head -c %d /dev/zero" % (2 * MB)]}).json
        self.assertTrue(record["stdout_truncated"])
        self.assertTrue(any("output_budget" in note for note in record["notes"]), record["notes"])
        self.all_is_given_back()

    def test_batch(self):
        reply = self.own.post("/v1/run/batch", {"tasks": [self.body(2 * MB, 1)] * 6, "parallel": 6})
        cut = [self.is_cut(task["result"]) for task in reply.json]
        self.assertTrue(any(cut))
        self.all_is_given_back()


class Alerts(harness.Case):
    config = "alert_denials: 5\n"

    def test_repeated_denials_are_told_once(self):
        d = harness.Daemon(config=self.config).start()
        self.addCleanup(d.remove)
        self.addCleanup(d.stop)
        key = d.token("noisy")
        refused = {"code": "import socket\nfor i in range(%d):\n"
                           "    try: socket.socket().connect(('192.0.2.1', 80))\n"
                           "    except OSError: pass\n", "language": "python"}

        def alerts():
            return int(re.search(r"^cloche_alerts_total (\d+)", d.get("/metrics").body.decode(), re.M)[1])

        self.assertEqual(d.post("/v1/run", dict(refused, code=refused["code"] % 3), token=key).status, 200)
        self.assertEqual(alerts(), 0)
        with d.stream("GET", "/v1/events") as events:
            for _ in range(3):
                d.post("/v1/run", dict(refused, code=refused["code"] % 4), token=key)
            told = next(e for e in events.events() if e[1].get("type") == "sandbox.denials")
        self.assertEqual(told[1]["per_minute"], 5)
        self.assertEqual(alerts(), 1)
        self.assertIn("repeated denials", d.read_log())
        self.assertIn("noisy", d.read_log())


if __name__ == "__main__":
    unittest.main()
