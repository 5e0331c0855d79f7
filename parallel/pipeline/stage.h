#pragma once
/// @file
/// One stage of a model, which runs micro-batches forward and backward. Autograd's graph is cut at its border: what
/// comes in is a leaf, what goes out has no history, and the gradients are carried over by hand.

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/autograd/backward.h"
#include "nn/sequential.h"

namespace stagecoach {

/// One thread uses it. Micro-batches are known by a number; each goes forward, then backward, once.
class Stage {
 public:
  enum class Recompute { no, yes };

  /// `layers` have memory. With Recompute::yes a micro-batch keeps only its input between forward and backward, and
  /// runs forward a second time then (Chen et al., "Training deep nets with sublinear memory cost", 2016).
  Stage(std::shared_ptr<Sequential> layers, Recompute recompute = Recompute::no);

  /// Runs the layers on input `x` and keeps what the backward needs. `wants_gradient`: whether backward should return
  /// the gradient of x (all stages but the first).
  Tensor forward(int microbatch, const Tensor& x, bool wants_gradient);
  /// For the last stage, instead: the loss, as the sum over the samples of -log softmax(scores)[label]. `scores` gets
  /// the output.
  Tensor forward_with_loss(int microbatch, const Tensor& x, const Tensor& labels, bool wants_gradient, Tensor* scores);

  /// Adds the parameters' gradients of `microbatches` in this order from now on, whatever the order of the backwards:
  /// what comes before its turn waits, which takes the memory of the stage's gradients. Without it the order is that of
  /// the backwards. Gradients that still wait are dropped.
  void add_gradients_in_order(std::vector<int> microbatches);

  /// Adds to the parameters' gradients; returns that of x, or an undefined tensor where none is needed. `grad` is that
  /// of the output (of the loss: a scalar).
  Tensor backward(int microbatch, const Tensor& grad);
  /// The same in two parts: first the gradient of x, later those of the parameters.
  Tensor backward_input(int microbatch, const Tensor& grad);
  void backward_weight(int microbatch);

  /// Micro-batches between forward and the end of backward.
  std::size_t alive() const { return alive_.size(); }
  /// Micro-batches whose gradients wait to be added.
  std::size_t waiting_gradients() const { return waiting_.size(); }
  Sequential& layers() { return *layers_; }

 private:
  /// A micro-batch between forward and backward.
  struct Flight {
    explicit Flight(Tensor x_, Tensor labels_ = {}) : x(std::move(x_)), labels(std::move(labels_)) {}
    Tensor x;       // a leaf
    Tensor labels;  // of the last stage
    Tensor output;  // recorded; undefined while it must be computed again
    std::optional<DeferredGradients> weights;
  };
  Tensor run(Flight& flight, Tensor* scores);
  Tensor begin(int microbatch, Flight flight, bool wants_gradient, Tensor* scores);
  Flight& flight(int microbatch, const char* operation);
  bool is_next(int microbatch) const { return added_ >= order_.size() || order_[added_] == microbatch; }
  void advance();

  std::shared_ptr<Sequential> layers_;
  Recompute recompute_;
  std::map<int, Flight> alive_;
  std::vector<int> order_;  // in which gradients are added, or empty
  std::size_t added_ = 0;   // of them
  std::map<int, HeldGradients> waiting_;
};

}  // namespace stagecoach
