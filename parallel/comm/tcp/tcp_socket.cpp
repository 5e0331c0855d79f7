#include "parallel/comm/tcp/tcp_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "core/base/system.h"
#include "core/base/throw_if.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenAttempts(20);

std::string text_of(const sockaddr* address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text.data(), text.size());
  return text.data();
}

/// Returns the addresses of this machine's network interfaces, in order.
std::vector<std::string> addresses_of_networks() {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return found;
  }
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const bool is_usable = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_usable && one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET) {
      found.push_back(text_of(one->ifa_addr));
    }
  }
  ::freeifaddrs(list);
  return found;
}

/// Returns the IPv4 addresses of a host, in order. Returns none, and the reason in `error`, if there are none.
std::vector<sockaddr_in> addresses_of(const std::string& host, int& error) {
  std::vector<sockaddr_in> found;
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    return found;
  }
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    found.push_back(*reinterpret_cast<const sockaddr_in*>(one->ai_addr));
  }
  ::freeaddrinfo(list);
  return found;
}

sockaddr_in resolve(const TcpAddress& address) {
  int error = 0;
  const std::vector<sockaddr_in> found = addresses_of(address.host, error);
  throw_if<UsageError>(error != 0, "{}: this host has no known IPv4 address ({}); check MASTER_ADDR",
                       to_string(address), ::gai_strerror(error));
  sockaddr_in first = found.front();
  first.sin_port = htons(static_cast<std::uint16_t>(address.port));
  return first;
}

/// Returns the time until `deadline` in the form that poll expects; 0 if it has passed.
int milliseconds_until(TcpDeadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

/// Waits until the socket is ready. Returns false at the deadline.
bool wait_for(const TcpSocket& socket, short events, TcpDeadline deadline) {
  pollfd query{.fd = socket.descriptor(), .events = events, .revents = 0};
  static_cast<void>(::poll(&query, 1, milliseconds_until(deadline)));
  return query.revents != 0 || SteadyClock::now() < deadline;
}

/// Returns what getsockname or getpeername says.
template <class Call>
TcpAddress address_by(const Call& call, const TcpSocket& socket) {
  sockaddr_in found{};
  socklen_t size = sizeof(found);
  call(socket.descriptor(), reinterpret_cast<sockaddr*>(&found), &size);
  return {text_of(reinterpret_cast<const sockaddr*>(&found)), ntohs(found.sin_port)};
}

void set_option(const TcpSocket& socket, int level, int name) {
  const int on = 1;
  static_cast<void>(::setsockopt(socket.descriptor(), level, name, &on, sizeof(on)));
}

TcpSocket open_socket() {
  const int descriptor = system::open_tcp_socket();
  STAGECOACH_CHECK(descriptor >= 0, "cannot open a TCP socket: {}", std::strerror(errno));
  return TcpSocket(descriptor);
}

/// Makes one attempt to connect. Returns 0 or the error number.
int try_to_connect(const TcpSocket& socket, const sockaddr_in& to, TcpDeadline deadline) {
  if (::connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) {
    return 0;
  }
  if (errno != EINPROGRESS) {
    return errno;
  }
  pollfd query{.fd = socket.descriptor(), .events = POLLOUT, .revents = 0};
  if (::poll(&query, 1, milliseconds_until(deadline)) <= 0) {
    return ETIMEDOUT;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

std::string own_address() {
  const std::vector<std::string> usable = addresses_of_networks();
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  int error = 0;
  // On Debian a machine's name often resolves to 127.0.1.1, which other machines cannot use.
  for (const sockaddr_in& named : addresses_of(name.data(), error)) {
    const std::string text = text_of(reinterpret_cast<const sockaddr*>(&named));
    if (std::find(usable.begin(), usable.end(), text) != usable.end()) {
      return text;
    }
  }
  return usable.empty() ? "127.0.0.1" : usable.front();
}

std::string to_string(const TcpAddress& address) { return fmt::format("{}:{}", address.host, address.port); }

TcpSocket::~TcpSocket() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void TcpSocket::shut_down() const { ::shutdown(descriptor_, SHUT_RDWR); }

std::ptrdiff_t TcpSocket::send_some(const void* data, std::size_t bytes) const {
  const ssize_t sent = ::send(descriptor_, data, bytes, MSG_DONTWAIT | system::kNoSignal);
  return sent < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : sent;
}

std::ptrdiff_t TcpSocket::receive_some(void* data, std::size_t bytes) const {
  const ssize_t received = ::recv(descriptor_, data, bytes, MSG_DONTWAIT);
  if (received == 0 && bytes > 0) {
    return -1;
  }
  return received < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : received;
}

bool TcpSocket::send(const void* data, std::size_t bytes, std::chrono::duration<double> longest) const {
  const auto* next = static_cast<const std::byte*>(data);
  const TcpDeadline deadline = deadline_after(longest);
  while (bytes > 0) {
    const std::ptrdiff_t sent = send_some(next, bytes);
    if (sent < 0 || (sent == 0 && !wait_for(*this, POLLOUT, deadline))) {
      return false;
    }
    next += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

TcpSocket::Outcome TcpSocket::receive(void* data, std::size_t bytes, TcpDeadline deadline) const {
  auto* next = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const std::ptrdiff_t received = receive_some(next, bytes);
    if (received < 0) {
      return Outcome::lost;
    }
    if (received == 0 && !wait_for(*this, POLLIN, deadline)) {
      return Outcome::late;
    }
    next += received;
    bytes -= static_cast<std::size_t>(received);
  }
  return Outcome::done;
}

TcpSocket listen_at(const TcpAddress& address) {
  const sockaddr_in at = resolve(address);
  if (at.sin_addr.s_addr == htonl(INADDR_ANY)) {
    throw UsageError(
        fmt::format("{} means every address of this machine: expected a single address; set MASTER_ADDR={}",
                    address.host, own_address()));
  }
  TcpSocket socket = open_socket();
  set_option(socket, SOL_SOCKET, SO_REUSEADDR);  // connections of an earlier run may still be closing
  const bool listens = ::bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) == 0 &&
                       ::listen(socket.descriptor(), SOMAXCONN) == 0;
  if (!listens && errno == EADDRNOTAVAIL) {
    throw UsageError(
        fmt::format("{} is not an address of this machine: expected an address at which rank 0 can listen; set "
                    "MASTER_ADDR={}, or start rank 0 on that machine",
                    address.host, own_address()));
  }
  throw_if<UsageError>(!listens,
                       "cannot listen on port {}: {}; another run may be using it: choose another MASTER_PORT",
                       address.port, std::strerror(errno));
  return socket;
}

TcpAddress local_address(const TcpSocket& socket) { return address_by(::getsockname, socket); }

TcpAddress remote_address(const TcpSocket& socket) { return address_by(::getpeername, socket); }

void set_no_delay(const TcpSocket& socket) { set_option(socket, IPPROTO_TCP, TCP_NODELAY); }

TcpSocket connect_to(const TcpAddress& address, TcpDeadline deadline, const std::string& whom) {
  const auto began = SteadyClock::now();
  const sockaddr_in to = resolve(address);
  for (;;) {
    TcpSocket socket = open_socket();
    const int error = try_to_connect(socket, to, deadline);
    if (error == 0) {
      set_no_delay(socket);
      return socket;
    }
    throw_if<CommError>(SteadyClock::now() + kBetweenAttempts > deadline,
                        "{}: no answer within {:.3g} s ({}); check that {} is running there, or raise `timeout`",
                        to_string(address), std::chrono::duration<double>(deadline - began).count(),
                        std::strerror(error), whom);
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

}  // namespace stagecoach
