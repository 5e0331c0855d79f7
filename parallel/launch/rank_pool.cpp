#include "parallel/launch/rank_pool.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/start_thread.h"
#include "core/base/throw_if.h"

namespace stagecoach {

RankPool::RankPool(World world) : world_(std::move(world)) {
  const bool is_mpi = world_.transport == Transport::mpi;
  throw_if<UsageError>(is_mpi || world_.transport == Transport::gloo,
                       "a pool of ranks needs threads: expected transport thread or nccl, got {}; use launch()",
                       is_mpi ? "mpi" : "gloo");
  thread_ = start_thread("the thread that starts the ranks", [this] {
    try {
      launch(world_, [this](Rank& rank) { serve(rank); });
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  });
  run([](Rank&) {});  // so that a world that cannot start fails here
}

RankPool::~RankPool() {
  const std::scoped_lock lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

void RankPool::run(const std::function<void(Rank& rank)>& body) {
  std::unique_lock lock(mutex_);
  body_ = &body;
  finished_ = 0;
  ++runs_;
  changed_.notify_all();
  // A world of no ranks has not finished: launch() throws.
  changed_.wait(lock, [this] { return (finished_ > 0 && finished_ == world_.ranks) || failure_ != nullptr; });
  if (failure_ != nullptr) {
    rethrow_failure();
  }
}

std::vector<Device> RankPool::devices() const {
  std::vector<Device> devices;
  for (int r = 0; r < ranks(); ++r) {
    devices.push_back(device_of(world_, r));
  }
  return devices;
}

double RankPool::busy_seconds() const { return worked_ / ranks(); }

std::map<std::pair<int, int>, double> RankPool::bytes_sent() {
  std::vector<std::map<int, double>> sent(static_cast<std::size_t>(ranks()));
  run([&](Rank& rank) { sent[static_cast<std::size_t>(rank.index)] = rank.comm.bytes_sent(); });
  std::map<std::pair<int, int>, double> links;
  for (int from = 0; from < ranks(); ++from) {
    for (const auto& [to, bytes] : sent[static_cast<std::size_t>(from)]) {
      links[{from, to}] = bytes;
    }
  }
  return links;
}

std::shared_ptr<Clock> RankPool::clock() {
  std::shared_ptr<Clock> clock;
  run([&](Rank& rank) {
    if (rank.index == 0) {
      clock = rank.comm.clock().another();
    }
  });
  return clock;
}

/// Throws what launch() threw, and later an Error with its text.
void RankPool::rethrow_failure() {
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    if (!std::exchange(is_reported_, true)) {
      throw;
    }
    throw Error(fmt::format("the ranks have ended after an earlier error ({}); start new ones", error.what()));
  }
}

/// Waits for work and does it until the pool ends.
void RankPool::serve(Rank& rank) {
  for (int done = 0;; ++done) {
    const std::function<void(Rank & rank)>* body = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return runs_ > done || ending_; });
      if (ending_) {
        return;
      }
      body = body_;
    }
    Clock& clock = rank.comm.clock();
    const double before = clock.now() - clock.waited();
    try {
      (*body)(rank);
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      ending_ = true;  // the ranks that have finished this run wait for no further one
      changed_.notify_all();
      throw;  // launch() ends the waits of the others
    }
    const double worked = clock.now() - clock.waited() - before;
    const std::scoped_lock lock(mutex_);
    worked_ += worked;
    ++finished_;
    changed_.notify_all();
  }
}

}  // namespace stagecoach
