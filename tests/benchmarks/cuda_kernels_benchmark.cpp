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

Tensor random_labels(const Shape& shape, std::uint32_t classes = 10) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(shape.numel()));
  const Philox random(0, "labels");
  for (std::size_t n = 0; n < labels.size(); ++n) {
    labels[n] = static_cast<std::int32_t>(random.below(n, classes));
  }
  return Tensor::from(labels, shape, kGpu);
}

Tensor random_pictures(std::int64_t count) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * 3 * 32 * 32));
  const Philox random(0, "pictures");
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(random.word(i));
  }
  return Tensor::from(pixels, {count, 3, 32, 32}, kGpu);
}

void print_linear(std::int64_t samples, std::int64_t inputs, std::int64_t outputs) {
  const std::string name = fmt::format("linear {}x{} to {}", samples, inputs, outputs);
  const Tensor x = random_tensor({samples, inputs});
  const Tensor weight = random_tensor({outputs, inputs});
  const Tensor y = random_tensor({samples, outputs});
  const Tensor bias = random_tensor({outputs});
  const auto peer = [&](Pass pass) {
    return [=] { return cublas_linear_seconds(pass, precision_of_table(), x, weight, y); };
  };
  print_kernel<&Kernels::linear, &KernelCosts::linear>(name + ", forward", peer(Pass::forward), x, weight, bias, y);
  print_kernel<&Kernels::linear_grad_input, &KernelCosts::linear_grad_input>(name + ", input gradient",
                                                                             peer(Pass::grad_input), y, weight, x);
  constexpr auto print_gradient =
      print_kernel<&Kernels::linear_grad_weight, &KernelCosts::linear_grad_weight, Tensor, Tensor, Tensor, Tensor>;
  print_gradient(name + ", weight gradient", peer(Pass::grad_weight), y, x, weight, {});
  print_gradient(name + ", weight and bias", kNoPeer, y, x, weight, random_tensor({outputs}));
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
  const Tensor x = random_tensor({samples, c.channels, c.extent, c.extent});
  const Tensor weight = random_tensor({c.outputs, c.channels, c.window.kernel, c.window.kernel});
  const Tensor y = random_tensor({samples, c.outputs, positions, positions});
  const Tensor bias = c.bias ? random_tensor({c.outputs}) : Tensor();
  const auto peer = [&](Pass pass) {
    return [=] { return cudnn_conv2d_seconds(pass, precision_of_table(), c.window, x, weight, y); };
  };
  print_kernel<&Kernels::conv2d, &KernelCosts::conv2d>(name + ", forward", peer(Pass::forward), x, weight, bias,
                                                       c.window, y);
  if (!c.first) {
    print_kernel<&Kernels::conv2d_grad_input, &KernelCosts::conv2d_grad_input>(
        name + ", input gradient", peer(Pass::grad_input), y, weight, c.window, x);
  }
  constexpr auto print_gradient = print_kernel<&Kernels::conv2d_grad_weight, &KernelCosts::conv2d_grad_weight, Tensor,
                                               Tensor, Window, Tensor, Tensor>;
  print_gradient(name + ", weight gradient", peer(Pass::grad_weight), y, x, c.window, weight, {});
  if (c.bias) {
    print_gradient(name + ", weight and bias", kNoPeer, y, x, c.window, weight, random_tensor({c.outputs}));
  }
}

void print_relu(const Shape& shape) {
  const std::string name = fmt::format("relu {}", to_string(shape));
  const Tensor x = random_tensor(shape);
  const Tensor y = random_tensor(shape);
  print_kernel<&Kernels::relu, &KernelCosts::relu>(name, kNoPeer, x, y);
  print_kernel<&Kernels::relu_grad, &KernelCosts::relu_grad>(name + ", gradient", kNoPeer, x, y, random_tensor(shape));
}

void print_add(const Shape& shape) {
  print_kernel<&Kernels::add, &KernelCosts::add>("add " + to_string(shape), kNoPeer, random_tensor(shape),
                                                 random_tensor(shape), random_tensor(shape));
}

