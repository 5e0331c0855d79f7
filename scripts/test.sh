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

# How many used a GPU: those with "cuda" in the name of the suite, or as a parameter (as in tests/support/main.cpp).
# Without a GPU there are none, and the test Cuda.Half says why.
on_gpu='Test +#[0-9]+: ([^. ]*[Cc]uda[^. ]*\.|[^ ]*/cuda).* Passed'
if gpu_tests=$(grep --extended-regexp "$on_gpu" "$log" | grep --count --invert-match ': Cuda\.Half '); then
  echo "CUDA: $gpu_tests tests ran on a GPU"
else
  build/release/bin/test_core --gtest_filter=Cuda.Half | sed -n '/^CUDA: /p'
fi
exit "$status"
