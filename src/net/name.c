/* Host names and addresses in their one canonical form, and what kind of address an address is. */
#include "net/name.h"

#include "base/utf8.h"

#include <arpa/inet.h>

#define LABEL_MAX 63
#define NAME_MAX_ 253

/* ---- letters ------------------------------------------------------------------------------------ */

enum lowering {
	KEEP, /* lower case already, or a script without case */
	ADD,  /* the lower-case letter is `by` further on */
	EVEN, /* pairs: the even one is upper case */
	ODD,  /* pairs: the odd one is upper case */
};
enum script { LATIN = 1, GREEK = 2, CYRILLIC = 4, OTHER_SCRIPT = 8 };

/*
 * Letters whose lower case is certain and which no normalisation changes. Not in it, so refused: combining marks,
 * wide and other compatibility forms (they would turn into dots, digits or other letters), sharp s, final sigma and
 * dotless i (programs disagree about them).
 */
static const struct letters {
	uint32_t first, last;
	enum lowering how;
	enum script script;
	uint32_t by;
} letters[] = {
	{0xc0, 0xd6, ADD, LATIN, 32},
	{0xd8, 0xde, ADD, LATIN, 32},
	{0xe0, 0xf6, KEEP, LATIN, 0},
	{0xf8, 0xff, KEEP, LATIN, 0},
	{0x100, 0x12f, EVEN, LATIN, 0},
	{0x134, 0x137, EVEN, LATIN, 0},
	{0x139, 0x13e, ODD, LATIN, 0},
	{0x141, 0x148, ODD, LATIN, 0},
	{0x14a, 0x177, EVEN, LATIN, 0},
	{0x179, 0x17e, ODD, LATIN, 0},
	{0x386, 0x386, ADD, GREEK, 38},
	{0x388, 0x38a, ADD, GREEK, 37},
	{0x38c, 0x38c, ADD, GREEK, 64},
	{0x38e, 0x38f, ADD, GREEK, 63},
	{0x390, 0x390, KEEP, GREEK, 0},
	{0x391, 0x3a1, ADD, GREEK, 32},
	{0x3a3, 0x3ab, ADD, GREEK, 32},
	{0x3ac, 0x3c1, KEEP, GREEK, 0},
	{0x3c3, 0x3ce, KEEP, GREEK, 0},
	{0x400, 0x40f, ADD, CYRILLIC, 80},
	{0x410, 0x42f, ADD, CYRILLIC, 32},
	{0x430, 0x45f, KEEP, CYRILLIC, 0},
	{0x48a, 0x4bf, EVEN, CYRILLIC, 0},
	{0x4c1, 0x4ce, ODD, CYRILLIC, 0},
	{0x4d0, 0x52f, EVEN, CYRILLIC, 0},
	{0x5d0, 0x5ea, KEEP, OTHER_SCRIPT, 0},
	{0x620, 0x63a, KEEP, OTHER_SCRIPT, 0},
	{0x641, 0x64a, KEEP, OTHER_SCRIPT, 0},
	{0x679, 0x6bf, KEEP, OTHER_SCRIPT, 0},
	{0x6cc, 0x6cc, KEEP, OTHER_SCRIPT, 0},
	{0x1e00, 0x1e95, EVEN, LATIN, 0},
	{0x1ea0, 0x1eff, EVEN, LATIN, 0},
	{0x3005, 0x3005, KEEP, OTHER_SCRIPT, 0},
	{0x3041, 0x3096, KEEP, OTHER_SCRIPT, 0},
	{0x30a1, 0x30fa, KEEP, OTHER_SCRIPT, 0},
	{0x30fc, 0x30fe, KEEP, OTHER_SCRIPT, 0},
	{0x3400, 0x4dbf, KEEP, OTHER_SCRIPT, 0},
	{0x4e00, 0x9fff, KEEP, OTHER_SCRIPT, 0},
	{0xac00, 0xd7a3, KEEP, OTHER_SCRIPT, 0},
};

/* 0: a character that a name cannot have, or that cannot be mapped safely. */
static uint32_t lower(uint32_t c, unsigned *scripts)
{
	if (c < 0x80) {
		if (c >= 'A' && c <= 'Z')
			c += 'a' - 'A';
		if (c >= 'a' && c <= 'z')
			*scripts |= LATIN;
		return c && strchr(STR_LOWER STR_DIGITS "-_", (int)c) ? c : 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(letters); i++) {
		const struct letters *l = &letters[i];

		if (c < l->first || c > l->last)
			continue;
		*scripts |= l->script;
		return l->how == ADD	? c + l->by
		       : l->how == EVEN ? c | 1
		       : l->how == ODD	? c + (c & 1)
					: c;
	}
	return 0;
}

