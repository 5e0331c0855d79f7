#include "tests/labs/wrong/lab2.h"

#include <functional>

#include "chapters/02_naive_model_parallel/lab/shift.h"

namespace stagecoach::labs::lab2 {
namespace {

// Wrong shifts.

int neighbour(const Communicator& comm, int distance) {
  const int p = comm.size();
  return ((comm.rank() + distance) % p + p) % p;
}

/// Sends and receives, in the order that `receives_first` chooses.
Tensor exchange(Communicator& comm, const Tensor& mine, int to, int from, bool receives_first) {
  if (to == comm.rank()) {
    return mine;
  }
  if (!receives_first) {
    comm.send(mine, to, 0);
  }
  const Tensor other = comm.receive(mine.shape(), mine.dtype(), from, 0);
  if (receives_first) {
    comm.send(mine, to, 0);
  }
  return other;
}

Tensor all_send_first(Communicator& comm, const Tensor& mine, int distance) {
  return exchange(comm, mine, neighbour(comm, distance), neighbour(comm, -distance), false);
}

Tensor all_receive_first(Communicator& comm, const Tensor& mine, int distance) {
  return exchange(comm, mine, neighbour(comm, distance), neighbour(comm, -distance), true);
}

Tensor other_direction(Communicator& comm, const Tensor& mine, int distance) {
  return lab::shift(comm, mine, -distance);
}

Tensor odd_ranks_receive_first(Communicator& comm, const Tensor& mine, int distance) {
  return exchange(comm, mine, neighbour(comm, distance), neighbour(comm, -distance), comm.rank() % 2 == 1);
}

Tensor rank_zero_receives_first(Communicator& comm, const Tensor& mine, int distance) {
  return exchange(comm, mine, neighbour(comm, distance), neighbour(comm, -distance), comm.rank() == 0);
}

Tensor negative_remainder(Communicator& comm, const Tensor& mine, int distance) {
  const int p = comm.size();
  const int to = (comm.rank() + distance) % p;
  const int from = (comm.rank() - distance) % p;
  if (to < 0 || from < 0) {  // the rank of the formula, which does not exist
    comm.send(mine, to < 0 ? to : from, 0);
  }
  return lab::shift(comm, mine, distance);
}

Tensor sends_without_waiting(Communicator& comm, const Tensor& mine, int distance) {
  const int to = neighbour(comm, distance);
  if (to == comm.rank()) {
    return mine;
  }
  const PendingSend send = comm.send_async(mine, to, 0);
  const Tensor other = comm.receive(mine.shape(), mine.dtype(), neighbour(comm, -distance), 0);
  send.wait();
  return other;
}

/// Moves the tensors one rank at a time, `distance` times.
Tensor rank_by_rank(Communicator& comm, const Tensor& mine, int distance) {
  Tensor moved = mine;
  for (int i = 0; i < neighbour(comm, distance - comm.rank()); ++i) {
    moved = lab::shift(comm, moved, 1);
  }
  return moved;
}

// Wrong steps.

struct Mistakes {
  bool sum = false;                 ///< begins the backward with 1
  bool keeps_gradients = false;     ///< sends none back
  bool gradient_first = false;      ///< waits for the gradient before it sends its activations
  bool previous_rank = false;       ///< takes stage s - 1 to be on rank - 1, and s + 1 on rank + 1
  bool sends_to_itself = false;     ///< also between stages of one rank
  bool ascending_backward = false;  ///< runs the backwards from its first stage on
  bool acknowledges = false;        ///< answers each message
  bool images_gradient = false;     ///< stage 0 computes it too
  bool wrong_shape = false;         ///< expects the gradient in the shape of the stage's input
  bool other_device = false;        ///< creates 1 / N on the first device
};

class WrongStep {
 public:
  WrongStep(const lab::BatchStep& step, const Mistakes& wrong)
      : step_(step), wrong_(wrong), last_(static_cast<int>(step.stage_to_rank.size()) - 1) {}

  double run() {
    for (int s = 0; s <= last_; ++s) {
      if (is_mine(s)) {
        forward(s);
      }
    }
    for (int i = 0; i <= last_; ++i) {
      const int s = wrong_.ascending_backward ? i : last_ - i;
      if (is_mine(s)) {
        backward(s);
      }
    }
    return loss_;
  }

 private:
  static constexpr int kThanks = 2;  // a tag
  bool is_mine(int stage) const { return step_.stages.contains(stage); }
  int rank_of(int stage, int change) const {
    return wrong_.previous_rank ? step_.comm.rank() + change : step_.stage_to_rank[static_cast<std::size_t>(stage)];
  }
  Shape shape(int entered) const { return step_.entering[static_cast<std::size_t>(entered)]; }

  Tensor take(int entered, int from, int change, int tag) {
    if (is_mine(from) && !wrong_.sends_to_itself) {
      return here_;
    }
    const Tensor tensor = step_.comm.receive(shape(entered), DType::float32, rank_of(from, change), tag);
    if (wrong_.acknowledges) {
      step_.comm.send(Tensor::zeros({1}, DType::float32, step_.comm.device()), rank_of(from, change), kThanks);
    }
    return tensor;
  }
  void give(const Tensor& tensor, int to, int change, int tag) {
    here_ = tensor;
    if (!is_mine(to) || wrong_.sends_to_itself) {
      step_.comm.send(tensor, rank_of(to, change), tag);
      if (wrong_.acknowledges) {
        step_.comm.receive({1}, DType::float32, rank_of(to, change), kThanks);
      }
    }
  }

