/*
 * Encrypts a disk by fscrypt: names and contents of all that is below `d` are unreadable without the key. The kernel
 * forgets the key when the disk is unmounted.
 */
#include "disk/disk.h"

#include <linux/fscrypt.h>
#include <sys/ioctl.h>

static int add_key(int fs, const unsigned char *key, struct fscrypt_key_specifier *ret,
		   struct err *e)
{
	/* The key follows the struct. */
	_Alignas(struct fscrypt_add_key_arg) unsigned char
		bytes[sizeof(struct fscrypt_add_key_arg) + DISK_KEY] = {0};
	struct fscrypt_add_key_arg *add = (void *)bytes;
	int rc;

	add->key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER;
	add->raw_size = DISK_KEY;
	memcpy(bytes + sizeof(*add), key, DISK_KEY);
	rc = ioctl(fs, FS_IOC_ADD_ENCRYPTION_KEY, add);
	*ret = add->key_spec;
	explicit_bzero(bytes, sizeof(bytes));
	if (rc == 0)
		return 0;
	if (errno == EOPNOTSUPP || errno == ENOTTY)
		return err_field(e, ERR_UNSUPPORTED, "disk_type",
				 "disk_type: this kernel cannot encrypt a disk (no fscrypt); "
				 "disks.encrypt off does without");
	return err_sys(e, "cannot use the key of a disk");
}

/* 1: it has one; 0: it has none. */
static int read_policy(int top, struct fscrypt_get_policy_ex_arg *ret, struct err *e)
{
	ret->policy_size = sizeof(ret->policy);
	if (ioctl(top, FS_IOC_GET_ENCRYPTION_POLICY_EX, ret) == 0)
		return 1;
	if (errno == ENODATA || errno == EOPNOTSUPP || errno == ENOTTY)
		return 0;
	return err_sys(e, "cannot read how a disk is encrypted");
}

static bool is_of(const struct fscrypt_get_policy_ex_arg *p,
		  const struct fscrypt_key_specifier *key)
{
	return p->policy.version == FSCRYPT_POLICY_V2 &&
	       memcmp(p->policy.v2.master_key_identifier, key->u.identifier,
		      FSCRYPT_KEY_IDENTIFIER_SIZE) == 0;
}

static int set_policy(int top, const struct fscrypt_key_specifier *key, struct err *e)
{
	struct fscrypt_policy_v2 p = {.version = FSCRYPT_POLICY_V2,
				      .contents_encryption_mode = FSCRYPT_MODE_AES_256_XTS,
				      .filenames_encryption_mode = FSCRYPT_MODE_AES_256_CTS,
				      .flags = FSCRYPT_POLICY_FLAGS_PAD_32};

	memcpy(p.master_key_identifier, key->u.identifier, FSCRYPT_KEY_IDENTIFIER_SIZE);
	return ioctl(top, FS_IOC_SET_ENCRYPTION_POLICY, &p) < 0
		       ? err_sys(e, "cannot encrypt a disk")
		       : 0;
}

/* Is the key there? Without it an overlay would come up read-only, and say nothing. */
static int check_status(int fs, const struct fscrypt_key_specifier *key, struct err *e)
{
	struct fscrypt_get_key_status_arg status = {.key_spec = *key};

	if (ioctl(fs, FS_IOC_GET_ENCRYPTION_KEY_STATUS, &status) == 0 &&
	    status.status == FSCRYPT_KEY_STATUS_PRESENT)
		return 0;
	return err_set(e, ERR_SYSTEM, "the kernel does not have the key of a disk");
}

int disk_unlock(int top, const unsigned char *key, bool is_new, struct err *e)
{
	struct fscrypt_get_policy_ex_arg policy;
	struct fscrypt_key_specifier spec;
	int has = read_policy(top, &policy, e);

	if (has < 0)
		return -1;
	if (!key)
		return has ? err_set(e, ERR_DENIED,
				     "the disk is encrypted, and its key is not known")
			   : 0;
	if (add_key(top, key, &spec, e) < 0)
		return -1;
	if (!has && !is_new)
		return err_set(e, ERR_DENIED,
			       "the disk has a key, and is not encrypted: somebody has "
			       "changed it");
	if (!has && (set_policy(top, &spec, e) < 0 || read_policy(top, &policy, e) < 0))
		return -1;
	if (!is_of(&policy, &spec))
		return err_set(e, ERR_DENIED, "the key is not the one of this disk");
	return check_status(top, &spec, e);
}
