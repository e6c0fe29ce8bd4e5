"""The daemon under its service manager, and its roles under the daemon: what is stuck is started again."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import threading

import cl
import harness
from harness import Box, Daemon, Response, until


def role(daemon, name):
    """The pid of a role, or None."""
    pid = daemon.process.pid
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as text:
        for child in text.read().split():
            with contextlib.suppress(OSError), open("/proc/%s/comm" % child, encoding="utf-8") as comm:
                if comm.read().strip() == "cloche-" + name:
                    return int(child)
    return None


class Own(harness.Case):
    """Tests with a daemon of their own."""

    def daemon(self, config="role_timeout: 1s\n", **how):
        d = Daemon(config, **how)
        self.addCleanup(d.remove)
        self.addCleanup(d.stop)
        return d.start()


class Roles(Own):
    def ready(self, d):
        try:
            return d.get("/readyz")
        except OSError:
            return None

    def is_ready(self, d):
        r = self.ready(d)
        return r and r.status == 200

    def test_stopped_front(self):
        d = self.daemon()
        box = Box(d)
        before = role(d, "front")
        os.kill(before, signal.SIGSTOP)
        until(lambda: role(d, "front") not in (None, before), "another front")
        until(lambda: self.is_ready(d), "readiness")
        self.assertEqual(box.sh("echo still here")["stdout"], "still here\n")
        self.assertIn("does not answer", d.read_log())

    def test_stopped_audit(self):
        d = self.daemon()
        until(lambda: self.is_ready(d), "readiness")
        before = role(d, "audit")
        os.kill(before, signal.SIGSTOP)
        seen = until(lambda: (lambda r: r if r.status == 503 else None)(d.get("/readyz")), "503")
        self.assertEqual(seen.json, {"status": "not ready", "silent": ["audit"]})
        self.assertEqual(d.get("/healthz").status, 200)
        until(lambda: role(d, "audit") not in (None, before), "another audit role")
        until(lambda: self.is_ready(d), "readiness")
        self.assertEqual(Box(d).sh("echo audited")["stdout"], "audited\n")

    def test_stopped_broker(self):
        d = self.daemon()
        until(lambda: self.is_ready(d), "readiness")
        front = role(d, "front")
        os.kill(d.process.pid, signal.SIGSTOP)
        try:
            seen = until(lambda: (lambda r: r if r.status == 503 else None)(self.over_tcp(d)), "503")
            self.assertEqual(seen.json["silent"], ["broker"])
        finally:
            os.kill(d.process.pid, signal.SIGCONT)
        until(lambda: self.is_ready(d), "readiness")
        self.assertEqual(role(d, "front"), front)  # it was not the front's fault

    def over_tcp(self, d):
        """The broker accepts connections of the Unix socket, and does not now."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", d.port, timeout=30)) as c:
            c.request("GET", "/readyz")
            return Response(c.getresponse())


class Ending(Own):
    def test_busy(self):
        """While a command is awaited, others hear that the daemon is being stopped."""
        d = self.daemon()
        box = Box(d)

        def wait():
            with contextlib.suppress(http.client.HTTPException, OSError):
                box.exec(shell="touch /tmp/on; sleep 1000")

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: box.sh("test -e /tmp/on && echo yes")["stdout"], "the command")
        d.process.send_signal(signal.SIGTERM)
        until(lambda: d.get("/readyz").status == 503, "not ready")
        for how in ({}, {"token": "cl_none"}):  # the Unix socket, and TCP
            refused = d.get("/v1/sandboxes", **how)
            self.assertEqual(refused.status, 503, refused)
            self.assertIn("being stopped", refused.error["message"])
            self.assertTrue(refused.headers["Retry-After"])
        self.assertEqual(d.get("/healthz").status, 200)
        self.assertIsNone(d.process.poll())
        d.process.send_signal(signal.SIGTERM)  # the second ends it at once
        d.process.wait(harness.DEADLINE)
        waiting.join()
        d.start()
        self.assertEqual(box.sh("echo alive")["stdout"], "alive\n")
        # The command goes on: a client that was cut has not left by itself.
        self.assertEqual(box.sh("pgrep -xc sleep || true")["stdout"], "1\n")

    def test_endless_streams(self):
        """What has no end of its own does not hold up the end of the daemon."""
        d = self.daemon("shutdown_timeout: 1000s\n")
        box = Box(d)
        number = box.start(shell="echo here; sleep 1000")
        with d.stream("GET", "/v1/events") as events, \
                box.stream("GET", "/execs/%d/stream" % number) as output:
            lines = output.lines()
            until(lambda: "here" in next(lines), "output")
            d.process.send_signal(signal.SIGTERM)
            self.assertEqual(d.process.wait(harness.DEADLINE), 0)
            with contextlib.suppress(http.client.HTTPException, OSError):
                for _ in events.lines():
                    pass
        d.start()
        self.assertTrue(box.get("/execs/%d" % number).json["running"])


