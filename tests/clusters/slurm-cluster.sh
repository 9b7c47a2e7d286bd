#!/usr/bin/env bash
# A real Slurm cluster on this machine: munge, slurmctld, and one slurmd a node, without systemd and without root.
#
#   slurm-cluster.sh up DIR [--nodes 2] [--cpus 4] [--memory 4000] [--port PORT] [--owner PID]
#                                     start it; returns when all nodes are idle. CPUs and MB are each node's, pretended.
#                                     PORT is the controller's, PORT+1... the nodes'; default: a free block of ports.
#                                     With --owner everything ends when that process has.
#   slurm-cluster.sh kill-node DIR N  SIGKILL node N: its slurmd, and all that runs on it
#   slurm-cluster.sh kill-slurmd DIR N        SIGKILL only its slurmd: what runs there goes on
#   slurm-cluster.sh start-node DIR N         start its slurmd again
#   slurm-cluster.sh stop-controller DIR      end slurmctld; it saves its state
#   slurm-cluster.sh kill-controller DIR      SIGKILL slurmctld: what it learned within the last seconds is lost
#   slurm-cluster.sh start-controller DIR     start it again; it reads its state
#   slurm-cluster.sh down DIR         end all of it, jobs included; DIR's logs stay
#
# Clients (sbatch, srun, squeue ...) need SLURM_CONF=DIR/slurm.conf. Nodes are called node1, node2, ...
# A node is a process namespace: when its first process is killed, the kernel kills all of the node, as if its power
# went. The network and the file system are this machine's. Packages: tools/debian-packages-slurm.txt.
# Exit codes: 0 done, 1 it failed, 2 wrong usage, 3 this machine cannot (a package or a right is missing).
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

fail() { echo "slurm-cluster.sh: $1" >&2; exit "${2:-1}"; }
usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }

[ $# -ge 2 ] || usage
verb=$1 directory=$2
shift 2
[ "$verb" = up ] && mkdir -p "$directory"
directory=$(cd "$directory" 2>/dev/null && pwd) || fail "there is no directory $directory; \`up\` makes one" 2
export SLURM_CONF=$directory/slurm.conf
user_namespace=()
[ "$(id -u)" = 0 ] || user_namespace=(--user --map-current-user)

# Process files hold "PID START", so that a number which the system has given away since is never taken for ours.
start_of() { # PID: nothing for one that is gone, or that only waits for its parent to ask
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  read -r -a fields <<<"${stat##*) }"
  [ "${fields[0]}" = Z ] || echo "${fields[19]}"
}
remember() { echo "$1 $(start_of "$1")" >"$2"; }
is_running() { # FILE: prints the process id
  local pid start
  read -r pid start 2>/dev/null <"$1" || return 1
  [ -n "$start" ] && [ "$(start_of "$pid")" = "$start" ] && echo "$pid"
}
end() { # FILE SIGNAL: returns when the process is gone
  local pid
  pid=$(is_running "$1") || return 0
  kill "-$2" "$pid" 2>/dev/null || true
  for _ in $(seq 200); do is_running "$1" >/dev/null || return 0; sleep 0.05; done
  kill -KILL "$pid" 2>/dev/null || true
  while is_running "$1" >/dev/null; do sleep 0.05; done
}
wait_for_line() { # SECONDS COMMAND...: until it succeeds
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do [ $SECONDS -lt $deadline ] || return 1; sleep 0.1; done
}

start_controller() {
  ! is_running "$directory/controller.process" >/dev/null || fail "the controller runs already"
  setsid slurmctld -D -f "$SLURM_CONF" >>"$directory/log/slurmctld.out" 2>&1 </dev/null &
  remember $! "$directory/controller.process"
}

start_node() { # N
  local node=node$1 process=$directory/node$1.process first
  [ -d "$directory/spool/$node" ] || fail "there is no $node in $directory" 2
  if ! first=$(is_running "$process"); then
    # The namespace's first process collects what others leave, and lives as long as the node.
    setsid unshare "${user_namespace[@]}" --pid --fork --kill-child --mount-proc \
      bash -c 'while :; do sleep 1000 & wait $!; done' >>"$directory/log/$node.out" 2>&1 </dev/null &
    remember $! "$process"
  fi
  in_node "$1" slurmd -N "$node" -f "$SLURM_CONF" || fail "slurmd of $node does not start; $directory/log/slurmd-$node.log says why"
}

in_node() { # N COMMAND...
  local process=$directory/node$1.process first="" outer
  shift
  outer=$(is_running "$process") || fail "the node is down"
  for _ in $(seq 100); do
    first=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null | tr -d ' ') && [ -n "$first" ] && break
    sleep 0.02
  done
  [ -n "$first" ] || fail "this machine does not let $(id -un) make process namespaces (unshare --pid)" 3
  nsenter --target "$first" "${user_namespace[@]:0:1}" --preserve-credentials --pid --mount "$@" </dev/null >>"$directory/log/nodes.out" 2>&1
}

are_idle() { [ "$(sinfo -h -N -p main -o '%N %T' 2>/dev/null | grep -c ' idle$' || true)" = "$1" ]; }

is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_block() { # COUNT: prints the first port
  local attempt port offset
  for attempt in $(seq 50); do
    port=$((20000 + ($$ * 37 + attempt * 101) % 10000))
    for offset in $(seq 0 "$1"); do is_free $((port + offset)) || continue 2; done
    echo "$port"
    return
  done
  fail "no $(($1 + 1)) free ports in a row between 20000 and 30000; choose with --port"
}

