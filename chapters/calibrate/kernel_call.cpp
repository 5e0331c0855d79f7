#include "chapters/calibrate/kernel_call.h"

#include <cctype>
#include <map>
#include <utility>

#include "core/base/throw_if.h"
#include "core/random.h"
#include "nn/models.h"

namespace stagecoach {
namespace {

using Numbers = std::vector<std::int64_t>;

/// Makes the arguments of calls.
struct Arguments {
  Device device;

  /// Returns numbers on [-0.5, 0.5): zeros need less power, so a GPU computes them faster.
  Tensor random(const Shape& shape) const {
    if (device.type == DeviceType::meta) {
      return Tensor::empty(shape, DType::float32, device);
    }
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    UniformNumbers numbers(Philox(0, "calibrate"));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(numbers[i % (std::size_t{1} << 16)]) - 0.5F;
    }
    return Tensor::from(values, shape, device);
  }
  Tensor zeros(const Shape& shape, DType dtype) const { return Tensor::zeros(shape, dtype, device); }
  Tensor ones(const Shape& shape) const { return Tensor::full(shape, 1, DType::float32, device); }

  template <auto row, auto cost_row, class... Given>
  KernelCall call(Given... given) const {
    const KernelCost cost = (kernel_costs().*cost_row)(given...);
    return {cost, [device = device, given...]() mutable { (kernels(device).*row)(given...); }};
  }
};

#define STAGECOACH_CALL(row) call<&Kernels::row, &KernelCosts::row>

enum class Pass { forward, grad_input, grad_weight, grad_weight_and_bias };

KernelCall linear(const Arguments& make, Pass pass, const Numbers& n) {
  const Tensor x = make.random({n[0], n[1]});
  const Tensor weight = make.random({n[2], n[1]});
  const Tensor bias = make.random({n[2]});
  const Tensor y = make.random({n[0], n[2]});
  switch (pass) {
    case Pass::forward:
      return make.STAGECOACH_CALL(linear)(x, weight, bias, y);
    case Pass::grad_input:
      return make.STAGECOACH_CALL(linear_grad_input)(y, weight, x);
    default:
      return make.STAGECOACH_CALL(linear_grad_weight)(y, x, weight, pass == Pass::grad_weight ? Tensor() : bias);
  }
}

KernelCall conv2d(const Arguments& make, Pass pass, const Numbers& n) {
  const Window window{.kernel = n[5], .stride = n[6], .padding = n[7]};
  const Tensor x = make.random({n[0], n[1], n[2], n[3]});
  const Tensor weight = make.random({n[4], n[1], n[5], n[5]});
  const Tensor bias = make.random({n[4]});
  const Tensor y = make.random({n[0], n[4], window.positions(n[2]), window.positions(n[3])});
  switch (pass) {
    case Pass::forward:
      return make.STAGECOACH_CALL(conv2d)(x, weight, Tensor(), window, y);
    case Pass::grad_input:
      return make.STAGECOACH_CALL(conv2d_grad_input)(y, weight, window, x);
    default:
      return make.STAGECOACH_CALL(conv2d_grad_weight)(y, x, window, weight,
                                                      pass == Pass::grad_weight ? Tensor() : bias);
  }
}

KernelCall max_pool(const Arguments& make, Pass pass, const Numbers& n) {
  const Window window{.kernel = 2, .stride = 2};
  const Tensor x = make.random({n[0], n[1], n[2], n[3]});
  const Shape half{n[0], n[1], n[2] / 2, n[3] / 2};
  const Tensor argmax = make.zeros(half, DType::int32);
  return pass == Pass::forward ? make.STAGECOACH_CALL(max_pool2d)(x, window, make.random(half), argmax)
                               : make.STAGECOACH_CALL(max_pool2d_grad)(make.random(half), argmax, window, x);
}

KernelCall batch_norm(const Arguments& make, Pass pass, Activation activation, bool has_addend, const Numbers& n) {
  const Tensor x = make.random({n[0], n[1], n[2], n[3]});
  const Tensor grad_y = make.random(x.shape());
  const Tensor ones = make.ones({n[1]});
  const Tensor sums = make.ones({n[1]});
  switch (pass) {
    case Pass::forward:
      return make.STAGECOACH_CALL(batch_norm)(x, ones, ones, ones, ones, has_addend ? grad_y : Tensor(), activation,
                                              make.random(x.shape()));
    case Pass::grad_input:
      return make.STAGECOACH_CALL(batch_norm_grad_input_of_batch)(grad_y, x, ones, ones, ones, ones, activation, sums,
                                                                  sums, x.numel() / n[1], make.random(x.shape()));
    default:
      return make.STAGECOACH_CALL(batch_norm_grad_weight)(grad_y, x, ones, ones, ones, ones, activation, sums,
                                                          make.ones({n[1]}));
  }
}

KernelCall layer_norm(const Arguments& make, Pass pass, const Numbers& n) {
  const Tensor x = make.random({n[0], n[1]});
  const Tensor y = make.random({n[0], n[1]});
  const Tensor weight = make.ones({n[1]});
  const Tensor mean = make.ones({n[0]});
  const Tensor rstd = make.ones({n[0]});
  switch (pass) {
    case Pass::forward:
      return make.STAGECOACH_CALL(layer_norm)(x, weight, weight, 1e-5, y, mean, rstd);
    case Pass::grad_input:
      return make.STAGECOACH_CALL(layer_norm_grad_input)(y, x, mean, rstd, weight, make.random(x.shape()));
    default:
      return make.STAGECOACH_CALL(layer_norm_grad_weight)(y, x, mean, rstd, make.ones({n[1]}), make.ones({n[1]}));
  }
}

KernelCall attention(const Arguments& make, Pass pass, AttentionMask mask, const Numbers& n) {
  const Tensor qkv = make.random({n[0], n[1], 3 * n[2]});
  const Tensor y = make.random({n[0], n[1], n[2]});
  return pass == Pass::forward ? make.STAGECOACH_CALL(attention)(qkv, n[3], mask, y)
                               : make.STAGECOACH_CALL(attention_grad)(y, qkv, n[3], mask, make.random(qkv.shape()));
}

KernelCall embedding(const Arguments& make, Pass pass, const Numbers& n) {
  const Tensor tokens = make.zeros({n[0] * n[1]}, DType::int32);
  const Tensor weight = make.random({n[2], n[3]});
  const Tensor y = make.random({n[0] * n[1], n[3]});
  return pass == Pass::forward ? make.STAGECOACH_CALL(embedding)(tokens, weight, y)
                               : make.STAGECOACH_CALL(embedding_grad)(y, tokens, weight);
}

KernelCall adam(const Arguments& make, const std::string& model_name) {
  const auto model = make_model(model_name);
  model->materialize(0, make.device);
  std::vector<ParameterUpdate> updates;
  for (const auto& [name, parameter] : model->named_parameters()) {
    const auto zeros = [&] { return make.zeros(parameter.shape(), DType::float32); };
    updates.push_back({.grad = make.random(parameter.shape()),
                       .parameter = parameter,
                       .state = {zeros(), zeros()},
                       .count = Tensor::full({}, 1, DType::int32, make.device)});
  }
  return {kernel_costs().adam_step(updates, {}),
          [updates, device = make.device]() mutable { kernels(device).adam_step(updates, {}); }};
}

using MakeCall = std::function<KernelCall(const Arguments&, const Numbers&)>;

/// Returns the calls of x [N, C, …], by the words of their names.
std::map<std::string, MakeCall> calls_of_one_shape() {
  const auto shape = [](const Numbers& n) { return Shape(n.data(), static_cast<int>(n.size())); };
  return {
      {"add",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(add)(make.random(shape(n)), make.random(shape(n)), make.random(shape(n)));
       }},
      {"relu",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(relu)(make.random(shape(n)), make.random(shape(n)));
       }},
      {"relu gradient",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(relu_grad)(make.random(shape(n)), make.random(shape(n)), make.random(shape(n)));
       }},
      {"gelu",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(gelu)(make.random(shape(n)), GeluForm::tanh, make.random(shape(n)));
       }},
      {"gelu gradient",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(gelu_grad)(make.random(shape(n)), make.random(shape(n)), GeluForm::tanh,
                                                make.random(shape(n)));
       }},
      {"dropout",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(dropout)(make.random(shape(n)), DropoutMask{.probability = 0.1},
                                              make.random(shape(n)));
       }},
      {"softmax",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(softmax)(make.random(shape(n)), make.random(shape(n)));
       }},
      {"softmax gradient",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(softmax_grad)(make.random(shape(n)), make.random(shape(n)), make.random(shape(n)));
       }},
      {"cross entropy",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(cross_entropy)(make.random(shape(n)), make.zeros({n[0]}, DType::int32), 1.0,
                                                    make.ones({}), make.random(shape(n)));
       }},
      {"cross entropy gradient",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(cross_entropy_grad)(make.ones({}), make.random(shape(n)),
                                                         make.zeros({n[0]}, DType::int32), 1.0, make.random(shape(n)));
       }},
      {"count correct",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(count_correct)(make.random(shape(n)), make.zeros({n[0]}, DType::int32),
                                                    make.zeros({}, DType::int32));
       }},
      {"normalize",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(normalize)(make.zeros(shape(n), DType::uint8), Normalization{},
                                                make.random(shape(n)));
       }},
      {"global average pool",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(global_average_pool)(make.random(shape(n)), make.random({n[0], n[1]}));
       }},
      {"batch norm statistics",
       [=](const Arguments& make, const Numbers& n) {
         return make.STAGECOACH_CALL(batch_statistics)(make.random(shape(n)), make.ones({n[1]}), make.ones({n[1]}));
       }},
  };
}

