#pragma once
/// @file
/// A small key-value store, through which processes find each other and exchange data other than tensors. One process
/// serves it; all processes, including that one, are clients. Only clients that know its token are admitted.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "parallel/comm/tcp/tcp_socket.h"

namespace stagecoach {

/// The address of a store, and the secret that admits a client (tcp_store_token.h).
struct TcpStoreAddress {
  // Not an aggregate: of a temporary one, g++ 12 says that its text may be used uninitialised.
  TcpStoreAddress() = default;
  TcpStoreAddress(TcpAddress where, std::string secret) : at(std::move(where)), token(std::move(secret)) {}

  TcpAddress at;
  std::string token;
};

/// Limits on a server's memory and waits, so that no client can exhaust the server or delay the others.
struct TcpStoreLimits {
  using Seconds = std::chrono::duration<double>;
  int clients = 64;     ///< maximum number of admitted clients at a time
  int handshakes = 16;  ///< connections not yet admitted; one more replaces the oldest
  std::size_t bytes_per_client = 8 << 20;
  std::size_t bytes_in_all = 32 << 20;
  Seconds handshake{5};  ///< time for a client to send its token
  Seconds stall{10};     ///< time for which a client may leave a request unfinished or an answer unread
};

/// A server that runs on its own thread until it is destroyed.
class TcpStoreServer {
 public:
  /// Called for each refused client, on threads of the server, one call at a time, with the reason; only for the first
  /// few if there are many.
  using Report = std::function<void(const std::string&)>;
  static void report_on_stderr(const std::string& line);

  /// Listens at `address` only; port 0 means any free port. Throws UsageError if the port is taken, or if the host is
  /// not this machine.
  explicit TcpStoreServer(const TcpStoreAddress& address, const TcpStoreLimits& limits = {},
                          Report report = report_on_stderr);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  /// Returns the address for clients, with the actual port.
  const TcpStoreAddress& address() const;
  /// Returns the number of requests that clients have made so far.
  std::int64_t requests() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

/// A client. One thread at a time may use it. A call that waits throws CommError after the client's timeout; any call
/// throws CommError if the connection is lost or the server refuses a request. All these errors name the server. After
/// a timeout or a lost connection the client cannot be used any more.
class TcpStore {
 public:
  using Seconds = std::chrono::duration<double>;
  static constexpr std::size_t kMaxBytes = 1 << 20;     ///< maximum size of a value
  static constexpr std::size_t kMaxKeyBytes = 1 << 10;  ///< maximum size of a key

  /// Connects, and retries until the timeout while no server is listening. `server` is the name of the other side in
  /// errors, such as "rank 0". A `name` that is not empty, such as "rank 1", can be used by only one client in the
  /// server's lifetime. Throws CommError, or UsageError if the server refuses the token or the name, or is full.
  TcpStore(const TcpStoreAddress& address, const std::string& server, Seconds timeout, const std::string& name = "");

  void set(const std::string& key, const std::string& value);
  /// Waits until `key` is set.
  std::string get(const std::string& key);
  /// Adds to the number under `key`, which starts at 0, and returns the sum. Throws CommError if the sum does not fit
  /// into 64 bits.
  std::int64_t add(const std::string& key, std::int64_t number);

  // A key can also have a queue, which is independent of its value.
  void push(const std::string& key, const std::string& value);
  /// Waits for the oldest text of a queue, removes it and returns it. Without a deadline, only `shut_down` or a lost
  /// connection ends the wait.
  std::string pop(const std::string& key, TcpDeadline deadline = TcpDeadline::max());
  TcpDeadline deadline() const;  ///< the deadline of a call that begins now
  /// Makes the server push `value` to the queue of `key` when it loses the connection, unless `leave` was called
  /// before.
  void push_when_lost(const std::string& key, const std::string& value);
  void leave();

  /// Ends the connection, and with it a call that waits. Any thread may call it.
  void shut_down() const { socket_.shut_down(); }

 private:
  struct Answer;
  TcpSocket join(const TcpStoreAddress& address, const std::string& name) const;
  void ask(std::int32_t operation, const std::string& key, const std::string& value = "", std::int64_t number = 0);
  Answer answer(const std::string& key, TcpDeadline deadline);
  [[noreturn]] void lost(const std::string& what) const;

  std::string server_;
  Seconds timeout_;
  TcpSocket socket_;
};

}  // namespace stagecoach
