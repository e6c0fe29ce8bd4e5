/* apt and dpkg-deb of the host fetch and open packages; the rest is a build with steps of its own. */
#include "image/build/packages.h"

#include "image/build/config.h"
#include "image/build/expand.h"
#include "image/make/process.h"
#include "kern/dirents.h"

#include <fcntl.h>

#define LABEL "cloche.packages"
#define VERSIONS "cloche.versions"
#define APT "/usr/bin/apt-get"
#define DPKG_DEB "/usr/bin/dpkg-deb"

/* ---- definitions, each with its reason ---- */

static const struct {
	const char *name, *packages;
} known[] = {
	/* A shell, TLS and a way to add more. */
	{"base", "apt ca-certificates"},
	/* What scripts of agents expect: pip and virtual environments, and git to fetch code. */
	{"python", "apt ca-certificates python3 python3-pip python3-venv git"},
	{"node", "apt ca-certificates nodejs npm git"},
	/* What models use without asking: numbers, tables, plots. */
	{"code-interpreter",
	 "apt ca-certificates python3 python3-pip python3-venv python3-numpy python3-pandas "
	 "python3-matplotlib nodejs git curl"},
};

const char *image_packages_known(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (str_equal(known[i].name, name))
			return known[i].packages;
	return NULL;
}

/* ---- fetching ---- */

struct fetching {
	struct image_maker *m;
	char *path; /* of the directory for all of it, in the maker's */
	int dir;
};

static int make_places(struct fetching *f, struct err *e)
{
	static const char *const dirs[] = {"state",	    "state/lists",   "state/lists/partial",
					   "cache",	    "cache/partial", "tars",
					   "skel",	    "skel/usr",	     "skel/usr/bin",
					   "skel/usr/sbin", "skel/usr/lib",  "skel/usr/lib64",
					   "skel/tmp",	    "skel/etc",	     "skel/etc/apt",
					   "skel/var",	    "skel/var/lib",  "skel/var/lib/dpkg"};
	/* As all Debians since 2023; packages that name the old places land behind the links. */
	static const char *const merged[] = {"bin", "sbin", "lib", "lib64"};

	f->path = str_format("%s/tmp/%s/packages", f->m->store.path, f->m->tmp_name);
	if (mkdir(f->path, 0755) == 0)
		f->dir = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f->dir < 0)
		return err_sys(e, "cannot make %s", f->path);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdirat(f->dir, dirs[i], str_equal(dirs[i], "skel/tmp") ? 0777 : 0755) < 0)
			return err_sys(e, "cannot make %s/%s", f->path, dirs[i]);
	for (size_t i = 0; i < ARRAY_LEN(merged); i++) {
		auto_free char *to = str_format("usr/%s", merged[i]);
		auto_free char *link = str_format("skel/%s", merged[i]);

		if (symlinkat(to, f->dir, link) < 0)
			return err_sys(e, "cannot link %s", link);
	}
	if (image_write_file(f->dir, "empty", "", 0, e) < 0)
		return -1;
	auto_close int dpkg =
		openat(f->dir, "skel/var/lib/dpkg", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fchmodat(f->dir, "skel/tmp", 01777, 0) < 0 || dpkg < 0
		       ? err_sys(e, "cannot make %s", f->path)
		       : image_write_file(dpkg, "status", "", 0, e);
}

