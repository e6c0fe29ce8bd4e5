"""`cloche hook`: what coding agents send before a tool is used, and what they get back."""

import base64
import json
import os
import shlex
import shutil
import signal
import subprocess

import cl


def event(command="true", name="PreToolUse", tool="Bash", cwd=None, **call):
    call["command"] = command
    return {
        "session_id": "s",
        "transcript_path": "/dev/null",
        "cwd": cwd or cl.Case.current,
        "permission_mode": "default",
        "hook_event_name": name,
        "tool_name": tool,
        "tool_input": call,
        "tool_use_id": "t1",
    }


# Writes an index that names hooks, in the version of its first argument. git makes the blobs.
PLANT_INDEX = """
import hashlib, struct, subprocess, sys
version, mark = int(sys.argv[1]), sys.argv[2]
script = "#!/bin/sh\\ntouch %s\\n" % mark
blob = subprocess.run(["git", "hash-object", "-w", "--stdin"], input=script.encode(), stdout=subprocess.PIPE).stdout
data = b"DIRC" + struct.pack(">II", version, 2)
last = b""
for name in (b".git-", b".git/hooks/post-index-change"):
    entry = struct.pack(">10I", *[0] * 6, 0o100755, *[0] * 3) + bytes.fromhex(blob.decode()) + struct.pack(">H", len(name))
    if version == 4:
        same = len(name) - len(name[4:] if last else name)
        entry += bytes([len(last) - same]) + name[same:] + bytes(1)
    else:
        entry += name
        entry += bytes(8 - len(entry) % 8)
    data += entry
    last = name
open(".git/index", "wb").write(data + hashlib.sha1(data).digest())
"""


class Hook(cl.Case):
    def hook(self, what, *options, code=0, **env):
        text = what if isinstance(what, (str, bytes)) else json.dumps(what)
        env.setdefault("XDG_RUNTIME_DIR", self.run_dir())
        r = cl.run("hook", *options, input=text, env=cl.caller_env(**env))
        self.assertEqual(r.code, code, str(r))
        return r

    def run_dir(self):
        """Where the hook keeps the directories of sessions; not in the project."""
        path = os.path.join(cl.base_dir(), "run-%d" % os.getpid())
        if not os.path.isdir(path):
            os.mkdir(path)
            self.addCleanup(shutil.rmtree, path)
        return path

    def rewritten(self, what, *options, **env):
        """The words of the command that the agent would hand to its shell."""
        answer = json.loads(self.hook(what, *options, **env).out)["hookSpecificOutput"]
        self.assertEqual(answer["hookEventName"], "PreToolUse")
        self.assertEqual(answer["permissionDecision"], "allow")
        return answer["updatedInput"]

    def refused_as(self, what, says, *options, **env):
        code = env.pop("code", 2)
        r = self.hook(what, *options, code=code, **env)
        self.assertRegex(r.err, says)
        self.assertIn("was not run", r.err)
        self.counts_everywhere(r.out, says)

    def counts_everywhere(self, text, says):
        """Every agent finds its own words for "no" in the answer, and nothing to run."""
        answer = json.loads(text)
        self.assertEqual(answer["decision"], "block")  # Gemini CLI, Goose
        self.assertEqual(answer["permission"], "deny")  # Cursor
        self.assertEqual(answer["permissionDecision"], "deny")  # Copilot CLI
        self.assertIs(answer["cancel"], True)  # Cline
        self.assertEqual(answer["hookSpecificOutput"]["permissionDecision"], "deny")  # Claude Code
        for name in ("reason", "user_message", "agent_message", "permissionDecisionReason",
                     "errorMessage"):
            self.assertRegex(answer[name], says)
        for name in ("updatedInput", "updated_input", "modifiedArgs", "overrideInput", "tool_input"):
            self.assertNotIn('"%s":' % name, text)
        self.assertNotIn("continue", answer)

    def shell(self, command, code=0):
        """As the agent does it: through a shell of the host, in the project."""
        r = cl.command("/bin/bash", "-c", command, cwd=self.dir)
        self.assertEqual(r.code, code, str(r))
        return r

    def option(self, command, name):
        words = shlex.split(command)
        return words[words.index(name) + 1]


