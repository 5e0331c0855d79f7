// What is said about machines that one cannot have at hand: without a driver, with an old one, with too little memory.

#include "tests/support/errors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "core/allocator.h"
#include "core/cuda/check.h"
#include "core/cuda_backend.h"
#include "core/ops.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "tests/emulation/machine.h"
#include "tests/support/devices.h"

namespace stagecoach {
namespace {

using cuda::emulation::machine;
using test::fails_with;
using test::kCuda;

/// Another machine until the end of the test.
class CudaErrors : public ::testing::Test {
 protected:
  void TearDown() override { machine() = before_; }

 private:
  const cuda::emulation::Machine before_ = machine();
};

TEST_F(CudaErrors, NoDriver) {
  machine().driver_version = 0;
  EXPECT_TRUE(
      fails_with<UsageError>({"cuda:0", "has no NVIDIA driver", "use device `cpu`"}, [] { require_device(kCuda); }));
}

TEST_F(CudaErrors, AnOldDriver) {
  machine().driver_version = 12040;
  EXPECT_TRUE(fails_with<UsageError>({"cuda:0", "too old", "supports CUDA 12.4", "needs 13.0", "update the driver"},
                                     [] { require_device(kCuda); }));
}

TEST_F(CudaErrors, NoGpu) {
  machine().devices = 0;
  EXPECT_TRUE(fails_with<UsageError>({"cuda:0", "finds no GPU", "nvidia-smi"}, [] { require_device(kCuda); }));
}

TEST_F(CudaErrors, AnIndexThatDoesNotExist) {
  machine().devices = 2;
  for (const int index : {2, 100, -1}) {
    const std::string name = fmt::format("cuda:{} does not exist", index);
    EXPECT_TRUE(fails_with<UsageError>({name.c_str(), "cuda:0 to cuda:1"}, [&] {
      Tensor::zeros({1}, DType::float32, {DeviceType::cuda, index});
    }));
  }
  machine().devices = 1;
  EXPECT_TRUE(fails_with<UsageError>({"cuda:5", "one GPU, cuda:0"}, [] { require_device({DeviceType::cuda, 5}); }));
  EXPECT_TRUE(fails_with<UsageError>({"cuda:0/128", "a slot from 0 to 127"}, [] {
    require_device({DeviceType::cuda, 0, 128});
  }));
}

TEST_F(CudaErrors, ExhaustedMemoryNamesWhatIsAskedFreeAndHeld) {
  machine().devices = 4;
  machine().memory = 16 << 20;
  const Device slot{DeviceType::cuda, 2, 7};  // on a GPU that no other test uses
  const Tensor large = Tensor::zeros({5 << 20}, DType::uint8, slot);
  const Tensor small = Tensor::zeros({3 << 20}, DType::uint8, slot);
  const std::string asked = std::to_string(9 << 20);
  const std::string free = fmt::format("{} bytes free", 6 << 20);  // segments of 2 MiB: 6 + 4 of the 16 are held
  const std::string blocks = fmt::format("{}, {}", 5 << 20, 3 << 20);
  EXPECT_TRUE(fails_with<Error>({"out of memory on cuda:2/7", asked.c_str(), free.c_str(), blocks.c_str(), "smaller"},
                                [&] { Tensor::zeros({9 << 20}, DType::uint8, slot); }));
  EXPECT_EQ(Tensor::zeros({2 << 20}, DType::uint8, slot).numel(), 2 << 20) << "what still fits is still given";
}

TEST_F(CudaErrors, CachedMemoryIsGivenBackBeforeGivingUp) {
  machine().devices = 4;
  machine().memory = 16 << 20;
  const Device slot{DeviceType::cuda, 3, 8};
  static_cast<void>(Tensor::zeros({9 << 20}, DType::uint8, slot));
  static_cast<void>(Tensor::zeros({12 << 20}, DType::uint8, slot));
  EXPECT_EQ(allocator(slot).stats().peak_bytes, std::size_t{12} << 20);
}

TEST_F(CudaErrors, AFailedCallNamesItselfAndItsPlace) {
  EXPECT_TRUE(fails_with<Error>(
      {"cudaSetDevice(77)", "invalid device ordinal", "cudaErrorInvalidDevice", "core/cuda/errors_test.cpp"},
      [] { STAGECOACH_CUDA(cudaSetDevice(77)); }));
}

TEST_F(CudaErrors, StreamsThatDoNotExist) {
  Event event;
  EXPECT_TRUE(fails_with<Error>({"stream 2 of cuda:0"}, [&] { event.record({kCuda, 2}); }));
}

// A kernel cannot throw for one element; the loss shows it, and a loss that is NaN stops the training.
TEST_F(CudaErrors, ALabelThatIsNoClassGivesNoLoss) {
  const Tensor logits = Tensor::zeros({2, 3}, DType::float32, kCuda);
  for (const std::int32_t label : {-1, 3}) {
    const Tensor labels = Tensor::from(std::vector<std::int32_t>{0, label}, {2}, kCuda);
    EXPECT_NE(cross_entropy(logits, labels).item(), cross_entropy(logits, labels).item()) << "label " << label;
  }
}

}  // namespace
}  // namespace stagecoach
