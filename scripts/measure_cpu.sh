#!/usr/bin/env bash
# Makes the CPU figures under docs/: the kernel table, the epoch beside PyTorch's, chapter 1's log, its profile and its figure.
#
#   scripts/measure_cpu.sh DATA [PYTHON]      DATA has CIFAR-10; PYTHON has torch and numpy (python3 if not given)
#
# Takes about half an hour. Leave the machine alone meanwhile; the tables are medians, but noise stays noise.
source "$(dirname "${BASH_SOURCE[0]}")/measuring.sh"
python=${python:-python3}
program=$programs/ch01_single_device

say "measuring: kernels"
begin_page "CPU kernels" cpu_kernels
echo
taskset -c 0 "$programs/cpu_kernels_benchmark" --benchmark_format=json --benchmark_min_time=0.1 \
  --benchmark_repetitions=3 2> /dev/null | python3 tests/benchmarks/kernel_table.py

say "measuring: epochs beside PyTorch"
begin_page "Epochs beside PyTorch" cpu_epoch
printf '\nBatch 64, Adam; convnet on CIFAR-10, vit on 3,200 images, resnet18 on 320. PyTorch %s. All run in turn on the\n' \
  "$("$python" -c 'import torch; print(torch.__version__)')"
printf 'same cores, and each time is that of a second epoch. The best matrix-product rate is measured as for\n'
printf '[cpu_kernels.md](cpu_kernels.md).\n\n```text\n'
"$programs/make_generated_data" "$runs/3200" --train 3200 --test 64 > /dev/null
"$programs/make_generated_data" "$runs/320" --train 320 --test 64 > /dev/null
ratio=("$python" tests/benchmarks/epoch_ratio.py --compile --program "$program")
"${ratio[@]}" --model convnet --data "$data"
"${ratio[@]}" --model convnet --data "$data" --threads 2
"${ratio[@]}" --model vit --data "$runs/3200"
"${ratio[@]}" --model resnet18 --data "$runs/320" --rounds 3
printf '```\n\n'
git show HEAD:"$page" | sed -n '/^## Where resnet18/,$p'  # written by hand

say "measuring: chapter 1 on CIFAR-10"
begin_page "Chapter 1 on CIFAR-10, both heads" ch01_cifar10
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
printf '\n## --model vit\n\nAt the default sizes on one core, Adam:\n\n```text\n'
taskset -c 0 "$program" --data "$data" --model vit --optimizer adam --lr 0.001 --batch-size 64 --epochs 10 | grep '^Epoch:'
printf '```\n'
"$programs/compare" "$runs/softmax" "$runs/logits" --svg docs/figures/ch01_heads.svg > /dev/null

say "written: docs/measurements/{cpu_kernels,cpu_epoch,ch01_cifar10}.md, docs/figures/ch01_heads.svg"
