#include "tests/labs/wrong/lab3.h"

#include <algorithm>
#include <functional>

#include "chapters/03_gpipe/lab/descending_gpipe.h"
#include "parallel/schedule/gradient_order.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach::labs::lab3 {
namespace {

using Ranks = std::vector<int>;
using Generator = std::function<void(RankActions rank, const std::vector<int>& stages, int m)>;

/// Makes a generator from the code of one rank.
auto generator(const Generator& rank_code) {
  return [rank_code](const Ranks& stage_to_rank, int m) {
    const int ranks = 1 + *std::max_element(stage_to_rank.begin(), stage_to_rank.end());
    const Placement placement{.stage_to_rank = stage_to_rank};
    return for_each_rank(empty_schedule(placement, ranks, m),
                         [&](RankActions rank, int r) { rank_code(rank, placement.stages_of(r), m); });
  };
}

void forwards(RankActions rank, const std::vector<int>& stages, int m) {
  for (const int stage : stages) {
    for (int i = 0; i < m; ++i) {
      rank.forward(stage, i);
    }
  }
}

void misses_backward_zero(RankActions rank, const std::vector<int>& stages, int m) {
  forwards(rank, stages, m);
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    for (int i = m - 1; i > 0; --i) {
      rank.backward(*stage, i);
    }
  }
}

void ascending_backwards(RankActions rank, const std::vector<int>& stages, int m) {
  forwards(rank, stages, m);
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    for (int i = 0; i < m; ++i) {
      rank.backward(*stage, i);
    }
  }
}

void one_at_a_time(RankActions rank, const std::vector<int>& stages, int m) {
  for (int i = 0; i < m; ++i) {
    for (const int stage : stages) {
      rank.forward(stage, i);
    }
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      rank.backward(*stage, i);
    }
  }
}

void microbatch_by_microbatch(RankActions rank, const std::vector<int>& stages, int m) {
  for (int i = 0; i < m; ++i) {
    for (const int stage : stages) {
      rank.forward(stage, i);
    }
  }
  for (int i = m - 1; i >= 0; --i) {
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      rank.backward(*stage, i);
    }
  }
}

void backwards_from_the_first_stage(RankActions rank, const std::vector<int>& stages, int m) {
  forwards(rank, stages, m);
  for (const int stage : stages) {
    for (int i = m - 1; i >= 0; --i) {
      rank.backward(stage, i);
    }
  }
}

void one_backward_too_early(RankActions rank, const std::vector<int>& stages, int m) {
  const auto backwards = [&](int from, int to) {
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      for (int i = from; i >= to; --i) {
        rank.backward(*stage, i);
      }
    }
  };
  forwards(rank, stages, m - 1);
  backwards(m - 2, std::max(m - 2, 0));
  for (const int stage : stages) {
    rank.forward(stage, m - 1);
  }
  backwards(m - 1, m - 1);
  backwards(m - 3, 0);
}

void holds_one_stage_only(RankActions rank, const std::vector<int>& stages, int m) {
  forwards(rank, {stages.front()}, m);
  for (int i = m - 1; i >= 0; --i) {
    rank.backward(stages.front(), i);
  }
}

/// A run of a table with one mistake.
struct Mistakes {
  bool sum = false;                 ///< begins a backward with 1
  bool mean_of_means = false;       ///< begins it with 1 / (micro-batches * samples of this one)
  bool order_of_the_table = false;  ///< adds gradients as they come
  bool sends_wait = false;
  bool never_waits = false;  ///< for its sends
  bool one_tag = false;
  bool tags_without_stage = false;  ///< a tag says which micro-batch, and whether it is a gradient
  bool one_place = false;           ///< keeps one tensor for the next stage of this rank, and one for the one before
  bool forwards_wait = false;       ///< sends activations with calls that wait
  bool neighbours_only = false;     ///< takes stage s to be on rank s mod ranks
  bool keeps_gradient = false;      ///< sends no gradient back from the second half of the micro-batches
  bool sends_to_itself = false;     ///< also between stages of one rank
  bool other_device = false;        ///< creates 1 / N on the first device
};

