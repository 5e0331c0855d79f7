#include "tests/labs/lab9_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>

#include "chapters/09_sharded_data_parallel/lab/sharded_update.h"
#include "core/autograd/backward.h"
#include "nn/layers.h"
#include "parallel/data_parallel/flat.h"
#include "parallel/data_parallel/sharded/before_backward.h"
#include "tests/labs/class_settings.h"
#include "tests/labs/lab9_checks.h"

namespace stagecoach::labs::lab9 {
namespace {

/// The widths of the activations before and after each unit, a linear layer. No two units have as many weights, nor as
/// many as another one's shard, so the count of a call says which unit it is about.
constexpr std::array<std::int64_t, 5> kWidths{5, 8, 3, 6, 2};
constexpr int kUnits = static_cast<int>(kWidths.size()) - 1;
constexpr int kLast = kUnits - 1;

std::int64_t inputs_of(int unit) { return kWidths.at(static_cast<std::size_t>(unit)); }
std::int64_t outputs_of(int unit) { return kWidths.at(static_cast<std::size_t>(unit) + 1); }
std::int64_t part_of_unit(int unit) { return ((inputs_of(unit) + 1) * outputs_of(unit) + ranks() - 1) / ranks(); }

/// Returns the unit whose shard or whole weights have that many elements; -1 for none.
int unit_of(std::int64_t count) {
  int unit = kLast;
  while (unit >= 0 && count != part_of_unit(unit) && count != ranks() * part_of_unit(unit)) {
    --unit;
  }
  return unit;
}

// What a rank has in memory while it computes.

/// When a unit has run its layers forward, or is about to do so backward, or the backward has ended.
struct Moment {
  enum class Pass { forward, backward, end } pass;
  int unit;
  std::vector<int> weights = {};    ///< the units that have them
  std::vector<int> gradients = {};  ///< the units of which a parameter has one
};
using Moments = std::vector<Moment>;

std::string name_of(const Moment& moment) {
  return moment.pass == Moment::Pass::end       ? "at the end of the backward"
         : moment.pass == Moment::Pass::forward ? fmt::format("in the forward of unit {}", moment.unit)
                                                : fmt::format("where the backward of unit {} begins", moment.unit);
}

std::string units_text(std::vector<int> units) {
  std::sort(units.begin(), units.end());
  return units.empty() ? "no unit" : fmt::format("unit{} {}", units.size() == 1 ? "" : "s", fmt::join(units, ", "));
}

constexpr const char* kGather = "all_gather";
constexpr const char* kReduction = "reduce_scatter";

/// Returns one line per moment of a step: the calls before it, and who had weights and gradients then.
std::string drawn(const Moments& moments, const std::vector<CommunicatorCall>& calls) {
  std::string text;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    std::vector<std::string> before;
    for (const CommunicatorCall& call : calls) {
      if (call.stamp == static_cast<int>(i)) {
        const bool gathers = call.operation.starts_with(kGather);
        before.push_back(fmt::format("{} {}", gathers ? "gather" : "reduce", unit_of(call.count)));
      }
    }
    const Moment& moment = moments[i];
    text += fmt::format("{:<20} {:<36} weights of {}{}\n", fmt::format("{}", fmt::join(before, ", ")), name_of(moment),
                        units_text(moment.weights),
                        moment.gradients.empty() ? "" : ", gradients of " + units_text(moment.gradients));
  }
  return text;
}

/// One rank's model, and what it had in memory in each micro-batch.
struct RankRun {
  lab::ShardedModel model = {};
  Moments moments = {};
  std::function<void()> on_moment = {};  ///< called after each one

