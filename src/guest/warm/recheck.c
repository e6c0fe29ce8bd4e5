/*
 * Checks that files are still what they were when a warm host was made: at most once a second, by a
 * timer while requests come, so that no request has to wait for it.
 *
 * If the host's own files have changed, a new zygote is enough. An image is seen through an
 * overlay, which goes on showing the files that it first found: the whole warm host has to be
 * replaced (manager/warm/hosts.c).
 */
#include "guest/warm/host_internal.h"
#include "guest/link/server.h"
#include "kern/sys.h"

#define LOOK_MS 1000
#define BUSY_NS 10000000000LL

/*
 * Where an image has its programs. Changes in deeper directories are noticed only if Python loaded
 * files from there.
 */
static const char places[] =
	"/bin\0/sbin\0/lib\0/lib64\0/etc\0/opt\0/usr/bin\0/usr/sbin\0/usr/lib\0"
	"/usr/lib64\0/usr/local/bin\0/usr/local/sbin\0/usr/local/lib";

static void be_stale(struct warm_host *n)
{
	n->is_stale = true;
	loop_task_add(n->guest->loop, &n->ready);
}

static void note_node(struct warm_host *n)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	if (task_node())
		origin_note(&n->look.node, task_node(), strlen(task_node()) + 1, &now);
}

/* Interpreters that wait are of the old program: others take their places. */
static void replace_node(struct warm_host *n)
{
	note_node(n);
	for (each_lane(s, n)) {
		if (s->kind != WARM_HOST_NODE || s->state != LANE_READY)
			continue;
		s->state = LANE_LEAVING;
		sys_pidfd_send_signal(s->sandbox.fd, SIGKILL);
	}
}

static void look(struct warm_host *n)
{
	struct origin *o = &n->zygote.origin;

	n->look.looked_ns = now_ns();
	if (n->is_stale)
		return;
	if (task_node() && origin_has_changed(&n->look.node))
		replace_node(n);
	if (origin_has_changed(&n->look.root)) {
		be_stale(n);
	} else if (n->zygote.stage != ZYGOTE_READY) {
		return;
	} else if (o->is_doubtful && !n->look.had_doubts) {
		/* Only once: a clock may be wrong for good. */
		n->look.had_doubts = true;
		zygote_replace(n);
	} else if (origin_has_changed(o)) {
		n->look.had_doubts = false;
		if (n->options.settings.image_is_host)
			zygote_replace(n);
		else
			be_stale(n);
	}
}

static void on_time(void *arg)
{
	struct warm_host *n = arg;

	look(n);
	if (n->look.looked_ns - n->look.used_ns < BUSY_NS)
		loop_timer_set(n->guest->loop, &n->look.timer, LOOK_MS);
}

void look_init(struct warm_host *n)
{
	struct timespec now;

	n->look.timer = (struct loop_timer){.call = on_time, .arg = n};
	n->look.looked_ns = now_ns();
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	note_node(n);
	if (!n->options.settings.image_is_host)
		origin_note(&n->look.root, places, sizeof(places), &now);
}

void look_at_request(struct warm_host *n, enum warm_host_kind kind)
{
	if (kind == WARM_HOST_COMMAND && n->options.settings.image_is_host)
		return;
	n->look.used_ns = now_ns();
	if (n->look.used_ns - n->look.looked_ns >= LOOK_MS * 2000000LL)
		look(n);
	if (!n->look.timer.place)
		loop_timer_set(n->guest->loop, &n->look.timer, LOOK_MS);
}