class WrongRun {
 public:
  WrongRun(const lab::TableStep& step, const Mistakes& wrong) : step_(step), wrong_(wrong) {}

  double run() {
    const std::vector<Action>& actions = step_.schedule.ranks[static_cast<std::size_t>(step_.comm.rank())];
    for (auto& [number, stage] : step_.stages) {
      stage.add_gradients_in_order(wrong_.order_of_the_table ? std::vector<int>{} : gradient_order(actions, number));
    }
    for (const Action& action : actions) {
      action.operation == Operation::forward ? forward(action.stage, action.microbatch)
                                             : backward(action.stage, action.microbatch);
    }
    for (std::size_t i = 0; i < sends_.size() && !wrong_.never_waits; ++i) {
      sends_[i].wait();
    }
    return loss_;
  }

 private:
  int stages() const { return step_.schedule.stage_count(); }
  int rank_of(int stage, int i) const {
    return wrong_.neighbours_only ? stage % step_.comm.size() : step_.schedule.rank_of(stage, i);
  }
  int tag(int entered, int i, bool is_gradient) const {
    const int stage = wrong_.tags_without_stage ? 0 : entered;
    return (wrong_.one_tag ? 0 : 2 * (i * stages() + stage)) + (is_gradient ? 1 : 0);
  }
  /// Under which number a tensor for another stage of this rank is kept.
  int place(int entered, int i, bool is_gradient) const {
    return wrong_.one_place ? (is_gradient ? 1 : 0) : tag(entered, i, is_gradient);
  }
  void give(const Tensor& tensor, int entered, int to, int i, bool is_gradient) {
    if (rank_of(to, i) == step_.comm.rank() && !wrong_.sends_to_itself) {
      here_[place(entered, i, is_gradient)] = tensor;
    } else if (wrong_.sends_wait || (wrong_.forwards_wait && !is_gradient)) {
      step_.comm.send(tensor, rank_of(to, i), tag(entered, i, is_gradient));
    } else {
      sends_.push_back(step_.comm.send_async(tensor, rank_of(to, i), tag(entered, i, is_gradient)));
    }
  }
  Tensor take(int entered, int from, int i, bool is_gradient) {
    if (rank_of(from, i) == step_.comm.rank()) {
      return here_.at(place(entered, i, is_gradient));
    }
    const Shape shape =
        step_.entering[static_cast<std::size_t>(entered)].with(0, step_.sizes[static_cast<std::size_t>(i)]);
    return step_.comm.receive(shape, DType::float32, rank_of(from, i), tag(entered, i, is_gradient));
  }
  void forward(int s, int i) {
    const auto number = static_cast<std::size_t>(i);
    const Tensor x = s == 0 ? step_.images[number] : take(s, s - 1, i, false);
    if (s + 1 == stages()) {
      Tensor logits;
      loss_ += step_.stages.at(s).forward_with_loss(i, x, step_.labels[number], s > 0, &logits).item();
    } else {
      give(step_.stages.at(s).forward(i, x, s > 0), s + 1, s + 1, i, false);
    }
  }
  double share(int i) const {
    double samples = 0;
    for (const std::int64_t size : step_.sizes) {
      samples += static_cast<double>(size);
    }
    const double here = static_cast<double>(step_.sizes[static_cast<std::size_t>(i)]);
    const double parts = static_cast<double>(step_.sizes.size());
    return wrong_.sum ? 1 : wrong_.mean_of_means ? 1 / (here * parts) : 1 / samples;
  }
  void backward(int s, int i) {
    const Device device = wrong_.other_device ? Device() : step_.comm.device();
    const Tensor grad =
        s + 1 == stages() ? Tensor::full({}, share(i), DType::float32, device) : take(s + 1, s + 1, i, true);
    const Tensor grad_x = step_.stages.at(s).backward(i, grad);
    if (s > 0 && !(wrong_.keeps_gradient && 2 * i >= step_.schedule.microbatches)) {
      give(grad_x, s, s - 1, i, true);
    }
  }

