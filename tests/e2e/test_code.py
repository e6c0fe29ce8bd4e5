"""`cloche code`: languages, where the code comes from, files in and out."""

import base64
import os
import shutil

import cl

# language, a program that prints 42 and then what stdin says
SNIPPETS = {
    "python": "import sys\nprint(6 * 7)\nprint(sys.stdin.read())",
    "bash": "echo $((6 * 7)); cat; [[ -n $BASH_VERSION ]]",
    "sh": "echo $((6 * 7)); cat",
    "node": "console.log(6 * 7); process.stdin.pipe(process.stdout)",
    "perl": "print 6 * 7, \"\\n\"; print <STDIN>;",
    "ruby": "puts 6 * 7; puts STDIN.read",
    "awk": None,
    "php": "<?php echo 6 * 7, \"\\n\"; echo stream_get_contents(STDIN);",
    "lua": "print(6 * 7) print(io.read('a'))",
}
PROGRAMS = {"python": "python3"}


class Languages(cl.Case):
    def test_python_is_the_default(self):
        self.assertEqual(self.ok("code", "-e", "print(6 * 7)").out, "42\n")

    def test_attached_code(self):
        self.assertEqual(self.ok("code", "-eprint(6 * 7)").out, "42\n")
        self.assertEqual(self.ok("code", "--lang=sh", "-eA=42; echo $A").out, "42\n")

    def check(self, lang):
        if not shutil.which(PROGRAMS.get(lang, lang), path=cl.SHELL_PATH):
            self.skipTest(lang + " is not installed")
        r = self.ok("code", "--lang", lang, "-e", SNIPPETS[lang], input="given")
        self.assertEqual(r.out.replace("42.0", "42").strip(), "42\ngiven", str(r))

    def test_python(self):
        self.check("python")

    def test_bash(self):
        self.check("bash")

    def test_sh(self):
        self.check("sh")

    def test_node(self):
        self.check("node")

    def test_perl(self):
        self.check("perl")

    def test_ruby(self):
        self.check("ruby")

    def test_unknown(self):
        r = self.refused("code", "--lang", "cobol-77", "-e", "x", says="cobol-77")
        self.refused("code", "--lang", "python3 py", "-e", "x", says="python3 py")
        for lang in ("python", "bash", "node", "perl"):
            self.assertIn(lang, r.err)

    def test_typescript(self):
        """It runs, or the reason is told: an older Node.js only says that it does not know an option."""
        if not shutil.which("node", path=cl.SHELL_PATH):
            self.skipTest("no node here")
        code = "const n: number = 42; console.log(n)"
        rec = cl.record("--lang", "typescript", "-e", code, verb="code")
        r = cl.run("code", "--lang", "ts", "-e", code)
        if rec["exit_code"] == 0:
            self.assertEqual((rec["stdout"], rec["notes"]), ("42\n", []))
        else:
            self.assertEqual(rec["exit_code"], 9)
            self.assertRegex(" ".join(rec["notes"]), "TypeScript needs 22")
            self.assertRegex(r.err, "(?m)^cloche: Node.js .*TypeScript needs 22")
        rec = cl.record("-e", "raise SystemExit(9)", verb="code")
        self.assertEqual((rec["exit_code"], rec["notes"]), (9, []))

    def test_not_installed(self):
        for lang, program in (("ruby", "ruby"), ("php", "php"), ("lua", "lua")):
            if not shutil.which(program, path=cl.SHELL_PATH):
                r = cl.run("code", "--lang", lang, "-e", "1")
                self.assertIn(r.code, (125, 127), str(r))
                self.assertRegex(r.err, r"^cloche: ")
                self.assertIn(lang, r.err)
                return
        self.skipTest("every language of the table is installed")

    def test_by_file_name(self):
        """The ending of the file tells the language unless --lang does."""
        self.write("x.sh", "echo shell $0 >&2; echo 42")
        r = cl.run("code", "x.sh")
        self.assertEqual((r.code, r.out), (0, "42\n"), str(r))


