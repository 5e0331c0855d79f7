#include "parallel/comm/mpi/mpi_world.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/base/on_exit.h"
#include "core/base/relax.h"
#include "core/base/start_thread.h"
#include "core/base/system.h"
#include "core/base/throw_if.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval(1);  // how often to check for other ranks' failures
// A link of 1 Gbit/s delivers 25 KB in this time, which the system buffers.
constexpr std::chrono::microseconds kBetweenMoves(200);
constexpr int kSpinsPerClockCheck = 16;  // reading the clock takes as long as a poll
constexpr std::chrono::milliseconds kDeadCheckInterval(20);
constexpr std::chrono::seconds kFarewell(1);

/// Yields the core, for longer as the wait lasts longer.
void back_off(std::chrono::duration<double> waited) {
  constexpr std::chrono::microseconds kYields(50);
  if (waited < kYields) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(waited / 8, std::chrono::microseconds(200)));
  }
}

}  // namespace

MpiWorld& MpiWorld::instance(std::chrono::duration<double> timeout) {
  static MpiWorld world(timeout);
  world.timeout_ = timeout;
  return world;
}

MpiWorld::MpiWorld(std::chrono::duration<double> timeout) : timeout_(timeout) {
  std::signal(SIGPIPE, SIG_IGN);  // Open MPI may write to dead processes; that must not end this one
  int provided = 0;
  guard("MPI_Init_thread", [&] { MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided); });
  throw_if<UsageError>(
      provided < MPI_THREAD_MULTIPLE,
      "transport mpi: this MPI does not support MPI_THREAD_MULTIPLE; use an MPI that does, such as Open MPI");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  guard("MPI_Comm_dup", [&] {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_dup(MPI_COMM_WORLD, &news_);
  });
  for (const MPI_Comm comm : {MPI_COMM_WORLD, comm_, news_}) {
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  }
  find_local_ranks();
  heard_.resize(kMaxReason);
  gone_.resize(static_cast<std::size_t>(size_));
  listen();
}

MpiWorld::~MpiWorld() {
  mover_ = {};
  if (failed()) {
    return;  // MPI_Finalize would wait for ranks that are gone; the launcher cleans up
  }
  try {
    guard("MPI_Finalize", [&] {
      MPI_Cancel(&listening_);
      MPI_Wait(&listening_, MPI_STATUS_IGNORE);
      MPI_Finalize();
    });
  } catch (const std::exception& error) {  // no caller can catch it
    std::fprintf(stderr, "rank %d: %s\n", rank_, error.what());
    std::_Exit(4);
  }
}

/// Finds the processes on this machine, whose ends can be detected.
void MpiWorld::find_local_ranks() {
  struct Card {
    std::array<char, 120> machine{};
    std::int64_t process = 0;
  };
  Card mine;
  const std::string name = system::process_space();
  std::memcpy(mine.machine.data(), name.data(), std::min(name.size(), mine.machine.size() - 1));
  mine.process = ::getpid();
  std::vector<Card> all(static_cast<std::size_t>(size_));
  guard("MPI_Allgather",
        [&] { MPI_Allgather(&mine, sizeof(Card), MPI_BYTE, all.data(), sizeof(Card), MPI_BYTE, comm_); });
  for (int r = 0; r < size_; ++r) {
    const Card& card = all[static_cast<std::size_t>(r)];
    if (r == rank_ || card.machine != mine.machine) {
      continue;
    }
    ++local_size_;
    local_rank_ += r < rank_ ? 1 : 0;
    const int process = system::watch_process(static_cast<int>(card.process));
    if (process >= 0) {
      watched_.push_back({r, process});
    }
  }
}

void MpiWorld::guard(const char* call, const std::function<void()>& body) const {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  const std::jthread watch = start_thread(fmt::format("the watchdog thread of {}", call), [&] {
    std::unique_lock lock(mutex);
    for (WaitTime time; !done;) {
      const auto now = time.look();
      const auto deadline = deadline_after(timeout_, time.began());
      if (now >= deadline) {
        std::fflush(stdout);
        fmt::print(stderr,
                   "rank {}: {}: no answer within {} s; check that all ranks are running, or raise the timeout\n",
                   rank_, call, timeout_.count());
        std::_Exit(4);
      }
      changed.wait_until(lock, std::min(deadline, now + WaitTime::kLongestNap));
    }
  });
  body();
  const std::lock_guard lock(mutex);
  done = true;
  changed.notify_one();
}

void MpiWorld::check(int code, const ErrorContext& context) {
  if (code == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CommError(fmt::format("{}: {}", context(), std::string(text.data(), static_cast<std::size_t>(length))));
}

bool MpiWorld::are_done(std::span<MPI_Request> requests) {
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        [] { return "testing for pending messages"; });
  return done != 0;
}

