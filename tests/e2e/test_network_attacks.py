"""Attacks on the network of a sandbox (netattack.py): each must get through without a sandbox and be refused inside.

All attacks under one policy run in one sandbox, once for all tests of a class; the tests look at what came of it.
"""

import json
import re

import cl
import netattack
import netlab

PROXIES = {"http_proxy": "http://198.19.255.254:3128", "all_proxy": "socks5://198.19.255.254:1080"}


def options(policy):
    row = netattack.POLICIES[policy]
    given = ["--net", row["net"]]
    for kind in ("allow", "deny"):
        for rule in row.get(kind, []):
            given += ["--" + kind, rule]
    return given


class Attacks(cl.Case):
    """Rows of one policy. Verdicts by (row, variant), outside and inside."""

    policy = None

    @classmethod
    def setUpClass(cls):
        cls.lab = netlab.shared()
        cls.lab.ask("dns", state="up")
        cls.lab.ask("names", names=netattack.NAMES)
        rows = [name for name, r in netattack.ROWS.items() if r["policy"] == cls.policy and r["outside"]]
        cls.dir = cl.base_dir()
        cls.outside = cls.judge(
            cls.lab.command(
                "/usr/bin/python3", netattack.__file__, cls.policy, *rows, cwd=cls.dir, timeout=120,
                env=cl.caller_env(NETATTACK_TIMEOUT="10", NETATTACK_OUTSIDE="1"),
            ),
            like=netattack.MARKERS,
        )  # fmt: skip
        # A socket to a server that is not listed, as a careless caller leaves it open.
        with cls.lab.connect(80, netattack.EVIL) as left_open:
            cls.inside = cls.judge(cls.run_inside(left_open.fileno()))

    @classmethod
    def run_inside(cls, fd):
        given = options(cls.policy)
        for name, value in {**PROXIES, "NETATTACK_TIMEOUT": "10"}.items():
            given += ["--env", "%s=%s" % (name, value)]
        with open(netattack.__file__, encoding="utf-8") as f:
            program = f.read()
        return cls.lab.run("run", *given, "--", "/usr/bin/python3", "-c", program, cls.policy, cwd=cls.dir, timeout=120,
                           pass_fds=[fd])  # fmt: skip

    @classmethod
    def judge(cls, r, like=None):
        """What the servers saw decides about those that ask for it."""
        if r.code:
            raise AssertionError(str(r))
        seen = {q["name"] for q in cls.lab.ask("queries", like=like)}
        cls.lab.ask("forget")
        verdicts = {}
        for line in r.out.splitlines():
            row = json.loads(line)
            for variant, (verdict, detail) in row["results"].items():
                if verdict == "ask":
                    came = [name for name in seen if detail in name]
                    verdict, detail = ("through", "asked for " + came[0]) if came else ("refused", "no query left")
                verdicts[row["row"], variant] = verdict, detail
        cls.seen = seen
        return verdicts


def add_row(cls, name):
    def test(self):
        for variant, _, *outside in netattack.ROWS[name]["call"]():
            with self.subTest(variant):
                if netattack.ROWS[name]["outside"] and all(outside):
                    self.assertEqual(self.outside[name, variant][0], "through", "the control: %s" % (self.outside[name, variant],))
                verdict, detail = self.inside[name, variant]
                if name in netattack.WORKS:
                    self.assertEqual(verdict, "through", detail)
                elif verdict == "cannot":
                    self.skipTest(detail)
                else:
                    self.assertEqual(verdict, "refused", detail)

    test.__doc__ = netattack.ROWS[name]["title"]
    setattr(cls, "test_" + name.replace("-", "_"), test)


class Allow(Attacks):
    policy = "allow"

    def test_nothing_about_other_names_left(self):
        """Whatever was tried, no name that is not allowed was asked for outside."""
        others = {n for n in self.seen if not re.fullmatch(r"allowed\.com|([a-z0-9_-]+\.)+example\.com", n)}
        self.assertEqual(others, set())


class Public(Attacks):
    policy = "public"


class Inspect(Attacks):
    policy = "inspect"


class Nothing(Attacks):
    policy = "none"


for _name, _row in netattack.ROWS.items():
    for _class in (Allow, Public, Inspect, Nothing):
        if _class.policy == _row["policy"]:
            add_row(_class, _name)
del _class  # unittest would take it for another suite
