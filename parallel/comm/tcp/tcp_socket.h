#pragma once
/// @file
/// Connections between processes, by TCP over IPv4. Nothing waits without a deadline.

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

namespace stagecoach {

/// A place that others can connect to.
struct TcpAddress {
  std::string host;  ///< a name or a number
  int port = 0;
};
/// "node7:29500"
std::string to_string(const TcpAddress& address);

using TcpDeadline = std::chrono::steady_clock::time_point;

/// Owns one end of a connection, or what listens for them: moved, never copied, closed once.
class TcpSocket {
 public:
  explicit TcpSocket(int descriptor = -1) : descriptor_(descriptor) {}
  ~TcpSocket();
  TcpSocket(TcpSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int descriptor() const { return descriptor_; }

  /// Ends the connection for both sides, also for a thread that waits for it. Any thread may call it.
  void shut_down() const;
  /// False when the connection is lost, or the other side takes nothing for 10 s.
  bool send(const void* data, std::size_t bytes) const;
  enum class Outcome { done, lost, late };
  /// Waits for all of `bytes`.
  Outcome receive(void* data, std::size_t bytes, TcpDeadline deadline) const;

 private:
  int descriptor_;
};

/// Listens at `address` and at no other of this machine, port 0 being one that is free. Throws UsageError when the port
/// is taken, and for a host that is not this machine.
TcpSocket listen_at(const TcpAddress& address);
int port_of(const TcpSocket& listening);

/// Connects, again and again while nobody listens. Throws CommError at the deadline, and UsageError for a host that has
/// no address.
TcpSocket connect_to(const TcpAddress& address, TcpDeadline deadline);

}  // namespace stagecoach
