# Inside the VM: limits, killing, rootless and leaks on cgroup v2, under the kernel of Debian 12.
#   run.sh root | delegated | plain
# Prints one line for each test, "ok NAME" or "not ok NAME", which tests/v2/boot counts.
MODE=$1
T=$(mktemp -d) && chmod 755 "$T" || exit 1
cd "$T" || exit 1
CG=/sys/fs/cgroup

verdict() { # NAME STATUS
	if [ "$2" = 0 ]; then
		echo "ok $MODE $1"
	else
		echo "not ok $MODE $1"
		{ echo "exit status $code" && cat "$T/out" "$T/err"; } | head -c 1500 | sed 's/^/    | /'
	fi
}

run() { # cloche's arguments; leaves $code, out, err
	code=0
	timeout 60 cloche "$@" >"$T/out" 2>"$T/err" </dev/null || code=$?
}

is() { # NAME EXPECTED ACTUAL
	[ "$2" = "$3" ]
	verdict "$1 ($3, expected $2)" $?
}

within() { # NAME LOW VALUE HIGH
	[ "${3:-x}" -ge "$2" ] 2>/dev/null && [ "$3" -le "$4" ]
	verdict "$1 ($3, expected $2 to $4)" $?
}

says() { # NAME PATTERN: the output has it
	grep -Eq "$2" "$T/out"
	verdict "$1" $?
}

says_not() {
	! grep -Eq "$2" "$T/out"
	verdict "$1" $?
}

gone() { # TEXT: waits until no process has it among its arguments; says how many stay
	for _ in $(seq 50); do
		[ "$(load ps "$1")" = 0 ] && break
		usleep 100000
	done
	load ps "$1"
}

appears() {
	for _ in $(seq 100); do
		[ "$(load ps "$1")" != 0 ] && return 0
		usleep 50000
	done
	return 1
}

state() { # what must be the same before and after: processes, mounts, cgroups, files
	gone "timeout 60" >/dev/null # busybox keeps a watchdog for a moment
	load ps
	cut -d' ' -f3-5 /proc/self/mountinfo
	find $CG -type d | sort
	find /tmp /var/tmp /run /dev/shm -path "$T" -prune -o -print 2>/dev/null | sort
}

test_layers() {
	run run --json -- true
	is "run" 0 "$code"
	says "cgroup v2" '"cgroup":"v2"|"cgroup":"none"'
	says "landlock of this kernel" '"landlock_abi":[2-9]'
	says "user namespace" '"user_ns":true'
	if [ "$MODE" = plain ]; then
		says "memory is watched" '"memory":"watch"'
		says "missing says so" '"missing":\[[^]]*"memory"'
		run run --require memory -- true
		is "--require memory refuses" 125 "$code"
	else
		says "memory by cgroup" '"memory":"cgroup"'
		says_not "nothing of the limits is missing" '"missing":\[[^]]*"(memory|cpu|pids|cgroup)"'
		run run --require memory --require cpu --require pids -- true
		is "--require memory cpu pids" 0 "$code"
	fi
	run run -- cat /proc/self/cgroup
	says "own cgroup is the root of its view" '^0::/$'
	run run -- ls $CG
	says_not "no cgroup tree inside" 'cgroup.procs'
}

test_memory() {
	run run --json --memory 64M -- load hog 200
	if [ "$MODE" = plain ]; then
		within "private memory is bounded" 0 "$(sed -n 's/.*"stdout":"\([0-9]*\).*/0\1/p' "$T/out")" 80
	else
		is "memory ends the run" 137 "$code"
		says "status oom" '"status":"oom"'
	fi
	run run --json --memory 64M -- load hog 200 shared
	is "shared memory ends the run" 137 "$code"
	says "status oom (shared)" '"status":"oom"'
	run run --memory 256M -- load hog 100
	is "within the limit all is there" 100 "$(cat "$T/out")"
}

test_pids() {
	run run --json --pids 24 -- load fork 200
	within "forks end at the limit" 10 "$(sed -n 's/.*"stdout":"\([0-9]*\).*/\1/p' "$T/out")" 24
	# Without a cgroup it is RLIMIT_NPROC that holds, and that does not tell.
	[ "$MODE" = plain ] || says "limits_hit names it" '"limits_hit":\[[^]]*"pids"'
	run run --pids 250 -- load fork 200
	is "below the limit they all live" 200 "$(cat "$T/out")"
}

test_cpu() {
	[ "$MODE" = plain ] && return
	run run --cpus 0.2 -- load burn 2000
	within "a fifth of a cpu" 1 "$(cat "$T/out")" 45
	run run --cpus 1.0 -- load burn 1000
	within "a whole cpu" 60 "$(cat "$T/out")" 101
}

