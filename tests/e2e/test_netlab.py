"""The laboratory itself: what other suites take for granted about tests/e2e/netlab.py."""

import json
import socket

import cl
import netlab


class Laboratory(cl.Case):
    def setUp(self):
        super().setUp()
        self.lab = netlab.shared()
        self.lab.ask("forget")
        self.lab.ask("dns", state="up")

    def curl(self, *args):
        return self.lab.command(self.need_program("curl"), "-sS", "-m", "10", *args)

    def test_programs_use_it_without_settings(self):
        for url in ("http://example.com/a", "https://example.com/a", "https://v6.example.com/a"):
            r = self.curl(url)
            self.assertEqual(r.code, 0, str(r))
            self.assertEqual(json.loads(r.out)["path"], "/a")
        names = {q["name"] for q in self.lab.ask("queries")}
        self.assertLessEqual({"example.com", "v6.example.com"}, names)
        self.assertEqual([q["scheme"] for q in self.lab.ask("requests")], ["http", "https", "https"])
        self.assertEqual(json.loads(self.curl("https://sub.allowed.com/").out)["sni"], "sub.allowed.com")

    def test_any_address_answers_and_tells_which_it_was(self):
        for name, address in (("metadata", "169.254.169.254"), ("private", "10.0.0.5"), ("cgnat", "100.64.0.1")):
            r = self.curl("http://%s.example.com/" % name)
            self.assertEqual(json.loads(r.out)["address"], "::ffff:" + address, str(r))

    def test_certificates_that_are_no_good(self):
        for name in ("expired.example.com", "wrong.example.com"):
            self.assertEqual(self.curl("https://%s/" % name).code, 60)

    def test_an_answer_can_change_and_fail(self):
        got = [json.loads(self.curl("http://rebind.example.com/").out)["address"] for _ in range(2)]
        self.assertIn("::ffff:10.0.0.5", got)
        self.assertEqual(self.curl("http://unknown.invalid/").code, 6)
        self.lab.ask("dns", state="servfail")
        self.assertEqual(self.curl("http://example.com/").code, 6)

    def test_other_services(self):
        with self.lab.connect(netlab.SERVER_FIRST, netlab.WEB) as s:
            self.assertEqual(s.recv(100), b"220 ready\r\n")
        with self.lab.connect(netlab.TCP_ECHO[0], netlab.WEB) as s:
            s.sendall(b"hello")
            self.assertEqual(s.recv(100), b"hello")
        echo = (
            "import socket;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.settimeout(5);"
            "s.connect(('%s',%d));s.send(b'x');print(s.recv(9))" % (netlab.WEB, netlab.UDP_ECHO)
        )
        self.assertEqual(self.lab.command(*cl.py(echo)).out, "b'x'\n")

    def test_http2(self):
        self.need_program("node")
        port = self.lab.ask("http2")
        r = self.curl("--http2", "https://example.com:%d/x" % port)
        self.assertEqual(json.loads(r.out)["version"], "2.0", str(r))

    def test_the_tests_own_network_is_another(self):
        self.assertRaises(OSError, socket.create_connection, ("127.0.0.1", netlab.LOOPBACK), 1)
        self.assertEqual(self.curl("http://127.0.0.1:%d/" % netlab.LOOPBACK).code, 0)

    def test_cloche_runs_inside(self):
        r = self.lab.run("run", "--", "sh", "-c", "pwd; id -u")
        self.assertEqual(r.code, 0, str(r))
