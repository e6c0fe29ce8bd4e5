/*
 * Images of the daemon's store: what the broker has told of it, which image a request means, and the work on the
 * store that clients ask for. A name is resolved once, when a sandbox is asked for; from then on its id counts.
 */
#include "manager/manager_internal.h"

#include "base/fd_message.h"

#include <sys/mman.h>
#include <sys/socket.h>

#define LISTING_MAX (256u << 20)

void images_news(struct manager *m, int fd)
{
	struct image_listing fresh;
	auto_free char *bytes = NULL;
	struct err e = {0};
	size_t len = 0;

	if (fd < 0 || io_read_whole(fd, LISTING_MAX, &bytes, &len) < 0)
		err_sys(&e, "cannot read the list of images");
	if (e.kind || image_listing_read(bytes, len, &fresh, &e) < 0) {
		manager_log(m, "images: %s", e.msg);
		return;
	}
	image_listing_done(&m->images);
	m->images = fresh;
	pool_images_changed(m);
}

static const char *names_of(const struct caller *who)
{
	return who->token[0] ? who->token : IMAGE_OWNER_ALL;
}

const struct image_record *manager_image_record(const struct manager *m, const char *id)
{
	return image_is_digest(id) ? image_listing_find(&m->images, id + strlen("sha256:")) : NULL;
}

/* ---- which image is meant? ---- */

static const struct image_ref *find_ref(const struct manager *m, const char *owner,
					const char *what)
{
	struct image_reference name;
	struct err ignored;
	const struct image_ref *r = NULL;

	if (!str_starts(what, "sha256:") && image_reference_parse(what, &name, &ignored) == 0)
		r = image_refs_find(&m->images.refs, owner, name.name);
	return r ? r : image_refs_find_id(&m->images.refs, owner, what);
}

static int unknown(const char *what, struct err *e)
{
	return err_field(e, ERR_NOT_FOUND, "image",
			 "image: there is no '%.200s'; GET /v1/images lists those that there are",
			 what);
}

/* What the operator's settings call so: a directory, or an image of the operator's. */
static int resolve_offered(const struct manager *m, const struct config_image *i,
			   char ret[IPC_IMAGE_ID], struct err *e)
{
	const struct image_ref *r;

	if (!config_image_is_stored(i)) {
		snprintf(ret, IPC_IMAGE_ID, "dir:%.70s", i->name);
		return 0;
	}
	r = image_refs_find(&m->images.refs, IMAGE_OWNER_ALL, i->path);
	if (!r)
		return err_field(e, ERR_NOT_FOUND, "image",
				 "image: '%s' is %.200s by the operator's settings, which is not "
				 "in the store yet",
				 i->name, i->path);
	snprintf(ret, IPC_IMAGE_ID, "sha256:%s", r->hex);
	return 0;
}

static int resolve(const struct manager *m, const struct caller *who, const char *what,
		   char ret[IPC_IMAGE_ID], struct err *e)
{
	const struct config_image *offered = config_image_find(m->p.config, what);
	const struct image_ref *r;

	if (str_equal(what, "host")) {
		snprintf(ret, IPC_IMAGE_ID, "host");
		return 0;
	}
	if (offered)
		return resolve_offered(m, offered, ret, e);
	r = find_ref(m, names_of(who), what);
	if (!r)
		return unknown(what, e);
	snprintf(ret, IPC_IMAGE_ID, "sha256:%s", r->hex);
	return 0;
}

/* An image whose USER is root makes the command root inside, if the token has the right. */
static int take_user(const struct manager *m, const struct caller *who, struct create_options *o,
		     struct err *e)
{
	const struct image_record *r = manager_image_record(m, o->image_id);
	bool has_right = who->root || !who->token[0];

	if (!r || spec_is_set(&o->spec, "user") || o->keeps_user || !image_user_is_root(r) ||
	    !has_right || options_are_warm_host(o))
		return 0;
	return spec_set(&o->spec, "user", "root", e);
}

int manager_choose_image(struct manager *m, const struct caller *who, struct create_options *o,
			 struct err *e)
{
	const char *what = o->spec.image ? o->spec.image : "host";

