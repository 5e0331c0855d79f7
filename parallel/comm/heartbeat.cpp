#include "parallel/comm/heartbeat.h"

#include <algorithm>
#include <exception>

#include "core/base/system.h"
#include "parallel/comm/communicator_controls.h"

namespace stagecoach {
namespace {

constexpr int kTag = 0;
constexpr double kAlive = 1;
constexpr double kEnds = 0;  // the last sign of a rank

// A wait ends at most this long after its timeout, because a sign is noticed so much later than it was sent.
constexpr double kLongestPeriod = 0.5;  // seconds

}  // namespace

Heartbeat::Heartbeat(CommThread& thread, Communicator& comm, double timeout, Beats beats, Seconds longest_call)
    : comm_(comm),
      period_(std::min(timeout / 8, kLongestPeriod)),
      beats_(beats),
      longest_call_(longest_call),
      processor_time_(system::processor_time_of_this_thread()),
      beating_(thread.submit(
          "keep-alive", [this](Communicator& own) { beat(own); }, nullptr)) {}

Heartbeat::~Heartbeat() {
  change(State::stopped);
  try {
    beating_.join();
  } catch (const std::exception&) {  // end() has thrown it, or an error is under way already
  }
}

void Heartbeat::change(State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  changed_.notify_all();
}

void Heartbeat::end() {
  change(State::ending);
  beating_.join();
}

void Heartbeat::tell_others(Communicator& own, double sign) {
  for (int rank = 0; rank < own.size(); ++rank) {
    if (rank != own.rank()) {
      own.send_number(sign, rank, kTag);
    }
  }
}

void Heartbeat::listen(Communicator& own, Listen how) {
  for (int rank = 0; rank < own.size(); ++rank) {
    while (rank != own.rank() && !ended_.contains(rank)) {
      const std::optional<double> sign =
          how == Listen::to_the_end ? own.receive_number(rank, kTag) : own.try_receive_number(rank, kTag);
      if (!sign) {
        break;
      }
      heard_.insert(rank);
      if (*sign == kEnds) {
        ended_.insert(rank);
      }
      const int awaited = awaited_;
      const bool is_everybody = static_cast<int>(heard_.size()) == own.size() - 1;
      if (rank == awaited || (awaited == kEverybody && is_everybody)) {
        comm_.controls().renew_waits();
        heard_ = ended_;  // nobody waits for those any more
      }
    }
  }
}

bool Heartbeat::is_alive() {
  switch (beats_) {
    case Beats::always:
      return true;
    case Beats::while_used:
      return awaited_ != kNobody || is_used_.exchange(false);
    case Beats::while_running:
      return is_running();
  }
  return false;
}

bool Heartbeat::is_running() {
  // Where the system does not tell, no more than `longest_call_` is allowed for everything.
  const std::int64_t ran_for = processor_time_ ? processor_time_() : 0;
  const auto now = std::chrono::steady_clock::now();
  if (ran_for != ran_for_) {
    ran_for_ = ran_for;
    last_ran_ = now;
  }
  return now - last_ran_ < longest_call_;
}

void Heartbeat::beat(Communicator& own) {
  own.controls().stop_recording();  // signs of life would push the rank's messages out of the record
  std::unique_lock lock(mutex_);
  while (state_ == State::beating) {
    lock.unlock();
    if (is_alive()) {
      tell_others(own, kAlive);
    }
    listen(own, Listen::now);
    lock.lock();
    const Waiting waiting(own.clock());
    changed_.wait_for(lock, period_, [this] { return state_ != State::beating; });
  }
  const bool ends_well = state_ == State::ending;
  lock.unlock();
  if (ends_well) {
    tell_others(own, kEnds);
    listen(own, Listen::to_the_end);  // nothing may be under way when the communicator is destroyed
  }
}

}  // namespace stagecoach
