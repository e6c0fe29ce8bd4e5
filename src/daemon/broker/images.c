/*
 * The store of images: who may have which, what is in use, and the processes that change the store. The broker
 * itself reads names and records only; archives, registries and JSON are those processes' business.
 */
#include "base/budget.h"
#include "base/log.h"
#include "daemon/broker/broker_internal.h"
#include "daemon/broker/check.h"
#include "image/build/recipe.h"
#include "image/listing.h"
#include "net/rules.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define JOBS 16		  /* at once */
#define MAKING 6	  /* of these, such that add to the store */
#define OWN_MAKING 2	  /* of one owner */
#define SHARE_WEIGHT 4	  /* one owner alone may have four fifths */
#define DISK_KEPT_PART 20 /* a twentieth of the file system stays free */

struct image_job {
	struct image_job *next;
	pid_t pid;
	char owner[IPC_ID];
	uint64_t room; /* not 0: it adds to the store */
};

int images_prepare(struct daemon *d, struct err *e)
{
	auto_free char *path = str_format("%s/images", d->config->state_dir);

	return image_store_open_at(path, true, &d->images, e);
}

/* As names in the store have it. */
static const char *store_owner(const char *owner)
{
	return *owner ? owner : IMAGE_OWNER_ALL;
}

/* ---- who may have what ---- */

/* Does a name of this owner lead to the image, or one that the operator offers to all? */
static bool may_have(const struct daemon *d, const struct image_refs *refs, const char *owner,
		     const char *hex)
{
	const struct config *c = d->config;

	if (image_refs_find_id(refs, store_owner(owner), hex))
		return true;
	for (uint32_t i = 0; i < c->image_count; i++) {
		const struct image_ref *r =
			config_image_is_stored(&c->images[i])
				? image_refs_find(refs, IMAGE_OWNER_ALL, c->images[i].path)
				: NULL;

		if (r && str_equal(r->hex, hex))
			return true;
	}
	return false;
}

/* The files of a stopped sandbox, or of a snapshot, keep their image, whatever became of its names. */
static bool came_with_snapshot(const struct daemon *d, const struct ipc_boot *boot)
{
	struct ipc_snapshot s;

	return boot->snapshot[0] && snapshot_meta_read(d, boot->snapshot, &s) == 0 &&
	       str_equal(s.owner, boot->owner) && str_equal(s.image, boot->image);
}

static int check_owned(const struct daemon *d, const char *owner, const char *image, struct err *e)
{
	struct image_refs refs;
	bool may;

	if (image_refs_read(&d->images, &refs, e) < 0)
		return -1;
	may = may_have(d, &refs, owner, image + strlen("sha256:"));
	image_refs_done(&refs);
	return may ? 0 : err_field(e, ERR_NOT_FOUND, "image", "image: there is no '%s'", image);
}

int images_check(const struct daemon *d, const struct ipc_boot *boot, struct err *e)
{
	if (!image_is_digest(boot->image) || came_with_snapshot(d, boot))
		return 0;
	return check_owned(d, boot->owner, boot->image, e);
}

/* ---- uses ---- */

static int hold(const struct daemon *d, const char *id, const char *image, bool to_disk,
		struct err *e)
{
	return image_is_digest(image)
		       ? image_use(&d->images, id, image + strlen("sha256:"), to_disk, e)
		       : 0;
}

int images_hold(const struct box *b, bool to_disk, struct err *e)
{
	return hold(b->d, b->i.info.id, b->i.info.image, to_disk, e);
}

static bool is_snapshot(const struct daemon *d, const char *id)
{
	struct ipc_snapshot ignored;

	return snapshot_meta_read(d, id, &ignored) == 0;
}

/* A disk that was kept has the id of its sandbox: the one stays when the other goes. */
void images_leave(const struct box *b)
{
	if (image_is_digest(b->i.info.image) && !is_snapshot(b->d, b->i.info.id))
		image_unuse(&b->d->images, b->i.info.id);
}

int images_hold_for_snapshot(const struct daemon *d, const struct ipc_snapshot *s, struct err *e)
{
	return hold(d, s->id, s->image, true, e);
}

void images_leave_snapshot(struct daemon *d, const char *id)
{
	if (!box_find(d, id))
		image_unuse(&d->images, id);
}

void images_sweep(struct daemon *d)
{
	auto_list struct list ids = {0};
	struct err ignored;

	if (image_uses(&d->images, &ids, &ignored) < 0)
		return;
	for (size_t i = 0; i < ids.count; i++)
		if (!ipc_id_is_valid(ids.items[i]) ||
		    (!box_find(d, ids.items[i]) && !is_snapshot(d, ids.items[i])))
			image_unuse(&d->images, ids.items[i]);
}

