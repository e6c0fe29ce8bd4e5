"""The egress program, driven without a sandbox (uplink.py): messages, UDP, faults, many of everything."""

import os
import subprocess
import time

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

    def test_what_is_denied_takes_the_place_of_none(self):
        up = self.uplink("--allow", "udp://example.com:%d" % UDP, "--allow", "evil.com:443", "--open", 1)
        ask = ECHO + "kept.setdefault('s', udp('example.com', %d))\nreturn ask(kept['s'])" % UDP
        self.assertEqual(up.do(ask), "hello")
        self.refused(up, "evil.com")
        self.assertEqual(up.do(ask), "hello")
        self.assertNotIn("closed", [r.get("phase") for r in up.seen])

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


    def test_the_proxy_protocol(self):
        """A server that believes it would read a request or a hello that nobody has looked at."""
        up = self.uplink("--allow", "example.com")
        first, second = b"PROXY TCP4 1.2.3.4 5.6.7.8 1 443\r\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)
        request = b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n"
        for parts in ((first + request,), (second + request,), (first[:3], first[3:] + request), (second[:6], second[6:] + request)):
            code = "def talk():\n  s = tcp('example.com', 7001)\n  for part in %r:\n    s.sendall(part)\n    select.select([s], [], [], 0.2)\n  all_of(s)\n"
            self.assertEqual(up.do(code % (parts,) + "return code_of(talk)"), "ECONNRESET", parts)
            self.assertEqual(up.record(phase="denied", port=7001)["why"], "the PROXY protocol")

    def test_port_0(self):
        """To the rules it would be the question whether there is any port."""
        up = self.uplink("--allow", "example.com:7001", "--allow", "v4.example.com", "--allow", "localhost:7001")
        for name in ("example.com", "v4.example.com", "host.docker.internal"):
            self.assertEqual(up.do("return code_of(lambda: all_of(tcp('%s', 0)))" % name), "ECONNRESET")
            self.assertEqual(up.record(phase="denied", name="localhost" if "docker" in name else name)["why"], "port 0")


RESUMED = """
import subprocess
FILE, EARLY, CAUGHT = '%s', '%s', []

def client(*args, at='example.com:7443', stdin=b'', until=b'Max Early Data'):
    # Its lines up to the one that is waited for; then it quits.
    p = subprocess.Popen(['stdbuf', '-oL', 'openssl', 's_client', '-connect', at, '-tls1_3', *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    p.stdin.write(stdin)
    p.stdin.flush()
    lines = []
    for line in p.stdout:
        lines.append(line.decode('latin-1'))
        if until in line:
            break
    p.stdin.close()
    p.kill()
    p.wait()
    p.stdout.close()
    return ''.join(lines)

def caught(*args):
    # What a client sends first: its hello and early data.
    s = socket.create_server(('127.0.0.1', 0))
    p = subprocess.Popen(['openssl', 's_client', '-connect', '127.0.0.1:' + str(s.getsockname()[1]), '-tls1_3', *args], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    c, data = s.accept()[0], b''
    c.settimeout(10)
    while data.count(b'\\x17\\x03\\x03') < 1 or len(data) < 100:
        data += c.recv(65536)
    p.kill()
    p.wait()
    p.stdin.close()
    return data
"""


