#pragma once
/// @file
/// A server's end of one connection: what has come and is not yet understood, and what waits to be sent. Nothing here
/// waits, and what is kept is bounded.

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

  /// `socket` does not block. What comes and is not yet understood is charged to `budget`.
  TcpStorePeer(TcpSocket socket, const std::shared_ptr<ByteBudget>& budget);

  int descriptor() const { return socket_.descriptor(); }
  /// "10.0.0.7:41234"
  const std::string& address() const { return address_; }

  /// Takes in at most `limit` bytes that have come. Throws TcpStoreRefusal beyond the budget.
  void receive(std::size_t limit);
  std::string_view unread() const { return unread_; }
  /// `bytes` of what is unread have been understood.
  void drop_front(std::size_t bytes);
  /// Whether nothing more will come.
  bool has_ended() const { return has_ended_; }

  /// Whether there is room for another answer: the other side reads what it asked for.
  bool can_answer() const;
  bool has_answers() const { return !outgoing_.empty(); }
  /// Appends an answer; a long value is shared, not copied. Only when one can be given.
  void answer(std::int64_t number, StoredTextPtr value = nullptr);
  /// Appends a refusal, unless a long answer is under way.
  void refuse(const std::string& why);
  /// Sends a part of the answers, as much as goes without waiting.
  void flush();

  /// Since when the other side has left a message unfinished or an answer untaken.
  std::optional<Clock::time_point> stalled_since() const;

 private:
  void append_answer(const TcpStoreAnswer& head, std::string_view text);

  TcpSocket socket_;
  std::string address_;
  ByteCharge charge_;
  std::string unread_ = {};
  std::string outgoing_ = {};
  StoredTextPtr tail_ = nullptr;  // goes out after `outgoing_`
  std::size_t sent_ = 0;          // of both
  bool has_ended_ = false;
  bool is_deaf_ = false;  // what is sent does not arrive any more
  Clock::time_point last_progress_ = Clock::now();
};

}  // namespace stagecoach
