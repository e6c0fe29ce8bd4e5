/* net/rule, net/rules, net/decide: text to rows, checks of rows, and decisions. */
#include "net/rule.h"
#include "net/rules.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* "MODE RULE; RULE; ...": "-" in front of a rule denies. A second stage follows after "|". */
static struct net_index *make(const char *text)
{
	struct net_policy_maker *m = net_policy_new();
	auto_free char *copy = str_copy(text);
	auto_buf struct buf bytes = {0};
	struct net_index *x;
	struct err e = {0};
	char *save_stage = NULL;
	bool first = true;

	for (char *stage = strtok_r(copy, "|", &save_stage); stage;
	     stage = strtok_r(NULL, "|", &save_stage), first = false) {
		static const char *const modes[] = {"none", "allow", "public", "isolated"};
		bool last = !strchr(text, '|') || !first;
		char *save = NULL, *mode, *rule;

		mode = strtok_r(stage, ";", &save);
		mode += strspn(mode, " ");
		mode[strcspn(mode, " ")] = '\0';
		for (int i = 0; i < 4; i++)
			if (str_equal(mode, modes[i]))
				net_policy_stage(m, i, last ? NET_BY_REQUEST : NET_BY_OPERATOR);
		while ((rule = strtok_r(NULL, ";", &save))) {
			bool deny;

			rule += strspn(rule, " ");
			for (size_t end = strlen(rule); end && rule[end - 1] == ' ';)
				rule[--end] = '\0';
			deny = rule[0] == '-';
			if (net_policy_add(m, deny ? NET_RULE_DENY : NET_RULE_ALLOW, rule + deny,
					   &e) < 0)
				fail_msg("%s: %s", rule, e.msg);
		}
	}
	if (net_policy_write(m, &bytes, &e) < 0)
		fail_msg("%s: %s", text, e.msg);
	x = net_index_new(buf_head(&bytes), bytes.len, &e);
	assert_non_null(x);
	net_policy_free(m);
	return x;
}

/* "[udp ][METHOD ]NAME:PORT[/PATH][ ADDRESS][ own][ peer]"; an address alone: it was dialled. Port 0: a look-up. */
struct asked {
	struct net_question q;
	char name[NET_NAME], path[256];
	struct network address;
};

static void ask(const char *text, struct asked *a)
{
	auto_free char *copy = str_copy(text);
	char *save = NULL, *word;
	struct err e = {0};

	*a = (struct asked){0};
	for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *slash = strchr(word, '/'), *colon;

		if (str_equal(word, "udp"))
			a->q.udp = true;
		else if (str_equal(word, "own"))
			a->q.own = true;
		else if (str_equal(word, "peer"))
			a->q.peer = true;
		else if (net_method_find(word, strlen(word)) != NET_OTHER_METHOD)
			a->q.method = net_method_find(word, strlen(word));
		else if (!a->q.port && (colon = strrchr(word, ':'))) {
			int is;

			if (slash) {
				snprintf(a->path, sizeof(a->path), "%s", slash);
				a->q.path = a->path;
			}
			a->q.port = (uint16_t)atoi(colon + 1);
			is = net_host(word, (size_t)(colon - word), a->name, &a->address, &e);
			assert_true(is > 0);
			if (is == NET_IS_NAME)
				a->q.name = a->name;
			else
				a->q.address = a->address.address;
		} else {
			char unused[NET_NAME];

			assert_int_equal(net_host(word, strlen(word), unused, &a->address, &e),
					 NET_IS_ADDRESS);
			a->q.address = a->address.address;
		}
	}
}

static bool decide(const struct net_index *x, const char *text, struct net_answer *ret)
{
	struct asked a;

	ask(text, &a);
	net_decide(x, &a.q, ret);
	assert_true(ret->allowed ? !ret->why[0] && !ret->remedy[0] : ret->why[0] != '\0');
	return ret->allowed;
}

#define YES true
#define NO false
struct row {
	const char *policy, *question;
	bool allowed;
};

static void check_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct net_index *x = make(rows[i].policy);
		struct net_answer a;

		if (decide(x, rows[i].question, &a) != rows[i].allowed)
			fail_msg("%s ? %s: %s %s", rows[i].policy, rows[i].question,
				 a.allowed ? "allowed by" : a.why, a.rule);
		net_index_free(x);
	}
}

