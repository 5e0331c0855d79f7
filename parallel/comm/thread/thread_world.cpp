#include "parallel/comm/thread/thread_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/relax.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

namespace {

constexpr int kSpins = 1000;  // a few microseconds

/// Called without the lock, for which other ranks wait.
Event work_so_far(Device device) {
  Event event;
  event.record({device, Stream::kCompute});
  return event;
}

}  // namespace

void ThreadWorld::wake(int rank) {
  Mailbox& mailbox = mailboxes_[static_cast<std::size_t>(rank)];
  mailbox.news.fetch_add(1, std::memory_order_release);
  mailbox.changed.notify_all();
}

/// Polls for news for a few microseconds, with the lock released.
void ThreadWorld::poll(int rank, std::unique_lock<std::mutex>& lock) const {
  const std::atomic<std::uint64_t>& news = mailboxes_[static_cast<std::size_t>(rank)].news;
  const std::uint64_t before = news.load(std::memory_order_acquire);
  lock.unlock();
  for (int i = 0; i < kSpins && news.load(std::memory_order_acquire) == before; ++i) {
    relax();
  }
  lock.lock();
}

template <class Done>
void ThreadWorld::wait(int rank, std::unique_lock<std::mutex>& lock, const Done& done, const WaitPolicy& policy,
                       const ErrorContext& context) {
  const auto has_ended = [&] { return !failure_.empty() || policy.stop.stop_requested() || done(); };
  WaitTime time;
  const auto poll_until = std::min(policy.deadline(time.began(), timeout_), time.began() + kLongestPoll);
  while (!has_ended()) {  // the policy may change meanwhile
    const auto now = time.look();
    const auto deadline = policy.deadline(time.began(), timeout_);
    if (now >= deadline) {
      break;
    }
    if (policy.polls() && now < poll_until) {
      poll(rank, lock);
    } else {
      const auto nap_ends = std::min(deadline, now + WaitTime::kLongestNap);
      mailboxes_[static_cast<std::size_t>(rank)].changed.wait_until(lock, nap_ends);
    }
  }
  if (done()) {
    return;  // a completed wait succeeds even if a rank has failed since
  }
  if (!failure_.empty()) {
    throw stopped(context(), failure_);
  }
  if (policy.stop.stop_requested()) {
    throw aborted(context());
  }
  throw no_answer(context(), timeout_);
}

std::shared_ptr<ThreadWorld::Sent> ThreadWorld::send(const Address& address, const Tensor& tensor, double now,
                                                     const Link& link) {
  const Event ready = work_so_far(tensor.device());
  const std::lock_guard lock(mutex_);
  auto sent = messages_.send(address, tensor, ready, now, link);
  if (sent->completed) {
    wake(address.to);
  }
  return sent;
}

double ThreadWorld::wait_completed(int rank, const Sent& sent, const WaitPolicy& policy, const ErrorContext& context) {
  std::unique_lock lock(mutex_);
  wait(
      rank, lock, [&] { return sent.completed; }, policy, context);
  return sent.completed_at;
}

bool ThreadWorld::is_completed(const Sent& sent) {
  const std::lock_guard lock(mutex_);
  return sent.completed;
}

std::shared_ptr<ThreadWorld::Posted> ThreadWorld::post(const Address& address, const Tensor& buffer, double now,
                                                       const Link& link) {
  const Event buffer_free = buffer.defined() ? work_so_far(buffer.device()) : Event{};
  const std::lock_guard lock(mutex_);
  auto posted = messages_.post(address, buffer, buffer_free, now, link);
  if (posted->matched) {
    wake(address.from);
  }
  return posted;
}

void ThreadWorld::wait_matched(const Posted& posted, const WaitPolicy& policy, const ErrorContext& context) {
  std::unique_lock lock(mutex_);
  wait(
      posted.address.to, lock, [&] { return posted.matched; }, policy, context);
}

void ThreadWorld::cancel(const std::shared_ptr<Posted>& posted) noexcept {
  const std::lock_guard lock(mutex_);
  messages_.cancel(posted);
}

std::vector<std::any> ThreadWorld::rendezvous(const std::string& name, int rank, const std::vector<int>& members,
                                              std::any mine, const WaitPolicy& policy, const ErrorContext& context) {
  const int size = static_cast<int>(members.size());
  std::unique_lock lock(mutex_);
  Rendezvous& here = rendezvous_[name];
  here.values.resize(static_cast<std::size_t>(size));
  here.values[static_cast<std::size_t>(rank)] = std::move(mine);
  if (++here.arrived == size) {
    std::for_each(members.begin(), members.end(), [&](int member) { wake(member); });
  }
  wait(
      members[static_cast<std::size_t>(rank)], lock, [&] { return here.arrived == size; }, policy,
      [&] {
        std::string absent;
        for (int r = 0; r < size; ++r) {
          if (!here.values[static_cast<std::size_t>(r)].has_value()) {
            absent += fmt::format("{}{}", absent.empty() ? "" : ", ", members[static_cast<std::size_t>(r)]);
          }
        }
        return fmt::format("{} (still missing: rank {})", context(), absent);
      });
  std::vector<std::any> all = here.values;
  if (++here.departed == size) {
    rendezvous_.erase(name);
  }
  return all;
}

void ThreadWorld::fail(std::string who) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = std::move(who);
  }
  for (int rank = 0; rank < static_cast<int>(mailboxes_.size()); ++rank) {
    wake(rank);
  }
}

void ThreadWorld::call(int rank) {
  const std::lock_guard lock(mutex_);
  wake(rank);
}

}  // namespace stagecoach