void print_max_pool(const Shape& shape) {
  const Window window{2, 2, 0};
  const std::string name = fmt::format("max pool {}", to_string(shape));
  const Tensor x = random_tensor(shape);
  const Shape half{shape[0], shape[1], shape[2] / 2, shape[3] / 2};
  const Tensor y = random_tensor(half);
  const Tensor argmax = Tensor::zeros(half, DType::int32, kGpu);
  print_kernel<&Kernels::max_pool2d, &KernelCosts::max_pool2d>(name, kNoPeer, x, window, y, argmax);
  print_kernel<&Kernels::max_pool2d_grad, &KernelCosts::max_pool2d_grad>(name + ", gradient", kNoPeer, y, argmax,
                                                                         window, random_tensor(shape));
}

void print_batch_norm(const Shape& shape) {
  const std::string name = fmt::format("batch norm {}", to_string(shape));
  const Tensor x = random_tensor(shape);
  const Tensor grad_y = random_tensor(shape);
  const Shape channels{shape[1]};
  const Tensor weight = random_tensor(channels);
  const Tensor bias = random_tensor(channels);
  const Tensor y = random_tensor(shape);
  const Tensor mean = random_tensor(channels);
  const Tensor variance = Tensor::full(channels, 1, DType::float32, kGpu);
  const Tensor deviation = Tensor::full(channels, 1, DType::float32, kGpu);
  const Tensor grad_weight = random_tensor(channels);
  const Tensor grad_bias = random_tensor(channels);
  print_kernel<&Kernels::batch_statistics, &KernelCosts::batch_statistics>(name + ", statistics", kNoPeer, x, mean,
                                                                           variance);
  const std::int64_t count = x.numel() / x.size(1);
  for (const Activation activation : {Activation::none, Activation::relu}) {
    const std::string all = activation == Activation::none ? name : name + ", relu";
    print_kernel<&Kernels::batch_norm, &KernelCosts::batch_norm>(all, kNoPeer, x, mean, deviation, weight, bias,
                                                                 Tensor(), activation, y);
    print_kernel<&Kernels::batch_norm_grad_weight, &KernelCosts::batch_norm_grad_weight>(
        all + ", weight gradient", kNoPeer, grad_y, x, mean, deviation, weight, bias, activation, grad_weight,
        grad_bias);
    print_kernel<&Kernels::batch_norm_grad_input_of_batch, &KernelCosts::batch_norm_grad_input_of_batch>(
        all + ", input gradient", kNoPeer, grad_y, x, mean, deviation, weight, bias, activation, grad_weight, grad_bias,
        count, y);
  }
  print_kernel<&Kernels::batch_norm, &KernelCosts::batch_norm>(name + ", add, relu", kNoPeer, x, mean, deviation,
                                                               weight, bias, grad_y, Activation::relu, y);
}

void print_loss(std::int64_t rows, std::int64_t classes) {
  const std::string name = fmt::format("{}x{}", rows, classes);
  const Tensor logits = random_tensor({rows, classes});
  const Tensor labels = random_labels({rows}, static_cast<std::uint32_t>(classes));
  const Tensor probabilities = random_tensor({rows, classes});
  const Tensor loss = random_tensor({});
  print_kernel<&Kernels::cross_entropy, &KernelCosts::cross_entropy>("cross entropy " + name, kNoPeer, logits, labels,
                                                                     1.0, loss, probabilities);
  print_kernel<&Kernels::cross_entropy_grad, &KernelCosts::cross_entropy_grad>("cross entropy " + name + ", gradient",
                                                                               kNoPeer, loss, probabilities, labels,
                                                                               1.0, random_tensor({rows, classes}));
  print_kernel<&Kernels::count_correct, &KernelCosts::count_correct>("count correct " + name, kNoPeer, logits, labels,
                                                                     Tensor::zeros({}, DType::int32, kGpu));
}

void print_ends(std::int64_t samples) {
  const Tensor pictures = random_pictures(samples);
  print_kernel<&Kernels::normalize, &KernelCosts::normalize>(fmt::format("normalize {}", to_string(pictures.shape())),
                                                             kNoPeer, pictures, Normalization{},
                                                             random_tensor(pictures.shape()));
  const Tensor logits = random_tensor({samples, 10});
  const Tensor probabilities = random_tensor({samples, 10});
  const std::string softmax = fmt::format("softmax {}x10", samples);
  print_kernel<&Kernels::softmax, &KernelCosts::softmax>(softmax, kNoPeer, logits, probabilities);
  print_kernel<&Kernels::softmax_grad, &KernelCosts::softmax_grad>(softmax + ", gradient", kNoPeer, logits,
                                                                   probabilities, random_tensor({samples, 10}));
  print_loss(samples, 10);
}

