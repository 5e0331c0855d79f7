#!/usr/bin/env bash
# Runs the CPU kernels for AVX-512 where no processor has it: on the whole PC that Bochs emulates, with Intel's Skylake-X.
# Boots a small Linux there, which compares the kernels of all levels (test_levels) and trains chapter 1 with each level.
# Bochs executes the same number of instructions in every second of its own clock, so images per second there compare the
# levels by instructions, not by speed.
#
#   scripts/measure_avx512.sh [FILTER]      FILTER: the tests, as --gtest_filter takes them (all by default)
#
# Takes about half an hour. Needs the Debian packages bochs, bochs-term, bochsbios, vgabios, grub-pc-bin, grub-common,
# xorriso, mtools, busybox-static, cpio and curl. Downloads Debian 11's kernel: in Bochs 2.7 the area in which AVX-512
# registers are saved has another size than newer kernels accept. What was made is kept in build/avx512.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage() {
  sed -n '2,12s/^# \{0,1\}//p' "$0"
  exit 2
}
[[ $# -le 1 && ${1:-} != -* ]] || usage
for command in bochs-bin grub-mkrescue xorriso mformat busybox cpio curl; do
  command -v "$command" > /dev/null || usage
done
filter=${1:-*}

scripts/build.sh levels --target ch01_single_device make_generated_data test_levels
programs=$PWD/build/levels/bin
mkdir -p build/avx512
cd build/avx512

get_kernel() {
  local package=linux-image-5.10.0-32-cloud-amd64_5.10.223-1_amd64.deb
  [[ ! -e vmlinuz ]] || return 0
  echo "downloading $package"
  curl --fail --silent --show-error --remote-name "http://deb.debian.org/debian/pool/main/l/linux-signed-amd64/$package"
  dpkg-deb --fsys-tarfile "$package" | tar -x --to-stdout --wildcards './boot/vmlinuz-*' > vmlinuz.part
  mv vmlinuz.part vmlinuz
}

# Fills the folder `system` with what runs there: BusyBox, the programs, their libraries, images, and what init does.
make_system() {
  local file library
  rm -rf system
  mkdir -p system/{bin,dev,proc,tmp}
  cp "$(command -v busybox)" system/bin/busybox
  for file in test_levels ch01_single_device; do
    cp "$programs/$file" system/bin
    ldd "$programs/$file" | grep -o '/[^ ]*' | while read -r library; do
      mkdir -p "system${library%/*}"
      cp --dereference "$library" "system$library"
    done
  done
  "$programs/make_generated_data" system/data --train 128 --test 64 > /dev/null
  cat > system/init << END
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
exec > /dev/ttyS0 2>&1 < /dev/null
sed -n 's/^model name[^:]*: /processor: /p' /proc/cpuinfo
test_levels --gtest_color=no --gtest_brief=1 --gtest_filter='$filter'
for level in x86-64 x86-64-v3 x86-64-v4; do
  export STAGECOACH_LEVEL=\$level
  ch01_single_device --data /data --epochs 2 --threads 1 --out /tmp/run 2>&1 | tr '\\r' '\\n' |
    grep -oE 'cpu-level.*|Epoch: 2,.*|error.*'
  sha256sum < /tmp/run/weights.safetensors
  rm -r /tmp/run
done
echo "the end"
sleep 1
poweroff -f
END
  chmod +x system/init
}

make_disk() {
  rm -rf disk
  mkdir -p disk/boot/grub
  cp vmlinuz disk/boot
  (cd system && find . | cpio --quiet -o -H newc | gzip -1) > disk/boot/system.gz
  cat > disk/boot/grub/grub.cfg << 'END'
set timeout=0
menuentry Linux {
  linux /boot/vmlinuz console=ttyS0 quiet mitigations=off
  initrd /boot/system.gz
}
END
  grub-mkrescue -o disk.iso disk > grub.log 2>&1
}

boot() {
  cat > bochsrc << 'END'
display_library: term
cpu: model=corei7_skylake_x, ips=100000000
memory: guest=1024, host=1024
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=disk.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=printed.txt
sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy
panic: action=fatal
log: bochs.log
END
  echo continue > commands  # Debian's Bochs begins in its debugger
  rm -f printed.txt
  # It wants a terminal. Its exit code tells nothing.
  TERM=xterm script --quiet --command "bochs-bin -q -f bochsrc -rc commands" bochs.terminal < /dev/null > /dev/null || true
}

get_kernel
make_system
make_disk
echo "booting; what it prints goes to $PWD/printed.txt"
boot
grep -v '^\[ ' printed.txt
grep -q '^the end' printed.txt
