#!/usr/bin/env python3
"""A server that speaks SWE-ReX's protocol, with a cloche sandbox behind it.

    python3 adapters/swe_rex.py --port 8000 --key KEY [--option image=node:20 --option memory=2G]
    RemoteDeployment(host="http://127.0.0.1", port=8000, auth_token=KEY)       # SWE-ReX, SWE-agent

Each server has one sandbox. A session keeps directory, variables and functions between commands; how a command ended
is told by the sandbox and not by what it printed.
"""
import argparse
import email
import email.policy
import hmac
import io
import json
import os
import posixpath
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "python"))
from cloche import ClocheError, SandboxManager  # noqa: E402

BODY_MAX, ANSWERS_KEPT = 256 << 20, 256


class Refused(Exception):
    """An error that the client raises again, by the name of its class."""

    def __init__(self, kind, message, extra=None):
        super().__init__(message)
        self.kind = kind if kind.startswith("builtins.") else "swerex.exceptions." + kind
        self.message, self.extra = message, extra or {}


class Runtime:
    def __init__(self, options):
        self.box, self.sessions, self.count = SandboxManager().create(**options), {}, 0

    def is_alive(self, _ask):
        return {"is_alive": self.box is not None and self.box.health_check(), "message": ""}

    def create_session(self, ask):
        name = ask.get("session", "default")
        if name in self.sessions:
            raise Refused("SessionExistsError", "session %s already exists" % name)
        self.count += 1
        self.sessions[name] = "rex%d" % self.count
        sources = "".join(". '%s'\n" % path.replace("'", "'\\''") for path in ask.get("startup_source") or [])
        output = self._run(name, sources, ask.get("startup_timeout"))[0] if sources else ""
        return {"output": output, "session_type": "bash"}

    def _run(self, name, command, timeout):
        """Output and exit code. Variables stay if they are exported, so all are."""
        if name not in self.sessions:
            raise Refused("SessionDoesNotExistError", "session %s does not exist" % name)
        done = self.box.execute("exec 2>&1\nset -a\n" + command, session=self.sessions[name], timeout=timeout)
        if done.timed_out:
            raise Refused("CommandTimeoutError", "the command %r did not end within %s seconds" % (command[:200], timeout),
                          {"output": done.stdout})
        return done.stdout, done.exit_code

    def run_in_session(self, ask):
        name, check = ask.get("session", "default"), ask.get("check", "silent")
        if ask.get("action_type") == "bash_interrupt":  # nothing runs on between two commands
            return self._ran("", 0)
        if ask.get("is_interactive_command") or ask.get("expect"):
            raise Refused("BashIncorrectSyntaxError", "interactive commands are not supported; run the program with its input")
        command = ask["command"]
        wrong = self.box.execute(["bash", "-n"], stdin=command)
        if wrong.exit_code:
            raise Refused("BashIncorrectSyntaxError", "bash syntax error: " + wrong.stderr, {"bash_stderr": wrong.stderr})
        output, code = self._run(name, command, ask.get("timeout"))
        if check == "raise" and code:
            raise Refused("NonZeroExitCodeError", "%s: exit code %d: %s\n%s" % (ask.get("error_msg") or "command failed", code,
                                                                             command[:200], output), {"exit_code": code})
        return self._ran(output, None if check == "ignore" else code)

    @staticmethod
    def _ran(output, code):
        return {"output": output, "exit_code": code, "failure_reason": "", "expect_string": "", "session_type": "bash"}

    def close_session(self, ask):
        if self.sessions.pop(ask.get("session", "default"), None) is None:
            raise Refused("SessionDoesNotExistError", "session %s does not exist" % ask.get("session", "default"))
        return {"session_type": "bash"}

    def execute(self, ask):
        command = ask["command"]
        words = [command] if isinstance(command, str) else list(command)
        if isinstance(command, str) and ask.get("shell"):
            words = ["sh", "-c", command]
        if ask.get("merge_output_streams"):
            words = ["sh", "-c", 'exec "$@" 2>&1', "sh"] + words
        done = self.box.execute(words, timeout=ask.get("timeout"), env=ask.get("env"), cwd=ask.get("cwd"), stdin=b"")
        if done.timed_out:
            raise Refused("CommandTimeoutError", "the command did not end within %s seconds" % ask.get("timeout"))
        if ask.get("check") and done.exit_code:
            raise Refused("NonZeroExitCodeError", "exit code %d: %s" % (done.exit_code, done.stderr))
        return {"stdout": done.stdout, "stderr": done.stderr, "exit_code": done.exit_code}

    def read_file(self, ask):
        data = self.box.read_file(ask["path"])
        return {"content": data.decode(ask.get("encoding") or "utf-8", ask.get("errors") or "strict")}

    def write_file(self, ask):
        self.box.write_file(ask["path"], ask["content"])
        return {}

    def upload(self, ask):
        """An archive's names are paths below the target, whatever they say."""
        if str(ask.get("unzip", "")).lower() != "true":
            self.box.write_file(ask["target_path"], ask["file"])
            return {}
        with zipfile.ZipFile(io.BytesIO(ask["file"])) as archive:
            for info in archive.infolist():
                path = posixpath.normpath("/" + info.filename).lstrip("/")
                if not info.is_dir():
                    mode = 0o755 if info.external_attr >> 16 & 0o100 else None
                    self.box.write_file(posixpath.join(ask["target_path"], path), archive.read(info), mode=mode)
        return {}

    def close(self, _ask):
        box, self.box = self.box, None
        if box:
            box.destroy()
        return {}


