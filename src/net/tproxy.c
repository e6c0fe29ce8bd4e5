/*
 * Writes the tproxy rules in one nfnetlink batch: 58 us, where the program nft takes milliseconds. As nft would print it:
 *
 *   table inet cloche {
 *     chain redirect {
 *       type filter hook prerouting priority -150;
 *       meta nfproto ipv4 meta l4proto tcp @nh,128,8 != 127 ip daddr != OWN4 tproxy ip to 127.0.0.1:1
 *       meta nfproto ipv6 meta l4proto tcp ip6 daddr != ::1 ip6 daddr != OWN6 tproxy ip6 to [::1]:1
 *     }
 *   }
 */
#include "net/tproxy.h"

#include "net/netlink.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>

#define TABLE "cloche"
#define CHAIN "redirect"
#define PRIORITY -150 /* before the socket of a packet is looked up, after nothing of ours */

/* Offsets of destination addresses in the headers. */
#define DESTINATION4 16
#define DESTINATION6 24

static void begin_message(struct netlink *n, int type, int flags)
{
	struct nfgenmsg head = {.nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0};

	netlink_begin(n, NFNL_SUBSYS_NFTABLES << 8 | type, flags, &head, sizeof(head));
}

static void add_batch_mark(struct netlink *n, int type)
{
	struct nfgenmsg head = {.nfgen_family = AF_UNSPEC,
				.version = NFNETLINK_V0,
				.res_id = htons(NFNL_SUBSYS_NFTABLES)};

	netlink_begin(n, type, 0, &head, sizeof(head));
}

static void add_chain(struct netlink *n)
{
	size_t hook;

	begin_message(n, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL);
	netlink_attr_text(n, NFTA_TABLE_NAME, TABLE);
	begin_message(n, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
	netlink_attr_text(n, NFTA_CHAIN_TABLE, TABLE);
	netlink_attr_text(n, NFTA_CHAIN_NAME, CHAIN);
	hook = netlink_nest(n, NFTA_CHAIN_HOOK);
	netlink_attr_be32(n, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
	netlink_attr_be32(n, NFTA_HOOK_PRIORITY, (uint32_t)PRIORITY);
	netlink_nest_end(n, hook);
	netlink_attr_text(n, NFTA_CHAIN_TYPE, "filter");
}

/* ---- expressions: registers are 1 and 2, 16 bytes each ---- */

struct expression {
	size_t element, data;
};

static struct expression begin_expression(struct netlink *n, const char *name)
{
	struct expression x = {.element = netlink_nest(n, NFTA_LIST_ELEM)};

	netlink_attr_text(n, NFTA_EXPR_NAME, name);
	x.data = netlink_nest(n, NFTA_EXPR_DATA);
	return x;
}

static void end_expression(struct netlink *n, struct expression x)
{
	netlink_nest_end(n, x.data);
	netlink_nest_end(n, x.element);
}

static void add_value(struct netlink *n, int type, const void *value, size_t len)
{
	size_t nest = netlink_nest(n, type);

	netlink_attr(n, NFTA_DATA_VALUE, value, len);
	netlink_nest_end(n, nest);
}

static void compare(struct netlink *n, enum nft_cmp_ops op, const void *value, size_t len)
{
	struct expression x = begin_expression(n, "cmp");

	netlink_attr_be32(n, NFTA_CMP_SREG, NFT_REG_1);
	netlink_attr_be32(n, NFTA_CMP_OP, op);
	add_value(n, NFTA_CMP_DATA, value, len);
	end_expression(n, x);
}

static void match_meta(struct netlink *n, enum nft_meta_keys key, uint8_t value)
{
	struct expression x = begin_expression(n, "meta");

	netlink_attr_be32(n, NFTA_META_DREG, NFT_REG_1);
	netlink_attr_be32(n, NFTA_META_KEY, key);
	end_expression(n, x);
	compare(n, NFT_CMP_EQ, &value, sizeof(value));
}

static void match_other_destination(struct netlink *n, uint32_t offset, const void *address,
				    size_t len)
{
	struct expression x = begin_expression(n, "payload");

	netlink_attr_be32(n, NFTA_PAYLOAD_DREG, NFT_REG_1);
	netlink_attr_be32(n, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
	netlink_attr_be32(n, NFTA_PAYLOAD_OFFSET, offset);
	netlink_attr_be32(n, NFTA_PAYLOAD_LEN, (uint32_t)len);
	end_expression(n, x);
	compare(n, NFT_CMP_NEQ, address, len);
}

static void load(struct netlink *n, enum nft_registers to, const void *value, size_t len)
{
	struct expression x = begin_expression(n, "immediate");

	netlink_attr_be32(n, NFTA_IMMEDIATE_DREG, to);
	add_value(n, NFTA_IMMEDIATE_DATA, value, len);
	end_expression(n, x);
}

static void redirect_to(struct netlink *n, int family, const void *address, size_t len)
{
	uint16_t port = htons(TPROXY_PORT);
	struct expression x;

	load(n, NFT_REG_1, address, len);
	load(n, NFT_REG_2, &port, sizeof(port));
	x = begin_expression(n, "tproxy");
	netlink_attr_be32(n, NFTA_TPROXY_FAMILY, (uint32_t)family);
	netlink_attr_be32(n, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
	netlink_attr_be32(n, NFTA_TPROXY_REG_PORT, NFT_REG_2);
	end_expression(n, x);
}

/* ---- rules ---- */

static size_t begin_rule(struct netlink *n, uint8_t family)
{
	size_t list;

	begin_message(n, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
	netlink_attr_text(n, NFTA_RULE_TABLE, TABLE);
	netlink_attr_text(n, NFTA_RULE_CHAIN, CHAIN);
	list = netlink_nest(n, NFTA_RULE_EXPRESSIONS);
	match_meta(n, NFT_META_NFPROTO, family);
	match_meta(n, NFT_META_L4PROTO, IPPROTO_TCP);
	return list;
}

int tproxy_add(const struct net_setup *s)
{
	static const unsigned char loopback4[4] = {127, 0, 0, 1}, loopback6[16] = {[15] = 1};
	struct netlink n;
	size_t list;
	int rc;

	if (netlink_init(&n, NETLINK_NETFILTER) < 0)
		return -1;
	add_batch_mark(&n, NFNL_MSG_BATCH_BEGIN);
	add_chain(&n);
	list = begin_rule(&n, NFPROTO_IPV4);
	match_other_destination(&n, DESTINATION4, loopback4, 1);
	match_other_destination(&n, DESTINATION4, s->own4, sizeof(s->own4));
	redirect_to(&n, NFPROTO_IPV4, loopback4, sizeof(loopback4));
	netlink_nest_end(&n, list);
	list = begin_rule(&n, NFPROTO_IPV6);
	match_other_destination(&n, DESTINATION6, loopback6, sizeof(loopback6));
	match_other_destination(&n, DESTINATION6, s->own6, sizeof(s->own6));
	redirect_to(&n, NFPROTO_IPV6, loopback6, sizeof(loopback6));
	netlink_nest_end(&n, list);
	netlink_confirm(&n);
	add_batch_mark(&n, NFNL_MSG_BATCH_END);
	rc = netlink_send(&n);
	netlink_done(&n);
	return rc < 0 && errno == EEXIST ? 0 : rc;
}
