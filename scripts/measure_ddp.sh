#!/usr/bin/env bash
# Makes docs/measurements/ddp.md and its figures: all strategies of data parallel training on CIFAR-10 beside one device, two
# ranks beside one and beside PyTorch, and modes and bucket sizes beside their prediction.
#
#   scripts/measure_ddp.sh DATA [PYTHON]      DATA has CIFAR-10, PYTHON has torch (without it PyTorch is left out)
#
# Takes about twenty minutes. Leave the machine alone meanwhile; the tables are medians, but noise stays noise.
preset=release  # no program of the benchmarks is needed
source "$(dirname "${BASH_SOURCE[0]}")/measuring.sh"
begin_page "Data parallel training"

train one_device ch01_single_device --microbatches 4
small=(--first-bucket-size 4KiB --bucket-size 16KiB)
for mode in single parameter central; do
  train "$mode" ch06_ddp --ranks 4 --link ethernet100 --mode "$mode"
done
train buckets ch06_ddp --ranks 4 --link ethernet100 "${small[@]}"
train half ch06_ddp --ranks 4 --link ethernet100 "${small[@]}" --compress half
train mesh ch06_ddp --mesh dp=2,pp=2 --microbatches 2 --link ethernet100
for mode in single parameter buckets central; do
  cmp "$runs/one_device/weights.safetensors" "$runs/$mode/weights.safetensors" >&2
done

printf '\n## Ten epochs of CIFAR-10, four ranks, virtual clock\n\n'
printf 'Batch 64, which is 16 per rank, Adam with a learning rate of 0.001, link ethernet100, buckets of 16 KiB. One device '
printf 'takes the ranks'"'"' parts as 4 micro-batches; it and the four modes end with the same bytes (`cmp`). `half` '
printf 'is `--compress half`; `mesh` is `--mesh dp=2,pp=2` in 2 micro-batches. `compare` printed:\n\n'
"$programs/compare" "$runs"/{one_device,single,parameter,buckets,half,central,mesh} --markdown \
  --svg docs/figures/ddp.svg
printf '\n![Speed-up, idle share, memory and losses of all strategies](../figures/ddp.svg)\n'
epochs_of buckets

say "measuring: modes and bucket sizes beside their prediction"
printf '\n## Modes and bucket sizes, and what latency and bandwidth predict\n\n`tests/benchmarks/ddp_virtual.py`: eight '
printf 'ranks, `vit` (8 blocks 128 wide, images of 16 x 16 pixels), 2 images per rank, ethernet100, virtual clock.\n\n'
python3 tests/benchmarks/ddp_virtual.py --programs "$programs" --svg docs/figures/ch06_buckets.svg

say "measuring: two ranks on two cores"
printf '## Two ranks on two cores\n\n`tests/benchmarks/ddp_ratio.py`: CIFAR-10, SGD, 64 images per rank, wall clock.\n\n'
python3 tests/benchmarks/ddp_ratio.py --data "$data" --programs "$programs" ${python:+--torch "$python"}
printf '\nThe two programs of `limit` never meet. Ranks that meet once per step wait each time for the slower one: '
printf '`limit, step by step` is what the two cores give then, if messages take no time. The gap between the two limits is '
printf 'the noise of the machine; the gap between the second one and a mode is the work of that mode.\n'
say "written: $page"
