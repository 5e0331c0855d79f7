#pragma once
/// @file
/// One stage of a model, which runs micro-batches forward and backward. The autograd graph is cut at the stage's
/// borders: its input is a leaf, its output has no history, and gradients are passed across explicitly.

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/autograd/backward.h"
#include "nn/batch_position.h"
#include "nn/loss_function.h"
#include "nn/named_values.h"
#include "nn/sequential.h"
#include "parallel/pipeline/recorded_passes.h"

namespace stagecoach {

class ActionLog;

/// For use by one thread. Micro-batches are identified by number; each runs forward once, then backward once.
class Stage {
 public:
  enum class Recompute { no, yes };
  enum class Record { no, yes };

  /// `layers` must have memory. With Recompute::yes (activation checkpointing) only a micro-batch's input is kept
  /// between forward and backward, and the backward runs the forward again (Chen et al., "Training deep nets with
  /// sublinear memory cost", 2016). `loss` is that of the last stage. With Record::yes forwards and backwards on a GPU
  /// are recorded as CUDA graphs and replayed, with the same results. Then the layers must do the same each time and
  /// not wait for the device or other ranks. Passes that must be computed again, or whose weights move, are not
  /// recorded.
  Stage(std::shared_ptr<Sequential> layers, Recompute recompute = Recompute::no, LossFunction loss = {},
        Record record = Record::no);

  /// From now on `log`, which must outlive the stage, times the forwards and backwards as those of stage `number`,
  /// unless a caller opens a scope of the log around them.
  void log_to(ActionLog& log, int number);

  /// Runs the layers on input `x` and keeps what the backward needs. `wants_gradient` says whether backward should
  /// return the gradient of x (true for all stages except the first).
  Tensor forward(int microbatch, const Tensor& x, bool wants_gradient);
  /// Replaces forward in the last stage: returns the loss [] of the output and the labels (targets of any kind), and
  /// stores the predictions in `logits`, unless that is null: the output, unless the loss makes others of it.
  Tensor forward_with_loss(int microbatch, const Tensor& x, const Tensor& labels, bool wants_gradient, Tensor* logits);

  /// From now on adds the parameters' gradients in the order of `microbatches`, whatever the order of the backwards. A
  /// gradient that arrives before its turn waits and takes as much memory as the stage's gradients. By default
  /// gradients are added in the order of the backwards. Drops gradients that are still waiting.
  void add_gradients_in_order(std::vector<int> microbatches);

  /// Adds to the parameters' gradients. Returns the gradient of x, or an undefined tensor if none is needed. `grad` is
  /// the gradient of the output (for the loss a scalar).
  Tensor backward(int microbatch, const Tensor& grad);
  /// Does the same in two parts: first the gradient of x, later the gradients of the parameters.
  Tensor backward_input(int microbatch, const Tensor& grad);
  void backward_weight(int microbatch);

  /// Returns the number of micro-batches between forward and the end of backward.
  std::size_t alive() const { return alive_.size(); }
  /// Returns the number of micro-batches whose gradients wait to be added.
  std::size_t waiting_gradients() const { return waiting_.size(); }
  Sequential& layers() { return *layers_; }
  const LossFunction& loss() const { return loss_; }

 private:
  /// A micro-batch between forward and backward.
  struct Flight {
    Tensor x;            // a leaf
    Tensor labels = {};  // only in the last stage
    Tensor output = {};  // recorded; undefined while it must be computed again
    // For a forward that is computed again:
    std::optional<BatchPosition> position = BatchScope::current();
    NamedTensors values = NamedValues::all();
    std::optional<DeferredGradients> weights = {};
    std::shared_ptr<RecordedPass> pass = {};  // in use by this micro-batch, or null
    bool is_recorded = false;                 // the tensors are those of the pass
    std::vector<Tensor> read_in_place = {};   // what the pass reads of others until the backward has ended
  };
  Tensor run(Flight& flight, Tensor* logits);
  Tensor run_recorded(Flight& flight, Tensor* logits);
  Tensor begin(int microbatch, Flight flight, bool wants_gradient, Tensor* logits);
  Flight& flight(int microbatch, const char* operation);
  Tensor run_backward_input(int microbatch, const Tensor& grad);
  void run_backward_weight(int microbatch);
  bool is_next(int microbatch) const { return added_ >= order_.size() || order_[added_] == microbatch; }
  void advance();

  std::shared_ptr<Sequential> layers_;
  Recompute recompute_;
  LossFunction loss_;
  ActionLog* log_ = nullptr;
  int number_ = 0;
  std::unique_ptr<RecordedPasses> passes_;  // null unless forwards and backwards are recorded
  std::map<int, Flight> alive_;
  std::vector<int> order_;  // the order in which gradients are added, or empty
  std::size_t added_ = 0;   // how many of `order_` have been added
  std::map<int, HeldGradients> waiting_;
};

}  // namespace stagecoach
