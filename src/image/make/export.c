/*
 * Exports an image as an OCI layout with the manifest of `docker save` beside it, so that whoever reads one
 * of the two takes it. Layers are written again from the store, uncompressed; their digests are checked.
 */
#include "image/make/make.h"

#include "kern/dirents.h"

#define MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define CONFIG "application/vnd.oci.image.config.v1+json"
#define LAYER "application/vnd.oci.image.layer.v1.tar"

struct exporting {
	struct image_maker *m;
	const struct image *image;
	const char *name; /* or NULL */
	int dir;
};

static int write_layer(struct exporting *x, const char *hex, uint64_t *ret_size, struct err *e)
{
	auto_free char *path = str_format("blobs/sha256/%s", hex);
	auto_close int file =
		openat(x->dir, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	struct stat st;

	if (file < 0)
		return err_sys(e, "cannot make %s", path);
	if (image_layer_write(x->m, hex, file, e) < 0)
		return -1;
	if (fstat(file, &st) < 0)
		return err_sys(e, "cannot look at %s", path);
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

static int write_blob(struct exporting *x, const char *bytes, size_t len, char hex[IMAGE_HEX + 1],
		      struct err *e)
{
	auto_close int blobs = openat(x->dir, "blobs/sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	image_hash(bytes, len, hex);
	if (blobs < 0)
		return err_sys(e, "cannot open the layout");
	return image_write_file(blobs, hex, bytes, len, e);
}

static int write_text(struct exporting *x, const char *name, const char *text, struct err *e)
{
	return image_write_file(x->dir, name, text, strlen(text), e);
}

static int read_config(struct exporting *x, char **ret, size_t *ret_len, struct err *e)
{
	auto_free char *path = str_format("configs/%s", x->image->hex);
	auto_close int fd = openat(x->m->store.dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 || io_read_whole(fd, IMAGE_CONFIG_MAX, ret, ret_len) < 0
		       ? err_sys(e, "cannot read %s", path)
		       : 0;
}

/* One after the other into `to`, with a comma between. */
static void add(char **to, const char *item)
{
	char *longer = str_format("%s%s%s", *to, **to ? "," : "", item);

	free(*to);
	*to = longer;
}

static int write_layers(struct exporting *x, char **descriptors, char **paths, struct err *e)
{
	const struct list *layers = &x->image->record.layers;

	for (size_t i = 0; i < layers->count; i++) {
		const char *hex = layers->items[i];
		auto_free char *descriptor = NULL;
		auto_free char *path = str_format("\"blobs/sha256/%s\"", hex);
		auto_free char *there = str_format("blobs/sha256/%s", hex);
		struct stat st;
		uint64_t size = 0;

		/* An image may have the same layer twice. */
		if (fstatat(x->dir, there, &st, AT_SYMLINK_NOFOLLOW) == 0)
			size = (uint64_t)st.st_size;
		else if (write_layer(x, hex, &size, e) < 0)
			return -1;
		descriptor = str_format("{\"mediaType\":\"" LAYER "\",\"digest\":\"sha256:%s\","
					"\"size\":%llu}",
					hex, (unsigned long long)size);
		add(descriptors, descriptor);
		add(paths, path);
	}
	return 0;
}

/* Names have no character that JSON would need to be escaped (image_reference_parse). */
static int write_manifests(struct exporting *x, size_t config_len, const char *layers,
			   const char *paths, struct err *e)
{
	const char *name = x->name;
	auto_free char *manifest =
		str_format("{\"schemaVersion\":2,\"mediaType\":\"" MANIFEST
			   "\",\"config\":{\"mediaType\":\"" CONFIG
			   "\",\"digest\":\"sha256:%s\",\"size\":%zu},\"layers\":[%s]}",
			   x->image->hex, config_len, layers);
	auto_free char *notes =
		name ? str_format(",\"annotations\":{\"org.opencontainers.image.ref."
				  "name\":\"%s\",\"io.containerd.image.name\":\"%s\"}",
				  name, name)
		     : str_copy("");
	auto_free char *tags = name ? str_format("[\"%s\"]", name) : str_copy("null");
	auto_free char *index = NULL, *saved = NULL;
	char hex[IMAGE_HEX + 1];

	if (write_blob(x, manifest, strlen(manifest), hex, e) < 0)
		return -1;
	index = str_format("{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"" MANIFEST
			   "\",\"digest\":\"sha256:%s\",\"size\":%zu%s}]}",
			   hex, strlen(manifest), notes);
	saved = str_format("[{\"Config\":\"blobs/sha256/%s\",\"RepoTags\":%s,\"Layers\":[%s]}]",
			   x->image->hex, tags, paths);
	if (write_text(x, "manifest.json", saved, e) < 0 ||
	    write_text(x, "index.json", index, e) < 0)
		return -1;
	return write_text(x, "oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}", e);
}

int image_export(struct image_maker *m, const struct image *image, const char *name, int dir,
		 struct err *e)
{
	struct exporting x = {.m = m, .image = image, .name = name, .dir = dir};
	auto_free char *layers = str_copy(""), *paths = str_copy(""), *config = NULL;
	char hex[IMAGE_HEX + 1];
	size_t len;

	if (mkdirat(dir, "blobs", 0755) < 0 || mkdirat(dir, "blobs/sha256", 0755) < 0)
		return err_sys(e, "cannot make the layout");
	if (read_config(&x, &config, &len, e) < 0 || write_blob(&x, config, len, hex, e) < 0)
		return -1;
	if (!str_equal(hex, image->hex))
		return err_set(e, ERR_SYSTEM, "the configuration of image %s is damaged",
			       image->hex);
	if (write_layers(&x, &layers, &paths, e) < 0)
		return -1;
	return write_manifests(&x, len, layers, paths, e);
}

/* ---- as an archive ---- */

static int write_out(int to, const void *bytes, size_t len, struct err *e)
{
	return io_write_all(to, bytes, len) < 0 ? err_sys(e, "cannot write the archive") : 0;
}

/* Names here are short, and sizes below 8 GB. */
static int write_header(int to, const char *name, uint64_t size, struct err *e)
{
	char h[512] = {0};
	unsigned sum = 0;

	if (size >= 1ull << 33)
		return err_set(e, ERR_UNSUPPORTED,
			       "a layer is larger than 8 GB; export to a directory instead");
	snprintf(h, 100, "%s", name);
	snprintf(h + 100, 8, "%07o", 0644u);
	snprintf(h + 108, 8, "%07o", 0u);
	snprintf(h + 116, 8, "%07o", 0u);
	snprintf(h + 124, 12, "%011llo", (unsigned long long)size);
	snprintf(h + 136, 12, "%011o", 0u);
	memset(h + 148, ' ', 8);
	h[156] = '0';
	memcpy(h + 257,
	       "ustar\0"
	       "00",
	       8);
	for (size_t i = 0; i < sizeof(h); i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 8, "%06o", sum);
	return write_out(to, h, sizeof(h), e);
}

static int write_file(int dir, const char *name, int to, struct err *e)
{
	static const char zeros[512];
	auto_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char bytes[65536];
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "cannot open %s", name);
	if (write_header(to, name, (uint64_t)st.st_size, e) < 0)
		return -1;
	while ((n = io_read_all(fd, bytes, sizeof(bytes))) > 0)
		if (write_out(to, bytes, (size_t)n, e) < 0)
			return -1;
	return n < 0 ? err_sys(e, "cannot read %s", name)
		     : write_out(to, zeros, (size_t)(-st.st_size & 511), e);
}

int image_export_tar(struct image_maker *m, const struct image *image, const char *name, int to,
		     struct err *e)
{
	static const char *const files[] = {"oci-layout", "index.json", "manifest.json"};
	static const char end[1024];
	auto_list struct list blobs = {0};
	auto_close int dir = -1, below = -1;

	if (mkdirat(m->tmp, "export", 0700) == 0)
		dir = openat(m->tmp, "export", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, "cannot make a directory");
	if (image_export(m, image, name, dir, e) < 0)
		return -1;
	below = openat(dir, "blobs/sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (below < 0 || dirents_names(below, SIZE_MAX, &blobs, NULL) < 0)
		return err_sys(e, "cannot list the layout");
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (write_file(dir, files[i], to, e) < 0)
			return -1;
	for (size_t i = 0; i < blobs.count; i++) {
		auto_free char *path = str_format("blobs/sha256/%s", blobs.items[i]);

		if (write_file(dir, path, to, e) < 0)
			return -1;
	}
	return write_out(to, end, sizeof(end), e);
}
