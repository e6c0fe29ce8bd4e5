/* policy/paths: every forbidden place, by name. */
#include "policy/paths/forbidden.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/*
 * What is never shown, written down a second time: a place that is lost from the table of the program is
 * missed here. By name only, so that the places need not exist.
 */
static const char *const forbidden_places[] = {
	"/proc",
	"/sys",
	"/dev",
	"/boot",
	"/etc/shadow",
	"/etc/shadow-",
	"/etc/gshadow",
	"/etc/gshadow-",
	"/etc/passwd",
	"/etc/passwd-",
	"/etc/sudoers",
	"/etc/sudoers.d",
	"/etc/security",
	"/etc/ssh",
	"/etc/ssl/private",
	"/etc/letsencrypt",
	"/etc/wireguard",
	"/etc/krb5.keytab",
	"/etc/docker",
	"/etc/kubernetes",
	"/etc/cloche",
	"/run/docker.sock",
	"/run/docker",
	"/run/containerd",
	"/run/podman",
	"/run/crio",
	"/run/libvirt",
	"/run/snapd.socket",
	"/run/user",
	"/run/systemd",
	"/run/dbus",
	"/run/secrets",
	"/run/cloche",
	"/var/run",
	"/tmp/.X11-unix",
	"/tmp/.ICE-unix",
	"/var/lib/docker",
	"/var/lib/containerd",
	"/var/lib/containers",
	"/var/lib/kubelet",
	"/var/lib/cloche",
	"/var/backups",
};

/* Below each home. */
static const char *const forbidden_at_home[] = {
	".ssh",
	".aws",
	".gnupg",
	".config",
	".kube",
	".docker",
	".netrc",
	".npmrc",
	".pypirc",
	".git-credentials",
	".password-store",
	".pki",
	".mozilla",
	".thunderbird",
	".azure",
	".gcloud",
	".oci",
	".boto",
	".s3cfg",
	".terraform.d",
	".terraformrc",
	".vault-token",
	".pgpass",
	".my.cnf",
	".bash_history",
	".zsh_history",
	".python_history",
	".node_repl_history",
	".claude",
	".claude.json",
	".codex",
	".cursor",
	".gemini",
	".cargo/credentials",
	".cargo/credentials.toml",
	".gem/credentials",
	".m2/settings.xml",
	".gradle/gradle.properties",
	".local/share/keyrings",
	".local/share/kwalletd",
	".local/state/cloche",
};

static const char *const forbidden_anywhere[] = {".ssh", ".gnupg", ".aws", ".kube",
						 ".password-store"};

/* The place, what is below it and what contains it. */
static void assert_forbidden(const struct forbidden *f, const char *place)
{
	auto_free char *below = str_format("%s/below", place), *above = str_copy(place);
	auto_free char *beside = str_format("%sx", place);
	struct refusal r;

	*strrchr(above, '/') = '\0';
	if (!forbidden_judge(f, place, &r) || !forbidden_judge(f, below, &r))
		fail_msg("%s may be shown", place);
	if (*above && !str_equal(above, "/tmp") && !forbidden_judge(f, above, &r))
		fail_msg("%s may be shown, with %s", above, place);
	/* A name that only begins like it is another. */
	if (!str_starts(place, "/var/run") && !str_starts(place, "/etc/") &&
	    !str_starts(place, "/home") && forbidden_judge(f, beside, &r))
		assert_true(str_starts(beside, r.place) && beside[strlen(r.place)] == '/');
}

static void test_every_forbidden_place(void **state)
{
	static const char *const homes[] = {"/root", "/home/somebody", "/srv/mine"};
	struct sandbox_spec spec;
	struct forbidden f;
	struct refusal r;
	struct err e;

	(void)state;
	spec_init(&spec);
	setenv("HOME", "/srv/mine", 1);
	assert_int_equal(forbidden_init(&f, &spec, false, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(forbidden_places); i++)
		assert_forbidden(&f, forbidden_places[i]);
	for (size_t h = 0; h < ARRAY_LEN(homes); h++)
		for (size_t i = 0; i < ARRAY_LEN(forbidden_at_home); i++) {
			auto_free char *place = str_format("%s/%s", homes[h], forbidden_at_home[i]);

			assert_forbidden(&f, place);
		}
	for (size_t i = 0; i < ARRAY_LEN(forbidden_anywhere); i++) {
		auto_free char *place = str_format("/mnt/backup/home/x/%s", forbidden_anywhere[i]);

		if (!forbidden_judge(&f, place, &r))
			fail_msg("%s may be shown", place);
	}
	assert_false(forbidden_judge(&f, "/home/somebody/project", &r));
	assert_false(forbidden_judge(&f, "/srv/data", &r));
	forbidden_done(&f);
	spec_done(&spec);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_forbidden_place)};

	return cmocka_run_group_tests_name("forbidden", tests, NULL, NULL);
}
