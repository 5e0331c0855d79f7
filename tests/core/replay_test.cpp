// Work that is recorded once and then replayed gives what running it would give.

#include "core/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/autograd/backward.h"
#include "core/cuda_backend.h"
#include "core/kernels/kernels.h"
#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_tensor;
using test::same_bytes;

bool records(Device device) { return device.type == DeviceType::cuda; }

std::vector<Device> devices_that_record() {
  std::vector<Device> all = test::devices();
  std::erase_if(all, [](Device device) { return !records(device); });
  return all;
}

class ReplayOn : public ::testing::TestWithParam<Device> {
 protected:
  static Device device() { return GetParam(); }
  /// How often work is called in `runs` runs with inputs of one set of shapes.
  static int calls_in(int runs) { return records(device()) ? std::min(runs, 2) : runs; }
};
INSTANTIATE_TEST_SUITE_P(Devices, ReplayOn, ::testing::ValuesIn(test::devices()), test::device_name);

TEST_P(ReplayOn, TakesTheInputsOfEachRun) {
  Replay replay(device(), true);
  Tensor out = Tensor::zeros({37}, DType::float64, device());
  int calls = 0;
  for (int run = 0; run < 6; ++run) {
    const Tensor x = Tensor::full({37}, run, DType::float64, device());
    const Tensor y = Tensor::full({37}, 100 * run, DType::float64, device());
    replay.run({x, y}, [&](std::span<const Tensor> in) {
      ++calls;
      out.copy_from(add(scale(in[0], 3), in[1]));
    });
    EXPECT_EQ(out.to_vector<double>(), std::vector<double>(37, 103.0 * run)) << "run " << run;
    EXPECT_EQ(x.to_vector<double>(), std::vector<double>(37, run)) << "run " << run;
  }
  EXPECT_EQ(calls, calls_in(6));
}

// The recording itself must not count as a run, and no run may be lost.
TEST_P(ReplayOn, RunsOnceForEachRun) {
  Replay replay(device(), true);
  Tensor sum = Tensor::zeros({}, DType::float64, device());
  Tensor counter = Tensor::zeros({}, DType::int32, device());
  for (int run = 1; run <= 7; ++run) {
    replay.run({Tensor::full({}, run, DType::float32, device())}, [&](std::span<const Tensor> in) {
      accumulate(in[0], sum);
      kernels(device()).increment({&counter, 1});
    });
    EXPECT_EQ(counter.item(), run);
    EXPECT_EQ(sum.item(), run * (run + 1) / 2);
  }
}

TEST_P(ReplayOn, RecordsEachSetOfShapes) {
  Replay replay(device(), true);
  Tensor sum = Tensor::zeros({}, DType::float64, device());
  int calls = 0;
  double expected = 0;
  const std::int64_t rows[] = {5, 3, 5, 5, 3, 3, 5, 3, 5};  // five times 5 and four times 3
  for (int run = 0; run < 9; ++run) {
    const Tensor ones = Tensor::full({rows[run], 2}, run + 1, DType::float32, device());
    replay.run({ones}, [&](std::span<const Tensor> in) {
      ++calls;
      const Tensor zeros = Tensor::zeros(in[0].shape(), DType::float32, device());
      accumulate(mean_squared_error(in[0], zeros, Reduction::sum), sum);
    });
    expected += static_cast<double>(rows[run] * 2 * (run + 1) * (run + 1));
    EXPECT_EQ(sum.item(), expected) << "run " << run;
  }
  EXPECT_EQ(calls, calls_in(5) + calls_in(4));
}

// Copies between kernels, which wait for each other in another way than for copies.
TEST_P(ReplayOn, KeepsTheOrderOfCopiesAndKernels) {
  Replay replay(device(), true);
  Tensor middle = Tensor::zeros({1009}, DType::float32, device());
  Tensor out = Tensor::zeros({1009}, DType::float32, device());
  for (int run = 0; run < 5; ++run) {
    replay.run({Tensor::full({1009}, run, DType::float32, device())}, [&](std::span<const Tensor> in) {
      for (int round = 0; round < 10; ++round) {  // doubles its number, and adds one
        middle.copy_from(add(round == 0 ? in[0] : out, round == 0 ? in[0] : out));
        out.copy_from(relu(add(middle, Tensor::full({1009}, 1, DType::float32, device()))));
      }
    });
    EXPECT_EQ(out.to_vector<float>(), std::vector<float>(1009, static_cast<float>(1024 * run + 1023))) << run;
  }
}

TEST_P(ReplayOn, SwitchedOffJustRuns) {
  Replay replay(device(), false);
  int calls = 0;
  for (int run = 0; run < 5; ++run) {
    replay.run({}, [&](std::span<const Tensor> in) {
      EXPECT_TRUE(in.empty());
      ++calls;
    });
  }
  EXPECT_EQ(calls, 5);
}

/// A small classifier, its training step, and the sum of its losses.
struct Training {
  explicit Training(Device on) : device(on) {}