static void test_names(void **state)
{
	static const struct row rows[] = {
		{"none", "a.com:443", NO},
		{"none; a.com", "a.com:443", NO},
		{"allow", "a.com:443", NO},
		{"allow", "8.8.8.8:53", NO},
		{"allow; a.com", "a.com:443", YES},
		{"allow; a.com", "a.com:22", YES},
		{"allow; A.COM.", "a.com:443", YES},
		{"allow; a.com", "A.com.:443", YES},
		{"allow; a.com:443", "a.com:80", NO},
		{"allow; a.com:8000-8099", "a.com:8000", YES},
		{"allow; a.com:8000-8099", "a.com:8099", YES},
		{"allow; a.com:8000-8099", "a.com:8100", NO},
		{"allow; a.com", "udp a.com:443", NO},
		{"allow; a.com", "x.a.com:443", NO},
		{"allow; a.com", "8.8.8.8:443", NO},
		/* case 46: what ends or begins like an allowed name */
		{"allow; allowed.com", "allowed.com.evil.com:443", NO},
		{"allow; *.allowed.com", "evilallowed.com:443", NO},
		{"allow; *.allowed.com", "allowed.com:443", NO},
		{"allow; *.allowed.com", "x.allowed.com:443", YES},
		{"allow; *.allowed.com", "x.y.allowed.com:443", YES},
		{"allow; *.allowed.com", "x.allowed.com.evil.com:443", NO},
		{"allow; *.allowed.com:443", "x.allowed.com:80", NO},
		/* the same name, as letters and as xn-- */
		{"allow; b\xc3\xbc"
		 "cher.de",
		 "xn--bcher-kva.de:443", YES},
		{"allow; xn--bcher-kva.de",
		 "B\xc3\x9c"
		 "CHER.de:443",
		 YES},
		/* look-ups: any port will do */
		{"allow; a.com:443", "a.com:0", YES},
		{"allow; udp://a.com:123", "a.com:0", YES},
		{"allow; a.com:443", "b.com:0", NO},
		{"allow; a.com:443 GET", "a.com:0", YES},
		{"allow; a.com; -a.com", "a.com:0", NO},
		{"allow; a.com; -a.com:25", "a.com:0", YES},
		{"public", "a.com:0", YES},
		{"public; -*.a.com", "x.a.com:0", NO},
		/* deny wins, however exact the other is */
		{"allow; x.a.com:443; -*.a.com", "x.a.com:443", NO},
		{"allow; -x.a.com; *.a.com", "x.a.com:443", NO},
		{"allow; -x.a.com; *.a.com", "y.a.com:443", YES},
		{"allow; a.com; -a.com:25", "a.com:25", NO},
		{"allow; a.com; -*", "a.com:443", NO},
		{"allow; *", "a.com:443", YES},
		{"allow; *:443", "a.com:80", NO},
		/* UDP */
		{"allow; udp://a.com:123", "udp a.com:123", YES},
		{"allow; udp://a.com:123", "a.com:123", NO},
		{"allow; udp://a.com:123", "udp a.com:124", NO},
		{"allow; udp://a.com:123; -a.com", "udp a.com:123", NO},
		{"allow; udp://a.com:123; -udp://a.com:123", "udp a.com:123", NO},
		{"allow; a.com; -udp://a.com:443", "a.com:443", YES},
		/* sets */
		{"allow; @pypi", "pypi.org:443", YES},
		{"allow; pypi", "files.pythonhosted.org:443", YES},
		{"allow; @pypi", "pypi.org:80", NO},
		{"allow; @pypi", "evil.org:443", NO},
	};

	check_rows(rows, ARRAY_LEN(rows));
}

