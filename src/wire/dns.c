/* DNS: one question is read strictly, answers are written. Names are never followed by pointers. */
#include "wire/dns.h"

#define HEAD 12

enum {
	FLAG_ANSWER = 0x8000,
	FLAG_OPCODE = 0x7800,
	FLAG_CUT = 0x0200,
	FLAG_WANTS_RECURSION = 0x0100,
	FLAG_RECURSION = 0x0080,
	CLASS_IN = 1,
	POINTER_TO_QUESTION = 0xc000 | HEAD,
};

static uint16_t get16(const unsigned char *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void add16(struct buf *b, unsigned v)
{
	unsigned char bytes[2] = {(unsigned char)(v >> 8), (unsigned char)v};

	buf_add(b, bytes, 2);
}

static void set16(struct buf *b, size_t at, unsigned v)
{
	buf_head(b)[at] = (char)(v >> 8);
	buf_head(b)[at + 1] = (char)v;
}

/* ---- reading ---- */

/* Returns the length of the name's bytes, 0 if it is malformed. */
static size_t read_name(const unsigned char *bytes, size_t len, struct dns_query *ret)
{
	size_t at = 0, used = 0;

	ret->is_text = true;
	for (;;) {
		size_t label;

		if (at >= len)
			return 0;
		label = bytes[at++];
		if (label == 0)
			break;
		/* 63 is the longest; more are pointers, which a first name cannot have. */
		if (label > 63 || len - at < label || used + label + 2 > DNS_NAME)
			return 0;
		if (used)
			ret->name[used++] = '.';
		for (size_t i = 0; i < label; i++) {
			unsigned char c = bytes[at + i];

			if (c <= ' ' || c == '.' || c == 127)
				ret->is_text = false;
			ret->name[used++] = (char)(c ? c : '?');
		}
		at += label;
	}
	ret->name[used] = '\0';
	/* 255 bytes on the wire. */
	return at > 255 ? 0 : at;
}

/* An OPT record behind the question; anything else there is ignored. */
static void read_edns(const unsigned char *bytes, size_t len, struct dns_query *ret)
{
	if (len < 11 || bytes[0] != 0 || get16(bytes + 1) != DNS_OPT)
		return;
	ret->edns = true;
	ret->udp_size = get16(bytes + 3);
	if (ret->udp_size < 512)
		ret->udp_size = 512;
	if (ret->udp_size > DNS_UDP_MAX)
		ret->udp_size = DNS_UDP_MAX;
}

static int refuse(struct dns_query *q, enum dns_rcode rcode)
{
	q->rcode = rcode;
	return -1;
}

int dns_query_read(const unsigned char *bytes, size_t len, struct dns_query *ret)
{
	size_t name;

	*ret = (struct dns_query){.udp_size = 512};
	if (len < HEAD)
		return 0;
	ret->id = get16(bytes);
	ret->flags = get16(bytes + 2);
	/* An answer to an answer would be a loop. */
	if (ret->flags & FLAG_ANSWER)
		return 0;
	if (ret->flags & FLAG_OPCODE)
		return refuse(ret, DNS_NOTIMP);
	if (get16(bytes + 4) != 1 || get16(bytes + 6) != 0 || get16(bytes + 8) != 0)
		return refuse(ret, DNS_FORMERR);
	name = read_name(bytes + HEAD, len - HEAD, ret);
	if (!name || len - HEAD - name < 4)
		return refuse(ret, DNS_FORMERR);
	ret->type = get16(bytes + HEAD + name);
	ret->class = get16(bytes + HEAD + name + 2);
	ret->question_len = name + 4;
	memcpy(ret->question, bytes + HEAD, ret->question_len);
	ret->has_question = true;
	if (get16(bytes + 10))
		read_edns(bytes + HEAD + name + 4, len - HEAD - name - 4, ret);
	return ret->class == CLASS_IN ? 1 : refuse(ret, DNS_REFUSED);
}

/* ---- writing ---- */

void dns_answer_begin(struct buf *b, const struct dns_query *q, enum dns_rcode rcode)
{
	add16(b, q->id);
	add16(b, (unsigned)(FLAG_ANSWER | (q->flags & (FLAG_OPCODE | FLAG_WANTS_RECURSION)) |
			    FLAG_RECURSION) |
			 (unsigned)rcode);
	add16(b, q->has_question);
	add16(b, 0);
	add16(b, 0);
	add16(b, 0);
	if (q->has_question)
		buf_add(b, q->question, q->question_len);
}

/* The record's head; its name is that of the question. */
static void add_record(struct buf *b, unsigned type, uint32_t ttl_s, size_t len)
{
	set16(b, 6, get16((unsigned char *)buf_head(b) + 6) + 1u);
	add16(b, POINTER_TO_QUESTION);
	add16(b, type);
	add16(b, CLASS_IN);
	add16(b, ttl_s >> 16);
	add16(b, ttl_s & 0xffff);
	add16(b, (unsigned)len);
}

void dns_answer_address(struct buf *b, const unsigned char *address, size_t len, uint32_t ttl_s)
{
	add_record(b, len == 4 ? DNS_A : DNS_AAAA, ttl_s, len);
	buf_add(b, address, len);
}

void dns_answer_name(struct buf *b, const char *name, uint32_t ttl_s)
{
	unsigned char bytes[DNS_NAME + 2];
	size_t used = 0, len = strlen(name);

	if (len == 0 || len + 2 > 255)
		return;
	while (*name) {
		size_t label = strcspn(name, ".");

		if (label == 0 || label > 63)
			return;
		bytes[used++] = (unsigned char)label;
		memcpy(bytes + used, name, label);
		used += label;
		name += label + (name[label] == '.');
	}
	bytes[used++] = 0;
	add_record(b, DNS_PTR, ttl_s, used);
	buf_add(b, bytes, used);
}

void dns_answer_text(struct buf *b, const char *text, size_t len, uint32_t ttl_s)
{
	size_t pieces = len ? (len + 254) / 255 : 1;

	if (len + pieces > UINT16_MAX)
		return;
	add_record(b, DNS_TXT, ttl_s, len + pieces);
	do {
		unsigned char piece = (unsigned char)(len < 255 ? len : 255);

		buf_add(b, &piece, 1);
		buf_add(b, text, piece);
		text += piece;
		len -= piece;
	} while (len);
}

void dns_answer_end(struct buf *b, const struct dns_query *q, size_t most)
{
	static const unsigned char opt[11] = {0, 0, DNS_OPT, DNS_UDP_MAX >> 8, DNS_UDP_MAX & 0xff};

	if (b->len + (q->edns ? sizeof(opt) : 0) > most) {
		b->len = HEAD + (q->has_question ? q->question_len : 0);
		set16(b, 2, get16((unsigned char *)buf_head(b) + 2) | FLAG_CUT);
		set16(b, 6, 0);
	}
	if (!q->edns)
		return;
	set16(b, 10, 1);
	buf_add(b, opt, sizeof(opt));
}

/* ---- addresses as names ---- */

/* One number of a name, and the dot behind it. */
static const char *read_part(const char *name, int base, unsigned *ret)
{
	char *end;
	unsigned long v;

	if (str_hex_digit(*name) < 0)
		return NULL;
	v = strtoul(name, &end, base);
	if (*end != '.' || end - name > 3 || v > 255)
		return NULL;
	*ret = (unsigned)v;
	return end + 1;
}

bool dns_reverse_address(const char *name, unsigned char ret[16])
{
	unsigned char address[16] = {[10] = 0xff, [11] = 0xff};
	size_t len = strlen(name);
	unsigned part;

	if (len > 13 && strcasecmp(name + len - 13, ".in-addr.arpa") == 0) {
		for (int i = 15; i >= 12; i--) {
			name = read_part(name, 10, &part);
			if (!name)
				return false;
			address[i] = (unsigned char)part;
		}
		memcpy(ret, address, 16);
		return strcasecmp(name, "in-addr.arpa") == 0;
	}
	if (len != 72 || strcasecmp(name + 64, "ip6.arpa") != 0)
		return false;
	memset(address, 0, sizeof(address));
	for (int i = 0; i < 32; i++) {
		int digit = str_hex_digit(name[2 * i]);

		if (digit < 0 || name[2 * i + 1] != '.')
			return false;
		address[15 - i / 2] |= (unsigned char)(digit << (i % 2 ? 4 : 0));
	}
	memcpy(ret, address, 16);
	return true;
}
