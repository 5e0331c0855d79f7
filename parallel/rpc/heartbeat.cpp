#include "parallel/rpc/heartbeat.h"

#include <algorithm>

namespace stagecoach::rpc {
namespace {

constexpr int kTag = 0;
constexpr double kAlive = 1;
constexpr double kEnds = 0;  // the last sign of a rank

// A wait ends at most this long after its timeout, because a sign is noticed so much later than it was sent.
constexpr double kLongestPeriod = 0.5;  // seconds

}  // namespace

Heartbeat::Heartbeat(Communicator& comm, double timeout, Beats beats)
    : comm_(comm), period_(std::min(timeout / 8, kLongestPeriod)), beats_(beats), thread_(std::in_place, comm) {
  beating_ = thread_->submit("keep-alive", [this](Communicator& own) { beat(own); });
}

Heartbeat::~Heartbeat() { change(State::stopped); }  // then the thread's own destructor aborts its waits

void Heartbeat::change(State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  changed_.notify_all();
}

void Heartbeat::end() {
  change(State::ending);
  beating_->wait();
  beating_.reset();
  thread_.reset();
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
          how == Listen::to_the_last ? own.receive_number(rank, kTag) : own.try_receive_number(rank, kTag);
      if (!sign) {
        break;
      }
      if (rank == awaited_) {
        comm_.renew_waits();
      }
      if (*sign == kEnds) {
        ended_.insert(rank);
      }
    }
  }
}

void Heartbeat::beat(Communicator& own) {
  std::unique_lock lock(mutex_);
  while (state_ == State::beating) {
    lock.unlock();
    if (beats_ == Beats::always || awaited_ != kNobody || is_used_.exchange(false)) {
      tell_others(own, kAlive);
    }
    listen(own, Listen::to_what_came);
    lock.lock();
    const Waiting waiting(own.clock());
    changed_.wait_for(lock, period_, [this] { return state_ != State::beating; });
  }
  const bool ends_well = state_ == State::ending;
  lock.unlock();
  if (ends_well) {
    tell_others(own, kEnds);
    listen(own, Listen::to_the_last);  // nothing may be under way when the communicator is destroyed
  }
}

}  // namespace stagecoach::rpc
