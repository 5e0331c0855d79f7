#!/usr/bin/env bash
# Builds and runs the tests. Those that need CIFAR-10 look for it at STAGECOACH_CIFAR10, and skip themselves without.
#
#   scripts/test.sh                   the quick tests
#   scripts/test.sh --all             the slow ones too, as with CI=true
#   scripts/test.sh -DNAME=VALUE …    with CMake variables
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=release
[[ ${CI:-} != true ]] || tests=release-all
variables=()
for argument in "$@"; do
  case $argument in
    --all) tests=release-all ;;
    -D?*) variables+=("$argument") ;;
    *)
      echo "usage: scripts/test.sh [--all] [-DNAME=VALUE …]" >&2
      exit 2
      ;;
  esac
done

scripts/setup.sh
scripts/build.sh release "${variables[@]}"
log=build/test.log
status=0
ctest --preset "$tests" -j "$(nproc)" | tee "$log" || status=$?

# Tests have "cuda" in their names when they use a GPU; without one there are none, and this says why.
if gpu_tests=$(grep --count --extended-regexp 'Test +#[0-9]+: [^ ]*(cuda|Cuda).* Passed' "$log"); then
  echo "CUDA: $gpu_tests tests used $(build/release/bin/test_core --gtest_filter=Cuda.Half | sed -n 's/^CUDA: .* on //p')"
else
  build/release/bin/test_core --gtest_filter=Cuda.Half | sed -n '/^CUDA: /p'
fi
exit "$status"
