#include "tests/labs/lab4_stashing.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "parallel/schedule/dependency_replay.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"

namespace stagecoach::labs::lab4 {
namespace {

constexpr int kWidth = 3;
constexpr double kRate = 0.05;
using Row = std::vector<float>;  // [kWidth]

// The model: stage s multiplies its input by its weights, number by number; the loss is half the squared distance of
// the last output from 1.

float number(int seed, int j) { return 0.6F + 0.1F * static_cast<float>((7 * seed + 3 * j) % 9); }

Row row(int seed) {
  Row values;
  for (int j = 0; j < kWidth; ++j) {
    values.push_back(number(seed, j));
  }
  return values;
}
Row image(int microbatch) { return row(microbatch); }
Row first_weights(int stage) { return row(stage + 4); }

Row product(const Row& a, const Row& b) {
  Row c(a.size());
  for (std::size_t j = 0; j < c.size(); ++j) {
    c[j] = a[j] * b[j];
  }
  return c;
}

Row gradient_of_loss(const Row& output) {
  Row gradient = output;
  for (float& value : gradient) {
    value -= 1;
  }
  return gradient;
}

/// The mean gradient of the micro-batches since the last update, added up in their order.
class MeanGradient {
 public:
  void add(const Row& gradient) {
    sum_.resize(gradient.size());
    for (std::size_t j = 0; j < gradient.size(); ++j) {
      sum_[j] += gradient[j];
    }
    ++count_;
  }
  Tensor take() {
    for (float& value : sum_) {
      value /= static_cast<float>(count_);
    }
    count_ = 0;
    return Tensor::from(std::exchange(sum_, {}), {kWidth});
  }

 private:
  Row sum_;
  int count_ = 0;
};

Tensor as_tensor(const Row& values) { return Tensor::from(values, {kWidth}); }

/// Weights that a store returned. Throws Failed if they are none.
Row as_row(const Tensor& weights, const std::string& what) {
  if (!weights.defined() || weights.numel() != kWidth) {
    throw Failed(fmt::format("{} weights for {}", kWidth, what), describe(weights),
                 "chapters/04_pipedream/lab/version_store.h");
  }
  return weights.to_vector<float>();
}

Schedule schedule_of(const StashedRun& run) {
  const std::vector<int> one_rank_each(static_cast<std::size_t>(run.ranks), 1);
  return lower(pipedream_schedule(one_rank_each, run.microbatches, run.batch, Versions::stash));
}

/// One stage of the pipeline, with the student's store.
class StashedStage {
 public:
  StashedStage(const Answer& answer, int stage) : answer_(answer), stage_(stage) {
    store_.versions[0] = as_tensor(first_weights(stage));
  }

  Row forward(int i, const Row& x) {
    inputs_[i] = x;
    begin_call(fmt::format("the forward of micro-batch {} on stage {}", i, stage_));
    used_[i] = newest_;
    const Tensor weights = answer_.weights_for_forward(store_, i);
    return product(x, as_row(weights, when_));
  }
  Row backward(int i, const Row& gradient) {
    begin_call(fmt::format("the backward of micro-batch {} on stage {}", i, stage_));
    const Tensor weights = answer_.weights_for_backward(store_, i);
    used_.erase(i);
    mean_.add(product(gradient, inputs_.at(i)));
    inputs_.erase(i);
    return product(gradient, as_row(weights, when_));
  }
  void update(int which) {
    begin_call(fmt::format("update {} on stage {}", which, stage_));
    answer_.update(store_, mean_.take(), kRate);
    newest_ = which + 1;
  }

  StoreState state() const {
    std::set<int> needed{newest_};
    for (const auto& [microbatch, version] : used_) {
      needed.insert(version);
    }
    return {store_, needed, reasons(), when_};
  }

 private:
  /// Says which versions are needed, and by whom.
  std::string reasons() const {
    std::map<int, std::vector<int>> users;  // of each version
    for (const auto& [microbatch, version] : used_) {
      users[version].push_back(microbatch);
    }
    users[newest_];
    std::string text;
    for (const auto& [version, microbatches] : users) {
      text +=
          fmt::format("{}{} ({}{}{})", text.empty() ? (users.size() == 1 ? "version " : "versions ") : ", ", version,
                      version == newest_ ? "the newest" : "", version == newest_ && !microbatches.empty() ? ", " : "",
                      microbatches.empty() ? ""
                                           : fmt::format("for micro-batch{} {}", microbatches.size() == 1 ? "" : "es",
                                                         fmt::join(microbatches, ", ")));
    }
    return text;
  }
  /// Records which call comes next, and what the store should hold before it.
  void begin_call(const std::string& call) {
    when_ = call;
    set_case(fmt::format("{}; before it the store should hold {}", call, reasons()));
  }

