/*
 * Typed calls to the guest of a sandbox: files, archives, searches, watches and ports. This folder
 * alone speaks the guest's byte protocol (wire/guest.h) on behalf of the doors; a door translates
 * between its own protocol and these functions.
 *
 * One question, one answer:
 *
 *   c = call_stat(s, "/workspace/a", true, on_stat, x);
 *   static void on_stat(void *arg, const struct answer *a, const struct err *e)
 *
 * `done` is called exactly once, later, never from within the function that made the call. Either e
 * is NULL, or a is. A sandbox that is not running, a lost link and a malformed answer are errors
 * like any other. When done is called, the call is gone: forget the pointer. The answer is valid
 * only during the callback.
 *
 * Streams (read, write, list, search, watch, archives, ports) take a struct receiver: callbacks for
 * what arrives, then its `done`. A callback may drop the call.
 *
 * Every function returns a call, never NULL. call_drop(c) (manager/link.h) ends it without any
 * further callback and accepts NULL. call_push and call_close send into calls that take bytes.
 * Strings are copied.
 */
#pragma once

#include "base/base.h"
#include "calls/pump.h"
#include "manager/link.h"

struct sandbox;

/* Longer ones must be refused by the caller: the guest takes them for a broken link. */
#define CALL_PATH_MAX 4096 /* with the terminator */
#define CALL_GLOB_MAX 1024

struct file_info {
	char path[CALL_PATH_MAX + 1]; /* absolute */
	char kind;		      /* 'f' file, 'd' directory, 'l' link, 'o' other */
	uint32_t mode, uid, gid;
	uint64_t size, mtime_ns;
	char owner[64], group[64];
	char target[CALL_PATH_MAX + 1]; /* of a link */
};

/* "file", "directory", "link", "other" */
const char *file_kind_name(char kind);

struct xattr {
	char *name, *value;
	size_t value_len;
};

/* Only the fields that a call names are set. */
struct answer {
	const struct file_info *info; /* stat, move, read, get */
	bool created;		      /* mkdir: false if the directory was there */
	bool cut;		      /* search: there are more matches */
	uint64_t count;		      /* write, put: size of the file; unpack: entries */
	const char *bytes;	      /* get */
	size_t len;
	const struct xattr *xattrs; /* xattr_list */
	size_t xattr_count;
};

typedef void (*answer_done)(void *arg, const struct answer *a, const struct err *e);

/* ---- one question, one answer ---- */
/* follow: of the file that a link leads to. */
struct call *call_stat(struct sandbox *s, const char *path, bool follow, answer_done done,
		       void *arg);
/* parents: make those too, and a directory that is there is no error. */
struct call *call_mkdir(struct sandbox *s, const char *path, uint32_t mode, bool parents,
			answer_done done, void *arg);
struct call *call_move(struct sandbox *s, const char *from, const char *to, bool overwrite,
		       answer_done done, void *arg);
struct call *call_remove(struct sandbox *s, const char *path, bool recursive, answer_done done,
			 void *arg);

/* UINT32_MAX leaves a value as it is. */
struct file_mode {
	uint32_t mode, uid, gid;
};
struct call *call_chmod(struct sandbox *s, const char *path, const struct file_mode *m,
			answer_done done, void *arg);
/* Names begin with "user."; value NULL removes the attribute. */
struct call *call_xattr_set(struct sandbox *s, const char *path, const char *name,
			    const char *value, answer_done done, void *arg);
struct call *call_xattr_list(struct sandbox *s, const char *path, answer_done done, void *arg);

#define WRITE_KEEP_MODE UINT32_MAX /* as the file has it, or 0644 */
struct file_put {
	const char *path;
	uint32_t mode;
	const char *bytes; /* not copied: must live until done */
	size_t len;
};
/* Writes a whole file from memory. Parents are made; the file is replaced atomically. */
struct call *call_put(struct sandbox *s, const struct file_put *p, answer_done done, void *arg);
struct file_get {
	const char *path;
	size_t most;	 /* bytes from its beginning; info->size says how long the file is */
	uint32_t inside; /* as in struct file_search */
};
struct call *call_get(struct sandbox *s, const struct file_get *f, answer_done done, void *arg);

/* ---- streams ---- */
struct file_match {
	const char *path;
	uint64_t line;	  /* 0: only the name was asked for */
	const char *text; /* the line: len bytes, any of them */
	size_t len;
};

enum file_change_kind {
	FILE_CREATED,
	FILE_WRITTEN,
	FILE_REMOVED,
	FILE_RENAMED,
	FILE_CHMOD,
	FILE_OVERFLOW, /* events were lost */
	FILE_COUNT,
};

struct file_change {
	enum file_change_kind kind;
	const char *path; /* absolute, beginning as the watched path was named */
	bool is_dir;
};

/* Callbacks that a call does not use, or that nobody needs, are NULL. Copied by the call. */
struct receiver {
	/* The guest has begun. read: with the file's info; else NULL. */
	void (*begin)(void *arg, const struct file_info *info);
	void (*bytes)(void *arg, const void *bytes, size_t len); /* read, pack, connect */
	void (*file)(void *arg, const struct file_info *info);	 /* list */
	void (*match)(void *arg, const struct file_match *m);	 /* search */
	void (*change)(void *arg, const struct file_change *c);	 /* watch */
	void (*closed)(void *arg); /* connect: no more bytes come, but they may still be sent */
	void (*room)(void *arg);   /* write, unpack, connect: call_push can send again */
	answer_done done;
	void *arg;
	/* Paces the stream by the client's side; NULL: everything is taken at once. Outlives the call. */
	struct pump *pump;
};

/* len UINT64_MAX: to the end. */
struct call *call_read(struct sandbox *s, const char *path, uint64_t offset, uint64_t len,
		       const struct receiver *r);

#define WRITE_WHOLE UINT64_MAX /* offset: replace the file atomically at the end */
struct file_write {
	const char *path;
	uint32_t mode;
	uint64_t offset;
	bool parents; /* make them */
};
/* From `begin` on: call_push, at the end call_close. Dropped before that, a whole file stays as it was. */
struct call *call_write(struct sandbox *s, const struct file_write *w, const struct receiver *r);

/* depth 1: the entries of the directory itself. */
struct call *call_list(struct sandbox *s, const char *path, uint32_t depth,
		       const struct receiver *r);

struct file_search {
	const char *path, *glob, *content; /* NULL: any */
	uint32_t inside; /* in the warm sandbox of this command; 0: in the sandbox itself */
	bool regex, ignore_case, hidden;
	uint32_t most;
};
struct call *call_search(struct sandbox *s, const struct file_search *f, const struct receiver *r);
struct call *call_watch(struct sandbox *s, const char *path, bool recursive,
			const struct receiver *r);
/* A directory as a tar archive, and an archive into a directory (call_push, call_close). */
struct call *call_pack(struct sandbox *s, const char *path, const struct receiver *r);
/* The same with the directory's name in front; also of a file, or of a link itself. */
struct call *call_pack_named(struct sandbox *s, const char *path, const struct receiver *r);
struct call *call_unpack(struct sandbox *s, const char *path, bool strict,
			 const struct receiver *r);
/* A TCP port inside: bytes both ways. */
struct call *call_connect(struct sandbox *s, uint32_t port, const struct receiver *r);
/* The next program that connects to the agent's socket inside; begins once there is one. */
struct call *call_accept(struct sandbox *s, const struct receiver *r);
