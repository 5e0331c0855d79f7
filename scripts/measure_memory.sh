#!/usr/bin/env bash
# Makes docs/measurements/memory.md: the peak resident memory of each process of a pipeline of resnet50, beside what
# --explain --profile predicts, and beside one device.
#
#   scripts/measure_memory.sh
#
# Takes about three minutes. Memory does not depend on what else the machine does.
takes="0 0"
preset=${preset:-release}
source "$(dirname "${BASH_SOURCE[0]}")/measuring.sh"
scripts/setup.sh --for-mpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
begin_page "Memory of the processes of a pipeline"
"$programs/make_generated_data" "$runs/data" --train 256 --test 64 > /dev/null
training=(--data "$runs/data" --model resnet50 --batch-size 64 --epochs 1 --microbatches 4)

# mebibytes FILE: what peak_memory left there
mebibytes() { awk '{ printf "%.1f", $1 / 1024 }' "$1"; }
# row NAME PROGRAM FLAGS…: four processes, and the prediction for each
row() {
  local name=$1 program=$2 predicted rank
  mapfile -t predicted < <("$programs/$program" "${training[@]}" "${@:3}" --ranks 4 --explain --profile |
    sed -n '/^Predicted resident/,$p' | awk 'NR > 2 && NF > 1 { print $2 }')
  mpirun -np 4 "$programs/peak_memory" "$runs/peak" "$programs/$program" "${training[@]}" "${@:3}" --transport mpi \
    --ranks 4 --out "$runs/four" > /dev/null
  for rank in 0 1 2 3; do
    printf '| %s | %s | %.1f | %s |\n' "$name" "$rank" "${predicted[$rank]}" "$(mebibytes "$runs/peak.$rank")"
  done
  rm -r "$runs/four"
}

say "measuring: peak resident memory"
printf '\nOne epoch of resnet50 on 256 generated images of 64 x 64 pixels, batch 64 in 4 micro-batches, with its test '
printf 'and a checkpoint: `mpirun -np 4 peak_memory FILE PROGRAM … --model resnet50 --batch-size 64 --microbatches 4 '
printf -- '--epochs 1 --ranks 4 --transport mpi`. Predicted is the total of `--explain --profile`, which counts neither the '
printf 'program, its libraries, MPI, nor the images; measured is the peak resident memory of the whole process '
printf '(`ru_maxrss`). Both in MiB. A test (`ResidentMemory`) keeps the measured within 1.15 x the predicted + 60 MiB.\n\n'
"$programs/peak_memory" "$runs/one" "$programs/ch01_single_device" "${training[@]}" --out "$runs/alone" > /dev/null
printf 'One device that trains the same takes %s MiB; ' "$(mebibytes "$runs/one")"
"$programs/peak_memory" "$runs/small" "$programs/ch01_single_device" --data "$runs/data" --epochs 1 --batch-size 4 \
  > /dev/null
printf 'a process with almost nothing of its own (`ch01_single_device --batch-size 4`, convnet) takes %s MiB.\n\n' \
  "$(mebibytes "$runs/small")"
printf '| run | rank | predicted | measured |\n|---|---:|---:|---:|\n'
row '`ch03_gpipe --split 4,6,6,6`' ch03_gpipe --split 4,6,6,6
row 'the same, `--optimizer adam`' ch03_gpipe --split 4,6,6,6 --optimizer adam
row 'the same, `--recompute`' ch03_gpipe --split 4,6,6,6 --recompute
row '`ch05_interleaved --schedule 1f1b --split 4,6,6,6`' ch05_interleaved --schedule 1f1b --chunks 1 --split 4,6,6,6
say "written: $page"
