"""The network of a run without a daemon: rules, what is refused, what the record says of it."""

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import cl
import netlab

WHOLE = "import urllib.request as u,sys\nfor a in sys.argv[1:]: print(u.urlopen(a, timeout=10).status)"


class Case(cl.Case):
    def setUp(self):
        super().setUp()
        self.lab = netlab.shared()
        self.lab.ask("forget")
        self.lab.ask("dns", state="up")

    def record(self, *args, **kw):
        return self.lab.record("-t", "20s", *args, cwd=self.dir, **kw)

    def curl(self, *args):
        """For the inside of a sandbox: the HTTP status of each address."""
        self.need_program("curl")
        return ["sh", "-c", 'for a; do curl -s -m 10 -o /dev/null -w "%{http_code}\\n" "$a" || exit $?; done', "", *args]

    def denials(self, rec):
        return [(d["what"], d["target"]) for d in rec["denials"]]


class Rules(Case):
    def test_what_is_allowed_works_and_is_counted(self):
        rec = self.record("--allow", "example.com", "--", *self.curl("http://example.com/", "https://example.com/"))
        self.assertEqual((rec["stdout"], rec["exit_code"]), ("200\n200\n", 0), rec)
        self.assertEqual(rec["denials"], [])
        self.assertEqual(rec["layers"]["network"], "tproxy")
        self.assertGreater(rec["net_tx_bytes"], 0)
        self.assertGreater(rec["net_rx_bytes"], 0)
        self.assertEqual({r["peer"].rsplit(":")[-1] for r in self.lab.ask("requests")}, {netlab.HOST})

    def test_without_a_connection_nothing_is_counted(self):
        rec = self.record("--allow", "example.com", "--", "true")
        self.assertEqual((rec["exit_code"], rec["net_tx_bytes"], rec["net_rx_bytes"]), (0, 0, 0))

    def test_other_names_do_not_leave(self):
        rec = self.record("--allow", "example.com", "--", *self.curl("http://evil.com/"))
        self.assertEqual(rec["exit_code"], 6, rec)
        self.assertEqual(self.denials(rec), [("resolve", "evil.com")])
        self.assertIn("--allow evil.com", rec["denials"][0]["explain"])
        self.assertEqual(self.lab.ask("queries"), [])

    def test_another_port_is_refused_with_the_rule_that_allows_it(self):
        rec = self.record("--allow", "example.com:80", "--", *self.curl("https://example.com/"))
        self.assertNotEqual(rec["exit_code"], 0)
        self.assertEqual(self.denials(rec), [("connect", "example.com:443")])
        self.assertIn("--allow example.com:443", rec["denials"][0]["explain"])
        self.assertEqual(self.lab.ask("requests"), [])

    def test_an_address_needs_a_rule(self):
        address = "http://%s/" % netlab.WEB
        rec = self.record("--allow", "example.com", "--", *self.curl(address))
        self.assertNotEqual(rec["exit_code"], 0)
        self.assertEqual(self.denials(rec), [("connect", netlab.WEB + ":80")])
        self.assertIn("--allow %s:80" % netlab.WEB, rec["denials"][0]["explain"])
        rec = self.record("--allow", netlab.WEB + ":80", "--", *self.curl(address))
        self.assertEqual(rec["stdout"], "200\n", rec)