/* ---- labels ------------------------------------------------------------------------------------- */

/* RFC 3492, 6.1 */
static uint32_t punycode_adapt(uint32_t delta, uint32_t count, bool first)
{
	uint32_t k = 0;

	delta = first ? delta / 700 : delta / 2;
	for (delta += delta / count; delta > 455; k += 36)
		delta /= 35;
	return k + 36 * delta / (delta + 38);
}

static bool punycode_put(char *ret, size_t *len, uint32_t digit)
{
	if (*len >= LABEL_MAX)
		return false;
	ret[(*len)++] = (char)(digit < 26 ? 'a' + digit : '0' + digit - 26);
	return true;
}

static bool punycode_number(char *ret, size_t *len, uint32_t n, uint32_t bias)
{
	for (uint32_t k = 36;; k += 36) {
		uint32_t t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;

		if (n < t)
			return punycode_put(ret, len, n);
		if (!punycode_put(ret, len, t + (n - t) % (36 - t)))
			return false;
		n = (n - t) / (36 - t);
	}
}

/* "xn--" and the letters as in RFC 3492, 6.3; false if that is longer than a label may be. */
static bool punycode_encode(const uint32_t *in, size_t count, char ret[LABEL_MAX], size_t *ret_len)
{
	uint32_t n = 0x80, delta = 0, bias = 72, done = 0, basic;
	size_t len = 4;

	memcpy(ret, "xn--", 4);
	for (size_t i = 0; i < count; i++)
		if (in[i] < 0x80) {
			if (len >= LABEL_MAX)
				return false;
			ret[len++] = (char)in[i];
			done++;
		}
	basic = done;
	if (basic && len < LABEL_MAX)
		ret[len++] = '-';
	while (done < count) {
		uint32_t next = UINT32_MAX;

		for (size_t i = 0; i < count; i++)
			if (in[i] >= n && in[i] < next)
				next = in[i];
		delta += (next - n) * (done + 1);
		n = next;
		for (size_t i = 0; i < count; i++) {
			if (in[i] < n)
				delta++;
			if (in[i] != n)
				continue;
			if (!punycode_number(ret, &len, delta, bias))
				return false;
			bias = punycode_adapt(delta, done + 1, done == basic);
			delta = 0;
			done++;
		}
		delta++;
		n++;
	}
	*ret_len = len;
	return true;
}

static int refuse(struct err *e, const char *text, size_t len, const char *why)
{
	char shown[80];

	str_sanitise(shown, sizeof(shown), text, len);
	return err_set(e, ERR_INVALID, "'%s' is not a host: %s", shown, why);
}

#define XN "; write it as xn--"

/* Reads one label of the text into ret; NULL, or what is wrong with it. */
static const char *read_label(const char *text, size_t len, char ret[LABEL_MAX], size_t *ret_len)
{
	uint32_t chars[LABEL_MAX];
	unsigned scripts = 0;
	size_t count = 0, bytes;
	bool ascii = true;

	for (size_t at = 0; at < len; at += bytes) {
		bytes = utf8_sequence(text + at, len - at);
		if (!bytes)
			return "it is not UTF-8";
		if (count == LABEL_MAX)
			return "a part between dots is longer than 63 letters";
		chars[count] = lower(utf8_value(text + at, bytes), &scripts);
		if (!chars[count])
			return bytes > 1 ? "it has a character that programs read differently" XN
					 : "it has a character that no name has";
		ascii &= bytes == 1;
		count++;
	}
	if (count == 0)
		return "a part between dots is empty";
	if (chars[0] == '-' || chars[count - 1] == '-')
		return "a part between dots begins or ends with '-'";
	/* Letters that look alike: Latin a, Cyrillic a, Greek o. */
	scripts &= LATIN | GREEK | CYRILLIC;
	if (!ascii && (scripts & (scripts - 1)))
		return "it mixes letters of several alphabets" XN;
	if (!ascii && count > 3 && chars[2] == '-' && chars[3] == '-')
		return "'--' after two letters is for xn-- names";
	if (ascii)
		for (*ret_len = 0; *ret_len < count; (*ret_len)++)
			ret[*ret_len] = (char)chars[*ret_len];
	else if (!punycode_encode(chars, count, ret, ret_len))
		return "a part between dots is longer than 63 letters";
	return NULL;
}

/* As browsers do: what ends in a number is meant as an address. */
static bool ends_in_number(const char *name)
{
	const char *last = strrchr(name, '.');

	last = last ? last + 1 : name;
	if (last[0] == '0' && last[1] == 'x')
		return str_only(last + 2, STR_DIGITS "abcdef", 0, LABEL_MAX);
	return str_only(last, STR_DIGITS, 1, LABEL_MAX);
}

