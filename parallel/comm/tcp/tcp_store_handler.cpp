#include "parallel/comm/tcp/tcp_store_handler.h"

#include <fmt/format.h>

#include <string_view>

namespace stagecoach {
namespace {

using Request = TcpStoreRequest;
using State = TcpStoreClient::State;

// A turn is short, so that a client that keeps sending does not delay the others.
constexpr int kRequestsPerTurn = 16;
constexpr std::size_t kBytesPerTurn = 16 << 10;
constexpr std::size_t kReserve = 32 << 10;  // bytes that each client can always use

/// Compares in constant time, so that a token cannot be guessed byte by byte.
bool is_same_secret(std::string_view one, std::string_view other) {
  unsigned difference = one.size() == other.size() ? 0 : 1;
  for (std::size_t i = 0; i < one.size(); ++i) {
    const char beside = other.empty() ? '\0' : other[i % other.size()];
    difference |= static_cast<unsigned char>(one[i] ^ beside);
  }
  return difference == 0;
}

bool holds_command(std::string_view bytes) { return take_command(bytes).has_value(); }

}  // namespace

TcpStoreHandler::TcpStoreHandler(TcpStoreAddress address, const TcpStoreLimits& limits)
    : address_(std::move(address)),
      limits_(limits),
      budget_(std::make_shared<ByteBudget>("the store", limits.bytes_in_all)) {}

std::shared_ptr<ByteBudget> TcpStoreHandler::new_budget() const {
  return std::make_shared<ByteBudget>("a client of this store", limits_.bytes_per_client, kReserve, budget_);
}

void TcpStoreHandler::take_turn(TcpStoreClient& client, bool has_news) {
  if (client.state == State::unknown) {
    greet(client);
    return;
  }
  TcpStorePeer& peer = client.peer;
  if (has_news && !client.has_more) {
    peer.receive(kBytesPerTurn);
  }
  std::string_view unread = peer.unread();
  for (int i = 0; i < kRequestsPerTurn && peer.can_answer(); ++i) {
    const auto command = take_command(unread);
    if (!command) {
      break;
    }
    follow(client, *command);
  }
  client.has_more = holds_command(unread);
  peer.drop_front(peer.unread().size() - unread.size());
  client.is_gone = peer.has_ended() && !client.has_more;
}

void TcpStoreHandler::greet(TcpStoreClient& client) {
  TcpStorePeer& peer = client.peer;
  peer.receive(sizeof(TcpStoreHello) + 2 * TcpStoreHello::kMaxBytes - peer.unread().size());
  std::string_view unread = peer.unread();
  if (const auto greeting = take_greeting(unread)) {
    admit(client, *greeting);
    peer.drop_front(peer.unread().size() - unread.size());
    client.has_more = holds_command(peer.unread());
  }
  client.is_gone = peer.has_ended() && !client.has_more;
}

void TcpStoreHandler::admit(TcpStoreClient& client, const TcpStoreGreeting& greeting) {
  client.state = State::refused;  // until it is admitted; it uses the protocol, so it can be told why
  if (!is_same_secret(greeting.token, address_.token)) {
    throw TcpStoreRefusal(
        "its token differs from rank 0's; give all ranks the same STAGECOACH_TOKEN, or the same ~/.stagecoach_token "
        "(docs/clusters.md)");
  }
  if (admitted_ == limits_.clients) {
    throw TcpStoreRefusal(fmt::format("this store expects at most {} connections; check that no other run uses {}",
                                      admitted_, to_string(address_.at)));
  }
  if (!greeting.name.empty()) {
    const auto taken = names_.find(greeting.name);
    if (taken != names_.end()) {
      throw TcpStoreRefusal(fmt::format(
          "two processes claim to be {}, this one and one from {}; check RANK, and that no other run uses {}",
          greeting.name, taken->second->text(), to_string(address_.at)));
    }
    client.name = greeting.name;
    names_[client.name] = std::make_shared<StoredText>(client.name, client.peer.address(), client.budget);
  }
  client.state = State::admitted;
  ++admitted_;
  client.peer.answer(0);
}

void TcpStoreHandler::follow(TcpStoreClient& client, const TcpStoreCommand& command) {
  ++requests_;
  const std::string_view key = command.key;
  const auto stored = [&] { return std::make_shared<StoredText>(key, command.value, client.budget); };
  const bool asks =
      command.operation == Request::kAdd || command.operation == Request::kGet || command.operation == Request::kPop;
  if (asks && client.waits_for) {
    throw TcpStoreRefusal(fmt::format("it requests '{}' while it is waiting for '{}'", key, client.waits_for->second));
  }
  switch (command.operation) {
    case Request::kSet:
      contents_.set(key, stored());
      break;
    case Request::kAdd:
      try {
        client.peer.answer(contents_.add(key, command.number, client.budget));
      } catch (const TcpStoreRefusal& why) {
        client.peer.refuse(why.what());
      }
      break;
    case Request::kPush:
      contents_.push(key, stored());
      break;
    case Request::kGet:
      if (StoredTextPtr found = contents_.get(std::string(key))) {
        client.peer.answer(0, std::move(found));
        break;
      }
      [[fallthrough]];
    case Request::kPop:
      client.waits_for = {command.operation, std::string(key)};
      break;
    case Request::kPushWhenLost:
      client.when_lost.emplace_back(key, stored());
      break;
    case Request::kLeave:
      client.when_lost.clear();
      break;
  }
}

void TcpStoreHandler::say_goodbye(TcpStoreClient& client) {
  admitted_ -= client.state == State::admitted ? 1 : 0;
  for (auto& [key, value] : client.when_lost) {
    contents_.push(key, std::move(value));
  }
}

void TcpStoreHandler::answer_waiting(std::list<TcpStoreClient>& clients) {
  for (TcpStoreClient& client : clients) {
    if (!client.waits_for) {
      continue;
    }
    const auto& [operation, key] = *client.waits_for;
    if (StoredTextPtr value = operation == Request::kGet ? contents_.get(key) : contents_.pop(key)) {
      client.peer.answer(0, std::move(value));
      client.waits_for.reset();
    }
  }
}

}  // namespace stagecoach
