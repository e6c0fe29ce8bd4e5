"""The egress program, driven without a sandbox (uplink.py): messages, UDP, faults, many of everything."""

import cl
import netlab
from uplink import Uplink


class EgressCase(cl.Case):
    def setUp(self):
        super().setUp()
        self.lab = netlab.shared()
        self.lab.ask("forget")
        self.lab.ask("dns", state="up")

    def uplink(self, *options, **kw):
        up = Uplink(*options, **kw)
        self.addCleanup(up.end)
        return up


class Messages(EgressCase):
    def test_it_answers_pings_and_survives_garbage(self):
        up = self.uplink("--allow", "example.com:7001")
        up.order("ping")
        up.await_event(what="pong")
        up.order("garbage", "ping")
        up.await_event(what="pong")
        self.assertEqual(up.do("return echo(tcp('example.com', 7001))"), "hello")

    def test_nothing_new_while_attempts_cannot_be_audited(self):
        up = self.uplink("--allow", "example.com:7001", "--allow", "udp://example.com:7007")
        up.do("kept['s'] = tcp('example.com', 7001); kept['a'] = socket.gethostbyname('example.com')")
        up.order("hold", "ping")
        up.await_event(what="pong")
        self.assertEqual(up.do("return code_of(tcp, 'example.com', 7001)"), "AGAIN")
        self.assertEqual(up.record(phase="lookup")["why"], "audit")
        lost = "return code_of(lambda: all_of(tcp(kept['a'], 7001)))"
        self.assertEqual(up.do(lost), "ECONNRESET")
        self.assertEqual(up.record(phase="denied")["why"], "audit")
        self.assertEqual(up.do("return echo(kept['s'])"), "hello", "an old connection goes on")
        up.order("go on", "ping")
        up.await_event(what="pong")
        self.assertEqual(up.do("return echo(tcp('example.com', 7001))"), "hello")


UDP = netlab.UDP_ECHO
ECHO = "def ask(s, data=b'hello'):\n  s.send(data)\n  return s.recv(65536).decode()\n"


