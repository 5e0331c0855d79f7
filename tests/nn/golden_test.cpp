/// @file
/// Ten training steps of the convnet, of a small vit and of a small gpt, with a head of its own or a tied one, against
/// the same ten steps by PyTorch, which golden_convnet.py, golden_vit.py and golden_gpt.py stored.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "core/autograd/backward.h"
#include "core/cuda_backend.h"
#include "core/ops.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "nn/safetensors.h"
#include "nn/tied_weights.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::values_of;

constexpr std::size_t kSteps = 10;
constexpr std::int64_t kBatch = 8;

/// A model, and how far a run may lie from PyTorch's in float64: losses absolutely, gradients and their norms
/// relatively.
struct GoldenRun {
  const char* model;
  ModelSizes sizes;
  std::int64_t classes;
  DType dtype;
  double loss;
  double gradient;
  double norm;
  double adam_norm;
  bool tied = false;  ///< the head is
};

/// In float32, Adam's first steps turn the rounding of tiny gradients into whole steps: hence its wider norms.
/// In float64 the first gradients differ by the rounding with which they are stored.
class Golden : public testing::TestWithParam<test::On<GoldenRun>> {
 protected:
  Golden() {
    for (const auto& [name, tensor] : load_tensors(golden_file()).tensors) {
      golden_.emplace(name, tensor);
    }
    model_->materialize(1, device(), run().dtype);
    for (auto& [name, parameter] : model_->named_parameters()) {
      Tensor(parameter).copy_from(typed(golden_.at("weights/" + name).to_vector<float>(), parameter.shape()));
    }
    tied_ = TiedWeights(model_->named_parameters(), run().tied ? tied_head() : TiedWeights::Names{});
    run().sizes.context == 0 ? make_images() : make_text();
  }

  static Device device() { return GetParam().device; }
  static const GoldenRun& run() { return GetParam().what; }
  static std::string golden_file() {
    return fmt::format("{}/golden_{}{}.safetensors", STAGECOACH_GOLDEN_DIR, run().model, run().tied ? "_tied" : "");
  }

  /// `values` in the type of this run, on its device.
  static Tensor typed(const std::vector<float>& values, const Shape& shape) {
    return test::typed(values, shape, run().dtype, device());
  }

  /// The same integer arithmetic as in golden_convnet.py and golden_gpt.py; all values are exact.
  static std::uint32_t noise(std::uint32_t i) { return (i * 2654435761U + 12345U) >> 16; }

  void make_images() {
    constexpr std::uint32_t kPixels = 3 * 32 * 32;
    std::vector<float> images;
    std::vector<std::int32_t> labels;
    for (std::uint32_t n = 0; n < kBatch; ++n) {
      labels.push_back(static_cast<std::int32_t>((3 * n + 1) % 10));
      for (std::uint32_t i = n * kPixels; i < (n + 1) * kPixels; ++i) {
        const auto pixel = static_cast<std::int32_t>(noise(i) % 128) + 14 * labels.back();
        images.push_back(static_cast<float>(pixel - 128) / 128);
      }
    }
    inputs_ = typed(images, {kBatch, 3, 32, 32});
    labels_ = test::labels_of(labels, device());
  }

  /// Sequences of tokens, and as labels the token after each.
  void make_text() {
    const Shape shape{kBatch, run().sizes.context};
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> labels;
    for (std::uint32_t i = 0; i < kBatch * (shape[1] + 1); ++i) {
      const auto token = static_cast<std::int32_t>(noise(i) % 256);
      const std::uint32_t at = i % static_cast<std::uint32_t>(shape[1] + 1);
      if (at > 0) {
        labels.push_back(token);
      }
      if (at < shape[1]) {
        tokens.push_back(token);
      }
    }
    inputs_ = test::labels_of(tokens, device()).reshape(shape);
    labels_ = test::labels_of(labels, device()).reshape(shape);
  }

  NamedTensors parameters() const { return tied_.without_copies(model_->named_parameters()); }

