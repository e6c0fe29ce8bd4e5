"""The manual pages name every option that the help texts name, and no other."""

import os
import re
import shutil

import cl

PAGES = ("cloche.1", "cloche-serve.8")
VERBS = (
    "run code shell ssh serve create ps exec cp ls cat rm kill stats logs pause resume snapshot fork diff import export "
    "image token secret volume agent ca audit policy doctor selftest bench mcp hook init"
).split()
NESTED = (("image", "build"), ("image", "make"), ("image", "pull"), ("image", "export"), ("image", "ls"), ("token", "create"), ("secret", "set"), ("volume", "create"), ("agent", "register"), ("agent", "run"), ("agent", "ls"), ("agent", "trust"), ("ca", "show"), ("audit", "verify"), ("audit", "tail"))
# Refused by name.
NOT_BUILT = {"--audit", "--use-case"}


def options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


@cl.unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
class Manual(cl.Case):
    def page(self, name):
        r = cl.command("mandoc", "-T", "utf8", os.path.join(cl.TOP, "man", name))
        self.assertEqual(r.code, 0, str(r))
        return re.sub(".\x08", "", r.out)

    def help(self, *verb):
        r = self.ok(*verb, "--help")
        self.assertIn("cloche " + " ".join(verb), r.out)
        return r.out

    def test_every_option_of_the_help_is_there(self):
        known = options("".join(map(self.page, PAGES)))
        for verb in [(v,) for v in VERBS] + list(NESTED):
            with self.subTest(verb=verb):
                self.assertEqual(options(self.help(*verb)) - known, set())

    def test_no_option_is_made_up(self):
        texts = [self.help(*v) for v in [(v,) for v in VERBS] + list(NESTED)]
        known = options(self.ok("help").out + "".join(texts))
        self.assertEqual(options(self.page("cloche.1")) - known - NOT_BUILT - {"--help"}, set())

    def test_every_verb_has_a_line(self):
        page = self.page("cloche.1")
        overview = self.ok("help").out
        for verb in VERBS:
            with self.subTest(verb=verb):
                self.assertRegex(page, r"\b%s\b" % verb)
                self.assertRegex(overview, r"\b%s\b" % verb)

    def test_help_of_a_verb_by_either_way(self):
        for verb in VERBS:
            with self.subTest(verb=verb):
                self.assertEqual(self.ok("help", verb).out, self.help(verb))