class Rewriting(Hook):
    def test_runs_inside_with_the_project(self):
        os.chmod(self.dir, 0o777)
        self.write("in.txt", "given")
        secret = os.path.join(cl.base_dir(), "secret-%d" % os.getpid())
        with open(secret, "w", encoding="utf-8") as f:
            f.write("outside")
        self.addCleanup(os.unlink, secret)
        call = self.rewritten(event("cat in.txt; echo made >out.txt; cat %s; echo $$" % secret))
        r = self.shell(call["command"])
        self.assertEqual(self.read("out.txt"), "made\n")
        self.assertRegex(r.out, r"^given[0-9]+\n$")
        self.assertIn("No such file", r.err)

    def test_quoting_survives(self):
        text = "printf '%s|' \"it's\" 'a b' $'tab\\t' \"\\$HOME\" '!x' '`id`' \"uni \u00fc \u2028\"; echo\nexit 7"
        call = self.rewritten(event(text))
        r = self.shell(call["command"], code=7)
        self.assertEqual(r.out, "it's|a b|tab\t|$HOME|!x|`id`|uni \u00fc \u2028|\n")

    def test_other_members_stay(self):
        call = self.rewritten(event("true", description="does nothing", run_in_background=False))
        self.assertEqual(call["description"], "does nothing")
        self.assertIs(call["run_in_background"], False)

    def test_a_command_that_is_wrapped_is_wrapped_again(self):
        """Nobody gets out by claiming to be in."""
        call = self.rewritten(event("%s run -- true" % cl.CLOCHE))
        self.assertTrue(call["command"].endswith(" '%s run -- true'" % cl.CLOCHE), call)

    def test_project_and_current_directory(self):
        sub = self.mkdir("a/b")
        call = self.rewritten(event("pwd; ls ..", cwd=sub), CLAUDE_PROJECT_DIR=self.dir)
        self.assertEqual(self.option(call["command"], "--workspace"), os.path.realpath(self.dir))
        self.assertEqual(self.shell(call["command"]).out, os.path.realpath(sub) + "\nb\n")

    def test_project_elsewhere_counts_not(self):
        call = self.rewritten(event(), CLAUDE_PROJECT_DIR="/usr")
        self.assertEqual(self.option(call["command"], "--workspace"), os.path.realpath(self.dir))

    def test_timeouts_only_narrow(self):
        ask = lambda *options, **call: self.option(
            self.rewritten(event(**call), *options)["command"], "--timeout")
        self.assertEqual(ask(), "600000ms")
        self.assertEqual(ask(timeout=5000), "5000ms")
        self.assertEqual(ask(timeout=9000000), "600000ms")
        words = shlex.split(self.rewritten(event(timeout=9000), "--timeout", "3s")["command"])
        self.assertEqual(words[max(i for i, w in enumerate(words) if w == "--timeout") + 1], "3000ms")

    def test_options_of_run(self):
        call = self.rewritten(event(), "--memory", "64M", "--apply", "--env", "X=a b")
        words = shlex.split(call["command"])
        self.assertEqual(words[1:7], ["run", "--memory", "64M", "--apply", "--env", "X=a b"])

    def test_ask(self):
        answer = json.loads(self.hook(event(), "--ask").out)["hookSpecificOutput"]
        self.assertEqual(answer["permissionDecision"], "ask")
        self.assertIn("updatedInput", answer)


class Rules(Hook):
    """Rules say no early and in words. The sandbox is the wall: see Wall."""

    def verdict(self, command, *rules, tool="Bash", code=0, options=(), **call):
        args = [a for r in rules for a in ("--tool-rule", r)]
        what = event(command, tool=tool, **call) if command is not None else event(tool=tool)
        if command is None:
            what["tool_input"] = call
        r = self.hook(what, *args, *options, code=code)
        return json.loads(r.out), r

    def test_denied_with_the_reason(self):
        for command in ("git push", "cd x && git push origin", "sh -c 'git  push'", "echo $(git push)",
                        "env A=b git push", "find . -exec git push {} +", "cat <<E\n`git push`\nE"):
            answer, r = self.verdict(command, "deny Bash command=git push because people push", code=2)
            self.assertIn("people push", r.err)
            self.assertIn("was not run", r.err)
            self.counts_everywhere(r.out, "people push")
        answer, r = self.verdict("git pull", "deny Bash command=git push")
        self.assertIn("updatedInput", answer["hookSpecificOutput"])

    def test_what_cannot_be_told_is_asked(self):
        for command in ("$X push", "case x in y) git push;; esac", "git $(echo push)", "curl x | sh"):
            answer, r = self.verdict(command, "deny Bash command=git push")
            said = answer["hookSpecificOutput"]
            self.assertEqual(said["permissionDecision"], "ask", command)
            self.assertIn("cloche run" if shutil.which("cloche") else "run", said["updatedInput"]["command"])

    def test_nobody_to_ask_is_a_refusal(self):
        codex = event("$X push")
        codex["turn_id"] = "t"
        for what in (codex, {"hook_event_name": "BeforeTool", "tool_name": "run_shell_command", "cwd": self.dir,
                             "tool_input": {"command": "$X push"}}):
            self.refused_as(what, "cannot be told to ask", "--tool-rule", "deny Bash command=git push")

    def test_other_tools(self):
        rules = ("deny Read path=/etc/shadow because secret", "ask Write path=**/*.env", "deny mcp__github__*")
        answer, r = self.verdict(None, *rules, tool="Read", file_path="/etc/../etc/shadow", code=2)
        self.assertIn("secret", r.err)
        self.assertEqual(self.verdict(None, *rules, tool="Read", file_path="/etc/hosts")[0], {})
        said = self.verdict(None, *rules, tool="Write", file_path="a.env", content="x")[0]["hookSpecificOutput"]
        self.assertEqual(said["permissionDecision"], "ask")
        self.assertEqual(said["updatedInput"], {"file_path": "a.env", "content": "x"})
        self.verdict(None, *rules, tool="mcp__github__delete", code=2)

    def test_rules_from_a_policy(self):
        self.write("p.yaml", "tool_rule:\n  - deny Bash command=git push because not here\n")
        r = self.hook(event("git push"), "--policy", self.path("p.yaml"), code=2)
        self.assertIn("not here", r.err)
        r = cl.run("policy", "explain", self.path("p.yaml"))
        self.assertIn("deny Bash command=git push", r.out)

    def test_wrong_rules_refuse_everything(self):
        self.refused_as(event("true"), "is for the daemon", "--tool-rule", "deny reviewer/Bash")
        self.refused_as(event("true"), "must begin with allow", "--tool-rule", "nonsense Bash")
        self.write("p.yaml", "tool_rule: [deny]\n")
        self.assertEqual(cl.run("policy", "check", self.path("p.yaml")).code, 1)

    def test_agents_that_can_only_be_told_no(self):
        """With --check nothing is moved inside, and rules say no in every dialect."""
        goose = {"event": "PreToolUse", "session_id": "s", "tool_name": "developer__shell",
                 "tool_input": {"command": "git push"}, "working_dir": self.dir}
        cursor = {"hook_event_name": "beforeShellExecution", "command": "git push", "cwd": self.dir}
        cline = {"taskId": "t", "workspaceRoots": [self.dir],
                 "preToolUse": {"toolName": "execute_command", "parameters": {"command": "git push"}}}
        rule = ("--check", "--tool-rule", "deny Bash command=git push")
        for what, code in ((goose, 2), (cursor, 2), (cline, 0)):
            r = self.hook(what, *rule, code=code)
            self.counts_everywhere(r.out, "git push")
            text = json.dumps(what).replace("git push", "git pull")
            self.assertEqual(self.hook(text, *rule).out, "{}\n")
            # Without --check they refuse, since nothing can be moved inside.
            self.refused_as(what, "cannot rewrite", code=code)