  /// Trains, and compares every step.
  void compare(const std::string& name, Optimizer& optimizer, double norm_tolerance) {
    const auto losses = golden_.at(name + "/losses").to_vector<double>();
    const auto norms = golden_.at(name + "/norms").to_vector<double>();
    const NamedTensors& parameters = optimizer.parameters();
    double worst_loss = 0;
    double worst_norm = 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(model_->forward(inputs_), labels_);
      backward(loss);
      tied_.sum_gradients();
      worst_loss = std::max(worst_loss, std::abs(loss.item() - losses[step]));
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const double norm = std::sqrt(sum_of_squares(parameters[i].second.grad()));
        const double expected = norms[step * parameters.size() + i];
        worst_norm = std::max(worst_norm, std::abs(norm - expected) / expected);
      }
      optimizer.step();
      tied_.copy_values();
    }
    EXPECT_LE(worst_loss, run().loss);
    EXPECT_LE(worst_norm, norm_tolerance);
    RecordProperty("worst_loss", fmt::format("{:.2e}", worst_loss));
    RecordProperty("worst_norm", fmt::format("{:.2e}", worst_norm));
  }

  std::map<std::string, Tensor> golden_;
  std::shared_ptr<Sequential> model_ =
      make_model(run().model, {.classes = run().classes, .sizes = run().sizes, .tie_head = run().tied});
  TiedWeights tied_;
  Tensor inputs_;
  Tensor labels_;
};

TEST_P(Golden, GradientsOfTheFirstStep) {
  backward(cross_entropy(model_->forward(inputs_), labels_));
  tied_.sum_gradients();
  double worst = 0;
  for (const auto& [name, parameter] : parameters()) {
    const auto found = values_of(parameter.grad());
    const auto expected = values_of(golden_.at("gradients/" + name));
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      difference += std::pow(found[i] - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    EXPECT_LE(std::sqrt(difference / size), run().gradient) << name;
    worst = std::max(worst, std::sqrt(difference / size));
  }
  RecordProperty("worst_gradient", fmt::format("{:.2e}", worst));
}

TEST_P(Golden, TenStepsOfSgdWithMomentum) {
  Sgd optimizer(parameters(), {.learning_rate = 0.01, .momentum = 0.9});
  compare("sgd", optimizer, run().norm);
}

TEST_P(Golden, TenStepsOfAdam) {
  Adam optimizer(parameters(), {.learning_rate = 0.001});
  compare("adam", optimizer, run().adam_norm);
}

constexpr ModelSizes kSmallVit{.depth = 2, .width = 16, .heads = 2};
constexpr ModelSizes kSmallGpt{.depth = 2, .width = 16, .heads = 2, .context = 12};
const GoldenRun kRuns[] = {{"convnet", {}, 10, DType::float32, 1e-5, 1e-5, 1e-5, 1e-4},
                           {"convnet", {}, 10, DType::float64, 1e-12, 1e-7, 1e-12, 1e-12},
                           {"vit", kSmallVit, 10, DType::float32, 1e-5, 1e-5, 1e-5, 1e-4},
                           {"vit", kSmallVit, 10, DType::float64, 1e-12, 1e-7, 1e-12, 1e-12},
                           {"gpt", kSmallGpt, 256, DType::float32, 1e-5, 1e-5, 1e-5, 1e-4},
                           {"gpt", kSmallGpt, 256, DType::float64, 1e-12, 1e-7, 1e-12, 1e-12},
                           {"gpt", kSmallGpt, 256, DType::float32, 1e-5, 1e-5, 1e-5, 1e-4, true},
                           {"gpt", kSmallGpt, 256, DType::float64, 1e-12, 1e-7, 1e-12, 1e-12, true}};

/// On every device. Emulated kernels would take hours.
std::vector<test::On<GoldenRun>> runs() {
  auto all = test::on_devices(kRuns);
  if (cuda::is_emulated()) {
    std::erase_if(all, [](const auto& run) { return run.device.type == DeviceType::cuda; });
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Types, Golden, testing::ValuesIn(runs()), [](const auto& tested) {
  const GoldenRun& run = tested.param.what;
  return fmt::format("{}_{}{}_{}", test::name_of(tested.param.device), run.model, run.tied ? "_tied" : "",
                     name_of(run.dtype));
});

}  // namespace
}  // namespace stagecoach