void MpiWorld::wait(std::span<MPI_Request> requests, const WaitPolicy& policy, const ErrorContext& context,
                    const std::function<void()>& meanwhile) {
  const auto test = [&] {
    if (meanwhile) {
      meanwhile();
    }
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), context);
    return done != 0;
  };
  if (test()) {
    return;
  }
  ++waiting_;
  const OnExit waits_no_more([this] { --waiting_; });
  WaitTime time;
  auto next_poll = time.began() + kPollInterval;
  auto backing_off_since = time.began();
  bool polls = policy.polls();
  for (int count = 1; !test(); ++count) {
    if (polls && count % kSpinsPerClockCheck != 0) {
      relax();
      continue;
    }
    const auto now = time.look();
    if (policy.stop.stop_requested()) {
      throw aborted(context());
    }
    if (now >= next_poll) {
      poll();
      next_poll = now + kPollInterval;
      if (has_failed_) {
        if (test()) {
          return;  // a completed wait succeeds even if a rank has failed since
        }
        throw stopped(context(), failure());
      }
      if (now > policy.deadline(time.began(), timeout_)) {
        throw no_answer(context(), timeout_);
      }
    }
    polls = policy.polls() && now - time.began() < kLongestPoll;
    if (polls) {
      backing_off_since = now;
    } else {
      back_off(now - backing_off_since);
    }
  }
}

std::shared_ptr<void> MpiWorld::keep_moving() {
  const std::lock_guard lock(moving_mutex_);
  if (!mover_.joinable()) {
    mover_ = start_thread("the MPI progress thread", [this](const std::stop_token& stop) { move_messages(stop); });
  }
  ++moving_;
  moving_changed_.notify_one();
  return {this, [](MpiWorld* world) {
            const std::lock_guard done(world->moving_mutex_);
            --world->moving_;
          }};
}

void MpiWorld::move_messages(const std::stop_token& stop) {
  std::unique_lock lock(moving_mutex_);
  // A wait that `stop` ends still returns whether there is something to move.
  while (moving_changed_.wait(lock, stop, [this] { return moving_ > 0; }) && !stop.stop_requested()) {
    lock.unlock();
    if (waiting_ == 0) {
      poll();  // any MPI call moves all messages
    }
    std::this_thread::sleep_for(kBetweenMoves);
    lock.lock();
  }
}

void MpiWorld::listen() { MPI_Irecv(heard_.data(), kMaxReason, MPI_CHAR, MPI_ANY_SOURCE, 0, news_, &listening_); }

void MpiWorld::poll() {
  const std::unique_lock lock(polling_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return;  // another thread polls
  }
  int heard = 0;
  MPI_Status status{};
  while (MPI_Test(&listening_, &heard, &status) == MPI_SUCCESS && heard != 0) {
    gone_[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
    note_failure(fmt::format("rank {} has failed ({})", status.MPI_SOURCE, heard_.data()));
    listen();
  }
  check_for_dead();
}

void MpiWorld::check_for_dead() {
  const auto now = SteadyClock::now();
  if (now - checked_for_dead_ < kDeadCheckInterval) {
    return;
  }
  checked_for_dead_ = now;
  for (const LocalRank& other : watched_) {
    if (!gone_[static_cast<std::size_t>(other.rank)] && system::has_ended(other.process)) {
      gone_[static_cast<std::size_t>(other.rank)] = true;
      note_failure(fmt::format("the process of rank {} has died", other.rank));
    }
  }
}

void MpiWorld::note_failure(const std::string& who) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = who;
  }
  has_failed_ = true;
}

std::string MpiWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void MpiWorld::fail(const std::string& why) {
  note_failure(fmt::format("rank {} has failed ({})", rank_, why));
  // Buffers and requests are not freed: a message may still be under way when this process ends.
  const auto* reason = new std::string(why.substr(0, kMaxReason - 1));
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(reason->c_str(), static_cast<int>(reason->size()) + 1, MPI_CHAR, r, 0, news_, &request);
      MPI_Request_free(&request);
    }
  }
  const auto are_all_gone = [this] {
    const std::lock_guard lock(polling_);
    return std::count(gone_.begin(), gone_.end(), true) == size_ - 1;
  };
  for (const auto end = SteadyClock::now() + kFarewell; !are_all_gone() && SteadyClock::now() < end;) {
    poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void MpiWorld::leak_until_exit(std::shared_ptr<void> memory) {
  const std::lock_guard lock(mutex_);
  leaked_.push_back(std::move(memory));
}

}  // namespace stagecoach
