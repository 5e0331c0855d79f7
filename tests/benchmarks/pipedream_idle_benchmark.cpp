// Idle share of an asynchronous pipeline (chapter 4) over the number of micro-batches that it runs without draining:
// four equal stages, weight stashing, virtual clock. Prints Markdown, medians of several repeats.
//
//   idle        the measured share of the time in which a rank computes nothing, the mean over ranks
//   replayed    what simulate says with the time that each single action took
//   predicted   what it says with the mean time of each stage's actions
//   formula     (p - 1) / (N + p - 1): where all actions take the same time
//
// All ranks share one core. Then one computes at a time and takes as long as it takes alone: on two cores that share
// their arithmetic units the ranks would slow each other down by turns.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "core/autograd/node.h"
#include "core/base/system.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/weight_versions.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {
namespace {

constexpr int kRanks = 4;
constexpr int kRepeats = 3;
constexpr std::int64_t kNarrow = 8;  // what goes from stage to stage, for a sample
// The first stage has no gradient of its input to compute, the last no old version to keep; a few more inputs and
// classes make up for it.
constexpr std::int64_t kInputs = 16;
constexpr std::int64_t kClasses = 12;

/// What a stage is made of.
struct Work {
  const char* words;
  std::int64_t samples;  // a micro-batch
  std::int64_t wide;     // the layers are kNarrow to wide to wide to kNarrow
  int steps;             // of a Chain behind them
};
constexpr Work kKinds[] = {
    {"Each stage a chain of dependent multiplications", 4, kNarrow, 2'000'000},
    {"Each stage three linear layers", 512, 256, 0},
};

/// Gives what it gets, after multiplications that wait for each other, twice as many in the backward: they leave most
/// of the core unused, so that whoever shares it hardly slows them.
class Chain final : public Module {
 public:
  explicit Chain(int steps) : steps_(steps) {}
  Tensor forward(const Tensor& x) override {
    multiply(steps_);
    Tensor y = x.detach();
    y.set_grad_node(std::make_shared<Backward>(x, 2 * steps_));
    return y;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  static void multiply(int steps) {
    volatile float seen = 0.4F;  // a compiler must not leave out the work
    float x = seen;
    for (int i = 0; i < steps; ++i) {
      x = 3.7F * x * (1 - x);
    }
    seen = x;
  }
  class Backward final : public Node {
   public:
    Backward(const Tensor& x, int steps) : Node("chain", {x}), steps_(steps) {}
    Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
      multiply(steps_);
      return {grad};
    }

   private:
    int steps_;
  };

  int steps_;
};

std::shared_ptr<Sequential> make_stage(const Work& work, int number, Device device) {
  auto layers = std::make_shared<Sequential>();
  layers->add("fc1", std::make_shared<Linear>(number == 0 ? kInputs : kNarrow, work.wide));
  layers->add("relu1", std::make_shared<ReLU>());
  layers->add("fc2", std::make_shared<Linear>(work.wide, work.wide));
  layers->add("relu2", std::make_shared<ReLU>());
  layers->add("fc3", std::make_shared<Linear>(work.wide, number == kRanks - 1 ? kClasses : kNarrow));
  layers->add("chain", std::make_shared<Chain>(work.steps));
  layers->materialize(1, device);
  return layers;
}

Schedule stream_of(int microbatches) {
  return lower(pipedream_schedule(std::vector<int>(kRanks, 1), microbatches, 1, Versions::stash));
}

/// A stage cannot be copied, and so not be in a list of initial values.
std::map<int, Stage> only_stage(int number, const std::shared_ptr<Sequential>& layers) {
  std::map<int, Stage> stages;
  stages.emplace(number, layers);
  return stages;
}

/// One rank and its stage.
class Runner {
 public:
  Runner(const Work& work, Rank& rank)
      : rank_(rank),
        layers_(make_stage(work, rank.index, rank.device)),
        optimizer_(make_optimizer(OptimizerKind::sgd, layers_->named_parameters(), 1e-3, 0)),
        pipeline_(only_stage(rank.index, layers_), entering(), stream_of(1), rank.comm),
        x_(Tensor::full({work.samples, kInputs}, 1, DType::float32, rank.device)),
        labels_(Tensor::zeros({work.samples}, DType::int32, rank.device)) {}

