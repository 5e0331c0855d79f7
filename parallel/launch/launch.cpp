#include "parallel/launch/launch.h"

#include <fmt/format.h>

#include <new>
#include <utility>
#include <vector>

#include "core/base/throw_if.h"
#include "core/cuda_backend.h"
#include "parallel/comm/thread/thread_communicator.h"
#include "parallel/launch/run_ranks.h"
#include "parallel/launch/transports.h"

namespace stagecoach {
namespace {

void launch_threads(const World& world, const std::function<void(Rank&)>& body) {
  const auto mode = enough_cores(world) && world.ranks > 1 ? WaitMode::polling : WaitMode::sleeping;
  std::vector<Device> devices;
  for (int r = 0; r < world.ranks; ++r) {
    devices.push_back(device_of(world, r));
  }
  const auto shared = std::make_shared<ThreadWorld>(devices, std::chrono::duration<double>(world.timeout));
  const auto start = std::chrono::steady_clock::now();
  const auto run_rank = [&](int r, const std::shared_ptr<FlightRecorder>& recorder) {
    const Device device = shared->device_of(r);
    require_device(device);
    auto clock = make_clock(world.clock, device, world.network, world.device_model, start);
    ThreadCommunicator comm(shared, world_group(world, r, device, std::move(clock), recorder), mode);
    Rank rank{r, world.ranks, device, comm};
    body(rank);
  };
  run_on_threads(world, run_rank, [&](int r, const std::string& why) {
    try {
      shared->fail(fmt::format("rank {} has failed ({})", r, why));
    } catch (const std::bad_alloc&) {
      shared->fail("out of memory");  // short enough to need no allocation
    }
  });
}

}  // namespace

Device device_of(const World& world, int rank) {
  if (world.device == DeviceType::cpu) {
    // cpu:0 is the host. On the modelled clock it is not rank 0's device, too: all ranks copy from and to the host
    // alike.
    return {DeviceType::cpu, world.clock == ClockKind::modelled ? (rank + 1) % kMaxDevices : rank};
  }
  if (world.device == DeviceType::meta) {
    return {DeviceType::meta, rank};
  }
  const int gpus = world.gpus > 0 ? world.gpus : cuda::gpu_count();
  return {DeviceType::cuda, rank % gpus, rank / gpus};
}

std::unique_ptr<Communicator> self_communicator(Device device, ClockKind clock, const DeviceModel& model) {
  const World world;
  return std::make_unique<ThreadCommunicator>(
      std::make_shared<ThreadWorld>(std::vector{device}, std::chrono::duration<double>(world.timeout)),
      world_group(world, 0, device, make_clock(clock, device, world.network, model),
                  std::make_shared<FlightRecorder>()),
      WaitMode::sleeping);
}

void launch(const World& world, const std::function<void(Rank&)>& body) {
  throw_if<UsageError>(world.ranks < 1 || world.ranks > kMaxDevices, "expected from 1 to {1} ranks, got {0}",
                       world.ranks, kMaxDevices);
  throw_if<UsageError>(!(world.timeout > 0 && world.timeout <= kLongestTimeout),
                       "expected a timeout of more than 0 s and at most {1:.0f} s, got {0} s", world.timeout,
                       kLongestTimeout);
  if (world.transport == Transport::mpi) {
    mpi::run_rank(world, body);
  } else if (world.transport == Transport::nccl) {
    nccl::run_ranks(world, body);
  } else if (world.transport == Transport::gloo) {
    gloo_ranks::run_rank(world, body);
  } else {
    launch_threads(world, body);
  }
}

void broadcast_from_rank_zero(const World& world, Tensor& values) {
  if (world.transport == Transport::mpi) {
    mpi::broadcast_from_rank_zero(world, values);
  } else if (world.transport == Transport::nccl) {
    nccl::broadcast_from_rank_zero(world, values);
  } else if (world.transport == Transport::gloo) {
    gloo_ranks::broadcast_from_rank_zero(world, values);
  }
}

}  // namespace stagecoach
