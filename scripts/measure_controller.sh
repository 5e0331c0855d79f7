#!/usr/bin/env bash
# Makes docs/measurements/controller.md: the forms of chapter 7 on a ResNet-50 in two stages, what a call to an
# asynchronous device costs the program, and what a remote call costs beside a round trip of MPI.
#
#   scripts/measure_controller.sh
#
# Takes about ten minutes, 20 GB of memory and two cores. Leave the machine alone meanwhile.
takes="0 0"
source "$(dirname "${BASH_SOURCE[0]}")/measuring.sh"
scripts/setup.sh --for-mpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
begin_page "One controller" controller
"$programs/make_generated_data" "$runs/data" --train 120 --test 10 > /dev/null
training=(--data "$runs/data" --model resnet50 --image-size 128 --batch-size 120 --split 11,11 --epochs 2)
rounds=3

say "measuring: calls"
printf '\n## Calls\n\nWhat 1,000 calls to a CPU device cost the caller (`asynchronous_benchmark`): `enqueue_add` '
printf 'only enqueues a kernel; `operation` also checks its arguments and allocates its output.\n\n```text\n'
"$programs/asynchronous_benchmark" --benchmark_format=console 2> /dev/null
printf '```\n\nA remote call (`rpc_benchmark`), between threads:\n\n'
"$programs/rpc_benchmark"
printf '\nand between processes:\n\n'
mpirun -np 2 "$programs/rpc_benchmark"

# seconds PROGRAM FLAGS…: of the second epoch, which is one batch
seconds() {
  "$programs/$1" "${training[@]}" --ranks 2 "${@:2}" | sed -n 's/^Epoch: 2,.*time cost: \([0-9.]*\)s.*/\1/p'
}

say "measuring: naive and pipelined"
printf '\n## Naive and pipelined\n\nResNet-50, images of 128 x 128, batches of 120, cut 11,11 on two asynchronous CPU '
printf 'devices, SGD; pipelined in splits of 20. Beside it the same pipeline by two ranks (`ch03_gpipe`). Each time is '
printf 'that of one batch, in a second epoch.\n\n'
printf '| round | naive, s | pipelined, s | two ranks, s | naive / pipelined | naive / two ranks |\n'
printf '|---:|---:|---:|---:|---:|---:|\n'
for ((round = 1; round <= rounds; ++round)); do
  naive=$(seconds ch07_one_controller --form naive)
  pipelined=$(seconds ch07_one_controller --form pipelined --microbatches 6)
  ranks=$(seconds ch03_gpipe --microbatches 6)
  echo "$round $naive $pipelined $ranks" |
    awk '{ printf "| %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", $1, $2, $3, $4, $2 / $3, $2 / $4 }'
done

say "measuring: remote stages"
printf '\n## Remote stages\n\nThe same model as two remote stages, by threads (`--form remote --splits 1,2,4,8`):\n\n```text\n'
"$programs/ch07_one_controller" "${training[@]}" --ranks 3 --form remote --splits 1,2,4,8
printf '```\n'
say "written: $page"
