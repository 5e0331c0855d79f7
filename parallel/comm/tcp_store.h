#pragma once
/// @file
/// A small store of texts under keys, by which processes find each other and tell each other what is no tensor. One
/// process serves it; all, that one too, are its clients.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "parallel/comm/tcp_socket.h"

namespace stagecoach {

/// Serves a store on a thread of its own until it is destroyed. All machines must have one byte order.
class TcpStoreServer {
 public:
  /// At `address`; port 0 is one that is free. Throws UsageError when the port is taken.
  explicit TcpStoreServer(const TcpAddress& address);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  int port() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

/// A client. One thread at a time uses it. A call that waits throws CommError after the client's timeout, and any call
/// when the connection is lost; both name the server, and the client cannot be used any more.
class TcpStore {
 public:
  using Seconds = std::chrono::duration<double>;
  static constexpr std::size_t kMostBytes = 1 << 20;  ///< of a key, and of a value

  /// Connects, trying again until the timeout while nobody listens. `server` is what errors call the other side, such
  /// as "rank 0". Throws CommError.
  TcpStore(const TcpAddress& address, const std::string& server, Seconds timeout);

  void set(const std::string& key, const std::string& value);
  /// Waits until `key` is set.
  std::string get(const std::string& key);
  /// Adds to a number, which begins at 0, and gives the sum.
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
  struct Answer {
    std::int64_t number;
    std::string value;
  };
  void ask(std::int32_t operation, const std::string& key, const std::string& value = "", std::int64_t number = 0);
  Answer answer(const std::string& key, TcpDeadline deadline);
  [[noreturn]] void lost(const std::string& what) const;

  std::string server_;
  Seconds timeout_;
  TcpSocket socket_;
};

}  // namespace stagecoach