static int read_name(const char *text, size_t len, char ret[NET_NAME], struct err *e)
{
	size_t whole = len, out = 0;
	char name[NET_NAME];

	if (len > 1 && text[len - 1] == '.')
		len--;
	for (size_t at = 0; at <= len;) {
		const char *dot = memchr(text + at, '.', len - at);
		size_t part = dot ? (size_t)(dot - text) - at : len - at, label_len = 0;
		char label[LABEL_MAX];
		const char *wrong = read_label(text + at, part, label, &label_len);

		if (!wrong && out + label_len > NAME_MAX_)
			wrong = "it is longer than 253 letters";
		if (wrong)
			return refuse(e, text, whole, wrong);
		memcpy(name + out, label, label_len);
		out += label_len;
		name[out++] = dot ? '.' : '\0';
		at += part + 1;
	}
	if (ends_in_number(name))
		return refuse(e, text, whole,
			      "an address is written as four numbers from 0 to 255, without "
			      "leading zeros: 192.0.2.1");
	memcpy(ret, name, out);
	return NET_IS_NAME;
}

static int read_address(const char *text, size_t len, struct network *ret, struct err *e)
{
	bool brackets = text[0] == '[';
	size_t inner = brackets ? len - 2 : len;
	char digits[INET6_ADDRSTRLEN];
	struct network n;

	if (brackets && (len < 4 || text[len - 1] != ']'))
		return refuse(e, text, len, "a bracket is not closed");
	if (inner >= sizeof(digits) || memchr(text, '/', len) || memchr(text, '\0', len))
		return refuse(e, text, len, "it is not an IPv6 address");
	memcpy(digits, text + brackets, inner);
	digits[inner] = '\0';
	if (strchr(digits, '%'))
		return refuse(e, text, len, "an address with a scope ('%') has no meaning here");
	if (!strchr(digits, ':') || !network_parse(digits, &n))
		return refuse(e, text, len, "it is not an IPv6 address");
	*ret = n;
	return NET_IS_ADDRESS;
}

int net_host(const char *text, size_t len, char ret_name[NET_NAME], struct network *ret_address,
	     struct err *e)
{
	char digits[INET_ADDRSTRLEN];
	struct network n;

	if (len == 0)
		return err_set(e, ERR_INVALID, "a host is missing");
	if (text[0] == '[' || memchr(text, ':', len))
		return read_address(text, len, ret_address, e);
	if (len < sizeof(digits) && !memchr(text, '/', len) && !memchr(text, '\0', len)) {
		memcpy(digits, text, len);
		digits[len] = '\0';
		if (network_parse(digits, &n)) {
			*ret_address = n;
			return NET_IS_ADDRESS;
		}
	}
	return read_name(text, len, ret_name, e);
}

/* ---- kinds of addresses ------------------------------------------------------------------------- */

struct range {
	unsigned char address[16];
	unsigned bits;
	enum net_address_kind kind;
};