test_disk() {
	# shellcheck disable=SC2016 # expanded inside
	run run --disk 16M -- sh -c 'for i in $(seq 16); do dd if=/dev/zero of=/tmp/$i bs=1M count=4 || exit 9; done'
	is "the disk is full, not the memory" 9 "$code"
	grep -q "No space left" "$T/err"
	verdict "and says so" $?
	run run --disk 64M -- dd if=/dev/zero of=/tmp/x bs=1M count=32
	is "within the limit there is room" 0 "$code"
}

test_kill() {
	run run --timeout 2s -- sh -c '(setsid sleep 77771 &); (sleep 77771 & kill -STOP $!); sleep 77771'
	is "time-out" 124 "$code"
	is "and nothing survives it" 0 "$(gone 77771)"

	cloche run --timeout 100s -- sh -c '(setsid sleep 77772 &); sleep 77772' >/dev/null 2>&1 &
	pid=$!
	appears "sleep 77772"
	verdict "runs until" $?
	kill -TERM $pid
	wait $pid
	is "SIGTERM ends the sandbox" 143 $?
	is "with all that is in it" 0 "$(gone 77772)"

	cloche run --timeout 100s -- sh -c '(setsid sleep 77773 &); sleep 77773' >/dev/null 2>&1 &
	pid=$!
	appears "sleep 77773"
	kill -KILL $pid
	wait $pid 2>/dev/null
	is "SIGKILL takes the sandbox along" 0 "$(gone 77773)"
}

copy_on_write() { # NAME DIR: everything can be changed, and nothing of it stays
	mkdir -p "$2/d/e" && echo old >"$2/d/e/f" && cd "$2" || return
	run run -- sh -c 'rm -r d && mkdir d && ls -A d && echo new >d/g && mv d h && cat h/g && echo "$?"'
	# Linux 6.1 cannot idmap a tmpfs, so root's files there stay root's; then it has to be said.
	# And its tmpfs has no user attributes, which an ordinary user's overlay needs for that.
	if grep -q "cannot map ids\|no user attributes" "$T/err"; then
		verdict "$1: says that it cannot be changed" 0
	else
		is "$1: remove, make again, rename" "new 0" "$(tr '\n' ' ' <"$T/out" | sed 's/ $//')"
	fi
	is "$1: the host's file stays" old "$(cat d/e/f)"
	cd "$T" && rm -r "$2"
}

test_files() {
	copy_on_write "copy-on-write of ext4" "$T/w"
	copy_on_write "copy-on-write of tmpfs" "/mnt/w-$MODE"
	run run -- sh -c 'echo x >/usr/bin/x'
	[ "$code" != 0 ]
	verdict "the root is read-only" $?
	run run -- id -u
	is "uid inside" 1000 "$(cat "$T/out")"
	run run --level process -- id -u
	is "level process" 0 "$code"
}

test_attacks() { # those of the escape suite that need nothing planted
	[ "$MODE" = plain ] && weak=weak || weak=none # limits that are missing there are said to be
	cases=$(cloche-probe --list | awk -F'\t' -v weak="$weak" '$3 ~ /safe/ && $3 !~ weak && $3 !~ /gap|outside/ && $5 == "-" {print $1}')
	# shellcheck disable=SC2086 # a list
	run run --timeout 50s -- cloche-probe $cases
	within "attacks refused" 30 "$(grep -c '	refused' "$T/out")" 1000
	grep '	got-through' "$T/out" >"$T/err"
	cp "$T/err" "$T/out"
	[ ! -s "$T/out" ]
	verdict "none gets through" $?
}

# Calls that claim to have worked and did nothing. Whatever cloche makes of it, it must not take it
# out on the host: kill(-1) in a pid namespace or under a uid that was never entered ends everything.
# That is why this is tried here and not on a developer's machine.
test_lies() {
	[ "$MODE" = root ] || return
	sleep 99999 &
	canary=$!
	for call in clone3 clone unshare setns setresuid setresgid setgroups prctl capset seccomp mount move_mount \
		fsopen fsmount open_tree mount_setattr chroot chdir landlock_restrict_self close_range openat2; do
		for level in container process; do
			code=0
			timeout 20 lie "$call=0" -- cloche run --level $level -t 5s -- true >"$T/out" 2>"$T/err" </dev/null || code=$?
			kill -0 $canary 2>/dev/null && [ "$code" -le 125 ]
			verdict "$call lies, level $level (exit $code)" $?
		done
	done
	kill $canary
}