/* ---- what the front knows ---- */

static bool job_remove(struct daemon *d, pid_t pid)
{
	for (struct image_job **at = &d->image_jobs; *at; at = &(*at)->next) {
		struct image_job *j = *at;

		if (j->pid != pid)
			continue;
		*at = j->next;
		free(j);
		return true;
	}
	return false;
}

static void tell(struct daemon *d, bool again)
{
	struct ipc m = {.type = IPC_IMAGES};
	auto_close int fd = memfd_create("images", MFD_CLOEXEC);
	struct buf now = {0};
	struct err e = {0};
	bool same;

	if (fd < 0 || image_listing_write(&d->images, &now, &e) < 0) {
		log_error("cannot list the images", "error", e.kind ? e.msg : strerror(errno));
		buf_done(&now);
		return;
	}
	same = now.len == d->images_told.len &&
	       memcmp(buf_head(&now), buf_head(&d->images_told), now.len) == 0;
	buf_done(&d->images_told);
	d->images_told = now;
	if (same && !again)
		return;
	if (io_write_all(fd, buf_head(&now), now.len) < 0)
		log_error("cannot list the images", "error", strerror(errno));
	else if (again)
		front_news_early(d, &m, fd);
	else
		front_news(d, &m, fd);
}

void images_tell(struct daemon *d)
{
	tell(d, false);
}

void images_tell_all(struct daemon *d)
{
	tell(d, true);
}

void images_request_look(struct daemon *d, struct requester who, const struct ipc *m)
{
	/* A process that has just ended no longer counts for who asked for it. */
	for (struct image_job *j = d->image_jobs, *next; j; j = next) {
		next = j->next;
		if (waitpid(j->pid, NULL, WNOHANG) == j->pid)
			job_remove(d, j->pid);
	}
	images_tell(d);
	front_done(d, who, "", NULL);
}

/* ---- how much may be added ---- */

struct usage {
	uint64_t all, own;
	uint32_t names;
};

static uint64_t layer_bytes(const struct daemon *d, const char *hex)
{
	auto_free char *path = str_format("layers/%s/size", hex);
	uint64_t size = 0;
	struct err ignored;
	char text[32];

	if (io_read_at(d->images.dir, path, text, sizeof(text)) > 0)
		(void)parse_count(text, &size, &ignored);
	return size;
}

static bool add_once(struct list *l, const char *hex)
{
	for (size_t i = 0; i < l->count; i++)
		if (str_equal(l->items[i], hex))
			return false;
	list_add(l, hex);
	return true;
}

