#!/usr/bin/env python3
"""A kernel for bash: one shell that lives on between executions. The protocol is in kernel.py.

The shell reads numbered commands from a pipe of its own and answers with number and status on
another; what commands print goes to fds 1 and 2 as everywhere. A command that fails (the last
status is not 0) ends with the error CommandError and the status as its value. An interrupt goes to
the whole session of the shell; a shell that does not come back is replaced, and the error says that
its state is lost.
"""
import os
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kernel import Channel, Kernel

GRACE = 5.0  # seconds that an interrupted command has

# The trap leaves loops and functions, so that an interrupted script does not go on. That does not
# succeed at every point of a script, so the shell answers only when it is back at the top, and is
# interrupted again until then. While nothing is executed the trap must do nothing: a `continue` out
# of `read` would lose what is read next.
SHELL = r"""
trap 'if [[ $__busy ]]; then
	((${#FUNCNAME[@]})) && return 130
	continue 999
fi' INT
while
	if [[ $__busy ]]; then
		__busy=
		printf '%%s 130\0' "$__number" >&%(status)d
	fi
	IFS= read -r -d '' __number <&%(code)d && IFS= read -r -d '' __code <&%(code)d
do
	__busy=1
	eval "$__code"
	printf '%%s %%s\0' "$__number" "$?" >&%(status)d
	__busy=
done
"""


class Bash(Kernel):
    def __init__(self):
        self.channel = Channel()
        self.count, self.failed, self.pid = 0, False, os.getpid()
        self.accepted = self.interrupts = False
        self.shell, self.number = None, 0
        self.start()

    def start(self):
        code_in, self.code = os.pipe()
        self.status, status_out = os.pipe()
        text = SHELL % {"code": code_in, "status": status_out}
        self.shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", text, "bash"], stdin=subprocess.DEVNULL,
            pass_fds=(code_in, status_out), start_new_session=True)
        os.close(code_in)
        os.close(status_out)

    def stop(self):
        for fd in (self.code, self.status):
            os.close(fd)
        try:
            os.killpg(self.shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self.shell.wait()

    def on_interrupt(self, _number, _frame):
        self.interrupts = self.accepted

    def fail(self, name, value):
        self.failed = True
        self.channel.drain()
        self.channel.send("error", name=name, value=value, traceback="%s: %s" % (name, value))

    def set_env(self, request):
        """A variable of this execution only: kept aside, set, and put back behind the code."""
        before, after = [], []
        for name, value in (request.get("env") or {}).items():
            if name.replace("_", "a").isalnum() and not name[0].isdigit():
                before.append('[ -n "${%s+x}" ] && __kernel_%s=$%s || unset __kernel_%s; export %s=%s' % (
                    name, name, name, name, name, quote(value)))
                after.append('[ -n "${__kernel_%s+x}" ] && export %s=$__kernel_%s || unset %s; '
                             'unset __kernel_%s' % (name, name, name, name, name))
        return before, after

    def ask(self, code):
        """The status of one command, or None if the shell is gone or does not come back."""
        self.number += 1
        data = ("%d\0%s\0" % (self.number, code.replace("\0", ""))).encode("utf-8", "replace")
        while data:
            data = data[os.write(self.code, data):]
        answers, deadline = b"", None
        while True:
            if self.interrupts:
                deadline = deadline or time.monotonic() + GRACE
                os.killpg(self.shell.pid, signal.SIGINT)
            if deadline and time.monotonic() > deadline:
                return None
            if select.select([self.status], [], [], 0.5)[0]:
                part = os.read(self.status, 4096)
                answers += part
                for answer in answers.split(b"\0"):
                    if answer.startswith(b"%d " % self.number):
                        return int(answer.split()[1])
                if not part:
                    return None

    def run(self, request):
        before, after = self.set_env(request)
        if request.get("cwd"):
            before.append("cd -- " + quote(request["cwd"]))
        if before:
            self.ask("\n".join(before))
        status = self.ask(request["code"])
        if self.interrupts and status is not None:
            self.fail("KeyboardInterrupt", "")
        elif status is None:
            code = self.stop()
            self.start()
            self.fail("KeyboardInterrupt" if self.interrupts else "ShellExited",
                      "the shell ended with status %d; its state is lost" % code)
            return
        elif status:
            self.fail("CommandError", "exit status %d" % status)
        self.interrupts = False
        if after:
            self.ask("\n".join(after))

    def execute(self, request):
        self.count += 1
        self.failed = self.interrupts = False
        self.accepted = True
        self.channel.send("started", execution_count=self.count)
        try:
            self.run(request)
        except (OSError, ValueError) as error:
            self.fail(type(error).__name__, str(error))
        self.accepted = self.interrupts = False
        self.channel.drain()
        self.channel.send("end", status="error" if self.failed else "ok", execution_count=self.count)

    language = "bash"

    def version(self):
        return subprocess.run(["bash", "-c", "echo -n ${BASH_VERSION%%(*}"], stdout=subprocess.PIPE,
                              stdin=subprocess.DEVNULL).stdout.decode()


def quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


if __name__ == "__main__":
    kernel = Bash()
    kernel.serve()
    kernel.stop()
    os._exit(0)