struct NamedCall {
  std::size_t numbers;  ///< that a name needs at least
  MakeCall make;
};

/// Returns all calls except for those of optimizers, by the words of their names.
const std::map<std::string, NamedCall>& calls() {
  static const std::map<std::string, NamedCall> all = [] {
    std::map<std::string, NamedCall> table;
    for (const auto& [name, make] : calls_of_one_shape()) {
      table[name] = {2, make};
    }
    const auto add = [&](const std::string& name, std::size_t numbers, auto body, auto... settings) {
      table[name] = {numbers, [=](const Arguments& make, const Numbers& n) { return body(make, settings..., n); }};
    };
    for (const auto& [name, pass] : {std::pair{"forward", Pass::forward},
                                     {"input gradient", Pass::grad_input},
                                     {"weight gradient", Pass::grad_weight},
                                     {"weight and bias", Pass::grad_weight_and_bias}}) {
      add(fmt::format("linear to {}", name), 3, linear, pass);
      add(fmt::format("conv to k s p {}", name), 8, conv2d, pass);
    }
    for (const auto& [name, pass] : {std::pair{"", Pass::forward}, {" gradient", Pass::grad_input}}) {
      add(fmt::format("max pool{}", name), 4, max_pool, pass);
      add(fmt::format("embedding of{}", name), 4, embedding, pass);
      add(fmt::format("attention heads{}", name), 4, attention, pass, AttentionMask::none);
      add(fmt::format("attention heads causal{}", name), 4, attention, pass, AttentionMask::causal);
    }
    for (const auto& [name, pass] : {std::pair{"", Pass::forward},
                                     {" input gradient", Pass::grad_input},
                                     {" weight gradient", Pass::grad_weight}}) {
      add(fmt::format("layer norm{}", name), 2, layer_norm, pass);
      add(fmt::format("batch norm{}", name), 4, batch_norm, pass, Activation::none, false);
      add(fmt::format("batch norm relu{}", name), 4, batch_norm, pass, Activation::relu, false);
    }
    add("batch norm add relu", 4, batch_norm, Pass::forward, Activation::relu, true);
    return table;
  }();
  return all;
}

