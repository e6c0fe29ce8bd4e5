"""`cloche image build`: Dockerfiles of people, and of attackers."""

import json
import os
import signal
import time
import unittest

import cl
import images
import test_images
from images import directory, entry, layer, link

TOOLS = "cp mkdir rmdir mv chmod chown ln echo env grep tail head touch true test mktemp".split()


Images = test_images.Names.__bases__[0]  # with a store of its own; the suite hides it, since it has no test


class Build(Images):
    def setUp(self):
        super().setUp()
        self.mkdir("ctx")
        entries = images.shell_entries() + [link("bin/" + n, "busybox") for n in TOOLS if n not in ("env", "touch")]
        entries += [directory("etc"), directory("run"), directory("usr"), directory("usr/lib"), link("lib", "usr/lib"),
                    entry("etc/passwd", data=b"root:x:0:0::/root:/bin/sh\nweb:x:33:44::/home/web:/bin/sh\n"),
                    entry("etc/group", data=b"root:x:0:\nstaff:x:50:\n"), directory("root", mode=0o700),
                    directory("old"), entry("old/file", data=b"old"), directory("tmp", mode=0o1777)]
        self.good(self.import_tar("base:1", layer(*entries)))

    def build(self, dockerfile, *args, name="built:1", timeout=60):
        self.write("ctx/Dockerfile", dockerfile)
        return self.image("build", "-t", name, *args, self.path("ctx"), timeout=timeout)

    def built(self, dockerfile, *args, **kw):
        r = self.build(dockerfile, *args, **kw)
        return self.good(r).split()[0], r.err

    def refused(self, dockerfile, says, *args):
        before = self.listed()
        self.bad(self.build(dockerfile, *args, name="bad:1"), says)
        self.assertEqual(self.listed(), before)
        self.is_clean()

    def inside(self, script, name="built:1"):
        return self.good(self.sh(name, script, "--user", "root"))

    def context(self, **files):
        for path, text in files.items():
            path = path.replace("__", "/")
            os.makedirs(os.path.dirname(self.path("ctx", path)), exist_ok=True)
            self.write("ctx/" + path, text)

    def config(self, name="built:1"):
        return json.loads(self.good(self.image("inspect", name)))


