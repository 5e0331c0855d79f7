/// @file
/// How fast the CPU kernels are: each operation of a training step, beside its plain form and OpenBLAS on the same
/// product (for a convolution: im2col and one product, the usual way), and the share of the best matrix-product rate of
/// this machine that it reaches. That rate is measured first: the best of OpenBLAS and our own product, over a few
/// shapes.
///
///     cpu_kernels_benchmark                      a table
///     cpu_kernels_benchmark --benchmark_format=json | kernel_table.py      the table in Markdown

#include <benchmark/benchmark.h>
#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "core/autograd/backward.h"
#include "core/kernels/costs.h"
#include "core/kernels/cpu/attention.h"
#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/linear.h"
#include "core/kernels/kernels.h"
#include "core/ops.h"
#include "core/random.h"
#include "nn/models.h"
#include "nn/optimizer.h"

extern "C" void openblas_set_num_threads(int threads);

namespace stagecoach {
namespace {

double best_rate = 0;  // floating-point operations a second

Tensor random_tensor(const Shape& shape) {
  Tensor tensor = Tensor::empty(shape);
  auto* values = tensor.mutable_data<float>();
  const Philox random(0, "benchmark");
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(random.uniform(static_cast<std::uint64_t>(i))) - 0.5F;
  }
  return tensor;
}

double best_seconds(int repeats, const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void sgemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
           const float* b, float* c) {
  const auto lda = static_cast<int>(ta == CblasNoTrans ? k : m);
  const auto ldb = static_cast<int>(tb == CblasNoTrans ? n : k);
  cblas_sgemm(CblasRowMajor, ta, tb, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1, a, lda, b, ldb,
              0, c, static_cast<int>(n));
}

/// The best of both libraries over square and over layer-shaped products, each the best of many tries.
void measure_best_rate() {
  struct Product {
    std::int64_t rows, depth, columns;
  };
  for (const auto& [m, k, n] :
       {Product{64, 120, 400}, {64, 400, 128}, {128, 128, 128}, {256, 256, 256}, {512, 512, 512}, {1024, 1024, 1024}}) {
    const Tensor a = random_tensor({m, k});
    const Tensor b = random_tensor({k, n});
    Tensor c = random_tensor({m, n});
    const auto operations = static_cast<double>(kernel_costs().linear_grad_input(a, b, c).flops);
    const int tries = std::max(10, static_cast<int>(1e10 / operations));
    const double blas = best_seconds(tries, [&] {
      sgemm(CblasNoTrans, CblasNoTrans, m, n, k, a.data<float>(), b.data<float>(), c.mutable_data<float>());
    });
    const double own = best_seconds(tries, [&] { kernels({}).linear_grad_input(a, b, c); });
    best_rate = std::max({best_rate, operations / blas, operations / own});
  }
}

void report(benchmark::State& state, double operations) {
  state.counters["GFLOP/s"] = benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["of_best"] = benchmark::Counter(operations / best_rate, benchmark::Counter::kIsIterationInvariantRate);
}

void add(const std::string& name, double operations, std::function<void()> body) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    for ([[maybe_unused]] auto unused : state) {
      body();
    }
    if (operations > 0) {
      report(state, operations);
    }
  })->Unit(benchmark::kMicrosecond);
}

void add_linear(const std::string& name, std::int64_t samples, std::int64_t inputs, std::int64_t outputs) {
  const Tensor x = random_tensor({samples, inputs});
  const Tensor weight = random_tensor({outputs, inputs});
  const Tensor bias = random_tensor({outputs});
  Tensor y = random_tensor({samples, outputs});
  Tensor grad_x = random_tensor({samples, inputs});
  Tensor grad_weight = random_tensor({outputs, inputs});
  Tensor none;
  const auto operations = static_cast<double>(kernel_costs().linear(x, weight, bias, y).flops);  // of each product
  add(name + "/forward", operations, [=]() mutable { kernels({}).linear(x, weight, bias, y); });
  add(name + "/forward/plain", operations, [=]() mutable {
    cpu::plain::linear({samples, inputs, outputs}, x.data<float>(), weight.data<float>(), bias.data<float>(),
                       y.mutable_data<float>());
  });
  add(name + "/forward/openblas", operations, [=]() mutable {
    sgemm(CblasNoTrans, CblasTrans, samples, outputs, inputs, x.data<float>(), weight.data<float>(),
          y.mutable_data<float>());
  });
  add(name + "/grad_input", operations, [=]() mutable { kernels({}).linear_grad_input(y, weight, grad_x); });
  add(name + "/grad_input/openblas", operations, [=]() mutable {
    sgemm(CblasNoTrans, CblasNoTrans, samples, inputs, outputs, y.data<float>(), weight.data<float>(),
          grad_x.mutable_data<float>());
  });
  add(name + "/grad_weight", operations, [=]() mutable { kernels({}).linear_grad_weight(y, x, grad_weight, none); });
  add(name + "/grad_weight/openblas", operations, [=]() mutable {
    sgemm(CblasTrans, CblasNoTrans, outputs, inputs, samples, y.data<float>(), x.data<float>(),
          grad_weight.mutable_data<float>());
  });
}

