#include "tests/labs/wrong/lab7.h"

#include <numeric>

#include "chapters/07_one_controller/lab/move.h"
#include "core/ops.h"
#include "core/transfer.h"

namespace stagecoach::labs::lab7 {
namespace {

using lab::TickStep;

// Wrong copies.

/// Returns a tensor for the elements of x on `to`.
Tensor room_for(const Tensor& x, Device to) { return Tensor::empty(x.shape(), x.dtype(), to); }

Tensor nobody_waits(const Tensor& x, Device to) {
  if (x.device() == to) {
    return x;
  }
  Tensor out = room_for(x, to);
  copy_async(x, out);
  return out;
}

Tensor sender_waits(const Tensor& x, Device to) {
  if (x.device() == to) {
    return x;
  }
  Tensor out = room_for(x, to);
  copy_async(x, out).wait({x.device(), Stream::kCompute});
  return out;
}

Tensor program_waits(const Tensor& x, Device to) {
  if (x.device() == to) {
    return x;
  }
  Tensor out = room_for(x, to);
  copy_async(x, out).synchronize();
  return out;
}

Tensor through_the_host(const Tensor& x, Device to) { return Tensor::from(x.to_vector<float>(), x.shape(), to); }

Tensor uses_to(const Tensor& x, Device to) { return x.to(to); }

Tensor stays(const Tensor& x, Device /*to*/) { return x; }

// Wrong steps.

struct StepMistakes {
  int forward_ticks = 0;                ///< more or fewer than m + p - 1
  bool by_microbatch = false;           ///< all stages for micro-batch 0, then for micro-batch 1, …
  bool by_stage = false;                ///< stage 0 for all micro-batches, then stage 1, …
  bool last_microbatch_first = false;   ///< in the backward
  bool deepest_late = false;            ///< stage s begins its backwards at tick s
  bool interleaved = false;             ///< the backward of a micro-batch directly after its loss
  bool slot_per_stage = false;          ///< one activation per stage, overwritten before the next stage has it
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
        here_(step.images),
        slots_(step.stages.size() + 1) {}

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
  Tensor& here(int i) { return here_[static_cast<std::size_t>(i)]; }

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
    const Tensor entering = wrong_.slot_per_stage && s > 0 ? slots_[static_cast<std::size_t>(s)] : here(i);
    const Tensor x = lab::move(entering, device(s));
    if (s < last()) {
      here(i) = slots_[static_cast<std::size_t>(s) + 1] = stage(s).forward(i, x, s > 0);
      return;
    }
    const Tensor& labels = step_.labels[static_cast<std::size_t>(i)];
    const Tensor loss =
        stage(s).forward_with_loss(i, x, wrong_.labels_on_host ? labels : lab::move(labels, device(s)), s > 0, nullptr);
    if (wrong_.reads_loss) {
      loss.item();
    }
    sum_ = sum_.defined() ? add(sum_, loss) : loss;
    const Device place_of_share = wrong_.share_on_host ? Device() : device(s);
    here(i) = Tensor::full({}, share_of(labels.size(0)), DType::float32, place_of_share);
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
    const bool keeps_device = wrong_.share_on_host && s == last();
    here(i) = stage(s).backward(i, keeps_device ? here(i) : lab::move(here(i), device(s)));
  }

  const TickStep& step_;
  StepMistakes wrong_;
  int stages_;
  int microbatches_;
  std::vector<Tensor> here_;   // of each micro-batch, what enters the next stage; later its gradient
  std::vector<Tensor> slots_;  // what entered each stage last
  Tensor sum_;
};

}  // namespace

std::vector<WrongAnswer<Answer>> wrong_answers() {
  std::vector<WrongAnswer<Answer>> answers;
  using Move = Tensor (*)(const Tensor&, Device);
  const auto moves = [&](const char* name, const char* mistake, const char* criterion, Move move) {
    answers.push_back({name, mistake, criterion, {move, lab::tick_step}});
  };
  const auto steps = [&](const char* name, const char* mistake, const char* criterion, const StepMistakes& wrong) {
    const auto tick_step = [wrong](const TickStep& step) { return WrongStep(step, wrong).run(); };
    answers.push_back({name, mistake, criterion, {lab::move, tick_step}});
  };
  const char* const elements = "move: the elements of x on the other device, copied by copy_async";
  const char* const later = "move: later operations on that device wait for the copy";
  const char* const at_once = "move: the program does not wait";
  const char* const forwards = "step: forwards are called tick by tick";
  const char* const backwards = "step: backwards are called tick by tick, from the first micro-batch";
  const char* const gradients = "step: gradients equal those of one device, bit for bit";
  const char* const no_wait = "step: the program waits for no device";
  moves("stays", "The tensor stays where it is.", elements, stays);
  moves("uses_to", "Tensor::to makes the copy.", elements, uses_to);
  moves("nobody_waits", "Nobody waits for the copy, so it may be read before it is done.", later, nobody_waits);
  moves("sender_waits", "The device that sends waits for the copy, not the one that receives.", later, sender_waits);
  moves("program_waits", "The program itself waits for the copy.", at_once, program_waits);
  moves("through_the_host", "The elements are read and written by the program, which waits for them.", at_once,
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
