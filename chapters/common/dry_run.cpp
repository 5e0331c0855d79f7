#include "chapters/common/dry_run.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "chapters/common/open.h"
#include "core/allocator.h"
#include "parallel/comm/lone_communicator.h"
#include "parallel/data_parallel/reducer.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/split.h"
#include "parallel/pipeline/stage.h"
#include "parallel/pipeline/weight_versions.h"
#include "parallel/schedule/gradient_order.h"
#include "parallel/schedule/grid.h"
#include "parallel/schedule/lower.h"
#include "parallel/training/epoch_meter.h"
#include "parallel/training/sums_over_ranks.h"

namespace stagecoach {
namespace {

constexpr Device kHost{DeviceType::cpu};  // of numbers that ranks exchange
constexpr Device kMeta{DeviceType::meta};

/// One rank of the plan, whose messages are tensors without elements.
class DryRank {
 public:
  DryRank(const Plan& plan, const Schedule& schedule, const Ledger* ledger, int rank,
          const std::vector<std::shared_ptr<Sequential>>& parts)
      : training_(plan.settings.training),
        plan_(plan),
        rank_(rank),
        messages_(schedule),
        actions_(schedule.ranks[static_cast<std::size_t>(rank)]),
        lists_updates_(schedule.batch > 0),
        comm_(self_communicator(kHost, ClockKind::modelled, *plan.settings.world.modelled_device),
              static_cast<int>(plan.settings.data_parallel.mesh->tensor)),
        sums_(kMeta) {
    allocator(kMeta).model_workspace();
    std::map<int, std::shared_ptr<Sequential>> mine;
    for (int s = 0; s < plan.stages(); ++s) {
      if (schedule.holds(rank, s)) {
        const auto& layers = mine.emplace(s, parts[static_cast<std::size_t>(s)]).first->second;
        layers->materialize(0, kMeta);
        Stage& stage = stages_.emplace(s, Stage(layers, plan.recompute, loss_of(training_))).first->second;
        stage.add_gradients_in_order(gradient_order(actions_, s));
      }
    }
    layers_ = joined(mine);
    optimizer_ = make_optimizer(training_, layers_->named_parameters());
    const ReplicaSettings& replicas = plan.settings.data_parallel;
    if (training_.clip_norm > 0 && !schedule.rendezvous.empty()) {
      optimizer_->sum_squares_with(norm_of_all(replicas.mesh->tensor > 1));
    }
    if (replicas.mesh->data > 1) {
      reducer_.emplace(layers_->named_parameters(), comm_, ReducerSettings{.caps = replicas.caps()});
      reducer_->begin(Reducer::Sync::no);
    }
    if (ledger != nullptr) {
      versions_.emplace(layers_->named_parameters(), schedule, *ledger, rank);
    }
  }
  ~DryRank() { layers_->deallocate(); }
  DryRank(const DryRank&) = delete;
  DryRank& operator=(const DryRank&) = delete;

  std::vector<double> seconds() {
    std::vector<double> all;
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const Action& action = actions_[i];
      if (versions_) {
        versions_->choose(i);
      }
      if (is_computation(action.operation)) {
        all.push_back(timed([&] { perform(action); }) + exchange_seconds(plan_, action, plan_.microbatch));
      } else if (is_receive(action.operation)) {
        const bool goes_forward = action.operation == Operation::receive_forward;
        messages_.at(action) = entering(goes_forward ? action.stage : action.stage + 1);
      } else if (is_send(action.operation)) {
        messages_.at(receive_of(action)) = {};
      } else if (action.operation == Operation::reduce_grad) {
        all.push_back(timed([&] { reduce(action.stage); }));
      } else if (action.operation == Operation::update) {
        all.push_back(update());
      }
      if (versions_) {
        versions_->free_unneeded(i);
      }
    }
    if (!lists_updates_) {
      all.push_back(update());
    }
    return all;
  }
  /// Returns the part of it that precedes the sum over all ranks in an update, where updates meet.
  double norm_work() const { return norm_work_; }
  /// Returns the part of that which only the first rank of a tensor-parallel group does: it sums the squares for all.
  double work_for_others() const { return work_for_others_; }

 private:
  template <class Work>
  double timed(const Work& work) {
    const double begin = comm_.clock().now();
    work();
    return comm_.clock().now() - begin;
  }

  /// Returns what computes this rank's part of the norm, and as many sums as the model has parameters.
  SumsOfSquares norm_of_all(bool cuts_layers) {
    return [this, slices = layers_->named_slices(), group = cuts_layers ? &comm_ : nullptr,
            count = plan_.model->parameter_shapes().size()](const NamedTensors& gradients) {
      std::vector<double> all(count);
      const double own = timed([&] { static_cast<void>(sums_of_rank(gradients, slices, group)); });
      work_for_others_ = group == nullptr ? 0 : own;
      // The ranks sum these numbers.
      norm_work_ =
          own + timed([&] { static_cast<void>(Tensor::from(all, {static_cast<std::int64_t>(count)}, kMeta)); });
      return all;
    };
  }