/* IANA's special-purpose registry, and the metadata services outside of it. */
static const struct range ranges4[] = {
	{{0}, 8, NET_RESERVED_ADDRESS}, /* "this network": 0.0.0.0 is this host */
	{{10}, 8, NET_PRIVATE_ADDRESS},
	{{100, 64}, 10, NET_CGNAT_ADDRESS},
	{{127}, 8, NET_LOOPBACK_ADDRESS},
	{{168, 63, 129, 16}, 32, NET_LINK_LOCAL_ADDRESS}, /* Azure's host agent */
	{{169, 254}, 16, NET_LINK_LOCAL_ADDRESS},
	{{172, 16}, 12, NET_PRIVATE_ADDRESS},
	{{192, 0, 0}, 24, NET_RESERVED_ADDRESS},
	{{192, 0, 2}, 24, NET_RESERVED_ADDRESS},
	{{192, 88, 99}, 24, NET_RESERVED_ADDRESS},
	{{192, 168}, 16, NET_PRIVATE_ADDRESS},
	{{198, 18}, 15, NET_RESERVED_ADDRESS},
	{{198, 51, 100}, 24, NET_RESERVED_ADDRESS},
	{{203, 0, 113}, 24, NET_RESERVED_ADDRESS},
	{{224}, 4, NET_MULTICAST_ADDRESS},
	{{240}, 4, NET_RESERVED_ADDRESS},
};
static const struct range ranges6[] = {
	{{[15] = 1}, 128, NET_LOOPBACK_ADDRESS},
	{{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, NET_PRIVATE_ADDRESS}, /* NAT64 of a site */
	{{0x20, 0x01}, 23, NET_RESERVED_ADDRESS}, /* protocols; Teredo is looked through */
	{{0x20, 0x01, 0x0d, 0xb8}, 32, NET_RESERVED_ADDRESS},
	{{0x3f, 0xff}, 20, NET_RESERVED_ADDRESS},
	{{0xfc}, 7, NET_PRIVATE_ADDRESS},
	{{0xfe, 0x80}, 10, NET_LINK_LOCAL_ADDRESS},
	{{0xfe, 0xc0}, 10, NET_PRIVATE_ADDRESS},
	{{0xff}, 8, NET_MULTICAST_ADDRESS},
};

/* IPv6 addresses that stand for an IPv4 address: which bits they have in front, and where it is. */
static const struct {
	unsigned char prefix[12];
	unsigned bits, at;
	unsigned char inverted; /* each byte of it by these bits */
	enum net_address_kind otherwise;
} embeddings[] = {
	{{[10] = 0xff, [11] = 0xff}, 96, 12, 0, NET_PUBLIC_ADDRESS}, /* mapped */
	{{0}, 96, 12, 0, NET_RESERVED_ADDRESS},			     /* compatible: given up */
	{{0x00, 0x64, 0xff, 0x9b}, 96, 12, 0, NET_PUBLIC_ADDRESS},   /* NAT64 */
	{{0x20, 0x02}, 16, 2, 0, NET_PUBLIC_ADDRESS},		     /* 6to4 */
	{{0x20, 0x01, 0, 0}, 32, 12, 0xff, NET_PUBLIC_ADDRESS},	     /* Teredo, of the client */
};

static bool has_prefix(const unsigned char *address, const unsigned char *prefix, unsigned bits)
{
	unsigned rest = bits % 8;

	return memcmp(address, prefix, bits / 8) == 0 &&
	       (rest == 0 || ((address[bits / 8] ^ prefix[bits / 8]) >> (8 - rest)) == 0);
}

static enum net_address_kind find_range(const struct range *rows, size_t count,
					const unsigned char *address, unsigned *ret_bits)
{
	for (size_t i = 0; i < count; i++)
		if (has_prefix(address, rows[i].address, rows[i].bits)) {
			*ret_bits = rows[i].bits;
			return rows[i].kind;
		}
	*ret_bits = 0;
	return NET_PUBLIC_ADDRESS;
}

enum net_address_kind net_address_range(const unsigned char address[16], unsigned *ret_bits)
{
	static const unsigned char global[] = {0x20};
	enum net_address_kind kind;

	kind = find_range(ranges6, 1, address, ret_bits); /* ::1 has the form of a compatible one */
	if (kind != NET_PUBLIC_ADDRESS)
		return kind;
	for (size_t i = 0; i < ARRAY_LEN(embeddings); i++) {
		unsigned char v4[4];

		if (!has_prefix(address, embeddings[i].prefix, embeddings[i].bits))
			continue;
		for (unsigned j = 0; j < 4; j++)
			v4[j] = address[embeddings[i].at + j] ^ embeddings[i].inverted;
		kind = find_range(ranges4, ARRAY_LEN(ranges4), v4, ret_bits);
		if (kind == NET_PUBLIC_ADDRESS)
			kind = embeddings[i].otherwise;
		*ret_bits += kind != NET_PUBLIC_ADDRESS || i == 0 ? 8 * embeddings[i].at : 0;
		return kind;
	}
	kind = find_range(ranges6, ARRAY_LEN(ranges6), address, ret_bits);
	if (kind == NET_PUBLIC_ADDRESS && !has_prefix(address, global, 3)) {
		*ret_bits = 8;
		return NET_RESERVED_ADDRESS;
	}
	return kind;
}

enum net_address_kind net_address_kind(const unsigned char address[16])
{
	unsigned bits;

	return net_address_range(address, &bits);
}

const char *net_address_kind_name(enum net_address_kind kind)
{
	static const char *const names[] = {
		[NET_PUBLIC_ADDRESS] = "public",	 [NET_LOOPBACK_ADDRESS] = "loopback",
		[NET_PRIVATE_ADDRESS] = "private",	 [NET_CGNAT_ADDRESS] = "carrier-grade NAT",
		[NET_LINK_LOCAL_ADDRESS] = "link-local", [NET_MULTICAST_ADDRESS] = "multicast",
		[NET_RESERVED_ADDRESS] = "reserved",
	};

	return names[kind];
}

void net_address_text(const unsigned char address[16], bool brackets, char ret[NET_ADDRESS_TEXT])
{
	char digits[INET6_ADDRSTRLEN] = "";

	if (has_prefix(address, embeddings[0].prefix, 96)) {
		inet_ntop(AF_INET, address + 12, ret, NET_ADDRESS_TEXT);
		return;
	}
	inet_ntop(AF_INET6, address, digits, sizeof(digits));
	snprintf(ret, NET_ADDRESS_TEXT, brackets ? "[%s]" : "%s", digits);
}
