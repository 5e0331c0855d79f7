/// @file
/// How fast the CUDA kernels are: each operation of a training step beside the least time that this GPU would need for
/// it, and beside cuBLAS and cuDNN where they are there.
///
///     cuda_kernels_benchmark            Markdown, on standard output; exit 1 when a row failed
///
/// The least time (the floor) is the largest of three: the operations at the best rate of a matrix product, the bytes
/// at the best rate of a copy, and what any kernel takes that does nothing. All three rates are measured first.

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "core/autograd/backward.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/replay.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "tests/benchmarks/cuda_peers.h"
#include "tests/benchmarks/cuda_work.h"

namespace stagecoach {
namespace {

const Kernels& gpu() { return kernels(kGpu); }

Tensor random_labels(std::int64_t count) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
  const Philox random(0, "labels");
  for (std::size_t n = 0; n < labels.size(); ++n) {
    labels[n] = static_cast<std::int32_t>(random.below(n, 10));
  }
  return Tensor::from(labels, {count}, kGpu);
}

Tensor random_pictures(std::int64_t count) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * 3 * 32 * 32));
  const Philox random(0, "pictures");
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(random.word(i));
  }
  return Tensor::from(pixels, {count, 3, 32, 32}, kGpu);
}

/// What the GPU can do, as measured: operations and bytes per second, and the seconds of a kernel that does nothing.
struct Rates {
  double fp32 = 0;
  double tf32 = 0;
  double memory = 0;
  double cache = 0;  // of tensors that fit the second-level cache
  double start = 0;
};
Rates rates;
GpuFacts facts;
Precision precision = Precision::fp32;
bool failed = false;

void use(Precision wanted) {
  precision = wanted;
  cuda::allow_tf32(wanted == Precision::tf32);
}

/// The best of cuBLAS and our own product on large squares.
double measure_product_rate(Precision wanted) {
  use(wanted);
  double best = 0;
  for (const std::int64_t n : {4096, 8192}) {
    const Tensor x = random_tensor({n, n});
    const Tensor weight = random_tensor({n, n});
    Tensor y = random_tensor({n, n});
    const double operations = 2.0 * static_cast<double>(n * n * n);
    best = std::max(best, operations / our_seconds([&] { gpu().linear(x, weight, {}, y); }));
    if (const auto seconds = cublas_linear_seconds(Pass::forward, wanted, x, weight, y)) {
      best = std::max(best, operations / *seconds);
    }
  }
  return best;
}

/// The best of a copy and a product with a number: each reads and writes `bytes` in all.
double measure_copy_rate(std::int64_t bytes) {
  const Tensor x = random_tensor({bytes / 8});
  Tensor y = random_tensor({bytes / 8});
  const double seconds = std::min(our_seconds([&] { gpu().copy(x, y); }), our_seconds([&] { gpu().scale(x, 0.5, y); }));
  return static_cast<double>(bytes) / seconds;
}

void measure_rates() {
  facts = gpu_facts();
  rates.fp32 = measure_product_rate(Precision::fp32);
  rates.tf32 = measure_product_rate(Precision::tf32);
  rates.memory = measure_copy_rate(std::int64_t{1} << 30);
  rates.cache = std::max(rates.memory, measure_copy_rate(facts.cache_bytes / 4));
  Tensor one = random_tensor({1});
  rates.start = our_seconds([&] { gpu().fill(0, one); });
}

/// One line of a table.
struct Row {
  std::string name;
  Work body;
  double operations = 0;  // additions and multiplications of the textbook's formula, where a product is taken
  double bytes = 0;       // each input read once and each output written once
  std::function<std::optional<double>()> peer = [] { return std::nullopt; };
};

struct Floor {
  double seconds = 0;
  const char* bound = "";
};

Floor floor_of(const Row& row) {
  // Half the cache: as much again may still lie there from before.
  const bool in_cache = row.bytes <= static_cast<double>(facts.cache_bytes) / 2;
  const Floor arithmetic{row.operations / (precision == Precision::tf32 ? rates.tf32 : rates.fp32), "arithmetic"};
  const Floor memory{row.bytes / (in_cache ? rates.cache : rates.memory), in_cache ? "cache" : "memory"};
  const Floor start{rates.start, "start"};
  return std::max({arithmetic, memory, start}, [](const Floor& a, const Floor& b) { return a.seconds < b.seconds; });
}

