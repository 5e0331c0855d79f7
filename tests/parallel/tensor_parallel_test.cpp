// Layers that are cut over ranks, against one device that computes the same slices one after another.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/layers.h"
#include "nn/make_optimizer.h"
#include "nn/models.h"
#include "parallel/launch/launch.h"
#include "parallel/tensor_parallel/class_parallel_loss.h"
#include "parallel/tensor_parallel/conjugate.h"
#include "parallel/tensor_parallel/sliced_layers.h"
#include "parallel/tensor_parallel/tensor_parallel_layers.h"
#include "tests/parallel/training_record.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::close;
using test::fails_with;
using test::random_labels;
using test::random_tensor;
using test::same_bytes;

constexpr std::int64_t kBatch = 5;
constexpr std::int64_t kSharedClasses = 12;  // which two, three or four ranks can share

/// A model to be cut, with small sizes where it has any.
struct SlicedCase {
  const char* model;
  SequenceParallel sequence = SequenceParallel::no;
  ClassParallel classes = ClassParallel::no;
  bool overlaps = false;
};
const std::vector<SlicedCase> kCases{{"convnet"},
                                     {"mlp"},
                                     {"vit"},
                                     {"vit", SequenceParallel::yes},
                                     {"convnet", SequenceParallel::no, ClassParallel::yes},
                                     {"mlp", SequenceParallel::no, ClassParallel::yes},
                                     {"vit", SequenceParallel::no, ClassParallel::yes},
                                     {"vit", SequenceParallel::yes, ClassParallel::yes}};

/// Returns these cases, and some in which sums overlap with computation.
std::vector<SlicedCase> cases_on_ranks() {
  std::vector<SlicedCase> cases = kCases;
  for (const char* model : {"convnet", "vit"}) {
    cases.push_back({.model = model, .overlaps = true});
  }
  return cases;
}

std::string name_of(const SlicedCase& tested) {
  return std::string(tested.model) + (tested.sequence == SequenceParallel::yes ? "_sequence" : "") +
         (tested.classes == ClassParallel::yes ? "_classes" : "") + (tested.overlaps ? "_overlap" : "");
}

std::shared_ptr<Sequential> model_of(const SlicedCase& tested, std::shared_ptr<const LayerFactory> layers) {
  ModelSettings settings{.classes = kSharedClasses, .layers = std::move(layers)};
  if (tested.model == std::string("vit")) {
    settings.image_size = 16;
    settings.sizes = {.depth = 2, .width = 16, .heads = 4};
  } else if (tested.model == std::string("mlp")) {
    settings.sizes = {.depth = 3, .width = 24};
  }
  return make_model(tested.model, settings);
}

std::int64_t image_size_of(const SlicedCase& tested) { return tested.model == std::string("vit") ? 16 : 32; }

std::shared_ptr<const LayerFactory> slices_of(const SlicedCase& tested, int slices) {
  return std::make_shared<SlicedLayers>(slices, tested.sequence, tested.classes);
}
std::shared_ptr<const LayerFactory> layers_of(const SlicedCase& tested, Communicator& comm,
                                              CommThread* comm_thread = nullptr) {
  return std::make_shared<TensorParallelLayers>(comm, tested.sequence, tested.classes, comm_thread);
}

// The losses of their models.
LossFunction sliced_loss(const SlicedCase& tested, int slices) {
  return tested.classes == ClassParallel::yes ? sliced_class_loss(slices) : loss_of_whole_logits;
}
LossFunction loss_on_ranks(const SlicedCase& tested, Communicator& comm) {
  return tested.classes == ClassParallel::yes ? class_parallel_loss({comm.size(), comm.rank(), &comm})
                                              : loss_of_whole_logits;
}

/// Accumulates the gradients of the mean loss over a batch in two micro-batches of unequal size.
void accumulate_gradients(Sequential& model, const Tensor& images, const Tensor& labels,
                          const LossFunction& loss_of = loss_of_whole_logits) {
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>(0, 3), {3, 2}}) {
    const Tensor logits = model.forward(images.narrow(first, count));
    backward(scale(loss_of(logits, labels.narrow(first, count), nullptr), 1.0 / kBatch));
  }
}

/// Trains for some steps on batches of random images.
test::Record train(Sequential& model, const LossFunction& loss_of, OptimizerKind kind, int steps,
                   std::int64_t image_size, Device device) {
  const auto optimizer = make_optimizer(kind, model.named_parameters(), 0.02, kind == OptimizerKind::sgd ? 0.9 : 0, 0);
  const Tensor labels = random_labels(kBatch, kSharedClasses, device);
  test::Record record;
  for (int step = 0; step < steps; ++step) {
    const Tensor images =
        random_tensor({kBatch, 3, image_size, image_size}, fmt::format("images {}", step), DType::float32, device);
    accumulate_gradients(model, images, labels, loss_of);
    test::note(record, *optimizer);
  }
  return record;
}

