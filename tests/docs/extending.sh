#!/usr/bin/env bash
# Applies the patches of docs/extending.md to a copy of the last commit, builds what they change, and tests it, the CUDA
# backend emulated on the CPU. What they do not change comes from ccache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

patches=$PWD/docs/extending
copy=build/extending
rm -rf "$copy/source"
mkdir -p "$copy/source"
git archive HEAD | tar -x -C "$copy/source"
export GIT_CEILING_DIRECTORIES=$PWD/$copy  # the copy is no part of this repository
cd "$copy/source"
for patch in "$patches"/*.patch; do
  git apply --check "$patch"  # each by itself
done
git apply "$patches"/*.patch

options=(-DSTAGECOACH_CUDA=EMULATED ${CI:+-DSTAGECOACH_WERROR=ON})  # as CI builds the rest: ccache has no other objects
scripts/build.sh release --target test_extending "${options[@]}"
scripts/build.sh release --target ch08_linear_probe "${options[@]}"
programs=build/release/bin
$programs/test_extending --gtest_brief=1 --gtest_filter='*LeakyRelu*'
$programs/test_extending --gtest_brief=1 --gtest_filter='ScheduleKinds*'
$programs/test_extending --gtest_brief=1 --gtest_filter='Models*'
$programs/ch08_linear_probe --smoke --model perceptron