/* Everything on disk, also what no name leads to any more. */
static uint64_t measure_all(const struct daemon *d)
{
	auto_close int layers = openat(d->images.dir, "layers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_list struct list names = {0};
	uint64_t sum = 0;

	if (layers >= 0)
		list_names(layers, &names);
	for (size_t i = 0; i < names.count; i++)
		sum += layer_bytes(d, names.items[i]);
	return sum;
}

/* Of the owner's images; layers that several of its names share count once. */
static int measure(const struct daemon *d, const char *owner, struct usage *ret, struct err *e)
{
	auto_list struct list own = {0}, seen = {0};
	struct usage u = {.all = measure_all(d)};
	struct image_refs refs;

	if (image_refs_read(&d->images, &refs, e) < 0)
		return -1;
	for (size_t i = 0; i < refs.count; i++) {
		struct image image;
		struct err ignored;

		if (!str_equal(refs.items[i].owner, store_owner(owner)))
			continue;
		u.names++;
		if (!add_once(&seen, refs.items[i].hex) ||
		    image_open(&d->images, refs.items[i].hex, &image, &ignored) < 0)
			continue;
		for (size_t n = 0; n < image.record.layers.count; n++) {
			const char *hex = image.record.layers.items[n];

			if (add_once(&own, hex))
				u.own += layer_bytes(d, hex);
		}
		image_done(&image);
	}
	image_refs_done(&refs);
	for (const struct image_job *j = d->image_jobs; j; j = j->next) {
		u.all += j->room;
		u.own += str_equal(j->owner, owner) ? j->room : 0;
	}
	*ret = u;
	return 0;
}

/* A fair share of what is left (base/budget.h), and never the last of the disk. */
static int find_room(const struct daemon *d, const char *owner, uint64_t *ret, struct err *e)
{
	const struct config_image_store *c = &d->config->image_store;
	struct budget_pool all = {.max = c->total_bytes ? c->total_bytes : UINT64_MAX / 16,
				  .weight = SHARE_WEIGHT};
	struct budget own = {.max = UINT64_MAX, .pool = &all, .is_operator = !*owner};
	struct statvfs fs;
	struct usage u;
	uint64_t left, kept;

	if (measure(d, owner, &u, e) < 0)
		return -1;
	if (u.names >= c->max_count)
		return err_set(e, ERR_LIMIT,
			       "images: there are %u names already (image_store.max_count); "
			       "remove some",
			       u.names);
	all.used = u.all;
	own.used = u.own;
	left = budget_left(&own);
	if (left == 0)
		return err_set(e, ERR_LIMIT,
			       "images: the share of image_store.max_total is used up; remove "
			       "some");
	if (fstatvfs(d->images.dir, &fs) == 0) {
		uint64_t free_bytes = fs.f_bavail * fs.f_frsize;

		kept = fs.f_blocks / DISK_KEPT_PART * fs.f_frsize;
		if (free_bytes <= kept)
			return err_set(e, ERR_LIMIT, "images: the disk is nearly full");
		left = left < free_bytes - kept ? left : free_bytes - kept;
	}
	/* What others may begin meanwhile finds something free as well. */
	*ret = left / MAKING > (1u << 30) ? left / MAKING : left;
	return 0;
}

static bool adds(enum ipc_image_job job)
{
	return job < IMAGE_JOB_EXPORT || job == IMAGE_JOB_TAG;
}

static int check_registry(const struct daemon *d, const char *name, struct err *e)
{
	const struct config_image_store *c = &d->config->image_store;
	struct image_reference r;

	if (image_reference_parse(name, &r, e) < 0)
		return -1;
	for (uint32_t i = 0; i < c->registry_count; i++)
		if (str_equal(c->registries[i], r.registry) || str_equal(c->registries[i], "*"))
			return 0;
	return err_field(e, ERR_DENIED, "name",
			 "name: the operator does not let the daemon pull from %s "
			 "(image_store.registries)",
			 r.registry);
}

static bool has_name(const struct daemon *d, const char *owner, const char *text)
{
	struct image_reference name;
	struct image_refs refs;
	struct err ignored;
	bool has;

	if (image_reference_parse(text, &name, &ignored) < 0 ||
	    image_refs_read(&d->images, &refs, &ignored) < 0)
		return false;
	has = image_refs_find(&refs, store_owner(owner), name.name) != NULL;
	image_refs_done(&refs);
	return has;
}

/* What an image is built from: one that the owner has, or one to be pulled. */
static int check_base(const struct daemon *d, const struct ipc_image *i, struct err *e)
{
	if (image_is_digest(i->to))
		return check_owned(d, i->owner, i->to, e);
	return has_name(d, i->owner, i->to) ? 0 : check_registry(d, i->to, e);
}

static int check_jobs(const struct daemon *d, const struct ipc_image *i, struct err *e)
{
	unsigned all = 0, making = 0, own = 0;

	for (const struct image_job *j = d->image_jobs; j; j = j->next) {
		all++;
		making += j->room != 0;
		own += j->room && str_equal(j->owner, i->owner);
	}
	if (all < JOBS &&
	    (!adds((enum ipc_image_job)i->job) || (making < MAKING && own < OWN_MAKING)))
		return 0;
	err_set(e, ERR_SYSTEM, "images are being made already; try again later");
	e->errnum = EBUSY;
	return -1;
}

static int check_request(const struct daemon *d, const struct ipc_image *i, uint64_t *ret_room,
			 struct err *e)
{
	if (i->job >= IMAGE_JOB_COUNT || !check_owner(i->owner) || str_equal(i->owner, "-"))
		return err_set(e, ERR_INVALID, "not a request about images");
	if (check_jobs(d, i, e) < 0)
		return -1;
	if (i->job == IMAGE_JOB_PULL && check_registry(d, i->name, e) < 0)
		return -1;
	if (i->job == IMAGE_JOB_BUILD && check_base(d, i, e) < 0)
		return -1;
	return adds((enum ipc_image_job)i->job) ? find_room(d, i->owner, ret_room, e) : 0;
}

/* ---- what comes along with a build ---- */

/* A copy of the front's memfd: nobody changes it while it is judged. */
static int read_recipe(int fd, char **ret, size_t *ret_len, struct err *e)
{
	if (fd >= 0 && fcntl(fd, F_GET_SEALS) >= 0 && lseek(fd, 0, SEEK_SET) >= 0 &&
	    io_read_whole(fd, IMAGE_PLAN_MAX, ret, ret_len) == 0)
		return 0;
	return err_set(e, ERR_INVALID, "a build without a recipe");
}

static int check_recipe(const struct daemon *d, const char *owner, const struct recipe_head *h,
			size_t len, struct err *e)
{
	if (len < sizeof(*h) || len - sizeof(*h) < h->rules_size)
		return err_set(e, ERR_INVALID, "a recipe that is too short");
	return request_check_build(d, owner, &h->limits, e);
}

/* The recipe with the network that the owner may have. Returns a file. */
static int judge_recipe(const struct daemon *d, const char *owner, struct err *e)
{
	auto_free char *bytes = NULL, *request = NULL;
	auto_buf struct buf rules = {0};
	auto_close int fd = -1;
	struct recipe_head head;
	const char *steps;
	size_t len;

	if (read_recipe(d->front.request_fd, &bytes, &len, e) < 0)
		return -1;
	memcpy(&head, bytes, len < sizeof(head) ? len : sizeof(head));
	if (check_recipe(d, owner, &head, len, e) < 0)
		return -1;
	/* Rules are read at addresses that fit them. */
	request = must_alloc(malloc(head.rules_size + 1));
	memcpy(request, bytes + sizeof(head), head.rules_size);
	steps = bytes + sizeof(head) + head.rules_size;
	len -= (size_t)(steps - bytes);
	if (net_policy_check(request, head.rules_size, e) < 0 ||
	    network_join(d, owner, -1, request, &rules, e) < 0)
		return -1;
	head.rules_size = net_policy_mode(buf_head(&rules)) == NET_NONE ? 0 : (uint32_t)rules.len;
	fd = memfd_create("recipe", MFD_CLOEXEC);
	if (fd < 0 || io_write_all(fd, &head, sizeof(head)) < 0 ||
	    io_write_all(fd, buf_head(&rules), head.rules_size) < 0 ||
	    io_write_all(fd, steps, len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return err_sys(e, "cannot hand over a recipe");
	return take_fd(&fd);
}

/* ---- processes ---- */

/* In the child. All other fds are close-on-exec. recipe -1: there is none. */
static void exec_job(const struct daemon *d, const struct ipc_image *i, uint64_t room, int sock,
		     int config, int recipe)
{
	char job[8], bytes[24];
	char *argv[] = {
		"cloched", "role",	    "image",	   job, (char *)store_owner(i->owner),
		bytes,	   (char *)i->name, (char *)i->to, NULL};
	int lifted[] = {fcntl(sock, F_DUPFD_CLOEXEC, 64), fcntl(config, F_DUPFD_CLOEXEC, 64),
			recipe < 0 ? -1 : fcntl(recipe, F_DUPFD_CLOEXEC, 64)};
	int self = fcntl(d->self, F_DUPFD_CLOEXEC, 64);
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	setsid();
	snprintf(job, sizeof(job), "%u", i->job);
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)room);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(lifted[0], 3) >= 0 && dup2(lifted[1], 4) >= 0 &&
	    (recipe < 0 || dup2(lifted[2], 5) >= 0))
		syscall(SYS_execveat, self, "", argv, environ, AT_EMPTY_PATH);
	_exit(125);
}