class Resumed(EgressCase):
    """TLS sessions that are taken up again, with data in the first flight (0-RTT)."""

    def setUp(self):
        super().setUp()
        keys = ["-cert", os.path.join(self.lab.dir, "leaf.pem"), "-key", os.path.join(self.lab.dir, "leaf.key")]
        command = ["stdbuf", "-oL", "openssl", "s_server", "-accept", "7443", *keys, "-early_data", "-no_anti_replay", "-tls1_3", "-num_tickets", "1"]
        self.server = cl.start(command=[*self.lab.internet, *command], stdin=subprocess.PIPE)
        self.addCleanup(cl.finish, self.server)
        self.addCleanup(self.server.kill)
        self.read_until(b"ACCEPT")
        self.session = self.path("session")
        with open(self.path("early"), "wb") as early:
            early.write(b"early word\n")
        self.code = RESUMED % (self.session, self.path("early"))
        self.name = "'-servername', 'example.com', "

    def read_until(self, word):
        lines = []
        for line in self.server.stdout:
            lines.append(line)
            if word in line:
                return b"".join(lines)
        raise AssertionError("the server ended: %r" % lines)

    def take_session(self, up):
        up.do(self.code + "return client(%s'-sess_out', FILE)" % self.name)

    def test_not_opened(self):
        up = self.uplink("--allow", "example.com:7443")
        self.take_session(up)
        use = self.code + "return client(%s'-sess_in', FILE, '-early_data', EARLY, until=b'Early data was')"
        self.assertIn("Early data was accepted", up.do(use % self.name))
        self.assertIn(b"early word", self.read_until(b"early word"))
        for other, why in (("'-servername', 'evil.com', ", "evil.com"), ("'-noservername', ", "without a server name")):
            got = up.do(self.code + "return client(%s'-sess_in', FILE, until=b'no peer certificate')" % other)
            self.assertNotIn("Reused", got)
            self.assertIn(why, up.record(phase="denied", port=7443)["why"])

    def test_early_data_for_another_name(self):
        up = self.uplink("--allow", "example.com:7443", "--allow", "example.com:7001")
        self.take_session(up)
        code = self.code + "data = caught(%s'-sess_in', FILE, '-early_data', EARLY)\n" % self.name
        code += "s = tcp('example.com', 7443)\ns.sendall(data.replace(b'example.com', %r))\nreturn %s"
        self.assertEqual(up.do(code % (b"example.com", "s.recv(1)[0]")), 22, "the control")
        self.read_until(b"early word")
        self.assertEqual(up.do(code % (b"evilone.com", "code_of(s.recv, 1)")), "ECONNRESET")
        self.assertIn("evilone.com", up.record(phase="denied", port=7443)["why"])

    def test_opened(self):
        up = self.uplink("--allow", "example.com:443 GET", "--allow", "example.com:7443", "--ca", self.lab.ca)
        self.take_session(up)
        request = "b'%s / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n'"
        ask = self.code + "return client(%s'-ign_eof', %s, at='example.com:443', stdin=%s, until=b'HTTP/1.1 ')"
        with open(self.path("early"), "wb") as early:
            early.write(b"DELETE / HTTP/1.1\r\nHost: example.com\r\n\r\n")
        # A ticket of the server itself is worth nothing to egress: what comes early is thrown away.
        got = up.do(ask % (self.name, "'-sess_in', FILE, '-early_data', EARLY", request % ("GET", "example.com")))
        self.assertIn("HTTP/1.1 200", got)
        self.assertEqual([r["method"] for r in self.lab.ask("requests")], ["GET"])
        # A ticket of egress: requests are judged as before, and so is the name.
        up.do(self.code + "return client(%s'-sess_out', FILE, at='example.com:443')" % self.name)
        for method, host, status in (("GET", "example.com", "200"), ("DELETE", "example.com", "403"), ("GET", "evil.com", "403")):
            got = up.do(ask % (self.name, "'-sess_in', FILE", request % (method, host)))
            self.assertIn("Reused, TLSv1.3", got)
            self.assertIn("HTTP/1.1 " + status, got)
        self.assertEqual([r["method"] for r in self.lab.ask("requests")], ["GET", "GET"])
        got = up.do(ask % ("'-servername', 'evil.com', ", "'-sess_in', FILE", request % ("GET", "evil.com")))
        self.assertNotIn("Reused", got)
        self.assertIn("evil.com", up.record(phase="denied", port=443, why="TLS asks for evil.com instead")["why"])


SOCKS = "def socks(name, port):\n  s = tcp('198.19.255.254', 1080)\n  s.sendall(b'\\x05\\x01\\x00')\n  s.recv(2)\n"
SOCKS += "  s.sendall(b'\\x05\\x01\\x00\\x03' + bytes([len(name)]) + name.encode() + struct.pack('!H', port))\n"
SOCKS += "  return s.recv(99)[1]\n"
LONG = "x" * 50


