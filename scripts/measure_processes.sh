#!/usr/bin/env bash
# Makes docs/measurements/processes.md: messages and sums between threads and between processes beside what MPI itself
# takes, chapters whose ranks are processes beside threads, ranks that torchrun starts, and two machines at the ends of a
# virtual link.
#
#   scripts/measure_processes.sh      as root, for the virtual link
#
# Takes about five minutes. Leave the machine alone meanwhile; the tables are medians, but noise stays noise.
takes="0 0"
source "$(dirname "${BASH_SOURCE[0]}")/measuring.sh"
scripts/setup.sh --for-mpi
scripts/setup.sh --for-gloo
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
begin_page "Ranks that are processes"

say "measuring: messages and sums"
printf '\n## Messages and sums between two ranks\n\n'
printf '`transport_benchmark`: half of the time that a message takes there and back, and an all-reduce of float32. '
printf 'Threads hand memory over: the time of a message hardly grows with its bytes.\n\n'
"$programs/transport_benchmark"
printf '\n`mpirun -np 2 transport_benchmark`; ours and those of %s in turn:\n\n' "$(mpirun --version | sed -n '1s/.*(\(.*\)) /\1 /p')"
mpirun -np 2 "$programs/transport_benchmark"
printf '\n`scripts/start_ranks.sh 2 transport_benchmark`; ours and those of Gloo in turn, by TCP on one machine:\n\n'
scripts/start_ranks.sh 2 "$programs/transport_benchmark"

say "measuring: chapters by threads and by processes"
printf '\n## Chapters by threads and by processes\n\n'
printf 'Two epochs on 2,000 generated images, batch 64. Seconds of the second epoch; the weights are compared byte for byte.\n\n'
printf '| program | ranks | threads, s | processes, s | weights |\n|---|---:|---:|---:|---|\n'
"$programs/make_generated_data" "$runs/data" --train 2000 --test 200 > /dev/null

# seconds RUN: of its last epoch
seconds() { sed -n '$s/.*"seconds":\([0-9.e-]*\).*/\1/p' "$runs/$1/metrics.jsonl"; }
# both PROGRAM RANKS FLAGS…
both() {
  local training=("$programs/$1" --data "$runs/data" --epochs 2 "${@:3}") same=DIFFER
  "${training[@]}" --ranks "$2" --out "$runs/threads" > /dev/null
  mpirun -np "$2" "${training[@]}" --out "$runs/processes" > /dev/null
  ! cmp -s "$runs"/{threads,processes}/weights.safetensors || same=equal
  printf '| %s | %s | %.3f | %.3f | %s |\n' "$1" "$2" "$(seconds threads)" "$(seconds processes)" "$same"
  rm -r "$runs/threads" "$runs/processes"
}
for ranks in 1 2 4; do
  both ch02_naive_model_parallel "$ranks" --balance layers
  both ch03_gpipe "$ranks" --balance layers --microbatches 4
  both ch04_pipedream "$ranks" --balance layers
  both ch05_interleaved "$ranks" --balance layers --microbatches 4 --schedule 1f1b
  both ch06_ddp "$ranks" --first-bucket-size 4KiB --bucket-size 16KiB
done

say "measuring: torchrun"
printf '\n## Started by torchrun\n\n'
if command -v torchrun > /dev/null; then
  printf 'The same weights by ranks that PyTorch starts, with Gloo between them (`tests/chapters/torchrun.py`):\n\n'
  tests/chapters/torchrun.py --programs "$programs"
else
  printf 'Not measured: PyTorch, which has torchrun, is not installed.\n'
fi

say "measuring: two machines"
printf '\n## Two machines\n\n'
printf 'Two network namespaces, with names of their own, one rank on each (`scripts/two_machines.sh`). '
printf 'The link has 20 ms and 100 Mbit/s (`tests/benchmarks/two_machines.py`):\n\n'
tests/benchmarks/two_machines.py --programs "$programs"
printf '\n`simulate` lets a message above 4 KiB wait until its receive is posted. MPI over TCP is set here to send messages up to '
printf '16 MiB at once (`scripts/two_machines.sh`); `--receives 8` predicts that for 8 micro-batches.\n'
scripts/two_machines.sh 2 "$PWD/$programs/ch03_gpipe" --data "$runs/data" --epochs 2 --split 3,9 --out "$runs/near" > /dev/null
"$programs/ch03_gpipe" --data "$runs/data" --epochs 2 --split 3,9 --out "$runs/threads" > /dev/null
cmp "$runs"/{near,threads}/weights.safetensors >&2
printf '\nOver a link that is not slowed, `ch03_gpipe` also trains the bytes that threads train (`cmp` in the script).\n'
say "written: $page"
