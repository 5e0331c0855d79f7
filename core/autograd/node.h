#pragma once
/// @file
/// A recorded operation: its inputs, its saved tensors, and how gradients flow back through it.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/grad_mode.h"
#include "core/base/thread_scope.h"
#include "core/tensor.h"

namespace stagecoach {

/// Whether a backward call computes the gradient of an input, by position.
using NeedsInputGrad = std::vector<bool>;
/// One gradient per input, by position; undefined where none is needed.
using Gradients = std::vector<Tensor>;

/// Every operation has one output. Its node lives as long as the output, or an operation computed from it.
class Node {
 public:
  /// Records an operation called `name`, which must be a string literal. `inputs` are in the operation's order.
  Node(const char* name, std::vector<Tensor> inputs);
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Returns the gradients of the inputs that need one (at least one), given the gradient of the output (of the
  /// output's shape). May be called more than once, each time for different inputs.
  virtual Gradients backward(const Tensor& grad_output, const NeedsInputGrad& needs_input_grad) = 0;

  const char* name() const { return name_; }
  /// Returns a number that increases with every node created, so inputs always precede the nodes computed from them.
  std::uint64_t sequence() const { return sequence_; }

  /// An input: a leaf that collects a gradient, an earlier node, or (both empty) a constant.
  struct Edge {
    Tensor leaf;
    std::shared_ptr<Node> node;
    bool needs_grad() const { return leaf.defined() || node != nullptr; }
  };
  const std::vector<Edge>& edges() const { return edges_; }

  /// A tensor that an operation saves in its forward for its backward.
  struct Saved {
    const char* name;
    Tensor tensor;  ///< without history, so that no cycle keeps the graph alive
    std::uint64_t version;
  };
  const std::vector<Saved>& saved() const { return saved_; }
  /// Saves `tensor` under a name (a string literal).
  void save(const char* name, const Tensor& tensor);
  /// Returns the tensor saved under `name`. Throws Error if its storage has since been written to.
  Tensor saved(const char* name) const;
  /// Throws Error if the storage of any saved tensor has since been written to.
  void check_versions() const;
  /// Expects the versions that the saved tensors have now: for a forward that is replayed (core/replay.h) and so saves
  /// them again.
  void renew_versions();
  /// Frees the saved tensors; the node cannot run any more.
  virtual void release();
  bool released() const { return released_; }

 protected:
  /// Makes a node that takes the place of another, with its name and edges.
  struct InPlaceOf {
    const Node& other;
  };
  explicit Node(InPlaceOf replaced);

 private:
  void check_version(const Saved& entry) const;

  const char* name_;
  std::uint64_t sequence_;
  std::vector<Edge> edges_;
  std::vector<Saved> saved_;
  bool released_ = false;
};

/// Returns whether an operation on `inputs` (undefined ones do not count) must be recorded.
bool should_record(std::initializer_list<const Tensor*> inputs);

/// Returns `y`, the output of an operation on `inputs`. If the operation must be recorded, constructs the node of `y`,
/// a NodeType, from `arguments`; `y` may be one of them.
template <class NodeType, class... Arguments>
Tensor recorded(Tensor y, std::initializer_list<const Tensor*> inputs, const Arguments&... arguments) {
  if (should_record(inputs)) {
    y.set_grad_node(std::make_shared<NodeType>(arguments...));
  }
  return y;
}

/// Skips the version check of saved tensors in this thread until the end of the scope. What backward then computes is
/// in general not a gradient of anything; the class exists to demonstrate that.
class UncheckedVersions : public ThreadScope<UncheckedVersions> {};

}  // namespace stagecoach