class Judged(EgressCase):
    """What is allowed by name is judged by its address as well."""

    def test_the_address_that_was_dialled_decides(self):
        self.lab.ask("names", names={"two.example.net": [netlab.WEB, "10.0.0.5"]})
        up = self.uplink("--allow", "two.example.net:7001 GET")
        up.do("kept['s'] = tcp('two.example.net', 7001)")
        up.record(phase="opened")
        self.assertEqual(up.do("kept['s'].sendall(b'\\x01\\n')\nreturn code_of(kept['s'].recv, 9)"), "ECONNRESET")
        self.assertIn("not HTTP", up.record(phase="denied")["why"])

    def test_methods_of_a_network(self):
        up = self.uplink("--allow", "v4.example.com:80", "--deny", netlab.WEB + " DELETE")
        ask = "s = tcp('v4.example.com', 80)\ns.sendall(b'%s / HTTP/1.1\\r\\nHost: v4.example.com\\r\\nConnection: close\\r\\n\\r\\n')\n"
        ask += "return all_of(s).decode()[:13]"
        for _ in range(3):
            self.assertEqual(up.do(ask % "DELETE"), "HTTP/1.1 403 ")
        self.assertEqual(up.do(ask % "GET"), "HTTP/1.1 200 ")
        self.assertEqual([r["method"] for r in self.lab.ask("requests")], ["GET"])

    def test_an_answer_of_a_person_opens_nothing_that_is_denied(self):
        up = self.uplink("--allow", "example.org:1", "--deny", netlab.WEB, "--ask", 1)
        up.do("kept['s'] = tcp('v4.example.com', 7001)")
        up.order("verdict %d 1" % up.await_event(what="ask")["serial"])
        self.assertIn("denies", up.record(phase="denied", name="v4.example.com")["why"])

    def test_a_denial_ends_what_a_person_has_allowed(self):
        up = self.uplink("--allow", "example.org:1", "--ask", 1)
        up.do("kept['s'] = tcp('v4.example.com', 7001)")
        up.order("verdict %d 1" % up.await_event(what="ask")["serial"])
        self.assertEqual(up.do("return echo(kept['s'])"), "hello")
        up.order("allow example.org:2", "apply", "ping")
        up.await_event(what="pong")
        self.assertEqual(up.do("return echo(kept['s'])"), "hello")
        up.order("deny v4.example.com", "apply")
        self.assertEqual(up.do("return code_of(kept['s'].recv, 9)"), "ECONNRESET")

    def test_the_loopback_is_not_that_of_the_operators_proxy(self):
        up = self.uplink("--allow", "localhost:7999", "--proxy", "http://%s:7001" % netlab.WEB)
        self.assertEqual(up.do(SOCKS + "return socks('127.0.0.1', 7999)"), 4)
        self.assertIn("refused", up.record(phase="failed", name="localhost")["why"])

    def test_the_operators_proxy_wants_a_password(self):
        p = cl.start(command=[*self.lab.internet, *cl.py(PROXY)])
        self.addCleanup(cl.finish, p)
        self.addCleanup(p.kill)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        proxy = ("--allow", "example.com:7001", "--proxy", "http://%s:7299" % netlab.WEB, "--proxy-auth")
        up = self.uplink(*proxy, "a:b")
        self.assertEqual(up.do("return all_of(tcp('example.com', 7001)).decode()"), "CONNECT example.com:7001 HTTP/1.1")
        self.assertEqual(self.lab.ask("queries"), [], "the proxy resolves names")
        up = self.uplink(*proxy, "a:c")
        self.assertEqual(up.do("return code_of(lambda: all_of(tcp('example.com', 7001)))"), "ECONNRESET")
        self.assertIn("wants other credentials", up.record(phase="failed")["why"])

    def test_names_by_the_proxy_are_counted_like_look_ups(self):
        up = self.uplink("--allow", "*.example.com:7001", "--budget-names", 10)
        two = "return [socks('%s' + str(i) + '.example.com', 7001) for i in (1, 2)]" % LONG
        self.assertEqual(up.do(SOCKS + two), [0, 1])
        self.assertIn("too many", up.record(phase="denied")["why"])

    def test_texts_are_counted_like_look_ups(self):
        up = self.uplink("--allow", "*.example.com:7001 txt", "--budget-names", 10)
        ask = "def text(name):\n  s = udp('127.0.0.1', 53)\n  q = b''.join(bytes([len(l)]) + l for l in name.encode().split(b'.'))\n"
        ask += "  s.send(b'\\0\\1\\1\\0\\0\\1' + bytes(6) + q + b'\\0\\0\\x10\\0\\1')\n  return s.recv(999)[3] & 15\n"
        got = up.do(ask + "return [text('%s' + str(i) + '.example.com') for i in (1, 2)]" % LONG)
        self.assertEqual(got[1], 2)
        self.assertEqual(len([q for q in self.lab.ask("queries") if q["type"] == "TXT" and LONG in q["name"]]), 1)


