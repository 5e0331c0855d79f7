#pragma once
/// @file
/// The backward pass. Nodes run in the reverse of the order in which they were recorded, which fixes the
/// order of every sum: equal graphs give equal bytes.

#include <memory>
#include <span>
#include <vector>

#include "core/autograd/leaf_gradients.h"
#include "core/autograd/node.h"
#include "core/tensor.h"

namespace stagecoach {

/// Whether a graph is retained, so that backward may run through it again.
enum class RetainGraph { no, yes };

/// Adds to the gradient of every leaf that `output` was made from: d(output)/d(leaf) times `grad`.
/// @param output any recorded tensor.
/// @param grad   the upstream gradient, of output's shape; may be left out for a scalar, where it is 1.
/// Throws Error when nothing was recorded, when shapes differ, or when a saved tensor was changed meanwhile.
/// Unless the graph is retained, what a node saved is freed as soon as the node has run.
void backward(const Tensor& output, const Tensor& grad = {}, RetainGraph retain_graph = RetainGraph::no);

/// The rest of a backward pass that backward_inputs left for later: the weight gradients.
class DeferredGradients {
 public:
  /// Adds them, in the order in which one whole backward would have added them. Once.
  void run();
  /// Computes them without adding them: the caller does that by HeldGradients::add, at a better moment.
  HeldGradients run_and_hold();
  /// Nodes that still owe a gradient.
  std::size_t size() const { return owed_.size(); }

 private:
  friend DeferredGradients backward_inputs(const Tensor&, const Tensor&, std::span<const Tensor>, RetainGraph);
  struct Owed {
    std::shared_ptr<Node> node;
    Tensor grad_output;
    NeedsInputGrad needs_input_grad;
  };
  void run_into(HeldGradients* held);

  std::vector<Owed> owed_;
  RetainGraph retain_graph_ = RetainGraph::no;
};

/// Runs only the part of backward that the gradients of `inputs` (leaves) need, and returns the rest.
/// A stage sends its input gradient upstream at once and does its weights when it would otherwise be idle
/// (Qi et al., "Zero Bubble Pipeline Parallelism", 2023, section 2).
DeferredGradients backward_inputs(const Tensor& output, const Tensor& grad, std::span<const Tensor> inputs,
                                  RetainGraph retain_graph = RetainGraph::no);

/// The leaves that a backward from `outputs` would reach, each once, in the order of first use.
std::vector<Tensor> reachable_leaves(std::span<const Tensor> outputs);

/// The nodes of the graph below `output`, in the order in which they were recorded.
std::vector<std::shared_ptr<Node>> recorded_nodes(const Tensor& output);

}  // namespace stagecoach