	if (o->image_id[0])
		return 0;
	if (o->spec.provider != PROVIDER_NS) {
		if (!str_equal(what, "host") && provider_check(o->spec.provider, CAN_IMAGE, e) < 0)
			return -1;
		snprintf(o->image_id, sizeof(o->image_id), "host");
		return 0;
	}
	return resolve(m, who, what, o->image_id, e) < 0 ? -1 : take_user(m, who, o, e);
}

bool manager_has_image(const struct manager *m, const struct caller *who, const char *what)
{
	char id[IPC_IMAGE_ID];
	struct err ignored;

	return resolve(m, who, what, id, &ignored) == 0;
}

const struct image_record *manager_record_of(const struct manager *m, const struct caller *who,
					     const char *what)
{
	char id[IPC_IMAGE_ID];
	struct err ignored;

	return resolve(m, who, what, id, &ignored) < 0 ? NULL : manager_image_record(m, id);
}

const char *images_note(const struct sandbox *s)
{
	const struct image_record *r = manager_image_record(s->m, s->o.image_id);

	if (!r || spec_wants_root(&s->o.spec))
		return NULL;
	if (!image_user_is_root(r))
		return "The image's USER is shown as the sandbox's own user, uid 1000.";
	return "The image's USER is root; commands run as the sandbox's ordinary user, which may "
	       "not do what root could.";
}

/* ---- an image that a snapshot brings along ---- */

struct origin {
	struct manager *m;
	struct caller owner, who;
	struct create_options o;
	struct create_done done;
};

static void on_origin(void *arg, const struct ipc *reply, int fd)
{
	struct origin *g = arg;
	const struct ipc_snapshot *s = &reply->snapshot;

	close_fd(&fd);
	if (reply->type == IPC_SNAPSHOT_IS) {
		if (str_equal(s->id, g->o.snapshot) && str_equal(s->owner, g->owner.token) &&
		    image_is_digest(s->image)) {
			memcpy(g->o.image_id, s->image, sizeof(g->o.image_id));
			free(g->o.spec.image);
			g->o.spec.image = str_copy(s->image);
		}
		return;
	}
	/* A snapshot that is unknown, or has none of the store, changes nothing. */
	g->o.knows_origin = true;
	manager_create_for(g->m, &g->owner, &g->who, &g->o, g->done);
	create_options_done(&g->o);
	free(g);
}

bool images_ask_origin(struct manager *m, const struct caller *owner, const struct caller *who,
		       struct create_options *o, struct create_done done)
{
	struct ipc list = {.type = IPC_SNAPSHOT_LIST};
	struct origin *g;

	if (!o->snapshot[0] || o->image_id[0] || o->knows_origin || spec_is_set(&o->spec, "image"))
		return false;
	g = must_alloc(calloc(1, sizeof(*g)));
	*g = (struct origin){.m = m, .owner = *owner, .who = *who, .o = *o, .done = done};
	*o = (struct create_options){0};
	broker_ask(m->p.broker, &list, -1, on_origin, g);
	return true;
}

/* ---- for clients ---- */

/* What is not UTF-8 is left out. */
static json_t *texts_json(const struct list *l)
{
	json_t *all = json_array();

	for (size_t i = 0; i < l->count; i++)
		json_array_append_new(all, json_string(l->items[i]));
	return all;
}

static json_t *describe_ref(const struct manager *m, const struct image_ref *r, bool with_owner)
{
	const struct image_record *record = image_listing_find(&m->images, r->hex);
	json_t *o = json_pack(
		"{s:s,s:o,s:s?,s:o,s:o,s:o}", "name", r->name, "id",
		json_sprintf("sha256:%s", r->hex), "digest",
		str_equal(r->digest, "-") ? NULL : r->digest, "added_at", time_json(r->unix_ms),
		"size_bytes", record ? json_integer((json_int_t)record->size) : json_null(),
		"layers", record ? json_integer((json_int_t)record->layers.count) : json_null());

	if (with_owner && !str_equal(r->owner, IMAGE_OWNER_ALL))
		json_object_set_new(o, "owner", json_string(r->owner));
	return o;
}

