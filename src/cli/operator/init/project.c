/* What a project consists of, by the files in its top directory, and the policy that suits it. */
#include "cli/operator/init/init.h"

#include <glob.h>

/* One row for each kind of file that says something. */
static const struct {
	const char *pattern;
	const char *what;
	const char *set; /* of destinations (policies/net), or NULL */
} traits[] = {
	{"package.json", "JavaScript: npm fetches packages", "npm"},
	{"pyproject.toml", "Python: pip fetches packages", "pypi"},
	{"requirements*.txt", "Python: pip fetches packages", "pypi"},
	{"setup.py", "Python: pip fetches packages", "pypi"},
	{"Cargo.toml", "Rust: cargo fetches crates", "crates"},
	{"go.mod", "Go: go fetches modules", "go"},
	{"debian/control", "a Debian package: apt fetches what it is built with", "debian"},
	{"Gemfile", "Ruby; no set of destinations is shipped for it: name its mirror below", NULL},
	{"pom.xml", "Java; no set of destinations is shipped for it: name its repository below",
	 NULL},
	{"build.gradle*",
	 "Java; no set of destinations is shipped for it: name its repository below", NULL},
	{"Makefile", "make", NULL},
	{"CMakeLists.txt", "CMake", NULL},
};

static const char package_network[] =
	"# Only what package managers need; `net: none` closes it. policies/net has the lists.\n"
	"net: allow\nallow:\n";
static const char no_network[] = "# Nothing here fetches packages. To open a destination:\n"
				 "#   net: allow\n#   allow: [example.com:443]\nnet: none\n";
static const char rest[] =
	"# Programs of your PATH outside of /usr are shown: pyenv, nvm, cargo, ~/.local/bin.\n"
	"tools: true\n\n"
	"# For all processes of one command together.\n"
	"limits:\n  memory: 4G\n  cpus: 2.0\n  pids: 1024\n  disk: 2G\n  open_files: 4096\n"
	"  timeout: 15m\n  output_limit: 8M\n\n"
	"# Files that nobody inside is to see, relative to this one: keys that lie in the "
	"project.\n"
	"forbid: []\n\nrequire: [landlock]\n";

static bool has(const char *dir, const char *pattern)
{
	auto_free char *path = str_format("%s/%s", dir, pattern);
	glob_t found;
	bool is_there = glob(path, GLOB_NOSORT, NULL, &found) == 0;

	globfree(&found);
	return is_there;
}

static bool is_new(const char *set, const char *const *sets, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (str_equal(sets[i], set))
			return false;
	return true;
}

char *project_policy_path(const char *dir, struct err *e)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	auto_free char *name = str_copy(dir + strspn(dir, "/"));

	for (char *p = name; *p; p++)
		*p = *p == '/' ? '-' : *p;
	if (!*name || strlen(name) > 200 || !str_only(name, STR_ALNUM "._-+@ ", 1, 200) ||
	    ((!config || *config != '/') && (!home || *home != '/'))) {
		err_set(e, ERR_INVALID,
			"%s: its policy cannot be named by that; write one by hand (docs/hook.md)",
			dir);
		return NULL;
	}
	return config && *config == '/'
		       ? str_format("%s/cloche/projects/%s.yaml", config, name)
		       : str_format("%s/.config/cloche/projects/%s.yaml", home, name);
}

char *project_policy(const char *dir)
{
	const char *sets[ARRAY_LEN(traits)];
	char *text = NULL, *allow = NULL;
	size_t count = 0, size;
	FILE *out = must_alloc(open_memstream(&text, &size));
	FILE *list = must_alloc(open_memstream(&allow, &size));

	fprintf(out,
		"# What commands of coding agents may do in %s; written by `cloche init`,\n"
		"# yours to change. `cloche policy explain FILE` says what a run does, in "
		"order.\n#\n",
		dir);
	for (size_t i = 0; i < ARRAY_LEN(traits); i++) {
		if (!has(dir, traits[i].pattern))
			continue;
		fprintf(out, "# %s: %s\n", traits[i].pattern, traits[i].what);
		if (!traits[i].set || !is_new(traits[i].set, sets, count))
			continue;
		sets[count++] = traits[i].set;
		fprintf(list, "  - %-8s # %s\n", traits[i].set, traits[i].what);
	}
	fclose(list);
	fputs("description: Commands of coding agents in this project\n\n", out);
	fputs(count ? package_network : no_network, out);
	fprintf(out, "%s\n%s", allow, rest);
	fclose(out);
	free(allow);
	return text;
}