/* Public sources of the same release: the host's own may be private, or have logins. */
static int write_sources(struct fetching *f, struct err *e)
{
	auto_close int apt = openat(f->dir, "skel/etc/apt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_free char *text = NULL;
	char release[4096] = "", name[40] = "";
	const char *at;

	io_read_path(release, sizeof(release), "/etc/os-release");
	at = strstr(release, "VERSION_CODENAME=");
	if (!at || sscanf(at, "VERSION_CODENAME=%39[a-z]", name) != 1 ||
	    !(str_starts(release, "ID=debian\n") || strstr(release, "\nID=debian\n")))
		return 0;
	text = str_format("deb http://deb.debian.org/debian %s main\n"
			  "deb http://deb.debian.org/debian %s-updates main\n"
			  "deb http://deb.debian.org/debian-security %s-security main\n",
			  name, name, name);
	if (apt < 0 || image_write_file(apt, "sources.list", text, strlen(text), e) < 0)
		return -1;
	return fchmodat(apt, "sources.list", 0644, 0) < 0 ? err_sys(e, "cannot write sources.list")
							  : 0;
}

/* apt with the host's sources and keys, and with nothing installed. */
static int run_apt(struct fetching *f, const char *verb, const char *packages, struct err *e)
{
	static const char *const fixed[] = {APT,  "-qq",
					    "-y", "--allow-change-held-packages",
					    "-o", "APT::Install-Recommends=false",
					    "-o", "APT::Sandbox::User=root",
					    "-o", "Debug::NoLocking=1",
					    "-o", "Dir::Cache::pkgcache=",
					    "-o", "Dir::Cache::srcpkgcache=",
					    "-o", "Dir::Etc::PreferencesParts=/dev/null",
					    NULL};
	static const char *const places[][2] = {{"Dir::State", "state"},
						{"Dir::State::Lists", "state/lists"},
						{"Dir::State::status", "empty"},
						{"Dir::Cache", "cache"},
						{"Dir::Cache::archives", "cache"}};
	auto_list struct list argv = {0};
	auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	auto_free char *copy = str_copy(packages);
	char *rest = copy, *name;
	struct worker w;

	list_add_all(&argv, fixed);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		list_add(&argv, "-o");
		list_take(&argv, str_format("%s=%s/%s", places[i][0], f->path, places[i][1]));
	}
	if (str_equal(verb, "install")) {
		list_add(&argv, "--download-only");
		list_add(&argv, verb);
		list_add(&argv, "?essential");
	} else {
		list_add(&argv, verb);
	}
	while ((name = strsep(&rest, " ")))
		if (*name)
			list_add(&argv, name);
	if (null < 0 || worker_start(&w, argv.items, null, null, e) < 0)
		return -1;
	return worker_end(&w, "apt-get", e);
}

/* A package's name is a part of a command line, where "-o" would be an option. */
static int check_names(const char *packages, struct err *e)
{
	for (const char *p = packages + strspn(packages, " "); *p; p += strspn(p, " ")) {
		size_t len = strcspn(p, " ");

		if (strchr(STR_ALNUM, *p) == NULL || strspn(p, STR_ALNUM "+-.:=~") < len)
			return err_field(e, ERR_INVALID, "packages",
					 "packages: '%.*s' is no name of a package",
					 (int)(len < 60 ? len : 60), p);
		p += len;
	}
	return 0;
}

static int open_package(struct fetching *f, const char *name, struct err *e)
{
	auto_free char *from = str_format("%s/cache/%s", f->path, name);
	auto_free char *to = str_format("tars/%s.tar", name);
	auto_close int out = openat(f->dir, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char *argv[] = {DPKG_DEB, "--fsys-tarfile", from, NULL};
	struct worker w;

	if (out < 0 || null < 0)
		return err_sys(e, "cannot make %s", to);
	return worker_start(&w, argv, null, out, e) < 0 ? -1 : worker_end(&w, "dpkg-deb", e);
}

/* "name_version" of each package, with the last underscore and what follows gone; sorted. */
static int open_packages(struct fetching *f, struct list *ret, struct err *e)
{
	auto_close int cache = openat(f->dir, "cache", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_list struct list names = {0};

	if (cache < 0 || dirents_names(cache, SIZE_MAX, &names, NULL) < 0)
		return err_sys(e, "cannot list packages");
	for (size_t i = 0; i < names.count; i++) {
		const char *name = names.items[i], *end = strrchr(name, '_');

		if (!end || !str_equal(name + strlen(name) - 4, ".deb"))
			continue;
		list_take(ret, must_alloc(strndup(name, (size_t)(end - name))));
		if (open_package(f, name, e) < 0)
			return -1;
	}
	return ret->count ? 0 : err_set(e, ERR_NOT_FOUND, "apt-get fetched nothing");
}

/* ---- what it is made from ---- */

static char *join(const struct list *l)
{
	struct buf text = {0};

	for (size_t i = 0; i < l->count; i++) {
		buf_add(&text, l->items[i], strlen(l->items[i]));
		buf_add(&text, i + 1 < l->count ? " " : "", 1);
	}
	buf_add(&text, "", 1);
	return text.data;
}

/* A label of the image with this name; NULL: there is no such image, or no such label. */
static char *label_of(struct image_maker *m, const char *name, const char *label,
		      char hex[IMAGE_HEX + 1])
{
	struct build_config c = {0};
	struct image i = {.lock = -1};
	const char *value = NULL;
	struct err ignored;
	char *copy;

	if (image_find(&m->store, name, &i, &ignored) == 0 &&
	    build_config_read(m, i.hex, &c, &ignored) == 0)
		value = variables_find((const struct list *const[]){&c.label, NULL}, label,
				       strlen(label));
	if (value)
		memcpy(hex, i.hex, sizeof(i.hex));
	copy = value ? str_copy(value) : NULL;
	build_config_done(&c);
	image_done(&i);
	return copy;
}

char *image_packages_of(struct image_maker *m, const char *name, struct err *e)
{
	char hex[IMAGE_HEX + 1];
	char *packages = label_of(m, name, LABEL, hex);

	if (!packages)
		err_set(e, ERR_NOT_FOUND,
			"there is no image '%.100s' that `cloche image make` made", name);
	return packages;
}

static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p += len)
		if ((p == text || p[-1] == ' ') && (p[len] == ' ' || !p[len]))
			return true;
	return false;
}

