#pragma once
/// @file
/// The state shared by ranks that are threads of one process: messages, rendezvous of groups, and the failure of a
/// rank.

#include <any>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/thread/message_table.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {

class ThreadWorld {
 public:
  /// `devices` are those of the ranks.
  ThreadWorld(std::vector<Device> devices, std::chrono::duration<double> timeout)
      : timeout_(timeout), devices_(std::move(devices)), mailboxes_(devices_.size()) {}

  Device device_of(int rank) const { return devices_[static_cast<std::size_t>(rank)]; }

  using Address = MessageTable::Address;
  using Sent = MessageTable::Sent;
  using Posted = MessageTable::Posted;

  /// Sends a message at time `now`, by the sender's clock; the result records when it completes.
  std::shared_ptr<Sent> send(const Address& address, const Tensor& tensor, double now, const Link& link);
  /// Waits until `sent`, which rank `rank` sent, has been received, and returns the time. `context` describes the call
  /// in errors.
  double wait_completed(int rank, const Sent& sent, const WaitPolicy& policy, const ErrorContext& context);
  bool is_completed(const Sent& sent);
  /// Posts a receive at time `now`, by the receiver's clock. A copy between GPUs is written to `buffer`, if that is
  /// defined.
  std::shared_ptr<Posted> post(const Address& address, const Tensor& buffer, double now, const Link& link);
  /// Waits for the message of `posted`.
  void wait_matched(const Posted& posted, const WaitPolicy& policy, const ErrorContext& context);
  /// Withdraws a receive. A message that has already arrived for it is lost; later messages are not.
  void cancel(const std::shared_ptr<Posted>& posted) noexcept;

  /// Waits until all `members` have called it, and returns the values that they passed as `mine`, in member order.
  /// `rank` is this rank's index in `members`; `name` must be unique.
  std::vector<std::any> rendezvous(const std::string& name, int rank, const std::vector<int>& members, std::any mine,
                                   const WaitPolicy& policy, const ErrorContext& context);

  /// Tells all ranks, including those that are waiting, that `who` has failed. Only the first call has an effect.
  /// Allocates no memory.
  void fail(std::string who);
  /// Makes the waiting threads of rank `rank` check their wait policy again, after a request to stop or to poll.
  void call(int rank);

 private:
  struct Rendezvous {
    std::vector<std::any> values;
    int arrived = 0;
    int departed = 0;
  };
  /// Makes rank `rank` wait until `done` holds. Throws CommError after the timeout, or when a rank has failed.
  template <class Done>
  void wait(int rank, std::unique_lock<std::mutex>& lock, const Done& done, const WaitPolicy& policy,
            const ErrorContext& context);
  /// Signals that there is news for rank `rank`.
  void wake(int rank);
  void poll(int rank, std::unique_lock<std::mutex>& lock) const;

  /// How a rank learns that there is news for it.
  struct Mailbox {
    std::condition_variable changed;
    std::atomic<std::uint64_t> news = 0;
  };

  const std::chrono::duration<double> timeout_;
  const std::vector<Device> devices_;
  std::mutex mutex_;                // guards the members below
  std::vector<Mailbox> mailboxes_;  // one per rank, so that only ranks with news are woken
  MessageTable messages_;
  std::map<std::string, Rendezvous> rendezvous_;
  std::string failure_;
};

}  // namespace stagecoach