/// What a rank should have of each tensor of one device.
NamedTensors slices_of(const NamedTensors& whole, const NamedSlices& slices) {
  NamedTensors expected = whole;
  for (auto& [name, tensor] : expected) {
    for (const auto& [cut_name, slice] : slices) {
      if (cut_name == name) {
        tensor = cut(tensor, slice);
      }
    }
  }
  return expected;
}

class TensorParallel : public ::testing::TestWithParam<std::tuple<SlicedCase, int, OptimizerKind>> {
 protected:
  static const SlicedCase& tested() { return std::get<0>(GetParam()); }
  static int ranks() { return std::get<1>(GetParam()); }
  static OptimizerKind kind() { return std::get<2>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, TensorParallel,
                         ::testing::Combine(::testing::ValuesIn(cases_on_ranks()), ::testing::Values(1, 2, 4),
                                            ::testing::Values(OptimizerKind::sgd, OptimizerKind::adam)),
                         [](const auto& instance) {
                           const OptimizerKind kind = std::get<2>(instance.param);
                           return fmt::format("{}_{}_{}", name_of(std::get<0>(instance.param)),
                                              std::get<1>(instance.param), kind == OptimizerKind::sgd ? "sgd" : "adam");
                         });

TEST_P(TensorParallel, HasTheBytesOfOneDeviceThatComputesTheSlices) {
  STAGECOACH_NEEDS_RANKS(ranks());
  const int steps = test::unless_sanitized(20, 3);
  const auto one = model_of(tested(), slices_of(tested(), ranks()));
  one->materialize(3);
  const test::Record wanted = train(*one, sliced_loss(tested(), ranks()), kind(), steps, image_size_of(tested()), {});
  launch(test::world_of(ranks()), [&](Rank& rank) {
    std::optional<CommThread> comm_thread;
    if (tested().overlaps) {
      comm_thread.emplace(rank.comm);
    }
    const auto model = model_of(tested(), layers_of(tested(), rank.comm, comm_thread ? &*comm_thread : nullptr));
    model->materialize(3, rank.device);
    const test::Record got =
        train(*model, loss_on_ranks(tested(), rank.comm), kind(), steps, image_size_of(tested()), rank.device);
    const NamedSlices slices = model->named_slices();
    EXPECT_EQ(slices.empty(), false);
    for (std::size_t step = 0; step < static_cast<std::size_t>(steps); ++step) {
      EXPECT_TRUE(test::equal(got.gradients[step], slices_of(wanted.gradients[step], slices))) << "step " << step;
      EXPECT_TRUE(test::equal(got.weights[step], slices_of(wanted.weights[step], slices))) << "step " << step;
    }
  });
}

class SlicedModel : public ::testing::TestWithParam<std::tuple<SlicedCase, int>> {};
INSTANTIATE_TEST_SUITE_P(Slices, SlicedModel,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::Values(1, 2, 4)),
                         [](const auto& instance) {
                           return fmt::format("{}_{}", name_of(std::get<0>(instance.param)),
                                              std::get<1>(instance.param));
                         });

TEST_P(SlicedModel, HasTheGradientsOfTheWholeOne) {
  const auto& [tested, slices] = GetParam();
  const auto whole = model_of(tested, nullptr);
  const auto sliced = model_of(tested, slices_of(tested, slices));
  for (const DType dtype : {DType::float32, DType::float64}) {
    whole->deallocate();
    sliced->deallocate();
    whole->materialize(3, {}, dtype);
    sliced->materialize(3, {}, dtype);
    const std::int64_t side = image_size_of(tested);
    const Tensor images = random_tensor({kBatch, 3, side, side}, "images", dtype);
    const Tensor labels = random_labels(kBatch, kSharedClasses);
    accumulate_gradients(*whole, images, labels);
    accumulate_gradients(*sliced, images, labels, sliced_loss(tested, slices));
    const NamedTensors a = sliced->named_parameters();
    const NamedTensors b = whole->named_parameters();
    ASSERT_EQ(a.size(), b.size());
    const double bound = dtype == DType::float32 ? 1e-5 : 1e-13;
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].first, b[i].first);
      EXPECT_TRUE(same_bytes(a[i].second, b[i].second)) << "weights of " << a[i].first;
      EXPECT_TRUE(close(a[i].second.grad(), b[i].second.grad(), bound / 10, bound)) << a[i].first;
    }
  }
}

