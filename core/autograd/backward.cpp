#include "core/autograd/backward.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/kernels/kernels.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

/// Orders nodes by sequence: the last recorded one comes first.
struct LastFirst {
  bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
    return a->sequence() > b->sequence();
  }
};
using NodeSet = std::set<std::shared_ptr<Node>, LastFirst>;

NodeSet nodes_below(std::vector<std::shared_ptr<Node>> open) {
  NodeSet found(open.begin(), open.end());
  while (!open.empty()) {
    const auto node = std::move(open.back());
    open.pop_back();
    for (const auto& edge : node->edges()) {
      if (edge.node && found.insert(edge.node).second) {
        open.push_back(edge.node);
      }
    }
  }
  return found;
}

/// The node of a leaf that is the output itself, as of layers that return their input: hands its gradient on.
class LeafNode final : public Node {
 public:
  explicit LeafNode(const Tensor& leaf) : Node("leaf", {leaf}) {}
  Gradients backward(const Tensor& grad_output, const NeedsInputGrad&) override { return {grad_output}; }
};

/// Returns the node at which a backward from `output`, which requires a gradient, begins.
std::shared_ptr<Node> root_of(const Tensor& output) {
  return output.is_leaf() ? std::make_shared<LeafNode>(output) : output.grad_node();
}

Tensor upstream_gradient(const Tensor& output, const Tensor& grad) {
  STAGECOACH_CHECK(
      output.defined() && output.requires_grad(),
      "backward: expected the result of a recorded operation, got {}; compute it from tensors that require a gradient",
      describe(output));
  if (!grad.defined()) {
    STAGECOACH_CHECK(output.numel() == 1, "backward: expected a scalar output, got {}; pass an upstream gradient too",
                     describe(output));
    return Tensor::full(output.shape(), 1, output.dtype(), output.device());
  }
  STAGECOACH_CHECK(grad.shape() == output.shape() && grad.dtype() == output.dtype() && grad.device() == output.device(),
                   "backward: expected an upstream gradient like the output {}, got {}", describe(output),
                   describe(grad));
  return grad;
}

/// Returns sum + gradient. Gradients are passed on without copying, so `sum` may have other handles.
Tensor summed(Tensor sum, const Tensor& gradient) {
  if (sum.is_donatable()) {
    kernels(sum.device()).add_scaled(gradient, 1, sum);
    return sum;
  }
  Tensor fresh = Tensor::empty(sum.shape(), sum.dtype(), sum.device());
  kernels(sum.device()).add(sum, gradient, fresh);
  return fresh;
}

bool is_one_of(const Tensor& leaf, std::span<const Tensor> tensors) {
  return leaf.defined() &&
         std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) { return leaf.is_same(tensor); });
}

bool any(const NeedsInputGrad& needs_input_grad) {
  return std::find(needs_input_grad.begin(), needs_input_grad.end(), true) != needs_input_grad.end();
}

/// One pass over the graph. It runs nodes last-recorded-first, so each after all nodes that used its output.
class GraphTraversal {
 public:
  /// Gradients of leaves are added at once, or collected in `held`.
  explicit GraphTraversal(HeldGradients* held = nullptr) : held_(held) {}

  /// Registers an expected contribution to a leaf, so that the leaf's hook is called after the last one.
  void expect(const Tensor& leaf) { ++expected_[leaf.id()]; }
  void expect_all(const NodeSet& nodes) {
    for (const auto& node : nodes) {
      for (const auto& edge : node->edges()) {
        if (edge.leaf.defined()) {
          expect(edge.leaf);
        }
      }
    }
  }

  /// Adds to the gradient with which `node` will run.
  void add(const std::shared_ptr<Node>& node, Tensor grad) {
    Tensor& sum = pending_[node];
    sum = sum.defined() ? summed(std::exchange(sum, {}), grad) : std::move(grad);
  }

  /// Returns the node that runs next, or null.
  const Node* next() const { return pending_.empty() ? nullptr : pending_.begin()->first.get(); }
  std::pair<std::shared_ptr<Node>, Tensor> take() {
    auto first = pending_.extract(pending_.begin());
    return {first.key(), std::move(first.mapped())};
  }

  /// Runs `node` and passes its gradients on: to earlier nodes, or to leaves.
  void run(Node& node, const Tensor& grad_output, const NeedsInputGrad& needs_input_grad) {
    STAGECOACH_CHECK(!node.released(),
                     "backward of {}: an earlier backward has already freed the graph; run the forward again, or pass "
                     "RetainGraph::yes to the earlier backward",
                     node.name());
    if (!any(needs_input_grad)) {
      return;
    }
    Gradients gradients;
    {
      const Span span(node.name(), "backward");
      gradients = node.backward(grad_output, needs_input_grad);
    }
    for (std::size_t i = 0; i < needs_input_grad.size(); ++i) {
      if (needs_input_grad[i]) {
        STAGECOACH_CHECK(gradients[i].defined(), "backward of {}: expected a gradient for input {}, got none",
                         node.name(), i);
        hand_on(std::exchange(gradients[i], {}), node.edges()[i]);
      }
    }
  }

 private:
  void hand_on(Tensor gradient, const Node::Edge& edge) {
    if (edge.node) {
      add(edge.node, std::move(gradient));
      return;
    }
    Tensor leaf = edge.leaf;
    const bool is_last = --expected_[leaf.id()] == 0;
    if (held_ != nullptr) {
      held_->hold(std::move(gradient), std::move(leaf), is_last);
      return;
    }
    accumulate_leaf(std::move(gradient), leaf);
    if (is_last && leaf.gradient_hook()) {
      leaf.gradient_hook()(leaf);
    }
  }

