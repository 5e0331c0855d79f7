#pragma once
/// @file
/// A server's end of one connection: received bytes that are not yet parsed, and answers to be sent. Nothing here
/// blocks, and memory is bounded.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/comm/tcp/byte_budget.h"
#include "parallel/comm/tcp/tcp_socket.h"
#include "parallel/comm/tcp/tcp_store_contents.h"
#include "parallel/comm/tcp/tcp_store_message.h"

namespace stagecoach {

class TcpStorePeer {
 public:
  using Clock = std::chrono::steady_clock;

  /// `socket` must be non-blocking. Received bytes that are not yet parsed are charged to `budget`.
  TcpStorePeer(TcpSocket socket, const std::shared_ptr<ByteBudget>& budget);

  int descriptor() const { return socket_.descriptor(); }
  /// Returns text such as "10.0.0.7:41234".
  const std::string& address() const { return address_; }

  /// Receives at most `limit` available bytes. Throws TcpStoreRefusal beyond the budget.
  void receive(std::size_t limit);
  std::string_view unread() const { return unread_; }
  /// Removes the first `bytes` of the unread bytes, which have been parsed.
  void drop_front(std::size_t bytes);
  /// Returns whether the connection will deliver nothing more.
  bool has_ended() const { return has_ended_; }

  /// Returns whether there is room for another answer, that is, whether the other side has read enough of the earlier
  /// ones.
  bool can_answer() const;
  bool has_answers() const { return !outgoing_.empty(); }
  /// Appends an answer; a long value is shared, not copied. Requires can_answer().
  void answer(std::int64_t number, StoredTextPtr value = nullptr);
  /// Appends a refusal, unless a long answer is under way.
  void refuse(const std::string& why);
  /// Sends as much of the answers as is possible without waiting.
  void flush();

  /// Returns since when the other side has left a message unfinished or an answer unread, if it has.
  std::optional<Clock::time_point> stalled_since() const;

 private:
  void append_answer(const TcpStoreAnswer& head, std::string_view text);

  TcpSocket socket_;
  std::string address_;
  ByteCharge charge_;
  std::string unread_ = {};
  std::string outgoing_ = {};
  StoredTextPtr tail_ = nullptr;  // sent after `outgoing_`
  std::size_t sent_ = 0;          // bytes of both
  bool has_ended_ = false;
  bool is_deaf_ = false;  // the other side no longer receives
  Clock::time_point last_progress_ = Clock::now();
};

}  // namespace stagecoach
