#pragma once
/// @file
/// Who may connect to a rank: only processes that know the run's token. Everyone else is a stranger. A stranger gets no
/// answer, a few seconds, and one of a few places, so that strangers neither delay the ranks nor fill their memory.

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/tcp/tcp_socket.h"

namespace stagecoach {

/// Where a rank listens, and the secret that admits a client (parallel/launch/run_token.h).
struct RankAddress {
  // Not an aggregate: of a temporary one, g++ 12 says that its text may be used uninitialised.
  RankAddress() = default;
  RankAddress(TcpAddress where, std::string secret) : at(std::move(where)), token(std::move(secret)) {}

  TcpAddress at;
  std::string token;
};

/// The first bytes that a client sends. All machines must have the same byte order.
struct TcpHello {
  static constexpr std::uint32_t kMagic = 0x57a6ec0c;
  static constexpr std::size_t kMaxToken = 256;

  TcpHello() = default;
  /// Throws UsageError if `secret` or `name` is too long.
  TcpHello(const std::string& secret, const std::string& name, int its_rank, int its_size);

  std::uint32_t magic = 0;
  std::int32_t rank = 0;  ///< of the client, in a group of `size` ranks
  std::int32_t size = 0;
  std::array<char, kMaxToken> token{};
  std::array<char, 64> group{};  ///< ends with a zero
};

/// A listening socket and the clients that have not sent their hello yet. It has no thread: its owner calls advance()
/// when one of the descriptors is ready.
class TcpAdmission {
 public:
  struct Limits {
    std::size_t strangers = 16;                 ///< one more replaces the oldest
    std::chrono::duration<double> patience{5};  ///< for a hello to arrive
  };
  /// Called for each client that is sent away, with the reason; only for the first few if there are many.
  using Report = std::function<void(const std::string&)>;
  static void report_on_stderr(const std::string& line);

  /// Listens only at `address`; port 0 means any free port. Throws UsageError if the port is taken, or if the host is
  /// not this machine.
  TcpAdmission(const RankAddress& address, const Limits& limits, Report report);

  /// Returns the address for clients, with the actual port.
  const RankAddress& address() const { return address_; }

  /// A client that knows the token. It waits for accept_client or refuse_client.
  struct Client {
    TcpSocket socket;
    TcpHello hello;
  };
  /// Appends the descriptors to wait for. Strangers also have a deadline: poll() for at most kPoll milliseconds.
  void watch(std::vector<pollfd>& queries) const;
  static constexpr int kPoll = 20;
  /// Returns the clients whose hello has arrived, and sends strangers away. Does not wait.
  std::vector<Client> advance();
  /// Reports that `client` was sent away.
  void report(const TcpSocket& client, const std::string& why);

 private:
  struct Stranger {
    TcpSocket socket;
    TcpDeadline deadline;
    TcpHello hello = {};
    std::size_t received = 0;
  };
  /// Returns whether there was one.
  bool accept_stranger();
  bool dismiss_oldest(const char* why);
  void read_hellos(std::vector<Client>& admitted);
  /// Returns why a stranger whose hello is complete is not admitted, or "".
  std::string objection(const TcpHello& hello) const;

  RankAddress address_;
  Limits limits_;
  Report report_;
  int reports_ = 0;
  TcpSocket listening_;
  std::deque<Stranger> strangers_;  // the oldest first
};

/// Tells a client that it is connected.
void accept_client(const TcpSocket& client);
/// Tells a client why it is not, if that is possible without waiting.
void refuse_client(const TcpSocket& client, const std::string& why);

/// Connects to the rank at `address`, which errors call `whom`, and retries while nothing is listening there. Throws
/// CommError at the deadline, and UsageError if the rank refuses this client or closes the connection, as it does with
/// strangers.
TcpSocket connect_to_rank(const RankAddress& address, const std::string& whom, const TcpHello& hello,
                          TcpDeadline deadline);

}  // namespace stagecoach