class Faults(EgressCase):
    """Each leaves the program serving: the last word of most tests is a connection that works."""

    def works(self, up):
        self.assertEqual(up.do("return echo(tcp('example.com', 7001))"), "hello")

    def test_upstream_is_down_or_silent(self):
        self.lab.ask("names", names={"hole.example.org": ["2606:2800:ffff::99"]})
        rules = ("--allow", "example.com", "--allow", "hole.example.org")
        up = self.uplink(*rules, "--connect-ms", 300)
        lost = "return code_of(lambda: all_of(tcp('%s', %d)))"
        self.assertEqual(up.do(lost % ("example.com", 9)), "ECONNRESET")
        self.assertIn("refused", up.record(phase="failed", port=9)["why"])
        self.assertEqual(up.do(lost % ("hole.example.org", 7001)), "ECONNRESET")
        self.assertRegex(up.record(phase="failed", name="hole.example.org")["why"], "no answer in time|No route")
        self.works(up)

    def test_the_resolver_is_down(self):
        up = self.uplink("--allow", "example.com:7001", "--allow", "allowed.com:7001", "--connect-ms", 300)
        for state, name, why in (
            ("servfail", "example.com", "cannot resolve"),
            ("down", "allowed.com", "no answer in time"),
        ):
            self.lab.ask("dns", state=state)
            self.assertEqual(up.do("return code_of(lambda: all_of(tcp('%s', 7001)))" % name), "ECONNRESET", state)
            self.assertIn(why, up.record(phase="failed", name=name)["why"])
        self.lab.ask("dns", state="up")
        answer = lambda: up.do("return code_of(lambda: echo(tcp('example.com', 7001)))") == "ok"
        self.assertTrue(cl.wait_for(answer), "the next connection after the resolver is back")

    def test_bad_certificates_under_inspection(self):
        up = self.uplink("--allow", "*.example.com:443 GET", "--ca", self.lab.ca)
        code = "c = ssl.create_default_context()\nc.check_hostname, c.verify_mode = False, ssl.CERT_NONE\n"
        code += "def get():\n  s = c.wrap_socket(tcp('%s', 443), server_hostname='%s')\n"
        code += "  s.sendall(b'GET / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n')\n  return all_of(s)\n"
        name = "www.example.com"
        self.assertIn("200", up.do((code + "return get()[:15].decode()") % ((name,) * 3)))
        for name in ("expired.example.com", "wrong.example.com"):
            got = up.do((code + "try:\n  return get()[:15].decode()\nexcept OSError as e:\n  return 'refused'") % ((name,) * 3))
            self.assertNotIn("200", got)
            self.assertIn("certificate", up.record(phase="failed", name=name)["why"])
        self.assertEqual([r["sni"] for r in self.lab.ask("requests")], ["www.example.com"])

    def crowd(self, count):
        """So many connections of another sandbox that nobody speaks on; of those that it tried, how many it has."""
        port = 20000 + os.getpid() % 20000
        quiet = cl.start(command=[*self.lab.under, *cl.py(QUIET, str(port))])
        self.addCleanup(cl.finish, quiet)
        self.addCleanup(quiet.kill)
        self.assertEqual(quiet.stdout.readline(), b"ready\n")
        rules = ("--allow", "example.com", "--allow", "localhost:%d" % port)
        up = self.uplink(*rules, "--with", CROWD % (count, port, self.path("crowd")))
        path = self.path("crowd")
        self.assertTrue(cl.wait_for(lambda: os.path.exists(path) and self.read("crowd"), 90), "the crowd")
        return up, int(self.read("crowd"))

    def test_slow_readers_and_half_open_connections(self):
        up = self.uplink("--allow", "example.com")
        before = self.resident(up)
        slow = "kept['slow'] = []\nfor i in range(40):\n  s = tcp('example.com', 80)\n  kept['slow'].append(s)\n"
        slow += "  s.sendall(b'GET /large?n=8000000 HTTP/1.1\\r\\nHost: example.com\\r\\n\\r\\n')\n"
        up.do(slow + "  s.recv(1)")
        self.works(up)
        self.assertLess(self.resident(up) - before, 32 << 20, "what nobody reads is not kept")
        half = "s = tcp('example.com', 7001)\ns.sendall(b'tail')\ns.shutdown(socket.SHUT_WR)\nreturn all_of(s).decode()"
        self.assertEqual(up.do(half), "tail")

    def test_10000_connections(self):
        up, got = self.crowd(10000)
        self.assertGreater(got, 1000, "the control")
        self.works(up)
        self.assertLess(self.resident(up), 200 << 20)

    def test_idle_networks_are_small(self):
        rule = ("--allow", "example.com:7001")
        with Uplink(*rule) as up:
            few = self.resident(up)
        with Uplink(*rule, "--sandboxes", 100) as up:
            self.works(up)
            self.assertLess((self.resident(up) - few) / 100, 100 << 10)

    def test_100000_lookups(self):
        up = self.uplink("--allow", "*.example.com:443", "--allow", "example.com:7001")
        code = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('198.19.255.254', 53))\ns.setblocking(False)\n"
        code += "ok = 0\nfor i in range(%d):\n  name = b'n%%x' %% i\n"
        code += "  q = struct.pack('!6H', i & 65535, 256, 1, 0, 0, 0) + bytes([len(name)]) + name + b'\\7example\\3com\\0\\0\\1\\0\\1'\n"
        code += "  select.select([], [s], [])\n  try:\n    s.send(q)\n  except OSError: pass\n  try:\n    while True:\n      ok += s.recv(999)[3] & 15 == 0\n  except OSError: pass\n"
        code += "return ok"
        before = self.resident(up)
        self.assertLessEqual(up.do(code % 100000, 100), 1024 + 64, "names below a wildcard are few")
        self.assertLess(self.resident(up) - before, 16 << 20)
        self.works(up)
        self.assertEqual(self.lab.ask("queries")[0]["name"], "example.com", "no look-up went out")

    def test_attempts_of_a_busy_sandbox_are_told_together(self):
        up = self.uplink("--allow", "example.com", "--ca", self.lab.ca)
        code = "to = socket.gethostbyname('example.com')\nfor i in range(10):\n  many = [socket.socket() for _ in range(400)]\n"
        code += "  for s in many:\n    s.setblocking(False)\n    s.connect_ex((to, 9))\n"
        code += "  for s in many:\n    s.settimeout(20)\n    code_of(s.recv, 1)\n    s.close()\nreturn 1"
        begun = time.monotonic()
        up.do(code, 60)
        seconds = time.monotonic() - begun
        count = lambda: sum(r["count"] for r in up.seen if r["phase"] == "failed")
        self.assertTrue(cl.wait_for(lambda: count() == 4000), count())
        self.assertLess(len([r for r in up.seen if r["phase"] == "failed"]), (seconds + 3) * (256 + 64))

    def test_bytes_that_wait_are_bounded(self):
        up = self.uplink("--allow", "example.com", "--ca", self.lab.ca)
        code = "import resource\nhard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\nresource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n"
        code += "head = b'GET / HTTP/1.1\\r\\nHost: example.com\\r\\nA: ' + bytes([97]) * 60000\n"
        code += "for i in range(%d):\n  kept[i] = tcp('example.com', 80)\n  kept[i].sendall(head)"
        up.do(code % 400, 60)
        self.assertEqual([r for r in up.seen if r["phase"] == "denied"], [], "the control")
        up.do(code % 1500, 60)
        self.assertIn("too many bytes", up.record(phase="denied")["why"])
        self.assertLess(self.resident(up), 250 << 20)
        self.works(up)

    def test_silent_name_servers_of_another_sandbox(self):
        paths = [self.path("asked%d" % i) for i in range(2)]
        up = self.uplink("--allow", "*", *[word for path in paths for word in ("--with", NAMES % path)])
        self.assertTrue(cl.wait_for(lambda: all(map(os.path.exists, paths)), 60))
        self.assertTrue(cl.wait_for(lambda: any("too many names" in r.get("why", "") for r in up.seen)), "the control")
        self.works(up)

    def test_64_names_at_one_time(self):
        up, other = self.uplink("--allow", "*.silent.example.org:7001", "--allow", netlab.WEB), self.uplink("--allow", "example.com")
        code = "kept['all'] = [tcp('n%%d.silent.example.org' %% i, 7001) for i in range(300)]\nreturn echo(tcp('%s', 7001))"
        self.assertEqual(up.do(code % netlab.WEB), "hello", "accepted after the others")
        self.works(other)
        self.assertEqual(len({q["name"] for q in self.lab.ask("queries", like=[netlab.SILENT])}), 64)

    def test_names_that_wait_are_resolved_in_turn(self):
        up = self.uplink("--allow", "*.example.com:7001", "--connect-ms", 20000)
        code = "to = [socket.gethostbyname('n%d.example.com' % i) for i in range(400)]\n"
        code += "kept['all'] = [socket.socket() for _ in to]\nfor s, a in zip(kept['all'], to):\n  s.connect((a, 7001))\n  s.settimeout(20)\n"
        code += "return {echo(s) for s in kept['all']} == {'hello'}"
        self.assertEqual(up.do(code, 60), True)

    def test_waiting_names_end_with_their_connections_and_settings(self):
        up = self.uplink("--allow", "*.silent.example.org:7001", "--allow", "example.com:7001", "--connect-ms", 300)
        code = "kept['all'] = []\nfor i in range(200):\n  kept['all'].append(tcp('n%d.silent.example.org' % i, 7001))\n"
        up.do(code + "for s in kept['all']: code_of(s.recv, 1)", 60)
        up.do("for s in kept['all']: s.close()\nkept['all'] = [tcp('m%d.silent.example.org' % i, 7001) for i in range(100)]", 60)
        up.order("settings")
        self.assertEqual(up.do("return {code_of(s.recv, 1) for s in kept['all']} == {'ECONNRESET'}"), True)
        self.works(up)

    def test_ports_of_another_sandbox(self):
        """Who closes first keeps a port for a minute; to one destination there are no more connections than ports."""
        change = lambda text: self.lab.command("sh", "-c", "echo %s >/proc/sys/net/ipv4/ip_local_port_range" % text).code
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
            before = f.read()
        if change("40000 40999"):
            self.skipTest("the ports of the laboratory cannot be changed by an ordinary user")
        self.addCleanup(change, before)
        up = self.uplink("--allow", "v4.example.com", "--allow", "v6.example.com", "--with", PORTS % self.path("done"))
        self.assertTrue(cl.wait_for(lambda: os.path.exists(self.path("done")), 60))
        self.assertEqual(self.read("done"), "ECONNRESET")
        self.assertIn("closed a moment ago", up.record(phase="failed", name="v4.example.com")["why"])
        self.assertEqual(up.do("return echo(tcp('v4.example.com', 7001))"), "hello")

    def resident(self, up):
        with open("/proc/%d/statm" % up.pid(), encoding="ascii") as f:
            return int(f.read().split()[1]) * 4096

    def test_malformed_bytes(self):
        up = self.uplink("--allow", "example.com", "--ca", self.lab.ca, "--allow", "allowed.com:443 GET")
        code = "import random\nr = random.Random(7)\nfor i in range(300):\n"
        code += "  host, port = r.choice([('example.com', 80), ('example.com', 443), ('allowed.com', 443), ('198.19.255.254', 3128), ('198.19.255.254', 1080), ('198.19.255.254', 53)])\n"
        code += "  head = r.choice([b'', b'\\x16\\x03\\x01', b'GET / HTTP/1.1\\r\\n', b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n', b'\\5\\1\\0', b'CONNECT example.com:443 HTTP/1.1\\r\\n\\r\\n', b'\\0\\x1c'])\n"
        code += "  try:\n    s = tcp(host, port)\n    s.sendall(head + r.randbytes(r.randrange(400)))\n    s.shutdown(socket.SHUT_WR)\n    s.settimeout(0.05)\n    s.recv(9999)\n  except OSError: pass\n"
        code += "u = udp('198.19.255.254', 53)\nfor i in range(2000):\n  try: u.send(r.randbytes(r.randrange(1, 600)))\n  except OSError: pass\n"
        up.do(code, 60)
        self.works(up)

    def test_narrowed_rules_close_connections(self):
        up = self.uplink("--allow", "example.com:7001", "--allow", "allowed.com:7001")
        up.do("kept['a'], kept['b'] = tcp('example.com', 7001), tcp('allowed.com', 7001)\necho(kept['a']), echo(kept['b'])")
        up.order("deny example.com", "apply")
        self.assertEqual(up.do("kept['a'].settimeout(5)\nreturn code_of(kept['a'].recv, 1)"), "ECONNRESET")
        self.assertEqual(up.do("return echo(kept['b'])"), "hello")


