/// @file
/// How fast each of the four convolution kernels is: the measured column of docs/convolution_kernel.md, for the layers
/// of scripts/convolution_arithmetic.py.
///
///     convolution_steps_benchmark            Markdown, on standard output

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "core/cuda/queues.h"
#include "core/cuda_backend.h"
#include "core/kernels/cuda/functions.h"
#include "tests/benchmarks/cuda_work.h"

namespace stagecoach {
namespace {

using cuda::ConvExtents;
using cuda::ProductKernel;

struct Layer {
  std::string name;
  int samples, channels, extent, outputs, kernel, padding;

  ConvExtents extents() const {
    const int positions = extent + 2 * padding - kernel + 1;
    return {samples, channels, extent, extent, outputs, kernel, 1, padding, positions, positions};
  }
};

struct Step {
  const char* name;
  ProductKernel kernel;
};
constexpr Step kSteps[] = {{"plain", ProductKernel::plain},
                           {"tiled", ProductKernel::tiled},
                           {"registers", ProductKernel::registers},
                           {"tensor cores", ProductKernel::tensor_cores}};

/// Seconds of one forward pass.
double seconds_of(ProductKernel kernel, const ConvExtents& e) {
  const Tensor x = random_tensor({e.samples, e.channels, e.height, e.width});
  const Tensor weight = random_tensor({e.outputs, e.channels, e.kernel, e.kernel});
  const Tensor bias = random_tensor({e.outputs});
  Tensor y = random_tensor({e.samples, e.outputs, e.rows, e.columns});
  const cuda::ProductPlan plan = plan_product(kernel, e.forward());
  Tensor partial = random_tensor({std::max<std::int64_t>(plan.partial_elements(e.forward()), 1)});
  return our_seconds([&] {
    cuda::conv2d(cuda::compute_stream(kGpu), plan, e, x.data<float>(), weight.data<float>(), bias.data<float>(),
                 y.mutable_data<float>(), partial.mutable_data<float>());
  });
}

void print_layer(const Layer& layer) {
  const ConvExtents e = layer.extents();
  const auto [rows, columns, depth] = e.forward();
  const double operations = 2.0 * rows * columns * depth;
  fmt::print("\n**{}**\n\n| kernel | measured, us | GFLOP/s | times as fast as plain |\n|---|---:|---:|---:|\n",
             layer.name);
  double plain = 0;
  for (const Step& step : kSteps) {
    cuda::allow_tf32(true);
    if (step.kernel == ProductKernel::tensor_cores && !cuda::uses_tf32(kGpu)) {
      fmt::print("| {} | this GPU has none for TF32 | | |\n", step.name);
      continue;
    }
    const double seconds = seconds_of(step.kernel, e);
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
