#include "parallel/comm/tcp/control_channel.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "core/base/start_thread.h"

namespace stagecoach {
namespace {

constexpr const char* kFailed = "failed";  // the key of failure reports
constexpr std::chrono::microseconds kBackOff(100);
constexpr std::chrono::milliseconds kYielding(1);  // GPU work has often ended by then

std::string message(const std::string& key, const std::string& text) { return key + '\n' + text; }

}  // namespace

ControlChannel::ControlChannel(const TcpStoreAddress& address, const std::string& name, int rank, int size,
                               std::chrono::duration<double> timeout)
    : name_(name),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      out_(address, "rank 0's store", timeout, fmt::format("rank {} of '{}'", rank, name)),
      in_(address, "rank 0's store", timeout) {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) {
      out_.push_when_lost(queue_of(r), message(kFailed, fmt::format("the process of rank {} has died", rank_)));
    }
  }
  listener_ = start_thread("the control channel's thread", [this] { listen(); });
}

ControlChannel::~ControlChannel() {
  ending_ = true;
  try {
    out_.leave();
  } catch (const CommError&) {  // the store is gone, so no rank can be told
  }
  in_.shut_down();
}

std::string ControlChannel::queue_of(int rank) const { return fmt::format("control/{}/{}", name_, rank); }

void ControlChannel::listen() {
  try {
    for (;;) {
      const std::string message = in_.pop(queue_of(rank_));
      const auto end = message.find('\n');
      const std::string key = message.substr(0, end);
      if (key == kFailed) {
        note_failure(message.substr(end + 1));
        continue;
      }
      const std::lock_guard lock(mutex_);
      messages_[key].push_back(message.substr(end + 1));
      came_.notify_all();
    }
  } catch (const std::exception& error) {  // including std::bad_alloc
    if (!ending_) {
      note_failure(error.what());
    }
  }
}

void ControlChannel::post(int to, const std::string& key, const std::string& text) {
  const std::lock_guard lock(posting_);
  out_.push(queue_of(to), message(key, text));
}

std::optional<std::string> ControlChannel::take(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = messages_.find(key);
  if (found == messages_.end()) {
    return std::nullopt;
  }
  std::string text = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    messages_.erase(found);
  }
  return text;
}

void ControlChannel::fail(const std::string& why) {
  const std::string who = fmt::format("rank {} has failed ({})", rank_, why);
  note_failure(who);
  try {
    const std::lock_guard lock(posting_);
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) {
        out_.push(queue_of(r), message(kFailed, who));
      }
    }
  } catch (const CommError&) {  // the other ranks then lose the store too
  }
}

void ControlChannel::note_failure(const std::string& who) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = who;
  }
  has_failed_ = true;
  came_.notify_all();
}

std::string ControlChannel::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ControlChannel::back_off() {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, kBackOff);
}

ControlWait::ControlWait(ControlChannel& control, std::stop_token stop, ErrorContext context,
                         const std::atomic<SteadyTime>* renewed)
    : control_(control), stop_(std::move(stop)), context_(std::move(context)), renewed_(renewed) {}

void ControlWait::poll() {
  if (control_.has_failed()) {
    throw stopped(context_(), control_.failure());
  }
  if (stop_.stop_requested()) {
    throw aborted(context_());
  }
  const auto now = time_.look();
  const SteadyTime since = renewed_ == nullptr ? time_.began() : std::max(time_.began(), renewed_->load());
  if (now > deadline_after(control_.timeout(), since)) {
    throw no_answer(context_(), control_.timeout());
  }
  if (now - time_.began() < kYielding) {
    ::sched_yield();
  } else {
    control_.back_off();
  }
}

}  // namespace stagecoach
