/* The table of providers. A new provider is a folder beside this file and a line in the table. */
#include "provider/provider.h"

static const struct provider_row *const rows[PROVIDER_COUNT] = {
	[PROVIDER_NS] = &provider_ns,
	[PROVIDER_E2B] = &provider_e2b,
};

/* The messages that refuse what a provider cannot do: the texts before and after its name. */
static const struct {
	unsigned can;
	const char *field, *before, *after;
} refusals[] = {
	{CAN_PAUSE, "", "pause: not of a sandbox of provider ", ""},
	{CAN_SNAPSHOT | CAN_FORK, "", "snapshots, stop and fork: not of a sandbox of provider ",
	 ""},
	{CAN_UPDATE, "", "limits: a sandbox of provider ", " has those of its service"},
	{CAN_NET, "net", "net: only 'none' is built with provider ", ""},
	{CAN_PORTS, "", "ports: not of a sandbox of provider ", ""},
	{CAN_VOLUMES, "volumes", "volumes: not with provider ", ""},
	{CAN_IMAGE, "image", "image: with provider ", " it is the template of the configuration"},
	{CAN_PROVE, "require", "require: no layer of a sandbox of provider ", " can be proven"},
	{CAN_PREPARE, "provider", "provider: ", ": only for sandboxes that are created"},
};

const struct provider_row *provider_row(int provider)
{
	return provider >= 0 && provider < PROVIDER_COUNT ? rows[provider] : NULL;
}

const char *provider_name(int provider)
{
	const struct provider_row *row = provider_row(provider);

	return row ? row->name : "";
}

bool provider_can(int provider, unsigned wanted)
{
	const struct provider_row *row = provider_row(provider);

	return row && (row->can & wanted) == wanted;
}

int provider_check(int provider, unsigned wanted, struct err *e)
{
	const struct provider_row *row = provider_row(provider);

	if (!row)
		return err_field(e, ERR_UNSUPPORTED, "provider",
				 "provider: only ns and e2b are built");
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
		if (refusals[i].can & wanted & ~row->can)
			return err_field(e, ERR_UNSUPPORTED, refusals[i].field, "%s%s%s",
					 refusals[i].before, row->name, refusals[i].after);
	return 0;
}
