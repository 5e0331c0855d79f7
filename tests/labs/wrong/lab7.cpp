#include "tests/labs/wrong/lab7.h"

#include <numeric>

#include "chapters/07_one_controller/lab/move.h"
#include "core/ops.h"
#include "core/transfer.h"

namespace stagecoach::labs::lab7 {
namespace {

using lab::Move;
using lab::TickStep;

// Wrong copies.

/// Returns a move of what needs no copy.
Move there_already(const Tensor& x) { return {.tensor = x, .arrived = {}}; }

/// Begins a copy of x to `to` after what `after` computes, if x is not there.
Move copy_after(const Tensor& x, Device to, Device after) {
  if (x.device() == to) {
    return there_already(x);
  }
  Move move{.tensor = Tensor::empty(x.shape(), x.dtype(), to), .arrived = {}};
  Event ready;
  ready.record({after, Stream::kCompute});
  move.arrived = copy_async(x, move.tensor, ready, ready);
  return move;
}

Move after_the_receiver(const Tensor& x, Device to) { return copy_after(x, to, to); }

Move after_all_work(const Tensor& x, Device to) {
  if (x.device() == to) {
    return there_already(x);
  }
  Move move{.tensor = Tensor::empty(x.shape(), x.dtype(), to), .arrived = {}};
  move.arrived = copy_async(x, move.tensor);
  return move;
}

Move receiver_waits_at_once(const Tensor& x, Device to) {
  Move move = lab::start_move(x, to);
  lab::finish_move(move);
  return move;
}

Move sender_waits(const Tensor& x, Device to) {
  Move move = lab::start_move(x, to);
  if (move.arrived.recorded()) {
    move.arrived.wait({x.device(), Stream::kCompute});
  }
  return move;
}

Move through_the_host(const Tensor& x, Device to) {
  return there_already(Tensor::from(x.to_vector<float>(), x.shape(), to));
}

Move uses_to(const Tensor& x, Device to) { return there_already(x.to(to)); }

Move stays(const Tensor& x, Device /*to*/) { return there_already(x); }

Tensor nobody_waits(const Move& move) { return move.tensor; }

Tensor program_waits(const Move& move) {
  if (move.arrived.recorded()) {
    move.arrived.synchronize();
  }
  return move.tensor;
}

// Wrong steps.

struct StepMistakes {
  int forward_ticks = 0;                ///< more or fewer than m + p - 1
  bool by_microbatch = false;           ///< all stages for micro-batch 0, then for micro-batch 1, …
  bool by_stage = false;                ///< stage 0 for all micro-batches, then stage 1, …
  bool last_microbatch_first = false;   ///< in the backward
  bool deepest_late = false;            ///< stage s begins its backwards at tick s
  bool interleaved = false;             ///< the backward of a micro-batch directly after its loss
  bool slot_per_stage = false;          ///< one activation per stage, overwritten before the next stage has it
  bool starts_late = false;             ///< a move starts where its tensor is needed
  bool sum = false;                     ///< the gradients of the sum of the losses
  bool equal_microbatches = false;      ///< each micro-batch weighs 1 / m
  bool share_on_host = false;           ///< 1 / N is on the host
  bool labels_on_host = false;          ///< labels are not moved
  bool reads_loss = false;              ///< of each micro-batch
  bool synchronizes_each_tick = false;  ///< all devices
  bool synchronizes_at_end = false;
};

class WrongStep {
 public:
  WrongStep(const TickStep& step, const StepMistakes& wrong)
      : step_(step),
        wrong_(wrong),
        stages_(static_cast<int>(step.stages.size())),
        microbatches_(static_cast<int>(step.images.size())),
        slots_(step.stages.size() + 1) {
    for (const Tensor& images : step.images) {
      here_.push_back(leave(images, 0));
    }
  }

  Tensor run() {
    run_forwards();
    if (!wrong_.interleaved) {
      run_backwards();
    }
    if (wrong_.synchronizes_at_end) {
      synchronize_all();
    }
    return sum_;
  }

