#pragma once
/// @file
/// What ranks that are threads of one process share: messages that wait for their receivers, meetings of a group, and
/// the news that a rank has failed.

#include <any>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/comm/patience.h"

namespace stagecoach {

class ThreadWorld {
 public:
  ThreadWorld(int ranks, std::chrono::duration<double> timeout)
      : timeout_(timeout), mailboxes_(static_cast<std::size_t>(ranks)) {}

  struct Message {
    Tensor tensor;
    Event ready;         // when the sender's device has made the tensor
    double arrival = 0;  // by the sender's clock and the link
    bool taken = false;
    double taken_at = 0;  // by the receiver's clock
  };
  /// Group, from, to (both by their numbers in the whole world), tag.
  using Address = std::tuple<std::string, int, int, int>;

  /// Leaves a message, which arrives at time `arrival`; the result tells when it was taken.
  std::shared_ptr<Message> leave(const Address& address, const Tensor& tensor, double arrival);
  /// Waits until `message` was taken; gives the time. `doing` describes the call in errors.
  double wait_taken(const Address& address, const Message& message, const Patience& patience,
                    const std::function<std::string()>& doing);
  bool is_taken(const Message& message);
  /// Waits, from time `now` on, for the next message, and takes the tensor out of it: the sender holds it no longer.
  Message take(const Address& address, double now, const Patience& patience, const std::function<std::string()>& doing);

  /// Each of `members` brings something; returns what all brought when the last one has come. `rank` is this one's
  /// place among them, `meeting` unique in the group.
  std::vector<std::any> meet(const std::string& meeting, int rank, const std::vector<int>& members, std::any mine,
                             const Patience& patience, const std::function<std::string()>& doing);

  /// Tells all ranks, also those that wait now, that `who` has failed. Only the first time counts. Takes no memory.
  void fail(std::string who);
  /// Lets the threads of rank `rank` that wait look again how they shall go on: after a request to stop, or to poll.
  void call(int rank);

 private:
  struct Meeting {
    std::vector<std::any> brought;
    int came = 0;
    int left = 0;
  };
  /// Rank `rank` waits until `done` holds. Throws CommError after the timeout, or when a rank has failed.
  template <class Done>
  void wait(int rank, std::unique_lock<std::mutex>& lock, const Done& done, const Patience& patience,
            const std::function<std::string()>& doing);
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
  std::vector<Mailbox> mailboxes_;  // a rank each: only those are woken for whom there is news
  std::map<Address, std::deque<std::shared_ptr<Message>>> messages_;
  std::map<std::string, Meeting> meetings_;
  std::string failure_;
};

}  // namespace stagecoach