  void add(Moment::Pass pass, int unit) {
    Moment& moment = moments.emplace_back(Moment{pass, unit});
    for (int u = 0; u < kUnits; ++u) {
      const std::vector<Tensor>& parameters = model.unit(u).parameters;
      if (has_memory(parameters.front())) {
        moment.weights.push_back(u);
      }
      if (std::any_of(parameters.begin(), parameters.end(), [](const Tensor& p) { return p.grad().defined(); })) {
        moment.gradients.push_back(u);
      }
    }
    on_moment();
  }
};

/// Returns its input, and adds a moment in the forward and before the backward.
class MomentProbe final : public Module {
 public:
  MomentProbe(RankRun& run, int unit) : run_(run), unit_(unit) {}
  Tensor forward(const Tensor& x) override {
    run_.add(Moment::Pass::forward, unit_);
    return before_backward(x, [this] { run_.add(Moment::Pass::backward, unit_); });
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  RankRun& run_;
  int unit_;
};

std::shared_ptr<Sequential> layers_of_unit(int unit) {
  auto layers = std::make_shared<Sequential>();
  layers->add(fmt::format("fc{}", unit), std::make_shared<Linear>(inputs_of(unit), outputs_of(unit)));
  return layers;
}

// Training.

struct Training {
  int prefetch = 1;
  int steps = 1;
  int microbatches = 1;
  bool updates = true;
};

constexpr std::int64_t kSamples = 3;  // per micro-batch and rank

Tensor input_of(int rank, int step, int microbatch, Device device) {
  const Shape shape{kSamples, kWidths.front()};
  return Tensor::from(numbers(shape.numel(), fmt::format("x {} {} {}", rank, step, microbatch)), shape, device);
}

/// Returns the gradient of the loss with respect to the model's output.
Tensor upstream_of(int rank, int step, int microbatch, Device device) {
  const Shape shape{kSamples, kWidths.back()};
  const Values values = numbers(shape.numel(), fmt::format("grad {} {} {}", rank, step, microbatch));
  return Tensor::from(scaled(values, 0.1F), shape, device);
}

/// The weights of each unit: [units].
using Weights = std::vector<Values>;

void run_backward(const Answer& answer, RankRun& run, const Tensor& y, const Tensor& upstream, Communicator& comm) {
  backward(y, upstream);
  answer.reach(run.model, -1, comm);
  run.add(Moment::Pass::end, -1);
}

/// Updates this rank's shards. `velocities` are those of the units.
void update(lab::ShardedModel& model, std::vector<Tensor>& velocities) {
  for (int u = 0; u < kUnits; ++u) {
    lab::Unit& unit = model.unit(u);
    if (!unit.gradient.defined()) {
      throw Failed(fmt::format("a gradient of unit {}'s shard at the end of the step", u), "none: it was not reduced",
                   kOrder);
    }
    lab::sgd_step(unit.shard, velocities[static_cast<std::size_t>(u)], unit.gradient);
    unit.gradient = {};
  }
}

/// The moments of each rank in all micro-batches, and its shards after each step: [ranks], [ranks][steps].
struct Results {
  std::vector<Moments> moments{static_cast<std::size_t>(ranks())};
  std::vector<std::vector<Weights>> shards{static_cast<std::size_t>(ranks())};
};

Collectives::Texts unit_texts() {
  return texts([](std::int64_t count) {
    const int unit = unit_of(count);
    return unit < 0 ? fmt::format("{} numbers", count) : fmt::format("unit {}", unit);
  });
}

/// Trains with the answer's functions. Each call is stamped with the number of moments before it.
Results train(const Answer& answer, const Training& training, Collectives& collectives) {
  set_case(fmt::format("{} units, {} ranks and a prefetch of {}", kUnits, ranks(), training.prefetch));
  Results results;
  run_watched_collectives(ranks(), collectives, [&](Communicator& comm) {
    const int rank = comm.rank();
    RankRun run;
    run.model.prefetch = training.prefetch;
    run.on_moment = [&] { collectives.stamp(rank, static_cast<int>(run.moments.size())); };
    std::vector<Tensor> velocities;
    for (int u = 0; u < kUnits; ++u) {
      const auto layers = layers_of_unit(u);
      layers->add("probe", std::make_shared<MomentProbe>(run, u));
      run.model.units.push_back(make_unit(layers, comm));
      velocities.push_back(Tensor::zeros(run.model.unit(u).shard.shape(), DType::float32, comm.device()));
    }
    for (int step = 0; step < training.steps; ++step) {
      for (int i = 0; i < training.microbatches; ++i) {
        const Tensor y = answer.forward(run.model, input_of(rank, step, i, comm.device()), comm);
        run_backward(answer, run, y, upstream_of(rank, step, i, comm.device()), comm);
      }
      if (!training.updates) {
        continue;
      }
      update(run.model, velocities);
      Weights& shards = results.shards[static_cast<std::size_t>(rank)].emplace_back();
      for (const lab::Unit& unit : run.model.units) {
        shards.push_back(unit.shard.to_vector<float>());
      }
    }
    results.moments[static_cast<std::size_t>(rank)] = run.moments;
  });
  return results;
}

/// A unit on one device.
struct WholeUnit {
  std::shared_ptr<Sequential> layers;
  std::vector<Tensor> parameters;  // views of `weights`
  Tensor weights;                  // flat
  Tensor velocity;
  Values gradient = {};
};

std::vector<WholeUnit> make_whole_units() {
  std::vector<WholeUnit> units;
  for (int u = 0; u < kUnits; ++u) {
    const auto layers = layers_of_unit(u);
    layers->materialize(class_seed());
    std::vector<Tensor> parameters = tensors_of(layers->named_parameters());
    const Tensor weights = flattened(parameters);
    const std::vector<Tensor> views = views_of(weights, parameters);
    for (std::size_t i = 0; i < views.size(); ++i) {
      parameters[i].rebind(views[i]);
    }
    units.push_back({layers, parameters, weights, Tensor::zeros(weights.shape())});
  }
  return units;
}

/// Adds the gradients of a micro-batch of all ranks, whose samples are micro-batches of one device, in rank order.
void add_gradients(std::vector<WholeUnit>& units, int step, int microbatch) {
  for (int rank = 0; rank < ranks(); ++rank) {
    Tensor y = input_of(rank, step, microbatch, {});
    for (const WholeUnit& unit : units) {
      y = unit.layers->forward(y);
    }
    backward(y, upstream_of(rank, step, microbatch, {}));
  }
  for (WholeUnit& unit : units) {
    std::vector<Tensor> gradients;
    for (Tensor& parameter : unit.parameters) {
      gradients.push_back(parameter.grad());
      parameter.zero_grad();
    }
    const Values sum = flattened(gradients).to_vector<float>();
    unit.gradient = microbatch == 0 ? sum : sum_of({unit.gradient, sum});
  }
}

/// Returns the weights of one device after each step.
std::vector<Weights> train_on_one_device(const Training& training) {
  std::vector<WholeUnit> units = make_whole_units();
  std::vector<Weights> trained;
  for (int step = 0; step < training.steps; ++step) {
    for (int i = 0; i < training.microbatches; ++i) {
      add_gradients(units, step, i);
    }
    Weights& weights = trained.emplace_back();
    for (const WholeUnit& unit : units) {
      lab::sgd_step(unit.weights, unit.velocity, Tensor::from(unit.gradient, unit.weights.shape()));
      weights.push_back(unit.weights.to_vector<float>());
    }
  }
  return trained;
}

// Who should have weights.

/// Returns the unit that computes, and those that are gathered ahead of it.
std::vector<int> expected_weights(const Moment& moment, int prefetch) {
  std::vector<int> units;
  const int direction = moment.pass == Moment::Pass::forward ? 1 : -1;
  for (int ahead = 0; ahead <= prefetch && moment.pass != Moment::Pass::end; ++ahead) {
    if (const int unit = moment.unit + ahead * direction; unit >= 0 && unit < kUnits) {
      units.push_back(unit);
    }
  }
  return units;
}

/// Returns the units of `some` that `others` does not have.
std::vector<int> without(std::vector<int> some, const std::vector<int>& others) {
  std::erase_if(some, [&](int unit) { return std::find(others.begin(), others.end(), unit) != others.end(); });
  return some;
}

/// What a rank did in a step.
struct RankStep {
  int prefetch;
  const Moments& moments;
  std::vector<CommunicatorCall> calls;

