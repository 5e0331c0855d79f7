// Random programs on four asynchronous devices compute the bytes of the same programs on synchronous ones.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/asynchronous.h"
#include "core/autograd/backward.h"
#include "core/kernels/kernels.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/transfer.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

constexpr int kDevices = 4;
constexpr std::size_t kTensors = 12;  // per device
constexpr int kOperations = 10'000;
const Shape kShape{8, 8};

using Devices = std::array<Device, kDevices>;

/// A program of random operations on a few tensors per device.
class RandomProgram {
 public:
  RandomProgram(const Devices& devices, std::uint64_t seed) : devices_(devices), random_(seed, "program") {
    for (std::size_t d = 0; d < kDevices; ++d) {
      for (std::size_t i = 0; i < kTensors; ++i) {
        tensors_[d][i] = test::random_tensor(kShape, std::to_string(d * kTensors + i), DType::float32, devices_[d]);
      }
    }
  }

  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      step();
    }
  }

  /// What the program has computed: every tensor, and every value that it read on its way.
  std::vector<float> results() const {
    std::vector<float> all = read_;
    for (const auto& device_tensors : tensors_) {
      for (const Tensor& tensor : device_tensors) {
        const auto values = tensor.to_vector<float>();
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }

 private:
  std::uint32_t below(std::uint32_t bound) { return random_.below(drawn_++, bound); }
  std::size_t any_device() { return below(kDevices); }
  Tensor& any(std::size_t device) { return tensors_[device][below(kTensors)]; }

  void step() {
    const std::size_t d = any_device();
    const Tensor a = any(d);
    const Tensor b = any(d);
    Tensor& out = any(d);
    switch (below(16)) {
      case 0:
        out = scale(add(a, b), 0.5);
        return;
      case 1:
        out = relu(a);
        return;
      case 2:
        out = linear(a, softmax(b));
        return;
      case 3:
        out = transpose(a);
        return;
      case 4:
        out = cat({a.narrow(0, 3), b.narrow(3, 5)});
        return;
      case 5:
        out = gelu(matmul(a.reshape({1, 8, 8}), softmax(b).reshape({1, 8, 8}))).reshape(kShape);
        return;
      case 6:
        out = Tensor::full(kShape, below(10), DType::float32, devices_[d]);
        return;
      case 7:
        out = test::random_tensor(kShape, "new", DType::float32, devices_[d]);
        return;
      case 8:
      case 9:
        out = any(any_device()).to(devices_[d]);
        return;
      case 10:  // in place, within a device or from another one
        out = out.clone();
        out.narrow(0, 4).copy_from(any(any_device()).narrow(4, 4));
        return;
      case 11:
        out = out.clone();
        kernels(devices_[d]).add_scaled(a, -0.25, out);
        return;
      case 12:
        copy_by_events(any_device(), d, out);
        return;
      case 13:
        train(d, any_device());
        return;
      case 14:
        if (below(8) == 0) {
          read_.push_back(static_cast<float>(a.reshape({64}).narrow(below(64), 1).item()));
        }
        return;
      default:
        if (below(8) == 0) {
          out = out.clone();
          out.mutable_data<float>()[below(64)] = 1;
        }
    }
  }

  /// A copy that the program orders itself.
  void copy_by_events(std::size_t from, std::size_t to, Tensor& out) {
    const Tensor source = any(from);
    Tensor fresh = Tensor::empty(kShape, DType::float32, devices_[to]);
    const Event done = copy_async(source, fresh);
    done.wait({devices_[to], Stream::kCompute});
    done.wait({devices_[from], Stream::kCompute});  // which may overwrite the source later
    out = fresh;
  }

  /// A backward over two devices.
  void train(std::size_t first, std::size_t second) {
    Tensor w = softmax(any(first)).detach().set_requires_grad(true);
    Tensor v = softmax(any(second)).detach().set_requires_grad(true);
    const Tensor loss = mean_squared_error(linear(relu(linear(any(first), w)).to(devices_[second]), v), any(second));
    backward(loss);
    any(first) = scale(w.grad(), 0.1);
    any(second) = scale(v.grad(), 0.1);
  }

  Devices devices_;
  Philox random_;
  std::uint64_t drawn_ = 0;
  std::array<std::array<Tensor, kTensors>, kDevices> tensors_;
  std::vector<float> read_;
};

std::vector<float> results_of(const Devices& devices, std::uint64_t seed, int operations) {
  RandomProgram program(devices, seed);
  program.run(operations);
  return program.results();
}

class AsynchronousStress : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(CopyStreams, AsynchronousStress, ::testing::Values(Stream::kCompute, Stream::kCopies));

TEST_P(AsynchronousStress, TenThousandOperationsComputeTheBytesOfSynchronousDevices) {
  Devices devices;
  for (Device& device : devices) {
    device = test::fresh_device();
  }
  const auto seed = static_cast<std::uint64_t>(GetParam());
  const std::vector<float> expected = results_of(devices, seed, kOperations);
  const AsynchronousDevices on({devices.begin(), devices.end()}, GetParam());
  const std::vector<float> results = results_of(devices, seed, kOperations);
  ASSERT_EQ(results.size(), expected.size());
  EXPECT_EQ(std::memcmp(results.data(), expected.data(), results.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace stagecoach