class Steps(Build):
    def test_what_holds_in_a_run(self):
        self.built("""FROM base:1
            ENV GREETING="hello there" NAME=$GREETING
            RUN echo "$GREETING" > /made && rm /old/file && id > /who
            WORKDIR /w
            WORKDIR x
            ENTRYPOINT ["/bin/sh", "-c", "cat /made; pwd; echo $NAME; echo $0"]
            CMD ["one"]""")
        r = self.cloche("run", "--empty", "--image", "built:1")
        self.assertEqual(self.good(r), "hello there\n/w/x\n\none\n")
        self.assertEqual(self.inside("ls /old; cat /who"), "uid=0(root) gid=0(root)\n")
        self.is_clean()

    def test_what_is_kept_as_data(self):
        self.built("""FROM base:1
            LABEL a.b="c d" e=f
            EXPOSE 80 53/udp
            VOLUME /data
            STOPSIGNAL SIGINT
            SHELL ["/bin/sh", "-ec"]
            HEALTHCHECK --interval=5s --retries=2 CMD cat /x
            CMD echo hi
            ONBUILD RUN echo triggered > /trigger""")
        c = self.config()["config"]
        self.assertEqual(c["Labels"], {"a.b": "c d", "e": "f"})
        self.assertEqual(c["ExposedPorts"], {"80/tcp": {}, "53/udp": {}})
        self.assertEqual(c["Volumes"], {"/data": {}})
        self.assertEqual(c["StopSignal"], "SIGINT")
        self.assertEqual(c["Healthcheck"], {"Test": ["CMD-SHELL", "cat /x"], "Interval": 5 * 10**9, "Retries": 2})
        self.assertEqual(c["Cmd"], ["/bin/sh", "-ec", "echo hi"])
        self.built("FROM built:1\nRUN cat /trigger\nENTRYPOINT [\"/x\"]", name="child:1")
        child = self.config("child:1")["config"]
        self.assertNotIn("OnBuild", child)
        self.assertNotIn("Cmd", child)  # it was meant for no entrypoint
        self.assertEqual(child["Labels"], c["Labels"])
        self.assertEqual(self.inside("cat /trigger", "child:1"), "triggered\n")

    def test_arguments(self):
        self.built("""ARG BASE=none:1
            ARG V=global
            FROM $BASE
            ARG V
            ARG OWN=default
            ARG TARGETARCH
            RUN echo "$V $OWN $TARGETARCH" > /args
            ENV OWN=env
            RUN echo "$OWN" >> /args""", "--build-arg", "BASE=base:1", "--build-arg", "OWN=given")
        self.assertEqual(self.inside("cat /args"), "global given %s\nenv\n" % images.ARCH)

    def test_stages(self):
        _, said = self.built("""FROM base:1 AS first
            RUN echo 1 > /one
            FROM base:1 AS unneeded
            RUN false
            FROM scratch AS last
            COPY --from=first /bin /bin
            COPY --from=0 /one /one
            RUN ["/bin/cat", "/one"]
            FROM last
            RUN false""", "--target", "last")
        self.assertNotIn("unneeded", said)
        self.assertEqual(self.inside("ls /"), "bin\ndev\nhome\none\nproc\nrun\ntmp\nvar\nworkspace\n")
        self.refused("FROM base:1\nCOPY --from=1 /a /b", "no stage 1 before")
        self.refused("FROM base:1 AS a", "no stage 'b'", "--target", "b")

    def test_heredocs(self):
        self.built("""FROM base:1
ENV A=x
RUN <<EOF
echo one > /h
echo two >> /h
EOF
RUN cat <<EOF >> /h
three $A
EOF
RUN <<EOF
#!/bin/cat
by another program
EOF
COPY <<one <<'two' /docs/
$A
one
$A
two
""")
        self.assertEqual(self.inside("cat /h /docs/one /docs/two; ls /run"), "one\ntwo\nthree x\nx\n$A\n")

    def test_users(self):
        self.built("""FROM base:1
            RUN mkdir -p /home/web && chown 33:44 /home/web
            USER web
            RUN id > /tmp/id; echo $HOME >> /tmp/id; echo x > /no || echo refused >> /tmp/id; echo x > $HOME/own""")
        got = self.inside("cat /home/web/own; stat -c '%u:%g' /home/web/own; ls /no 2>/dev/null; true")
        if cl.ROOT:
            self.assertIn("x\n33:44\n", got)
        self.assertEqual(self.config()["config"]["User"], "web")
        self.refused("FROM base:1\nUSER nobody-here\nRUN true", "no user 'nobody-here'")

    @unittest.skipUnless(cl.ROOT, cl.ONLY_ROOT + "ids")
    def test_a_user_of_the_image_has_no_rights(self):
        _, said = self.built("""FROM base:1
            USER web
            RUN id >&2; grep Cap /proc/self/status >&2; echo x > /etc/no || echo refused >&2
            RUN cat /root/x 2>&1 | grep -q denied && echo refused too >&2""")
        self.assertIn("uid=33(web) gid=44", said)
        for row in ("CapEff", "CapPrm", "CapAmb"):
            self.assertIn(row + ":\t0000000000000000", said)
        self.assertIn("refused\n", said)
        self.assertIn("refused too", said)

    def test_seed_of_an_agents_sandbox(self):
        """The steps of a Dockerfile as a framework of agents has it; the programs are stand-ins."""
        self.built("""FROM base:1
            RUN echo "agent:x:1000:1000::/home/agent:/bin/sh" >> /etc/passwd && mkdir -p /home/agent \\
                && chown 1000:1000 /home/agent
            USER agent
            WORKDIR /workspace
            RUN mkdir -p $HOME/.local/bin && \\
                echo '#!/bin/sh' > $HOME/.local/bin/tool && echo 'echo tool runs' >> $HOME/.local/bin/tool && \\
                chmod 755 $HOME/.local/bin/tool
            ENV PATH="/home/agent/.local/bin:${PATH}"
            CMD ["sh", "/workspace/code"]""")
        self.write("code", "tool; pwd")
        r = self.cloche("run", "--empty", "--image", "built:1", "--file", "code=" + self.path("code"))
        self.assertEqual(self.good(r), "tool runs\n/workspace\n")