class NoWayAround(Case):
    def refused_by(self, rec, text):
        """Nothing came back, and a denial says why."""
        self.assertNotIn("200", rec["stdout"], rec)
        self.assertIn(text, " ".join(d["explain"] for d in rec["denials"]), rec)

    def test_names_that_lead_to_private_addresses(self):
        names = ("loopback", "own", "private", "cgnat", "metadata", "mapped", "private6")
        before = self.lab.ask("host_requests")
        rec = self.record("--allow", "*.example.com", "--", "sh", "-c",
                          "for a in %s; do curl -s http://$a.example.com:8081/; done; true" % " ".join(names))  # fmt: skip
        explained = [d["explain"] for d in rec["denials"]]
        for name in names:
            self.assertTrue([x for x in explained if x.startswith(name + ".example.com leads to ")], (name, explained))
        self.assertEqual(self.lab.ask("requests"), [])
        self.assertEqual(self.lab.ask("host_requests"), before)

    def test_two_rules_open_a_private_address(self):
        rec = self.record("--allow", "private.example.com", "--allow", "10.0.0.5:80", "--",
                          *self.curl("http://private.example.com/"))  # fmt: skip
        self.assertEqual(rec["stdout"], "200\n", rec)

    def test_a_name_that_changes_its_address(self):
        url = "http://rebind.example.com/"
        rec = self.record("--net", "public", "--", *self.curl(url, url, url))
        self.assertIn("10.0.0.5", " ".join(d["explain"] for d in rec["denials"]), rec)
        self.assertNotIn("::ffff:10.0.0.5", [r["address"] for r in self.lab.ask("requests")])

    def test_public_is_not_private(self):
        for url in ("http://10.0.0.5/", "http://169.254.169.254/", "http://%s:8081/" % netlab.HOST, "http://[fd00::5]/"):
            rec = self.record("--net", "public", "--", *self.curl(url))
            self.assertNotIn("200", rec["stdout"], rec)
            self.assertNotEqual(rec["denials"], [], url)
        rec = self.record("--net", "public", "--", *self.curl("http://%s/" % netlab.WEB, "https://example.org/"))
        self.assertEqual(rec["stdout"], "200\n200\n", rec)

    def test_another_server_name(self):
        rec = self.record("--allow", "example.com", "--", "curl", "-sk", "--connect-to", "evil.com:443:example.com:443",
                          "https://evil.com/")  # fmt: skip
        self.refused_by(rec, "TLS asks for evil.com")
        self.assertEqual(self.lab.ask("requests"), [])

    def test_another_host(self):
        rec = self.record("--allow", "example.com", "--", "curl", "-s", "-H", "Host: evil.com", "http://example.com/")
        self.assertIn("evil.com", " ".join(d["explain"] for d in rec["denials"]), rec)
        self.assertEqual(self.lab.ask("requests"), [])

    def test_deny_wins(self):
        rec = self.record("--net", "public", "--deny", "*.evil.com", "--deny", "evil.com", "--",
                          *self.curl("http://www.evil.com/"))  # fmt: skip
        self.assertEqual(rec["exit_code"], 6, rec)
        self.assertEqual(self.lab.ask("queries"), [])

    def test_without_ip_there_is_no_way_out(self):
        """Neither raw packets, nor other families, nor another name server."""
        rec = self.record("--allow", "example.com", "--", *cl.py(
            "import socket\n"
            "for f, t, p in ((17, 3, 0), (2, 3, 1), (2, 3, 255), (40, 1, 0)):\n"
            "    try: socket.socket(f, t, p); print('got', f, t, p)\n"
            "    except OSError: pass\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)\n"
            "try: s.connect(('9.9.9.9', 53)); s.send(b'x' * 20); print(s.recv(99))\n"
            "except OSError as e: print(e.errno)"))  # fmt: skip
        self.assertEqual(rec["stdout"], "13\n", rec)
        self.assertEqual(self.lab.ask("queries"), [])


class Bounds(Case):
    def test_bytes(self):
        rec = self.record("--allow", "example.com", "--net-rx", "100K", "--", *self.curl("http://example.com/large?n=900000"))
        self.assertNotEqual(rec["exit_code"], 0)
        self.assertEqual([d["explain"] for d in rec["denials"]], ["rx_bytes"], rec)
        self.assertLess(rec["net_rx_bytes"], 500000)

    def test_connections(self):
        rec = self.record("--allow", "example.com", "--net-connections", "2", "--",
                          *self.curl(*["http://example.com/"] * 4))  # fmt: skip
        self.assertEqual(rec["stdout"], "200\n200\n000\n", rec)
        self.assertEqual(rec["denials"][0]["explain"], "connections")

    def test_rate(self):
        url = "http://example.com/large?n=300000"
        quick = self.record("--allow", "example.com", "--", *self.curl(url))["duration_ms"]
        slow = self.record("--allow", "example.com", "--net-rate", "200K", "--", *self.curl(url))["duration_ms"]
        self.assertGreater(slow, quick + 500)

    def test_denials_are_grouped_and_bounded(self):
        rec = self.record("--net", "allow", "--", *cl.py(
            "import socket\nfor i in range(300):\n"
            "    for _ in range(2):\n"
            "        try: socket.getaddrinfo('n%d.example.com' % i, 80)\n"
            "        except OSError: pass"), timeout=60)  # fmt: skip
        self.assertLess(len(rec["denials"]), 80)
        self.assertGreaterEqual(sum(d["count"] for d in rec["denials"]), 600)