/// Two convolutions, cut by output and by input channels: [N, 3, 8, 8] to [N, 5, 4, 4].
std::shared_ptr<Sequential> convolutions(const LayerFactory& layers) {
  auto model = std::make_shared<Sequential>();
  model->add("conv1", layers.conv2d(3, 8, 3, Cut::outputs, {.stride = 1, .padding = 1}));
  model->add("relu", std::make_shared<ReLU>());
  model->add("conv2", layers.conv2d(8, 5, 3, Cut::inputs, {.stride = 2, .padding = 1}));
  return model;
}

/// The output, then the gradients of the input and of all parameters.
NamedTensors through(Sequential& model, Device device) {
  const Tensor x = random_tensor({2, 3, 8, 8}, "x", DType::float32, device).set_requires_grad(true);
  const Tensor y = model.forward(x);
  backward(y, random_tensor({2, 5, 4, 4}, "grad", DType::float32, device));
  NamedTensors results{{"y", y.detach()}, {"x", x.grad()}};
  for (const auto& [name, parameter] : model.named_parameters()) {
    results.emplace_back(name, parameter.grad());
  }
  return results;
}

TEST(CutConvolutions, HaveTheBytesOfTheSlicesAndTheValuesOfTheWhole) {
  const auto whole = convolutions(LayerFactory());
  whole->materialize(5);
  const NamedTensors wanted = through(*whole, {});
  for (const int ranks : {1, 2, 4}) {
    if (!test::has_ranks(ranks)) {
      continue;
    }
    const auto sliced = convolutions(SlicedLayers(ranks));
    sliced->materialize(5);
    const NamedTensors expected = through(*sliced, {});
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(close(expected[i].second, wanted[i].second, 1e-6, 1e-5)) << wanted[i].first;
    }
    launch(test::world_of(ranks), [&](Rank& rank) {
      const auto model = convolutions(TensorParallelLayers(rank.comm));
      model->materialize(5, rank.device);
      EXPECT_EQ(model->output_shape({2, 3, 8, 8}), Shape({2, 5, 4, 4}));
      EXPECT_TRUE(test::equal(through(*model, rank.device), slices_of(expected, model->named_slices())));
    });
  }
}

TEST(TensorParallelShapes, AreThoseOfTheForward) {
  STAGECOACH_NEEDS_RANKS(2);
  for (const SlicedCase& tested : kCases) {
    launch(test::world_of(2), [&](Rank& rank) {
      const auto model = model_of(tested, layers_of(tested, rank.comm));
      model->materialize(1, rank.device);
      const std::int64_t side = image_size_of(tested);
      Tensor x = random_tensor({2, 3, side, side}, "x", DType::float32, rank.device);
      for (const auto& [name, layer] : model->children()) {
        const Shape expected = layer->output_shape(x.shape());
        x = layer->forward(x);
        EXPECT_EQ(x.shape(), expected) << tested.model << ", " << name;
      }
      EXPECT_EQ(x.shape(), Shape({2, tested.classes == ClassParallel::yes ? kSharedClasses / 2 : kSharedClasses}));
    });
  }
}

/// Returns the bytes that a rank sends in a training step of a small vit.
double bytes_of_step(Rank& rank, const SlicedCase& tested) {
  const auto model = model_of(tested, layers_of(tested, rank.comm));
  model->materialize(3, rank.device);
  const auto total = [&] {
    double bytes = 0;
    for (const auto& [to, sent] : rank.comm.bytes_sent()) {
      bytes += sent;
    }
    return bytes;
  };
  const double before = total();
  train(*model, loss_on_ranks(tested, rank.comm), OptimizerKind::sgd, 1, image_size_of(tested), rank.device);
  return total() - before;
}

// A block's two pairs of layers cost two all-reduces of the activations forward and two backward; a ring sends
// 2 (p - 1) / p of the bytes.
TEST(TensorParallelTraffic, IsThatOfTheFormula) {
  for (const int ranks : {2, 4}) {
    if (!test::has_ranks(ranks)) {
      continue;
    }
    launch(test::world_of(ranks), [&](Rank& rank) {
      constexpr std::int64_t kTokens = 16;
      constexpr std::int64_t kWidth = 16;
      constexpr std::int64_t kBlocks = 2;
      const double ring = 2.0 * (ranks - 1) / ranks;
      const double activations = 4.0 * kBatch * kTokens * kWidth;
      const double all_reduces = 4 * kBlocks * ring * activations;
      EXPECT_DOUBLE_EQ(bytes_of_step(rank, {"vit"}), all_reduces);
      // With sequence parallelism the tokens are gathered once more, after the last norm, and scattered tokens of the
      // embedding have their gradient gathered. Of each block's norms weight and bias, and two other biases, and of the
      // last norm, gradients are summed: once per micro-batch.
      const double gathers = 2 * (ring / 2) * activations;
      const double gradients = 2 * (6 * kBlocks + 2) * ring * 4 * kWidth;
      EXPECT_DOUBLE_EQ(bytes_of_step(rank, {"vit", SequenceParallel::yes}), all_reduces + gathers + gradients);
      // Cut by classes, the head has its input's gradient summed, and the loss gathers four numbers per rank and image.
      const double head = ring * 4 * kBatch * kWidth + (ranks - 1) * 4.0 * kBatch * kClassStatistics;
      EXPECT_DOUBLE_EQ(bytes_of_step(rank, {"vit", SequenceParallel::no, ClassParallel::yes}), all_reduces + head);
      EXPECT_DOUBLE_EQ(bytes_of_step(rank, {"vit", SequenceParallel::yes, ClassParallel::yes}),
                       all_reduces + gathers + gradients + head);
    });
  }
}