class Copying(Build):
    def test_places(self):
        self.context(a="a", dir__b="b", dir__deep__c="c", **{"x.txt": "x", "y.txt": "y"})
        os.chmod(self.path("ctx/a"), 0o751)
        self.built("""FROM base:1
            COPY a /one
            COPY a /into/
            COPY a dir /two/
            COPY *.txt /txt/
            WORKDIR /w
            COPY dir .
            COPY ["a", "with blank"]
            COPY --chmod=600 a /mode
            COPY dir /lib/links
            COPY . /all""")
        got = self.inside("cat /one /into/a /two/a /two/b /two/deep/c /txt/x.txt /txt/y.txt /w/b '/w/with blank' "
                          "/usr/lib/links/b; stat -c %a /one /mode; ls /all; ls -l /")
        self.assertTrue(got.startswith("aaabcxybab751\n600\nDockerfile\na\ndir\nx.txt\ny.txt\n"), got)
        self.assertIn("lib -> usr/lib", got)

    @unittest.skipUnless(cl.ROOT, cl.ONLY_ROOT + "ids")
    def test_owners(self):
        self.context(a="a", d__b="b")
        self.built("""FROM base:1
            RUN mkdir /kept && chown 7:8 /kept && chmod 700 /kept
            COPY a /kept/
            COPY --chown=web:staff d /d
            COPY --chown=5 a /five
            COPY --from=base:1 --chown=web /old /web""")
        self.assertEqual(
            self.inside("stat -c '%n %u:%g %a' /kept /kept/a /d /d/b /five /web/file"),
            "/kept 7:8 700\n/kept/a 0:0 644\n/d 33:50 755\n/d/b 33:50 644\n/five 5:5 644\n/web/file 33:33 644\n")
        self.refused("FROM base:1\nCOPY --chown=nobody a /a", "no user 'nobody'")

    def test_ignored(self):
        ignore = "# not these\n*.md\n!README.md\n**/secret\n/.git\nsub/deep\n!sub/deep/keep\n"
        self.context(**{"keep": "", "a.md": "", "README.md": "", "sub/b.md": "", "sub/secret": "", "sub/deep/keep": "",
                        "sub/deep/not": "", ".git/config": "", ".dockerignore": ignore})
        self.built("FROM base:1\nCOPY . /all/")
        found = sorted(self.inside("cd /all && find . -type f").split())
        self.assertEqual(found, ["./.dockerignore", "./Dockerfile", "./README.md", "./keep", "./sub/b.md", "./sub/deep/keep"])
        self.refused("FROM base:1\nCOPY a.md /", "left out by .dockerignore")

    def test_archives(self):
        data = layer(directory("d"), entry("d/f", data=b"inside", uid=5, gid=6), link("l", "/etc/passwd"), entry(".wh.x"))
        with open(self.path("ctx/a.tar"), "wb") as f:
            f.write(data)
        with open(self.path("ctx/a.tgz"), "wb") as f:
            f.write(images.compress(data, "gzip"))
        self.built("FROM base:1\nADD a.tar /tar\nADD a.tgz /tgz/\nCOPY a.tar /plain\nADD Dockerfile /df")
        self.assertEqual(self.inside("cat /tar/d/f /tgz/d/f; ls -a /tar; test -f /plain && echo file"),
                         "insideinside.\n..\nd\nl\nfile\n")
        self.refused("FROM base:1\nADD https://example.com/x /x", "ADD takes no address")

    def test_layers_hide_and_replace(self):
        self.context(f="new", old__other="other")
        self.built("""FROM base:1
            RUN rm -r /old && mkdir /old && echo 2 > /old/second
            COPY old /old/
            RUN rm /old/second
            COPY f /old/file""")
        self.assertEqual(self.inside("ls /old; cat /old/file"), "file\nother\nnew")
        self.good(self.image("export", "--dir", "built:1", self.path("out")))
        self.good(self.image("rm", "built:1"))
        self.good(self.image("prune"))
        self.good(self.image("import", self.path("out"), "again:1"))
        self.assertEqual(self.inside("ls /old", "again:1"), "file\nother\n")