static void test_addresses(void **state)
{
	static const struct row rows[] = {
		{"allow; 10.0.0.0/8:5432", "10.1.2.3:5432", YES},
		{"allow; 10.0.0.0/8:5432", "10.1.2.3:5433", NO},
		{"allow; 10.0.0.0/8:5432", "11.1.2.3:5432", NO},
		{"allow; 8.8.8.8", "8.8.8.8:443", YES},
		{"allow; 8.8.8.8", "8.8.8.9:443", NO},
		{"allow; 8.8.8.8", "[::ffff:8.8.8.8]:443", YES},
		{"allow; [2606:4700::/32]:443", "[2606:4700::1]:443", YES},
		{"allow; 2606:4700::/32", "[2606:4701::1]:443", NO},
		{"allow; *", "8.8.8.8:443", YES},
		{"allow; *", "10.0.0.1:443", NO},
		{"public", "8.8.8.8:443", YES},
		{"public; -8.8.0.0/16", "8.8.8.8:443", NO},
		{"public; -8.8.0.0/16", "a.com:443 8.8.8.8", NO},
		{"public", "a.com:443 8.8.4.4", YES},
		/* not public: only what is named */
		{"public", "127.0.0.1:80", NO},
		{"public", "10.0.0.1:80", NO},
		{"public", "100.64.0.1:80", NO},
		{"public", "169.254.169.254:80", NO},
		{"public", "224.0.0.1:80", NO},
		{"public", "0.0.0.0:80", NO},
		{"public", "[::1]:80", NO},
		{"public", "[fd00::1]:80", NO},
		{"public", "[fe80::1]:80", NO},
		{"public", "[64:ff9b::a00:1]:80", NO},
		{"public", "[2002:a00:1::1]:80", NO},
		{"public", "8.8.8.8:80 own", NO},
		{"public; 10.0.0.0/8:80", "10.0.0.1:80", YES},
		{"public; 169.254.169.254:80", "169.254.169.254:80", YES},
		{"public; 64:ff9b::a00:1", "[64:ff9b::a00:1]:80", YES},
		/* a network that is about more than such addresses does not name them */
		{"allow; 0.0.0.0/0", "8.8.8.8:80", YES},
		{"allow; 0.0.0.0/0", "10.0.0.1:80", NO},
		{"allow; 8.0.0.0/5", "10.0.0.1:80", NO},
		{"allow; 0.0.0.0/0", "169.254.169.254:80", NO},
		{"allow; ::/0", "[fd00::1]:80", NO},
		{"allow; ::/0", "[2606:4700::1]:80", YES},
		{"allow; ::/0", "8.8.8.8:80", NO},
		{"allow; *; -::/0", "8.8.8.8:80", YES},
		{"allow; *; -::/0", "[2606:4700::1]:80", NO},
		{"allow; 10.0.0.0/8; -0.0.0.0/0", "10.0.0.1:80", NO},
		/* names that lead to such addresses */
		{"allow; a.com", "a.com:80 8.8.8.8", YES},
		{"allow; a.com", "a.com:80 10.0.0.1", NO},
		{"allow; a.com", "a.com:80 127.0.0.1", NO},
		{"allow; a.com", "a.com:80 169.254.169.254", NO},
		{"allow; a.com", "a.com:80 8.8.8.8 own", NO},
		{"public", "a.com:80 10.0.0.1", NO},
		{"allow; a.com; 10.0.0.0/8:80", "a.com:80 10.0.0.1", YES},
		{"allow; a.com; 10.0.0.0/8:81", "a.com:80 10.0.0.1", NO},
		{"allow; 10.0.0.0/8:80", "a.com:80 10.0.0.1", NO},
		{"allow; a.com; *", "a.com:80 10.0.0.1", NO},
		{"allow; a.com; 8.8.8.8", "a.com:80 8.8.8.8 own", YES},
		{"allow; a.com; 8.8.8.0/24", "a.com:80 8.8.8.8 own", NO},
		{"allow; a.com; 10.0.0.0/8", "a.com:80 10.0.0.1 own", NO},
		/* localhost */
		{"allow; localhost:5432", "localhost:5432", YES},
		{"allow; localhost:5432", "localhost:5432 127.0.0.1", YES},
		{"allow; localhost:5432", "127.0.0.1:5432", YES},
		{"allow; localhost:5432", "[::1]:5432", YES},
		{"allow; localhost:5432", "10.0.0.1:5432 own", YES},
		{"allow; localhost:5432", "10.0.0.1:5432", NO},
		{"allow; localhost:5432", "127.0.0.1:5433", NO},
		{"allow; localhost:5432", "localhost:22", NO},
		{"allow; localhost:5432; db.corp:5432", "db.corp:5432 127.0.0.1", YES},
		{"allow; localhost:5432", "8.8.8.8:5432", NO},
		{"allow; localhost:5432", "a.com:5432", NO},
		{"allow; *", "localhost:80", NO},
		{"public", "localhost:80", NO},
		{"public", "x.localhost:80", NO},
		{"public; localhost:80; -localhost:80", "localhost:80", NO},
		{"public; -localhost:80", "8.8.8.8:80", YES},
	};

	check_rows(rows, ARRAY_LEN(rows));
}