void print_adam(const std::string& model_name) {
  const auto model = make_model(model_name);
  model->materialize(0, kGpu);
  std::vector<ParameterUpdate> updates;
  for (const auto& [name, parameter] : model->named_parameters()) {
    const Tensor moment = Tensor::zeros(parameter.shape(), DType::float32, kGpu);
    updates.push_back({.grad = random_tensor(parameter.shape()),
                       .parameter = parameter,
                       .state = {moment, moment.clone()},
                       .count = Tensor::full({}, 1, DType::int32, kGpu)});
  }
  print_kernel<&Kernels::adam_step, &KernelCosts::adam_step>(
      fmt::format("adam, {} tensors of {}", updates.size(), model_name), kNoPeer, std::span(updates), AdamSettings{});
}

/// Seconds of one whole training step from its recording: forward, backward and optimizer.
double step_seconds(const std::string& model_name, std::int64_t batch) {
  const auto model = make_model(model_name);
  model->materialize(0, kGpu);
  const auto optimizer = make_optimizer(OptimizerKind::adam, model->named_parameters(), 0.001);
  const bool is_gpt = model_name == "gpt";
  const std::vector<Tensor> inputs{is_gpt ? random_labels({batch, 64}, 256) : random_pictures(batch),
                                   is_gpt ? random_labels({64 * batch}, 256) : random_labels({batch})};
  Replay replay(kGpu, true);
  const auto run = [&] {
    replay.run(inputs, [&](std::span<const Tensor> batch_tensors) {
      const Tensor x = is_gpt ? batch_tensors[0] : normalize(batch_tensors[0]);
      const Tensor logits = model->forward(x);
      backward(cross_entropy(logits.reshape({-1, logits.size(logits.dims() - 1)}), batch_tensors[1]));
      optimizer->step();
      optimizer->zero_grad();
    });
  };
  // Many at once, as in training: there the CPU is ahead of the GPU, which never waits for a step to be given to it.
  const int steps = model_name == "convnet" ? 20 : 4;
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
  print_add({batch, 64, 32, 32});
  const Tensor planes = random_tensor({batch, 512, 4, 4});
  print_kernel<&Kernels::global_average_pool, &KernelCosts::global_average_pool>(
      "global average pool " + to_string(planes.shape()), kNoPeer, planes, random_tensor({batch, 512}));
  print_adam("resnet18");
}

/// Of tokens [N, T, W].
void print_attention(std::int64_t samples, std::int64_t tokens, std::int64_t width, std::int64_t heads,
                     AttentionMask mask = AttentionMask::none) {
  const Tensor x = random_tensor({samples, tokens, width});
  const Tensor qkv = random_tensor({samples, tokens, 3 * width});
  const std::string name = fmt::format("attention {}, {} heads{}", to_string(x.shape()), heads,
                                       mask == AttentionMask::causal ? ", causal" : "");
  print_kernel<&Kernels::attention, &KernelCosts::attention>(name, kNoPeer, qkv, heads, mask, random_tensor(x.shape()));
  print_kernel<&Kernels::attention_grad, &KernelCosts::attention_grad>(name + ", gradient", kNoPeer, x, qkv, heads,
                                                                       mask, random_tensor(qkv.shape()));
}

