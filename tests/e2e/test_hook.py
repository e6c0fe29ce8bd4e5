"""`cloche hook`: what coding agents send before a tool is used, and what they get back."""

import json
import os
import shlex

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


class Hook(cl.Case):
    def hook(self, what, *options, code=0, **env):
        text = what if isinstance(what, (str, bytes)) else json.dumps(what)
        r = cl.run("hook", *options, input=text, env=cl.caller_env(**env))
        self.assertEqual(r.code, code, str(r))
        return r

    def rewritten(self, what, *options, **env):
        """The words of the command that the agent would hand to its shell."""
        answer = json.loads(self.hook(what, *options, **env).out)["hookSpecificOutput"]
        self.assertEqual(answer["hookEventName"], "PreToolUse")
        self.assertEqual(answer["permissionDecision"], "allow")
        return answer["updatedInput"]

    def refused_as(self, what, says, *options, **env):
        r = self.hook(what, *options, code=2, **env)
        self.assertRegex(r.err, says)
        self.assertIn("was not run", r.err)
        answer = json.loads(r.out)
        if "hookSpecificOutput" in answer:
            answer = answer["hookSpecificOutput"]
            self.assertEqual(answer["permissionDecision"], "deny")
            self.assertNotIn("updatedInput", answer)
        else:
            self.assertEqual(answer["permission"], "deny")
            self.assertNotIn("updated_input", answer)

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
        self.assertTrue(call["command"].endswith("-c '%s run -- true'" % cl.CLOCHE), call)

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


class Agents(Hook):
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
        for call in ({}, {"command": ""}, {"command": 7}, {"command": ["ls"]}, None, "ls"):
            ask = event()
            ask["tool_input"] = call
            self.refused_as(ask, "tool_input")

    def test_zero_byte(self):
        ask = json.dumps(event("a")).replace('"a"', '"a\\u0000b"')
        self.refused_as(ask, "JSON")

    def test_unknown_shell(self):
        self.refused_as(event(tool="mystery"), "--tool mystery")

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
        self.assertEqual((r.code, r.out), (2, ""), str(r))