void print(const Row& row) {
  try {
    const double seconds = our_seconds(row.body);
    const std::optional<double> peer = row.peer();
    const Floor floor = floor_of(row);
    fmt::print("| {} | {:.1f} | {:.1f} | {:.0f}% | {} | {} | {:.0f} | {} | {} |\n", row.name, 1e6 * seconds,
               1e6 * floor.seconds, 100 * floor.seconds / seconds, floor.bound,
               row.operations > 0 ? fmt::format("{:.0f}", 1e-9 * row.operations / seconds) : "",
               1e-9 * row.bytes / seconds, peer ? fmt::format("{:.1f}", 1e6 * *peer) : "",
               peer ? fmt::format("{:.2f}", *peer / seconds) : "");
  } catch (const std::exception& error) {
    failed = true;
    fmt::print("| {} | failed: {} | | | | | | | |\n", row.name, error.what());
  }
  std::fflush(stdout);
}

void begin_table(const std::string& title, Precision wanted) {
  use(wanted);
  fmt::print("\n### {}, {}\n\n", title, wanted == Precision::tf32 ? "TF32" : "float32");
  fmt::print("| operation | µs | floor µs | of the floor | bound by | GFLOP/s | GB/s | peer µs | peer / ours |\n");
  fmt::print("|---|---:|---:|---:|---|---:|---:|---:|---:|\n");
}

double bytes_of(std::initializer_list<Tensor> tensors) {
  double sum = 0;
  for (const Tensor& tensor : tensors) {
    sum += static_cast<double>(tensor.bytes());
  }
  return sum;
}

void print_linear(std::int64_t samples, std::int64_t inputs, std::int64_t outputs) {
  const std::string name = fmt::format("linear {}x{} to {}", samples, inputs, outputs);
  Tensor x = random_tensor({samples, inputs});
  Tensor weight = random_tensor({outputs, inputs});
  Tensor y = random_tensor({samples, outputs});
  Tensor none;
  const Tensor bias = random_tensor({outputs});
  const double operations = 2.0 * static_cast<double>(samples * inputs * outputs);
  const double bytes = bytes_of({x, weight, y});
  const auto peer = [&](Pass pass) { return [=] { return cublas_linear_seconds(pass, precision, x, weight, y); }; };
  print({name + ", forward", [&] { gpu().linear(x, weight, bias, y); }, operations, bytes, peer(Pass::forward)});
  print({name + ", input gradient", [&] { gpu().linear_grad_input(y, weight, x); }, operations, bytes,
         peer(Pass::grad_input)});
  print({name + ", weight gradient", [&] { gpu().linear_grad_weight(y, x, weight, none); }, operations, bytes,
         peer(Pass::grad_weight)});
  Tensor sums = random_tensor({outputs});
  print({name + ", weight and bias", [&] { gpu().linear_grad_weight(y, x, weight, sums); }, operations, bytes});
}

struct Convolution {
  std::int64_t channels;
  std::int64_t extent;
  std::int64_t outputs;
  Window window;
  bool bias = false;
  bool first = false;  // then nobody needs the gradient of its input
};

void print_conv2d(std::int64_t samples, const Convolution& c) {
  const std::int64_t positions = c.window.positions(c.extent);
  const std::string name = fmt::format("conv {}x{}x{}x{} to {}, k{} s{} p{}", samples, c.channels, c.extent, c.extent,
                                       c.outputs, c.window.kernel, c.window.stride, c.window.padding);
  Tensor x = random_tensor({samples, c.channels, c.extent, c.extent});
  Tensor weight = random_tensor({c.outputs, c.channels, c.window.kernel, c.window.kernel});
  Tensor y = random_tensor({samples, c.outputs, positions, positions});
  Tensor none;
  const Tensor bias = c.bias ? random_tensor({c.outputs}) : Tensor();
  const double operations = 2.0 * static_cast<double>(y.numel() * c.channels * c.window.kernel * c.window.kernel);
  const double bytes = bytes_of({x, weight, y});
  const auto peer = [&](Pass pass) {
    return [=] { return cudnn_conv2d_seconds(pass, precision, c.window, x, weight, y); };
  };
  print({name + ", forward", [&] { gpu().conv2d(x, weight, bias, c.window, y); }, operations, bytes,
         peer(Pass::forward)});
  if (!c.first) {
    print({name + ", input gradient", [&] { gpu().conv2d_grad_input(y, weight, c.window, x); }, operations, bytes,
           peer(Pass::grad_input)});
  }
  print({name + ", weight gradient", [&] { gpu().conv2d_grad_weight(y, x, c.window, weight, none); }, operations, bytes,
         peer(Pass::grad_weight)});
  if (c.bias) {
    Tensor sums = random_tensor({c.outputs});
    print({name + ", weight and bias", [&] { gpu().conv2d_grad_weight(y, x, c.window, weight, sums); }, operations,
           bytes});
  }
}