static void test_stages(void **state)
{
	static const struct row rows[] = {
		{"public | allow; a.com", "a.com:443", YES},
		{"public | allow; a.com", "b.com:443", NO},
		{"allow; a.com | public", "a.com:443", YES},
		{"allow; a.com | public", "b.com:443", NO},
		{"allow; *.a.com:443 | allow; x.a.com", "x.a.com:443", YES},
		{"allow; *.a.com:443 | allow; x.a.com", "x.a.com:80", NO},
		{"public; -a.com | allow; a.com", "a.com:443", NO},
		{"none | public", "a.com:443", NO},
		{"public | none", "a.com:443", NO},
		/* each stage must name a private network */
		{"public | public; 10.0.0.0/8", "10.0.0.1:80", NO},
		{"public; 10.0.0.0/8 | public; 10.1.0.0/16", "10.1.0.1:80", YES},
		{"public; 10.0.0.0/8 | public; 10.1.0.0/16", "10.2.0.1:80", NO},
		{"public | allow; localhost:80", "127.0.0.1:80", NO},
		{"public | allow; udp://a.com:123", "udp a.com:123", YES},
		{"allow; a.com | allow; udp://a.com:123", "udp a.com:123", NO},
		/* sandboxes of a segment */
		{"isolated", "a.com:443", NO},
		{"isolated; a.com", "a.com:443", NO},
		{"isolated; a.com", "8.8.8.8:443", NO},
		{"isolated", "web:80 peer", YES},
		{"isolated; web:80", "web:80 peer", YES},
		{"isolated; web:80", "web:81 peer", NO},
		{"isolated; *:80", "web:80 peer", YES},
		{"isolated; -web", "web:80 peer", NO},
		{"public", "web:80 peer", NO},
		{"public | isolated", "web:80 peer", YES},
		{"allow; a.com | isolated", "web:80 peer", YES},
		{"allow; a.com | isolated", "a.com:80", NO},
		{"none | isolated", "web:80 peer", NO},
	};

	check_rows(rows, ARRAY_LEN(rows));
}

static void test_requests(void **state)
{
	static const struct row rows[] = {
		{"allow; a.com GET,HEAD", "a.com:443", YES},
		{"allow; a.com GET,HEAD", "GET a.com:443/", YES},
		{"allow; a.com GET,HEAD", "POST a.com:443/", NO},
		{"allow; a.com GET; a.com POST /up", "POST a.com:443/up", YES},
		{"allow; a.com GET; a.com POST /up", "POST a.com:443/up/x?y", YES},
		{"allow; a.com GET; a.com POST /up", "POST a.com:443/upper", NO},
		{"allow; a.com /v1", "GET a.com:443/v1", YES},
		{"allow; a.com /v1", "GET a.com:443/v1?x=/../", YES},
		{"allow; a.com /v1", "GET a.com:443/v1/../admin", NO},
		{"allow; a.com /v1", "GET a.com:443/v1/..;x/admin", NO},
		{"allow; a.com /v1", "GET a.com:443/v1/%2e%2e/admin", NO},
		{"allow; a.com /v1", "GET a.com:443/v1/%2E%2e/admin", NO},
		{"allow; a.com /v1", "GET a.com:443/v1%2f..%2fadmin", NO},
		{"allow; a.com /v1", "GET a.com:443/v1%2fx", NO},
		{"allow; a.com /v1", "GET a.com:443/v1/%252e%252e/admin", NO},
		{"allow; a.com /v1", "GET a.com:443/v1\\..\\admin", NO},
		{"allow; a.com /v1", "GET a.com:443//v1", NO},
		{"allow; a.com /v1", "GET a.com:443/%761", YES},
		{"allow; a.com /v1", "GET a.com:443/V1", NO},
		{"allow; a.com /v1/", "GET a.com:443/v1", NO},
		{"allow; a.com /v1/", "GET a.com:443/v1/x", YES},
		{"allow; a.com; -a.com DELETE", "a.com:443", YES},
		{"allow; a.com; -a.com DELETE", "DELETE a.com:443/", NO},
		{"allow; a.com; -a.com DELETE", "GET a.com:443/", YES},
		{"allow; a.com; -a.com /admin", "GET a.com:443/admin/x", NO},
		{"allow; a.com; -a.com /admin", "GET a.com:443/%61dmin", NO},
		{"allow; a.com; -a.com /admin", "GET a.com:443/x/../admin", NO},
		{"allow; a.com; -a.com /admin", "GET a.com:443/adm", YES},
		{"public; -* POST", "POST a.com:443/", NO},
		{"public; -* POST", "GET a.com:443/", YES},
		{"public | allow; a.com GET", "POST a.com:443/", NO},
		{"allow; a.com; 10.0.0.0/8 GET", "POST a.com:80/ 10.0.0.1", NO},
		{"allow; a.com; 10.0.0.0/8 GET", "GET a.com:80/ 10.0.0.1", YES},
	};
	/* For which connections must each request be looked at? */
	static const struct {
		const char *policy, *question;
		bool http, inspect, no_sni, txt;
	} flags[] = {
		{"allow; a.com", "a.com:443", 0, 0, 0, 0},
		{"allow; a.com inspect", "a.com:443", 0, 1, 0, 0},
		{"allow; a.com no-sni txt", "a.com:443", 0, 0, 1, 1},
		{"allow; a.com:80; a.com:443 no-sni", "a.com:80", 0, 0, 0, 0},
		{"allow; a.com GET", "a.com:443", 1, 1, 0, 0},
		{"allow; a.com /v1", "a.com:443", 1, 1, 0, 0},
		{"allow; a.com GET; a.com", "a.com:443", 0, 0, 0, 0},
		{"allow; a.com; -a.com POST", "a.com:443", 1, 1, 0, 0},
		{"allow; a.com; -b.com POST", "a.com:443", 0, 0, 0, 0},
		{"allow; a.com; 10.0.0.0/8 GET", "a.com:80 10.0.0.1", 1, 1, 0, 0},
		{"allow; a.com; 8.0.0.0/8 GET", "a.com:80 8.0.0.1", 0, 0, 0, 0},
		{"allow; 8.0.0.0/8 GET", "8.0.0.1:80", 1, 1, 0, 0},
		{"public; -* POST", "8.8.8.8:80", 1, 1, 0, 0},
		{"public; a.com inspect", "a.com:443", 0, 1, 0, 0},
		{"public | allow; a.com GET", "a.com:443", 1, 1, 0, 0},
		{"allow; a.com GET | public", "a.com:443", 1, 1, 0, 0},
	};

	check_rows(rows, ARRAY_LEN(rows));
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		struct net_index *x = make(flags[i].policy);
		struct net_answer a;

		assert_true(decide(x, flags[i].question, &a));
		if (a.http != flags[i].http || a.inspect != flags[i].inspect ||
		    a.no_sni != flags[i].no_sni || a.txt != flags[i].txt)
			fail_msg("%s ? %s: http %d inspect %d no-sni %d txt %d", flags[i].policy,
				 flags[i].question, a.http, a.inspect, a.no_sni, a.txt);
		net_index_free(x);
	}
}

