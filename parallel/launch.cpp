#include "parallel/launch.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <cmath>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "parallel/comm/mpi.h"
#include "parallel/comm/thread_communicator.h"
#include "parallel/rank_failure.h"

namespace stagecoach {
namespace {

/// The cores that this process may use.
std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

/// A hint: where it is refused the rank runs all the same.
void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  static_cast<void>(::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set));
}

/// The error of the rank that failed first; those of the others follow from it.
class FirstFailure {
 public:
  void note(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (first_ == nullptr) {
      first_ = std::move(failure);
    }
  }
  void rethrow() const {
    if (first_ != nullptr) {
      std::rethrow_exception(first_);
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

std::vector<int> all_of(const World& world) {
  std::vector<int> members(static_cast<std::size_t>(world.ranks));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

void launch_threads(const World& world, const std::function<void(Rank&)>& body) {
  const std::vector<int> members = all_of(world);
  const std::vector<int> cores = usable_cores();
  const bool enough = cores.size() >= members.size() * static_cast<std::size_t>(world.threads);
  const auto waits = enough && world.ranks > 1 ? ThreadWorld::Waits::polling : ThreadWorld::Waits::sleeping;
  const auto shared = std::make_shared<ThreadWorld>(world.ranks, std::chrono::duration<double>(world.timeout));
  const auto start = start_wall_time();
  FirstFailure failure;

  const auto run_rank = [&](int r) {
    if (enough && world.threads == 1) {
      pin_to(cores[static_cast<std::size_t>(r)]);
    }
    const auto recorder = std::make_shared<FlightRecorder>();
    try {
      const Device device = device_of(world, r);
      require_device(device);
      ThreadCommunicator comm(
          shared, {"world", r, members, device, make_clock(world.clock, device, world.link, start), recorder}, waits);
      Rank rank{r, world.ranks, device, comm};
      body(rank);
    } catch (...) {
      const std::exception_ptr mine = with_rank(r);
      failure.note(mine);  // before the others hear of it
      shared->fail(fmt::format("rank {} has failed ({})", r, words_of(mine)));
      if (is_error(mine)) {
        leave_flight_record(*recorder, world.flight_folder, r);
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (const int r : members) {
      threads.emplace_back(run_rank, r);
    }
  }
  failure.rethrow();
}

}  // namespace

Device device_of(const World& world, int rank) {
  return world.device == DeviceType::cpu ? Device{DeviceType::cpu, rank}
                                         : Device{DeviceType::cuda, rank % world.gpus, rank / world.gpus};
}

std::unique_ptr<Communicator> alone(Device device, ClockKind clock) {
  const World world;
  return std::make_unique<ThreadCommunicator>(
      std::make_shared<ThreadWorld>(1, std::chrono::duration<double>(world.timeout)),
      Group{"world",
            0,
            {0},
            device,
            make_clock(clock, device, world.link, start_wall_time()),
            std::make_shared<FlightRecorder>()},
      ThreadWorld::Waits::sleeping);
}

void launch(const World& world, const std::function<void(Rank&)>& body) {
  if (world.ranks < 1 || world.ranks > kMaxDevices) {
    throw UsageError(fmt::format("{} ranks: at least 1 and at most {} can run", world.ranks, kMaxDevices));
  }
  if (!std::isfinite(world.timeout) || world.timeout <= 0) {
    throw UsageError(fmt::format("a timeout of {} s: it must be more than 0", world.timeout));
  }
  if (world.transport == Transport::mpi) {
    mpi::run_rank(world, body);
  } else {
    launch_threads(world, body);
  }
}

void agree_on(const World& world, Tensor& values) {
  if (world.transport == Transport::mpi) {
    mpi::agree_on(world, values);
  }
}

}  // namespace stagecoach