CALLS = ("create_session", "run_in_session", "close_session", "execute", "read_file", "write_file", "upload", "close")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 <= size <= BODY_MAX:
            raise ValueError("the body has more than %d bytes" % BODY_MAX)
        data, kind = self.rfile.read(size), self.headers.get("Content-Type", "")
        if not kind.startswith("multipart/"):
            return json.loads(data or b"{}")
        parts = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + data, policy=email.policy.HTTP)
        values = {p.get_param("name", header="content-disposition"): p.get_payload(decode=True) for p in parts.iter_parts()}
        return {name: value if name == "file" else value.decode() for name, value in values.items()}

    def serve(self, call):
        if not hmac.compare_digest(self.headers.get("X-API-Key", "").encode("latin-1", "replace"), self.server.key.encode()):
            self.close_connection = True
            self.answer(403 if "X-API-Key" not in self.headers else 401, {"detail": "Invalid API Key"})
            return
        try:
            self.answer(200, self.server.once(self.headers.get("X-Request-ID"), call, self.body()))
        except Refused as error:
            self.refuse(error.kind, error.message, error.extra)
        except ClocheError as error:
            self.refuse("builtins.FileNotFoundError" if error.kind == "not_found" else "builtins.RuntimeError", error.message)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            self.answer(422, {"detail": "%s: %s" % (type(error).__name__, error)})

    def refuse(self, kind, message, extra=None):
        self.answer(511, {"swerexception": {"message": message, "class_path": kind, "traceback": "", "extra_info": extra or {}}})

    def do_GET(self):  # noqa: N802
        if self.path == "/is_alive":
            self.serve(self.server.runtime.is_alive)
        else:
            self.answer(*((200, {"message": "hello world"}) if self.path == "/" else (404, {"detail": "Not Found"})))

    def do_POST(self):  # noqa: N802
        name = self.path.strip("/")
        if name in CALLS:
            self.serve(getattr(self.server.runtime, name))
        else:
            self.close_connection = True
            self.answer(404, {"detail": "Not Found"})

    def log_message(self, *_args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address, key, options):
        super().__init__(address, Handler)
        self.key, self.runtime, self.answers, self.lock = key, Runtime(options), {}, threading.Lock()

    def once(self, request, call, ask):
        """A request that is sent again, since its answer was lost, does not run again."""
        if not request:
            return call(ask)
        with self.lock:
            entry = self.answers.setdefault(request, [threading.Lock(), None])
            while len(self.answers) > ANSWERS_KEPT:
                self.answers.pop(next(iter(self.answers)))
        with entry[0]:
            if entry[1] is None:
                entry[1] = call(ask)
            return entry[1]


def main():
    parser = argparse.ArgumentParser(description="SWE-ReX's protocol over a cloche sandbox")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--key", default=os.environ.get("SWE_REX_KEY"))
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the sandbox; often")
    given = parser.parse_args()
    if not given.key:
        parser.error("--key is needed: who has it runs commands in the sandbox")
    server = Server((given.host, given.port), given.key,
                    {"ttl": "6h", "timeout": "6h", **dict(option.split("=", 1) for option in given.option)})
    try:
        print("listening on %s:%d, sandbox %s" % (*server.server_address[:2], server.runtime.box.id), flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.runtime.close({})


if __name__ == "__main__":
    main()