class Caching(Build):
    def rows(self, said):
        return [line.split("as before: ")[1].split()[0] for line in said.splitlines() if "as before" in line]

    def test_by_content(self):
        self.context(a="1")
        text = "FROM base:1\nRUN echo $RANDOM > /r\nCOPY a /a\nRUN cat /a\nENV X=1\nWORKDIR /x"
        first, said = self.built(text)
        self.assertEqual(self.rows(said), [])
        os.utime(self.path("ctx/a"), (1, 1))
        second, said = self.built(text)
        self.assertEqual(self.rows(said), ["RUN", "COPY", "RUN", "WORKDIR"])
        self.assertEqual(first, second)
        self.context(a="2")
        third, said = self.built(text)
        self.assertEqual(self.rows(said), ["RUN"])
        self.assertNotEqual(third, first)
        _, said = self.built(text, "--no-cache")
        self.assertEqual(self.rows(said), [])

    def test_what_a_command_depends_on(self):
        text = "FROM base:1\nARG A\nENV B=%s\nUSER %s\nRUN echo x >> /tmp/x"
        self.built(text % (1, "0"))
        for change in ((1, "0"), (2, "0"), (1, "33")):
            _, said = self.built(text % change)
            self.assertEqual(self.rows(said), ["RUN"] if change == (1, "0") else [], change)
        _, said = self.built(text % (1, "0"), "--build-arg", "A=z")
        self.assertEqual(self.rows(said), [])

    def test_prune(self):
        text = "FROM base:1\nRUN echo x > /x"
        self.built(text)
        self.good(self.image("rm", "built:1"))
        _, said = self.built(text)
        self.assertEqual(self.rows(said), ["RUN"])
        self.good(self.image("rm", "built:1"))
        self.good(self.image("prune"))
        self.assertEqual(len(self.layers()), 1)
        _, said = self.built(text)
        self.assertEqual(self.rows(said), [])


