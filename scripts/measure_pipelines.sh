#!/usr/bin/env bash
# Makes docs/measurements/pipelines.md and its figures: chapters 1, 2, 3 and 5 on CIFAR-10, pipelines of two ranks beside
# their prediction and beside PyTorch, the size of micro-batches, and the executor's own cost.
#
#   scripts/measure_pipelines.sh DATA [PYTHON]      DATA has CIFAR-10; PYTHON has torch and numpy (left out if not given)
#
# Takes about twenty minutes. Leave the machine alone meanwhile; the tables are medians, but noise stays noise.
source "$(dirname "${BASH_SOURCE[0]}")/measuring.sh"
begin_page "Pipelines"

training=(--batch-size 256)
train one_device_whole ch01_single_device
train one_device ch01_single_device --microbatches 8
train naive ch02_naive_model_parallel --ranks 4
train gpipe ch03_gpipe --ranks 4 --microbatches 8
train 1f1b ch05_interleaved --ranks 4 --microbatches 8 --schedule 1f1b
train interleaved ch05_interleaved --ranks 4 --microbatches 8 --chunks 2
train zb_h1 ch05_interleaved --ranks 4 --microbatches 8 --schedule zb-h1

printf '\n## Ten epochs of CIFAR-10, four ranks, virtual clock\n\n'
printf 'Batch 256, in 8 micro-batches except for `one_device_whole` and `naive`, Adam, split by measured time. `compare` printed:\n\n'
"$programs/compare" "$runs"/{one_device,one_device_whole,naive,gpipe,1f1b,interleaved,zb_h1} --markdown \
  --svg docs/figures/pipelines.svg
printf '\n![Speed-up, idle share, memory and losses](../figures/pipelines.svg)\n\n'
printf 'The SHA-256 sums of the weights. Those with the same micro-batches are the same bytes:\n\n```text\n'
(cd "$runs" && sha256sum */weights.safetensors)
printf '```\n'
epochs_of gpipe

say "measuring: equal stages"
printf '\n## Equal stages\n\n`tests/benchmarks/equal_stages.py`, generated images. `theory` is the speed-up over 1F1B if all '
printf 'stages, and the halves of a backward, took equally long; `predicted` is what `simulate` returns for the costs that '
printf 'the run measured.\n\n'
python3 tests/benchmarks/equal_stages.py --programs "$programs"

say "measuring: two ranks on two cores, wall clock"
printf '\n## Two ranks on two cores, wall clock (last row: four, virtual clock)\n\n'
printf '`tests/benchmarks/pipeline_ratio.py`: CIFAR-10, batch 256, 8 micro-batches, split by measured time. '
printf '`predicted` is what `simulate` returns for the costs that the run measured, `reached` predicted over measured, '
printf '`spread` slowest over fastest round.\n\n'
python3 tests/benchmarks/pipeline_ratio.py --data "$data" --programs "$programs" --rounds 9 ${python:+--torch "$python"}

say "measuring: sizes of micro-batches"
"$programs/make_generated_data" --train 240 --test 12 "$runs/images" > /dev/null
printf '\n## How large should a micro-batch be?\n\n`tests/benchmarks/split_sweep.py`: resnet50, 64x64 images, cut 11,11, '
printf 'medians of three rounds in turn.\n\nLarge micro-batches leave the pipeline empty at its ends; small ones read all '
printf 'weights for few images. The best size is in between. `ideal` is 2 m / (m + 1) for m micro-batches, if an image '
printf 'costs the same in all; an epoch is two steps.\n\n'
python3 tests/benchmarks/split_sweep.py --data "$runs/images" --programs "$programs" --rounds 3 \
  --svg docs/figures/split_sweep.svg
printf '\n![Images per second over the size of a micro-batch](../figures/split_sweep.svg)\n'

say "measuring: the executor and the schedules"
printf '\n## What the executor itself costs, and large schedules\n\n`pipeline_benchmark` (the same actions by hand and by the executor) '
printf 'and `schedule_benchmark` (512 ranks, 4,096 micro-batches):\n\n```text\n'
for benchmark in pipeline schedule; do
  "$programs/${benchmark}_benchmark" --benchmark_format=console 2> /dev/null
done
printf '```\n'
say "written: $page"
