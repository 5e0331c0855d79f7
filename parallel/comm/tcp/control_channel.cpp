#include "parallel/comm/tcp/control_channel.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "core/base/start_thread.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {
namespace {

constexpr std::chrono::microseconds kBackOff(100);
constexpr std::chrono::seconds kFarewell(1);
constexpr std::chrono::milliseconds kYielding(1);  // GPU work has often ended by then

}  // namespace

ControlChannel::ControlChannel(const RankAddress& address, const std::string& name, int rank, int size,
                               std::chrono::duration<double> timeout)
    : address_(address),
      rank_(rank),
      timeout_(timeout),
      socket_(connect_to_rank(address, "rank 0", TcpHello(address.token, name, rank, size), deadline_after(timeout))) {
  listener_ = start_thread("the control channel's thread", [this] { listen(); });
}

ControlChannel::~ControlChannel() {
  ending_ = true;
  try {
    post(BootstrapHeader::kLeaving, "", "");
  } catch (const CommError&) {  // rank 0 is gone, so no rank can be told
  }
  // The bootstrap then closes the connection. To close it here, with messages unread, could undo what was sent.
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kFarewell, [this] { return has_ended_; });
  }
  socket_.shut_down();
}

std::string ControlChannel::lost() const {
  return fmt::format("the connection to rank 0 ({}) is lost; check whether that process has ended",
                     to_string(address_.at));
}

void ControlChannel::listen() {
  std::string why = lost();
  try {
    while (receive()) {
    }
  } catch (const std::exception& error) {  // including std::bad_alloc
    why = error.what();
  }
  if (!ending_) {
    note_failure(why);
  }
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

bool ControlChannel::receive() {
  BootstrapHeader header;
  const auto has_received = [this](void* data, std::size_t bytes) {
    return socket_.receive(data, bytes, TcpDeadline::max()) == TcpSocket::Outcome::done;
  };
  if (!has_received(&header, sizeof(header)) || !header.is_valid()) {
    return false;
  }
  std::string key(header.key_bytes, '\0');
  std::string text(header.text_bytes, '\0');
  if (!has_received(key.data(), key.size()) || !has_received(text.data(), text.size())) {
    return false;
  }
  if (key == kFailureKey) {
    note_failure(text);
    return true;
  }
  const std::lock_guard lock(mutex_);
  messages_[key].push_back(std::move(text));
  changed_.notify_all();
  return true;
}

void ControlChannel::post(int to, const std::string& key, const std::string& text) {
  STAGECOACH_CHECK(key.size() <= BootstrapHeader::kMaxKey && text.size() <= BootstrapHeader::kMaxText,
                   "control message: expected at most {} bytes, got {}", BootstrapHeader::kMaxText, text.size());
  const std::string message = bootstrap_message(to, key, text);
  const std::lock_guard lock(posting_);
  if (!socket_.send(message.data(), message.size())) {
    throw CommError(lost());
  }
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
    post(kToAll, kFailureKey, who);
  } catch (const Error&) {  // the other ranks then lose rank 0, too
  }
}

void ControlChannel::note_failure(const std::string& who) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = who;
  }
  has_failed_ = true;
  changed_.notify_all();
}

std::string ControlChannel::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ControlChannel::back_off() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kBackOff);
}

ControlWait::ControlWait(ControlChannel& control, std::stop_token stop, std::function<std::string()> context,
                         const std::atomic<SteadyTime>* renewed)
    : control_(control), stop_(std::move(stop)), context_(std::move(context)), renewed_(renewed) {}

void ControlWait::check() {
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
}

void ControlWait::poll() {
  check();
  if (std::chrono::steady_clock::now() - time_.began() < kYielding) {
    ::sched_yield();
  } else {
    control_.back_off();
  }
}

std::string ControlWait::take(const std::string& key) {
  auto text = control_.take(key);
  while (!text) {
    poll();
    text = control_.take(key);
  }
  return *text;
}

}  // namespace stagecoach
