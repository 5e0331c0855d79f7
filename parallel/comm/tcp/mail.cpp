#include "parallel/comm/tcp/mail.h"

#include <fmt/format.h>
#include <sched.h>

#include <utility>

#include "core/start_thread.h"
#include "parallel/comm/patience.h"

namespace stagecoach {
namespace {

constexpr const char* kFailed = "failed";  // the key of bad news
constexpr std::chrono::microseconds kRest(100);
constexpr std::chrono::milliseconds kYielding(1);  // what GPUs do is often over by then

std::string letter(const std::string& key, const std::string& text) { return key + '\n' + text; }

}  // namespace

Mail::Mail(const TcpStoreAddress& address, const std::string& name, int rank, int size,
           std::chrono::duration<double> timeout)
    : name_(name),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      out_(address, "rank 0's store", timeout, fmt::format("rank {} of '{}'", rank, name)),
      in_(address, "rank 0's store", timeout) {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) {
      out_.push_when_lost(queue_of(r), letter(kFailed, fmt::format("the process of rank {} has died", rank_)));
    }
  }
  listener_ = start_thread("the thread that listens to other ranks", [this] { listen(); });
}

Mail::~Mail() {
  ending_ = true;
  try {
    out_.leave();
  } catch (const CommError&) {  // the store is gone, and nobody will hear of it
  }
  in_.shut_down();
}

std::string Mail::queue_of(int rank) const { return fmt::format("mail/{}/{}", name_, rank); }

void Mail::listen() {
  try {
    for (;;) {
      const std::string letter = in_.pop(queue_of(rank_));
      const auto end = letter.find('\n');
      const std::string key = letter.substr(0, end);
      if (key == kFailed) {
        note_failure(letter.substr(end + 1));
        continue;
      }
      const std::lock_guard lock(mutex_);
      letters_[key].push_back(letter.substr(end + 1));
      came_.notify_all();
    }
  } catch (const std::exception& error) {  // also of memory that ran out
    if (!ending_) {
      note_failure(error.what());
    }
  }
}

void Mail::post(int to, const std::string& key, const std::string& text) {
  const std::lock_guard lock(posting_);
  out_.push(queue_of(to), letter(key, text));
}

std::optional<std::string> Mail::take(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = letters_.find(key);
  if (found == letters_.end()) {
    return std::nullopt;
  }
  std::string text = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    letters_.erase(found);
  }
  return text;
}

void Mail::fail(const std::string& why) {
  const std::string who = fmt::format("rank {} has failed ({})", rank_, why);
  note_failure(who);
  try {
    const std::lock_guard lock(posting_);
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) {
        out_.push(queue_of(r), letter(kFailed, who));
      }
    }
  } catch (const CommError&) {  // then the others lose the store too
  }
}

void Mail::note_failure(const std::string& who) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = who;
  }
  has_failed_ = true;
  came_.notify_all();
}

std::string Mail::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Mail::rest() {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, kRest);
}

MailWait::MailWait(Mail& mail, std::stop_token stop, Words doing)
    : mail_(mail), stop_(std::move(stop)), doing_(std::move(doing)), began_(std::chrono::steady_clock::now()) {}

void MailWait::look() {
  if (mail_.has_failed()) {
    throw stopped(doing_(), mail_.failure());
  }
  if (stop_.stop_requested()) {
    throw given_up(doing_());
  }
  const auto waited = std::chrono::steady_clock::now() - began_;
  if (waited > mail_.timeout()) {
    throw no_answer(doing_(), mail_.timeout());
  }
  if (waited < kYielding) {
    ::sched_yield();
  } else {
    mail_.rest();
  }
}

}  // namespace stagecoach
