"""The network of a run without a daemon: rules, what is refused, what the record says of it."""

import json

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