  const Answer& answer_;
  int stage_;
  lab::VersionStore store_;
  MeanGradient mean_;
  std::map<int, Row> inputs_;
  std::map<int, int> used_;  // the version of each micro-batch in flight
  int newest_ = 0;
  std::string when_;
};

/// Calls see(action, stage) after each forward, backward and update of the pipeline.
void run_pipeline(const Answer& answer, const StashedRun& run,
                  const std::function<void(const Action&, const StashedStage&)>& see) {
  std::vector<StashedStage> stages;
  for (int s = 0; s < run.ranks; ++s) {
    stages.emplace_back(answer, s);
  }
  std::map<std::pair<int, int>, Row> outputs;    // of (stage, micro-batch)
  std::map<std::pair<int, int>, Row> gradients;  // of the inputs of (stage, micro-batch)
  const Schedule schedule = schedule_of(run);
  DependencyReplay(schedule).run([&](int, const Action& action) {
    const auto [operation, s, i] = action;
    StashedStage& stage = stages[static_cast<std::size_t>(s)];
    if (operation == Operation::forward) {
      outputs[{s, i}] = stage.forward(i, s == 0 ? image(i) : outputs.at({s - 1, i}));
    } else if (operation == Operation::backward) {
      const bool is_last = s == run.ranks - 1;
      gradients[{s, i}] = stage.backward(i, is_last ? gradient_of_loss(outputs.at({s, i})) : gradients.at({s + 1, i}));
    } else if (operation == Operation::update) {
      stage.update(i);
    } else {
      return;  // a message
    }
    see(action, stage);
  });
}

/// The weights of each stage after each update: [stages][versions].
using History = std::vector<std::vector<Row>>;

/// Trains one micro-batch after the other. A stage's forward and backward use the weights after as many updates as come
/// before the forward in the schedule; the gradient is applied to the newest weights.
History sequential_history(const StashedRun& run) {
  const Schedule schedule = schedule_of(run);
  const Ledger ledger = make_ledger(schedule, Versions::stash);
  std::map<std::pair<int, int>, int> versions;  // of the forward of (stage, micro-batch)
  for_each_action(schedule, [&](std::size_t rank, std::size_t index, const Action& action) {
    if (action.operation == Operation::forward) {
      versions[{action.stage, action.microbatch}] = ledger[rank][index];
    }
  });

  History history;
  for (int s = 0; s < run.ranks; ++s) {
    history.push_back({first_weights(s)});
  }
  std::vector<MeanGradient> means(history.size());
  for (int i = 0; i < run.microbatches; ++i) {
    const auto weights = [&](int s) {
      return history[static_cast<std::size_t>(s)][static_cast<std::size_t>(versions.at({s, i}))];
    };
    std::vector<Row> inputs{image(i)};
    for (int s = 0; s < run.ranks; ++s) {
      inputs.push_back(product(inputs.back(), weights(s)));
    }
    Row gradient = gradient_of_loss(inputs.back());
    for (int s = run.ranks - 1; s >= 0; --s) {
      const auto stage = static_cast<std::size_t>(s);
      means[stage].add(product(gradient, inputs[stage]));
      gradient = product(gradient, weights(s));
    }
    for (std::size_t s = 0; s < history.size() && (i + 1) % run.batch == 0; ++s) {
      history[s].push_back(lab::updated(as_tensor(history[s].back()), means[s].take(), kRate).to_vector<float>());
    }
  }
  return history;
}

bool same_bits(const Row& a, const Row& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

std::string to_string(const StashedRun& run) {
  return fmt::format("{} stages, with an update after every {}", run.ranks,
                     run.batch == 1 ? "micro-batch" : fmt::format("{} micro-batches", run.batch));
}

void train_stashed(const Answer& answer, const StashedRun& run, const std::function<void(const StoreState&)>& see) {
  run_pipeline(answer, run, [&](const Action&, const StashedStage& stage) { see(stage.state()); });
}

void require_equal_to_oracle(const Answer& answer, const StashedRun& run, const std::string& look_at) {
  const History expected = sequential_history(run);
  run_pipeline(answer, run, [&](const Action& action, const StashedStage& stage) {
    if (action.operation != Operation::update) {
      return;
    }
    const auto& versions = stage.state().store.versions;
    const Row got = versions.empty() ? Row() : as_row(versions.rbegin()->second, "the newest version");
    const Row& want = expected[static_cast<std::size_t>(action.stage)][static_cast<std::size_t>(action.microbatch) + 1];
    if (!same_bits(got, want)) {
      throw Failed(fmt::format("the weights of stage {} after update {} ({}): {:.9g}", action.stage, action.microbatch,
                               to_string(run), fmt::join(want, ", ")),
                   fmt::format("{:.9g}; all updates before it, on every stage, are right", fmt::join(got, ", ")),
                   look_at);
    }
  });
}

}  // namespace stagecoach::labs::lab4
