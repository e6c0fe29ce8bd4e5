/* The process of one piece of work on the store of images: cloched role image JOB OWNER ROOM NAME TO. */
#include "daemon/roles/image_job.h"

#include "image/build/recipe.h"
#include "policy/config.h"

#define FD_FRONT 3
#define FD_CONFIG 4
#define FD_RECIPE 5 /* of a build */

static void take_mirrors(const struct config_image_store *c, struct list *ret)
{
	for (uint32_t i = 0; i < c->mirror_count; i++)
		list_add(ret, c->mirrors[i]);
}

int image_job_main(int argc, char **argv)
{
	static struct config config;
	auto_list struct list mirrors = {0};
	auto_free char *store = NULL;
	char worker[PATH_MAX + 32], guest[PATH_MAX + 32], launcher[PATH_MAX + 32];
	uint64_t job = 0, room = 0;
	struct err e = {0};

	umask(077);
	if (argc != 6 || parse_count(argv[1], &job, &e) < 0 || job >= IMAGE_JOB_COUNT ||
	    parse_count(argv[3], &room, &e) < 0 || config_read(FD_CONFIG, &config, &e) < 0 ||
	    fcntl(FD_FRONT, F_SETFD, FD_CLOEXEC) < 0 || fcntl(FD_CONFIG, F_SETFD, FD_CLOEXEC) < 0 ||
	    io_beside_program("cloche-image", worker, sizeof(worker)) < 0 ||
	    io_beside_program("cloche-guest", guest, sizeof(guest)) < 0 ||
	    io_beside_program("cloche", launcher, sizeof(launcher)) < 0 ||
	    (job == IMAGE_JOB_BUILD && fcntl(FD_RECIPE, F_SETFD, FD_CLOEXEC) < 0)) {
		fprintf(stderr, "cloched: this is started by cloched\n");
		return 125;
	}
	store = str_format("%s/images", config.state_dir);
	take_mirrors(&config.image_store, &mirrors);
	return image_job_run(&(struct image_order){.job = (enum ipc_image_job)job,
						   .store = store,
						   .owner = argv[2],
						   .name = argv[4],
						   .to = argv[5],
						   .room = room,
						   .mirrors = &mirrors,
						   .auth_file = config.image_store.auth_file,
						   .is_plain = config.image_store.plain_http,
						   .worker = worker,
						   .guest = guest,
						   .build = recipe_build,
						   .launcher = launcher,
						   .recipe = FD_RECIPE},
			     FD_FRONT);
}
