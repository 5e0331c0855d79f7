#include "tests/labs/tiny_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>

#include "core/ops.h"
#include "core/random.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/pipeline/split.h"
#include "tests/labs/class_settings.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs {
namespace {

constexpr std::int64_t kFeatures = 5;
constexpr std::int64_t kClasses = 4;
constexpr const char* kMean = "the contract: what the backward begins with; chapter 1, \"Micro-batches\"";
constexpr const char* kDevice =
    "comm.device(), where this rank's tensors are; `backward` in chapters/02_naive_model_parallel/main.cpp";
constexpr SgdSettings kSgd{.learning_rate = 0.25, .momentum = 0.5};

/// The elements of all weights by name, and the loss, after a step.
struct Snapshot {
  std::map<std::string, std::vector<float>> weights;
  double loss = 0;
};

/// Notices if somebody wants the gradient of the images.
class ImagesProbe final : public Module {
 public:
  explicit ImagesProbe(bool& is_wanted) : is_wanted_(is_wanted) {}
  Tensor forward(const Tensor& x) override {
    is_wanted_ = is_wanted_ || x.requires_grad();
    return x;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  bool& is_wanted_;
};

/// A linear layer and a relu per stage; the first stage begins with a probe, and the last one has no relu. No two
/// stages have inputs of the same width, so a tensor that goes to the wrong stage does not fit.
std::shared_ptr<Sequential> make_tiny_model(int stages, bool& wants_gradient_of_images) {
  auto model = std::make_shared<Sequential>();
  model->add("images", std::make_shared<ImagesProbe>(wants_gradient_of_images));
  for (int s = 0; s < stages; ++s) {
    const bool last = s + 1 == stages;
    model->add(fmt::format("fc{}", s), std::make_shared<Linear>(kFeatures + s, last ? kClasses : kFeatures + s + 1));
    if (!last) {
      model->add(fmt::format("relu{}", s), std::make_shared<ReLU>());
    }
  }
  return model;
}

Split tiny_split(int stages) {
  Split split(static_cast<std::size_t>(stages), 2);
  --split.back();
  ++split.front();
  return split;
}

Tensor images_of(int step, std::int64_t from, std::int64_t count, Device device) {
  const Philox random(class_seed(), fmt::format("images of step {}", step));
  std::vector<float> values(static_cast<std::size_t>(count * kFeatures));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(from * kFeatures) + i));
  }
  return Tensor::from(values, {count, kFeatures}, device);
}

Tensor labels_of(int step, std::int64_t from, std::int64_t count, Device device) {
  const Philox random(class_seed(), fmt::format("labels of step {}", step));
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(from) + i, kClasses));
  }
  return Tensor::from(values, {count}, device);
}

/// Calls make(step, first sample, count, device) for each micro-batch.
template <class Make>
std::vector<Tensor> microbatches_of(const TinyTraining& training, int step, Device device, const Make& make) {
  std::vector<Tensor> parts;
  std::int64_t from = 0;
  for (const std::int64_t size : training.sizes) {
    parts.push_back(make(step, from, size, device));
    from += size;
  }
  return parts;
}

void add_weights(const Module& layers, Snapshot& snapshot) {
  for (const auto& [name, tensor] : layers.named_parameters()) {
    snapshot.weights[name] = tensor.to_vector<float>();
  }
}

/// Trains with the mean of the losses, or with their sum.
std::vector<Snapshot> train_on_one_device(const TinyTraining& training, Reduction reduction) {
  bool wants_gradient_of_images = false;
  const auto model = make_tiny_model(static_cast<int>(training.stage_to_rank.size()), wants_gradient_of_images);
  model->materialize(class_seed());
  Sgd optimizer(model->named_parameters(), kSgd);
  const double weight = reduction == Reduction::mean ? 1.0 / static_cast<double>(training.samples()) : 1.0;
  const Tensor share = Tensor::full({}, weight);
  std::vector<Snapshot> snapshots;
  for (int step = 0; step < training.steps; ++step) {
    Snapshot& snapshot = snapshots.emplace_back();
    const std::vector<Tensor> images = microbatches_of(training, step, {}, images_of);
    const std::vector<Tensor> labels = microbatches_of(training, step, {}, labels_of);
    for (std::size_t i = 0; i < images.size(); ++i) {
      const Tensor loss = cross_entropy(model->forward(images[i]), labels[i], Reduction::sum);
      backward(loss, share);
      snapshot.loss += loss.item();
    }
    optimizer.step();
    optimizer.zero_grad();
    add_weights(*model, snapshot);
  }
  return snapshots;
}

/// Returns "stages on ranks 0, 1, 0 and a batch of 6 samples".
std::string layout_of(const TinyTraining& training) {
  const std::string batch = training.sizes.size() == 1
                                ? fmt::format("a batch of {} samples", training.sizes.front())
                                : fmt::format("micro-batches of {} samples", fmt::join(training.sizes, ", "));
  return fmt::format("stages on ranks {} and {}", fmt::join(training.stage_to_rank, ", "), batch);
}

/// Calls the step. If a backward begins with a gradient on another device than the rank's, throws Failed that says
/// where it should be.
double loss_of_step(const RankStep& step_of, const RankPart& part) {
  try {
    return step_of(part);
  } catch (const Error& error) {
    const std::string text = error.what();  // "… an upstream gradient like the output … on cpu:1, got … on cpu:0"
    const std::string right = "on " + to_string(part.comm.device());
    const std::size_t got = text.find(", got ");
    if (text.find("an upstream gradient like the output") == std::string::npos || got == std::string::npos ||
        text.find(right, got) != std::string::npos) {
      throw;
    }
    throw Failed("the call returns" + for_case(), "an exception: " + text, kDevice);
  }
}