/* A denial says which rule would be enough; with that rule it is allowed. */
static void test_remedies(void **state)
{
	static const struct {
		const char *policy, *question, *remedy, *why;
	} rows[] = {
		{"allow", "a.com:443", "--allow a.com:443", "no rule allows a.com:443"},
		{"allow", "a.com:0", "--allow a.com", "no rule allows a.com"},
		{"none", "a.com:443", "--net allow --allow a.com:443", "network none"},
		{"allow", "udp a.com:123", "--allow udp://a.com:123",
		 "no rule allows udp://a.com:123"},
		{"allow", "8.8.8.8:443", "--allow 8.8.8.8:443", "no rule allows 8.8.8.8:443"},
		{"allow", "[2606:4700::1]:443", "--allow [2606:4700::1]:443",
		 "no rule allows [2606:4700::1]:443"},
		{"public", "10.0.0.1:80", "--allow 10.0.0.1:80",
		 "10.0.0.1 is a private address, which no rule names"},
		{"public", "a.com:80 10.0.0.1", "--allow 10.0.0.1:80",
		 "a.com leads to 10.0.0.1, a private address that no rule names"},
		{"public", "127.0.0.1:80", "--allow localhost:80",
		 "127.0.0.1 is a loopback address, which no rule names"},
		{"public", "8.8.8.8:80 own", "--allow localhost:80",
		 "8.8.8.8 is an address of the host itself, which no rule names"},
		{"allow; a.com GET", "POST a.com:443/v1/x?secret=1",
		 "--allow 'a.com:443 POST /v1/x'", "no rule allows POST to a.com:443"},
		{"allow; a.com; -a.com", "a.com:443", "remove --deny 'a.com'",
		 "a rule denies it: a.com"},
		{"allow; b.com | allow; a.com", "a.com:443", "the operator must allow a.com:443",
		 "no rule of the operator allows a.com:443"},
		{"none | allow; a.com", "a.com:443", "the operator must allow a.com:443",
		 "network none, set by the operator"},
		{"public; -a.com | allow; a.com", "a.com:443",
		 "the operator must remove the rule that denies a.com",
		 "a rule of the operator denies it: a.com"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct net_index *x = make(rows[i].policy);
		struct net_answer a;

		assert_false(decide(x, rows[i].question, &a));
		assert_string_equal(a.why, rows[i].why);
		assert_string_equal(a.remedy, rows[i].remedy);
		net_index_free(x);
		if (a.wanted[0] && !strchr(rows[i].policy, '|') &&
		    !str_starts(rows[i].policy, "none")) {
			auto_free char *wider = str_format("%s; %s", rows[i].policy, a.wanted);

			x = make(wider);
			if (!decide(x, rows[i].question, &a))
				fail_msg("%s is not enough: %s", wider, a.why);
			net_index_free(x);
		}
	}
}

static void test_text_refused(void **state)
{
	static const char *const rows[] = {
		"",
		" ",
		"a.com:0",
		"a.com:65536",
		"a.com:",
		"a.com:80-",
		"a.com:-80",
		"a.com:90-80",
		"a.com:http",
		"a.com:80:90",
		"a.com:080-0x90",
		"https://a.com",
		"https://a.com/x",
		"http://a.com:80 GET",
		"tcp://a.com:80",
		"udp://a.com",
		"udp://a.com:100-200",
		"udp://a.com:53",
		"udp://a.com:54 GET",
		"udp://a.com:54 /x",
		"udp://a.com:54 inspect",
		"localhost",
		"localhost:80-90",
		"127.0.0.1:80",
		"127.0.0.0/8",
		"[::1]:80",
		"*a.com",
		"a.*.com",
		"*.*.com",
		"**",
		"*.",
		"*.10.0.0.1",
		"10.0.0.0/33",
		"10.0.0.0/",
		"10.0.0.1/8",
		"10.0.0.0/8:0",
		"[10.0.0.1]:80",
		"[::1",
		"fe80::1%eth0",
		"a.com get",
		"a.com GET,",
		"a.com GET,FETCH",
		"a.com x",
		"a.com /a /b",
		"a.com /../x",
		"a.com /x?y",
		"a.com /x*",
		"a.com //x",
		"a.com\n",
		"a.com\tGET",
		"a.com GET\x7f",
		"user@a.com",
		"a.com/path",
		"0x7f.1",
		"2130706433:80",
		"@nothing",
		"@",
		"@pypi GET",
		"10.0.0.0/8 txt",
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct net_policy_maker *m = net_policy_new();
		struct err e = {0};

		net_policy_stage(m, NET_ALLOW, NET_BY_REQUEST);
		if (net_policy_add(m, NET_RULE_ALLOW, rows[i], &e) == 0)
			fail_msg("'%s' was taken", rows[i]);
		assert_true(e.kind == ERR_INVALID && str_is_printable(e.msg));
		net_policy_free(m);
	}
}

/* 10,000 rules cost a decision no more comparisons than 10. */
static unsigned looked_at(size_t count)
{
	static const char *const questions[] = {"n7.example:443", "x.y.w7.example:443",
						"other.example:443", "8.0.7.1:443", "9.9.9.9:443"};
	struct net_policy_maker *m = net_policy_new();
	auto_buf struct buf bytes = {0};
	unsigned most = 0;
	struct net_index *x;
	struct err e = {0};

	net_policy_stage(m, NET_ALLOW, NET_BY_REQUEST);
	for (size_t i = 0; i < count; i++) {
		char rule[64];

		if (i % 3 == 0)
			snprintf(rule, sizeof(rule), "n%zu.example:443", i);
		else if (i % 3 == 1)
			snprintf(rule, sizeof(rule), "*.w%zu.example", i);
		else
			snprintf(rule, sizeof(rule), "8.%zu.%zu.0/24", i >> 8, i & 255);
		assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, rule, &e), 0);
	}
	assert_int_equal(net_policy_write(m, &bytes, &e), 0);
	x = net_index_new(buf_head(&bytes), bytes.len, &e);
	assert_non_null(x);
	for (size_t i = 0; i < ARRAY_LEN(questions); i++) {
		struct net_answer a;

		decide(x, questions[i], &a);
		if (a.looked_at > most)
			most = a.looked_at;
	}
	net_index_free(x);
	net_policy_free(m);
	return most;
}