  std::string drawn() const { return lab9::drawn(moments, calls); }
};

/// Calls check(rank_step) for each rank of a step with each prefetch.
template <class Check>
void for_each_prefetch(const Answer& answer, const Check& check) {
  for (const int prefetch : {1, 0, 2}) {
    Collectives collectives(ranks(), unit_texts());
    const Results results = train(answer, {.prefetch = prefetch, .updates = false}, collectives);
    for (int rank = 0; rank < ranks(); ++rank) {
      check(RankStep{prefetch, results.moments[static_cast<std::size_t>(rank)], collectives.calls_of(rank)});
    }
  }
}

}  // namespace

void gathers_ahead(const Answer& answer) {
  for_each_prefetch(answer, [](const RankStep& step) {
    for (const Moment& moment : step.moments) {
      const std::vector<int> expected = expected_weights(moment, step.prefetch);
      if (!without(expected, moment.weights).empty()) {
        throw Failed(fmt::format("weights of {} {}{}", units_text(expected), name_of(moment), for_case()),
                     "weights of " + units_text(moment.weights), kOrder, step.drawn());
      }
    }
    std::vector<CommunicatorCall> gathers = step.calls;
    std::erase_if(gathers, [](const CommunicatorCall& call) { return !call.operation.starts_with(kGather); });
    for (std::size_t i = 1; i < gathers.size(); ++i) {
      const bool in_forward = gathers[i].stamp < kUnits;
      const bool ascends = unit_of(gathers[i].count) > unit_of(gathers[i - 1].count);
      if (in_forward == (gathers[i - 1].stamp < kUnits) && in_forward != ascends) {
        throw Failed("gathers in the order in which units compute" + for_case(),
                     fmt::format("unit {} is gathered after unit {} in the {}", unit_of(gathers[i].count),
                                 unit_of(gathers[i - 1].count), in_forward ? "forward" : "backward"),
                     kOrder, step.drawn());
      }
    }
  });
}

void few_units_have_weights(const Answer& answer) {
  for_each_prefetch(answer, [](const RankStep& step) {
    for (const Moment& moment : step.moments) {
      const std::vector<int> expected = expected_weights(moment, step.prefetch);
      if (!without(moment.weights, expected).empty()) {
        throw Failed(fmt::format("weights of {} {}{}", units_text(expected) + (expected.empty() ? "" : " only"),
                                 name_of(moment), for_case()),
                     "weights of " + units_text(moment.weights), kOrder, step.drawn());
      }
    }
  });
}

void one_unit_has_gradients(const Answer& answer) {
  for_each_prefetch(answer, [](const RankStep& step) {
    for (const Moment& moment : step.moments) {
      if (!moment.gradients.empty()) {
        throw Failed(fmt::format("all gradients so far to be reduced {}{}", name_of(moment), for_case()),
                     "whole gradients of " + units_text(moment.gradients), kOrder, step.drawn());
      }
    }
  });
}

void gathers_go_first(const Answer& answer) {
  for_each_prefetch(answer, [](const RankStep& step) {
    const std::vector<CommunicatorCall>& calls = step.calls;
    for (std::size_t i = 1; i < calls.size(); ++i) {
      if (calls[i].stamp == calls[i - 1].stamp && calls[i].operation.starts_with(kGather) &&
          calls[i - 1].operation == kReduction) {
        throw Failed(fmt::format("reach({}, …) to gather first{}", kLast + kUnits - calls[i].stamp, for_case()),
                     fmt::format("it reduces unit {}, then gathers unit {}, for which the backward waits",
                                 unit_of(calls[i - 1].count), unit_of(calls[i].count)),
                     kOrder, step.drawn());
      }
    }
  });
}

void last_unit_stays(const Answer& answer) {
  for_each_prefetch(answer, [](const RankStep& step) {
    const auto count = std::count_if(step.calls.begin(), step.calls.end(), [](const CommunicatorCall& call) {
      return call.operation.starts_with(kGather) && unit_of(call.count) == kLast;
    });
    if (count != 1) {
      throw Failed(fmt::format("one gather of unit {}, the last one, in a step{}", kLast, for_case()),
                   fmt::format("{}", count), kOrder, step.drawn());
    }
  });
}

void trains_as_one_device(const Answer& answer) {
  const Training training{.steps = 2, .microbatches = 2};
  Collectives collectives(ranks(), unit_texts());
  const Results results = train(answer, training, collectives);
  const std::vector<Weights> expected = train_on_one_device(training);
  for (std::size_t step = 0; step < expected.size(); ++step) {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Weights& shards = results.shards[static_cast<std::size_t>(rank)][step];
      for (std::size_t u = 0; u < shards.size(); ++u) {
        const Shape shape{static_cast<std::int64_t>(shards[u].size())};
        require_equal(part_of(expected[step][u], rank, ranks()), Tensor::from(shards[u], shape),
                      fmt::format("the weights of one device, bit for bit, in unit {}'s shard on rank {} after step {}",
                                  u, rank, step + 1),
                      kOrder);
      }
    }
  }
}

}  // namespace stagecoach::labs::lab9