PROXY = """
import socket
s = socket.create_server(("", 7299))
print("ready", flush=True)
while True:
    c, head = s.accept()[0], b""
    while b"\\r\\n\\r\\n" not in head:
        head += c.recv(9999)
    lines = head.split(b"\\r\\n")
    known = b"Proxy-Authorization: Basic YTpi" in lines
    c.sendall(b"HTTP/1.1 200 yes\\r\\n\\r\\n" + lines[0] if known else b"HTTP/1.1 407 no\\r\\n\\r\\n")
    c.close()
"""
QUIET = """
import resource, select, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
s, kept = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=4096), []
print("ready", flush=True)
while True:
    try:
        kept.append(s.accept())
    except OSError:
        del kept[0]
"""
NAMES = """exec python3 -c "
import resource, socket, struct, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
u, kept, to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), [], []
u.connect(('198.19.255.254', 53))
for i in range(2500):
    name = b'n%%d' %% i
    u.send(struct.pack('!6H', i, 256, 1, 0, 0, 0) + bytes([len(name)]) + name + b'\\6silent\\7example\\3org\\0\\0\\1\\0\\1')
    to.append(socket.inet_ntoa(u.recv(999)[-4:]))
for a in to:
    s = socket.socket(); s.setblocking(False); s.connect_ex((a, 7001)); kept.append(s)
open('%s', 'w').close()
time.sleep(99)" """
PORTS = """exec python3 -c "
import os, socket, time
end, to = 'ok', socket.gethostbyname('v4.example.com')
for i in range(1200):
    s = socket.create_connection((to, 7001), 10)
    try:
        s.sendall(b'x')
        if not s.recv(1): break
    except OSError:
        end = 'ECONNRESET'
        break
    s.close()
path = '%s'
with open(path + '.new', 'w') as f: f.write(end)
os.rename(path + '.new', path)
time.sleep(99)" """
CROWD = """exec python3 -c "
import resource, socket, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
to, kept, lost = socket.gethostbyname('host.docker.internal'), [], 0
for i in range(%d):
    try:
        s = socket.socket(); s.setblocking(False)
        s.connect_ex((to, %d))
        kept.append(s)
    except OSError:
        lost += 1
open('%s', 'w').write(str(len(kept)))
time.sleep(99)" """
