#include "parallel/comm/tcp/tcp_store_session.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <string_view>

#include "core/base/throw_if.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {
namespace {

using Request = TcpStoreRequest;
using Outcome = TcpSocket::Outcome;

constexpr std::size_t kPart = 32 << 10;             // bytes within which a client must make progress
constexpr std::size_t kReserve = 32 << 10;          // bytes that each client can always use
constexpr int kWithoutEvent = 20;                   // milliseconds between looks, if no descriptor is left for an event
constexpr std::chrono::milliseconds kClosing(200);  // time in which a client that has closed its connection is noticed

/// Thrown to end a session whose client is gone.
class ConnectionLost : public Error {
 public:
  ConnectionLost() : Error("the connection is lost") {}
};

std::string address_of_other_side(const TcpSocket& socket) {
  sockaddr_in other{};
  socklen_t size = sizeof(other);
  if (::getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&other), &size) != 0) {
    return "a disconnected client";
  }
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &other.sin_addr, text.data(), text.size());
  return to_string(TcpAddress{text.data(), ntohs(other.sin_port)});
}

/// Compares in constant time, so that a token cannot be guessed byte by byte.
bool is_same_secret(std::string_view one, std::string_view other) {
  unsigned difference = one.size() == other.size() ? 0 : 1;
  for (std::size_t i = 0; i < one.size(); ++i) {
    const char beside = other.empty() ? '\0' : other[i % other.size()];
    difference |= static_cast<unsigned char>(one[i] ^ beside);
  }
  return difference == 0;
}

bool stores_value(Request::Operation operation) {
  return operation == Request::kSet || operation == Request::kPush || operation == Request::kPushWhenLost;
}

}  // namespace

TcpStoreSession::TcpStoreSession(TcpStoreState& state, TcpSocket socket)
    : state_(state),
      socket_(std::move(socket)),
      client_(address_of_other_side(socket_)),
      budget_(std::make_shared<ByteBudget>("a client of this store", state.limits.bytes_per_client, kReserve,
                                           state.budget)) {}

std::string TcpStoreSession::serve() {
  std::string why;
  try {
    greet();
    for (;;) {
      follow(receive_command());
    }
  } catch (const ConnectionLost&) {
  } catch (const std::exception& refusal) {  // including std::bad_alloc
    try {
      why = refusal.what();
      if (!is_unknown()) {  // an unknown client may not use the protocol
        refuse(why);
      }
    } catch (const std::bad_alloc&) {  // it is disconnected without a word
    }
  }
  end();
  return why;
}

void TcpStoreSession::end() {
  try {
    for (auto& [key, text] : when_lost_) {
      if (!state_.is_stopping) {
        state_.contents.push(key, std::move(text));
      }
    }
  } catch (const std::bad_alloc&) {  // others notice at their deadlines
  }
  const std::lock_guard lock(state_.mutex);
  state_.admitted -= progress_ == Progress::admitted ? 1 : 0;
  state_.client_left.notify_all();
  progress_ = Progress::ended;
  socket_ = TcpSocket();
}

