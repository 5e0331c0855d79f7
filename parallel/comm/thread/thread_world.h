#pragma once
/// @file
/// What ranks that are threads of one process share: messages, rendezvous of a group, and the
/// news that a rank has failed.

#include <any>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/thread/message_table.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {

class ThreadWorld {
 public:
  ThreadWorld(int ranks, std::chrono::duration<double> timeout)
      : timeout_(timeout), mailboxes_(static_cast<std::size_t>(ranks)) {}

  using Address = MessageTable::Address;
  using Sent = MessageTable::Sent;
  using Posted = MessageTable::Posted;
  using ErrorContext = std::function<std::string()>;

  /// Sends a message at time `now`, by the sender's clock; the result tells when it completed.
  std::shared_ptr<Sent> send(const Address& address, const Tensor& tensor, double now, const Link& link);
  /// Waits until `sent`, which rank `rank` sent, was taken; returns the time. `doing` describes the call in errors.
  double wait_completed(int rank, const Sent& sent, const WaitPolicy& policy, const ErrorContext& doing);
  bool is_completed(const Sent& sent);
  /// Posts a receive at time `now`, by the receiver's clock. A copy between GPUs goes to `room`, if that is defined.
  std::shared_ptr<Posted> post(const Address& address, const Tensor& room, double now, const Link& link);
  /// Waits for its message.
  void wait_matched(const Posted& posted, const WaitPolicy& policy, const ErrorContext& doing);
  /// Withdraws a receive unless its message has come. That is lost otherwise; none that follows is.
  void cancel(const std::shared_ptr<Posted>& posted) noexcept;

  /// Each of `members` brings something; returns what all brought when the last one has come. `rank` is this one's
  /// place among them, `meeting` unique in the group.
  std::vector<std::any> rendezvous(const std::string& name, int rank, const std::vector<int>& members, std::any mine,
                                   const WaitPolicy& policy, const ErrorContext& doing);

  /// Tells all ranks, also those that wait now, that `who` has failed. Only the first time counts. Takes no memory.
  void fail(std::string who);
  /// Lets the threads of rank `rank` that wait look again how to go on: after a request to stop, or to poll.
  void call(int rank);

 private:
  struct Rendezvous {
    std::vector<std::any> brought;
    int came = 0;
    int left = 0;
  };
  /// Rank `rank` waits until `done` holds. Throws CommError after the timeout, or when a rank has failed.
  template <class Done>
  void wait(int rank, std::unique_lock<std::mutex>& lock, const Done& done, const WaitPolicy& policy,
            const ErrorContext& doing);
  /// There is news for rank `rank`.
  void wake(int rank);
  void poll(int rank, std::unique_lock<std::mutex>& lock) const;

  /// How a rank learns that there is news for it.
  struct Mailbox {
    std::condition_variable changed;
    std::atomic<std::uint64_t> news = 0;
  };

  const std::chrono::duration<double> timeout_;
  std::mutex mutex_;                // guards what follows
  std::vector<Mailbox> mailboxes_;  // one per rank: only those are woken for whom there is news
  MessageTable messages_;
  std::map<std::string, Rendezvous> rendezvous_;
  std::string failure_;
};

}  // namespace stagecoach
