/* Parses names of images. Whatever is not clearly a name is refused: parts of it become paths of requests. */
#include "image/reference.h"

#define USUAL_REGISTRY "docker.io"
#define USUAL_PREFIX "library/"

bool image_is_hex(const char *s)
{
	return str_only(s, STR_DIGITS "abcdef", IMAGE_HEX, IMAGE_HEX);
}

bool image_is_digest(const char *s)
{
	return str_starts(s, "sha256:") && image_is_hex(s + strlen("sha256:"));
}

static int refuse(const char *text, const char *why, struct err *e)
{
	return err_field(e, ERR_INVALID, "image", "image: '%.200s' is no name of an image: %s",
			 text, why);
}

/* One part of a repository: letters and digits, with separators between them. */
static bool is_component(const char *s, size_t len)
{
	static const char separators[] = "._-";

	if (len == 0 || strchr(separators, s[0]) || strchr(separators, s[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!memchr(STR_LOWER STR_DIGITS "._-", s[i], strlen(STR_LOWER STR_DIGITS "._-")))
			return false;
	return !memmem(s, len, "..", 2);
}

static bool is_repository(const char *s)
{
	for (;;) {
		size_t len = strcspn(s, "/");

		if (!is_component(s, len))
			return false;
		if (!s[len])
			return true;
		s += len + 1;
	}
}

static bool is_tag(const char *s)
{
	return str_only(s, STR_ALNUM "_.-", 1, 128) && s[0] != '.' && s[0] != '-';
}

/* The first part is a registry if it looks like a host, as Docker decides it. */
static size_t registry_length(const char *s)
{
	size_t len = strcspn(s, "/");

	if (!s[len])
		return 0;
	if (memchr(s, '.', len) || memchr(s, ':', len) ||
	    (len == strlen("localhost") && memcmp(s, "localhost", len) == 0))
		return len;
	return 0;
}

static bool is_registry(const char *s)
{
	return str_only(s, STR_ALNUM ".-:[]", 1, 127) && strchr(STR_ALNUM "[", s[0]) &&
	       !strstr(s, "..");
}

/* Cuts off what follows the mark, if that is there; "" otherwise. */
static const char *cut_at(char *mark)
{
	if (!mark)
		return "";
	*mark = '\0';
	return mark + 1;
}

static void write_name(struct image_reference *r)
{
	bool usual = str_equal(r->registry, USUAL_REGISTRY);
	const char *repository = r->repository;

	if (usual && str_starts(repository, USUAL_PREFIX) &&
	    !strchr(repository + strlen(USUAL_PREFIX), '/'))
		repository += strlen(USUAL_PREFIX);
	snprintf(r->name, sizeof(r->name), "%s%s%s%s%s", usual ? "" : r->registry, usual ? "" : "/",
		 repository, r->tag[0] ? ":" : "@", r->tag[0] ? r->tag : r->digest);
}

int image_reference_parse(const char *text, struct image_reference *ret, struct err *e)
{
	struct image_reference r = {0};
	char rest[256];
	const char *digest, *tag, *repository;
	size_t host;

	if (snprintf(rest, sizeof(rest), "%s", text) >= (int)sizeof(rest))
		return refuse(text, "it is too long", e);
	digest = cut_at(strchr(rest, '@'));
	if (*digest && !image_is_digest(digest))
		return refuse(text, "after @ there must be sha256: and 64 digits", e);
	host = registry_length(rest);
	if (host >= sizeof(r.registry))
		return refuse(text, "its registry is too long", e);
	snprintf(r.registry, sizeof(r.registry), "%.*s", (int)host, rest);
	repository = rest + host + (host ? 1 : 0);
	tag = cut_at(strchr(repository, ':'));
	if (*tag && !is_tag(tag))
		return refuse(text, "the tag after ':' has letters, digits, '_', '.', '-'", e);
	if (str_equal(r.registry, "index.docker.io") || !host)
		snprintf(r.registry, sizeof(r.registry), USUAL_REGISTRY);
	if (!is_registry(r.registry) || !is_repository(repository) || strlen(repository) > 180)
		return refuse(text, "a repository has lower-case letters, digits, '.', '_', '-'",
			      e);
	snprintf(r.repository, sizeof(r.repository), "%s%s",
		 str_equal(r.registry, USUAL_REGISTRY) && !strchr(repository, '/') ? USUAL_PREFIX
										   : "",
		 repository);
	snprintf(r.tag, sizeof(r.tag), "%s", *tag ? tag : *digest ? "" : "latest");
	snprintf(r.digest, sizeof(r.digest), "%s", digest);
	write_name(&r);
	*ret = r;
	return 0;
}