class Ways(Case):
    def test_ipv6(self):
        rec = self.record("--allow", "v6.example.com", "--", *self.curl("https://v6.example.com/"))
        self.assertEqual(rec["stdout"], "200\n", rec)

    def test_a_port_of_the_hosts_loopback(self):
        port = netlab.LOOPBACK
        for url in ("http://localhost:%d/", "http://127.0.0.1:%d/", "http://host.docker.internal:%d/"):
            rec = self.record("--allow", "localhost:%d" % port, "--", *self.curl(url % port))
            self.assertEqual(rec["stdout"], "200\n", (url, rec))
        rec = self.record("--allow", "localhost:5432", "--", *self.curl("http://localhost:%d/" % port))
        self.assertEqual(rec["exit_code"], 7, rec)

    def test_udp(self):
        ask = ("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)\n"
               "s.connect((socket.gethostbyname('example.com'), %d)); s.send(b'hello'); print(s.recv(9).decode())")  # fmt: skip
        rec = self.record("--allow", "udp://example.com:%d" % netlab.UDP_ECHO, "--", *cl.py(ask % netlab.UDP_ECHO))
        self.assertEqual(rec["stdout"], "hello\n", rec)

    def test_explicit_proxies(self):
        for proxy in ("http://198.19.255.254:3128", "socks5h://198.19.255.254:1080"):
            rec = self.record("--allow", "example.com", "--", "sh", "-c", "for a in example.com evil.com; do "
                              "curl -s -x %s -o /dev/null -w '%%{http_code}\n' https://$a/; done" % proxy)  # fmt: skip
            self.assertEqual(rec["stdout"].split()[0], "200", rec)
            self.assertNotEqual(rec["exit_code"], 0)
            self.assertIn(("connect", "evil.com:443"), self.denials(rec))

    def test_own_servers_stay_its_own(self):
        rec = self.record("--net", "public", "--", *cl.py(
            "import socket\nl = socket.create_server(('127.0.0.1', 8081))\n"
            "c = socket.create_connection(('127.0.0.1', 8081)); a = l.accept()[0]\n"
            "a.sendall(b'mine'); print(c.recv(9).decode())"))  # fmt: skip
        self.assertEqual((rec["stdout"], rec["denials"]), ("mine\n", []), rec)

    def test_with_code_and_a_terminal(self):
        r = self.lab.run("code", "--lang", "python", "--allow", "example.com", "-e",
                         "import urllib.request as u; print(u.urlopen('https://example.com/').status)")  # fmt: skip
        self.assertEqual(r.out, "200\n", str(r))
        t = cl.Terminal("run", "--tty", "--allow", "example.com", "--", *self.curl("http://example.com/"), under=self.lab.under)
        self.addCleanup(t.stop)
        t.expect("200")
        self.assertEqual(t.close(), 0)


