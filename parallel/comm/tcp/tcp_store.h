#pragma once
/// @file
/// A small store of texts under keys, by which processes find each other and exchange what is not a tensor. One process
/// serves it; all processes, that one too, are its clients. Only those that know its token are let in.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "parallel/comm/tcp/tcp_socket.h"

namespace stagecoach {

/// Where a store is, and the secret that lets a client in (tcp_store_token.h).
struct TcpStoreAddress {
  TcpStoreAddress() = default;
  TcpStoreAddress(TcpAddress where, std::string secret) : at(std::move(where)), token(std::move(secret)) {}

  TcpAddress at;
  std::string token;
};

/// What a server keeps in memory, and how long it waits: nobody can exhaust it or hold up the others.
struct TcpStoreLimits {
  using Seconds = std::chrono::duration<double>;
  int clients = 64;     ///< that have been let in, at once
  int handshakes = 16;  ///< connections that have not been let in; one more takes the place of the oldest
  std::size_t bytes_per_client = 8 << 20;
  std::size_t bytes_in_all = 32 << 20;
  Seconds handshake{5};  ///< until a client has said its token
  Seconds stall{10};     ///< that a client may leave a request unfinished, or an answer untaken
};

/// Serves a store on a thread of its own until it is destroyed.
class TcpStoreServer {
 public:
  /// Is told, on the server's thread, of each client that is sent away, and why; of the first few, if there are many.
  using Report = std::function<void(const std::string&)>;
  static void report_on_stderr(const std::string& line);

  /// Listens at that address only; port 0 means one that is free. Throws UsageError when the port is taken, or the
  /// host is not this machine.
  explicit TcpStoreServer(const TcpStoreAddress& address, const TcpStoreLimits& limits = {},
                          Report report = report_on_stderr);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  /// For clients: the port is the one that is listened at.
  const TcpStoreAddress& address() const;
  /// That clients have made so far.
  std::int64_t requests() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

/// A client. One thread at a time uses it. A call that waits throws CommError after the client's timeout, and any call
/// when the connection is lost or the server refuses what was sent; all name the server. After the first two the client
/// cannot be used any more.
class TcpStore {
 public:
  using Seconds = std::chrono::duration<double>;
  static constexpr std::size_t kMaxBytes = 1 << 20;     ///< of a value
  static constexpr std::size_t kMaxKeyBytes = 1 << 10;  ///< of a key

  /// Connects, trying again until the timeout while nobody listens. `server` is what errors call the other side, such
  /// as "rank 0". Only one client in the server's life may have a certain `name`, such as "rank 1", unless it is empty.
  /// Throws CommError, and UsageError when the server refuses the token or the name, or has no room.
  TcpStore(const TcpStoreAddress& address, const std::string& server, Seconds timeout, const std::string& name = "");

  void set(const std::string& key, const std::string& value);
  /// Waits until `key` is set.
  std::string get(const std::string& key);
  /// Adds to a number, which begins at 0, and returns the sum. Throws CommError when that does not fit into 64 bits.
  std::int64_t add(const std::string& key, std::int64_t number);

  // A key can also have a queue; it is another thing than its value.
  void push(const std::string& key, const std::string& value);
  /// Waits for the oldest text of a queue, and takes it out. Without a deadline `shut_down` ends the wait.
  std::string pop(const std::string& key, TcpDeadline deadline = TcpDeadline::max());
  TcpDeadline deadline() const;  ///< of a call that begins now
  /// The server will push this when it loses the connection, unless `leave` was called before.
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