write_configuration() { # NODES CPUS MEMORY PORT
  local host user n
  host=$(hostname -s) user=$(id -un)
  cat <<CONFIGURATION
ClusterName=tesser
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$4
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$directory/munge/socket
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool/%n
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/slurmd-%n.pid
SlurmctldLogFile=$directory/log/slurmctld.log
SlurmdLogFile=$directory/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
GresTypes=gpu
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
ReturnToService=2
# Short, so that tests see within seconds what takes a minute or more on a real cluster.
SlurmdTimeout=5
SchedulerParameters=sched_interval=2
CONFIGURATION
  for n in $(seq "$1"); do
    echo "NodeName=node$n NodeHostname=$host NodeAddr=127.0.0.1 Port=$(($4 + n)) CPUs=$2 RealMemory=$3 Gres=gpu:pretend:2 State=UNKNOWN"
  done
  echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
  echo "PartitionName=closed Nodes=ALL MaxTime=INFINITE State=DOWN"
}

up() {
  local nodes=2 cpus=4 memory=4000 port="" owner="" program n
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --nodes) nodes=$2 ;; --cpus) cpus=$2 ;; --memory) memory=$2 ;; --port) port=$2 ;; --owner) owner=$2 ;; *) usage ;;
    esac
    [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "$1 takes a number above 0, not '$2'" 2
    shift 2
  done
  for program in munged slurmctld slurmd sbatch srun squeue scontrol unshare nsenter setsid; do
    command -v "$program" >/dev/null || fail "there is no $program; install the packages of tools/debian-packages-slurm.txt" 3
  done
  unshare "${user_namespace[@]}" --pid --fork --kill-child --mount-proc true 2>/dev/null ||
    fail "this machine does not let $(id -un) make process namespaces (unshare --pid)" 3
  for n in "$directory"/*.process; do
    [ ! -e "$n" ] || ! is_running "$n" >/dev/null || fail "a cluster runs in $directory already; end it first: $0 down $directory"
  done
  [ -n "$port" ] || port=$(free_block "$nodes")
  for n in $(seq 0 "$nodes"); do is_free $((port + n)) || fail "port $((port + n)) is taken; choose another with --port"; done

  rm -rf "$directory"/{state,spool,log,munge} "$directory"/*.process
  mkdir -p "$directory"/{state,spool,log,munge}
  chmod 755 "$directory" "$directory/munge"
  for n in $(seq "$nodes"); do mkdir -p "$directory/spool/node$n"; done
  write_configuration "$nodes" "$cpus" "$memory" "$port" >"$SLURM_CONF"
  # 22.05 has no way to say that there are no cgroups to use; where there is one, it must be said.
  if slurmctld -V | grep -Eq ' (1|20|21|22)\.'; then echo "CgroupPlugin=cgroup/v1"; else echo "CgroupPlugin=disabled"; fi >"$directory/cgroup.conf"
  # Any two device files do: nobody opens them.
  printf "NodeName=node[1-%s] Name=gpu Type=pretend File=%s\n" "$nodes" /dev/null "$nodes" /dev/zero >"$directory/gres.conf"
  (umask 077 && head -c 1024 /dev/urandom >"$directory/munge/key")
  setsid munged --foreground --force --key-file "$directory/munge/key" --socket "$directory/munge/socket" --pid-file "$directory/munge/pid" \
    --log-file "$directory/munge/log" --seed-file "$directory/munge/seed" >>"$directory/log/munged.out" 2>&1 </dev/null &
  remember $! "$directory/munged.process"
  wait_for_line 10 test -S "$directory/munge/socket" || fail "munged does not start; $directory/log/munged.out says why"
  if [ -n "$owner" ]; then
    setsid bash -c 'while kill -0 "$1" 2>/dev/null; do sleep 0.5; done; exec "$2" down "$3"' watch "$owner" \
      "$(realpath "${BASH_SOURCE[0]}")" "$directory" >/dev/null 2>&1 </dev/null &
    remember $! "$directory/watch.process"
  fi
  start_controller
  for n in $(seq "$nodes"); do start_node "$n"; done
  wait_for_line 30 are_idle "$nodes" || { sinfo -N -l >&2 || true; fail "the nodes are not idle after 30 s; $directory/log says why"; }
}

down() {
  local n
  # Nodes first, and by force: nothing of a job is left then, whatever it does with signals.
  for n in "$directory"/node*.process; do end "$n" KILL; done
  end "$directory/controller.process" KILL
  end "$directory/munged.process" TERM
  n=$directory/watch.process
  [ "$(is_running "$n" || true)" = $$ ] || end "$n" KILL
  rm -f "$directory"/*.process
}

number() { [[ ${1:-} =~ ^[1-9][0-9]*$ ]] || fail "$verb takes the number of a node, from 1" 2; }

case $verb in
up) up "$@" ;;
kill-node) number "$@"; end "$directory/node$1.process" KILL ;;
kill-slurmd) number "$@"; in_node "$1" kill -KILL "$(cat "$directory/slurmd-node$1.pid")" ;;
start-node) number "$@"; start_node "$1" ;;
stop-controller) end "$directory/controller.process" TERM ;;
kill-controller) end "$directory/controller.process" KILL ;;
start-controller) start_controller ;;
down) down ;;
*) usage ;;
esac