 private:
  int last() const { return stages_ - 1; }
  Stage& stage(int s) const { return step_.stages[static_cast<std::size_t>(s)]; }
  Device device(int s) const { return step_.devices[static_cast<std::size_t>(s)]; }
  Move& here(int i) { return here_[static_cast<std::size_t>(i)]; }

  Move leave(const Tensor& x, int s) const {
    return wrong_.starts_late ? there_already(x) : lab::start_move(x, device(s));
  }
  Tensor arrive(const Move& move, int s) const {
    return lab::finish_move(wrong_.starts_late ? lab::start_move(move.tensor, device(s)) : move);
  }

  void synchronize_all() const {
    for (const Device device : step_.devices) {
      synchronize({device, Stream::kCompute});
    }
  }

  void run_forwards() {
    const int ticks = microbatches_ + stages_ - 1 + wrong_.forward_ticks;
    const int rounds = wrong_.by_microbatch ? microbatches_ : wrong_.by_stage ? stages_ : ticks;
    for (int round = 0; round < rounds; ++round) {
      for (int k = 0; k < (wrong_.by_stage ? microbatches_ : stages_); ++k) {
        const int s = wrong_.by_stage ? round : k;
        const int i = wrong_.by_stage ? k : wrong_.by_microbatch ? round : round - s;
        if (i >= 0 && i < microbatches_) {
          forward(s, i);
        }
      }
      if (wrong_.synchronizes_each_tick) {
        synchronize_all();
      }
    }
  }

  void forward(int s, int i) {
    const Tensor x = arrive(wrong_.slot_per_stage && s > 0 ? slots_[static_cast<std::size_t>(s)] : here(i), s);
    if (s < last()) {
      here(i) = slots_[static_cast<std::size_t>(s) + 1] = leave(stage(s).forward(i, x, s > 0), s + 1);
      return;
    }
    const Tensor& labels = step_.labels[static_cast<std::size_t>(i)];
    const Tensor loss =
        stage(s).forward_with_loss(i, x, wrong_.labels_on_host ? labels : arrive(leave(labels, s), s), s > 0, nullptr);
    if (wrong_.reads_loss) {
      loss.item();
    }
    sum_ = sum_.defined() ? add(sum_, loss) : loss;
    const Device place_of_share = wrong_.share_on_host ? Device() : device(s);
    here(i) = there_already(Tensor::full({}, share_of(labels.size(0)), DType::float32, place_of_share));
    for (int t = last(); wrong_.interleaved && t >= 0; --t) {
      backward(t, i);
    }
  }

  double share_of(std::int64_t samples) const {
    const auto all = std::accumulate(step_.labels.begin(), step_.labels.end(), std::int64_t{0},
                                     [](std::int64_t sum, const Tensor& labels) { return sum + labels.size(0); });
    return wrong_.sum                  ? 1.0
           : wrong_.equal_microbatches ? 1.0 / microbatches_ / static_cast<double>(samples)
                                       : 1.0 / static_cast<double>(all);
  }

  void run_backwards() {
    for (int tick = 0; tick < microbatches_ + stages_ - 1; ++tick) {
      for (int s = last(); s >= 0; --s) {
        const int place = tick - (wrong_.deepest_late ? s : last() - s);
        if (place >= 0 && place < microbatches_) {
          backward(s, wrong_.last_microbatch_first ? microbatches_ - 1 - place : place);
        }
      }
    }
  }

  void backward(int s, int i) {
    const Tensor grad = stage(s).backward(i, arrive(here(i), s));
    if (s > 0) {
      here(i) = leave(grad, s - 1);
    }
  }

