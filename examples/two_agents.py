#!/usr/bin/env python3
"""Two agents in sandboxes of their own: one gives the other a task over /run/cloche/agent.sock, without any network.

    cloche serve, with keys.master in its settings; then: examples/two_agents.py     (needs an admin)
"""
import json
import subprocess
import sys

# What runs inside: curl, or any HTTP client that knows Unix sockets.
ASK = "curl -sS --unix-socket /run/cloche/agent.sock http://agent/v1/messages"
WRITER = ASK + """ -d '{"to": "example-counter", "kind": "task", "content": "how many letters has cloche?", "id": "letters"}'"""
COUNTER = ASK + """?wait=10 >/dev/null && printf %s cloche | wc -c | xargs -I{} """ + ASK + \
    """ -d '{"to": "example-writer", "kind": "reply", "reply_to": "letters", "content": "{}"}'"""


def cloche(*words):
    done = subprocess.run(["cloche", *words], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def main():
    names = ("example-writer", "example-counter")
    boxes = {}
    try:
        for name, level in zip(names, "31"):
            cloche("agent", "register", "--trust", level, name)
            boxes[name] = cloche("create", "--agent", name)
        for name, line in zip(names, (WRITER, COUNTER)):
            cloche("exec", boxes[name], "--", "sh", "-c", line)
        answer = json.loads(cloche("exec", boxes[names[0]], "--", "sh", "-c", ASK + "?wait=10"))["messages"][0]
        print("%s (trust %d) answers: %s" % (answer["from"], answer["trust"], answer["content"]))
    finally:
        for name in names:
            if name in boxes:
                cloche("rm", boxes[name])
            subprocess.run(["cloche", "agent", "unregister", name], check=False)


if __name__ == "__main__":
    sys.exit(main())