json_t *manager_images(const struct manager *m, const struct caller *who)
{
	const struct config *c = m->p.config;
	json_t *all = json_array();
	char id[IPC_IMAGE_ID];
	struct err ignored;

	json_array_append_new(all, json_pack("{s:s}", "name", "host"));
	for (uint32_t i = 0; i < c->image_count; i++) {
		json_t *o = json_pack("{s:s}", "name", c->images[i].name);

		if (resolve_offered(m, &c->images[i], id, &ignored) == 0 && image_is_digest(id))
			json_object_set_new(o, "id", json_string(id));
		json_array_append_new(all, o);
	}
	for (size_t i = 0; i < m->images.refs.count; i++) {
		const struct image_ref *r = &m->images.refs.items[i];

		if (caller_sees_all(who) || str_equal(r->owner, names_of(who)))
			json_array_append_new(all, describe_ref(m, r, caller_sees_all(who)));
	}
	return json_pack("{s:o}", "images", all);
}

json_t *manager_image(const struct manager *m, const struct caller *who, const char *what,
		      struct err *e)
{
	const struct image_record *r;
	char id[IPC_IMAGE_ID];
	json_t *layers = json_array();

	if (resolve(m, who, what, id, e) < 0) {
		json_decref(layers);
		return NULL;
	}
	r = manager_image_record(m, id);
	for (size_t i = 0; r && i < r->layers.count; i++)
		json_array_append_new(layers, json_sprintf("sha256:%s", r->layers.items[i]));
	if (!r)
		return json_pack("{s:s,s:o}", "id", id, "layers", layers);
	return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:I}", "id", id, "layers", layers,
			 "env", texts_json(&r->env), "entrypoint", texts_json(&r->entrypoint),
			 "cmd", texts_json(&r->cmd), "workdir", text_or_null(r->workdir), "user",
			 text_or_null(r->user), "platform", text_or_null(r->platform), "created",
			 text_or_null(r->created), "size_bytes", (json_int_t)r->size);
}

/* ---- work on the store ---- */

struct image_work {
	struct manager *m;
	struct ipc msg;
	const struct image_work_ops *ops; /* NULL: nobody listens any more */
	void *arg;
	struct loop_watch watch;
	bool is_asking; /* the audit's or the broker's answer is due */
	bool has_said;	/* the last message has come: the end of the process follows */
	int recipe;	/* file, or -1 */
	struct err err;
	struct loop_task task;
};

static void work_free(struct image_work *w)
{
	loop_unwatch(w->m->p.loop, &w->watch);
	loop_task_remove(w->m->p.loop, &w->task);
	close_fd(&w->watch.fd);
	close_fd(&w->recipe);
	free(w);
}

static void work_end(struct image_work *w)
{
	if (w->ops)
		w->ops->on_end(w->arg, w->err.kind ? &w->err : NULL);
	work_free(w);
}

/* What was made is known from now on. */
static void on_looked(void *arg, const struct ipc *reply, int fd)
{
	close_fd(&fd);
	work_end(arg);
}

static void look(struct image_work *w)
{
	struct ipc m = {.type = IPC_IMAGES_LOOK};

	loop_unwatch(w->m->p.loop, &w->watch);
	close_fd(&w->watch.fd);
	w->is_asking = true;
	broker_ask(w->m->p.broker, &m, -1, on_looked, w);
}

/* Texts of strangers may be in it. */
static void hear(struct image_work *w, struct image_said *s, int fd)
{
	s->name[sizeof(s->name) - 1] = s->text[sizeof(s->text) - 1] = '\0';
	s->hex[sizeof(s->hex) - 1] = s->err.msg[sizeof(s->err.msg) - 1] = '\0';
	s->err.field[sizeof(s->err.field) - 1] = '\0';
	if (s->kind < IMAGE_SAID_DONE) {
		w->ops->on_said(w->arg, s, fd);
		return;
	}
	w->has_said = true;
	if (s->kind == IMAGE_SAID_FAILED) {
		w->err = s->err;
		if (w->err.kind == ERR_NONE || w->err.kind >= ERR_KIND_COUNT)
			w->err.kind = ERR_SYSTEM;
	}
}