class Sources(cl.Case):
    def test_file(self):
        self.write("prog.py", "import sys\nprint('from file', sys.stdin.read())")
        self.assertEqual(self.ok("code", "prog.py", input="and stdin").out, "from file and stdin\n")

    def test_stdin(self):
        self.assertEqual(self.ok("code", "-", input="print('from stdin')").out, "from stdin\n")
        self.assertEqual(self.ok("code", "--lang", "sh", "-", input="echo shell").out, "shell\n")

    def test_stdin_is_used_up(self):
        """The snippet that came from stdin finds it at its end, not its own text."""
        self.assertEqual(
            self.ok("code", "-", input="import sys\nprint(repr(sys.stdin.read()))").out, "''\n"
        )

    def test_expression(self):
        self.assertEqual(
            self.ok("code", "-e", "import sys; print(sys.stdin.read())", input="given").out,
            "given\n",
        )

    def test_nothing_is_interpreted_on_the_way(self):
        text = "print('''$HOME `id` \\\\ \"quoted\" %s \u00e4\u20ac\n'end' ''')"
        self.assertEqual(
            self.ok("code", "-e", text).out, "$HOME `id` \\ \"quoted\" %s \u00e4\u20ac\n'end' \n"
        )

    def test_bytes_that_are_not_text(self):
        r = self.ok("code", "--lang", "sh", "-", input=b"printf '\\101'; echo '\xff\xfe'")
        self.assertEqual(r.raw_out, b"A\xff\xfe\n")

    def test_large(self):
        self.assertEqual(self.ok("code", "-", input="x = 1\n" * 100000 + "print(x)").out, "1\n")

    def test_empty(self):
        self.assertEqual(self.ok("code", "-e", "").out, "")
        self.assertEqual(self.ok("code", "-", input="").out, "")

    def test_missing_file(self):
        self.refused("code", "none.py", says="none.py")

    def test_directory(self):
        self.mkdir("d")
        self.refused("code", "d")

    def test_file_outside_the_workspace(self):
        self.write("other/prog.py", "print('ran')")
        r = self.ok("code", self.path("other/prog.py"), cwd=self.mkdir("work"))
        self.assertEqual(r.out, "ran\n")

    def test_forbidden_file(self):
        self.refused("code", "--lang", "sh", "/etc/shadow")

    def test_arguments(self):
        self.write("prog.py", "import sys; print(sys.argv[1:])")
        r = cl.run("code", "prog.py", "a", "--json", "b c")
        self.assertEqual((r.code, r.out), (0, "['a', '--json', 'b c']\n"), str(r))

    def test_no_code_at_all(self):
        r = cl.run("code", "--lang", "python")
        self.assertIn(r.code, (0, 125), str(r))

    def test_traceback(self):
        """A traceback names the snippet's file and line, not a path of the host."""
        r = cl.run("code", "-e", "\n\nraise ValueError('mine')")
        self.assertEqual(r.code, 1)
        self.assertRegex(r.err, r'File "[^"]*\.py", line 3')
        self.assertIn("ValueError: mine", r.err)
        self.write("prog.py", "\nraise ValueError('mine')")
        self.assertRegex(cl.run("code", "prog.py").err, r'File "[^"]*prog\.py", line 2')

    def test_neighbours_can_be_imported(self):
        """A snippet in the current directory finds the modules beside it."""
        self.write("helper.py", "value = 42")
        self.assertEqual(self.ok("code", "-e", "import helper; print(helper.value)").out, "42\n")
        self.write("prog.py", "import helper; print(helper.value)")
        self.assertEqual(self.ok("code", "prog.py").out, "42\n")

    def test_exit_status(self):
        self.assertEqual(cl.run("code", "-e", "raise SystemExit(7)").code, 7)
        self.assertEqual(cl.run("code", "-e", "import os; os.kill(os.getpid(), 15)").code, 143)
        self.assertEqual(cl.run("code", "-t", "300ms", "-e", "while True: pass").code, 124)

    def test_does_not_litter(self):
        self.ok("code", "-e", "print(1)")
        self.assertEqual(os.listdir(self.dir), [])
        rec = cl.record("--diff", "-e", "open('made', 'w')", verb="code")
        self.assertEqual(
            [c["path"] for c in rec["changes"]], ["made"], "the snippet itself is no change"
        )

    def test_not_in_the_applied_changes(self):
        self.ok("code", "--apply", "-e", "open('made', 'w')")
        self.assertEqual(os.listdir(self.dir), ["made"])

    def test_code_is_not_in_the_process_list(self):
        """The code reaches the interpreter as a file, never as an argument."""
        r = self.ok("code", "-e", "print(open('/proc/self/cmdline').read())  # %s" % "x" * 1)
        self.assertNotIn("print(open", r.out)


class Record(cl.Case):
    def test_interpreter(self):
        rec = cl.record("-e", "print(1)", verb="code")
        self.assertRegex(rec["interpreter"], r"^/usr/bin/python3")

    def test_files_in_and_out(self):
        self.write("data/numbers.txt", "1\n2\n3\n")
        code = "n = sum(map(int, open('in.txt')))\nopen('out.csv', 'w').write('sum,%d\\n' % n)"
        rec = cl.record(
            "--file",
            "in.txt=" + self.path("data/numbers.txt"),
            "--capture",
            "*.csv",
            "-e",
            code,
            verb="code",
            cwd=self.mkdir("work"),
            code=0,
        )
        self.assertEqual(
            [(f["path"], f["size"], base64.b64decode(f["content_base64"])) for f in rec["files"]],
            [("out.csv", 6, b"sum,6\n")],
        )

    def test_empty_workspace(self):
        self.write("here", "x")
        rec = cl.record("--empty", "-e", "import os; print(os.listdir('.'))", verb="code")
        self.assertNotIn("here", rec["stdout"])

    def test_denials_and_layers(self):
        rec = cl.record("-e", "print(1)", verb="code")
        self.assertEqual(rec["layers"]["level"], "container")