/// columns [C K K, P Q] of one image: what makes a convolution a matrix product.
void im2col(const float* x, std::int64_t channels, std::int64_t extent, const Window& window, float* columns) {
  const std::int64_t positions = window.positions(extent);
  for (std::int64_t row = 0; row < channels * window.kernel * window.kernel; ++row) {
    const std::int64_t c = row / (window.kernel * window.kernel);
    const std::int64_t i = row / window.kernel % window.kernel;
    const std::int64_t j = row % window.kernel;
    for (std::int64_t p = 0; p < positions; ++p) {
      const std::int64_t h = p * window.stride + i - window.padding;
      for (std::int64_t q = 0; q < positions; ++q) {
        const std::int64_t w = q * window.stride + j - window.padding;
        const bool inside = h >= 0 && h < extent && w >= 0 && w < extent;
        *columns++ = inside ? x[(c * extent + h) * extent + w] : 0;
      }
    }
  }
}

void add_conv(const std::string& name, std::int64_t samples, std::int64_t channels, std::int64_t extent,
              std::int64_t outputs, const Window& window) {
  const std::int64_t positions = window.positions(extent);
  const std::int64_t taps = channels * window.kernel * window.kernel;
  const Tensor x = random_tensor({samples, channels, extent, extent});
  const Tensor weight = random_tensor({outputs, channels, window.kernel, window.kernel});
  const Tensor bias = random_tensor({outputs});
  Tensor y = random_tensor({samples, outputs, positions, positions});
  Tensor grad_x = random_tensor(x.shape());
  Tensor grad_weight = random_tensor(weight.shape());
  Tensor none;
  Tensor columns = random_tensor({taps, positions * positions});
  const auto operations = static_cast<double>(kernel_costs().conv2d(x, weight, bias, window, y).flops);  // of each
  add(name + "/forward", operations, [=]() mutable { kernels({}).conv2d(x, weight, bias, window, y); });
  if (operations < 1e8) {  // the plain form would take seconds on the larger ones
    add(name + "/forward/plain", operations, [=]() mutable {
      cpu::plain::conv2d({samples, channels, extent, extent, outputs, window}, x.data<float>(), weight.data<float>(),
                         bias.data<float>(), y.mutable_data<float>());
    });
  }
  add(name + "/forward/openblas", operations, [=]() mutable {
    for (std::int64_t n = 0; n < samples; ++n) {
      auto* column = columns.mutable_data<float>();
      im2col(x.data<float>() + n * x.numel() / samples, channels, extent, window, column);
      sgemm(CblasNoTrans, CblasNoTrans, outputs, positions * positions, taps, weight.data<float>(), column,
            y.mutable_data<float>() + n * y.numel() / samples);
    }
  });
  add(name + "/grad_input", operations, [=]() mutable { kernels({}).conv2d_grad_input(y, weight, window, grad_x); });
  add(name + "/grad_weight", operations,
      [=]() mutable { kernels({}).conv2d_grad_weight(y, x, window, grad_weight, none); });
}

void add_attention(const cpu::AttentionShape& shape) {
  const auto& [samples, tokens, width, heads, mask] = shape;
  const std::string name =
      fmt::format("attention {}x{}x{}{}", samples, tokens, width, mask == AttentionMask::causal ? ", causal" : "");
  const Tensor qkv = random_tensor({samples, tokens, 3 * width});
  const Tensor grad = random_tensor({samples, tokens, width});
  Tensor y = random_tensor({samples, tokens, width});
  Tensor grad_qkv = random_tensor({samples, tokens, 3 * width});
  const auto operations = static_cast<double>(kernel_costs().attention(qkv, heads, mask, y).flops);
  const auto grad_operations =
      static_cast<double>(kernel_costs().attention_grad(grad, qkv, heads, mask, grad_qkv).flops);
  add(name, operations, [=]() mutable { kernels({}).attention(qkv, shape.heads, shape.mask, y); });
  add(name + "/plain", operations,
      [=]() mutable { cpu::plain::attention(shape, qkv.data<float>(), y.mutable_data<float>()); });
  add(name + "/grad", grad_operations,
      [=]() mutable { kernels({}).attention_grad(grad, qkv, shape.heads, shape.mask, grad_qkv); });
}