class Faults(Case):
    FETCH = "curl -s -o /dev/null -w '%{http_code}\\n' -m 10 http://example.com/"

    def egress_of(self, p):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/stat" % pid, encoding="latin-1") as f:
                    name, rest = f.read().rsplit(")", 1)
            except OSError:
                continue
            if name.endswith("(cloche-egress") and int(rest.split()[1]) == p.pid:
                return int(pid)
        return None

    def run_and(self, act, then, *args):
        """Kills egress when the first answer is there. (exit code, answers, what cloche said)"""
        p = cl.start(command=[*self.lab.under, cl.CLOCHE, "run", *args, "--", "sh", "-c", self.FETCH + "; read x; " + then],
                     stdin=subprocess.PIPE, cwd=self.dir)  # fmt: skip
        first = p.stdout.readline().decode()
        act(self.egress_of(p))
        r = cl.finish(p, input=b"\n")
        return r.code, (first + r.out).split(), r.err

    def test_egress_is_killed_and_comes_again(self):
        # The first attempts may come while nobody listens: they are refused at once.
        code, codes, err = self.run_and(lambda pid: os.kill(pid, signal.SIGKILL),
                                        "until %s; do sleep 0.1; done" % self.FETCH, "--allow", "example.com")  # fmt: skip
        self.assertEqual((code, codes[0], codes[-1], set(codes[1:-1]) - {"000"}), (0, "200", "200", set()), err)
        self.assertIn("started again", err)

    def test_names_keep_their_addresses(self):
        then = "until getent ahostsv4 evil.com; do sleep 0.1; done; "  # the first name that the new instance hears of
        got = self.run_and(lambda pid: os.kill(pid, signal.SIGKILL), then +
                           "getent ahostsv4 example.com", "--allow", "example.com", "--allow", "evil.com")  # fmt: skip
        addresses = [x for x in got[1] if x.startswith("198.")]
        self.assertEqual(addresses[-1], "198.18.0.1", got)
        self.assertNotIn("198.18.0.1", addresses[:-3], got)

    def test_budgets_go_on(self):
        def act(pid):
            time.sleep(1.2)  # egress tells its meter once a second
            os.kill(pid, signal.SIGKILL)

        # Each attempt counts, also one that the dead program never saw.
        got = self.run_and(act, "sleep 0.3; for i in 1 2 3 4; do %s; done; true" % self.FETCH,
                           "--allow", "example.com", "--net-connections", "2")  # fmt: skip
        self.assertEqual(got[1].count("200"), 2, got)

    def test_with_a_ca_it_does_not(self):
        connect = "/usr/bin/python3 -c 'import socket; print(socket.socket().connect_ex((\"198.18.0.1\", 443)))'; "
        got = self.run_and(lambda pid: os.kill(pid, signal.SIGKILL), connect + self.FETCH, "--allow", "example.com inspect")
        self.assertEqual(got[:2], (6, ["200", "111", "000"]), got)
        self.assertIn("The network was lost", got[2])

    def test_the_name_server_is_down(self):
        self.lab.ask("dns", state="servfail")
        rec = self.record("--allow", "example.com", "--", *self.curl("http://example.com/"))
        self.assertIn(rec["stdout"], ("502\n", "000\n"), rec)

    def test_without_the_program_nothing_is_run(self):
        shutil.copy(cl.CLOCHE, self.path("cloche"))
        r = cl.command(self.path("cloche"), "run", "--allow", "example.com", "--", "echo", "ran")
        self.assertEqual((r.code, r.out), (125, ""), str(r))
        self.assertIn("cloche-egress", r.err)

    def test_a_program_that_ends_at_once_leaves_refusals(self):
        shutil.copy(cl.CLOCHE, self.path("cloche"))
        shutil.copy("/bin/false", self.path("cloche-egress"))
        r = self.lab.command(self.path("cloche"), "run", "--json", "--allow", "example.com", "--",
                             *self.curl("http://example.com/"), timeout=40)  # fmt: skip
        rec = json.loads(r.out)
        self.assertEqual(rec["exit_code"], 6, rec)
        self.assertIn("cloche-egress", " ".join(rec["notes"]))

    def test_nothing_is_left(self):
        rec = self.record("--allow", "example.com", "-t", "1s", "--", "sh", "-c", "curl -s http://example.com/slow?s=20")
        self.assertEqual(rec["status"], "timeout")


class Ask(Case):
    def ask(self, *urls):
        # The command has no part in the terminal, but for what it prints.
        script = "exec </dev/null; for a; do curl -s -m 20 -o /dev/null -w 'code=%{http_code}.\\n' $a; done; true"
        t = cl.Terminal("run", "--net", "ask", "--", "sh", "-c", script, "", *urls, under=self.lab.under)
        self.addCleanup(t.stop)
        return t

    def test_once_always_never(self):
        a, b = "http://example.com/", "http://example.org/"
        t = self.ask(a, a, a, b, b)
        for answer in ("o", "a"):
            t.expect(r"connect to example\.com:80\?")
            t.send(answer + "\n")
            t.expect(r"code=200\.")
        t.expect(r"code=200\.")
        t.expect(r"connect to example\.org:80\?")
        t.send("n\n")
        for _ in range(2):
            t.expect(r"code=(000|403)\.")
        t.expect(r'allow:\r\n  - "example\.com:80"\r\ndeny:\r\n  - "example\.org:80"')
        self.assertEqual(t.close(), 0)

    def test_addresses_are_asked_about_and_private_ones_refused(self):
        t = self.ask("http://%s/" % netlab.WEB, "http://10.0.0.5/")
        t.expect(r"connect to %s:80\?" % netlab.WEB.replace(".", r"\."))
        t.send("what\no\n")
        t.expect(r"connect to %s:80\?" % netlab.WEB.replace(".", r"\."))
        t.expect(r"code=200\.")
        t.expect(r"connect to 10\.0\.0\.5:80\?")
        t.send("o\n")
        t.expect(r"code=(000|403|502)\.")
        self.assertEqual(t.close(), 0)
        self.assertEqual([r["address"] for r in self.lab.ask("requests")], ["::ffff:" + netlab.WEB])

    def test_what_is_denied_is_not_asked(self):
        for rule in ("example.com", "example.com:80"):  # the name has no address, or the connection is refused
            t = cl.Terminal("run", "--net", "ask", "--deny", rule, "--", *self.curl("http://example.com/"),
                            under=self.lab.under)  # fmt: skip
            self.addCleanup(t.stop)
            self.assertNotEqual(t.close(), 0)
            self.assertNotIn("[o]nce", t.text)

    def test_it_needs_a_terminal(self):
        r = cl.run("run", "--net", "ask", "--", "echo", "ran")
        self.assertEqual((r.code, r.out), (125, ""), str(r))
        self.assertIn("needs a terminal", r.err)
        self.refused("run", "--net", "ask", "--tty", "--", "true", says="ask")


