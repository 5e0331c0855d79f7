// Joins two network namespaces by a link with a latency and a bandwidth, as if they were two machines far apart.
//
//   virtual_link NAMESPACE_A ADDRESS_A NAMESPACE_B ADDRESS_B SECONDS BYTES_PER_SECOND
//
// Each namespace gets a device `wire` with its address. Packets that enter one are read here, wait until those before
// them are through and their time on the way is over, and leave the other. Prints "ready" and runs until it is ended.
// Needs root, /dev/net/tun and `ip`.

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kLargestPacket = 65536;
constexpr std::size_t kQueue = 64 << 20;  // bytes; a link loses nothing unless it is hopelessly behind

int check(int result, const std::string& what) {
  if (result < 0) {
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
  }
  return result;
}

/// The end of the link in a namespace; this thread stays there.
int open_end(const std::string& space, const std::string& address) {
  const int descriptor = check(::open(("/run/netns/" + space).c_str(), O_RDONLY | O_CLOEXEC), "namespace " + space);
  check(::setns(descriptor, CLONE_NEWNET), "entering namespace " + space);
  ::close(descriptor);
  const int tun = check(::open("/dev/net/tun", O_RDWR | O_CLOEXEC), "/dev/net/tun");
  ifreq request{};
  std::strncpy(request.ifr_name, "wire", IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  check(::ioctl(tun, TUNSETIFF, &request), "making a device in " + space);
  // Jumbo frames: each packet costs this process a read and a write.
  const std::string commands =
      fmt::format("ip addr add {}/24 dev wire && ip link set wire mtu 9000 up && ip link set lo up", address);
  if (std::system(commands.c_str()) != 0) {
    throw std::runtime_error("setting up the device in " + space);
  }
  return tun;
}

struct Packet {
  std::vector<char> bytes;
  Clock::time_point arrival;
};

class Direction {
 public:
  Direction(int from, int to, Seconds latency, double bytes_per_second)
      : reader_([=, this] { read(from, latency, bytes_per_second); }), writer_([=, this] { write(to); }) {}

 private:
  void read(int from, Seconds latency, double bytes_per_second) {
    std::vector<char> buffer(kLargestPacket);
    Clock::time_point free = Clock::now();  // when those before are through
    for (;;) {
      const auto count = ::read(from, buffer.data(), buffer.size());
      if (count <= 0) {
        return;
      }
      free = std::max(free, Clock::now()) +
             std::chrono::duration_cast<Clock::duration>(Seconds(static_cast<double>(count) / bytes_per_second));
      const std::lock_guard lock(mutex_);
      if (queued_ + static_cast<std::size_t>(count) <= kQueue) {
        queued_ += static_cast<std::size_t>(count);
        packets_.push_back(
            {{buffer.data(), buffer.data() + count}, free + std::chrono::duration_cast<Clock::duration>(latency)});
        came_.notify_one();
      }
    }
  }
  void write(int to) {
    for (;;) {
      std::unique_lock lock(mutex_);
      came_.wait(lock, [this] { return !packets_.empty(); });
      const Packet packet = std::move(packets_.front());
      packets_.pop_front();
      queued_ -= packet.bytes.size();
      lock.unlock();
      std::this_thread::sleep_until(packet.arrival);
      static_cast<void>(!::write(to, packet.bytes.data(), packet.bytes.size()));
    }
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable came_;
  std::deque<Packet> packets_;
  std::size_t queued_ = 0;
  std::jthread reader_;
  std::jthread writer_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 7) {
    fmt::print(stderr, "usage: virtual_link NAMESPACE_A ADDRESS_A NAMESPACE_B ADDRESS_B SECONDS BYTES_PER_SECOND\n");
    return 2;
  }
  const int a = open_end(argv[1], argv[2]);
  const int b = open_end(argv[3], argv[4]);
  const Seconds latency(std::atof(argv[5]));
  const double bytes_per_second = std::atof(argv[6]);
  Direction there(a, b, latency, bytes_per_second);
  Direction back(b, a, latency, bytes_per_second);
  fmt::print("ready\n");
  std::fflush(stdout);
  ::pause();
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "virtual_link: {}\n", error.what());
  return 1;
}
