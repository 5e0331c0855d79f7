#!/usr/bin/env bash
# Makes the CPU figures under docs/: the kernel table, the epoch beside PyTorch's, chapter 1's log, its profile and its figure.
#
#   scripts/measure_cpu.sh DATA [PYTHON]      DATA has CIFAR-10; PYTHON has torch and numpy (python3 if not given)
#
# Takes about five minutes. Leave the machine alone meanwhile; the tables are medians, but noise stays noise.
source "$(dirname "${BASH_SOURCE[0]}")/measuring.sh"
python=${python:-python3}
program=$programs/ch01_single_device

echo "measuring: kernels"
begin_page "CPU kernels" cpu_kernels
{
  echo
  taskset -c 0 "$programs/cpu_kernels_benchmark" --benchmark_format=json --benchmark_min_time=0.1 \
    --benchmark_repetitions=3 2> /dev/null | python3 tests/benchmarks/kernel_table.py
} >> "$page"

echo "measuring: epochs beside PyTorch"
begin_page "An epoch of convnet beside PyTorch" cpu_epoch
{
  printf '\nCIFAR-10, batch 64, Adam. PyTorch %s, eager. The two run in turn on the same cores.\n\n```text\n' \
    "$("$python" -c 'import torch; print(torch.__version__)')"
  for threads in 1 2; do
    "$python" tests/benchmarks/epoch_ratio.py --data "$data" --threads "$threads" --epochs 1 --program "$program"
  done
  printf '```\n'
} >> "$page"

echo "measuring: chapter 1 on CIFAR-10"
begin_page "Chapter 1 on CIFAR-10, both heads" ch01_cifar10
{
  for head in softmax logits; do
    printf '\n## --head %s\n\n```text\n' "$head"
    "$program" --data "$data" --head "$head" --optimizer adam --lr 0.001 --batch-size 64 --epochs 10 \
      --out "$runs/$head" | grep '^Epoch:'
    printf '```\n'
  done
  printf '\n## Where the time goes\n\n```text\n'
  taskset -c 0 "$program" --data "$data" --optimizer adam --epochs 1 --profile | sed -n '/^Where/,/^Epoch/p' | sed '$d'
  printf '```\n\n## Peak memory\n\n'
  # The largest resident set of the process, in kilobytes, as the kernel counts it.
  peak=$(python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)' \
    "$program" --data "$data" --optimizer adam --epochs 1)
  printf 'With all of CIFAR-10 loaded, one epoch: %s MiB for the whole process.\n' "$peak"
} >> "$page"
"$programs/compare" "$runs/softmax" "$runs/logits" --svg docs/figures/ch01_heads.svg > /dev/null

echo "written: docs/measurements/{cpu_kernels,cpu_epoch,ch01_cifar10}.md, docs/figures/ch01_heads.svg"
