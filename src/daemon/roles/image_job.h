/* Work on the store of images (image/make/job.h), for `cloched role image ...`. */
#pragma once

/* Returns the exit status. */
int image_job_main(int argc, char **argv);
