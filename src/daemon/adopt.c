#include "daemon/adopt.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/record.h"
#include "daemon/state.h"
#include "kern/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

struct tally {
	unsigned adopted, reaped, strays;
};

/* Is it in the cgroup that the record says? By its own /proc entry, which only the kernel writes. */
static bool is_in_cgroup(const struct box *b)
{
	char name[64], text[4096];

	if (!b->info.cgroup_version)
		return true;
	io_read_path(text, sizeof(text), "/proc/%d/cgroup", (int)b->pid);
	box_cgroup_name(b, name, sizeof(name));
	return strstr(text, name) != NULL;
}

/* The pidfd first: what is compared after that is compared of this very process (rule 21). */
static const char *judge(struct box *b)
{
	struct boot_identity now;
	struct err e = {0};

	/* Whether it is there, only its service knows: that is asked with the first link. */
	if (box_is_remote(b))
		return b->d->config->e2b.api_url[0] ? NULL : "no E2B service is configured";
	b->pidfd = (int)syscall(SYS_pidfd_open, b->pid, 0);
	if (b->pidfd < 0)
		return "its pid 1 is gone";
	if (boot_identify(b->pid, &now, &e) < 0)
		return "its pid 1 cannot be looked at";
	if (now.start_time != b->identity.start_time)
		return "its pid is somebody else's now";
	if (now.pid_ns != b->identity.pid_ns || now.mount_ns != b->identity.mount_ns)
		return "its namespaces are not those of the record";
	if (!is_in_cgroup(b))
		return "it is not in its cgroup";
	if (b->info.transient)
		return "it was to end with the daemon";
	return NULL;
}

/* Takes its id range, so that nobody else gets it. */
static void claim_slot(struct box *b)
{
	uint32_t slot = (b->id_base >> 16) - 0x7000;

	if (b->id_base && slot < SLOTS && !b->d->slots[slot]) {
		b->d->slots[slot] = 1;
		b->slot = (int32_t)slot;
	}
}

static void adopt(struct daemon *d, const char *id, struct tally *t)
{
	struct box *b = box_new(d, id);
	struct err e = {0};
	const char *why;

	if (record_read(d->boxes_dir, id, b, &e) < 0) {
		why = e.msg;
		b->pid = 0;
	} else {
		claim_slot(b);
		why = judge(b);
	}
	if (!why && !box_is_remote(b) && box_watch(b, &e) < 0)
		why = e.msg;
	if (!why) {
		b->state = BOX_LIVE;
		/* It may have been frozen only to be copied. */
		if (!b->info.paused && !box_is_remote(b))
			box_thaw_leftover(b);
		t->adopted++;
		log_info("sandbox adopted", "id", id, "owner", b->info.owner);
		daemon_note(d, "sandbox.adopt", id, "allow", "it is the one of the record");
		return;
	}
	log_info("sandbox reaped", "id", id, "why", why);
	daemon_note(d, "sandbox.reap", id, "done", why);
	t->reaped++;
	if (b->info.transient && b->pidfd >= 0 && b->pid &&
	    str_equal(why, "it was to end with the daemon") && box_watch(b, &e) == 0) {
		b->state = BOX_LIVE;
		b->nest_slots = 1;
		box_destroy(b, (struct asker){0});
		return;
	}
	/* The record does not say whether it was a nest; if so, its slots go with it. */
	b->nest_slots = 1;
	/* Whatever has its number now is not killed; what is in its cgroup is. */
	close_fd(&b->pidfd);
	box_clear(b);
}

/* Names are read first: what is done changes the directory. */
static void read_names(int dir, struct list *ret)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	for (struct dirent *at; d && (at = readdir(d));)
		if (at->d_name[0] != '.')
			list_add(ret, at->d_name);
	if (d)
		closedir(d);
}

/* Sockets and drafts without a record: of a boot that was not finished. */
static void remove_litter(struct daemon *d, const struct list *names, struct tally *t)
{
	for (size_t i = 0; i < names->count; i++) {
		char id[IPC_ID] = "";

		if (ipc_id_is_valid(names->items[i]))
			continue;
		if (strlen(names->items[i]) > 20)
			memcpy(id, names->items[i], 20);
		if (ipc_id_is_valid(id) && box_find(d, id))
			continue;
		unlinkat(d->boxes_dir, names->items[i], 0);
		t->strays++;
	}
}

/* Cgroups of this daemon without a record: what is in them nobody knows any more. */
static void remove_cgroups(struct daemon *d, struct tally *t)
{
	struct list names = {0};
	char prefix[64];

	snprintf(prefix, sizeof(prefix), "cloche-box-%s-", d->tag);
	cgroup_list(d->cgroups.table, prefix, &names);
	for (size_t i = 0; i < names.count; i++) {
		const char *rest = names.items[i] + strlen(prefix);
		char id[IPC_ID] = "";
		struct box *b;

		/* A nest's slots have a number behind its id. */
		memcpy(id, rest, strnlen(rest, 20));
		if (!ipc_id_is_valid(id) || (rest[20] && rest[20] != '-') || box_find(d, id))
			continue;
		t->strays++;
		b = box_new(d, id);
		b->nest_slots = 1;
		box_clear(b);
	}
	list_done(&names);
}

void adopt_all(struct daemon *d)
{
	struct list names = {0};
	char adopted[16], reaped[16], strays[16];
	struct tally t = {0};

	read_names(d->boxes_dir, &names);
	for (size_t i = 0; i < names.count; i++)
		if (ipc_id_is_valid(names.items[i]))
			adopt(d, names.items[i], &t);
	remove_litter(d, &names, &t);
	remove_cgroups(d, &t);
	list_done(&names);
	snprintf(adopted, sizeof(adopted), "%u", t.adopted);
	snprintf(reaped, sizeof(reaped), "%u", t.reaped);
	snprintf(strays, sizeof(strays), "%u", t.strays);
	if (t.adopted || t.reaped || t.strays)
		log_info("looked at what an earlier daemon left", "adopted", adopted, "reaped",
			 reaped, "strays", strays);
}
