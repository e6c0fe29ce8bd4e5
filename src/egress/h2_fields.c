/* Keeps the header fields of HTTP/2 messages. */
#include "egress/h2_fields.h"

int h2_fields_add(struct h2_fields *f, const char *name, size_t name_len, const char *value,
		  size_t value_len)
{
	if (f->count == HTTP1_FIELDS || f->text.len + name_len + value_len + 2 > HTTP1_HEAD_MAX ||
	    memchr(name, '\0', name_len) || memchr(value, '\0', value_len))
		return -1;
	f->at[f->count].name = (uint32_t)f->text.len;
	buf_add(&f->text, name, name_len);
	buf_add(&f->text, "", 1);
	f->at[f->count].value = (uint32_t)f->text.len;
	buf_add(&f->text, value, value_len);
	buf_add(&f->text, "", 1);
	f->count++;
	return 0;
}

const char *h2_fields_get(const struct h2_fields *f, const char *name)
{
	for (size_t i = 0; i < f->count; i++)
		if (str_equal(buf_head(&f->text) + f->at[i].name, name))
			return buf_head(&f->text) + f->at[i].value;
	return NULL;
}

size_t h2_fields_list(const struct h2_fields *f, struct http1_field *ret)
{
	for (size_t i = 0; i < f->count; i++)
		ret[i] = (struct http1_field){buf_head(&f->text) + f->at[i].name,
					      buf_head(&f->text) + f->at[i].value};
	return f->count;
}

void h2_fields_done(struct h2_fields *f)
{
	buf_done(&f->text);
	f->count = 0;
}

void h2_nv(nghttp2_nv *nv, const char *name, const char *value, bool is_secret)
{
	*nv = (nghttp2_nv){.name = (uint8_t *)name,
			   .value = (uint8_t *)value,
			   .namelen = strlen(name),
			   .valuelen = strlen(value),
			   .flags = is_secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE};
}