  const lab::TableStep& step_;
  Mistakes wrong_;
  std::map<int, Tensor> here_;
  std::vector<PendingSend> sends_;
  double loss_ = 0;
};

}  // namespace

std::vector<WrongAnswer<Answer>> wrong_answers() {
  std::vector<WrongAnswer<Answer>> answers;
  const auto generates = [&](const char* name, const char* mistake, const char* criterion, const Generator& code) {
    answers.push_back({name, mistake, criterion, {generator(code), lab::run_table}});
  };
  const auto runs = [&](const char* name, const char* mistake, const char* criterion, const Mistakes& wrong) {
    const auto run_table = [wrong](const lab::TableStep& step) { return WrongRun(step, wrong).run(); };
    answers.push_back({name, mistake, criterion, {lab::descending_gpipe, run_table}});
  };
  const char* const kSends = "sends do not wait, and are waited for in the end";
  generates("misses_backward_zero", "The loop over the backwards ends before micro-batch 0.",
            "the generator's table is legal, with one stage per rank", misses_backward_zero);
  generates("ascending_backwards", "The backwards run in the order of the forwards.",
            "the backwards run in the reverse order", ascending_backwards);
  generates("one_at_a_time", "Each micro-batch goes forward and back before the next one begins, as in chapter 2.",
            "a step takes the time of the formula", one_at_a_time);
  generates("one_backward_too_early", "A backward runs before the last forward.",
            "each rank runs all forwards first, in ascending order", one_backward_too_early);
  generates("microbatch_by_microbatch", "A rank takes each micro-batch through all its stages before the next one.",
            "one rank may hold several stages", microbatch_by_microbatch);
  generates("backwards_from_the_first_stage", "A rank runs the backwards of its first stage first, and waits forever.",
            "one rank may hold several stages", backwards_from_the_first_stage);
  generates("holds_one_stage_only", "Each rank runs its first stage only.", "one rank may hold several stages",
            holds_one_stage_only);
  runs("sum", "The gradients are those of the sum of the losses, not of their mean.",
       "the loop trains what one device trains", {.sum = true});
  runs("other_device", "The 1 / N is created on the first device, not on that of the rank.",
       "the loop trains what one device trains", {.other_device = true});
  runs("keeps_gradient", "Half of the gradients are not sent back.", "the loop trains what one device trains",
       {.keeps_gradient = true});
  runs("mean_of_means", "Each micro-batch counts equally, whatever its size.",
       "a smaller last micro-batch weighs what it should", {.mean_of_means = true});
  runs("order_of_the_table", "Gradients are added in the order of the backwards.",
       "descending backwards give the same bytes", {.order_of_the_table = true});
  runs("neighbours_only", "Stage s is taken to be on rank s mod p, whatever the table says.",
       "the loop runs several stages per rank", {.neighbours_only = true});
  runs("sends_to_itself", "A rank sends to itself between two of its stages.", "the loop runs several stages per rank",
       {.sends_to_itself = true});
  runs("one_place", "What goes to another stage of the rank is kept in one variable, which the next micro-batch takes.",
       "the loop runs several stages per rank", {.one_place = true});
  runs("sends_wait", "Each send waits for its receiver.", kSends, {.sends_wait = true});
  runs("forwards_wait", "The sends of activations wait for their receivers.", kSends, {.forwards_wait = true});
  runs("never_waits", "The function returns before its sends are complete.", kSends, {.never_waits = true});
  runs("one_tag", "All activations share a tag, and so do all gradients.", "each message has a tag of its own",
       {.one_tag = true});
  runs("tags_without_stage", "The tag says which micro-batch it is, but not which stage.",
       "each message has a tag of its own", {.tags_without_stage = true});
  return answers;
}

}  // namespace stagecoach::labs::lab3
