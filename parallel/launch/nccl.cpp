#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/cuda_backend.h"
#include "parallel/comm/nccl/nccl_backend.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "parallel/comm/tcp/control_channel.h"
#include "parallel/launch/nccl_rules.h"
#include "parallel/launch/rendezvous.h"
#include "parallel/launch/run_ranks.h"
#include "parallel/launch/run_token.h"
#include "parallel/launch/transports.h"

namespace stagecoach::nccl {
namespace {

using Seconds = std::chrono::duration<double>;
using Recorder = std::shared_ptr<FlightRecorder>;

/// Returns the NCCL id of the world. Rank 0 receives the GPU name of each rank and, if all differ, sends the id to the
/// others.
std::string agree_on_id(ControlChannel& control, int rank, int size, const std::string& gpu) {
  ControlWait control_wait(control, {}, [=] { return fmt::format("rank {}: starting all ranks", rank); });
  if (rank > 0) {
    control.post(0, fmt::format("gpu/{}", rank), gpu);
    return control_wait.take("id");
  }
  std::vector<std::string> gpus{gpu};
  for (int r = 1; r < size; ++r) {
    gpus.push_back(control_wait.take(fmt::format("gpu/{}", r)));
  }
  require_gpu_each(gpus);
  const std::string id = new_nccl_id();
  control.post(ControlChannel::kToAll, "id", id);
  return id;
}

std::unique_ptr<PointToPointBackend> connect(ControlChannel& control, Device device, int rank, int size) {
  const std::string id = agree_on_id(control, rank, size, gpu_name(device));
  const auto context = [=] { return fmt::format("rank {}: starting NCCL on all ranks", rank); };
  ControlWait control_wait(control, {}, context);
  try {
    return make_nccl_backend(device, id, rank, size, [&] { control_wait.poll(); });
  } catch (const BackendError& error) {
    throw CommError(fmt::format("{}: {}", context(), error.what()));
  }
}

void run_rank(const World& world, int rank, Device device, ControlChannel& control, const Recorder& recorder,
              const std::function<void(Rank&)>& body) {
  require_device(device);
  auto backend = connect(control, device, rank, world.ranks);
  // All ranks return from connect at about the same time, and start their clocks here.
  auto clock = make_clock(world.clock, device, world.network);
  NcclCommunicator comm(control, std::move(backend), world_group(world, rank, device, std::move(clock), recorder));
  Rank mine{rank, world.ranks, device, comm};
  body(mine);
}

void run_threads(const World& world, int gpus, const std::function<void(Rank&)>& body) {
  const BootstrapServer server({{"127.0.0.1", 0}, random_token()}, world.ranks);
  std::vector<std::unique_ptr<ControlChannel>> controls(static_cast<std::size_t>(world.ranks));
  const auto run = [&](int r, const Recorder& recorder) {
    auto& control = controls[static_cast<std::size_t>(r)];
    control = std::make_unique<ControlChannel>(server.address(), "run", r, world.ranks, Seconds(world.timeout));
    run_rank(world, r, nccl_device(std::nullopt, r, gpus), *control, recorder, body);
  };
  run_on_threads(world, run, [&](int r, const std::string& why) {
    if (const auto& control = controls[static_cast<std::size_t>(r)]; control != nullptr) {
      control->fail(why);
    }
  });
}

void run_process(const World& world, const LaunchEnvironment& process, int gpus,
                 const std::function<void(Rank&)>& body) {
  const auto control = Rendezvous::instance(world).connect_run(Seconds(world.timeout));
  run_as_process(
      process.rank,
      [&](const Recorder& recorder) {
        run_rank(world, process.rank, nccl_device(process, process.rank, gpus), *control, recorder, body);
      },
      [&](const std::string& why) { control->fail(why); });
}

}  // namespace

bool is_built_in() { return true; }

void run_ranks(const World& world, const std::function<void(Rank&)>& body) {
  const int gpus = world.device == DeviceType::cuda ? cuda::gpu_count() : 0;
  require_nccl(world, launch_environment(), gpus);
  if (launch_environment()) {
    run_process(world, *launch_environment(), gpus, body);
  } else {
    run_threads(world, gpus, body);
  }
}

void broadcast_from_rank_zero(const World& world, Tensor& values) {
  if (launch_environment()) {
    Rendezvous::instance(world).broadcast_from_rank_zero(values);
  }
}

}  // namespace stagecoach::nccl
