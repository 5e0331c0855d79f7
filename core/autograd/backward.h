#pragma once
/// @file
/// The backward pass. Nodes run in the reverse of the order in which they were recorded, which fixes the order of every
/// sum: equal graphs produce equal bytes.

#include <memory>
#include <span>
#include <vector>

#include "core/autograd/leaf_gradients.h"
#include "core/autograd/node.h"
#include "core/tensor.h"

namespace stagecoach {

/// Whether a graph is retained, so that backward can run through it again.
enum class RetainGraph { no, yes };

/// Adds d(output)/d(leaf) times `grad` to the gradient of every leaf from which `output` was computed.
/// @param output any recorded tensor, or a leaf that requires a gradient: a layer may return its input.
/// @param grad   the upstream gradient, of output's shape; may be omitted for a scalar, and is then 1.
/// Throws Error if `output` requires no gradient, if shapes differ, or if a saved tensor has since been changed. Unless
/// the graph is retained, the tensors that a node saved are freed as soon as the node has run.
void backward(const Tensor& output, const Tensor& grad = {}, RetainGraph retain_graph = RetainGraph::no);

/// The part of a backward pass that backward_inputs deferred: the weight gradients.
class DeferredGradients {
 public:
  /// Computes and adds the gradients, in the order in which a single backward would have added them. May be called
  /// once.
  void run();
  /// Computes the gradients without adding them: the caller does so later with HeldGradients::add.
  HeldGradients run_and_hold();
  /// Returns the number of nodes that still have gradients to compute.
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

/// Runs only the part of backward that the gradients of `inputs` (leaves) need, and returns the rest. A stage sends its
/// input gradient upstream at once and computes its weight gradients when it would otherwise be idle (Qi et al., "Zero
/// Bubble Pipeline Parallelism", 2023, section 2).
DeferredGradients backward_inputs(const Tensor& output, const Tensor& grad, std::span<const Tensor> inputs,
                                  RetainGraph retain_graph = RetainGraph::no);

/// Returns the leaves that a backward from `outputs` would reach, each once, in the order of first use.
std::vector<Tensor> reachable_leaves(std::span<const Tensor> outputs);

/// Returns the nodes of the graph of `output`, in the order in which they were recorded.
std::vector<std::shared_ptr<Node>> recorded_nodes(const Tensor& output);

}  // namespace stagecoach
