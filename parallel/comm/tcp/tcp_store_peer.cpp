#include "parallel/comm/tcp/tcp_store_peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "parallel/comm/tcp/tcp_store_message.h"

namespace stagecoach {
namespace {

constexpr std::size_t kMaxUntaken = 16 << 10;  // bytes of unsent answers that permit another one
constexpr std::size_t kMaxCopied = 1 << 10;    // longer values are shared
constexpr std::size_t kMaxSent = 32 << 10;     // bytes per call, so that a large value does not delay others
constexpr std::size_t kMaxSpare = 64 << 10;    // capacity that an empty buffer keeps

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

iovec piece(std::string_view bytes) { return {const_cast<char*>(bytes.data()), bytes.size()}; }

}  // namespace

TcpStorePeer::TcpStorePeer(TcpSocket socket, const std::shared_ptr<ByteBudget>& budget)
    : socket_(std::move(socket)), address_(address_of_other_side(socket_)), charge_(budget) {}

void TcpStorePeer::receive(std::size_t limit) {
  std::array<char, 16 << 10> bytes;
  const ssize_t came = ::recv(socket_.descriptor(), bytes.data(), std::min(limit, bytes.size()), MSG_DONTWAIT);
  if (came > 0) {
    charge_.resize(unread_.size() + static_cast<std::size_t>(came));
    unread_.append(bytes.data(), static_cast<std::size_t>(came));
    last_progress_ = Clock::now();
  } else if (came == 0 || (errno != EAGAIN && errno != EINTR)) {
    has_ended_ = true;
  }
}

void TcpStorePeer::drop_front(std::size_t bytes) {
  unread_.erase(0, bytes);
  if (unread_.empty() && unread_.capacity() > kMaxSpare) {
    unread_ = {};
  }
  charge_.resize(unread_.size());
}

bool TcpStorePeer::can_answer() const { return tail_ == nullptr && outgoing_.size() < kMaxUntaken; }

void TcpStorePeer::append_answer(const TcpStoreAnswer& head, std::string_view text) {
  if (!has_answers()) {
    last_progress_ = Clock::now();
  }
  append_head(outgoing_, head);
  outgoing_ += text;
}

void TcpStorePeer::answer(std::int64_t number, StoredTextPtr value) {
  if (is_deaf_) {
    return;
  }
  const std::string_view text = value == nullptr ? std::string_view() : value->text();
  const TcpStoreAnswer head{number, TcpStoreAnswer::kDone, static_cast<std::uint32_t>(text.size())};
  if (text.size() <= kMaxCopied) {
    append_answer(head, text);
  } else {
    append_answer(head, "");
    tail_ = std::move(value);
  }
}

void TcpStorePeer::refuse(const std::string& why) {
  if (!is_deaf_ && tail_ == nullptr) {
    append_answer({0, TcpStoreAnswer::kRefused, static_cast<std::uint32_t>(why.size())}, why);
  }
}

void TcpStorePeer::flush() {
  if (!has_answers()) {
    return;
  }
  const std::size_t of_tail = std::max(sent_, outgoing_.size()) - outgoing_.size();
  const std::string_view front = std::string_view(outgoing_).substr(sent_ - of_tail);
  const std::string_view tail = tail_ == nullptr ? std::string_view() : std::string_view(tail_->text());
  std::array<iovec, 2> pieces{piece(front), piece(tail.substr(of_tail, kMaxSent))};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t sent = ::sendmsg(socket_.descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) {
    sent_ += static_cast<std::size_t>(sent);
    last_progress_ = Clock::now();
  } else if (errno != EAGAIN && errno != EINTR) {
    is_deaf_ = true;  // what it sent earlier must still be read
  }
  if (is_deaf_ || sent_ == outgoing_.size() + tail.size()) {
    outgoing_.clear();
    tail_.reset();
    sent_ = 0;
  }
}

std::optional<TcpStorePeer::Clock::time_point> TcpStorePeer::stalled_since() const {
  return unread_.empty() && !has_answers() ? std::nullopt : std::optional(last_progress_);
}

}  // namespace stagecoach
