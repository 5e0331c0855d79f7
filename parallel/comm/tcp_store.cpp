#include "parallel/comm/tcp_store.h"

#include <fmt/format.h>

#include "parallel/comm/communicator.h"
#include "parallel/comm/patience.h"
#include "parallel/comm/tcp_store_message.h"

namespace stagecoach {

using Request = TcpStoreRequest;

TcpStore::TcpStore(const TcpAddress& address, const std::string& server, Seconds timeout)
    : server_(fmt::format("{} ({})", server, to_string(address))),
      timeout_(timeout),
      socket_(connect_to(address, deadline())) {}

TcpDeadline TcpStore::deadline() const { return deadline_after(timeout_); }

void TcpStore::lost(const std::string& what) const {
  throw CommError(fmt::format("{}: the connection to {} is lost; has that process ended?", what, server_));
}

void TcpStore::ask(std::int32_t operation, const std::string& key, const std::string& value, std::int64_t number) {
  STAGECOACH_CHECK(key.size() <= kMostBytes && value.size() <= kMostBytes,
                   "store: {} bytes under a key of {} bytes; at most {} can be", value.size(), key.size(), kMostBytes);
  const Request head{static_cast<Request::Operation>(operation), static_cast<std::uint32_t>(key.size()),
                     static_cast<std::uint32_t>(value.size()), Request::kMagic, number};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes += key;
  bytes += value;
  if (!socket_.send(bytes.data(), bytes.size())) {
    lost(fmt::format("telling of '{}'", key));
  }
}

TcpStore::Answer TcpStore::answer(const std::string& key, TcpDeadline deadline) {
  const auto receive = [&](void* data, std::size_t bytes) {
    const auto outcome = socket_.receive(data, bytes, deadline);
    if (outcome == TcpSocket::Outcome::lost) {
      lost(fmt::format("waiting for '{}'", key));
    }
    if (outcome == TcpSocket::Outcome::late) {
      socket_.shut_down();  // a late answer would be taken for that of the next question
      throw CommError(fmt::format("waiting for '{}' from {}: nothing within {} s (--timeout waits longer)", key,
                                  server_, timeout_.count()));
    }
  };
  TcpStoreAnswer head{};
  receive(&head, sizeof(head));
  Answer answer{head.number, std::string(head.value_bytes, '\0')};
  receive(answer.value.data(), answer.value.size());
  return answer;
}

void TcpStore::set(const std::string& key, const std::string& value) { ask(Request::kSet, key, value); }

std::string TcpStore::get(const std::string& key) {
  ask(Request::kGet, key);
  return answer(key, deadline()).value;
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t number) {
  ask(Request::kAdd, key, "", number);
  return answer(key, deadline()).number;
}

void TcpStore::push(const std::string& key, const std::string& value) { ask(Request::kPush, key, value); }

std::string TcpStore::pop(const std::string& key, TcpDeadline deadline) {
  ask(Request::kPop, key);
  return answer(key, deadline).value;
}

void TcpStore::push_when_lost(const std::string& key, const std::string& value) {
  ask(Request::kPushWhenLost, key, value);
}

void TcpStore::leave() { ask(Request::kLeave, "all"); }

}  // namespace stagecoach