static void tell_changes(const struct image_packages *p, const char *was, const char *is)
{
	const char *const texts[] = {was, is};

	for (int i = 0; p->changed && i < 2; i++) {
		auto_free char *copy = str_copy(texts[i]);
		char *rest = copy, *word;

		while ((word = strsep(&rest, " ")))
			if (*word && !has_word(texts[!i], word))
				p->changed(i ? '+' : '-', word);
	}
}

/* ---- all ---- */

static int build(struct fetching *f, const struct image_packages *p, const char *versions,
		 char hex[IMAGE_HEX + 1], struct err *e)
{
	/* What the scripts leave for themselves is no part of the image. */
	auto_free char *text = str_format(
		"FROM scratch\nCOPY skel /\nADD tars/*.tar /\n"
		"RUN --mount=type=bind,source=cache,target=/run/packages --network=none "
		"export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true && "
		"dpkg --force-depends --install /run/packages/*.deb && dpkg --configure -a && "
		"rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/dpkg.log\n"
		"LABEL " LABEL "=\"%s\" " VERSIONS "=\"%s\"\nCMD [\"/bin/bash\"]\n",
		p->packages, versions);
	struct image_build b = p->build;
	struct build_steps steps = {0};
	int rc;

	if (dockerfile_parse(text, strlen(text), &steps, e) < 0)
		return -1;
	b.steps = &steps;
	b.context = f->dir;
	b.name = p->name;
	rc = image_build(f->m, &b, hex, e);
	build_steps_done(&steps);
	return rc;
}

int image_from_packages(struct image_maker *m, const struct image_packages *p,
			char hex[IMAGE_HEX + 1], struct err *e)
{
	struct fetching f = {.m = m, .dir = -1};
	auto_free char *was = NULL, *is = NULL;
	auto_list struct list versions = {0};
	int rc = -1;

	if (check_names(p->packages, e) < 0)
		return -1;
	if (access(APT, X_OK) < 0 || access(DPKG_DEB, X_OK) < 0)
		return err_set(
			e, ERR_UNSUPPORTED,
			"images are made from packages of Debian's kind; apt-get and dpkg-deb "
			"are not here");
	was = label_of(m, p->name, VERSIONS, hex);
	if (make_places(&f, e) == 0 && write_sources(&f, e) == 0 &&
	    run_apt(&f, "update", "", e) == 0 && run_apt(&f, "install", p->packages, e) == 0 &&
	    open_packages(&f, &versions, e) == 0) {
		is = join(&versions);
		tell_changes(p, was ? was : "", is);
		rc = was && str_equal(was, is) ? 0 : build(&f, p, is, hex, e);
	}
	close_fd(&f.dir);
	free(f.path);
	return rc;
}