void print_relu(const Shape& shape) {
  const std::string name = fmt::format("relu {}", to_string(shape));
  const Tensor x = random_tensor(shape);
  Tensor y = random_tensor(shape);
  Tensor grad = random_tensor(shape);
  print({name, [&] { gpu().relu(x, y); }, 0, bytes_of({x, y})});
  print({name + ", gradient", [&] { gpu().relu_grad(x, y, grad); }, 0, bytes_of({x, y, grad})});
}

void print_max_pool(const Shape& shape) {
  const Window window{2, 2, 0};
  const std::string name = fmt::format("max pool {}", to_string(shape));
  const Tensor x = random_tensor(shape);
  const Shape half{shape[0], shape[1], shape[2] / 2, shape[3] / 2};
  Tensor y = random_tensor(half);
  Tensor argmax = Tensor::zeros(half, DType::int32, kGpu);
  Tensor grad = random_tensor(shape);
  const double bytes = bytes_of({x, y, argmax});
  print({name, [&] { gpu().max_pool2d(x, window, y, argmax); }, 0, bytes});
  print({name + ", gradient", [&] { gpu().max_pool2d_grad(y, argmax, window, grad); }, 0, bytes});
}

void print_batch_norm(const Shape& shape) {
  const std::string name = fmt::format("batch norm {}", to_string(shape));
  const Tensor x = random_tensor(shape);
  const Tensor grad_y = random_tensor(shape);
  const Shape channels{shape[1]};
  const Tensor weight = random_tensor(channels);
  const Tensor bias = random_tensor(channels);
  Tensor y = random_tensor(shape);
  Tensor mean = random_tensor(channels);
  Tensor variance = Tensor::full(channels, 1, DType::float32, kGpu);
  Tensor deviation = Tensor::full(channels, 1, DType::float32, kGpu);
  Tensor grad_weight = random_tensor(channels);
  Tensor grad_bias = random_tensor(channels);
  print({name + ", statistics", [&] { gpu().batch_statistics(x, mean, variance); }, 0, bytes_of({x})});
  print({name, [&] { gpu().batch_norm(x, mean, deviation, weight, bias, y); }, 0, bytes_of({x, y})});
  print({name + ", weight gradient",
         [&] { gpu().batch_norm_grad_weight(grad_y, x, mean, deviation, grad_weight, grad_bias); }, 0,
         bytes_of({grad_y, x})});
  const std::int64_t count = x.numel() / x.size(1);
  print({name + ", input gradient",
         [&] {
           gpu().batch_norm_grad_input_of_batch(grad_y, x, mean, deviation, weight, grad_weight, grad_bias, count, y);
         },
         0, bytes_of({grad_y, x, y})});
}