class Interceptors(Hook):
    """Programs of the user's that judge each call, in a sandbox of their own, one after the other."""

    def program(self, name, text):
        place = os.path.join(cl.base_dir(), "judges-%d" % os.getpid())
        os.makedirs(place, exist_ok=True)
        os.chmod(place, 0o755)
        self.addCleanup(shutil.rmtree, place, True)
        path = os.path.join(place, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)
        return path

    def judge(self, name, verdict, reason="because"):
        return self.program(name, "#!/bin/sh\ncat >/dev/null\necho '%s'\n"
                            % json.dumps({"verdict": verdict, "reason": reason}))

    def audit(self):
        """Where verdicts are noted, and what is in there; the chain holds."""
        path = os.path.join(self.run_dir(), "verdicts")

        def entries():
            if not os.path.exists(path):
                return []
            self.assertEqual(cl.run("audit", "verify", path).code, 0)
            with open(path, encoding="utf-8") as f:
                return [(e["who"], e["target"], e["verdict"]) for e in map(json.loads, f)]

        return path, entries

    def options(self, *programs):
        path, _ = self.audit()
        return [a for p in programs for a in ("--interceptor", p)] + ["--audit", path]

    def test_a_chain(self):
        """In order, the strictest counts, the first no ends it, each verdict is noted."""
        yes, asks = self.judge("yes", "allow"), self.judge("asks", "ask", "look first")
        no, never = self.judge("no", "deny", "not today"), self.judge("never", "deny", "was asked")
        _, entries = self.audit()
        self.assertIn("updatedInput", self.hook(event("true"), *self.options(yes)).out)
        said = json.loads(self.hook(event("true"), *self.options(asks, yes)).out)["hookSpecificOutput"]
        self.assertEqual((said["permissionDecision"], said["permissionDecisionReason"]), ("ask", "look first"))
        self.refused_as(event("true"), "not today", *self.options(yes, no, never))
        self.assertEqual(entries(), [("interceptor " + who, "Bash", verdict) for who, verdict in (
            ("yes", "allow"), ("asks", "ask"), ("yes", "allow"), ("yes", "allow"), ("no", "deny"))])
        # A rule that refuses comes before them, and is noted as well.
        self.refused_as(event("git push"), "git push", "--tool-rule", "deny Bash command=git push", *self.options(yes))
        self.assertEqual(entries()[-1], ("rules", "Bash", "deny"))

    def test_what_it_gets(self):
        """The call as it is; no project, no network, no variables, nothing of the user's."""
        self.write("here.txt", "x")
        spy = self.program("spy", """#!/usr/bin/python3
import json, os, socket, sys
call = json.load(sys.stdin)
seen = [os.path.exists(call["cwd"] + "/here.txt"), "CLOCHE_SPY" in os.environ, sorted(call)]
print(json.dumps({"verdict": "deny", "reason": json.dumps([call["arguments"], seen])}))
""")
        r = self.hook(event("echo it's $(x)"), *self.options(spy), code=2, CLOCHE_SPY="1")
        said = r.err[r.err.index("[{"):r.err.rindex("]]") + 2]
        self.assertEqual(json.loads(said), [{"command": "echo it's $(x)"}, [False, False, ["arguments", "cwd", "tool"]]])

    def test_other_tools_and_agents(self):
        no = self.judge("no", "deny", "not today")
        what = event(tool="Read")
        what["tool_input"] = {"file_path": "/etc/hosts"}
        self.refused_as(what, "not today", *self.options(no))
        goose = {"event": "PreToolUse", "session_id": "s", "tool_name": "developer__shell",
                 "tool_input": {"command": "true"}, "working_dir": self.dir}
        self.refused_as(goose, "not today", "--check", *self.options(no))

    def test_fails_closed(self):
        for name, text in (("silent", "#!/bin/sh\n"), ("fails", "#!/bin/sh\necho '{\"verdict\": \"allow\"}'; exit 1\n"),
                           ("babbles", "#!/bin/sh\necho allow\n"), ("more", "#!/bin/sh\necho '{\"verdict\": \"allow\"} x'\n"),
                           ("floods", "#!/bin/sh\nyes '{\"verdict\": \"allow\"}'\n"),
                           ("broken", "#!/no/such/program\n")):
            self.refused_as(event("true"), "gave no verdict", *self.options(self.program(name, text)))
        for path in ("/no/such/file", "relative", self.dir):
            self.refused_as(event("true"), "no absolute path of a program|in the project", "--interceptor", path)
        self.refused_as(event("true"), "cannot be noted", "--interceptor", self.judge("yes", "allow"),
                        "--audit", "/no/such/place/log")

    def test_too_late(self):
        late = self.program("late", "#!/bin/sh\nsleep 600\n")
        self.refused_as(event("true"), "gave no verdict", "--interceptor-time", "500ms", *self.options(late))

    def test_the_agent_cannot_change_it(self):
        self.write("judge", "#!/bin/sh\necho '{\"verdict\": \"allow\"}'\n")
        os.chmod(self.path("judge"), 0o755)
        self.refused_as(event("true"), "in the project", *self.options(self.path("judge")))
        link = os.path.join(self.run_dir(), "judge")
        os.symlink(self.path("judge"), link)
        self.refused_as(event("true"), "in the project", *self.options(link))

    def test_from_a_policy(self):
        self.write("p.yaml", "interceptor: [%s]\n" % self.judge("no", "deny", "not today"))
        self.refused_as(event("true"), "not today", "--policy", self.path("p.yaml"), XDG_STATE_HOME=self.run_dir())
        self.assertTrue(os.path.exists(os.path.join(self.run_dir(), "cloche/hook/audit.log")))
        self.assertIn("in a sandbox of its own", cl.run("policy", "explain", self.path("p.yaml")).out)


