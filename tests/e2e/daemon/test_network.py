"""The network of a daemon's sandboxes, in a laboratory internet."""

import unittest

import harness
import netlab

_daemon = None


def setUpModule():
    global _daemon
    _daemon = harness.Daemon(lab=netlab.shared()).start()


def tearDownModule():
    _daemon.stop()
    _daemon.remove()


class Network(harness.Case):
    @property
    def d(self):
        return _daemon

    def fetch(self, box, url, **more):
        return box.sh("curl -sS -m 10 " + url, **more)


class Rules(Network):
    def test_allow(self):
        box = self.box(net="allow", allow=["example.com"])
        for scheme in ("http", "https"):
            r = self.fetch(box, scheme + "://example.com/")
            self.assertIn('"host": "example.com"', r["stdout"], r)
        for url in ("http://evil.com/", "http://93.184.216.34/", "http://private.example.com/", "http://10.0.0.5/"):
            r = self.fetch(box, url)
            self.assertIn(r["exit_code"], (6, 7), r)


if __name__ == "__main__":
    unittest.main()