// Rank r sends s + 1 rows to rank s, each with the number 10 r + s; the gradient of a row comes back from where it
// went.
TEST(ExchangedRows, HaveTheirGradientsSentBack) {
  constexpr int kRanks = 3;
  launch({.ranks = kRanks}, [](Rank& rank) {
    const RowCounts send_rows{1, 2, 3};
    const RowCounts receive_rows(kRanks, rank.index + 1);
    std::vector<double> numbers;
    for (int to = 0; to < kRanks; ++to) {
      numbers.insert(numbers.end(), static_cast<std::size_t>(to) + 1, 10 * rank.index + to);
    }
    const Tensor x = Tensor::from(numbers, {6, 1}, rank.device).set_requires_grad(true);
    const Tensor y = exchange_rows(x, send_rows, receive_rows, {kRanks, rank.index, &rank.comm});
    std::vector<double> received;
    for (int from = 0; from < kRanks; ++from) {
      received.insert(received.end(), static_cast<std::size_t>(rank.index) + 1, 10 * from + rank.index);
    }
    EXPECT_EQ(y.to_vector<double>(), received);
    backward(y, scale(y.detach(), 2));
    EXPECT_TRUE(same_bytes(x.grad(), scale(x.detach(), 2)));
  });
  EXPECT_EQ(exchange_rows(Tensor::zeros({6, 2}), {1, 2, 3}, {4, 4, 4}, {.ranks = kRanks}).shape(), (Shape{12, 2}));
}

TEST(TensorParallelErrors, NameWhatTheRanksCannotShare) {
  const auto layers = std::make_shared<SlicedLayers>(3);
  EXPECT_TRUE(
      fails_with<UsageError>({"channels", "3 ranks", "16"}, [&] { make_model("convnet", {.layers = layers}); }));
  EXPECT_TRUE(fails_with<UsageError>({"heads", "3 ranks", "4"}, [&] { make_model("vit", {.layers = layers}); }));
  EXPECT_TRUE(fails_with<UsageError>({"features", "3 ranks", "256"}, [&] { make_model("mlp", {.layers = layers}); }));
  const auto by_classes = std::make_shared<SlicedLayers>(4, SequenceParallel::no, ClassParallel::yes);
  EXPECT_TRUE(fails_with<UsageError>({"classes", "4 ranks", "10"}, [&] { make_model("vit", {.layers = by_classes}); }));
  EXPECT_TRUE(fails_with<UsageError>({"softmax", "`ClassParallel::no`"}, [&] {
    make_model("vit", {.softmax_head = true, .classes = 12, .layers = by_classes});
  }));
  EXPECT_TRUE(fails_with<UsageError>({"resnet18", "vit"}, [&] { make_model("resnet18", {.layers = layers}); }));
}

TEST(TensorParallelErrors, OfRanksAreThoseOfSlices) {
  STAGECOACH_NEEDS_RANKS(3);
  launch(test::world_of(3), [](Rank& rank) {
    const auto layers = std::make_shared<TensorParallelLayers>(rank.comm);
    EXPECT_TRUE(
        fails_with<UsageError>({"channels", "3 ranks", "16"}, [&] { make_model("convnet", {.layers = layers}); }));
    EXPECT_TRUE(fails_with<UsageError>({"heads", "3 ranks", "4"}, [&] { make_model("vit", {.layers = layers}); }));
    const auto sequence = std::make_shared<TensorParallelLayers>(rank.comm, SequenceParallel::yes);
    EXPECT_TRUE(fails_with<UsageError>({"tokens", "3 ranks", "64"}, [&] {
      make_model("vit", {.sizes = {.width = 48, .heads = 3}, .layers = sequence});
    }));
    const auto classes = std::make_shared<TensorParallelLayers>(rank.comm, SequenceParallel::no, ClassParallel::yes);
    EXPECT_TRUE(fails_with<UsageError>({"classes", "3 ranks", "10"}, [&] {
      make_model("vit", {.sizes = {.width = 48, .heads = 3}, .layers = classes});
    }));
  });
}

}  // namespace
}  // namespace stagecoach
