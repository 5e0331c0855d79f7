#include "chapters/calibrate/timings.h"

#include <algorithm>
#include <limits>
#include <regex>
#include <sstream>
#include <utility>

#include "chapters/calibrate/kernel_call.h"
#include "core/autograd/backward.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "core/cuda_backend.h"
#include "core/kernel_meter.h"
#include "core/ops.h"
#include "datasets/generated.h"
#include "datasets/loader.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "parallel/comm/clock.h"

namespace stagecoach {
namespace {

constexpr Device kMeta{DeviceType::meta};

/// Returns the seconds of one call of `work`, which computes on `device`: the least of several, each of which repeats
/// it for 2 ms. On a CPU they are the thread's own, so other programs disturb little.
double fastest(Device device, const std::function<void()>& work) {
  constexpr int kTimes = 7;
  constexpr double kSeconds = 2e-3;
  const auto clock = make_clock(ClockKind::virtual_time, device, {});
  const auto seconds_of = [&](int repeats) {
    const double begin = clock->now();
    for (int i = 0; i < repeats; ++i) {
      work();
    }
    return (clock->now() - begin) / repeats;
  };
  work();  // what only the first call does
  const int repeats = std::max(static_cast<int>(kSeconds / std::max(seconds_of(1), 1e-9)), 1);
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    least = std::min(least, seconds_of(repeats));
  }
  return least;
}

/// Returns the seconds of a call. On a GPU many are recorded as a graph, so that the host does not count.
double measured_seconds(const KernelCall& call, Device device) {
  if (device.type == DeviceType::cpu) {
    return fastest(device, call.run);
  }
  constexpr int kCalls = 20;
  call.run();  // loads the kernel
  const auto graph = cuda::record_graph(device, [&] {
    for (int i = 0; i < kCalls; ++i) {
      call.run();
    }
  });
  return fastest(device, [&] { graph->launch(); }) / kCalls;
}

/// Returns the operations per second of a large product.
double measured_product_rate(Device device, DType dtype) {
  const std::int64_t n = device.type == DeviceType::cpu ? 512 : 2048;
  const auto tensor = [&](const Shape& shape) { return Tensor::full(shape, 0.5, dtype, device); };
  Tensor y = tensor({n, n});
  const KernelCall call{
      kernel_costs().linear(y, y, {}, y),
      [x = tensor({n, n}), weight = tensor({n, n}), y, device]() mutable { kernels(device).linear(x, weight, {}, y); }};
  return static_cast<double>(call.cost.flops) / measured_seconds(call, device);
}

/// Counts the kernels of its thread.
class KernelCounter final : public KernelMeter {
 public:
  void add(const char* /*name*/, Device /*device*/, const KernelCost& /*cost*/) override { ++count_; }
  int count() const { return count_; }

 private:
  int count_ = 0;
};

/// A training step of the model "toy" with one sample.
std::function<void()> toy_step(Device device) {
  const auto model = make_model("toy");
  model->materialize(0, device);
  const std::shared_ptr<Optimizer> optimizer = make_optimizer(OptimizerKind::sgd, model->named_parameters(), 1e-6);
  const Tensor x = Tensor::zeros({1, 4}, DType::float32, device);
  const Tensor y = Tensor::zeros({1, 2}, DType::float32, device);
  return [=] {
    backward(mean_squared_error(model->forward(x), y));
    optimizer->step();
    optimizer->zero_grad();
  };
}

}  // namespace

Timings measured_timings(Device device, bool tf32) {
  Timings timings;
  timings.best_float32 = measured_product_rate(device, DType::float32);
  timings.best_float64 = measured_product_rate(device, DType::float64);
  if (tf32) {
    cuda::allow_tf32(true);
    timings.best_tf32 = measured_product_rate(device, DType::float32);
  }
  const auto measure = [&](const std::string& model, std::int64_t images) {
    for (const std::string& name : kernel_call_names(model, images)) {
      const KernelCall call = kernel_call(name, device);
      timings.calls.push_back(
          {name, fmt::format("{} {}", model, images), call.cost, tf32, measured_seconds(call, device)});
    }
  };
  const std::vector<std::int64_t> sizes =
      device.type == DeviceType::cpu ? std::vector<std::int64_t>{4, 16, 64} : std::vector<std::int64_t>{64, 512};
  for (const std::int64_t images : sizes) {
    measure("convnet", images);
    if (device.type == DeviceType::cuda || images < 64) {  // larger ones take seconds
      measure("vit", images);
      measure("resnet18", images);
    }
  }
  return timings;
}

Timings timings_of_page(const std::string& file) {
  const std::regex title(R"(### (\w+), batch (\d+).*, (float32|TF32))");
  const std::regex row(R"(\| ([^|]+) \| ([\d.]+) \|.*)");
  const std::regex best(R"(\| best (float32|TF32) product .*\| ([\d.]+) TFLOP/s \|)");
  Timings timings;
  Timing next;
  std::istringstream page(read_text(file, "give a page that cuda_kernels_benchmark printed"));
  bool in_table = false;
  for (std::string line; std::getline(page, line);) {
    std::smatch found;
    if (std::regex_match(line, found, best)) {
      (found[1] == "TF32" ? timings.best_tf32 : timings.best_float32) = 1e12 * std::stod(found[2]);
    } else if (line.starts_with("#")) {
      in_table = std::regex_match(line, found, title);
      next.model = in_table ? fmt::format("{} {}", found[1].str(), found[2].str()) : "";
      next.tf32 = in_table && found[3] == "TF32";
    } else if (in_table && std::regex_match(line, found, row)) {
      next.name = found[1];
      next.cost = kernel_call(next.name, kMeta).cost;
      next.seconds = 1e-6 * std::stod(found[2]);
      timings.calls.push_back(next);
    }
  }
  timings.best_float64 = timings.best_float32 / 2;  // as data sheets say; no page has it
  throw_if<DataError>(timings.calls.empty() || timings.best_float32 <= 0,
                      "{}: expected tables of cuda_kernels_benchmark, got none", file);
  return timings;
}

double seconds_per_operation(Device device) {
  const std::function<void()> counted = toy_step(kMeta);
  const int kernels_per_step = [&] {
    const KernelCounter counter;
    counted();
    return counter.count();
  }();
  return fastest(device, toy_step(device)) / kernels_per_step;
}

double loaded_bytes_per_second() {
  constexpr std::int64_t kImages = 20000;  // more than fits a cache
  Loader loader(generate({.train = kImages, .test = 10}).train, {.prefetch = false});
  const double seconds = fastest({}, [&] {
    loader.start_epoch(0);
    while (loader.next()) {
    }
  });
  return static_cast<double>(kImages * 3 * 32 * 32) / seconds;
}

double host_bytes_per_second(Device device) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 26;
  const Tensor host = Tensor::zeros({kBytes}, DType::uint8);
  Tensor there = Tensor::zeros({kBytes}, DType::uint8, device);
  return static_cast<double>(kBytes) / fastest(device, [&] { kernels(device).copy(host, there); });
}

}  // namespace stagecoach
