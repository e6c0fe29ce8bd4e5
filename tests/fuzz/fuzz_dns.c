/* A query of a sandbox: whatever is answered stays within what the client takes, and can be read back. */
#include "fuzz.h"

#include "wire/dns.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const unsigned char address[16] = {1, 2, 3, 4};
	struct buf out = {0};
	struct dns_query q, again;
	unsigned char reverse[16];
	int rc = dns_query_read(data, size, &q);

	if (rc == 0)
		return 0;
	PROMISE(strlen(q.name) < DNS_NAME && q.question_len <= sizeof(q.question));
	PROMISE(q.udp_size >= 512 && q.udp_size <= DNS_UDP_MAX);
	dns_reverse_address(q.name, reverse);
	dns_answer_begin(&out, &q, rc > 0 ? DNS_OK : q.rcode);
	if (rc > 0) {
		dns_answer_address(&out, address, size & 1 ? 4 : 16, 60);
		dns_answer_name(&out, q.name, 60);
		dns_answer_text(&out, (const char *)data, size, 60);
	}
	dns_answer_end(&out, &q, q.udp_size);
	PROMISE(out.len <= q.udp_size);
	/* Without the mark of an answer it is the question again. */
	if (rc > 0) {
		buf_head(&out)[2] &= 0x7f;
		buf_head(&out)[7] = buf_head(&out)[6] = 0;
		PROMISE(dns_query_read((unsigned char *)buf_head(&out), out.len, &again) == 1);
		PROMISE(strcmp(again.name, q.name) == 0 && again.type == q.type);
	}
	buf_done(&out);
	return 0;
}