serve() { # starts a daemon, by a command if there is one, and waits until it answers; leaves $daemon
	"$@" cloche serve --listen "unix:$T/run/cloche.sock" >>"$T/log" 2>&1 </dev/null &
	daemon=$!
	for _ in $(seq 300); do
		timeout 20 cloche ps >/dev/null 2>&1 && return 0
		usleep 100000
	done
	tail -n 20 "$T/log" >"$T/out"
	return 1
}

# Sandboxes that live on: in cgroups of their own, frozen and thawed, found again after a crash.
test_daemon() {
	command -v cloched >/dev/null || return
	export CLOCHE_STATE_DIR="$T/state" CLOCHE_RUNTIME_DIR="$T/run"
	serve
	verdict "the daemon serves" $?
	run create --memory 128M
	is "create" 0 "$code"
	id=$(cat "$T/out")
	run exec "$id" sh -c 'echo kept >/workspace/f; cat /proc/self/cgroup; id -u'
	says "exec in a cgroup of its own" '^0::/$'
	run pause "$id"
	is "pause" 0 "$code"
	run resume "$id"
	is "resume" 0 "$code"
	if [ "$MODE" != plain ]; then
		[ -n "$(find $CG -name "cloche-box-*-$id")" ]
		verdict "its cgroup is there" $?
	fi
	run snapshot "$id" one
	is "snapshot" 0 "$code"
	snapshot=$(cat "$T/out")
	run create --snapshot "$snapshot"
	fork=$(cat "$T/out")
	run exec "$fork" cat /workspace/f
	is "a new one has the files" kept "$(cat "$T/out")"
	kill -KILL $daemon
	wait $daemon 2>/dev/null
	serve
	verdict "serves again after a crash" $?
	run exec "$id" cat /workspace/f
	is "the sandbox was found again" kept "$(cat "$T/out")"
	run rm "$id" "$fork"
	is "rm" 0 "$code"
	kill -TERM $daemon
	wait $daemon
	is "the daemon ends" 0 $?
	unset CLOCHE_STATE_DIR CLOCHE_RUNTIME_DIR
}

computes() { # NAME TOKEN OPTIONS...: makes a sandbox that computes once $T/go is there; what it had is in $T/NAME
	name=$1 token=$2
	shift 2
	box=$(CLOCHE_TOKEN=$token CLOCHE_URL=unix:$T/run/cloche.sock cloche create "$@" 2>"$T/err") || return
	{
		until [ -e "$T/go" ]; do usleep 20000; done
		timeout 60 cloche exec "$box" load burn 4000 >"$T/$name" 2>&1
	} &
	waits="$waits $!"
}

owners_share() { # NAME OPTIONS...: one sandbox of an owner beside three of another's
	what=$1 waits=
	shift
	for i in 1 2 3; do computes "share-$i" "$many" "$@"; done
	computes share-one "$one" "$@"
	: >"$T/go"
	# shellcheck disable=SC2086 # a list
	wait $waits
	rm "$T/go"
	cat "$T"/share-* >"$T/out"
	within "$what: one sandbox beside three of another owner" 28 "$(cat "$T/share-one")" 80
	within "$what: one of the three" 4 "$(cat "$T/share-1")" 45
	run rm --all
	is "$what: rm" 0 "$code"
}

# Each owner has the same part of the processors, however many sandboxes compute for it: those that are made
# for it are in a cgroup of the owner, those from the pool have weights. One processor is theirs.
test_owners() {
	[ "$MODE" != plain ] && command -v cloched >/dev/null || return
	export CLOCHE_STATE_DIR="$T/state" CLOCHE_RUNTIME_DIR="$T/run"
	serve taskset 1
	verdict "the daemon serves on one processor" $?
	many=$(cloche token create many | tail -n 1) one=$(cloche token create one | tail -n 1)
	owners_share "groups of owners" --hostname own
	owners_share "weights"
	kill -TERM $daemon
	wait $daemon
	is "the daemon of owners ends" 0 $?
	unset CLOCHE_STATE_DIR CLOCHE_RUNTIME_DIR
}

run run -- true # what is made once and kept is no leak
state >"$T/before"
test_layers
test_memory
test_pids
test_cpu
test_disk
test_kill
test_files
test_attacks
test_daemon
test_owners
test_lies
run run -- true # sweeps what a killed cloche left
for _ in 1 2 3 4 5 6 7 8 9 10; do
	state >"$T/after"
	cmp -s "$T/before" "$T/after" && break
	usleep 300000
done
diff "$T/before" "$T/after" >"$T/out"
verdict "nothing is left behind" $?
cd / && rm -rf "$T"
echo "v2: $MODE done"