class Publish(Case):
    SERVER = ("import socket, sys\ns = socket.create_server(('127.0.0.1', 8000)); print('up', flush=True)\n"
              "for _ in range(%d):\n    c = s.accept()[0]\n    data = b''\n"
              "    while (part := c.recv(65536)): data += part\n    c.sendall(data[::-1]); c.close()")  # fmt: skip

    def serve(self, *args, count=1):
        """On a port of the laboratory's host that is free."""
        for port in random.sample(range(20000, 30000), 20):
            p = cl.start(command=[*self.lab.under, cl.CLOCHE, "run", "--publish", "%d:8000" % port, *args, "--",
                                  *cl.py(self.SERVER % count)], cwd=self.dir)  # fmt: skip
            if p.stdout.readline() == b"up\n":
                return p, port
            cl.finish(p)
        self.fail("no port could be published")

    def say(self, port, data):
        with self.lab.connect(port) as s:
            threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR))).start()
            got = b""
            while part := s.recv(65536):
                got += part
        return got

    def test_bytes_both_ways(self):
        for args in ((), ("--allow", "example.com")):
            p, port = self.serve(*args, count=2)
            self.assertEqual(self.say(port, b"hello"), b"olleh")
            data = os.urandom(1 << 20)
            self.assertEqual(self.say(port, data), data[::-1])
            self.assertEqual(cl.finish(p).code, 0)

    def test_it_is_on_loopback_and_gives_no_way_out(self):
        p, port = self.serve()
        with self.assertRaises(OSError):
            self.lab.connect(port, netlab.HOST)
        self.say(port, b"x")
        self.assertEqual(cl.finish(p).code, 0)
        rec = self.record("--publish", "%d:8000" % port, "--", *self.curl("http://example.com/"))
        self.assertNotEqual(rec["exit_code"], 0)
        self.assertEqual(self.lab.ask("queries"), [])

    def test_nobody_listens_inside(self):
        p = cl.start(command=[*self.lab.under, cl.CLOCHE, "run", "--publish", "18763:8000", "--", "sh", "-c",
                              "echo up; read x"], stdin=subprocess.PIPE, cwd=self.dir)  # fmt: skip
        self.assertEqual(p.stdout.readline(), b"up\n")
        with self.lab.connect(18763) as s:
            try:
                self.assertEqual(s.recv(10), b"")
            except ConnectionResetError:
                pass
        self.assertEqual(cl.finish(p, input=b"\n").code, 0)

    def test_what_is_refused(self):
        for value in ("80", "a:80", "1.2.3.4:1:2:3", "0:80"):
            self.refused("run", "--publish", value, "--", "true", says="publish")
        self.refused("run", "--publish", "8080:80", "--level", "process", "--", "true", says="publish")