  void reduce(int stage) {
    if (reducer_) {
      reducer_->reduce_accumulated(stages_.at(stage).layers().named_parameters());
    }
  }

  double update() {
    if (reducer_) {
      reducer_->finish();
    }
    const double seconds = tied_seconds(plan_, rank_) + timed([&] { optimizer_->step(); });
    // Also of a tied copy, which is not the optimizer's.
    for (const auto& [name, parameter] : layers_->named_parameters()) {
      Tensor(parameter).zero_grad();
    }
    return seconds;
  }

  /// Returns the tensor of a message, or of another stage of this rank.
  Tensor take(const Action& receive) { return std::exchange(messages_.at(receive), {}); }
  bool is_last(int stage) const { return stage + 1 == plan_.stages(); }
  /// Returns a tensor of a micro-batch with the shape that enters `stage`.
  Tensor entering(int stage) const {
    return Tensor::empty(plan_.shapes[static_cast<std::size_t>(stage)].with(0, plan_.microbatch), DType::float32,
                         kMeta);
  }

  void perform(const Action& action) {
    const auto [operation, number, microbatch] = action;
    Stage& stage = stages_.at(number);
    if (operation == Operation::forward) {
      forward(stage, number, microbatch);
    } else if (operation == Operation::backward_weight) {
      stage.backward_weight(microbatch);
    } else {
      const Tensor gradient = is_last(number) ? Tensor::full({}, 1, DType::float32, kMeta)
                                              : take({Operation::receive_backward, number, microbatch});
      Tensor of_input = operation == Operation::backward ? stage.backward(microbatch, gradient)
                                                         : stage.backward_input(microbatch, gradient);
      if (number > 0) {
        messages_.at({Operation::receive_backward, number - 1, microbatch}) = std::move(of_input);
      }
    }
  }

  void forward(Stage& stage, int number, int microbatch) {
    const BatchScope position(BatchPosition{});  // for layers that draw random numbers
    const bool is_first = number == 0;
    const Tensor x = is_first ? model_input(blank_inputs(training_, plan_.microbatch, kMeta))
                              : take({Operation::receive_forward, number, microbatch});
    if (!is_last(number)) {
      messages_.at({Operation::receive_forward, number + 1, microbatch}) = stage.forward(microbatch, x, !is_first);
      return;
    }
    const Tensor targets = blank_targets(training_, plan_.microbatch, kMeta);
    Tensor logits;
    const Tensor loss = stage.forward_with_loss(microbatch, x, targets, !is_first, &logits);
    sums_.add(loss, logits, targets);
  }

  const TrainingSettings& training_;
  const Plan& plan_;
  const int rank_;
  MessageGrid<Tensor> messages_;  // that are received or to be sent, or used by another stage of this rank
  const std::vector<Action>& actions_;
  const bool lists_updates_;
  LoneCommunicator comm_;  // its clock is older than what it counts
  EpochSums sums_;
  std::map<int, Stage> stages_;
  std::shared_ptr<Sequential> layers_;
  std::unique_ptr<Optimizer> optimizer_;
  double norm_work_ = 0;
  double work_for_others_ = 0;
  std::optional<Reducer> reducer_;
  std::optional<WeightVersions> versions_;
};

PlannedRun simulated(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds,
                     std::vector<double> memory_bytes) {
  return {simulate(schedule, costs, seconds),
          schedule.batch > 0 ? 0 : simulate_steady_state(schedule, costs, seconds).seconds, std::move(memory_bytes)};
}

}  // namespace

PlannedRun simulate_plan(const Plan& plan, const Schedule& schedule, const Costs& costs, const Ledger* ledger) {
  if (plan.world.clock != ClockKind::modelled || !plan.settings.pipeline.profile_file.empty()) {
    return simulated(schedule, costs, {}, {});
  }
  // One rank after the other.
  const auto parts = stages_of(*plan.model, plan.split);
  Allocator& memory = allocator(kMeta);
  const std::size_t held_before = memory.stats().current_bytes;
  ActionSeconds seconds;  // of each action that is not a message; last those of the update, if it is not listed
  std::vector<double> bytes;
  Costs all = costs;
  double work_for_others = 0;
  for (int number = 0; number < schedule.rank_count(); ++number) {
    memory.reset_peak();
    DryRank rank(plan, schedule, ledger, number, parts);
    seconds.push_back(rank.seconds());
    all.norm_work.push_back(rank.norm_work());
    work_for_others += rank.work_for_others();
    bytes.push_back(static_cast<double>(memory.stats().peak_bytes - held_before));
  }
  PlannedRun planned = simulated(schedule, all, seconds, std::move(bytes));
  const double others = 1 - 1.0 / plan.settings.data_parallel.mesh->tensor;  // which wait meanwhile
  planned.simulation.idle +=
      others * work_for_others / (planned.simulation.seconds * static_cast<double>(schedule.ranks.size()));
  return planned;
}

}  // namespace stagecoach
