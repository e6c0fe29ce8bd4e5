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