/// Trains on one rank; returns its part of the weights after each step.
std::vector<Snapshot> train_on_rank(const TinyTraining& training, const RankStep& step_of, Communicator& comm,
                                    const std::string& look_at) {
  const int stage_count = static_cast<int>(training.stage_to_rank.size());
  bool wants_gradient_of_images = false;
  const auto model = make_tiny_model(stage_count, wants_gradient_of_images);
  const Split split = tiny_split(stage_count);
  const std::vector<std::shared_ptr<Sequential>> slices = stages_of(*model, split);
  std::map<int, std::shared_ptr<Sequential>> mine;
  std::map<int, Stage> stages;
  for (int s = 0; s < stage_count; ++s) {
    if (training.stage_to_rank[static_cast<std::size_t>(s)] == comm.rank()) {
      mine[s] = slices[static_cast<std::size_t>(s)];
      mine[s]->materialize(class_seed(), comm.device());
      stages.emplace(s, Stage(mine[s]));
    }
  }
  const auto layers = joined(mine);
  Sgd optimizer(layers->named_parameters(), kSgd);
  const std::vector<Shape> entering = shapes_entering(*model, split, {1, kFeatures});
  std::vector<Snapshot> snapshots;
  for (int step = 0; step < training.steps; ++step) {
    begin_step(comm, step);
    std::vector<Tensor> images;
    std::vector<Tensor> labels;
    if (stages.contains(0)) {
      images = microbatches_of(training, step, comm.device(), images_of);
    }
    if (stages.contains(stage_count - 1)) {
      labels = microbatches_of(training, step, comm.device(), labels_of);
    }
    Snapshot& snapshot = snapshots.emplace_back();
    const double loss = loss_of_step(step_of, {comm, stages, entering, images, labels});
    snapshot.loss = labels.empty() ? 0 : loss;
    if (wants_gradient_of_images && training.wants_no_gradient_of_images) {
      throw Failed("stage 0 computes no gradient of the images" + for_case(),
                   "its forward was called with wants_gradient = true",
                   "parallel/pipeline/stage.h: what wants_gradient says; " + look_at);
    }
    optimizer.step();
    optimizer.zero_grad();
    add_weights(*layers, snapshot);
  }
  return snapshots;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

bool same_weights(const Snapshot& a, const Snapshot& b) {
  return std::all_of(a.weights.begin(), a.weights.end(), [&](const auto& named) {
    return b.weights.contains(named.first) && same_bits(named.second, b.weights.at(named.first));
  });
}

void require_equal(const Snapshot& expected, const Snapshot& got, int step, const std::string& look_at) {
  if (!(std::abs(got.loss - expected.loss) <= 1e-5 * std::abs(expected.loss))) {
    throw Failed(fmt::format("a sum of losses of {:.6g} in step {}{}", expected.loss, step + 1, for_case()),
                 fmt::format("{:.6g}", got.loss), look_at);
  }
  for (const auto& [name, values] : expected.weights) {
    const std::vector<float>& mine = got.weights.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(values[i]) != std::bit_cast<std::uint32_t>(mine[i])) {
        throw Failed(fmt::format("the weights of one device, bit for bit{}; {}[{}] is {:.9g} after step {}", for_case(),
                                 name, i, values[i], step + 1),
                     fmt::format("{:.9g}; all weights were equal before that step", mine[i]), look_at);
      }
    }
  }
}

struct RanksTrained {
  std::vector<std::vector<Snapshot>> snapshots;  // [ranks][steps]
  std::vector<Message> messages = {};
};

RanksTrained train_on_ranks(const TinyTraining& training, const RankStep& step, const std::string& look_at) {
  set_case(layout_of(training));
  RanksTrained trained{.snapshots = std::vector<std::vector<Snapshot>>(static_cast<std::size_t>(training.ranks()))};
  trained.messages = run_watched(
      training.ranks(),
      [&](Communicator& comm) {
        trained.snapshots[static_cast<std::size_t>(comm.rank())] = train_on_rank(training, step, comm, look_at);
      },
      look_at);
  return trained;
}

}  // namespace

int TinyTraining::ranks() const { return 1 + *std::max_element(stage_to_rank.begin(), stage_to_rank.end()); }

std::int64_t TinyTraining::samples() const { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

std::vector<Message> messages_of(const TinyTraining& training, const RankStep& step, const std::string& look_at) {
  return train_on_ranks(training, step, look_at).messages;
}

std::vector<Message> require_equal_to_one_device(const TinyTraining& training, const RankStep& step,
                                                 const std::string& look_at) {
  const RanksTrained trained = train_on_ranks(training, step, look_at);
  const std::vector<Snapshot> expected = train_on_one_device(training, Reduction::mean);
  const std::vector<Snapshot> summed = train_on_one_device(training, Reduction::sum);
  for (int i = 0; i < training.steps; ++i) {
    Snapshot got;
    for (const std::vector<Snapshot>& rank : trained.snapshots) {
      const Snapshot& part = rank[static_cast<std::size_t>(i)];
      got.weights.insert(part.weights.begin(), part.weights.end());
      got.loss += part.loss;
    }
    if (i == 0 && same_weights(got, summed.front()) && !same_weights(got, expected.front())) {
      throw Failed("the weights of one device, bit for bit" + for_case(),
                   "those of the sum of the losses, not of their mean: the backward does not begin with 1 / N", kMean);
    }
    require_equal(expected[static_cast<std::size_t>(i)], got, i, look_at);
  }
  return trained.messages;
}

}  // namespace stagecoach::labs
