// What named devices take for kernel calls, and the files of devices of one's own.

#include "core/device_model.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/parse_json.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace stagecoach {
namespace {

using OrderedJson = nlohmann::ordered_json;
using test::fails_with;

/// A device with round numbers: 1 TFLOP/s, half of it at 10^6 operations; 1 GB/s; 2 µs per launch.
DeviceModel round_device() {
  DeviceModel model = device_model("h200");
  model.name = "round";
  model.float32.fill({.flops_per_second = 1e12, .half = 1e6});
  model.float64.fill({.flops_per_second = 1e11, .half = 0});
  model.bytes_per_second = 1e9;
  model.launch_seconds = 2e-6;
  return model;
}

KernelCost product(std::int64_t flops, std::int64_t bytes, DType dtype = DType::float32) {
  return {.kind = CostKind::matrix_product, .dtype = dtype, .flops = flops, .bytes_read = bytes};
}

TEST(DeviceModel, TakesLaunchesAndOperationsOrBytes) {
  const DeviceModel model = round_device();
  EXPECT_EQ(model.picoseconds(product(1'000'000, 0)), 2'000'000 + 2'000'000);  // at half the rate
  EXPECT_EQ(model.picoseconds(product(9'000'000, 0)), 2'000'000 + 10'000'000);
  EXPECT_EQ(model.picoseconds(product(1'000'000, 5'000)), 2'000'000 + 5'000'000);
  EXPECT_EQ(model.picoseconds(product(1'000'000, 0, DType::float64)), 2'000'000 + 10'000'000);
  EXPECT_EQ(model.picoseconds(product(0, 1'000)), 2'000'000 + 1'000'000);  // none of `half` without operations
  KernelCost copy{.kind = CostKind::copy, .dtype = DType::uint8, .bytes_read = 500, .bytes_written = 500};
  EXPECT_EQ(model.picoseconds(copy), 2'000'000 + 1'000'000);
  copy.cuda.workspace_bytes = 250;  // written and read
  EXPECT_EQ(model.picoseconds(copy), 2'000'000 + 1'500'000);
  copy.cuda = {.launches = 3};
  EXPECT_EQ(model.picoseconds(copy), 6'000'000 + 1'000'000);
  KernelCost low = product(6'000'000, 0);
  low.cuda.idle_flops = 10'000'000;
  EXPECT_EQ(model.picoseconds(low), 2'000'000 + 17'000'000);
}

TEST(DeviceModel, NeverTakesLessForMore) {
  for (const std::string& name : device_model_names()) {
    const DeviceModel model = device_model(name);
    for (const CostKind kind : {CostKind::matrix_product, CostKind::convolution, CostKind::wide_convolution,
                                CostKind::attention, CostKind::elementwise, CostKind::reduction, CostKind::copy}) {
      std::int64_t before = 0;
      for (std::int64_t size = 1; size < std::numeric_limits<std::int64_t>::max() / 4; size *= 2) {
        KernelCost cost = product(size, size);
        cost.kind = kind;
        const std::int64_t time = model.picoseconds(cost);
        EXPECT_GE(time, before) << name;
        before = time;
      }
    }
  }
}

TEST(DeviceModel, TakesElevenDaysAtMost) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  DeviceModel model = round_device();
  model.bytes_per_second = 1;
  model.launch_seconds = 0;
  EXPECT_EQ(model.picoseconds(product(kMost, kMost)), 1'000'000'000'000'000'000);
}

/// What the rows take for a large and a small product, an elementwise call, and a product of float64.
TEST(DeviceModel, RowsNeverChange) {
  const KernelCost elementwise{.kind = CostKind::elementwise,
                               .dtype = DType::float32,
                               .flops = 1'000'000,
                               .bytes_read = 8'000'000,
                               .bytes_written = 4'000'000};
  const std::vector<std::pair<const char*, std::array<std::int64_t, 4>>> rows{
      {"h200", {39'067'440'156, 4'979'219, 5'227'368, 83'061'250}},
      {"h200-tf32", {5'295'089'524, 4'089'524, 5'227'368, 83'061'250}},
      {"h100", {39'067'440'156, 4'979'219, 6'935'931, 83'061'250}},
      {"h100-tf32", {5'295'089'524, 4'089'524, 6'935'931, 83'061'250}},
      {"a100", {134'219'683'746, 5'074'371, 10'572'481, 278'776'456}},
      {"a100-tf32", {16'775'892'671, 4'101'005, 10'572'481, 278'776'456}},
      {"v100", {166'704'780'921, 5'106'856, 22'332'632, 345'481'122}},
      {"t4", {323'114'508'057, 5'263'266, 60'490'526, 10'498'763'410}},
      {"laptop", {9'523'810'479'429, 10'479'429, 124'091'934, 20'202'978'707}},
  };
  ASSERT_EQ(rows.size(), device_model_names().size());
  for (const auto& [name, picoseconds] : rows) {
    const DeviceModel model = device_model(name);
    EXPECT_EQ(model.name, name);
    EXPECT_EQ(picoseconds, (std::array{model.picoseconds(product(1'000'000'000'000, 50'000'000)),
                                       model.picoseconds(product(1'000'000, 50'000)), model.picoseconds(elementwise),
                                       model.picoseconds(product(1'000'000'000, 1, DType::float64))}))
        << name;
    KernelCost conv = product(1'000'000'000, 1);
    conv.kind = CostKind::convolution;
    KernelCost wide = conv;
    wide.kind = CostKind::wide_convolution;  // had no rate of its own when these rows were fitted
    EXPECT_EQ(model.picoseconds(wide), model.picoseconds(conv)) << name;
  }
}

TEST(DeviceModel, UnknownNameIsRefusedWithTheNames) {
  EXPECT_TRUE(fails_with<UsageError>({"device model 'h20': expected h200, ", "laptop or a file that ends with .json"},
                                     [] { device_model("h20"); }));
  EXPECT_TRUE(fails_with<DataError>({"none.json"}, [] { device_model("/tmp/no/such/none.json"); }));
}

TEST(DeviceModel, FileIsReadAsItWasWritten) {
  const test::TemporaryFolder folder;
  for (const std::string& name : device_model_names()) {
    const std::filesystem::path file = folder.path() / (name + ".json");
    test::write_bytes(file, to_json(device_model(name)));
    const DeviceModel read = device_model(file.string());
    EXPECT_EQ(to_json(read), to_json(device_model(name)));
    EXPECT_EQ(read.picoseconds(product(123'456'789, 1)), device_model(name).picoseconds(product(123'456'789, 1)));
  }
}

TEST(DeviceModel, FileWithoutTheRateOfWideConvolutionsTakesThatOfConvolutions) {
  DeviceModel model = round_device();
  auto& convolution = model.float32[static_cast<std::size_t>(CostKind::convolution)];
  auto& wide = model.float32[static_cast<std::size_t>(CostKind::wide_convolution)];
  convolution.flops_per_second = 2e12;
  wide.flops_per_second = 3e12;
  auto json = parse_json<OrderedJson>(to_json(model), "file");
  EXPECT_EQ(to_json(device_model_from_json(json.dump(), "file")), to_json(model));
  json["float32"].erase("wide_convolution");
  wide = convolution;
  EXPECT_EQ(to_json(device_model_from_json(json.dump(), "file")), to_json(model));
}

TEST(DeviceModel, FileWithAMistakeIsRefusedByName) {
  const std::string right = to_json(device_model("h200"));
  using Edit = std::function<void(OrderedJson&)>;
  const std::vector<std::pair<Edit, const char*>> mistakes{
      {[](OrderedJson& j) { j.erase("name"); }, "mine.json: 'name' is missing"},
      {[](OrderedJson& j) { j.erase("float64"); },
       "mine.json: 'float64' is missing: expected an object with the rates"},
      {[](OrderedJson& j) { j["float32"].erase("attention"); }, "mine.json: float32: 'attention' is missing"},
      {[](OrderedJson& j) { j["float32"]["reduction"].erase("half"); }, "float32: reduction: 'half' is missing"},
      {[](OrderedJson& j) { j["float32"]["copy"] = 1; }, "mine.json: float32: unknown key \"copy\""},
      {[](OrderedJson& j) { j["bandwidth"] = 1; }, "mine.json: unknown key \"bandwidth\": expected only name, backend"},
      {[](OrderedJson& j) { j.erase("backend"); }, "'backend' is missing: expected \"cpu\" or \"cuda\"; add it"},
      {[](OrderedJson& j) { j["backend"] = "tpu"; }, "'backend': expected \"cpu\" or \"cuda\", got \"tpu\""},
      {[](OrderedJson& j) { j["bytes_per_second"] = "fast"; }, "'bytes_per_second': expected bytes per second from 1"},
      {[](OrderedJson& j) { j["bytes_per_second"] = 0; }, "got 0; correct it"},
      {[](OrderedJson& j) { j["launch_seconds"] = -1e-6; }, "'launch_seconds': expected seconds from 0"},
      {[](OrderedJson& j) { j["float64"]["elementwise"]["flops_per_second"] = -1; }, "got -1; correct it"},
      {[](OrderedJson& j) { j["memory_bytes"] = 1.5; }, "'memory_bytes': expected a whole number of bytes from 1"},
      {[](OrderedJson& j) { j["copy_engines"] = 100; },
       "'copy_engines': expected a whole number from 0 to 16, got 100"},
      {[](OrderedJson& j) { j = OrderedJson::array({1}); }, "mine.json: expected an object"},
  };
  for (const auto& [edit, text] : mistakes) {
    auto json = parse_json<OrderedJson>(right, "right");
    edit(json);
    EXPECT_TRUE(fails_with<DataError>({text}, [&] { device_model_from_json(json.dump(), "mine.json"); }));
  }
}

TEST(DeviceModel, DamagedFileIsRefused) {
  const std::string right = to_json(device_model("h200"));
  const auto fails = [](const std::string& text, const char* problem) {
    return fails_with<DataError>({"mine.json", problem}, [&] { device_model_from_json(text, "mine.json"); });
  };
  EXPECT_TRUE(fails(right + "}", "is not valid JSON"));
  EXPECT_TRUE(fails(right + std::string(1, '\0'), "is not valid JSON"));
  EXPECT_TRUE(fails(right.substr(0, right.size() / 2), "is not valid JSON"));
  EXPECT_TRUE(fails("", "is not valid JSON"));
  EXPECT_TRUE(fails("{\"name\": \"a\", \"name\": \"b\"}", "contains 'name' twice"));
  const std::string bandwidth = "\"bytes_per_second\": ";
  const std::size_t value = right.find(bandwidth) + bandwidth.size();
  EXPECT_TRUE(fails(right.substr(0, value) + "NaN" + right.substr(right.find(',', value)), "is not valid JSON"));
  EXPECT_TRUE(fails(right.substr(0, value) + "1e999" + right.substr(right.find(',', value)), "out of range"));
}

}  // namespace
}  // namespace stagecoach