static void on_work(void *arg, uint32_t events)
{
	struct image_work *w = arg;
	struct image_said s = {0};
	int fd = -1;
	ssize_t n = fd_message_receive(w->watch.fd, &s, sizeof(s), &fd, 1, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n == (ssize_t)sizeof(s)) {
		hear(w, &s, fd);
		return;
	}
	close_fd(&fd);
	if (!w->has_said)
		err_set(&w->err, ERR_SYSTEM, "the process that worked on the images died");
	look(w);
}

static void on_started(void *arg, const struct ipc *reply, int fd)
{
	struct image_work *w = arg;

	w->is_asking = false;
	w->watch = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_work, .arg = w};
	if (!w->ops) {
		work_free(w);
	} else if (reply->err.kind || fd < 0 || loop_watch(w->m->p.loop, &w->watch) < 0) {
		w->err = reply->err;
		if (!w->err.kind)
			err_set(&w->err, ERR_SYSTEM, "cannot work on the images");
		work_end(w);
	}
}

static void on_audited(void *arg, const struct err *unwritten)
{
	struct image_work *w = arg;

	if (!unwritten) {
		broker_ask(w->m->p.broker, &w->msg, w->recipe, on_started, w);
		return;
	}
	audit_refused(w->m, unwritten, &w->err);
	work_end(w);
}

static void refuse(void *arg)
{
	work_end(arg);
}

static void set_name(struct image_work *w, const char *from, char to[IPC_IMAGE_NAME])
{
	if (from && (size_t)snprintf(to, IPC_IMAGE_NAME, "%s", from) >= IPC_IMAGE_NAME)
		err_field(&w->err, ERR_INVALID, "name", "name: is too long");
}

static int hand_over(const struct buf *bytes)
{
	auto_close int fd = memfd_create("recipe", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 || io_write_all(fd, buf_head(bytes), bytes->len) < 0 || io_seal(fd) < 0
		       ? -1
		       : take_fd(&fd);
}

struct image_work *manager_image_work(struct manager *m, const struct caller *who,
				      const struct image_wish *wish,
				      const struct image_work_ops *ops, void *arg)
{
	static const char *const acts[IMAGE_JOB_COUNT] = {
		[IMAGE_JOB_PULL] = "image.pull",     [IMAGE_JOB_IMPORT] = "image.import",
		[IMAGE_JOB_FILES] = "image.files",   [IMAGE_JOB_BUILD] = "image.build",
		[IMAGE_JOB_EXPORT] = "image.export", [IMAGE_JOB_TAG] = "image.tag",
		[IMAGE_JOB_REMOVE] = "image.remove", [IMAGE_JOB_PRUNE] = "image.prune"};
	struct image_work *w = must_alloc(calloc(1, sizeof(*w)));
	struct audit_entry entry = {0};

	*w = (struct image_work){.m = m, .ops = ops, .arg = arg, .watch.fd = -1, .recipe = -1};
	w->msg.type = IPC_IMAGE;
	w->msg.image.job = wish->job;
	memcpy(w->msg.image.owner, who->token, sizeof(w->msg.image.owner));
	set_name(w, wish->name, w->msg.image.name);
	set_name(w, wish->to, w->msg.image.to);
	if (wish->recipe && (w->recipe = hand_over(wish->recipe)) < 0)
		err_sys(&w->err, "cannot hand over a recipe");
	if (w->err.kind) {
		w->task = (struct loop_task){.call = refuse, .arg = w};
		loop_task_add(m->p.loop, &w->task);
		return w;
	}
	w->is_asking = true;
	snprintf(entry.what, sizeof(entry.what), "%s", acts[wish->job]);
	snprintf(entry.target, sizeof(entry.target), "%s", wish->name ? wish->name : "");
	if (m->p.audit)
		audit_caller(m, who, &entry, on_audited, w);
	else
		on_audited(w, NULL);
	return w;
}

void image_work_stop(struct image_work *w)
{
	if (!w)
		return;
	w->ops = NULL;
	loop_unwatch(w->m->p.loop, &w->watch);
	close_fd(&w->watch.fd);
	/* Else the answer that is due frees it. */
	if (!w->is_asking)
		work_free(w);
}