static int start_job(struct daemon *d, const struct ipc_image *i, uint64_t room, struct err *e)
{
	auto_close int config = config_write(d->config, e), recipe = -1;
	struct image_job *j;
	int pair[2];
	pid_t pid;

	if (config < 0)
		return -1;
	if (i->job == IMAGE_JOB_BUILD) {
		recipe = judge_recipe(d, i->owner, e);
		if (recipe < 0)
			return -1;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	pid = fork();
	if (pid == 0)
		exec_job(d, i, room, pair[1], config, recipe);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return err_sys(e, "cannot create a process");
	}
	j = must_alloc(calloc(1, sizeof(*j)));
	*j = (struct image_job){.next = d->image_jobs, .pid = pid, .room = room};
	memcpy(j->owner, i->owner, sizeof(j->owner));
	d->image_jobs = j;
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	return pair[0];
}

void images_request(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct ipc reply = {.type = IPC_DONE};
	uint64_t room = 0;
	struct err e = {0};
	auto_close int fd = -1;

	if (check_request(d, &m->image, &room, &e) == 0)
		fd = start_job(d, &m->image, room, &e);
	if (fd < 0)
		front_done(d, who, "", &e);
	else
		front_answer(d, who, &reply, fd);
}

bool images_reaped(struct daemon *d, pid_t pid)
{
	if (!job_remove(d, pid))
		return false;
	images_tell(d);
	return true;
}
