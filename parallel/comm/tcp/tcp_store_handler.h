#pragma once
/// @file
/// What a store's server does with the messages of its clients: lets them in, keeps what they send, answers.

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

/// A connection to a store's server, and what is known of who is there.
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
  bool has_more = false;  // whole requests that its next turn will follow
  bool is_gone = false;
};

/// One thread uses it.
class TcpStoreHandler {
 public:
  TcpStoreHandler(TcpStoreAddress address, const TcpStoreLimits& limits);

  /// Memory for one more client.
  std::shared_ptr<ByteBudget> new_budget() const;
  /// Takes in and follows a little of what `client` has sent; `clients` holds it. Throws TcpStoreRefusal when it is to
  /// be sent away.
  void take_turn(TcpStoreClient& client, bool has_news);
  /// `client` is gone: pushes what it left for when it is lost.
  void say_goodbye(TcpStoreClient& client);
  /// Answers those clients whose wait is over.
  void answer_waiting(std::list<TcpStoreClient>& clients);

  int admitted() const { return admitted_; }
  /// Requests of admitted clients so far. Any thread may ask.
  std::int64_t requests() const { return requests_; }

 private:
  void greet(TcpStoreClient& client);
  void admit(TcpStoreClient& client, const TcpStoreGreeting& greeting);
  void follow(TcpStoreClient& client, const TcpStoreCommand& command);

  TcpStoreAddress address_;
  TcpStoreLimits limits_;
  std::shared_ptr<ByteBudget> budget_;
  TcpStoreContents contents_;
  std::map<std::string, StoredTextPtr, std::less<>> names_;  // and the address of who has taken it
  int admitted_ = 0;                                         // clients that are here now
  std::atomic<std::int64_t> requests_ = 0;
};

}  // namespace stagecoach
