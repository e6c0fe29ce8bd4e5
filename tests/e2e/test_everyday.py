"""Everyday programs at the default limits, as many of them as this machine has."""

import glob
import os
import shutil
import subprocess
import time

import cl

# Further programs: a name for the test, what has to be installed, a script, and what its output has to match.
PROGRAMS = (
    (
        "chromium_prints",
        ["chromium"],
        "echo '<h1>hi</h1>' > a.html; for how in screenshot=a.png print-to-pdf=a.pdf; do"
        " chromium --headless --no-sandbox --$how file://$PWD/a.html 2>/dev/null; done;"
        " head -c 8 a.png | tail -c +2 | head -c 3; head -c 5 a.pdf",
        "PNG%PDF-",
    ),
    (
        "ruby",
        ["ruby"],
        "ruby -rsocket -rjson -e 's = TCPServer.new(\"127.0.0.1\", 0); Thread.new { c = s.accept; c.puts [42].to_json; c.close };"
        " puts TCPSocket.new(\"127.0.0.1\", s.addr[1]).read; Process.wait fork { exit 3 }; p $?.exitstatus'; gem list >/dev/null",
        r"^\[42\]\n3\n$",
    ),
    ("php", ["php"], "php -r 'echo 6 * 7;'; php -m | grep -cE '^(Phar|tokenizer|iconv|ctype)$'", "^424\n$"),
    (
        "php_server",
        ["php", "curl"],
        "echo '<?php echo 6 * 7;' > i.php; php -S 127.0.0.1:8011 >/dev/null 2>&1 &"
        " curl -s --retry 50 --retry-connrefused --retry-delay 0 http://127.0.0.1:8011/i.php; kill %1",
        "^42$",
    ),
    ("composer", ["composer"], "composer --version 2>&1", "Composer"),
    ("lua", ["lua5.4"], "lua5.4 -e 'print(6 * 7)'", "^42$"),
    ("tcl", ["tclsh"], "echo 'puts [expr 6 * 7]' | tclsh", "^42$"),
    (
        "go",
        ["go"],
        "go mod init example.com/x 2>/dev/null; printf 'package main\\nimport \"fmt\"\\nfunc main() { c := make(chan int);"
        " go func() { c <- 42 }(); fmt.Println(<-c) }\\n' > main.go; go run .; go vet ./...",
        "^42$",
    ),
    (
        "rust",
        ["rustc"],
        "echo 'fn main() { println!(\"{}\", std::thread::spawn(|| 42).join().unwrap()); }' > m.rs; rustc m.rs; ./m",
        "^42$",
    ),
    ("cargo", ["cargo"], "cargo init -q --name x --vcs none .; cargo test -q --offline; cargo run -q --offline", "Hello, world!"),
    ("maven", ["mvn"], "mvn -v", "Apache Maven"),
    ("haskell", ["ghc"], "echo 'main = print (6 * 7)' > h.hs; ghc -v0 h.hs; ./h; runghc h.hs", "^42\n42$"),
    (
        "r",
        ["Rscript"],
        "Rscript -e 'x <- rnorm(9); png <- pdf(\"p.pdf\"); plot(x); invisible(dev.off()); cat(length(x) + 33)'; head -c 4 p.pdf",
        "^42%PDF$",
    ),
    ("emacs", ["emacs"], "emacs --batch --eval '(princ (* 6 7))' 2>&1", "42"),
    ("vim", ["vim"], "echo a > v; vim -es -u NONE -c '%s/a/b/' -c wq v; cat v", "^b$"),
    ("zsh", ["zsh"], "zsh -c 'echo $((6 * 7))'", "^42$"),
    ("tmux", ["tmux"], "tmux -f /dev/null new -d 'echo 42 > out; sleep 9'; until test -s out; do sleep 0.05; done; cat out; tmux kill-server", "^42$"),
    # Debian's wants /run/screen, which only root can make.
    ("screen", ["screen"], "export SCREENDIR=$HOME/.screen; mkdir -m 700 $SCREENDIR; screen -D -m sh -c 'echo 42 > out'; cat out", "^42$"),
    (
        "latex",
        ["pdflatex"],
        "printf '\\\\documentclass{article}\\\\begin{document}$6\\\\cdot7$\\\\end{document}' > a.tex;"
        " pdflatex -interaction=batchmode a.tex >/dev/null; head -c 5 a.pdf",
        "^%PDF-",
    ),
    ("libreoffice", ["soffice"], "echo a,b > a.csv; soffice --headless --convert-to pdf a.csv >/dev/null 2>&1; head -c 5 a.pdf", "^%PDF-"),
    (
        "ghostscript",
        ["gs"],
        "printf '%%!PS\\n/Helvetica findfont 20 scalefont setfont 72 72 moveto (hi) show showpage\\n' > a.ps;"
        " gs -q -dBATCH -dNOPAUSE -sDEVICE=pdfwrite -sOutputFile=a.pdf a.ps; head -c 5 a.pdf",
        "^%PDF-",
    ),
    ("imagemagick", ["convert-im6.q16"], "convert-im6.q16 -size 9x9 xc:red -annotate 0 hi a.png 2>&1; head -c 4 a.png | tail -c 3", "^PNG$"),
    ("graphviz", ["dot"], "echo 'digraph { a -> b }' | dot -Tpng | head -c 4 | tail -c 3", "^PNG$"),
    ("pandoc", ["pandoc"], "echo '# hi' > a.md; pandoc a.md -o a.docx; pandoc a.md", "<h1.*hi</h1>"),
    (
        "ffmpeg",
        ["ffmpeg", "ffprobe"],
        "ffmpeg -loglevel error -f lavfi -i testsrc=duration=1:size=320x180:rate=25 a.mp4; ffprobe -v error -show_entries format=duration -of csv=p=0 a.mp4",
        "^1.0",
    ),
    (
        "redis",
        ["redis-server", "redis-cli"],
        "redis-server --port 6399 --daemonize yes >/dev/null; until redis-cli -p 6399 ping; do sleep 0.05; done >/dev/null 2>&1;"
        " redis-cli -p 6399 set a 42; redis-cli -p 6399 get a; redis-cli -p 6399 save; redis-cli -p 6399 shutdown",
        "^OK\n42\nOK$",
    ),
    (
        "nginx",
        ["nginx", "curl"],
        "mkdir t; echo 'pid t/pid; error_log stderr; daemon off; events {} http { access_log off; client_body_temp_path t/b; proxy_temp_path t/p;"
        " fastcgi_temp_path t/f; uwsgi_temp_path t/u; scgi_temp_path t/s; server { listen 127.0.0.1:8080; root '$PWD'; } }' > n.conf;"
        " echo 42 > page; nginx -p $PWD -c $PWD/n.conf 2>/dev/null & curl -s --retry 50 --retry-connrefused --retry-delay 0 http://127.0.0.1:8080/page; kill %1",
        "^42$",
    ),
    ("clang", ["clang"], "echo 'int main(void) { return 42; }' > x.c; clang -O2 -fsanitize=undefined -o x x.c; ./x || echo $?", "^42$"),
    (
        "cmake",
        ["cmake", "make", "gcc"],
        "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(x C)\\nadd_executable(x x.c)\\nenable_testing()\\nadd_test(t x)\\n' > CMakeLists.txt;"
        " echo 'int main(void) { return 0; }' > x.c; cmake -B b >/dev/null; cmake --build b -j8 >/dev/null; cd b; ctest",
        "100% tests passed",
    ),
    (
        "meson",
        ["meson", "ninja", "gcc"],
        "printf \"project('x', 'c')\\ntest('t', executable('x', 'x.c'))\\n\" > meson.build; echo 'int main(void) { return 0; }' > x.c; meson setup b >/dev/null; ninja -C b test",
        "Ok: +1",
    ),
    ("ssh_keygen", ["ssh-keygen"], "ssh-keygen -q -t ed25519 -N '' -f k; ssh-keygen -lf k.pub", "ED25519"),
    (
        "openssl",
        ["openssl"],
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout k -out c -days 1 -subj /CN=localhost 2>/dev/null; openssl verify -CAfile c c",
        "OK",
    ),
    (
        "gpg",
        ["gpg", "gpg-agent"],
        "gpg --batch --passphrase '' --quick-gen-key a@example.com 2>/dev/null; echo 42 > f; gpg --batch -s f; gpg --verify f.gpg 2>&1",
        "Good signature",
    ),
    (
        "git_over_file",
        ["git"],
        "export GIT_AUTHOR_NAME=U GIT_AUTHOR_EMAIL=u@example.com GIT_COMMITTER_NAME=U GIT_COMMITTER_EMAIL=u@example.com;"
        " git init -q --bare b.git; git clone -q file://$PWD/b.git c 2>/dev/null; cd c; git commit -q --allow-empty -m x; git push -q origin HEAD;"
        " git worktree add -q ../w; git -C ../w log --oneline | wc -l",
        "^1$",
    ),
    ("rsync", ["rsync"], "mkdir a; echo 42 > a/f; rsync -aHAX a/ b/; cat b/f", "^42$"),
    ("expect", ["expect"], "expect -c 'spawn cat; send \"hi\\r\"; expect hi; puts \" ok\"'", "ok"),
    ("top", ["top"], "top -bn1; ps aux; free", "(?s)PID.*COMMAND.*Mem:"),
)