/// Splits a name into its numbers and its words, without the x between numbers.
std::pair<std::string, Numbers> parts_of(const std::string& name) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::string words;
  Numbers numbers;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (is_digit(name[i])) {
      const bool begins = i == 0 || !is_digit(name[i - 1]);
      numbers.resize(numbers.size() + (begins ? 1 : 0));
      numbers.back() = 10 * numbers.back() + (name[i] - '0');
    } else if (std::islower(static_cast<unsigned char>(name[i])) != 0 &&
               !(name[i] == 'x' && i > 0 && is_digit(name[i - 1]))) {
      words += name[i];
    } else if (!words.empty() && words.back() != ' ') {
      words += ' ';
    }
  }
  words.erase(words.find_last_not_of(' ') + 1);
  return {words, numbers};
}

}  // namespace

KernelCall kernel_call(const std::string& name, Device device) {
  const Arguments make{device};
  if (name.starts_with("adam, ")) {
    return adam(make, name.substr(name.rfind(' ') + 1));
  }
  const auto [words, numbers] = parts_of(name);
  const auto found = calls().find(words);
  throw_if<DataError>(found == calls().end() || numbers.size() < found->second.numbers,
                      "'{}' is not a kernel call; expected one of docs/measurements/gpu_check.md", name);
  return found->second.make(make, numbers);
}

