// A process that is killed while another one waits for it, as ranks that talk by NCCL are told of it.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

#include "tests/parallel/every_transport.h"
#include "tests/parallel/nccl_world.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

constexpr double kTimeout = 20;  // seconds; the news of a death is faster

RankAddress at(int port) { return {{"127.0.0.1", port}, "a token of tests"}; }

class NcclDeath : public ::testing::TestWithParam<test::Wait> {};
INSTANTIATE_TEST_SUITE_P(Waiting, NcclDeath, ::testing::ValuesIn(test::kWaits),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(NcclDeath, OfARankEndsTheWaitsOfOthers) {
  const std::chrono::duration<double> timeout(kTimeout);
  const int port = BootstrapServer(at(0), 2).address().at.port;  // free again
  const pid_t zero = ::fork();
  if (zero == 0) {
    try {
      ControlChannel control(at(port), "test", 0, 2, timeout);
      ControlWait control_wait(control, {}, [] { return "rank 0"; });
      while (!control.take("die")) {
        control_wait.poll();
      }
      ::raise(SIGKILL);  // without a farewell
    } catch (...) {
      ::_exit(1);
    }
  }
  const BootstrapServer server(at(port), 2);
  ControlChannel control(at(port), "test", 1, 2, timeout);
  const auto start = std::chrono::steady_clock::now();
  const auto body = [&] {
    NcclCommunicator comm(
        control, std::make_unique<test::TestBackend>(std::make_shared<test::TestHub>(), "world", 1, 2),
        {"world", 1, {0, 1}, {}, make_clock(ClockKind::wall, {}, {}), std::make_shared<FlightRecorder>()});
    Rank rank{1, 2, {}, comm};
    control.post(0, "die", "");
    const Activity activity("backward", 3, 9);
    GetParam().run(rank);
  };
  EXPECT_TRUE(fails_with<CommError>({"rank 1: ", GetParam().name, "in the backward of stage 3, micro-batch 9",
                                     "stopped because the process of rank 0 has died"},
                                    body));
  EXPECT_LT(std::chrono::steady_clock::now() - start, timeout);
  int status = 0;
  ::waitpid(zero, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace stagecoach