static void test_many_rules(void **state)
{
	unsigned few = looked_at(30), many = looked_at(10000);

	assert_true(few >= 1 && few <= 2);
	assert_int_equal(many, few);
	looked_at(NET_RULES_MAX);
}

static void test_limits(void **state)
{
	struct net_policy_maker *m = net_policy_new();
	auto_buf struct buf bytes = {0};
	uint16_t ports[NET_UDP_PORTS], here[4];
	struct network networks[4];
	struct err e = {0};
	char rule[600];

	assert_int_equal(net_policy_write(m, &bytes, &e), -1);
	net_policy_stage(m, NET_ALLOW, NET_BY_REQUEST);
	for (int i = 0; i < NET_UDP_PORTS; i++) {
		snprintf(rule, sizeof(rule), "udp://a.com:%d", 1000 + i);
		assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, rule, &e), 0);
	}
	assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, "udp://b.com:1000", &e), 0);
	assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, "10.0.0.0/8:80", &e), 0);
	assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, "10.0.0.0/8:443", &e), 0);
	assert_int_equal(net_policy_add(m, NET_RULE_DENY, "10.1.0.0/16", &e), 0);
	assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, "localhost:5432", &e), 0);
	assert_int_equal(net_policy_write(m, &bytes, &e), 0);
	assert_int_equal(net_policy_udp_ports(buf_head(&bytes), ports), NET_UDP_PORTS);
	assert_int_equal(ports[15], 1015);
	assert_int_equal(net_policy_networks(buf_head(&bytes), networks, 4), 1);
	assert_int_equal(networks[0].bits, 104);
	assert_int_equal(net_policy_localhost_ports(buf_head(&bytes), here, 4), 1);
	assert_int_equal(here[0], 5432);
	assert_int_equal(net_policy_mode(buf_head(&bytes)), NET_ALLOW);

	assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, "udp://a.com:9", &e), 0);
	assert_int_equal(net_policy_write(m, &bytes, &e), -1);
	assert_int_equal(e.kind, ERR_LIMIT);
	net_policy_free(m);

	m = net_policy_new();
	net_policy_stage(m, NET_ALLOW, NET_BY_REQUEST);
	for (int i = 0; i < NET_RULES_MAX; i++)
		assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, "8.8.8.8", &e), 0);
	assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, "8.8.8.8", &e), -1);
	assert_int_equal(e.kind, ERR_LIMIT);
	net_policy_free(m);
}

