#!/usr/bin/env bash
# Starts a program as several ranks on this machine, as torchrun does, without Python: each process gets RANK,
# WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Ends with the highest exit code of the ranks.
#
#   scripts/start_ranks.sh 2 build/release/bin/ch03_gpipe --smoke
set -euo pipefail

if [[ $# -lt 2 || ! $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: scripts/start_ranks.sh RANKS PROGRAM [ARGUMENT …]" >&2
  exit 2
fi
ranks=$1
shift

# Without a port of the user's, one that nobody listens at: bash can only try to connect.
port=${MASTER_PORT:-}
while [[ -z $port ]] || { [[ -z ${MASTER_PORT:-} ]] && (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null; }; do
  port=$((20000 + RANDOM % 12000))
done
export WORLD_SIZE=$ranks MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} MASTER_PORT=$port

processes=()
trap 'kill "${processes[@]}" 2> /dev/null || true' INT TERM
for ((rank = 0; rank < ranks; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  processes+=($!)
done
highest=0
for process in "${processes[@]}"; do
  code=0
  wait "$process" || code=$?
  [[ $code -le $highest ]] || highest=$code
done
exit "$highest"