  /// Seconds by this rank's clock, from the moment when all begin.
  double run(int microbatches) {
    const Schedule schedule = stream_of(microbatches);
    const Ledger ledger = make_ledger(schedule, Versions::stash);
    WeightVersions weights(layers_->named_parameters(), schedule, ledger, rank_.index);
    const StepData data{[&](int) { return x_; }, [&](int) { return labels_; },
                        std::vector<std::int64_t>(static_cast<std::size_t>(microbatches), x_.size(0))};
    const auto& actions = schedule.ranks[static_cast<std::size_t>(rank_.index)];
    pipeline_.log().clear();
    rank_.comm.barrier();  // now all clocks show the same time
    const double start = rank_.comm.clock().now();
    pipeline_.begin(schedule, data);
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].operation == Operation::update) {
        const ActionLog::Scope scope(pipeline_.log(), actions[i]);
        weights.choose(i);
        optimizer_->step();
        optimizer_->zero_grad();
      } else {
        weights.choose(i);
        pipeline_.perform(actions[i]);
      }
      weights.free_unneeded(i);
    }
    pipeline_.finish();
    return rank_.comm.clock().now() - start;
  }
  const ActionLog& log() { return pipeline_.log(); }

 private:
  static std::vector<Shape> entering() {
    std::vector<Shape> shapes(kRanks, Shape{1, kNarrow});
    shapes[0] = {1, kInputs};
    return shapes;
  }

  Rank& rank_;
  std::shared_ptr<Sequential> layers_;
  std::unique_ptr<Optimizer> optimizer_;
  Pipeline pipeline_;
  Tensor x_;
  Tensor labels_;
};

/// Shares of the time, from the first action's start to the last one's end.
struct Idle {
  double measured;
  double replayed;
  double predicted;
};

Idle measure(const Work& work, int microbatches) {
  std::vector<double> ends(kRanks);
  ActionSeconds seconds;
  Costs costs;
  launch({.ranks = kRanks, .clock = ClockKind::virtual_time}, [&](Rank& rank) {
    Runner runner(work, rank);
    runner.run(4 * kRanks);  // takes memory that is kept, and fills the caches
    ends[static_cast<std::size_t>(rank.index)] = runner.run(microbatches);
    const ActionSeconds all_seconds = runner.log().seconds();
    const Costs mean = runner.log().mean_costs();
    if (rank.index == 0) {
      seconds = all_seconds;
      costs = mean;
    }
  });
  double busy = 0;
  for (const std::vector<double>& rank : seconds) {
    busy += std::accumulate(rank.begin(), rank.end(), 0.0);
  }
  const Schedule schedule = stream_of(microbatches);
  return {.measured = 1 - busy / (kRanks * *std::max_element(ends.begin(), ends.end())),
          .replayed = simulate(schedule, costs, seconds).idle,
          .predicted = simulate(schedule, costs).idle};
}

double median(const std::vector<Idle>& repeats, double Idle::*share) {
  std::vector<double> shares;
  for (const Idle& each : repeats) {
    shares.push_back(each.*share);
  }
  const auto middle = shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 2);
  std::nth_element(shares.begin(), middle, shares.end());
  return *middle;
}

void print_table(const Work& work) {
  std::map<int, std::vector<Idle>> measured{{4, {}}, {16, {}}, {64, {}}, {256, {}}, {1024, {}}};
  for (int i = 0; i < kRepeats; ++i) {
    for (auto& [microbatches, repeats] : measured) {
      repeats.push_back(measure(work, microbatches));
    }
  }
  fmt::print("\n{}:\n\n", work.words);
  fmt::print("| micro-batches | idle | replayed | predicted | formula |\n|---:|---:|---:|---:|---:|\n");
  for (const auto& [microbatches, repeats] : measured) {
    fmt::print("| {} | {:.1f}% | {:.1f}% | {:.1f}% | {:.1f}% |\n", microbatches, 100 * median(repeats, &Idle::measured),
               100 * median(repeats, &Idle::replayed), 100 * median(repeats, &Idle::predicted),
               100.0 * (kRanks - 1) / (microbatches + kRanks - 1));
  }
}

}  // namespace
}  // namespace stagecoach

int main() {
  const std::vector<int> cores = stagecoach::system::usable_cores();
  if (cores.empty() || !stagecoach::system::run_on_cores({cores.front()})) {
    fmt::print(stderr, "not kept on one core; ranks may slow each other down\n");
  }
  for (const stagecoach::Work& work : stagecoach::kKinds) {
    stagecoach::print_table(work);
  }
}