std::vector<std::string> kernel_call_names(const std::string& model, std::int64_t images) {
  struct Calls {
    const char* name;  ///< with the number of images, and of tokens, in braces
    std::vector<const char*> passes;
  };
  const std::vector<const char*> all{", forward", ", input gradient", ", weight gradient"};
  const std::vector<const char*> first{", forward", ", weight and bias"};  // whose input needs no gradient
  const std::vector<const char*> both{"", ", gradient"};
  const std::map<std::string, std::vector<Calls>> calls{
      {"convnet",
       {{"normalize [{0}, 3, 32, 32]", {""}},
        {"conv {0}x3x32x32 to 6, k5 s1 p0", first},
        {"relu [{0}, 6, 28, 28]", both},
        {"max pool [{0}, 6, 28, 28]", both},
        {"conv {0}x6x14x14 to 16, k5 s1 p0", all},
        {"linear {0}x400 to 120", all},
        {"linear {0}x84 to 10", all},
        {"cross entropy {0}x10", both},
        {"adam, 10 tensors of convnet", {""}}}},
      {"resnet18",
       {{"conv {0}x3x32x32 to 64, k3 s1 p1", first},
        {"conv {0}x64x32x32 to 64, k3 s1 p1", all},
        {"conv {0}x64x32x32 to 128, k3 s2 p1", all},
        {"conv {0}x128x16x16 to 128, k3 s1 p1", all},
        {"conv {0}x256x8x8 to 256, k3 s1 p1", all},
        {"conv {0}x512x4x4 to 512, k3 s1 p1", all},
        {"batch norm [{0}, 64, 32, 32]",
         {", statistics", ", relu", ", relu, weight gradient", ", relu, input gradient"}},
        {"add [{0}, 64, 32, 32]", {""}},
        {"global average pool [{0}, 512, 4, 4]", {""}},
        {"adam, 62 tensors of resnet18", {""}}}},
      {"vit",
       {{"conv {0}x3x32x32 to 64, k4 s4 p0", first},
        {"attention [{0}, 64, 64], 4 heads", both},
        {"layer norm [{1}, 64]", {"", ", input gradient", ", weight gradient"}},
        {"linear {1}x64 to 192", all},
        {"linear {1}x256 to 64", all},
        {"gelu [{1}, 256]", both},
        {"adam, 103 tensors of vit", {""}}}},
  };
  std::vector<std::string> names;
  for (const auto& [name, passes] : calls.at(model)) {
    for (const char* pass : passes) {
      names.push_back(fmt::format(fmt::runtime(name), images, 64 * images) + pass);
    }
  }
  return names;
}

}  // namespace stagecoach
