/// @file
/// The program that fits a device model to times: the fit, the pages that it reads, and what it refuses.

#include <fmt/format.h>

#include <string>

#include "chapters/calibrate/fit.h"
#include "chapters/calibrate/kernel_call.h"
#include "chapters/calibrate/timings.h"
#include "core/base/error.h"
#include "tests/chapters/program.h"
#include "tests/support/errors.h"

namespace stagecoach::test {
namespace {

constexpr Device kMeta{DeviceType::meta};
const std::string kCalibrate = program_path("calibrate");
const std::string kPage =
    "| best float32 product (cuBLAS or ours) | 51.3 TFLOP/s |\n"
    "| best TF32 product (the same) | 417.8 TFLOP/s |\n"
    "### convnet, batch 64, float32\n"
    "| operation | µs | floor µs |\n"
    "|---|---:|---:|\n"
    "| relu [64, 6, 28, 28] | 1.8 | 0.8 |\n"
    "| linear 64x400 to 120, weight and bias | 4.6 | 0.8 |\n"
    "### vit, batch 512: kernels, TF32\n"
    "| attention [512, 64, 64], 4 heads, gradient | 32.3 | 14.3 |\n"
    "## Something else\n"
    "| convnet | 1.0 | |\n";

class CalibrateProgram : public ProgramTest {};

TEST(Calibrate, KnowsTheCostsOfCallsByTheirNames) {
  const KernelCost conv = kernel_call("conv 8x3x32x32 to 6, k5 s1 p0, weight gradient", kMeta).cost;
  EXPECT_EQ(conv.kind, CostKind::convolution);
  EXPECT_EQ(conv.flops, 2 * 8 * 6 * 28 * 28 * 3 * 25);
  EXPECT_EQ(kernel_call("conv 8x64x32x32 to 64, k3 s1 p1, input gradient", kMeta).cost.kind,
            CostKind::wide_convolution);
  EXPECT_EQ(kernel_call("linear 64x400 to 120, input gradient", kMeta).cost.flops, 2 * 64 * 400 * 120);
  EXPECT_EQ(kernel_call("relu [64, 6, 28, 28], gradient", kMeta).cost.bytes(), 3 * 4 * 64 * 6 * 28 * 28);
  EXPECT_EQ(kernel_call("adam, 10 tensors of convnet", kMeta).cost.flops, 15 * 62006);
  EXPECT_EQ(kernel_call("attention [1, 3, 2], 1 heads", kMeta).cost.flops, 9 * (4 * 2 + 6) - 3);
  EXPECT_EQ(kernel_call("dropout [2, 3, 4]", kMeta).cost.bytes(), 2 * 4 * 24);
  EXPECT_EQ(kernel_call("embedding 2x3 of 5x4", kMeta).cost.flops, 0);
  EXPECT_EQ(kernel_call("embedding 2x3 of 5x4, gradient", kMeta).cost.flops, 2 * 3 * 4);
  EXPECT_EQ(kernel_call("attention [1, 3, 2], 1 heads, causal", kMeta).cost.flops, 6 * (4 * 2 + 6) - 3);
  for (const char* name : {"relu", "conv 8x3", "sort [8, 8]", ""}) {
    EXPECT_TRUE(fails_with<DataError>({"is not a kernel call"}, [&] { kernel_call(name, kMeta); })) << name;
  }
}

TEST(Calibrate, CallsOfEachModelRunOnTheCpu) {
  for (const char* model : {"convnet", "resnet18", "vit"}) {
    for (const std::string& name : kernel_call_names(model, 2)) {
      kernel_call(name, {}).run();
    }
  }
}

TEST(Calibrate, FindsADeviceByItsTimes) {
  DeviceModel device = device_model("laptop");
  device.float32[static_cast<std::size_t>(CostKind::wide_convolution)].flops_per_second *= 1.5;
  Timings timings{.best_float32 = 1e11, .best_float64 = 5e10};
  for (const char* model : {"convnet", "resnet18", "vit"}) {
    for (const std::int64_t images : {4, 32}) {
      for (const std::string& name : kernel_call_names(model, images)) {
        const KernelCost cost = kernel_call(name, kMeta).cost;
        timings.calls.push_back({.name = name,
                                 .model = model,
                                 .cost = cost,
                                 .seconds = 1e-12 * static_cast<double>(device.picoseconds(cost))});
      }
    }
  }
  const DeviceModel found = rounded(fitted(timings, device, false));
  for (const Timing& timing : timings.calls) {
    EXPECT_NEAR(ratio(found, timing), 1, 0.15) << timing.name;  // rates are pulled together a little
  }
}

TEST_F(CalibrateProgram, ReadsAPage) {
  write_bytes(folder() / "page.md", kPage);
  const Timings timings = timings_of_page((folder() / "page.md").string());
  ASSERT_EQ(timings.calls.size(), 3);
  EXPECT_EQ(timings.best_tf32, 417.8e12);
  EXPECT_EQ(timings.calls[1].name, "linear 64x400 to 120, weight and bias");
  EXPECT_EQ(timings.calls[1].model, "convnet 64");
  EXPECT_FALSE(timings.calls[1].tf32);
  EXPECT_EQ(timings.calls[2].model, "vit 512");
  EXPECT_TRUE(timings.calls[2].tf32);
  EXPECT_NEAR(timings.calls[2].seconds, 32.3e-6, 1e-12);
  write_bytes(folder() / "empty.md", "# Nothing\n");
  EXPECT_TRUE(fails_with<DataError>({"expected tables of cuda_kernels_benchmark, got none"},
                                    [&] { timings_of_page((folder() / "empty.md").string()); }));
}

TEST_F(CalibrateProgram, WritesAModelThatChaptersTake) {
  write_bytes(folder() / "page.md", kPage);
  const std::vector<std::string> page{"mine.json", "--name", "mine", "--times", "page.md", "--like", "h200"};
  const Outcome outcome = run(kCalibrate, page);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Wrote mine.json"), std::string::npos) << outcome.out;
  EXPECT_EQ(device_model((folder() / "mine.json").string()).name, "mine");
  const Outcome again = run(kCalibrate, page);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.err.find("mine.json exists; give --overwrite"), std::string::npos) << again.err;
  const Outcome chapter = ch01({"--explain", "--clock", "modelled", "--device-model", "mine.json"});
  EXPECT_EQ(chapter.exit_code, 0) << chapter.err;
}

TEST_F(CalibrateProgram, RefusesWhatItCannotDo) {
  write_bytes(folder() / "page.md", kPage);
  using Flags = std::vector<std::string>;
  for (const auto& [flags, text] : std::vector<std::pair<Flags, const char*>>{
           {{"mine.txt"}, "expected a file that ends with .json"},
           {{"mine.json", "--tf32"}, "--tf32 needs a GPU"},
           {{"mine.json", "--times", "page.md"}, "--like"},
           {{"mine.json", "--times", "page.md", "--like", "h200", "--without", "vit 64"}, "there are no calls of it"},
           {{"mine.json", "--times", "page.md", "--like", "h200", "--name", "a b"}, "'name': expected 1 to 64 letters"},
       }) {
    const Outcome outcome = run(kCalibrate, flags);
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder() / "mine.json"));
  }
}

}  // namespace
}  // namespace stagecoach::test
