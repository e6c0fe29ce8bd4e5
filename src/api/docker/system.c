/* What the engine says of itself. */
#include "api/docker/docker_internal.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>

/* Docker's name of the machine's kind. */
static const char *architecture(const struct utsname *u)
{
	return str_equal(u->machine, "x86_64")	  ? "amd64"
	       : str_equal(u->machine, "aarch64") ? "arm64"
						  : u->machine;
}

void docker_ping(struct exchange *x)
{
	/* The classic builder is the one that there is. */
	exchange_set_header(x, "Builder-Version", "1");
	exchange_set_header(x, "Cache-Control", "no-cache, no-store, must-revalidate");
	exchange_reply(x, 200, "text/plain; charset=utf-8", "OK", 2);
}

void docker_version(struct exchange *x)
{
	struct utsname u;
	json_t *all;

	uname(&u);
	/* Old clients read these members, new ones the details of the component of this name. */
	all = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "Version", CLOCHE_VERSION,
			"ApiVersion", DOCKER_API, "MinAPIVersion", DOCKER_API_OLDEST, "GitCommit",
			"-", "GoVersion", "-", "Os", "linux", "Arch", architecture(&u),
			"KernelVersion", u.release, "BuildTime", "-");
	json_object_update_new(all, json_pack("{s:{s:s},s:[{s:s,s:s,s:o}]}", "Platform", "Name",
					      "cloche", "Components", "Name", "Engine", "Version",
					      CLOCHE_VERSION, "Details", json_copy(all)));
	exchange_json(x, 200, all);
}

static json_t *plugins_json(void)
{
	return json_pack("{s:[s],s:[s,s],s:n,s:[s]}", "Volume", "local", "Network", "bridge",
			 "null", "Authorization", "Log", "json-file");
}

void docker_info(struct exchange *x)
{
	unsigned all = 0, running = 0, paused = 0;
	json_t *images = manager_images(x->api->manager, &x->caller);
	struct sysinfo s = {0};
	struct utsname u;

	uname(&u);
	sysinfo(&s);
	for (const struct container *c = container_first(x); c; c = c->next) {
		all++;
		paused += container_is_paused(c);
		running += container_is_running(c) && !container_is_paused(c);
	}
	exchange_json(
		x, 200,
		json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:s,s:o,s:b,s:b,s:b,s:s,s:s,s:s,s:s,s:i,s:I,"
			  "s:s,s:s,s:s,s:s,s:s,s:[s],s:s,s:s,s:{s:{s:s}},s:b,s:[]}",
			  "ID", manager_epoch(x->api->manager), "Containers", (int)all,
			  "ContainersRunning", (int)running, "ContainersPaused", (int)paused,
			  "ContainersStopped", (int)(all - running - paused), "Images",
			  (int)json_array_size(json_object_get(images, "images")), "Driver",
			  "overlay2", "Plugins", plugins_json(), "MemoryLimit", 1, "PidsLimit", 1,
			  "Debug", 0, "KernelVersion", u.release, "OperatingSystem", "cloche",
			  "OSType", "linux", "Architecture", u.machine, "NCPU", get_nprocs(),
			  "MemTotal", (json_int_t)((uint64_t)s.totalram * s.mem_unit),
			  "DockerRootDir", "", "HttpProxy", "", "HttpsProxy", "", "NoProxy", "",
			  "Name", u.nodename, "SecurityOptions", "name=seccomp,profile=builtin",
			  "ServerVersion", CLOCHE_VERSION, "DefaultRuntime", "cloche", "Runtimes",
			  "cloche", "path", "cloche", "LiveRestoreEnabled", 1, "Warnings"));
	json_decref(images);
}

void docker_auth(struct exchange *x)
{
	docker_fail(x, 501,
		    "login is not offered: logins of registries are the operator's "
		    "(image_store.auth_file)");
}

void docker_refuse_session(struct exchange *x)
{
	docker_fail(x, 501,
		    "builds are not offered over this API; build with `cloche image build`, or "
		    "elsewhere, and `docker load` the image. Clients that open a BuildKit session: "
		    "DOCKER_BUILDKIT=0");
}

/* ---- space ---- */

void docker_df(struct exchange *x)
{
	exchange_json(x, 200,
		      json_pack("{s:i,s:[],s:[],s:[],s:[]}", "LayersSize", 0, "Images",
				"Containers", "Volumes", "BuildCache"));
}

struct pruning {
	struct exchange *x;
	json_t *gone;
	size_t open;
};

static void pruning_done(void *data)
{
	json_decref(((struct pruning *)data)->gone);
}

static void prune_step(struct pruning *p)
{
	if (--p->open == 0)
		exchange_json(
			p->x, 200,
			json_pack("{s:O,s:i}", "ContainersDeleted", p->gone, "SpaceReclaimed", 0));
}

static void on_pruned(void *arg, struct sandbox *s, const struct err *e)
{
	prune_step(arg);
}

/* What has ended, or was never started, of the caller's own. */
void docker_prune(struct exchange *x)
{
	json_t *filters = docker_filters(x);
	const json_t *labels = docker_filter(filters, "label");
	struct pruning *p;

	if (!filters)
		return;
	p = must_alloc(calloc(1, sizeof(*p)));
	*p = (struct pruning){.x = x, .gone = json_array(), .open = 1};
	exchange_also_free(x, p, pruning_done);
	for (struct container *c = container_first(x); c; c = c->next) {
		if (!c->s || c->removing || (c->state != BOX_CREATED && c->state != BOX_EXITED) ||
		    !docker_labels_match(json_object_get(container_config(c), "Labels"), labels))
			continue;
		c->removing = true;
		json_array_append_new(p->gone, json_string(c->id));
		p->open++;
		sandbox_destroy(c->s, &x->caller, on_pruned, p);
	}
	json_decref(filters);
	prune_step(p);
}

/* Images of one's own have names; what has none is the operator's to remove. */
void docker_images_prune(struct exchange *x)
{
	exchange_json(x, 200, json_pack("{s:[],s:i}", "ImagesDeleted", "SpaceReclaimed", 0));
}