  const TickStep& step_;
  StepMistakes wrong_;
  int stages_;
  int microbatches_;
  std::vector<Move> here_;   // of each micro-batch, what enters the next stage; later its gradient
  std::vector<Move> slots_;  // what entered each stage last
  Tensor sum_;
};

}  // namespace

std::vector<WrongAnswer<Answer>> wrong_answers() {
  std::vector<WrongAnswer<Answer>> answers;
  const auto starts = [&](const char* name, const char* mistake, const char* criterion,
                          Move (*start_move)(const Tensor&, Device)) {
    answers.push_back({name, mistake, criterion, {start_move, lab::finish_move, lab::tick_step}});
  };
  const auto finishes = [&](const char* name, const char* mistake, const char* criterion,
                            Tensor (*finish_move)(const Move&)) {
    answers.push_back({name, mistake, criterion, {lab::start_move, finish_move, lab::tick_step}});
  };
  const auto steps = [&](const char* name, const char* mistake, const char* criterion, const StepMistakes& wrong) {
    const auto tick_step = [wrong](const TickStep& step) { return WrongStep(step, wrong).run(); };
    answers.push_back({name, mistake, criterion, {lab::start_move, lab::finish_move, tick_step}});
  };
  const char* const elements = "move: the elements of x on the other device, copied by copy_async";
  const char* const later = "move: operations after finish_move wait for the copy";
  const char* const x_alone = "move: the copy waits for x alone";
  const char* const free = "move: the receiving device is free until finish_move";
  const char* const at_once = "move: the program does not wait";
  const char* const forwards = "step: forwards are called tick by tick";
  const char* const backwards = "step: backwards are called tick by tick, from the first micro-batch";
  const char* const early = "step: a stage waits for no later call of the stage before it";
  const char* const gradients = "step: gradients equal those of one device, bit for bit";
  const char* const no_wait = "step: the program waits for no device";
  starts("stays", "The tensor stays where it is.", elements, stays);
  starts("uses_to", "Tensor::to makes the copy.", elements, uses_to);
  starts("after_the_receiver", "The copy waits for the device that receives, not for the one that computes x.",
         elements, after_the_receiver);
  finishes("nobody_waits", "Nobody waits for the copy, so it may be read before it is done.", later, nobody_waits);
  answers.push_back({"sender_waits",
                     "The device that sends waits for the copy, not the one that receives.",
                     later,
                     {sender_waits, nobody_waits, lab::tick_step}});
  starts("after_all_work", "The copy waits for all that both devices have been called for.", x_alone, after_all_work);
  starts("receiver_waits_at_once", "The device that receives waits for the copy from the moment when it starts.", free,
         receiver_waits_at_once);
  finishes("program_waits", "The program itself waits for the copy.", at_once, program_waits);
  starts("through_the_host", "The elements are read and written by the program, which waits for them.", at_once,
         through_the_host);
  steps("one_tick_short", "The loop has m + p - 2 ticks.", forwards, {.forward_ticks = -1});
  steps("by_microbatch", "Each micro-batch goes through all stages before the next one begins.", forwards,
        {.by_microbatch = true});
  steps("by_stage", "Each stage is called for all micro-batches before the next stage begins.", forwards,
        {.by_stage = true});
  steps("last_microbatch_first", "The backward begins with the last micro-batch, as autograd would.", backwards,
        {.last_microbatch_first = true});
  steps("deepest_late", "Stage s begins its backwards at tick s, as it does its forwards.", backwards,
        {.deepest_late = true});
  steps("interleaved", "The backward of a micro-batch runs through all stages directly after its loss.", backwards,
        {.interleaved = true});
  steps("starts_late", "A move starts where its tensor is needed, after a later call of the stage before.", early,
        {.starts_late = true});
  steps("slot_per_stage", "Each stage has one slot for its input, overwritten before it has been used.", gradients,
        {.slot_per_stage = true});
  steps("sum", "The gradients are those of the sum of the losses, not of their mean.", gradients, {.sum = true});
  steps("equal_microbatches", "Each micro-batch counts equally, whatever its size.", gradients,
        {.equal_microbatches = true});
  steps("share_on_host", "The 1 / N is on the host, not on the last device.", gradients, {.share_on_host = true});
  steps("labels_on_host", "The labels are not moved to the last device.", gradients, {.labels_on_host = true});
  steps("reads_loss", "The program reads the loss of each micro-batch, and the devices run dry.", no_wait,
        {.reads_loss = true});
  steps("synchronizes_each_tick", "The program waits for all devices after each tick.", no_wait,
        {.synchronizes_each_tick = true});
  steps("synchronizes_at_end", "The program waits for all devices before it returns.", no_wait,
        {.synchronizes_at_end = true});
  return answers;
}

}  // namespace stagecoach::labs::lab7
