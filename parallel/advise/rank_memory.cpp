#include "parallel/advise/rank_memory.h"

#include "parallel/schedule/gradient_order.h"
#include "parallel/schedule/traffic.h"

namespace stagecoach {
namespace {

/// The bytes of the parts of each stage.
struct StageBytes {
  std::vector<double> weights;
  std::vector<double> kept;      // per micro-batch in flight, with what came from another rank
  std::vector<double> deferred;  // the same between the two parts of a backward
  std::vector<double> rebuilt;
  std::vector<double> workspace;
};

StageBytes bytes_of(const ModelCosts& costs, const Candidate& candidate, const Split& split, const Schedule& schedule,
                    const std::vector<double>& message_bytes) {
  const auto recompute = candidate.recompute ? Stage::Recompute::yes : Stage::Recompute::no;
  StageBytes bytes{.weights = weight_bytes_of_stages(costs.layers, split),
                   .kept = bytes_of_stages(costs.layers, split, costs.input_bytes, recompute),
                   .deferred = deferred_bytes_of_stages(costs.layers, split, costs.input_bytes),
                   .rebuilt = candidate.recompute ? bytes_of_stages(costs.layers, split, 0, Stage::Recompute::no)
                                                  : std::vector<double>(split.size()),
                   .workspace = workspace_bytes_of_stages(costs.layers, split)};
  for (std::size_t s = 1; s < split.size(); ++s) {
    const bool is_received = schedule.stage_to_rank[s] != schedule.stage_to_rank[s - 1];
    bytes.kept[s] += is_received ? message_bytes[s - 1] : 0;
  }
  return bytes;
}

/// Follows the actions of a rank, and keeps the moment at which it holds most.
class MemoryWalk {
 public:
  MemoryWalk(const StageBytes& stages, bool has_buckets, const RankMemory& constant)
      : stages_(stages), has_gradients_(stages.weights.size(), has_buckets), now_(constant), most_(constant) {}

  RankMemory follow(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      const auto s = static_cast<std::size_t>(action.stage);
      const double during_backward = stages_.workspace[s] + stages_.rebuilt[s];
      if (action.operation == Operation::forward) {
        now_.activations += stages_.kept[s];
        see(stages_.workspace[s]);
      } else if (action.operation == Operation::backward) {
        see(during_backward);
        add_gradients(s, stages_.kept[s]);
      } else if (action.operation == Operation::backward_input) {
        see(during_backward);
        now_.activations += stages_.deferred[s] - stages_.kept[s];
        see(stages_.workspace[s]);
      } else if (action.operation == Operation::backward_weight) {
        add_gradients(s, stages_.deferred[s]);
      } else if (action.operation == Operation::update) {  // of a schedule of many steps, without buckets
        now_.gradients -= stages_.weights[s];
        has_gradients_[s] = false;
      }
    }
    return most_;
  }

 private:
  /// Ends a backward, which frees what the micro-batch has kept.
  void add_gradients(std::size_t stage, double freed) {
    now_.activations -= freed;
    now_.gradients += has_gradients_[stage] ? 0 : stages_.weights[stage];
    has_gradients_[stage] = true;
    see(stages_.workspace[stage]);
  }
  void see(double workspace) {
    now_.workspace = workspace;
    if (now_.total() > most_.total()) {
      most_ = now_;
    }
  }

  const StageBytes& stages_;
  std::vector<bool> has_gradients_;
  RankMemory now_;
  RankMemory most_;
};

}  // namespace

std::vector<RankMemory> memory_of_ranks(const ModelCosts& costs, const Candidate& candidate, const Split& split,
                                        const Schedule& schedule, const std::vector<double>& message_bytes,
                                        double optimizer_bytes_per_weight_byte) {
  const StageBytes stages = bytes_of(costs, candidate, split, schedule, message_bytes);
  const std::vector<double> posted = peak_receive_bytes(schedule, message_bytes);
  const std::vector<double> waiting = peak_waiting_bytes(schedule, stages.weights);
  const bool has_buckets = candidate.mesh.data > 1;
  std::vector<RankMemory> ranks;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    RankMemory constant{.gradients = waiting[r], .messages = posted[r]};
    for (const int s : schedule.stages_of(static_cast<int>(r))) {
      constant.weights += stages.weights[static_cast<std::size_t>(s)];
    }
    constant.gradients += has_buckets ? constant.weights : 0;
    const bool has_copy = static_cast<int>(r) == schedule.stage_to_rank.back();  // which needs no state
    constant.optimizer = optimizer_bytes_per_weight_byte * (constant.weights - (has_copy ? costs.tied_bytes : 0));
    ranks.push_back(MemoryWalk(stages, has_buckets, constant).follow(schedule.ranks[r]));
  }
  return ranks;
}

double least_bytes(const ModelCosts& costs, const Candidate& candidate, double optimizer_bytes_per_weight_byte) {
  double weights = 0;
  for (const LayerProfile& layer : costs.layers) {
    weights += static_cast<double>(layer.parameter_bytes);
  }
  const double updated = weights - costs.tied_bytes;
  return (1 - 1e-9) * (2 * weights + optimizer_bytes_per_weight_byte * updated) / candidate.mesh.pipeline;
}

}  // namespace stagecoach