static void test_budget(void **state)
{
	struct net_policy_maker *m = net_policy_new();
	auto_buf struct buf bytes = {0};
	const struct net_policy *p;
	struct err e = {0};

	net_policy_stage(m, NET_PUBLIC, NET_BY_OPERATOR);
	net_policy_stage(m, NET_ALLOW, NET_BY_REQUEST);
	net_policy_budget(m, &(struct net_budget){.tx_bytes = 100, .names = 5, .rx_rate = 7});
	net_policy_budget(m, &(struct net_budget){.tx_bytes = 200, .names = 3, .open = 9});
	assert_int_equal(net_policy_write(m, &bytes, &e), 0);
	p = (const void *)buf_head(&bytes);
	assert_int_equal(p->budget.tx_bytes, 100);
	assert_int_equal(p->budget.names, 3);
	assert_int_equal(p->budget.rx_rate, 7);
	assert_int_equal(p->budget.open, 9);
	assert_int_equal(p->budget.connections, 0);
	assert_int_equal(net_policy_mode(p), NET_ALLOW);
	net_policy_free(m);
}

/* Bytes from a peer: one member wrong at a time. */
static void test_bad_bytes(void **state)
{
	struct net_policy_maker *m = net_policy_new();
	auto_buf struct buf bytes = {0};
	struct net_policy *p;
	struct net_rule saved;
	struct err e = {0};

	net_policy_stage(m, NET_ALLOW, NET_BY_REQUEST);
	assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, "a.com:443 GET /v1", &e), 0);
	assert_int_equal(net_policy_write(m, &bytes, &e), 0);
	net_policy_free(m);
	p = (void *)buf_head(&bytes);
	assert_int_equal(net_policy_check(p, bytes.len, &e), 0);
#define BAD(member, value)                                                                         \
	do {                                                                                       \
		__typeof__(member) was_ = (member);                                                \
		(member) = (value);                                                                \
		assert_int_equal(net_policy_check(p, bytes.len, &e), -1);                          \
		assert_null(net_index_new(p, bytes.len, &e));                                      \
		(member) = was_;                                                                   \
		assert_int_equal(net_policy_check(p, bytes.len, &e), 0);                           \
	} while (0)
	BAD(p->version, 2);
	BAD(p->size, p->size + 1);
	BAD(p->rule_count, 1u << 31);
	BAD(p->rule_count, 2);
	BAD(p->stage_count, 0);
	BAD(p->stage_count, 5);
	BAD(p->modes[0], NET_ISOLATED + 1);
	BAD(p->sources[0], NET_BY_REQUEST + 1);
	saved = p->rules[0];
	BAD(p->rules[0].verdict, 2);
	BAD(p->rules[0].kind, 0);
	BAD(p->rules[0].kind, NET_RULE_ANY + 1);
	BAD(p->rules[0].kind, NET_RULE_LOCALHOST + 100);
	BAD(p->rules[0].flags, 128);
	BAD(p->rules[0].flags, NET_RULE_UDP | 16);
	BAD(p->rules[0].bits, 129);
	BAD(p->rules[0].stage, 1);
	BAD(p->rules[0].first_port, 444);
	BAD(p->rules[0].methods, NET_OTHER_METHOD);
	BAD(p->rules[0].name, 0);
	BAD(p->rules[0].name, p->rules[0].text);
	BAD(p->rules[0].name, p->size);
	BAD(p->rules[0].path, UINT32_MAX);
	BAD(p->rules[0].path, p->rules[0].name);
	BAD(p->rules[0].text, p->size);
	BAD(buf_head(&bytes)[bytes.len - 1], 'x');
	assert_memory_equal(&saved, &p->rules[0], sizeof(saved));
	assert_int_equal(net_policy_check(p, sizeof(*p) - 1, &e), -1);
	assert_int_equal(net_policy_check(p, bytes.len - 1, &e), -1);
}

