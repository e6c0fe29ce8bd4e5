#include "sandbox/net.h"

#include "base/auto.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int net_up(int *ret_dns, struct err *e)
{
	struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons(53),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &loopback) < 0)
		return err_sys(e, "cannot bring up the loopback interface");
	*ret_dns = bind(fd, (void *)&address, sizeof(address)) == 0 ? take_fd(&fd) : -1;
	return 0;
}