class Wall(Hook):
    """Where a rule is evaded the sandbox stops the effect."""

    def test_evaded_rules(self):
        secret = os.path.join(cl.base_dir(), "secret-%d" % os.getpid())
        with open(secret, "w", encoding="utf-8") as f:
            f.write("outside")
        self.addCleanup(os.unlink, secret)
        rule = "deny * path=%s" % secret
        os.chmod(self.dir, 0o777)
        for command in (
            "python3 -c 'print(open(bytes.fromhex(\"%s\")).read())'" % secret.encode().hex(),
            "cat $(echo %s | base64 -d)" % base64.b64encode(secret.encode()).decode(),
        ):
            call = self.rewritten(event(command), "--tool-rule", rule)
            r = cl.command("/bin/bash", "-c", call["command"], cwd=self.dir)
            self.assertNotIn("outside", r.out + r.err)


class Home(Hook):
    """Each command has a fresh view of the project; what it changed comes back, but not all."""

    def agent(self, command, *options, code=0, session="s1", **env):
        ask = event(command)
        ask["session_id"] = session
        call = self.rewritten(ask, *options, **env)
        return self.shell(call["command"], code=code)

    def setUp(self):
        super().setUp()
        self.top = self.dir
        self.dir = self.mkdir("project")
        os.chmod(self.dir, 0o777)
        os.chmod(self.top, 0o755)
        os.chdir(self.dir)
        cl.Case.current = self.dir

    def test_changes_come_back_whatever_the_status(self):
        r = self.agent("echo made >f; echo x >.mcp.json; exit 3", code=3)
        self.assertEqual(self.read("f"), "made\n")
        self.assertEqual(os.listdir(self.dir), ["f"])
        self.assertIn("cloche: skipped .mcp.json: control file", r.err)
        self.assertNotIn("added f", r.err)
        self.agent("rm f; kill -9 $$", code=137)
        self.assertEqual(os.listdir(self.dir), [])

    def test_directory_is_carried_over(self):
        self.mkdir("a/b")
        os.symlink("a", self.path("link"))
        real = os.path.realpath(self.dir)
        self.assertEqual(self.agent("pwd; cd a/b").out, real + "\n")
        self.assertEqual(self.agent("pwd; cd ../../link; exit 1", code=1).out, real + "/a/b\n")
        self.assertEqual(self.agent("pwd; mkdir new; cd new").out, real + "/a\n")
        self.assertEqual(self.agent("pwd", session="other").out, real + "\n")
        self.assertEqual(self.agent("pwd; (cd /); exec true").out, real + "/a/new\n")
        self.assertEqual(self.agent("pwd; cd /tmp").out, real + "/a/new\n")
        self.assertEqual(self.agent("pwd").out, real + "\n")  # outside of the project: not kept
        self.assertEqual(self.agent("cd a; set -u; set -- 1 2; trap - EXIT; echo $#").out, "2\n")
        self.assertEqual(self.agent("pwd; echo $# $0").out, real + "\n0 /bin/bash\n")

    def test_directory_is_only_data(self):
        """What a command leaves as its directory is text of an attacker."""
        real = os.path.realpath(self.dir)
        outside = os.path.join(self.top, "outside")
        os.mkdir(outside)
        for text in ("/etc", outside, real + "/../outside", "relative", "", "/", real + "/f",
                     real + "/gone", "x" * 9000, "/" + "x" * 4094, real + "\n--net=public"):
            script = "touch f; trap 'printf \"%%s\\n\" %s >~/.cloche-cwd' EXIT" % shlex.quote(text).replace("'", "'\\''")
            self.agent(script)
            self.assertEqual(self.agent("pwd").out, real + "\n", text)
        for script in ("ln -s /etc/passwd ~/.cloche-cwd", "mkdir ~/.cloche-cwd", "mkfifo ~/.cloche-cwd",
                       "printf '/tmp\\0x\\n' >~/.cloche-cwd"):
            self.agent("trap - EXIT; " + script)
            self.assertEqual(self.agent("pwd").out, real + "\n", script)

    def test_state_of_somebody_else(self):
        """A directory that others may write to keeps nothing."""
        self.mkdir("a")
        place = os.path.join(self.run_dir(), "cloche-hook-%d" % os.geteuid())
        os.mkdir(place)
        os.chmod(place, 0o777)
        ask = event("pwd")
        call = self.rewritten(ask)
        self.assertNotIn("--cwd-file", call["command"])

    def test_fresh_view(self):
        """No process, temporary file or socket of one command meets the next."""
        self.agent("echo x >/tmp/left; echo y >~/left; (sleep 60 &)")
        r = self.agent("ls /tmp ~; ps ax 2>/dev/null | grep -c '[s]leep 60'", code=1)
        self.assertNotIn("left", r.out)

    def test_what_git_would_run(self):
        self.plant_for_git()

    def plant_for_git(self, *options):
        """The next git outside runs nothing that a command planted, by any of these ways."""
        if not shutil.which("git"):
            self.skipTest("no git")
        env = dict(os.environ, HOME=self.top, GIT_CONFIG_NOSYSTEM="1")
        git = lambda *a: subprocess.run(["git", *a], cwd=self.dir, env=env, check=False,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(git("init", "-q", ".").returncode, 0)
        git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
        mark = os.path.join(self.top, "mark")
        config = "[core]\n\tfsmonitor = touch %s; false\n\thooksPath = /tmp\n" % mark
        plant = "printf %s >%%s" % shlex.quote(config)
        evil = "mkdir -p evil/objects evil/refs; echo ref: refs/heads/main >evil/HEAD; " + plant % "evil/config"
        ways = (
            plant % ".git/config",
            "git config core.fsmonitor 'touch %s; false'" % mark,
            plant % ".git/config.worktree" + "; git config extensions.worktreeConfig true",
            evil + "; printf ../evil >.git/commondir",
            evil + "; cp .git/HEAD x; mv .git old; cp -r evil .git",
            evil + "; mv .git old; printf 'gitdir: evil' >.git",
            evil + "; mv .git old; ln -s evil .git",
            "mkdir h; printf '#!/bin/sh\ntouch %s' >h/post-index-change; chmod 755 h/*; "
            "rm -rf .git/hooks; ln -s ../h .git/hooks" % mark,
            "mkdir -p .git/hooks; printf '#!/bin/sh\ntouch %s' >.git/hooks/post-index-change; "
            "chmod 755 .git/hooks/*" % mark,
            "printf '*.txt filter=x' >.gitattributes; git config filter.x.clean 'touch %s'; "
            "echo 1 >a.txt; git add a.txt" % mark,
        )
        for way in ways:
            for shout in (way, way.replace(".git", ".GIT")):
                self.agent(shout + "; exit 0", *options)
                for command in (("status",), ("add", "-A"), ("diff",), ("checkout", "-q", "-f")):
                    git(*command)
                self.assertFalse(os.path.exists(mark), way)
        self.assertEqual(git("status").returncode, 0)
        # Two steps: first the parts, then what turns them into a repository.
        self.agent("mkdir -p bare/objects bare/refs; " + plant % "bare/config", *options)
        self.agent("echo ref: refs/heads/main >bare/HEAD", *options)
        there = [os.path.exists(self.path("bare", name)) for name in ("config", "HEAD")]
        self.assertEqual(there, [True, False])
        subprocess.run(["git", "status"], cwd=self.path("bare"), env=env, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertFalse(os.path.exists(mark))

    def test_what_git_would_write(self):
        self.plant_by_git()

    def test_session_and_what_git_would_write(self):
        self.plant_by_git("--session")

    def plant_by_git(self, *options):
        """The next git outside writes no hook: by names in its index, by links in its directory."""
        if not shutil.which("git"):
            self.skipTest("no git")
        env = dict(os.environ, HOME=self.top, GIT_CONFIG_NOSYSTEM="1")
        for who in ("AUTHOR", "COMMITTER"):
            env.update({"GIT_%s_NAME" % who: "a", "GIT_%s_EMAIL" % who: "a@b"})
        git = lambda *a: subprocess.run(["git", *a], cwd=self.dir, env=env, check=False,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        git("init", "-q", "-b", "main", ".")
        self.write("a", "1")
        hook = "#!/bin/sh\n"
        self.write(".git/hooks/post-checkout", hook, 0o755)
        git("add", "a")
        git("commit", "-q", "-m", "x")
        # An index that git made arrives.
        self.agent("echo 2 >b; git add b", *options)
        self.assertIn(b"A  b", git("status", "--short").stdout)
        mark = os.path.join(self.top, "mark")
        for version in (2, 4):
            self.write("plant.py", PLANT_INDEX)
            self.agent("python3 plant.py %d %s" % (version, mark), *options)
            for command in ("checkout", "."), ("reset", "-q", "--hard"), ("stash",):
                git(*command)
            self.assertFalse(os.path.exists(self.path(".git/hooks/post-index-change")), version)
        self.assertFalse(os.path.exists(mark))
        # git appends to its log, which must not be a hook.
        self.agent("git checkout -q -b 'x;touch${IFS}%s;x'; rm .git/logs/HEAD; "
                   "ln -s ../hooks/post-checkout .git/logs/HEAD" % mark, *options)
        git("checkout", "-q", "main")
        self.assertEqual(self.read(".git/hooks/post-checkout"), hook)
        self.assertFalse(os.path.exists(mark))
        self.assertEqual(git("status").returncode, 0)

    def test_session_that_closes_directories(self):
        """The command's modes do not keep control files from being put back; nor do names that it took."""
        self.write("sub/.envrc", "mine")
        self.write(".husky/_/h", "mine")
        for name in (".husky/_", ".husky"):
            os.chmod(self.path(name), 0o555)
        try:
            r = self.agent("echo evil >sub/.envrc; chmod 555 sub; mkdir new hid; echo evil >new/.envrc; chmod 555 new; "
                           "echo evil >hid/.envrc; chmod 0 hid; chmod -R u+w .husky; rm -r .husky; echo evil >.envrc; "
                           "touch .envrc.cloche-set-aside; "
                           "for i in $(seq 1000); do : >.envrc.cloche-set-aside.$i; done; chmod 555 .", "--session")
            os.chmod(self.dir, 0o755)
            for name in ("new/.envrc", "hid/.envrc", ".envrc"):
                self.assertFalse(os.path.exists(self.path(name)), name)
                self.assertIn("skipped %s: control file: set aside" % name, r.err)
            self.assertEqual((self.read("sub/.envrc"), self.read(".husky/_/h")), ("mine", "mine"))
            modes = [os.stat(self.path(name)).st_mode & 0o777 for name in ("sub", "new", ".husky", ".husky/_")]
            self.assertEqual(modes, [0o555] * 4)
        finally:
            for name in (".", "sub", "new", "hid", ".husky", ".husky/_"):
                if os.path.exists(self.path(name)):
                    os.chmod(self.path(name), 0o755)

    def test_session_and_hard_links(self):
        """A control file that is as before, but has a second name, could be written to later."""
        self.write("sub/.envrc", "mine")
        self.agent("cat sub/.envrc >other; mv sub old; mkdir sub; ln other sub/.envrc", "--session")
        self.write("other", "evil")
        self.assertEqual(self.read("sub/.envrc"), "mine")

    def test_what_agents_would_run(self):
        names = (".claude/settings.local.json", ".claude/settings.json", ".mcp.json", "sub/.mcp.json",
                 ".cursor/hooks.json", ".gemini/settings.json", ".codex/hooks.json", ".github/hooks/x.json",
                 ".cline/hooks/PreToolUse", ".agents/plugins/x/hooks/hooks.json", ".opencode/plugins/x.js",
                 ".Claude/settings.json", ".vscode/settings.json", "AGENTS.md", "CLAUDE.md")
        self.agent("".join("mkdir -p $(dirname %s); echo evil >%s; " % (n, n) for n in names))
        self.assertEqual([n for n in names if os.path.exists(self.path(n))], [])

    def test_session(self):
        """--session: written directly, and control files are put back in the end."""
        self.write("sub/.envrc", "mine", 0o640)
        self.write("sub/.vscode/tasks.json", "mine")
        self.write("sub/hooks/x", "1")
        self.write(".github/workflows/ci.yml", "old")
        script = ("echo 1 >f; echo evil >>sub/.envrc; rm -r sub/.vscode; mkdir -p .claude; "
                  "echo evil >.claude/settings.json; echo evil >.mcp.json; ln -s /etc lead; "
                  "ln -s lead .idea; echo 2 >sub/hooks/x; echo new >.github/workflows/ci.yml; ")
        r = self.agent(script + "exit 4", "--session", code=4)
        self.assertEqual((self.read("f"), self.read("sub/.envrc")), ("1\n", "mine"))
        self.assertEqual(os.stat(self.path("sub/.envrc")).st_mode & 0o777, 0o640)
        self.assertEqual(self.read("sub/.vscode/tasks.json"), "mine")
        self.assertEqual(self.read("sub/hooks/x"), "2\n")
        self.assertEqual(self.read(".github/workflows/ci.yml"), "new\n")
        for name in (".claude", ".mcp.json", ".idea"):
            self.assertFalse(os.path.lexists(self.path(name)), name)
            self.assertTrue(os.path.lexists(self.path(name + ".cloche-set-aside")), name)
            self.assertIn("cloche: skipped %s: control file: set aside" % name, r.err)
        self.assertEqual(self.read("sub/.envrc.cloche-set-aside"), "mineevil\n")
        self.assertIn("cloche: skipped sub/.envrc: control file: put back", r.err)
        r = self.agent("echo evil >.mcp.json; kill -9 $$", "--session", code=137)
        self.assertFalse(os.path.exists(self.path(".mcp.json")))
        self.assertEqual(self.agent("cat f", "--session").err, "")

    def test_session_and_git(self):
        self.plant_for_git("--session")

    def test_session_limits(self):
        os.makedirs(self.path("/".join(["d"] * 140)))
        self.assertIn("keep_control", self.agent("true", "--session", code=125).err)
        self.refused_as(event(), "--session", "--session", "--apply")
        self.refused_as(event(), "--session", "--session", "--empty")

    def test_process_level(self):
        self.refused_as(event(), "--session", "--level", "process")


class Agents(Hook):
    def test_gemini(self):
        ask = event("echo hi", name="BeforeTool", tool="run_shell_command", description="d")
        answer = json.loads(self.hook(ask).out)
        self.assertEqual(answer["decision"], "allow")
        self.assertEqual(answer["hookSpecificOutput"]["hookEventName"], "BeforeTool")
        call = answer["hookSpecificOutput"]["tool_input"]
        self.assertEqual(call["description"], "d")
        self.assertEqual(self.shell(call["command"]).out, "hi\n")
        self.refused_as(event(name="BeforeTool", tool="run_shell_command", directory="/etc"), "not in the project")
        self.refused_as(ask, "cannot be told to ask", "--ask")

    def test_codex(self):
        ask = event("echo hi")
        ask["turn_id"] = "t"
        call = self.rewritten(ask)
        self.assertNotIn("--cwd-file", call["command"])  # each of its commands starts anew
        self.assertEqual(self.shell(call["command"]).out, "hi\n")
        self.refused_as(ask, "Codex cannot be told to ask", "--ask")

    def test_copilot(self):
        for text in (lambda x: x, json.dumps):
            ask = {"timestamp": 1, "cwd": self.dir, "toolName": "bash",
                   "toolArgs": text({"command": "echo hi", "description": "d"})}
            answer = json.loads(self.hook(ask).out)
            self.assertEqual(answer["permissionDecision"], "allow")
            self.assertEqual(answer["modifiedArgs"]["description"], "d")
            self.assertEqual(self.shell(answer["modifiedArgs"]["command"]).out, "hi\n")
            self.assertEqual(json.loads(self.hook(ask, "--ask").out)["permissionDecision"], "ask")
            ask["toolArgs"] = text({"command": ""})
            self.refused_as(ask, "without a command", code=0)  # a failure counts as "go on" there
        ask["toolArgs"] = "no json"
        self.refused_as(ask, "toolArgs", code=0)
        answer = json.loads(self.hook(event("true", tool="bash")).out)
        self.assertEqual(answer["modifiedArgs"], answer["hookSpecificOutput"]["updatedInput"])

    def test_cline(self):
        ask = {"hookName": "PreToolUse", "taskId": "1", "workspaceRoots": [self.dir],
               "tool_call": {"name": "run_commands", "input": {"commands": ["echo one", "echo two"]}},
               "preToolUse": {"toolName": "run_commands", "parameters": {}}}
        answer = json.loads(self.hook(ask).out)
        self.assertIs(answer["cancel"], False)
        out = [self.shell(c).out for c in answer["overrideInput"]["commands"]]
        self.assertEqual(out, ["one\n", "two\n"])
        for commands in ([], ["ls", 7], ["ls", ""], "ls", [["ls"]], {"x": "ls"}, None):
            ask["tool_call"]["input"] = {"commands": commands}
            self.refused_as(ask, "command", code=0)
        ask["tool_call"]["input"] = {"commands": ["ls"], "command": "ls"}
        self.refused_as(ask, "commands", code=0)
        del ask["tool_call"]
        ask["preToolUse"] = {"toolName": "execute_command", "parameters": {"command": "ls"}}
        self.refused_as(ask, "Cline in VS Code cannot rewrite", code=0)
        ask["preToolUse"] = {"toolName": "read_file", "parameters": {"path": "x"}}
        self.assertEqual(self.hook(ask).out, "{}\n")

    def test_goose(self):
        ask = {"event": "PreToolUse", "session_id": "1", "tool_name": "developer__shell",
               "tool_input": {"command": "ls"}, "working_dir": self.dir}
        self.refused_as(ask, "Goose cannot rewrite")
        ask["tool_name"], ask["tool_input"] = "developer__text_editor", {"path": "x"}
        self.assertEqual(self.hook(ask).out, "{}\n")

    def test_vs_code(self):
        self.assertIn(" run ", self.rewritten(event(tool="run_in_terminal"))["command"])

    def test_cursor(self):
        ask = event(name="preToolUse", tool="Shell", working_directory=self.dir)
        answer = json.loads(self.hook(ask).out)
        self.assertEqual(answer["permission"], "allow")
        self.assertIn(" run ", answer["updated_input"]["command"])

    def test_model_does_not_choose_the_workspace(self):
        """A call's working_directory is a place in the project, never another project."""
        inside, other = os.path.join(self.dir, "in"), os.path.join(self.dir, "other")
        os.makedirs(os.path.join(inside, "sub"))
        os.makedirs(other)
        os.symlink(other, os.path.join(inside, "link"))
        for place in (other, self.dir, os.path.join(inside, "link"), "link", "..", "/opt", "/"):
            for ask in (event(cwd=inside, working_directory=place),
                        event(name="preToolUse", tool="Shell", cwd=inside, working_directory=place)):
                self.refused_as(ask, "not in the project")
        self.refused_as(event(cwd=inside, working_directory="missing"), "cannot be used")
        for place in (os.path.join(inside, "sub"), "sub"):
            call = self.rewritten(event(cwd=inside, working_directory=place))
            self.assertEqual(self.option(call["command"], "--workspace"), os.path.realpath(inside))
            self.assertEqual(self.option(call["command"], "--workdir"),
                             os.path.realpath(os.path.join(inside, "sub")))
        ask = event(cwd=inside, working_directory=other)
        ask["workspace_roots"] = [inside, other]
        self.assertEqual(self.option(self.rewritten(ask)["command"], "--workspace"),
                         os.path.realpath(other))

    def test_cursor_without_rewriting(self):
        ask = {"hook_event_name": "beforeShellExecution", "command": "id", "cwd": self.dir}
        self.refused_as(ask, "preToolUse")

    def test_other_tools_are_left_alone(self):
        ask = event(tool="Read")
        ask["tool_input"] = {"file_path": "/x"}
        self.assertEqual(self.hook(ask).out, "{}\n")
        self.assertEqual(self.hook(event(tool="apply_patch")).out, "{}\n")

    def test_named_tool(self):
        self.assertIn(" run ", self.rewritten(event(tool="mine"), "--tool", "mine")["command"])


class FailsClosed(Hook):
    def test_not_json(self):
        for text in ("", "{", "[]", "null", "7", b"\xff\xfe", '{"hook_event_name":"PreToolUse"',
                     '{"hook_event_name":"PreToolUse","hook_event_name":"x"}'):
            self.refused_as(text, "cloche: ")

    def test_other_event(self):
        self.refused_as(event(name="PostToolUse"), "PreToolUse")

    def test_no_command(self):
        for call in ({}, {"command": ""}, {"command": 7}, {"command": ["ls"]}, None, "ls", [], "{}x"):
            ask = event()
            ask["tool_input"] = call
            self.refused_as(ask, "tool_input")

    def test_zero_byte(self):
        ask = json.dumps(event("a")).replace('"a"', '"a\\u0000b"')
        self.refused_as(ask, "JSON")

    def test_unknown_dialect(self):
        for ask in ({}, {"event": "BeforeTool"}, {"tool": "bash", "args": {"command": "ls"}},
                    {"hook_event_name": "pretooluse", "tool_name": "Bash"}, {"hook_event_name": 7},
                    {"hook_event_name": "PreToolUse"}, {"toolName": "bash"}, {"tool_call": "x"},
                    {"preToolUse": None}):
            text = json.dumps(ask)
            r = cl.run("hook", input=text, env=cl.caller_env())
            self.assertEqual(r.code, 0 if set(ask) & {"toolName", "tool_call", "preToolUse"} else 2, text)
            self.assertIn("was not run", r.err)
            self.counts_everywhere(r.out, "cloche: ")

    def test_killed(self):
        """A hook that crashes would count as none."""
        p = subprocess.Popen([cl.CLOCHE, "hook"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=cl.caller_env())
        with open("/proc/%d/stat" % p.pid, "rb"):
            pass
        while "cloched" not in os.readlink("/proc/%d/exe" % p.pid) or not self.catches(p.pid, signal.SIGSEGV):
            pass
        p.send_signal(signal.SIGSEGV)
        out, err = p.communicate(timeout=20)
        self.assertEqual(p.returncode, 2)
        self.assertIn(b"was not run", err)
        self.counts_everywhere(out.decode(), "was killed")

    def catches(self, pid, sig):
        with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as f:
            mask = next(line for line in f if line.startswith("SigCgt"))
        return int(mask.split()[1], 16) >> (sig - 1) & 1

    def test_unknown_shell(self):
        self.refused_as(event(tool="mystery"), "--tool mystery")
        for name in ("command", "commands", "cmd", "commandLine", "command_line", "shell_command"):
            ask = event(tool="mystery")
            ask["tool_input"] = {name: "ls"}
            self.refused_as(ask, "--tool mystery")

    def test_options(self):
        self.refused_as(event(), "unknown option", "--no-such-option")
        self.refused_as(event(), "memory", "--memory", "12Q")
        self.refused_as(event(), "no option", "words")
        self.refused_as(event(), "policy", "--policy", "/nonexistent")

    def test_forbidden_project(self):
        self.refused_as(event(cwd="/"), "workspace")

    def test_path_that_json_cannot_hold(self):
        """The rewritten command cannot be told, so the agent must not get the original one."""
        project = os.fsencode(self.dir) + b"/not-utf8-\xff"
        os.mkdir(project)
        os.symlink(project, self.dir + "/link")
        self.refused_as(event(cwd=self.dir + "/link"), "not UTF-8")
        self.refused_as(event(), "not UTF-8", "--env", b"X=\xff")

    def test_missing_directory(self):
        self.refused_as(event(cwd=self.path("gone")), "cannot be used")

    def test_cloched_is_missing(self):
        lone = self.path("cloche")
        with open(cl.CLOCHE, "rb") as f:
            self.write("cloche", f.read(), 0o755)
        r = cl.command(lone, "hook", input=json.dumps(event()).encode())
        self.assertEqual(r.code, 2, str(r))
        self.counts_everywhere(r.out, "was not run")
