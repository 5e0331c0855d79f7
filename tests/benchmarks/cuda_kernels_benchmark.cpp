/// @file
/// How fast the CUDA kernels are: each operation of a training step beside the least time that this GPU would need for
/// it, and beside cuBLAS and cuDNN where they are there.
///
///     cuda_kernels_benchmark            Markdown, on standard output; exit 1 when a row failed

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/backward.h"
#include "core/base/error.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/replay.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "tests/benchmarks/cuda_kernel_table.h"
#include "tests/benchmarks/cuda_peers.h"
#include "tests/benchmarks/cuda_work.h"

namespace stagecoach {
namespace {

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
  const auto peer = [&](Pass pass) {
    return [=] { return cublas_linear_seconds(pass, precision_of_table(), x, weight, y); };
  };
  print_row({name + ", forward", [&] { gpu().linear(x, weight, bias, y); }, operations, bytes, peer(Pass::forward)});
  print_row({name + ", input gradient", [&] { gpu().linear_grad_input(y, weight, x); }, operations, bytes,
             peer(Pass::grad_input)});
  print_row({name + ", weight gradient", [&] { gpu().linear_grad_weight(y, x, weight, none); }, operations, bytes,
             peer(Pass::grad_weight)});
  Tensor sums = random_tensor({outputs});
  print_row({name + ", weight and bias", [&] { gpu().linear_grad_weight(y, x, weight, sums); }, operations, bytes});
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
    return [=] { return cudnn_conv2d_seconds(pass, precision_of_table(), c.window, x, weight, y); };
  };
  print_row({name + ", forward", [&] { gpu().conv2d(x, weight, bias, c.window, y); }, operations, bytes,
             peer(Pass::forward)});
  if (!c.first) {
    print_row({name + ", input gradient", [&] { gpu().conv2d_grad_input(y, weight, c.window, x); }, operations, bytes,
               peer(Pass::grad_input)});
  }
  print_row({name + ", weight gradient", [&] { gpu().conv2d_grad_weight(y, x, c.window, weight, none); }, operations,
             bytes, peer(Pass::grad_weight)});
  if (c.bias) {
    Tensor sums = random_tensor({c.outputs});
    print_row({name + ", weight and bias", [&] { gpu().conv2d_grad_weight(y, x, c.window, weight, sums); }, operations,
               bytes});
  }
}

void print_relu(const Shape& shape) {
  const std::string name = fmt::format("relu {}", to_string(shape));
  const Tensor x = random_tensor(shape);
  Tensor y = random_tensor(shape);
  Tensor grad = random_tensor(shape);
  print_row({name, [&] { gpu().relu(x, y); }, 0, bytes_of({x, y})});
  print_row({name + ", gradient", [&] { gpu().relu_grad(x, y, grad); }, 0, bytes_of({x, y, grad})});
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
  print_row({name, [&] { gpu().max_pool2d(x, window, y, argmax); }, 0, bytes});
  print_row({name + ", gradient", [&] { gpu().max_pool2d_grad(y, argmax, window, grad); }, 0, bytes});
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
  print_row({name + ", statistics", [&] { gpu().batch_statistics(x, mean, variance); }, 0, bytes_of({x})});
  const std::int64_t count = x.numel() / x.size(1);
  for (const Activation activation : {Activation::none, Activation::relu}) {
    const std::string all = activation == Activation::none ? name : name + ", relu";
    print_row(
        {all, [&] { gpu().batch_norm(x, mean, deviation, weight, bias, {}, activation, y); }, 0, bytes_of({x, y})});
    print_row({all + ", weight gradient",
               [&] {
                 gpu().batch_norm_grad_weight(grad_y, x, mean, deviation, weight, bias, activation, grad_weight,
                                              grad_bias);
               },
               0, bytes_of({grad_y, x})});
    print_row({all + ", input gradient",
               [&] {
                 gpu().batch_norm_grad_input_of_batch(grad_y, x, mean, deviation, weight, bias, activation, grad_weight,
                                                      grad_bias, count, y);
               },
               0, bytes_of({grad_y, x, y})});
  }
  print_row({name + ", add, relu",
             [&] { gpu().batch_norm(x, mean, deviation, weight, bias, grad_y, Activation::relu, y); }, 0,
             bytes_of({x, grad_y, y})});
}

void print_ends(std::int64_t samples) {
  const Tensor pictures = random_pictures(samples);
  Tensor images = random_tensor(pictures.shape());
  print_row({fmt::format("normalize {}", to_string(pictures.shape())), [&] { gpu().normalize(pictures, {}, images); },
             0, bytes_of({pictures, images})});

  const std::string rows = fmt::format("{}x10", samples);
  const Tensor logits = random_tensor({samples, 10});
  const Tensor labels = random_labels(samples);
  Tensor probabilities = random_tensor({samples, 10});
  Tensor grad = random_tensor({samples, 10});
  Tensor loss = random_tensor({});
  Tensor count = Tensor::zeros({}, DType::int32, kGpu);
  print_row({"softmax " + rows, [&] { gpu().softmax(logits, probabilities); }, 0, bytes_of({logits, probabilities})});
  print_row({"softmax " + rows + ", gradient", [&] { gpu().softmax_grad(logits, probabilities, grad); }, 0,
             bytes_of({logits, probabilities, grad})});
  print_row({"cross entropy " + rows, [&] { gpu().cross_entropy(logits, labels, 1, loss, probabilities); }, 0,
             bytes_of({logits, labels, probabilities})});
  print_row({"cross entropy " + rows + ", gradient",
             [&] { gpu().cross_entropy_grad(loss, probabilities, labels, 1, grad); }, 0,
             bytes_of({probabilities, labels, grad})});
  print_row(
      {"count correct " + rows, [&] { gpu().count_correct(logits, labels, count); }, 0, bytes_of({logits, labels})});
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
  print_row({fmt::format("adam, {} tensors of {}", updates.size(), model_name), [&] { gpu().adam_step(updates, {}); },
             0, bytes});
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
  const int steps = model_name == "resnet18" || model_name == "vit" ? 4 : 20;
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
    note_failure();
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
  print_row({"add " + to_string(sum.shape()), [&] { gpu().add(part, part, sum); }, 0, bytes_of({part, sum})});
  const Tensor planes = random_tensor({batch, 512, 4, 4});
  Tensor means = random_tensor({batch, 512});
  print_row({"global average pool " + to_string(planes.shape()), [&] { gpu().global_average_pool(planes, means); }, 0,
             bytes_of({planes, means})});
  print_adam("resnet18");
}