  void step(std::span<const Tensor> in) {
    const Tensor loss = cross_entropy(linear(relu(linear(in[0], first)), second, bias), in[1]);
    backward(loss);
    for (Tensor each : {first, second, bias}) {
      kernels(device).add_scaled(each.grad(), -0.1, each);
      each.zero_grad();  // the gradient is in memory of the recording
    }
    accumulate(loss, losses);
  }

  Device device;
  Tensor first = test::random_leaf({17, 5}, "first", DType::float32, device);
  Tensor second = test::random_leaf({3, 17}, "second", DType::float32, device);
  Tensor bias = test::random_leaf({3}, "bias", DType::float32, device);
  Tensor losses = Tensor::zeros({}, DType::float64, device);
};

TEST_P(ReplayOn, TrainsBitForBitAsWithoutIt) {
  Training recorded(device());
  Training plain(device());
  Replay replay(device(), true);
  for (int run = 0; run < 6; ++run) {
    const std::string name = "x " + std::to_string(run);
    const std::vector<Tensor> batch{random_tensor({7, 5}, name, DType::float32, device()),
                                    test::random_labels(7, 3, device())};
    replay.run(batch, [&](std::span<const Tensor> in) { recorded.step(in); });
    plain.step(batch);
    EXPECT_TRUE(same_bytes(recorded.losses, plain.losses)) << "run " << run;
    EXPECT_TRUE(same_bytes(recorded.first, plain.first)) << "run " << run;
    EXPECT_TRUE(same_bytes(recorded.second, plain.second)) << "run " << run;
    EXPECT_TRUE(same_bytes(recorded.bias, plain.bias)) << "run " << run;
  }
}

// What `work` makes and drops is memory of the recording: other tensors made between the runs must not get it.
TEST_P(ReplayOn, SharesNoMemoryWithOtherTensors) {
  Replay replay(device(), true);
  Tensor out = Tensor::zeros({1009}, DType::float64, device());
  std::vector<Tensor> others;
  for (int run = 0; run < 6; ++run) {
    replay.run({Tensor::full({1009}, run, DType::float64, device())},
               [&](std::span<const Tensor> in) { out.copy_from(scale(scale(in[0], 2), 3)); });
    EXPECT_EQ(out.to_vector<double>(), std::vector<double>(1009, 6.0 * run));
    others.push_back(Tensor::full({1009}, -run, DType::float64, device()));
  }
  for (int run = 0; run < 6; ++run) {
    EXPECT_EQ(others[static_cast<std::size_t>(run)].to_vector<double>(), std::vector<double>(1009, -run));
  }
}

/// The run in which the work throws: the first, the recorded one, or a later one, which on a GPU calls it no more.
class ReplayThatThrows : public ::testing::TestWithParam<test::On<int>> {};
const int kRunsThatThrow[] = {0, 1, 2};
INSTANTIATE_TEST_SUITE_P(Devices, ReplayThatThrows, ::testing::ValuesIn(test::on_devices(kRunsThatThrow)),
                         [](const auto& tested) {
                           return test::name_of(tested.param.device) + "_run_" + std::to_string(tested.param.what);
                         });

TEST_P(ReplayThatThrows, GoesOnInTheNextRun) {
  const auto [device, throwing] = GetParam();
  Replay replay(device, true);
  Tensor out = Tensor::zeros({7}, DType::float64, device);
  bool thrown = false;
  for (int run = 0; run < 6; ++run) {
    const bool will_throw = run == throwing;
    const auto work = [&](std::span<const Tensor> in) {
      const Tensor result = scale(in[0], 2);
      if (will_throw) {
        throw std::runtime_error("the work failed");
      }
      out.copy_from(result);
    };
    const Tensor x = Tensor::full({7}, run, DType::float64, device);
    try {
      replay.run({x}, work);
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the work failed");
      EXPECT_TRUE(will_throw);
      thrown = true;
      continue;
    }
    EXPECT_EQ(out.to_vector<double>(), std::vector<double>(7, 2.0 * run)) << "run " << run;
  }
  EXPECT_EQ(thrown, !records(device) || throwing < 2);
}

class Recording : public ReplayOn {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Recording);
INSTANTIATE_TEST_SUITE_P(Devices, Recording, ::testing::ValuesIn(devices_that_record()), test::device_name);

// The work of a recording is not done yet, so nothing can be read from it; the device is of use afterwards.
TEST_P(Recording, RefusesWorkThatWaits) {
  Replay replay(device(), true);
  const Tensor x = Tensor::full({}, 3, DType::float64, device());
  const auto waiting = [&](std::span<const Tensor> in) { EXPECT_EQ(scale(in[0], 2).item(), 6); };
  replay.run({x}, waiting);
  EXPECT_THROW(replay.run({x}, waiting), Error);
  EXPECT_EQ(scale(x, 5).item(), 15);
  Tensor out = Tensor::zeros({}, DType::float64, device());
  for (int run = 0; run < 4; ++run) {
    replay.run({Tensor::full({}, run, DType::float64, device())},
               [&](std::span<const Tensor> in) { out.copy_from(scale(in[0], 2)); });
    EXPECT_EQ(out.item(), 2 * run);
  }
}

}  // namespace
}  // namespace stagecoach