class Udp(EgressCase):
    def ask(self, up, name="example.com", data="hello", timeout=10):
        return up.do(ECHO + "return ask(udp(%r, %d, %r), %r)" % (name, UDP, timeout, data.encode()))

    def refused(self, up, name="example.com"):
        self.assertEqual(up.do("s = udp(%r, %d, 0.2)\ns.send(b'x')\nreturn code_of(s.recv, 9)" % (name, UDP)), "timeout")
        return up.record(phase="denied", udp=1)

    def test_by_name_and_port(self):
        up = self.uplink("--allow", "udp://example.com:%d" % UDP, "--allow", "udp://v4.example.com:%d" % UDP)
        self.assertEqual(self.ask(up), "hello")
        row = up.record(phase="opened")
        self.assertEqual((row["name"], row["udp"], row["address"]), ("example.com", 1, netlab.WEB))
        self.assertEqual(row["rule"], "udp://example.com:%d" % UDP)
        code = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(10)\n"
        code += "to = (socket.gethostbyname('example.com'), %d)\ns.sendto(b'abc', to)\n" % UDP
        code += "data, sender = s.recvfrom(99)\nreturn [data.decode(), sender == to]"
        self.assertEqual(up.do(code), ["abc", True])
        six = "a = socket.getaddrinfo('v4.example.com', 0, socket.AF_INET6)[0][4][0]\n"
        six += "return ask(udp(a, %d, 10, socket.AF_INET6))" % UDP
        self.assertEqual(up.do(ECHO + six), "hello")
        large = "return len(ask(udp('example.com', %d), b'x' * 8000))" % UDP
        self.assertEqual(up.do(ECHO + large), 8000)
        self.assertEqual(up.do("return code_of(lambda: all_of(tcp('example.com', %d)))" % UDP), "ECONNRESET")
        up.end()
        rows = [r for r in up.seen if r["phase"] == "closed"]
        self.assertEqual(sorted((r["tx"], r["rx"]) for r in rows), [(3, 3), (5, 5), (5, 5), (8000, 8000)])
        self.assertEqual([(r["tx"], r["rx"]) for r in up.seen if r["what"] == "gone"], [(8013, 8013)])

    def test_what_no_rule_names(self):
        up = self.uplink("--allow", "udp://example.com:%d" % UDP, "--allow", "evil.com:443")
        row = self.refused(up, "evil.com")
        self.assertEqual(row["remedy"], "--allow udp://evil.com:%d" % UDP)
        self.assertEqual(up.do("return code_of(udp, 'v4.example.com', %d)" % UDP), "NONAME")
        self.assertEqual(up.do("return code_of(udp, '%s', %d)" % (netlab.WEB, UDP)), "EACCES")
        up.do("kept['s'] = udp('198.18.77.77', %d, 0.2)\nkept['s'].send(b'x')" % UDP)
        self.assertEqual(up.record(phase="denied")["why"], "no name has this address")
        self.assertEqual(up.do("s = udp('example.com', 443, 5)\ns.send(b'x')\nreturn code_of(s.recv, 9)"), "ECONNREFUSED")

    def test_an_address(self):
        up = self.uplink("--allow", "udp://%s:%d" % (netlab.WEB, UDP))
        self.assertEqual(self.ask(up, netlab.WEB), "hello")

    def test_names_that_lead_elsewhere(self):
        up = self.uplink("--allow", "udp://*.example.com:%d" % UDP)
        for name in ("private", "loopback", "own", "metadata", "mapped", "private6"):
            up.do("udp('%s.example.com', %d).send(b'x')" % (name, UDP))
            self.assertIn("address", up.record(phase="denied", udp=1, name=name + ".example.com")["why"])
        code = "s = udp('rebind.example.com', %d)\nreturn [ask(s) for _ in range(3)]" % UDP
        self.assertEqual(up.do(ECHO + code), ["hello"] * 3, "an address is checked once and stays")

    def test_narrowed_rules_end_flows(self):
        up = self.uplink("--allow", "udp://example.com:%d" % UDP)
        up.do(ECHO + "kept['s'] = udp('example.com', %d, 0.3)\nreturn ask(kept['s'])" % UDP)
        opened = up.record(phase="opened")
        up.order("clear", "allow example.com:443", "apply")
        self.assertEqual(up.record(phase="closed")["serial"], opened["serial"])
        self.assertEqual(up.do("kept['s'].send(b'x')\nreturn code_of(kept['s'].recv, 9)"), "timeout")
        up.record(phase="denied", udp=1)

    def test_quiet_flows_end(self):
        up = self.uplink("--allow", "udp://example.com:%d" % UDP, "--idle-ms", 100)
        up.do(ECHO + "kept['s'] = udp('example.com', %d)\nreturn ask(kept['s'])" % UDP)
        first = up.record(phase="closed")
        self.assertEqual(up.do(ECHO + "return ask(kept['s'])"), "hello")
        self.assertNotEqual(up.record(phase="opened", udp=1, serial=first["serial"] + 1), None)

    def test_budgets(self):
        rule = ("--allow", "udp://example.com:%d" % UDP)
        for option, why in (("--tx-bytes", "tx_bytes"), ("--rx-bytes", "rx_bytes")):
            with Uplink(*rule, option, 100) as up:
                self.assertEqual(self.ask(up), "hello")
                up.do("s = udp('example.com', %d, 0.2)\ns.send(b'x' * 200)\nreturn code_of(s.recv, 999)" % UDP)
                self.assertEqual(up.record(phase="denied")["why"], why)
        for option, why in (("--connections", "connections"), ("--requests", "requests")):
            with Uplink(*rule, option, 2) as up:
                self.assertEqual([self.ask(up) for _ in range(2)], ["hello"] * 2)
                self.assertEqual(self.refused(up)["why"], why)
        with Uplink(*rule, "--tx-rate", 20000) as up:
            got = "s, n = udp('example.com', %d, 0.3), 0\nfor i in range(100):\n  s.send(b'x' * 1000)\ntry:\n"
            got += "  while s.recv(2000):\n    n += 1\nexcept socket.timeout:\n  return n"
            self.assertIn(up.do(got % UDP), range(1, 60))

    def test_flows_are_few_at_one_time(self):
        for more, most in (((), 256), (("--open", 3), 3)):
            with Uplink("--allow", "udp://example.com:%d" % UDP, *more) as up:
                many = "kept['all'] = [udp('example.com', %d) for _ in range(300)]\n" % UDP
                self.assertEqual(up.do(ECHO + many + "return {ask(s) for s in kept['all']} == {'hello'}"), True)
                self.assertEqual(up.await_event(what="meter", connections=300)["open"], most)
                self.assertEqual(up.do(ECHO + "return ask(kept['all'][0])"), "hello", "the oldest begins again")

    def test_nobody_there(self):
        self.lab.ask("names", names={"gone.example.org": [netlab.HOST]})
        rules = ("--allow", "udp://gone.example.org:%d" % UDP, "--allow", "udp://%s:%d" % (netlab.HOST, UDP))
        up = self.uplink(*rules, "--allow", "udp://none.example.org:%d" % UDP)
        up.do("s = udp('gone.example.org', %d, 0.1)\ns.send(b'x')\nreturn code_of(s.recv, 9)" % UDP)
        self.assertIn("refused", up.record(phase="closed")["why"])
        up.do("s = udp('none.example.org', %d, 0.1)\ns.send(b'x')\nreturn code_of(s.recv, 9)" % UDP)
        self.assertIn("cannot resolve", up.record(phase="failed", udp=1)["why"])

    def test_the_operators_proxy_takes_none(self):
        up = self.uplink("--allow", "udp://example.com:%d" % UDP, "--proxy", "http://127.0.0.1:3128")
        up.do("s = udp('example.com', %d, 0.1)\ns.send(b'x')\nreturn code_of(s.recv, 9)" % UDP)
        self.assertIn("proxy", up.record(phase="failed", udp=1)["why"])
        self.assertNotIn("example.com", [q["name"] for q in self.lab.ask("queries")])


class FirstBytes(EgressCase):
    def test_a_word_without_a_line_is_passed_on(self):
        up = self.uplink("--allow", "example.com:7001")
        self.assertEqual(up.do("return echo(tcp('example.com', 7001), b'hello')"), "hello")
        self.assertEqual(up.do("return echo(tcp('example.com', 7001), b'hello world, this is no HTTP\\nx')")[-1], "x")

    def test_but_no_http_comes_of_it(self):
        up = self.uplink("--allow", "example.com:80")
        parts = "s = tcp('example.com', 80)\ns.sendall(b'BREW')\nselect.select([s], [], [], 0.2)\n"
        parts += "s.sendall(b' / HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n')\nreturn code_of(s.recv, 99)"
        self.assertEqual(up.do(parts), "ECONNRESET")
        self.assertIn("parts", up.record(phase="denied")["why"])
        whole = "s = tcp('example.com', 80)\ns.sendall(b'BREW / HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n')\nreturn all_of(s).decode()"
        self.assertIn(" 403 ", up.do(whole))
        self.assertEqual(self.lab.ask("requests"), [])
