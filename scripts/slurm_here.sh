#!/usr/bin/env bash
# Runs a command in a SLURM of its own: two nodes n1 and n2 that are this machine, with names, processes and shared
# memory of their own. Nothing of it is left afterwards. Needs root, and what scripts/setup.sh --for-slurm installs.
#
#   scripts/slurm_here.sh srun --mpi=pmix -N 2 -n 4 COMMAND…
#   scripts/slurm_here.sh sbatch --wait JOB
set -euo pipefail

if [[ $# -eq 0 || $1 == -* ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0"
  exit 2
fi

for program in munged slurmctld slurmd srun unshare; do
  if ! command -v "$program" > /dev/null; then
    echo "$program is missing; scripts/setup.sh --for-slurm installs it" >&2
    exit 2
  fi
done
folder=$(mktemp -d)
daemons=()
nodes=()
clean_up() {
  local node
  for node in "${nodes[@]}"; do
    kill -KILL $(cat "/proc/$node/task/$node/children") || true  # a node's first process takes the others with it
  done
  kill "${daemons[@]}" || true
  wait
  rm -rf "$folder"
}
trap 'clean_up 2> /dev/null' EXIT

# In a session of its own: a signal to the group of this script must not stop these first.
start() { setsid "$@" < /dev/null > /dev/null 2>> "$folder/errors" & }

ready() { [[ $(timeout 2 sinfo --noheader --states idle --format %D 2> /dev/null) == 2 ]]; }

chmod 755 "$folder"  # munged wants all to reach its socket
mkdir -p "$folder"/{munge,state,n1/tmp,n2/tmp}
head -c 128 /dev/urandom > "$folder/munge/key"
chmod 600 "$folder/munge/key"
export SLURM_CONF=$folder/slurm.conf
port=$((20000 + $$ % 4000 * 3))  # and the two after it
cat > "$SLURM_CONF" << END
ClusterName=here
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthInfo=socket=$folder/munge/socket
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdPidFile=$folder/%n.pid
SlurmdLogFile=$folder/%n.log
SlurmdSpoolDir=$folder/%n
TmpFS=$folder/%n/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MailProg=/bin/true
NodeName=n[1-2] NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=16
PartitionName=all Nodes=n[1-2] Default=YES
END

start munged --foreground --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
  --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
daemons+=($!)
start slurmctld -D
daemons+=($!)
for node in n1 n2; do
  start unshare --uts --mount-proc --pid --fork --kill-child bash -c \
    'hostname "$1"; mount -t tmpfs tmpfs /dev/shm; exec slurmd -D -N "$1"' slurm-here "$node"
  nodes+=($!)
done
end=$((SECONDS + 30))
until ready; do
  if ((SECONDS > end)); then
    echo "SLURM does not start; its output:" >&2
    tail -n 5 "$folder"/errors "$folder"/munge/log "$folder"/*.log >&2 || true
    exit 1
  fi
  sleep 0.2
done

# When this script is told to stop, so is srun, while it can still tell the nodes.
"$@" <&0 &
command=$!
trap 'kill "$command" 2> /dev/null; wait "$command"' INT TERM
wait "$command"