bool TcpStoreSession::dismiss() {
  const std::lock_guard lock(state_.mutex);
  char next = 0;
  const bool has_unread = ::recv(socket_.descriptor(), &next, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  if (progress_ != Progress::unknown || has_unread) {
    return false;
  }
  progress_ = Progress::ended;
  socket_.shut_down();
  return true;
}

bool TcpStoreSession::is_unknown() {
  const std::lock_guard lock(state_.mutex);
  return progress_ == Progress::unknown;
}

void TcpStoreSession::shut_down() {
  const std::lock_guard lock(state_.mutex);  // end() may close the socket
  socket_.shut_down();
}

void TcpStoreSession::greet() {
  const TcpDeadline deadline = deadline_after(state_.limits.handshake);
  const auto receive_next = [&](void* data, std::size_t bytes) {
    const Outcome outcome = socket_.receive(data, bytes, deadline);
    throw_if<TcpStoreRefusal>(outcome == Outcome::late, "it has not sent its token within {} s",
                              state_.limits.handshake.count());
    require_progress(outcome);
  };
  TcpStoreHello hello{};
  receive_next(&hello, sizeof(hello));
  throw_if<TcpStoreRefusal>(
      hello.magic != TcpStoreHello::kMagic,
      "expected the hello of a store's client, got other bytes; use the same version on all ranks");
  throw_if<TcpStoreRefusal>(hello.token_bytes > TcpStoreHello::kMaxBytes || hello.name_bytes > TcpStoreHello::kMaxBytes,
                            "expected a token and a name of at most {2} bytes each, got {0} and {1}", hello.token_bytes,
                            hello.name_bytes, TcpStoreHello::kMaxBytes);
  std::string texts(hello.token_bytes + hello.name_bytes, '\0');
  if (!texts.empty()) {
    receive_next(texts.data(), texts.size() - 1);
    socket_.wait_readable(deadline);
  }
  {
    // The last byte is read under the lock, so that dismiss() sees either that byte or the new progress.
    const std::lock_guard lock(state_.mutex);
    if (!texts.empty()) {
      receive_next(&texts.back(), 1);
    }
    if (progress_ == Progress::ended) {
      throw ConnectionLost();
    }
    progress_ = Progress::refused;  // until it is admitted; it uses the protocol, so it can be told why
  }
  admit(texts.substr(0, hello.token_bytes), texts.substr(hello.token_bytes));
  answer(0);
}

void TcpStoreSession::admit(const std::string& token, const std::string& name) {
  std::unique_lock lock(state_.mutex);
  throw_if<TcpStoreRefusal>(
      !is_same_secret(token, state_.address.token),
      "its token differs from rank 0's; give all ranks the same STAGECOACH_TOKEN, or the same ~/.stagecoach_token "
      "(docs/clusters.md)");
  const auto has_room = [&] { return state_.admitted < state_.limits.clients; };
  throw_if<TcpStoreRefusal>(!state_.client_left.wait_for(lock, kClosing, has_room),
                            "this store expects at most {} connections; check that no other run uses {}",
                            state_.admitted, to_string(state_.address.at));
  if (!name.empty()) {
    const auto taken = state_.names.find(name);
    if (taken != state_.names.end()) {
      throw TcpStoreRefusal(fmt::format(
          "two processes claim to be {}, this one and one from {}; check RANK, and that no other run uses {}", name,
          taken->second->text, to_string(state_.address.at)));
    }
    const auto address = std::make_shared<StoredText>(name.size(), client_.size(), budget_);
    address->text = client_;
    state_.names[name] = address;
    client_ += fmt::format(" ({})", name);
  }
  progress_ = Progress::admitted;
  ++state_.admitted;
}

TcpStoreSession::Command TcpStoreSession::receive_command() {
  pollfd query{socket_.descriptor(), POLLIN, 0};
  while (::poll(&query, 1, -1) < 0) {  // until the next request begins; a signal may come before that
  }
  Request head{};
  receive(&head, sizeof(head));
  throw_if<TcpStoreRefusal>(
      head.magic != Request::kMagic || head.operation < Request::kSet || head.operation > Request::kLeave,
      "expected a request, got other bytes");
  const std::size_t most = stores_value(head.operation) ? TcpStore::kMaxBytes : 0;
  throw_if<TcpStoreRefusal>(head.key_bytes > TcpStore::kMaxKeyBytes || head.value_bytes > most,
                            "expected a value of at most {2} bytes and a key of at most {3} bytes, got {0} and {1}",
                            head.value_bytes, head.key_bytes, most, TcpStore::kMaxKeyBytes);
  Command command{head.operation, head.number, std::string(head.key_bytes, '\0'), nullptr};
  receive(command.key.data(), command.key.size());
  if (stores_value(head.operation)) {
    const auto value = std::make_shared<StoredText>(head.key_bytes, head.value_bytes, budget_);
    receive(value->text.data(), value->text.size());
    command.value = value;
  }
  return command;
}

void TcpStoreSession::follow(const Command& command) {
  ++state_.requests;
  switch (command.operation) {
    case Request::kSet:
      return state_.contents.set(command.key, command.value);
    case Request::kPush:
      return state_.contents.push(command.key, command.value);
    case Request::kAdd:
      return add(command);
    case Request::kGet:
    case Request::kPop:
      return answer(0, wait_for(command)->text);
    case Request::kPushWhenLost:
      when_lost_.emplace_back(command.key, command.value);
      return;
    case Request::kLeave:
      when_lost_.clear();
      return;
  }
}

void TcpStoreSession::add(const Command& command) {
  std::int64_t sum = 0;
  try {
    sum = state_.contents.add(command.key, command.number, budget_);
  } catch (const TcpStoreRefusal& why) {
    return refuse(why.what());
  }
  answer(sum);
}

StoredTextPtr TcpStoreSession::wait_for(const Command& command) {
  const auto look = [&] {
    return command.operation == Request::kGet ? state_.contents.get(command.key) : state_.contents.pop(command.key);
  };
  if (StoredTextPtr found = look()) {
    return found;
  }
  if (!event_ || event_->descriptor() < 0) {
    event_.emplace();
  }
  const int until_next_look = event_->descriptor() < 0 ? kWithoutEvent : -1;
  const auto watch = state_.contents.watch(command.key, *event_);
  for (;;) {
    if (StoredTextPtr found = look()) {
      return found;
    }
    std::array<pollfd, 2> queries{{{socket_.descriptor(), POLLIN, 0}, {event_->descriptor(), POLLIN, 0}}};
    ::poll(queries.data(), queries.size(), until_next_look);
    if (queries[0].revents != 0) {
      throw TcpStoreRefusal(
          fmt::format("it requests '{}' while it is waiting for '{}'", receive_command().key, command.key));
    }
    event_->clear();
  }
}

void TcpStoreSession::answer(std::int64_t number, const std::string& value) const {
  const TcpStoreAnswer head{number, TcpStoreAnswer::kDone, static_cast<std::uint32_t>(value.size())};
  send(&head, sizeof(head));
  send(value.data(), value.size());
}

/// Sends a refusal if that is possible without waiting.
void TcpStoreSession::refuse(const std::string& why) const {
  std::string bytes;
  append_head(bytes, TcpStoreAnswer{0, TcpStoreAnswer::kRefused, static_cast<std::uint32_t>(why.size())});
  bytes += why;
  static_cast<void>(socket_.send(bytes.data(), bytes.size(), {}));
}

void TcpStoreSession::receive(void* data, std::size_t bytes) const {
  for (auto* next = static_cast<std::byte*>(data); bytes > 0;) {
    const std::size_t part = std::min(bytes, kPart);
    require_progress(socket_.receive(next, part, deadline_after(state_.limits.stall)));
    next += part;
    bytes -= part;
  }
}

void TcpStoreSession::send(const void* data, std::size_t bytes) const {
  for (const auto* next = static_cast<const std::byte*>(data); bytes > 0;) {
    const std::size_t part = std::min(bytes, kPart);
    if (!socket_.send(next, part, state_.limits.stall)) {
      require_progress(errno == EAGAIN ? Outcome::late : Outcome::lost);
    }
    next += part;
    bytes -= part;
  }
}

void TcpStoreSession::require_progress(Outcome outcome) const {
  if (outcome == Outcome::lost) {
    throw ConnectionLost();
  }
  throw_if<TcpStoreRefusal>(outcome == Outcome::late, "it has not finished a request or read an answer for {} s",
                            state_.limits.stall.count());
}

}  // namespace stagecoach
