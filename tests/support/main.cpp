// Runs the tests of a program, and says at the end how many of them ran on a GPU: a test run that left its CUDA half
// out must not look like one that passed it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "core/cuda_backend.h"
#include "tests/support/devices.h"

namespace stagecoach::test {
namespace {

/// Whether "cuda" is in the name of its suite ("Kernels/CudaProducts", "cuda/RowTwins"), or begins a parameter.
/// scripts/test.sh counts alike.
bool is_on_cuda(const ::testing::TestInfo& test) {
  const std::string suite = test.test_suite_name();
  const bool in_suite = suite.find("uda") != std::string::npos && suite != "Cuda";  // that of Cuda.Half
  return in_suite || std::string(test.name()).find("/cuda") != std::string::npos;
}

/// Whether it holds the test Cuda.Half.
bool has_cuda_half(const ::testing::UnitTest& program) {
  for (int i = 0; i < program.total_test_suite_count(); ++i) {
    if (program.GetTestSuite(i)->name() == std::string("Cuda")) {
      return true;
    }
  }
  return false;
}

class CudaCount final : public ::testing::EmptyTestEventListener {
 private:
  void OnTestEnd(const ::testing::TestInfo& test) override {
    ran_ += is_on_cuda(test) && !test.result()->Skipped() ? 1 : 0;
  }
  void OnTestProgramEnd(const ::testing::UnitTest& program) override {
    if (ran_ > 0) {
      fmt::print("CUDA: {} tests ran on {}\n", ran_, cuda::description(kCuda));
    } else if (has_cuda_half(program)) {
      fmt::print("CUDA: none ran; {}\n", has_cuda() ? "none was chosen" : why_no_cuda());
    }
  }

  int ran_ = 0;
};

}  // namespace
}  // namespace stagecoach::test

int main(int count, char** arguments) {
  ::testing::InitGoogleTest(&count, arguments);
  ::testing::UnitTest::GetInstance()->listeners().Append(new stagecoach::test::CudaCount);  // gtest deletes it
  return RUN_ALL_TESTS();
}