/// [N, T, W], and the hidden layer of a perceptron.
void print_vit_kernels(std::int64_t samples, std::int64_t tokens, std::int64_t width) {
  print_attention(samples, tokens, width, 4);
  const Shape rows{samples * tokens, width};
  const Tensor x = random_tensor(rows);
  const Tensor y = random_tensor(rows);
  const Tensor grad = random_tensor(rows);
  const Tensor weight = random_tensor({width});
  const Tensor bias = random_tensor({width});
  const Tensor mean = random_tensor({rows[0]});
  const Tensor rstd = random_tensor({rows[0]});
  const std::string norm = "layer norm " + to_string(rows);
  print_kernel<&Kernels::layer_norm, &KernelCosts::layer_norm>(norm, kNoPeer, x, weight, bias, 1e-5, y, mean, rstd);
  print_kernel<&Kernels::layer_norm_grad_input, &KernelCosts::layer_norm_grad_input>(norm + ", input gradient", kNoPeer,
                                                                                     grad, x, mean, rstd, weight, y);
  print_kernel<&Kernels::layer_norm_grad_weight, &KernelCosts::layer_norm_grad_weight>(
      norm + ", weight gradient", kNoPeer, grad, x, mean, rstd, random_tensor({width}), random_tensor({width}));

  const Tensor hidden = random_tensor({samples * tokens, 4 * width});
  const Tensor out = random_tensor(hidden.shape());
  const std::string gelu = "gelu " + to_string(hidden.shape());
  print_kernel<&Kernels::gelu, &KernelCosts::gelu>(gelu, kNoPeer, hidden, GeluForm::tanh, out);
  print_kernel<&Kernels::gelu_grad, &KernelCosts::gelu_grad>(gelu + ", gradient", kNoPeer, hidden, hidden,
                                                             GeluForm::tanh, out);
  print_add({samples, tokens, width});
}

void print_vit(std::int64_t batch) {
  constexpr std::int64_t kTokens = 64;
  constexpr std::int64_t kWidth = 64;
  begin_table(fmt::format("vit, batch {}: kernels", batch), Precision::tf32);
  print_conv2d(batch,
               {.channels = 3, .extent = 32, .outputs = kWidth, .window = {4, 4, 0}, .bias = true, .first = true});
  print_vit_kernels(batch, kTokens, kWidth);
  for (const AttentionMask mask : {AttentionMask::none, AttentionMask::causal}) {
    print_attention(32, 256, 256, 4, mask);  // wider heads, and more tokens than a tile holds
    print_attention(8, 1024, 256, 4, mask);
  }
  for (const auto& [inputs, outputs] :
       {std::pair{kWidth, 3 * kWidth}, {kWidth, kWidth}, {kWidth, 4 * kWidth}, {4 * kWidth, kWidth}}) {
    print_linear(batch * kTokens, inputs, outputs);
  }
  print_adam("vit");
  try_step("vit", batch);
}

/// What vit does not have.
void print_gpt(std::int64_t batch) {
  constexpr std::int64_t kContext = 64;
  constexpr std::int64_t kWidth = 64;
  constexpr std::int64_t kBytes = 256;
  begin_table(fmt::format("gpt, batch {}: kernels", batch), Precision::tf32);
  const std::string embedding = fmt::format("embedding {}x{} of {}x{}", batch, kContext, kBytes, kWidth);
  const Tensor tokens = random_labels({batch * kContext}, kBytes);
  const Tensor weight = random_tensor({kBytes, kWidth});
  const Tensor y = random_tensor({batch * kContext, kWidth});
  print_kernel<&Kernels::embedding, &KernelCosts::embedding>(embedding, kNoPeer, tokens, weight, y);
  print_kernel<&Kernels::embedding_grad, &KernelCosts::embedding_grad>(embedding + ", gradient", kNoPeer, y, tokens,
                                                                       weight);
  const Tensor x = random_tensor({batch, kContext, kWidth});
  print_kernel<&Kernels::dropout, &KernelCosts::dropout>("dropout " + to_string(x.shape()), kNoPeer, x,
                                                         DropoutMask{.probability = 0.1}, random_tensor(x.shape()));
  print_attention(batch, kContext, kWidth, 4, AttentionMask::causal);
  print_linear(batch * kContext, kWidth, kBytes);
  print_loss(batch * kContext, kBytes);
  print_adam("gpt");
  try_step("gpt", batch);
}

/// Products of no model of ours, as large ones have them. `calibrate` does not read this table.
void print_larger_products(std::int64_t batch) {
  begin_table(fmt::format("larger products, batch {}", batch), Precision::tf32);
  print_conv2d(batch, {.channels = 128, .extent = 28, .outputs = 128, .window = {3, 1, 1}});
  print_conv2d(batch, {.channels = 256, .extent = 14, .outputs = 256, .window = {3, 1, 1}});
  print_linear(32 * batch, 1024, 1024);
  print_linear(32 * batch, 1024, 4096);
  print_linear(32 * batch, 4096, 1024);
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
    print_gpt(512);
    print_larger_products(128);
  });
  return status == 0 && any_failed() ? 1 : status;
}