class Mounts(Build):
    def test_caches(self):
        text = ("FROM base:1\nRUN --mount=type=cache,target=/var/cache/x,mode=0700 echo %s >> /var/cache/x/y"
                " && cat /var/cache/x/y > /seen && stat -c %%a /var/cache/x >> /seen")
        self.built(text % 1)
        self.built(text % 2)
        self.assertEqual(self.inside("cat /seen; ls -A /var/cache/x 2>/dev/null; true"), "1\n2\n700\n")
        # Another id is another cache.
        self.built("FROM base:1\nRUN --mount=type=cache,id=z,target=/var/cache/x ls -A /var/cache/x > /seen")
        self.assertEqual(self.inside("cat /seen"), "")

    def test_a_cache_of_somebody_else(self):
        """What is in a cache is a snapshot that nobody changes meanwhile, and a link in it leads nowhere else
        (CVE-2024-23651)."""
        self.built("FROM base:1\nRUN --mount=type=cache,id=c,target=/c ln -s /etc /c/etc && ln -s ../../../../.. /c/up")
        self.refused("FROM base:1\nRUN --mount=type=cache,id=c,target=/c,source=etc true", "no source here")
        _, said = self.built("FROM base:1\nRUN --mount=type=cache,id=c,target=/c ls /c >&2; echo x > /c/etc/new; cat /etc/new >&2")
        self.assertIn("etc\nup\nx\n", said)
        self.assertFalse(os.path.exists("/etc/new"))

    def test_binds_and_tmpfs(self):
        self.context(d__f="f")
        self.built("""FROM base:1 AS one
            RUN mkdir /out && echo made > /out/made
            FROM base:1
            RUN --mount=type=bind,source=d,target=/src --mount=from=one,source=/out,target=/one \\
                --mount=type=tmpfs,target=/old cat /src/f /one/made > /seen; ls /old >> /seen; echo x > /src/x; echo x > /old/x
            """)
        self.assertEqual(self.inside("cat /seen; ls -d /src/* /one/* 2>/dev/null; ls /old"), "fmade\nfile\n")
        # What is shown counts for the cache.
        self.context(d__f="g")
        self.built("FROM base:1\nRUN --mount=source=d,target=/src cat /src/f > /seen")
        self.assertEqual(self.inside("cat /seen"), "g")

    def test_secrets(self):
        self.write("token", "s3cret-of-the-caller")
        text = ("FROM base:1\nRUN --mount=type=secret,id=t,required test $(cat /run/secrets/t) = s3cret-of-the-caller"
                " && stat -c %a /run/secrets/t >&2")
        given = ("--secret", "id=t,src=" + self.path("token"))
        _, said = self.built(text.replace("s3cret-of-the-caller", "$(cat /run/secrets/t)"), *given)
        self.assertIn("400\n", said)
        self.assertEqual(self.inside("ls /run/secrets 2>/dev/null; true"), "")
        for root, _, names in os.walk(self.store):
            for name in names:
                path = os.path.join(root, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as f:
                        self.assertNotIn(b"s3cret-of-the-caller", f.read(), path)
        self.built(text, *given)
        self.refused(text + " ", "the secret 't' was not given")

    def test_refused(self):
        for mount, says in (("type=ssh", "type=ssh"), ("type=cache", "needs a target"), ("type=bind,target=/x,from=9", "no stage 9"),
                            ("type=tmpfs,target=x", "not absolute"), ("type=tmpfs,target=/", "is the root"),
                            ("type=bind,target=/x,source=../..", "leads out"), ("type=bind,target=/x,foo=1", "no foo here")):
            self.refused("FROM base:1\nRUN --mount=%s true" % mount, says)
        self.refused("FROM base:1\nRUN --network=host true", "--network=host")


class Hostile(Build):
    def test_the_context(self):
        """Nothing of the host is copied, whatever links the context has."""
        self.write("secret", "of the host")
        self.context(ok="")
        for name, to in (("abs", self.path("secret")), ("up", "../secret"), ("dir", ".."), ("fd", "/proc/self/fd"), ("in", "ok")):
            os.symlink(to, self.path("ctx", name))
        for source in ("abs", "up", "dir/secret", "../secret", "a/../../secret", "fd/0"):
            self.refused("FROM base:1\nCOPY %s /x" % source, "leads out of the context")
            self.refused("FROM base:1\nADD %s /x" % source, "leads out of the context")
            self.refused("FROM base:1\nRUN --mount=target=/x,source=%s true" % source, "leads out of the context")
        self.built("FROM base:1\nCOPY in /in\nCOPY . /all")
        self.assertEqual(self.inside("test -f /in && ls -l /all | grep -c -- '->'"), "5\n")
        os.remove(self.path("ctx/Dockerfile"))
        os.symlink(self.path("secret"), self.path("ctx/Dockerfile"))
        self.bad(self.image("build", self.path("ctx")), "cannot open the context's Dockerfile")
        os.symlink(self.path("secret"), self.path("ctx/.dockerignore"))
        self.write("df", "FROM base:1\nCOPY ok /\n")
        self.bad(self.image("build", "-f", self.path("df"), self.path("ctx")), "cannot open .dockerignore")

    def test_links_of_a_stage(self):
        """COPY --from follows links within the stage, never on the host."""
        self.write("secret", "of the host")
        secret = self.path("secret")
        stage = ("FROM base:1 AS evil\nRUN ln -s %s /abs && ln -s /../../../..%s /up && ln -s /proc/1/root/etc /proc-root"
                 " && ln -s /old /inside\nFROM base:1\nCOPY --from=evil %%s /got" % (secret, secret))
        self.built(stage % "/inside/file")
        self.assertEqual(self.inside("cat /got"), "old")
        for path, says in (("/abs", "is not there"), ("/up", "is not there"), ("/proc-root/passwd", "is not there"),
                           ("/../../../etc/shadow", "leads out")):
            self.refused(stage % path, says)

    def test_targets(self):
        """Where COPY and WORKDIR write is the image, whatever its links say (CVE-2024-21626 and the like)."""
        self.context(f="f")
        away = self.path("ctx")
        self.refused("FROM base:1\nWORKDIR /proc/self/fd/7", "the sandbox's own")
        self.refused("FROM base:1\nCOPY f /proc/self/fd/7/f", "the sandbox's own")
        self.refused("FROM base:1\nCOPY f /dev/shm/f", "the sandbox's own")
        self.refused("FROM base:1\nRUN ln -s /proc/self/fd /l\nWORKDIR /l/7", "a link to nowhere")
        self.refused("FROM base:1\nRUN ln -s /proc/self/fd /l\nCOPY f /l/7/", "a link to nowhere")
        self.refused("FROM base:1\nRUN ln -s %s /l\nCOPY f /l/" % away, "a link to nowhere")
        self.refused("FROM base:1\nCOPY f /old/file/x", "through a file")
        self.refused("FROM base:1\nCOPY f /old/../../..%s/made\nRUN false" % away, "exit status 1")
        self.assertFalse(os.path.exists(away + "/made"))

    def test_a_base_that_works_elsewhere(self):
        """The configuration of a base is a stranger's."""
        run = {"WorkingDir": "/proc/self/fd/500", "User": "0", "Env": ["A=b\n--net", "=x"]}
        images.Layout(self.mkdir("evil"), [test_images.shell()], run=run)
        self.good(self.image("import", self.path("evil"), "evil:1"))
        r = self.build("FROM evil:1\nRUN true")
        self.assertEqual(r.code, 125, str(r))
        self.assertIn("cannot enter /proc/self/fd/500", r.err)

    def test_what_a_command_leaves(self):
        """A layer has no device, no set-id bit that works, and only what the command could write."""
        self.built("""FROM base:1
            RUN cp /bin/busybox /suid && chmod 6755 /suid; /bin/busybox mknod /null c 1 3; \\
                /bin/busybox mkfifo /fifo; echo x > /dev/shm/x; echo x > /proc/x; true""")
        self.assertEqual(self.inside("ls -A /proc/x /dev/shm/x 2>/dev/null; test -p /fifo && echo fifo"), "fifo\n")
        for root, _, names in os.walk(os.path.join(self.store, "layers")):
            for name in names:
                path = os.path.join(root, name)
                self.assertFalse(os.lstat(path).st_mode & 0o6000 and not os.path.isdir(path), name)

    def test_limits_hold(self):
        self.refused("FROM base:1\nRUN /bin/busybox dd if=/dev/zero of=/big bs=1M count=200", "exit status",
                     "--disk", "64M", "--memory", "128M")
        self.refused("FROM base:1\nRUN sleep 60", "exit status", "--timeout", "1")

    def test_no_network_unless_allowed(self):
        self.refused("FROM base:1\nRUN false", "it had no network; --net and --allow give it one")
        r = self.build("FROM base:1\nRUN cat /proc/net/dev >&2; false")
        self.assertNotIn("eth", r.err)

    def test_platforms_and_frontends(self):
        self.refused("# syntax=evil/front\nFROM base:1", "is another program")
        self.refused("FROM --platform=linux/s390x base:1", "is not this machine's")
        self.refused("FROM base:1\nMAINTAINER me", "MAINTAINER is no instruction")
        self.refused("RUN true", "the first instruction is FROM")
        self.refused("FROM scratch\nRUN true", "nothing to run")
        self.refused("FROM scratch", "layers")


class Making(Build):
    """What takes minutes is in tests/soak/image_make.py."""

    def test_names(self):
        self.bad(self.image("make", "mine:1"), "say which, or take a name that is known: base, python")
        for packages in ("-o=Dir::Bin=x", "a;b", "a -y", "/etc/x.deb", "a\nb", "?essential"):
            self.bad(self.image("make", "mine:1", "--packages", packages), "is no name of a package")
        self.bad(self.image("refresh", "base:1"), "there is no image 'base:1' that `cloche image make` made")
        self.is_clean()


class Ending(Build):
    def test_a_failure_leaves_nothing(self):
        self.refused("FROM base:1\nRUN echo 1 > /one\nRUN echo said; cat /not-there", "line 3: RUN echo said")
        r = self.build("FROM base:1\nRUN echo out; echo err >&2; exit 7")
        self.assertIn("exit status 7", r.err)
        self.assertIn("out\nerr\n", r.err)

    def test_killed(self):
        """At any moment: nothing but a directory in tmp, which the next command removes."""
        self.context(a="1")
        self.write("ctx/Dockerfile", "FROM base:1\nCOPY a /a\nRUN --mount=type=cache,target=/c echo x >> /c/x; sleep 0.2; "
                   "echo y > /y\nCOPY a /b\n")
        for n in range(12):
            p = cl.start("image", "build", "--no-cache", "-t", "killed:1", self.path("ctx"), env=self.env)
            time.sleep(0.04 * n)
            p.send_signal(signal.SIGKILL)
            cl.finish(p)
        for name in self.listed():
            self.good(self.sh(name, "true"))
        self.built("FROM base:1\nCOPY a /a\nRUN cat /a")
        self.is_clean()
        self.good(self.image("rm", "built:1"))
        self.good(self.image("prune"))

    def test_json(self):
        self.write("ctx/Dockerfile", "FROM base:1\nRUN echo said\n")
        out = self.good(self.image("build", "--json", "-t", "j:1", self.path("ctx")))
        rows = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([r["event"] for r in rows], ["step", "step", "output", "built"])
        self.assertEqual(rows[2]["text"], "said\n")
        self.assertEqual(rows[1], {"event": "step", "number": 2, "of": 2, "step": "RUN echo said"})
        self.assertEqual(rows[3]["name"], "j:1")

    def test_dockerfile_from_stdin(self):
        r = self.image("build", "-f", "-", self.path("ctx"), input="FROM base:1\nRUN true\n")
        self.assertRegex(self.good(r), r"^sha256:[0-9a-f]{64}\n$")


del Images, Build