/* Text cannot say it, bytes can: a network of the loopback. */
static void test_loopback_bytes(void **state)
{
	struct net_policy_maker *m = net_policy_new();
	auto_buf struct buf bytes = {0};
	struct net_policy *p;
	struct net_index *x;
	struct net_answer a;
	struct err e = {0};

	net_policy_stage(m, NET_ALLOW, NET_BY_REQUEST);
	assert_int_equal(net_policy_add(m, NET_RULE_ALLOW, "10.0.0.0/8", &e), 0);
	assert_int_equal(net_policy_write(m, &bytes, &e), 0);
	net_policy_free(m);
	p = (void *)buf_head(&bytes);
	p->rules[0].address[12] = 127;
	x = net_index_new(p, bytes.len, &e);
	assert_non_null(x);
	assert_false(decide(x, "127.0.0.1:80", &a));
	net_index_free(x);
}

static void test_from_spec(void **state)
{
	struct net_policy_maker *m = net_policy_new();
	auto_buf struct buf bytes = {0};
	const struct net_policy *p;
	struct sandbox_spec s;
	struct err e = {0};

	spec_init(&s);
	s.net = NET_PUBLIC;
	assert_int_equal(spec_set(&s, "deny", "a.com", &e), 0);
	assert_int_equal(spec_set(&s, "allow", "10.0.0.0/8", &e), 0);
	assert_int_equal(spec_set(&s, "net_rate", "8Mbit", &e), 0);
	assert_int_equal(spec_set(&s, "net_tx", "1M", &e), 0);
	assert_int_equal(spec_set(&s, "net_rx", "2M", &e), 0);
	assert_int_equal(spec_set(&s, "net_connections", "3", &e), 0);
	assert_int_equal(spec_set(&s, "net_names", "4", &e), 0);
	assert_int_equal(spec_set(&s, "net_requests", "5", &e), 0);
	assert_int_equal(net_check_spec(&s, &e), 0);
	assert_int_equal(net_from_spec(m, &s, NET_BY_REQUEST, &e), 0);
	assert_int_equal(net_policy_write(m, &bytes, &e), 0);
	p = (const void *)buf_head(&bytes);
	assert_int_equal(p->stage_count, 1);
	assert_int_equal(p->modes[0], NET_PUBLIC);
	assert_int_equal(p->rule_count, 2);
	assert_int_equal(p->rules[1].verdict, NET_RULE_DENY);
	assert_memory_equal(&p->budget,
			    (&(struct net_budget){.tx_bytes = 1 << 20,
						  .rx_bytes = 2 << 20,
						  .tx_rate = 1000000,
						  .rx_rate = 1000000,
						  .connections = 3,
						  .names = 4,
						  .requests = 5}),
			    sizeof(p->budget));
	net_policy_free(m);

	assert_int_equal(spec_set(&s, "deny", "b.com:x", &e), 0);
	assert_int_equal(net_check_spec(&s, &e), -1);
	assert_string_equal(e.field, "deny");
	assert_true(str_starts(e.msg, "deny: 'x' is not a port"));
	spec_done(&s);
}

/* Every rule of every set is a rule, is HTTPS or said to be plain, and has a reason. */
static void test_sets(void **state)
{
	static const char *const names[] = {"pypi", "npm",	   "debian",	"github", "crates",
					    "go",   "huggingface", "anthropic", "openai"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct net_policy_maker *m = net_policy_new();
		struct err e = {0};

		net_policy_stage(m, NET_ALLOW, NET_BY_REQUEST);
		if (net_policy_add(m, NET_RULE_ALLOW, names[i], &e) < 0)
			fail_msg("%s: %s", names[i], e.msg);
		net_policy_free(m);
	}
	for (size_t i = 0; i < net_set_row_count; i++) {
		struct net_rule_text r;
		struct err e = {0};

		assert_int_equal(net_rule_parse(net_set_rows[i].rule, NET_RULE_ALLOW, &r, &e), 0);
		assert_int_equal(r.row.first_port, r.row.last_port);
		assert_true(r.row.kind == NET_RULE_NAME && strlen(net_set_rows[i].reason) > 5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),	       cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_stages),	       cmocka_unit_test(test_requests),
		cmocka_unit_test(test_remedies),       cmocka_unit_test(test_text_refused),
		cmocka_unit_test(test_many_rules),     cmocka_unit_test(test_limits),
		cmocka_unit_test(test_budget),	       cmocka_unit_test(test_bad_bytes),
		cmocka_unit_test(test_sets),	       cmocka_unit_test(test_from_spec),
		cmocka_unit_test(test_loopback_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
