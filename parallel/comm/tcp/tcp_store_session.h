#pragma once
/// @file
/// One client of a store's server. Its session runs on a thread of its own: it admits the client, and answers one
/// request after the other. So a client that is slow, or that keeps sending, delays nobody else.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/wakeup.h"
#include "parallel/comm/tcp/tcp_socket.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "parallel/comm/tcp/tcp_store_contents.h"
#include "parallel/comm/tcp/tcp_store_message.h"

namespace stagecoach {

/// What the sessions of a server share.
struct TcpStoreState {
  const TcpStoreAddress address;
  const TcpStoreLimits limits;
  std::atomic<bool> is_stopping = false;  ///< the server ends all sessions; no client has died
  const std::shared_ptr<ByteBudget> budget = std::make_shared<ByteBudget>("the store", limits.bytes_in_all);
  TcpStoreContents contents = {};
  std::atomic<std::int64_t> requests = 0;  ///< of all clients so far
  std::mutex mutex = {};                   ///< guards what follows, and the progress of each session
  std::condition_variable client_left = {};
  int admitted = 0;                                 ///< clients that are connected now
  std::map<std::string, StoredTextPtr> names = {};  ///< maps a name to the address of its client
};

class TcpStoreSession {
 public:
  /// `socket` must be non-blocking.
  TcpStoreSession(TcpStoreState& state, TcpSocket socket);

  /// Serves the client until the connection ends. Returns why it was refused, or "".
  std::string serve();
  /// If the client is neither admitted nor refused yet, and everything that it has sent is read, ends the connection.
  /// Returns whether it did.
  bool dismiss();
  bool is_unknown();
  /// Ends the connection, and with it serve(). Any thread may call it.
  void shut_down();
  /// Returns text such as "10.0.0.7:41234 (rank 1)". Another thread may call it once serve() is over.
  const std::string& client() const { return client_; }

 private:
  enum class Progress { unknown, refused, admitted, ended };
  struct Command {
    TcpStoreRequest::Operation operation;
    std::int64_t number;
    std::string key;
    StoredTextPtr value;  // null for an operation that stores nothing
  };

  void greet();
  void admit(const std::string& token, const std::string& name);
  Command receive_command();
  void follow(const Command& command);
  void add(const Command& command);
  StoredTextPtr wait_for(const Command& command);
  void answer(std::int64_t number, const std::string& value = "") const;
  void refuse(const std::string& why) const;
  void end();
  /// Receives the next bytes of a request that has begun.
  void receive(void* data, std::size_t bytes) const;
  void send(const void* data, std::size_t bytes) const;
  void require_progress(TcpSocket::Outcome outcome) const;

  TcpStoreState& state_;
  TcpSocket socket_;
  std::optional<Wakeup> event_;  // set when what the client waits for may have come; made when it first waits
  std::string client_;
  std::shared_ptr<ByteBudget> budget_;
  Progress progress_ = Progress::unknown;
  std::vector<std::pair<std::string, StoredTextPtr>> when_lost_;  // keys and texts
};

}  // namespace stagecoach
