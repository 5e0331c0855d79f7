// The one test that is skipped when a program's CUDA half is missing; the others of that half then do not exist.

#include <gtest/gtest.h>

#include "core/cuda_backend.h"
#include "tests/support/devices.h"

namespace stagecoach {
namespace {

TEST(Cuda, Half) {
  if (!test::has_cuda()) {
    GTEST_SKIP() << test::why_no_cuda();
  }
  const std::string description = cuda::description(test::kCuda);
  RecordProperty("device", description);
  EXPECT_NE(description, "");
}

}  // namespace
}  // namespace stagecoach
