#!/usr/bin/env python3
"""Mail between agents while the daemon is killed: none lost, none seen twice, all replays refused.

    tests/soak/mail.py [--count 100000] [--agents 50] [--kills 5]

Each agent sends, reads and remembers what it has by itself, and after a lost connection sends again what it is not
sure of, under the same id. Each tenth message is sent again later on purpose.
"""
import argparse
import http.client
import json
import os
import random
import sys
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(TOP, "tests/e2e/daemon"), os.path.join(TOP, "tests/e2e")]
import harness  # noqa: E402
import served  # noqa: E402

SENDERS = 10  # threads; each speaks for its share of the agents


class Mail:
    def __init__(self, count, agents, kills):
        self.count, self.kills = count, kills
        self.names = ["agent%d" % i for i in range(agents)]
        self.sent, self.replays, self.lock = 0, 0, threading.Lock()
        self.got = {name: [] for name in self.names}
        self.expected = {name: set() for name in self.names}
        self.wrong, self.stop = [], False
        self.daemon = served.Daemon("")
        key = os.path.join(self.daemon.dir, "master")
        with open(key, "w", encoding="utf-8") as f:
            f.write("ef" * 32 + "\n")
        os.chmod(key, 0o400)
        self.daemon.config = "pool_size: 0\nkeys:\n  master: {file: %s}\n" % key

    def ask(self, hold, method, path, body=None):
        """Until there is an answer that is one; the daemon may be gone meanwhile."""
        while True:
            try:
                if not hold.get("c"):
                    hold["c"] = harness.UnixConnection(self.daemon.sock, 60)
                hold["c"].request(method, path, json.dumps(body) if body else None,
                                  {"Content-Type": "application/json"} if body else {})
                answer = hold["c"].getresponse()
                text = answer.read()
                if answer.status in (500, 502, 503):
                    raise OSError("busy")
                return answer.status, json.loads(text) if text else None
            except (OSError, http.client.HTTPException, ValueError):
                if hold.get("c"):
                    hold["c"].close()
                hold["c"] = None
                time.sleep(0.05)

    def send_share(self, names, share, seed):
        hold, dice, n = {}, random.Random(seed), 0
        for n in range(share):
            name, to = names[n % len(names)], dice.choice(self.names)
            body = {"to": to, "content": "%s-%d-%d" % (name, seed, n), "id": "m-%d-%d" % (seed, n)}
            path = "/v1/agents/%s/messages" % name
            with self.lock:
                self.expected[to].add(body["content"])
            while True:
                status, answer = self.ask(hold, "POST", path, body)
                if status != 429:
                    break
                time.sleep(0.02)  # its reader is slower
            if status not in (201, 409):
                self.wrong.append((status, answer))
            if n % 10 == 0:
                status, answer = self.ask(hold, "POST", path, {**body, "to": dice.choice(self.names)})
                if status == 409:
                    self.replays += 1
                elif status != 429:
                    self.wrong.append(("a replay", status, answer))
            with self.lock:
                self.sent += 1

    def read_share(self, names):
        hold, after = {}, dict.fromkeys(names, 0)
        while True:
            last = self.stop
            found = 0
            for name in names:
                path = "/v1/agents/%s/messages" % name
                status, answer = self.ask(hold, "GET", "%s?after=%d" % (path, after[name]))
                if status != 200:
                    self.wrong.append((status, answer))
                    continue
                for m in answer["messages"]:
                    found += 1
                    after[name] = m["seq"]
                    self.got[name].append(m["content"])
                if answer["messages"]:
                    self.ask(hold, "DELETE", "%s?through=%d" % (path, after[name]))
            if last and not found:
                return

    def kill_now_and_then(self):
        for i in range(self.kills):
            while self.sent < self.count * (i + 1) // (self.kills + 1):
                time.sleep(0.05)
            self.daemon.kill()
            self.daemon.start()

    def run(self):
        self.daemon.start()
        for name in self.names:
            made = self.daemon.post("/v1/agents", {"id": name, "trust": 3, "outside": True})
            assert made.status == 201, made
        share = max(1, self.count // SENDERS)
        senders = [threading.Thread(target=self.send_share, args=(self.names[i::SENDERS] or self.names, share, i))
                   for i in range(SENDERS)]
        readers = [threading.Thread(target=self.read_share, args=(self.names[i::4],)) for i in range(4)]
        killer = threading.Thread(target=self.kill_now_and_then)
        begun = time.monotonic()
        for t in senders + readers + [killer]:
            t.start()
        for t in senders + [killer]:
            t.join()
        self.stop = True
        for t in readers:
            t.join()
        return time.monotonic() - begun

    def judge(self, seconds):
        lost = sum(len(self.expected[n] - set(self.got[n])) for n in self.names)
        strange = sum(len(set(self.got[n]) - self.expected[n]) for n in self.names)
        twice = sum(len(self.got[n]) - len(set(self.got[n])) for n in self.names)
        print("%d messages between %d agents, %d kills, %.0f s: %d lost, %d twice, %d strange, %d replays refused, %d wrong"
              % (self.sent, len(self.names), self.kills, seconds, lost, twice, strange, self.replays, len(self.wrong)))
        for one in self.wrong[:5]:
            print("  wrong:", one)
        return not (lost or twice or strange or self.wrong)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--count", type=int, default=100000)
    options.add_argument("--agents", type=int, default=50)
    options.add_argument("--kills", type=int, default=5)
    o = options.parse_args()
    mail = Mail(o.count, o.agents, o.kills)
    try:
        good = mail.judge(mail.run())
    finally:
        mail.daemon.end()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
