#!/usr/bin/sh
# The first process of the VM. Moves to an ext4 file system in memory (nothing can be mounted over
# or out of the initramfs as on a real root), sets up cgroup v2 the way systemd does, and runs the
# tests three times: as root, as a user with a delegated subtree, and as a user without.
export PATH=/usr/bin
if [ -z "$1" ]; then
	mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t devtmpfs dev /dev
	insmod /modules/overlay.ko && insmod /modules/brd.ko rd_nr=1 rd_size=131072
	mke2fs /dev/ram0 >/dev/null && mkdir /newroot && mount -t ext4 /dev/ram0 /newroot
	cp -a /usr /bin /sbin /lib /lib64 /etc /home /tests /newroot/
	cd /newroot && mkdir -p proc sys dev tmp run mnt var/tmp && chmod 1777 tmp var/tmp
	for d in proc sys dev; do mount --move /$d $d; done
	exec switch_root /newroot /tests/init.sh go
fi

CG=/sys/fs/cgroup
mount -t cgroup2 cgroup2 $CG
mount -t tmpfs shm /dev/shm -o mode=1777 2>/dev/null || { mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm; }
mount -t tmpfs -o mode=1777 tmp /mnt
hostname v2 && ip link set lo up
echo "v2: Linux $(uname -r), $(cat $CG/cgroup.controllers)"

echo +memory +pids +cpu >$CG/cgroup.subtree_control
# root's own session, as below init.scope or system.slice
mkdir -p $CG/system/session
echo +memory +pids +cpu >$CG/system/cgroup.subtree_control
sh -c "echo \$\$ >$CG/system/session/cgroup.procs && exec sh /tests/run.sh root"

# systemd's user@.service: the user owns the directory and the files that delegation hands over
mkdir -p $CG/user/app/session
echo +memory +pids +cpu >$CG/user/cgroup.subtree_control
chown 1001:1001 $CG/user/app $CG/user/app/session
for f in cgroup.procs cgroup.subtree_control cgroup.threads; do
	chown 1001:1001 $CG/user/app/$f $CG/user/app/session/$f
done
sh -c "echo \$\$ >$CG/user/app/session/cgroup.procs && exec su tester -c 'sh /tests/run.sh delegated'"

# a login without systemd: no part of the tree is the user's
mkdir $CG/plain
sh -c "echo \$\$ >$CG/plain/cgroup.procs && exec su tester -c 'sh /tests/run.sh plain'"

echo "v2: done"
poweroff -f