class Log(Case):
    def test_every_attempt_is_a_line(self):
        r = self.lab.run("run", "--net-log", "log", "--allow", "example.com:80", "--", "sh", "-c",
                         "curl -s http://example.com/; curl -s https://example.com/", cwd=self.dir)  # fmt: skip
        lines = [json.loads(line) for line in self.read("log").splitlines()]
        rows = [(x["event"], x["verdict"], x["name"], x["port"]) for x in lines]
        self.assertEqual(rows[0], ("opened", "allow", "example.com", 80), str(r))
        self.assertIn(("closed", "allow", "example.com", 80), rows)
        self.assertIn(("denied", "deny", "example.com", 443), rows)
        self.assertIn(netlab.WEB, [x["address"] for x in lines])
        # curl may try another address of the name.
        self.assertEqual({x["remedy"] for x in lines if x["event"] == "denied"}, {"--allow example.com:443"})

    def test_it_can_go_to_standard_error(self):
        r = self.lab.run("run", "--net-log", "-", "--allow", "example.com", "--", *self.curl("http://example.com/"))
        self.assertEqual(r.out, "200\n", str(r))
        self.assertEqual(json.loads(r.err.splitlines()[0])["event"], "opened", str(r))

    def test_a_log_that_cannot_be_opened_ends_the_run(self):
        self.refused("run", "--net-log", "/proc/none", "--allow", "a.com", "--", "true", says="net_log")
        self.refused("run", "--net-log", "x", "--", "true", says="net is none")


class Inspection(Case):
    RULE = ("--allow", "example.com:443 GET /v1")

    def test_methods_and_paths_of_https(self):
        rec = self.record(*self.RULE, "--", "sh", "-c", "for a in 'GET /v1' 'GET /v1/x' 'GET /v2' 'POST /v1'; do set $a;"
                          " curl -s -X $1 -o /dev/null -w '%{http_code}\n' https://example.com$2; done")  # fmt: skip
        self.assertEqual(rec["stdout"], "200\n200\n403\n403\n", rec)
        self.assertEqual([(r["method"], r["path"]) for r in self.lab.ask("requests")], [("GET", "/v1"), ("GET", "/v1/x")])
        explained = " ".join(d["explain"] for d in rec["denials"])
        self.assertIn("--allow 'example.com:443 POST /v1'", explained)
        self.assertIn("--allow 'example.com:443 GET /v2'", explained)

    def test_programs_trust_the_ca(self):
        url = "https://example.com/v1"
        for program in (["curl", "-sS", url], ["wget", "-qO-", url], cl.py(WHOLE, url),
                        ["node", "-e", "fetch('%s').then(r => console.log(r.status)).catch(e => process.exit(1))" % url]):  # fmt: skip
            with self.subTest(program=program[0]):
                self.need_program(program[0])
                rec = self.record(*self.RULE, "--", *program)
                self.assertEqual(rec["exit_code"], 0, rec)

    def test_the_callers_variables_win(self):
        rec = self.record(*self.RULE, "--env", "SSL_CERT_FILE=/mine", "--", "sh", "-c", "echo $SSL_CERT_FILE $PIP_CERT")
        self.assertEqual(rec["stdout"], "/mine /run/cloche/ca-certificates.crt\n", rec)

    def test_the_ca_can_be_read_and_not_written(self):
        rec = self.record(*self.RULE, "--", "sh", "-c", "cat /run/cloche/ca.crt; (echo x >/run/cloche/ca.crt); "
                          "ls /run/cloche")  # fmt: skip
        self.assertTrue(rec["stdout"].startswith("-----BEGIN CERTIFICATE-----"), rec)
        self.assertNotIn("PRIVATE", rec["stdout"])
        self.assertRegex(rec["stderr"], "Read-only file system")

    def test_a_bad_certificate_outside_is_refused(self):
        for name in ("expired.example.com", "wrong.example.com"):
            rec = self.record("--allow", name + " inspect", "--", *self.curl("https://%s/" % name))
            self.assertEqual(rec["stdout"], "502\n", rec)
        self.assertEqual(self.lab.ask("requests"), [])

    def test_without_such_a_rule_there_is_no_ca(self):
        rec = self.record("--allow", "example.com", "--", "sh", "-c", "echo \"$SSL_CERT_FILE\"; ls -d /run/cloche")
        self.assertEqual((rec["stdout"], rec["exit_code"]), ("\n", 2), rec)