void print_ends(std::int64_t samples) {
  const Tensor pictures = random_pictures(samples);
  Tensor images = random_tensor(pictures.shape());
  print({fmt::format("normalize {}", to_string(pictures.shape())), [&] { gpu().normalize(pictures, {}, images); }, 0,
         bytes_of({pictures, images})});

  const std::string rows = fmt::format("{}x10", samples);
  const Tensor logits = random_tensor({samples, 10});
  const Tensor labels = random_labels(samples);
  Tensor probabilities = random_tensor({samples, 10});
  Tensor grad = random_tensor({samples, 10});
  Tensor loss = random_tensor({});
  Tensor count = Tensor::zeros({}, DType::int32, kGpu);
  print({"softmax " + rows, [&] { gpu().softmax(logits, probabilities); }, 0, bytes_of({logits, probabilities})});
  print({"softmax " + rows + ", gradient", [&] { gpu().softmax_grad(logits, probabilities, grad); }, 0,
         bytes_of({logits, probabilities, grad})});
  print({"cross entropy " + rows, [&] { gpu().cross_entropy(logits, labels, 1, loss, probabilities); }, 0,
         bytes_of({logits, labels, probabilities})});
  print({"cross entropy " + rows + ", gradient",
         [&] { gpu().cross_entropy_grad(loss, probabilities, labels, 1, grad); }, 0,
         bytes_of({probabilities, labels, grad})});
  print({"count correct " + rows, [&] { gpu().count_correct(logits, labels, count); }, 0, bytes_of({logits, labels})});
}

void print_adam(const std::string& model_name) {
  const auto model = make_model(model_name);
  model->materialize(0, kGpu);
  std::vector<ParameterUpdate> updates;
  double bytes = 0;
  for (const auto& [name, parameter] : model->named_parameters()) {
    const Tensor moment = Tensor::zeros(parameter.shape(), DType::float32, kGpu);
    updates.push_back({.grad = random_tensor(parameter.shape()),
                       .parameter = parameter,
                       .state = {moment, moment.clone()},
                       .count = Tensor::full({}, 1, DType::int32, kGpu)});
    bytes += 7 * bytes_of({parameter});  // all four are read, and three written
  }
  print({fmt::format("adam, {} tensors of {}", updates.size(), model_name), [&] { gpu().adam_step(updates, {}); }, 0,
         bytes});
}

/// Seconds of one whole training step from its recording: forward, backward and optimizer.
double step_seconds(const std::string& model_name, std::int64_t batch) {
  const auto model = make_model(model_name);
  model->materialize(0, kGpu);
  const auto optimizer = make_optimizer(OptimizerKind::adam, model->named_parameters(), 0.001);
  const std::vector<Tensor> inputs{random_pictures(batch), random_labels(batch)};
  Replay replay(kGpu, true);
  const auto run = [&] {
    replay.run(inputs, [&](std::span<const Tensor> batch_tensors) {
      backward(cross_entropy(model->forward(normalize(batch_tensors[0])), batch_tensors[1]));
      optimizer->step();
      optimizer->zero_grad();
    });
  };
  // Many at once, as in training: there the CPU is ahead of the GPU, which never waits for a step to be given to it.
  const int steps = model_name == "resnet18" ? 4 : 20;
  const auto run_many = [&] {
    for (int i = 0; i < steps; ++i) {
      run();
    }
  };
  run_many();  // warms up and records
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    seconds.push_back(our_stopwatch().seconds(run_many) / steps);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[3];
}

/// No floor is given.
void print_step(const std::string& model_name, std::int64_t batch) {
  const double median = step_seconds(model_name, batch);
  fmt::print("\nA whole step of {} with batch {}, replayed: {:.1f} µs, {:.0f} img/s.\n", model_name, batch,
             1e6 * median, static_cast<double>(batch) / median);
}

void try_step(const std::string& model_name, std::int64_t batch) {
  try {
    print_step(model_name, batch);
  } catch (const std::exception& error) {
    failed = true;
    fmt::print("\nA whole step of {} with batch {} failed: {}\n", model_name, batch, error.what());
  }
  std::fflush(stdout);
}

void print_convnet(std::int64_t batch) {
  begin_table(fmt::format("convnet, batch {}", batch), Precision::fp32);
  print_conv2d(batch, {.channels = 3, .extent = 32, .outputs = 6, .window = {5, 1, 0}, .bias = true, .first = true});
  print_relu({batch, 6, 28, 28});
  print_max_pool({batch, 6, 28, 28});
  print_conv2d(batch, {.channels = 6, .extent = 14, .outputs = 16, .window = {5, 1, 0}, .bias = true});
  print_relu({batch, 16, 10, 10});
  print_max_pool({batch, 16, 10, 10});
  print_linear(batch, 400, 120);
  print_relu({batch, 120});
  print_linear(batch, 120, 84);
  print_linear(batch, 84, 10);
  print_ends(batch);
  print_adam("convnet");
  try_step("convnet", batch);
}

