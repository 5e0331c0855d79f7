#!/usr/bin/env bash
# Compiles and links all CUDA code with nvcc 12.4, the oldest that is supported, for Volta, for which nvcc 13 compiles no
# more, and for Hopper: every condition on __CUDA_ARCH__ is true for one of them. Needs no GPU, but Debian and a network:
# the toolkit is that of Debian 13 (1 GB), which is unpacked into build/cuda-12.4 and not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
toolkit=$PWD/build/cuda-12.4

# fetch FOLDER: downloads the packages. Their lists are kept apart from this system's, which may be another Debian.
fetch() {
  mkdir -p "$1"/{lists,cache/archives}/partial
  echo "deb http://deb.debian.org/debian trixie main non-free" > "$1/sources.list"
  local apt=(apt-get -q -o "Dir::Etc::sourcelist=$1/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$1/lists" -o "Dir::Cache=$1/cache" -o APT::Sandbox::User=root -o Acquire::Retries=3)
  "${apt[@]}" update
  (cd "$1" && "${apt[@]}" download nvidia-cuda-toolkit nvidia-cuda-dev libcudart12 libthrust-dev libcub-dev libcu++-dev)
}

# unpack FOLDER: unpacks its packages, and moves what a build needs to where NVIDIA's installer puts it, in FOLDER/cuda.
unpack() {
  local package nvcc=$1/usr/lib/nvidia-cuda-toolkit
  for package in "$1"/*.deb; do dpkg-deb -x "$package" "$1"; done
  mkdir -p "$1/cuda"/{lib64,nvvm}
  mv "$nvcc/bin" "$1/usr/include" "$1/cuda"
  mv "$nvcc/libdevice" "$1/cuda/nvvm"
  mv "$1"/usr/lib/*/lib{cudart*,cudadevrt.a,culibos.a} "$1/cuda/lib64"
  rm "$1"/cuda/bin/{nvcc.profile,gcc,g++}  # Debian's, of other paths
  mv "$1"/usr/bin/{cudafe++,fatbinary,nvlink,ptxas} "$1/cuda/bin"
  cat > "$1/cuda/bin/nvcc.profile" << 'END'
NVVMIR_LIBRARY_DIR = $(_HERE_)/../nvvm/libdevice
PATH += $(_HERE_):
INCLUDES += "-I$(_HERE_)/../include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(_HERE_)/../lib64"
END
}

if [[ ! -e $toolkit ]]; then
  mkdir -p build  # not there yet in a fresh clone
  work=$(mktemp -d -p build)
  work=$PWD/$work
  trap 'rm -rf "$work"' EXIT
  fetch "$work"
  unpack "$work"
  mv "$work/cuda" "$toolkit"
fi
cmake --preset cuda -B build/oldest-cuda -DCMAKE_CUDA_COMPILER="$toolkit/bin/nvcc" -DSTAGECOACH_BENCHMARKS=ON \
  -DCMAKE_CUDA_ARCHITECTURES='70-real;90-real' -DSTAGECOACH_WERROR=ON
cmake --build build/oldest-cuda -j "$(nproc)" --target programs test_core test_cuda cuda_kernels_benchmark