class Everyday(cl.Case):
    def sh(self, script, *options, timeout=60):
        r = cl.run("run", *options, "--", "bash", "-ec", script, timeout=timeout)
        self.assertEqual(r.code, 0, str(r))
        return r.out

    def test_git(self):
        self.need_program("git")
        out = self.sh(
            "git init -q . && git config user.email u@example.com && git config user.name U && "
            "echo x > a && git add a && git commit -qm first && echo y >> a && git diff --stat && "
            "git stash -q && git checkout -qb side && git gc -q && git log --oneline | wc -l"
        )
        self.assertEqual(out.split()[-1], "1")
        self.assertEqual(os.listdir(self.dir), [])

    def test_git_in_an_own_repository(self):
        """A repository of the caller is not "of dubious ownership" inside."""
        self.need_program("git")
        env = cl.caller_env(GIT_CONFIG_NOSYSTEM="1")
        cl.command(
            "sh",
            "-c",
            "git init -q . && git config user.email u@example.com && git config user.name U && "
            "echo x > a && git add a && git commit -qm first",
            env=env,
        )
        out = self.sh(
            "git status --porcelain; echo y > b; git add b; git commit -qm second; git log --oneline | wc -l"
        )
        self.assertEqual(out, "2\n")

    def test_venv(self):
        if subprocess.run(
            [cl.PYTHON, "-c", "import venv, ensurepip"], capture_output=True
        ).returncode:
            self.skipTest("python3-venv is not installed")
        out = self.sh(
            "python3 -m venv v && v/bin/python -c 'import sys; print(sys.prefix)' && v/bin/pip --version | cut -c1-3",
            timeout=60,
        )
        self.assertEqual(out, self.path("v") + "\npip\n")

    def test_venv_without_pip(self):
        self.sh("python3 -m venv --without-pip v && v/bin/python -c 'import json'")

    def test_multiprocessing(self):
        self.write(
            "pool.py",
            "import multiprocessing as mp\n"
            "def f(x): return x * x\n"
            "if __name__ == '__main__':\n"
            "    for how in ('fork', 'spawn', 'forkserver'):\n"
            "        with mp.get_context(how).Pool(4) as p: print(sum(p.map(f, range(100))))\n"
            "    q = mp.Queue(); q.put(1); print(q.get()); print(mp.Value('i', 7).value)\n",
        )
        self.assertEqual(self.sh("python3 pool.py"), "328350\n" * 3 + "1\n7\n")

    def test_threads_and_futures(self):
        self.assertEqual(
            self.sh(
                "python3 -c 'from concurrent.futures import *\n"
                "with ThreadPoolExecutor(32) as e: print(sum(e.map(len, [\"ab\"] * 500)))'"
            ),
            "1000\n",
        )

    def test_asyncio_subprocess(self):
        self.assertEqual(
            self.sh(
                "python3 -c 'import asyncio\n"
                "async def m():\n"
                "    p = await asyncio.create_subprocess_exec(\"echo\", \"hi\", stdout=-1)\n"
                "    print((await p.communicate())[0])\n"
                "asyncio.run(m())'"
            ),
            "b'hi\\n'\n",
        )

    def test_numpy(self):
        if subprocess.run([cl.PYTHON, "-c", "import numpy"], capture_output=True).returncode:
            self.skipTest("numpy is not installed for /usr/bin/python3")
        self.assertEqual(
            self.sh(
                "/usr/bin/python3 -c 'import numpy as np; a = np.ones((300, 300)); print(int((a @ a).sum()))'"
            ),
            "27000000\n",
        )

    def test_pytest_with_a_local_server(self):
        if subprocess.run([cl.PYTHON, "-c", "import pytest"], capture_output=True).returncode:
            self.skipTest("pytest is not installed for /usr/bin/python3")
        self.write(
            "test_it.py",
            "import http.server, threading, urllib.request, pytest\n"
            "@pytest.fixture\n"
            "def url():\n"
            "    s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
            "    threading.Thread(target=s.serve_forever, daemon=True).start()\n"
            "    yield 'http://127.0.0.1:%d/' % s.server_port\n"
            "    s.shutdown()\n"
            "def test_get(url): assert b'test_it.py' in urllib.request.urlopen(url).read()\n"
            "def test_tmp(tmp_path): (tmp_path / 'f').write_text('x')\n",
        )
        self.assertIn("2 passed", self.sh("/usr/bin/python3 -m pytest -q 2>&1"))

    def test_unittest_with_a_local_server(self):
        self.write(
            "test_it.py",
            "import http.server, threading, unittest, urllib.request\n"
            "class T(unittest.TestCase):\n"
            "    def test(self):\n"
            "        s = http.server.ThreadingHTTPServer(('localhost', 0), http.server.SimpleHTTPRequestHandler)\n"
            "        threading.Thread(target=s.serve_forever, daemon=True).start()\n"
            "        self.assertIn(b'test_it.py', urllib.request.urlopen('http://localhost:%d/' % s.server_port).read())\n"
            "        s.shutdown()\n",
        )
        self.sh("python3 -m unittest -q test_it 2>&1")

    def test_node(self):
        self.need_program("node")
        out = self.sh(
            "node -e 'const {Worker} = require(\"worker_threads\"); const fs = require(\"fs\");"
            "fs.writeFileSync(\"f\", \"x\"); new Worker(\"console.log(1+1)\", {eval: true}).on(\"exit\", () => console.log(\"done\"))'"
        )
        self.assertEqual(out, "2\ndone\n")

    def test_node_http(self):
        self.need_program("node")
        out = self.sh(
            "node -e 'const http = require(\"http\"); const s = http.createServer((q, r) => r.end(\"hi\")).listen(0, \"127.0.0.1\", () => "
            "http.get({port: s.address().port, host: \"127.0.0.1\"}, r => r.on(\"data\", d => {console.log(\"\" + d); s.close()})))'"
        )
        self.assertEqual(out, "hi\n")

    def test_npm_test(self):
        self.need_program("npm")
        self.write(
            "package.json", '{"name": "x", "version": "1.0.0", "scripts": {"test": "node test.js"}}'
        )
        self.write("test.js", "require('assert').equal(1 + 1, 2); console.log('all good')")
        self.assertIn("all good", self.sh("npm test 2>&1"))

    def test_installers_soon_see_that_there_is_no_network(self):
        """Left alone, npm tries for longer than the default time limit."""
        for program, command in (
            ("npm", ["npm", "install", "left-pad"]),
            ("pip3", ["pip3", "install", "--break-system-packages", "left-pad"]),
        ):
            if not shutil.which(program, path=cl.SHELL_PATH):
                continue
            with self.subTest(program):
                rec = cl.record("--", *command, timeout=90)
                self.assertEqual((rec["status"], rec["success"]), ("exited", False), rec)
                self.assertIn("resolve", [d["what"] for d in rec["denials"]])

    def test_make_of_a_project(self):
        for program in ("make", "g++"):
            self.need_program(program)
        names = ["m%d" % i for i in range(8)]
        for i, name in enumerate(names):
            self.write(
                name + ".cc",
                "#include <vector>\n#include <string>\n#include <map>\n#include <algorithm>\n"
                "int %s() { std::map<std::string, std::vector<int>> m; m[\"a\"] = {3, 1, 2}; "
                "std::sort(m[\"a\"].begin(), m[\"a\"].end()); return m[\"a\"][0] + %d; }\n"
                % (name, i),
            )
        self.write(
            "main.cc",
            "#include <iostream>\n"
            + "".join("int %s();\n" % n for n in names)
            + "int main() { std::cout << %s << std::endl; }\n"
            % " + ".join(n + "()" for n in names),
        )
        objects = " ".join(n + ".o" for n in ["main"] + names)
        self.write(
            "Makefile", "prog: %s\n\tg++ -o $@ $^\n%%.o: %%.cc\n\tg++ -O1 -c -o $@ $<\n" % objects
        )
        self.assertEqual(self.sh("make -s -j8 && ./prog", timeout=90), "36\n")

    def test_copy_of_a_large_program(self):
        node = self.need_program("node")
        self.assertEqual(self.sh("cp %s . && ./node -p 6*7" % node), "42\n")

    def test_sqlite(self):
        self.need_program("sqlite3")
        out = self.sh(
            "sqlite3 t.db 'pragma journal_mode=wal; create table t(x); insert into t values (1), (41); select sum(x) from t'"
        )
        self.assertEqual(out, "wal\n42\n")

    def test_sqlite_of_python(self):
        self.assertEqual(
            self.sh(
                "python3 -c 'import sqlite3; c = sqlite3.connect(\"t.db\"); c.execute(\"create table t(x)\"); "
                "c.execute(\"insert into t values (42)\"); c.commit(); print(*c.execute(\"select x from t\").fetchone())'"
            ),
            "42\n",
        )

    def test_curl_to_an_own_server(self):
        self.need_program("curl")
        self.write("page", "hello")
        out = self.sh(
            "python3 -m http.server --bind 127.0.0.1 8123 >/dev/null 2>&1 & "
            "for i in $(seq 100); do curl -sf http://127.0.0.1:8123/page && break; sleep 0.05; done; "
            "curl -s http://localhost:8123/page; kill %1"
        )
        self.assertEqual(out, "hellohello")

    def test_awk_and_text_tools(self):
        out = self.sh(
            "seq 1 1000 | awk '{s += $1} END {print s}'; seq 1 50000 | shuf | sort -n -S 20M | tail -1; "
            "echo b a | tr ' ' '\\n' | sort | xargs; printf 'x\\ny\\n' | sed s/x/z/ | grep z; date -d @0 -u +%Y"
        )
        self.assertEqual(out, "500500\n50000\na b\nz\n1970\n")

    def test_tar_through_a_pipe(self):
        where = "import sysconfig; print(sysconfig.get_path('stdlib'))"
        tree = cl.command(cl.PYTHON, "-c", where).out.strip()
        p = cl.start("run", "--", "tar", "cf", "-", "-C", "/", tree[1:])
        listed = subprocess.run(["tar", "tf", "-"], stdin=p.stdout, capture_output=True, timeout=60)
        r = cl.finish(p)
        self.assertEqual((r.code, listed.returncode), (0, 0), str(r))
        self.assertGreater(len(listed.stdout.splitlines()), 20)

    def test_tar_into_the_workspace(self):
        out = self.sh(
            "mkdir a; for i in $(seq 300); do echo $i > a/$i; done; tar czf a.tgz a; rm -r a; tar xzf a.tgz; ls a | wc -l"
        )
        self.assertEqual(out, "300\n")

    def test_chromium(self):
        path = shutil.which("chromium", path=cl.SHELL_PATH) or shutil.which(
            "google-chrome", path=cl.SHELL_PATH
        )
        if not path:
            self.skipTest("chromium is not installed")
        self.write(
            "page.html",
            "<html><body><script>document.body.innerHTML = 6 * 7</script></body></html>",
        )
        out = self.sh(
            "%s --headless --no-sandbox --dump-dom file://$PWD/page.html 2>/dev/null"
            % path,
            timeout=60,
        )
        self.assertIn("42", out)

    def test_java(self):
        self.need_program("java")
        self.assertRegex(self.sh("java -version 2>&1"), "version")
        self.write(
            "Hello.java",
            "public class Hello { public static void main(String[] a) throws Exception { "
            "Thread t = new Thread(() -> System.out.println(6 * 7)); t.start(); t.join(); } }",
        )
        if shutil.which("javac", path=cl.SHELL_PATH):
            self.assertEqual(self.sh("java Hello.java", timeout=60), "42\n")

    def test_java_with_much_garbage(self):
        """Told of the limit, as the manual says, it collects its garbage before it is killed."""
        self.need_program("javac")
        self.write(
            "G.java",
            "public class G { public static void main(String[] a) { long n = 0; "
            "for (int i = 0; i < 30000; i++) n += new byte[100000].length; System.out.println(n); } }",
        )
        out = self.sh("java G.java", "--env", "JDK_JAVA_OPTIONS=-XX:MaxRAM=1G")
        self.assertEqual(out, "3000000000\n")

    def test_compile_and_run_c(self):
        self.need_program("gcc")
        self.write("x.c", "#include <stdio.h>\nint main(void) { puts(\"built\"); }\n")
        self.assertEqual(self.sh("gcc -O2 -o x x.c && ./x"), "built\n")

    def test_perl(self):
        self.need_program("perl")
        self.assertEqual(
            self.sh(
                "perl -MFile::Temp=tempfile -MPOSIX -e '($f, $n) = tempfile(); print $f \"x\"; close $f; print -s $n, \"\\n\"'"
            ),
            "1\n",
        )

    def test_man(self):
        self.need_program("man")
        if not glob.glob("/usr/share/man/man1/ls.1*"):
            self.skipTest("the manual page of ls is not installed")
        self.assertIn("list directory contents", self.sh("MANROFFOPT=-c man ls 2>&1 | col -b"))

    def test_date_and_locale(self):
        host = cl.command("date", "+%Y-%m-%d %Z").out
        self.assertEqual(self.sh("date '+%Y-%m-%d %Z'"), host)
        self.assertEqual(
            self.sh("locale | grep LANG=; python3 -c 'print(\"\\u00e4\")'"),
            "LANG=C.UTF-8\n\u00e4\n",
        )

    def test_clock_is_the_hosts(self):
        before = time.time()
        inside = float(self.sh("date +%s.%N"))
        self.assertTrue(before - 1 <= inside <= time.time() + 1)

    def test_temporary_files(self):
        self.assertEqual(
            self.sh(
                "f=$(mktemp); echo x > $f; cat $f; d=$(mktemp -d); rmdir $d; python3 -c 'import tempfile; print(tempfile.gettempdir())'"
            ),
            "x\n/tmp\n",
        )

    def test_named_pipes_and_locks(self):
        self.assertEqual(
            self.sh(
                "mkfifo p; echo through > p & cat p; flock lock echo locked; ln f1 f2 2>/dev/null || true"
            ),
            "through\nlocked\n",
        )

    def test_inotify_and_epoll(self):
        self.assertEqual(
            self.sh(
                "python3 -c 'import selectors, ctypes, os\n"
                "fd = ctypes.CDLL(None).inotify_init(); assert fd >= 0\n"
                "assert ctypes.CDLL(None).inotify_add_watch(fd, b\".\", 0x100) >= 0\n"
                "open(\"new\", \"w\"); print(len(os.read(fd, 999)) > 0)'"
            ),
            "True\n",
        )

    def test_debugging_oneself(self):
        """Tools that look at their own children are told no politely: strace fails, the program lives."""
        self.sh(
            "python3 -c 'import faulthandler, resource, signal, gc; faulthandler.enable(); print(resource.getrusage(0).ru_maxrss > 0)'"
        )

    def test_pandas_and_plots(self):
        if cl.command(cl.PYTHON, "-c", "import pandas, matplotlib").code:
            self.skipTest("pandas and matplotlib are not installed for /usr/bin/python3")
        self.write(
            "plot.py",
            "import pandas as pd, matplotlib.pyplot as plt\n"
            "d = pd.DataFrame({'a': range(42)}); d.plot(); plt.savefig('p.png'); d.to_csv('d.csv')\n"
            "print(len(pd.read_csv('d.csv')), open('p.png', 'rb').read(4))\n",
        )
        self.assertEqual(self.sh("/usr/bin/python3 plot.py"), "42 b'\\x89PNG'\n")

    def test_pip_installs_a_local_wheel(self):
        if cl.command(cl.PYTHON, "-c", "import venv, ensurepip, setuptools, wheel").code:
            self.skipTest("python3-venv, setuptools and wheel are not all installed")
        self.write("p/foo.py", "x = 42\n")
        self.write(
            "p/setup.py",
            "from setuptools import setup\nsetup(name='foo', version='1', py_modules=['foo'])\n",
        )
        out = self.sh(
            "/usr/bin/python3 -m venv --system-site-packages v; v/bin/pip -q wheel --no-deps --no-build-isolation -w w ./p;"
            "v/bin/pip -q install --no-index w/*.whl; v/bin/python -c 'import foo; print(foo.x)'"
        )
        self.assertEqual(out, "42\n")

    def test_postgres(self):
        found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
        if not found:
            self.skipTest("postgresql is not installed")
        out = self.sh(
            "PATH=$PATH:%s; initdb -D d >/dev/null; pg_ctl -D d -o '-k /tmp -h 127.0.0.1' -w -l log start >/dev/null;"
            "psql -h 127.0.0.1 -d postgres -Atc 'select 6*7'; pg_ctl -D d -m fast stop >/dev/null"
            % os.path.dirname(found[-1])
        )
        self.assertEqual(out, "42\n")

    def test_debuggers_are_told_why(self):
        for program, command in (("gdb", "gdb -batch -ex run"), ("strace", "strace")):
            with self.subTest(program):
                if not shutil.which(program, path=cl.SHELL_PATH):
                    continue
                rec = cl.record("--", "sh", "-c", command + " /bin/true; true", code=0)
                said = [d["explain"] for d in rec["denials"] if d["target"] == "ptrace"]
                self.assertRegex(" ".join(said), "strace and gdb do not work")


def program_test(programs, script, expected):
    def test(self):
        for program in programs:
            self.need_program(program)
        self.assertRegex(self.sh(script), expected)

    return test


for name, programs, script, expected in PROGRAMS:
    setattr(Everyday, "test_" + name, program_test(programs, script, expected))