void print_resnet18_products(std::int64_t batch) {
  print_conv2d(batch, {.channels = 3, .extent = 32, .outputs = 64, .window = {3, 1, 1}, .first = true});
  print_conv2d(batch, {.channels = 64, .extent = 32, .outputs = 64, .window = {3, 1, 1}});
  print_conv2d(batch, {.channels = 64, .extent = 32, .outputs = 128, .window = {3, 2, 1}});
  print_conv2d(batch, {.channels = 64, .extent = 32, .outputs = 128, .window = {1, 2, 0}});
  print_conv2d(batch, {.channels = 128, .extent = 16, .outputs = 128, .window = {3, 1, 1}});
  print_conv2d(batch, {.channels = 256, .extent = 8, .outputs = 256, .window = {3, 1, 1}});
  print_conv2d(batch, {.channels = 512, .extent = 4, .outputs = 512, .window = {3, 1, 1}});
  print_linear(batch, 512, 10);
}

void print_resnet18(std::int64_t batch) {
  for (const Precision wanted : {Precision::fp32, Precision::tf32}) {
    begin_table(fmt::format("resnet18, batch {}: products", batch), wanted);
    print_resnet18_products(batch);
    try_step("resnet18", batch);
  }
  begin_table(fmt::format("resnet18, batch {}: the rest", batch), Precision::fp32);
  print_batch_norm({batch, 64, 32, 32});
  print_batch_norm({batch, 512, 4, 4});
  print_relu({batch, 64, 32, 32});
  Tensor sum = random_tensor({batch, 64, 32, 32});
  const Tensor part = random_tensor(sum.shape());
  print({"add " + to_string(sum.shape()), [&] { gpu().add(part, part, sum); }, 0, bytes_of({part, sum})});
  const Tensor planes = random_tensor({batch, 512, 4, 4});
  Tensor means = random_tensor({batch, 512});
  print({"global average pool " + to_string(planes.shape()), [&] { gpu().global_average_pool(planes, means); }, 0,
         bytes_of({planes, means})});
  print_adam("resnet18");
}

void print_machine() {
  fmt::print("{}; {} multiprocessors, at most {:.0f} MHz, {} MiB of second-level cache. Peers: {}.\n\n",
             cuda::description(kGpu), facts.multiprocessors, 1e-6 * facts.clock_hz, facts.cache_bytes >> 20,
             peers_description());
  fmt::print("| measured first | |\n|---|---:|\n");
  fmt::print("| best float32 product (cuBLAS or ours, 4096 or 8192 square) | {:.1f} TFLOP/s |\n", 1e-12 * rates.fp32);
  fmt::print("| best TF32 product (the same) | {:.1f} TFLOP/s |\n", 1e-12 * rates.tf32);
  fmt::print("| float32 by number of cores and highest clock | {:.1f} TFLOP/s |\n", 1e-12 * facts.fp32_rate);
  fmt::print("| best copy, 1 GiB read and written | {:.0f} GB/s |\n", 1e-9 * rates.memory);
  fmt::print("| best copy within the second-level cache | {:.0f} GB/s |\n", 1e-9 * rates.cache);
  fmt::print("| a kernel that does nothing, in a graph | {:.2f} µs |\n\n", 1e6 * rates.start);
  fmt::print(
      "Each operation runs many times in a row on the same tensors, recorded as a CUDA graph; medians of 7. The floor "
      "is the\nlargest of: operations at the product's rate, bytes at the copy's rate (the cache's, where the tensors "
      "fit half of it),\nand a kernel that does nothing. Peers are cuBLAS and the fastest algorithm of cuDNN on NCHW, "
      "without bias; a ratio above 1 means\nthat ours is faster.\n");
}

}  // namespace
}  // namespace stagecoach

int main() {
  using namespace stagecoach;
  const int status = run_on_gpu("cuda_kernels_benchmark", [] {
    measure_rates();
    print_machine();
    print_convnet(64);
    print_convnet(1024);
    print_resnet18(512);
  });
  return status == 0 && failed ? 1 : status;
}
