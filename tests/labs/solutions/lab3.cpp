#include <algorithm>

#include "chapters/03_gpipe/lab/descending_gpipe.h"
#include "chapters/03_gpipe/lab/run_table.h"
#include "parallel/schedule/gradient_order.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach::lab {

Schedule descending_gpipe(const std::vector<int>& stage_to_rank, int microbatches) {
  const int ranks = 1 + *std::max_element(stage_to_rank.begin(), stage_to_rank.end());
  const Placement placement{.stage_to_rank = stage_to_rank};
  return for_each_rank(empty_schedule(placement, ranks, microbatches), [&](RankActions rank, int r) {
    const std::vector<int> stages = placement.stages_of(r);
    for (const int stage : stages) {
      for (int i = 0; i < microbatches; ++i) {
        rank.forward(stage, i);
      }
    }
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      for (int i = microbatches - 1; i >= 0; --i) {
        rank.backward(*stage, i);
      }
    }
  });
}

namespace {

enum class Direction { forward, backward };

/// One rank's run of a table.
class TableRun {
 public:
  explicit TableRun(const TableStep& step) : step_(step) {}

  double run() {
    const std::vector<Action>& actions = step_.schedule.ranks[static_cast<std::size_t>(step_.comm.rank())];
    for (auto& [number, stage] : step_.stages) {
      stage.add_gradients_in_order(gradient_order(actions, number));
    }
    for (const Action& action : actions) {
      action.operation == Operation::forward ? forward(action) : backward(action);
    }
    for (const PendingSend& send : sends_) {
      send.wait();
    }
    return loss_;
  }

 private:
  int stages() const { return step_.schedule.stage_count(); }
  bool is_mine(int stage, int microbatch) const {
    return step_.schedule.rank_of(stage, microbatch) == step_.comm.rank();
  }
  /// The tag of what enters `stage`, or of its gradient.
  int tag(int stage, int microbatch, Direction direction) const {
    return 2 * (microbatch * stages() + stage) + (direction == Direction::forward ? 0 : 1);
  }

  /// Passes what enters `entered`, or its gradient, to stage `to`.
  void give(const Tensor& tensor, int entered, int to, int microbatch, Direction direction) {
    const int name = tag(entered, microbatch, direction);
    if (is_mine(to, microbatch)) {
      here_[name] = tensor;
    } else {
      sends_.push_back(step_.comm.send_async(tensor, step_.schedule.rank_of(to, microbatch), name));
    }
  }
  Tensor take(int entered, int from, int microbatch, Direction direction) {
    const int name = tag(entered, microbatch, direction);
    if (is_mine(from, microbatch)) {
      return here_.extract(name).mapped();
    }
    const std::int64_t samples = step_.sizes[static_cast<std::size_t>(microbatch)];
    const Shape shape = step_.entering[static_cast<std::size_t>(entered)].with(0, samples);
    return step_.comm.receive(shape, DType::float32, step_.schedule.rank_of(from, microbatch), name);
  }

  void forward(const Action& action) {
    const auto [operation, s, i] = action;
    const auto number = static_cast<std::size_t>(i);
    const Tensor x = s == 0 ? step_.images[number] : take(s, s - 1, i, Direction::forward);
    Stage& stage = step_.stages.at(s);
    if (s + 1 == stages()) {
      Tensor logits;
      loss_ += stage.forward_with_loss(i, x, step_.labels[number], s > 0, &logits).item();
    } else {
      give(stage.forward(i, x, s > 0), s + 1, s + 1, i, Direction::forward);
    }
  }

  void backward(const Action& action) {
    const auto [operation, s, i] = action;
    double samples = 0;
    for (const std::int64_t size : step_.sizes) {
      samples += static_cast<double>(size);
    }
    const Tensor grad = s + 1 == stages() ? Tensor::full({}, 1 / samples, DType::float32, step_.comm.device())
                                          : take(s + 1, s + 1, i, Direction::backward);
    const Tensor grad_x = step_.stages.at(s).backward(i, grad);
    if (s > 0) {
      give(grad_x, s, s - 1, i, Direction::backward);
    }
  }

  const TableStep& step_;
  std::map<int, Tensor> here_;  // passed between stages of this rank, by tag
  std::vector<PendingSend> sends_;
  double loss_ = 0;
};

}  // namespace

double run_table(const TableStep& step) { return TableRun(step).run(); }

}  // namespace stagecoach::lab
