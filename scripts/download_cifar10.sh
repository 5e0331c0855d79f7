#!/usr/bin/env bash
# Gets CIFAR-10 in its binary version (162 MB, 184 MB unpacked):
#
#   scripts/download_cifar10.sh [FOLDER]      FOLDER is data/ if it is not given
#
# What is there and right is not fetched again, so the script may be run again after a failure or an interruption.
set -euo pipefail

url=https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz
md5=c32a1d4ab5d03f1284b67883e8d87530 # from https://www.cs.toronto.edu/~kriz/cifar.html
file_bytes=30730000                  # of each of the six files: 10,000 records of 3073 bytes

say() { printf '%s\n' "$*"; }
fail() {
  printf 'download_cifar10.sh: %s\n' "$*" >&2
  exit 1
}

# The six files are there, each with its full size.
is_unpacked() {
  local name
  for name in data_batch_{1,2,3,4,5} test_batch; do
    [[ -f $unpacked/$name.bin && $(wc -c <"$unpacked/$name.bin") -eq $file_bytes ]] || return 1
  done
}

is_right() { [[ $(md5sum <"$archive" | cut -d ' ' -f 1) == "$md5" ]]; }

fetch() {
  if command -v curl >/dev/null; then
    curl --fail --location --retry 2 --output "$archive" "$url"
  elif command -v wget >/dev/null; then
    wget --tries 3 --output-document "$archive" "$url"
  else
    fail "neither curl nor wget is installed; install one (apt install curl), or download $url to $folder by other means"
  fi
}

get_archive() {
  if [[ -f $archive ]] && is_right; then
    say "$archive has already been downloaded"
    return
  fi
  [[ ! -f $archive ]] || say "$archive is damaged (expected checksum $md5); downloading it again"
  rm -f "$archive"
  say "downloading $url"
  if ! fetch; then
    rm -f "$archive"
    fail "the download failed; check the network and run this script again, or use --data generated, which needs no files"
  fi
  if ! is_right; then
    rm -f "$archive"
    fail "the downloaded file had a wrong checksum (expected $md5) and was deleted; run this script again, perhaps on another network"
  fi
}

if [[ $# -gt 1 || ${1:-} == -* ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0"
  [[ ${1:-} == --help || ${1:-} == -h ]] && exit 0
  exit 2
fi
folder=${1:-data}
folder=${folder%/}
archive=$folder/cifar-10-binary.tar.gz
unpacked=$folder/cifar-10-batches-bin

mkdir -p "$folder" || fail "folder $folder cannot be created; check the path and its permissions"
if is_unpacked; then
  say "CIFAR-10 is already in $unpacked"
else
  command -v md5sum >/dev/null || fail "md5sum is missing; install it (apt install coreutils)"
  get_archive
  tar -xzf "$archive" -C "$folder" || fail "$archive cannot be unpacked; check the free disk space"
  is_unpacked || fail "$archive lacks some of the six expected files; delete it and run this script again"
fi
say "Use it with: --data $folder"