class ServiceManager(Own):
    def notified(self, sock):
        sock.settimeout(harness.DEADLINE)
        return sock.recv(4096).decode()

    def test_notify(self):
        with tempfile.TemporaryDirectory(dir=cl.base_dir()) as top, \
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            os.chmod(top, 0o755)
            sock.bind(os.path.join(top, "notify"))
            os.chmod(os.path.join(top, "notify"), 0o666)
            d = self.daemon(env={"NOTIFY_SOCKET": sock.getsockname(), "WATCHDOG_USEC": "400000"})
            heard = [self.notified(sock) for _ in range(5)]
            self.assertEqual(heard.count("READY=1"), 1, heard)
            self.assertGreaterEqual(heard.count("WATCHDOG=1"), 4, heard)
            os.kill(d.process.pid, signal.SIGSTOP)  # a broker that is stuck says nothing
            sock.settimeout(0.5)
            with self.assertRaises(socket.timeout):
                while True:
                    sock.recv(4096)
            os.kill(d.process.pid, signal.SIGCONT)
            d.process.send_signal(signal.SIGTERM)
            until(lambda: self.notified(sock) == "STOPPING=1", "the farewell")
            d.process.wait(harness.DEADLINE)

    def test_passed_sockets(self):
        """No connection is refused while one daemon ends and the next one starts."""
        top = tempfile.mkdtemp(dir=cl.base_dir())
        os.chmod(top, 0o755)
        tcp = socket.create_server(("127.0.0.1", 0))
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(os.path.join(top, "passed"))
        os.chmod(os.path.join(top, "passed"), 0o666)
        unix.listen(64)
        port = tcp.getsockname()[1]
        fds = (tcp.fileno(), unix.fileno())
        script = 'LISTEN_PID=$$ LISTEN_FDS=2; export LISTEN_PID LISTEN_FDS; ' \
                 'exec "$0" serve 3<&%d 4<&%d' % fds
        env = cl.caller_env(CLOCHE_STATE_DIR=top + "/state", CLOCHE_RUNTIME_DIR=top + "/run")
        daemons = []

        def start():
            with open(os.path.join(top, "log"), "ab") as log:
                daemons.append(subprocess.Popen(
                    ["/bin/bash", "-c", script, cl.CLOCHE], env=env, pass_fds=fds,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log))

        def ask(connection):
            with contextlib.closing(connection):
                connection.request("GET", "/healthz")
                return connection.getresponse().status

        try:
            start()
            self.assertEqual(ask(http.client.HTTPConnection("127.0.0.1", port, timeout=30)), 200)
            path = os.path.join(top, "passed")
            self.assertEqual(ask(harness.UnixConnection(path, 30)), 200)
            daemons[0].terminate()
            waits = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            self.assertEqual(daemons[0].wait(harness.DEADLINE), 0)
            waits.connect()  # into the backlog: nobody listens just now
            start()
            self.assertEqual(ask(waits), 200)
            self.assertTrue(os.path.exists(path))
        finally:
            for d in daemons:
                d.terminate()
                d.wait(harness.DEADLINE)
            tcp.close()
            unix.close()

    def test_own_socket(self):
        """`cloche` finds the daemon although --listen names TCP only."""
        top = tempfile.mkdtemp(dir=cl.base_dir())
        env = cl.caller_env(CLOCHE_STATE_DIR=top + "/state", CLOCHE_RUNTIME_DIR=top + "/run")
        with open(os.path.join(top, "log"), "wb") as log:
            d = subprocess.Popen([cl.CLOCHE, "serve", "--listen", "127.0.0.1:0"], env=env,
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until(lambda: os.path.exists(top + "/run/cloche.sock"), "the socket")
            done = subprocess.run([cl.CLOCHE, "ps"], env=env, capture_output=True, text=True,
                                  timeout=harness.DEADLINE)
            self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            d.terminate()
            d.wait(harness.DEADLINE)


class Leftovers(Own):
    def test_lanes_without_a_record(self):
        """A daemon that is killed while it boots a warm host leaves cgroups behind, and no record."""
        d = self.daemon("pool_size: 0\n")
        box = Box(d)
        made = [os.path.join(top, name) for top, names, _ in os.walk("/sys/fs/cgroup") for name in names
                if name == "cloche-box-%s-%s" % (d.tag(), box.id)]
        if not made:
            self.skipTest("sandboxes have no cgroup here")
        d.stop()
        left = [path.replace(box.id, "a" * 20) + "-3" for path in made]
        for path in left:
            os.makedirs(path)
        d.start()
        until(lambda: not any(map(os.path.exists, left)), "the end of what was left")
