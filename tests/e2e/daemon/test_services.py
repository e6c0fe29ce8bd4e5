"""Services: commands that run as long as the sandbox, started again by the guest."""


import harness


class Services(harness.Case):
    def running(self, box):
        return [e for e in box.get("/execs").json if e["tag"] == "service" and e["running"]]

    def test_started_and_started_again(self):
        box = self.box(services=["echo began >> log; exec sleep 1000", "exec sleep 2000"], env={"A": "b"})
        self.assertEqual(box.get("").json["services"][1], "exec sleep 2000")
        first = harness.until(lambda: self.running(box), "the services")
        self.assertEqual(len(first), 2)
        for e in first:
            box.sh(f"kill -9 {e['pid']}")
        old = {e["id"] for e in first}
        harness.until(lambda: len([e for e in self.running(box) if e["id"] not in old]) == 2, "their next life")
        self.assertEqual(box.sh("cat log")["stdout"], "began\nbegan\n")

    def test_one_that_fails_waits(self):
        box = self.box(services=["echo x >> log; exit 1"])
        harness.until(lambda: box.sh("cat log; true")["stdout"].count("x") >= 3, "some tries")
        self.assertLess(box.sh("cat log")["stdout"].count("x"), 12)
        self.assertEqual(box.sh("echo fine")["stdout"], "fine\n")

    def test_what_it_leaves_is_ended(self):
        box = self.box(services=["sleep 3333 & echo $! >> pids; sleep 0.2"])
        harness.until(lambda: len(box.sh("cat pids; true")["stdout"].split()) >= 3, "three lives")
        alive = box.sh("for p in $(cat pids); do kill -0 $p 2>/dev/null && echo $p; done; true")["stdout"].split()
        self.assertLessEqual(len(alive), 1)

    def test_stop_and_fork(self):
        box = self.box(services=["echo began >> /workspace/log; exec sleep 1000"])
        harness.until(lambda: box.sh("cat log; true")["stdout"] == "began\n", "the service")
        self.assertEqual(box.post("/stop", {}).status, 200)
        self.assertEqual(box.post("/start", {}).status, 200)
        harness.until(lambda: box.sh("cat log")["stdout"] == "began\nbegan\n", "another start")
        fork = box.post("/fork", {"count": 1}).json["sandboxes"][0]["sandbox"]["id"]
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + fork)
        path = f"/v1/sandboxes/{fork}/exec"
        harness.until(lambda: self.d.post(path, {"shell": "cat log"}).json["stdout"].count("began") == 3, "its own")

    def test_without_a_daemon(self):
        d = harness.Daemon()
        d.start()
        self.addCleanup(d.remove)
        self.addCleanup(d.stop)
        box = harness.Box(d, services=["exec sleep 1000"])
        first = harness.until(lambda: self.running(box), "the service")
        d.stop(destroy=False)
        d.start()
        self.assertEqual([e["id"] for e in self.running(box)], [e["id"] for e in first])

    def test_refused(self):
        for services, status in ((["true"] * 17, 429), ([""], 400), (["x" * 3000], 400), ("true", 400)):
            self.assertError(self.d.post("/v1/sandboxes", {"services": services}), status, field="services")
