#!/usr/bin/env bash
# Tries both commands of the README in fresh systems: the first as root where nothing is installed, the second as an
# ordinary user without sudo, in a clone of their own. Then packs Stagecoach there, installs the packages in another fresh
# system, and builds and runs docs/examples/outside with them. Prints a row per command, for docs/measurements/platforms.md.
# Exits with 1 if any of them failed.
#
#   scripts/measure_platforms.sh [--readme | --packages] [SYSTEM…]
#
# SYSTEM is debian-12, debian-13 or ubuntu-24.04 (all three by default); a flag leaves the other part out. Needs root,
# debootstrap and git. The systems and what the commands printed are kept in build/systems.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
parts='readme packages'
case ${1:-} in
  --readme | --packages)
    parts=${1#--}
    shift
    ;;
esac
if [[ $(id -u) != 0 || ${1:-} == -* ]] || ! command -v debootstrap > /dev/null; then
  sed -n '2,10s/^# \{0,1\}//p' "$0"
  exit 2
fi
[[ $# -gt 0 ]] || set -- debian-12 debian-13 ubuntu-24.04

systems=$PWD/build/systems
mkdir -p "$systems"
rows=$systems/rows.md

# make_system NAME FOLDER: a system in build/systems/FOLDER with nothing but what every system has.
make_system() {
  local system=$systems/$2 fresh=$systems/$1.fresh
  if [[ ! -e $fresh ]]; then
    rm -rf "$fresh.part"
    case $1 in
      debian-12) debootstrap --variant=minbase bookworm "$fresh.part" http://deb.debian.org/debian ;;
      debian-13) debootstrap --variant=minbase trixie "$fresh.part" http://deb.debian.org/debian ;;
      # Other systems have neither Ubuntu's keys nor always a script for it; those of all its versions are the same.
      ubuntu-24.04) debootstrap --variant=minbase --no-check-gpg --components=main,universe noble "$fresh.part" \
        http://archive.ubuntu.com/ubuntu gutsy ;;
      *)
        echo "unknown system '$1'" >&2
        exit 2
        ;;
    esac > "$systems/$1.debootstrap.log"
    mv "$fresh.part" "$fresh"
  fi
  unmount "$system"
  rm -rf --one-file-system "$system"
  cp -a "$fresh" "$system"
  mount -t proc proc "$system/proc"
  mount --rbind /dev "$system/dev"
  mount --make-rslave "$system/dev"
  cp /etc/resolv.conf "$system/etc/resolv.conf"
  printf '127.0.0.1\tlocalhost\n' > "$system/etc/hosts"  # Debian's installer writes it, debootstrap of Debian 12 does not
}

# clone_for_two_users FOLDER: the sources in their home folders.
clone_for_two_users() {
  local system=$systems/$1
  chroot "$system" useradd --create-home student
  git clone --quiet . "$system/root/stagecoach"
  git clone --quiet . "$system/home/student/stagecoach"
  chroot "$system" chown -R student: /home/student
}

unmount() {
  local folder
  for folder in proc dev; do
    ! mountpoint --quiet "$1/$folder" || umount --recursive --lazy "$1/$folder"
  done
}

# run_as USER FOLDER COMMAND: runs it in that system's folder stagecoach, and adds a row with its time and what it printed.
run_as() {
  local user=$1 name=$2 command=$3 log status=0 seconds found
  log=$systems/$name.$user.$(basename "${command%% *}" .sh).log
  echo "$name, $user: $command"
  SECONDS=0
  chroot "$systems/$name" su - "$user" -c "cd stagecoach && $command" < /dev/null 2>&1 |
    while IFS= read -r line; do printf '%5d %s\n' "$SECONDS" "$line"; done > "$log" || status=$?
  seconds=$SECONDS
  [[ $status == 0 ]] || all_passed=false
  found=$(sed -nE 's/^ *([0-9]+) Epoch: 1,.*/first epoch after \1 s/p; s/^ *[0-9]+ ([0-9]+% tests passed, .*)/\1/p; s/^ *[0-9]+ (correct: .*)/\1/p' "$log" | head -n 1)
  [[ $command != *test.sh ]] || found+=", $(grep -c '(Skipped)$' "$log" || true) skipped"
  printf '| %s, g++ %s | %s | `%s` | %d s | %d | %s |\n' "$name" "$(chroot "$systems/$name" g++ -dumpfullversion)" \
    "$user" "$command" "$seconds" "$status" "$found" | tee -a "$rows"
}

# try_readme NAME: its two commands. Both set up the same packages, and both compile what they run.
try_readme() {
  run_as root "$1" scripts/quickstart.sh
  run_as student "$1" scripts/test.sh
}

# use_packages NAME: builds the packages in the clone of root, and a user's program in a system that has only them.
use_packages() {
  local clone=$systems/$1/root/stagecoach user=$1.packages
  local home=$systems/$user/root/stagecoach
  run_as root "$1" 'scripts/setup.sh --for-packages && scripts/build.sh package && cpack --preset package'
  make_system "$1" "$user"
  mkdir "$home"
  cp -r "$clone"/docs/examples "$clone"/build/package/*.deb "$home"
  run_as root "$user" 'apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ./*.deb g++ cmake make'
  run_as root "$user" 'cmake -S examples/outside -B build && cmake --build build && build/own_model'
  run_as root "$user" 'ch03_gpipe --smoke'
}

current=
all_passed=true
trap 'unmount "$systems/$current"; unmount "$systems/$current.packages"' EXIT
printf '| system | user | command | time | exit code | |\n|---|---|---|---:|---:|---|\n' > "$rows"
for current in "$@"; do
  make_system "$current" "$current"
  clone_for_two_users "$current"
  [[ $parts != *readme* ]] || try_readme "$current"
  [[ $parts != *packages* ]] || use_packages "$current"
  unmount "$systems/$current"
  unmount "$systems/$current.packages"
done
cat "$rows"
[[ $all_passed == true ]]
