#include "parallel/comm/tcp/tcp_store.h"

#include <fmt/format.h>

#include <thread>

#include "core/base/throw_if.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/tcp/tcp_store_message.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {
namespace {

using Request = TcpStoreRequest;
using Outcome = TcpSocket::Outcome;

constexpr std::chrono::milliseconds kPollInterval(20);

/// Receives one answer: its header and its text. A text longer than a value can be counts as a lost connection, because
/// the other side may not be a store.
Outcome receive_answer(const TcpSocket& socket, TcpDeadline deadline, TcpStoreAnswer& head, std::string& text) {
  Outcome outcome = socket.receive(&head, sizeof(head), deadline);
  if (outcome == Outcome::done) {
    if (head.value_bytes > TcpStore::kMaxBytes) {
      return Outcome::lost;
    }
    text.resize(head.value_bytes);
    outcome = socket.receive(text.data(), text.size(), deadline);
  }
  return outcome;
}

}  // namespace

struct TcpStore::Answer {
  std::int64_t number;
  std::string value;
};

TcpStore::TcpStore(const TcpStoreAddress& address, const std::string& server, Seconds timeout, const std::string& name)
    : server_(fmt::format("{} ({})", server, to_string(address.at))), timeout_(timeout), socket_(join(address, name)) {}

TcpSocket TcpStore::join(const TcpStoreAddress& address, const std::string& name) const {
  std::string hello;
  append_head(hello, TcpStoreHello{TcpStoreHello::kMagic, static_cast<std::uint32_t>(address.token.size()),
                                   static_cast<std::uint32_t>(name.size())});
  hello += address.token;
  hello += name;
  const TcpDeadline last = deadline();
  for (;;) {
    TcpSocket socket = connect_to(address.at, last);
    TcpStoreAnswer head{};
    std::string why;
    if (socket.send(hello.data(), hello.size()) && receive_answer(socket, last, head, why) == Outcome::done) {
      if (head.outcome == TcpStoreAnswer::kDone) {
        return socket;
      }
      throw UsageError(fmt::format("{} rejects this process: {}", server_, why));
    }
    // The server may have dropped this connection in favour of newer ones that are not admitted yet.
    throw_if<CommError>(
        std::chrono::steady_clock::now() + kPollInterval > last,
        "{}: no answer to the handshake within {} s; check that no other program is listening there, or "
        "raise `timeout`",
        server_, timeout_.count());
    std::this_thread::sleep_for(kPollInterval);
  }
}

TcpDeadline TcpStore::deadline() const { return deadline_after(timeout_); }

void TcpStore::lost(const std::string& what) const {
  TcpStoreAnswer head{};
  std::string why;
  throw_if<CommError>(receive_answer(socket_, TcpDeadline::min(), head, why) == Outcome::done &&
                          head.outcome == TcpStoreAnswer::kRefused,
                      "{}: {} has closed the connection: {}", what, server_, why);
  throw CommError(fmt::format("{}: the connection to {} is lost; check whether that process has ended", what, server_));
}

void TcpStore::ask(std::int32_t operation, const std::string& key, const std::string& value, std::int64_t number) {
  STAGECOACH_CHECK(key.size() <= kMaxKeyBytes && value.size() <= kMaxBytes,
                   "store: expected a value of at most {2} bytes and a key of at most {3} bytes, got {0} and {1}",
                   value.size(), key.size(), kMaxBytes, kMaxKeyBytes);
  std::string bytes;
  append_head(bytes, Request{static_cast<Request::Operation>(operation), static_cast<std::uint32_t>(key.size()),
                             static_cast<std::uint32_t>(value.size()), Request::kMagic, number});
  bytes += key;
  bytes += value;
  if (!socket_.send(bytes.data(), bytes.size())) {
    lost(fmt::format("sending '{}'", key));
  }
}

TcpStore::Answer TcpStore::answer(const std::string& key, TcpDeadline deadline) {
  const auto context = [&] { return fmt::format("waiting for '{}'", key); };
  TcpStoreAnswer head{};
  std::string text;
  switch (receive_answer(socket_, deadline, head, text)) {
    case Outcome::lost:
      lost(context());
    case Outcome::late:
      socket_.shut_down();  // a late answer would be taken for the answer to the next request
      throw CommError(
          fmt::format("{} from {}: no answer within {} s; check that all ranks are running, or raise `timeout`",
                      context(), server_, timeout_.count()));
    case Outcome::done:
      break;
  }
  if (head.outcome != TcpStoreAnswer::kDone) {
    throw CommError(fmt::format("{}: {} rejects the request: {}", context(), server_, text));
  }
  return {head.number, std::move(text)};
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