  HeldGradients* held_;
  std::map<std::shared_ptr<Node>, Tensor, LastFirst> pending_;  // each with the gradient of its output so far
  std::unordered_map<const void*, int> expected_;
};

NeedsInputGrad all_that_need(const Node& node) {
  NeedsInputGrad needs_input_grad;
  for (const auto& edge : node.edges()) {
    needs_input_grad.push_back(edge.needs_grad());
  }
  return needs_input_grad;
}

/// Returns which edges of each node are on a path to one of `inputs`.
std::unordered_map<const Node*, NeedsInputGrad> edges_leading_to(std::span<const Tensor> inputs, const NodeSet& nodes) {
  std::unordered_map<const Node*, NeedsInputGrad> leading;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {  // first recorded first: inputs before users
    NeedsInputGrad& needs_input_grad = leading[node->get()];
    for (const auto& edge : (*node)->edges()) {
      needs_input_grad.push_back(is_one_of(edge.leaf, inputs) || (edge.node && any(leading.at(edge.node.get()))));
    }
  }
  return leading;
}

}  // namespace

void backward(const Tensor& output, const Tensor& grad, RetainGraph retain_graph) {
  const NoGrad no_grad;
  const Tensor upstream = upstream_gradient(output, grad);
  const std::shared_ptr<Node> root = root_of(output);
  GraphTraversal traversal;
  traversal.expect_all(nodes_below({root}));
  traversal.add(root, upstream);
  while (traversal.next() != nullptr) {
    const auto [node, grad_output] = traversal.take();
    traversal.run(*node, grad_output, all_that_need(*node));
    if (retain_graph == RetainGraph::no) {
      node->release();
    }
  }
}

DeferredGradients backward_inputs(const Tensor& output, const Tensor& grad, std::span<const Tensor> inputs,
                                  RetainGraph retain_graph) {
  const NoGrad no_grad;
  const Tensor upstream = upstream_gradient(output, grad);
  const std::shared_ptr<Node> root = root_of(output);
  const NodeSet nodes = nodes_below({root});
  const auto leading = edges_leading_to(inputs, nodes);
  GraphTraversal traversal;
  for (const auto& node : nodes) {
    for (const auto& edge : node->edges()) {
      if (is_one_of(edge.leaf, inputs)) {
        traversal.expect(edge.leaf);
      }
    }
  }
  DeferredGradients deferred;
  deferred.retain_graph_ = retain_graph;
  traversal.add(root, upstream);
  while (traversal.next() != nullptr) {
    const auto [node, grad_output] = traversal.take();
    const NeedsInputGrad& now = leading.at(node.get());
    traversal.run(*node, grad_output, now);
    NeedsInputGrad later = all_that_need(*node);
    for (std::size_t i = 0; i < later.size(); ++i) {
      later[i] = later[i] && !now[i];
    }
    if (any(later)) {
      deferred.owed_.push_back({node, grad_output, std::move(later)});
    } else if (retain_graph == RetainGraph::no) {
      node->release();
    }
  }
  return deferred;
}

void DeferredGradients::run() { run_into(nullptr); }

HeldGradients DeferredGradients::run_and_hold() {
  HeldGradients held;
  run_into(&held);
  return held;
}

void DeferredGradients::run_into(HeldGradients* held) {
  const NoGrad no_grad;
  GraphTraversal traversal(held);
  std::vector<std::shared_ptr<Node>> below;
  for (const Owed& owed : owed_) {
    for (std::size_t i = 0; i < owed.needs_input_grad.size(); ++i) {
      const auto& edge = owed.node->edges()[i];
      if (owed.needs_input_grad[i] && edge.leaf.defined()) {
        traversal.expect(edge.leaf);
      } else if (owed.needs_input_grad[i]) {
        below.push_back(edge.node);
      }
    }
  }
  traversal.expect_all(nodes_below(std::move(below)));
  std::size_t done = 0;
  while (done < owed_.size() || traversal.next() != nullptr) {
    const bool owed_first = traversal.next() == nullptr ||
                            (done < owed_.size() && owed_[done].node->sequence() > traversal.next()->sequence());
    std::shared_ptr<Node> node;
    if (owed_first) {
      Owed owed = std::exchange(owed_[done++], {});
      node = owed.node;
      traversal.run(*node, owed.grad_output, owed.needs_input_grad);
    } else {
      const auto [interior, grad_output] = traversal.take();
      node = interior;
      traversal.run(*node, grad_output, all_that_need(*node));
    }
    if (retain_graph_ == RetainGraph::no) {
      node->release();
    }
  }
  owed_.clear();
}

std::vector<Tensor> reachable_leaves(std::span<const Tensor> outputs) {
  std::vector<std::shared_ptr<Node>> roots;
  for (const Tensor& output : outputs) {
    if (output.grad_node()) {
      roots.push_back(output.grad_node());
    }
  }
  const NodeSet nodes = nodes_below(std::move(roots));
  std::vector<Tensor> leaves;
  std::unordered_set<const void*> seen;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    for (const auto& edge : (*node)->edges()) {
      if (edge.leaf.defined() && seen.insert(edge.leaf.id()).second) {
        leaves.push_back(edge.leaf);
      }
    }
  }
  return leaves;
}

std::vector<std::shared_ptr<Node>> recorded_nodes(const Tensor& output) {
  if (!output.grad_node()) {
    return {};
  }
  const NodeSet nodes = nodes_below({output.grad_node()});
  return {nodes.rbegin(), nodes.rend()};
}

}  // namespace stagecoach
