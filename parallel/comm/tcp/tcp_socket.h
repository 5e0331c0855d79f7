#pragma once
/// @file
/// Connections between processes by TCP over IPv4. Every wait has a deadline.

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

namespace stagecoach {

/// An address that clients can connect to.
struct TcpAddress {
  std::string host;  ///< a name or a numeric address
  int port = 0;
};
/// Returns text such as "node7:29500".
std::string to_string(const TcpAddress& address);

/// Returns the IPv4 address at which other machines reach this one: the one that this machine's name resolves to, or
/// else the one of its first network interface; "127.0.0.1" on a machine without a network. With several networks it
/// may not be the one that you want.
std::string own_address();

using TcpDeadline = std::chrono::steady_clock::time_point;

/// Owns one end of a connection, or a listening socket: movable, not copyable.
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
  /// Gives the descriptor to the caller, who closes it.
  int release() { return std::exchange(descriptor_, -1); }

  /// Ends the connection for both sides, including a thread that waits on it. Any thread may call it.
  void shut_down() const;
  /// Returns false if the connection is lost or, with errno EAGAIN, if the other side leaves no room for all of `bytes`
  /// within `longest`.
  bool send(const void* data, std::size_t bytes,
            std::chrono::duration<double> longest = std::chrono::seconds(10)) const;
  enum class Outcome { done, lost, late };
  /// Waits for all of `bytes`.
  Outcome receive(void* data, std::size_t bytes, TcpDeadline deadline) const;

  // Without waiting: these return the number of bytes, 0 if the call would have to wait, or -1 if the connection is
  // lost.
  std::ptrdiff_t send_some(const void* data, std::size_t bytes) const;
  std::ptrdiff_t receive_some(void* data, std::size_t bytes) const;

 private:
  int descriptor_;
};

/// Listens only at `address`; port 0 means any free port. Throws UsageError if the port is taken, or if the host is not
/// this machine.
TcpSocket listen_at(const TcpAddress& address);

/// Returns this end's address.
TcpAddress local_address(const TcpSocket& socket);
/// Returns the other end's address, as far as it is known.
TcpAddress remote_address(const TcpSocket& socket);
/// Makes short messages leave at once.
void set_no_delay(const TcpSocket& socket);

/// Connects, and retries while no server is listening. Throws CommError at the deadline, which says to check `whom`,
/// and UsageError if the host has no address.
TcpSocket connect_to(const TcpAddress& address, TcpDeadline deadline, const std::string& whom = "rank 0");

}  // namespace stagecoach
