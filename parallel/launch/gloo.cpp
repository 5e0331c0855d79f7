#include <fmt/format.h>

#include <utility>

#include "core/base/throw_if.h"
#include "parallel/comm/gloo/gloo_communicator.h"
#include "parallel/launch/rendezvous.h"
#include "parallel/launch/run_ranks.h"
#include "parallel/launch/transports.h"

namespace stagecoach::gloo_ranks {
namespace {

void require_processes() {
  throw_if<UsageError>(
      !launch_environment(),
      "transport gloo: ranks are processes, and no launcher has started this one; start the program with torchrun, or "
      "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process");
}

void require_gloo_world(const World& world) {
  require_processes();
  const LaunchEnvironment& process = *launch_environment();
  throw_if<UsageError>(process.size != world.ranks,
                       "the number of processes is wrong: expected one per rank ({}), got {} (of {}); start as many, "
                       "or leave out `ranks`",
                       world.ranks, process.size, process.by);
  throw_if<UsageError>(world.device == DeviceType::cuda,
                       "transport gloo: Gloo sends tensors between CPUs only; use transport `nccl`, or device `cpu`");
}

/// Returns on all ranks at about the same time: they start their clocks then.
void start_together(ControlChannel& control, int rank, int size) {
  ControlWait control_wait(control, {}, [=] { return fmt::format("rank {}: starting all ranks", rank); });
  if (rank > 0) {
    control.post(0, "ready", "");
    control_wait.take("start");
    return;
  }
  for (int others = 1; others < size; ++others) {
    control_wait.take("ready");
  }
  control.post(ControlChannel::kToAll, "start", "");
}

void run_gloo_rank(const World& world, Rendezvous& rendezvous, ControlChannel& control, int r,
                   const std::shared_ptr<FlightRecorder>& recorder, const std::function<void(Rank&)>& body) {
  const Device device = device_of(world, r);
  GlooMesh mesh(control, rendezvous.address().token, r, world.ranks);
  start_together(control, r, world.ranks);
  {
    auto clock = make_clock(world.clock, device, world.network, world.device_model);
    GlooCommunicator comm(mesh, world_group(world, r, device, std::move(clock), recorder),
                          std::make_shared<TimedReceives>());
    Rank rank{r, world.ranks, device, comm};
    body(rank);
  }
  mesh.leave();
}

}  // namespace

bool is_built_in() { return true; }

void run_rank(const World& world, const std::function<void(Rank&)>& body) {
  require_gloo_world(world);
  const int r = launch_environment()->rank;
  Rendezvous& rendezvous = Rendezvous::instance(world);
  const auto control = rendezvous.connect_run(std::chrono::duration<double>(world.timeout));
  run_as_process(
      r, [&](const auto& recorder) { run_gloo_rank(world, rendezvous, *control, r, recorder, body); },
      [&](const std::string& why) { control->fail(why); });
}

void broadcast_from_rank_zero(const World& world, Tensor& values) {
  require_processes();
  Rendezvous::instance(world).broadcast_from_rank_zero(values);
}

}  // namespace stagecoach::gloo_ranks