/// The kernels of a transformer block, besides its linear layers: x [samples, tokens, width].
void add_block(std::int64_t samples, std::int64_t tokens, std::int64_t width, std::int64_t heads) {
  add_attention({samples, tokens, width, heads});
  const std::string size = fmt::format(" {}x{}x{}", samples, tokens, width);
  const std::int64_t rows = samples * tokens;
  const Tensor x = random_tensor({rows, width});
  const Tensor weight = random_tensor({width});
  Tensor normal = random_tensor({rows, width});
  Tensor mean = random_tensor({rows});
  Tensor rstd = random_tensor({rows});
  add("layer_norm" + size, 0, [=]() mutable { kernels({}).layer_norm(x, weight, weight, 1e-5, normal, mean, rstd); });
  const Tensor hidden = random_tensor({rows, 4 * width});
  Tensor activated = random_tensor({rows, 4 * width});
  for (const auto& [name, form] :
       {std::pair("gelu, tanh form,", GeluForm::tanh), {"gelu, exact form,", GeluForm::exact}}) {
    add(name + fmt::format(" {}x{}", rows, 4 * width), 0,
        [=, form = form]() mutable { kernels({}).gelu(hidden, form, activated); });
  }
}

/// One whole training step: forward, backward and optimizer.
void add_step(const std::string& model_name, std::int64_t batch, double operations_a_picture) {
  const std::shared_ptr<Sequential> model = make_model(model_name);
  model->materialize(0);
  const std::shared_ptr<Optimizer> optimizer = make_optimizer(OptimizerKind::adam, model->named_parameters(), 0.001);
  const std::int64_t size = default_image_size(model_name);
  Tensor images = Tensor::empty({batch, 3, size, size}, DType::uint8);
  Tensor labels = Tensor::empty({batch}, DType::int32);
  const Philox random(0, "pictures");  // random labels: a loss that reached 0 would leave only denormal gradients
  for (std::int64_t i = 0; i < images.numel(); ++i) {
    images.mutable_data<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.word(static_cast<std::uint64_t>(i)));
  }
  for (std::int64_t n = 0; n < batch; ++n) {
    labels.mutable_data<std::int32_t>()[n] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n), 10));
  }
  add("step/" + model_name + "/" + std::to_string(batch), operations_a_picture * static_cast<double>(batch), [=] {
    backward(cross_entropy(model->forward(normalize(images)), labels));
    optimizer->step();
    optimizer->zero_grad();
  });
}

void add_all() {
  add_conv("conv 64x3x32x32 to 6, k5", 64, 3, 32, 6, {5, 1, 0});
  add_conv("conv 64x6x14x14 to 16, k5", 64, 6, 14, 16, {5, 1, 0});
  add_conv("conv 32x64x32x32 to 64, k3 p1", 32, 64, 32, 64, {3, 1, 1});
  add_conv("conv 32x64x32x32 to 128, k3 s2 p1", 32, 64, 32, 128, {3, 2, 1});
  add_conv("conv 32x512x4x4 to 512, k3 p1", 32, 512, 4, 512, {3, 1, 1});
  add_conv("conv 32x256x16x16 to 64, k1", 32, 256, 16, 64, {1, 1, 0});
  add_linear("linear 64x400 to 120", 64, 400, 120);
  add_linear("linear 64x120 to 84", 64, 120, 84);
  add_linear("linear 64x84 to 10", 64, 84, 10);
  add_linear("linear 1024x400 to 120", 1024, 400, 120);

  const Tensor maps = random_tensor({64, 6, 28, 28});
  Tensor other = random_tensor({64, 6, 28, 28});
  Tensor pooled = random_tensor({64, 6, 14, 14});
  Tensor argmax = Tensor::zeros({64, 6, 14, 14}, DType::int32);
  add("relu 64x6x28x28", 0, [=]() mutable { kernels({}).relu(maps, other); });
  add("relu_grad 64x6x28x28", 0, [=]() mutable { kernels({}).relu_grad(other, maps, other); });
  add("max_pool2d 64x6x28x28", 0, [=]() mutable { kernels({}).max_pool2d(maps, {2, 2, 0}, pooled, argmax); });
  add("max_pool2d_grad 64x6x28x28", 0, [=]() mutable {
    kernels({}).max_pool2d_grad(pooled, argmax, {2, 2, 0}, other);
  });

  // Multiply-adds of convnet's forward: 352,800 + 240,000 + 48,000 + 10,080 + 840. The backward does each twice, but
  // for the first convolution, whose input needs no gradient.
  add_step("convnet", 64, 2.0 * (3 * 651720.0 - 352800));
  add_step("convnet", 1024, 2.0 * (3 * 651720.0 - 352800));

  add_linear("linear 4096x64 to 192", 4096, 64, 192);
  add_block(64, 64, 64, 4);
  for (const AttentionMask mask : {AttentionMask::none, AttentionMask::causal}) {
    add_attention({16, 256, 64, 4, mask});
  }
  add_step("vit", 64, 0.177e9);  // as epoch_ratio.py counts it
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  openblas_set_num_threads(1);
  stagecoach::measure_best_rate();
  benchmark::AddCustomContext("best_gflops", std::to_string(stagecoach::best_rate * 1e-9));
  stagecoach::add_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