class Secrets(Case):
    """What reaches the server is told by a file of the laboratory's log: its answers are redacted."""

    VALUE = "sk-the-value-itself"

    def run_with(self, *args):
        r = self.lab.run("run", "--json", *args, cwd=self.dir, env=cl.caller_env(KEY=self.VALUE))
        self.assertNotIn(self.VALUE, r.out + r.err)
        return json.loads(r.out)

    def ask(self, *more):
        return ["sh", "-c", "curl -sS -H \"Authorization: Bearer $KEY\" " + " ".join(more)]

    def test_the_server_gets_the_value_and_the_program_a_placeholder(self):
        # The server compares, since what it sends back is redacted.
        digest = "https://example.com/digest"
        rec = self.run_with("--secret", "KEY,host=example.com", "--", "sh", "-c", "echo $KEY; "
                            "curl -sS -H \"Authorization: Bearer $KEY\" " + digest)  # fmt: skip
        placeholder, answer = rec["stdout"].splitlines()
        self.assertNotEqual(placeholder, "")
        self.assertEqual(answer, hashlib.sha256(("Bearer " + self.VALUE).encode()).hexdigest(), rec)

    def test_an_echo_is_redacted(self):
        rec = self.run_with("--secret", "KEY,host=example.com", "--", *self.ask("https://example.com/headers"))
        self.assertIn("Authorization: Bearer ", rec["stdout"])

    def test_only_its_host_gets_it(self):
        rec = self.run_with("--secret", "KEY,host=example.com", "--allow", "example.org", "--allow", "example.com:80", "--",
                            *self.ask("https://example.org/digest", "http://example.com/digest"))  # fmt: skip
        self.assertEqual(rec["exit_code"], 0, rec)
        self.assertNotIn(hashlib.sha256(("Bearer " + self.VALUE).encode()).hexdigest(), rec["stdout"])

    def test_the_value_is_nowhere_inside(self):
        rec = self.run_with("--secret", "KEY,host=example.com", "--", *cl.py(
            "import os\nbad = 0\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n"
            "    for name in ('environ', 'cmdline', 'mem'):\n"
            "        try: bad += b'the-value-' + b'itself' in open('/proc/%s/%s' % (pid, name), 'rb').read()\n"
            "        except OSError: pass\nprint(bad)"))  # fmt: skip
        self.assertEqual(rec["stdout"], "0\n", rec)

    def test_from_a_file_and_a_command(self):
        path = self.write("key", self.VALUE + "\n")
        for source in ("file=" + path, "command=cat,command=" + path):
            rec = self.run_with("--secret", "K2,host=example.com,header=X-Key: {}," + source, "--", "sh", "-c",
                                "curl -sS -H \"X-Key: $K2\" https://example.com/digest?of=X-Key")  # fmt: skip
            self.assertEqual(rec["stdout"], hashlib.sha256(self.VALUE.encode()).hexdigest(), rec)

    def test_what_is_refused(self):
        for args, says in ((("--secret", "NOT_SET,host=a.com"), "NOT_SET"), (("--secret", "KEY"), "host"),
                           (("--net", "none", "--secret", "KEY,host=a.com"), "net is none"),
                           (("--env", "KEY", "--secret", "KEY,host=a.com"), "placeholder")):  # fmt: skip
            r = cl.run("run", *args, "--", "true", env=cl.caller_env(KEY="x"))
            self.assertEqual(r.code, 125, str(r))
            self.assertIn(says, r.err)


class Fallback(Case):
    def lied(self, rules, *args):
        lie = cl.helper("lie")
        if not lie:
            self.skipTest("tests/helpers/lie is not built")
        own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if cl.ROOT else []
        r = self.lab.command(*own, lie, rules, "--", cl.CLOCHE, "run", "--json", *args, timeout=30)
        self.assertNotIn("lie: ", r.err)
        return json.loads(r.out)

    def test_without_tproxy_the_ports_of_rules_are_redirected(self):
        rec = self.lied("socket:2.12=EPERM", "--allow", "example.com", "--allow", "evil.com:7001", "--",
                        *self.curl("http://example.com/", "https://example.com/"))  # fmt: skip
        self.assertEqual(rec["stdout"], "200\n200\n", rec)
        self.assertEqual(rec["layers"]["network"], "ports")

    def test_without_both_nothing_is_run(self):
        rec = self.lied("socket:2.12=EPERM,listen=EPERM", "--allow", "example.com", "--", "true")
        self.assertEqual(rec["error"]["kind"], "system", rec)