/// Of tokens [N, T, W].
void print_attention(std::int64_t samples, std::int64_t tokens, std::int64_t width, std::int64_t heads) {
  const Tensor x = random_tensor({samples, tokens, width});
  Tensor y = random_tensor(x.shape());
  const Tensor qkv = random_tensor({samples, tokens, 3 * width});
  Tensor grad_qkv = random_tensor(qkv.shape());
  const std::string name = fmt::format("attention {}, {} heads", to_string(x.shape()), heads);
  // Each of the products has T terms for each element of x: two of them forward; backward the first again and four.
  const double product = 2.0 * static_cast<double>(x.numel() * tokens);
  print_row({name, [&] { gpu().attention(qkv, heads, y); }, 2 * product, bytes_of({qkv, y})});
  print_row({name + ", gradient", [&] { gpu().attention_grad(x, qkv, heads, grad_qkv); }, 5 * product,
             bytes_of({x, qkv, grad_qkv})});
}

/// [N, T, W], and the hidden layer of a perceptron.
void print_vit_kernels(std::int64_t samples, std::int64_t tokens, std::int64_t width) {
  print_attention(samples, tokens, width, 4);
  const Tensor x = random_tensor({samples, tokens, width});
  Tensor y = random_tensor(x.shape());

  const Shape rows{samples * tokens, width};
  const Tensor flat = x.reshape(rows);
  Tensor flat_y = random_tensor(rows);
  const Tensor flat_grad = random_tensor(rows);
  const Tensor weight = random_tensor({width});
  const Tensor bias = random_tensor({width});
  Tensor mean = random_tensor({rows[0]});
  Tensor rstd = random_tensor({rows[0]});
  Tensor grad_weight = random_tensor({width});
  Tensor grad_bias = random_tensor({width});
  const std::string norm = "layer norm " + to_string(rows);
  print_row({norm, [&] { gpu().layer_norm(flat, weight, bias, 1e-5, flat_y, mean, rstd); }, 0, bytes_of({x, y})});
  print_row({norm + ", input gradient",
             [&] { gpu().layer_norm_grad_input(flat_grad, flat, mean, rstd, weight, flat_y); }, 0,
             bytes_of({x, y, y})});
  print_row({norm + ", weight gradient",
             [&] { gpu().layer_norm_grad_weight(flat_grad, flat, mean, rstd, grad_weight, grad_bias); }, 0,
             bytes_of({x, y})});

  const Tensor hidden = random_tensor({samples * tokens, 4 * width});
  Tensor out = random_tensor(hidden.shape());
  const std::string gelu = "gelu " + to_string(hidden.shape());
  print_row({gelu, [&] { gpu().gelu(hidden, GeluForm::tanh, out); }, 0, bytes_of({hidden, out})});
  print_row({gelu + ", gradient", [&] { gpu().gelu_grad(hidden, hidden, GeluForm::tanh, out); }, 0,
             bytes_of({hidden, out, out})});
  print_row({"add " + to_string(x.shape()), [&] { gpu().add(x, x, y); }, 0, bytes_of({x, y})});
}

void print_vit(std::int64_t batch) {
  constexpr std::int64_t kTokens = 64;
  constexpr std::int64_t kWidth = 64;
  begin_table(fmt::format("vit, batch {}: kernels", batch), Precision::tf32);
  print_conv2d(batch,
               {.channels = 3, .extent = 32, .outputs = kWidth, .window = {4, 4, 0}, .bias = true, .first = true});
  print_vit_kernels(batch, kTokens, kWidth);
  print_attention(32, 256, 256, 4);  // wider heads, and more tokens than a tile holds
  for (const auto& [inputs, outputs] :
       {std::pair{kWidth, 3 * kWidth}, {kWidth, kWidth}, {kWidth, 4 * kWidth}, {4 * kWidth, kWidth}}) {
    print_linear(batch * kTokens, inputs, outputs);
  }
  print_adam("vit");
  try_step("vit", batch);
}

}  // namespace
}  // namespace stagecoach

int main() {
  using namespace stagecoach;
  const int status = run_on_gpu("cuda_kernels_benchmark", [] {
    print_machine();
    print_convnet(64);
    print_convnet(1024);
    print_resnet18(512);
    print_vit(512);
  });
  return status == 0 && any_failed() ? 1 : status;
}
