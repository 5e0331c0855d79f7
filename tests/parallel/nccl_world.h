#pragma once
/// @file
/// A world whose ranks talk as those of NCCL do, on the CPU: threads with a control each and a test's backend.

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "parallel/comm/nccl/nccl_communicator.h"
#include "parallel/launch/run_ranks.h"
#include "tests/parallel/test_backend.h"

namespace stagecoach::test {

/// `see` gets the bootstrap over which the ranks find each other, before they start.
inline void launch_on_test_backend(const World& world, const std::function<void(Rank&)>& body,
                                   const std::function<void(const BootstrapServer&)>& see) {
  const BootstrapServer server({{"127.0.0.1", 0}, "a token of tests"}, world.ranks);
  see(server);
  const auto hub = std::make_shared<TestHub>();
  const auto start = std::chrono::steady_clock::now();
  std::vector<int> members(static_cast<std::size_t>(world.ranks));
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<ControlChannel>> controls(members.size());
  const auto run = [&](int r, const std::shared_ptr<FlightRecorder>& recorder) {
    auto& control = controls[static_cast<std::size_t>(r)];
    control = std::make_unique<ControlChannel>(server.address(), "test", r, world.ranks,
                                               std::chrono::duration<double>(world.timeout));
    const Device device = device_of(world, r);
    NcclCommunicator comm(*control, std::make_unique<TestBackend>(hub, "world", r, world.ranks),
                          {"world", r, members, device, make_clock(ClockKind::wall, device, world.network, {}, start),
                           recorder, world.reduce});
    Rank rank{r, world.ranks, device, comm};
    body(rank);
  };
  run_on_threads(world, run, [&](int r, const std::string& why) { controls[static_cast<std::size_t>(r)]->fail(why); });
}

inline void launch_on_test_backend(const World& world, const std::function<void(Rank&)>& body) {
  launch_on_test_backend(world, body, [](const BootstrapServer&) {});
}

}  // namespace stagecoach::test