  void forward(int s) {
    const Tensor x = s == 0 ? step_.images : take(s, s - 1, -1, 0);
    const bool wants_gradient = s > 0 || wrong_.images_gradient;
    if (s == last_) {
      Tensor logits;
      loss_ = step_.stages.at(s).forward_with_loss(0, x, step_.labels, wants_gradient, &logits).item();
      return;
    }
    const Tensor y = step_.stages.at(s).forward(0, x, wants_gradient);
    if (wrong_.gradient_first) {
      gradient_ = take(s + 1, s + 1, 1, 1);
    }
    give(y, s + 1, 1, 0);
  }
  void backward(int s) {
    const double share = wrong_.sum ? 1 : 1.0 / static_cast<double>(shape(0)[0]);
    Tensor grad = gradient_;
    if (s == last_) {
      grad = Tensor::full({}, share, DType::float32, wrong_.other_device ? Device() : step_.comm.device());
    } else if (wrong_.keeps_gradients) {
      grad = Tensor::full(shape(s + 1), share, DType::float32, step_.comm.device());
    } else if (!wrong_.gradient_first) {
      grad = take(wrong_.wrong_shape ? s : s + 1, s + 1, 1, 1);
    }
    const Tensor grad_x = step_.stages.at(s).backward(0, grad);
    if (s > 0 && !wrong_.keeps_gradients) {
      give(grad_x, s - 1, -1, 1);
    }
  }

  const lab::BatchStep& step_;
  Mistakes wrong_;
  int last_;
  Tensor here_;
  Tensor gradient_;
  double loss_ = 0;
};

}  // namespace

std::vector<WrongAnswer<Answer>> wrong_answers() {
  std::vector<WrongAnswer<Answer>> answers;
  using Shift = Tensor (*)(Communicator&, const Tensor&, int);
  const auto shifts = [&](const char* name, const char* mistake, const char* criterion, Shift shift) {
    answers.push_back({name, mistake, criterion, {shift, lab::batch_step}});
  };
  const auto steps = [&](const char* name, const char* mistake, const char* criterion, const Mistakes& wrong) {
    const auto batch_step = [wrong](const lab::BatchStep& step) { return WrongStep(step, wrong).run(); };
    answers.push_back({name, mistake, criterion, {lab::shift, batch_step}});
  };
  const char* const by_one = "all ranks shift by one without a deadlock";
  const char* const any_distance = "they shift by any distance";
  const char* const waiting = "they use calls that wait, and one message each";
  const char* const in_order = "a batch through stages in order trains what one device trains";
  const char* const any_rank = "the stages may be on any ranks";
  const char* const not_needed = "nothing is sent or computed that is not needed";
  const char* const several = "one rank may hold several stages";
  shifts("all_send_first", "All ranks send first, so none receives.", by_one, all_send_first);
  shifts("all_receive_first", "All ranks receive first, so none sends.", by_one, all_receive_first);
  shifts("other_direction", "The tensors move down instead of up.", by_one, other_direction);
  shifts("odd_ranks_receive_first", "Odd ranks receive first: with an even distance whole circles send first.",
         any_distance, odd_ranks_receive_first);
  shifts("rank_zero_receives_first", "Rank 0 receives first: a circle without rank 0 waits forever.", any_distance,
         rank_zero_receives_first);
  shifts("negative_remainder", "C++'s % of a negative number is negative, and no rank has that number.", any_distance,
         negative_remainder);
  shifts("sends_without_waiting", "send_async hides the question which rank receives first.", waiting,
         sends_without_waiting);
  shifts("rank_by_rank", "A distance of two is two shifts by one, with twice the messages.", waiting, rank_by_rank);
  steps("sum", "The gradients are those of the sum of the losses, not of their mean.", in_order, {.sum = true});
  steps("keeps_gradients", "No gradient is sent back; earlier stages begin with 1 / N too.", in_order,
        {.keeps_gradients = true});
  steps("gradient_first", "A rank waits for the gradient before it sends its activations.", in_order,
        {.gradient_first = true});
  steps("wrong_shape", "The gradient is expected in the shape of the stage's input, not of its output.", in_order,
        {.wrong_shape = true});
  steps("other_device", "The 1 / N is created on the first device, not on that of the rank.", in_order,
        {.other_device = true});
  steps("previous_rank", "Stage s - 1 is taken to be on the rank before.", any_rank, {.previous_rank = true});
  steps("ascending_backward", "A rank runs the backward of its first stage first.", several,
        {.ascending_backward = true});
  steps("sends_to_itself", "A rank sends to itself between two of its stages.", several, {.sends_to_itself = true});
  steps("acknowledges", "Each message is answered by another one.", not_needed, {.acknowledges = true});
  steps("images_gradient", "Stage 0 computes the gradient of the images, which nobody uses.", not_needed,
        {.images_gradient = true});
  return answers;
}

}  // namespace stagecoach::labs::lab2
