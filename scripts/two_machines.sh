#!/usr/bin/env bash
# Runs a command by mpirun on two machines that are none: two network namespaces of this one, with names of their own,
# joined by a virtual link. Half of the processes run on each. Needs root, `ip` and Open MPI.
#
#   scripts/two_machines.sh PROCESSES COMMAND…
#
# LINK=SECONDS,BYTES_PER_SECOND slows the link: 0.02,12.5e6 is 20 ms and 100 Mbit/s. Without it, it is as fast as the
# system hands packets over. EAGER=BYTES, 16 MiB by default: larger messages wait until their receive is posted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# As mpirun's agent, which it calls to start its part on another machine: HOST COMMAND…
if [[ ${1:-} == --agent ]]; then
  exec ip netns exec stagecoach-b unshare --uts bash -c "hostname stagecoach-b; ${*:3}"
fi
if [[ $# -lt 2 || $1 == -* ]]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit 2
fi
processes=$1
eager=${EAGER:-16777216}
shift

clean_up() {
  [[ -z ${link_process:-} ]] || kill "$link_process" 2> /dev/null || true
  ip netns del stagecoach-a 2> /dev/null || true
  ip netns del stagecoach-b 2> /dev/null || true
}
trap clean_up EXIT
clean_up
ip netns add stagecoach-a
ip netns add stagecoach-b
if [[ -n ${LINK:-} ]]; then
  scripts/build.sh benchmarks --target virtual_link > /dev/null
  coproc link { exec build/benchmarks/bin/virtual_link stagecoach-a 10.77.0.1 stagecoach-b 10.77.0.2 "${LINK%,*}" "${LINK#*,}"; }
  link_process=$link_PID
  read -r <&"${link[0]}"
else
  ip link add wire netns stagecoach-a type veth peer name wire netns stagecoach-b
  for end in a:1 b:2; do
    ip -n "stagecoach-${end%:*}" addr add "10.77.0.${end#*:}/24" dev wire
    ip -n "stagecoach-${end%:*}" link set wire up
    ip -n "stagecoach-${end%:*}" link set lo up
  done
fi
# A connection that paused keeps its speed: else every step would begin slowly. A socket takes a whole message, so that
# it leaves while its sender computes.
for end in a b; do
  ip netns exec "stagecoach-$end" sh -c '
    cd /proc/sys/net/ipv4
    echo 0 > tcp_slow_start_after_idle
    echo 4096 16777216 67108864 > tcp_wmem
    echo 4096 16777216 67108864 > tcp_rmem'
done

# Both machines are this one: their ranks must not be bound to the same cores. The agent is this script. Messages of up to
# EAGER bytes are sent at once; for larger ones MPI first asks whether their receive is posted, and the answer queues
# after the data that go the same way. A thread of MPI's own reads the sockets while the ranks compute.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ip netns exec stagecoach-a unshare --uts bash -c 'hostname stagecoach-a; exec "$@"' two-machines \
  mpirun -np "$processes" --host "10.77.0.1:$((processes / 2)),10.77.0.2:$(((processes + 1) / 2))" --bind-to none \
  --mca plm_rsh_agent "$PWD/scripts/two_machines.sh --agent" --mca btl tcp,self \
  --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
  --mca btl_tcp_eager_limit "$eager" --mca btl_tcp_rndv_eager_limit "$eager" --mca btl_tcp_max_send_size 16777216 \
  --mca btl_tcp_flags 1 --mca btl_tcp_sndbuf 0 --mca btl_tcp_rcvbuf 0 --mca btl_tcp_progress_thread 1 \
  "$@"
