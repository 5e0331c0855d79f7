# The toolchain file of the preset arm64: compiles on another processor for 64-bit ARM, where QEMU runs the tests.
# Debian and Ubuntu: dpkg --add-architecture arm64, then g++-aarch64-linux-gnu, qemu-user, and of the libraries those for
# arm64 (docs/measurements/platforms.md lists them).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
