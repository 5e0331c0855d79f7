#!/usr/bin/env bash
# Makes docs/measurements/pipedream.md and its figure: chapter 4 on CIFAR-10 with every policy of weight versions beside
# one device, asynchronous pipelines beside their prediction, their idle time, and how long the partitioner takes.
#
#   scripts/measure_pipedream.sh DATA      DATA has CIFAR-10
#
# Takes about a quarter of an hour. Leave the machine alone meanwhile; the tables are medians, but noise stays noise.
takes="1 1"
source "$(dirname "${BASH_SOURCE[0]}")/measuring.sh"
begin_page "PipeDream"

# One split for all policies: they are to differ in nothing else.
split=$("$programs/ch04_pipedream" --data "$data" --ranks 4 --explain | sed -nE 's/^  stages +--split ([0-9,]+) .*/\1/p')

# accuracy NAME: on the test images, after the last epoch.
accuracy() {
  tail -n 1 "$runs/$1/metrics.jsonl" | python3 -c 'import json; print("%.3f" % json.loads(input())["test_acc"])'
}

training=(--lr 0.0005)
train one_device ch01_single_device
for versions in stash vertical 2bw flush; do
  train "$versions" ch04_pipedream --ranks 4 --split "$split" --versions "$versions"
done
train none ch04_pipedream --ranks 4 --split "$split" --versions none --no-version-check
train vertical_discount ch04_pipedream --ranks 4 --split "$split" --versions vertical --lr-warmup 782 --lr-discount 3910
# At twice that rate old weights cost more accuracy.
training=(--lr 0.001)
train fast_one_device ch01_single_device
train fast_stash ch04_pipedream --ranks 4 --split "$split" --versions stash
train fast_2bw ch04_pipedream --ranks 4 --split "$split" --versions 2bw

printf '\n## Ten epochs of CIFAR-10, four stages, virtual clock\n\n'
printf 'Batch 64, Adam with a learning rate of 0.0005, split %s; 2bw and flush in 4 micro-batches. ' "$split"
printf '`vertical_discount` warms up for one epoch (`--lr-warmup 782`) and divides the learning rate by a falling power '
printf 'of 4 for five (`--lr-discount 3910`). '
printf '`compare` printed:\n\n'
"$programs/compare" "$runs"/{one_device,stash,vertical,vertical_discount,2bw,flush,none} --markdown \
  --svg docs/figures/pipedream.svg
printf '\nWith a learning rate of 0.001 the test accuracies were %s on one device, %s with `stash` and %s with `2bw`.\n' \
  "$(accuracy fast_one_device)" "$(accuracy fast_stash)" "$(accuracy fast_2bw)"
printf '\n![Speed-up, idle share, memory and losses of all policies](../figures/pipedream.svg)\n'
epochs_of stash

say "measuring: asynchronous pipelines beside their prediction"
printf '\n## How close to the limit, and to the prediction\n\n`tests/benchmarks/pipedream_ratio.py`: CIFAR-10, SGD, batch '
printf '64 where nothing else is said, split by measured time.\n\n'
python3 tests/benchmarks/pipedream_ratio.py --data "$data" --programs "$programs" --rounds 3

say "measuring: idle time over the length of the stream"
printf '\n## Idle time over the number of micro-batches\n\n`tests/benchmarks/pipedream_idle_benchmark.cpp`: four equal '
printf 'stages, weight stashing, virtual clock; all ranks on one core.\n'
"$programs/pipedream_idle_benchmark"

say "measuring: the partitioner"
printf '\n## How long the partitioner takes\n\n200 layers on 64 ranks:\n\n```text\n'
"$programs/partition_benchmark" --benchmark_format=console 2> /dev/null
printf '```\n'
say "written: $page"
