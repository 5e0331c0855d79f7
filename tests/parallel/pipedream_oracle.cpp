#include "tests/parallel/pipedream_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/layers.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {
namespace {

/// One stage of the sequential program: the weights after every update, and the gradients that wait for the next one.
struct SequentialStage {
  NamedTensors parameters;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<std::vector<Tensor>> history;    // an update, then a parameter
  std::vector<std::vector<Tensor>> gradients;  // a replica, then a parameter

  void set_weights(int version) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].second.copy_from(history[static_cast<std::size_t>(version)][i]);
    }
  }
  void remember() {
    history.emplace_back();
    for (const auto& [name, parameter] : parameters) {
      history.back().push_back(parameter.clone());
    }
  }
};

/// The rule of each policy: how many updates of stage s the weights have with which it runs micro-batch i.
int version_of(const PipedreamTraining& training, int s, int i) {
  if (training.versions == Versions::two_buffers) {
    return std::max(i / training.batch - 1, 0);
  }
  if (training.versions == Versions::flush) {
    return i / training.batch;
  }
  const int stage = training.versions == Versions::vertical ? 0 : s;
  const int n = training.replicas[static_cast<std::size_t>(stage)];
  const int ranks_from_here = std::accumulate(training.replicas.begin() + stage, training.replicas.end(), 0);
  const int warm_up = (ranks_from_here + n - 1) / n - 1;
  const int backwards = std::max(i / n - warm_up, 0);  // of this replica, before its forward of i
  return backwards / (std::lcm(training.batch, n) / n);
}

}  // namespace

void PipedreamResult::note_gradients(int update, const NamedTensors& parameters) {
  for (const auto& [name, parameter] : parameters) {
    squares[fmt::format("{}/{}", update, name)] = sum_of_squares(parameter.grad());
  }
}

void PipedreamResult::note_weights(const NamedTensors& parameters) {
  for (const auto& [name, parameter] : parameters) {
    weights[name] = parameter.to(Device{}).clone();
  }
}

std::shared_ptr<Sequential> make_net() {
  auto model = std::make_shared<Sequential>();
  for (int i = 0; i < 8; ++i) {
    model->add(fmt::format("fc{}", i), std::make_shared<Linear>(kWidth, kWidth));
    model->add(fmt::format("relu{}", i), std::make_shared<ReLU>());
  }
  return model;
}

Tensor images(int microbatch) {
  return random_tensor({kSamples, kWidth}, fmt::format("images {}", microbatch), DType::float32);
}
Tensor labels(int microbatch) {
  return Tensor::from(std::vector<std::int32_t>{microbatch % 12, microbatch * 5 % 12, microbatch / 12 % 12},
                      {kSamples});
}

std::unique_ptr<Optimizer> make_optimizer_for(const PipedreamTraining& training, NamedTensors parameters) {
  const bool sgd = training.optimizer == OptimizerKind::sgd;
  return make_optimizer(training.optimizer, std::move(parameters), sgd ? 0.05 : 0.01, sgd ? 0.9 : 0);
}

PipedreamResult train_sequentially(const PipedreamTraining& training) {
  const auto model = make_net();
  model->materialize(3);
  std::vector<SequentialStage> stages;
  for (const auto& part : stages_of(*model, training.split())) {
    SequentialStage stage;
    stage.parameters = part->named_parameters();
    stage.optimizer = make_optimizer_for(training, stage.parameters);
    stage.remember();
    stages.push_back(std::move(stage));
  }
  PipedreamResult result;
  for (int i = 0; i < training.microbatches; ++i) {
    for (int s = 0; s < training.stages(); ++s) {
      stages[static_cast<std::size_t>(s)].set_weights(version_of(training, s, i));
    }
    const Tensor loss = cross_entropy(model->forward(images(i)), labels(i), Reduction::sum);
    result.losses[i] = loss.item();
    const int batch_size = std::min(training.batch, training.microbatches - i / training.batch * training.batch);
    backward(loss, Tensor::full({}, 1.0 / static_cast<double>(kSamples * batch_size)));
    for (int s = 0; s < training.stages(); ++s) {
      SequentialStage& stage = stages[static_cast<std::size_t>(s)];
      const int n = training.replicas[static_cast<std::size_t>(s)];
      const int unit = std::lcm(training.batch, n);
      stage.gradients.resize(static_cast<std::size_t>(n));
      auto& sums = stage.gradients[static_cast<std::size_t>(i % n)];  // each replica adds up its own
      for (std::size_t k = 0; k < stage.parameters.size(); ++k) {
        const Tensor gradient = stage.parameters[k].second.grad();
        if (sums.size() <= k) {
          sums.push_back(gradient);
        } else {
          sums[k] = add(sums[k], gradient);
        }
      }
      stage.optimizer->zero_grad();
      if ((i + 1) % unit != 0 && i + 1 != training.microbatches) {
        continue;
      }
      stage.set_weights(static_cast<int>(stage.history.size()) - 1);
      const int begun = i / unit * unit;
      const int batches = (i - begun) / training.batch + 1;
      for (std::size_t k = 0; k < stage.parameters.size(); ++k) {
        Tensor sum = stage.gradients[0][k];
        for (std::size_t r = 1; r < stage.gradients.size() && !stage.gradients[r].empty(); ++r) {
          sum = add(sum, stage.gradients[r][k]);
        }
        stage.parameters[k].second.set_grad(batches > 1 ? scale(sum, 1.0 / batches) : sum.clone());
      }
      result.note_gradients(i / unit, stage.parameters);
      stage.optimizer->step();
      stage.optimizer->zero_grad();
      stage.remember();
      stage.gradients.clear();
    }
  }
  for (SequentialStage& stage : stages) {
    stage.set_weights(static_cast<int>(stage.history.size()) - 1);
    result.note_weights(stage.parameters);
  }
  return result;
}

}  // namespace stagecoach::test
