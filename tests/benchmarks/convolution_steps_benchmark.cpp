/// @file
/// How fast each of the five convolution kernels is: the measured column of docs/convolution_kernel.md, for the layers
/// of scripts/convolution_arithmetic.py.
///
///     convolution_steps_benchmark            Markdown, on standard output

#include <fmt/core.h>

#include <string>

#include "core/cuda_backend.h"
#include "core/kernels/costs.h"
#include "core/kernels/cuda/products.h"
#include "tests/benchmarks/cuda_work.h"

namespace stagecoach {
namespace {

using cuda::ProductExtents;
using cuda::ProductKernel;

struct Layer {
  std::string name;
  int samples, channels, extent, outputs, kernel, padding;

  Window window() const { return {kernel, 1, padding}; }
  int positions() const { return static_cast<int>(window().positions(extent)); }
};

template <ProductKernel kernel>
cuda::ProductPlan plan_by(const ProductExtents& e, DType /*dtype*/, Device /*device*/) {
  return plan_product(kernel, e);
}

bool always() { return true; }
bool has_tensor_cores() { return cuda::uses_tf32(kGpu); }
bool has_warpgroups() { return cuda::has_warpgroups(kGpu); }

struct Step {
  const char* name;
  cuda::Planner planner;
  bool (*runs_here)();
};
constexpr Step kSteps[] = {{"plain", plan_by<ProductKernel::plain>, always},
                           {"tiled", plan_by<ProductKernel::tiled>, always},
                           {"registers", plan_by<ProductKernel::registers>, always},
                           {"tensor cores", plan_by<ProductKernel::tensor_cores>, has_tensor_cores},
                           {"warpgroups", plan_by<ProductKernel::warpgroups>, has_warpgroups}};

void print_layer(const Layer& layer) {
  const Tensor x = random_tensor({layer.samples, layer.channels, layer.extent, layer.extent});
  const Tensor weight = random_tensor({layer.outputs, layer.channels, layer.kernel, layer.kernel});
  const Tensor bias = random_tensor({layer.outputs});
  Tensor y = random_tensor({layer.samples, layer.outputs, layer.positions(), layer.positions()});
  const auto operations = static_cast<double>(kernel_costs().conv2d(x, weight, bias, layer.window(), y).flops);
  fmt::print("\n**{}**\n\n| kernel | measured, us | GFLOP/s | times as fast as plain |\n|---|---:|---:|---:|\n",
             layer.name);
  double plain = 0;
  for (const Step& step : kSteps) {
    cuda::allow_tf32(true);
    if (!step.runs_here()) {
      fmt::print("| {} | not on this GPU | | |\n", step.name);
      continue;
    }
    const double seconds = our_seconds([&] { cuda::conv2d(x, weight, bias, layer.window(), y, step.planner); });
    plain = plain == 0 ? seconds : plain;
    fmt::print("| {} | {:.1f} | {:.0f} | {:.1f} |\n", step.name, 1e6 * seconds, 1e-9 * operations / seconds,
               plain / seconds);
  }
}

}  // namespace
}  // namespace stagecoach

int main() {
  using namespace stagecoach;
  return run_on_gpu("convolution_steps_benchmark", [] {
    fmt::print("{}\n", cuda::description(kGpu));
    print_layer({"convnet conv1, batch 64", 64, 3, 32, 6, 5, 0});
    print_layer({"convnet conv2, batch 64", 64, 6, 14, 16, 5, 0});
    print_layer({"resnet18 64 channels, batch 512", 512, 64, 32, 64, 3, 1});
  });
}
