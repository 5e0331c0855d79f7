#pragma once
/// @file
/// How a store's server handles the messages of its clients: it admits clients, stores what they send, and answers.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/tcp/byte_budget.h"
#include "parallel/comm/tcp/tcp_socket.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "parallel/comm/tcp/tcp_store_contents.h"
#include "parallel/comm/tcp/tcp_store_message.h"
#include "parallel/comm/tcp/tcp_store_peer.h"

namespace stagecoach {

/// A connection to a store's server, and the state of its client.
struct TcpStoreClient {
  using Clock = TcpStorePeer::Clock;
  enum class State { unknown, refused, admitted };

  TcpStoreClient(TcpSocket socket, std::shared_ptr<ByteBudget> its_budget)
      : budget(std::move(its_budget)), peer(std::move(socket), budget) {}

  std::shared_ptr<ByteBudget> budget;
  TcpStorePeer peer;
  Clock::time_point came = Clock::now();
  State state = State::unknown;
  std::string name = {};
  std::optional<std::pair<TcpStoreRequest::Operation, std::string>> waits_for = {};  // get or pop, and the key
  std::vector<std::pair<std::string, StoredTextPtr>> when_lost = {};                 // key and value
  bool has_more = false;  // complete requests wait for the client's next turn
  bool is_gone = false;
};

/// Used by one thread only.
class TcpStoreHandler {
 public:
  TcpStoreHandler(TcpStoreAddress address, const TcpStoreLimits& limits);

  /// Returns a budget for one more client.
  std::shared_ptr<ByteBudget> new_budget() const;
  /// Receives and handles a part of what `client` has sent. Throws TcpStoreRefusal if the client must be disconnected.
  void take_turn(TcpStoreClient& client, bool has_news);
  /// Pushes the texts that `client`, which is gone, left with push_when_lost.
  void say_goodbye(TcpStoreClient& client);
  /// Answers the clients whose wait is over.
  void answer_waiting(std::list<TcpStoreClient>& clients);

  int admitted() const { return admitted_; }
  /// Returns the number of requests by admitted clients so far. Any thread may call it.
  std::int64_t requests() const { return requests_; }

 private:
  void greet(TcpStoreClient& client);
  void admit(TcpStoreClient& client, const TcpStoreGreeting& greeting);
  void follow(TcpStoreClient& client, const TcpStoreCommand& command);

  TcpStoreAddress address_;
  TcpStoreLimits limits_;
  std::shared_ptr<ByteBudget> budget_;
  TcpStoreContents contents_;
  std::map<std::string, StoredTextPtr, std::less<>> names_;  // maps a name to the address of its client
  int admitted_ = 0;                                         // clients that are connected now
  std::atomic<std::int64_t> requests_ = 0;
};

}  // namespace stagecoach
