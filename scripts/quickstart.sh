#!/usr/bin/env bash
# From a fresh clone to a trained network: set-up, build, chapter 1 for five epochs. The programs of the other chapters
# and the folder of images that their pages use come after that.
# Needs no GPU and downloads no data. Run it again as often as you like.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
scripts/build.sh release --target ch01_single_device  # the other programs can wait

echo "training: chapter 1 on one device, with generated images"
build/release/bin/ch01_single_device --data generated --epochs 5 --out runs/quickstart

echo "training: done; now the programs of the other chapters"
scripts/build.sh release --target programs
if [[ ! data/generated/test_batch.bin -nt build/release/bin/make_generated_data ]]; then
  echo "data: writing the generated images to data/generated"
  build/release/bin/make_generated_data data/generated
fi

cat << END

The results are in $PWD/runs/quickstart:
$(ls runs/quickstart)

What to do next:
  read chapter 1          chapters/01_single_device/README.md
  train over four ranks   build/release/bin/ch03_gpipe --data data/generated --ranks 4 --microbatches 8 --clock virtual
  train on CIFAR-10       scripts/download_cifar10.sh && build/release/bin/ch01_single_device --data data
  see all flags           build/release/bin/ch01_single_device --help
  run the tests           scripts/test.sh
END
